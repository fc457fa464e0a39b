/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What choices under prices of room and tolls of windows (plan/dual_model.h) have in common: those
 * of spans (plan/dual_choose.c) and those that hang on where an op runs (plan/dual_hosted.c).
 */
#ifndef MEMRUN_PLAN_DUAL_CHOICE_H
#define MEMRUN_PLAN_DUAL_CHOICE_H

#include "plan/dual_model.h"

/* What ops that may run on a host choose, and what is wanted there or made by them: adds to used
 * and freed. Returns what it costs. */
double mr_dual_choose_hosted(struct mr_dual *t, double width);

/* The part that a choice has, before it is set against those of the others: 1 of the best, 0 from
 * `width` above it on. */
static inline double mr_dual_favour(double above, double width) {
  if (above >= width) { /* nearly all are: they are not worth a division */
    return above <= 0;
  }
  double nearness = width > 0 ? 1 - above / width : above <= 0;
  return nearness * nearness;
}

static inline const struct mr_toll *mr_dual_toll_in(const struct mr_dual *t, uint32_t window) {
  return &t->toll[window < t->window_count ? window : window - t->window_count];
}

static inline struct mr_toll *mr_dual_used_in(struct mr_dual *t, uint32_t window) {
  return &t->used[window < t->window_count ? window : window - t->window_count];
}

/* The ops before the end of a window, or of the stay. */
static inline double mr_dual_price_till(const struct mr_dual *t, const struct mr_stay *stay,
                                        uint32_t window) {
  uint32_t end = t->window_start[window + 1];
  return t->before[stay->end < end ? stay->end : end];
}

/* The first op that a byte may be gone at, and the first window that it may come back in, where its
 * version went out in the given window. */
struct mr_dual_start {
  uint32_t op, window;
};

static inline struct mr_dual_start
mr_dual_start_of(const struct mr_dual *t, const struct mr_stay *stay, uint32_t out_window) {
  uint32_t op = t->window_start[out_window] + 1;
  return (struct mr_dual_start){op > stay->begin ? op : stay->begin,
                                out_window > stay->from ? out_window : stay->from};
}

#endif

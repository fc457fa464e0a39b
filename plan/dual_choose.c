/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What spans choose under prices of room and tolls of windows; plan/dual_hosted.c: what ops do.
 *
 * A byte of a written version goes out in some window, once, and may leave from then on; in each of
 * its spans it comes back in some window, and room is free for it from the one to the other. The
 * best of all pairs of windows is found from the back: what coming back in a window or later costs
 * at least, for each window. What a clone makes again leaves at once and is made in some window.
 */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "plan/dual_choice.h"

/* What being made again costs. */
static void look_for_again(struct mr_dual *t, struct mr_stay *stay) {
  const struct mr_dual_rows *rows = &t->rows;
  double *again = &t->again[stay->ahead];
  double room = t->before[stay->begin];
  stay->remade = INFINITY;
  for (uint32_t v = stay->from; v <= stay->to && stay->remake >= 0; v++) {
    double till = v < stay->to ? rows->till[v] : t->before[stay->end];
    double cost = rows->ops[v] * stay->remake - till + room;
    again[v - stay->from] = cost;
    stay->remade = mr_min_double(stay->remade, cost);
  }
}

/* What coming back costs, from the last window to the first; what being made again does. */
static void look_ahead(struct mr_dual *t, struct mr_stay *stay) {
  double *ahead = &t->ahead[stay->ahead];
  double *back = &t->back[stay->ahead];
  double least = t->rows.in[stay->to] - t->before[stay->end];
  back[stay->to - stay->from] = least;
  ahead[stay->to - stay->from] = least;
  for (uint32_t v = stay->to; v-- > stay->from;) {
    double cost = t->rows.back[v];
    least = mr_min_double(least, cost);
    ahead[v - stay->from] = least;
    back[v - stay->from] = cost;
  }
  look_for_again(t, stay);
}

/* What leaving for a tier below costs at least; INFINITY: it is over before. */
static double moved_cost(const struct mr_dual *t, const struct mr_stay *stay,
                         const struct mr_dual_start *start) {
  return start->window > stay->to
             ? INFINITY
             : t->ahead[stay->ahead + start->window - stay->from] + t->before[start->op];
}

/* Of bytes that are not below: they may be made again alone. */
static const struct mr_dual_start never = {.window = UINT32_MAX};

/* Bytes that leave a stay, by the windows, from its first on, in which they come back or are made
 * again. */
struct leaving {
  double in[2 * MR_DUAL_WINDOWS], again[2 * MR_DUAL_WINDOWS];
};

/* The parts of windows [from, to) that cost so much more than `costs`, and their sum. */
static double favour_all(const double *costs, uint32_t from, uint32_t to, double more, double width,
                         double *parts) {
  double each = 1 / width;
  double sum = 0;
  for (uint32_t v = from; v < to; v++) {
    parts[v] = mr_max_double(1 - (costs[v] + more) * each, 0);
  }
  for (uint32_t v = from; v < to; v++) {
    parts[v] *= parts[v];
    sum += parts[v];
  }
  return sum;
}

static void add_parts(double *sums, double times, const double *parts, uint32_t from, uint32_t to) {
  for (uint32_t v = from; v < to; v++) {
    sums[v] += times * parts[v];
  }
}

/* From which window on none costs less than so much; `ahead`: the least of it and later ones. */
static uint32_t end_below(const double *ahead, uint32_t from, uint32_t count, double cost) {
  uint32_t end = from;
  while (end < count && ahead[end] < cost) {
    end++;
  }
  return end;
}

/* Lets so many bytes leave a stay as far as it pays. */
static void leave(struct mr_dual *t, const struct mr_stay *stay, const struct mr_dual_start *start,
                  double bytes, double width, struct leaving *leaving) {
  double back_parts[2 * MR_DUAL_WINDOWS];
  double again_parts[2 * MR_DUAL_WINDOWS];
  if (!(bytes > 0)) {
    return;
  }
  double moved = moved_cost(t, stay, start);
  double least = mr_min_double(moved, stay->remade);
  if (least >= width) {
    return;
  }
  least = mr_min_double(least, 0);
  uint32_t from = 0;
  uint32_t to = 0;
  double back = 0;
  if (moved - least < width) {
    const double *costs = &t->back[stay->ahead];
    uint32_t count = stay->to - stay->from + 1;
    double more = t->before[start->op] - least;
    from = start->window - stay->from;
    to = end_below(&t->ahead[stay->ahead], from, count, width - more);
    back = favour_all(costs, from, to, more, width, back_parts);
  }
  uint32_t to_again = stay->remade - least < width ? stay->to - stay->from + 1 : 0;
  double again = favour_all(&t->again[stay->ahead], 0, to_again, -least, width, again_parts);
  double each = bytes / (mr_dual_favour(-least, width) + back + again);
  add_parts(leaving->in, each, back_parts, from, to);
  add_parts(leaving->again, each, again_parts, 0, to_again);
  if (from < to) {
    t->freed[start->op] += each * back;
  }
  t->freed[stay->begin] += each * again;
}

/* What left a stay is back in its windows, or made again there. */
static void come_back(struct mr_dual *t, const struct mr_stay *stay,
                      const struct leaving *leaving) {
  for (uint32_t v = stay->from; v <= stay->to; v++) {
    double in = leaving->in[v - stay->from];
    double again = leaving->again[v - stay->from];
    uint32_t end = t->window_start[v + 1];
    struct mr_toll *used = mr_dual_used_in(t, v);
    used->in += in;
    used->ops += again * stay->remake;
    t->freed[end < stay->end ? end : stay->end] -= in + again;
  }
}

static void leaving_init(struct leaving *leaving, const struct mr_stay *stay) {
  uint64_t bytes = (stay->to - stay->from + 1ull) * sizeof *leaving->in;
  memset(leaving->in, 0, bytes);
  memset(leaving->again, 0, bytes);
}

static double stay_cost(double moved, const struct mr_stay *stay) {
  return mr_min_double(mr_min_double(moved, stay->remade), 0);
}

/* Adds what a stay costs at least when its version goes out in each of the windows [from, last]. */
static void add_stay_costs(const struct mr_dual *t, const struct mr_stay *stay, uint32_t from,
                           uint32_t last, double *costs) {
  const double *ahead = &t->ahead[stay->ahead];
  const double early = stay_cost(ahead[0] + t->before[stay->begin], stay);
  const double late = stay_cost(INFINITY, stay);
  uint32_t u = from;
  for (; u < stay->from; u++) {
    costs[u] += early;
  }
  for (; u <= stay->to; u++) {
    double gone = u == stay->from ? t->before[mr_dual_start_of(t, stay, u).op] : t->rows.gone[u];
    costs[u] += stay_cost(ahead[u - stay->from] + gone, stay);
  }
  for (; u <= last; u++) {
    costs[u] += late;
  }
}

/* So much of a version goes out in each of the windows [from, last], and the rest in none. */
static void settle(struct mr_dual *t, const struct mr_stay *stay, uint32_t from, uint32_t last,
                   const double *out_bytes, double rest_bytes, double width) {
  const struct mr_dual_start begin = {stay->begin, stay->from};
  struct leaving leaving;
  double early_bytes = 0;
  leaving_init(&leaving, stay);
  uint32_t u = from;
  for (; u < stay->from; u++) {
    early_bytes += out_bytes[u];
  }
  for (; u <= stay->to; u++) {
    const struct mr_dual_start start = mr_dual_start_of(t, stay, u);
    leave(t, stay, &start, out_bytes[u], width, &leaving);
  }
  for (; u <= last; u++) {
    rest_bytes += out_bytes[u];
  }
  leave(t, stay, &begin, early_bytes, width, &leaving);
  leave(t, stay, &never, rest_bytes, width, &leaving);
  come_back(t, stay, &leaving);
}

/* What is not written is below already. */
static double choose_constant(struct mr_dual *t, const struct mr_version *version, double width) {
  double cost = 0;
  for (uint32_t i = version->first; i < version->end; i++) {
    const struct mr_stay *stay = &t->stays[i];
    const struct mr_dual_start start = {stay->begin, stay->from};
    struct leaving leaving;
    cost += stay_cost(moved_cost(t, stay, &start), stay);
    leaving_init(&leaving, stay);
    leave(t, stay, &start, version->bytes, width, &leaving);
    come_back(t, stay, &leaving);
  }
  return version->bytes * cost;
}

static double choose_written(struct mr_dual *t, const struct mr_version *version, double width) {
  double costs[2 * MR_DUAL_WINDOWS];
  double out_bytes[2 * MR_DUAL_WINDOWS];
  double within = 0;
  uint32_t first = version->write_window;
  uint32_t last = 0;
  for (uint32_t i = version->first; i < version->end; i++) {
    within += stay_cost(INFINITY, &t->stays[i]);
    last = t->stays[i].to > last ? t->stays[i].to : last;
  }
  MR_ASSERT(first <= last); /* every stay is behind the write */
  for (uint32_t u = first; u <= last; u++) {
    costs[u] = t->rows.out[u];
  }
  for (uint32_t i = version->first; i < version->end; i++) {
    add_stay_costs(t, &t->stays[i], first, last, costs);
  }
  double least = within;
  for (uint32_t u = first; u <= last; u++) {
    least = mr_min_double(least, costs[u]);
  }
  double rest_part = mr_dual_favour(within - least, width);
  double each =
      version->bytes / (rest_part + favour_all(costs, first, last + 1, -least, width, out_bytes));
  for (uint32_t u = first; u <= last; u++) {
    out_bytes[u] *= each;
    mr_dual_used_in(t, u)->out += out_bytes[u];
  }
  for (uint32_t i = version->first; i < version->end; i++) {
    settle(t, &t->stays[i], first, last, out_bytes, each * rest_part, width);
  }
  return version->bytes * least;
}

static void begin(struct mr_dual *t) {
  for (uint32_t k = 0; k < 2 * t->op_count; k++) {
    t->before[k + 1] = t->before[k] + t->price[k < t->op_count ? k : k - t->op_count];
  }
  for (uint32_t w = 0; w < t->window_count; w++) {
    t->used[w] = (struct mr_toll){.ops = t->ops_seconds[w]};
  }
  for (uint32_t v = 0; v < 2 * t->window_count; v++) {
    const struct mr_toll *toll = mr_dual_toll_in(t, v);
    t->rows.in[v] = t->movable ? toll->in : INFINITY;
    t->rows.out[v] = t->movable ? toll->out : INFINITY;
    t->rows.ops[v] = toll->ops;
    t->rows.gone[v] = t->before[t->window_start[v] + 1];
    t->rows.till[v] = t->before[t->window_start[v + 1]];
    t->rows.back[v] = t->rows.in[v] - t->rows.till[v];
  }
  memset(t->freed, 0, (2ull * t->op_count + 1) * sizeof *t->freed);
}

/* The room that is short at each op, less what is free there in either of two steps. */
static void add_excess(struct mr_dual *t) {
  double freed[2] = {0};
  for (uint32_t k = 0; k < t->op_count; k++) {
    freed[1] += t->freed[k];
  }
  for (uint32_t k = 0; k < t->op_count; k++) {
    freed[0] += t->freed[k];
    freed[1] += t->freed[t->op_count + k];
    t->excess[k] = t->short_bytes[k] - freed[0] - freed[1];
  }
}

double mr_dual_choose(struct mr_dual *t, double width) {
  double value = 0;
  begin(t);
  for (uint32_t v = 0; v < t->version_count; v++) {
    const struct mr_version *version = &t->versions[v];
    for (uint32_t i = version->first; i < version->end && version->hosted == 0; i++) {
      look_ahead(t, &t->stays[i]);
    }
    if (version->hosted == 0 && version->first < version->end) {
      value +=
          version->written ? choose_written(t, version, width) : choose_constant(t, version, width);
    }
  }
  if (t->hosted.count > 0) {
    value += mr_dual_choose_hosted(t, width);
  }
  for (uint32_t w = 0; w < t->window_count; w++) {
    value += t->toll[w].ops * t->ops_seconds[w];
  }
  add_excess(t);
  for (uint32_t k = 0; k < t->op_count; k++) {
    value += t->price[k] * t->short_bytes[k];
  }
  return value;
}

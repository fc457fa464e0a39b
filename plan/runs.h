/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Free runs of pages while a line of stays is coloured (plan/colour.c): neighbours that nobody owns
 * before the same op. Which of them suits a stay best is asked for every stay, so their numbers lie
 * in arrays of their own, which a processor compares several at a time.
 */
#ifndef MEMRUN_PLAN_RUNS_H
#define MEMRUN_PLAN_RUNS_H

#include <stdbool.h>
#include <stdint.h>

#include <memrun/status.h>

/* Pages [page, page + count), 1 to 2^31 - 1 of them, that nobody owns before op wanted_at, which is
 * below 2^31. */
struct mr_run {
  uint32_t page;
  uint32_t count;
  uint32_t wanted_at;
};

/* Ascending by page; all 0: none. */
struct mr_runs {
  uint32_t *pages;
  uint32_t *counts;
  uint32_t *wanted_at;
  uint32_t count;
  uint32_t capacity;
};

void mr_runs_fini(struct mr_runs *runs);

struct mr_run mr_runs_at(const struct mr_runs *runs, uint32_t at);

/* The first run that starts at or after `page`. */
uint32_t mr_runs_after(const struct mr_runs *runs, uint32_t page);

/* Adds a run, joined with those beside it that are wanted at the same op. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_runs_add(struct mr_runs *runs, struct mr_run run);

/* Takes [page, page + count) out of run `at`, which holds it. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_runs_cut(struct mr_runs *runs, uint32_t at, uint32_t page,
                                      uint32_t count);

/*
 * The run that suits a stay of `count` pages up to the end of last_op best, the first of equals;
 * runs->count: all are wanted before. It had better be wanted soon after, hold all and be the
 * smallest that does, else be the largest; `sizes_first`: sizes count before times.
 */
uint32_t mr_runs_best(const struct mr_runs *runs, uint32_t last_op, uint32_t count,
                      bool sizes_first);

#endif

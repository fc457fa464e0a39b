/* SPDX-License-Identifier: Apache-2.0 */
/* Free runs of pages, and the one that suits a stay best. */
#include "plan/runs.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define NONE  INT32_MAX /* suits less than any run */
#define LANES 8u        /* runs that are looked at together */

void mr_runs_fini(struct mr_runs *runs) {
  free(runs->pages);
  free(runs->counts);
  free(runs->wanted_at);
  *runs = (struct mr_runs){0};
}

struct mr_run mr_runs_at(const struct mr_runs *runs, uint32_t at) {
  return (struct mr_run){runs->pages[at], runs->counts[at], runs->wanted_at[at]};
}

static void set_run(struct mr_runs *runs, uint32_t at, struct mr_run run) {
  runs->pages[at] = run.page;
  runs->counts[at] = run.count;
  runs->wanted_at[at] = run.wanted_at;
}

uint32_t mr_runs_after(const struct mr_runs *runs, uint32_t page) {
  uint32_t low = 0;
  uint32_t high = runs->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    bool before = runs->pages[middle] < page;
    low = before ? middle + 1 : low;
    high = before ? high : middle;
  }
  return low;
}

/* Makes room for one more in each array; what lies behind the last run is wanted at once, so that
 * it suits nobody. */
static mr_status reserve(struct mr_runs *runs) {
  uint32_t **arrays[] = {&runs->pages, &runs->counts, &runs->wanted_at};
  uint32_t before = runs->capacity;
  mr_status status = MR_OK;
  for (uint32_t i = 0; i < MR_COUNT_OF(arrays) && status == MR_OK; i++) {
    runs->capacity = before;
    status = mr_array_reserve((void **)arrays[i], &runs->capacity,
                              mr_round_up(runs->count + 1ull, LANES), sizeof **arrays[i]);
  }
  if (status == MR_OK) {
    memset(&runs->counts[before], 0, (runs->capacity - before) * sizeof *runs->counts);
    memset(&runs->wanted_at[before], 0, (runs->capacity - before) * sizeof *runs->wanted_at);
  }
  return status;
}

/* Moves the runs from one on to where they leave room for another, or close its gap. */
static void shift(struct mr_runs *runs, uint32_t to, uint32_t from, uint32_t count) {
  uint32_t *arrays[] = {runs->pages, runs->counts, runs->wanted_at};
  for (uint32_t i = 0; i < MR_COUNT_OF(arrays); i++) {
    memmove(&arrays[i][to], &arrays[i][from], count * sizeof *arrays[i]);
  }
}

static mr_status insert_run(struct mr_runs *runs, uint32_t at, struct mr_run run) {
  mr_status status = runs->count < runs->capacity ? MR_OK : reserve(runs);
  if (status == MR_OK) {
    shift(runs, at + 1, at, runs->count - at);
    set_run(runs, at, run);
    runs->count++;
  }
  return status;
}

static void remove_run(struct mr_runs *runs, uint32_t at) {
  runs->count--;
  shift(runs, at, at + 1, runs->count - at);
  runs->wanted_at[runs->count] = 0;
}

mr_status mr_runs_add(struct mr_runs *runs, struct mr_run run) {
  uint32_t at = mr_runs_after(runs, run.page);
  bool before = at > 0 && runs->pages[at - 1] + runs->counts[at - 1] == run.page &&
                runs->wanted_at[at - 1] == run.wanted_at;
  bool after = at < runs->count && run.page + run.count == runs->pages[at] &&
               runs->wanted_at[at] == run.wanted_at;
  if (before && after) {
    runs->counts[at - 1] += run.count + runs->counts[at];
    remove_run(runs, at);
  } else if (before) {
    runs->counts[at - 1] += run.count;
  } else if (after) {
    runs->pages[at] = run.page;
    runs->counts[at] += run.count;
  } else {
    return insert_run(runs, at, run);
  }
  return MR_OK;
}

mr_status mr_runs_cut(struct mr_runs *runs, uint32_t at, uint32_t page, uint32_t count) {
  struct mr_run run = mr_runs_at(runs, at);
  struct mr_run tail = {page + count, run.page + run.count - (page + count), run.wanted_at};
  if (page > run.page) {
    runs->counts[at] = page - run.page;
    return tail.count > 0 ? insert_run(runs, at + 1, tail) : MR_OK;
  }
  if (tail.count > 0) {
    set_run(runs, at, tail);
  } else {
    remove_run(runs, at);
  }
  return MR_OK;
}

/* ---- The best: loops over signed numbers without branches, so many runs at a time, which
 * compilers turn into instructions that compare several at once ---- */

static int32_t smaller(int32_t a, int32_t b) {
  return a < b ? a : b;
}

/* How badly the size of a run suits: below 0 where it holds so many pages. */
static int32_t size_misfit(uint32_t run_count, int32_t count) {
  int32_t pages = (int32_t)run_count;
  return pages < count ? INT32_MAX - pages : pages + INT32_MIN;
}

/* What a stay asks of runs. */
struct ask {
  int32_t last_op;
  int32_t count;
};

/* The least misfit of times, or of sizes, of all runs that are wanted late enough; of those alone
 * whose other misfit is `other`, unless that is NONE. Callers say `times` and NONE in so many
 * words, so that each has a loop of its own. */
static inline int32_t least_misfit(const struct mr_runs *runs, const struct ask *ask, bool times,
                                   int32_t other) {
  int32_t least[LANES];
  for (uint32_t j = 0; j < LANES; j++) {
    least[j] = NONE;
  }
  for (uint32_t i = 0; i < runs->count; i += LANES) {
    const uint32_t *wanted_at = &runs->wanted_at[i];
    const uint32_t *counts = &runs->counts[i];
    for (uint32_t j = 0; j < LANES; j++) {
      int32_t time = (int32_t)wanted_at[j];
      int32_t size = size_misfit(counts[j], ask->count);
      int32_t misfit = times ? time : size;
      misfit = time > ask->last_op ? misfit : NONE;
      misfit = other == NONE || (times ? size : time) == other ? misfit : NONE;
      least[j] = smaller(least[j], misfit);
    }
  }
  for (uint32_t j = 1; j < LANES; j++) {
    least[0] = smaller(least[0], least[j]);
  }
  return least[0];
}

uint32_t mr_runs_best(const struct mr_runs *runs, uint32_t last_op, uint32_t count,
                      bool sizes_first) {
  const struct ask ask = {(int32_t)last_op, (int32_t)count};
  int32_t size = 0;
  int32_t time = 0;
  uint32_t at = 0;
  if (sizes_first) {
    size = least_misfit(runs, &ask, false, NONE);
    time = size == NONE ? NONE : least_misfit(runs, &ask, true, size);
  } else {
    time = least_misfit(runs, &ask, true, NONE);
    size = time == NONE ? NONE : least_misfit(runs, &ask, false, time);
  }
  if (time == NONE) {
    return runs->count;
  }
  while ((int32_t)runs->wanted_at[at] != time || size_misfit(runs->counts[at], ask.count) != size) {
    at++;
  }
  return at;
}

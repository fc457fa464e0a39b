/* SPDX-License-Identifier: Apache-2.0 */
/* Plans an abstract problem: bound, search, schedule; or the smallest device that would do. */
#include <math.h>
#include <stdlib.h>

#include "plan/problem/search.h"

/* The smallest budget is found to within this part of it. */
#define BUDGET_PRECISION 1e-9
/* Problems so small are tried with all seeds at each budget, larger ones with what leaves most. */
#define SEEDED_TENSORS 64

void mr_problem_schedule_destroy(struct mr_problem_schedule *schedule) {
  if (schedule == NULL) {
    return;
  }
  free(schedule->segments);
  for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
    free(schedule->moves[link]);
  }
  free(schedule->decisions);
  free(schedule);
}

static struct mr_problem_schedule *schedule_create(const struct mr_problem *problem) {
  uint64_t n = (uint64_t)problem->tensor_count;
  struct mr_problem_schedule *schedule = mr_allocate(1, sizeof *schedule);
  if (schedule == NULL) {
    return NULL;
  }
  schedule->segment_count = problem->segment_count;
  schedule->tensor_count = problem->tensor_count;
  schedule->segments = mr_allocate((uint64_t)problem->segment_count, sizeof *schedule->segments);
  schedule->decisions = mr_allocate(n, sizeof *schedule->decisions);
  bool complete = schedule->segments != NULL && schedule->decisions != NULL;
  for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
    schedule->moves[link] = mr_allocate(n, sizeof *schedule->moves[link]);
    complete = complete && schedule->moves[link] != NULL;
    for (uint64_t v = 0; v < n && complete; v++) {
      schedule->moves[link][v].start_seconds = -1;
    }
  }
  if (!complete) {
    mr_problem_schedule_destroy(schedule);
    return NULL;
  }
  return schedule;
}

/* Whether the problem can be carried out at all with this device budget, and what must lie there at
 * the fullest point where all that can leaves. */
static mr_status try_budget(const struct mr_problem *problem, double device_bytes, bool *can_out,
                            double *load_bytes_out) {
  struct mr_problem trial = *problem;
  trial.device_bytes = device_bytes;
  bool can = false;
  double load_bytes = 0;
  for (int bold = 1; bold >= 0 && !can; bold--) {
    struct mr_problem_search search;
    mr_status status = mr_problem_search_init(&search, &trial, bold == 1);
    if (status != MR_OK) {
      return status;
    }
    mr_problem_search_let_all_go(&search);
    for (int32_t point = 0; point < 3 * (problem->segment_count + 1); point++) {
      load_bytes = fmax(load_bytes, search.draft->load[point]);
    }
    if (search.best_seconds == INFINITY && problem->tensor_count <= SEEDED_TENSORS) {
      mr_problem_search_seed(&search);
    }
    can = search.best_seconds < INFINITY;
    mr_problem_search_fini(&search);
  }
  *can_out = can;
  *load_bytes_out = load_bytes;
  return MR_OK;
}

/* The problem's own budget is too small; the fullest point says what is enough. Less may do where
 * that point lasts no time. */
static mr_status smallest_device(const struct mr_problem *problem, double *bytes_out) {
  double low = problem->device_bytes;
  double high = 0;
  bool can = false;
  for (int32_t k = 0; k < problem->segment_count; k++) {
    low = fmax(low, problem->workset_bytes[k]);
  }
  mr_status status = try_budget(problem, low, &can, &high);
  high = can ? low : high;
  while (status == MR_OK && high - low > high * BUDGET_PRECISION) {
    double load_bytes = 0;
    double middle = low + (high - low) / 2;
    status = try_budget(problem, middle, &can, &load_bytes);
    *(can ? &high : &low) = middle;
  }
  *bytes_out = ceil(high);
  return status;
}

static mr_status fill_schedule(const struct mr_problem *problem,
                               const struct mr_problem_solution *solution,
                               struct mr_problem_schedule *schedule) {
  struct mr_problem_search search;
  mr_status status = mr_problem_search_init(&search, problem, solution->bold);
  if (status != MR_OK) {
    return status;
  }
  search.draft->knobs = solution->knobs;
  for (int32_t v = 0; v < problem->tensor_count; v++) {
    if (search.index->free_choice[v]) {
      mr_problem_draft_set(search.draft, v, solution->decisions[v]);
    }
  }
  /* From the decisions alone: sums that huge sizes went into and out of have lost small ones. */
  mr_problem_draft_rebuild(search.draft);
  schedule->seconds = mr_problem_simulate(search.simulation, search.draft, INFINITY, schedule);
  schedule->fits = schedule->seconds < INFINITY;
  mr_problem_search_fini(&search);
  return MR_OK;
}

/*
 * Searches, and fills in the schedule where there is one. A search adds to loads and takes away
 * from them; where a tensor is millions of times as large as the device what rounding leaves of
 * that may decide whether something fits, and the schedule that was found is none: then one is
 * looked for that leaves a part of the device free.
 */
static mr_status search_and_fill(const struct mr_problem *problem, struct mr_crew *crew,
                                 struct mr_problem_solution *solution,
                                 struct mr_problem_schedule *schedule) {
  static const double parts[] = {1, 1 - 1e-6, 1 - 1e-3, 0.9};
  mr_status status = MR_OK;
  for (size_t i = 0; i < MR_COUNT_OF(parts) && status == MR_OK && !schedule->fits; i++) {
    struct mr_problem part = *problem;
    part.device_bytes *= parts[i];
    status = mr_problem_search_levels(&part, crew, solution);
    if (solution->seconds == INFINITY) break;
    if (status == MR_OK) {
      status = fill_schedule(problem, solution, schedule);
    }
  }
  return status;
}

mr_status mr_problem_plan(const struct mr_problem *problem, struct mr_crew *crew,
                          struct mr_problem_schedule **schedule_out) {
  struct mr_problem_schedule *schedule = schedule_create(problem);
  if (schedule == NULL) {
    return MR_NO_MEMORY;
  }
  struct mr_problem_solution solution = {.tensor_count = problem->tensor_count,
                                         .decisions = schedule->decisions};
  mr_status status = mr_problem_bound_cut(problem, &solution.bound_seconds);
  if (status == MR_OK) {
    schedule->bound_seconds = solution.bound_seconds;
    status = search_and_fill(problem, crew, &solution, schedule);
  }
  if (status == MR_OK && !schedule->fits) {
    status = smallest_device(problem, &schedule->smallest_device_bytes);
  }
  if (status != MR_OK) {
    mr_problem_schedule_destroy(schedule);
    return status;
  }
  *schedule_out = schedule;
  return MR_OK;
}

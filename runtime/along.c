/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Candidates along the path of a menu. Bounds tell where: a bound is found in a tenth of the time
 * of a plan without search, and tells better than that what a search will find. What has the least
 * bound is planned, and then others as far as bounds are below the best plan.
 */
#include <math.h>
#include <stdlib.h>

#include "runtime/planning.h"
#include "runtime/search.h"

/* Recompute candidates that are tried: fewer for long programs, so that planning the largest preset
 * takes about a second. They are planned in pairs: of three the last would be alone. */
#define MAX_CANDIDATES 24u
#define MIN_CANDIDATES 4u
#define CANDIDATE_OPS  10000u
/* Points of a path whose bounds are found first, in the same way. */
#define MAX_SCOUTS 24u
#define MIN_SCOUTS 6u
#define SCOUT_OPS  40000u
/* Where what has the least bound gains so much of its time by updates in the next step, all others
 * are planned with them there as well. */
#define DEFER_GAIN 0.01
/* Of the time of its ops: a plan that takes no longer is not worth looking beyond. */
#define GOOD_ENOUGH 1e-4

/* Plans positions. */
static mr_status try_positions(void *context, struct mr_path *path, const uint32_t *positions,
                               uint32_t count, double *seconds_out) {
  struct mr_search *search = context;
  struct mr_batch batch;
  for (uint32_t i = 0; i < count; i++) {
    seconds_out[i] = INFINITY;
  }
  if (mr_finalists_settled(&search->finalists)) {
    return MR_OK;
  }
  mr_status status = mr_batch_fill(search, path, positions, count, &batch);
  if (status == MR_OK) {
    status = mr_search_try(search, &batch);
  }
  for (uint32_t i = 0; status == MR_OK && i < count; i++) {
    seconds_out[i] = batch.seconds[i];
  }
  return status;
}

/* Positions of the path and the bounds of what is there, as they were found. */
struct scouts {
  struct mr_search *search;
  struct mr_path_point points[MAX_SCOUTS];
  uint32_t count;
};

static mr_status bound_candidate(void *context, uint32_t index) {
  struct mr_batch *batch = context;
  struct mr_candidate *candidate = &batch->candidates[index];
  const struct mr_plan *plan = batch->search->plan;
  mr_status status = mr_planning_estimate(plan, candidate->program, &candidate->op_seconds);
  if (status != MR_OK) {
    return status;
  }
  struct mr_plan_problem problem = plan->problem;
  problem.program = candidate->program;
  problem.op_seconds = candidate->op_seconds;
  return mr_program_plan_quick_bound(&problem, &batch->seconds[index]);
}

/* Bounds what is at positions. */
static mr_status scout_positions(void *context, struct mr_path *path, const uint32_t *positions,
                                 uint32_t count, double *seconds_out) {
  struct scouts *scouts = context;
  struct mr_batch batch;
  mr_status status = mr_batch_fill(scouts->search, path, positions, count, &batch);
  if (status != MR_OK) {
    return status;
  }
  status = mr_crew_run(scouts->search->plan->problem.crew, count, bound_candidate, &batch);
  for (uint32_t i = 0; status == MR_OK && i < count; i++) {
    scouts->points[scouts->count++] = (struct mr_path_point){positions[i], batch.seconds[i]};
    seconds_out[i] = batch.seconds[i];
  }
  mr_batch_fini(&batch);
  return status;
}

/* Finds the position with the least bound. */
static mr_status scout(struct scouts *scouts, bool deferred, uint32_t *position_out) {
  struct mr_search *search = scouts->search;
  bool was_deferred = search->deferred;
  uint32_t affordable = SCOUT_OPS / search->plan->graph->op_count;
  uint32_t most = (uint32_t)mr_min_u64(mr_max_u64(affordable, MIN_SCOUTS), MAX_SCOUTS);
  struct mr_path_search along = {.trial = scout_positions,
                                 .context = scouts,
                                 .most_trials = most,
                                 .to = search->path.step_count};
  search->deferred = deferred;
  mr_status status = mr_path_find(&search->path, &along);
  search->deferred = was_deferred;
  *position_out = along.best.position;
  return status;
}

/* Whether all candidates may turn to updates in the next step. Beside a host which of them it runs
 * is to be found first. */
static bool may_turn(const struct mr_search *search) {
  return !search->deferred && mr_search_wants_deferred(search) &&
         !mr_finalists_host_runs(&search->finalists) && mr_search_may_defer(search);
}

/* Plans the position, unless it was: its time is not below 0 then. Where they may, and gain by it,
 * candidates turn to updates in the next step. */
static mr_status try_scouted(struct mr_search *search, struct mr_path_point *point) {
  struct mr_batch batch = {0};
  bool turns = may_turn(search);
  mr_status status = MR_OK;
  mr_path_select(&search->path, point->position);
  if (point->seconds < 0) {
    status = mr_batch_add(search, &search->path, &batch);
  }
  if (status == MR_OK && turns) {
    search->deferred = true;
    status = mr_batch_add(search, &search->path, &batch);
  }
  if (status != MR_OK) {
    mr_batch_fini(&batch);
    return status;
  }
  status = mr_search_try(search, &batch);
  if (status == MR_OK && point->seconds < 0) {
    point->seconds = batch.seconds[0];
  }
  if (status == MR_OK && turns) {
    double deferred_seconds = batch.seconds[batch.count - 1];
    search->deferred = deferred_seconds < point->seconds * (1 - DEFER_GAIN);
    point->seconds = fmin(point->seconds, deferred_seconds);
  }
  return status;
}

/* Plans what has the least bound, then leaves along to be searched what may still be better. */
static mr_status scout_path(struct mr_search *search, double first_seconds, double last_seconds,
                            struct mr_path_search *along) {
  struct scouts scouts = {.search = search};
  struct mr_path_point least = {.seconds = -1};
  mr_status status = scout(&scouts, search->deferred || may_turn(search), &least.position);
  if (least.position == 0 || least.position == search->path.step_count) {
    least.seconds = least.position == 0 ? first_seconds : last_seconds;
  }
  if (status == MR_OK) {
    status = try_scouted(search, &least);
  }
  if (status != MR_OK) {
    return status;
  }
  const struct mr_program_plan *best = search->finalists.best[0].layout;
  mr_path_know(along, least.position, least.seconds);
  for (uint32_t i = 0; i < scouts.count && best->fits; i++) {
    const struct mr_path_point *point = &scouts.points[i];
    if (point->seconds < best->step_seconds) continue;
    if (point->position < least.position && point->position > along->from) {
      along->from = point->position;
    }
    if (point->position > least.position && point->position < along->to) {
      along->to = point->position;
    }
  }
  return MR_OK;
}

/* Plans candidates along the path. The times at its ends: below 0 where they are not known. Bounds
 * tell too little of ops that may run on a host beside the device. Of long programs all candidates
 * are planned in pairs: one alone would leave a thread idle for a tenth of a second. */
static mr_status try_between(struct mr_search *search, double first_seconds, double last_seconds) {
  uint32_t end = search->path.step_count;
  uint32_t affordable = mr_finalists_affordable(&search->finalists, CANDIDATE_OPS);
  uint32_t most = (uint32_t)mr_min_u64(mr_max_u64(affordable, MIN_CANDIDATES), MAX_CANDIDATES);
  struct mr_path_search along = {.trial = try_positions,
                                 .context = search,
                                 .most_trials = most,
                                 .in_pairs = search->plan->graph->op_count > MR_LONG_OPS,
                                 .to = end};
  mr_status status = MR_OK;
  if (!mr_finalists_host_runs(&search->finalists)) {
    status = scout_path(search, first_seconds, last_seconds, &along);
  }
  if (status != MR_OK) {
    return status;
  }
  mr_path_know(&along, along.from, along.from == 0 ? first_seconds : INFINITY);
  if (along.to < end || last_seconds >= 0) {
    mr_path_know(&along, along.to, along.to < end ? INFINITY : last_seconds);
  }
  return mr_path_find(&search->path, &along);
}

/* Whether the best plan takes hardly longer than ops that all others run too. */
static bool is_good_enough(const struct mr_search *search) {
  const struct mr_candidate *best = &search->finalists.best[0];
  double ops_seconds = 0;
  for (uint32_t k = 0; k < best->program->op_count; k++) {
    ops_seconds += best->op_seconds[k];
  }
  return best->layout->fits && !mr_finalists_host_runs(&search->finalists) &&
         best->layout->step_seconds <= ops_seconds * (1 + GOOD_ENOUGH);
}

/*
 * Where saving everything does not fit, all blocks at their last choices come first; where that
 * does not fit either, no other is tried. Neither of the two depends on measured rates, so neither
 * does what is refused, nor the smallest budget that a refusal names.
 */
mr_status mr_search_along(struct mr_search *search, double first_seconds) {
  double last_seconds = -1;
  if (is_good_enough(search)) {
    return MR_OK;
  }
  if (isinf(first_seconds)) {
    mr_path_select(&search->path, search->path.step_count);
    mr_status status = mr_search_try_selected(search, &search->path, &last_seconds);
    if (status != MR_OK || isinf(last_seconds)) {
      return status;
    }
  }
  return try_between(search, first_seconds, last_seconds);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a plan: the best of a bounded number of recompute candidates: the one predicted fastest,
 * of equals the one that moves least. Every candidate is planned without search, which ranks them
 * well and takes a tenth of the time; the best few are searched, for budgets and links near those
 * at hand too, or changed in single decisions (runtime/finalists.c). A candidate whose bound is no
 * better than the best plan so far is not planned. The best are planned again with updates in the
 * next step: all of them, or those that the host does not run beside the device. A program that
 * needs neither moves nor recompute ends the search: nothing can beat running only what must run.
 * Where the host would do, candidates are planned without NVMe, and the best few with it too.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/candidates.h"
#include "runtime/finalists.h"
#include "runtime/planning.h"

/* Recompute candidates that are tried: fewer for long programs, so that planning the largest preset
 * takes about a second. */
#define MAX_CANDIDATES 24u
#define MIN_CANDIDATES 3u
#define CANDIDATE_OPS  10000u
/* Points of a path whose bounds are found first, in the same way. A bound is found in a tenth of
 * the time of a plan without search, and tells better than that what a search will find. */
#define MAX_SCOUTS 24u
#define MIN_SCOUTS 6u
#define SCOUT_OPS  40000u
/* Where the most promising candidate gains so much of its time by updates in the next step, all
 * others are planned with them there as well. */
#define DEFER_GAIN 0.01

/* Candidates that are planned side by side at most: what each is compared with is the best before
 * the first of them, so that the plan does not depend on which of them ends first. */
#define MOST_AT_ONCE (2 * MR_FINALISTS)

struct search {
  struct mr_plan *plan; /* not changed while candidates are planned */
  struct mr_finalists finalists;
  struct mr_recompute_menu menu;
  struct mr_path path;
  const struct mr_graph *like; /* NULL; else search briefly, from this program */
  bool deferred;               /* candidates run their updates in the next step, where they can */
  uint32_t tried;
};

/* Candidates to be planned without search, and what came of them. */
struct batch {
  const struct search *search;
  struct mr_candidate candidates[MOST_AT_ONCE]; /* that have their program alone */
  uint32_t count;
  double seconds[MOST_AT_ONCE]; /* INFINITY: it does not fit, or is of no use */
};

static void batch_fini(struct batch *batch) {
  for (uint32_t i = 0; i < batch->count; i++) {
    mr_candidate_fini(&batch->candidates[i]);
  }
}

static mr_status plan_candidate(void *context, uint32_t index) {
  struct batch *batch = context;
  const struct search *search = batch->search;
  struct mr_candidate *candidate = &batch->candidates[index];
  mr_status status = mr_planning_estimate(search->plan, candidate->program, &candidate->op_seconds);
  return status == MR_OK ? mr_finalists_plan(&search->finalists, candidate) : status;
}

/* Plans candidates side by side; in their order, puts each among the finalists or ends it. */
static mr_status try_batch(struct search *search, struct batch *batch) {
  struct mr_plan *plan = search->plan;
  batch->search = search;
  mr_status status = mr_crew_run(plan->problem.crew, batch->count, plan_candidate, batch);
  if (status != MR_OK) {
    batch_fini(batch);
    return status;
  }
  for (uint32_t i = 0; i < batch->count; i++) {
    struct mr_candidate *candidate = &batch->candidates[i];
    const struct mr_program_plan *layout = candidate->layout;
    if (candidate->program == plan->graph) {
      plan->footprint_bytes = layout->footprint_bytes;
    }
    batch->seconds[i] = layout->fits ? layout->step_seconds : INFINITY;
    mr_log(MR_LOG_DEBUG, "candidate %u: %u ops, %.4f s, %llu bytes moved", ++search->tried,
           candidate->program->op_count, batch->seconds[i],
           (unsigned long long)mr_program_plan_moved_bytes(layout));
    mr_finalists_add(&search->finalists, candidate);
  }
  return MR_OK;
}

/* Plans a candidate alone. */
static mr_status try_candidate(struct search *search, struct mr_candidate candidate,
                               double *seconds_out) {
  struct batch batch = {.candidates = {candidate}, .count = 1};
  mr_status status = try_batch(search, &batch);
  if (status == MR_OK) {
    *seconds_out = batch.seconds[0];
  }
  return status;
}

/* The graph, with the blocks of path->selected run again unless path is NULL. */
static mr_status make_selected(const struct search *search, const struct mr_path *path,
                               struct mr_candidate *candidate_out) {
  const struct mr_graph *graph = search->plan->graph;
  struct mr_candidate candidate = {.program = graph};
  struct mr_graph *deferred = NULL;
  mr_status status = MR_OK;
  if (path != NULL) {
    status = mr_recompute_apply(path->menu, graph, path->selected, &candidate.rewritten);
    candidate.program = candidate.rewritten;
  }
  if (status == MR_OK && search->deferred) {
    status = mr_graph_defer(candidate.program, 0, &deferred);
  }
  if (status != MR_OK) {
    mr_graph_destroy(candidate.rewritten);
    return status;
  }
  if (deferred != NULL) {
    mr_graph_destroy(candidate.rewritten);
    candidate = (struct mr_candidate){.program = deferred, .rewritten = deferred};
  }
  *candidate_out = candidate;
  return MR_OK;
}

/* Plans the graph, with the blocks of path->selected run again unless path is NULL. */
static mr_status try_selected(struct search *search, const struct mr_path *path,
                              double *seconds_out) {
  struct mr_candidate candidate;
  mr_status status = make_selected(search, path, &candidate);
  return status == MR_OK ? try_candidate(search, candidate, seconds_out) : status;
}

/* Adds the program with the blocks of path->selected run again. */
static mr_status add_selected(const struct search *search, const struct mr_path *path,
                              struct batch *batch) {
  mr_status status = make_selected(search, path, &batch->candidates[batch->count]);
  batch->count += status == MR_OK;
  return status;
}

/* The programs of some positions; none where one cannot be made. */
static mr_status fill_batch(const struct search *search, struct mr_path *path,
                            const uint32_t *positions, uint32_t count, struct batch *batch) {
  mr_status status = MR_OK;
  *batch = (struct batch){.search = search};
  for (uint32_t i = 0; i < count && status == MR_OK; i++) {
    mr_path_select(path, positions[i]);
    status = add_selected(search, path, batch);
  }
  if (status != MR_OK) {
    batch_fini(batch);
  }
  return status;
}

/* Plans positions. */
static mr_status try_positions(void *context, struct mr_path *path, const uint32_t *positions,
                               uint32_t count, double *seconds_out) {
  struct search *search = context;
  struct batch batch;
  for (uint32_t i = 0; i < count; i++) {
    seconds_out[i] = INFINITY;
  }
  if (mr_finalists_settled(&search->finalists)) {
    return MR_OK;
  }
  mr_status status = fill_batch(search, path, positions, count, &batch);
  if (status == MR_OK) {
    status = try_batch(search, &batch);
  }
  for (uint32_t i = 0; status == MR_OK && i < count; i++) {
    seconds_out[i] = batch.seconds[i];
  }
  return status;
}

/* Positions of the path and the bounds of what is there, as they were found. */
struct scouts {
  struct search *search;
  struct mr_path_point points[MAX_SCOUTS];
  uint32_t count;
};

static mr_status bound_candidate(void *context, uint32_t index) {
  struct batch *batch = context;
  struct mr_candidate *candidate = &batch->candidates[index];
  const struct mr_plan *plan = batch->search->plan;
  mr_status status = mr_planning_estimate(plan, candidate->program, &candidate->op_seconds);
  if (status != MR_OK) {
    return status;
  }
  struct mr_plan_problem problem = plan->problem;
  problem.program = candidate->program;
  problem.op_seconds = candidate->op_seconds;
  problem.bound_any_recompute = false;
  return mr_program_plan_quick_bound(&problem, &batch->seconds[index]);
}

/* Bounds what is at positions. */
static mr_status scout_positions(void *context, struct mr_path *path, const uint32_t *positions,
                                 uint32_t count, double *seconds_out) {
  struct scouts *scouts = context;
  struct batch batch;
  mr_status status = fill_batch(scouts->search, path, positions, count, &batch);
  if (status != MR_OK) {
    return status;
  }
  status = mr_crew_run(scouts->search->plan->problem.crew, count, bound_candidate, &batch);
  for (uint32_t i = 0; status == MR_OK && i < count; i++) {
    scouts->points[scouts->count++] = (struct mr_path_point){positions[i], batch.seconds[i]};
    seconds_out[i] = batch.seconds[i];
  }
  batch_fini(&batch);
  return status;
}

/* Finds the position with the least bound. */
static mr_status scout(struct scouts *scouts, bool deferred, uint32_t *position_out) {
  struct search *search = scouts->search;
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

/* A brief search has deferred programs where the one that it begins with is one. */
static bool wants_deferred(const struct search *search) {
  const struct mr_plan *plan = search->plan;
  return search->like == NULL && plan->settings.defer == MR_DEFER_AUTO &&
         plan->problem.policy == MR_POLICY_SEARCHED && !mr_finalists_settled(&search->finalists);
}

static bool may_defer(const struct mr_graph *graph) {
  bool may = false;
  for (uint32_t k = 0; k < graph->op_count; k++) {
    may = may || (graph->ops[k].flags & MR_OP_DEFERRABLE) != 0;
  }
  return may;
}

/* Whether all candidates may turn to updates in the next step. Beside a host which of them it runs
 * is to be found first. */
static bool may_turn(const struct search *search) {
  return !search->deferred && wants_deferred(search) &&
         !mr_finalists_host_runs(&search->finalists) && may_defer(search->plan->graph);
}

/* Plans the position, unless it was: its time is not below 0 then. Where they may, and gain by it,
 * candidates turn to updates in the next step. */
static mr_status try_scouted(struct search *search, struct mr_path_point *point) {
  struct batch batch = {0};
  bool turns = may_turn(search);
  mr_status status = MR_OK;
  mr_path_select(&search->path, point->position);
  if (point->seconds < 0) {
    status = add_selected(search, &search->path, &batch);
  }
  if (status == MR_OK && turns) {
    search->deferred = true;
    status = add_selected(search, &search->path, &batch);
  }
  if (status != MR_OK) {
    batch_fini(&batch);
    return status;
  }
  status = try_batch(search, &batch);
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
static mr_status scout_path(struct search *search, double first_seconds, double last_seconds,
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
 * tell too little of ops that may run on a host beside the device. */
static mr_status try_between(struct search *search, double first_seconds, double last_seconds) {
  uint32_t end = search->path.step_count;
  uint32_t affordable = mr_finalists_affordable(&search->finalists, CANDIDATE_OPS);
  uint32_t most = (uint32_t)mr_min_u64(mr_max_u64(affordable, MIN_CANDIDATES), MAX_CANDIDATES);
  struct mr_path_search along = {.trial = try_positions,
                                 .context = search,
                                 .most_trials = search->like != NULL ? MIN_CANDIDATES : most,
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

/*
 * Where saving everything does not fit, all blocks at their last choices come first; where that
 * does not fit either, no other is tried. Neither of the two depends on measured rates, so neither
 * does what is refused, nor the smallest budget that a refusal names.
 */
static mr_status try_path(struct search *search, double first_seconds) {
  double last_seconds = -1;
  if (isinf(first_seconds)) {
    mr_path_select(&search->path, search->path.step_count);
    mr_status status = try_selected(search, &search->path, &last_seconds);
    if (status != MR_OK || isinf(last_seconds)) {
      return status;
    }
  }
  return try_between(search, first_seconds, last_seconds);
}

/* The menu of the graph. */
static mr_status open_menu(struct search *search) {
  const struct mr_graph *graph = search->plan->graph;
  double *op_seconds = NULL;
  if (search->path.menu != NULL) {
    return MR_OK;
  }
  mr_status status = mr_planning_estimate(search->plan, graph, &op_seconds);
  if (status != MR_OK) {
    return status;
  }
  status = mr_recompute_menu_init(&search->menu, graph, op_seconds);
  free(op_seconds);
  if (status != MR_OK) {
    return status;
  }
  return mr_path_init(&search->path, &search->menu, false);
}

/* Updates that a layout has on the queue of the host. */
static uint32_t updates_beside(const struct mr_candidate *candidate) {
  const struct mr_program_plan *layout = candidate->layout;
  uint32_t count = 0;
  for (uint32_t i = 0; i < layout->instruction_count[MR_QUEUE_HOST]; i++) {
    mr_op_id op = layout->instructions[MR_QUEUE_HOST][i].op;
    count += (candidate->program->ops[op].flags & MR_OP_DEFERRABLE) != 0;
  }
  return count;
}

/* Adds the program with all updates deferred into the next step but the last `staying`, where there
 * are any others. */
static mr_status add_deferred(struct batch *batch, const struct mr_graph *program,
                              uint32_t staying) {
  struct mr_graph *deferred = NULL;
  mr_status status = mr_graph_defer(program, staying, &deferred);
  if (status == MR_OK && deferred != NULL) {
    batch->candidates[batch->count++] =
        (struct mr_candidate){.program = deferred, .rewritten = deferred};
  }
  return status;
}

/* The finalists again, with their updates deferred into the next step: all, and all but those that
 * the host runs beside the device. What plans without search tell of those is not certain. In long
 * programs beside a host only the best finalists. */
static mr_status defer_finalists(struct search *search) {
  struct batch batch = {0};
  mr_status status = MR_OK;
  uint32_t count = mr_finalists_deferred(&search->finalists);
  for (uint32_t i = 0; status == MR_OK && i < count; i++) {
    const struct mr_candidate *finalist = &search->finalists.best[i];
    uint32_t staying = updates_beside(finalist);
    status = add_deferred(&batch, finalist->program, 0);
    if (status == MR_OK && staying > 0) {
      status = add_deferred(&batch, finalist->program, staying);
    }
  }
  if (status == MR_OK) {
    search->finalists.best[0].stays = search->plan->problem.host_apart;
    return try_batch(search, &batch);
  }
  batch_fini(&batch);
  return status;
}

/* Candidates that run everything again that can be. */
static mr_status try_deepest(struct search *search) {
  double seconds = 0;
  mr_status status = open_menu(search);
  if (status != MR_OK || search->path.step_count == 0) {
    return status == MR_OK ? try_selected(search, NULL, &seconds) : status;
  }
  mr_path_select(&search->path, search->path.step_count);
  return try_selected(search, &search->path, &seconds);
}

/* Candidates of one kind: with updates where the client put them, or in the next step. */
static mr_status try_kind(struct search *search, bool deferred) {
  mr_recompute mode = search->plan->settings.recompute;
  double seconds = 0;
  search->deferred = deferred;
  if (mode == MR_RECOMPUTE_FULL) {
    return try_deepest(search);
  }
  mr_status status = try_selected(search, NULL, &seconds);
  if (status != MR_OK || mode == MR_RECOMPUTE_NONE || mr_finalists_settled(&search->finalists)) {
    return status;
  }
  status = open_menu(search);
  if (status != MR_OK || search->path.step_count == 0) {
    return status;
  }
  return try_path(search, seconds);
}

/* The footprint is that of the graph as it is, also where no candidate is. */
static mr_status measure_footprint(struct search *search) {
  double seconds = 0;
  struct mr_candidate graph = {.program = search->plan->graph};
  mr_status status = try_candidate(search, graph, &seconds);
  mr_finalists_drop(&search->finalists);
  return status;
}

/* Candidates of one kind, and where none of them fits, of the other kind: a job is refused where
 * neither fits, with the smallest budget of both. */
static mr_status try_candidates(struct search *search) {
  const struct mr_settings *settings = &search->plan->settings;
  bool may = settings->defer != MR_DEFER_NEVER && may_defer(search->plan->graph);
  bool deferred = may && settings->defer == MR_DEFER_ALWAYS;
  double seconds = 0;
  mr_status status = MR_OK;
  search->plan->problem.bound_any_recompute = settings->recompute != MR_RECOMPUTE_NONE;
  if (deferred || settings->recompute == MR_RECOMPUTE_FULL) {
    status = measure_footprint(search);
  }
  if (status == MR_OK && search->like != NULL && search->like != search->plan->graph) {
    status = try_candidate(search, (struct mr_candidate){.program = search->like}, &seconds);
  }
  if (status == MR_OK) {
    status = try_kind(search, deferred);
  }
  if (status != MR_OK || !may) {
    return status;
  }
  if (!search->finalists.best[0].layout->fits) {
    return try_kind(search, !deferred);
  }
  return wants_deferred(search) && !search->deferred ? defer_finalists(search) : MR_OK;
}

/* Hands the best candidate to the plan. */
static void keep_best(struct search *search) {
  struct mr_plan *plan = search->plan;
  struct mr_candidate *best = &search->finalists.best[0];
  plan->layout = best->layout;
  plan->rewritten = best->rewritten;
  plan->op_seconds = best->op_seconds;
  plan->problem.program = best->program;
  plan->problem.op_seconds = best->op_seconds;
  plan->problem.page_bytes = best->layout->page_bytes;
  mr_planning_sum_clones(plan);
  *best = (struct mr_candidate){0};
}

/* What the device can map; how many pages one that is not here can, nobody knows. */
static void take_pages(struct mr_finalists *finalists) {
  struct mr_device_caps caps;
  mr_planning_query(&finalists->plan->settings, &caps);
  finalists->max_page_count = caps.max_page_count;
  finalists->page_bytes = caps.map_bytes / 2;
}

/* Whether the host's memory has room for what the device's has none for. */
static bool host_would_do(const struct mr_plan *plan) {
  const uint64_t *budget = plan->problem.budget_bytes;
  uint64_t left = 0;
  for (uint32_t t = 0; t < plan->graph->tensor_count; t++) {
    left += plan->graph->tensors[t].bytes;
  }
  left -= mr_min_u64(left, budget[MR_TIER_DEVICE]);
  return left <= budget[MR_TIER_HOST];
}

/* Plans without NVMe where the host would do, then the finalists with it: one more tier never makes
 * a plan slower. */
static mr_status search_tiers(struct search *search) {
  struct mr_plan *plan = search->plan;
  uint64_t *nvme_bytes = &plan->problem.budget_bytes[MR_TIER_NVME];
  uint64_t all_bytes = *nvme_bytes;
  bool searched = plan->problem.policy == MR_POLICY_SEARCHED;
  bool without = searched && search->like == NULL && all_bytes > 0 && host_would_do(plan);
  *nvme_bytes = without ? 0 : all_bytes;
  mr_status status = try_candidates(search);
  if (status == MR_OK && without && !search->finalists.best[0].layout->fits) {
    mr_finalists_drop(&search->finalists);
    *nvme_bytes = all_bytes;
    without = false;
    status = try_candidates(search);
  }
  if (status == MR_OK && searched) {
    status = mr_finalists_search(&search->finalists);
  }
  *nvme_bytes = all_bytes;
  return status == MR_OK && without ? mr_finalists_search(&search->finalists) : status;
}

/* The search and the bound, side by side where a thread is to spare. */
struct both {
  struct search *search;
  struct mr_plan_problem problem; /* the bound's: the search changes the plan's */
  double bound_seconds;
};

static mr_status do_either(void *context, uint32_t index) {
  struct both *both = context;
  return index == 0
             ? search_tiers(both->search)
             : mr_planning_find_bound(both->search->plan, &both->problem, &both->bound_seconds);
}

static mr_status search_all(struct mr_plan *plan, const struct mr_graph *like) {
  struct search search = {.plan = plan, .like = like};
  struct mr_crew crew;
  if (plan->problem.crew == NULL) {
    mr_crew_init(&crew, plan->settings.threads);
    plan->problem.crew = &crew;
  }
  mr_finalists_init(&search.finalists, plan, like != NULL);
  take_pages(&search.finalists);
  double start = mr_clock_seconds();
  struct both both = {.search = &search, .problem = plan->problem};
  mr_status status = mr_crew_run(plan->problem.crew, 2, do_either, &both);
  if (status == MR_OK) {
    plan->bound_seconds = both.bound_seconds;
    keep_best(&search);
  }
  mr_finalists_drop(&search.finalists);
  mr_path_fini(&search.path);
  mr_recompute_menu_fini(&search.menu);
  plan->problem.crew = NULL;
  mr_log(MR_LOG_DEBUG, "planned %u candidates in %.3f s", search.tried, mr_clock_seconds() - start);
  return status;
}

mr_status mr_planning_search(struct mr_plan *plan) {
  return search_all(plan, NULL);
}

mr_status mr_planning_search_like(struct mr_plan *plan, const struct mr_graph *program) {
  return search_all(plan, program);
}

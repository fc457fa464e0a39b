/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a plan: the best of a bounded number of recompute candidates: the one predicted fastest,
 * of equals the one that moves least. Every candidate is planned without search, which ranks them
 * well and takes a tenth of the time; the best few are searched and planned for lower budgets of
 * the ladder too (plan/plan.h says why). A candidate whose bound is no better than the best plan so
 * far is not planned. The best are planned again with updates in the next step: all of them, or
 * those that the host does not run beside the device. A program that needs neither moves nor
 * recompute ends the search: nothing can beat running only what must run.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/candidates.h"
#include "runtime/planning.h"

/* Recompute candidates that are tried, how many of them are searched and go down the ladder, and
 * how many of its budgets they try in all: fewer for long programs, and where a plan takes longer
 * to make, so that planning the largest preset takes about a second. */
#define MAX_CANDIDATES 24u
#define MIN_CANDIDATES 3u
#define CANDIDATE_OPS  10000u
#define FINALISTS      3u
/* Programs of more ops search one finalist alone, at the whole budget. */
#define FINALIST_OPS 1500u
#define MAX_BUDGETS  32u
#define BUDGET_OPS   6000u

/* Candidates that are planned side by side at most: what each is compared with is the best before
 * the first of them, so that the plan does not depend on which of them ends first. */
#define MOST_AT_ONCE (2 * FINALISTS)

/* One program to plan: the graph with selected[b] applied to block b. */
struct candidate {
  const struct mr_graph *program;
  struct mr_graph *rewritten; /* NULL: the program is the graph */
  double *op_seconds;
  struct mr_program_plan *layout;
  bool stays; /* among the finalists */
};

struct search {
  struct mr_plan *plan; /* not changed while candidates are planned */
  struct mr_recompute_menu menu;
  struct mr_path path;
  const struct mr_graph *like; /* NULL; else search briefly, from this program */
  bool deferred;               /* candidates run their updates in the next step, where they can */
  struct candidate finalists[FINALISTS]; /* the best first */
  uint32_t finalist_count;
  uint32_t tried;
  double once_seconds; /* of all ops of the graph */
  uint64_t max_page_count;
  uint64_t page_bytes; /* that the device asks for; 0: any */
};

static void candidate_fini(struct candidate *candidate) {
  mr_program_plan_destroy(candidate->layout);
  mr_graph_destroy(candidate->rewritten);
  free(candidate->op_seconds);
  *candidate = (struct candidate){0};
}

/* The pages that a plan takes, or those of the smallest budget where it does not fit; 0: no budget
 * would do. */
static uint64_t page_count(const struct mr_program_plan *layout) {
  uint64_t smallest = layout->smallest_device_bytes;
  if (layout->fits) {
    return layout->device_page_count;
  }
  return smallest == UINT64_MAX ? 0 : smallest / layout->page_bytes;
}

/* Budgets of the ladder to be tried: so many from the one numbered `from` down. */
struct ladder {
  uint32_t from;
  uint32_t budgets;
  const bool *on_host; /* NULL: the planner chooses */
};

/* Plans with pages large enough for the device to map one by one, also where nothing fits: the
 * smallest budget is one that a plan can be made for. */
static mr_status make_layout(const struct search *search, const struct candidate *candidate,
                             const struct ladder *ladder, struct mr_program_plan **layout_out) {
  struct mr_plan_problem problem = search->plan->problem;
  const struct mr_program_plan *best = search->finalists[0].layout;
  problem.program = candidate->program;
  problem.op_seconds = candidate->op_seconds;
  problem.on_host = ladder->on_host;
  problem.search_from = ladder->from;
  problem.search_rounds = problem.policy == MR_POLICY_SEARCHED ? ladder->budgets : 0;
  problem.useful_seconds = best != NULL && best->fits ? best->step_seconds : 0;
  problem.page_bytes = search->page_bytes;
  for (;;) {
    struct mr_program_plan *layout = NULL;
    mr_status status = mr_program_plan_make(&problem, &layout);
    if (status != MR_OK) {
      return status;
    }
    if (layout->useless || page_count(layout) <= search->max_page_count ||
        layout->page_bytes >= MR_DEVICE_HUGE_PAGE_BYTES) {
      *layout_out = layout;
      return MR_OK;
    }
    problem.page_bytes = 2 * layout->page_bytes;
    mr_program_plan_destroy(layout);
  }
}

static bool better(const struct mr_program_plan *a, const struct mr_program_plan *b) {
  if (a->fits != b->fits) {
    return a->fits;
  }
  if (!a->fits) {
    return a->smallest_device_bytes < b->smallest_device_bytes;
  }
  return a->step_seconds < b->step_seconds ||
         (a->step_seconds == b->step_seconds &&
          mr_program_plan_moved_bytes(a) < mr_program_plan_moved_bytes(b));
}

/* Puts a candidate among the finalists where it is good enough, else ends it. */
static void add_finalist(struct search *search, struct candidate *candidate) {
  uint32_t place = search->finalist_count;
  while (place > 0 && better(candidate->layout, search->finalists[place - 1].layout)) {
    place--;
  }
  bool full = search->finalist_count == FINALISTS;
  uint32_t last = FINALISTS - (full && search->finalists[FINALISTS - 1].stays ? 2 : 1);
  if (candidate->layout->useless || (full && place > last)) {
    candidate_fini(candidate);
    return;
  }
  if (full) {
    candidate_fini(&search->finalists[last]);
    search->finalist_count--;
    memmove(&search->finalists[last], &search->finalists[last + 1],
            (search->finalist_count - last) * sizeof *candidate);
  }
  memmove(&search->finalists[place + 1], &search->finalists[place],
          (search->finalist_count - place) * sizeof *candidate);
  search->finalists[place] = *candidate;
  search->finalist_count++;
}

/* Candidates to be planned without search, and what came of them. */
struct batch {
  const struct search *search;
  struct candidate candidates[MOST_AT_ONCE]; /* that have their program alone */
  uint32_t count;
  double seconds[MOST_AT_ONCE]; /* INFINITY: it does not fit, or is of no use */
};

static void batch_fini(struct batch *batch) {
  for (uint32_t i = 0; i < batch->count; i++) {
    candidate_fini(&batch->candidates[i]);
  }
}

static mr_status plan_candidate(void *context, uint32_t index) {
  struct batch *batch = context;
  const struct search *search = batch->search;
  struct candidate *candidate = &batch->candidates[index];
  mr_status status = mr_planning_estimate(search->plan, candidate->program, &candidate->op_seconds);
  return status == MR_OK ? make_layout(search, candidate, &(struct ladder){0}, &candidate->layout)
                         : status;
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
    struct candidate *candidate = &batch->candidates[i];
    const struct mr_program_plan *layout = candidate->layout;
    if (candidate->program == plan->graph) {
      plan->footprint_bytes = layout->footprint_bytes;
    }
    batch->seconds[i] = layout->fits ? layout->step_seconds : INFINITY;
    mr_log(MR_LOG_DEBUG, "candidate %u: %u ops, %.4f s, %llu bytes moved", ++search->tried,
           candidate->program->op_count, batch->seconds[i],
           (unsigned long long)mr_program_plan_moved_bytes(layout));
    add_finalist(search, candidate);
  }
  return MR_OK;
}

/* Plans a candidate alone. */
static mr_status try_candidate(struct search *search, struct candidate candidate,
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
                               struct candidate *candidate_out) {
  const struct mr_graph *graph = search->plan->graph;
  struct candidate candidate = {.program = graph};
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
    candidate = (struct candidate){.program = deferred, .rewritten = deferred};
  }
  *candidate_out = candidate;
  return MR_OK;
}

/* Plans the graph, with the blocks of path->selected run again unless path is NULL. */
static mr_status try_selected(struct search *search, const struct mr_path *path,
                              double *seconds_out) {
  struct candidate candidate;
  mr_status status = make_selected(search, path, &candidate);
  return status == MR_OK ? try_candidate(search, candidate, seconds_out) : status;
}

/* Takes a finalist down the ladder, with ops on the host as they are in its plan. */
static mr_status go_down(const struct search *search, const struct candidate *candidate,
                         uint32_t budgets, struct mr_program_plan **layout_out) {
  const struct mr_program_plan *layout = candidate->layout;
  bool *on_host = mr_allocate(candidate->program->tensor_count, sizeof *on_host);
  if (on_host == NULL) {
    return MR_NO_MEMORY;
  }
  for (uint32_t i = 0; i < layout->instance_count; i++) {
    if (layout->instances[i].on_host) {
      on_host[layout->instances[i].tensor] = true;
    }
  }
  mr_status status =
      make_layout(search, candidate,
                  &(struct ladder){.from = 1, .budgets = budgets, .on_host = on_host}, layout_out);
  free(on_host);
  return status;
}

/* Takes a finalist's new layout where it is better, and the finalist to the front where it is the
 * best then. */
static void take_layout(struct search *search, uint32_t finalist, struct mr_program_plan *layout) {
  struct candidate *candidate = &search->finalists[finalist];
  if (layout->useless || !better(layout, candidate->layout)) {
    mr_program_plan_destroy(layout);
    return;
  }
  mr_program_plan_destroy(candidate->layout);
  candidate->layout = layout;
  if (better(layout, search->finalists[0].layout)) {
    struct candidate best = *candidate;
    *candidate = search->finalists[0];
    search->finalists[0] = best;
  }
}

/* True where no other plan is wanted: the best one moves nothing and runs nothing again, or any
 * that fits will do. */
static bool settled(const struct search *search) {
  const struct candidate *best = &search->finalists[0];
  bool any_will_do = search->plan->problem.policy == MR_POLICY_FIRST;
  bool nothing_to_gain = best->program->op_count == search->plan->graph->op_count &&
                         mr_program_plan_moved_bytes(best->layout) == 0;
  return best->layout->fits && (any_will_do || nothing_to_gain);
}

/* A turn of the finalists: with search, then down the ladder. */
struct turn {
  const struct search *search;
  uint32_t budgets; /* of the ladder below the highest; 0: that one, with search */
  struct mr_program_plan *layouts[FINALISTS];
};

static mr_status plan_finalist(void *context, uint32_t index) {
  struct turn *turn = context;
  const struct candidate *candidate = &turn->search->finalists[index];
  if (!candidate->layout->fits) {
    return MR_OK;
  }
  return turn->budgets == 0
             ? make_layout(turn->search, candidate, &(struct ladder){.budgets = 1},
                           &turn->layouts[index])
             : go_down(turn->search, candidate, turn->budgets, &turn->layouts[index]);
}

/* Plans the first finalists side by side; the best is the first then. */
static mr_status take_turn(struct search *search, uint32_t count, uint32_t budgets) {
  struct turn turn = {.search = search, .budgets = budgets};
  if (settled(search)) {
    return MR_OK;
  }
  mr_status status = mr_crew_run(search->plan->problem.crew, count, plan_finalist, &turn);
  for (uint32_t i = 0; i < count; i++) {
    if (status == MR_OK && turn.layouts[i] != NULL) {
      take_layout(search, i, turn.layouts[i]);
    } else {
      mr_program_plan_destroy(turn.layouts[i]);
    }
  }
  return status;
}

/* Plans the finalists with search, then takes them down the ladder; the best is the first then. */
static mr_status search_finalists(struct search *search) {
  bool brief = search->like != NULL;
  bool is_long = search->plan->graph->op_count > FINALIST_OPS;
  const struct mr_plan_problem *problem = &search->plan->problem;
  bool twice = problem->host_apart && problem->host_bytes_per_second > 0 &&
               problem->budget_bytes[MR_TIER_NVME] > 0; /* as long, a plan takes to make */
  uint64_t affordable = BUDGET_OPS / search->plan->graph->op_count / (twice ? 2 : 1);
  uint32_t budgets = is_long || brief ? 0 : (uint32_t)mr_min_u64(affordable, MAX_BUDGETS);
  uint32_t count = is_long || brief ? 1 : search->finalist_count;
  mr_status status = take_turn(search, count, 0);
  return status == MR_OK && budgets > 0 ? take_turn(search, count, budgets) : status;
}

/* Tries selections but those whose ops alone take longer than the best plan's whole step. */
static mr_status try_positions(void *context, struct mr_path *path, const uint32_t *positions,
                               uint32_t count, double *seconds_out) {
  struct search *search = context;
  const struct mr_program_plan *best = search->finalists[0].layout;
  struct batch batch = {0};
  uint32_t numbers[MR_PATH_TRIALS]; /* of the positions that are in the batch */
  uint32_t begun = 0;
  mr_status status = MR_OK;
  for (uint32_t i = 0; i < count && status == MR_OK; i++) {
    mr_path_select(path, positions[i]);
    seconds_out[i] = INFINITY;
    bool hopeless = best->fits && search->once_seconds + path->again_seconds >= best->step_seconds;
    if (hopeless || settled(search)) continue;
    status = make_selected(search, path, &batch.candidates[begun]);
    if (status == MR_OK) {
      numbers[begun++] = i;
      batch.count = begun;
    }
  }
  if (status != MR_OK) {
    batch_fini(&batch);
    return status;
  }
  status = try_batch(search, &batch);
  for (uint32_t i = 0; status == MR_OK && i < begun; i++) {
    seconds_out[numbers[i]] = batch.seconds[i];
  }
  return status;
}

/*
 * Where saving everything does not fit, all blocks at their deepest come first; where that does not
 * fit either, no other is tried. Neither of the two depends on measured rates, so neither does what
 * is refused, nor the smallest budget that a refusal names.
 */
static mr_status try_path(struct search *search, double first_seconds) {
  uint64_t affordable = CANDIDATE_OPS / search->plan->graph->op_count;
  uint32_t most = (uint32_t)mr_min_u64(mr_max_u64(affordable, MIN_CANDIDATES), MAX_CANDIDATES);
  if (search->like != NULL) {
    most = MIN_CANDIDATES;
  }
  struct mr_path_search along = {.trial = try_positions,
                                 .context = search,
                                 .most_trials = most,
                                 .first_seconds = first_seconds,
                                 .last_seconds = -1};
  if (isinf(first_seconds) && search->path.step_count > 0) {
    mr_path_select(&search->path, search->path.step_count);
    mr_status status = try_selected(search, &search->path, &along.last_seconds);
    if (status != MR_OK || isinf(along.last_seconds)) {
      return status;
    }
  }
  return mr_path_find(&search->path, &along);
}

/* The menu of the graph, and what its ops take when each runs once. */
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
  for (uint32_t k = 0; k < graph->op_count; k++) {
    search->once_seconds += op_seconds[k];
  }
  status = mr_recompute_menu_init(&search->menu, graph, op_seconds);
  free(op_seconds);
  if (status != MR_OK) {
    return status;
  }
  return mr_path_init(&search->path, &search->menu, false);
}

/* Updates that a layout has on the queue of the host. */
static uint32_t updates_beside(const struct candidate *candidate) {
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
        (struct candidate){.program = deferred, .rewritten = deferred};
  }
  return status;
}

/* The finalists again, with their updates deferred into the next step: all, and all but those that
 * the host runs beside the device. Plans without search do not tell which kind is better. */
static mr_status defer_finalists(struct search *search) {
  struct batch batch = {0};
  mr_status status = MR_OK;
  for (uint32_t i = 0; status == MR_OK && i < search->finalist_count; i++) {
    const struct candidate *finalist = &search->finalists[i];
    uint32_t staying = updates_beside(finalist);
    status = add_deferred(&batch, finalist->program, 0);
    if (status == MR_OK && staying > 0) {
      status = add_deferred(&batch, finalist->program, staying);
    }
  }
  if (status == MR_OK) {
    search->finalists[0].stays = true;
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
  if (status != MR_OK || mode == MR_RECOMPUTE_NONE || settled(search)) {
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
  struct candidate graph = {.program = search->plan->graph};
  mr_status status = try_candidate(search, graph, &seconds);
  while (search->finalist_count > 0) {
    candidate_fini(&search->finalists[--search->finalist_count]);
  }
  return status;
}

/* A brief search has deferred programs where the one that it begins with is one. */
static bool wants_deferred(const struct search *search) {
  const struct mr_plan *plan = search->plan;
  return search->like == NULL && plan->settings.defer == MR_DEFER_AUTO &&
         plan->problem.policy == MR_POLICY_SEARCHED && !settled(search);
}

static bool may_defer(const struct mr_graph *graph) {
  bool may = false;
  for (uint32_t k = 0; k < graph->op_count; k++) {
    may = may || (graph->ops[k].flags & MR_OP_DEFERRABLE) != 0;
  }
  return may;
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
    status = try_candidate(search, (struct candidate){.program = search->like}, &seconds);
  }
  if (status == MR_OK) {
    status = try_kind(search, deferred);
  }
  if (status != MR_OK || !may) {
    return status;
  }
  if (!search->finalists[0].layout->fits) {
    return try_kind(search, !deferred);
  }
  return wants_deferred(search) ? defer_finalists(search) : MR_OK;
}

/* Hands the best candidate to the plan. */
static void keep_best(struct search *search) {
  struct mr_plan *plan = search->plan;
  struct candidate *best = &search->finalists[0];
  plan->layout = best->layout;
  plan->rewritten = best->rewritten;
  plan->op_seconds = best->op_seconds;
  plan->problem.program = best->program;
  plan->problem.op_seconds = best->op_seconds;
  plan->problem.page_bytes = best->layout->page_bytes;
  mr_planning_sum_clones(plan);
  *best = (struct candidate){0};
}

/* What this device can map; nobody knows that of a machine that is not here. */
static void take_pages(struct search *search) {
  struct mr_device_caps caps;
  search->plan->settings.device->query(&caps);
  search->max_page_count =
      search->plan->settings.machine != NULL ? UINT64_MAX : caps.max_page_count;
  search->page_bytes = caps.page_bytes;
}

static mr_status search_all(struct mr_plan *plan, const struct mr_graph *like) {
  struct search search = {.plan = plan, .like = like};
  struct mr_crew crew;
  if (plan->problem.crew == NULL) {
    mr_crew_init(&crew, plan->settings.threads);
    plan->problem.crew = &crew;
  }
  take_pages(&search);
  double start = mr_clock_seconds();
  mr_status status = mr_planning_find_bound(plan);
  if (status == MR_OK) {
    status = try_candidates(&search);
  }
  if (status == MR_OK && plan->problem.policy == MR_POLICY_SEARCHED) {
    status = search_finalists(&search);
  }
  if (status == MR_OK) {
    keep_best(&search);
  }
  for (uint32_t i = 0; i < search.finalist_count; i++) {
    candidate_fini(&search.finalists[i]);
  }
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

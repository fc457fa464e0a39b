/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a plan: the best of a bounded number of recompute candidates: the one predicted fastest,
 * of equals the one that moves least. Every candidate is planned without
 * search, which ranks them well and takes a tenth of the time; the best few are searched and
 * planned for lower budgets of the ladder too (plan/plan.h says why). A candidate whose bound is no
 * better than the best plan so far is not planned. The best are planned again with updates in the
 * next step: all of them, or those that the host does not run beside the device. A program that
 * needs neither moves nor recompute ends the search: nothing can beat running only what must run.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/candidates.h"
#include "runtime/planning.h"

/* Recompute candidates that are tried, how many of them are searched and go down the ladder, and
 * how many of its budgets they try in all: fewer for long programs, so that planning the largest
 * preset takes about a second. */
#define MAX_CANDIDATES 24u
#define MIN_CANDIDATES 3u
#define CANDIDATE_OPS  10000u
#define FINALISTS      3u
/* Programs of more ops search one finalist alone, at the whole budget. */
#define FINALIST_OPS 1500u
#define MAX_BUDGETS  32u
#define BUDGET_OPS   6000u

/* One program to plan: the graph with selected[b] applied to block b. */
struct candidate {
  const struct mr_graph *program;
  struct mr_graph *rewritten; /* NULL: the program is the graph */
  double *op_seconds;
  struct mr_program_plan *layout;
};

struct search {
  struct mr_plan *plan;
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

mr_status mr_planning_estimate(const struct mr_plan *plan, const struct mr_graph *program,
                               double **op_seconds_out) {
  double *op_seconds = mr_allocate(program->op_count, sizeof *op_seconds);
  if (op_seconds == NULL) {
    return MR_NO_MEMORY;
  }
  const struct mr_machine *machine = plan->settings.machine;
  for (uint32_t k = 0; k < program->op_count; k++) {
    op_seconds[k] = machine != NULL ? mr_machine_op_seconds(machine, &program->ops[k])
                                    : mr_profile_op_seconds(plan->profile, &program->ops[k]);
  }
  *op_seconds_out = op_seconds;
  return MR_OK;
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

/* Plans with pages large enough for the device to map one by one, also where nothing fits: the
 * smallest budget is one that a plan can be made for. Tries `budgets` of the ladder from the one
 * numbered `from` down. */
static mr_status make_layout(struct search *search, const struct candidate *candidate,
                             uint32_t from, uint32_t budgets, struct mr_program_plan **layout_out) {
  struct mr_plan_problem *problem = &search->plan->problem;
  const struct mr_program_plan *best = search->finalists[0].layout;
  problem->program = candidate->program;
  problem->op_seconds = candidate->op_seconds;
  problem->search_from = from;
  problem->search_rounds = problem->policy == MR_POLICY_SEARCHED ? budgets : 0;
  problem->useful_seconds = best != NULL && best->fits ? best->step_seconds : 0;
  problem->page_bytes = search->page_bytes;
  for (;;) {
    struct mr_program_plan *layout = NULL;
    mr_status status = mr_program_plan_make(problem, &layout);
    if (status != MR_OK) {
      return status;
    }
    if (layout->useless || page_count(layout) <= search->max_page_count ||
        layout->page_bytes >= MR_DEVICE_HUGE_PAGE_BYTES) {
      *layout_out = layout;
      return MR_OK;
    }
    problem->page_bytes = 2 * layout->page_bytes;
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
  if (candidate->layout->useless || place == FINALISTS) {
    candidate_fini(candidate);
    return;
  }
  if (search->finalist_count == FINALISTS) {
    candidate_fini(&search->finalists[--search->finalist_count]);
  }
  memmove(&search->finalists[place + 1], &search->finalists[place],
          (search->finalist_count - place) * sizeof *candidate);
  search->finalists[place] = *candidate;
  search->finalist_count++;
}

/* Plans a candidate that has its program alone, without search, and puts it among the finalists or
 * ends it. */
static mr_status try_candidate(struct search *search, struct candidate candidate,
                               double *seconds_out) {
  mr_status status = mr_planning_estimate(search->plan, candidate.program, &candidate.op_seconds);
  if (status == MR_OK) {
    status = make_layout(search, &candidate, 0, 0, &candidate.layout);
  }
  search->tried++;
  if (status != MR_OK) {
    candidate_fini(&candidate);
    return status;
  }
  MR_ASSERT(candidate.layout != NULL);
  if (candidate.program == search->plan->graph) {
    search->plan->footprint_bytes = candidate.layout->footprint_bytes;
  }
  *seconds_out = candidate.layout->fits ? candidate.layout->step_seconds : INFINITY;
  mr_log(MR_LOG_DEBUG, "candidate %u: %u ops, %.4f s, %llu bytes moved", search->tried,
         candidate.program->op_count, *seconds_out,
         (unsigned long long)mr_program_plan_moved_bytes(candidate.layout));
  add_finalist(search, &candidate);
  return MR_OK;
}

/* Plans the graph, with the blocks of path->selected run again unless path is NULL. */
static mr_status try_selected(struct search *search, const struct mr_path *path,
                              double *seconds_out) {
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
  return try_candidate(search, candidate, seconds_out);
}

/* Takes a finalist down the ladder, with ops on the host as they are in its plan. */
static mr_status go_down(struct search *search, const struct candidate *candidate, uint32_t budgets,
                         struct mr_program_plan **layout_out) {
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
  search->plan->problem.on_host = on_host;
  mr_status status = make_layout(search, candidate, 1, budgets, layout_out);
  search->plan->problem.on_host = NULL;
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

/* Plans the finalists with search, then takes them down the ladder; the best is the first then. */
static mr_status search_finalists(struct search *search) {
  bool brief = search->like != NULL;
  bool is_long = search->plan->graph->op_count > FINALIST_OPS;
  uint64_t affordable = BUDGET_OPS / search->plan->graph->op_count;
  uint32_t budgets = is_long || brief ? 0 : (uint32_t)mr_min_u64(affordable, MAX_BUDGETS);
  uint32_t count = is_long || brief ? 1 : search->finalist_count;
  mr_status status = MR_OK;
  for (uint32_t turn = 0; turn < 2 && status == MR_OK; turn++) {
    for (uint32_t i = 0; i < count && status == MR_OK; i++) {
      const struct candidate *candidate = &search->finalists[i];
      struct mr_program_plan *layout = NULL;
      if (!candidate->layout->fits || settled(search) || (turn > 0 && budgets == 0)) break;
      status = turn == 0 ? make_layout(search, candidate, 0, 1, &layout)
                         : go_down(search, candidate, budgets, &layout);
      if (status == MR_OK) {
        take_layout(search, i, layout);
      }
    }
  }
  return status;
}

/* Tries a selection unless its ops alone already take longer than the best plan's whole step. */
static mr_status try_position(void *context, const struct mr_path *path, double *seconds_out) {
  struct search *search = context;
  const struct mr_program_plan *best = search->finalists[0].layout;
  bool hopeless = best->fits && search->once_seconds + path->again_seconds >= best->step_seconds;
  *seconds_out = INFINITY;
  return hopeless || settled(search) ? MR_OK : try_selected(search, path, seconds_out);
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
  struct mr_path_search along = {.trial = try_position,
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

/* Plans the programs, which are handed over. */
static mr_status try_programs(struct search *search, struct mr_graph **programs, uint32_t count) {
  mr_status status = MR_OK;
  for (uint32_t i = 0; i < count; i++) {
    struct candidate candidate = {.program = programs[i], .rewritten = programs[i]};
    double seconds = 0;
    if (status == MR_OK && programs[i] != NULL) {
      status = try_candidate(search, candidate, &seconds);
    } else {
      mr_graph_destroy(programs[i]);
    }
  }
  return status;
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

/* The finalists again, with their updates deferred into the next step: all, and all but those that
 * the host runs beside the device. */
static mr_status defer_finalists(struct search *search) {
  struct mr_graph *programs[2 * FINALISTS] = {NULL};
  uint32_t count = 0;
  mr_status status = MR_OK;
  for (uint32_t i = 0; status == MR_OK && i < search->finalist_count; i++) {
    const struct candidate *finalist = &search->finalists[i];
    uint32_t staying = updates_beside(finalist);
    status = mr_graph_defer(finalist->program, 0, &programs[count++]);
    if (status == MR_OK && staying > 0) {
      status = mr_graph_defer(finalist->program, staying, &programs[count++]);
    }
  }
  if (status == MR_OK) {
    return try_programs(search, programs, count);
  }
  for (uint32_t i = 0; i < count; i++) {
    mr_graph_destroy(programs[i]);
  }
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
  for (uint32_t k = 0; k < graph->op_count; k++) {
    if ((graph->ops[k].flags & MR_OP_DEFERRABLE) != 0) {
      return true;
    }
  }
  return false;
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

void mr_planning_sum_clones(struct mr_plan *plan) {
  const struct mr_graph *program = plan->problem.program;
  for (uint32_t k = 0; k < program->op_count; k++) {
    const struct mr_op *op = &program->ops[k];
    plan->deferred_op_count += op->deferred;
    if (op->clone_of == MR_NO_OP) {
      continue;
    }
    plan->recomputed_op_count++;
    plan->recomputed_seconds += plan->op_seconds[k];
    for (uint32_t i = 0; i < op->output_count; i++) {
      plan->recomputed_bytes += program->tensors[op->outputs[i]].bytes;
    }
  }
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
  plan->problem.useful_seconds = 0;
  plan->problem.search_from = 0;
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
  mr_log(MR_LOG_DEBUG, "planned %u candidates in %.3f s", search.tried, mr_clock_seconds() - start);
  return status;
}

mr_status mr_planning_search(struct mr_plan *plan) {
  return search_all(plan, NULL);
}

mr_status mr_planning_search_like(struct mr_plan *plan, const struct mr_graph *program) {
  return search_all(plan, program);
}

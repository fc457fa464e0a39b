/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a plan: the best of a bounded number of recompute candidates: the one predicted fastest,
 * of equals the one that moves least. Bounds tell where to look for candidates (runtime/along.c);
 * every one is planned without search, which takes a tenth of the time; the best few are searched,
 * in short programs for budgets and links near those at hand too, and changed in single decisions,
 * and what is best then is varied (runtime/finalists.c). A candidate whose bound is no better than
 * the best plan so far is not planned. Where not all candidates have their updates in the next
 * step, the best are planned again with them there: all of them, or beside a host all but as many
 * as it had better run (runtime/staying.c), and so are others. A program that needs neither moves
 * nor recompute ends the search: nothing can beat running only what must run.
 * Beside a host candidates are planned without NVMe too (search_tiers).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/planning.h"
#include "runtime/search.h"

/* The menu of the graph. */
static mr_status open_menu(struct mr_search *search) {
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
static mr_status add_deferred(struct mr_batch *batch, const struct mr_graph *program,
                              uint32_t staying) {
  struct mr_graph *deferred = NULL;
  mr_status status = mr_graph_defer(program, staying, &deferred);
  if (status == MR_OK && deferred != NULL) {
    batch->candidates[batch->count++] =
        (struct mr_candidate){.program = deferred, .rewritten = deferred};
  }
  return status;
}

/* Candidates that run everything again that can be. */
static mr_status try_deepest(struct mr_search *search) {
  double seconds = 0;
  mr_status status = open_menu(search);
  if (status != MR_OK || search->path.step_count == 0) {
    return status == MR_OK ? mr_search_try_selected(search, NULL, &seconds) : status;
  }
  mr_path_select(&search->path, search->path.step_count);
  return mr_search_try_selected(search, &search->path, &seconds);
}

/* Candidates of one kind: with updates where the client put them, or in the next step. */
static mr_status try_kind(struct mr_search *search, bool deferred) {
  mr_recompute mode = search->plan->settings.recompute;
  double seconds = 0;
  search->deferred = deferred;
  if (mode == MR_RECOMPUTE_FULL) {
    return try_deepest(search);
  }
  mr_status status = mr_search_try_selected(search, NULL, &seconds);
  if (status != MR_OK || mode == MR_RECOMPUTE_NONE || mr_finalists_settled(&search->finalists)) {
    return status;
  }
  status = open_menu(search);
  if (status != MR_OK || search->path.step_count == 0) {
    return status;
  }
  return mr_search_along(search, seconds);
}

/* Adds the finalist with its updates deferred but for `staying`; where that is 0, or the program is
 * short, with all of them deferred, and with all but what the host runs where none are. */
static mr_status defer_finalist(const struct mr_candidate *finalist, uint32_t staying,
                                struct mr_batch *batch) {
  const struct mr_graph *program = finalist->program;
  uint32_t beside = updates_beside(finalist);
  mr_status status = staying > 0 ? add_deferred(batch, program, staying) : MR_OK;
  if (staying > 0 && program->op_count > MR_MACHINE_OPS) {
    return status;
  }
  if (status == MR_OK) {
    status = add_deferred(batch, program, 0);
  }
  if (status == MR_OK && beside > 0 && beside != staying) {
    status = add_deferred(batch, program, beside);
  }
  return status;
}

/* The finalists again, with their updates deferred into the next step; beside a host all but those
 * that it had better run, and other candidates so too. Of long programs beside a host only the best
 * finalists; how many updates had better stay would take too long to find. */
static mr_status defer_finalists(struct mr_search *search) {
  const struct mr_finalists *finalists = &search->finalists;
  struct mr_batch batch = {0};
  uint32_t count = mr_finalists_deferred(finalists);
  uint32_t staying = 0;
  bool is_long = search->plan->graph->op_count > MR_LONG_OPS;
  mr_status status = MR_OK;
  if (count > 0 && mr_finalists_host_runs(finalists) && !is_long) {
    status = mr_search_find_staying(search, finalists->best[0].program, &staying);
  }
  for (uint32_t i = 0; status == MR_OK && i < count; i++) {
    status = defer_finalist(&finalists->best[i], staying, &batch);
  }
  if (status != MR_OK) {
    mr_batch_fini(&batch);
    return status;
  }
  search->finalists.best[0].stays = search->plan->problem.host_apart;
  status = mr_search_try(search, &batch);
  if (status == MR_OK && staying > 0) {
    search->staying = staying;
    status = try_kind(search, true);
    search->staying = 0;
  }
  return status;
}

/* The footprint is that of the graph as it is, also where no candidate is. */
static mr_status measure_footprint(struct mr_search *search) {
  double seconds = 0;
  struct mr_candidate graph = {.program = search->plan->graph};
  mr_status status = mr_search_try_candidate(search, graph, &seconds);
  mr_finalists_drop(&search->finalists);
  return status;
}

/* Candidates of one kind, and where none of them fits, of the other kind: a job is refused where
 * neither fits, with the smallest budget of both. */
static mr_status try_candidates(struct mr_search *search) {
  const struct mr_settings *settings = &search->plan->settings;
  bool may = settings->defer != MR_DEFER_NEVER && mr_search_may_defer(search);
  bool deferred = may && settings->defer == MR_DEFER_ALWAYS;
  mr_status status = MR_OK;
  if (deferred || settings->recompute == MR_RECOMPUTE_FULL) {
    status = measure_footprint(search);
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
  return mr_search_wants_deferred(search) && !search->deferred ? defer_finalists(search) : MR_OK;
}

/* Hands the best candidate to the plan. */
static void keep_best(struct mr_search *search) {
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

/* Candidates of both kinds, and the best of them with search. */
static mr_status search_candidates(struct mr_search *search) {
  bool searched = search->plan->problem.policy == MR_POLICY_SEARCHED;
  mr_status status = try_candidates(search);
  return status == MR_OK && searched ? mr_finalists_search(&search->finalists) : status;
}

/* Plans the job as if there were no NVMe. */
static mr_status search_without(struct mr_search *search) {
  uint64_t *nvme_bytes = &search->plan->problem.budget_bytes[MR_TIER_NVME];
  uint64_t all_bytes = *nvme_bytes;
  *nvme_bytes = 0;
  search->finalists.torn = false;
  mr_status status = search_candidates(search);
  *nvme_bytes = all_bytes;
  return status;
}

/* Seconds that no plan without NVMe can beat; INFINITY: none fits. */
static mr_status bound_without(const struct mr_plan *plan, double *seconds_out) {
  struct mr_plan_problem problem = plan->problem;
  problem.budget_bytes[MR_TIER_NVME] = 0;
  return mr_planning_find_bound(plan, &problem, true, seconds_out);
}

/* Plans the job as if there were no NVMe, too, unless no such plan can be better. */
static mr_status try_without(struct mr_search *search, double least_seconds) {
  struct mr_finalists *finalists = &search->finalists;
  const struct mr_program_plan *layout = finalists->best[0].layout;
  if (mr_finalists_settled(finalists) ||
      (layout->fits && least_seconds >= layout->step_seconds * (1 - MR_ROUNDING))) {
    return MR_OK;
  }
  finalists->halved = false;
  struct mr_candidate best = mr_finalists_take_best(finalists);
  mr_status status = search_without(search);
  if (status == MR_OK) {
    mr_finalists_exchange_best(finalists, &best);
  }
  mr_candidate_fini(&best);
  return status;
}

/*
 * Plans without NVMe too: one more tier never makes a plan slower. Where the host would do, that
 * comes first, and the finalists are planned with NVMe then. Else what is best without has other
 * candidates than what is best with it; it comes last, where it may be better, but not for very
 * long programs: planning would take three times as long.
 */
static mr_status search_tiers(struct mr_search *search) {
  struct mr_plan *plan = search->plan;
  struct mr_finalists *finalists = &search->finalists;
  const uint64_t *budget = plan->problem.budget_bytes;
  bool both = budget[MR_TIER_HOST] > 0 && budget[MR_TIER_NVME] > 0;
  double least_seconds = INFINITY;
  mr_status status = MR_OK;
  if (both && plan->problem.policy == MR_POLICY_SEARCHED) {
    if (host_would_do(plan)) {
      status = search_without(search);
      if (status != MR_OK || finalists->best[0].layout->fits) {
        return status == MR_OK ? mr_finalists_search(finalists) : status;
      }
      mr_finalists_drop(finalists);
    } else if (plan->graph->op_count <= MR_LONG_OPS) {
      status = bound_without(plan, &least_seconds);
    }
  }
  finalists->torn = both;
  finalists->halved = !isinf(least_seconds);
  if (status == MR_OK) {
    status = search_candidates(search);
  }
  return status == MR_OK && !isinf(least_seconds) ? try_without(search, least_seconds) : status;
}

/* Whether nothing fits, and what would do was not looked for everywhere. */
static bool is_untold(const struct mr_finalists *finalists) {
  bool untold = false;
  for (uint32_t i = 0; i < finalists->count; i++) {
    untold = untold || finalists->best[i].layout->smallest_device_bytes == UINT64_MAX;
  }
  return untold && !finalists->best[0].layout->fits;
}

/* What a refusal is to say is looked for where nothing fits, and not before: the device budgets
 * that candidates would do with take longer to find than plans. */
static mr_status search_and_tell(struct mr_search *search) {
  struct mr_finalists *finalists = &search->finalists;
  mr_status status = search_tiers(search);
  if (status != MR_OK || !is_untold(finalists)) {
    return status;
  }
  mr_finalists_drop(finalists);
  finalists->telling = true;
  return search_tiers(search);
}

/* The search and the bound, unless it is known or not wanted, side by side where a thread is to
 * spare. A refusal does not tell the bound. */
struct both {
  struct mr_search *search;
  struct mr_plan_problem problem; /* the bound's: the search changes the plan's */
  double bound_seconds;
  atomic_bool refused;
};

static mr_status do_either(void *context, uint32_t index) {
  struct both *both = context;
  if (index == 1) {
    return mr_planning_find_bound(both->search->plan, &both->problem, false, &both->bound_seconds);
  }
  mr_status status = search_and_tell(both->search);
  bool fits = status == MR_OK && both->search->finalists.best[0].layout->fits;
  atomic_store(&both->refused, !fits);
  return status;
}

mr_status mr_planning_search(struct mr_plan *plan) {
  struct mr_search search = {.plan = plan};
  struct mr_crew crew;
  if (plan->problem.crew == NULL) {
    mr_crew_init(&crew, plan->settings.threads);
    plan->problem.crew = &crew;
  }
  mr_finalists_init(&search.finalists, plan);
  take_pages(&search.finalists);
  double start = mr_clock_seconds();
  double *least_seconds = &search.finalists.least_seconds;
  mr_status status = mr_planning_find_bound(plan, &plan->problem, true, least_seconds);
  struct both both = {
      .search = &search, .problem = plan->problem, .bound_seconds = plan->bound_seconds};
  both.problem.unwanted = &both.refused;
  bool bounds = !(plan->bound_seconds > 0);
  if (status == MR_OK) {
    status = mr_crew_run(plan->problem.crew, bounds ? 2 : 1, do_either, &both);
  }
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

mr_status mr_planning_find_footprint(struct mr_plan *plan) {
  struct mr_search search = {.plan = plan};
  struct mr_crew crew;
  mr_crew_init(&crew, plan->settings.threads);
  plan->problem.crew = &crew;
  mr_finalists_init(&search.finalists, plan);
  take_pages(&search.finalists);
  mr_status status = measure_footprint(&search);
  plan->problem.crew = NULL;
  return status;
}

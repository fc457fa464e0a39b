/* SPDX-License-Identifier: Apache-2.0 */
/* Candidates that are made, and planned side by side. */
#include <math.h>
#include <stdlib.h>

#include "plan/updates.h"
#include "runtime/planning.h"
#include "runtime/search.h"

bool mr_search_wants_deferred(const struct mr_search *search) {
  const struct mr_plan *plan = search->plan;
  return plan->settings.defer == MR_DEFER_AUTO && plan->problem.policy == MR_POLICY_SEARCHED &&
         !mr_finalists_settled(&search->finalists);
}

bool mr_search_may_defer(const struct mr_search *search) {
  const struct mr_graph *graph = search->plan->graph;
  bool may = false;
  for (uint32_t k = 0; k < graph->op_count; k++) {
    may = may || (graph->ops[k].flags & MR_OP_DEFERRABLE) != 0;
  }
  return may;
}

void mr_batch_fini(struct mr_batch *batch) {
  for (uint32_t i = 0; i < batch->count; i++) {
    mr_candidate_fini(&batch->candidates[i]);
  }
}

/* Wants on the host what updates that are not deferred use. */
static void want_staying(const struct mr_graph *program, bool *on_host) {
  for (mr_op_id k = 0; k < program->op_count; k++) {
    const struct mr_op *op = &program->ops[k];
    if ((op->flags & MR_OP_DEFERRABLE) != 0 && !op->deferred) {
      mr_want_on_host(program, k, on_host);
    }
  }
}

mr_status mr_search_plan(const struct mr_search *search, struct mr_candidate *candidate,
                         bool staying) {
  const struct mr_graph *program = candidate->program;
  mr_status status = mr_planning_estimate(search->plan, program, &candidate->op_seconds);
  if (status != MR_OK || !staying) {
    return status == MR_OK ? mr_finalists_plan(&search->finalists, candidate, NULL) : status;
  }
  bool *on_host = mr_allocate(program->tensor_count, sizeof *on_host);
  if (on_host == NULL) {
    return MR_NO_MEMORY;
  }
  want_staying(program, on_host);
  status = mr_finalists_plan(&search->finalists, candidate, on_host);
  free(on_host);
  return status;
}

static mr_status plan_candidate(void *context, uint32_t index) {
  struct mr_batch *batch = context;
  const struct mr_search *search = batch->search;
  return mr_search_plan(search, &batch->candidates[index], search->staying > 0);
}

mr_status mr_search_try(struct mr_search *search, struct mr_batch *batch) {
  struct mr_plan *plan = search->plan;
  batch->search = search;
  mr_status status = mr_crew_run(plan->problem.crew, batch->count, plan_candidate, batch);
  if (status != MR_OK) {
    mr_batch_fini(batch);
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

mr_status mr_search_try_candidate(struct mr_search *search, struct mr_candidate candidate,
                                  double *seconds_out) {
  struct mr_batch batch = {.candidates = {candidate}, .count = 1};
  mr_status status = mr_search_try(search, &batch);
  if (status == MR_OK) {
    *seconds_out = batch.seconds[0];
  }
  return status;
}

/* The graph, with the blocks of path->selected run again unless path is NULL. */
static mr_status make_selected(const struct mr_search *search, const struct mr_path *path,
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
    status = mr_graph_defer(candidate.program, search->staying, &deferred);
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

mr_status mr_search_try_selected(struct mr_search *search, const struct mr_path *path,
                                 double *seconds_out) {
  struct mr_candidate candidate;
  mr_status status = make_selected(search, path, &candidate);
  return status == MR_OK ? mr_search_try_candidate(search, candidate, seconds_out) : status;
}

mr_status mr_batch_add(const struct mr_search *search, const struct mr_path *path,
                       struct mr_batch *batch) {
  mr_status status = make_selected(search, path, &batch->candidates[batch->count]);
  batch->count += status == MR_OK;
  return status;
}

/* Programs of positions that are made side by side. */
struct making {
  const struct mr_search *search;
  const struct mr_path *path;
  const uint32_t *positions;
  struct mr_batch *batch;
};

static mr_status make_at(void *context, uint32_t index) {
  const struct making *making = context;
  struct mr_path path = *making->path;
  path.selected = mr_allocate(path.menu->block_count, sizeof *path.selected);
  if (path.selected == NULL) {
    return MR_NO_MEMORY;
  }
  mr_path_select(&path, making->positions[index]);
  mr_status status = make_selected(making->search, &path, &making->batch->candidates[index]);
  free(path.selected);
  return status;
}

mr_status mr_batch_fill(const struct mr_search *search, const struct mr_path *path,
                        const uint32_t *positions, uint32_t count, struct mr_batch *batch) {
  struct making making = {search, path, positions, batch};
  *batch = (struct mr_batch){.search = search, .count = count};
  mr_status status = mr_crew_run(search->plan->problem.crew, count, make_at, &making);
  if (status != MR_OK) {
    mr_batch_fini(batch);
  }
  return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that a host apart may run, and the tensors whose fate hangs on where each runs. */
#include "plan/hosted.h"

#include <stdlib.h>

#include "base/base.h"
#include "plan/draft.h"
#include "plan/page_sizes.h"

static bool is_capable(const struct mr_graph *graph, mr_op_id op) {
  return (graph->ops[op].flags & MR_OP_HOST_CAPABLE) != 0;
}

/* How the ops that the host may run, and the others, use a tensor. */
struct uses {
  const struct mr_access *hosted; /* by the only op that the host may run; NULL: none or several */
  bool device_writes, hosted_last;
  mr_op_id device_last; /* MR_NO_OP: none */
};

static struct uses uses_of(const struct mr_graph *graph, const struct mr_liveness *liveness,
                           mr_tensor_id t) {
  struct uses uses = {.device_last = MR_NO_OP};
  uint32_t hosted = 0;
  for (uint32_t i = liveness->first[t]; i < liveness->first[t + 1]; i++) {
    const struct mr_access *access = &liveness->accesses[i];
    uses.hosted_last = is_capable(graph, access->op);
    if (uses.hosted_last) {
      uses.hosted = access;
      hosted++;
    } else {
      uses.device_writes = uses.device_writes || access->writes;
      uses.device_last = access->op;
    }
  }
  uses.hosted = hosted == 1 ? uses.hosted : NULL;
  return uses;
}

/* Small tensors are handed over without their link. */
static bool has_pages(const struct mr_plan_problem *problem, mr_tensor_id t) {
  uint64_t page_bytes = problem->page_bytes > 0 ? problem->page_bytes : MR_MOST_PAGE_BYTES;
  return mr_draft_pages_of(problem->program->tensors[t].bytes, page_bytes) > 0;
}

static void add_tensor(struct mr_hosted *hosted, const uint32_t *index,
                       const struct mr_plan_problem *problem, const struct mr_liveness *liveness,
                       mr_tensor_id t) {
  const struct mr_graph *graph = problem->program;
  const struct mr_tensor *tensor = &graph->tensors[t];
  const struct uses uses = uses_of(graph, liveness, t);
  if (uses.hosted == NULL || tensor->role == MR_INPUT || tensor->carried || !uses.hosted->reads) {
    return;
  }
  uint32_t at = index[uses.hosted->op];
  bool lasts = mr_tensor_goes_round(tensor);
  if (lasts && uses.hosted->writes && !uses.device_writes) {
    hosted->op_of[t] = at + 1;
    hosted->rests_after[t] = uses.device_last == MR_NO_OP ? uses.hosted->op : MR_NO_OP;
  } else if (!lasts && uses.hosted_last && uses.device_writes && has_pages(problem, t)) {
    mr_op_id till = hosted->ops[at].not_before;
    hosted->ops[at].made_bytes += (double)tensor->bytes;
    hosted->made_for[t] = at + 1;
    hosted->rests_after[t] =
        till != MR_NO_OP && till > uses.device_last ? uses.device_last : MR_NO_OP;
  }
}

/* The last op of the device before it that writes an input: it makes a step's value of that. */
static mr_op_id last_maker(const struct mr_graph *graph, const struct mr_liveness *liveness,
                           mr_op_id op) {
  mr_op_id last = MR_NO_OP;
  for (uint32_t i = 0; i < graph->ops[op].input_count; i++) {
    mr_tensor_id t = graph->ops[op].inputs[i];
    if (mr_tensor_goes_round(&graph->tensors[t])) continue;
    for (uint32_t j = liveness->first[t]; j < liveness->first[t + 1]; j++) {
      const struct mr_access *access = &liveness->accesses[j];
      bool makes = access->writes && access->op < op && !is_capable(graph, access->op);
      last = makes && (last == MR_NO_OP || access->op > last) ? access->op : last;
    }
  }
  return last;
}

static mr_status fill(struct mr_hosted *hosted, const struct mr_plan_problem *problem,
                      uint32_t *index) {
  const struct mr_graph *graph = problem->program;
  struct mr_liveness liveness = {0};
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    if (is_capable(graph, k)) {
      index[k] = hosted->count;
      hosted->ops[hosted->count++] = (struct mr_hosted_op){
          .op = k,
          .device_seconds = problem->op_seconds[k],
          .host_seconds = mr_host_op_seconds(problem, k),
      };
    }
  }
  mr_status status = mr_liveness_init(&liveness, graph);
  for (uint32_t i = 0; i < hosted->count && status == MR_OK; i++) {
    hosted->ops[i].not_before = last_maker(graph, &liveness, hosted->ops[i].op);
  }
  for (mr_tensor_id t = 0; t < graph->tensor_count && status == MR_OK; t++) {
    add_tensor(hosted, index, problem, &liveness, t);
  }
  mr_liveness_fini(&liveness);
  return status;
}

mr_status mr_hosted_find(struct mr_hosted *hosted, const struct mr_plan_problem *problem) {
  const struct mr_graph *graph = problem->program;
  *hosted = (struct mr_hosted){
      .op_of = mr_allocate(graph->tensor_count, sizeof *hosted->op_of),
      .made_for = mr_allocate(graph->tensor_count, sizeof *hosted->made_for),
      .rests_after = mr_allocate(graph->tensor_count, sizeof *hosted->rests_after)};
  if (hosted->op_of == NULL || hosted->made_for == NULL || hosted->rests_after == NULL) {
    return MR_NO_MEMORY;
  }
  if (!problem->host_apart || !mr_host_may_run(problem)) {
    return MR_OK;
  }
  hosted->ops = mr_allocate(graph->op_count, sizeof *hosted->ops);
  uint32_t *index = mr_allocate(graph->op_count, sizeof *index);
  mr_status status =
      hosted->ops == NULL || index == NULL ? MR_NO_MEMORY : fill(hosted, problem, index);
  free(index);
  return status;
}

void mr_hosted_fini(struct mr_hosted *hosted) {
  free(hosted->ops);
  free(hosted->op_of);
  free(hosted->made_for);
  free(hosted->rests_after);
  *hosted = (struct mr_hosted){0};
}

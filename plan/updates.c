/* SPDX-License-Identifier: Apache-2.0 */
/* plan/updates.h: which ops are updates, and which of them go together. */
#include "plan/updates.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/draft.h"

bool mr_is_update(const struct mr_graph *graph, mr_op_id op) {
  bool lasts = mr_op_is_host_capable(graph, op) && graph->ops[op].output_count > 0;
  for (uint32_t i = 0; lasts && i < graph->ops[op].output_count; i++) {
    lasts = mr_role_is_persistent(graph->tensors[graph->ops[op].outputs[i]].role);
  }
  return lasts;
}

/* Whether two updates write pieces of one tensor. */
static bool are_pieces(const struct mr_graph *graph, mr_op_id a, mr_op_id b) {
  bool are = false;
  for (uint32_t i = 0; i < graph->ops[a].output_count; i++) {
    for (uint32_t j = 0; j < graph->ops[b].output_count; j++) {
      are = are || graph->ops[a].outputs[i] == graph->ops[b].outputs[j];
    }
  }
  return are;
}

mr_status mr_updates_find(const struct mr_graph *graph, struct mr_update_group **groups_out,
                          uint32_t *count_out) {
  struct mr_update_group *groups = mr_allocate(graph->op_count, sizeof *groups);
  uint32_t count = 0;
  if (groups == NULL) {
    return MR_NO_MEMORY;
  }
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    if (!mr_is_update(graph, k)) continue;
    struct mr_update_group *last = count > 0 ? &groups[count - 1] : NULL;
    if (last != NULL && last->to == k && are_pieces(graph, last->from, k)) {
      last->to = k + 1;
    } else {
      groups[count++] = (struct mr_update_group){k, k + 1};
    }
  }
  *groups_out = groups;
  *count_out = count;
  return MR_OK;
}

void mr_want_on_host(const struct mr_graph *graph, mr_op_id op, bool *on_host) {
  const struct mr_op *wanted = &graph->ops[op];
  for (uint32_t i = 0; i < wanted->input_count; i++) {
    on_host[wanted->inputs[i]] = true;
  }
  for (uint32_t i = 0; i < wanted->output_count; i++) {
    on_host[wanted->outputs[i]] = true;
  }
}

mr_status mr_find_on_host(const struct mr_plan_problem *problem, uint64_t page_bytes,
                          bool *tensors_out, bool *ops_out) {
  struct mr_draft draft;
  mr_status status = mr_draft_init_places(&draft, problem, page_bytes);
  if (status != MR_OK) {
    return status;
  }
  if (tensors_out != NULL) {
    memcpy(tensors_out, draft.on_host, draft.program->tensor_count * sizeof *tensors_out);
  }
  if (ops_out != NULL) {
    memcpy(ops_out, draft.runs_on_host, draft.op_count * sizeof *ops_out);
  }
  mr_draft_fini(&draft);
  return MR_OK;
}

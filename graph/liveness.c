/* SPDX-License-Identifier: Apache-2.0 */
/* Who touches which tensor, in program order. */
#include <stdlib.h>

#include "base/base.h"
#include "graph/graph.h"

/* Counts each tensor's accesses into first[tensor + 1], then sums, so that first[] are starts. */
static void count_accesses(const struct mr_graph *graph, uint32_t *first) {
  for (uint32_t k = 0; k < graph->op_count; k++) {
    const struct mr_op *op = &graph->ops[k];
    for (uint32_t i = 0; i < op->input_count; i++) {
      first[op->inputs[i] + 1]++;
    }
    for (uint32_t i = 0; i < op->output_count; i++) {
      if (!mr_op_reads(op, op->outputs[i])) {
        first[op->outputs[i] + 1]++;
      }
    }
  }
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    first[t + 1] += first[t];
  }
}

mr_status mr_liveness_init(struct mr_liveness *liveness, const struct mr_graph *graph) {
  uint32_t *first = mr_allocate(graph->tensor_count + 1ull, sizeof *first);
  uint32_t *next = mr_allocate(graph->tensor_count, sizeof *next);
  struct mr_access *accesses = NULL;
  if (first == NULL || next == NULL) {
    goto fail_free;
  }
  count_accesses(graph, first);
  accesses = mr_allocate(first[graph->tensor_count], sizeof *accesses);
  if (accesses == NULL) {
    goto fail_free;
  }
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    next[t] = first[t];
  }
  for (uint32_t k = 0; k < graph->op_count; k++) {
    const struct mr_op *op = &graph->ops[k];
    for (uint32_t i = 0; i < op->input_count; i++) {
      mr_tensor_id tensor = op->inputs[i];
      accesses[next[tensor]++] = (struct mr_access){k, true, mr_op_writes(op, tensor)};
    }
    for (uint32_t i = 0; i < op->output_count; i++) {
      mr_tensor_id tensor = op->outputs[i];
      if (!mr_op_reads(op, tensor)) {
        accesses[next[tensor]++] = (struct mr_access){k, false, true};
      }
    }
  }
  free(next);
  *liveness = (struct mr_liveness){accesses, first, graph->tensor_count};
  return MR_OK;

fail_free:
  free(first);
  free(next);
  return MR_NO_MEMORY;
}

void mr_liveness_fini(struct mr_liveness *liveness) {
  free(liveness->accesses);
  free(liveness->first);
  *liveness = (struct mr_liveness){0};
}

uint64_t mr_op_working_bytes(const struct mr_graph *graph, mr_op_id op_id, uint64_t unit) {
  const struct mr_op *op = &graph->ops[op_id];
  uint64_t bytes = mr_round_up(op->scratch_bytes, unit);
  for (uint32_t i = 0; i < op->input_count; i++) {
    bytes += mr_round_up(graph->tensors[op->inputs[i]].bytes, unit);
  }
  for (uint32_t i = 0; i < op->output_count; i++) {
    if (!mr_op_reads(op, op->outputs[i])) {
      bytes += mr_round_up(graph->tensors[op->outputs[i]].bytes, unit);
    }
  }
  return bytes;
}

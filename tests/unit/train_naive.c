/* SPDX-License-Identifier: Apache-2.0 */
/* Running a graph op by op on plain memory. */
#include "unit/train_naive.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

#define ALIGNMENT 64u
#define POISON    0xff /* every float of these bytes is a NaN */

static void *allocate(uint64_t bytes) {
  void *data = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  assert_non_null(data);
  return data;
}

void naive_init(struct naive *naive, const struct mr_graph *graph, uint32_t threads) {
  *naive = (struct naive){.graph = graph};
  naive->data = calloc(graph->tensor_count, sizeof *naive->data);
  assert_non_null(naive->data);
  for (uint32_t i = 0; i < graph->tensor_count; i++) {
    naive->data[i] = allocate(graph->tensors[i].bytes);
    memset(naive->data[i], 0, graph->tensors[i].bytes);
  }
  naive->scratch_bytes = ALIGNMENT;
  for (uint32_t i = 0; i < graph->op_count; i++) {
    if (graph->ops[i].scratch_bytes > naive->scratch_bytes) {
      naive->scratch_bytes = graph->ops[i].scratch_bytes;
    }
  }
  naive->scratch = allocate(naive->scratch_bytes);
  assert_int_equal(mr_team_create(threads, &naive->team), MR_OK);
}

void naive_fini(struct naive *naive) {
  for (uint32_t i = 0; i < naive->graph->tensor_count; i++) {
    free(naive->data[i]);
  }
  free(naive->data);
  free(naive->scratch);
  mr_team_destroy(naive->team);
}

static void run_op(struct naive *naive, const struct mr_op *op, mr_step_mode mode) {
  void *inputs[MR_MAX_OPERANDS];
  void *outputs[MR_MAX_OPERANDS];
  for (uint32_t i = 0; i < op->input_count; i++) {
    inputs[i] = naive->data[op->inputs[i]];
  }
  for (uint32_t i = 0; i < op->output_count; i++) {
    outputs[i] = naive->data[op->outputs[i]];
  }
  memset(naive->scratch, POISON, naive->scratch_bytes);
  struct mr_op_call call = {
      .attributes = op->attributes,
      .inputs = inputs,
      .outputs = outputs,
      .scratch = op->scratch_bytes == 0 ? NULL : naive->scratch,
      .team = naive->team,
      .mode = mode,
  };
  assert_int_equal(op->run[MR_BACKEND_CPU](&call), MR_OK);
}

void naive_step(struct naive *naive, mr_step_mode mode) {
  const struct mr_graph *graph = naive->graph;
  for (uint32_t i = 0; i < graph->tensor_count; i++) {
    mr_role role = graph->tensors[i].role;
    if (role != MR_INPUT && !mr_role_is_persistent(role)) {
      memset(naive->data[i], POISON, graph->tensors[i].bytes);
    }
  }
  for (uint32_t i = 0; i < graph->op_count; i++) {
    const struct mr_op *op = &graph->ops[i];
    if (mode == MR_STEP_TRAIN || (op->flags & MR_OP_TRAIN_ONLY) == 0) {
      run_op(naive, op, mode);
    }
  }
}

void *naive_find(const struct naive *naive, const char *name) {
  mr_tensor_id id = 0;
  assert_int_equal(mr_graph_find(naive->graph, name, &id), MR_OK);
  return naive->data[id];
}

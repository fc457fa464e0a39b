/* SPDX-License-Identifier: Apache-2.0 */
/* What passes use to make a new graph from an old one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "graph/graph.h"

mr_status mr_graph_copy_tensors(const struct mr_graph *graph, struct mr_graph **copy_out) {
  struct mr_graph *copy = NULL;
  mr_status status = mr_graph_create(&copy);
  for (uint32_t i = 0; status == MR_OK && i < graph->tensor_count; i++) {
    const struct mr_tensor *tensor = &graph->tensors[i];
    struct mr_tensor_desc desc = {
        .size_bytes = sizeof desc,
        .name = tensor->name,
        .role = tensor->role,
        .dtype = tensor->dtype,
        .rank = tensor->rank,
    };
    memcpy(desc.shape, tensor->shape, sizeof desc.shape);
    mr_tensor_id id = 0;
    status = mr_graph_add_tensor(copy, &desc, &id);
  }
  if (status != MR_OK) {
    mr_graph_destroy(copy);
    return status;
  }
  *copy_out = copy;
  return MR_OK;
}

mr_status mr_graph_append_op(struct mr_graph *graph, const struct mr_op *op,
                             const mr_tensor_id *map, const char *suffix, mr_op_id clone_of) {
  mr_tensor_id inputs[MR_MAX_OPERANDS];
  mr_tensor_id outputs[MR_MAX_OPERANDS];
  for (uint32_t i = 0; i < op->input_count; i++) {
    inputs[i] = map[op->inputs[i]];
  }
  for (uint32_t i = 0; i < op->output_count; i++) {
    outputs[i] = map[op->outputs[i]];
  }
  size_t name_bytes = strlen(op->name) + strlen(suffix) + 1;
  char *name = mr_allocate(1, name_bytes);
  if (name == NULL) {
    return MR_NO_MEMORY;
  }
  snprintf(name, name_bytes, "%s%s", op->name, suffix);
  struct mr_op_desc desc = {
      .size_bytes = sizeof desc,
      .name = name,
      .kind = op->kind,
      .signature = op->signature,
      .attributes = op->attributes,
      .attributes_bytes = op->attributes_bytes,
      .inputs = inputs,
      .input_count = op->input_count,
      .outputs = outputs,
      .output_count = op->output_count,
      .scratch_bytes = op->scratch_bytes,
      .flops = op->flops,
      .memory_bytes = op->memory_bytes,
      .flags = op->flags,
      .block = op->block,
  };
  memcpy(desc.run, op->run, sizeof desc.run);
  mr_op_id id = 0;
  mr_status status = mr_graph_add_op(graph, &desc, &id);
  free(name);
  if (status == MR_OK) {
    bool copies_clone = op->clone_of != MR_NO_OP;
    graph->ops[id].clone_of = clone_of;
    if (clone_of != MR_NO_OP) {
      graph->ops[id].remade = copies_clone ? op->remade : op->outputs[0];
    }
  }
  return status;
}

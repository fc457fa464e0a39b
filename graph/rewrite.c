/* SPDX-License-Identifier: Apache-2.0 */
/* What passes use to make a new graph from an old one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "graph/graph.h"

/* As it was added: what ops made of it is not copied. The caller frees its name. */
static mr_status copy_tensor(const struct mr_tensor *tensor, struct mr_tensor *copy) {
  *copy = (struct mr_tensor){.role = tensor->role,
                             .dtype = tensor->dtype,
                             .rank = tensor->rank,
                             .bytes = tensor->bytes,
                             .written = mr_tensor_begins_written(tensor->role),
                             .name = mr_string_copy(tensor->name)};
  memcpy(copy->shape, tensor->shape, sizeof copy->shape);
  return copy->name == NULL ? MR_NO_MEMORY : MR_OK;
}

/* All rules were checked when the tensors were added, and their numbers are the same. */
static mr_status copy_all(const struct mr_graph *graph, struct mr_graph *copy) {
  copy->tensors = mr_allocate(graph->tensor_count, sizeof *copy->tensors);
  copy->name_slots = mr_allocate(graph->name_slot_count, sizeof *copy->name_slots);
  if (copy->tensors == NULL || copy->name_slots == NULL) {
    return MR_NO_MEMORY;
  }
  copy->tensor_capacity = graph->tensor_count;
  copy->name_slot_count = graph->name_slot_count;
  memcpy(copy->name_slots, graph->name_slots, graph->name_slot_count * sizeof *copy->name_slots);
  mr_status status = MR_OK;
  for (uint32_t i = 0; status == MR_OK && i < graph->tensor_count; i++) {
    status = copy_tensor(&graph->tensors[i], &copy->tensors[i]);
    copy->tensor_count += status == MR_OK;
  }
  return status;
}

mr_status mr_graph_copy_tensors(const struct mr_graph *graph, struct mr_graph **copy_out) {
  struct mr_graph *copy = NULL;
  mr_status status = mr_graph_create(&copy);
  if (status != MR_OK) {
    return status;
  }
  status = graph->tensor_count > 0 ? copy_all(graph, copy) : MR_OK;
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
  char *longer = NULL;
  if (suffix[0] != '\0') {
    longer = mr_allocate(1, name_bytes);
    if (longer == NULL) {
      return MR_NO_MEMORY;
    }
    snprintf(longer, name_bytes, "%s%s", op->name, suffix);
  }
  struct mr_op_desc desc = {
      .size_bytes = sizeof desc,
      .name = longer == NULL ? op->name : longer,
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
  free(longer);
  if (status == MR_OK) {
    bool copies_clone = op->clone_of != MR_NO_OP;
    graph->ops[id].clone_of = clone_of;
    if (clone_of != MR_NO_OP) {
      graph->ops[id].remade = copies_clone ? op->remade : op->outputs[0];
    }
  }
  return status;
}

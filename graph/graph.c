/* SPDX-License-Identifier: Apache-2.0 */
/* Building a graph: tensors by name, ops in program order, every rule checked at the door. */
#include "graph/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* No tensor may be so large that sums of a few thousand of them could overflow. */
#define LARGEST_TENSOR_BYTES (1ull << 48)
/* Of an op: an age of the world on the fastest machine. Rates of more are in no profile. */
#define MOST_FLOPS 1e30
#define ALL_FLAGS  (MR_OP_REPEATABLE | MR_OP_TRAIN_ONLY | MR_OP_HOST_CAPABLE | MR_OP_DEFERRABLE)

uint64_t mr_dtype_bytes(mr_dtype dtype) {
  switch (dtype) {
  case MR_F32:
  case MR_I32:
    return 4;
  case MR_BF16:
    return 2;
  case MR_F64:
  case MR_I64:
    return 8;
  case MR_U8:
    return 1;
  }
  return 0;
}

bool mr_role_is_persistent(mr_role role) {
  return role == MR_PARAMETER || role == MR_STATE || role == MR_DERIVED;
}

bool mr_tensor_goes_round(const struct mr_tensor *tensor) {
  return tensor->carried || (mr_role_is_persistent(tensor->role) && !tensor->made_anew);
}

bool mr_op_reads(const struct mr_op *op, mr_tensor_id tensor) {
  for (uint32_t i = 0; i < op->input_count; i++) {
    if (op->inputs[i] == tensor) {
      return true;
    }
  }
  return false;
}

bool mr_op_writes(const struct mr_op *op, mr_tensor_id tensor) {
  for (uint32_t i = 0; i < op->output_count; i++) {
    if (op->outputs[i] == tensor) {
      return true;
    }
  }
  return false;
}

bool mr_op_restores(const struct mr_graph *graph, mr_op_id op) {
  bool restores = false;
  for (uint32_t i = 0; i < graph->ops[op].output_count; i++) {
    restores = restores || graph->tensors[graph->ops[op].outputs[i]].role == MR_DERIVED;
  }
  return restores;
}

bool mr_op_is_host_capable(const struct mr_graph *graph, mr_op_id op) {
  return (graph->ops[op].flags & MR_OP_HOST_CAPABLE) != 0;
}

mr_status mr_graph_create(struct mr_graph **graph_out) {
  struct mr_graph *graph = mr_allocate(1, sizeof *graph);
  if (graph == NULL) {
    return MR_NO_MEMORY;
  }
  *graph_out = graph;
  return MR_OK;
}

static void op_free(struct mr_op *op) {
  free(op->name);
  free(op->kind);
  free(op->signature);
  free(op->attributes);
  free(op->inputs);
  free(op->outputs);
}

void mr_graph_destroy(struct mr_graph *graph) {
  if (graph == NULL) {
    return;
  }
  for (uint32_t i = 0; i < graph->tensor_count; i++) {
    free(graph->tensors[i].name);
  }
  for (uint32_t i = 0; i < graph->op_count; i++) {
    op_free(&graph->ops[i]);
  }
  free(graph->tensors);
  free(graph->ops);
  free(graph->name_slots);
  free(graph);
}

/* FNV-1a, 64 bits: short strings, no adversary. */
static uint64_t name_hash(const char *name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char *c = name; *c != '\0'; c++) {
    hash = (hash ^ (unsigned char)*c) * 0x100000001b3ull;
  }
  return hash;
}

/* The slot that holds `name`, or the free slot where it belongs. */
static uint32_t name_slot(const struct mr_graph *graph, const char *name) {
  uint32_t mask = graph->name_slot_count - 1;
  uint32_t slot = (uint32_t)name_hash(name) & mask;
  while (graph->name_slots[slot] != 0 &&
         strcmp(graph->tensors[graph->name_slots[slot] - 1].name, name) != 0) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

static mr_status name_slots_grow(struct mr_graph *graph) {
  if (2ull * (graph->tensor_count + 1ull) <= graph->name_slot_count) {
    return MR_OK;
  }
  uint32_t *old = graph->name_slots;
  uint32_t old_count = graph->name_slot_count;
  uint32_t count = old_count == 0 ? 64 : old_count * 2;
  uint32_t *slots = mr_allocate(count, sizeof *slots);
  if (slots == NULL) {
    return MR_NO_MEMORY;
  }
  graph->name_slots = slots;
  graph->name_slot_count = count;
  for (uint32_t i = 0; i < old_count; i++) {
    if (old[i] != 0) {
      slots[name_slot(graph, graph->tensors[old[i] - 1].name)] = old[i];
    }
  }
  free(old);
  return MR_OK;
}

mr_status mr_graph_find(const struct mr_graph *graph, const char *name, mr_tensor_id *tensor_out) {
  if (graph->name_slot_count == 0) {
    return MR_INVALID;
  }
  uint32_t id = graph->name_slots[name_slot(graph, name)];
  if (id == 0) {
    return MR_INVALID;
  }
  *tensor_out = id - 1;
  return MR_OK;
}

/* A description that is shorter than this library's comes from an older header, or was not filled
 * in. */
static mr_status older_interface(const char *what, size_t given, size_t wanted) {
  mr_log(MR_LOG_ERROR, "%s description: size_bytes is %zu, this library's has %zu bytes", what,
         given, wanted);
  return MR_INVALID;
}

static mr_status tensor_bytes(const struct mr_tensor_desc *desc, uint64_t *bytes_out) {
  uint64_t bytes = mr_dtype_bytes(desc->dtype);
  if (bytes == 0 || desc->rank > MR_MAX_RANK || (uint32_t)desc->role > MR_DERIVED) {
    mr_log(MR_LOG_ERROR, "tensor %s: dtype %d, rank %u or role %d is not known", desc->name,
           (int)desc->dtype, desc->rank, (int)desc->role);
    return MR_INVALID;
  }
  for (uint32_t i = 0; i < desc->rank; i++) {
    if (desc->shape[i] == 0 || !mr_mul_u64(bytes, desc->shape[i], &bytes) ||
        bytes > LARGEST_TENSOR_BYTES) {
      mr_log(MR_LOG_ERROR, "tensor %s: dimension %u of %llu gives no bytes or more than 2^48",
             desc->name, i, (unsigned long long)desc->shape[i]);
      return MR_INVALID;
    }
  }
  *bytes_out = bytes;
  return MR_OK;
}

mr_status mr_graph_add_tensor(struct mr_graph *graph, const struct mr_tensor_desc *desc,
                              mr_tensor_id *tensor_out) {
  mr_tensor_id taken = 0;
  if (desc->size_bytes < sizeof *desc) {
    return older_interface("tensor", desc->size_bytes, sizeof *desc);
  }
  if (desc->name == NULL || desc->name[0] == '\0' ||
      mr_graph_find(graph, desc->name, &taken) == MR_OK) {
    mr_log(MR_LOG_ERROR, "tensor '%s': the name is empty or taken",
           desc->name == NULL ? "" : desc->name);
    return MR_INVALID;
  }
  struct mr_tensor tensor = {.role = desc->role, .dtype = desc->dtype, .rank = desc->rank};
  mr_status status = tensor_bytes(desc, &tensor.bytes);
  if (status != MR_OK) {
    return status;
  }
  memcpy(tensor.shape, desc->shape, sizeof tensor.shape);
  tensor.written = mr_tensor_begins_written(desc->role);
  status = mr_array_reserve((void **)&graph->tensors, &graph->tensor_capacity,
                            graph->tensor_count + 1ull, sizeof tensor);
  if (status != MR_OK || (status = name_slots_grow(graph)) != MR_OK) {
    return status;
  }
  tensor.name = mr_string_copy(desc->name);
  if (tensor.name == NULL) {
    return MR_NO_MEMORY;
  }
  graph->name_slots[name_slot(graph, tensor.name)] = graph->tensor_count + 1;
  graph->tensors[graph->tensor_count] = tensor;
  *tensor_out = graph->tensor_count++;
  return MR_OK;
}

bool mr_tensor_begins_written(mr_role role) {
  return role == MR_INPUT || mr_role_is_persistent(role);
}

static bool names_twice(const mr_tensor_id *ids, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    for (uint32_t j = 0; j < i; j++) {
      if (ids[i] == ids[j]) {
        return true;
      }
    }
  }
  return false;
}

static mr_status operands_check(const struct mr_graph *graph, const struct mr_op_desc *desc) {
  if (desc->input_count > MR_MAX_OPERANDS || desc->output_count > MR_MAX_OPERANDS ||
      desc->input_count + desc->output_count == 0) {
    mr_log(MR_LOG_ERROR, "op %s: %u inputs and %u outputs; from 1 in all to %u of each", desc->name,
           desc->input_count, desc->output_count, MR_MAX_OPERANDS);
    return MR_INVALID;
  }
  if ((desc->input_count > 0 && desc->inputs == NULL) ||
      (desc->output_count > 0 && desc->outputs == NULL)) {
    mr_log(MR_LOG_ERROR, "op %s: no list of its %u inputs or %u outputs", desc->name,
           desc->input_count, desc->output_count);
    return MR_INVALID;
  }
  for (uint32_t i = 0; i < desc->input_count + desc->output_count; i++) {
    bool output = i >= desc->input_count;
    mr_tensor_id id = output ? desc->outputs[i - desc->input_count] : desc->inputs[i];
    if (id >= graph->tensor_count) {
      mr_log(MR_LOG_ERROR, "op %s: there is no tensor %u", desc->name, id);
      return MR_INVALID;
    }
    const struct mr_tensor *tensor = &graph->tensors[id];
    if (!output && !tensor->written) {
      mr_log(MR_LOG_ERROR, "op %s reads %s before any op wrote it", desc->name, tensor->name);
      return MR_INVALID;
    }
    if (output && tensor->role == MR_INPUT) {
      mr_log(MR_LOG_ERROR, "op %s writes the input %s", desc->name, tensor->name);
      return MR_INVALID;
    }
  }
  if (names_twice(desc->inputs, desc->input_count) ||
      names_twice(desc->outputs, desc->output_count)) {
    mr_log(MR_LOG_ERROR, "op %s names a tensor twice among its inputs or outputs", desc->name);
    return MR_INVALID;
  }
  return MR_OK;
}

static mr_status op_check(const struct mr_graph *graph, const struct mr_op_desc *desc) {
  bool callback = false;
  if (desc->size_bytes < sizeof *desc) {
    return older_interface("op", desc->size_bytes, sizeof *desc);
  }
  for (uint32_t i = 0; i < MR_BACKEND_COUNT; i++) {
    callback = callback || desc->run[i] != NULL;
  }
  if (desc->name == NULL || desc->kind == NULL || !callback) {
    mr_log(MR_LOG_ERROR, "op %s: a name, a kind or a callback is missing",
           desc->name == NULL ? "(no name)" : desc->name);
    return MR_INVALID;
  }
  if (desc->attributes == NULL && desc->attributes_bytes != 0) {
    mr_log(MR_LOG_ERROR, "op %s: there are no attributes, only their bytes", desc->name);
    return MR_INVALID;
  }
  if ((desc->flags & ~(uint32_t)ALL_FLAGS) != 0) {
    mr_log(MR_LOG_ERROR, "op %s: flags 0x%x are not all of MR_OP_*", desc->name,
           (unsigned)desc->flags);
    return MR_INVALID;
  }
  if (desc->scratch_bytes > LARGEST_TENSOR_BYTES ||
      !(desc->flops >= 0 && desc->flops <= MOST_FLOPS)) {
    mr_log(MR_LOG_ERROR, "op %s: %llu bytes of scratch or %g operations make no sense", desc->name,
           (unsigned long long)desc->scratch_bytes, desc->flops);
    return MR_INVALID;
  }
  return operands_check(graph, desc);
}

/* A copy of `bytes` bytes; NULL for none. False where memory ran out. */
static bool copy_bytes(const void *data, size_t bytes, void **copy_out) {
  *copy_out = NULL;
  if (bytes == 0) {
    return true;
  }
  *copy_out = mr_allocate(1, bytes);
  if (*copy_out == NULL) {
    return false;
  }
  memcpy(*copy_out, data, bytes);
  return true;
}

static bool op_copy(const struct mr_op_desc *desc, struct mr_op *op) {
  op->name = mr_string_copy(desc->name);
  op->kind = mr_string_copy(desc->kind);
  if (op->name == NULL || op->kind == NULL) {
    return false;
  }
  if (desc->signature != NULL && (op->signature = mr_string_copy(desc->signature)) == NULL) {
    return false;
  }
  return copy_bytes(desc->attributes, desc->attributes_bytes, &op->attributes) &&
         copy_bytes(desc->inputs, desc->input_count * sizeof *desc->inputs, (void **)&op->inputs) &&
         copy_bytes(desc->outputs, desc->output_count * sizeof *desc->outputs,
                    (void **)&op->outputs);
}

static uint64_t operand_bytes(const struct mr_graph *graph, const struct mr_op_desc *desc) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < desc->input_count; i++) {
    bytes += graph->tensors[desc->inputs[i]].bytes;
  }
  for (uint32_t i = 0; i < desc->output_count; i++) {
    bytes += graph->tensors[desc->outputs[i]].bytes;
  }
  return bytes;
}

mr_status mr_graph_add_op(struct mr_graph *graph, const struct mr_op_desc *desc, mr_op_id *op_out) {
  mr_status status = op_check(graph, desc);
  if (status != MR_OK) {
    return status;
  }
  status = mr_array_reserve((void **)&graph->ops, &graph->op_capacity, graph->op_count + 1ull,
                            sizeof *graph->ops);
  if (status != MR_OK) {
    return status;
  }
  struct mr_op op = {
      .attributes_bytes = desc->attributes_bytes,
      .input_count = desc->input_count,
      .output_count = desc->output_count,
      .scratch_bytes = desc->scratch_bytes,
      .flops = desc->flops,
      .memory_bytes = desc->memory_bytes != 0 ? desc->memory_bytes : operand_bytes(graph, desc),
      .flags = desc->flags,
      .block = desc->block,
      .clone_of = MR_NO_OP,
      .remade = MR_NO_TENSOR,
  };
  memcpy(op.run, desc->run, sizeof op.run);
  if (!op_copy(desc, &op)) {
    op_free(&op);
    return MR_NO_MEMORY;
  }
  for (uint32_t i = 0; i < desc->output_count; i++) {
    graph->tensors[desc->outputs[i]].written = true;
  }
  graph->ops[graph->op_count] = op;
  *op_out = graph->op_count++;
  return MR_OK;
}

uint32_t mr_graph_tensor_count(const struct mr_graph *graph) {
  return graph->tensor_count;
}

uint32_t mr_graph_op_count(const struct mr_graph *graph) {
  return graph->op_count;
}

const char *mr_graph_tensor_name(const struct mr_graph *graph, mr_tensor_id tensor) {
  MR_ASSERT(tensor < graph->tensor_count);
  return graph->tensors[tensor].name;
}

mr_role mr_graph_tensor_role(const struct mr_graph *graph, mr_tensor_id tensor) {
  MR_ASSERT(tensor < graph->tensor_count);
  return graph->tensors[tensor].role;
}

uint64_t mr_graph_tensor_bytes(const struct mr_graph *graph, mr_tensor_id tensor) {
  MR_ASSERT(tensor < graph->tensor_count);
  return graph->tensors[tensor].bytes;
}

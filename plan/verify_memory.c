/* SPDX-License-Identifier: Apache-2.0 */
/* The verifier's books: a location for everything that can hold bytes, and the versions that ops
 * read and write. */
#include <stdlib.h>

#include "plan/verify.h"

static int compare_u64(const void *left, const void *right) {
  uint64_t a = *(const uint64_t *)left;
  uint64_t b = *(const uint64_t *)right;
  return (a > b) - (a < b);
}

static mr_status boundaries_make(struct mr_verifier *v) {
  v->boundaries = mr_allocate(2ull * v->plan->instance_count, sizeof *v->boundaries);
  if (v->boundaries == NULL) {
    return MR_NO_MEMORY;
  }
  uint32_t count = 0;
  for (uint32_t i = 0; i < v->plan->instance_count; i++) {
    const struct mr_instance *instance = &v->plan->instances[i];
    if (instance->small) {
      v->boundaries[count++] = instance->small_offset;
      v->boundaries[count++] = instance->small_offset + instance->bytes;
    }
  }
  qsort(v->boundaries, count, sizeof *v->boundaries, compare_u64);
  for (uint32_t i = 0; i < count; i++) {
    if (v->boundary_count == 0 || v->boundaries[v->boundary_count - 1] != v->boundaries[i]) {
      v->boundaries[v->boundary_count++] = v->boundaries[i];
    }
  }
  return MR_OK;
}

static mr_status locations_make(struct mr_verifier *v) {
  v->small_base = v->plan->device_page_count;
  v->host_base = v->small_base + v->boundary_count;
  v->extent_base = v->host_base + v->plan->host_page_count;
  v->handover_base = v->extent_base + v->plan->extent_count;
  v->location_count = v->handover_base + v->plan->instruction_count[MR_QUEUE_HOST];
  v->locations = mr_allocate(v->location_count, sizeof *v->locations);
  v->versions = mr_allocate(v->graph->tensor_count, sizeof *v->versions);
  v->newest = mr_allocate(v->graph->tensor_count, sizeof *v->newest);
  v->operand_versions =
      mr_allocate(v->plan->first_operand[v->graph->op_count], sizeof *v->operand_versions);
  if (v->locations == NULL || v->versions == NULL || v->newest == NULL ||
      v->operand_versions == NULL) {
    return MR_NO_MEMORY;
  }
  for (uint32_t i = 0; i < v->location_count; i++) {
    v->locations[i].owner = MR_NO_INSTANCE;
  }
  for (uint32_t queue = 0; queue < MR_QUEUE_COUNT; queue++) {
    v->queue_base[queue] = v->order_count;
    v->order_count += v->plan->instruction_count[queue];
  }
  v->order = mr_allocate(v->order_count, sizeof *v->order);
  v->clocks = mr_allocate((uint64_t)MR_VERIFY_STEPS * v->order_count, sizeof *v->clocks);
  return v->order == NULL || v->clocks == NULL ? MR_NO_MEMORY : MR_OK;
}

mr_status mr_verify_memory_init(struct mr_verifier *v) {
  mr_status status = boundaries_make(v);
  return status == MR_OK ? locations_make(v) : status;
}

void mr_verify_memory_fini(struct mr_verifier *v) {
  free(v->locations);
  free(v->boundaries);
  free(v->versions);
  free(v->newest);
  free(v->operand_versions);
  free(v->order);
  free(v->clocks);
}

bool mr_verify_runs_op(const struct mr_verifier *v, mr_op_id id) {
  const struct mr_op *op = &v->graph->ops[id];
  switch (v->mode) {
  case MR_VERIFY_FRESH:
    return !op->deferred;
  case MR_VERIFY_FLUSH:
    return op->deferred;
  case MR_VERIFY_EVALUATE:
    return (op->flags & MR_OP_TRAIN_ONLY) == 0;
  case MR_VERIFY_RESTORE:
    return false;
  case MR_VERIFY_TRAIN:
    break;
  }
  return true;
}

bool mr_verify_takes(const struct mr_verifier *v, mr_op_id id, mr_tensor_id input) {
  return mr_verify_runs_op(v, id) || mr_op_writes(&v->graph->ops[id], input);
}

bool mr_verify_gives(const struct mr_verifier *v, mr_op_id id, mr_tensor_id output) {
  return mr_verify_runs_op(v, id) || v->graph->tensors[output].role == MR_DERIVED;
}

void mr_verify_number_versions(struct mr_verifier *v) {
  for (mr_op_id k = 0; k < v->graph->op_count; k++) {
    const struct mr_op *op = &v->graph->ops[k];
    uint32_t *versions = &v->operand_versions[v->plan->first_operand[k]];
    for (uint32_t i = 0; i < op->input_count; i++) {
      versions[i] = v->versions[op->inputs[i]];
    }
    for (uint32_t i = 0; i < op->output_count; i++) {
      mr_tensor_id t = op->outputs[i];
      v->newest[t] += mr_verify_gives(v, k, t);
      v->versions[t] = mr_verify_gives(v, k, t) ? v->newest[t] : v->versions[t];
      versions[op->input_count + i] = v->versions[t];
    }
  }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What tells one job from another: sums that people can compare, and a hash over the rest. */
#include <string.h>

#include "graph/graph.h"

/* FNV-1a, 64 bits (G. Fowler, L. C. Noll, K.-P. Vo). */
#define HASH_START 0xcbf29ce484222325ull
#define HASH_PRIME 0x100000001b3ull

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes) {
  const unsigned char *at = data;
  for (size_t i = 0; i < bytes; i++) {
    hash = (hash ^ at[i]) * HASH_PRIME;
  }
  return hash;
}

static uint64_t hash_u64(uint64_t hash, uint64_t value) {
  return hash_bytes(hash, &value, sizeof value);
}

/* With its end mark, so that "ab", "c" and "a", "bc" differ. */
static uint64_t hash_text(uint64_t hash, const char *text) {
  return hash_bytes(hash, text, strlen(text) + 1);
}

static uint64_t hash_tensor(uint64_t hash, const struct mr_tensor *tensor) {
  hash = hash_text(hash, tensor->name);
  hash = hash_u64(hash, (uint64_t)tensor->role);
  hash = hash_u64(hash, (uint64_t)tensor->dtype);
  return hash_u64(hash, tensor->bytes);
}

static uint64_t hash_op(uint64_t hash, const struct mr_op *op) {
  hash = hash_text(hash, op->name);
  hash = hash_text(hash, op->kind);
  hash = hash_u64(hash, op->input_count);
  hash = hash_bytes(hash, op->inputs, op->input_count * sizeof *op->inputs);
  hash = hash_u64(hash, op->output_count);
  hash = hash_bytes(hash, op->outputs, op->output_count * sizeof *op->outputs);
  hash = hash_u64(hash, op->scratch_bytes);
  hash = hash_bytes(hash, &op->flops, sizeof op->flops);
  hash = hash_u64(hash, op->memory_bytes);
  hash = hash_u64(hash, op->flags);
  return hash_u64(hash, op->block);
}

void mr_graph_digest(const struct mr_graph *graph, struct mr_digest *digest_out) {
  struct mr_digest digest = {
      .op_count = graph->op_count, .tensor_count = graph->tensor_count, .hash = HASH_START};
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    digest.bytes += graph->tensors[t].bytes;
    digest.hash = hash_tensor(digest.hash, &graph->tensors[t]);
  }
  for (uint32_t k = 0; k < graph->op_count; k++) {
    digest.flops += graph->ops[k].flops;
    digest.hash = hash_op(digest.hash, &graph->ops[k]);
  }
  *digest_out = digest;
}

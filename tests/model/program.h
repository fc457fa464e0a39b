/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random training programs whose ops do integer arithmetic, and an oracle that runs them in order
 * on plain memory. An op mixes every byte of its inputs with its own number into each word that it
 * writes, so a byte from the wrong tensor, version or place changes what lasts at the end. A
 * program is a function of its seed.
 */
#ifndef MEMRUN_TESTS_MODEL_PROGRAM_H
#define MEMRUN_TESTS_MODEL_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/graph.h"

struct model_options {
  uint32_t layers;      /* at most 16 */
  uint32_t micro_steps; /* at most 4 */
  uint32_t layer_ops;   /* forward ops of a layer, at most 8 */
  uint64_t small_bytes; /* tensors are drawn from [64, small_bytes] ... */
  uint64_t large_bytes; /* ... or, half of them, from [small_bytes, large_bytes] */
  bool derives;      /* some parameters have a copy that layers read in their place: MR_DERIVED */
  uint32_t sleep_us; /* an op sleeps up to this long now and then; 0: never */
};

/* Draws options of a small program. */
void model_options_draw(uint64_t seed, struct model_options *options_out);

/* Layers with backward passes, in-place ops, gradients that accumulate over micro-steps, states of
 * an optimizer, ops that must not run again. The caller destroys the graph. */
struct mr_graph *model_program_create(uint64_t seed, const struct model_options *options);

struct model_oracle {
  const struct mr_graph *graph;
  uint8_t **memory; /* of each tensor */
  void *scratch;
};

/* Tensors start as zeros, as in a run. */
void model_oracle_init(struct model_oracle *oracle, const struct mr_graph *graph);
void model_oracle_step(struct model_oracle *oracle, mr_step_mode mode);
/* One op of the graph alone. */
void model_oracle_op(struct model_oracle *oracle, mr_op_id k);
void model_oracle_fini(struct model_oracle *oracle);

/* Random bytes for tensor t before step `step`, the same for everyone who asks. */
void model_fill(uint64_t seed, uint64_t step, mr_tensor_id tensor, uint8_t *bytes, uint64_t count);

#endif

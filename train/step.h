/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step is the graph of one optimizer step: the micro-steps' forward and backward passes and the
 * update, with the ids of every tensor that the trainer reads or writes between steps.
 *
 * The loss is a state: each micro-step's head adds its part, and the client reads it after the
 * step. So is the norm of the gradients, which is that of before clipping.
 */
#ifndef MEMRUN_TRAIN_STEP_H
#define MEMRUN_TRAIN_STEP_H

#include "train/optimizer.h"

struct step_options {
  struct model_config config;
  struct optimizer_options optimizer;
  uint32_t batch, seq, grad_accum;
  uint64_t block_rows; /* of the head (vocabulary.h) */
  mr_backend backend;  /* that will run the ops; MR_BACKEND_CPU is 0 */
  mr_dtype dtype;      /* of activations and of parameters as layers read them; MR_F32 is 0 */
  uint32_t threads;    /* resolved: at least 1 */
  bool reference;
};

struct step {
  struct step_options options;
  struct mr_graph *graph;
  struct tape_parameter *parts; /* the model's */
  uint32_t part_count;
  struct optimizer optimizer;
  mr_tensor_id *tokens, *targets; /* of each micro-step, (batch, seq) */
  mr_tensor_id loss;              /* state, one double: mean nats for each token */
};

/* Builds the graph; the caller destroys the step. MR_NO_MEMORY, MR_INVALID. */
MR_CHECK_RESULT mr_status step_create(const struct step_options *options, struct step **step_out);
void step_destroy(struct step *step);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AdamW (Loshchilov and Hutter 2019) over all parameters of a step. The two moments of a part of
 * the model are states in pieces of at most OPTIMIZER_PIECE_BYTES, so that they stream through the
 * device. Weight decay acts on parameters of two dimensions or more. Parameters are updated in
 * fp32; where layers read them in another type, the same op rounds what it has updated into their
 * copy.
 *
 * Order of updates. With clipping off, a parameter is updated as soon as its gradient is complete,
 * so gradients never all live at once. With clipping on, no update can start before the norm of all
 * gradients is known; then parameters are updated in model order, first layers first: their
 * gradients were made last and are still near, and the next forward pass needs those layers first.
 * These updates may be deferred into that pass, so they read a copy of the step's scalars.
 */
#ifndef MEMRUN_TRAIN_OPTIMIZER_H
#define MEMRUN_TRAIN_OPTIMIZER_H

#include "train/model.h"

#define OPTIMIZER_PIECE_BYTES    (16ull << 20)
#define OPTIMIZER_PIECE_ELEMENTS (OPTIMIZER_PIECE_BYTES / sizeof(float))

struct optimizer_options {
  double lr, min_lr, beta1, beta2, eps, weight_decay;
  double clip; /* 0: off */
  uint64_t warmup, decay_steps;
};

struct optimizer_piece {
  uint32_t part;
  uint64_t first, count; /* elements of the part */
  mr_tensor_id m, v;
};

struct optimizer {
  struct op_builder builder;
  struct optimizer_options options;
  const struct model_config *config;  /* borrowed */
  const struct tape_parameter *parts; /* the model's; borrowed */
  struct optimizer_piece *pieces;     /* in the order of parts */
  uint32_t piece_count;
  uint32_t *first_piece; /* of each part, and one past the last */
  mr_tensor_id scalars;  /* input, OP_SCALAR_COUNT floats */
  mr_tensor_id squares;  /* state, one double for each part */
  mr_tensor_id norm;     /* state, one double */
  mr_tensor_id scale;    /* one float, where clip > 0 */
  mr_tensor_id rates;    /* the scalars of the step that an update belongs to, where clip > 0 */
};

/* Adds the optimizer's tensors to the builder's graph. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status optimizer_init(struct optimizer *optimizer,
                                         const struct op_builder *builder,
                                         const struct optimizer_options *options,
                                         const struct model_config *config,
                                         const struct tape_parameter *parts);
void optimizer_fini(struct optimizer *optimizer);

/* What follows as soon as the gradient of a part of the model is complete: its share of the norm
 * and, with clipping off, its update. A tape_complete; `context` is the optimizer. */
MR_CHECK_RESULT mr_status optimizer_gradient_complete(void *context, tape_parameter_id part);

/* The end of the step: the norm and, with clipping on, the updates. */
MR_CHECK_RESULT mr_status optimizer_finish(struct optimizer *optimizer);

/*
 * The learning rate of step `step` (from 1): rises linearly over `warmup` steps, then falls along a
 * cosine to min_lr at the step after step `decay_steps` (llm.c's schedule, whose steps count from
 * 0); constant where decay_steps is 0.
 */
double optimizer_rate(const struct optimizer_options *options, uint64_t step);

/* The step's scalars, in the order of OP_SCALAR_*. */
void optimizer_scalars(const struct optimizer_options *options, uint64_t step,
                       float scalars_out[static OP_SCALAR_COUNT]);

#endif

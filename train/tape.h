/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tape turns a model's forward pass into a whole training graph. Each layer call adds its
 * forward op and is recorded; tape_backward walks the record in reverse and adds each layer's
 * backward op by that layer's own rule.
 *
 * Nouns. A *parameter* is a tensor that lasts, with the tensor of its gradient, both fp32, and the
 * tensor that layers read: itself, or a copy of it in the builder's type. A *value* is an
 * activation of that type, with the tensor of its gradient once a later layer has written it. A
 * *micro-step* is one forward and backward pass; several add up their parameter gradients.
 *
 * The gradient of the residual stream is one tensor: a layer that adds its input to its output
 * hands the output's gradient on to that input, and what else flows into the input is then added in
 * place, so no copy is ever made. Hence the residual input of a layer must have no later reader
 * than that layer. A value that went through GELU is read by exactly one linear layer, whose
 * backward op applies the derivative of GELU too. GELU is an op of its own and not part of the
 * layer before it, because alone it is cheap enough to be recomputed, and its result is among the
 * largest.
 *
 * Errors stick: after the first failing call every call does nothing, and tape_status tells.
 */
#ifndef MEMRUN_TRAIN_TAPE_H
#define MEMRUN_TRAIN_TAPE_H

#include "train/ops.h"

struct tape_parameter {
  mr_tensor_id tensor;
  mr_tensor_id working; /* what layers read */
  mr_tensor_id gradient;
  bool gradient_written; /* so the next op adds to it */
  uint32_t uses;         /* recorded in this micro-step and not yet walked back over */
};

struct tape_value {
  mr_tensor_id tensor;
  mr_tensor_id preactivation; /* tensor = gelu(preactivation), and gradient is that of
                                 preactivation; or OP_NONE */
  mr_tensor_id gradient;      /* OP_NONE until some op writes it */
};

struct tape_record;

struct tape {
  struct op_builder builder;
  struct op_shape shape;
  struct tape_parameter *parameters; /* borrowed */
  struct tape_value *values;
  struct tape_record *records;
  uint32_t value_count, record_count;
  uint32_t capacity; /* of both */
  uint32_t micro_step, micro_step_count;
  uint32_t block; /* of the layers called now */
  char prefix[64];
  mr_status status;
};

#define TAPE_MOST_SLICES (MR_MAX_OPERANDS - 1) /* the loss reads one operand of each */

/* A position in tape.values, and in tape.parameters. */
typedef uint32_t tape_value_id;
typedef uint32_t tape_parameter_id;

/* Room for `layer_calls` calls in a micro-step. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status tape_init(struct tape *tape, const struct op_builder *builder,
                                    const struct op_shape *shape, struct tape_parameter *parameters,
                                    uint32_t layer_calls);
void tape_fini(struct tape *tape);

/* Starts micro-step `micro_step` of `micro_step_count`; values of the one before are gone. */
void tape_begin(struct tape *tape, uint32_t micro_step, uint32_t micro_step_count);

/* The layers that follow belong to this block and have names beginning with `prefix`. */
void tape_section(struct tape *tape, uint32_t block, const char *prefix);

/* The token embedding: `count` parameters from `first` on, each with the rows of slice_words words
 * of the shape's vocabulary, the last with the rest. */
struct tape_slices {
  tape_parameter_id first;
  uint32_t count;
  uint64_t slice_words;
};

tape_value_id tape_embed(struct tape *tape, const char *name, mr_tensor_id tokens,
                         const struct tape_slices *wte, tape_parameter_id wpe);

/* gamma and beta are parameters first and first + 1. */
tape_value_id tape_layernorm(struct tape *tape, const char *name, tape_value_id x,
                             tape_parameter_id first);

#define TAPE_NO_VALUE UINT32_MAX

struct tape_linear {
  tape_value_id x;
  tape_value_id residual;  /* added to the result; or TAPE_NO_VALUE */
  tape_parameter_id first; /* weight (in, out) and, after it, bias */
  uint64_t in, out;
};
tape_value_id tape_linear(struct tape *tape, const char *name, const struct tape_linear *layer);

/* x is (batch, seq, width) and has no other reader. */
tape_value_id tape_gelu(struct tape *tape, const char *name, tape_value_id x, uint64_t width);

tape_value_id tape_attention(struct tape *tape, const char *name, tape_value_id qkv);

/* The end of a forward pass: loss (+)= scale * sum of the cross-entropies. */
struct tape_head {
  tape_value_id x;
  struct tape_slices wte;
  mr_tensor_id targets, loss;
  double scale;
  uint64_t block_rows;  /* train/vocabulary.h */
  uint32_t first_block; /* logits of slices are recomputed one by one: free numbers from here on */
};
void tape_head(struct tape *tape, const char *name, const struct tape_head *head);

/* Called when no op of the whole step will change the parameter's gradient any more, nor read the
 * parameter. */
typedef mr_status (*tape_complete)(void *context, tape_parameter_id parameter);

/* Adds the backward pass. `complete` (may be NULL) is called in the last micro-step alone. */
void tape_backward(struct tape *tape, tape_complete complete, void *context);

mr_status tape_status(const struct tape *tape);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The attributes of the ops, as each back-end's callbacks get them. An op looks at the fields that
 * concern it. */
#ifndef MEMRUN_TRAIN_OPS_ATTRIBUTES_H
#define MEMRUN_TRAIN_OPS_ATTRIBUTES_H

#include "train/ops.h"

/* Of the ops of a layer. */
struct layer_attributes {
  struct op_shape shape;
  uint64_t in, out; /* of a linear layer; out: of a GELU too */
  mr_dtype dtype;   /* of what passes between layers and of their parameters */
  bool reference;
  bool residual, preactivation; /* optional operands that are there */
  bool accumulate, accumulate_dx;
};

struct embed_attributes {
  struct op_shape shape;
  struct op_slice slice;
  mr_dtype dtype;
  bool reference;
  bool positions;  /* dwpe is an operand */
  bool accumulate; /* dwpe */
};

/* Of the head's ops. */
struct head_attributes {
  struct op_rows rows;
  struct op_slice slice;
  uint64_t width;
  uint32_t slices;
  double scale;
  mr_dtype dtype;
  bool reference;
  bool accumulate_dx, accumulate; /* accumulate: loss, or dwte */
};

struct sum_squares_attributes {
  uint64_t count, index;
  bool reference;
};

struct norm_attributes {
  uint64_t count;
  double clip;
  bool scaled;
};

struct adamw_attributes {
  uint64_t first, count;
  float beta1, beta2, eps, weight_decay;
  bool scaled, reference;
  bool working; /* the last output is the part's copy in bf16 */
};

#endif

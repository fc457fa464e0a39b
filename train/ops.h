/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ops of the trainer: each function adds one op to a graph, with the callback that runs the
 * kernel, its operands, its scratch and its exact cost. Attributes are plain values without
 * pointers. A tensor id of OP_NONE leaves an optional operand out; `accumulate` makes an output an
 * in-place operand that the op adds to.
 *
 * Forward ops carry the block of their layer, so that they may be recomputed together, and the
 * logits of each slice of the vocabulary are a block of their own; other ops belong to no block.
 * Backward and update ops run in training steps alone.
 */
#ifndef MEMRUN_TRAIN_OPS_H
#define MEMRUN_TRAIN_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include <memrun/memrun.h>

#define OP_NONE UINT32_MAX

/* What all ops of a graph share. */
struct op_builder {
  struct mr_graph *graph;
  mr_backend backend; /* that will run them; scratch depends on it */
  mr_dtype dtype;     /* MR_F32 or MR_BF16: of activations and of parameters as layers read them */
  uint32_t threads;   /* of the team that will run them; scratch and results depend on it */
  bool reference;     /* the readable kernels */
};

struct op_shape {
  uint64_t batch, seq, width, heads, vocab, positions;
};

/* Consecutive words of the vocabulary: the rows of one of the token embedding's tensors. */
struct op_slice {
  uint64_t first_word, words;
};

/* x's rows of the tokens in the slice. Ops of other slices may have written other rows. */
struct op_embed {
  mr_tensor_id tokens, wte, wpe, x;
  struct op_slice slice;
  bool accumulate; /* x: the slice is not the first */
};
mr_status op_add_embed(const struct op_builder *builder, const char *name, uint32_t block,
                       const struct op_shape *shape, const struct op_embed *op);

struct op_embed_backward {
  mr_tensor_id tokens, dx, dwte; /* dwte is always added to */
  mr_tensor_id dwpe;             /* or OP_NONE: the op of another slice makes it */
  struct op_slice slice;
  bool accumulate; /* dwpe */
};
mr_status op_add_embed_backward(const struct op_builder *builder, const char *name,
                                const struct op_shape *shape, const struct op_embed_backward *op);

struct op_layernorm {
  mr_tensor_id x, gamma, beta, y, mean, rstd;
};
mr_status op_add_layernorm(const struct op_builder *builder, const char *name, uint32_t block,
                           const struct op_shape *shape, const struct op_layernorm *op);

struct op_layernorm_backward {
  mr_tensor_id dy, x, gamma, mean, rstd, dx, dgamma, dbeta;
  bool accumulate_dx, accumulate; /* accumulate: dgamma and dbeta */
};
mr_status op_add_layernorm_backward(const struct op_builder *builder, const char *name,
                                    const struct op_shape *shape,
                                    const struct op_layernorm_backward *op);

struct op_linear {
  mr_tensor_id x, w, bias;
  mr_tensor_id residual; /* or OP_NONE */
  mr_tensor_id y;
  mr_tensor_id activated; /* gelu(y), or OP_NONE */
  uint64_t in, out;
};
mr_status op_add_linear(const struct op_builder *builder, const char *name, uint32_t block,
                        const struct op_shape *shape, const struct op_linear *op);

struct op_linear_backward {
  mr_tensor_id dy, x, w;
  mr_tensor_id preactivation; /* x = gelu(preactivation), and dx becomes its gradient; or OP_NONE */
  mr_tensor_id dx, dw, dbias;
  uint64_t in, out;
  bool accumulate; /* dw and dbias */
};
mr_status op_add_linear_backward(const struct op_builder *builder, const char *name,
                                 const struct op_shape *shape, const struct op_linear_backward *op);

/* activated = gelu(x), both (batch, seq, width). */
struct op_gelu {
  mr_tensor_id x, activated;
  uint64_t width;
};
mr_status op_add_gelu(const struct op_builder *builder, const char *name, uint32_t block,
                      const struct op_shape *shape, const struct op_gelu *op);

struct op_attention {
  mr_tensor_id qkv, out, lse;
};
mr_status op_add_attention(const struct op_builder *builder, const char *name, uint32_t block,
                           const struct op_shape *shape, const struct op_attention *op);

struct op_attention_backward {
  mr_tensor_id dout, qkv, out, lse, dqkv;
};
mr_status op_add_attention_backward(const struct op_builder *builder, const char *name,
                                    const struct op_shape *shape,
                                    const struct op_attention_backward *op);

/* Some consecutive rows of the head's input: those of one block (train/vocabulary.h). */
struct op_rows {
  uint64_t first, count;
};

/* Columns of a slice's logits, some of them unused, of their sums, and of the softmax's terms. */
uint64_t op_head_stride(uint64_t words);
#define OP_HEAD_SUMS    3u
#define OP_HEAD_SOFTMAX 2u

/* A block's logits of one slice, and what the loss needs of them. */
struct op_head_logits {
  mr_tensor_id x, wte, targets; /* x and targets: of all rows */
  mr_tensor_id logits;          /* (rows, op_head_stride(words)) */
  mr_tensor_id sums;            /* (rows, OP_HEAD_SUMS) */
  struct op_rows rows;
  struct op_slice slice;
};
mr_status op_add_head_logits(const struct op_builder *builder, const char *name, uint32_t block,
                             const struct op_shape *shape, const struct op_head_logits *op);

/* A block's part of the loss, from the sums of all slices. */
struct op_head_loss {
  const mr_tensor_id *sums;
  uint32_t slices;
  mr_tensor_id loss;
  mr_tensor_id softmax; /* (rows, OP_HEAD_SOFTMAX) */
  struct op_rows rows;
  double scale;
  bool accumulate; /* loss */
};
mr_status op_add_head_loss(const struct op_builder *builder, const char *name,
                           const struct op_head_loss *op);

/* Turns a block's logits of one slice into their gradients, and those into the slice's gradient and
 * a part of dx. */
struct op_head_gradient {
  mr_tensor_id x, wte, targets, softmax, logits, dx, dwte;
  struct op_rows rows;
  struct op_slice slice;
  double scale;
  bool first_of_block; /* sets the block's rows of dx, to which the other slices add */
  bool accumulate_dx;  /* some op has written other rows of dx, or these */
  bool accumulate;     /* dwte */
};
mr_status op_add_head_gradient(const struct op_builder *builder, const char *name,
                               const struct op_shape *shape, const struct op_head_gradient *op);

/* squares[index] = sum of g^2; squares is changed in place. */
struct op_sum_squares {
  mr_tensor_id g, squares;
  uint64_t count, index;
};
mr_status op_add_sum_squares(const struct op_builder *builder, const char *name,
                             const struct op_sum_squares *op);

/*
 * norm = sqrt(sum of squares); where scale is not OP_NONE, scale = min(1, clip / (norm + 1e-6)), as
 * torch.nn.utils.clip_grad_norm_ computes it.
 */
struct op_norm {
  mr_tensor_id squares, norm, scale;
  uint64_t count; /* of squares */
  double clip;
};
mr_status op_add_norm(const struct op_builder *builder, const char *name, const struct op_norm *op);

/* The step's scalars as the client wrote them, for updates that run when it has written the next
 * step's: rates = scalars. */
struct op_rates {
  mr_tensor_id scalars, rates;
};
mr_status op_add_rates(const struct op_builder *builder, const char *name,
                       const struct op_rates *op);

/* Elements of the tensor with the step's scalars, which the client writes before each step. */
enum {
  OP_SCALAR_LR = 0,
  OP_SCALAR_CORRECTION1 = 1, /* 1 - beta1^step */
  OP_SCALAR_CORRECTION2 = 2,
  OP_SCALAR_COUNT = 3,
};

/* Updates p[first .. first + count) from the same range of g; m and v hold that range alone. */
struct op_adamw {
  mr_tensor_id p, g, m, v;
  mr_tensor_id working; /* the copy of p in bf16, of which the same range is set, the first range
                           before others; MR_DERIVED; or OP_NONE */
  mr_tensor_id scalars; /* or a copy */
  mr_tensor_id scale;   /* or OP_NONE */
  uint64_t first, count;
  float beta1, beta2, eps, weight_decay;
  bool deferrable; /* MR_OP_DEFERRABLE */
};
mr_status op_add_adamw(const struct op_builder *builder, const char *name,
                       const struct op_adamw *op);

/* The way from a description to the graph, for the files that implement the above. */
struct kernel_table;
const struct kernel_table *op_kernels(bool reference);

struct op_operands {
  mr_tensor_id inputs[MR_MAX_OPERANDS], outputs[MR_MAX_OPERANDS];
  uint32_t input_count, output_count;
};
void op_read(struct op_operands *operands, mr_tensor_id tensor);
void op_write(struct op_operands *operands, mr_tensor_id tensor);
/* An output that is an input too where `accumulate`. Such inputs come after all others. */
void op_accumulate(struct op_operands *operands, mr_tensor_id tensor, bool accumulate);

/* The kind of an op by the type of its elements, on which its speed depends. A literal. */
#define OP_KIND(builder, kind) ((builder)->dtype == MR_BF16 ? kind ".bf16" : kind)

/* Adds the op; desc has everything but the operands and sizes. */
mr_status op_finish(const struct op_builder *builder, struct mr_op_desc *desc,
                    const struct op_operands *operands);

#endif

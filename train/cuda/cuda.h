/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ops of the trainer on a CUDA device.
 *
 * A kernel (.cu) does one part of an op; the files kernels.cu includes are compiled by nvcc into
 * one image that the program carries. arguments.h says what each kernel computes. An op is a C
 * function cuda_op_*: it enqueues the kernels and products of the op on a queue, in order, and
 * returns without waiting. Blocks, slabs and scratch follow from shapes alone, every sum has a
 * fixed order, and nothing is added with atomics: the same bits on every run.
 *
 * Matrix products are cuBLASLt's, found at run time (cublaslt.h). Everything round a product that
 * it offers is fused with it (bias, residual, accumulation); the rest are kernels of ours that are
 * bound by memory, so they read 16 bytes a thread and touch each operand once. Attention has its
 * products in its kernels: those of bf16 heads on tensor cores (attention_tensor.cuh), by the few
 * instructions that C++ has no words for (ptx/), all others by plain arithmetic (attention.cuh).
 *
 * A queue is two functions, so that tests carry out the same enqueued work without a device.
 *
 * Elements: cuda_type is the type of what passes between layers and of parameters as the layers see
 * them; gradients of parameters, statistics and optimizer states are fp32, and so is all
 * arithmetic.
 */
#ifndef MEMRUN_TRAIN_CUDA_CUDA_H
#define MEMRUN_TRAIN_CUDA_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <memrun/memrun.h>

#include "train/cuda/arguments.h"

enum cuda_type { CUDA_F32 = 0, CUDA_BF16 = 1 };

static inline enum cuda_type cuda_type_of(mr_dtype dtype) {
  return dtype == MR_BF16 ? CUDA_BF16 : CUDA_F32;
}

struct cuda_launch {
  const char *kernel; /* its name in the image */
  uint32_t grid[3], block[3], shared_bytes;
  const void *arguments; /* the struct that arguments.h has for the kernel */
  size_t arguments_bytes;
};

/*
 * out (rows, columns) = op(a) (rows, inner) . op(b) (inner, columns) + bias + added, row major; op
 * transposes where asked, so a transposed a is stored as (inner, rows).
 */
struct cuda_product {
  const void *a, *b; /* of `type` */
  const void *bias;  /* (columns) of `type`, or NULL; goes with an output of `type` */
  const void *added; /* as out, may be out itself; or NULL */
  void *out;         /* of `type`, or fp32 where out_f32 */
  uint64_t rows, columns, inner;
  uint64_t a_stride, out_stride; /* elements from row to row as stored; 0: contiguous */
  enum cuda_type type;
  bool a_transposed, b_transposed, out_f32;
  void *workspace;
  uint64_t workspace_bytes;
};

struct cuda_queue {
  mr_status (*launch)(void *context, const struct cuda_launch *launch);
  mr_status (*multiply)(void *context, const struct cuda_product *product);
  void *context;
};

/* Scratch: 64-byte aligned, as large as the matching function says. The library wants a workspace
 * that begins at a multiple of 256 bytes, so it is lent so much more. */
#define CUDA_WORKSPACE_SLACK_BYTES 192u
uint64_t cuda_product_workspace_bytes(uint64_t rows, uint64_t columns);

mr_status cuda_op_embed(const struct cuda_queue *queue, enum cuda_type type,
                        const struct cuda_embed *op);

struct cuda_op_embed_backward {
  const int32_t *tokens;
  const void *dx;
  float *dwte, *dwpe; /* dwte is always added to; dwpe may be NULL */
  uint32_t batch, seq, positions, width, first_word, words;
  bool accumulate; /* of dwpe */
};
mr_status cuda_op_embed_backward(const struct cuda_queue *queue, enum cuda_type type,
                                 const struct cuda_op_embed_backward *op);

mr_status cuda_op_layernorm(const struct cuda_queue *queue, enum cuda_type type,
                            const struct cuda_layernorm *op);

struct cuda_op_layernorm_backward {
  const void *dy, *x, *gamma;
  const float *mean, *rstd;
  void *dx;
  float *dgamma, *dbeta;
  void *scratch;
  uint32_t rows, width;
  bool accumulate_dx, accumulate; /* accumulate: of dgamma and dbeta */
};
uint64_t cuda_layernorm_backward_scratch_bytes(uint64_t rows, uint64_t width);
mr_status cuda_op_layernorm_backward(const struct cuda_queue *queue, enum cuda_type type,
                                     const struct cuda_op_layernorm_backward *op);

/* y = x . w + bias + residual; activated = gelu(y). */
struct cuda_op_linear {
  const void *x, *w, *bias, *residual; /* bias and residual may be NULL */
  void *y, *activated;                 /* activated may be NULL */
  void *scratch;
  uint64_t rows, in, out;
};
uint64_t cuda_linear_scratch_bytes(uint64_t rows, uint64_t in, uint64_t out);
mr_status cuda_op_linear(const struct cuda_queue *queue, enum cuda_type type,
                         const struct cuda_op_linear *op);

/* As struct kernel_linear_backward. */
struct cuda_op_linear_backward {
  const void *dy, *x, *w;
  const void *preactivation; /* or NULL */
  void *dx;
  float *dw, *dbias; /* dbias may be NULL */
  void *scratch;
  uint64_t rows, in, out;
  bool accumulate_dx, accumulate; /* accumulate: of dw and dbias */
};
uint64_t cuda_linear_backward_scratch_bytes(enum cuda_type type, uint64_t rows, uint64_t in,
                                            uint64_t out);
mr_status cuda_op_linear_backward(const struct cuda_queue *queue, enum cuda_type type,
                                  const struct cuda_op_linear_backward *op);

mr_status cuda_op_gelu(const struct cuda_queue *queue, enum cuda_type type,
                       const struct cuda_gelu *op);

/* op->d *= gelu'(op->x) */
mr_status cuda_op_gelu_backward(const struct cuda_queue *queue, enum cuda_type type,
                                const struct cuda_gelu_backward *op);

/* Heads of more than CUDA_MOST_HEAD_WIDTH columns are refused when a graph is built. */
#define CUDA_MOST_HEAD_WIDTH 256u
struct cuda_op_attention {
  const void *qkv;
  void *out;
  float *lse;
  uint32_t batch, seq, width, heads;
};
mr_status cuda_op_attention(const struct cuda_queue *queue, enum cuda_type type,
                            const struct cuda_op_attention *op);

struct cuda_op_attention_backward {
  const void *dout, *qkv, *out;
  const float *lse;
  void *dqkv;
  void *scratch;
  uint32_t batch, seq, width, heads;
};
uint64_t cuda_attention_backward_scratch_bytes(uint64_t batch, uint64_t seq, uint64_t heads);
mr_status cuda_op_attention_backward(const struct cuda_queue *queue, enum cuda_type type,
                                     const struct cuda_op_attention_backward *op);

/* The head: struct kernel_head_logits and what follows it say what is computed. */
struct cuda_op_head_logits {
  const void *x, *wte;
  const int32_t *targets;
  void *logits;
  float *sums;
  void *scratch;
  uint64_t rows, width, first_word, words, stride;
};
uint64_t cuda_head_logits_scratch_bytes(uint64_t rows, uint64_t words);
mr_status cuda_op_head_logits(const struct cuda_queue *queue, enum cuda_type type,
                              const struct cuda_op_head_logits *op);

struct cuda_op_head_loss {
  const float *const *sums; /* at most CUDA_MOST_SLICES; the array itself is the host's */
  double *loss;
  float *softmax;
  void *scratch;
  uint64_t rows;
  uint32_t slices;
  double scale;
  bool accumulate; /* of loss */
};
uint64_t cuda_head_loss_scratch_bytes(uint64_t rows);
mr_status cuda_op_head_loss(const struct cuda_queue *queue, const struct cuda_op_head_loss *op);

struct cuda_op_head_gradient {
  const void *x, *wte;
  const int32_t *targets;
  const float *softmax;
  void *logits, *dx;
  float *dwte;
  void *scratch;
  uint64_t rows, width, first_word, words, stride;
  double scale;
  bool accumulate_dx, accumulate; /* accumulate: of dwte */
};
uint64_t cuda_head_gradient_scratch_bytes(uint64_t rows, uint64_t words, uint64_t width);
mr_status cuda_op_head_gradient(const struct cuda_queue *queue, enum cuda_type type,
                                const struct cuda_op_head_gradient *op);

struct cuda_op_sum_squares {
  const float *g;
  double *out;
  void *scratch;
  uint64_t count;
};
uint64_t cuda_sum_squares_scratch_bytes(uint64_t count);
mr_status cuda_op_sum_squares(const struct cuda_queue *queue, const struct cuda_op_sum_squares *op);

mr_status cuda_op_norm(const struct cuda_queue *queue, const struct cuda_norm *op);

mr_status cuda_op_rates(const struct cuda_queue *queue, const struct cuda_rates *op);

mr_status cuda_op_adamw(const struct cuda_queue *queue, enum cuda_type type,
                        const struct cuda_adamw *op);

/* For the files that implement the above. */
#define CUDA_THREADS 256u /* of a block, where nothing else decides */
#define CUDA_WARP    32u

static inline uint64_t cuda_divide_up(uint64_t whole, uint64_t part) {
  return (whole + part - 1) / part;
}

/* Elements in 16 bytes. */
static inline uint64_t cuda_wide_elements(enum cuda_type type) {
  return type == CUDA_F32 ? 4 : 8;
}

/* The kernel's name for the type; name is a literal. */
#define CUDA_TYPED(name, type) ((type) == CUDA_F32 ? name "_f32" : name "_bf16")

/* Enqueues `kernel` in a row of blocks of CUDA_THREADS. */
mr_status cuda_launch_row(const struct cuda_queue *queue, const char *kernel, uint64_t blocks,
                          const void *arguments, size_t arguments_bytes);

/* Enqueues cuda_column_sums with the grid that its arguments need. */
mr_status cuda_launch_column_sums(const struct cuda_queue *queue, enum cuda_type type,
                                  const struct cuda_column_sums *sums);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each kernel is given: one struct by value, named as the kernel is. The kernels (.cu), the C
 * code that launches them and the stand-ins of the tests share these declarations.
 *
 * `void *` points to elements of the type that the kernel's name ends with, f32 or bf16: what
 * passes between layers, and parameters as layers see them. Gradients of parameters, statistics and
 * optimizer states are float, sums that become a loss or a norm are double. N = batch * seq rows, C
 * = width, H = heads, T = seq, V = vocabulary, as in the kernels of the cpu. All addresses are
 * device addresses, aligned to 16 bytes but where a field says otherwise.
 */
#ifndef MEMRUN_TRAIN_CUDA_ARGUMENTS_H
#define MEMRUN_TRAIN_CUDA_ARGUMENTS_H

#include <stdint.h>

/* The token embedding and its gradient come in slices of consecutive words: an op sees the `words`
 * rows from word first_word on, while tokens and targets count from word 0. */

/* x[n] = wte[tokens[n]] + wpe[n % T] for the tokens in the slice; typed. A warp for a row. */
struct cuda_embed {
  const int32_t *tokens;
  const void *wte, *wpe; /* (words, C), (>= T, C) */
  void *x;               /* (N, C) */
  uint32_t rows, seq, width, first_word, words;
};

/* dwte[tokens[n]] += dx[n] for the tokens in the slice; typed. A block for each n; that of a
 * token's first n adds them all. */
struct cuda_embed_tokens {
  const int32_t *tokens;
  const void *dx; /* (N, C) */
  float *dwte;    /* (words, C) */
  uint32_t rows, width, first_word, words;
};

/* dwpe[t] (+)= sum over the batch of dx, 0 from T to `positions`; typed. A warp for a position. */
struct cuda_embed_positions {
  const void *dx;
  float *dwpe; /* (positions, C) */
  uint32_t batch, seq, positions, width, accumulate;
};

/* y = (x - mean) * rstd * gamma + beta; typed. A warp for a row. */
struct cuda_layernorm {
  const void *x, *gamma, *beta; /* (N, C), (C), (C) */
  void *y;                      /* (N, C) */
  float *mean, *rstd;           /* (N) */
  uint32_t rows, width;
};

/* dx (+)=, and per block the sums of its rows for dgamma and dbeta; typed. A block for
 * rows_per_block rows, a multiple of CUDA_LAYERNORM_GROUP. */
struct cuda_layernorm_backward {
  const void *dy, *x, *gamma;
  const float *mean, *rstd;
  void *dx;
  float *partial; /* (blocks, 2, C): dgamma, dbeta */
  uint32_t rows, width, rows_per_block, accumulate_dx;
};
#define CUDA_LAYERNORM_GROUP 16u

/* out[slab, c] (+)= the sum of rows slab * rows_per_slab ... of column c; typed. A block of
 * CUDA_SUM_LANES warps for CUDA_COLUMNS columns of a slab, slabs along y; where `wide`, for those
 * of so many packs of 16 bytes, and then columns and stride are whole packs. */
struct cuda_column_sums {
  const void *in; /* rows x columns of it, `stride` elements from row to row; unless wide at any
                   * alignment */
  float *out;     /* (slabs, columns) */
  uint32_t rows, columns, stride, rows_per_slab, accumulate, wide;
};
#define CUDA_COLUMNS   32u
#define CUDA_SUM_LANES 16u

/* activated = gelu(x); typed. */
struct cuda_gelu {
  const void *x;
  void *activated;
  uint64_t count;
};

/* d *= gelu'(x); typed. */
struct cuda_gelu_backward {
  const void *x;
  void *d;
  uint64_t count;
};

/* partial[block] = the sum of the squares of the block's elements. */
struct cuda_sum_squares {
  const float *g;
  double *partial; /* one for each block */
  uint64_t count;
};

/* *out (+)= scale times the sum of partial; one block. */
struct cuda_total {
  const double *partial;
  double *out;
  double scale;
  uint32_t count, accumulate;
};

/* norm = sqrt(sum of squares); scale = min(1, clip / (norm + 1e-6)); one thread. */
struct cuda_norm {
  const double *squares;
  double *norm;
  float *scale; /* or NULL */
  double clip;
  uint32_t count;
};

/* rates = scalars: a thread for each, in one block. */
struct cuda_rates {
  const float *scalars;
  float *rates;
  uint32_t count;
};

/* AdamW over a range; typed by `copy`. */
struct cuda_adamw {
  float *p, *m, *v; /* any alignment, as g and copy */
  const float *g;               /* NULL: the copy alone is made */
  void *copy;                   /* of p, for the layers; or NULL */
  const float *scalars, *scale; /* lr, 1 - beta1^step, 1 - beta2^step; (1) or NULL */
  uint64_t count;
  float beta1, beta2, eps, weight_decay;
};

/*
 * Causal attention over qkv (N, 3C); typed, and by the largest head that it takes: 64, 128 or 256
 * columns. A block for a tile of queries of one head of one sequence: tiles along x, heads along y,
 * sequences along z. For heads of bf16 whose columns are whole eights, up to 128, there are kernels
 * of CUDA_TENSOR_THREADS on tensor cores: _tensor_64 and _tensor_128 in the place of the type.
 */
#define CUDA_TENSOR_THREADS 128u
struct cuda_attention {
  const void *qkv;
  void *out;  /* (N, C) */
  float *lse; /* (batch, H, T) */
  uint32_t batch, seq, width, heads;
  float scale; /* of the scores */
};

/* delta[b,h,t] = dout . out over the head's columns; typed. A warp for each. */
struct cuda_attention_delta {
  const void *dout, *out;
  float *delta; /* (batch, H, T) */
  uint32_t batch, seq, width, heads;
};

/* dq of a tile of queries (cuda_attention_queries), or dk and dv of a tile of keys
 * (cuda_attention_keys), in dqkv; typed, by head and in blocks as cuda_attention is. */
struct cuda_attention_backward {
  const void *qkv, *dout;
  const float *lse, *delta;
  void *dqkv;
  uint32_t batch, seq, width, heads;
  float scale;
};

/* sums[n] = the largest of row n of a slice's logits, the sum of the exponentials of their
 * distances to it, and the target's logit or 0; typed. A block for a row, as below. */
struct cuda_head_sums {
  const void *logits; /* (N, stride) */
  const int32_t *targets;
  float *sums; /* (N, 3) */
  uint32_t words, first_word, stride;
};

/* softmax[n] = the largest logit of row n and scale over the sum of exponentials, partial[block] =
 * the loss of the block's rows. A thread for a row. */
#define CUDA_MOST_SLICES 64u
struct cuda_head_loss {
  const float *sums[CUDA_MOST_SLICES]; /* of each slice, (N, 3) */
  double *partial;
  float *softmax; /* (N, 2) */
  double scale;
  uint64_t rows;
  uint32_t slices;
};

/* logits = scale * (softmax - onehot); typed. */
struct cuda_head_gradient {
  const float *softmax; /* (N, 2) */
  const int32_t *targets;
  void *logits; /* (N, stride) */
  uint32_t words, first_word, stride;
  float scale;
};

#endif

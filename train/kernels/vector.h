/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vector arithmetic of the fast kernels: leaves over one row or one range, in vectors of
 * sixteen floats. vector.c is compiled once for each instruction set (plain, AVX2, AVX-512) and
 * type of elements, and the widest set that the processor has is chosen at run time, so one binary
 * runs everywhere; on arm64, where every processor has NEON, plain is that. `void *` points to
 * elements: floats, or bf16, which are widened as they are loaded and rounded as they are stored,
 * with the same arithmetic in between. Reductions keep sixteen lanes and a fixed tree whatever the
 * instruction set; an element-wise function gives an element the same bits wherever it stands in a
 * range. Pointers need no more than their type's alignment, and lengths may be anything.
 */
#ifndef MEMRUN_TRAIN_KERNELS_VECTOR_H
#define MEMRUN_TRAIN_KERNELS_VECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <memrun/memrun.h>

struct vector_layernorm {
  const void *x, *gamma, *beta;
  void *y;
  float *mean, *rstd; /* one each */
};

struct vector_layernorm_backward {
  const void *dy, *x, *gamma;
  float mean, rstd;
  void *dx;
  float *dgamma, *dbeta; /* added to */
  bool accumulate_dx;
};

/* One row of causal attention: the first `valid` of `count` keys are not in the future. */
struct vector_attention_row {
  size_t valid, count;
  float scale;
};

struct vector_adamw {
  float *p, *m, *v;
  const float *g;
  uint16_t *working; /* p in bf16, or NULL */
  size_t count;
  float grad_scale, beta1, beta2, eps;
  float step_size;          /* lr */
  float decay;              /* lr * weight_decay */
  float inverse1, inverse2; /* 1 / correction1, 1 / correction2 */
};

struct vector_table {
  const char *name;
  /* y = a + b; any of them may be the same range. */
  void (*add)(void *y, const void *a, const void *b, size_t count);
  /* y += x */
  void (*accumulate)(float *y, const void *x, size_t count);
  /* y = x, of the other type; a rounded row may begin where the wide one does. */
  void (*widen)(float *y, const void *x, size_t count);
  void (*round)(void *y, const float *x, size_t count);
  void (*scale)(float *y, float factor, size_t count);
  float (*dot)(const void *a, const void *b, size_t count);
  /* sums[c] (+)= sum over rows of x[r * stride + c] */
  void (*column_sums)(float *sums, const void *x, size_t stride, size_t rows, size_t columns,
                      bool accumulate);
  double (*sum_squares)(const float *x, size_t count);
  void (*layernorm)(const struct vector_layernorm *row, size_t width);
  void (*layernorm_backward)(const struct vector_layernorm_backward *row, size_t width);
  /* y = gelu_tanh(x); dx *= gelu_tanh'(x) */
  void (*gelu)(void *y, const void *x, size_t count);
  void (*gelu_backward)(float *dx, const void *x, size_t count);
  /*
   * From raw scores to exp(scale * (score - largest)), future ones to 0; returns the sum of them
   * and writes their scaled logsumexp.
   */
  float (*attention_row)(float *scores, const struct vector_attention_row *row, float *lse_out);
  /* scores becomes p = exp(scale * score - lse), 1 at most, dp becomes scale * p * (dp - delta),
   * future ones 0. */
  void (*attention_backward_row)(float *scores, float *dp, const struct vector_attention_row *row,
                                 float lse, float delta);
  /* Returns the sum of exp(x - largest) and writes the largest. */
  float (*sum_of_exponentials)(const void *x, size_t count, float *largest_out);
  /* x = scale * exp(x - lse) */
  void (*softmax_scaled)(void *x, size_t count, float lse, float scale);
  void (*adamw)(const struct vector_adamw *range);
};

/* The widest table that this processor runs, for elements of MR_F32 or MR_BF16. Any thread. */
const struct vector_table *vector_best(mr_dtype dtype);

/* The tables by instruction set, for tests: NULL where index is past the last that runs here. */
const struct vector_table *vector_at(mr_dtype dtype, unsigned index);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The fast kernels, one file for each family of ops, and what they share. */
#ifndef MEMRUN_TRAIN_KERNELS_FAST_H
#define MEMRUN_TRAIN_KERNELS_FAST_H

#include <stdatomic.h>

#include "train/kernels/gemm.h"
#include "train/kernels/kernels.h"
#include "train/kernels/vector.h"

mr_status fast_embed(struct mr_team *team, const struct kernel_embed *op);
mr_status fast_embed_backward(struct mr_team *team, const struct kernel_embed_backward *op,
                              void *scratch);
mr_status fast_layernorm(struct mr_team *team, const struct kernel_layernorm *op);
mr_status fast_layernorm_backward(struct mr_team *team, const struct kernel_layernorm_backward *op,
                                  void *scratch);
mr_status fast_linear(struct mr_team *team, const struct kernel_linear *op, void *scratch);
mr_status fast_linear_backward(struct mr_team *team, const struct kernel_linear_backward *op,
                               void *scratch);
mr_status fast_gelu(struct mr_team *team, const struct kernel_gelu *op);
mr_status fast_attention(struct mr_team *team, const struct kernel_attention *op, void *scratch);
mr_status fast_attention_backward(struct mr_team *team, const struct kernel_attention_backward *op,
                                  void *scratch);
mr_status fast_head_logits(struct mr_team *team, const struct kernel_head_logits *op,
                           void *scratch);
mr_status fast_head_loss(struct mr_team *team, const struct kernel_head_loss *op, void *scratch);
mr_status fast_head_gradient(struct mr_team *team, const struct kernel_head_gradient *op,
                             void *scratch);
mr_status fast_sum_squares(struct mr_team *team, const struct kernel_sum_squares *op,
                           void *scratch);
mr_status fast_adamw(struct mr_team *team, const struct kernel_adamw *op);
/* The same by another instruction set than the widest, to be timed. */
mr_status fast_adamw_by(struct mr_team *team, const struct kernel_adamw *op,
                        const struct vector_table *vector);

/* MR_OK, or MR_NO_MEMORY, logged, where the matrix library failed. */
mr_status fast_gemm_status(bool failed);

/*
 * tile.c: a product whose result has the type of its operands. Its tiles are fp32: those of fp32
 * results are made where they belong, others in the thread's part of the op's scratch, where they
 * stay in its cache until they are rounded into the result.
 */
struct fast_product {
  struct gemm gemm; /* set by the caller but for c; c_stride is that of the result */
  struct gemm_tiling tiling;
  const struct vector_table *vector;
  void *result;
  float *scratch;
};

struct fast_tile {
  struct gemm gemm;     /* the product that makes it, in fp32 */
  uint64_t row, column; /* of the result at which it begins */
};

/* Of the tiles of a (rows, columns) result. */
uint64_t fast_product_scratch_bytes(uint64_t rows, uint64_t columns, mr_dtype dtype,
                                    uint32_t threads);
void fast_product_init(struct fast_product *product, void *result, void *scratch, uint32_t threads);

struct fast_tile fast_tile_at(const struct fast_product *product, uint32_t index, uint32_t thread);
/* The element of the result at which row `row` of the tile begins. */
uint64_t fast_tile_place(const struct fast_product *product, const struct fast_tile *tile,
                         uint64_t row);
/* tile = the same place of `source`, a matrix of the result's shape and type. */
void fast_tile_load(const struct fast_product *product, const struct fast_tile *tile,
                    const void *source);
/* The same place of the result = tile. */
void fast_tile_store(const struct fast_product *product, const struct fast_tile *tile);

static inline float *fast_tile_row(const struct fast_tile *tile, uint64_t row) {
  return tile->gemm.c + row * tile->gemm.c_stride;
}

static inline uint64_t fast_min(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

static inline uint64_t fast_divide_up(uint64_t a, uint64_t b) {
  return a / b + (a % b != 0);
}

static inline uint64_t fast_round_up(uint64_t a, uint64_t unit) {
  return fast_divide_up(a, unit) * unit;
}

#endif

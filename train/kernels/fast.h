/* SPDX-License-Identifier: Apache-2.0 */
/* The fast kernels, one file for each family of ops, and what they share. */
#ifndef MEMRUN_TRAIN_KERNELS_FAST_H
#define MEMRUN_TRAIN_KERNELS_FAST_H

#include <stdatomic.h>

#include "train/kernels/kernels.h"

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
mr_status fast_head_gradient(struct mr_team *team, const struct kernel_head_gradient *op);
mr_status fast_sum_squares(struct mr_team *team, const struct kernel_sum_squares *op,
                           void *scratch);
mr_status fast_adamw(struct mr_team *team, const struct kernel_adamw *op);

/* MR_OK, or MR_NO_MEMORY, logged, where the matrix library failed. */
mr_status fast_gemm_status(bool failed);

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

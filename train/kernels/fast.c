/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the fast kernels. */
#include "train/kernels/fast.h"

mr_status fast_gemm_status(bool failed) {
  if (!failed) return MR_OK;
  mr_log(MR_LOG_ERROR, "%s found no memory for a matrix product", kernel_gemm_name());
  return MR_NO_MEMORY;
}

static const struct kernel_table table = {
    .name = "fast",
    .embed = fast_embed,
    .embed_backward = fast_embed_backward,
    .layernorm = fast_layernorm,
    .layernorm_backward = fast_layernorm_backward,
    .linear = fast_linear,
    .linear_backward = fast_linear_backward,
    .gelu = fast_gelu,
    .attention = fast_attention,
    .attention_backward = fast_attention_backward,
    .head_logits = fast_head_logits,
    .head_loss = fast_head_loss,
    .head_gradient = fast_head_gradient,
    .sum_squares = fast_sum_squares,
    .adamw = fast_adamw,
};

const struct kernel_table *kernel_fast(void) {
  return &table;
}

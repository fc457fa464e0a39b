/* SPDX-License-Identifier: Apache-2.0 */
/* The head with its loss, slice by slice of the vocabulary: products, and kernels over rows. */
#include "train/cuda/cuda.h"

uint64_t cuda_head_logits_scratch_bytes(uint64_t rows, uint64_t words) {
  return cuda_product_workspace_bytes(rows, words);
}

mr_status cuda_op_head_logits(const struct cuda_queue *queue, enum cuda_type type,
                              const struct cuda_op_head_logits *op) {
  const struct cuda_product product = {.a = op->x,
                                       .b = op->wte,
                                       .out = op->logits,
                                       .rows = op->rows,
                                       .columns = op->words,
                                       .inner = op->width,
                                       .out_stride = op->stride,
                                       .type = type,
                                       .b_transposed = true,
                                       .workspace = op->scratch,
                                       .workspace_bytes =
                                           cuda_head_logits_scratch_bytes(op->rows, op->words)};
  mr_status status = queue->multiply(queue->context, &product);
  if (status != MR_OK) {
    return status;
  }
  const struct cuda_head_sums sums = {.logits = op->logits,
                                      .targets = op->targets,
                                      .sums = op->sums,
                                      .words = (uint32_t)op->words,
                                      .first_word = (uint32_t)op->first_word,
                                      .stride = (uint32_t)op->stride};
  return cuda_launch_row(queue, CUDA_TYPED("cuda_head_sums", type), op->rows, &sums, sizeof sums);
}

static uint64_t loss_blocks(uint64_t rows) {
  return cuda_divide_up(rows, CUDA_THREADS);
}

uint64_t cuda_head_loss_scratch_bytes(uint64_t rows) {
  return loss_blocks(rows) * sizeof(double);
}

mr_status cuda_op_head_loss(const struct cuda_queue *queue, const struct cuda_op_head_loss *op) {
  struct cuda_head_loss rows = {.partial = op->scratch,
                                .softmax = op->softmax,
                                .rows = op->rows,
                                .slices = op->slices,
                                .scale = op->scale};
  for (uint32_t k = 0; k < op->slices; k++) {
    rows.sums[k] = op->sums[k];
  }
  uint64_t blocks = loss_blocks(op->rows);
  mr_status status = cuda_launch_row(queue, "cuda_head_loss", blocks, &rows, sizeof rows);
  if (status != MR_OK) {
    return status;
  }
  const struct cuda_total total = {.partial = op->scratch,
                                   .out = op->loss,
                                   .scale = op->scale,
                                   .count = (uint32_t)blocks,
                                   .accumulate = op->accumulate};
  return cuda_launch_row(queue, "cuda_total", 1, &total, sizeof total);
}

uint64_t cuda_head_gradient_scratch_bytes(uint64_t rows, uint64_t words, uint64_t width) {
  uint64_t input = cuda_product_workspace_bytes(rows, width);
  uint64_t weights = cuda_product_workspace_bytes(words, width);
  return input > weights ? input : weights;
}

static mr_status head_input_gradient(const struct cuda_queue *queue, enum cuda_type type,
                                     const struct cuda_op_head_gradient *op) {
  const struct cuda_product product = {.a = op->logits,
                                       .b = op->wte,
                                       .added = op->accumulate_dx ? op->dx : NULL,
                                       .out = op->dx,
                                       .rows = op->rows,
                                       .columns = op->width,
                                       .inner = op->words,
                                       .a_stride = op->stride,
                                       .type = type,
                                       .workspace = op->scratch,
                                       .workspace_bytes =
                                           cuda_product_workspace_bytes(op->rows, op->width)};
  return queue->multiply(queue->context, &product);
}

static mr_status head_weight_gradient(const struct cuda_queue *queue, enum cuda_type type,
                                      const struct cuda_op_head_gradient *op) {
  const struct cuda_product product = {.a = op->logits,
                                       .b = op->x,
                                       .added = op->accumulate ? op->dwte : NULL,
                                       .out = op->dwte,
                                       .rows = op->words,
                                       .columns = op->width,
                                       .inner = op->rows,
                                       .a_stride = op->stride,
                                       .type = type,
                                       .a_transposed = true,
                                       .out_f32 = true,
                                       .workspace = op->scratch,
                                       .workspace_bytes =
                                           cuda_product_workspace_bytes(op->words, op->width)};
  return queue->multiply(queue->context, &product);
}

mr_status cuda_op_head_gradient(const struct cuda_queue *queue, enum cuda_type type,
                                const struct cuda_op_head_gradient *op) {
  const struct cuda_head_gradient rows = {.softmax = op->softmax,
                                          .targets = op->targets,
                                          .logits = op->logits,
                                          .words = (uint32_t)op->words,
                                          .first_word = (uint32_t)op->first_word,
                                          .stride = (uint32_t)op->stride,
                                          .scale = (float)op->scale};
  mr_status status =
      cuda_launch_row(queue, CUDA_TYPED("cuda_head_gradient", type), op->rows, &rows, sizeof rows);
  if (status == MR_OK) {
    status = head_input_gradient(queue, type, op);
  }
  if (status == MR_OK) {
    status = head_weight_gradient(queue, type, op);
  }
  return status;
}

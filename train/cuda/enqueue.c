/* SPDX-License-Identifier: Apache-2.0 */
/* The ops that are one or two kernels bound by memory: embedding, layer norm, GELU, update. */
#include "train/cuda/cuda.h"

/* Blocks beyond these go round again: several times what fills any device. */
#define MOST_BLOCKS 16384u

mr_status cuda_launch_row(const struct cuda_queue *queue, const char *kernel, uint64_t blocks,
                          const void *arguments, size_t arguments_bytes) {
  const struct cuda_launch launch = {.kernel = kernel,
                                     .grid = {(uint32_t)blocks, 1, 1},
                                     .block = {CUDA_THREADS, 1, 1},
                                     .arguments = arguments,
                                     .arguments_bytes = arguments_bytes};
  return queue->launch(queue->context, &launch);
}

/* Blocks for a warp to each row. */
static uint64_t warp_blocks(uint64_t rows) {
  return cuda_divide_up(rows, CUDA_THREADS / CUDA_WARP);
}

/* Blocks for `each` elements to a thread, of kernels that go round. */
static uint64_t element_blocks(uint64_t count, uint64_t each) {
  uint64_t blocks = cuda_divide_up(count, CUDA_THREADS * each);
  return blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS;
}

mr_status cuda_op_embed(const struct cuda_queue *queue, enum cuda_type type,
                        const struct cuda_embed *op) {
  return cuda_launch_row(queue, CUDA_TYPED("cuda_embed", type), warp_blocks(op->rows), op,
                         sizeof *op);
}

mr_status cuda_op_embed_backward(const struct cuda_queue *queue, enum cuda_type type,
                                 const struct cuda_op_embed_backward *op) {
  const struct cuda_embed_tokens tokens = {.tokens = op->tokens,
                                           .dx = op->dx,
                                           .dwte = op->dwte,
                                           .rows = op->batch * op->seq,
                                           .width = op->width,
                                           .first_word = op->first_word,
                                           .words = op->words};
  mr_status status = cuda_launch_row(queue, CUDA_TYPED("cuda_embed_tokens", type), tokens.rows,
                                     &tokens, sizeof tokens);
  if (status != MR_OK || op->dwpe == NULL) {
    return status;
  }
  const struct cuda_embed_positions positions = {.dx = op->dx,
                                                 .dwpe = op->dwpe,
                                                 .batch = op->batch,
                                                 .seq = op->seq,
                                                 .positions = op->positions,
                                                 .width = op->width,
                                                 .accumulate = op->accumulate};
  return cuda_launch_row(queue, CUDA_TYPED("cuda_embed_positions", type),
                         warp_blocks(op->positions), &positions, sizeof positions);
}

mr_status cuda_op_layernorm(const struct cuda_queue *queue, enum cuda_type type,
                            const struct cuda_layernorm *op) {
  return cuda_launch_row(queue, CUDA_TYPED("cuda_layernorm", type), warp_blocks(op->rows), op,
                         sizeof *op);
}

/* Rows of a block of the backward pass: at most LAYERNORM_BLOCKS blocks, which are about four for
 * each multiprocessor of the largest devices, so that the second stage has little to sum. */
#define LAYERNORM_BLOCKS 512u

static uint64_t layernorm_rows_per_block(uint64_t rows) {
  uint64_t groups = cuda_divide_up(rows, CUDA_LAYERNORM_GROUP);
  return cuda_divide_up(groups, LAYERNORM_BLOCKS) * CUDA_LAYERNORM_GROUP;
}

uint64_t cuda_layernorm_backward_scratch_bytes(uint64_t rows, uint64_t width) {
  uint64_t blocks = cuda_divide_up(rows, layernorm_rows_per_block(rows));
  return blocks * 2 * width * sizeof(float);
}

mr_status cuda_launch_column_sums(const struct cuda_queue *queue, enum cuda_type type,
                                  const struct cuda_column_sums *sums) {
  uint64_t each = sums->wide ? cuda_wide_elements(type) : 1;
  const struct cuda_launch launch = {
      .kernel = CUDA_TYPED("cuda_column_sums", type),
      .grid = {(uint32_t)cuda_divide_up(sums->columns, CUDA_COLUMNS * each),
               (uint32_t)cuda_divide_up(sums->rows, sums->rows_per_slab), 1},
      .block = {CUDA_COLUMNS, CUDA_SUM_LANES, 1},
      .arguments = sums,
      .arguments_bytes = sizeof *sums};
  return queue->launch(queue->context, &launch);
}

/* Sums one half of each block's part into the gradient. */
static mr_status layernorm_total(const struct cuda_queue *queue,
                                 const struct cuda_op_layernorm_backward *op, const float *partial,
                                 uint32_t blocks, float *out) {
  const struct cuda_column_sums sums = {.in = partial,
                                        .out = out,
                                        .rows = blocks,
                                        .columns = op->width,
                                        .stride = 2 * op->width,
                                        .rows_per_slab = blocks,
                                        .accumulate = op->accumulate};
  return cuda_launch_column_sums(queue, CUDA_F32, &sums);
}

mr_status cuda_op_layernorm_backward(const struct cuda_queue *queue, enum cuda_type type,
                                     const struct cuda_op_layernorm_backward *op) {
  uint64_t rows_per_block = layernorm_rows_per_block(op->rows);
  uint32_t blocks = (uint32_t)cuda_divide_up(op->rows, rows_per_block);
  float *partial = op->scratch;
  const struct cuda_layernorm_backward rows = {.dy = op->dy,
                                               .x = op->x,
                                               .gamma = op->gamma,
                                               .mean = op->mean,
                                               .rstd = op->rstd,
                                               .dx = op->dx,
                                               .partial = partial,
                                               .rows = op->rows,
                                               .width = op->width,
                                               .rows_per_block = (uint32_t)rows_per_block,
                                               .accumulate_dx = op->accumulate_dx};
  mr_status status = cuda_launch_row(queue, CUDA_TYPED("cuda_layernorm_backward", type), blocks,
                                     &rows, sizeof rows);
  if (status == MR_OK) {
    status = layernorm_total(queue, op, partial, blocks, op->dgamma);
  }
  if (status == MR_OK) {
    status = layernorm_total(queue, op, partial + op->width, blocks, op->dbeta);
  }
  return status;
}

mr_status cuda_op_gelu(const struct cuda_queue *queue, enum cuda_type type,
                       const struct cuda_gelu *op) {
  return cuda_launch_row(queue, CUDA_TYPED("cuda_gelu", type),
                         element_blocks(op->count, cuda_wide_elements(type)), op, sizeof *op);
}

mr_status cuda_op_gelu_backward(const struct cuda_queue *queue, enum cuda_type type,
                                const struct cuda_gelu_backward *op) {
  return cuda_launch_row(queue, CUDA_TYPED("cuda_gelu_backward", type),
                         element_blocks(op->count, cuda_wide_elements(type)), op, sizeof *op);
}

/* Four elements to a thread and round; the last block sums this many numbers. */
#define SQUARES_BLOCKS 1024u

static uint32_t squares_blocks(uint64_t count) {
  uint64_t blocks = element_blocks(count, 4);
  return (uint32_t)(blocks < SQUARES_BLOCKS ? blocks : SQUARES_BLOCKS);
}

uint64_t cuda_sum_squares_scratch_bytes(uint64_t count) {
  return squares_blocks(count) * sizeof(double);
}

mr_status cuda_op_sum_squares(const struct cuda_queue *queue,
                              const struct cuda_op_sum_squares *op) {
  uint32_t blocks = squares_blocks(op->count);
  const struct cuda_sum_squares parts = {.g = op->g, .partial = op->scratch, .count = op->count};
  mr_status status = cuda_launch_row(queue, "cuda_sum_squares", blocks, &parts, sizeof parts);
  if (status != MR_OK) {
    return status;
  }
  const struct cuda_total total = {
      .partial = op->scratch, .out = op->out, .scale = 1, .count = blocks};
  return cuda_launch_row(queue, "cuda_total", 1, &total, sizeof total);
}

mr_status cuda_op_norm(const struct cuda_queue *queue, const struct cuda_norm *op) {
  const struct cuda_launch launch = {.kernel = "cuda_norm",
                                     .grid = {1, 1, 1},
                                     .block = {1, 1, 1},
                                     .arguments = op,
                                     .arguments_bytes = sizeof *op};
  return queue->launch(queue->context, &launch);
}

mr_status cuda_op_rates(const struct cuda_queue *queue, const struct cuda_rates *op) {
  return cuda_launch_row(queue, "cuda_rates", 1, op, sizeof *op);
}

mr_status cuda_op_adamw(const struct cuda_queue *queue, enum cuda_type type,
                        const struct cuda_adamw *op) {
  return cuda_launch_row(queue, CUDA_TYPED("cuda_adamw", type), element_blocks(op->count, 4), op,
                         sizeof *op);
}

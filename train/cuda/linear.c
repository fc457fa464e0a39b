/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers: the product with what cuBLASLt fuses, then what it does not. */
#include "train/cuda/cuda.h"

/* What NVIDIA advises for Hopper; smaller products need no more than a few times their output, for
 * the parts of a sum that several blocks share. */
#define MOST_WORKSPACE_BYTES (32ull << 20)

uint64_t cuda_product_workspace_bytes(uint64_t rows, uint64_t columns) {
  uint64_t bytes = 4 * rows * columns * sizeof(float) + CUDA_WORKSPACE_SLACK_BYTES;
  return bytes < MOST_WORKSPACE_BYTES ? bytes : MOST_WORKSPACE_BYTES;
}

static uint64_t larger(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

uint64_t cuda_linear_scratch_bytes(uint64_t rows, uint64_t in, uint64_t out) {
  (void)in;
  return cuda_product_workspace_bytes(rows, out);
}

static mr_status gelu_after(const struct cuda_queue *queue, enum cuda_type type,
                            const struct cuda_op_linear *op) {
  const struct cuda_gelu gelu = {
      .x = op->y, .activated = op->activated, .count = op->rows * op->out};
  return cuda_op_gelu(queue, type, &gelu);
}

mr_status cuda_op_linear(const struct cuda_queue *queue, enum cuda_type type,
                         const struct cuda_op_linear *op) {
  const struct cuda_product product = {.a = op->x,
                                       .b = op->w,
                                       .bias = op->bias,
                                       .added = op->residual,
                                       .out = op->y,
                                       .rows = op->rows,
                                       .columns = op->out,
                                       .inner = op->in,
                                       .type = type,
                                       .workspace = op->scratch,
                                       .workspace_bytes =
                                           cuda_linear_scratch_bytes(op->rows, op->in, op->out)};
  mr_status status = queue->multiply(queue->context, &product);
  if (status == MR_OK && op->activated != NULL) {
    status = gelu_after(queue, type, op);
  }
  return status;
}

/* How the rows of a sum over columns are cut: enough blocks to fill a device, slabs that are worth
 * their start, and a second stage where there are several. */
#define SUM_BLOCKS    1024u
#define SUM_SLAB_ROWS 64u

struct slabs {
  uint32_t count;
  uint32_t rows; /* of a slab */
  bool wide;
};

static struct slabs cut_rows(enum cuda_type type, uint64_t rows, uint64_t columns) {
  bool wide = columns % cuda_wide_elements(type) == 0;
  uint64_t block = CUDA_COLUMNS * (wide ? cuda_wide_elements(type) : 1);
  uint64_t wanted = cuda_divide_up(SUM_BLOCKS, cuda_divide_up(columns, block));
  uint64_t slab = larger(cuda_divide_up(rows, wanted), SUM_SLAB_ROWS);
  return (struct slabs){
      .count = (uint32_t)cuda_divide_up(rows, slab), .rows = (uint32_t)slab, .wide = wide};
}

static uint64_t bias_scratch_bytes(enum cuda_type type, uint64_t rows, uint64_t columns) {
  return cut_rows(type, rows, columns).count * columns * sizeof(float);
}

/* dbias (+)= column sums of dy. */
static mr_status bias_gradient(const struct cuda_queue *queue, enum cuda_type type,
                               const struct cuda_op_linear_backward *op) {
  struct slabs slabs = cut_rows(type, op->rows, op->out);
  struct cuda_column_sums parts = {.in = op->dy,
                                   .out = slabs.count == 1 ? op->dbias : op->scratch,
                                   .rows = (uint32_t)op->rows,
                                   .columns = (uint32_t)op->out,
                                   .stride = (uint32_t)op->out,
                                   .rows_per_slab = slabs.rows,
                                   .accumulate = slabs.count == 1 && op->accumulate,
                                   .wide = slabs.wide};
  mr_status status = cuda_launch_column_sums(queue, type, &parts);
  if (status != MR_OK || slabs.count == 1) {
    return status;
  }
  struct cuda_column_sums total = {.in = op->scratch,
                                   .out = op->dbias,
                                   .rows = slabs.count,
                                   .columns = (uint32_t)op->out,
                                   .stride = (uint32_t)op->out,
                                   .rows_per_slab = slabs.count,
                                   .accumulate = op->accumulate};
  return cuda_launch_column_sums(queue, CUDA_F32, &total);
}

uint64_t cuda_linear_backward_scratch_bytes(enum cuda_type type, uint64_t rows, uint64_t in,
                                            uint64_t out) {
  uint64_t products =
      larger(cuda_product_workspace_bytes(rows, in), cuda_product_workspace_bytes(in, out));
  return larger(products, bias_scratch_bytes(type, rows, out));
}

static mr_status input_gradient(const struct cuda_queue *queue, enum cuda_type type,
                                const struct cuda_op_linear_backward *op) {
  const struct cuda_product product = {.a = op->dy,
                                       .b = op->w,
                                       .added = op->accumulate_dx ? op->dx : NULL,
                                       .out = op->dx,
                                       .rows = op->rows,
                                       .columns = op->in,
                                       .inner = op->out,
                                       .type = type,
                                       .b_transposed = true,
                                       .workspace = op->scratch,
                                       .workspace_bytes =
                                           cuda_product_workspace_bytes(op->rows, op->in)};
  mr_status status = queue->multiply(queue->context, &product);
  if (status != MR_OK || op->preactivation == NULL) {
    return status;
  }
  const struct cuda_gelu_backward gelu = {
      .x = op->preactivation, .d = op->dx, .count = op->rows * op->in};
  return cuda_op_gelu_backward(queue, type, &gelu);
}

static mr_status weight_gradient(const struct cuda_queue *queue, enum cuda_type type,
                                 const struct cuda_op_linear_backward *op) {
  const struct cuda_product product = {.a = op->x,
                                       .b = op->dy,
                                       .added = op->accumulate ? op->dw : NULL,
                                       .out = op->dw,
                                       .rows = op->in,
                                       .columns = op->out,
                                       .inner = op->rows,
                                       .type = type,
                                       .a_transposed = true,
                                       .out_f32 = true,
                                       .workspace = op->scratch,
                                       .workspace_bytes =
                                           cuda_product_workspace_bytes(op->in, op->out)};
  return queue->multiply(queue->context, &product);
}

mr_status cuda_op_linear_backward(const struct cuda_queue *queue, enum cuda_type type,
                                  const struct cuda_op_linear_backward *op) {
  mr_status status = input_gradient(queue, type, op);
  if (status == MR_OK) {
    status = weight_gradient(queue, type, op);
  }
  if (status == MR_OK && op->dbias != NULL) {
    status = bias_gradient(queue, type, op);
  }
  return status;
}

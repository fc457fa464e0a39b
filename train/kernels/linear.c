/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The linear op, forward and backward, in tiles of the library's matrix product. What follows a
 * product (bias, residual, GELU or its derivative) is done by the thread that made the tile while
 * the tile is in its cache. The two products of the backward pass are claimed from one list, so
 * neither waits for the other's last tile.
 */
#include "train/kernels/bf16.h"
#include "train/kernels/fast.h"

struct forward {
  const struct kernel_linear *op;
  struct fast_product product;
  _Atomic bool failed;
};

static void add_bias(const struct forward *f, const struct fast_tile *tile) {
  const void *bias = element_at(f->op->bias, f->op->dtype, tile->column);
  for (uint64_t r = 0; r < tile->gemm.rows; r++) {
    f->product.vector->accumulate(fast_tile_row(tile, r), bias, tile->gemm.columns);
  }
}

static void forward_task(void *context, uint32_t task, uint32_t thread) {
  struct forward *f = context;
  const struct kernel_linear *op = f->op;
  struct fast_tile tile = fast_tile_at(&f->product, task, thread);
  /* The product is added to the residual where the tile is made: the same bits whether y is the
   * residual or not. */
  if (op->residual != NULL) fast_tile_load(&f->product, &tile, op->residual);
  if (!gemm_run(&tile.gemm)) f->failed = true;
  if (op->bias != NULL) add_bias(f, &tile);
  fast_tile_store(&f->product, &tile);
  for (uint64_t r = 0; r < tile.gemm.rows && op->activated != NULL; r++) {
    uint64_t at = fast_tile_place(&f->product, &tile, r);
    f->product.vector->gelu(element_place(op->activated, op->dtype, at),
                            element_at(op->y, op->dtype, at), tile.gemm.columns);
  }
}

mr_status fast_linear(struct mr_team *team, const struct kernel_linear *op, void *scratch) {
  mr_status status = gemm_ready();
  if (status != MR_OK) return status;
  struct forward f = {
      .op = op,
      .product.gemm = {.a = op->x,
                       .b = op->w,
                       .dtype = op->dtype,
                       .rows = op->rows,
                       .columns = op->out,
                       .inner = op->in,
                       .a_stride = op->in,
                       .b_stride = op->out,
                       .c_stride = op->out,
                       .accumulate = op->residual != NULL},
  };
  fast_product_init(&f.product, op->y, scratch, mr_team_thread_count(team));
  mr_team_run(team, f.product.tiling.count, forward_task, &f);
  return fast_gemm_status(f.failed);
}

struct backward {
  const struct kernel_linear_backward *op;
  struct fast_product dx;
  struct gemm dw;
  struct gemm_tiling dw_tiling;
  _Atomic bool failed;
};

static void dx_tile(struct backward *b, uint32_t index, uint32_t thread) {
  const struct kernel_linear_backward *op = b->op;
  struct fast_tile tile = fast_tile_at(&b->dx, index, thread);
  if (op->accumulate_dx) fast_tile_load(&b->dx, &tile, op->dx);
  if (!gemm_run(&tile.gemm)) b->failed = true;
  for (uint64_t r = 0; r < tile.gemm.rows && op->preactivation != NULL; r++) {
    uint64_t at = fast_tile_place(&b->dx, &tile, r);
    b->dx.vector->gelu_backward(fast_tile_row(&tile, r),
                                element_at(op->preactivation, op->dtype, at), tile.gemm.columns);
  }
  fast_tile_store(&b->dx, &tile);
}

static void dw_tile(struct backward *b, uint32_t index) {
  const struct kernel_linear_backward *op = b->op;
  struct gemm tile = gemm_tile_at(&b->dw, &b->dw_tiling, index);
  if (!gemm_run(&tile)) b->failed = true;
  /* The first row of tiles has just read all rows of these columns of dy. */
  if (op->dbias != NULL && index < b->dw_tiling.across) {
    uint64_t column = gemm_tile_column(&b->dw_tiling, index);
    b->dx.vector->column_sums(op->dbias + column, element_at(op->dy, op->dtype, column), op->out,
                              op->rows, tile.columns, op->accumulate);
  }
}

static void backward_task(void *context, uint32_t task, uint32_t thread) {
  struct backward *b = context;
  if (task < b->dx.tiling.count) {
    dx_tile(b, task, thread);
  } else {
    dw_tile(b, task - b->dx.tiling.count);
  }
}

mr_status fast_linear_backward(struct mr_team *team, const struct kernel_linear_backward *op,
                               void *scratch) {
  mr_status status = gemm_ready();
  if (status != MR_OK) return status;
  uint32_t threads = mr_team_thread_count(team);
  struct backward b = {
      .op = op,
      .dx.gemm = {.a = op->dy,
                  .b = op->w,
                  .dtype = op->dtype,
                  .rows = op->rows,
                  .columns = op->in,
                  .inner = op->out,
                  .a_stride = op->out,
                  .b_stride = op->out,
                  .c_stride = op->in,
                  .b_transposed = true,
                  .accumulate = op->accumulate_dx},
      .dw = {.a = op->x,
             .b = op->dy,
             .c = op->dw,
             .dtype = op->dtype,
             .rows = op->in,
             .columns = op->out,
             .inner = op->rows,
             .a_stride = op->in,
             .b_stride = op->out,
             .c_stride = op->out,
             .a_transposed = true,
             .accumulate = op->accumulate},
      .dw_tiling = gemm_tile(op->in, op->out, threads),
  };
  fast_product_init(&b.dx, op->dx, scratch, threads);
  mr_team_run(team, b.dx.tiling.count + b.dw_tiling.count, backward_task, &b);
  return fast_gemm_status(b.failed);
}

uint64_t kernel_linear_scratch_bytes(uint64_t rows, uint64_t out, mr_dtype dtype,
                                     uint32_t threads) {
  return fast_product_scratch_bytes(rows, out, dtype, threads);
}

uint64_t kernel_linear_backward_scratch_bytes(uint64_t rows, uint64_t in, mr_dtype dtype,
                                              uint32_t threads) {
  return fast_product_scratch_bytes(rows, in, dtype, threads);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The linear op, forward and backward, in tiles of the library's matrix product. What follows a
 * product (bias, residual, GELU or its derivative) is done by the thread that made the tile while
 * the tile is in its cache. The two products of the backward pass are claimed from one list, so
 * neither waits for the other's last tile.
 */
#include "train/kernels/fast.h"

#include <string.h>

#include "train/kernels/gemm.h"
#include "train/kernels/vector.h"

struct forward {
  const struct kernel_linear *op;
  const struct vector_table *vector;
  struct gemm product;
  struct gemm_tiling tiling;
  _Atomic bool failed;
};

static void forward_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  struct forward *f = context;
  const struct kernel_linear *op = f->op;
  struct gemm tile = gemm_tile_at(&f->product, &f->tiling, task);
  uint64_t first = (uint64_t)(tile.c - op->y);
  /* The product is added to the residual in y, where it already is when y is the residual: the
   * same bits either way. */
  if (op->residual != NULL && op->residual != op->y) {
    for (uint64_t r = 0; r < tile.rows; r++) {
      memcpy(tile.c + r * op->out, op->residual + first + r * op->out,
             tile.columns * sizeof(float));
    }
  }
  if (!gemm_run(&tile)) f->failed = true;
  for (uint64_t r = 0; r < tile.rows; r++) {
    uint64_t at = first + r * op->out;
    if (op->bias != NULL) {
      f->vector->add(op->y + at, op->y + at, op->bias + first % op->out, tile.columns);
    }
    if (op->activated != NULL) f->vector->gelu(op->activated + at, op->y + at, tile.columns);
  }
}

mr_status fast_linear(struct mr_team *team, const struct kernel_linear *op, void *scratch) {
  (void)scratch;
  mr_status status = gemm_ready();
  if (status != MR_OK) return status;
  struct forward f = {
      .op = op,
      .vector = vector_best(),
      .product = {.a = op->x,
                  .b = op->w,
                  .c = op->y,
                  .rows = op->rows,
                  .columns = op->out,
                  .inner = op->in,
                  .a_stride = op->in,
                  .b_stride = op->out,
                  .c_stride = op->out,
                  .accumulate = op->residual != NULL},
      .tiling = gemm_tile(op->rows, op->out, mr_team_thread_count(team)),
  };
  mr_team_run(team, f.tiling.count, forward_task, &f);
  return fast_gemm_status(f.failed);
}

struct backward {
  const struct kernel_linear_backward *op;
  const struct vector_table *vector;
  struct gemm dx, dw;
  struct gemm_tiling dx_tiling, dw_tiling;
  _Atomic bool failed;
};

static void dx_tile(struct backward *b, uint32_t index) {
  const struct kernel_linear_backward *op = b->op;
  struct gemm tile = gemm_tile_at(&b->dx, &b->dx_tiling, index);
  if (!gemm_run(&tile)) b->failed = true;
  if (op->preactivation == NULL) return;
  uint64_t first = (uint64_t)(tile.c - op->dx);
  for (uint64_t r = 0; r < tile.rows; r++) {
    uint64_t at = first + r * op->in;
    b->vector->gelu_backward(op->dx + at, op->preactivation + at, tile.columns);
  }
}

static void dw_tile(struct backward *b, uint32_t index) {
  const struct kernel_linear_backward *op = b->op;
  struct gemm tile = gemm_tile_at(&b->dw, &b->dw_tiling, index);
  if (!gemm_run(&tile)) b->failed = true;
  /* The first row of tiles has just read all rows of these columns of dy. */
  if (op->dbias != NULL && index < b->dw_tiling.across) {
    uint64_t column = (uint64_t)(tile.c - op->dw);
    b->vector->column_sums(op->dbias + column, op->dy + column, op->out, op->rows, tile.columns,
                           op->accumulate);
  }
}

static void backward_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  struct backward *b = context;
  if (task < b->dx_tiling.count) {
    dx_tile(b, task);
  } else {
    dw_tile(b, task - b->dx_tiling.count);
  }
}

mr_status fast_linear_backward(struct mr_team *team, const struct kernel_linear_backward *op,
                               void *scratch) {
  (void)scratch;
  mr_status status = gemm_ready();
  if (status != MR_OK) return status;
  uint32_t threads = mr_team_thread_count(team);
  struct backward b = {
      .op = op,
      .vector = vector_best(),
      .dx = {.a = op->dy,
             .b = op->w,
             .c = op->dx,
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
             .rows = op->in,
             .columns = op->out,
             .inner = op->rows,
             .a_stride = op->in,
             .b_stride = op->out,
             .c_stride = op->out,
             .a_transposed = true,
             .accumulate = op->accumulate},
      .dx_tiling = gemm_tile(op->rows, op->in, threads),
      .dw_tiling = gemm_tile(op->in, op->out, threads),
  };
  mr_team_run(team, b.dx_tiling.count + b.dw_tiling.count, backward_task, &b);
  return fast_gemm_status(b.failed);
}

/* The library's products need no memory of ours; the contract leaves room for one that does. */
uint64_t kernel_linear_scratch_bytes(uint64_t rows, uint64_t in, uint64_t out, uint32_t threads) {
  (void)rows;
  (void)in;
  (void)out;
  (void)threads;
  return 0;
}

uint64_t kernel_linear_backward_scratch_bytes(uint64_t rows, uint64_t in, uint64_t out,
                                              uint32_t threads) {
  return kernel_linear_scratch_bytes(rows, in, out, threads);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer normalisation. The gradients of gamma and beta are summed within blocks of rows that depend
 * on the shape alone, and the blocks in ascending order.
 */
#include "train/kernels/fast.h"

#include <string.h>

#include "train/kernels/bf16.h"

#define FORWARD_ROWS 32u

/* Rows of a block are added one after another; more blocks than this would only cost memory. */
#define BLOCK_ROWS  32u
#define MAX_BLOCKS  64u
#define SUM_COLUMNS 256u

struct forward {
  const struct kernel_layernorm *op;
  const struct vector_table *vector;
};

static void forward_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  const struct forward *f = context;
  const struct kernel_layernorm *op = f->op;
  uint64_t first = (uint64_t)task * FORWARD_ROWS, end = fast_min(op->rows, first + FORWARD_ROWS);
  for (uint64_t n = first; n < end; n++) {
    struct vector_layernorm row = {.x = element_at(op->x, op->dtype, n * op->width),
                                   .gamma = op->gamma,
                                   .beta = op->beta,
                                   .y = element_place(op->y, op->dtype, n * op->width),
                                   .mean = op->mean + n,
                                   .rstd = op->rstd + n};
    f->vector->layernorm(&row, op->width);
  }
}

mr_status fast_layernorm(struct mr_team *team, const struct kernel_layernorm *op) {
  struct forward f = {.op = op, .vector = vector_best(op->dtype)};
  mr_team_run(team, (uint32_t)fast_divide_up(op->rows, FORWARD_ROWS), forward_task, &f);
  return MR_OK;
}

struct backward {
  const struct kernel_layernorm_backward *op;
  const struct vector_table *vector;
  uint64_t block_rows, blocks;
  uint64_t stride; /* floats of one sum; a block has two, of dgamma and of dbeta */
  float *sums;     /* (blocks, 2, stride) */
};

static uint64_t rows_of_block(uint64_t rows) {
  uint64_t needed = fast_divide_up(rows, MAX_BLOCKS);
  return needed < BLOCK_ROWS ? BLOCK_ROWS : needed;
}

static void backward_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  const struct backward *b = context;
  const struct kernel_layernorm_backward *op = b->op;
  float *sums = b->sums + 2ull * task * b->stride;
  memset(sums, 0, 2 * b->stride * sizeof(float));
  uint64_t first = task * b->block_rows, end = fast_min(op->rows, first + b->block_rows);
  for (uint64_t n = first; n < end; n++) {
    uint64_t at = n * op->width;
    struct vector_layernorm_backward row = {.dy = element_at(op->dy, op->dtype, at),
                                            .x = element_at(op->x, op->dtype, at),
                                            .gamma = op->gamma,
                                            .mean = op->mean[n],
                                            .rstd = op->rstd[n],
                                            .dx = element_place(op->dx, op->dtype, at),
                                            .dgamma = sums,
                                            .dbeta = sums + b->stride,
                                            .accumulate_dx = op->accumulate_dx};
    b->vector->layernorm_backward(&row, op->width);
  }
}

static void sum_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  const struct backward *b = context;
  const struct kernel_layernorm_backward *op = b->op;
  const struct vector_table *vector = vector_best(MR_F32);
  uint64_t column = (uint64_t)task * SUM_COLUMNS,
           columns = fast_min(SUM_COLUMNS, op->width - column);
  vector->column_sums(op->dgamma + column, b->sums + column, 2 * b->stride, b->blocks, columns,
                      op->accumulate);
  vector->column_sums(op->dbeta + column, b->sums + b->stride + column, 2 * b->stride, b->blocks,
                      columns, op->accumulate);
}

mr_status fast_layernorm_backward(struct mr_team *team, const struct kernel_layernorm_backward *op,
                                  void *scratch) {
  uint64_t block_rows = rows_of_block(op->rows);
  struct backward b = {.op = op,
                       .vector = vector_best(op->dtype),
                       .block_rows = block_rows,
                       .blocks = fast_divide_up(op->rows, block_rows),
                       .stride = fast_round_up(op->width, 16),
                       .sums = scratch};
  mr_team_run(team, (uint32_t)b.blocks, backward_task, &b);
  mr_team_run(team, (uint32_t)fast_divide_up(op->width, SUM_COLUMNS), sum_task, &b);
  return MR_OK;
}

uint64_t kernel_layernorm_backward_scratch_bytes(uint64_t rows, uint64_t width, uint32_t threads) {
  (void)threads;
  return fast_divide_up(rows, rows_of_block(rows)) * 2 * fast_round_up(width, 16) * sizeof(float);
}

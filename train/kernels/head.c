/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The language-model head with its loss, a slice of the vocabulary at a time.
 *
 * Logits: tiles of the product; while a tile is in the cache, the largest of each of its rows and
 * the sum of the exponentials below it. Then, for each row, one sum from those of its tiles.
 *
 * Loss: from the sums of all slices, the softmax's divisor of each row and the loss.
 *
 * Gradient: logits become scaled gradients where they lie; the tiles of the two products that read
 * them are claimed from one list, so neither waits for the other's last tile.
 */
#include "train/kernels/fast.h"

#include <math.h>

#include "train/kernels/bf16.h"

#define TASK_ROWS  16u
#define LINE_REALS 16u /* of a cache line */

/* An odd number of cache lines: of an even one, rows share cache sets. */
uint64_t kernel_head_stride(uint64_t vocab) {
  return (fast_divide_up(vocab, LINE_REALS) | 1) * LINE_REALS;
}

struct logits {
  const struct kernel_head_logits *op;
  struct fast_product product;
  float *tile_sums; /* (rows, tiles across, 2): largest, sum of exponentials */
  _Atomic bool failed;
};

/* The sums are those of the logits as they are kept. */
static void logits_task(void *context, uint32_t task, uint32_t thread) {
  struct logits *l = context;
  const struct gemm_tiling *tiling = &l->product.tiling;
  struct fast_tile tile = fast_tile_at(&l->product, task, thread);
  if (!gemm_run(&tile.gemm)) l->failed = true;
  fast_tile_store(&l->product, &tile);
  for (uint64_t r = 0; r < tile.gemm.rows; r++) {
    float *sums = l->tile_sums + ((tile.row + r) * tiling->across + task % tiling->across) * 2;
    uint64_t at = fast_tile_place(&l->product, &tile, r);
    sums[1] = l->product.vector->sum_of_exponentials(element_at(l->op->logits, l->op->dtype, at),
                                                     tile.gemm.columns, &sums[0]);
  }
}

static float logit_at(const void *logits, mr_dtype dtype, uint64_t at) {
  float logit = 0;
  vector_best(dtype)->widen(&logit, element_at(logits, dtype, at), 1);
  return logit;
}

static void sums_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  const struct logits *l = context;
  const struct kernel_head_logits *op = l->op;
  uint64_t across = l->product.tiling.across, first = (uint64_t)task * TASK_ROWS;
  uint64_t end = fast_min(op->rows, first + TASK_ROWS);
  for (uint64_t r = first; r < end; r++) {
    const float *tiles = l->tile_sums + r * across * 2;
    float *sums = op->sums + r * KERNEL_HEAD_SUMS;
    float largest = tiles[0];
    for (uint64_t i = 1; i < across; i++) {
      largest = tiles[2 * i] > largest ? tiles[2 * i] : largest;
    }
    double sum = 0;
    for (uint64_t i = 0; i < across; i++) {
      sum += (double)tiles[2 * i + 1] * exp((double)tiles[2 * i] - (double)largest);
    }
    /* A target below the slice becomes larger than any slice. */
    uint64_t target = (uint64_t)op->targets[r] - op->first_word;
    sums[0] = largest;
    sums[1] = (float)sum;
    sums[2] = target < op->vocab ? logit_at(op->logits, op->dtype, r * op->stride + target) : 0;
  }
}

static uint64_t tile_sums_bytes(uint64_t rows, uint64_t vocab, uint32_t threads) {
  return fast_round_up(rows * gemm_tile(rows, vocab, threads).across * 2, LINE_REALS) *
         sizeof(float);
}

mr_status fast_head_logits(struct mr_team *team, const struct kernel_head_logits *op,
                           void *scratch) {
  mr_status status = gemm_ready();
  if (status != MR_OK) return status;
  uint32_t threads = mr_team_thread_count(team);
  struct logits l = {.op = op,
                     .product.gemm = {.a = op->x,
                                      .a_stride = op->width,
                                      .b = op->wte,
                                      .b_stride = op->width,
                                      .b_transposed = true,
                                      .c_stride = op->stride,
                                      .dtype = op->dtype,
                                      .rows = op->rows,
                                      .columns = op->vocab,
                                      .inner = op->width},
                     .tile_sums = scratch};
  void *tiles = (char *)scratch + tile_sums_bytes(op->rows, op->vocab, threads);
  fast_product_init(&l.product, op->logits, tiles, threads);
  mr_team_run(team, l.product.tiling.count, logits_task, &l);
  mr_team_run(team, (uint32_t)fast_divide_up(op->rows, TASK_ROWS), sums_task, &l);
  return fast_gemm_status(l.failed);
}

uint64_t kernel_head_logits_scratch_bytes(uint64_t rows, uint64_t vocab, mr_dtype dtype,
                                          uint32_t threads) {
  return tile_sums_bytes(rows, vocab, threads) +
         fast_product_scratch_bytes(rows, vocab, dtype, threads);
}

struct loss {
  const struct kernel_head_loss *op;
  double *losses; /* of each row */
};

static void loss_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  const struct loss *l = context;
  const struct kernel_head_loss *op = l->op;
  uint64_t first = (uint64_t)task * TASK_ROWS, end = fast_min(op->rows, first + TASK_ROWS);
  for (uint64_t r = first; r < end; r++) {
    uint64_t at = r * KERNEL_HEAD_SUMS;
    float largest = op->sums[0][at];
    for (uint64_t k = 1; k < op->slices; k++) {
      largest = op->sums[k][at] > largest ? op->sums[k][at] : largest;
    }
    double sum = 0, target = 0;
    for (uint64_t k = 0; k < op->slices; k++) {
      const float *sums = op->sums[k] + at;
      sum += (double)sums[1] * exp((double)sums[0] - (double)largest);
      target += (double)sums[2];
    }
    l->losses[r] = (double)largest + log(sum) - target;
    op->softmax[r * KERNEL_HEAD_SOFTMAX] = largest;
    op->softmax[r * KERNEL_HEAD_SOFTMAX + 1] = (float)(op->scale / sum);
  }
}

mr_status fast_head_loss(struct mr_team *team, const struct kernel_head_loss *op, void *scratch) {
  struct loss l = {.op = op, .losses = scratch};
  mr_team_run(team, (uint32_t)fast_divide_up(op->rows, TASK_ROWS), loss_task, &l);
  double loss = 0;
  for (uint64_t r = 0; r < op->rows; r++) {
    loss += l.losses[r];
  }
  *op->loss = (op->accumulate ? *op->loss : 0) + op->scale * loss;
  return MR_OK;
}

uint64_t kernel_head_loss_scratch_bytes(uint64_t rows) {
  return rows * sizeof(double);
}

struct gradient {
  const struct kernel_head_gradient *op;
  struct fast_product dx;
  struct gemm dwte;
  struct gemm_tiling dwte_tiling;
  _Atomic bool failed;
};

static void softmax_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  const struct gradient *g = context;
  const struct kernel_head_gradient *op = g->op;
  const struct vector_table *vector = g->dx.vector;
  uint64_t first = (uint64_t)task * TASK_ROWS, end = fast_min(op->rows, first + TASK_ROWS);
  for (uint64_t r = first; r < end; r++) {
    const float *softmax = op->softmax + r * KERNEL_HEAD_SOFTMAX;
    uint64_t row = r * op->stride, target = (uint64_t)op->targets[r] - op->first_word;
    /* The target's gradient is a difference that may be far smaller than its parts, so it is made
     * before it is rounded. */
    bool here = target < op->vocab;
    float gradient = here ? logit_at(op->logits, op->dtype, row + target) : 0;
    vector->softmax_scaled(element_place(op->logits, op->dtype, row), op->vocab, softmax[0],
                           softmax[1]);
    if (!here) continue;
    vector_best(MR_F32)->softmax_scaled(&gradient, 1, softmax[0], softmax[1]);
    gradient -= (float)op->scale;
    vector->round(element_place(op->logits, op->dtype, row + target), &gradient, 1);
  }
}

static void product_task(void *context, uint32_t task, uint32_t thread) {
  struct gradient *g = context;
  if (task >= g->dx.tiling.count) {
    struct gemm tile = gemm_tile_at(&g->dwte, &g->dwte_tiling, task - g->dx.tiling.count);
    if (!gemm_run(&tile)) g->failed = true;
    return;
  }
  struct fast_tile tile = fast_tile_at(&g->dx, task, thread);
  if (g->op->accumulate_dx) fast_tile_load(&g->dx, &tile, g->op->dx);
  if (!gemm_run(&tile.gemm)) g->failed = true;
  fast_tile_store(&g->dx, &tile);
}

mr_status fast_head_gradient(struct mr_team *team, const struct kernel_head_gradient *op,
                             void *scratch) {
  mr_status status = gemm_ready();
  if (status != MR_OK) return status;
  uint32_t threads = mr_team_thread_count(team);
  struct gradient g = {.op = op,
                       .dx.gemm = {.a = op->logits,
                                   .a_stride = op->stride,
                                   .b = op->wte,
                                   .b_stride = op->width,
                                   .c_stride = op->width,
                                   .dtype = op->dtype,
                                   .rows = op->rows,
                                   .columns = op->width,
                                   .inner = op->vocab,
                                   .accumulate = op->accumulate_dx},
                       .dwte = {.a = op->logits,
                                .a_stride = op->stride,
                                .a_transposed = true,
                                .b = op->x,
                                .b_stride = op->width,
                                .c = op->dwte,
                                .c_stride = op->width,
                                .dtype = op->dtype,
                                .rows = op->vocab,
                                .columns = op->width,
                                .inner = op->rows,
                                .accumulate = op->accumulate},
                       .dwte_tiling = gemm_tile(op->vocab, op->width, threads)};
  fast_product_init(&g.dx, op->dx, scratch, threads);
  mr_team_run(team, (uint32_t)fast_divide_up(op->rows, TASK_ROWS), softmax_task, &g);
  mr_team_run(team, g.dx.tiling.count + g.dwte_tiling.count, product_task, &g);
  return fast_gemm_status(g.failed);
}

uint64_t kernel_head_gradient_scratch_bytes(uint64_t rows, uint64_t width, mr_dtype dtype,
                                            uint32_t threads) {
  return fast_product_scratch_bytes(rows, width, dtype, threads);
}

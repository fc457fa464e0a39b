/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The language-model head with its loss. A chunk of rows is taken through four runs of the team:
 *
 * 1. logits in tiles; while a tile is in the cache, the largest of each of its rows and the sum of
 *    the exponentials below it;
 * 2. from those, for each row, the softmax's divisor and the loss;
 * 3. segments of the vocabulary, block by block: logits become scaled gradients in the cache and
 *    are multiplied at once into dwte and into the segment's own part of dx;
 * 4. dx as the sum of the parts, in the order of segments.
 *
 * The logits of a chunk, the parts and the sums are the scratch, whose size bounds the chunk.
 */
#include "train/kernels/fast.h"

#include <math.h>

#include "train/kernels/gemm.h"
#include "train/kernels/vector.h"

/* Scratch of a head: 256 rows of GPT-2's vocabulary, enough to amortise reading and writing wte. */
#define BUDGET_BYTES  (64ull << 20)
#define MAX_ROWS      1024u
#define ROW_UNIT      32u
#define MIN_SEGMENTS  8u
#define MAX_SEGMENTS  32u
#define SEGMENT_WIDTH 64u  /* segments are not cut narrower */
#define BLOCK_COLUMNS 768u /* of logits; with 256 rows it stays in the second-level cache */
#define TASK_ROWS     16u

/* How a head is cut and its scratch laid out: by shape and thread count alone. */
struct plan {
  uint64_t chunk_rows;
  uint64_t stride; /* of the logits; not a power of two, so rows do not share cache sets */
  uint64_t segment_columns, segments;
  struct gemm_tiling tiling; /* of a whole chunk's logits */
  uint64_t logits_bytes, parts_bytes, sums_bytes, rows_bytes, losses_bytes;
};

static uint64_t padded(uint64_t bytes) {
  return fast_round_up(bytes, 64);
}

static struct plan plan_head(uint64_t rows, uint64_t width, uint64_t vocab, uint32_t threads) {
  struct plan p = {.stride = fast_round_up(vocab, 16) + 16};
  uint64_t wanted = fast_min(4 * (uint64_t)threads, MAX_SEGMENTS);
  wanted = wanted < MIN_SEGMENTS ? MIN_SEGMENTS : wanted;
  wanted = fast_min(wanted, fast_divide_up(vocab, SEGMENT_WIDTH));
  p.segment_columns = fast_round_up(fast_divide_up(vocab, wanted), 16);
  p.segments = fast_divide_up(vocab, p.segment_columns);

  uint64_t row_bytes = (p.stride + p.segments * width) * sizeof(float);
  uint64_t most = BUDGET_BYTES / row_bytes / ROW_UNIT * ROW_UNIT;
  most = most < ROW_UNIT ? ROW_UNIT : fast_min(most, MAX_ROWS);
  uint64_t chunks = fast_divide_up(rows, most);
  p.chunk_rows = fast_min(rows, fast_round_up(fast_divide_up(rows, chunks), ROW_UNIT));

  p.tiling = gemm_tile(p.chunk_rows, vocab, threads);
  p.logits_bytes = padded(p.chunk_rows * p.stride * sizeof(float));
  p.parts_bytes = padded(p.segments * p.chunk_rows * width * sizeof(float));
  p.sums_bytes = padded(p.chunk_rows * p.tiling.across * 2 * sizeof(float));
  p.rows_bytes = padded(p.chunk_rows * 2 * sizeof(float));
  p.losses_bytes = padded(p.chunk_rows * sizeof(double));
  return p;
}

struct head {
  const struct kernel_head *op;
  const struct vector_table *vector;
  struct plan plan;
  uint64_t first, rows; /* of the chunk */
  float *logits;        /* (chunk_rows, stride) */
  float *parts;         /* (segments, chunk_rows, width) */
  float *sums;          /* (chunk_rows, tiles across, 2): largest, sum of exponentials */
  float *divisors;      /* (chunk_rows, 2): largest, scale over the sum of exponentials */
  double *losses;       /* (chunk_rows) */
  _Atomic bool failed;
};

static void logits_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  struct head *h = context;
  const struct kernel_head *op = h->op;
  struct gemm product = {.a = op->x + h->first * op->width,
                         .a_stride = op->width,
                         .b = op->wte,
                         .b_stride = op->width,
                         .b_transposed = true,
                         .c = h->logits,
                         .c_stride = h->plan.stride,
                         .rows = h->rows,
                         .columns = op->vocab,
                         .inner = op->width};
  struct gemm tile = gemm_tile_at(&product, &h->plan.tiling, task);
  if (!gemm_run(&tile)) h->failed = true;
  uint64_t row = task / h->plan.tiling.across * h->plan.tiling.tile_rows;
  uint64_t across = task % h->plan.tiling.across;
  for (uint64_t r = 0; r < tile.rows; r++) {
    float *sum = h->sums + ((row + r) * h->plan.tiling.across + across) * 2;
    sum[1] = h->vector->sum_of_exponentials(tile.c + r * h->plan.stride, tile.columns, &sum[0]);
  }
}

static void loss_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  struct head *h = context;
  uint64_t across = h->plan.tiling.across;
  uint64_t first = (uint64_t)task * TASK_ROWS, end = fast_min(h->rows, first + TASK_ROWS);
  for (uint64_t r = first; r < end; r++) {
    const float *sums = h->sums + r * across * 2;
    float largest = sums[0];
    for (uint64_t i = 1; i < across; i++) {
      largest = sums[2 * i] > largest ? sums[2 * i] : largest;
    }
    double sum = 0;
    for (uint64_t i = 0; i < across; i++) {
      sum += (double)sums[2 * i + 1] * exp((double)sums[2 * i] - (double)largest);
    }
    float at_target = h->logits[r * h->plan.stride + (uint64_t)h->op->targets[h->first + r]];
    h->losses[r] = (double)largest + log(sum) - (double)at_target;
    h->divisors[2 * r] = largest;
    h->divisors[2 * r + 1] = (float)(h->op->scale / sum);
  }
}

/* scale * (softmax - onehot) in place of the logits of some columns. */
static void gradient_block(struct head *h, uint64_t column, uint64_t columns) {
  for (uint64_t r = 0; r < h->rows; r++) {
    float *row = h->logits + r * h->plan.stride;
    h->vector->softmax_scaled(row + column, columns, h->divisors[2 * r], h->divisors[2 * r + 1]);
    uint64_t target = (uint64_t)h->op->targets[h->first + r];
    if (target >= column && target < column + columns) row[target] -= (float)h->op->scale;
  }
}

static void segment_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  struct head *h = context;
  const struct kernel_head *op = h->op;
  uint64_t first = task * h->plan.segment_columns;
  uint64_t end = fast_min(op->vocab, first + h->plan.segment_columns);
  uint64_t blocks = fast_divide_up(end - first, BLOCK_COLUMNS);
  uint64_t width = fast_round_up(fast_divide_up(end - first, blocks), 16);
  for (uint64_t column = first; column < end; column += width) {
    uint64_t columns = fast_min(width, end - column);
    gradient_block(h, column, columns);
    struct gemm dwte = {.a = h->logits + column,
                        .a_stride = h->plan.stride,
                        .a_transposed = true,
                        .b = op->x + h->first * op->width,
                        .b_stride = op->width,
                        .c = op->dwte + column * op->width,
                        .c_stride = op->width,
                        .rows = columns,
                        .columns = op->width,
                        .inner = h->rows,
                        .accumulate = op->accumulate || h->first > 0};
    struct gemm dx = {.a = h->logits + column,
                      .a_stride = h->plan.stride,
                      .b = op->wte + column * op->width,
                      .b_stride = op->width,
                      .c = h->parts + task * h->plan.chunk_rows * op->width,
                      .c_stride = op->width,
                      .rows = h->rows,
                      .columns = op->width,
                      .inner = columns,
                      .accumulate = column > first};
    if (!gemm_run(&dwte) || !gemm_run(&dx)) h->failed = true;
  }
}

static void dx_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  struct head *h = context;
  uint64_t first = (uint64_t)task * TASK_ROWS, rows = fast_min(TASK_ROWS, h->rows - first);
  uint64_t width = h->op->width;
  h->vector->column_sums(h->op->dx + (h->first + first) * width, h->parts + first * width,
                         h->plan.chunk_rows * width, h->plan.segments, rows * width, false);
}

mr_status fast_head(struct mr_team *team, const struct kernel_head *op, void *scratch) {
  mr_status status = gemm_ready();
  if (status != MR_OK) return status;
  struct head h = {.op = op,
                   .vector = vector_best(),
                   .plan = plan_head(op->rows, op->width, op->vocab, mr_team_thread_count(team))};
  char *bytes = scratch;
  h.logits = (float *)(void *)bytes;
  h.parts = (float *)(void *)(bytes += h.plan.logits_bytes);
  h.sums = (float *)(void *)(bytes += h.plan.parts_bytes);
  h.divisors = (float *)(void *)(bytes += h.plan.sums_bytes);
  h.losses = (double *)(void *)(bytes + h.plan.rows_bytes);
  double loss = 0;
  for (; h.first < op->rows; h.first += h.plan.chunk_rows) {
    h.rows = fast_min(h.plan.chunk_rows, op->rows - h.first);
    uint64_t down = fast_divide_up(h.rows, h.plan.tiling.tile_rows);
    uint32_t row_tasks = (uint32_t)fast_divide_up(h.rows, TASK_ROWS);
    mr_team_run(team, (uint32_t)(down * h.plan.tiling.across), logits_task, &h);
    mr_team_run(team, row_tasks, loss_task, &h);
    for (uint64_t r = 0; r < h.rows; r++) {
      loss += h.losses[r];
    }
    if (op->evaluate) continue;
    mr_team_run(team, (uint32_t)h.plan.segments, segment_task, &h);
    mr_team_run(team, row_tasks, dx_task, &h);
  }
  *op->loss = (op->accumulate_loss ? *op->loss : 0) + op->scale * loss;
  return fast_gemm_status(h.failed);
}

uint64_t kernel_head_scratch_bytes(uint64_t rows, uint64_t width, uint64_t vocab,
                                   uint32_t threads) {
  struct plan p = plan_head(rows, width, vocab, threads);
  return p.logits_bytes + p.parts_bytes + p.sums_bytes + p.rows_bytes + p.losses_bytes;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal attention in blocks of rows: the scores of a block against the keys that it may see live
 * in the thread's scratch, never the T x T matrix (the row-block form of FlashAttention, Dao et al.
 * 2022, without the split over keys). The backward pass computes the probabilities again from the
 * scores and lse. Within a head it takes the blocks from the last to the first: the last one sees
 * every key and so sets dk and dv, the others add, in an order that never changes.
 */
#include "train/kernels/fast.h"

#include <math.h>

#include "train/kernels/gemm.h"
#include "train/kernels/vector.h"

/* 64 rows waste few products on keys of the future and still keep the library's kernels busy. */
#define BLOCK_ROWS 64u

/* Floats from one row of scores to the next; the 16 more keep rows out of the same cache sets. */
static uint64_t scores_stride(uint64_t seq) {
  return fast_round_up(seq, 16) + 16;
}

static uint64_t scores_floats(uint64_t seq) {
  return fast_min(BLOCK_ROWS, seq) * scores_stride(seq);
}

/* One head of one sequence, and a block of its rows. */
struct block {
  const float *q, *k, *v; /* rows of 3C floats */
  uint64_t first, rows;   /* rows of the block */
  uint64_t keys;          /* keys that its last row sees */
  uint64_t place;         /* of the head's column 0, row 0 in an (N, C) matrix */
};

struct shape {
  uint64_t batch, seq, width, heads, head_width, blocks;
  uint64_t stride; /* of the scores */
  float scale;
};

static struct shape shape_of(uint64_t batch, uint64_t seq, uint64_t width, uint64_t heads) {
  return (struct shape){.batch = batch,
                        .seq = seq,
                        .width = width,
                        .heads = heads,
                        .head_width = width / heads,
                        .blocks = fast_divide_up(seq, BLOCK_ROWS),
                        .stride = scores_stride(seq),
                        .scale = (float)(1.0 / sqrt((double)(width / heads)))};
}

static struct block block_at(const struct shape *s, const float *qkv, uint64_t head,
                             uint64_t block) {
  uint64_t row = head / s->heads * s->seq, column = head % s->heads * s->head_width;
  const float *q = qkv + row * 3 * s->width + column;
  uint64_t first = block * BLOCK_ROWS, rows = fast_min(BLOCK_ROWS, s->seq - first);
  return (struct block){.q = q,
                        .k = q + s->width,
                        .v = q + 2 * s->width,
                        .first = first,
                        .rows = rows,
                        .keys = first + rows,
                        .place = row * s->width + column};
}

/* scores = rows of `a` (stride of its matrix) . keys or values^T */
static struct gemm scores_product(const struct shape *s, const struct block *b, const float *a,
                                  uint64_t a_stride, const float *keys) {
  return (struct gemm){.a = a,
                       .a_stride = a_stride,
                       .b = keys,
                       .b_stride = 3 * s->width,
                       .b_transposed = true,
                       .c_stride = s->stride,
                       .rows = b->rows,
                       .columns = b->keys,
                       .inner = s->head_width};
}

struct forward {
  const struct kernel_attention *op;
  const struct vector_table *vector;
  struct shape shape;
  float *scratch; /* scores_floats(seq) for each thread */
  _Atomic bool failed;
};

static void forward_task(void *context, uint32_t task, uint32_t thread) {
  struct forward *f = context;
  const struct shape *s = &f->shape;
  uint64_t head = task % (s->batch * s->heads);
  /* The last blocks see the most keys: they go first. */
  struct block b = block_at(s, f->op->qkv, head, s->blocks - 1 - task / (s->batch * s->heads));
  float *scores = f->scratch + thread * scores_floats(s->seq);
  struct gemm product = scores_product(s, &b, b.q + b.first * 3 * s->width, 3 * s->width, b.k);
  product.c = scores;
  bool ok = gemm_run(&product);
  float sums[BLOCK_ROWS];
  for (uint64_t r = 0; r < b.rows; r++) {
    struct vector_attention_row row = {b.first + r + 1, b.keys, s->scale};
    sums[r] = f->vector->attention_row(scores + r * s->stride, &row,
                                       f->op->lse + head * s->seq + b.first + r);
  }
  float *out = f->op->out + b.place + b.first * s->width;
  struct gemm weighted = {.a = scores,
                          .a_stride = s->stride,
                          .b = b.v,
                          .b_stride = 3 * s->width,
                          .c = out,
                          .c_stride = s->width,
                          .rows = b.rows,
                          .columns = s->head_width,
                          .inner = b.keys};
  ok = gemm_run(&weighted) && ok;
  for (uint64_t r = 0; r < b.rows; r++) {
    f->vector->scale(out + r * s->width, 1.0f / sums[r], s->head_width);
  }
  if (!ok) f->failed = true;
}

mr_status fast_attention(struct mr_team *team, const struct kernel_attention *op, void *scratch) {
  mr_status status = gemm_ready();
  if (status != MR_OK) return status;
  struct forward f = {.op = op,
                      .vector = vector_best(),
                      .shape = shape_of(op->batch, op->seq, op->width, op->heads),
                      .scratch = scratch};
  uint32_t tasks = (uint32_t)(op->batch * op->heads * f.shape.blocks);
  mr_team_run(team, tasks, forward_task, &f);
  return fast_gemm_status(f.failed);
}

struct backward {
  const struct kernel_attention_backward *op;
  const struct vector_table *vector;
  struct shape shape;
  float *scratch; /* twice scores_floats(seq) for each thread */
  _Atomic bool failed;
};

/* scores becomes the probabilities and dp the gradient of the raw scores. */
static bool backward_scores(const struct backward *g, const struct block *b, uint64_t head,
                            float *scores, float *dp) {
  const struct shape *s = &g->shape;
  const float *dout = g->op->dout + b->place + b->first * s->width;
  const float *out = g->op->out + b->place + b->first * s->width;
  struct gemm product = scores_product(s, b, b->q + b->first * 3 * s->width, 3 * s->width, b->k);
  product.c = scores;
  struct gemm gradient = scores_product(s, b, dout, s->width, b->v);
  gradient.c = dp;
  bool ok = gemm_run(&product) && gemm_run(&gradient);
  for (uint64_t r = 0; r < b->rows; r++) {
    struct vector_attention_row row = {b->first + r + 1, b->keys, s->scale};
    float delta = g->vector->dot(dout + r * s->width, out + r * s->width, s->head_width);
    g->vector->attention_backward_row(scores + r * s->stride, dp + r * s->stride, &row,
                                      g->op->lse[head * s->seq + b->first + r], delta);
  }
  return ok;
}

static bool backward_block(const struct backward *g, const struct block *b, uint64_t head,
                           float *scores, float *dp) {
  const struct shape *s = &g->shape;
  bool last = b->keys == s->seq;
  float *dq = g->op->dqkv + (b->q - g->op->qkv), *dk = dq + s->width, *dv = dk + s->width;
  uint64_t wide = 3 * s->width;
  bool ok = backward_scores(g, b, head, scores, dp);
  struct gemm to_keys = {.a_stride = s->stride,
                         .a_transposed = true,
                         .c_stride = wide,
                         .rows = b->keys,
                         .columns = s->head_width,
                         .inner = b->rows,
                         .accumulate = !last};
  struct gemm values = to_keys, keys = to_keys;
  values.a = scores;
  values.b = g->op->dout + b->place + b->first * s->width;
  values.b_stride = s->width;
  values.c = dv;
  keys.a = dp;
  keys.b = b->q + b->first * wide;
  keys.b_stride = wide;
  keys.c = dk;
  struct gemm queries = {.a = dp,
                         .a_stride = s->stride,
                         .b = b->k,
                         .b_stride = wide,
                         .c = dq + b->first * wide,
                         .c_stride = wide,
                         .rows = b->rows,
                         .columns = s->head_width,
                         .inner = b->keys};
  return gemm_run(&values) && gemm_run(&keys) && gemm_run(&queries) && ok;
}

static void backward_task(void *context, uint32_t task, uint32_t thread) {
  struct backward *g = context;
  const struct shape *s = &g->shape;
  float *scores = g->scratch + 2ull * thread * scores_floats(s->seq);
  for (uint64_t i = s->blocks; i > 0; i--) {
    struct block b = block_at(s, g->op->qkv, task, i - 1);
    if (!backward_block(g, &b, task, scores, scores + scores_floats(s->seq))) g->failed = true;
  }
}

mr_status fast_attention_backward(struct mr_team *team, const struct kernel_attention_backward *op,
                                  void *scratch) {
  mr_status status = gemm_ready();
  if (status != MR_OK) return status;
  struct backward g = {.op = op,
                       .vector = vector_best(),
                       .shape = shape_of(op->batch, op->seq, op->width, op->heads),
                       .scratch = scratch};
  mr_team_run(team, (uint32_t)(op->batch * op->heads), backward_task, &g);
  return fast_gemm_status(g.failed);
}

uint64_t kernel_attention_scratch_bytes(uint64_t batch, uint64_t seq, uint64_t width,
                                        uint64_t heads, uint32_t threads) {
  (void)batch;
  (void)width;
  (void)heads;
  return threads * scores_floats(seq) * sizeof(float);
}

uint64_t kernel_attention_backward_scratch_bytes(uint64_t batch, uint64_t seq, uint64_t width,
                                                 uint64_t heads, uint32_t threads) {
  return 2 * kernel_attention_scratch_bytes(batch, seq, width, heads, threads);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal attention in blocks of rows: the scores of a block against the keys that it may see live
 * in the thread's scratch, never the T x T matrix (the row-block form of FlashAttention, Dao et al.
 * 2022, without the split over keys). The backward pass computes the probabilities again from the
 * scores and lse. Within a head it takes the blocks from the last to the first: the last one sees
 * every key and so sets dk and dv, the others add, in an order that never changes.
 *
 * Of bf16, scores are fp32 and their rows become bf16 where they lie, as operands of the products
 * that follow; what those add up is fp32 in scratch too, and is rounded once, when it is whole.
 */
#include "train/kernels/fast.h"

#include <math.h>

#include "train/kernels/bf16.h"

/* 64 rows waste few products on keys of the future and still keep the library's kernels busy. */
#define BLOCK_ROWS 64u

/* Floats from one row of scores to the next; the 16 more keep rows out of the same cache sets. */
static uint64_t scores_stride(uint64_t seq) {
  return fast_round_up(seq, 16) + 16;
}

static uint64_t scores_floats(uint64_t seq) {
  return fast_min(BLOCK_ROWS, seq) * scores_stride(seq);
}

struct shape {
  uint64_t batch, seq, width, heads, head_width, blocks;
  uint64_t stride; /* floats from one row of scores to the next */
  float scale;
  mr_dtype dtype;
  bool bf16;
  const struct vector_table *vector;
};

/* One head of one sequence, and a block of its rows. Keys, values, queries are rows of 3C. */
struct block {
  const void *queries;  /* from the block's first row on */
  const void *k, *v;    /* from the sequence's first row on */
  uint64_t first, rows; /* rows of the block */
  uint64_t keys;        /* keys that its last row sees */
  uint64_t place;       /* of the head's column 0 and the block's first row in an (N, C) matrix */
};

static struct shape shape_of(const struct kernel_attention *op) {
  return (struct shape){.batch = op->batch,
                        .seq = op->seq,
                        .width = op->width,
                        .heads = op->heads,
                        .head_width = op->width / op->heads,
                        .blocks = fast_divide_up(op->seq, BLOCK_ROWS),
                        .stride = scores_stride(op->seq),
                        .scale = (float)(1.0 / sqrt((double)(op->width / op->heads))),
                        .dtype = op->dtype,
                        .bf16 = op->dtype == MR_BF16,
                        .vector = vector_best(op->dtype)};
}

static struct block block_at(const struct shape *s, const void *qkv, uint64_t head,
                             uint64_t block) {
  uint64_t row = head / s->heads * s->seq, column = head % s->heads * s->head_width;
  uint64_t place = row * 3 * s->width + column;
  uint64_t first = block * BLOCK_ROWS, rows = fast_min(BLOCK_ROWS, s->seq - first);
  return (struct block){.k = element_at(qkv, s->dtype, place + s->width),
                        .v = element_at(qkv, s->dtype, place + 2 * s->width),
                        .queries = element_at(qkv, s->dtype, place + first * 3 * s->width),
                        .first = first,
                        .rows = rows,
                        .keys = first + rows,
                        .place = (row + first) * s->width + column};
}

/* scores = rows of `a` (stride of its matrix) . keys or values^T */
static struct gemm scores_product(const struct shape *s, const struct block *b, const void *a,
                                  uint64_t a_stride, const void *keys) {
  return (struct gemm){.a = a,
                       .a_stride = a_stride,
                       .b = keys,
                       .b_stride = 3 * s->width,
                       .b_transposed = true,
                       .c_stride = s->stride,
                       .dtype = s->dtype,
                       .rows = b->rows,
                       .columns = b->keys,
                       .inner = s->head_width};
}

/* Rounds the scores of a row where they lie, for products with elements. */
static void finish_scores(const struct shape *s, float *scores, uint64_t keys) {
  if (s->bf16) s->vector->round(scores, scores, keys);
}

/* Elements from one row of scores to the next, once they are finished. */
static uint64_t finished_stride(const struct shape *s) {
  return s->bf16 ? 2 * s->stride : s->stride;
}

struct forward {
  const struct kernel_attention *op;
  struct shape shape;
  float *scratch; /* thread_floats for each thread: scores, and of bf16 a block of out */
  uint64_t thread_floats;
  _Atomic bool failed;
};

static uint64_t forward_floats(uint64_t seq, uint64_t head_width, mr_dtype dtype) {
  uint64_t out = dtype == MR_BF16 ? BLOCK_ROWS * fast_round_up(head_width, 16) : 0;
  return scores_floats(seq) + out;
}

/* The block's rows of out, from the exponentials in `scores` and each row's sum of them. */
static bool forward_out(const struct forward *f, const struct block *b, float *scores,
                        const float *sums) {
  const struct shape *s = &f->shape;
  void *place = element_place(f->op->out, s->dtype, b->place);
  struct gemm weighted = {.a = scores,
                          .a_stride = finished_stride(s),
                          .b = b->v,
                          .b_stride = 3 * s->width,
                          .c = s->bf16 ? scores + scores_floats(s->seq) : place,
                          .c_stride = s->bf16 ? s->head_width : s->width,
                          .dtype = s->dtype,
                          .rows = b->rows,
                          .columns = s->head_width,
                          .inner = b->keys};
  bool ok = gemm_run(&weighted);
  for (uint64_t r = 0; r < b->rows; r++) {
    float *row = weighted.c + r * weighted.c_stride;
    s->vector->scale(row, 1.0f / sums[r], s->head_width);
    if (s->bf16) {
      s->vector->round(element_place(place, s->dtype, r * s->width), row, s->head_width);
    }
  }
  return ok;
}

static void forward_task(void *context, uint32_t task, uint32_t thread) {
  struct forward *f = context;
  const struct shape *s = &f->shape;
  uint64_t head = task % (s->batch * s->heads);
  /* The last blocks see the most keys: they go first. */
  struct block b = block_at(s, f->op->qkv, head, s->blocks - 1 - task / (s->batch * s->heads));
  float *scores = f->scratch + thread * f->thread_floats;
  struct gemm product = scores_product(s, &b, b.queries, 3 * s->width, b.k);
  product.c = scores;
  bool ok = gemm_run(&product);
  float sums[BLOCK_ROWS];
  for (uint64_t r = 0; r < b.rows; r++) {
    struct vector_attention_row row = {b.first + r + 1, b.keys, s->scale};
    sums[r] = s->vector->attention_row(scores + r * s->stride, &row,
                                       f->op->lse + head * s->seq + b.first + r);
    finish_scores(s, scores + r * s->stride, b.keys);
  }
  ok = forward_out(f, &b, scores, sums) && ok;
  if (!ok) f->failed = true;
}

mr_status fast_attention(struct mr_team *team, const struct kernel_attention *op, void *scratch) {
  mr_status status = gemm_ready();
  if (status != MR_OK) return status;
  struct forward f = {.op = op,
                      .shape = shape_of(op),
                      .scratch = scratch,
                      .thread_floats = forward_floats(op->seq, op->width / op->heads, op->dtype)};
  uint32_t tasks = (uint32_t)(op->batch * op->heads * f.shape.blocks);
  mr_team_run(team, tasks, forward_task, &f);
  return fast_gemm_status(f.failed);
}

/* Where the gradients of one head of one sequence are summed: where they belong, or in scratch. */
struct sums {
  float *dq, *dk, *dv; /* of row 0 */
  uint64_t stride;
};

struct backward {
  const struct kernel_attention_backward *op;
  struct shape shape;
  float *scratch; /* thread_floats for each thread: scores, their gradients, and of bf16 the sums */
  uint64_t thread_floats;
  _Atomic bool failed;
};

static uint64_t backward_floats(uint64_t seq, uint64_t head_width, mr_dtype dtype) {
  uint64_t sums = dtype == MR_BF16 ? fast_round_up(3 * seq * head_width, 16) : 0;
  return 2 * scores_floats(seq) + sums;
}

static struct sums sums_at(const struct backward *g, uint64_t place, float *scratch) {
  const struct shape *s = &g->shape;
  uint64_t apart = s->bf16 ? s->head_width : s->width;
  float *dq = s->bf16 ? scratch : (float *)g->op->dqkv + place;
  return (struct sums){dq, dq + apart, dq + 2 * apart, 3 * apart};
}

/* scores becomes the probabilities and dp the gradient of the raw scores. */
static bool backward_scores(const struct backward *g, const struct block *b, uint64_t head,
                            float *scores, float *dp) {
  const struct shape *s = &g->shape;
  const void *dout = element_at(g->op->dout, s->dtype, b->place);
  const void *out = element_at(g->op->out, s->dtype, b->place);
  struct gemm product = scores_product(s, b, b->queries, 3 * s->width, b->k);
  product.c = scores;
  struct gemm gradient = scores_product(s, b, dout, s->width, b->v);
  gradient.c = dp;
  bool ok = gemm_run(&product) && gemm_run(&gradient);
  for (uint64_t r = 0; r < b->rows; r++) {
    struct vector_attention_row row = {b->first + r + 1, b->keys, s->scale};
    float delta = s->vector->dot(element_at(dout, s->dtype, r * s->width),
                                 element_at(out, s->dtype, r * s->width), s->head_width);
    s->vector->attention_backward_row(scores + r * s->stride, dp + r * s->stride, &row,
                                      g->op->lse[head * s->seq + b->first + r], delta);
    finish_scores(s, scores + r * s->stride, b->keys);
    finish_scores(s, dp + r * s->stride, b->keys);
  }
  return ok;
}

static bool backward_block(const struct backward *g, const struct block *b, const float *scores,
                           const float *dp, const struct sums *sums) {
  const struct shape *s = &g->shape;
  bool last = b->keys == s->seq;
  struct gemm to_keys = {.a_stride = finished_stride(s),
                         .a_transposed = true,
                         .c_stride = sums->stride,
                         .dtype = s->dtype,
                         .rows = b->keys,
                         .columns = s->head_width,
                         .inner = b->rows,
                         .accumulate = !last};
  struct gemm values = to_keys, keys = to_keys;
  values.a = scores;
  values.b = element_at(g->op->dout, s->dtype, b->place);
  values.b_stride = s->width;
  values.c = sums->dv;
  keys.a = dp;
  keys.b = b->queries;
  keys.b_stride = 3 * s->width;
  keys.c = sums->dk;
  struct gemm queries = {.a = dp,
                         .a_stride = finished_stride(s),
                         .b = b->k,
                         .b_stride = 3 * s->width,
                         .c = sums->dq + b->first * sums->stride,
                         .c_stride = sums->stride,
                         .dtype = s->dtype,
                         .rows = b->rows,
                         .columns = s->head_width,
                         .inner = b->keys};
  return gemm_run(&values) && gemm_run(&keys) && gemm_run(&queries);
}

/* Rounds the sums of a head to where they belong. */
static void round_sums(const struct backward *g, uint64_t place, const struct sums *sums) {
  const struct shape *s = &g->shape;
  for (uint64_t t = 0; t < s->seq; t++) {
    const float *const parts[] = {sums->dq, sums->dk, sums->dv};
    for (uint64_t i = 0; i < 3; i++) {
      uint64_t at = place + t * 3 * s->width + i * s->width;
      s->vector->round(element_place(g->op->dqkv, s->dtype, at), parts[i] + t * sums->stride,
                       s->head_width);
    }
  }
}

static void backward_task(void *context, uint32_t task, uint32_t thread) {
  struct backward *g = context;
  const struct shape *s = &g->shape;
  float *scores = g->scratch + thread * g->thread_floats, *dp = scores + scores_floats(s->seq);
  uint64_t place = task / s->heads * s->seq * 3 * s->width + task % s->heads * s->head_width;
  struct sums sums = sums_at(g, place, dp + scores_floats(s->seq));
  for (uint64_t i = s->blocks; i > 0; i--) {
    struct block b = block_at(s, g->op->qkv, task, i - 1);
    bool ok = backward_scores(g, &b, task, scores, dp);
    if (!backward_block(g, &b, scores, dp, &sums) || !ok) g->failed = true;
  }
  if (s->bf16) round_sums(g, place, &sums);
}

mr_status fast_attention_backward(struct mr_team *team, const struct kernel_attention_backward *op,
                                  void *scratch) {
  mr_status status = gemm_ready();
  if (status != MR_OK) return status;
  struct kernel_attention forward = {.batch = op->batch,
                                     .seq = op->seq,
                                     .width = op->width,
                                     .heads = op->heads,
                                     .dtype = op->dtype};
  struct backward g = {.op = op,
                       .shape = shape_of(&forward),
                       .scratch = scratch,
                       .thread_floats = backward_floats(op->seq, op->width / op->heads, op->dtype)};
  mr_team_run(team, (uint32_t)(op->batch * op->heads), backward_task, &g);
  return fast_gemm_status(g.failed);
}

uint64_t kernel_attention_scratch_bytes(uint64_t seq, uint64_t head_width, mr_dtype dtype,
                                        uint32_t threads) {
  return threads * forward_floats(seq, head_width, dtype) * sizeof(float);
}

uint64_t kernel_attention_backward_scratch_bytes(uint64_t seq, uint64_t head_width, mr_dtype dtype,
                                                 uint32_t threads) {
  return threads * backward_floats(seq, head_width, dtype) * sizeof(float);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The ops of the kernel tables as trials: shapes, data, guards. */
#include "tests/unit/kernels_trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "train/kernels/bf16.h"

#define GUARD_BYTES 256u
#define GUARD       0xff

static void *take(uint64_t bytes) {
  return aligned_alloc(64, bytes);
}

struct trial_memory trial_memory = {.take = take, .give = free};

static struct trial_buffer *trial_allocate(struct trial *t, uint64_t bytes) {
  assert_true(t->buffer_count < TRIAL_BUFFERS);
  struct trial_buffer *buffer = &t->buffers[t->buffer_count++];
  uint64_t before = 64 * (t->lines * (t->buffer_count % 7 + 1));
  uint64_t whole = mr_round_up(before + bytes + GUARD_BYTES, 64);
  *buffer = (struct trial_buffer){.allocation = trial_memory.take(whole), .bytes = bytes};
  assert_non_null(buffer->allocation);
  memset(buffer->allocation, GUARD, whole);
  buffer->data = buffer->allocation + before;
  return buffer;
}

/* Close enough to a normal distribution: the sum of four uniform numbers. */
static float draw(struct trial *t, double deviation) {
  double sum = 0;
  for (int i = 0; i < 4; i++) {
    sum += mr_random_unit(&t->random) - 0.5;
  }
  float value = (float)(sum * sqrt(3.0) * deviation + t->mean);
  return t->rounded ? bf16_widen(bf16_round(value)) : value;
}

static float *input(struct trial *t, uint64_t count, double deviation) {
  float *data = (float *)(void *)trial_allocate(t, count * sizeof(float))->data;
  for (uint64_t i = 0; i < count; i++) {
    data[i] = draw(t, deviation);
  }
  return data;
}

/* Elements of the op's type. */
static void *elements(struct trial *t, uint64_t count, double deviation) {
  if (t->dtype == MR_F32) {
    return input(t, count, deviation);
  }
  struct trial_buffer *buffer = trial_allocate(t, count * sizeof(uint16_t));
  uint16_t *data = (uint16_t *)(void *)buffer->data;
  buffer->dtype = MR_BF16;
  for (uint64_t i = 0; i < count; i++) {
    data[i] = bf16_round(draw(t, deviation));
  }
  return data;
}

/* So few numbers may all be what is left of terms that cancel: there is nothing else then to
 * compare their errors with, so that terms do not. */
#define FEW 3u

/* Elements whose sums, so many, are compared. */
static void *terms_of(struct trial *t, uint64_t count, uint64_t sums) {
  t->mean = sums < FEW ? 1 : 0;
  void *data = elements(t, count, 1);
  t->mean = 0;
  return data;
}

/* Outputs start with data too, which accumulating ops add to and others must overwrite. */
static void *element_output(struct trial *t, uint64_t count, const char *name) {
  void *data = elements(t, count, 1.0);
  t->buffers[t->buffer_count - 1].output = name;
  return data;
}

static float *output(struct trial *t, uint64_t count, const char *name) {
  float *data = input(t, count, 1.0);
  t->buffers[t->buffer_count - 1].output = name;
  return data;
}

static double *output_double(struct trial *t, const char *name) {
  struct trial_buffer *buffer = trial_allocate(t, sizeof(double));
  double *data = (double *)(void *)buffer->data;
  *data = 0.25;
  buffer->output = name;
  buffer->dtype = MR_F64;
  return data;
}

static int32_t *tokens(struct trial *t, uint64_t count, uint64_t vocab) {
  int32_t *data = (int32_t *)(void *)trial_allocate(t, count * sizeof(int32_t))->data;
  for (uint64_t i = 0; i < count; i++) {
    data[i] = (int32_t)mr_random_below(&t->random, vocab);
  }
  return data;
}

static void *scratch(struct trial *t, uint64_t bytes) {
  struct trial_buffer *buffer = trial_allocate(t, bytes);
  memset(buffer->data, 0xff, bytes);
  return buffer->data;
}

static uint64_t between(struct trial *t, uint64_t low, uint64_t high) {
  return low + mr_random_below(&t->random, high - low + 1);
}

static bool coin(struct trial *t) {
  return mr_random_below(&t->random, 2) == 1;
}

double trial_value_at(const struct trial_buffer *buffer, uint64_t i) {
  double wide = 0;
  float narrow = 0;
  uint16_t half = 0;
  switch (buffer->dtype) {
  case MR_F64:
    memcpy(&wide, buffer->data + i * sizeof wide, sizeof wide);
    return wide;
  case MR_BF16:
    memcpy(&half, buffer->data + i * sizeof half, sizeof half);
    return (double)bf16_widen(half);
  default:
    memcpy(&narrow, buffer->data + i * sizeof narrow, sizeof narrow);
    return (double)narrow;
  }
}

uint64_t trial_value_count(const struct trial_buffer *buffer) {
  return buffer->bytes / (buffer->dtype == MR_F64 ? sizeof(double) : element_bytes(buffer->dtype));
}

/* A slice of a vocabulary of `vocab` words, at its begin, inside, at its end, or all of it. */
static uint64_t slice(struct trial *t, uint64_t vocab, uint64_t *first_word_out) {
  uint64_t words = coin(t) ? vocab : between(t, 1, vocab);
  *first_word_out = mr_random_below(&t->random, vocab - words + 1);
  return words;
}

/* Sizes at and around the vectors' and tiles' widths as well as any. */
static uint64_t size(struct trial *t, uint64_t most) {
  static const uint16_t edges[] = {1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 96, 127, 129};
  uint64_t edge = edges[mr_random_below(&t->random, MR_COUNT_OF(edges))];
  return coin(t) && edge <= most ? edge : between(t, 1, most);
}

static uint64_t most(const struct trial *t) {
  return t->large ? 400 : 130;
}

static void run_embed(struct trial *t) {
  uint64_t batch = between(t, 1, 4), seq = size(t, most(t)), width = size(t, most(t));
  uint64_t vocab = between(t, 1, 60);
  struct kernel_embed op = {.batch = batch, .seq = seq, .width = width, .dtype = t->dtype};
  op.vocab = slice(t, vocab, &op.first_word);
  op.tokens = tokens(t, batch * seq, vocab);
  op.wte = elements(t, op.vocab * width, 1);
  op.wpe = elements(t, seq * width, 1);
  op.x = element_output(t, batch * seq * width, "x");
  assert_int_equal(t->table->embed(t->team, &op), MR_OK);
}

static void run_embed_backward(struct trial *t) {
  uint64_t batch = between(t, 1, 4), seq = size(t, most(t)), width = size(t, most(t));
  if (t->large && coin(t)) {
    batch = 4, seq = between(t, 300, 600), width = between(t, 1, 12); /* many rows */
  }
  uint64_t vocab = between(t, 1, 60), positions = seq + between(t, 0, 5);
  struct kernel_embed_backward op = {.batch = batch,
                                     .seq = seq,
                                     .width = width,
                                     .positions = positions,
                                     .dtype = t->dtype,
                                     .accumulate = coin(t)};
  op.vocab = slice(t, vocab, &op.first_word);
  op.tokens = tokens(t, batch * seq, vocab);
  op.dx = elements(t, batch * seq * width, 1);
  op.dwte = output(t, op.vocab * width, "dwte");
  op.dwpe = coin(t) ? output(t, positions * width, "dwpe") : NULL;
  uint64_t bytes =
      kernel_embed_backward_scratch_bytes(batch * seq, width, mr_team_thread_count(t->team));
  assert_int_equal(t->table->embed_backward(t->team, &op, scratch(t, bytes)), MR_OK);
}

static double largest_of(const struct trial_buffer *buffer) {
  double largest = 0;
  for (uint64_t i = 0; i < trial_value_count(buffer); i++) {
    largest = fmax(largest, fabs(trial_value_at(buffer, i)));
  }
  return largest;
}

/* A mean may be off by some roundings of the largest x however small it is, and so are distances
 * from it. Where a row's values nearly agree, as two of them may, rstd makes up to 316 times that
 * of it. */
static void allow_for_the_mean(struct trial *t) {
  enum { X, GAMMA, BETA, Y, MEAN, RSTD };
  struct trial_buffer *buffers = t->buffers;
  buffers[MEAN].slack = 0x1p-23 * largest_of(&buffers[X]);
  buffers[Y].slack = buffers[MEAN].slack * largest_of(&buffers[RSTD]) * largest_of(&buffers[GAMMA]);
}

static void run_layernorm(struct trial *t) {
  uint64_t rows = size(t, most(t)), width = size(t, 3 * most(t));
  struct kernel_layernorm op = {.rows = rows, .width = width, .dtype = t->dtype};
  op.x = elements(t, rows * width, 3);
  op.gamma = elements(t, width, 1);
  op.beta = elements(t, width, 1);
  op.y = element_output(t, rows * width, "y");
  op.mean = output(t, rows, "mean");
  op.rstd = output(t, rows, "rstd");
  assert_int_equal(t->table->layernorm(t->team, &op), MR_OK);
  allow_for_the_mean(t);
}

/* A sum over rows may be off by a rounding of its largest term, however well its terms cancel. */
static void allow_for_the_sums(struct trial *t) {
  enum { DY, X, GAMMA, MEAN, RSTD, DX, DGAMMA, DBETA };
  struct trial_buffer *buffers = t->buffers;
  double distance = largest_of(&buffers[X]) + largest_of(&buffers[MEAN]);
  buffers[DBETA].slack = 0x1p-23 * largest_of(&buffers[DY]);
  buffers[DGAMMA].slack = buffers[DBETA].slack * distance * largest_of(&buffers[RSTD]);
}

static void run_layernorm_backward(struct trial *t) {
  uint64_t rows = size(t, t->large ? 3000 : 130), width = size(t, most(t));
  if (t->large && coin(t)) {
    /* So many roundings are a part of what sums of such terms usually are: of three columns one has
     * a usual sum, while a single one may all but cancel. */
    rows = between(t, 8200, 17000), width = between(t, 3, 14);
  }
  struct kernel_layernorm_backward op = {
      .rows = rows, .width = width, .dtype = t->dtype, .accumulate_dx = coin(t)};
  op.accumulate = coin(t);
  op.dy = terms_of(t, rows * width, width);
  op.x = elements(t, rows * width, 1);
  op.gamma = elements(t, width, 1);
  op.mean = input(t, rows, 0.1);
  op.rstd = input(t, rows, 1);
  op.dx = element_output(t, rows * width, "dx");
  op.dgamma = output(t, width, "dgamma");
  op.dbeta = output(t, width, "dbeta");
  uint64_t bytes =
      kernel_layernorm_backward_scratch_bytes(rows, width, mr_team_thread_count(t->team));
  assert_int_equal(t->table->layernorm_backward(t->team, &op, scratch(t, bytes)), MR_OK);
  allow_for_the_sums(t);
}

/* Sums of a product and what was `added` to it, or not, are in the buffer. */
static void allow_for_the_product(const struct trial *t, struct trial_buffer *sums, bool is_sum,
                                  double added) {
  bool rounded = is_sum && t->dtype == MR_BF16;
  sums->product_slack = rounded ? 0x1p-8 * (largest_of(sums) + added) : 0;
}

static void run_linear(struct trial *t) {
  uint64_t rows = size(t, most(t)), in = size(t, most(t)), out = size(t, 2 * most(t));
  struct kernel_linear op = {.rows = rows, .in = in, .out = out, .dtype = t->dtype};
  op.x = elements(t, rows * in, 1);
  op.w = elements(t, in * out, 1 / sqrt((double)in));
  op.bias = coin(t) ? elements(t, out, 1) : NULL;
  const void *residual = elements(t, rows * out, 1);
  op.y = element_output(t, rows * out, "y");
  uint64_t kind = mr_random_below(&t->random, 3);
  op.residual = kind == 0 ? NULL : kind == 1 ? residual : op.y;
  struct trial_buffer *y = &t->buffers[t->buffer_count - 1];
  double added = kind == 0 ? 0 : largest_of(kind == 1 ? y - 1 : y);
  added += op.bias == NULL ? 0 : largest_of(y - 2);
  op.activated = coin(t) ? element_output(t, rows * out, "activated") : NULL;
  uint64_t bytes = kernel_linear_scratch_bytes(rows, out, t->dtype, mr_team_thread_count(t->team));
  assert_int_equal(t->table->linear(t->team, &op, scratch(t, bytes)), MR_OK);
  allow_for_the_product(t, y, kind != 0 || op.bias != NULL, added);
}

static void run_linear_backward(struct trial *t) {
  uint64_t rows = size(t, most(t)), in = size(t, most(t)), out = size(t, 2 * most(t));
  struct kernel_linear_backward op = {
      .rows = rows, .in = in, .out = out, .dtype = t->dtype, .accumulate = coin(t)};
  op.dy = terms_of(t, rows * out, out);
  op.x = elements(t, rows * in, 1);
  op.w = elements(t, in * out, 1 / sqrt((double)out));
  op.preactivation = coin(t) ? elements(t, rows * in, 2) : NULL;
  op.accumulate_dx = op.preactivation == NULL && coin(t);
  op.dx = element_output(t, rows * in, "dx");
  struct trial_buffer *dx = &t->buffers[t->buffer_count - 1];
  double added = largest_of(dx);
  op.dw = output(t, in * out, "dw");
  op.dbias = coin(t) ? output(t, out, "dbias") : NULL;
  uint64_t bytes =
      kernel_linear_backward_scratch_bytes(rows, in, t->dtype, mr_team_thread_count(t->team));
  assert_int_equal(t->table->linear_backward(t->team, &op, scratch(t, bytes)), MR_OK);
  allow_for_the_product(t, dx, op.accumulate_dx, added);
}

static void run_gelu(struct trial *t) {
  uint64_t count = size(t, t->large ? 100000 : 130);
  struct kernel_gelu op = {.count = count, .dtype = t->dtype};
  op.x = elements(t, count, 3);
  op.activated = element_output(t, count, "activated");
  assert_int_equal(t->table->gelu(t->team, &op), MR_OK);
  /* 1 + tanh cancels far below 0, where a lone value is all that there is to compare with. */
  t->buffers[1].slack = 0x1p-23 * largest_of(&t->buffers[0]);
}

struct attention_draw {
  uint64_t batch, seq, heads, width;
};

/* Heads of 64 and 128 columns as well as any others of whole eights; sequences at and around the
 * ends of tiles of 64 and 128 rows. */
static struct attention_draw draw_eights(struct trial *t) {
  static const uint16_t lengths[] = {1, 16, 63, 64, 65, 127, 128, 129, 192, 200};
  uint64_t length = lengths[mr_random_below(&t->random, MR_COUNT_OF(lengths))];
  uint64_t columns = 8 * between(t, 1, 16), batch = between(t, 1, 2), heads = between(t, 1, 3);
  columns = coin(t) ? 64 * between(t, 1, 2) : columns;
  return (struct attention_draw){batch, coin(t) ? length : between(t, 1, 200), heads,
                                 heads * columns};
}

/* Now and then one head of up to 256 columns over a short sequence. */
static struct attention_draw draw_attention(struct trial *t) {
  if (t->eights) {
    return draw_eights(t);
  }
  if (!t->large && mr_random_below(&t->random, 4) == 0) {
    return (struct attention_draw){1, between(t, 1, 70), 1, between(t, 65, 256)};
  }
  uint64_t batch = between(t, 1, 3), seq = size(t, t->large ? 200 : 130);
  uint64_t heads = between(t, 1, 4), width = heads * size(t, 70);
  return (struct attention_draw){batch, seq, heads, width};
}

static void run_attention(struct trial *t) {
  struct attention_draw drawn = draw_attention(t);
  uint64_t batch = drawn.batch, seq = drawn.seq, heads = drawn.heads, width = drawn.width;
  struct kernel_attention op = {
      .batch = batch, .seq = seq, .width = width, .heads = heads, .dtype = t->dtype};
  op.qkv = terms_of(t, batch * seq * 3 * width, batch * heads * seq);
  op.out = element_output(t, batch * seq * width, "out");
  op.lse = output(t, batch * heads * seq, "lse");
  uint64_t bytes =
      kernel_attention_scratch_bytes(seq, width / heads, t->dtype, mr_team_thread_count(t->team));
  assert_int_equal(t->table->attention(t->team, &op, scratch(t, bytes)), MR_OK);
}

static void run_attention_backward(struct trial *t) {
  struct attention_draw drawn = draw_attention(t);
  uint64_t batch = drawn.batch, seq = drawn.seq, heads = drawn.heads, width = drawn.width;
  void *qkv = elements(t, batch * seq * 3 * width, 1), *out = elements(t, batch * seq * width, 0);
  float *lse = input(t, batch * heads * seq, 0);
  struct kernel_attention forward = {.qkv = qkv,
                                     .out = out,
                                     .lse = lse,
                                     .batch = batch,
                                     .seq = seq,
                                     .width = width,
                                     .heads = heads,
                                     .dtype = t->dtype};
  assert_int_equal(kernel_reference()->attention(t->team, &forward, NULL), MR_OK);
  struct kernel_attention_backward op = {.qkv = qkv,
                                         .out = out,
                                         .lse = lse,
                                         .batch = batch,
                                         .seq = seq,
                                         .width = width,
                                         .heads = heads,
                                         .dtype = t->dtype};
  op.dout = elements(t, batch * seq * width, 1);
  op.dqkv = element_output(t, batch * seq * 3 * width, "dqkv");
  uint64_t bytes = kernel_attention_backward_scratch_bytes(seq, width / heads, t->dtype,
                                                           mr_team_thread_count(t->team));
  assert_int_equal(t->table->attention_backward(t->team, &op, scratch(t, bytes)), MR_OK);
}

static uint64_t head_vocab(struct trial *t) {
  static const uint16_t vocabs[] = {1, 2, 17, 64, 65, 200, 256, 777, 1000};
  return vocabs[mr_random_below(&t->random, MR_COUNT_OF(vocabs))];
}

static uint64_t head_rows(struct trial *t, uint64_t *width_out) {
  uint64_t rows = size(t, most(t));
  *width_out = size(t, 100);
  if (t->large && coin(t)) rows = between(t, 1000, 1100), *width_out = between(t, 1, 8);
  return rows;
}

static void run_head_logits(struct trial *t) {
  struct kernel_head_logits op = {.dtype = t->dtype};
  uint64_t vocab = head_vocab(t);
  op.vocab = slice(t, vocab, &op.first_word);
  op.rows = head_rows(t, &op.width);
  op.stride = kernel_head_stride(op.vocab);
  op.x = elements(t, op.rows * op.width, 1);
  op.wte = elements(t, op.vocab * op.width, 1);
  op.targets = tokens(t, op.rows, vocab);
  op.logits = element_output(t, op.rows * op.stride, "logits");
  op.sums = output(t, op.rows * KERNEL_HEAD_SUMS, "sums");
  uint64_t bytes =
      kernel_head_logits_scratch_bytes(op.rows, op.vocab, t->dtype, mr_team_thread_count(t->team));
  assert_int_equal(t->table->head_logits(t->team, &op, scratch(t, bytes)), MR_OK);
}

static void run_head_loss(struct trial *t) {
  enum { MOST_SLICES = 5 };
  uint64_t rows = size(t, t->large ? 3000 : 130), slices = between(t, 1, MOST_SLICES);
  const float *sums[MOST_SLICES];
  for (uint64_t k = 0; k < slices; k++) {
    float *of_slice = input(t, rows * KERNEL_HEAD_SUMS, 3);
    for (uint64_t r = 0; r < rows; r++) {
      of_slice[r * KERNEL_HEAD_SUMS + 1] = 1 + fabsf(of_slice[r * KERNEL_HEAD_SUMS + 1]);
    }
    sums[k] = of_slice;
  }
  struct kernel_head_loss op = {.sums = sums,
                                .rows = rows,
                                .slices = slices,
                                .scale = 1.0 / (double)rows,
                                .accumulate = coin(t)};
  op.loss = output_double(t, "loss");
  op.softmax = output(t, rows * KERNEL_HEAD_SOFTMAX, "softmax");
  void *memory = scratch(t, kernel_head_loss_scratch_bytes(rows));
  assert_int_equal(t->table->head_loss(t->team, &op, memory), MR_OK);
}

static void run_head_gradient(struct trial *t) {
  struct kernel_head_gradient op = {.dtype = t->dtype, .accumulate_dx = coin(t)};
  op.accumulate = coin(t);
  uint64_t vocab = head_vocab(t);
  op.vocab = slice(t, vocab, &op.first_word);
  op.rows = head_rows(t, &op.width);
  op.stride = kernel_head_stride(op.vocab);
  op.scale = 1.0 / (double)op.rows;
  op.x = elements(t, op.rows * op.width, 1);
  op.wte = elements(t, op.vocab * op.width, 1);
  op.targets = tokens(t, op.rows, vocab);
  op.logits = element_output(t, op.rows * op.stride, "logits");
  float *softmax = input(t, op.rows * KERNEL_HEAD_SOFTMAX, 1);
  for (uint64_t r = 0; r < op.rows; r++) {
    softmax[r * KERNEL_HEAD_SOFTMAX + 1] = (float)(op.scale / (double)vocab);
  }
  op.softmax = softmax;
  op.dx = element_output(t, op.rows * op.width, "dx");
  op.dwte = output(t, op.vocab * op.width, "dwte");
  uint64_t bytes = kernel_head_gradient_scratch_bytes(op.rows, op.width, t->dtype,
                                                      mr_team_thread_count(t->team));
  assert_int_equal(t->table->head_gradient(t->team, &op, scratch(t, bytes)), MR_OK);
}

static void run_sum_squares(struct trial *t) {
  uint64_t count = size(t, t->large ? 200000 : 130);
  struct kernel_sum_squares op = {.count = count};
  op.g = input(t, count, coin(t) ? 1 : 1e-25);
  op.out = output_double(t, "sum");
  uint64_t bytes = kernel_sum_squares_scratch_bytes(count, mr_team_thread_count(t->team));
  assert_int_equal(t->table->sum_squares(t->team, &op, scratch(t, bytes)), MR_OK);
}

/* Numbers of every size down to denormal ones and 0. */
static void scatter(struct trial *t, float *x, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    x[i] = ldexpf(x[i], -(int)between(t, 0, 160));
  }
}

static void run_adamw(struct trial *t) {
  uint64_t count = size(t, t->large ? 200000 : 130), step = between(t, 1, 1000);
  struct kernel_adamw op = {.count = count,
                            .lr = 1e-2f,
                            .beta1 = 0.9f,
                            .beta2 = 0.999f,
                            .eps = 1e-8f,
                            .weight_decay = 0.1f,
                            .correction1 = (float)(1 - pow(0.9, (double)step)),
                            .correction2 = (float)(1 - pow(0.999, (double)step))};
  float *g = input(t, count, 1e-3);
  op.g = g;
  op.p = output(t, count, "p");
  op.m = output(t, count, "m");
  op.v = output(t, count, "v");
  if (t->scattered) {
    scatter(t, g, count);
    scatter(t, op.p, count);
    scatter(t, op.m, count);
    scatter(t, op.v, count);
  }
  /* As training leaves them: a second moment far below the square of the first would have a step of
   * many times the parameter. */
  for (uint64_t i = 0; i < count; i++) {
    op.v[i] = t->scattered ? fabsf(op.v[i]) : fmaxf(fabsf(op.v[i]), op.m[i] * op.m[i]);
    op.p[i] += t->scattered || count >= FEW ? 0 : copysignf(0.5f, op.p[i]);
  }
  float *grad_scale = input(t, 1, 1);
  op.grad_scale = coin(t) ? grad_scale : NULL;
  if (t->dtype == MR_BF16) op.working = element_output(t, count, "working");
  assert_int_equal(t->table->adamw(t->team, &op), MR_OK);
}

const struct trial_op trial_ops[] = {
    {"embed", run_embed, 1e-6},
    {"embed_backward", run_embed_backward, 4e-6},
    {"layernorm", run_layernorm, 4e-5},
    {"layernorm_backward", run_layernorm_backward, 2e-5},
    {"linear", run_linear, 1e-5},
    {"linear_backward", run_linear_backward, 2e-5},
    {"gelu", run_gelu, 2e-6},
    {"attention", run_attention, 2e-5},
    {"attention_backward", run_attention_backward, 1e-4},
    {"head_logits", run_head_logits, 2e-5},
    {"head_loss", run_head_loss, 4e-6},
    {"head_gradient", run_head_gradient, 2e-4},
    {"sum_squares", run_sum_squares, 1e-12},
    {"adamw", run_adamw, 1e-6},
};
const uint32_t trial_op_count = MR_COUNT_OF(trial_ops);

uint64_t trial_first_seed(void) {
  const char *text = getenv("MEMRUN_SEED");
  return text != NULL ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);
}

void trial_run(struct trial *t, const struct trial_op *op, uint64_t seed) {
  mr_random_init(&t->random, seed);
  t->buffer_count = 0;
  op->run(t);
  for (uint32_t i = 0; i < t->buffer_count; i++) {
    const struct trial_buffer *buffer = &t->buffers[i];
    for (uint32_t j = 0; j < GUARD_BYTES; j++) {
      if (buffer->data[buffer->bytes + j] != GUARD) {
        fail_msg("%s %s of seed %llu wrote past the end of buffer %u", t->table->name, op->name,
                 (unsigned long long)seed, i);
      }
    }
  }
}

void trial_fini(struct trial *t) {
  for (uint32_t i = 0; i < t->buffer_count; i++) {
    trial_memory.give(t->buffers[i].allocation);
  }
  t->buffer_count = 0;
}

const char *trial_difference(const struct trial *a, const struct trial *b) {
  const struct trial_buffer *x = a->buffers, *y = b->buffers, *end = x + a->buffer_count;
  for (; x < end && (x->output == NULL || memcmp(x->data, y->data, x->bytes) == 0); x++, y++) {
  }
  return x < end ? x->output : NULL;
}

void trial_assert_same_bits(const struct trial *a, const struct trial *b, const char *name,
                            uint64_t seed) {
  const char *output = trial_difference(a, b);
  if (output == NULL) return;
  fail_msg("%s of seed %llu gave other bits of %s", name, (unsigned long long)seed, output);
}

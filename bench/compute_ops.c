/* SPDX-License-Identifier: Apache-2.0 */
/* The ops of a training step with the shapes of a model: what bench_compute times. */
#include "bench/compute.h"

#include <stdlib.h>

#include "base/base.h"
#include "bench/bench.h"
#include "train/vocabulary.h"

static void run_linear(const struct bench *bench, const struct data *d, uint64_t in, uint64_t out,
                       bool activate) {
  struct kernel_linear op = {.x = d->wide,
                             .w = d->weights,
                             .bias = d->small,
                             .y = d->wide2,
                             .residual = out == d->model.width ? d->rows1 : NULL,
                             .activated = activate ? d->wide3 : NULL,
                             .rows = d->rows,
                             .in = in,
                             .out = out};
  MR_ASSERT(bench->kernels->linear(bench->team, &op, d->scratch) == MR_OK);
}

static void run_linear_backward(const struct bench *bench, const struct data *d, uint64_t in,
                                uint64_t out, bool activated) {
  struct kernel_linear_backward op = {.dy = d->wide,
                                      .x = d->wide2,
                                      .w = d->weights,
                                      .preactivation = activated ? d->wide2 : NULL,
                                      .dx = d->wide3,
                                      .dw = d->weight_gradients,
                                      .dbias = d->small + 4 * d->model.width,
                                      .rows = d->rows,
                                      .in = in,
                                      .out = out};
  MR_ASSERT(bench->kernels->linear_backward(bench->team, &op, d->scratch) == MR_OK);
}

static void run_qkv(const struct bench *bench, const struct data *d) {
  run_linear(bench, d, d->model.width, 3 * d->model.width, false);
}
static void run_projection(const struct bench *bench, const struct data *d) {
  run_linear(bench, d, d->model.width, d->model.width, false);
}
static void run_up(const struct bench *bench, const struct data *d) {
  run_linear(bench, d, d->model.width, 4 * d->model.width, true);
}
static void run_down(const struct bench *bench, const struct data *d) {
  run_linear(bench, d, 4 * d->model.width, d->model.width, false);
}
static void run_qkv_backward(const struct bench *bench, const struct data *d) {
  run_linear_backward(bench, d, d->model.width, 3 * d->model.width, false);
}
static void run_projection_backward(const struct bench *bench, const struct data *d) {
  run_linear_backward(bench, d, d->model.width, d->model.width, false);
}
static void run_up_backward(const struct bench *bench, const struct data *d) {
  run_linear_backward(bench, d, d->model.width, 4 * d->model.width, false);
}
static void run_down_backward(const struct bench *bench, const struct data *d) {
  run_linear_backward(bench, d, 4 * d->model.width, d->model.width, true);
}

static void run_attention(const struct bench *bench, const struct data *d) {
  struct kernel_attention op = {.qkv = d->wide,
                                .out = d->rows1,
                                .lse = d->lse,
                                .batch = d->model.batch,
                                .seq = d->model.seq,
                                .width = d->model.width,
                                .heads = d->model.heads};
  MR_ASSERT(bench->kernels->attention(bench->team, &op, d->scratch) == MR_OK);
}

static void run_attention_backward(const struct bench *bench, const struct data *d) {
  struct kernel_attention_backward op = {.dout = d->rows2,
                                         .qkv = d->wide,
                                         .out = d->rows1,
                                         .lse = d->lse,
                                         .dqkv = d->wide2,
                                         .batch = d->model.batch,
                                         .seq = d->model.seq,
                                         .width = d->model.width,
                                         .heads = d->model.heads};
  MR_ASSERT(bench->kernels->attention_backward(bench->team, &op, d->scratch) == MR_OK);
}

static void run_layernorm(const struct bench *bench, const struct data *d) {
  struct kernel_layernorm op = {.x = d->rows1,
                                .gamma = d->small,
                                .beta = d->small,
                                .y = d->rows2,
                                .mean = d->lse,
                                .rstd = d->lse + d->rows,
                                .rows = d->rows,
                                .width = d->model.width};
  MR_ASSERT(bench->kernels->layernorm(bench->team, &op) == MR_OK);
}

static void run_layernorm_backward(const struct bench *bench, const struct data *d) {
  struct kernel_layernorm_backward op = {.dy = d->rows1,
                                         .x = d->rows2,
                                         .gamma = d->small,
                                         .mean = d->lse,
                                         .rstd = d->lse + d->rows,
                                         .dx = d->rows3,
                                         .dgamma = d->small + 4 * d->model.width,
                                         .dbeta = d->small + 5 * d->model.width,
                                         .rows = d->rows,
                                         .width = d->model.width,
                                         .accumulate_dx = true};
  MR_ASSERT(bench->kernels->layernorm_backward(bench->team, &op, d->scratch) == MR_OK);
}

/* The slices of the vocabulary, as the trainer cuts it. */
struct slice {
  uint64_t first_word, words, stride;
  const float *wte;
  float *dwte, *logits, *sums;
};

static uint64_t slice_count(const struct model *m) {
  return mr_div_up(m->vocab, vocabulary_slice_words(m->vocab, m->width));
}

static struct slice slice_at(const struct data *d, uint64_t index) {
  const struct model *m = &d->model;
  uint64_t most = vocabulary_slice_words(m->vocab, m->width), first = index * most;
  return (struct slice){
      .first_word = first,
      .words = mr_min_u64(most, m->vocab - first),
      .stride = kernel_head_stride(mr_min_u64(most, m->vocab - first)),
      .wte = d->wte + first * m->width,
      .dwte = d->dwte + first * m->width,
      .logits = d->logits + d->block_rows * kernel_head_stride(most) * index,
      .sums = d->sums + d->block_rows * KERNEL_HEAD_SUMS * index,
  };
}

static void run_head_logits(const struct bench *bench, const struct data *d, uint64_t first,
                            uint64_t rows) {
  for (uint64_t i = 0; i < slice_count(&d->model); i++) {
    struct slice slice = slice_at(d, i);
    struct kernel_head_logits op = {.x = d->rows1 + first * d->model.width,
                                    .wte = slice.wte,
                                    .targets = d->tokens + first,
                                    .logits = slice.logits,
                                    .sums = slice.sums,
                                    .rows = rows,
                                    .width = d->model.width,
                                    .first_word = slice.first_word,
                                    .vocab = slice.words,
                                    .stride = slice.stride};
    MR_ASSERT(bench->kernels->head_logits(bench->team, &op, d->scratch) == MR_OK);
  }
}

static void run_head_loss(const struct bench *bench, const struct data *d, uint64_t rows) {
  const float *sums[VOCABULARY_MOST_SLICES];
  double loss = 0;
  for (uint64_t i = 0; i < slice_count(&d->model); i++) {
    sums[i] = slice_at(d, i).sums;
  }
  struct kernel_head_loss op = {.sums = sums,
                                .loss = &loss,
                                .softmax = d->softmax,
                                .rows = rows,
                                .slices = slice_count(&d->model),
                                .scale = 1.0 / (double)d->rows};
  MR_ASSERT(bench->kernels->head_loss(bench->team, &op, d->scratch) == MR_OK);
}

static void run_head_gradient(const struct bench *bench, const struct data *d, uint64_t first,
                              uint64_t rows) {
  for (uint64_t i = slice_count(&d->model); i-- > 0;) {
    struct slice slice = slice_at(d, i);
    struct kernel_head_gradient op = {.x = d->rows1 + first * d->model.width,
                                      .wte = slice.wte,
                                      .targets = d->tokens + first,
                                      .softmax = d->softmax,
                                      .logits = slice.logits,
                                      .dx = d->rows2 + first * d->model.width,
                                      .dwte = slice.dwte,
                                      .rows = rows,
                                      .width = d->model.width,
                                      .first_word = slice.first_word,
                                      .vocab = slice.words,
                                      .stride = slice.stride,
                                      .scale = 1.0 / (double)d->rows,
                                      .accumulate_dx = i + 1 < slice_count(&d->model),
                                      .accumulate = first > 0};
    MR_ASSERT(bench->kernels->head_gradient(bench->team, &op, d->scratch) == MR_OK);
  }
}

static void run_head(const struct bench *bench, const struct data *d) {
  for (uint64_t first = 0; first < d->rows; first += d->block_rows) {
    uint64_t rows = mr_min_u64(d->block_rows, d->rows - first);
    run_head_logits(bench, d, first, rows);
    run_head_loss(bench, d, rows);
    run_head_gradient(bench, d, first, rows);
  }
}

static void run_embed(const struct bench *bench, const struct data *d) {
  struct kernel_embed forward = {.tokens = d->tokens,
                                 .wte = d->wte,
                                 .wpe = d->weights,
                                 .x = d->rows1,
                                 .batch = d->model.batch,
                                 .seq = d->model.seq,
                                 .width = d->model.width,
                                 .vocab = d->model.vocab};
  struct kernel_embed_backward backward = {.tokens = d->tokens,
                                           .dx = d->rows1,
                                           .dwte = d->dwte,
                                           .dwpe = d->weight_gradients,
                                           .batch = d->model.batch,
                                           .seq = d->model.seq,
                                           .width = d->model.width,
                                           .vocab = d->model.vocab,
                                           .positions = d->model.seq};
  MR_ASSERT(bench->kernels->embed(bench->team, &forward) == MR_OK);
  MR_ASSERT(bench->kernels->embed_backward(bench->team, &backward, d->scratch) == MR_OK);
}

static void run_adamw(const struct bench *bench, const struct data *d) {
  struct kernel_adamw op = {.p = d->p,
                            .g = d->g,
                            .m = d->m,
                            .v = d->v,
                            .count = d->adamw_count,
                            .lr = 1e-6f,
                            .beta1 = 0.9f,
                            .beta2 = 0.999f,
                            .eps = 1e-8f,
                            .weight_decay = 0.1f,
                            .correction1 = 0.1f,
                            .correction2 = 0.001f};
  MR_ASSERT(bench->kernels->adamw(bench->team, &op) == MR_OK);
}

static void run_sum_squares(const struct bench *bench, const struct data *d) {
  double sum = 0;
  struct kernel_sum_squares op = {.g = d->g, .out = &sum, .count = d->adamw_count};
  MR_ASSERT(bench->kernels->sum_squares(bench->team, &op, d->scratch) == MR_OK);
}

static double products(const struct data *d, double in, double out) {
  return 2.0 * (double)d->rows * (double)d->model.width * (double)d->model.width * in * out;
}
static double qkv_flops(const struct data *d) {
  return products(d, 1, 3);
}
static double projection_flops(const struct data *d) {
  return products(d, 1, 1);
}
static double mlp_flops(const struct data *d) {
  return products(d, 1, 4);
}
static double qkv_backward_flops(const struct data *d) {
  return products(d, 2, 3);
}
static double projection_backward_flops(const struct data *d) {
  return products(d, 2, 1);
}
static double mlp_backward_flops(const struct data *d) {
  return products(d, 2, 4);
}
static double head_flops(const struct data *d) {
  return 6.0 * (double)d->rows * (double)d->model.width * (double)d->model.vocab;
}
/* Two products over the keys that a query may see; four backward, the scores' own not counted
 * twice. */
static double attention_flops(const struct data *d) {
  return 2.0 * (double)d->rows * (double)(d->model.seq + 1) * (double)d->model.width;
}
static double attention_backward_flops(const struct data *d) {
  return 2 * attention_flops(d);
}

const struct op_case compute_cases[] = {
    {"qkv", run_qkv, qkv_flops, 1, true, true},
    {"projection", run_projection, projection_flops, 1, true, true},
    {"mlp up + gelu", run_up, mlp_flops, 1, true, true},
    {"mlp down", run_down, mlp_flops, 1, true, true},
    {"qkv backward", run_qkv_backward, qkv_backward_flops, 1, true, true},
    {"projection backward", run_projection_backward, projection_backward_flops, 1, true, true},
    {"mlp up backward", run_up_backward, mlp_backward_flops, 1, true, true},
    {"mlp down + gelu backward", run_down_backward, mlp_backward_flops, 1, true, true},
    {"head + loss, both ways", run_head, head_flops, 1, false, true},
    {"attention", run_attention, attention_flops, 1, true, false},
    {"attention backward", run_attention_backward, attention_backward_flops, 1, true, false},
    {"layernorm", run_layernorm, NULL, 2, true, false},
    {"layernorm backward", run_layernorm_backward, NULL, 2, true, false},
    {"embeddings, both ways", run_embed, NULL, 1, false, false},
    {"AdamW", run_adamw, NULL, 1, false, false},
    {"sum of squares", run_sum_squares, NULL, 0, false, false},
};
const uint32_t compute_case_count = MR_COUNT_OF(compute_cases);

/* Parameters of the model: what AdamW passes over in a step. */
static uint64_t parameter_count(const struct model *m) {
  return m->layers * (12 * m->width * m->width + 13 * m->width) + (m->vocab + 1024) * m->width;
}

static uint64_t scratch_bytes(const struct model *m, uint32_t threads) {
  uint64_t rows = m->batch * m->seq,
           block_rows = vocabulary_block_rows(m->vocab, rows, sizeof(float));
  uint64_t words = vocabulary_slice_words(m->vocab, m->width);
  uint64_t rest = m->vocab - (slice_count(m) - 1) * words;
  uint64_t most = kernel_head_loss_scratch_bytes(block_rows);
  most = mr_max_u64(most, kernel_head_logits_scratch_bytes(block_rows, words, MR_F32, threads));
  most = mr_max_u64(most, kernel_head_logits_scratch_bytes(block_rows, rest, MR_F32, threads));
  most =
      mr_max_u64(most, kernel_linear_backward_scratch_bytes(rows, 4 * m->width, MR_F32, threads));
  most = mr_max_u64(
      most, kernel_attention_backward_scratch_bytes(m->seq, m->width / m->heads, MR_F32, threads));
  most = mr_max_u64(most, kernel_layernorm_backward_scratch_bytes(rows, m->width, threads));
  return mr_max_u64(most, kernel_sum_squares_scratch_bytes(parameter_count(m), threads));
}

struct data compute_data(const struct model *model, uint32_t threads, bool huge) {
  struct data d = {
      .model = *model, .rows = model->batch * model->seq, .adamw_count = parameter_count(model)};
  uint64_t width = model->width, slices = slice_count(model);
  d.block_rows = vocabulary_block_rows(model->vocab, d.rows, sizeof(float));
  const struct {
    float **floats;
    uint64_t count;
    double deviation;
  } wanted[COMPUTE_BUFFERS] = {
      {&d.weights, 4 * width * width, 0.02},
      {&d.weight_gradients, 4 * width * width, 1},
      {&d.wte, model->vocab * width, 0.02},
      {&d.dwte, model->vocab * width, 1},
      {&d.logits,
       slices * d.block_rows *
           kernel_head_stride(vocabulary_slice_words(model->vocab, model->width)),
       1},
      {&d.sums, slices * d.block_rows * KERNEL_HEAD_SUMS, 1},
      {&d.softmax, d.block_rows * KERNEL_HEAD_SOFTMAX, 1},
      {&d.wide, d.rows * 4 * width, 1},
      {&d.wide2, d.rows * 4 * width, 1},
      {&d.wide3, d.rows * 4 * width, 1},
      {&d.rows1, d.rows * width, 1},
      {&d.rows2, d.rows * width, 1},
      {&d.rows3, d.rows * width, 1},
      {&d.small, 8 * width, 1},
      {&d.lse, d.rows * (model->heads + 2), 1},
      {&d.p, d.adamw_count, 1},
      {&d.g, d.adamw_count, 1e-3},
      {&d.m, d.adamw_count, 1e-3},
      {&d.v, d.adamw_count, 0},
      {&d.scratch, scratch_bytes(model, threads) / sizeof(float), 1},
  };
  for (uint32_t i = 0; i < COMPUTE_BUFFERS; i++) {
    *wanted[i].floats = bench_floats(wanted[i].count, wanted[i].deviation, huge);
    d.buffers[i] = *wanted[i].floats;
    d.counts[i] = wanted[i].count;
  }
  d.tokens = mr_allocate(d.rows, sizeof *d.tokens);
  MR_ASSERT(d.tokens != NULL);
  struct mr_random random;
  mr_random_init(&random, 3);
  for (uint64_t i = 0; i < d.rows; i++) {
    d.tokens[i] = (int32_t)mr_random_below(&random, model->vocab);
  }
  return d;
}

void compute_data_free(struct data *d) {
  for (uint32_t i = 0; i < COMPUTE_BUFFERS; i++) {
    bench_free(d->buffers[i], d->counts[i]);
  }
  free(d->tokens);
}

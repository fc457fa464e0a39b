/* SPDX-License-Identifier: Apache-2.0 */
/* The ops of the CUDA device as a table of kernels. */
#include "tests/unit/cuda_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda_on_cpu/cuda_bf16.h"
#include "tests/unit/kernels_trial.h"
#include "train/cuda/cuda.h"

typedef __nv_bfloat16 bf16;

#define GUARD_BYTES 256u
#define GUARD       0xff

/* Buffers of the trial as the kernels see them: themselves in fp32, copies in bf16. */
static enum cuda_type type;

#define MOST_COPIES 12u
static struct copy {
  float *original;
  bf16 *typed;
  uint64_t count;
  bool written;
} copies[MOST_COPIES];
static uint32_t copy_count;

static unsigned char *take_guarded(uint64_t bytes) {
  unsigned char *data = trial_memory.take((bytes + GUARD_BYTES + 63) / 64 * 64);
  assert_non_null(data);
  memset(data, GUARD, bytes + GUARD_BYTES);
  return data;
}

static void give_guarded(unsigned char *data, uint64_t bytes) {
  for (uint64_t i = 0; i < GUARD_BYTES; i++) {
    assert_int_equal(data[bytes + i], GUARD);
  }
  trial_memory.give(data);
}

static void *typed(float *original, uint64_t count, bool written) {
  if (type == CUDA_F32 || original == NULL) {
    return original;
  }
  for (uint32_t i = 0; i < copy_count; i++) {
    if (copies[i].original == original) {
      copies[i].written |= written;
      return copies[i].typed;
    }
  }
  assert_true(copy_count < MOST_COPIES);
  bf16 *copy = (bf16 *)(void *)take_guarded(count * sizeof(bf16));
  for (uint64_t i = 0; i < count; i++) {
    copy[i] = __float2bfloat16_rn(original[i]);
  }
  copies[copy_count++] = (struct copy){original, copy, count, written};
  return copy;
}

static const void *in(const kernel_real *data, uint64_t count) {
  return typed((kernel_real *)(uintptr_t)data, count, false);
}

static void *out(kernel_real *data, uint64_t count) {
  return typed(data, count, true);
}

/* Ends an op: what it wrote goes back to the trial. */
static mr_status end(mr_status status) {
  for (uint32_t i = 0; i < copy_count; i++) {
    for (uint64_t k = 0; copies[i].written && k < copies[i].count; k++) {
      copies[i].original[k] = __bfloat162float(copies[i].typed[k]);
    }
    give_guarded((unsigned char *)copies[i].typed, copies[i].count * sizeof(bf16));
  }
  copy_count = 0;
  return status;
}

static mr_status embed(struct mr_team *team, const struct kernel_embed *op) {
  (void)team;
  uint64_t rows = op->batch * op->seq;
  const struct cuda_embed cuda = {.tokens = op->tokens,
                                  .wte = in(op->wte, op->vocab * op->width),
                                  .wpe = in(op->wpe, op->seq * op->width),
                                  .x = out(op->x, rows * op->width),
                                  .rows = (uint32_t)rows,
                                  .seq = (uint32_t)op->seq,
                                  .width = (uint32_t)op->width,
                                  .first_word = (uint32_t)op->first_word,
                                  .words = (uint32_t)op->vocab};
  return end(cuda_op_embed(cuda_table_queue(), type, &cuda));
}

static mr_status embed_backward(struct mr_team *team, const struct kernel_embed_backward *op,
                                void *scratch) {
  (void)team;
  (void)scratch;
  const struct cuda_op_embed_backward cuda = {.tokens = op->tokens,
                                              .dx = in(op->dx, op->batch * op->seq * op->width),
                                              .dwte = op->dwte,
                                              .dwpe = op->dwpe,
                                              .batch = (uint32_t)op->batch,
                                              .seq = (uint32_t)op->seq,
                                              .positions = (uint32_t)op->positions,
                                              .width = (uint32_t)op->width,
                                              .first_word = (uint32_t)op->first_word,
                                              .words = (uint32_t)op->vocab,
                                              .accumulate = op->accumulate};
  return end(cuda_op_embed_backward(cuda_table_queue(), type, &cuda));
}

static mr_status layernorm(struct mr_team *team, const struct kernel_layernorm *op) {
  (void)team;
  const struct cuda_layernorm cuda = {.x = in(op->x, op->rows * op->width),
                                      .gamma = in(op->gamma, op->width),
                                      .beta = in(op->beta, op->width),
                                      .y = out(op->y, op->rows * op->width),
                                      .mean = op->mean,
                                      .rstd = op->rstd,
                                      .rows = (uint32_t)op->rows,
                                      .width = (uint32_t)op->width};
  return end(cuda_op_layernorm(cuda_table_queue(), type, &cuda));
}

static mr_status layernorm_backward(struct mr_team *team,
                                    const struct kernel_layernorm_backward *op, void *scratch) {
  (void)team;
  (void)scratch;
  uint64_t bytes = cuda_layernorm_backward_scratch_bytes(op->rows, op->width);
  const struct cuda_op_layernorm_backward cuda = {.dy = in(op->dy, op->rows * op->width),
                                                  .x = in(op->x, op->rows * op->width),
                                                  .gamma = in(op->gamma, op->width),
                                                  .mean = op->mean,
                                                  .rstd = op->rstd,
                                                  .dx = out(op->dx, op->rows * op->width),
                                                  .dgamma = op->dgamma,
                                                  .dbeta = op->dbeta,
                                                  .scratch = take_guarded(bytes),
                                                  .rows = (uint32_t)op->rows,
                                                  .width = (uint32_t)op->width,
                                                  .accumulate_dx = op->accumulate_dx,
                                                  .accumulate = op->accumulate};
  mr_status status = cuda_op_layernorm_backward(cuda_table_queue(), type, &cuda);
  give_guarded(cuda.scratch, bytes);
  return end(status);
}

static mr_status linear(struct mr_team *team, const struct kernel_linear *op, void *scratch) {
  (void)team;
  (void)scratch;
  uint64_t bytes = cuda_linear_scratch_bytes(op->rows, op->in, op->out);
  const struct cuda_op_linear cuda = {.x = in(op->x, op->rows * op->in),
                                      .w = in(op->w, op->in * op->out),
                                      .bias = in(op->bias, op->out),
                                      .residual = in(op->residual, op->rows * op->out),
                                      .y = out(op->y, op->rows * op->out),
                                      .activated = out(op->activated, op->rows * op->out),
                                      .scratch = take_guarded(bytes),
                                      .rows = op->rows,
                                      .in = op->in,
                                      .out = op->out};
  mr_status status = cuda_op_linear(cuda_table_queue(), type, &cuda);
  give_guarded(cuda.scratch, bytes);
  return end(status);
}

static mr_status linear_backward(struct mr_team *team, const struct kernel_linear_backward *op,
                                 void *scratch) {
  (void)team;
  (void)scratch;
  uint64_t bytes = cuda_linear_backward_scratch_bytes(op->rows, op->in, op->out);
  const struct cuda_op_linear_backward cuda = {.dy = in(op->dy, op->rows * op->out),
                                               .x = in(op->x, op->rows * op->in),
                                               .w = in(op->w, op->in * op->out),
                                               .preactivation =
                                                   in(op->preactivation, op->rows * op->in),
                                               .dx = out(op->dx, op->rows * op->in),
                                               .dw = op->dw,
                                               .dbias = op->dbias,
                                               .scratch = take_guarded(bytes),
                                               .rows = op->rows,
                                               .in = op->in,
                                               .out = op->out,
                                               .accumulate_dx = op->accumulate_dx,
                                               .accumulate = op->accumulate};
  mr_status status = cuda_op_linear_backward(cuda_table_queue(), type, &cuda);
  give_guarded(cuda.scratch, bytes);
  return end(status);
}

static mr_status gelu(struct mr_team *team, const struct kernel_gelu *op) {
  (void)team;
  const struct cuda_gelu cuda = {
      .x = in(op->x, op->count), .activated = out(op->activated, op->count), .count = op->count};
  return end(cuda_op_gelu(cuda_table_queue(), type, &cuda));
}

static mr_status attention(struct mr_team *team, const struct kernel_attention *op, void *scratch) {
  (void)team;
  (void)scratch;
  uint64_t rows = op->batch * op->seq;
  const struct cuda_op_attention cuda = {.qkv = in(op->qkv, rows * 3 * op->width),
                                         .out = out(op->out, rows * op->width),
                                         .lse = op->lse,
                                         .batch = (uint32_t)op->batch,
                                         .seq = (uint32_t)op->seq,
                                         .width = (uint32_t)op->width,
                                         .heads = (uint32_t)op->heads};
  return end(cuda_op_attention(cuda_table_queue(), type, &cuda));
}

static mr_status attention_backward(struct mr_team *team,
                                    const struct kernel_attention_backward *op, void *scratch) {
  (void)team;
  (void)scratch;
  uint64_t bytes = cuda_attention_backward_scratch_bytes(op->batch, op->seq, op->heads);
  uint64_t rows = op->batch * op->seq;
  const struct cuda_op_attention_backward cuda = {.dout = in(op->dout, rows * op->width),
                                                  .qkv = in(op->qkv, rows * 3 * op->width),
                                                  .out = in(op->out, rows * op->width),
                                                  .lse = op->lse,
                                                  .dqkv = out(op->dqkv, rows * 3 * op->width),
                                                  .scratch = take_guarded(bytes),
                                                  .batch = (uint32_t)op->batch,
                                                  .seq = (uint32_t)op->seq,
                                                  .width = (uint32_t)op->width,
                                                  .heads = (uint32_t)op->heads};
  mr_status status = cuda_op_attention_backward(cuda_table_queue(), type, &cuda);
  give_guarded(cuda.scratch, bytes);
  return end(status);
}

static mr_status head_logits(struct mr_team *team, const struct kernel_head_logits *op,
                             void *scratch) {
  (void)team;
  (void)scratch;
  uint64_t bytes = cuda_head_logits_scratch_bytes(op->rows, op->vocab);
  const struct cuda_op_head_logits cuda = {.x = in(op->x, op->rows * op->width),
                                           .wte = in(op->wte, op->vocab * op->width),
                                           .targets = op->targets,
                                           .logits = out(op->logits, op->rows * op->stride),
                                           .sums = op->sums,
                                           .scratch = take_guarded(bytes),
                                           .rows = op->rows,
                                           .width = op->width,
                                           .first_word = op->first_word,
                                           .words = op->vocab,
                                           .stride = op->stride};
  mr_status status = cuda_op_head_logits(cuda_table_queue(), type, &cuda);
  give_guarded(cuda.scratch, bytes);
  return end(status);
}

static mr_status head_loss(struct mr_team *team, const struct kernel_head_loss *op, void *scratch) {
  (void)team;
  (void)scratch;
  uint64_t bytes = cuda_head_loss_scratch_bytes(op->rows);
  const struct cuda_op_head_loss cuda = {.sums = op->sums,
                                         .loss = op->loss,
                                         .softmax = op->softmax,
                                         .scratch = take_guarded(bytes),
                                         .rows = op->rows,
                                         .slices = (uint32_t)op->slices,
                                         .scale = op->scale,
                                         .accumulate = op->accumulate};
  mr_status status = cuda_op_head_loss(cuda_table_queue(), &cuda);
  give_guarded(cuda.scratch, bytes);
  return end(status);
}

static mr_status head_gradient(struct mr_team *team, const struct kernel_head_gradient *op,
                               void *scratch) {
  (void)team;
  (void)scratch;
  uint64_t bytes = cuda_head_gradient_scratch_bytes(op->rows, op->vocab, op->width);
  const struct cuda_op_head_gradient cuda = {.x = in(op->x, op->rows * op->width),
                                             .wte = in(op->wte, op->vocab * op->width),
                                             .targets = op->targets,
                                             .softmax = op->softmax,
                                             .logits = out(op->logits, op->rows * op->stride),
                                             .dx = out(op->dx, op->rows * op->width),
                                             .dwte = op->dwte,
                                             .scratch = take_guarded(bytes),
                                             .rows = op->rows,
                                             .width = op->width,
                                             .first_word = op->first_word,
                                             .words = op->vocab,
                                             .stride = op->stride,
                                             .scale = op->scale,
                                             .accumulate_dx = op->accumulate_dx,
                                             .accumulate = op->accumulate};
  mr_status status = cuda_op_head_gradient(cuda_table_queue(), type, &cuda);
  give_guarded(cuda.scratch, bytes);
  return end(status);
}

static mr_status sum_squares(struct mr_team *team, const struct kernel_sum_squares *op,
                             void *scratch) {
  (void)team;
  (void)scratch;
  uint64_t bytes = cuda_sum_squares_scratch_bytes(op->count);
  const struct cuda_op_sum_squares cuda = {
      .g = op->g, .out = op->out, .scratch = take_guarded(bytes), .count = op->count};
  mr_status status = cuda_op_sum_squares(cuda_table_queue(), &cuda);
  give_guarded(cuda.scratch, bytes);
  return end(status);
}

static mr_status adamw(struct mr_team *team, const struct kernel_adamw *op) {
  (void)team;
  const float values[3] = {op->lr, op->correction1, op->correction2};
  float *scalars = memcpy(take_guarded(sizeof values), values, sizeof values);
  uint64_t bytes = op->count * sizeof(bf16);
  bf16 *copy = type == CUDA_F32 ? NULL : (bf16 *)(void *)take_guarded(bytes);
  const struct cuda_adamw cuda = {.p = op->p,
                                  .m = op->m,
                                  .v = op->v,
                                  .g = op->g,
                                  .copy = copy,
                                  .scalars = scalars,
                                  .scale = op->grad_scale,
                                  .count = op->count,
                                  .beta1 = op->beta1,
                                  .beta2 = op->beta2,
                                  .eps = op->eps,
                                  .weight_decay = op->weight_decay};
  mr_status status = cuda_op_adamw(cuda_table_queue(), type, &cuda);
  give_guarded((unsigned char *)scalars, sizeof values);
  for (uint64_t i = 0; copy != NULL && i < op->count; i++) {
    assert_int_equal(copy[i].bits, __float2bfloat16_rn(op->p[i]).bits);
  }
  if (copy != NULL) {
    give_guarded((unsigned char *)copy, bytes);
  }
  return status;
}

static const struct kernel_table table = {
    .name = "cuda",
    .embed = embed,
    .embed_backward = embed_backward,
    .layernorm = layernorm,
    .layernorm_backward = layernorm_backward,
    .linear = linear,
    .linear_backward = linear_backward,
    .gelu = gelu,
    .attention = attention,
    .attention_backward = attention_backward,
    .head_logits = head_logits,
    .head_loss = head_loss,
    .head_gradient = head_gradient,
    .sum_squares = sum_squares,
    .adamw = adamw,
};

const struct kernel_table *cuda_table(enum cuda_type elements) {
  type = elements;
  return &table;
}

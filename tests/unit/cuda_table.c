/* SPDX-License-Identifier: Apache-2.0 */
/* The ops of the CUDA device as a table of kernels. */
#include "tests/unit/cuda_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/kernels_trial.h"
#include "train/cuda/cuda.h"

#define GUARD_BYTES 256u
#define GUARD       0xff

/* Scratch begins at a multiple of 64 bytes, and of no more. */
static unsigned char *take_guarded(uint64_t bytes) {
  unsigned char *data = trial_memory.take((bytes + GUARD_BYTES + 127) / 64 * 64);
  assert_non_null(data);
  data += 64;
  memset(data, GUARD, bytes + GUARD_BYTES);
  return data;
}

static void give_guarded(unsigned char *data, uint64_t bytes) {
  for (uint64_t i = 0; i < GUARD_BYTES; i++) {
    assert_int_equal(data[bytes + i], GUARD);
  }
  trial_memory.give(data - 64);
}

static mr_status embed(struct mr_team *team, const struct kernel_embed *op) {
  (void)team;
  uint64_t rows = op->batch * op->seq;
  const struct cuda_embed cuda = {.tokens = op->tokens,
                                  .wte = op->wte,
                                  .wpe = op->wpe,
                                  .x = op->x,
                                  .rows = (uint32_t)rows,
                                  .seq = (uint32_t)op->seq,
                                  .width = (uint32_t)op->width,
                                  .first_word = (uint32_t)op->first_word,
                                  .words = (uint32_t)op->vocab};
  return cuda_op_embed(cuda_table_queue(), cuda_type_of(op->dtype), &cuda);
}

static mr_status embed_backward(struct mr_team *team, const struct kernel_embed_backward *op,
                                void *scratch) {
  (void)team;
  (void)scratch;
  const struct cuda_op_embed_backward cuda = {.tokens = op->tokens,
                                              .dx = op->dx,
                                              .dwte = op->dwte,
                                              .dwpe = op->dwpe,
                                              .batch = (uint32_t)op->batch,
                                              .seq = (uint32_t)op->seq,
                                              .positions = (uint32_t)op->positions,
                                              .width = (uint32_t)op->width,
                                              .first_word = (uint32_t)op->first_word,
                                              .words = (uint32_t)op->vocab,
                                              .accumulate = op->accumulate};
  return cuda_op_embed_backward(cuda_table_queue(), cuda_type_of(op->dtype), &cuda);
}

static mr_status layernorm(struct mr_team *team, const struct kernel_layernorm *op) {
  (void)team;
  const struct cuda_layernorm cuda = {.x = op->x,
                                      .gamma = op->gamma,
                                      .beta = op->beta,
                                      .y = op->y,
                                      .mean = op->mean,
                                      .rstd = op->rstd,
                                      .rows = (uint32_t)op->rows,
                                      .width = (uint32_t)op->width};
  return cuda_op_layernorm(cuda_table_queue(), cuda_type_of(op->dtype), &cuda);
}

static mr_status layernorm_backward(struct mr_team *team,
                                    const struct kernel_layernorm_backward *op, void *scratch) {
  (void)team;
  (void)scratch;
  uint64_t bytes = cuda_layernorm_backward_scratch_bytes(op->rows, op->width);
  const struct cuda_op_layernorm_backward cuda = {.dy = op->dy,
                                                  .x = op->x,
                                                  .gamma = op->gamma,
                                                  .mean = op->mean,
                                                  .rstd = op->rstd,
                                                  .dx = op->dx,
                                                  .dgamma = op->dgamma,
                                                  .dbeta = op->dbeta,
                                                  .scratch = take_guarded(bytes),
                                                  .rows = (uint32_t)op->rows,
                                                  .width = (uint32_t)op->width,
                                                  .accumulate_dx = op->accumulate_dx,
                                                  .accumulate = op->accumulate};
  mr_status status = cuda_op_layernorm_backward(cuda_table_queue(), cuda_type_of(op->dtype), &cuda);
  give_guarded(cuda.scratch, bytes);
  return status;
}

static mr_status linear(struct mr_team *team, const struct kernel_linear *op, void *scratch) {
  (void)team;
  (void)scratch;
  uint64_t bytes = cuda_linear_scratch_bytes(op->rows, op->in, op->out);
  const struct cuda_op_linear cuda = {.x = op->x,
                                      .w = op->w,
                                      .bias = op->bias,
                                      .residual = op->residual,
                                      .y = op->y,
                                      .activated = op->activated,
                                      .scratch = take_guarded(bytes),
                                      .rows = op->rows,
                                      .in = op->in,
                                      .out = op->out};
  mr_status status = cuda_op_linear(cuda_table_queue(), cuda_type_of(op->dtype), &cuda);
  give_guarded(cuda.scratch, bytes);
  return status;
}

static mr_status linear_backward(struct mr_team *team, const struct kernel_linear_backward *op,
                                 void *scratch) {
  (void)team;
  (void)scratch;
  uint64_t bytes =
      cuda_linear_backward_scratch_bytes(cuda_type_of(op->dtype), op->rows, op->in, op->out);
  const struct cuda_op_linear_backward cuda = {.dy = op->dy,
                                               .x = op->x,
                                               .w = op->w,
                                               .preactivation = op->preactivation,
                                               .dx = op->dx,
                                               .dw = op->dw,
                                               .dbias = op->dbias,
                                               .scratch = take_guarded(bytes),
                                               .rows = op->rows,
                                               .in = op->in,
                                               .out = op->out,
                                               .accumulate_dx = op->accumulate_dx,
                                               .accumulate = op->accumulate};
  mr_status status = cuda_op_linear_backward(cuda_table_queue(), cuda_type_of(op->dtype), &cuda);
  give_guarded(cuda.scratch, bytes);
  return status;
}

static mr_status gelu(struct mr_team *team, const struct kernel_gelu *op) {
  (void)team;
  const struct cuda_gelu cuda = {.x = op->x, .activated = op->activated, .count = op->count};
  return cuda_op_gelu(cuda_table_queue(), cuda_type_of(op->dtype), &cuda);
}

static mr_status attention(struct mr_team *team, const struct kernel_attention *op, void *scratch) {
  (void)team;
  (void)scratch;
  const struct cuda_op_attention cuda = {.qkv = op->qkv,
                                         .out = op->out,
                                         .lse = op->lse,
                                         .batch = (uint32_t)op->batch,
                                         .seq = (uint32_t)op->seq,
                                         .width = (uint32_t)op->width,
                                         .heads = (uint32_t)op->heads};
  return cuda_op_attention(cuda_table_queue(), cuda_type_of(op->dtype), &cuda);
}

static mr_status attention_backward(struct mr_team *team,
                                    const struct kernel_attention_backward *op, void *scratch) {
  (void)team;
  (void)scratch;
  uint64_t bytes = cuda_attention_backward_scratch_bytes(op->batch, op->seq, op->heads);
  const struct cuda_op_attention_backward cuda = {.dout = op->dout,
                                                  .qkv = op->qkv,
                                                  .out = op->out,
                                                  .lse = op->lse,
                                                  .dqkv = op->dqkv,
                                                  .scratch = take_guarded(bytes),
                                                  .batch = (uint32_t)op->batch,
                                                  .seq = (uint32_t)op->seq,
                                                  .width = (uint32_t)op->width,
                                                  .heads = (uint32_t)op->heads};
  mr_status status = cuda_op_attention_backward(cuda_table_queue(), cuda_type_of(op->dtype), &cuda);
  give_guarded(cuda.scratch, bytes);
  return status;
}

static mr_status head_logits(struct mr_team *team, const struct kernel_head_logits *op,
                             void *scratch) {
  (void)team;
  (void)scratch;
  uint64_t bytes = cuda_head_logits_scratch_bytes(op->rows, op->vocab);
  const struct cuda_op_head_logits cuda = {.x = op->x,
                                           .wte = op->wte,
                                           .targets = op->targets,
                                           .logits = op->logits,
                                           .sums = op->sums,
                                           .scratch = take_guarded(bytes),
                                           .rows = op->rows,
                                           .width = op->width,
                                           .first_word = op->first_word,
                                           .words = op->vocab,
                                           .stride = op->stride};
  mr_status status = cuda_op_head_logits(cuda_table_queue(), cuda_type_of(op->dtype), &cuda);
  give_guarded(cuda.scratch, bytes);
  return status;
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
  return status;
}

static mr_status head_gradient(struct mr_team *team, const struct kernel_head_gradient *op,
                               void *scratch) {
  (void)team;
  (void)scratch;
  uint64_t bytes = cuda_head_gradient_scratch_bytes(op->rows, op->vocab, op->width);
  const struct cuda_op_head_gradient cuda = {.x = op->x,
                                             .wte = op->wte,
                                             .targets = op->targets,
                                             .softmax = op->softmax,
                                             .logits = op->logits,
                                             .dx = op->dx,
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
  mr_status status = cuda_op_head_gradient(cuda_table_queue(), cuda_type_of(op->dtype), &cuda);
  give_guarded(cuda.scratch, bytes);
  return status;
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
  return status;
}

static mr_status adamw(struct mr_team *team, const struct kernel_adamw *op) {
  (void)team;
  const float values[3] = {op->lr, op->correction1, op->correction2};
  float *scalars = memcpy(take_guarded(sizeof values), values, sizeof values);
  const struct cuda_adamw cuda = {.p = op->p,
                                  .m = op->m,
                                  .v = op->v,
                                  .g = op->g,
                                  .copy = op->working,
                                  .scalars = scalars,
                                  .scale = op->grad_scale,
                                  .count = op->count,
                                  .beta1 = op->beta1,
                                  .beta2 = op->beta2,
                                  .eps = op->eps,
                                  .weight_decay = op->weight_decay};
  enum cuda_type type = op->working != NULL ? CUDA_BF16 : CUDA_F32;
  mr_status status = cuda_op_adamw(cuda_table_queue(), type, &cuda);
  give_guarded((unsigned char *)scalars, sizeof values);
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

const struct kernel_table *cuda_table(void) {
  return &table;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The head with its loss, slice by slice of the vocabulary: products, and kernels over rows. */
#include "train/cuda/cuda.h"

uint64_t cuda_head_logits_scratch_bytes(uint64_t rows, uint64_t words) {
  return cuda_product_workspace_bytes(rows, words);
}

/*
 * Products over a slice's words are made in two parts where the words are no whole eights, as
 * GPT-2's 50257 are not: cuBLASLt has its fast algorithms for sizes of whole 16 bytes alone, and on
 * an H200 took 10 to 30 times as long for a slice with a word more.
 */
#define WORD_UNIT 8u

struct words {
  uint64_t first, count;
};

/* The whole eights, or the rest of them; of fp32, or of fewer words than eight, all are whole. */
static struct words whole_words(enum cuda_type type, uint64_t words) {
  bool all = type == CUDA_F32 || words < WORD_UNIT;
  return (struct words){0, all ? words : words / WORD_UNIT * WORD_UNIT};
}

static struct words rest_of_words(enum cuda_type type, uint64_t words) {
  struct words whole = whole_words(type, words);
  return (struct words){whole.count, words - whole.count};
}

static uint64_t element_bytes(enum cuda_type type) {
  return type == CUDA_F32 ? sizeof(float) : sizeof(uint16_t);
}

static mr_status multiply_logits(const struct cuda_queue *queue, enum cuda_type type,
                                 const struct cuda_op_head_logits *op, struct words words) {
  if (words.count == 0) {
    return MR_OK;
  }
  uint64_t bytes = element_bytes(type);
  const struct cuda_product product = {.a = op->x,
                                       .b = (const char *)op->wte + words.first * op->width * bytes,
                                       .out = (char *)op->logits + words.first * bytes,
                                       .rows = op->rows,
                                       .columns = words.count,
                                       .inner = op->width,
                                       .out_stride = op->stride,
                                       .type = type,
                                       .b_transposed = true,
                                       .workspace = op->scratch,
                                       .workspace_bytes =
                                           cuda_product_workspace_bytes(op->rows, words.count)};
  return queue->multiply(queue->context, &product);
}

mr_status cuda_op_head_logits(const struct cuda_queue *queue, enum cuda_type type,
                              const struct cuda_op_head_logits *op) {
  mr_status status = multiply_logits(queue, type, op, whole_words(type, op->words));
  if (status == MR_OK) {
    status = multiply_logits(queue, type, op, rest_of_words(type, op->words));
  }
  if (status != MR_OK) {
    return status;
  }
  const struct cuda_head_sums sums = {.logits = op->logits,
                                      .targets = op->targets,
                                      .sums = op->sums,
                                      .words = (uint32_t)op->words,
                                      .first_word = (uint32_t)op->first_word,
                                      .stride = (uint32_t)op->stride};
  return cuda_launch_row(queue, CUDA_TYPED("cuda_head_sums", type), op->rows, &sums, sizeof sums);
}

static uint64_t loss_blocks(uint64_t rows) {
  return cuda_divide_up(rows, CUDA_THREADS);
}

uint64_t cuda_head_loss_scratch_bytes(uint64_t rows) {
  return loss_blocks(rows) * sizeof(double);
}

mr_status cuda_op_head_loss(const struct cuda_queue *queue, const struct cuda_op_head_loss *op) {
  struct cuda_head_loss rows = {.partial = op->scratch,
                                .softmax = op->softmax,
                                .rows = op->rows,
                                .slices = op->slices,
                                .scale = op->scale};
  for (uint32_t k = 0; k < op->slices; k++) {
    rows.sums[k] = op->sums[k];
  }
  uint64_t blocks = loss_blocks(op->rows);
  mr_status status = cuda_launch_row(queue, "cuda_head_loss", blocks, &rows, sizeof rows);
  if (status != MR_OK) {
    return status;
  }
  const struct cuda_total total = {.partial = op->scratch,
                                   .out = op->loss,
                                   .scale = op->scale,
                                   .count = (uint32_t)blocks,
                                   .accumulate = op->accumulate};
  return cuda_launch_row(queue, "cuda_total", 1, &total, sizeof total);
}

uint64_t cuda_head_gradient_scratch_bytes(uint64_t rows, uint64_t words, uint64_t width) {
  uint64_t input = cuda_product_workspace_bytes(rows, width);
  uint64_t weights = cuda_product_workspace_bytes(words, width);
  return input > weights ? input : weights;
}

static mr_status input_gradient(const struct cuda_queue *queue, enum cuda_type type,
                                const struct cuda_op_head_gradient *op, struct words words,
                                bool accumulate) {
  if (words.count == 0) {
    return MR_OK;
  }
  uint64_t bytes = element_bytes(type);
  const struct cuda_product product = {.a = (const char *)op->logits + words.first * bytes,
                                       .b = (const char *)op->wte + words.first * op->width * bytes,
                                       .added = accumulate ? op->dx : NULL,
                                       .out = op->dx,
                                       .rows = op->rows,
                                       .columns = op->width,
                                       .inner = words.count,
                                       .a_stride = op->stride,
                                       .type = type,
                                       .workspace = op->scratch,
                                       .workspace_bytes =
                                           cuda_product_workspace_bytes(op->rows, op->width)};
  return queue->multiply(queue->context, &product);
}

static mr_status weight_gradient(const struct cuda_queue *queue, enum cuda_type type,
                                 const struct cuda_op_head_gradient *op, struct words words) {
  if (words.count == 0) {
    return MR_OK;
  }
  float *dwte = op->dwte + words.first * op->width;
  const struct cuda_product product = {
      .a = (const char *)op->logits + words.first * element_bytes(type),
      .b = op->x,
      .added = op->accumulate ? dwte : NULL,
      .out = dwte,
      .rows = words.count,
      .columns = op->width,
      .inner = op->rows,
      .a_stride = op->stride,
      .type = type,
      .a_transposed = true,
      .out_f32 = true,
      .workspace = op->scratch,
      .workspace_bytes = cuda_product_workspace_bytes(words.count, op->width)};
  return queue->multiply(queue->context, &product);
}

mr_status cuda_op_head_gradient(const struct cuda_queue *queue, enum cuda_type type,
                                const struct cuda_op_head_gradient *op) {
  const struct cuda_head_gradient rows = {.softmax = op->softmax,
                                          .targets = op->targets,
                                          .logits = op->logits,
                                          .words = (uint32_t)op->words,
                                          .first_word = (uint32_t)op->first_word,
                                          .stride = (uint32_t)op->stride,
                                          .scale = (float)op->scale};
  mr_status status =
      cuda_launch_row(queue, CUDA_TYPED("cuda_head_gradient", type), op->rows, &rows, sizeof rows);
  const struct words whole = whole_words(type, op->words), rest = rest_of_words(type, op->words);
  if (status == MR_OK) {
    status = input_gradient(queue, type, op, whole, op->accumulate_dx);
  }
  if (status == MR_OK) {
    status = input_gradient(queue, type, op, rest, true);
  }
  if (status == MR_OK) {
    status = weight_gradient(queue, type, op, whole);
  }
  if (status == MR_OK) {
    status = weight_gradient(queue, type, op, rest);
  }
  return status;
}

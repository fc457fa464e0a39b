/* SPDX-License-Identifier: Apache-2.0 */
/* Attention: which of the kernels a head takes, and what they need. */
#include "train/cuda/cuda.h"

#include <math.h>

enum { HEAD_64 = 0, HEAD_128 = 1, HEAD_256 = 2, HEAD_COUNT = 3 };

/* One kernel for each type and head. */
#define HEAD_NAMES(name)                                                                           \
  {                                                                                                \
    {name "_64_f32", name "_128_f32", name "_256_f32"}, {                                          \
      name "_64_bf16", name "_128_bf16", name "_256_bf16"                                          \
    }                                                                                              \
  }

static const struct head_kernel {
  const char *names[2][HEAD_COUNT];
  uint32_t tiles; /* of rows in shared memory, beside one of weights */
} forward = {HEAD_NAMES("cuda_attention"), 2}, queries = {HEAD_NAMES("cuda_attention_queries"), 4},
  keys = {HEAD_NAMES("cuda_attention_keys"), 4};

static const struct head_size {
  uint32_t columns, tile;
} head_sizes[HEAD_COUNT] = {{64, 64}, {128, 64}, {256, 32}};

struct attention_shape {
  uint32_t batch, seq, heads, head_width;
};

static uint32_t head_index(uint32_t head_width) {
  return head_width <= 64 ? HEAD_64 : head_width <= 128 ? HEAD_128 : HEAD_256;
}

static mr_status launch_tiles(const struct cuda_queue *queue, enum cuda_type type,
                              const struct head_kernel *kernel, const struct attention_shape *shape,
                              const struct cuda_launch *arguments) {
  uint32_t index = head_index(shape->head_width);
  struct head_size size = head_sizes[index];
  uint32_t floats = kernel->tiles * size.tile * (size.columns + 4) + size.tile * (size.tile + 4);
  struct cuda_launch launch = *arguments;
  launch.kernel = kernel->names[type][index];
  launch.grid[0] = (uint32_t)cuda_divide_up(shape->seq, size.tile);
  launch.grid[1] = shape->heads;
  launch.grid[2] = shape->batch;
  launch.block[0] = CUDA_THREADS;
  launch.block[1] = launch.block[2] = 1;
  launch.shared_bytes = floats * (uint32_t)sizeof(float);
  return queue->launch(queue->context, &launch);
}

static float score_scale(uint32_t head_width) {
  return (float)(1 / sqrt((double)head_width));
}

mr_status cuda_op_attention(const struct cuda_queue *queue, enum cuda_type type,
                            const struct cuda_op_attention *op) {
  const struct attention_shape shape = {op->batch, op->seq, op->heads, op->width / op->heads};
  const struct cuda_attention arguments = {.qkv = op->qkv,
                                           .out = op->out,
                                           .lse = op->lse,
                                           .batch = op->batch,
                                           .seq = op->seq,
                                           .width = op->width,
                                           .heads = op->heads,
                                           .scale = score_scale(shape.head_width)};
  const struct cuda_launch launch = {.arguments = &arguments, .arguments_bytes = sizeof arguments};
  return launch_tiles(queue, type, &forward, &shape, &launch);
}

uint64_t cuda_attention_backward_scratch_bytes(uint64_t batch, uint64_t seq, uint64_t heads) {
  return batch * heads * seq * sizeof(float);
}

mr_status cuda_op_attention_backward(const struct cuda_queue *queue, enum cuda_type type,
                                     const struct cuda_op_attention_backward *op) {
  const struct attention_shape shape = {op->batch, op->seq, op->heads, op->width / op->heads};
  const struct cuda_attention_delta delta = {.dout = op->dout,
                                             .out = op->out,
                                             .delta = op->scratch,
                                             .batch = op->batch,
                                             .seq = op->seq,
                                             .width = op->width,
                                             .heads = op->heads};
  uint64_t warps = (uint64_t)op->batch * op->seq * op->heads;
  mr_status status =
      cuda_launch_row(queue, CUDA_TYPED("cuda_attention_delta", type),
                      cuda_divide_up(warps, CUDA_THREADS / CUDA_WARP), &delta, sizeof delta);
  const struct cuda_attention_backward arguments = {.qkv = op->qkv,
                                                    .dout = op->dout,
                                                    .lse = op->lse,
                                                    .delta = op->scratch,
                                                    .dqkv = op->dqkv,
                                                    .batch = op->batch,
                                                    .seq = op->seq,
                                                    .width = op->width,
                                                    .heads = op->heads,
                                                    .scale = score_scale(shape.head_width)};
  const struct cuda_launch launch = {.arguments = &arguments, .arguments_bytes = sizeof arguments};
  if (status == MR_OK) {
    status = launch_tiles(queue, type, &queries, &shape, &launch);
  }
  if (status == MR_OK) {
    status = launch_tiles(queue, type, &keys, &shape, &launch);
  }
  return status;
}

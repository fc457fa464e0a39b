/* SPDX-License-Identifier: Apache-2.0 */
/* Attention: which of the kernels a head takes, and what they need. */
#include "train/cuda/cuda.h"

#include <math.h>

/* The passes: queries and keys are those of the backward. */
enum pass { FORWARD = 0, QUERIES = 1, KEYS = 2 };

struct attention_shape {
  uint32_t batch, seq, heads, head_width;
};

/* How a pass is carried out. */
struct cut {
  const char *kernel;
  uint32_t rows; /* of queries or keys that a block owns */
  uint32_t threads, shared_bytes;
};

/* The kernels of heads of up to so many columns, for each type. */
enum { HEAD_64 = 0, HEAD_128 = 1, HEAD_256 = 2, HEAD_COUNT = 3 };
#define HEAD_NAMES(name)                                                                           \
  {                                                                                                \
    {name "_64_f32", name "_128_f32", name "_256_f32"}, {                                          \
      name "_64_bf16", name "_128_bf16", name "_256_bf16"                                          \
    }                                                                                              \
  }

static struct cut cut_plainly(enum cuda_type type, enum pass pass, uint32_t head_width) {
  static const char *const names[][2][HEAD_COUNT] = {[FORWARD] = HEAD_NAMES("cuda_attention"),
                                                     [QUERIES] =
                                                         HEAD_NAMES("cuda_attention_queries"),
                                                     [KEYS] = HEAD_NAMES("cuda_attention_keys")};
  static const struct head_size {
    uint32_t columns, tile;
  } sizes[HEAD_COUNT] = {{64, 64}, {128, 64}, {256, 32}};
  uint32_t index = head_width <= 64 ? HEAD_64 : head_width <= 128 ? HEAD_128 : HEAD_256;
  struct head_size size = sizes[index];
  /* Tiles of rows beside one of weights. */
  uint32_t tiles = pass == FORWARD ? 2 : 4;
  uint32_t floats = tiles * size.tile * (size.columns + 4) + size.tile * (size.tile + 4);
  return (struct cut){.kernel = names[pass][type][index],
                      .rows = size.tile,
                      .threads = CUDA_THREADS,
                      .shared_bytes = floats * (uint32_t)sizeof(float)};
}

/* Rows of bf16 are copied and multiplied in chunks of 16 bytes. */
static bool suits_tensor_cores(enum cuda_type type, uint32_t head_width) {
  return type == CUDA_BF16 && head_width % 8 == 0 && head_width <= 128;
}

static struct cut cut_for_tensor_cores(enum pass pass, uint32_t head_width) {
  static const struct tensor_kernel {
    const char *name;
    uint32_t columns, own, tile; /* rows of a block, and of a tile of what it goes through */
  } kernels[][2] = {[FORWARD] = {{"cuda_attention_tensor_64", 64, 128, 64},
                                 {"cuda_attention_tensor_128", 128, 64, 64}},
                    [QUERIES] = {{"cuda_attention_queries_tensor_64", 64, 128, 64},
                                 {"cuda_attention_queries_tensor_128", 128, 64, 64}},
                    [KEYS] = {{"cuda_attention_keys_tensor_64", 64, 64, 64},
                              {"cuda_attention_keys_tensor_128", 128, 64, 32}}};
  struct tensor_kernel kernel = kernels[pass][head_width <= 64 ? 0 : 1];
  /* Two tiles for each of two stages; with queries come two statistics of each. */
  uint32_t rows = (pass == FORWARD ? 1 : 2) * kernel.own + 4 * kernel.tile;
  uint32_t statistics = pass == KEYS ? 4 * kernel.tile : 0;
  return (struct cut){.kernel = kernel.name,
                      .rows = kernel.own,
                      .threads = CUDA_TENSOR_THREADS,
                      .shared_bytes = rows * kernel.columns * (uint32_t)sizeof(uint16_t) +
                                      statistics * (uint32_t)sizeof(float)};
}

static mr_status launch_pass(const struct cuda_queue *queue, enum cuda_type type, enum pass pass,
                             const struct attention_shape *shape,
                             const struct cuda_launch *arguments) {
  struct cut cut = suits_tensor_cores(type, shape->head_width)
                       ? cut_for_tensor_cores(pass, shape->head_width)
                       : cut_plainly(type, pass, shape->head_width);
  struct cuda_launch launch = *arguments;
  launch.kernel = cut.kernel;
  launch.grid[0] = (uint32_t)cuda_divide_up(shape->seq, cut.rows);
  launch.grid[1] = shape->heads;
  launch.grid[2] = shape->batch;
  launch.block[0] = cut.threads;
  launch.block[1] = launch.block[2] = 1;
  launch.shared_bytes = cut.shared_bytes;
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
  return launch_pass(queue, type, FORWARD, &shape, &launch);
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
    status = launch_pass(queue, type, QUERIES, &shape, &launch);
  }
  if (status == MR_OK) {
    status = launch_pass(queue, type, KEYS, &shape, &launch);
  }
  return status;
}

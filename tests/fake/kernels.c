/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's kernels in the fake driver: their own sources, a fiber for each thread of a block
 * (tests/cuda_on_cpu.h), one launch at a time. The references for the cpu would be quicker, but
 * then whole runs would say nothing of what a device runs; that the two agree is
 * unit/cuda_kernels'. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda_on_cpu.h"
#include "tests/fake/state.h"
#include "train/cuda/arguments.h"

/* X(kernel, its arguments) */
#define TYPED(X, kernel, arguments) X(kernel##_f32, arguments) X(kernel##_bf16, arguments)
#define HEADS(X, kernel, arguments)                                                                \
  TYPED(X, kernel##_64, arguments)                                                                 \
  TYPED(X, kernel##_128, arguments)                                                                \
  TYPED(X, kernel##_256, arguments)
#define TENSOR(X, kernel, arguments) X(kernel##_64, arguments) X(kernel##_128, arguments)
#define TRAIN_KERNELS(X)                                                                           \
  TYPED(X, cuda_embed, cuda_embed)                                                                 \
  TYPED(X, cuda_embed_tokens, cuda_embed_tokens)                                                   \
  TYPED(X, cuda_embed_positions, cuda_embed_positions)                                             \
  TYPED(X, cuda_layernorm, cuda_layernorm)                                                         \
  TYPED(X, cuda_layernorm_backward, cuda_layernorm_backward)                                       \
  TYPED(X, cuda_column_sums, cuda_column_sums)                                                     \
  TYPED(X, cuda_gelu, cuda_gelu)                                                                   \
  TYPED(X, cuda_gelu_backward, cuda_gelu_backward)                                                 \
  X(cuda_sum_squares, cuda_sum_squares)                                                            \
  X(cuda_total, cuda_total)                                                                        \
  X(cuda_norm, cuda_norm)                                                                          \
  X(cuda_rates, cuda_rates)                                                                        \
  TYPED(X, cuda_adamw, cuda_adamw)                                                                 \
  TYPED(X, cuda_head_sums, cuda_head_sums)                                                         \
  X(cuda_head_loss, cuda_head_loss)                                                                \
  TYPED(X, cuda_head_gradient, cuda_head_gradient)                                                 \
  HEADS(X, cuda_attention, cuda_attention)                                                         \
  TENSOR(X, cuda_attention_tensor, cuda_attention)                                                 \
  TYPED(X, cuda_attention_delta, cuda_attention_delta)                                             \
  HEADS(X, cuda_attention_queries, cuda_attention_backward)                                        \
  HEADS(X, cuda_attention_keys, cuda_attention_backward)                                           \
  TENSOR(X, cuda_attention_queries_tensor, cuda_attention_backward)                                \
  TENSOR(X, cuda_attention_keys_tensor, cuda_attention_backward)

/* A kernel may use all of the shared memory here; the trials of kernels hold it to what it asked
 * for. */
static void run(struct cuda_on_cpu_launch launch, const uint32_t grid[3], const uint32_t block[3]) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  memcpy(launch.grid, grid, sizeof launch.grid);
  memcpy(launch.block, block, sizeof launch.block);
  launch.shared_bytes = FAKE_MAX_SHARED;
  launch.seed = fake_seed();
  pthread_mutex_lock(&lock);
  const char *fault = cuda_on_cpu_run(&launch);
  pthread_mutex_unlock(&lock);
  if (fault != NULL) {
    fprintf(stderr, "fake driver: %s: %s\n", launch.kernel, fault);
    abort();
  }
}

#define RUN(name, struct_name)                                                                     \
  static void run_##name(const uint32_t grid[3], const uint32_t block[3], const void *argument) {  \
    run((struct cuda_on_cpu_launch){.kernel = #name,                                               \
                                    .arguments = argument,                                         \
                                    .arguments_bytes = sizeof(struct struct_name)},                \
        grid, block);                                                                              \
  }
TRAIN_KERNELS(RUN)
#undef RUN

#define ROW(name, struct_name) {#name, sizeof(struct struct_name), run_##name},
static const struct fake_kernel kernels[] = {TRAIN_KERNELS(ROW)};
#undef ROW
const struct fake_kernel_table fake_train_kernels = {kernels, MR_COUNT_OF(kernels)};

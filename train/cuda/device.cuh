/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all kernels share: elements of either type in packs of up to 16 bytes, and sums over a warp.
 * Arithmetic is fp32 whatever the elements are. Sums have a fixed order, so that results are the
 * same bits on every run: no kernel adds with atomics, and grids follow from shapes alone.
 */
#ifndef MEMRUN_TRAIN_CUDA_DEVICE_CUH
#define MEMRUN_TRAIN_CUDA_DEVICE_CUH

#include <cuda_bf16.h>
#include <stdint.h>

#include "train/cuda/arguments.h"

#define WARP   32u
#define LOG2_E 1.44269504088896340736f

typedef __nv_bfloat16 bf16;

__device__ inline float to_float(float value) {
  return value;
}

__device__ inline float to_float(bf16 value) {
  return __bfloat162float(value);
}

template <typename T> __device__ inline T from_float(float value);

template <> __device__ inline float from_float<float>(float value) {
  return value;
}

template <> __device__ inline bf16 from_float<bf16>(float value) {
  return __float2bfloat16_rn(value);
}

/* What is no number stays so. */
__device__ inline float at_most_0(float value) {
  return value > 0 ? 0 : value;
}

/* N elements that one instruction loads or stores. */
template <typename T, int N> struct alignas(sizeof(T) * N) pack { T at[N]; };

/* The elements of T in 16 bytes. */
template <typename T> constexpr int wide = 16 / sizeof(T);

template <int N, typename T> __device__ inline void load(float (&to)[N], const T *from) {
  const pack<T, N> read = *reinterpret_cast<const pack<T, N> *>(from);
#pragma unroll
  for (int i = 0; i < N; i++) {
    to[i] = to_float(read.at[i]);
  }
}

template <int N, typename T> __device__ inline void store(T *to, const float (&from)[N]) {
  pack<T, N> written;
#pragma unroll
  for (int i = 0; i < N; i++) {
    written.at[i] = from_float<T>(from[i]);
  }
  *reinterpret_cast<pack<T, N> *>(to) = written;
}

template <int N, typename T> __device__ inline bool aligned(const T *address) {
  return reinterpret_cast<uintptr_t>(address) % (N * sizeof(T)) == 0;
}

/* The sum over the warp, in every lane. */
template <typename T> __device__ inline T warp_sum(T value) {
#pragma unroll
  for (unsigned step = WARP / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, step);
  }
  return value;
}

#define BLOCK_WARPS 8u /* of blocks whose threads are summed */

/* The sum over the block, in every thread. */
__device__ inline double block_sum(double value) {
  static __shared__ double sums[BLOCK_WARPS];
  value = warp_sum(value);
  if (threadIdx.x % WARP == 0) sums[threadIdx.x / WARP] = value;
  __syncthreads();
  double total = 0;
  for (uint32_t i = 0; i < BLOCK_WARPS; i++) {
    total += sums[i];
  }
  return total;
}

/* Kernels of both types, under the names by which they are looked up. */
#define TYPED_KERNELS(name, function)                                                              \
  extern "C" __global__ void name##_f32(const struct name a) {                                     \
    function<float>(a);                                                                            \
  }                                                                                                \
  extern "C" __global__ void name##_bf16(const struct name a) {                                    \
    function<bf16>(a);                                                                             \
  }

#endif

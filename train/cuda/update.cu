/* SPDX-License-Identifier: Apache-2.0 */
/* From gradients to an update: sums over columns, sums of squares, the norm, AdamW. */
#include "train/cuda/device.cuh"
#include "train/kernels/adamw.h"

/* N columns a thread. The threads of a block that share columns have every so many rows each; then
 * their sums are added in order. */
template <typename T, int N> __device__ void sum_columns(const cuda_column_sums &a) {
  static __shared__ float sums[CUDA_SUM_LANES][CUDA_COLUMNS * N];
  const uint32_t column = (blockIdx.x * CUDA_COLUMNS + threadIdx.x) * N;
  const uint32_t first = blockIdx.y * a.rows_per_slab, end = min(first + a.rows_per_slab, a.rows);
  float sum[N] = {};
  if (column < a.columns) {
    const T *in = static_cast<const T *>(a.in) + column;
#pragma unroll 8
    for (uint32_t row = first + threadIdx.y; row < end; row += CUDA_SUM_LANES) {
      float element[N];
      load(element, in + uint64_t(row) * a.stride);
#pragma unroll
      for (int i = 0; i < N; i++) {
        sum[i] += element[i];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < N; i++) {
    sums[threadIdx.y][threadIdx.x * N + i] = sum[i];
  }
  __syncthreads();
  const uint32_t mine = threadIdx.y * CUDA_COLUMNS + threadIdx.x;
  const uint32_t at = blockIdx.x * CUDA_COLUMNS * N + mine;
  if (mine >= CUDA_COLUMNS * N || at >= a.columns) return;
  float *out = a.out + uint64_t(blockIdx.y) * a.columns + at;
  float total = a.accumulate ? *out : 0;
  for (uint32_t i = 0; i < CUDA_SUM_LANES; i++) {
    total += sums[i][mine];
  }
  *out = total;
}

template <typename T> __device__ void column_sums(const cuda_column_sums &a) {
  if (a.wide) {
    sum_columns<T, wide<T>>(a);
  } else {
    sum_columns<T, 1>(a);
  }
}

TYPED_KERNELS(cuda_column_sums, column_sums)

extern "C" __global__ void cuda_sum_squares(const struct cuda_sum_squares a) {
  const uint64_t stride = uint64_t(gridDim.x) * blockDim.x * 4;
  double sum = 0;
  for (uint64_t i = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4; i < a.count;
       i += stride) {
    float g[4];
    if (i + 4 <= a.count) {
      load(g, a.g + i);
    } else {
#pragma unroll
      for (int k = 0; k < 4; k++) {
        g[k] = i + k < a.count ? a.g[i + k] : 0;
      }
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
      sum += double(g[k]) * double(g[k]);
    }
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) a.partial[blockIdx.x] = sum;
}

extern "C" __global__ void cuda_total(const struct cuda_total a) {
  double sum = 0;
  for (uint32_t i = threadIdx.x; i < a.count; i += blockDim.x) {
    sum += a.partial[i];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) *a.out = (a.accumulate ? *a.out : 0) + a.scale * sum;
}

#define CLIP_EPSILON 1e-6 /* torch.nn.utils.clip_grad_norm_ */

extern "C" __global__ void cuda_norm(const struct cuda_norm a) {
  double sum = 0;
  for (uint32_t i = 0; i < a.count; i++) {
    sum += a.squares[i];
  }
  *a.norm = sqrt(sum);
  if (a.scale == nullptr) return;
  double wanted = a.clip / (*a.norm + CLIP_EPSILON);
  *a.scale = wanted < 1 || isnan(wanted) ? float(wanted) : 1.0f;
}

extern "C" __global__ void cuda_rates(const struct cuda_rates a) {
  if (threadIdx.x < a.count) a.rates[threadIdx.x] = a.scalars[threadIdx.x];
}

/* What is the same for every element of an update. */
struct adamw_step {
  float scale, step_size, decay, inverse1, inverse2;
};

/*
 * An update may also run on the host, and must give the same bits there: these are the operations
 * of adamw() in train/kernels/vector.c in the same order. What is added to a product is added by
 * fmaf(), so that nothing is left for the compiler to fuse or not, and what is so small that it
 * could lead to denormal numbers, which threads of the host take for 0, is 0 here and there.
 */
__device__ inline float settle(float x, float least) {
  return fabsf(x) < least ? 0.0f : x;
}

template <int N> __device__ inline void settle_all(float (&x)[N], float least) {
#pragma unroll
  for (int i = 0; i < N; i++) {
    x[i] = settle(x[i], least);
  }
}

template <typename T, int N>
__device__ void adamw_pack(const cuda_adamw &a, const adamw_step &step, uint64_t at) {
  float p[N], g[N], m[N], v[N];
  load(p, a.p + at);
  if (a.g == nullptr) {
    store(static_cast<T *>(a.copy) + at, p);
    return;
  }
  load(g, a.g + at);
  load(m, a.m + at);
  load(v, a.v + at);
  settle_all(p, ADAMW_LEAST);
  settle_all(m, ADAMW_LEAST);
  settle_all(v, ADAMW_LEAST_SQUARE);
#pragma unroll
  for (int i = 0; i < N; i++) {
    const float scaled = settle(g[i] * step.scale, ADAMW_LEAST);
    m[i] = settle(fmaf(1.0f - a.beta1, scaled, m[i] * a.beta1), ADAMW_LEAST);
    v[i] = settle(fmaf(1.0f - a.beta2, scaled * scaled, v[i] * a.beta2), ADAMW_LEAST_SQUARE);
    const float change = m[i] * step.inverse1 / (sqrtf(v[i] * step.inverse2) + a.eps);
    p[i] = settle(fmaf(-step.step_size, change, fmaf(-step.decay, p[i], p[i])), ADAMW_LEAST);
  }
  store(a.p + at, p);
  store(a.m + at, m);
  store(a.v + at, v);
  if (a.copy != nullptr) store(static_cast<T *>(a.copy) + at, p);
}

template <typename T> __device__ void adamw(const cuda_adamw &a) {
  const float lr = a.scalars[0];
  const adamw_step step = {a.scale == nullptr ? 1.0f : *a.scale, lr, lr * a.weight_decay,
                           1.0f / a.scalars[1], 1.0f / a.scalars[2]};
  const bool whole = aligned<4>(a.p) && aligned<4>(a.g) && aligned<4>(a.m) && aligned<4>(a.v) &&
                     aligned<4>(static_cast<const T *>(a.copy));
  const uint64_t stride = uint64_t(gridDim.x) * blockDim.x * 4;
  for (uint64_t i = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4; i < a.count;
       i += stride) {
    if (whole && i + 4 <= a.count) {
      adamw_pack<T, 4>(a, step, i);
      continue;
    }
    for (uint64_t k = i; k < a.count && k < i + 4; k++) {
      adamw_pack<T, 1>(a, step, k);
    }
  }
}

TYPED_KERNELS(cuda_adamw, adamw)

/* SPDX-License-Identifier: Apache-2.0 */
/* LayerNorm forward and backward. Rows are read from memory once: the later passes over a row find
 * it in the first-level cache. */
#include "train/cuda/device.cuh"

#define LAYERNORM_EPSILON 1e-5f

template <typename T, int N> __device__ float row_mean(const T *x, uint32_t width) {
  float sum = 0;
  for (uint32_t c = threadIdx.x % WARP * N; c < width; c += WARP * N) {
    float value[N];
    load(value, x + c);
#pragma unroll
    for (int i = 0; i < N; i++) {
      sum += value[i];
    }
  }
  return warp_sum(sum) / float(width);
}

template <typename T, int N> __device__ float row_variance(const T *x, uint32_t width, float mean) {
  float sum = 0;
  for (uint32_t c = threadIdx.x % WARP * N; c < width; c += WARP * N) {
    float value[N];
    load(value, x + c);
#pragma unroll
    for (int i = 0; i < N; i++) {
      sum += (value[i] - mean) * (value[i] - mean);
    }
  }
  return warp_sum(sum) / float(width);
}

template <typename T, int N> __device__ void layernorm_row(const cuda_layernorm &a, uint64_t row) {
  const T *x = static_cast<const T *>(a.x) + row * a.width;
  T *y = static_cast<T *>(a.y) + row * a.width;
  const uint32_t lane = threadIdx.x % WARP;
  float mean = row_mean<T, N>(x, a.width);
  float rstd = 1.0f / sqrtf(row_variance<T, N>(x, a.width, mean) + LAYERNORM_EPSILON);
  for (uint32_t c = lane * N; c < a.width; c += WARP * N) {
    float value[N], gamma[N], beta[N];
    load(value, x + c);
    load(gamma, static_cast<const T *>(a.gamma) + c);
    load(beta, static_cast<const T *>(a.beta) + c);
#pragma unroll
    for (int i = 0; i < N; i++) {
      value[i] = (value[i] - mean) * rstd * gamma[i] + beta[i];
    }
    store(y + c, value);
  }
  if (lane == 0) {
    a.mean[row] = mean;
    a.rstd[row] = rstd;
  }
}

template <typename T> __device__ void layernorm(const cuda_layernorm &a) {
  uint64_t row = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
  if (row >= a.rows) return;
  if (a.width % wide<T> == 0) {
    layernorm_row<T, wide<T>>(a, row);
  } else {
    layernorm_row<T, 1>(a, row);
  }
}

TYPED_KERNELS(cuda_layernorm, layernorm)

/* Of one row: what (x - mean) * rstd is made of, and the averages over the row of dy * gamma and of
 * that times the normalized x. */
struct row_sums {
  float mean, rstd, average, average_normal;
};

template <typename T, int N>
__device__ row_sums sum_row(const cuda_layernorm_backward &a, uint64_t row) {
  const T *dy = static_cast<const T *>(a.dy) + row * a.width;
  const T *x = static_cast<const T *>(a.x) + row * a.width;
  row_sums sums = {a.mean[row], a.rstd[row], 0, 0};
  for (uint32_t c = threadIdx.x % WARP * N; c < a.width; c += WARP * N) {
    float dy_at[N], x_at[N], gamma[N];
    load(dy_at, dy + c);
    load(x_at, x + c);
    load(gamma, static_cast<const T *>(a.gamma) + c);
#pragma unroll
    for (int i = 0; i < N; i++) {
      float scaled = dy_at[i] * gamma[i];
      sums.average += scaled;
      sums.average_normal += scaled * ((x_at[i] - sums.mean) * sums.rstd);
    }
  }
  sums.average = warp_sum(sums.average) / float(a.width);
  sums.average_normal = warp_sum(sums.average_normal) / float(a.width);
  return sums;
}

/* dx of columns c... of a row, whose shares of dgamma and dbeta are added to the sums. */
template <typename T, int N>
__device__ void differentiate(const cuda_layernorm_backward &a, const row_sums &sums, uint64_t at,
                              const float (&gamma)[N], float (&dgamma)[N], float (&dbeta)[N]) {
  float dy[N], x[N], dx[N] = {};
  load(dy, static_cast<const T *>(a.dy) + at);
  load(x, static_cast<const T *>(a.x) + at);
  if (a.accumulate_dx) load(dx, static_cast<const T *>(a.dx) + at);
#pragma unroll
  for (int i = 0; i < N; i++) {
    float normal = (x[i] - sums.mean) * sums.rstd;
    /* Rounded as a single term's average is: in a narrow row the two may be all but the same. */
    float scaled = __fmul_rn(dy[i], gamma[i]);
    dx[i] += sums.rstd * (scaled - sums.average - normal * sums.average_normal);
    dgamma[i] += dy[i] * normal;
    dbeta[i] += dy[i];
  }
  store(static_cast<T *>(a.dx) + at, dx);
}

/*
 * A group of rows at a time: each warp sums its rows, then each thread takes its columns through
 * the group, so that it alone holds their dgamma and dbeta and the order of those sums is that of
 * the rows. Between groups the sums rest in the block's part of `partial`.
 */
template <typename T, int N>
__device__ void layernorm_backward_rows(const cuda_layernorm_backward &a, uint32_t first,
                                        uint32_t end) {
  static __shared__ row_sums group[CUDA_LAYERNORM_GROUP];
  float *dgamma = a.partial + uint64_t(blockIdx.x) * 2 * a.width, *dbeta = dgamma + a.width;
  for (uint32_t row = first; row < end; row += CUDA_LAYERNORM_GROUP) {
    uint32_t count = min(CUDA_LAYERNORM_GROUP, end - row);
    for (uint32_t i = threadIdx.x / WARP; i < count; i += blockDim.x / WARP) {
      row_sums sums = sum_row<T, N>(a, row + i);
      if (threadIdx.x % WARP == 0) group[i] = sums;
    }
    __syncthreads();
    for (uint32_t c = threadIdx.x * N; c < a.width; c += blockDim.x * N) {
      float gamma[N], gamma_sum[N] = {}, beta_sum[N] = {};
      load(gamma, static_cast<const T *>(a.gamma) + c);
      if (row > first) {
        load(gamma_sum, dgamma + c);
        load(beta_sum, dbeta + c);
      }
      for (uint32_t i = 0; i < count; i++) {
        differentiate<T, N>(a, group[i], uint64_t(row + i) * a.width + c, gamma, gamma_sum,
                            beta_sum);
      }
      store(dgamma + c, gamma_sum);
      store(dbeta + c, beta_sum);
    }
    __syncthreads();
  }
}

template <typename T> __device__ void layernorm_backward(const cuda_layernorm_backward &a) {
  uint32_t first = blockIdx.x * a.rows_per_block, end = min(first + a.rows_per_block, a.rows);
  /* Four columns a thread keep 192 threads busy at a width of 768. */
  if (a.width % 4 == 0) {
    layernorm_backward_rows<T, 4>(a, first, end);
  } else {
    layernorm_backward_rows<T, 1>(a, first, end);
  }
}

TYPED_KERNELS(cuda_layernorm_backward, layernorm_backward)

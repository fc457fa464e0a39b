/* SPDX-License-Identifier: Apache-2.0 */
/* The GELU in its tanh form and its derivative, 16 bytes a thread. */
#include "train/cuda/device.cuh"

#define SQRT_2_OVER_PI 0.79788456080286535588f
#define GELU_CUBIC     0.044715f

__device__ inline float gelu_value(float x) {
  return 0.5f * x * (1 + tanhf(SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x)));
}

__device__ inline float gelu_slope(float x) {
  float t = tanhf(SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x));
  return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * SQRT_2_OVER_PI * (1 + 3 * GELU_CUBIC * x * x);
}

template <int N, typename T> __device__ void gelu_pack(T *y, const T *x) {
  float value[N];
  load(value, x);
#pragma unroll
  for (int i = 0; i < N; i++) {
    value[i] = gelu_value(value[i]);
  }
  store(y, value);
}

template <int N, typename T> __device__ void gelu_backward_pack(T *d, const T *x) {
  float value[N], slope[N];
  load(value, d);
  load(slope, x);
#pragma unroll
  for (int i = 0; i < N; i++) {
    value[i] *= gelu_slope(slope[i]);
  }
  store(d, value);
}

template <typename T> __device__ void gelu(const cuda_gelu &a) {
  constexpr int n = wide<T>;
  const T *x = static_cast<const T *>(a.x);
  T *y = static_cast<T *>(a.activated);
  const uint64_t stride = uint64_t(gridDim.x) * blockDim.x * n;
  for (uint64_t i = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) * n; i < a.count;
       i += stride) {
    if (i + n <= a.count) {
      gelu_pack<n>(y + i, x + i);
      continue;
    }
    for (uint64_t k = i; k < a.count; k++) {
      gelu_pack<1>(y + k, x + k);
    }
  }
}

template <typename T> __device__ void gelu_backward(const cuda_gelu_backward &a) {
  constexpr int n = wide<T>;
  const T *x = static_cast<const T *>(a.x);
  T *d = static_cast<T *>(a.d);
  const uint64_t stride = uint64_t(gridDim.x) * blockDim.x * n;
  for (uint64_t i = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) * n; i < a.count;
       i += stride) {
    if (i + n <= a.count) {
      gelu_backward_pack<n>(d + i, x + i);
      continue;
    }
    for (uint64_t k = i; k < a.count; k++) {
      gelu_backward_pack<1>(d + k, x + k);
    }
  }
}

TYPED_KERNELS(cuda_gelu, gelu)
TYPED_KERNELS(cuda_gelu_backward, gelu_backward)

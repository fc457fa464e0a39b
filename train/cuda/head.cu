/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head beside its products: the softmax's sums of each row of a slice's logits, the loss from
 * the sums of all slices, and the gradient of the logits in place. A block takes a row, whose
 * elements are read once in each.
 */
#include "train/cuda/device.cuh"

#define HEAD_WARPS 8u
/* The largest of nothing: a number, so that differences from it are numbers too. */
#define LEAST -3.402823466e38f

/* The largest of some logits and the sum of the exponentials of their distances to it. */
struct softmax_sums {
  float largest, sum;
};

__device__ inline softmax_sums combine(softmax_sums a, softmax_sums b) {
  float largest = fmaxf(a.largest, b.largest);
  return {largest, a.sum * exp2f((a.largest - largest) * LOG2_E) +
                       b.sum * exp2f((b.largest - largest) * LOG2_E)};
}

template <typename T, int N> __device__ softmax_sums sum_logits(const T *logits, uint32_t words) {
  softmax_sums sums = {LEAST, 0};
  for (uint32_t word = threadIdx.x * N; word < words; word += blockDim.x * N) {
    float logit[N], largest = sums.largest;
    load(logit, logits + word);
#pragma unroll
    for (int i = 0; i < N; i++) {
      largest = fmaxf(largest, logit[i]);
    }
    sums.sum *= exp2f((sums.largest - largest) * LOG2_E);
    sums.largest = largest;
#pragma unroll
    for (int i = 0; i < N; i++) {
      sums.sum += exp2f((logit[i] - largest) * LOG2_E);
    }
  }
  return sums;
}

/* The sums over the block, in thread 0. */
__device__ inline softmax_sums combine_block(softmax_sums sums) {
  static __shared__ softmax_sums warps[HEAD_WARPS];
#pragma unroll
  for (unsigned step = WARP / 2; step > 0; step /= 2) {
    softmax_sums other = {__shfl_xor_sync(0xffffffffu, sums.largest, step),
                          __shfl_xor_sync(0xffffffffu, sums.sum, step)};
    sums = combine(sums, other);
  }
  if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = sums;
  __syncthreads();
  sums = warps[0];
  for (uint32_t i = 1; i < HEAD_WARPS; i++) {
    sums = combine(sums, warps[i]);
  }
  return sums;
}

template <typename T> __device__ void head_sums(const cuda_head_sums &a) {
  const uint64_t row = blockIdx.x;
  const T *logits = static_cast<const T *>(a.logits) + row * a.stride;
  const uint32_t whole = a.words / wide<T> * wide<T>;
  softmax_sums sums = sum_logits<T, wide<T>>(logits, whole);
  sums = combine(sums, sum_logits<T, 1>(logits + whole, a.words - whole));
  sums = combine_block(sums);
  if (threadIdx.x != 0) return;
  const uint32_t word = a.targets[row] - a.first_word; /* wraps round where it lies before */
  a.sums[row * 3] = sums.largest;
  a.sums[row * 3 + 1] = sums.sum;
  a.sums[row * 3 + 2] = word < a.words ? to_float(logits[word]) : 0;
}

TYPED_KERNELS(cuda_head_sums, head_sums)

/* The loss of a row, and its softmax. */
__device__ inline double row_loss(const cuda_head_loss &a, uint64_t row) {
  float largest = LEAST;
  for (uint32_t k = 0; k < a.slices; k++) {
    largest = fmaxf(largest, a.sums[k][row * 3]);
  }
  double sum = 0, target = 0;
  for (uint32_t k = 0; k < a.slices; k++) {
    const float *sums = a.sums[k] + row * 3;
    sum += double(sums[1]) * double(expf(sums[0] - largest));
    target += double(sums[2]);
  }
  a.softmax[row * 2] = largest;
  a.softmax[row * 2 + 1] = float(a.scale / sum);
  return double(largest) + log(sum) - target;
}

extern "C" __global__ void cuda_head_loss(const struct cuda_head_loss a) {
  const uint64_t row = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  double loss = block_sum(row < a.rows ? row_loss(a, row) : 0);
  if (threadIdx.x == 0) a.partial[blockIdx.x] = loss;
}

template <typename T, int N>
__device__ void differentiate_logits(const cuda_head_gradient &a, uint64_t row, uint32_t first,
                                     uint32_t end) {
  T *logits = static_cast<T *>(a.logits) + row * a.stride;
  const float largest = a.softmax[row * 2], factor = a.softmax[row * 2 + 1];
  const uint32_t target = a.targets[row] - a.first_word; /* none where it lies elsewhere */
  for (uint32_t word = first + threadIdx.x * N; word < end; word += blockDim.x * N) {
    float logit[N];
    load(logit, logits + word);
#pragma unroll
    for (int i = 0; i < N; i++) {
      logit[i] = exp2f((logit[i] - largest) * LOG2_E) * factor - (word + i == target ? a.scale : 0);
    }
    store(logits + word, logit);
  }
}

template <typename T> __device__ void head_gradient(const cuda_head_gradient &a) {
  const uint32_t whole = a.words / wide<T> * wide<T>;
  differentiate_logits<T, wide<T>>(a, blockIdx.x, 0, whole);
  differentiate_logits<T, 1>(a, blockIdx.x, whole, a.words);
}

TYPED_KERNELS(cuda_head_gradient, head_gradient)

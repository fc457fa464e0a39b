/* SPDX-License-Identifier: Apache-2.0 */
/* The embedding and its gradients. */
#include "train/cuda/device.cuh"

template <typename T, int N>
__device__ void embed_row(const cuda_embed &a, uint64_t row, uint64_t word) {
  const T *token = static_cast<const T *>(a.wte) + word * a.width;
  const T *position = static_cast<const T *>(a.wpe) + row % a.seq * a.width;
  T *x = static_cast<T *>(a.x) + row * a.width;
  for (uint32_t c = threadIdx.x % WARP * N; c < a.width; c += WARP * N) {
    float sum[N], added[N];
    load(sum, token + c);
    load(added, position + c);
#pragma unroll
    for (int i = 0; i < N; i++) {
      sum[i] += added[i];
    }
    store(x + c, sum);
  }
}

template <typename T> __device__ void embed(const cuda_embed &a) {
  uint64_t row = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
  if (row >= a.rows) return;
  const uint32_t word = a.tokens[row] - a.first_word; /* wraps round where it lies before */
  if (word >= a.words) return;
  if (a.width % wide<T> == 0) {
    embed_row<T, wide<T>>(a, row, word);
  } else {
    embed_row<T, 1>(a, row, word);
  }
}

TYPED_KERNELS(cuda_embed, embed)

#define TOKEN_THREADS 256u
#define TOKEN_ROUNDS  4u
#define TOKEN_CHUNK   (TOKEN_THREADS * TOKEN_ROUNDS) /* tokens looked at between two barriers */
#define TOKEN_COUNTS  (TOKEN_CHUNK / WARP)

/* Whether the token of row `row` occurs in an earlier one; the same answer in the whole block. */
__device__ inline bool token_seen(const cuda_embed_tokens &a, uint32_t row) {
  int32_t token = a.tokens[row];
  for (uint32_t first = 0; first < row; first += TOKEN_CHUNK) {
    int found = 0;
    for (uint32_t i = 0; i < TOKEN_ROUNDS; i++) {
      uint32_t at = first + i * TOKEN_THREADS + threadIdx.x;
      found |= at < row && a.tokens[at] == token;
    }
    if (__syncthreads_or(found)) return true;
  }
  return false;
}

/* Lists the rows from `first` on that have the token, in ascending order; returns how many. */
__device__ inline uint32_t list_rows(const cuda_embed_tokens &a, int32_t token, uint32_t first,
                                     uint32_t (&list)[TOKEN_CHUNK]) {
  static __shared__ uint32_t counts[TOKEN_COUNTS];
  const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  uint32_t found[TOKEN_ROUNDS];
  for (uint32_t i = 0; i < TOKEN_ROUNDS; i++) {
    uint32_t at = first + i * TOKEN_THREADS + threadIdx.x;
    found[i] = __ballot_sync(0xffffffffu, at < a.rows && a.tokens[at] == token);
    if (lane == 0) counts[i * (TOKEN_THREADS / WARP) + warp] = __popc(found[i]);
  }
  __syncthreads();
  uint32_t before = 0;
  for (uint32_t i = 0; i < TOKEN_COUNTS; i++) {
    uint32_t round = i / (TOKEN_THREADS / WARP);
    if (i % (TOKEN_THREADS / WARP) == warp && (found[round] >> lane & 1) != 0) {
      list[before + __popc(found[round] & ((1u << lane) - 1))] =
          first + round * TOKEN_THREADS + threadIdx.x;
    }
    before += counts[i];
  }
  __syncthreads();
  return before;
}

template <typename T, int N>
__device__ void add_rows(const cuda_embed_tokens &a, float *to, const uint32_t *list,
                         uint32_t count) {
  for (uint32_t c = threadIdx.x * N; c < a.width; c += TOKEN_THREADS * N) {
    float sum[N];
    load(sum, to + c);
    /* Rows are on their way together: of a token that is everywhere there are thousands. */
#pragma unroll 8
    for (uint32_t k = 0; k < count; k++) {
      float dx[N];
      load(dx, static_cast<const T *>(a.dx) + uint64_t(list[k]) * a.width + c);
#pragma unroll
      for (int i = 0; i < N; i++) {
        sum[i] += dx[i];
      }
    }
    store(to + c, sum);
  }
}

template <typename T> __device__ void embed_tokens(const cuda_embed_tokens &a) {
  static __shared__ uint32_t list[TOKEN_CHUNK];
  const uint32_t row = blockIdx.x;
  const int32_t token = a.tokens[row];
  const uint32_t word = token - a.first_word; /* wraps round where it lies before */
  if (word >= a.words || token_seen(a, row)) return;
  float *to = a.dwte + uint64_t(word) * a.width;
  for (uint32_t first = row; first < a.rows; first += TOKEN_CHUNK) {
    uint32_t count = list_rows(a, token, first, list);
    if (a.width % 4 == 0) {
      add_rows<T, 4>(a, to, list, count);
    } else {
      add_rows<T, 1>(a, to, list, count);
    }
  }
}

TYPED_KERNELS(cuda_embed_tokens, embed_tokens)

template <typename T, int N>
__device__ void embed_position(const cuda_embed_positions &a, uint64_t position) {
  float *to = a.dwpe + position * a.width;
  const T *dx = static_cast<const T *>(a.dx) + position * a.width;
  for (uint32_t c = threadIdx.x % WARP * N; c < a.width; c += WARP * N) {
    float sum[N] = {};
    if (a.accumulate) load(sum, to + c);
    for (uint32_t b = 0; position < a.seq && b < a.batch; b++) {
      float added[N];
      load(added, dx + uint64_t(b) * a.seq * a.width + c);
#pragma unroll
      for (int i = 0; i < N; i++) {
        sum[i] += added[i];
      }
    }
    store(to + c, sum);
  }
}

template <typename T> __device__ void embed_positions(const cuda_embed_positions &a) {
  uint64_t position = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
  if (position >= a.positions) return;
  if (a.width % 4 == 0) {
    embed_position<T, 4>(a, position);
  } else {
    embed_position<T, 1>(a, position);
  }
}

TYPED_KERNELS(cuda_embed_positions, embed_positions)

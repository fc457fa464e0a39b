/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal attention backward. With p = softmax(scores), dp = dout . v and delta = dout . out: dscore
 * = p (dp - delta). One pass owns tiles of queries and sums dq, another owns tiles of keys and sums
 * dk and dv. Both make the scores again, which costs seven products for the five of one pass, and
 * needs neither atomics nor memory for partial sums.
 */
#include "train/cuda/attention.cuh"

template <typename T> __device__ void attention_delta(const cuda_attention_delta &a) {
  uint64_t index = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
  if (index >= uint64_t(a.batch) * a.heads * a.seq) return;
  const uint32_t columns = a.width / a.heads;
  const uint64_t row = index / a.heads, head = index % a.heads;
  const uint64_t at = row * a.width + head * columns;
  float sum = 0;
  for (uint32_t c = threadIdx.x % WARP; c < columns; c += WARP) {
    sum += to_float(static_cast<const T *>(a.dout)[at + c]) *
           to_float(static_cast<const T *>(a.out)[at + c]);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % WARP == 0) {
    a.delta[(row / a.seq * a.heads + head) * a.seq + row % a.seq] = sum;
  }
}

TYPED_KERNELS(cuda_attention_delta, attention_delta)

/* One head of one sequence. */
template <typename T> struct head_view {
  const T *q, *k, *v, *dout; /* row 0 */
  T *dq, *dk, *dv;
  const float *lse, *delta;
  uint64_t pitch; /* of all but dout */
  uint32_t columns;
};

template <typename T> __device__ head_view<T> view_of(const cuda_attention_backward &a) {
  const uint32_t columns = a.width / a.heads, column = blockIdx.y * columns;
  const uint64_t first = uint64_t(blockIdx.z) * a.seq, pitch = 3 * uint64_t(a.width);
  const T *q = static_cast<const T *>(a.qkv) + first * pitch + column;
  T *dq = static_cast<T *>(a.dqkv) + first * pitch + column;
  const uint64_t statistic = (uint64_t(blockIdx.z) * a.heads + blockIdx.y) * a.seq;
  return {q,
          q + a.width,
          q + 2 * a.width,
          static_cast<const T *>(a.dout) + first * a.width + column,
          dq,
          dq + a.width,
          dq + 2 * a.width,
          a.lse + statistic,
          a.delta + statistic,
          pitch,
          columns};
}

/* dscore of one query and key, times the scale of the scores; p is the key's weight. */
__device__ inline float differentiate_score(float p, float dp, float delta, float scale) {
  return p * (dp - delta) * scale;
}

template <typename T, typename S>
__device__ void attention_queries(const cuda_attention_backward &a) {
  float *queries = dynamic_shared, *douts = queries + S::TILE_FLOATS;
  float *keys = douts + S::TILE_FLOATS, *values = keys + S::TILE_FLOATS;
  float *weights = values + S::TILE_FLOATS;
  const place at = my_place();
  const head_view<T> view = view_of<T>(a);
  const uint32_t query = (gridDim.x - 1 - blockIdx.x) * S::TILE, left = a.seq - query;
  load_tile<S>(queries,
               head_rows<const T>{view.q + query * view.pitch, view.pitch, left, view.columns});
  load_tile<S>(douts, head_rows<const T>{view.dout + uint64_t(query) * a.width, a.width, left,
                                         view.columns});
  float lse[S::ROWS], delta[S::ROWS], one[S::ROWS], dq[S::ROWS][S::COLUMNS] = {};
#pragma unroll
  for (int i = 0; i < S::ROWS; i++) {
    uint32_t row = at.y + SIDE * i;
    lse[i] = row < left ? view.lse[query + row] * LOG2_E : 0;
    delta[i] = row < left ? view.delta[query + row] : 0;
    one[i] = 1;
  }
  const uint32_t end = min(query + S::TILE, a.seq);
  for (uint32_t key = 0; key < end; key += S::TILE) {
    float score[S::ROWS][S::ROWS], dp[S::ROWS][S::ROWS];
    load_tile<S>(
        keys, head_rows<const T>{view.k + key * view.pitch, view.pitch, a.seq - key, view.columns});
    load_tile<S>(values, head_rows<const T>{view.v + key * view.pitch, view.pitch, a.seq - key,
                                            view.columns});
    __syncthreads();
    multiply_rows<S>(score, queries, keys);
    multiply_rows<S>(dp, douts, values);
#pragma unroll
    for (int i = 0; i < S::ROWS; i++) {
#pragma unroll
      for (int j = 0; j < S::ROWS; j++) {
        bool seen = key + at.x + SIDE * j <= query + at.y + SIDE * i;
        float p = seen ? exp2f(at_most_0(score[i][j] * (a.scale * LOG2_E) - lse[i])) : 0;
        score[i][j] = differentiate_score(p, dp[i][j], delta[i], a.scale);
      }
    }
    store_weights<S>(weights, score);
    __syncwarp(); /* a row of weights is its own threads' */
    add_weighted<S>(dq, weights, keys);
    __syncthreads();
  }
  store_tile<S>(head_rows<T>{view.dq + query * view.pitch, view.pitch, left, view.columns}, dq,
                one);
}

template <typename T, typename S> __device__ void attention_keys(const cuda_attention_backward &a) {
  float *keys = dynamic_shared, *values = keys + S::TILE_FLOATS;
  float *queries = values + S::TILE_FLOATS, *douts = queries + S::TILE_FLOATS;
  float *weights = douts + S::TILE_FLOATS;
  const place at = my_place();
  const head_view<T> view = view_of<T>(a);
  const uint32_t key = blockIdx.x * S::TILE, left = a.seq - key;
  load_tile<S>(keys, head_rows<const T>{view.k + key * view.pitch, view.pitch, left, view.columns});
  load_tile<S>(values,
               head_rows<const T>{view.v + key * view.pitch, view.pitch, left, view.columns});
  float one[S::ROWS], dk[S::ROWS][S::COLUMNS] = {}, dv[S::ROWS][S::COLUMNS] = {};
#pragma unroll
  for (int i = 0; i < S::ROWS; i++) {
    one[i] = 1;
  }
  /* Here rows of the weights are keys and their columns are queries. */
  for (uint32_t query = key; query < a.seq; query += S::TILE) {
    float score[S::ROWS][S::ROWS], dp[S::ROWS][S::ROWS];
    load_tile<S>(queries, head_rows<const T>{view.q + query * view.pitch, view.pitch, a.seq - query,
                                             view.columns});
    load_tile<S>(douts, head_rows<const T>{view.dout + uint64_t(query) * a.width, a.width,
                                           a.seq - query, view.columns});
    __syncthreads();
    multiply_rows<S>(score, keys, queries);
    multiply_rows<S>(dp, values, douts);
#pragma unroll
    for (int j = 0; j < S::ROWS; j++) {
      uint32_t column = query + at.x + SIDE * j;
      bool exists = column < a.seq;
      float lse = exists ? view.lse[column] * LOG2_E : 0;
      float delta = exists ? view.delta[column] : 0;
#pragma unroll
      for (int i = 0; i < S::ROWS; i++) {
        bool seen = exists && key + at.y + SIDE * i <= column;
        score[i][j] = seen ? exp2f(at_most_0(score[i][j] * (a.scale * LOG2_E) - lse)) : 0;
        dp[i][j] = differentiate_score(score[i][j], dp[i][j], delta, a.scale);
      }
    }
    store_weights<S>(weights, score);
    __syncwarp(); /* a row of weights is its own threads' */
    add_weighted<S>(dv, weights, douts);
    __syncwarp();
    store_weights<S>(weights, dp);
    __syncwarp();
    add_weighted<S>(dk, weights, queries);
    __syncthreads();
  }
  store_tile<S>(head_rows<T>{view.dk + key * view.pitch, view.pitch, left, view.columns}, dk, one);
  store_tile<S>(head_rows<T>{view.dv + key * view.pitch, view.pitch, left, view.columns}, dv, one);
}

HEAD_KERNELS(cuda_attention_queries, cuda_attention_backward, attention_queries)
HEAD_KERNELS(cuda_attention_keys, cuda_attention_backward, attention_keys)

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal attention forward, without ever storing the scores (Dao and others 2022; the running
 * maximum is Milakov and Gimelshein's, 2018): a block keeps a tile of queries and goes through the
 * keys and values tile by tile. Exponentials are powers of two of scores scaled by log2(e).
 */
#include "train/cuda/attention.cuh"

/* The running softmax of a thread's rows. */
template <typename S> struct softmax {
  float largest[S::ROWS]; /* of the scaled scores, over all lanes of the row */
  float total[S::ROWS];   /* of the weights in the thread's own columns */
  float out[S::ROWS][S::COLUMNS];
};

/* The largest over the 16 threads of a row. */
__device__ inline float row_largest(float value) {
#pragma unroll
  for (unsigned step = SIDE / 2; step > 0; step /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
  }
  return value;
}

__device__ inline float row_total(float value) {
#pragma unroll
  for (unsigned step = SIDE / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, step);
  }
  return value;
}

/* Turns scores into weights relative to the largest so far, and what was summed before with them.
 * Key 0 comes first and is seen by every query, so that the largest is a number. */
template <typename S>
__device__ void absorb(softmax<S> &state, float (&score)[S::ROWS][S::ROWS], int query, int key,
                       float scale) {
  const place at = my_place();
#pragma unroll
  for (int i = 0; i < S::ROWS; i++) {
    float largest = state.largest[i];
#pragma unroll
    for (int j = 0; j < S::ROWS; j++) {
      bool seen = key + at.x + SIDE * j <= query + at.y + SIDE * i;
      score[i][j] = seen ? score[i][j] * scale : -INFINITY;
      largest = fmaxf(largest, score[i][j]);
    }
    largest = row_largest(largest);
    float correction = exp2f(state.largest[i] - largest);
    state.largest[i] = largest;
    state.total[i] *= correction;
#pragma unroll
    for (int j = 0; j < S::ROWS; j++) {
      score[i][j] = exp2f(score[i][j] - largest);
      state.total[i] += score[i][j];
    }
#pragma unroll
    for (int j = 0; j < S::COLUMNS; j++) {
      state.out[i][j] *= correction;
    }
  }
}

template <typename S, typename T>
__device__ void finish(softmax<S> &state, const head_rows<T> &out, float *lse) {
  const place at = my_place();
  float factor[S::ROWS];
#pragma unroll
  for (int i = 0; i < S::ROWS; i++) {
    float total = row_total(state.total[i]);
    factor[i] = 1.0f / total;
    uint32_t row = at.y + SIDE * i;
    if (at.x == 0 && row < out.rows) lse[row] = (state.largest[i] + log2f(total)) * LN_2;
  }
  store_tile<S>(out, state.out, factor);
}

template <typename T, typename S> __device__ void attention(const cuda_attention &a) {
  float *queries = dynamic_shared, *others = queries + S::TILE_FLOATS;
  float *weights = others + S::TILE_FLOATS;
  /* The longest rows first, so that the last blocks are short. */
  const uint32_t query = (gridDim.x - 1 - blockIdx.x) * S::TILE;
  const uint32_t head = blockIdx.y, columns = a.width / a.heads, pitch = 3 * a.width;
  const uint64_t first = uint64_t(blockIdx.z) * a.seq;
  const T *qkv = static_cast<const T *>(a.qkv) + first * pitch + head * columns;
  load_tile<S>(queries,
               head_rows<const T>{qkv + uint64_t(query) * pitch, pitch, a.seq - query, columns});
  softmax<S> state = {};
#pragma unroll
  for (int i = 0; i < S::ROWS; i++) {
    state.largest[i] = -INFINITY;
  }
  const uint32_t end = min(query + S::TILE, a.seq);
  for (uint32_t key = 0; key < end; key += S::TILE) {
    const T *keys = qkv + uint64_t(key) * pitch + a.width;
    float score[S::ROWS][S::ROWS];
    load_tile<S>(others, head_rows<const T>{keys, pitch, a.seq - key, columns});
    __syncthreads();
    multiply_rows<S>(score, queries, others);
    absorb(state, score, int(query), int(key), a.scale * LOG2_E);
    store_weights<S>(weights, score);
    __syncthreads(); /* the keys have been read, the weights written */
    load_tile<S>(others, head_rows<const T>{keys + a.width, pitch, a.seq - key, columns});
    __syncthreads();
    add_weighted<S>(state.out, weights, others);
    __syncthreads();
  }
  T *out = static_cast<T *>(a.out) + (first + query) * a.width + head * columns;
  finish(state, head_rows<T>{out, a.width, a.seq - query, columns},
         a.lse + (uint64_t(blockIdx.z) * a.heads + head) * a.seq + query);
}

HEAD_KERNELS(cuda_attention, cuda_attention, attention)

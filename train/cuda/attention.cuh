/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiles of attention in shared memory. A block of 16 x 16 threads works on tiles of TILE queries or
 * keys and up to HEAD columns, kept as fp32 rows that are four elements longer than HEAD, so that
 * the 16-byte reads of eight lanes fall into different banks. Thread (x, y) owns rows y + 16 i of a
 * result, and of its columns x + 16 j where they are keys or queries, or 4 x + 64 j ... where they
 * are the head's: every inner step reads shared memory once for eight multiplications.
 */
#ifndef MEMRUN_TRAIN_CUDA_ATTENTION_CUH
#define MEMRUN_TRAIN_CUDA_ATTENTION_CUH

#include "train/cuda/device.cuh"

#define SIDE              16 /* threads along each side of the block */
#define ATTENTION_THREADS (SIDE * SIDE)
#define LN_2              0.69314718055994530942f

alignas(128) extern __shared__ float dynamic_shared[];

/* A head of at most HEAD columns and how it is cut. */
template <int HEAD_, int TILE_> struct tiling {
  static constexpr int HEAD = HEAD_, TILE = TILE_;
  static constexpr int ROWS = TILE / SIDE;    /* of a thread */
  static constexpr int COLUMNS = HEAD / SIDE; /* of the head, of a thread */
  static constexpr int STRIDE = HEAD + 4;     /* of a tile of rows */
  static constexpr int WEIGHTS = TILE + 4;    /* stride of a tile of weights */
  static constexpr int TILE_FLOATS = TILE * STRIDE;
};

/* A thread's place in its block. */
struct place {
  int x, y;
};

__device__ inline place my_place() {
  return {int(threadIdx.x) % SIDE, int(threadIdx.x) / SIDE};
}

/* Where one head's columns lie in rows `pitch` apart. */
template <typename T> struct head_rows {
  T *at; /* row 0 of the tile */
  uint64_t pitch;
  uint32_t rows; /* that exist from there on */
  uint32_t columns;
};

/* Fills a tile; rows and columns that do not exist are 0. */
template <typename S, int N, typename T>
__device__ void load_tile_by(float *tile, const head_rows<T> &from) {
  constexpr int across = S::HEAD / N;
  for (int i = threadIdx.x; i < S::TILE * across; i += ATTENTION_THREADS) {
    uint32_t row = i / across, column = i % across * N;
    float value[N] = {};
    if (row < from.rows && column < from.columns) load(value, from.at + row * from.pitch + column);
    store(tile + row * S::STRIDE + column, value);
  }
}

template <typename S, typename T> __device__ void load_tile(float *tile, const head_rows<T> &from) {
  if (from.columns % 4 == 0) {
    load_tile_by<S, 4>(tile, from);
  } else {
    load_tile_by<S, 1>(tile, from);
  }
}

/* Stores a thread's values times its rows' factors. */
template <typename S, int N, typename T>
__device__ void store_tile_by(const head_rows<T> &to, const float (&value)[S::ROWS][S::COLUMNS],
                              const float (&factor)[S::ROWS]) {
  const place at = my_place();
#pragma unroll
  for (int i = 0; i < S::ROWS; i++) {
    uint32_t row = at.y + SIDE * i;
#pragma unroll
    for (int j = 0; j < S::COLUMNS; j += N) {
      uint32_t column = 4 * at.x + j / 4 * 4 * SIDE + j % 4;
      float scaled[N];
#pragma unroll
      for (int k = 0; k < N; k++) {
        scaled[k] = value[i][j + k] * factor[i];
      }
      if (row < to.rows && column < to.columns) store(to.at + row * to.pitch + column, scaled);
    }
  }
}

template <typename S, typename T>
__device__ void store_tile(const head_rows<T> &to, const float (&value)[S::ROWS][S::COLUMNS],
                           const float (&factor)[S::ROWS]) {
  if (to.columns % 4 == 0) {
    store_tile_by<S, 4>(to, value, factor);
  } else {
    store_tile_by<S, 1>(to, value, factor);
  }
}

/* sum[i][j] = row y + 16 i of a times row x + 16 j of b. */
template <typename S>
__device__ void multiply_rows(float (&sum)[S::ROWS][S::ROWS], const float *a, const float *b) {
  const place at = my_place();
#pragma unroll
  for (int i = 0; i < S::ROWS; i++) {
#pragma unroll
    for (int j = 0; j < S::ROWS; j++) {
      sum[i][j] = 0;
    }
  }
#pragma unroll 4
  for (int column = 0; column < S::HEAD; column += 4) {
    float left[S::ROWS][4], right[S::ROWS][4];
#pragma unroll
    for (int i = 0; i < S::ROWS; i++) {
      load(left[i], a + (at.y + SIDE * i) * S::STRIDE + column);
      load(right[i], b + (at.x + SIDE * i) * S::STRIDE + column);
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
#pragma unroll
      for (int i = 0; i < S::ROWS; i++) {
#pragma unroll
        for (int j = 0; j < S::ROWS; j++) {
          sum[i][j] += left[i][k] * right[j][k];
        }
      }
    }
  }
}

/* sum[i] += row y + 16 i of the weights times the columns of b that are the thread's. */
template <typename S>
__device__ void add_weighted(float (&sum)[S::ROWS][S::COLUMNS], const float *weights,
                             const float *b) {
  const place at = my_place();
#pragma unroll 2
  for (int row = 0; row < S::TILE; row += 4) {
    float weight[S::ROWS][4];
#pragma unroll
    for (int i = 0; i < S::ROWS; i++) {
      load(weight[i], weights + (at.y + SIDE * i) * S::WEIGHTS + row);
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
#pragma unroll
      for (int j = 0; j < S::COLUMNS; j += 4) {
        float value[4];
        load(value, b + (row + k) * S::STRIDE + 4 * at.x + j * SIDE);
#pragma unroll
        for (int i = 0; i < S::ROWS; i++) {
#pragma unroll
          for (int c = 0; c < 4; c++) {
            sum[i][j + c] += weight[i][k] * value[c];
          }
        }
      }
    }
  }
}

template <typename S>
__device__ void store_weights(float *weights, const float (&value)[S::ROWS][S::ROWS]) {
  const place at = my_place();
#pragma unroll
  for (int i = 0; i < S::ROWS; i++) {
#pragma unroll
    for (int j = 0; j < S::ROWS; j++) {
      weights[(at.y + SIDE * i) * S::WEIGHTS + at.x + SIDE * j] = value[i][j];
    }
  }
}

/* Tiles of 64 for the heads that models have; larger heads leave room for tiles of 32 alone. Heads
 * are known by their most columns: the names end with them and the type. */
#define HEAD_KERNELS(name, arguments, function)                                                    \
  HEAD_KERNEL(name##_64_f32, arguments, (function<float, tiling<64, 64>>))                         \
  HEAD_KERNEL(name##_128_f32, arguments, (function<float, tiling<128, 64>>))                       \
  HEAD_KERNEL(name##_256_f32, arguments, (function<float, tiling<256, 32>>))                       \
  HEAD_KERNEL(name##_64_bf16, arguments, (function<bf16, tiling<64, 64>>))                         \
  HEAD_KERNEL(name##_128_bf16, arguments, (function<bf16, tiling<128, 64>>))                       \
  HEAD_KERNEL(name##_256_bf16, arguments, (function<bf16, tiling<256, 32>>))
#define HEAD_KERNEL(name, arguments, function)                                                     \
  extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS) name(const struct arguments a) { \
    function(a);                                                                                   \
  }

#endif

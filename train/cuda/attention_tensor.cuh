/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of bf16 heads on tensor cores: tiles in shared memory, the operands that a warp makes
 * of them, and the two products that all passes consist of.
 *
 * A block owns rows of queries (or keys) and goes through tiles of keys (or queries). Each of its
 * warps owns BANDS bands of 16 rows for all of the other tile: their operands and sums stay in its
 * registers, so that one load of the others serves BANDS products and rows are never exchanged
 * between warps. While a tile is worked on, copies bring the next one into the other of two stages;
 * one barrier a tile ends both.
 *
 * A tile holds rows of HEAD columns. The 16-byte chunks of a row are permuted by the row's number
 * modulo 8, so that eight rows of a chunk lie in different banks. Columns and rows that do not
 * exist are 0.
 */
#ifndef MEMRUN_TRAIN_CUDA_ATTENTION_TENSOR_CUH
#define MEMRUN_TRAIN_CUDA_ATTENTION_TENSOR_CUH

#include <tensor_core.cuh>

#include "train/cuda/attention.cuh"

#define TENSOR_WARPS   (TENSOR_THREADS / int(WARP))
#define TENSOR_THREADS int(CUDA_TENSOR_THREADS)
#define BAND           16 /* rows and columns of a left operand */
#define CHUNK          8  /* elements of 16 bytes */

/* A head of at most HEAD columns, and how it is cut: rows of a tile of the others. */
template <int HEAD_, int BANDS_, int TILE_> struct tensor_tiling {
  static constexpr int HEAD = HEAD_, BANDS = BANDS_, TILE = TILE_;
  static constexpr int STEPS = HEAD / BAND;               /* of a product over the columns */
  static constexpr int OWN = TENSOR_WARPS * BANDS * BAND; /* rows of a block */
  static constexpr int GROUPS = TILE / BAND;              /* of the others, of a tile */
  static constexpr int OWN_ELEMENTS = OWN * HEAD, TILE_ELEMENTS = TILE * HEAD;
};

/* What a warp has for each element of its bands by 16 others (scores and their like), and of its
 * bands by the head's columns. */
template <typename S> using scores = float[S::BANDS][2][4];
template <typename S> using sums = float[S::BANDS][2 * S::STEPS][4];
/* Its bands as left operands of products over the head's columns. */
template <typename S> using lefts = uint32_t[S::BANDS][S::STEPS][4];

__device__ inline int my_lane() {
  return int(threadIdx.x % WARP);
}

/* The first of the warp's rows among those of the block. */
template <typename S> __device__ int my_first_row() {
  return int(threadIdx.x / WARP) * S::BANDS * BAND;
}

/* Where of a warp's elements [band][.][i] lie: their row among the warp's. */
__device__ inline int row_of(int band, int i) {
  return band * BAND + i / 2 * 8 + my_lane() / 4;
}

/* And their column among 16: of elements [n][i]. */
__device__ inline int column_of(int n, int i) {
  return n * 8 + my_lane() % 4 * 2 + i % 2;
}

template <typename S> __device__ uint32_t place_of(uint32_t row, uint32_t chunk) {
  return row * S::HEAD + (chunk ^ row % 8) * CHUNK;
}

/* Begins to fill ROWS rows of a tile: a thread has a chunk of every so many rows. */
template <typename S, int ROWS>
__device__ void begin_tile(bf16 *tile, const head_rows<const bf16> &from) {
  constexpr int chunks = S::HEAD / CHUNK, apart = TENSOR_THREADS / chunks;
  static_assert(apart % 8 == 0 && ROWS % apart == 0, "a thread's chunks are permuted alike");
  const int first = int(threadIdx.x) / chunks, chunk = int(threadIdx.x) % chunks;
  const bool within = uint32_t(chunk * CHUNK) < from.columns;
  const bf16 *at = from.at + first * from.pitch + chunk * CHUNK;
  tile += place_of<S>(first, chunk);
#pragma unroll
  for (int row = 0; row < ROWS; row += apart) {
    copy_begin(tile + row * S::HEAD, at, within && uint32_t(first + row) < from.rows);
    at += apart * from.pitch;
  }
}

/* The warp's bands of a tile of the block's own rows. */
template <typename S> __device__ void load_lefts(lefts<S> &left, const bf16 *own) {
  const int lane = my_lane(), first = my_first_row<S>();
#pragma unroll
  for (int band = 0; band < S::BANDS; band++) {
#pragma unroll
    for (int step = 0; step < S::STEPS; step++) {
      int row = first + band * BAND + lane % BAND;
      tensor_load(left[band][step], own + place_of<S>(row, 2 * step + lane / BAND));
    }
  }
}

/* score = the warp's rows times rows first ... first + 15 of a tile. */
template <typename S>
__device__ void multiply_by_rows(scores<S> &score, const lefts<S> &left, const bf16 *tile,
                                 int first) {
  const int lane = my_lane(), row = first + lane / BAND * 8 + lane % 8;
#pragma unroll
  for (int band = 0; band < S::BANDS; band++) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
      score[band][i / 4][i % 4] = 0;
    }
  }
#pragma unroll
  for (int step = 0; step < S::STEPS; step++) {
    uint32_t right[4];
    tensor_load(right, tile + place_of<S>(row, 2 * step + lane / 8 % 2));
#pragma unroll
    for (int band = 0; band < S::BANDS; band++) {
      tensor_multiply(score[band][0], left[band][step], right[0], right[1]);
      tensor_multiply(score[band][1], left[band][step], right[2], right[3]);
    }
  }
}

/* sum += weights times rows first ... first + 15 of a tile; the weights are rounded to bf16. A
 * lane has of two results of 8 columns what it must have of a left operand of 16. */
template <typename S>
__device__ void add_weighted_rows(sums<S> &sum, const scores<S> &weight, const bf16 *tile,
                                  int first) {
  const int lane = my_lane(), row = first + lane % BAND;
  uint32_t left[S::BANDS][4];
#pragma unroll
  for (int band = 0; band < S::BANDS; band++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float *pair = &weight[band][i / 2][i % 2 * 2];
      left[band][i] = pair_of(pair[0], pair[1]);
    }
  }
#pragma unroll
  for (int step = 0; step < S::STEPS; step++) {
    uint32_t right[4];
    tensor_load_transposed(right, tile + place_of<S>(row, 2 * step + lane / BAND));
#pragma unroll
    for (int band = 0; band < S::BANDS; band++) {
      tensor_multiply(sum[band][2 * step], left[band], right[0], right[1]);
      tensor_multiply(sum[band][2 * step + 1], left[band], right[2], right[3]);
    }
  }
}

/* Queries do not see the keys that follow them. `ahead`: how far the first query of the scores is
 * ahead of their first key, a multiple of 16. Queries are the rows, or keys are. */
template <typename S, bool KEYS_ARE_ROWS> __device__ void hide_keys(scores<S> &score, int ahead) {
#pragma unroll
  for (int i = 0; i < 8 * S::BANDS; i++) {
    int row = row_of(i / 8, i % 4), column = column_of(i / 4 % 2, i % 4);
    int key_ahead = KEYS_ARE_ROWS ? row - column : column - row;
    if (key_ahead > ahead) score[i / 8][i / 4 % 2][i % 4] = -INFINITY;
  }
}

/* Tiles of keys, each with the values after it, in turns of two stages. */
template <typename S> struct key_stages {
  bf16 *tiles;
  const bf16 *k, *v; /* of the head, row 0 */
  uint64_t pitch;
  uint32_t seq, columns;

  __device__ bf16 *keys(uint32_t key) const {
    return tiles + key / S::TILE % 2 * 2 * S::TILE_ELEMENTS;
  }

  __device__ void begin(uint32_t key) const {
    begin_tile<S, S::TILE>(keys(key), {k + key * pitch, pitch, seq - key, columns});
    begin_tile<S, S::TILE>(keys(key) + S::TILE_ELEMENTS,
                           {v + key * pitch, pitch, seq - key, columns});
  }
};

/* Stores the warp's sums times a factor, through its own rows of a tile: nobody else reads those,
 * and rows of memory are written whole. */
template <typename S>
__device__ void store_sums(const head_rows<bf16> &to, bf16 *own, const sums<S> &sum, float factor) {
  constexpr int chunks = S::HEAD / CHUNK;
  const int first = my_first_row<S>();
#pragma unroll
  for (int band = 0; band < S::BANDS; band++) {
#pragma unroll
    for (int i = 0; i < 4 * S::STEPS; i++) {
      const float *pair = &sum[band][i / 2][i % 2 * 2];
      bf16 *at = own + place_of<S>(first + row_of(band, i % 2 * 2), i / 2) + my_lane() % 4 * 2;
      *reinterpret_cast<uint32_t *>(at) = pair_of(pair[0] * factor, pair[1] * factor);
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < S::BANDS * BAND * chunks; i += WARP) {
    int row = first + (i + my_lane()) / chunks, chunk = (i + my_lane()) % chunks;
    if (uint32_t(row) >= to.rows || uint32_t(chunk * CHUNK) >= to.columns) continue;
    *reinterpret_cast<pack<bf16, CHUNK> *>(to.at + row * to.pitch + chunk * CHUNK) =
        *reinterpret_cast<const pack<bf16, CHUNK> *>(own + place_of<S>(row, chunk));
  }
}

#define TENSOR_KERNEL(name, arguments, function, ...)                                              \
  extern "C" __global__ void __launch_bounds__(TENSOR_THREADS) name(const struct arguments a) {    \
    function<tensor_tiling<__VA_ARGS__>>(a);                                                       \
  }

#endif

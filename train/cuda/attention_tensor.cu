/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal attention forward on tensor cores. As attention.cu has it, the scores are never stored; a
 * row's statistics are fp32 and lie with the four lanes that have its scores (Dao 2023,
 * FlashAttention-2, gives each warp rows of its own in the same way).
 */
#include "train/cuda/attention_tensor.cuh"

/* The running softmax of a warp's rows: of each band, rows of elements 0, 1 and of elements 2, 3.
 */
template <typename S> struct tensor_softmax {
  float largest[S::BANDS][2]; /* score so far, in all four lanes of the row */
  float total[S::BANDS][2];   /* of the weights in the lane's own columns */
  sums<S> out;
};

/* Over the four lanes of a row. */
__device__ inline float quad_largest(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

__device__ inline float quad_total(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

/* Turns a row's scores into weights relative to the largest so far, and what was summed before with
 * them. Every query sees key 0, which comes first: the largest is a number. */
template <typename S>
__device__ void absorb_row(tensor_softmax<S> &state, scores<S> (&score)[S::GROUPS], int band,
                           int half, float scale) {
  float largest = state.largest[band][half];
#pragma unroll
  for (int i = 0; i < 4 * S::GROUPS; i++) {
    largest = fmaxf(largest, score[i / 4][band][i / 2 % 2][2 * half + i % 2]);
  }
  largest = quad_largest(largest);
  const float correction = power_of_2((state.largest[band][half] - largest) * scale);
  const float offset = largest * scale;
  float total = state.total[band][half] * correction;
#pragma unroll
  for (int i = 0; i < 4 * S::GROUPS; i++) {
    float &weight = score[i / 4][band][i / 2 % 2][2 * half + i % 2];
    weight = power_of_2(weight * scale - offset);
    total += weight;
  }
  state.largest[band][half] = largest;
  state.total[band][half] = total;
#pragma unroll
  for (int i = 0; i < 4 * S::STEPS; i++) {
    state.out[band][i / 2][2 * half + i % 2] *= correction;
  }
}

/* One tile of keys and its values; the warp's first query is `ahead` of the first key. */
template <typename S>
__device__ void absorb_tile(tensor_softmax<S> &state, const lefts<S> &queries, const bf16 *keys,
                            int ahead, float scale) {
  scores<S> score[S::GROUPS];
#pragma unroll
  for (int g = 0; g < S::GROUPS; g++) {
    multiply_by_rows<S>(score[g], queries, keys, g * BAND);
    if (ahead <= g * BAND) hide_keys<S, false>(score[g], ahead - g * BAND);
  }
#pragma unroll
  for (int i = 0; i < 2 * S::BANDS; i++) {
    absorb_row<S>(state, score, i / 2, i % 2, scale);
  }
#pragma unroll
  for (int g = 0; g < S::GROUPS; g++) {
    add_weighted_rows<S>(state.out, score[g], keys + S::TILE_ELEMENTS, g * BAND);
  }
}

/* Ends the softmax of the warp's rows: their outputs and lse. */
template <typename S>
__device__ void finish_rows(tensor_softmax<S> &state, float *lse, uint32_t rows, float scale) {
#pragma unroll
  for (int i = 0; i < 2 * S::BANDS; i++) {
    const int band = i / 2, half = i % 2;
    const float total = quad_total(state.total[band][half]), factor = 1.0f / total;
    uint32_t row = my_first_row<S>() + row_of(band, 2 * half);
    if (my_lane() % 4 == 0 && row < rows) {
      lse[row] = (state.largest[band][half] * scale + log2f(total)) * LN_2;
    }
#pragma unroll
    for (int k = 0; k < 4 * S::STEPS; k++) {
      state.out[band][k / 2][2 * half + k % 2] *= factor;
    }
  }
}

template <typename S> __device__ void attention_tensor(const cuda_attention &a) {
  bf16 *own = reinterpret_cast<bf16 *>(dynamic_shared);
  /* The longest rows first, so that the last blocks are short. */
  const uint32_t query = (gridDim.x - 1 - blockIdx.x) * S::OWN, head = blockIdx.y;
  const uint32_t columns = a.width / a.heads, pitch = 3 * a.width, left = a.seq - query;
  const uint64_t first = uint64_t(blockIdx.z) * a.seq;
  const bf16 *q = static_cast<const bf16 *>(a.qkv) + first * pitch + head * columns;
  const key_stages<S> stages = {
      own + S::OWN_ELEMENTS, q + a.width, q + 2 * a.width, pitch, a.seq, columns};
  begin_tile<S, S::OWN>(own, {q + uint64_t(query) * pitch, pitch, left, columns});
  stages.begin(0);
  copy_wait();
  __syncthreads();
  lefts<S> queries;
  load_lefts<S>(queries, own);
  tensor_softmax<S> state = {};
#pragma unroll
  for (int i = 0; i < 2 * S::BANDS; i++) {
    state.largest[i / 2][i % 2] = -INFINITY;
  }
  const int mine = int(query) + my_first_row<S>();
  const uint32_t end = min(query + S::OWN, a.seq);
  const float scale = a.scale * LOG2_E;
  for (uint32_t key = 0; key < end; key += S::TILE) {
    const int ahead = mine - int(key);
    if (key + S::TILE < end) stages.begin(key + S::TILE);
    if (ahead > -S::BANDS * BAND) absorb_tile<S>(state, queries, stages.keys(key), ahead, scale);
    copy_wait();
    __syncthreads(); /* the next stage is there, and this one has been read */
  }
  bf16 *out = static_cast<bf16 *>(a.out) + (first + query) * a.width + head * columns;
  float *lse = a.lse + (uint64_t(blockIdx.z) * a.heads + head) * a.seq + query;
  finish_rows<S>(state, lse, left, scale);
  store_sums<S>({out, a.width, left, columns}, own, state.out, 1);
}

TENSOR_KERNEL(cuda_attention_tensor_64, cuda_attention, attention_tensor, 64, 2, 64)
TENSOR_KERNEL(cuda_attention_tensor_128, cuda_attention, attention_tensor, 128, 1, 64)

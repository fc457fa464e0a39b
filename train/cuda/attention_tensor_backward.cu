/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal attention backward on tensor cores: the two passes of attention_backward.cu, sixteen of
 * the others at a time. Of what lies between the inputs and the sums, weights and dscores alone are
 * rounded to bf16; the scale of the scores waits for the sums.
 */
#include "train/cuda/attention_tensor.cuh"

/* Of an element: the weight in the place of its score, the unscaled dscore in that of dp. */
__device__ inline void weigh(float &score, float &dp, float scale, float lse, float delta) {
  score = power_of_2(at_most_0(score * scale - lse));
  dp = score * (dp - delta);
}

/* A warp's queries, with their statistics; lse is that of powers of 2. */
template <typename S> struct query_band {
  lefts<S> queries, douts;
  float lse[S::BANDS][2], delta[S::BANDS][2], scale;
  sums<S> dq;
};

template <typename S>
__device__ void load_statistics(query_band<S> &band, const head_view<bf16> &view, uint32_t query,
                                uint32_t left) {
#pragma unroll
  for (int i = 0; i < 2 * S::BANDS; i++) {
    uint32_t row = my_first_row<S>() + row_of(i / 2, i % 2 * 2);
    band.lse[i / 2][i % 2] = row < left ? view.lse[query + row] * LOG2_E : 0;
    band.delta[i / 2][i % 2] = row < left ? view.delta[query + row] : 0;
  }
}

/* Keys g ... g + 15 of a tile, which the warp's first query is `ahead` of. */
template <typename S>
__device__ void absorb_keys(query_band<S> &band, const bf16 *keys, int g, int ahead) {
  scores<S> score, dp;
  multiply_by_rows<S>(score, band.queries, keys, g);
  multiply_by_rows<S>(dp, band.douts, keys + S::TILE_ELEMENTS, g);
  if (ahead <= 0) hide_keys<S, false>(score, ahead);
#pragma unroll
  for (int i = 0; i < 8 * S::BANDS; i++) {
    const int b = i / 8, n = i / 4 % 2, half = i / 2 % 2;
    weigh(score[b][n][i % 4], dp[b][n][i % 4], band.scale, band.lse[b][half], band.delta[b][half]);
  }
  add_weighted_rows<S>(band.dq, dp, keys, g);
}

template <typename S> __device__ void attention_queries_tensor(const cuda_attention_backward &a) {
  bf16 *queries = reinterpret_cast<bf16 *>(dynamic_shared), *douts = queries + S::OWN_ELEMENTS;
  const head_view<bf16> view = view_of<bf16>(a);
  const uint32_t query = (gridDim.x - 1 - blockIdx.x) * S::OWN, left = a.seq - query;
  const key_stages<S> stages = {
      douts + S::OWN_ELEMENTS, view.k, view.v, view.pitch, a.seq, view.columns};
  begin_tile<S, S::OWN>(queries, {view.q + query * view.pitch, view.pitch, left, view.columns});
  begin_tile<S, S::OWN>(douts,
                        {view.dout + uint64_t(query) * a.width, a.width, left, view.columns});
  stages.begin(0);
  query_band<S> band = {};
  band.scale = a.scale * LOG2_E;
  load_statistics<S>(band, view, query, left);
  copy_wait();
  __syncthreads();
  load_lefts<S>(band.queries, queries);
  load_lefts<S>(band.douts, douts);
  const int mine = int(query) + my_first_row<S>();
  const uint32_t end = min(query + S::OWN, a.seq);
  for (uint32_t key = 0; key < end; key += S::TILE) {
    if (key + S::TILE < end) stages.begin(key + S::TILE);
    for (int g = 0; g < S::TILE; g += BAND) {
      const int ahead = mine - int(key) - g;
      if (ahead <= -S::BANDS * BAND) break;
      absorb_keys<S>(band, stages.keys(key), g, ahead);
    }
    copy_wait();
    __syncthreads(); /* the next stage is there, and this one has been read */
  }
  store_sums<S>({view.dq + query * view.pitch, view.pitch, left, view.columns}, queries, band.dq,
                a.scale);
}

/* A warp's keys. */
template <typename S> struct key_band {
  lefts<S> keys, values;
  sums<S> dk, dv;
  float scale;
};

/* Tiles of queries and their douts, then lse and delta, in turns of two stages. */
template <typename S> struct query_stages {
  static constexpr int FLOATS = S::TILE_ELEMENTS + 2 * S::TILE; /* of a stage */
  float *tiles;
  const head_view<bf16> &view;
  uint32_t seq, width;

  __device__ bf16 *queries(uint32_t query) const {
    return reinterpret_cast<bf16 *>(tiles + query / S::TILE % 2 * FLOATS);
  }

  __device__ float *statistics(uint32_t query) const {
    return tiles + query / S::TILE % 2 * FLOATS + S::TILE_ELEMENTS;
  }

  __device__ void begin(uint32_t query) const {
    const uint32_t left = seq - query;
    begin_tile<S, S::TILE>(queries(query),
                           {view.q + query * view.pitch, view.pitch, left, view.columns});
    begin_tile<S, S::TILE>(queries(query) + S::TILE_ELEMENTS,
                           {view.dout + uint64_t(query) * width, width, left, view.columns});
    static_assert(2 * S::TILE <= TENSOR_THREADS, "a thread for each of the statistics");
    if (threadIdx.x >= 2 * S::TILE) return;
    const uint32_t row = threadIdx.x % S::TILE;
    const float *from = (threadIdx.x < S::TILE ? view.lse : view.delta) + query;
    copy_begin_word(statistics(query) + threadIdx.x, from + (row < left ? row : 0), row < left);
  }
};

/* Queries g ... g + 15 of a tile, the first of which is `ahead` of the warp's first key. Those
 * beyond the last are rows of 0 with statistics of 0, and add nothing. */
template <typename S>
__device__ void absorb_queries(key_band<S> &band, const bf16 *queries, const float *statistics,
                               int g, int ahead) {
  const bf16 *douts = queries + S::TILE_ELEMENTS;
  scores<S> score, dp;
  multiply_by_rows<S>(score, band.keys, queries, g);
  multiply_by_rows<S>(dp, band.values, douts, g);
  if (ahead < S::BANDS * BAND) hide_keys<S, true>(score, ahead);
#pragma unroll
  for (int n = 0; n < 2; n++) {
    float lse[2], delta[2];
    load(lse, statistics + g + column_of(n, 0));
    load(delta, statistics + S::TILE + g + column_of(n, 0));
#pragma unroll
    for (int i = 0; i < 4 * S::BANDS; i++) {
      weigh(score[i / 4][n][i % 4], dp[i / 4][n][i % 4], band.scale, lse[i % 2] * LOG2_E,
            delta[i % 2]);
    }
  }
  add_weighted_rows<S>(band.dv, score, douts, g);
  add_weighted_rows<S>(band.dk, dp, queries, g);
}

template <typename S> __device__ void attention_keys_tensor(const cuda_attention_backward &a) {
  bf16 *keys = reinterpret_cast<bf16 *>(dynamic_shared), *values = keys + S::OWN_ELEMENTS;
  const head_view<bf16> view = view_of<bf16>(a);
  const uint32_t key = blockIdx.x * S::OWN, left = a.seq - key;
  const query_stages<S> stages = {dynamic_shared + S::OWN_ELEMENTS, view, a.seq, a.width};
  begin_tile<S, S::OWN>(keys, {view.k + key * view.pitch, view.pitch, left, view.columns});
  begin_tile<S, S::OWN>(values, {view.v + key * view.pitch, view.pitch, left, view.columns});
  stages.begin(key);
  copy_wait();
  __syncthreads();
  key_band<S> band = {};
  band.scale = a.scale * LOG2_E;
  load_lefts<S>(band.keys, keys);
  load_lefts<S>(band.values, values);
  const int mine = int(key) + my_first_row<S>();
  for (uint32_t query = key; query < a.seq; query += S::TILE) {
    if (query + S::TILE < a.seq) stages.begin(query + S::TILE);
    for (int g = 0; g < S::TILE; g += BAND) {
      const int ahead = int(query) + g - mine;
      if (ahead < 0) continue; /* these queries see none of the warp's keys */
      absorb_queries<S>(band, stages.queries(query), stages.statistics(query), g, ahead);
    }
    copy_wait();
    __syncthreads(); /* the next stage is there, and this one has been read */
  }
  store_sums<S>({view.dk + key * view.pitch, view.pitch, left, view.columns}, keys, band.dk,
                a.scale);
  store_sums<S>({view.dv + key * view.pitch, view.pitch, left, view.columns}, values, band.dv, 1);
}

/* Queries wait for 128 columns in smaller tiles: two blocks fit into the shared memory of sm_80. */
TENSOR_KERNEL(cuda_attention_queries_tensor_64, cuda_attention_backward, attention_queries_tensor,
              64, 2, 64)
TENSOR_KERNEL(cuda_attention_queries_tensor_128, cuda_attention_backward, attention_queries_tensor,
              128, 1, 64)
TENSOR_KERNEL(cuda_attention_keys_tensor_64, cuda_attention_backward, attention_keys_tensor, 64, 1,
              64)
TENSOR_KERNEL(cuda_attention_keys_tensor_128, cuda_attention_backward, attention_keys_tensor, 128,
              1, 32)

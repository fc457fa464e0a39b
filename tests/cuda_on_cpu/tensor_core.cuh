/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What train/cuda/ptx/tensor_core.cuh has, for compilation for the processor: what a warp does
 * together is done once all of its lanes are there. A copy lands at once or when it is waited for,
 * as the seed has it.
 */
#ifndef MEMRUN_TESTS_CUDA_ON_CPU_TENSOR_CORE_CUH
#define MEMRUN_TESTS_CUDA_ON_CPU_TENSOR_CORE_CUH

inline float element_of(uint32_t pair, int index) {
  return __bfloat162float({uint16_t(pair >> 16 * index)});
}

struct tensor_product {
  float *sum;
  const uint32_t *left;
  uint32_t right[2];
};

/* The product of a warp; sums run over the inner index, in fp32. */
inline void multiply_lanes(void *const *lanes) {
  float left[16][16], right[16][8];
  for (int lane = 0; lane < WARP_LANES; lane++) {
    const auto *mine = static_cast<const tensor_product *>(lanes[lane]);
    int row = lane / 4, pair = lane % 4 * 2;
    for (int i = 0; i < 8; i++) {
      left[row + i / 2 % 2 * 8][pair + i / 4 * 8 + i % 2] = element_of(mine->left[i / 2], i % 2);
    }
    for (int i = 0; i < 4; i++) {
      right[pair + i / 2 * 8 + i % 2][row] = element_of(mine->right[i / 2], i % 2);
    }
  }
  for (int lane = 0; lane < WARP_LANES; lane++) {
    const auto *mine = static_cast<const tensor_product *>(lanes[lane]);
    for (int i = 0; i < 4; i++) {
      int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      for (int k = 0; k < 16; k++) {
        mine->sum[i] += left[row][k] * right[k][column];
      }
    }
  }
}

inline void tensor_multiply(float (&sum)[4], const uint32_t (&left)[4], uint32_t right0,
                            uint32_t right1) {
  tensor_product mine = {sum, left, {right0, right1}};
  do_together(multiply_lanes, &mine);
}

struct tensor_rows {
  uint32_t *to;
  const uint16_t *row;
};

inline void load_lanes(void *const *lanes) {
  for (int lane = 0; lane < WARP_LANES; lane++) {
    for (int i = 0; i < 4; i++) {
      const uint16_t *row = static_cast<const tensor_rows *>(lanes[8 * i + lane / 4])->row;
      static_cast<tensor_rows *>(lanes[lane])->to[i] =
          row[lane % 4 * 2] | uint32_t(row[lane % 4 * 2 + 1]) << 16;
    }
  }
}

inline void load_lanes_transposed(void *const *lanes) {
  for (int lane = 0; lane < WARP_LANES; lane++) {
    for (int i = 0; i < 4; i++) {
      auto element = [&](int row) {
        return uint32_t(static_cast<const tensor_rows *>(lanes[8 * i + row])->row[lane / 4]);
      };
      static_cast<tensor_rows *>(lanes[lane])->to[i] =
          element(lane % 4 * 2) | element(lane % 4 * 2 + 1) << 16;
    }
  }
}

inline void tensor_load(uint32_t (&to)[4], const void *row) {
  check_shared(row, 16);
  tensor_rows mine = {to, static_cast<const uint16_t *>(row)};
  do_together(load_lanes, &mine);
}

inline void tensor_load_transposed(uint32_t (&to)[4], const void *row) {
  check_shared(row, 16);
  tensor_rows mine = {to, static_cast<const uint16_t *>(row)};
  do_together(load_lanes_transposed, &mine);
}

inline void copy_begin(void *to, const void *from, bool exists) {
  begin_copy({to, from, 16, exists});
}

inline void copy_begin_word(void *to, const void *from, bool exists) {
  begin_copy({to, from, 4, exists});
}

inline void copy_wait() {
  land_copies();
}

inline uint32_t pair_of(float first, float second) {
  return __float2bfloat16_rn(first).bits | uint32_t(__float2bfloat16_rn(second).bits) << 16;
}

inline float power_of_2(float value) {
  return exp2f(value);
}

#endif

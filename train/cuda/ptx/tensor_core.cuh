/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instructions that CUDA C++ has no words for: products of bf16 matrices on tensor cores, loads of
 * their operands, and copies to shared memory that go on beside the thread. All are in every device
 * from sm_80 on. The tests have a header of this name for the processor.
 *
 * A product adds left (16 x 16) . right (16 x 8) to sum (16 x 8). The lanes of a warp share each
 * matrix (PTX ISA, "Matrix Fragments for mma.m16n8k16"): with row = lane / 4 and pair = 2 (lane %
 * 4)
 *
 *   left[0]   (row, pair), (row, pair + 1)        left[2]   the same, 8 columns further
 *   left[1]   the same, 8 rows further            left[3]   8 rows and 8 columns further
 *   right[0]  (pair, row), (pair + 1, row)        right[1]  the same, 8 rows further
 *   sum[0..1] (row, pair), (row, pair + 1)        sum[2..3] the same, 8 rows further
 *
 * where a register of left and right holds two elements, the first in its lower half.
 */
#ifndef MEMRUN_TRAIN_CUDA_PTX_TENSOR_CORE_CUH
#define MEMRUN_TRAIN_CUDA_PTX_TENSOR_CORE_CUH

#include <stdint.h>

__device__ inline void tensor_multiply(float (&sum)[4], const uint32_t (&left)[4], uint32_t right0,
                                       uint32_t right1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
               "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
               : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}

__device__ inline uint32_t shared_address(const void *shared) {
  return uint32_t(__cvta_generic_to_shared(shared));
}

/* Four matrices of 8 x 8 elements: lane 8 i + r gives the address of row r of matrix i, 16 bytes in
 * shared memory, and gets its (lane / 4, 2 (lane % 4)) and the next in to[i]. */
__device__ inline void tensor_load(uint32_t (&to)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

/* As tensor_load, each matrix transposed on the way. */
__device__ inline void tensor_load_transposed(uint32_t (&to)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

/* Begins a copy of 16 bytes to shared memory, of zeros where they do not exist. */
__device__ inline void copy_begin(void *to, const void *from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(exists ? 16 : 0)
               : "memory");
}

/* The same of 4 bytes. */
__device__ inline void copy_begin_word(void *to, const void *from, bool exists) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
               :
               : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(exists ? 4 : 0)
               : "memory");
}

/* Waits for the copies that the thread has begun; a barrier shows them to others. */
__device__ inline void copy_wait() {
  asm volatile("cp.async.wait_all;" : : : "memory");
}

/* Two elements in a register, each rounded to the nearest, ties to even. */
__device__ inline uint32_t pair_of(float first, float second) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

/* 2^value to about 2 in 2^23, 0 where that is below the normal numbers; 2^-infinity is 0. */
__device__ inline float power_of_2(float value) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(value));
  return power;
}

#endif

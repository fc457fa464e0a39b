/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses among the instruction sets for which vector.c was compiled. */
#include "train/kernels/vector.h"

extern const struct vector_table vector_table_plain, vector_table_plain_bf16;

#if defined(__x86_64__)
extern const struct vector_table vector_table_avx2, vector_table_avx2_bf16;
extern const struct vector_table vector_table_avx512, vector_table_avx512_bf16;

const struct vector_table *vector_at(mr_dtype dtype, unsigned index) {
  bool bf16 = dtype == MR_BF16;
  bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
              __builtin_cpu_supports("avx512cd");
  bool middle = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c");
  switch (index) {
  case 0:
    return bf16 ? &vector_table_plain_bf16 : &vector_table_plain;
  case 1:
    return !middle ? NULL : bf16 ? &vector_table_avx2_bf16 : &vector_table_avx2;
  case 2:
    return !wide || !middle ? NULL : bf16 ? &vector_table_avx512_bf16 : &vector_table_avx512;
  default:
    return NULL;
  }
}
#else
const struct vector_table *vector_at(mr_dtype dtype, unsigned index) {
  const struct vector_table *plain =
      dtype == MR_BF16 ? &vector_table_plain_bf16 : &vector_table_plain;
  return index == 0 ? plain : NULL;
}
#endif

const struct vector_table *vector_best(mr_dtype dtype) {
  unsigned index = 0;
  while (vector_at(dtype, index + 1) != NULL) {
    index++;
  }
  return vector_at(dtype, index);
}

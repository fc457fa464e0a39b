/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses among the instruction sets for which vector.c was compiled. */
#include "train/kernels/vector.h"

extern const struct vector_table vector_table_plain;

#if defined(__x86_64__)
extern const struct vector_table vector_table_avx2;
extern const struct vector_table vector_table_avx512;

const struct vector_table *vector_at(unsigned index) {
  bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
              __builtin_cpu_supports("avx512cd");
  bool middle = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c");
  switch (index) {
  case 0:
    return &vector_table_plain;
  case 1:
    return middle ? &vector_table_avx2 : NULL;
  case 2:
    return wide && middle ? &vector_table_avx512 : NULL;
  default:
    return NULL;
  }
}
#else
const struct vector_table *vector_at(unsigned index) {
  return index == 0 ? &vector_table_plain : NULL;
}
#endif

const struct vector_table *vector_best(void) {
  unsigned index = 0;
  while (vector_at(index + 1) != NULL) {
    index++;
  }
  return vector_at(index);
}

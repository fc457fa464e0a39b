/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bf16 is the upper half of an fp32: the same range, eight bits of precision. Widening is exact;
 * rounding goes to the nearest value and between two of them to the even one, which is off by at
 * most 2^-8 of the value. Numbers are kept as the uint16_t of their bits.
 */
#ifndef MEMRUN_TRAIN_KERNELS_BF16_H
#define MEMRUN_TRAIN_KERNELS_BF16_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <memrun/memrun.h>

static inline float bf16_widen(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

static inline uint16_t bf16_round(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return (uint16_t)(bits >> 16 | 0x40u); /* not a number: quiet, and never rounded to infinity */
  }
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* Bytes of an element of MR_F32 or MR_BF16. */
static inline size_t element_bytes(mr_dtype dtype) {
  return dtype == MR_BF16 ? sizeof(uint16_t) : sizeof(float);
}

/* The address of element `index` of a matrix. */
static inline const void *element_at(const void *matrix, mr_dtype dtype, uint64_t index) {
  return (const char *)matrix + index * element_bytes(dtype);
}

static inline void *element_place(void *matrix, mr_dtype dtype, uint64_t index) {
  return (char *)matrix + index * element_bytes(dtype);
}

#endif

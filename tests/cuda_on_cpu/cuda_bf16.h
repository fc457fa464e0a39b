/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels use of the header of this name in NVIDIA's toolkit, for compilation for the
 * processor. */
#ifndef MEMRUN_TESTS_CUDA_ON_CPU_CUDA_BF16_H
#define MEMRUN_TESTS_CUDA_ON_CPU_CUDA_BF16_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* The names are NVIDIA's. NOLINTBEGIN(bugprone-reserved-identifier) */

typedef struct {
  uint16_t bits;
} __nv_bfloat16;

static inline float __bfloat162float(__nv_bfloat16 value) {
  uint32_t bits = (uint32_t)value.bits << 16;
  float wide = 0;
  memcpy(&wide, &bits, sizeof wide);
  return wide;
}

/* To nearest, ties to even. */
static inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof bits);
  __nv_bfloat16 narrow = {
      (uint16_t)(isnan(value) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
  return narrow;
}

/* NOLINTEND(bugprone-reserved-identifier) */

#endif

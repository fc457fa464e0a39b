/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What vector.c is written in: vectors of sixteen lanes, which compilers cut into the registers of
 * the instruction set, and the operations that they would cut into single lanes instead. gcc 12
 * does so with every comparison of vectors wider than a register, which made AdamW by AVX2 a tenth
 * as fast. So nothing here or in vector.c compares vectors: a mask is the sign of a difference of
 * whole numbers, and the smaller and larger of two floats have instructions.
 */
#ifndef MEMRUN_TRAIN_KERNELS_LANES_H
#define MEMRUN_TRAIN_KERNELS_LANES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* Vectors never cross a function that is not inlined or of the same instruction set, so what
 * compilers say of their passing says nothing. */
#pragma GCC diagnostic ignored "-Wpsabi"

#define LANES 16u
#define LEAF  static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(64)));
typedef int32_t ivec __attribute__((vector_size(64)));
typedef uint32_t uvec __attribute__((vector_size(64)));

/*
 * One register, or as much of a vec as has an instruction: a < b ? a : b, a > b ? a : b, and
 * a * b + c, rounded once on every machine: by the processor where it can, else by the C library.
 */
#if defined(__AVX512F__)
typedef __m512 piece;
#define PIECE_SMALLER(a, b)  _mm512_min_ps(a, b)
#define PIECE_LARGER(a, b)   _mm512_max_ps(a, b)
#define PIECE_FUSED(a, b, c) _mm512_fmadd_ps(a, b, c)
#define PIECE_REGISTER       "v"
#elif defined(__FMA__)
typedef __m256 piece;
#define PIECE_SMALLER(a, b)  _mm256_min_ps(a, b)
#define PIECE_LARGER(a, b)   _mm256_max_ps(a, b)
#define PIECE_FUSED(a, b, c) _mm256_fmadd_ps(a, b, c)
#define PIECE_REGISTER       "x"
#elif defined(__aarch64__)
typedef float32x4_t piece;
#define PIECE_SMALLER(a, b)  vbslq_f32(vcltq_f32(a, b), a, b)
#define PIECE_LARGER(a, b)   vbslq_f32(vcgtq_f32(a, b), a, b)
#define PIECE_FUSED(a, b, c) vfmaq_f32(c, a, b)
#define PIECE_REGISTER       "w"
#elif defined(__SSE2__)
typedef __m128 piece;
#define PIECE_SMALLER(a, b) _mm_min_ps(a, b)
#define PIECE_LARGER(a, b)  _mm_max_ps(a, b)
#define PIECE_REGISTER      "x"
#else
typedef float piece;
#define PIECE_SMALLER(a, b) ((a) < (b) ? (a) : (b))
#define PIECE_LARGER(a, b)  ((a) > (b) ? (a) : (b))
#define PIECE_REGISTER      "m"
#endif

union pieces {
  vec whole;
  piece part[sizeof(vec) / sizeof(piece)];
};
#define PIECES      (sizeof(vec) / sizeof(piece))
#define PIECE_LANES (sizeof(piece) / sizeof(float))

typedef piece piece_memory __attribute__((aligned(4), may_alias));
typedef float vec_memory __attribute__((vector_size(64), aligned(4), may_alias));

LEAF vec load_full(const float *p) {
  return *(const vec_memory *)p;
}

/* Piece by piece, since gcc 12 moves more than a register to memory by way of the stack. */
LEAF void store_full(float *p, vec x) {
  const union pieces y = {x};
  for (size_t i = 0; i < PIECES; i++) {
    *(piece_memory *)(p + i * PIECE_LANES) = y.part[i];
  }
}

LEAF vec smaller(vec a, vec b) {
  const union pieces x = {a}, y = {b};
  union pieces result;
  for (size_t i = 0; i < PIECES; i++) {
    result.part[i] = PIECE_SMALLER(x.part[i], y.part[i]);
  }
  return result.whole;
}

LEAF vec larger(vec a, vec b) {
  const union pieces x = {a}, y = {b};
  union pieces result;
  for (size_t i = 0; i < PIECES; i++) {
    result.part[i] = PIECE_LARGER(x.part[i], y.part[i]);
  }
  return result.whole;
}

LEAF vec fused(vec a, vec b, vec c) {
#if defined(PIECE_FUSED)
  const union pieces x = {a}, y = {b}, z = {c};
  union pieces result;
  for (size_t i = 0; i < PIECES; i++) {
    result.part[i] = PIECE_FUSED(x.part[i], y.part[i], z.part[i]);
  }
  return result.whole;
#else
  for (unsigned lane = 0; lane < LANES; lane++) {
    c[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
  }
  return c;
#endif
}

/* A product that no compiler fuses with what is added to it, so that its bits are the same wherever
 * it stands. */
LEAF vec unfused(vec product) {
  union pieces x = {product};
  for (size_t i = 0; i < PIECES; i++) {
    __asm__("" : "+" PIECE_REGISTER(x.part[i]));
  }
  return x.whole;
}

LEAF vec splat(float x) {
  return x - (vec){0};
}

LEAF vec pick(ivec mask, vec yes, vec no) {
  return (vec)((mask & (ivec)yes) | (~mask & (ivec)no));
}

/* All ones where a < b, for a and b from 0 on, whose difference is in range. */
LEAF ivec below(ivec a, int32_t b) {
  return (ivec)(0u - ((uvec)(a - b) >> 31));
}

/* All ones in the first `lanes` lanes. */
LEAF ivec first_lanes(size_t lanes) {
  const ivec index = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return below(index, (int32_t)lanes);
}

/*
 * A vec that lives from one round of a loop to the next: in registers, while gcc 12 would keep a
 * vec that is wider than one in memory.
 */
struct total {
  piece part[PIECES];
};

LEAF vec total_now(const struct total *total) {
  union pieces x;
  for (size_t i = 0; i < PIECES; i++) {
    x.part[i] = total->part[i];
  }
  return x.whole;
}

LEAF void total_set(struct total *total, vec x) {
  const union pieces y = {x};
  for (size_t i = 0; i < PIECES; i++) {
    total->part[i] = y.part[i];
  }
}

LEAF void total_add(struct total *total, vec x) {
  total_set(total, total_now(total) + x);
}

/* The bits of a float; of those that are not negative they grow as the floats do. */
LEAF int32_t bits_of(float x) {
  int32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

#endif

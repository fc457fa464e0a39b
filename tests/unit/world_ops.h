/* SPDX-License-Identifier: Apache-2.0 */
/* The ops of the job that tests of runtime/ run: wrapping integer arithmetic, one body for the cpu,
 * for the fake CUDA driver and for the plain computation that both are compared with. */
#ifndef MEMRUN_TESTS_UNIT_WORLD_OPS_H
#define MEMRUN_TESTS_UNIT_WORLD_OPS_H

#include <stdbool.h>
#include <stdint.h>

enum world_kind {
  WORLD_FORWARD,      /* h = f(x, w), through scratch */
  WORLD_SQUASH,       /* y = f(h) */
  WORLD_LOSS,         /* loss, and dy where the step trains */
  WORLD_BACKWARD,     /* dx, dw = f(dy, x, w, h) */
  WORLD_UPDATE,       /* w, m = f(dw, w, m) */
  WORLD_RATE,         /* a scalar of the step, from its input */
  WORLD_RATED_UPDATE, /* w, m = f(dw, w, m, scalar) */
  WORLD_KIND_COUNT
};

/* What a kernel is given, by value. */
struct world_args {
  const uint32_t *inputs[4];
  uint32_t *outputs[2];
  uint32_t *scratch;
  uint64_t elements;
  uint64_t train;
};

struct world_kernel {
  const char *name;
  const char *cuda_name;
  void (*run)(const struct world_args *args, uint64_t first, uint64_t end); /* of the elements */
  uint32_t input_count;
  uint32_t output_count;
  bool whole; /* not in parts */
};
extern const struct world_kernel world_kernels[WORLD_KIND_COUNT];

/* One element of each, for device code too. */
#ifdef __CUDACC__
#define WORLD_ELEMENT __device__ static inline
#else
#define WORLD_ELEMENT static inline
#endif
WORLD_ELEMENT uint32_t world_forward_of(uint32_t x, uint32_t w) {
  return x * 3u + w;
}
WORLD_ELEMENT uint32_t world_squash_of(uint32_t h) {
  return h ^ (h >> 3);
}
WORLD_ELEMENT uint32_t world_inner_gradient_of(uint32_t h, uint32_t dy) {
  return dy * 3u + h;
}
WORLD_ELEMENT uint32_t world_weight_gradient_of(uint32_t x, uint32_t dy) {
  return x * dy + 7u;
}
WORLD_ELEMENT uint32_t world_rate_of(uint32_t x) {
  return x * 11u + 1u;
}
WORLD_ELEMENT uint32_t world_input_gradient_of(uint32_t dy, uint32_t w) {
  return dy * 5u + w;
}

#endif

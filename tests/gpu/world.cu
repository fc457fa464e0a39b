/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of the tests' job (tests/unit/world_ops.h), and one that breaks the device. */
#include "tests/unit/world_ops.h"

#define KERNEL extern "C" __global__ void
#define EACH(i, a)                                                                                 \
  uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;                                    \
  i < (a).elements;                                                                                \
  i += gridDim.x * (uint64_t)blockDim.x

KERNEL world_forward(const struct world_args a) {
  for (EACH(i, a)) {
    a.scratch[i] = a.inputs[0][i];
    a.outputs[0][i] = world_forward_of(a.scratch[i], a.inputs[1][i]);
  }
}

KERNEL world_squash(const struct world_args a) {
  for (EACH(i, a)) {
    a.outputs[0][i] = world_squash_of(a.inputs[0][i]);
  }
}

/* One thread: the sum takes its terms in order. */
KERNEL world_loss(const struct world_args a) {
  uint32_t sum = 0;
  for (uint64_t i = 0; i < a.elements; i++) {
    sum = sum * 31u + a.inputs[0][i];
    if (a.train != 0) {
      a.outputs[1][i] = a.inputs[0][i];
    }
  }
  *a.outputs[0] = sum;
}

KERNEL world_backward(const struct world_args a) {
  for (EACH(i, a)) {
    uint32_t dh = world_inner_gradient_of(a.inputs[3][i], a.inputs[0][i]);
    uint32_t w = a.inputs[2][i];
    a.outputs[1][i] = world_weight_gradient_of(a.inputs[1][i], dh);
    a.outputs[0][i] = world_input_gradient_of(dh, w);
  }
}

KERNEL world_update(const struct world_args a) {
  for (EACH(i, a)) {
    a.outputs[1][i] = a.outputs[1][i] * 9u + a.inputs[0][i];
    a.outputs[0][i] -= a.outputs[1][i];
  }
}

/* One thread. */
KERNEL world_rate(const struct world_args a) {
  *a.outputs[0] = world_rate_of(*a.inputs[0]);
}

KERNEL world_rated_update(const struct world_args a) {
  for (EACH(i, a)) {
    a.outputs[1][i] = a.outputs[1][i] * 9u + a.inputs[0][i] + *a.inputs[3];
    a.outputs[0][i] -= a.outputs[1][i];
  }
}

/* Writes where nothing is mapped. */
KERNEL world_break(const struct world_args a) {
  *(volatile uint32_t *)64 = (uint32_t)a.elements;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The ops of the tests' job, over a part of the elements. */
#include "tests/unit/world_ops.h"

static void forward(const struct world_args *args, uint64_t first, uint64_t end) {
  const uint32_t *x = args->inputs[0];
  const uint32_t *w = args->inputs[1];
  uint32_t *y = args->outputs[0];
  uint32_t *scratch = args->scratch;
  for (uint64_t i = first; i < end; i++) {
    scratch[i] = x[i];
    y[i] = world_forward_of(scratch[i], w[i]);
  }
}

static void squash(const struct world_args *args, uint64_t first, uint64_t end) {
  const uint32_t *h = args->inputs[0];
  uint32_t *y = args->outputs[0];
  for (uint64_t i = first; i < end; i++) {
    y[i] = world_squash_of(h[i]);
  }
}

static void loss(const struct world_args *args, uint64_t first, uint64_t end) {
  const uint32_t *y = args->inputs[0];
  uint32_t *dy = args->outputs[1];
  uint32_t sum = 0;
  for (uint64_t i = first; i < end; i++) {
    sum = sum * 31u + y[i];
  }
  *args->outputs[0] = sum;
  for (uint64_t i = first; args->train != 0 && i < end; i++) {
    dy[i] = y[i];
  }
}

static void backward(const struct world_args *args, uint64_t first, uint64_t end) {
  const uint32_t *dy = args->inputs[0];
  const uint32_t *x = args->inputs[1];
  const uint32_t *w = args->inputs[2];
  const uint32_t *h = args->inputs[3];
  uint32_t *dx = args->outputs[0];
  uint32_t *dw = args->outputs[1];
  for (uint64_t i = first; i < end; i++) {
    uint32_t dh = world_inner_gradient_of(h[i], dy[i]);
    dw[i] = world_weight_gradient_of(x[i], dh);
    dx[i] = world_input_gradient_of(dh, w[i]);
  }
}

static void update(const struct world_args *args, uint64_t first, uint64_t end) {
  const uint32_t *dw = args->inputs[0];
  uint32_t *w = args->outputs[0];
  uint32_t *m = args->outputs[1];
  for (uint64_t i = first; i < end; i++) {
    m[i] = m[i] * 9u + dw[i];
    w[i] -= m[i];
  }
}

static void rate(const struct world_args *args, uint64_t first, uint64_t end) {
  (void)first;
  (void)end;
  *args->outputs[0] = world_rate_of(*args->inputs[0]);
}

static void rated_update(const struct world_args *args, uint64_t first, uint64_t end) {
  const uint32_t *dw = args->inputs[0];
  const uint32_t *scalar = args->inputs[3];
  uint32_t *w = args->outputs[0];
  uint32_t *m = args->outputs[1];
  for (uint64_t i = first; i < end; i++) {
    m[i] = m[i] * 9u + dw[i] + *scalar;
    w[i] -= m[i];
  }
}

const struct world_kernel world_kernels[WORLD_KIND_COUNT] = {
    [WORLD_FORWARD] = {"forward", "world_forward", forward, 2, 1, false},
    [WORLD_SQUASH] = {"squash", "world_squash", squash, 1, 1, false},
    [WORLD_LOSS] = {"loss", "world_loss", loss, 1, 2, true},
    [WORLD_BACKWARD] = {"backward", "world_backward", backward, 4, 2, false},
    [WORLD_UPDATE] = {"update", "world_update", update, 3, 2, false},
    [WORLD_RATE] = {"rate", "world_rate", rate, 1, 1, true},
    [WORLD_RATED_UPDATE] = {"rated_update", "world_rated_update", rated_update, 4, 2, false},
};

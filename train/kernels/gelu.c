/* SPDX-License-Identifier: Apache-2.0 */
/* GELU alone, with the bits of the one that the linear op fuses. */
#include "train/kernels/bf16.h"
#include "train/kernels/fast.h"

#define RANGE 16384u

struct run {
  const struct kernel_gelu *op;
  const struct vector_table *vector;
};

static void gelu_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  const struct run *run = context;
  uint64_t first = (uint64_t)task * RANGE;
  const struct kernel_gelu *op = run->op;
  run->vector->gelu(element_place(op->activated, op->dtype, first),
                    element_at(op->x, op->dtype, first), fast_min(RANGE, op->count - first));
}

mr_status fast_gelu(struct mr_team *team, const struct kernel_gelu *op) {
  struct run run = {.op = op, .vector = vector_best(op->dtype)};
  mr_team_run(team, (uint32_t)fast_divide_up(op->count, RANGE), gelu_task, &run);
  return MR_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the optimizer needs: AdamW in one pass over parameter, gradient and moments, which reads 16
 * and writes 12 bytes a parameter and is bound by memory, and the sum of squares of a range for
 * clipping.
 */
#include "train/kernels/fast.h"

/* Long enough that claims cost nothing, short enough that threads finish together. */
#define RANGE 65536u

struct adamw {
  const struct kernel_adamw *op;
  const struct vector_table *vector;
  struct vector_adamw range;
};

static void adamw_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  const struct adamw *a = context;
  uint64_t first = (uint64_t)task * RANGE;
  struct vector_adamw range = a->range;
  range.p += first;
  range.g += first;
  range.m += first;
  range.v += first;
  range.working = range.working == NULL ? NULL : range.working + first;
  range.count = fast_min(RANGE, a->op->count - first);
  a->vector->adamw(&range);
}

mr_status fast_adamw(struct mr_team *team, const struct kernel_adamw *op) {
  return fast_adamw_by(team, op, vector_best(MR_F32));
}

mr_status fast_adamw_by(struct mr_team *team, const struct kernel_adamw *op,
                        const struct vector_table *vector) {
  struct adamw a = {.op = op,
                    .vector = vector,
                    .range = {.p = op->p,
                              .working = op->working,
                              .m = op->m,
                              .v = op->v,
                              .g = op->g,
                              .grad_scale = op->grad_scale == NULL ? 1.0f : *op->grad_scale,
                              .beta1 = op->beta1,
                              .beta2 = op->beta2,
                              .eps = op->eps,
                              .step_size = op->lr,
                              .decay = op->lr * op->weight_decay,
                              .inverse1 = 1.0f / op->correction1,
                              .inverse2 = 1.0f / op->correction2}};
  mr_team_run(team, (uint32_t)fast_divide_up(op->count, RANGE), adamw_task, &a);
  return MR_OK;
}

struct squares {
  const struct kernel_sum_squares *op;
  const struct vector_table *vector;
  double *sums;
};

static void squares_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  const struct squares *s = context;
  uint64_t first = (uint64_t)task * RANGE;
  s->sums[task] = s->vector->sum_squares(s->op->g + first, fast_min(RANGE, s->op->count - first));
}

mr_status fast_sum_squares(struct mr_team *team, const struct kernel_sum_squares *op,
                           void *scratch) {
  struct squares s = {.op = op, .vector = vector_best(MR_F32), .sums = scratch};
  uint32_t tasks = (uint32_t)fast_divide_up(op->count, RANGE);
  mr_team_run(team, tasks, squares_task, &s);
  double sum = 0;
  for (uint32_t i = 0; i < tasks; i++) {
    sum += s.sums[i];
  }
  *op->out = sum;
  return MR_OK;
}

uint64_t kernel_sum_squares_scratch_bytes(uint64_t count, uint32_t threads) {
  (void)threads;
  return fast_divide_up(count, RANGE) * sizeof(double);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The barriers of the CUDA kernels, weakened one at a time on the processor: one of a block then
 * holds up the threads of each warp alone, one of a warp nobody. Under some order of threads that
 * must show as other bits, or the barrier holds up more than it has to.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda_on_cpu.h"
#include "tests/unit/cuda_table.h"
#include "tests/unit/kernels_trial.h"

#define ORDERS 6u /* of threads, under which a barrier must have shown */

/* Ops whose kernels have barriers, on shapes of several tiles, rows or blocks. */
static const struct {
  const char *op;
  mr_dtype dtype;
  bool eights; /* on tensor cores */
  uint64_t seed;
} cases[] = {
    {"attention", MR_F32, false, 1},      {"attention_backward", MR_F32, false, 1},
    {"attention", MR_BF16, true, 3},      {"attention_backward", MR_BF16, true, 3},
    {"embed_backward", MR_F32, false, 1}, {"layernorm_backward", MR_F32, false, 5},
    {"head_logits", MR_F32, false, 2},    {"head_loss", MR_F32, false, 1},
    {"sum_squares", MR_F32, false, 1},
};

static const struct trial_op *op_named(const char *name) {
  uint32_t i = 0;
  while (strcmp(trial_ops[i].name, name) != 0) {
    i++;
  }
  return &trial_ops[i];
}

static void run(struct trial *trial, size_t i, uint64_t order) {
  *trial = (struct trial){.table = cuda_table(),
                          .team = trial->team,
                          .large = true,
                          .dtype = cases[i].dtype,
                          .eights = cases[i].eights};
  cuda_table_seed(order);
  trial_run(trial, op_named(cases[i].op), cases[i].seed);
}

/* Whether the case gives other bits than `right` without that barrier. */
static bool shows(const struct trial *right, size_t i, unsigned barrier) {
  bool same = true;
  cuda_on_cpu_weaken(barrier);
  for (uint64_t order = 1; same && order <= ORDERS; order++) {
    struct trial trial = {.team = right->team};
    run(&trial, i, order << 32);
    same = trial_difference(&trial, right) == NULL;
    trial_fini(&trial);
  }
  cuda_on_cpu_weaken(CUDA_ON_CPU_ALL_BARRIERS);
  return !same;
}

static void every_barrier_is_needed(void **state) {
  (void)state;
  struct mr_team *team = NULL;
  uint64_t met = 0;
  uint64_t shown = 0;
  assert_int_equal(mr_team_create(1, &team), MR_OK);
  for (size_t i = 0; i < MR_COUNT_OF(cases); i++) {
    struct trial right = {.team = team};
    (void)cuda_on_cpu_barriers_met();
    run(&right, i, 0);
    uint64_t here = cuda_on_cpu_barriers_met();
    met |= here;
    for (unsigned barrier = 0; barrier < 64; barrier++) {
      uint64_t bit = UINT64_C(1) << barrier;
      if ((here & ~shown & bit) != 0 && shows(&right, i, barrier)) {
        shown |= bit;
      }
    }
    trial_fini(&right);
  }
  mr_team_destroy(team);
  assert_true(met != 0);
  for (unsigned barrier = 0; barrier < 64; barrier++) {
    if (((met & ~shown) >> barrier & 1) != 0) {
      print_error("%s: nothing shows without it\n", cuda_on_cpu_barrier_name(barrier));
    }
  }
  print_message("%d barriers, %d of them shown to be needed\n", __builtin_popcountll(met),
                __builtin_popcountll(shown));
  assert_true(met == shown);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_barrier_is_needed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels whose elements are bf16. The readable reference in bf16 against itself in fp32, from the
 * same data, which both types hold: what differs is rounding. The fast kernels against the
 * reference in bf16, and the same bits from them wherever buffers lie. MEMRUN_SEED repeats a
 * failure.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/kernels_trial.h"
#include "train/kernels/bf16.h"

/* As parts of what is allowed. */
struct errors {
  double reference, fast;
};

static struct errors compare(const struct trial_op *op, uint64_t seed, uint32_t threads,
                             bool large) {
  struct trial exact = {.table = kernel_reference(), .large = large, .rounded = true};
  assert_int_equal(mr_team_create(threads, &exact.team), MR_OK);
  struct trial reference = exact, fast = exact;
  reference.dtype = fast.dtype = MR_BF16;
  fast.table = kernel_fast();
  fast.lines = 1;
  trial_run(&exact, op, seed);
  trial_run(&reference, op, seed);
  trial_run(&fast, op, seed);
  struct errors errors = {
      .reference = trial_check_errors(&reference, &exact, op, seed),
      .fast = trial_check_errors(&fast, &reference, op, seed),
  };
  trial_fini(&exact);
  trial_fini(&reference);
  trial_fini(&fast);
  mr_team_destroy(exact.team);
  return errors;
}

static void rounding_is_all_that_differs(void **state) {
  (void)state;
  uint64_t seed = trial_first_seed();
  for (uint32_t i = 0; i < trial_op_count; i++) {
    struct errors worst = {0, 0};
    for (uint64_t draw = 0; draw < 24; draw++) {
      struct errors errors =
          compare(&trial_ops[i], seed + draw, (uint32_t)(1 + draw % 3), draw % 12 == 0);
      worst.reference = fmax(worst.reference, errors.reference);
      worst.fast = fmax(worst.fast, errors.fast);
    }
    print_message("%-20s seeds %llu..: reference %.2g from fp32, fast %.2g from reference\n",
                  trial_ops[i].name, (unsigned long long)seed, worst.reference, worst.fast);
  }
}

static void same_bits_everywhere(void **state) {
  (void)state;
  static const uint64_t lines[] = {0, 1, 3, 8, 33, 64};
  uint64_t seed = trial_first_seed();
  struct mr_team *team = NULL;
  assert_int_equal(mr_team_create(2, &team), MR_OK);
  for (uint32_t i = 0; i < trial_op_count; i++) {
    for (uint64_t draw = 0; draw < 4; draw++) {
      struct trial first = {
          .table = kernel_fast(), .team = team, .large = draw > 1, .dtype = MR_BF16};
      trial_run(&first, &trial_ops[i], seed + draw);
      for (uint32_t j = 0; j < MR_COUNT_OF(lines); j++) {
        struct trial again = first;
        again.lines = lines[j];
        trial_run(&again, &trial_ops[i], seed + draw);
        trial_assert_same_bits(&first, &again, trial_ops[i].name, seed + draw);
        trial_fini(&again);
      }
      trial_fini(&first);
    }
  }
  mr_team_destroy(team);
}

/* The copy that layers read is the updated parameter, rounded, whatever the kernel. */
static void updates_round_what_they_update(void **state) {
  (void)state;
  enum { COUNT = 1000 };
  static float p[COUNT], g[COUNT], m[COUNT], v[COUNT];
  static uint16_t working[COUNT];
  const struct kernel_table *tables[] = {kernel_reference(), kernel_fast()};
  struct mr_team *team = NULL;
  assert_int_equal(mr_team_create(2, &team), MR_OK);
  for (uint32_t i = 0; i < MR_COUNT_OF(tables); i++) {
    struct mr_random random;
    mr_random_init(&random, trial_first_seed());
    for (uint32_t j = 0; j < COUNT; j++) {
      p[j] = (float)(mr_random_unit(&random) - 0.5);
      g[j] = (float)(mr_random_unit(&random) - 0.5);
      working[j] = 0;
    }
    struct kernel_adamw op = {.p = p,
                              .g = g,
                              .m = m,
                              .v = v,
                              .working = working,
                              .count = COUNT,
                              .lr = 1e-2f,
                              .beta1 = 0.9f,
                              .beta2 = 0.95f,
                              .eps = 1e-8f,
                              .correction1 = 0.1f,
                              .correction2 = 0.05f};
    assert_int_equal(tables[i]->adamw(team, &op), MR_OK);
    for (uint32_t j = 0; j < COUNT; j++) {
      assert_int_equal(working[j], bf16_round(p[j]));
    }
  }
  mr_team_destroy(team);
}

static float float_of(uint32_t bits) {
  float value = 0;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Between a bf16 and the next one up: below, at and above the middle. */
static void rounds_to_the_nearest_and_ties_to_even(void **state) {
  (void)state;
  for (uint32_t bits = 0; bits < 0x10000; bits++) {
    uint32_t wide = bits << 16;
    bool number = (bits & 0x7fff) < 0x7f80;
    if (isnan(float_of(wide))) {
      assert_true(isnan(bf16_widen(bf16_round(float_of(wide)))));
      assert_true(isnan(bf16_widen(bf16_round(float_of(wide | 0xffff)))));
      continue;
    }
    assert_int_equal(bf16_round(float_of(wide)), bits);
    if (!number) continue;
    assert_int_equal(bf16_round(float_of(wide | 0x7fff)), bits);
    assert_int_equal(bf16_round(float_of(wide | 0x8000)), bits + (bits & 1));
    assert_int_equal(bf16_round(float_of(wide | 0x8001)), bits + 1);
    assert_int_equal(bf16_round(float_of(wide | 0xffff)), bits + 1);
  }
}

static int open_library(void **state) {
  (void)state;
  if (kernel_gemm_open("auto", 2) != MR_OK || kernel_gemm_check(MR_BF16) != MR_OK) exit(77);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rounds_to_the_nearest_and_ties_to_even),
      cmocka_unit_test(updates_round_what_they_update),
      cmocka_unit_test(rounding_is_all_that_differs),
      cmocka_unit_test(same_bits_everywhere),
  };
  return cmocka_run_group_tests(tests, open_library, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ops of the CUDA device against the readable reference: the C code that enqueues them as it
 * is, and the kernels on the processor (tests/cuda_on_cpu.h), products as plain loops; or all of it
 * on a device. The same bits must come from another order of threads and blocks, on a device from
 * another run. MEMRUN_SEED repeats a failure, MEMRUN_DRAWS says how many shapes are drawn.
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

#include "train/kernels/bf16.h"

#include "tests/unit/cuda_table.h"
#include "tests/unit/device_found.h"
#include "tests/unit/kernels_trial.h"

static const struct trial_op *op_named(const char *name) {
  for (uint32_t i = 0; i < trial_op_count; i++) {
    if (strcmp(trial_ops[i].name, name) == 0) return &trial_ops[i];
  }
  fail_msg("there is no op %s", name);
  return NULL;
}

/* One op on one seed: close to the reference, and the same bits in two orders of threads. */
static double compare_trial(struct trial cuda, const struct trial_op *op, uint64_t seed) {
  assert_int_equal(mr_team_create(1, &cuda.team), MR_OK);
  cuda.by_cublaslt = cuda_table_by_cublaslt();
  struct trial again = cuda, reference = cuda;
  reference.table = kernel_reference();
  cuda_table_seed(seed);
  trial_run(&cuda, op, seed);
  cuda_table_seed(~seed);
  trial_run(&again, op, seed);
  trial_run(&reference, op, seed);
  trial_assert_same_bits(&cuda, &again, op->name, seed);
  double worst = trial_check_errors(&cuda, &reference, op, seed);
  trial_fini(&cuda);
  trial_fini(&again);
  trial_fini(&reference);
  mr_team_destroy(cuda.team);
  return worst;
}

static double compare(const struct trial_op *op, uint64_t seed, mr_dtype dtype, bool large) {
  const struct trial trial = {.table = cuda_table(), .large = large, .lines = 1, .dtype = dtype};
  return compare_trial(trial, op, seed);
}

static uint64_t draw_count(uint64_t otherwise) {
  const char *text = getenv("MEMRUN_DRAWS");
  return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void compare_all(mr_dtype dtype, uint64_t draws) {
  uint64_t seed = trial_first_seed();
  for (uint32_t i = 0; i < trial_op_count; i++) {
    double worst = 0;
    for (uint64_t draw = 0; draw < draws; draw++) {
      worst =
          fmax(worst, compare(&trial_ops[i], seed + draw, dtype, draw > 0 && draw + 1 == draws));
    }
    print_message("%-20s seeds %llu..: largest error %.2g of what is allowed\n", trial_ops[i].name,
                  (unsigned long long)seed, worst);
  }
}

static void f32_equals_reference(void **state) {
  (void)state;
  compare_all(MR_F32, draw_count(6));
}

static void bf16_equals_reference(void **state) {
  (void)state;
  compare_all(MR_BF16, draw_count(4));
}

/* Heads that tensor cores take. */
static void tensor_attention_equals_reference(void **state) {
  (void)state;
  static const char *const names[] = {"attention", "attention_backward"};
  uint64_t seed = trial_first_seed();
  const struct trial trial = {.table = cuda_table(), .lines = 1, .dtype = MR_BF16, .eights = true};
  for (size_t k = 0; k < MR_COUNT_OF(names); k++) {
    double worst = 0;
    for (uint64_t draw = 0; draw < draw_count(8); draw++) {
      worst = fmax(worst, compare_trial(trial, op_named(names[k]), seed + draw));
    }
    print_message("%-20s seeds %llu..: on tensor cores %.2g of what is allowed\n", names[k],
                  (unsigned long long)seed, worst);
  }
}

/* Rows enough for a block to go round, which keeps what it has summed or listed meanwhile. */
static void many_rows_equal_reference(void **state) {
  (void)state;
  static const char *const names[] = {"embed_backward", "layernorm_backward"};
  uint64_t seed = trial_first_seed();
  for (size_t k = 0; k < MR_COUNT_OF(names); k++) {
    for (uint64_t draw = 0; draw < draw_count(3); draw++) {
      compare(op_named(names[k]), seed + draw, MR_F32, true);
    }
  }
}

/* Where an op runs may depend on the plan, so its bits may not. */
static void compare_with_host(const struct trial_op *op, mr_dtype dtype) {
  uint64_t seed = trial_first_seed();
  struct trial cuda = {.table = cuda_table(), .dtype = dtype};
  struct trial host = {.table = kernel_fast(), .dtype = dtype};
  assert_int_equal(mr_team_create(2, &host.team), MR_OK);
  cuda.team = host.team;
  for (uint64_t draw = 0; draw < 24; draw++) {
    cuda.large = host.large = draw % 6 == 0;
    cuda.scattered = host.scattered = draw % 2 == 0;
    cuda_table_seed(seed + draw);
    trial_run(&cuda, op, seed + draw);
    trial_run(&host, op, seed + draw);
    trial_assert_same_bits(&cuda, &host, op->name, seed + draw);
    trial_fini(&cuda);
    trial_fini(&host);
  }
  mr_team_destroy(host.team);
}

static void ops_round_as_on_the_host(void **state) {
  (void)state;
  static const char *const host_capable[] = {"adamw", "embed"};
  for (size_t i = 0; i < MR_COUNT_OF(host_capable); i++) {
    compare_with_host(op_named(host_capable[i]), MR_F32);
    compare_with_host(op_named(host_capable[i]), MR_BF16);
  }
}

/* Of an update that is left out: its copy, rounded as the trainer's processor does, and no more. */
static void a_copy_alone_is_made_again(void **state) {
  (void)state;
  enum { COUNT = 1003 };
  float *values = trial_memory.take(mr_round_up(3 * COUNT * sizeof *values, 64));
  float *scalars = trial_memory.take(64);
  uint16_t *copy = trial_memory.take(mr_round_up(COUNT * sizeof *copy, 64));
  assert_true(values != NULL && scalars != NULL && copy != NULL);
  memset(scalars, 0, 3 * sizeof *scalars);
  for (uint32_t i = 0; i < COUNT; i++) {
    values[i] = ldexpf(i % 2 == 0 ? 1.2345f : -1.003906f, 2 - (int)(i % 150));
    values[COUNT + i] = values[2 * COUNT + i] = NAN; /* nobody reads moments */
  }
  const struct cuda_adamw op = {.p = values,
                                .m = values + COUNT,
                                .v = values + 2ull * COUNT,
                                .copy = copy,
                                .scalars = scalars,
                                .count = COUNT};
  assert_int_equal(cuda_op_adamw(cuda_table_queue(), CUDA_BF16, &op), MR_OK);
  for (uint32_t i = 0; i < COUNT; i++) {
    float p = ldexpf(i % 2 == 0 ? 1.2345f : -1.003906f, 2 - (int)(i % 150));
    assert_true(values[i] == p && isnan(values[COUNT + i]) && isnan(values[2 * COUNT + i]));
    assert_int_equal(copy[i], bf16_round(p));
  }
  trial_memory.give(copy);
  trial_memory.give(scalars);
  trial_memory.give(values);
}

/* What the ops of single numbers read and write, where the device reaches it. */
struct numbers {
  double squares[3];
  double norm;
  float scale;
  float scalars[3];
  float rates[4];
};

static double norm_of(struct numbers *numbers, double square, double clip, bool scaled) {
  numbers->squares[0] = square;
  const struct cuda_norm op = {.squares = numbers->squares,
                               .norm = &numbers->norm,
                               .scale = scaled ? &numbers->scale : NULL,
                               .clip = clip,
                               .count = 3};
  assert_int_equal(cuda_op_norm(cuda_table_queue(), &op), MR_OK);
  return numbers->norm;
}

static void norm_clips(void **state) {
  (void)state;
  struct numbers *numbers = trial_memory.take(mr_round_up(sizeof *numbers, 64));
  assert_non_null(numbers);
  *numbers = (struct numbers){.squares = {0, 1.5, 0.25}, .norm = -1, .scale = -1};
  assert_true(fabs(norm_of(numbers, 2.25, 1, true) - 2) < 1e-15);
  assert_true(fabs((double)numbers->scale - 1 / (2 + 1e-6)) < 1e-7);
  assert_true(norm_of(numbers, 2.25, 100, true) > 0);
  assert_true(numbers->scale == 1); /* never larger */
  norm_of(numbers, NAN, 1, true);
  assert_true(isnan(numbers->scale)); /* a spoilt gradient shows */
  assert_true(norm_of(numbers, 2.25, 1, false) > 0);
  trial_memory.give(numbers);
}

static void rates_are_copied(void **state) {
  (void)state;
  struct numbers *numbers = trial_memory.take(mr_round_up(sizeof *numbers, 64));
  assert_non_null(numbers);
  *numbers = (struct numbers){.scalars = {1, 2, 3}, .rates = {0, 0, 0, 4}};
  const struct cuda_rates op = {.scalars = numbers->scalars, .rates = numbers->rates, .count = 3};
  assert_int_equal(cuda_op_rates(cuda_table_queue(), &op), MR_OK);
  const float *rates = numbers->rates;
  assert_true(rates[0] == 1 && rates[1] == 2 && rates[2] == 3 && rates[3] == 4);
  trial_memory.give(numbers);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(norm_clips),
      cmocka_unit_test(rates_are_copied),
      cmocka_unit_test(ops_round_as_on_the_host),
      cmocka_unit_test(a_copy_alone_is_made_again),
      cmocka_unit_test(f32_equals_reference),
      cmocka_unit_test(bf16_equals_reference),
      cmocka_unit_test(tensor_attention_equals_reference),
      cmocka_unit_test(many_rows_equal_reference),
  };
  if (!cuda_table_open()) {
    return DEVICE_NOT_FOUND;
  }
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  cuda_table_close();
  return failed;
}

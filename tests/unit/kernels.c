/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast kernels against the readable reference over random shapes, and the same bits from them
 * wherever buffers lie, whatever else runs, and on a second run. MEMRUN_SEED repeats a failure;
 * MEMRUN_GEMM takes another matrix library than the automatic one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/kernels_trial.h"
#include "train/kernels/vector.h"

static double compare(const struct trial_op *op, uint64_t seed, uint32_t threads, bool large) {
  struct trial fast = {.table = kernel_fast(), .large = large, .lines = 1};
  struct trial reference = {.table = kernel_reference(), .large = large};
  assert_int_equal(mr_team_create(threads, &fast.team), MR_OK);
  reference.team = fast.team;
  trial_run(&fast, op, seed);
  trial_run(&reference, op, seed);
  double worst = trial_check_errors(&fast, &reference, op, seed);
  trial_fini(&fast);
  trial_fini(&reference);
  mr_team_destroy(fast.team);
  return worst;
}

static void fast_equals_reference(void **state) {
  (void)state;
  uint64_t seed = trial_first_seed();
  for (uint32_t i = 0; i < trial_op_count; i++) {
    double worst = 0;
    for (uint64_t draw = 0; draw < 36; draw++) {
      worst = fmax(worst,
                   compare(&trial_ops[i], seed + draw, (uint32_t)(1 + draw % 3), draw % 12 == 0));
    }
    print_message("%-20s seeds %llu..: largest error %.2g of what is allowed\n", trial_ops[i].name,
                  (unsigned long long)seed, worst);
  }
}

static _Atomic bool foreign_stop;

static void *foreign_main(void *argument) {
  (void)argument;
  while (!atomic_load(&foreign_stop)) {
  }
  return NULL;
}

static void same_bits_everywhere(void **state) {
  (void)state;
  static const uint64_t lines[] = {0, 1, 3, 8, 33, 64};
  uint64_t seed = trial_first_seed();
  struct mr_team *team = NULL;
  assert_int_equal(mr_team_create(2, &team), MR_OK);
  pthread_t foreign[2];
  for (uint32_t i = 0; i < trial_op_count; i++) {
    for (uint64_t draw = 0; draw < 4; draw++) {
      struct trial first = {.table = kernel_fast(), .team = team, .large = draw > 0};
      trial_run(&first, &trial_ops[i], seed + draw);
      atomic_store(&foreign_stop, false);
      for (uint32_t f = 0; f < MR_COUNT_OF(foreign); f++) {
        assert_int_equal(pthread_create(&foreign[f], NULL, foreign_main, NULL), 0);
      }
      for (uint32_t j = 0; j < MR_COUNT_OF(lines); j++) {
        struct trial again = {
            .table = kernel_fast(), .team = team, .large = draw > 0, .lines = lines[j]};
        trial_run(&again, &trial_ops[i], seed + draw);
        trial_assert_same_bits(&first, &again, trial_ops[i].name, seed + draw);
        trial_fini(&again);
      }
      atomic_store(&foreign_stop, true);
      for (uint32_t f = 0; f < MR_COUNT_OF(foreign); f++) {
        pthread_join(foreign[f], NULL);
      }
      trial_fini(&first);
    }
  }
  mr_team_destroy(team);
}

/* The shapes in which the trainer meets the library: large products, at several addresses. */
static void same_bits_of_training_shapes(void **state) {
  (void)state;
  enum { ROWS = 256, IN = 768, OUT = 2304, SHIFT = 16 * 65 };
  struct mr_team *team = NULL;
  assert_int_equal(mr_team_create(2, &team), MR_OK);
  uint64_t count = ROWS * IN + IN * OUT + 2 * ROWS * OUT + SHIFT;
  float *base = aligned_alloc(64, count * sizeof(float));
  float *expected = aligned_alloc(64, ROWS * OUT * sizeof(float));
  assert_non_null(base);
  assert_non_null(expected);
  for (uint64_t shift = 0; shift <= SHIFT; shift += 16 * 13) {
    float *x = base + shift, *w = x + ROWS * IN, *y = w + IN * OUT, *activated = y + ROWS * OUT;
    struct mr_random random;
    mr_random_init(&random, 5);
    for (uint64_t i = 0; i < ROWS * IN + IN * OUT; i++) {
      x[i] = (float)(mr_random_unit(&random) - 0.5);
    }
    struct kernel_linear op = {
        .x = x, .w = w, .y = y, .activated = activated, .rows = ROWS, .in = IN, .out = OUT};
    assert_int_equal(kernel_fast()->linear(team, &op, NULL), MR_OK);
    if (shift == 0) memcpy(expected, y, ROWS * OUT * sizeof(float));
    assert_memory_equal(y, expected, ROWS * OUT * sizeof(float));
    /* The op that recompute clones has the bits of the fused one. */
    struct kernel_gelu gelu = {.x = y, .activated = y, .count = ROWS * OUT};
    assert_int_equal(kernel_fast()->gelu(team, &gelu), MR_OK);
    assert_memory_equal(y, activated, ROWS * OUT * sizeof(float));
  }
  free(base);
  free(expected);
  mr_team_destroy(team);
}

/* Gradients of one head whose queries and keys are from -factor to factor. */
static void differentiate(const struct kernel_table *table, double factor) {
  enum { SEQ = 70, WIDTH = 24, COUNT = SEQ * WIDTH };
  static float qkv[3 * COUNT], out[COUNT], dout[COUNT], dqkv[3 * COUNT], lse[SEQ];
  struct mr_random random;
  mr_random_init(&random, trial_first_seed());
  for (uint32_t i = 0; i < 3 * COUNT; i++) {
    double draw = 2 * mr_random_unit(&random) - 1;
    qkv[i] = (float)(i % (3 * WIDTH) < 2 * WIDTH ? draw * factor : draw);
  }
  for (uint32_t i = 0; i < COUNT; i++) {
    dout[i] = (float)(2 * mr_random_unit(&random) - 1);
  }
  struct mr_team *team = NULL;
  assert_int_equal(mr_team_create(1, &team), MR_OK);
  const struct kernel_attention forward = {
      .qkv = qkv, .out = out, .lse = lse, .batch = 1, .seq = SEQ, .width = WIDTH, .heads = 1};
  const struct kernel_attention_backward backward = {.dout = dout,
                                                     .qkv = qkv,
                                                     .out = out,
                                                     .lse = lse,
                                                     .dqkv = dqkv,
                                                     .batch = 1,
                                                     .seq = SEQ,
                                                     .width = WIDTH,
                                                     .heads = 1};
  uint64_t bytes = mr_max_u64(kernel_attention_scratch_bytes(SEQ, WIDTH, MR_F32, 1),
                              kernel_attention_backward_scratch_bytes(SEQ, WIDTH, MR_F32, 1));
  void *scratch = aligned_alloc(64, mr_round_up(bytes + 1, 64));
  assert_non_null(scratch);
  assert_int_equal(table->attention(team, &forward, scratch), MR_OK);
  assert_int_equal(table->attention_backward(team, &backward, scratch), MR_OK);
  for (uint32_t i = 0; i < 3 * COUNT; i++) {
    assert_true(isfinite(dqkv[i]));
    /* no key's weight is above 1, of which a value's gradient has one for each query */
    assert_true(i % (3 * WIDTH) < 2 * WIDTH || fabs((double)dqkv[i]) <= SEQ * 1.001);
  }
  free(scratch);
  mr_team_destroy(team);
}

/* Where lse has lost the digits that tell weights apart, they stay weights all the same. */
static void gradients_of_large_scores_are_finite(void **state) {
  (void)state;
  static const double factors[] = {1, 1e2, 1e3, 1e4, 1e5, 1e6};
  for (uint32_t i = 0; i < MR_COUNT_OF(factors); i++) {
    differentiate(kernel_fast(), factors[i]);
    differentiate(kernel_reference(), factors[i]);
  }
}

static void refuses_unknown_libraries(void **state) {
  (void)state;
  assert_int_equal(kernel_gemm_open("mkl", 2), MR_INVALID);
  assert_int_equal(kernel_gemm_open("auto", 2), MR_OK);
  assert_non_null(kernel_gemm_name());
}

/* OpenBLAS 0.3.21 takes new processors for old ones unless it is told better. */
static void openblas_runs_the_widest_kernels(void **state) {
  (void)state;
  if (strncmp(kernel_gemm_name(), "openblas", 8) != 0) skip();
#if defined(__x86_64__)
  bool wide = vector_at(MR_F32, 2) != NULL;
  if (!wide && vector_at(MR_F32, 1) == NULL) skip();
  assert_non_null(strstr(kernel_gemm_name(), wide ? "SkylakeX" : "Haswell"));
#endif
}

static int open_library(void **state) {
  (void)state;
  const char *choice = getenv("MEMRUN_GEMM");
  unsetenv("OPENBLAS_CORETYPE"); /* a user's wish, which stands before memrun's choice */
  mr_status status = kernel_gemm_open(choice != NULL ? choice : "auto", 2);
  if (status == MR_UNSUPPORTED) exit(77);
  return status == MR_OK ? 0 : -1;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(refuses_unknown_libraries),
      cmocka_unit_test(openblas_runs_the_widest_kernels),
      cmocka_unit_test(fast_equals_reference),
      cmocka_unit_test(same_bits_everywhere),
      cmocka_unit_test(same_bits_of_training_shapes),
      cmocka_unit_test(gradients_of_large_scores_are_finite),
  };
  return cmocka_run_group_tests(tests, open_library, NULL);
}

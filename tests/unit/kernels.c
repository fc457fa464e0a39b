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

/* Every instruction set that this processor has, over the range of GELU and exp. */
static void vectors_are_accurate(void **state) {
  (void)state;
  enum { COUNT = 4001 };
  static float x[COUNT], y[COUNT], d[COUNT];
  for (unsigned index = 0; vector_at(MR_F32, index) != NULL; index++) {
    const struct vector_table *vector = vector_at(MR_F32, index);
    for (unsigned i = 0; i < COUNT; i++) {
      x[i] = ((float)i - 2000) / 50; /* -40 to 40 */
      d[i] = 1;
      y[i] = x[i];
    }
    vector->gelu_backward(d, x, COUNT);
    vector->softmax_scaled(y, COUNT, 1.0f, 1.0f);
    double exp_error = 0;
    for (unsigned i = 0; i < COUNT; i++) {
      double wanted = exp((double)x[i] - 1.0);
      double rounding = 1.2e-7 * fabs((double)x[i]); /* of x - 1 itself */
      exp_error = fmax(exp_error, fabs((double)y[i] / wanted - 1) - rounding);
    }
    vector->gelu(y, x, COUNT);
    double gelu_error = 0, slope_error = 0;
    for (unsigned i = 0; i < COUNT; i++) {
      double v = (double)x[i], u = sqrt(2 / 3.14159265358979324) * (v + 0.044715 * v * v * v);
      double slope = sqrt(2 / 3.14159265358979324) * (1 + 3 * 0.044715 * v * v), t = tanh(u);
      gelu_error = fmax(gelu_error, fabs((double)y[i] - 0.5 * v * (1 + t)) / (1 + fabs(v)));
      double wanted = 0.5 * (1 + t) + 0.5 * v * (1 - t * t) * slope;
      slope_error = fmax(slope_error, fabs((double)d[i] - wanted));
    }
    print_message("%s: exp %.2g relative, gelu %.2g, derivative %.2g\n", vector->name, exp_error,
                  gelu_error, slope_error);
    assert_true(exp_error < 2.4e-7 && gelu_error < 3e-7 && slope_error < 1e-6);
  }
}

struct updates {
  float drawn[4][1003], done[4][1003]; /* p, m, v, g; with a tail */
};

/* Draws numbers of every size, and nothing for some. */
static void draw_updates(struct updates *updates, uint64_t seed) {
  enum { COUNT = MR_COUNT_OF(updates->drawn[0]) };
  struct mr_random random;
  mr_random_init(&random, seed);
  for (unsigned i = 0; i < 4 * COUNT; i++) {
    float value = (float)mr_random_below(&random, 1u << 24) * 0x1p-24f;
    value = ldexpf(i / COUNT == 2 ? value : value - 0.5f, -(int)mr_random_below(&random, 160));
    updates->drawn[i / COUNT][i % COUNT] = value;
  }
}

struct update_task {
  const struct vector_table *vector;
  struct updates *updates;
};

static void update_task(void *context, uint32_t task, uint32_t thread) {
  (void)task;
  (void)thread;
  const struct update_task *a = context;
  float(*data)[MR_COUNT_OF(a->updates->done[0])] = a->updates->done;
  memcpy(data, a->updates->drawn, sizeof a->updates->drawn);
  a->vector->adamw(&(struct vector_adamw){.p = data[0],
                                          .m = data[1],
                                          .v = data[2],
                                          .g = data[3],
                                          .count = MR_COUNT_OF(a->updates->done[0]),
                                          .grad_scale = 0.37f,
                                          .beta1 = 0.9f,
                                          .beta2 = 0.999f,
                                          .eps = 1e-8f,
                                          .step_size = 1e-2f,
                                          .decay = 1e-3f,
                                          .inverse1 = 1.7f,
                                          .inverse2 = 1.3f});
}

/* An update has the same bits whatever the processor is, and with denormal numbers (on this thread)
 * or without them (in a team). */
static void updates_are_the_same_on_every_set(void **state) {
  (void)state;
  static struct updates updates, first;
  struct mr_team *team = NULL;
  assert_int_equal(mr_team_create(1, &team), MR_OK);
  draw_updates(&updates, trial_first_seed());
  for (unsigned index = 0; vector_at(MR_F32, index) != NULL; index++) {
    struct update_task task = {vector_at(MR_F32, index), &updates};
    update_task(&task, 0, 0);
    if (index == 0) {
      first = updates;
    }
    assert_memory_equal(updates.done, first.done, sizeof first.done);
    mr_team_run(team, 1, update_task, &task);
    assert_memory_equal(updates.done, first.done, sizeof first.done);
  }
  assert_memory_not_equal(updates.done, updates.drawn, sizeof updates.drawn);
  mr_team_destroy(team);
}

static void refuses_unknown_libraries(void **state) {
  (void)state;
  assert_int_equal(kernel_gemm_open("mkl"), MR_INVALID);
  assert_int_equal(kernel_gemm_open("auto"), MR_OK);
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
  mr_status status = kernel_gemm_open(choice != NULL ? choice : "auto");
  if (status == MR_UNSUPPORTED) exit(77);
  return status == MR_OK ? 0 : -1;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(refuses_unknown_libraries),
      cmocka_unit_test(openblas_runs_the_widest_kernels),
      cmocka_unit_test(vectors_are_accurate),
      cmocka_unit_test(updates_are_the_same_on_every_set),
      cmocka_unit_test(fast_equals_reference),
      cmocka_unit_test(same_bits_everywhere),
      cmocka_unit_test(same_bits_of_training_shapes),
  };
  return cmocka_run_group_tests(tests, open_library, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* plan/ survives the failure of any one allocation: a status, and nothing leaks or crashes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>

#include "unit/plan_programs.h"

#define SEEDS         6u
#define MOST_FAILURES 3000u

/* The linker puts these before the library's functions (--wrap). */
void *__real_calloc(size_t count, size_t bytes);  /* NOLINT(bugprone-reserved-identifier) */
void *__real_realloc(void *memory, size_t bytes); /* NOLINT(bugprone-reserved-identifier) */
void *__wrap_calloc(size_t count, size_t bytes);  /* NOLINT(bugprone-reserved-identifier) */
void *__wrap_realloc(void *memory, size_t bytes); /* NOLINT(bugprone-reserved-identifier) */

static int64_t before_failure = -1; /* allocations that still succeed; below 0: all */

static bool fails(void) {
  return before_failure >= 0 && before_failure-- == 0;
}

void *__wrap_calloc(size_t count, size_t bytes) { /* NOLINT(bugprone-reserved-identifier) */
  return fails() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes) { /* NOLINT(bugprone-reserved-identifier) */
  return fails() ? NULL : __real_realloc(memory, bytes);
}

static void no_log(void *context, mr_log_level level, const char *line) {
  (void)context;
  (void)level;
  (void)line;
}

/* Fails the first allocation, the second, and so on, until planning asks for no more. */
static uint32_t fail_each(const struct mr_plan_problem *problem) {
  for (uint32_t n = 0; n < MOST_FAILURES; n++) {
    struct mr_program_plan *plan = NULL;
    before_failure = n;
    mr_status status = mr_program_plan_make(problem, &plan);
    bool through = before_failure >= 0;
    before_failure = -1;
    if (through) {
      assert_int_equal(status, MR_OK);
      mr_program_plan_destroy(plan);
      return n;
    }
    assert_int_equal(status, MR_NO_MEMORY);
    assert_null(plan);
  }
  return MOST_FAILURES;
}

static void each_allocation_may_fail(void **state) {
  (void)state;
  uint32_t failures = 0;
  mr_log_configure(no_log, NULL, MR_LOG_ERROR);
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    struct mr_random random;
    mr_random_init(&random, seed);
    struct mr_graph *graph = plan_random_graph(&random, 24, 256 * MR_KIB);
    double *op_seconds = plan_op_seconds(graph, 1e-3);
    struct mr_plan_problem problem;
    plan_problem_init(&problem, graph);
    problem.op_seconds = op_seconds;
    problem.search_rounds = 3;
    problem.contiguous = seed % 3 == 0;
    problem.budget_bytes[MR_TIER_NVME] = UINT64_MAX;
    problem.budget_bytes[MR_TIER_HOST] = seed % 2 == 0 ? 0 : 500000;
    struct mr_program_plan *plan = NULL;
    assert_int_equal(mr_program_plan_make(&problem, &plan), MR_OK);
    failures += fail_each(&problem); /* a refusal */
    problem.budget_bytes[MR_TIER_DEVICE] = plan->smallest_device_bytes / 4 * 5;
    mr_program_plan_destroy(plan);
    failures += fail_each(&problem);
    free(op_seconds);
    mr_graph_destroy(graph);
  }
  mr_log_configure(NULL, NULL, MR_LOG_INFO);
  print_message("%u failures survived\n", failures);
  assert_true(failures > 100);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_allocation_may_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

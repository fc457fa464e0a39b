/* SPDX-License-Identifier: Apache-2.0 */
/* plan/ survives the failure of any one allocation: a status, and nothing leaks or crashes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>

#include "unit/failing_memory.h"
#include "unit/plan_programs.h"

#define SEEDS 6u

static mr_status make(void *problem) {
  struct mr_program_plan *plan = NULL;
  mr_status status = mr_program_plan_make(problem, &plan);
  assert_int_equal(plan != NULL, status == MR_OK);
  mr_program_plan_destroy(plan);
  return status;
}

static void each_allocation_may_fail(void **state) {
  (void)state;
  uint32_t failures = 0;
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
    problem.half_pages = seed % 3 == 1;
    problem.budget_bytes[MR_TIER_NVME] = UINT64_MAX;
    problem.budget_bytes[MR_TIER_HOST] = seed % 2 == 0 ? 0 : 500000;
    struct mr_program_plan *plan = NULL;
    assert_int_equal(mr_program_plan_make(&problem, &plan), MR_OK);
    failures += failing_memory_each(make, &problem); /* a refusal */
    problem.budget_bytes[MR_TIER_DEVICE] = plan->smallest_device_bytes / 4 * 5;
    mr_program_plan_destroy(plan);
    failures += failing_memory_each(make, &problem);
    free(op_seconds);
    mr_graph_destroy(graph);
  }
  print_message("%u failures survived\n", failures);
  assert_true(failures > 100);
}

/* A short program, searched at length: just above the foot of the ladder, where few rungs are. */
static void each_machine_may_fail(void **state) {
  (void)state;
  struct mr_random random;
  mr_random_init(&random, 5);
  struct mr_graph *graph = plan_random_graph(&random, 12, 256 * MR_KIB);
  double *op_seconds = plan_op_seconds(graph, 1e-3);
  struct mr_plan_problem problem;
  struct mr_program_plan *plan = NULL;
  plan_problem_init(&problem, graph);
  problem.op_seconds = op_seconds;
  problem.search_rounds = 16;
  problem.budget_bytes[MR_TIER_NVME] = UINT64_MAX;
  problem.budget_bytes[MR_TIER_HOST] = UINT64_MAX;
  assert_int_equal(mr_program_plan_make(&problem, &plan), MR_OK);
  assert_true(plan->smallest_device_bytes < plan->footprint_bytes);
  problem.budget_bytes[MR_TIER_DEVICE] = plan->smallest_device_bytes / 100 * 102;
  mr_program_plan_destroy(plan);
  uint32_t failures = failing_memory_each(make, &problem);
  print_message("%u failures survived\n", failures);
  assert_true(failures > 100);
  free(op_seconds);
  mr_graph_destroy(graph);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_allocation_may_fail),
      cmocka_unit_test(each_machine_may_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

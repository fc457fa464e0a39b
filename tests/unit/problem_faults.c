/* SPDX-License-Identifier: Apache-2.0 */
/* plan/problem/ survives the failure of any one allocation: a status, and nothing leaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/problem/problem.h"
#include "unit/failing_memory.h"
#include "unit/problem_families.h"

static mr_status read_and_plan(void *context) {
  const char *text = context;
  struct mr_problem *problem = NULL;
  struct mr_problem_schedule *schedule = NULL;
  mr_status status = mr_problem_parse(text, strlen(text), "test", &problem);
  if (status == MR_OK) {
    status = mr_problem_plan(problem, NULL, &schedule);
    assert_int_equal(schedule != NULL, status == MR_OK);
  }
  mr_problem_schedule_destroy(schedule);
  mr_problem_destroy(problem);
  return status;
}

/* All fits, so that the search ends at once; the many tensors are merged first. */
static void a_large_problem(void **state) {
  (void)state;
  const struct problem_shape shape = {.name = "large",
                                      .layers = 2,
                                      .parts = 100,
                                      .device_bytes = 1e12,
                                      .host_bytes = 1e12,
                                      .cost = 1};
  char *text = problem_from_shape(&shape);
  assert_true(failing_memory_each(read_and_plan, text) >= 60);
  free(text);
}

/* A search of the smallest budget. */
static void a_problem_that_does_not_fit(void **state) {
  (void)state;
  char text[] = "2 1 3 10 1 1 1 1\n1 1\n4 4\n3 0 1 1e9 0 0 0\n";
  assert_true(failing_memory_each(read_and_plan, text) >= 60);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_large_problem),
      cmocka_unit_test(a_problem_that_does_not_fit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

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
#include "unit/problem_families.h"

#define MOST_FAILURES 1000u

/* The linker puts this before the library's function (--wrap). */
void *__real_calloc(size_t count, size_t bytes); /* NOLINT(bugprone-reserved-identifier) */
void *__wrap_calloc(size_t count, size_t bytes); /* NOLINT(bugprone-reserved-identifier) */

static int64_t before_failure = -1; /* allocations that still succeed; below 0: all */

void *__wrap_calloc(size_t count, size_t bytes) { /* NOLINT(bugprone-reserved-identifier) */
  bool fails = before_failure >= 0 && before_failure-- == 0;
  return fails ? NULL : __real_calloc(count, bytes);
}

static void no_log(void *context, mr_log_level level, const char *line) {
  (void)context;
  (void)level;
  (void)line;
}

static mr_status read_and_plan(const char *text) {
  struct mr_problem *problem = NULL;
  struct mr_problem_schedule *schedule = NULL;
  mr_status status = mr_problem_parse(text, strlen(text), "test", &problem);
  if (status == MR_OK) {
    status = mr_problem_plan(problem, &schedule);
    assert_int_equal(schedule != NULL, status == MR_OK);
  }
  mr_problem_schedule_destroy(schedule);
  mr_problem_destroy(problem);
  return status;
}

/* Fails the first allocation, the second, and so on, until planning asks for no more. */
static uint32_t fail_each(char *text) {
  mr_log_configure(no_log, NULL, MR_LOG_ERROR);
  uint32_t n = 0;
  for (; n < MOST_FAILURES; n++) {
    before_failure = n;
    mr_status status = read_and_plan(text);
    bool through = before_failure >= 0;
    before_failure = -1;
    assert_int_equal(status, through ? MR_OK : MR_NO_MEMORY);
    if (through) {
      break;
    }
  }
  mr_log_configure(NULL, NULL, MR_LOG_ERROR);
  free(text);
  return n;
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
  assert_in_range(fail_each(problem_from_shape(&shape)), 60, MOST_FAILURES - 1);
}

/* A search of the smallest budget. */
static void a_problem_that_does_not_fit(void **state) {
  (void)state;
  char *text = strdup("2 1 3 10 1 1 1 1\n1 1\n4 4\n3 0 1 1e9 0 0 0\n");
  assert_in_range(fail_each(text), 60, MOST_FAILURES - 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_large_problem),
      cmocka_unit_test(a_problem_that_does_not_fit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* plan/pack/ survives the failure of any one allocation: a status, and nothing leaks or crashes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>

#include "base/base.h"
#include "plan/pack/pack.h"

#define BUFFERS       40u
#define MOST_FAILURES 1000u

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

static void fill(struct mr_pack_buffer *buffers) {
  struct mr_random random;
  mr_random_init(&random, 1);
  for (uint32_t i = 0; i < BUFFERS; i++) {
    buffers[i].lower = mr_random_below(&random, 50);
    buffers[i].upper = buffers[i].lower + 1 + mr_random_below(&random, 20);
    buffers[i].size_bytes = 1 + mr_random_below(&random, 100);
  }
}

static void each_allocation_may_fail(void **state) {
  (void)state;
  struct mr_pack_buffer buffers[BUFFERS];
  uint64_t offsets[BUFFERS];
  struct mr_pack_result result;
  fill(buffers);
  struct mr_pack_problem problem = {.buffers = buffers, .buffer_count = BUFFERS};
  assert_int_equal(mr_pack_solve(&problem, offsets, &result), MR_OK);
  problem.capacity_bytes = result.bound_bytes; /* so that the search is needed */
  problem.search_tries = 5000;
  assert_int_equal(mr_pack_solve(&problem, offsets, &result), MR_OK);
  assert_true(result.tries > 0);
  mr_log_configure(no_log, NULL, MR_LOG_ERROR);
  uint32_t failures = 0;
  mr_status status = MR_NO_MEMORY;
  while (status == MR_NO_MEMORY && failures < MOST_FAILURES) {
    before_failure = failures++;
    status = mr_pack_solve(&problem, offsets, &result);
  }
  before_failure = -1;
  mr_log_configure(NULL, NULL, MR_LOG_WARN);
  assert_int_equal(status, MR_OK);
  assert_true(failures > 10);
}

static void tables_survive_too(void **state) {
  (void)state;
  static char text[] = "id,lower,upper,size\na,0,4,8\nb,3,6,8\nc,4,6,8\n";
  mr_log_configure(no_log, NULL, MR_LOG_ERROR);
  uint32_t failures = 0;
  mr_status status = MR_NO_MEMORY;
  while (status == MR_NO_MEMORY && failures < MOST_FAILURES) {
    struct mr_pack_table table;
    FILE *file = fmemopen(text, sizeof text - 1, "r");
    assert_non_null(file);
    before_failure = failures++;
    status = mr_pack_table_read(&table, file, "text");
    before_failure = -1;
    mr_pack_table_fini(&table);
    fclose(file);
  }
  mr_log_configure(NULL, NULL, MR_LOG_WARN);
  assert_int_equal(status, MR_OK);
  assert_true(failures > 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_allocation_may_fail),
      cmocka_unit_test(tables_survive_too),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

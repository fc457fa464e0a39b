/* SPDX-License-Identifier: Apache-2.0 */
/* plan/pack/ survives the failure of any one allocation: a status, and nothing leaks or crashes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "base/base.h"
#include "plan/pack/pack.h"
#include "unit/failing_memory.h"

#define BUFFERS 40u

static void fill(struct mr_pack_buffer *buffers) {
  struct mr_random random;
  mr_random_init(&random, 1);
  for (uint32_t i = 0; i < BUFFERS; i++) {
    buffers[i].lower = mr_random_below(&random, 50);
    buffers[i].upper = buffers[i].lower + 1 + mr_random_below(&random, 20);
    buffers[i].size_bytes = 1 + mr_random_below(&random, 100);
  }
}

static mr_status solve(void *context) {
  uint64_t offsets[BUFFERS];
  struct mr_pack_result result;
  return mr_pack_solve(context, offsets, &result);
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
  assert_true(failing_memory_each(solve, &problem) > 10);
}

static mr_status read_table(void *context) {
  char *text = context;
  FILE *file = fmemopen(text, strlen(text), "r");
  assert_non_null(file);
  struct mr_pack_table table;
  mr_status status = mr_pack_table_read(&table, file, "text");
  mr_pack_table_fini(&table);
  fclose(file);
  return status;
}

static void tables_survive_too(void **state) {
  (void)state;
  char text[] = "id,lower,upper,size\na,0,4,8\nb,3,6,8\nc,4,6,8\n";
  assert_true(failing_memory_each(read_table, text) > 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_allocation_may_fail),
      cmocka_unit_test(tables_survive_too),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

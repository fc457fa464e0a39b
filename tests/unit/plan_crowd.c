/* SPDX-License-Identifier: Apache-2.0 */
/* The crowd against an array of what each op is over the limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>

#include "base/base.h"
#include "plan/crowd.h"

#define SEED     20261130u
#define CASES    80u
#define CHANGES  80u
#define MOST_OPS 300u
#define LIMIT    20u

static uint32_t below(struct mr_random *random, uint32_t bound) {
  return (uint32_t)mr_random_below(random, bound);
}

/* Ops use what is drawn; `excess`: what each has over the limit. */
static void draw_usage(struct mr_random *random, struct mr_books *usage, uint64_t *excess,
                       uint32_t op_count) {
  for (uint32_t k = 0; k < op_count; k++) {
    uint64_t pages = below(random, 3 * LIMIT);
    mr_books_add(usage, k, k + 1, (int64_t)pages);
    excess[k] = pages > LIMIT ? pages - LIMIT : 0;
  }
}

static void take(uint64_t *excess, uint32_t op_count, uint32_t from, uint32_t to, uint64_t pages) {
  for (uint32_t k = from; k < to; k++) {
    uint64_t *over = &excess[k % op_count];
    *over = *over > pages ? *over - pages : 0;
  }
}

static struct mr_crowd_sum sum_of(const uint64_t *excess, uint32_t op_count, uint32_t from,
                                  uint32_t to) {
  struct mr_crowd_sum sum = {0};
  for (uint32_t k = from; k < to; k++) {
    sum.pages += excess[k % op_count];
    sum.ops += excess[k % op_count] > 0;
  }
  return sum;
}

static void the_crowd_tells_what_is_over(void **state) {
  (void)state;
  struct mr_random random;
  uint32_t still_crowded = 0;
  mr_random_init(&random, SEED);
  for (uint32_t i = 0; i < CASES; i++) {
    uint32_t n = 1 + below(&random, MOST_OPS);
    uint64_t *excess = calloc(n, sizeof *excess);
    struct mr_books usage;
    struct mr_crowd crowd;
    assert_non_null(excess);
    assert_int_equal(mr_books_init(&usage, n), MR_OK);
    assert_int_equal(mr_crowd_init(&crowd, n), MR_OK);
    draw_usage(&random, &usage, excess, n);
    mr_crowd_measure(&crowd, &usage, LIMIT);
    for (uint32_t j = 0; j < CHANGES; j++) {
      uint32_t from = below(&random, n);
      uint32_t to = from + below(&random, n + 1);
      uint64_t pages = below(&random, 4);
      mr_crowd_take(&crowd, from, to, pages);
      take(excess, n, from, to, pages);
      from = below(&random, n);
      to = from + below(&random, n + 1);
      struct mr_crowd_sum expected = sum_of(excess, n, from, to);
      struct mr_crowd_sum sum = mr_crowd_sum(&crowd, from, to);
      assert_int_equal(sum.pages, expected.pages);
      assert_int_equal(sum.ops, expected.ops);
      expected = sum_of(excess, n, 0, n);
      assert_int_equal(crowd.crowded_ops, expected.ops);
      still_crowded += expected.ops > 0 && expected.ops < n;
    }
    mr_crowd_fini(&crowd);
    mr_books_fini(&usage);
    free(excess);
  }
  assert_true(still_crowded > CASES);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_crowd_tells_what_is_over),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

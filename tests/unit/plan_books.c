/* SPDX-License-Identifier: Apache-2.0 */
/* Books of pages against an array of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>

#include "base/base.h"
#include "plan/books.h"

#define SEED     20261127u
#define CASES    60u
#define CHANGES  60u
#define MOST_OPS 150u

/* The most in use at ops [from, to), unrolled. */
static uint64_t most_of(const uint64_t *pages, uint32_t op_count, uint32_t from, uint32_t to) {
  uint64_t most = 0;
  for (uint32_t k = from; k < to; k++) {
    most = mr_max_u64(most, pages[k % op_count]);
  }
  return most;
}

/* Ops in a row, at most `longest`, at which no more than `limit` are in use: one at a time. */
static uint32_t run_of(const uint64_t *pages, uint32_t op_count, uint32_t op, bool before,
                       uint32_t longest, uint64_t limit) {
  uint32_t count = 0;
  while (count < longest && pages[(before ? op - count - 1 : op + count) % op_count] <= limit) {
    count++;
  }
  return count;
}

static uint32_t below(struct mr_random *random, uint32_t bound) {
  return (uint32_t)mr_random_below(random, bound);
}

static void books_tell_what_is_in_use(void **state) {
  (void)state;
  struct mr_random random;
  uint32_t cut_short = 0;
  mr_random_init(&random, SEED);
  for (uint32_t i = 0; i < CASES; i++) {
    uint32_t n = 1 + below(&random, MOST_OPS);
    uint64_t *pages = calloc(n, sizeof *pages);
    struct mr_books books;
    assert_non_null(pages);
    assert_int_equal(mr_books_init(&books, n), MR_OK);
    for (uint32_t j = 0; j < CHANGES; j++) {
      uint32_t from = below(&random, 2 * n);
      uint32_t to = from + below(&random, n + 1);
      uint64_t more = below(&random, 9);
      mr_books_add(&books, from, to, (int64_t)more);
      for (uint32_t k = from; k < to; k++) {
        pages[k % n] += more;
      }
      uint32_t op = n + below(&random, n);
      uint32_t longest = below(&random, n + 1);
      uint64_t limit = below(&random, 5 * (j + 1));
      assert_int_equal(mr_books_at(&books, op % n), pages[op % n]);
      assert_int_equal(mr_books_most(&books, op, op + longest),
                       most_of(pages, n, op, op + longest));
      for (uint32_t before = 0; before < 2; before++) {
        uint32_t expected = run_of(pages, n, op, before, longest, limit);
        assert_int_equal(mr_books_run(&books, op, before, longest, limit), expected);
        cut_short += expected > 0 && expected < longest;
      }
    }
    assert_int_equal(mr_books_peak(&books), most_of(pages, n, 0, n));
    mr_books_fini(&books);
    free(pages);
  }
  print_message("%u runs end where more is in use\n", cut_short);
  assert_true(cut_short > CASES);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(books_tell_what_is_in_use)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

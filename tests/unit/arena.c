/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas against a table of used integers: random takes and releases, whole and in part. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>
#include <string.h>

#include "allocator/allocator.h"
#include "base/base.h"

#define SIZE 300u

static void take(bool *used, struct mr_span span) {
  assert_true(span.count > 0 && span.first + span.count <= SIZE);
  for (uint64_t i = 0; i < span.count; i++) {
    assert_false(used[span.first + i]);
    used[span.first + i] = true;
  }
}

static uint64_t longest_free(const bool *used) {
  uint64_t best = 0;
  uint64_t run = 0;
  for (uint32_t i = 0; i < SIZE; i++) {
    run = used[i] ? 0 : run + 1;
    best = mr_max_u64(best, run);
  }
  return best;
}

static void allocate_one(struct mr_arena *arena, struct mr_random *random, bool *used) {
  uint64_t count = 1 + mr_random_below(random, 20);
  uint64_t longest = longest_free(used);
  struct mr_span span = {.count = count};
  if (mr_random_below(random, 2) == 0) {
    mr_status status = mr_arena_allocate(arena, count, &span.first);
    assert_int_equal(status, longest >= count ? MR_OK : MR_NO_SPACE);
    if (status == MR_OK) {
      take(used, span);
    }
    return;
  }
  mr_status status = mr_arena_allocate_some(arena, count, &span);
  assert_int_equal(status, longest > 0 ? MR_OK : MR_NO_SPACE);
  if (status == MR_OK) {
    assert_int_equal(span.count, mr_min_u64(count, longest));
    take(used, span);
  }
}

static void release_some(struct mr_arena *arena, struct mr_random *random, bool *used) {
  uint64_t first = mr_random_below(random, SIZE);
  uint64_t count = 0;
  uint64_t most = 1 + mr_random_below(random, 30);
  while (count < most && first + count < SIZE && used[first + count]) {
    used[first + count] = false;
    count++;
  }
  if (count > 0) {
    mr_arena_release(arena, first, count);
  }
}

static void test_against_table(void **state) {
  (void)state;
  uint64_t seed = mr_clock_ns();
  print_message("seed %llu\n", (unsigned long long)seed);
  struct mr_random random;
  mr_random_init(&random, seed);
  struct mr_arena arena;
  assert_int_equal(mr_arena_init(&arena, SIZE, SIZE / 2 + 1), MR_OK);
  bool used[SIZE] = {false};
  for (uint32_t round = 0; round < 20000; round++) {
    if (mr_random_below(&random, 2) == 0) {
      allocate_one(&arena, &random, used);
    } else {
      release_some(&arena, &random, used);
    }
    mr_arena_validate(&arena);
    uint64_t free_count = 0;
    for (uint32_t i = 0; i < SIZE; i++) {
      free_count += used[i] ? 0 : 1;
    }
    assert_int_equal(arena.free_count, free_count);
  }
  mr_arena_fini(&arena);
}

static void test_next_fit(void **state) {
  (void)state;
  struct mr_arena arena;
  uint64_t first = 0;
  assert_int_equal(mr_arena_init(&arena, 100, 51), MR_OK);
  for (uint64_t i = 0; i < 10; i++) {
    assert_int_equal(mr_arena_allocate(&arena, 10, &first), MR_OK);
    assert_int_equal(first, 10 * i);
  }
  assert_int_equal(mr_arena_allocate(&arena, 1, &first), MR_NO_SPACE);
  mr_arena_release(&arena, 10, 10);
  mr_arena_release(&arena, 50, 10);
  assert_int_equal(mr_arena_allocate(&arena, 5, &first), MR_OK);
  assert_int_equal(first, 10);
  mr_arena_release(&arena, 0, 10);
  assert_int_equal(mr_arena_allocate(&arena, 5, &first), MR_OK); /* goes on, not back to 0 */
  assert_int_equal(first, 15);
  mr_arena_fini(&arena);
}

/* Every second integer free is the most spans that there can be. */
static void test_most_spans(void **state) {
  (void)state;
  struct mr_arena arena;
  uint64_t first = 0;
  assert_int_equal(mr_arena_init(&arena, 101, 51), MR_OK);
  assert_int_equal(mr_arena_allocate(&arena, 101, &first), MR_OK);
  for (uint64_t i = 0; i < 101; i += 2) {
    mr_arena_release(&arena, i, 1);
  }
  assert_int_equal(arena.span_count, 51);
  for (uint64_t i = 1; i < 101; i += 2) {
    mr_arena_release(&arena, i, 1);
  }
  assert_int_equal(arena.span_count, 1);
  mr_arena_fini(&arena);
  assert_int_equal(mr_arena_init(&arena, 0, 1), MR_INVALID);
  assert_int_equal(mr_arena_init(&arena, 1, 0), MR_INVALID);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_against_table),
      cmocka_unit_test(test_next_fit),
      cmocka_unit_test(test_most_spans),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

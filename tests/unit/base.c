/* SPDX-License-Identifier: Apache-2.0 */
/* base/: sizes, counters, arrays, random numbers, the status list. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/counter.h"

static void sizes_parse(void **state) {
  (void)state;
  static const struct {
    const char *text;
    uint64_t bytes;
  } good[] = {{"0", 0},         {"512", 512},          {"1K", 1000},
              {"1KiB", 1024},   {"1.5Gi", 1610612736}, {"2g", 2000000000},
              {"3MB", 3000000}, {"1TiB", 1ull << 40}};
  static const char *const bad[] = {"", "K", "-1", "1X", "1 K", "1e3", "1..5M", "99999999T", "+5"};
  for (size_t i = 0; i < MR_COUNT_OF(good); i++) {
    uint64_t bytes = 0;
    assert_int_equal(mr_size_parse(good[i].text, &bytes), MR_OK);
    assert_int_equal(bytes, good[i].bytes);
  }
  for (size_t i = 0; i < MR_COUNT_OF(bad); i++) {
    uint64_t bytes = 7;
    assert_int_equal(mr_size_parse(bad[i], &bytes), MR_INVALID);
    assert_int_equal(bytes, 7);
  }
}

static void sizes_format(void **state) {
  (void)state;
  struct mr_size_text text;
  assert_string_equal(mr_size_format(512, &text), "512 B");
  assert_string_equal(mr_size_format(1536, &text), "1.50 KiB");
  assert_string_equal(mr_size_format(64 * MR_MIB, &text), "64.0 MiB");
}

static void random_repeats(void **state) {
  (void)state;
  struct mr_random a;
  struct mr_random b;
  mr_random_init(&a, 42);
  mr_random_init(&b, 42);
  for (int i = 0; i < 1000; i++) {
    assert_int_equal(mr_random_u64(&a), mr_random_u64(&b));
    assert_true(mr_random_below(&a, 7) < 7);
    (void)mr_random_below(&b, 7);
    double unit = mr_random_unit(&a);
    assert_true(unit >= 0 && unit < 1);
    (void)mr_random_unit(&b);
  }
}

static void arrays_grow(void **state) {
  (void)state;
  uint32_t *values = NULL;
  uint32_t capacity = 0;
  for (uint32_t i = 0; i < 1000; i++) {
    assert_int_equal(mr_array_reserve((void **)&values, &capacity, i + 1ull, sizeof *values),
                     MR_OK);
    values[i] = i;
  }
  for (uint32_t i = 0; i < 1000; i++) {
    assert_int_equal(values[i], i);
  }
  free(values);
}

static void *advance(void *context) {
  struct mr_counter *counter = context;
  for (uint32_t i = 0; i < 1000; i++) {
    mr_counter_add(counter, 1);
  }
  return NULL;
}

static void counters_wake(void **state) {
  (void)state;
  struct mr_counter counter;
  mr_counter_init(&counter, UINT32_MAX - 500); /* across the wrap */
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, advance, &counter), 0);
  assert_true(mr_counter_wait(&counter, UINT32_MAX - 500 + 1000, NULL, UINT64_MAX));
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_false(mr_counter_wait(&counter, mr_counter_load(&counter) + 1, NULL, 1000000));
  _Atomic bool stop = true;
  assert_false(mr_counter_wait(&counter, mr_counter_load(&counter) + 1, &stop, UINT64_MAX));
}

static void statuses_are_named(void **state) {
  (void)state;
  assert_string_equal(mr_status_name(MR_DOES_NOT_FIT), "MR_DOES_NOT_FIT");
  assert_int_equal(mr_status_exit(MR_CORRUPT), 5);
  assert_int_equal(mr_status_exit(MR_INTERRUPTED), 130);
  assert_string_equal(mr_status_name((mr_status)999), "MR_UNKNOWN");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sizes_parse),    cmocka_unit_test(sizes_format),
      cmocka_unit_test(random_repeats), cmocka_unit_test(arrays_grow),
      cmocka_unit_test(counters_wake),  cmocka_unit_test(statuses_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

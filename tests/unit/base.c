/* SPDX-License-Identifier: Apache-2.0 */
/* base/: sizes, log lines, arrays, random numbers, the status list. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static char last_line[2048];

static void keep_line(void *context, mr_log_level level, const char *line) {
  (void)context;
  (void)level;
  snprintf(last_line, sizeof last_line, "%s", line);
  errno = 0;
}

static void sizes_parse(void **state) {
  (void)state;
  static const struct {
    const char *text;
    uint64_t bytes;
  } good[] = {{"0", 0},         {"512", 512},           {"1K", 1000},
              {"1KiB", 1024},   {"1.5Gi", 1610612736},  {"2g", 2000000000},
              {"3MB", 3000000}, {"1TiB", 1ull << 40},   {"9007199254740993", 9007199254740993},
              {"0.5", 1},       {"0.000000000001T", 1}, {"4611686018427387903", (1ull << 62) - 1}};
  static const char *const bad[] = {"",
                                    "K",
                                    "-1",
                                    "1X",
                                    "1 K",
                                    "1e3",
                                    "1..5M",
                                    "99999999T",
                                    "+5",
                                    "1.",
                                    ".5",
                                    "1.M",
                                    "0x10",
                                    "4611686018427387904",
                                    "99999999999999999999",
                                    "1.0000000000001G",
                                    "1G ",
                                    "1KK"};
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
  assert_string_equal(mr_size_format(MR_MIB - 1, &text), "1.00 MiB");
  assert_string_equal(mr_size_format(UINT64_MAX, &text), "16.0 EiB");
}

/* What is said to be enough is enough when it is typed, and not much more. */
static void sizes_that_are_enough(void **state) {
  (void)state;
  struct mr_size_text text;
  assert_string_equal(mr_size_format_enough(512, &text), "512 B");
  assert_string_equal(mr_size_format_enough(34 * MR_MIB, &text), "34.0 MiB");
  assert_string_equal(mr_size_format_enough(34 * MR_MIB + 16384, &text), "34.1 MiB");
  struct mr_random random;
  mr_random_init(&random, 11);
  for (uint32_t i = 0; i < 10000; i++) {
    uint64_t bytes = mr_random_u64(&random) >> (4 + mr_random_below(&random, 60));
    mr_size_format_enough(bytes, &text);
    char *space = strchr(text.text, ' ');
    assert_non_null(space);
    memmove(space, space + 1, strlen(space));
    uint64_t typed = 0;
    if (strchr(text.text, 'E') == NULL && strchr(text.text, 'P') == NULL) { /* no suffixes */
      assert_int_equal(mr_size_parse(text.text, &typed), MR_OK);
      assert_true(typed >= bytes && (double)typed <= (double)bytes * 1.011 + 1);
    }
  }
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

/* What cannot be had leaves the array as it was. */
static void arrays_refuse_the_impossible(void **state) {
  (void)state;
  mr_log_configure(keep_line, NULL, MR_LOG_ERROR);
  uint32_t *values = NULL;
  uint32_t capacity = 0;
  assert_int_equal(mr_array_reserve((void **)&values, &capacity, 4, sizeof *values), MR_OK);
  uint32_t *before = values;
  uint32_t capacity_before = capacity;
  assert_int_equal(mr_array_reserve((void **)&values, &capacity, 1ull << 32, 1), MR_NO_MEMORY);
  assert_int_equal(mr_array_reserve((void **)&values, &capacity, UINT32_MAX, SIZE_MAX / 2),
                   MR_NO_MEMORY);
  assert_ptr_equal(values, before);
  assert_int_equal(capacity, capacity_before);
  assert_non_null(strstr(last_line, "out of memory"));
  mr_log_configure(NULL, NULL, MR_LOG_WARN);
  free(values);
}

/* Names of files and tensors cannot forge a line or drive a terminal; errno is left alone. */
static void log_lines_are_single(void **state) {
  (void)state;
  mr_log_configure(keep_line, NULL, MR_LOG_INFO);
  errno = ENOSPC;
  mr_log(MR_LOG_INFO, "%s", "a\nb\x1b[2Jc\x7f \xc3\xa4");
  assert_int_equal(errno, ENOSPC);
  assert_string_equal(last_line, "a?b?[2Jc? \xc3\xa4");
  char path[5000];
  memset(path, 'p', sizeof path - 1);
  path[sizeof path - 1] = '\0';
  mr_log(MR_LOG_INFO, "%s: No such file or directory", path);
  assert_true(strlen(last_line) < 1024);
  assert_non_null(strstr(last_line, "ppp ... ppp"));
  assert_non_null(strstr(last_line, "ppp: No such file or directory"));
  mr_log(MR_LOG_INFO, "%s", "a\nb\x1b[2Jc\x7f \xc3\xa4");
  mr_log(MR_LOG_DEBUG, "below the level");
  assert_string_equal(last_line, "a?b?[2Jc? \xc3\xa4");
  mr_log_configure(NULL, NULL, MR_LOG_WARN);
}

static void count_lines(void *context, mr_log_level level, const char *line) {
  (void)level;
  (void)line;
  ++*(uint32_t *)context;
}

/* What is asked for and not had in a row is told once; something had in between ends the row. */
static void memory_that_is_out_is_told_once(void **state) {
  (void)state;
  uint32_t lines = 0;
  mr_log_configure(count_lines, &lines, MR_LOG_WARN);
  for (uint32_t row = 1; row <= 3; row++) {
    free(mr_allocate(1, 1));
    for (uint32_t i = 0; i < 10; i++) {
      assert_null(mr_allocate(1u << 30, 1u << 30));
    }
    assert_int_equal(lines, row);
  }
  mr_log_configure(NULL, NULL, MR_LOG_WARN);
}

/* Lines that differ are told apart; what was below the level has not been logged. Of more than are
 * remembered none is lost. */
static void what_is_found_again_is_logged_once(void **state) {
  (void)state;
  uint32_t lines = 0;
  mr_log_configure(count_lines, &lines, MR_LOG_WARN);
  mr_log_once(MR_LOG_INFO, "folder %d", 0);
  assert_int_equal(lines, 0);
  errno = ENOSPC;
  for (int i = 0; i < 6; i++) {
    mr_log_once(MR_LOG_WARN, "folder %d", i % 2);
  }
  assert_int_equal(errno, ENOSPC);
  assert_int_equal(lines, 2);
  for (int i = 0; i < 100; i++) {
    mr_log_once(MR_LOG_WARN, "folder %d", i);
  }
  assert_int_equal(lines, 100);
  mr_log_once(MR_LOG_WARN, "folder %d", 99);
  assert_int_equal(lines, 101);
  mr_log_configure(NULL, NULL, MR_LOG_WARN);
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
      cmocka_unit_test(sizes_parse),
      cmocka_unit_test(sizes_format),
      cmocka_unit_test(sizes_that_are_enough),
      cmocka_unit_test(random_repeats),
      cmocka_unit_test(arrays_grow),
      cmocka_unit_test(arrays_refuse_the_impossible),
      cmocka_unit_test(log_lines_are_single),
      cmocka_unit_test(what_is_found_again_is_logged_once),
      cmocka_unit_test(memory_that_is_out_is_told_once),
      cmocka_unit_test(statuses_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

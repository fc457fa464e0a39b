/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What some unit tests use of cmocka, for programs of another processor, for which the machine has
 * the C library alone. The first fault ends the program; a test that skips itself has passed.
 */
#ifndef MEMRUN_TESTS_ARM64_CMOCKA_H
#define MEMRUN_TESTS_ARM64_CMOCKA_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
  const char *name;
  void (*run)(void **state);
};

#define cmocka_unit_test(function)                                                                 \
  { #function, function }

static inline int cmocka_run_tests(const struct CMUnitTest *tests, size_t count) {
  for (size_t i = 0; i < count; i++) {
    printf("%s\n", tests[i].name);
    fflush(stdout);
    void *state = NULL;
    tests[i].run(&state);
  }
  return 0;
}
/* The setup and the teardown are NULL. */
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
  cmocka_run_tests(tests, sizeof(tests) / sizeof((tests)[0]))

#define print_message(...) ((void)printf(__VA_ARGS__))
#define fail_msg(...)      cmocka_fail(__FILE__, __LINE__, __VA_ARGS__)

__attribute__((format(printf, 3, 4))) _Noreturn static inline void
cmocka_fail(const char *file, int line, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "%s:%d: ", file, line);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(1);
}

#define assert_true(condition) ((condition) ? (void)0 : fail_msg("not so: %s", #condition))
#define assert_int_equal(a, b)                                                                     \
  ((uint64_t)(a) == (uint64_t)(b) ? (void)0                                                        \
                                  : fail_msg("%s is 0x%llx, not 0x%llx", #a,                       \
                                             (unsigned long long)(a), (unsigned long long)(b)))
#define assert_null(pointer) assert_true((pointer) == NULL)
#define assert_memory_equal(a, b, size)                                                            \
  (memcmp(a, b, size) == 0 ? (void)0 : fail_msg("%s has not the bytes of %s", #a, #b))
#define assert_memory_not_equal(a, b, size)                                                        \
  (memcmp(a, b, size) != 0 ? (void)0 : fail_msg("%s has the bytes of %s", #a, #b))

#endif

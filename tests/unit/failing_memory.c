/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the allocator, one of which fails. */
#include "unit/failing_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MOST_ALLOCATIONS 20000u

/* The linker chose these names. NOLINTBEGIN(bugprone-reserved-identifier) */
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
char *__real_strdup(const char *text);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
char *__wrap_strdup(const char *text);
/* NOLINTEND(bugprone-reserved-identifier) */

static uint32_t fail_at; /* of the allocations to come, from 1; 0: none */

static bool fails(void) {
  return fail_at != 0 && --fail_at == 0;
}

void *__wrap_calloc(size_t count, size_t bytes) {
  return fails() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes) {
  return fails() ? NULL : __real_realloc(memory, bytes);
}

char *__wrap_strdup(const char *text) {
  return fails() ? NULL : __real_strdup(text);
}

static void count_line(void *context, mr_log_level level, const char *line) {
  (void)level;
  (void)line;
  ++*(uint32_t *)context;
}

uint32_t failing_memory_each(mr_status (*run)(void *context), void *context) {
  uint32_t lines = 0;
  mr_log_configure(count_line, &lines, MR_LOG_ERROR);
  uint32_t n = 0;
  bool failed = true;
  for (; failed && n < MOST_ALLOCATIONS; n++) {
    lines = 0;
    fail_at = n + 1;
    mr_status status = run(context);
    failed = fail_at == 0;
    fail_at = 0;
    assert_int_equal(status, failed ? MR_NO_MEMORY : MR_OK);
    assert_int_equal(lines, failed ? 1 : 0);
  }
  mr_log_configure(NULL, NULL, MR_LOG_INFO);
  assert_false(failed);
  return n - 1;
}

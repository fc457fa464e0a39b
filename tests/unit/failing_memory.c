/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the allocator, one of which fails. */
#include "unit/failing_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_ALLOCATIONS 20000u

/* The linker chose these names. NOLINTBEGIN(bugprone-reserved-identifier) */
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
char *__real_strdup(const char *text);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
char *__wrap_strdup(const char *text);
/* NOLINTEND(bugprone-reserved-identifier) */

#define ALL_AGAIN  200u /* failures after each of which the call is made again */
#define SOME_AGAIN 16u  /* of so many that follow one */

static uint32_t fail_at; /* of the allocations to come, from 1; 0: none */

/* Of this process and its children. */
static bool forks, is_child;
static uint32_t allocations, bad;

/* A child whose allocation fails; what becomes of it is its end. */
static bool fork_failure(void) {
  allocations++;
  pid_t child = fork();
  if (child == 0) {
    is_child = true;
    forks = false;
    return true;
  }
  int end = 0;
  bad += child < 0 || waitpid(child, &end, 0) != child || !WIFEXITED(end) || WEXITSTATUS(end) != 0;
  return false;
}

static bool fails(void) {
  return forks ? fork_failure() : fail_at != 0 && --fail_at == 0;
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

static uint32_t each_in_turn(mr_status (*run)(void *context), void *context, uint32_t *lines) {
  uint32_t n = 0;
  bool failed = true;
  for (; failed && n < MOST_ALLOCATIONS; n++) {
    *lines = 0;
    fail_at = n + 1;
    mr_status status = run(context);
    failed = fail_at == 0;
    fail_at = 0;
    assert_int_equal(status, failed ? MR_NO_MEMORY : MR_OK);
    assert_int_equal(*lines, failed ? 1 : 0);
  }
  assert_false(failed);
  return n - 1;
}

/* What a child tells by its exit status, after the failure. */
static bool survives(mr_status (*run)(void *context), void *context, mr_status status,
                     uint32_t *lines) {
  bool told = status == MR_NO_MEMORY && *lines == 1;
  bool again = allocations <= ALL_AGAIN || allocations % SOME_AGAIN == 0;
  *lines = 0;
  return told && (!again || (run(context) == MR_OK && *lines == 0));
}

static uint32_t each_in_a_child(mr_status (*run)(void *context), void *context, uint32_t *lines) {
  allocations = 0;
  bad = 0;
  forks = true;
  mr_status status = run(context);
  if (is_child) {
    _exit(survives(run, context, status, lines) ? 0 : 1);
  }
  forks = false;
  assert_int_equal(status, MR_OK);
  assert_int_equal(*lines, 0);
  assert_int_equal(bad, 0);
  return allocations;
}

uint32_t failing_memory_each(mr_status (*run)(void *context), void *context) {
  uint32_t lines = 0;
  bool sanitized = getenv("MEMRUN_SANITIZE") != NULL;
  mr_log_configure(count_line, &lines, MR_LOG_ERROR);
  uint32_t count =
      sanitized ? each_in_turn(run, context, &lines) : each_in_a_child(run, context, &lines);
  mr_log_configure(NULL, NULL, MR_LOG_INFO);
  return count;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The log: one sink for the process, the only global state of base/. */
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

#define ONCE_LINES 32u /* that mr_log_once remembers */
#define LINE_BYTES 1024u
#define MOST_BYTES 9216u /* of a line before its middle is left out: two of the longest paths */
#define GAP        " ... "
/* What fails so soon after one another, and nothing has been had in between, is one failure. */
#define SAME_FAILURE_NS 100000000u

static void default_sink(void *context, mr_log_level level, const char *line) {
  (void)context;
  (void)level;
  fprintf(stderr, "memrun: %s\n", line);
}

static struct {
  mr_log_sink sink;
  void *context;
  mr_log_level level;
  _Atomic uint64_t once[ONCE_LINES]; /* hashes; 0: none yet, nor behind it */
  _Atomic uint64_t memory_ns;        /* when a line said last that memory is out; 0: it was not */
} log_state = {.sink = default_sink, .level = MR_LOG_WARN};

void mr_log_configure(mr_log_sink sink, void *context, mr_log_level level) {
  log_state.sink = sink == NULL ? default_sink : sink;
  log_state.context = context;
  log_state.level = level;
}

/* File names and data of others end up in lines; what they hold must not forge a line or drive a
 * terminal. */
static void blank_controls(char *line) {
  for (char *c = line; *c != '\0'; c++) {
    if ((unsigned char)*c < 0x20 || *c == 0x7f) {
      *c = '?';
    }
  }
}

/* A long path keeps its ends: what is said behind it is the cause. */
static void shorten(char *line) {
  size_t length = strlen(line);
  if (length >= LINE_BYTES) {
    char *middle = line + LINE_BYTES / 2;
    size_t kept = LINE_BYTES / 2 - sizeof GAP;
    memmove(mempcpy(middle, GAP, sizeof GAP - 1), line + length - kept, kept + 1);
  }
}

/* FNV-1a (G. Fowler, L. Noll, P. Vo). */
static uint64_t hash_line(const char *line) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char *c = line; *c != '\0'; c++) {
    hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
  }
  return hash;
}

/* Whether the line was here before; lines beyond those that are remembered never were. */
static bool was_logged(const char *line) {
  uint64_t hash = hash_line(line);
  for (uint32_t i = 0; i < ONCE_LINES; i++) {
    uint64_t found = 0;
    if (atomic_compare_exchange_strong(&log_state.once[i], &found, hash) || found == hash) {
      return found == hash;
    }
  }
  return false;
}

static void log_line(mr_log_level level, bool once, const char *format, va_list arguments) {
  if (level > log_state.level) {
    return;
  }
  int saved_errno = errno;
  char line[MOST_BYTES];
  /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): callers start it */
  vsnprintf(line, sizeof line, format, arguments);
  shorten(line);
  blank_controls(line);
  if (!once || !was_logged(line)) {
    log_state.sink(log_state.context, level, line);
  }
  errno = saved_errno;
}

void mr_log(mr_log_level level, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  log_line(level, false, format, arguments);
  va_end(arguments);
}

void mr_log_no_memory(const char *format, ...) {
  uint64_t now_ns = mr_clock_ns();
  uint64_t before_ns = atomic_load(&log_state.memory_ns);
  bool told = before_ns != 0 && now_ns - before_ns < SAME_FAILURE_NS;
  if (told || !atomic_compare_exchange_strong(&log_state.memory_ns, &before_ns, now_ns)) {
    return;
  }
  va_list arguments;
  va_start(arguments, format);
  log_line(MR_LOG_ERROR, false, format, arguments);
  va_end(arguments);
}

void mr_log_memory_found(void) {
  if (atomic_load_explicit(&log_state.memory_ns, memory_order_relaxed) != 0) {
    atomic_store(&log_state.memory_ns, 0);
  }
}

void mr_log_once(mr_log_level level, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  log_line(level, true, format, arguments);
  va_end(arguments);
}

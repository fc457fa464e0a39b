/* SPDX-License-Identifier: Apache-2.0 */
/* The log: one sink for the process, the only global state of base/. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/base.h"

static void default_sink(void *context, mr_log_level level, const char *line) {
  (void)context;
  (void)level;
  fprintf(stderr, "memrun: %s\n", line);
}

static struct {
  mr_log_sink sink;
  void *context;
  mr_log_level level;
} log_state = {default_sink, NULL, MR_LOG_WARN};

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

void mr_log(mr_log_level level, const char *format, ...) {
  if (level > log_state.level) {
    return;
  }
  int saved_errno = errno;
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is one line above */
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  blank_controls(line);
  log_state.sink(log_state.context, level, line);
  errno = saved_errno;
}

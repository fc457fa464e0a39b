/* SPDX-License-Identifier: Apache-2.0 */
/* One file, one count of logged errors. */
#include "unit/train_file.h"

#include <stdio.h>
#include <unistd.h>

#include <memrun/memrun.h>

char train_file_path[64];
int train_file_errors;

static void count_line(void *context, mr_log_level level, const char *line) {
  (void)context;
  (void)level;
  (void)line;
  train_file_errors++;
}

int train_file_begin(void **state) {
  (void)state;
  snprintf(train_file_path, sizeof train_file_path, "/tmp/memrun-train-file-%ld", (long)getpid());
  train_file_errors = 0;
  mr_log_configure(count_line, NULL, MR_LOG_ERROR);
  return 0;
}

int train_file_end(void **state) {
  (void)state;
  unlink(train_file_path);
  mr_log_configure(NULL, NULL, MR_LOG_INFO);
  return 0;
}

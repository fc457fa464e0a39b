/* SPDX-License-Identifier: Apache-2.0 */
/* Keeping error lines: several threads may tell of a device that is gone. */
#include "unit/cuda_lines.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <memrun/memrun.h>

#include "base/base.h"

/* What the runtime tells once after a fault of the device. */
#define FAULT "device cuda: the fault is that of an op or a copy before: "

static struct cuda_lines lines;
static size_t length;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void keep_line(void *context, mr_log_level level, const char *line) {
  (void)context;
  (void)level;
  pthread_mutex_lock(&lock);
  lines.count++;
  length += (size_t)snprintf(lines.text + length, sizeof lines.text - length, "%s\n", line);
  length = mr_min_u64(length, sizeof lines.text - 1);
  pthread_mutex_unlock(&lock);
}

void cuda_lines_keep(bool keep) {
  mr_log_configure(keep ? keep_line : NULL, NULL, keep ? MR_LOG_ERROR : MR_LOG_WARN);
}

void cuda_lines_forget(void) {
  lines.count = 0;
  lines.text[0] = '\0';
  length = 0;
}

const struct cuda_lines *cuda_lines_kept(void) {
  return &lines;
}

bool cuda_lines_name_calls(const char *result) {
  uint32_t named = 0;
  uint32_t faults = 0;
  for (const char *line = lines.text; *line != '\0'; line = strchr(line, '\n') + 1) {
    const char *end = strchr(line, '\n');
    if (strncmp(line, FAULT, sizeof FAULT - 1) == 0) {
      faults++;
      continue;
    }
    const char *call = strstr(line, ": cu");
    const char *told = strstr(line, result);
    if (end == NULL || call == NULL || told == NULL || call > told || told > end) {
      return false;
    }
    named++;
  }
  return faults <= named && faults <= 1 && named + faults == lines.count;
}

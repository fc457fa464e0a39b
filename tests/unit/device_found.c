/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA device that a test was given. */
#include "tests/unit/device_found.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memrun/memrun.h>

#include "base/base.h"
#include "device/device.h"

static _Atomic uint32_t line_count;
static _Atomic uint32_t wrong_count;

bool device_found(void) {
  char why[256];
  mr_status status = mr_cuda_available(why, sizeof why);
  if (status != MR_OK) {
    device_is_missing(why);
  }
  return status == MR_OK;
}

void device_is_missing(const char *why) {
  bool required = getenv("MEMRUN_REQUIRE_DEVICE") != NULL;
  printf("%s: %s\n", required ? "failed" : "skipped", why);
  if (required) {
    exit(EXIT_FAILURE);
  }
}

uint64_t device_used_bytes(void) {
  struct mr_accelerator accelerator;
  char why[256];
  if (mr_cuda_describe(&accelerator, why, sizeof why) != MR_OK) {
    fail_msg("%s", why);
  }
  return accelerator.memory_bytes - accelerator.free_bytes;
}

/* Tells of the driver's refusal, or of where the program was then. Any thread. */
static void judge_line(void *context, mr_log_level level, const char *line) {
  (void)context;
  (void)level;
  const char *call = strstr(line, ": cu");
  bool refused = call != NULL && strstr(call, "CUDA_ERROR_") != NULL;
  bool placed = strstr(line, "the fault is that of an op or a copy before") != NULL;
  line_count++;
  if (!refused && !placed) {
    printf("not of the device: %s\n", line);
    wrong_count++;
  }
}

void device_found_expect_errors(bool expected) {
  if (expected) {
    line_count = 0;
    wrong_count = 0;
    mr_log_configure(judge_line, NULL, MR_LOG_ERROR);
    return;
  }
  mr_log_configure(NULL, NULL, MR_LOG_WARN);
  assert_true(line_count > 0);
  assert_int_equal(wrong_count, 0);
}

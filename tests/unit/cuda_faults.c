/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/ on the cuda device when the driver fails: each function that a job calls, at its first
 * call, at one in the middle and at its last. The job ends with a status, one line that names the
 * call, and nothing left behind; what fails to be given back ends nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "device/cuda/driver.h"
#include "unit/cuda_job.h"
#include "unit/cuda_lines.h"

#define OUT_OF_MEMORY 2
#define LAUNCH_FAILED 719 /* sticky */
/* Whatever fails, a job of some milliseconds is over in this time, on a busy machine too. */
#define MOST_SECONDS 20.0

static const struct world_shape shape = {2, 270 * 1000 + 7};

static const char *const functions[] = {
#define FUNCTION(field, name, parameters) #name,
    MR_CUDA_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

/* Functions whose failure may change nothing of what a run is for: they give back, come before
 * that, or put words to another failure. */
static bool is_harmless(const char *name) {
  static const char *const harmless[] = {
      "cuMemRelease",        "cuMemUnmap",
      "cuMemAddressFree",    "cuMemFree_v2",
      "cuMemFreeHost",       "cuStreamDestroy_v2",
      "cuEventDestroy_v2",   "cuModuleUnload",
      "cuMemHostUnregister", "cuCtxSynchronize",
      "cuCtxSetCurrent",     "cuGetErrorName",
      "cuGetErrorString",    "cuDevicePrimaryCtxRelease_v2",
  };
  for (size_t i = 0; i < MR_COUNT_OF(harmless); i++) {
    if (strcmp(harmless[i], name) == 0) {
      return true;
    }
  }
  return false;
}

/* Whether a line names the function, its version aside. */
static bool is_named(const char *name) {
  const char *version = strstr(name, "_v2");
  size_t length = version == NULL ? strlen(name) : (size_t)(version - name);
  char plain[64];
  snprintf(plain, sizeof plain, "%.*s", (int)length, name);
  return strstr(cuda_lines_kept()->text, plain) != NULL;
}

/* False, and told, where the run does not end as it must. */
static bool fail_once(struct cuda_job *job, const char *name, uint64_t n, int result) {
  const struct cuda_lines *lines = cuda_lines_kept();
  char fault[96];
  bool right = false;
  snprintf(fault, sizeof fault, "%s:%llu:%d", name, (unsigned long long)n, result);
  cuda_lines_forget();
  cuda_job_set(0, fault);
  double start = mr_clock_seconds();
  mr_status status = cuda_job_run(job, &right);
  double seconds = mr_clock_seconds() - start;
  bool fine = seconds < MOST_SECONDS;
  if (status == MR_OK) {
    /* How often streams wait, and for how many events, is a matter of timing. */
    bool never_called = n > 1 && fake_call_count(name) < n;
    fine = fine && right && lines->count == 0 && (is_harmless(name) || never_called);
  } else if (result == LAUNCH_FAILED) {
    /* Another thread's call may meet the broken device first. */
    fine = fine && lines->count >= 1 && cuda_lines_name_calls("CUDA_ERROR_LAUNCH_FAILED");
  } else {
    fine = fine && lines->count == 1 && is_named(name);
  }
  if (!fine) {
    print_message("%s: %s, %s, %.1f s, %u lines: %s\n", fault, mr_status_name(status),
                  right ? "right" : "not right", seconds, lines->count, lines->text);
  }
  return fine;
}

static void run_faults(struct cuda_job_tiers tiers) {
  struct cuda_job job;
  bool right = false;
  uint64_t calls[MR_COUNT_OF(functions)];
  uint32_t failed = 0;
  uint32_t wrong = 0;
  cuda_job_init(&job, shape, 2, tiers);
  cuda_job_set(0, NULL);
  assert_int_equal(cuda_job_run(&job, &right), MR_OK);
  for (size_t i = 0; i < MR_COUNT_OF(functions); i++) {
    calls[i] = fake_call_count(functions[i]);
  }
  cuda_lines_keep(true);
  for (size_t i = 0; i < MR_COUNT_OF(functions); i++) {
    uint64_t turns[] = {1, calls[i] / 2, calls[i]};
    for (size_t t = 0; t < MR_COUNT_OF(turns); t++) {
      if (turns[t] > 0 && turns[t] <= calls[i] && (t == 0 || turns[t] != turns[t - 1])) {
        int result = t == 1 ? LAUNCH_FAILED : OUT_OF_MEMORY;
        wrong += !fail_once(&job, functions[i], turns[t], result);
        failed++;
      }
    }
  }
  cuda_lines_keep(false);
  print_message("%u calls failed, one in each run\n", failed);
  assert_true(failed > 50);
  assert_int_equal(wrong, 0);
  cuda_job_fini(&job);
}

static void calls_fail_through_the_host(void **state) {
  (void)state;
  run_faults((struct cuda_job_tiers){.host_bytes = 256 * MR_MIB});
}

static void calls_fail_through_nvme(void **state) {
  (void)state;
  run_faults((struct cuda_job_tiers){.nvme_bytes = 128 * MR_MIB});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(calls_fail_through_the_host),
      cmocka_unit_test(calls_fail_through_nvme),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver fails while another plan takes over on the cuda device: each function that the step
 * which begins with it calls, at its first call there, at one in the middle and at its last. Either
 * the run goes on, then its bits are right, or it ends with a status and one line that names the
 * call; nothing is left behind, and what comes after it on the device is right.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/driver.h"
#include "runtime/runtime.h"
#include "unit/cuda_job.h"
#include "unit/cuda_lines.h"

#define STEPS 5u
/* Replanned after every second step: this one begins with another plan. */
#define SWITCH_STEP   3u
#define OUT_OF_MEMORY 2
#define LAUNCH_FAILED 719 /* sticky */
#define MOST_SECONDS  20.0

static const struct world_shape shape = {3, 270 * 1000 + 7};

static const char *const functions[] = {
#define FUNCTION(field, name, parameters) #name,
    MR_CUDA_FUNCTIONS(FUNCTION)
#undef FUNCTION
};
#define FUNCTION_COUNT MR_COUNT_OF(functions)

/* Calls of each before the step with the other plan, and when it is over. */
struct window {
  uint64_t before[FUNCTION_COUNT], end[FUNCTION_COUNT];
};

static void count_calls(uint64_t *calls) {
  for (size_t i = 0; i < FUNCTION_COUNT; i++) {
    calls[i] = fake_call_count(functions[i]);
  }
}

static void find_window(struct cuda_job *job, struct window *window) {
  struct mr_run *run = NULL;
  struct mr_step_report report = {.size_bytes = sizeof report};
  cuda_job_set(0, NULL);
  assert_int_equal(mr_run_create(job->world.graph, &job->options, &run), MR_OK);
  assert_int_equal(world_load(&job->world, run), MR_OK);
  for (uint64_t step = 1; step <= SWITCH_STEP; step++) {
    count_calls(window->before);
    assert_int_equal(world_step(&job->world, run, step, MR_STEP_TRAIN, &report), MR_OK);
  }
  count_calls(window->end);
  assert_int_equal(report.replan_step, SWITCH_STEP);
  mr_run_destroy(run);
}

/* False, and told, where the run does not end as it must. `ended`: it did not go on. */
static bool fail_at(struct cuda_job *job, const char *function, uint64_t call, int result,
                    bool *ended) {
  const struct cuda_lines *lines = cuda_lines_kept();
  const char *name = result == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_LAUNCH_";
  char fault[96];
  bool right = false;
  snprintf(fault, sizeof fault, "%s:%llu:%d", function, (unsigned long long)call, result);
  cuda_lines_forget();
  cuda_job_set(0, fault);
  double start = mr_clock_seconds();
  mr_status status = cuda_job_run(job, &right);
  double seconds = mr_clock_seconds() - start;
  bool fine = seconds < MOST_SECONDS && cuda_lines_name_calls(name);
  *ended = status != MR_OK;
  if (status == MR_OK) {
    fine = fine && right && lines->count <= 1; /* there was no room for the other plan */
  } else {
    fine = fine && lines->count >= 1 && (lines->count == 1 || result == LAUNCH_FAILED);
  }
  if (!fine) {
    print_message("%s: %s, %s, %.1f s, %u lines: %s\n", fault, mr_status_name(status),
                  right ? "right" : "not right", seconds, lines->count, lines->text);
  }
  return fine;
}

/* Of one function; what was tried and what ended is added up. */
static uint32_t fail_function(struct cuda_job *job, const struct window *window, size_t function,
                              uint32_t *tried, uint32_t *ended_count) {
  uint64_t first = window->before[function] + 1;
  uint64_t last = window->end[function];
  const uint64_t calls[] = {(first + last) / 2, first, last};
  size_t count = getenv("MEMRUN_SANITIZE") == NULL ? MR_COUNT_OF(calls) : 1;
  uint32_t wrong = 0;
  for (size_t i = 0; i < count && first <= last && (i == 0 || calls[i] != calls[0]); i++) {
    bool ended = false;
    int result = i == 0 ? LAUNCH_FAILED : OUT_OF_MEMORY;
    wrong += !fail_at(job, functions[function], calls[i], result, &ended);
    *tried += 1;
    *ended_count += ended;
  }
  return wrong;
}

static void fail_everywhere(struct cuda_job_tiers tiers, uint64_t more_bytes) {
  struct cuda_job job;
  struct window window;
  uint32_t wrong = 0;
  uint32_t ended_count = 0;
  uint32_t tried = 0;
  bool right = false;
  cuda_job_init(&job, shape, STEPS, tiers);
  job.options.replan = MR_REPLAN_ALWAYS;
  job.options.device_bytes += more_bytes;
  find_window(&job, &window);
  cuda_lines_keep(true);
  for (size_t i = 0; i < FUNCTION_COUNT; i++) {
    wrong += fail_function(&job, &window, i, &tried, &ended_count);
  }
  cuda_lines_keep(false);
  print_message("%u calls failed, one in each run; %u runs ended\n", tried, ended_count);
  assert_int_equal(wrong, 0);
  assert_true(tried >= 15 && ended_count >= tried / 3);
  cuda_job_set(0, NULL);
  assert_int_equal(cuda_job_run(&job, &right), MR_OK);
  assert_true(right);
  cuda_job_fini(&job);
}

static void through_the_host(void **state) {
  (void)state;
  fail_everywhere((struct cuda_job_tiers){.host_bytes = 256 * MR_MIB}, 6 * MR_MIB);
}

static void through_nvme(void **state) {
  (void)state;
  fail_everywhere((struct cuda_job_tiers){.host_bytes = 4 * MR_MIB, .nvme_bytes = 128 * MR_MIB},
                  2 * MR_MIB);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(through_the_host),
      cmocka_unit_test(through_nvme),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

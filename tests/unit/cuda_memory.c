/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the cuda device that is not the run's: what libraries take when ops first run is in the
 * budget from the beginning, and what anybody takes later is told and shows in the peak.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/runtime.h"
#include "unit/cuda_job.h"

#define STEPS 4u

static const struct world_shape shape = {3, 270 * 1000 + 7};
static const struct cuda_job_tiers tiers = {.host_bytes = 256 * MR_MIB};

static struct {
  char last[512];
  uint32_t count;
} warnings;

static void keep_warning(void *context, mr_log_level level, const char *line) {
  (void)context;
  (void)level;
  snprintf(warnings.last, sizeof warnings.last, "%s", line);
  warnings.count++;
}

static void set(const char *name, uint64_t value) {
  char text[24];
  snprintf(text, sizeof text, "%llu", (unsigned long long)value);
  assert_int_equal(setenv(name, text, 1), 0);
}

/* Steps whose reports go to `report`, and the bits. */
static void run_steps(struct cuda_job *job, struct mr_step_report *report) {
  struct mr_run *run = NULL;
  assert_int_equal(mr_run_create(job->world.graph, &job->options, &run), MR_OK);
  assert_int_equal(world_load(&job->world, run), MR_OK);
  for (uint64_t step = 1; step <= STEPS; step++) {
    *report = (struct mr_step_report){.size_bytes = sizeof *report};
    assert_int_equal(world_step(&job->world, run, step, MR_STEP_TRAIN, report), MR_OK);
  }
  world_compare(&job->world, run, &job->expected);
  mr_run_destroy(run);
}

/* The device has the smallest budget and no byte more; each kernel takes its part at its first
 * launch. */
static void libraries_are_in_the_budget(void **state) {
  (void)state;
  struct cuda_job job;
  struct mr_step_report report;
  uint64_t without_bytes = 0;
  for (uint64_t lazy_bytes = 0; lazy_bytes <= 3 * MR_MIB; lazy_bytes += 3 * MR_MIB) {
    set("MEMRUN_FAKE_LAZY", lazy_bytes);
    cuda_job_init(&job, shape, STEPS, tiers);
    without_bytes = lazy_bytes == 0 ? job.options.device_bytes : without_bytes;
    assert_int_equal((job.options.device_bytes - without_bytes) % (3 * MR_MIB), 0);
    assert_true(lazy_bytes == 0 || job.options.device_bytes >= without_bytes + 4 * lazy_bytes);
    set("MEMRUN_FAKE_MEMORY", job.options.device_bytes);
    for (uint64_t seed = 0; seed < 3; seed++) {
      cuda_job_set(seed, NULL);
      mr_log_configure(keep_warning, NULL, MR_LOG_WARN);
      warnings.count = 0;
      run_steps(&job, &report);
      mr_log_configure(NULL, NULL, MR_LOG_WARN);
      assert_int_equal(warnings.count, 0);
      assert_int_equal(report.budget_bytes[MR_TIER_DEVICE], job.options.device_bytes);
      assert_true(report.peak_bytes[MR_TIER_DEVICE] <= job.options.device_bytes);
      assert_int_equal(report.peak_bytes[MR_TIER_DEVICE],
                       report.planned_peak_bytes[MR_TIER_DEVICE]);
    }
    assert_int_equal(unsetenv("MEMRUN_FAKE_MEMORY"), 0);
    cuda_job_fini(&job);
  }
  assert_int_equal(unsetenv("MEMRUN_FAKE_LAZY"), 0);
}

/* A byte less than the smallest budget, with what libraries take, is refused. */
static void a_byte_less_is_refused(void **state) {
  (void)state;
  struct cuda_job job;
  struct mr_run *run = NULL;
  set("MEMRUN_FAKE_LAZY", MR_MIB);
  cuda_job_init(&job, shape, STEPS, tiers);
  char smallest[32];
  snprintf(smallest, sizeof smallest, "(%llu bytes)", (unsigned long long)job.options.device_bytes);
  job.options.device_bytes--;
  mr_log_configure(keep_warning, NULL, MR_LOG_ERROR);
  assert_int_equal(mr_run_create(job.world.graph, &job.options, &run), MR_DOES_NOT_FIT);
  mr_log_configure(NULL, NULL, MR_LOG_WARN);
  assert_non_null(strstr(warnings.last, smallest));
  assert_int_equal(unsetenv("MEMRUN_FAKE_LAZY"), 0);
  cuda_job_fini(&job);
}

/* Somebody takes memory in the third step: one line, with the sum and the budget, and the peak. */
static void what_comes_later_is_told(void **state) {
  (void)state;
  struct cuda_job job;
  struct mr_step_report report;
  cuda_job_init(&job, shape, STEPS, tiers);
  cuda_job_set(0, NULL);
  run_steps(&job, &report);
  uint64_t before_bytes = report.peak_bytes[MR_TIER_DEVICE];
  char late[64];
  snprintf(late, sizeof late, "%llu:%llu",
           (unsigned long long)(fake_call_count("cuLaunchKernel") * 5 / 8),
           (unsigned long long)(20 * MR_MIB));
  assert_int_equal(setenv("MEMRUN_FAKE_LATE", late, 1), 0);
  cuda_job_set(0, NULL);
  mr_log_configure(keep_warning, NULL, MR_LOG_WARN);
  warnings.count = 0;
  run_steps(&job, &report);
  mr_log_configure(NULL, NULL, MR_LOG_WARN);
  assert_int_equal(warnings.count, 1);
  struct mr_size_text budget;
  assert_non_null(strstr(warnings.last, mr_size_format(job.options.device_bytes, &budget)));
  assert_non_null(strstr(warnings.last, "--device-mem"));
  assert_int_equal(report.peak_bytes[MR_TIER_DEVICE], before_bytes + 20 * MR_MIB);
  assert_int_equal(report.planned_peak_bytes[MR_TIER_DEVICE], before_bytes);
  assert_int_equal(unsetenv("MEMRUN_FAKE_LATE"), 0);
  cuda_job_fini(&job);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(libraries_are_in_the_budget),
      cmocka_unit_test(a_byte_less_is_refused),
      cmocka_unit_test(what_comes_later_is_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

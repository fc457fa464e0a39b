/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the cuda device that is not the run's: what libraries take when ops first run is in the
 * budget from the beginning; for what anybody takes later the run makes room between two steps, or
 * ends in order.
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
  snprintf(smallest, sizeof smallest, "(--device-mem %llu)",
           (unsigned long long)job.options.device_bytes);
  job.options.device_bytes--;
  mr_log_configure(keep_warning, NULL, MR_LOG_ERROR);
  assert_int_equal(mr_run_create(job.world.graph, &job.options, &run), MR_DOES_NOT_FIT);
  mr_log_configure(NULL, NULL, MR_LOG_WARN);
  assert_non_null(strstr(warnings.last, smallest));
  assert_int_equal(unsetenv("MEMRUN_FAKE_LAZY"), 0);
  cuda_job_fini(&job);
}

/* Somebody takes memory with a launch of the third step, and keeps it until the job is over. */
#define LATE_BYTES    (20 * MR_MIB)
#define LATE_STEP     3u
#define LATE_LAUNCHES 5u

/* A job whose device has so much more than the least. */
static void late_init(struct cuda_job *job, struct cuda_job_tiers ways, uint64_t more_bytes) {
  cuda_job_init(job, shape, STEPS, ways);
  job->options.device_bytes += more_bytes;
  mr_log_configure(keep_warning, NULL, MR_LOG_WARN);
  warnings.count = 0;
}

static void late_fini(struct cuda_job *job) {
  mr_log_configure(NULL, NULL, MR_LOG_WARN);
  cuda_job_fini(job);
}

/* What the device has in use: at most before somebody takes memory, and at the end of the run. */
struct in_use {
  uint64_t before_bytes;
  uint64_t held_bytes;
};

/* The steps of a run up to the first that fails; the last report, and what the device has in use.
 */
static mr_status run_late(struct cuda_job *job, uint64_t seed, struct mr_step_report *report,
                          struct in_use *in_use_out) {
  struct mr_run *run = NULL;
  struct fake_live live;
  cuda_job_set(seed, NULL);
  assert_int_equal(mr_run_create(job->world.graph, &job->options, &run), MR_OK);
  assert_int_equal(world_load(&job->world, run), MR_OK);
  mr_status status = MR_OK;
  for (uint64_t step = 1; status == MR_OK && step <= STEPS; step++) {
    struct mr_step_report now = {.size_bytes = sizeof now};
    if (step == LATE_STEP) {
      in_use_out->before_bytes = report->peak_bytes[MR_TIER_DEVICE];
      fake_take_late(LATE_LAUNCHES, LATE_BYTES);
    }
    status = world_step(&job->world, run, step, MR_STEP_TRAIN, &now);
    *report = status == MR_OK ? now : *report;
  }
  fake_live_count(&live);
  in_use_out->held_bytes = live.device_bytes;
  if (status == MR_OK) {
    world_compare(&job->world, run, &job->expected);
  }
  mr_run_destroy(run);
  return status;
}

/* After that step the run keeps to so much less, and tells it in one line; no bit changes. */
static void room_is_made(struct cuda_job_tiers ways, uint64_t seed) {
  struct cuda_job job;
  struct mr_step_report report;
  struct in_use in_use = {0};
  struct mr_size_text budget;
  late_init(&job, ways, LATE_BYTES);
  assert_int_equal(run_late(&job, seed, &report, &in_use), MR_OK);
  assert_int_equal(warnings.count, 1);
  assert_non_null(strstr(warnings.last, "after step 3 "));
  assert_non_null(strstr(warnings.last, mr_size_format(job.options.device_bytes, &budget)));
  assert_int_equal(report.replan_count, 1);
  assert_int_equal(report.replan_step, STEPS);
  assert_true(in_use.held_bytes <= job.options.device_bytes);
  assert_int_equal(report.budget_bytes[MR_TIER_DEVICE], job.options.device_bytes);
  assert_true(report.planned_peak_bytes[MR_TIER_DEVICE] <= job.options.device_bytes);
  /* The truth of the third step, in which there was no room. */
  assert_true(report.peak_bytes[MR_TIER_DEVICE] > job.options.device_bytes);
  assert_int_equal(report.peak_bytes[MR_TIER_DEVICE], in_use.before_bytes + LATE_BYTES);
  late_fini(&job);
}

static void for_what_comes_later_room_is_made(void **state) {
  (void)state;
  static const struct cuda_job_tiers ways[] = {
      {.host_bytes = 256 * MR_MIB},
      {.host_bytes = 256 * MR_MIB, .host_updates = true},
      {.host_bytes = 4 * MR_MIB, .nvme_bytes = 256 * MR_MIB},
  };
  uint64_t seeds = getenv("MEMRUN_SANITIZE") == NULL ? 5 : 1;
  for (size_t i = 0; i < MR_COUNT_OF(ways); i++) {
    for (uint64_t seed = 0; seed < seeds; seed++) {
      room_is_made(ways[i], seed);
    }
  }
}

/* Somebody leaves a run no room; it says what budget would do. */
static void expect_refusal(uint64_t more_bytes) {
  struct cuda_job job;
  struct mr_step_report report;
  struct in_use in_use = {0};
  late_init(&job, tiers, more_bytes);
  assert_int_equal(run_late(&job, 1, &report, &in_use), MR_DOES_NOT_FIT);
  assert_int_equal(report.step, 3);
  assert_int_equal(warnings.count, 1);
  const char *would_do = strstr(warnings.last, "--device-mem ");
  assert_non_null(would_do);
  assert_int_equal(strtoull(would_do + strlen("--device-mem "), NULL, 10),
                   job.options.device_bytes - more_bytes + LATE_BYTES);
  late_fini(&job);
}

/* Where no plan is so small the run ends, with the budget that would do, which does to the byte. */
static void without_room_the_run_ends(void **state) {
  (void)state;
  static const uint64_t more[] = {0, 7 * MR_MIB, LATE_BYTES - 1};
  for (size_t i = 0; i < MR_COUNT_OF(more); i++) {
    expect_refusal(more[i]);
  }
  room_is_made(tiers, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(libraries_are_in_the_budget),
      cmocka_unit_test(a_byte_less_is_refused),
      cmocka_unit_test(for_what_comes_later_room_is_made),
      cmocka_unit_test(without_room_the_run_ends),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

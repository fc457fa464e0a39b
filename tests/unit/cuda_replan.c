/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another plan takes over between two steps on the cuda device: what lasts moves to its new homes
 * page by page, so that the device never holds more than its budget, and no bit changes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/runtime.h"
#include "unit/cuda_job.h"

#define STEPS 6u

static const struct world_shape shape = {3, 270 * 1000 + 7};

/* A run whose plan is made anew after every second step. */
static void replan_always(struct cuda_job *job, uint64_t seed) {
  struct mr_run *run = NULL;
  struct fake_live live;
  cuda_job_set(seed, NULL);
  assert_int_equal(mr_run_create(job->world.graph, &job->options, &run), MR_OK);
  assert_int_equal(world_load(&job->world, run), MR_OK);
  struct mr_step_report report = {.size_bytes = sizeof report};
  for (uint64_t step = 1; step <= STEPS; step++) {
    assert_int_equal(world_step(&job->world, run, step, MR_STEP_TRAIN, &report), MR_OK);
    for (uint32_t tier = 0; tier < MR_TIER_COUNT; tier++) {
      assert_true(report.peak_bytes[tier] <= report.budget_bytes[tier]);
    }
  }
  assert_int_equal(report.replan_count, (STEPS - 1) / 2);
  world_compare(&job->world, run, &job->expected);
  mr_run_destroy(run);
  fake_live_count(&live);
  assert_memory_equal(&live, &job->idle, sizeof live);
}

/* On a device that has the budget and no byte more; the budget is the smallest, or some more. */
static void replan_under_seeds(struct cuda_job_tiers tiers, uint64_t more_bytes) {
  struct cuda_job job;
  char memory[24];
  cuda_job_init(&job, shape, STEPS, tiers);
  job.options.replan = MR_REPLAN_ALWAYS;
  job.options.device_bytes += more_bytes;
  snprintf(memory, sizeof memory, "%llu", (unsigned long long)job.options.device_bytes);
  assert_int_equal(setenv("MEMRUN_FAKE_MEMORY", memory, 1), 0);
  uint64_t seeds = getenv("MEMRUN_SANITIZE") == NULL ? 6 : 1;
  for (uint64_t seed = 0; seed < seeds; seed++) {
    replan_always(&job, seed);
  }
  assert_int_equal(unsetenv("MEMRUN_FAKE_MEMORY"), 0);
  cuda_job_fini(&job);
}

static void through_the_host(void **state) {
  (void)state;
  replan_under_seeds((struct cuda_job_tiers){.host_bytes = 256 * MR_MIB}, 0);
  replan_under_seeds((struct cuda_job_tiers){.host_bytes = 256 * MR_MIB}, 6 * MR_MIB);
}

static void through_nvme(void **state) {
  (void)state;
  replan_under_seeds((struct cuda_job_tiers){.host_bytes = 4 * MR_MIB, .nvme_bytes = 128 * MR_MIB},
                     2 * MR_MIB);
}

static void with_updates_on_the_host(void **state) {
  (void)state;
  replan_under_seeds((struct cuda_job_tiers){.host_bytes = 256 * MR_MIB, .host_updates = true}, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(through_the_host),
      cmocka_unit_test(through_nvme),
      cmocka_unit_test(with_updates_on_the_host),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

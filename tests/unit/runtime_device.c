/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/ on a CUDA device, whichever it is: a job gives the same bits under every budget, run
 * after run, stays within its budget by the driver's own count, and ends in order when a kernel
 * breaks the device. MEMRUN_TEST_IMAGE: the file of the job's kernels; without it the driver is the
 * fake one, which has them, and whose kernels break nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/unit/device_found.h"
#include "tests/unit/runtime_world.h"

#define RUNS         5u
#define STEPS        4u
#define MOST_SECONDS 60.0 /* for a job of less than one, on a busy machine too */

static const struct world_shape shape = {5, 300 * 1000 + 7};
static const struct mr_nvme_path nvme = {"/var/tmp", 256 * MR_MIB};

struct job {
  struct world world;
  struct mr_options options;
};

static const char *image_path(void) {
  return getenv("MEMRUN_TEST_IMAGE");
}

static void job_init(struct job *job, mr_offload offload, uint64_t host_bytes) {
  world_init(&job->world, shape);
  assert_int_equal(world_cuda_start(image_path()), MR_OK);
  world_options(&job->options, 0, host_bytes, offload);
  job->options.device = MR_BACKEND_CUDA;
  job->options.nvme = offload == MR_OFFLOAD_NVME ? &nvme : NULL;
  job->options.nvme_count = offload == MR_OFFLOAD_NVME;
  job->options.recompute = MR_RECOMPUTE_NONE;
}

static void job_fini(struct job *job) {
  world_cuda_stop();
  world_fini(&job->world);
}

/* A little more than the least that the tiers of the options allow: what the context has grows with
 * what is loaded later. */
static struct mr_plan_summary tighten(struct job *job) {
  struct mr_plan *plan = NULL;
  struct mr_plan_summary summary;
  job->options.device_bytes = device_used_bytes() + 2 * MR_MIB;
  assert_int_equal(mr_plan_create(job->world.graph, &job->options, &plan), MR_OK);
  mr_plan_summarize(plan, &summary);
  mr_plan_destroy(plan);
  assert_false(summary.fits);
  uint64_t least = device_used_bytes() + summary.smallest_device_bytes;
  job->options.device_bytes = least + 2 * MR_MIB;
  assert_int_equal(mr_plan_create(job->world.graph, &job->options, &plan), MR_OK);
  mr_plan_summarize(plan, &summary);
  mr_plan_destroy(plan);
  assert_true(summary.fits);
  return summary;
}

static void run_steps(struct job *job) {
  struct mr_run *run = NULL;
  struct world_state state;
  world_state_init(&state, shape);
  assert_int_equal(mr_run_create(job->world.graph, &job->options, &run), MR_OK);
  assert_int_equal(world_load(&job->world, run), MR_OK);
  for (uint64_t step = 1; step <= STEPS; step++) {
    mr_step_mode mode = step == 3 ? MR_STEP_EVALUATE : MR_STEP_TRAIN;
    struct mr_step_report report = {.size_bytes = sizeof report};
    assert_int_equal(world_step(&job->world, run, step, mode, &report), MR_OK);
    world_state_step(&state, shape, step, mode);
    assert_true(report.compute_busy_seconds > 0 && report.compute_busy_seconds <= report.seconds);
    for (int tier = 0; tier < MR_TIER_COUNT; tier++) {
      assert_true(report.peak_bytes[tier] <= report.budget_bytes[tier]);
    }
  }
  world_compare(&job->world, run, &state);
  mr_run_destroy(run);
  world_state_fini(&state, shape);
}

static void run_often(mr_offload offload, uint64_t host_bytes, mr_recompute recompute) {
  struct job job;
  job_init(&job, offload, host_bytes);
  job.options.recompute = recompute;
  uint64_t idle = device_used_bytes();
  struct mr_plan_summary summary = tighten(&job);
  assert_true(
      summary.moved_bytes[MR_LINK_DEVICE_TO_HOST] + summary.moved_bytes[MR_LINK_NVME_WRITE] > 0);
  for (uint32_t i = 0; i < RUNS; i++) {
    run_steps(&job);
  }
  /* What a library loaded meanwhile stays, and pages of the runs do not. */
  assert_true(device_used_bytes() < idle + 64 * MR_MIB);
  job_fini(&job);
}

static void everything_fits(void **state) {
  (void)state;
  struct job job;
  job_init(&job, MR_OFFLOAD_NONE, 0);
  job.options.device_bytes = device_used_bytes() + 256 * MR_MIB;
  for (uint32_t i = 0; i < RUNS; i++) {
    run_steps(&job);
  }
  job_fini(&job);
}

static void through_the_host(void **state) {
  (void)state;
  run_often(MR_OFFLOAD_HOST, 256 * MR_MIB, MR_RECOMPUTE_NONE);
}

static void through_nvme(void **state) {
  (void)state;
  run_often(MR_OFFLOAD_NVME, 0, MR_RECOMPUTE_NONE);
}

static void through_both_recomputing(void **state) {
  (void)state;
  run_often(MR_OFFLOAD_NVME, 8 * MR_MIB, MR_RECOMPUTE_FULL);
}

/* The last test of all: the device is gone for this process afterwards. */
static void a_kernel_that_breaks_the_device_ends_the_run(void **state) {
  (void)state;
  struct job job;
  struct mr_run *run = NULL;
  if (image_path() == NULL) {
    skip(); /* unit/cuda_faults breaks the fake device */
  }
  job_init(&job, MR_OFFLOAD_NVME, 8 * MR_MIB);
  (void)tighten(&job);
  assert_int_equal(mr_run_create(job.world.graph, &job.options, &run), MR_OK);
  assert_int_equal(world_load(&job.world, run), MR_OK);
  assert_int_equal(world_step(&job.world, run, 1, MR_STEP_TRAIN, NULL), MR_OK);
  device_found_expect_errors(true);
  assert_int_equal(world_cuda_break_at(7), MR_OK);
  double start = mr_clock_seconds();
  mr_status status = MR_OK;
  for (uint64_t step = 2; status == MR_OK && step <= STEPS; step++) {
    status = world_step(&job.world, run, step, MR_STEP_TRAIN, NULL);
  }
  mr_run_destroy(run);
  assert_true(mr_clock_seconds() - start < MOST_SECONDS);
  device_found_expect_errors(false);
  assert_int_equal(status, MR_IO);
  job_fini(&job);
}

static int remove_profile(void **state) {
  (void)state;
  struct mr_options options;
  world_options(&options, 0, 0, MR_OFFLOAD_NONE);
  (void)unlink(options.profile_path);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(everything_fits),
      cmocka_unit_test(through_the_host),
      cmocka_unit_test(through_nvme),
      cmocka_unit_test(through_both_recomputing),
      cmocka_unit_test(a_kernel_that_breaks_the_device_ends_the_run),
  };
  if (!device_found()) {
    return DEVICE_NOT_FOUND;
  }
  if (image_path() == NULL && getenv("MEMRUN_CUDA_DRIVER") == NULL) {
    printf("skipped: this build has no kernels for a device; nvcc was not found\n");
    return DEVICE_NOT_FOUND;
  }
  return cmocka_run_group_tests(tests, NULL, remove_profile);
}

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

#include "base/base.h"
#include "tests/unit/device_found.h"
#include "tests/unit/device_job.h"
#include "tests/unit/world_ops.h"

#define RUNS         5u
#define MOST_SECONDS 60.0 /* for a job of less than one, on a busy machine too */

static const struct world_shape shape = {5, 300 * 1000 + 7};

static const char *image_path(void) {
  return getenv("MEMRUN_TEST_IMAGE");
}

static void job_init(struct device_job *job, mr_offload offload, uint64_t host_bytes) {
  device_job_init(job, shape, image_path());
  device_job_offload(job, offload, host_bytes);
  job->slack_bytes = image_path() == NULL ? 0 : 64 * MR_MIB;
}

static void run_often(mr_offload offload, uint64_t host_bytes, mr_recompute recompute) {
  struct device_job job;
  job_init(&job, offload, host_bytes);
  job.options.recompute = recompute;
  uint64_t idle = device_used_bytes();
  device_job_tighten(&job);
  for (uint32_t i = 0; i < RUNS; i++) {
    device_job_run(&job);
  }
  assert_true(device_used_bytes() <= idle + job.slack_bytes);
  device_job_fini(&job);
}

/* What the fake driver runs has a kernel for a device too. */
static void every_kernel_has_a_source(void **state) {
  (void)state;
  static char source[1 << 16];
  FILE *file = fopen(WORLD_SOURCE, "re");
  assert_non_null(file);
  size_t bytes = fread(source, 1, sizeof source - 1, file);
  assert_int_equal(fclose(file), 0);
  source[bytes] = '\0';
  for (size_t k = 0; k < WORLD_KIND_COUNT; k++) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, "KERNEL %s(", world_kernels[k].cuda_name);
    if (strstr(source, wanted) == NULL) {
      fail_msg("%s lacks %s", WORLD_SOURCE, world_kernels[k].cuda_name);
    }
  }
}

static void everything_fits(void **state) {
  (void)state;
  struct device_job job;
  job_init(&job, MR_OFFLOAD_NONE, 0);
  job.options.device_bytes = device_used_bytes() + 256 * MR_MIB;
  for (uint32_t i = 0; i < RUNS; i++) {
    device_job_run(&job);
  }
  device_job_fini(&job);
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
  struct device_job job;
  struct mr_run *run = NULL;
  if (image_path() == NULL) {
    skip(); /* unit/cuda_faults breaks the fake device */
  }
  job_init(&job, MR_OFFLOAD_NVME, 8 * MR_MIB);
  device_job_tighten(&job);
  assert_int_equal(mr_run_create(job.world.graph, &job.options, &run), MR_OK);
  assert_int_equal(world_load(&job.world, run), MR_OK);
  assert_int_equal(world_step(&job.world, run, 1, MR_STEP_TRAIN, NULL), MR_OK);
  device_found_expect_errors(true);
  assert_int_equal(world_cuda_break_at(7), MR_OK);
  double start = mr_clock_seconds();
  mr_status status = MR_OK;
  for (uint64_t step = 2; status == MR_OK && step <= 4; step++) {
    status = world_step(&job.world, run, step, MR_STEP_TRAIN, NULL);
  }
  mr_run_destroy(run);
  assert_true(mr_clock_seconds() - start < MOST_SECONDS);
  device_found_expect_errors(false);
  assert_int_equal(status, MR_IO);
  device_job_fini(&job);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_kernel_has_a_source),
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
  return cmocka_run_group_tests(tests, NULL, device_job_forget);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A job on the CUDA device that a test was given. */
#include "tests/unit/device_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/unit/device_found.h"

#define STEPS 4u

static const struct mr_nvme_path nvme = {"/var/tmp", 256 * MR_MIB};

void device_job_init(struct device_job *job, struct world_shape shape, const char *image_path) {
  *job = (struct device_job){.slack_bytes = 0};
  world_init(&job->world, shape);
  assert_int_equal(world_cuda_start(image_path), MR_OK);
  world_options(&job->options, MR_GIB, 0, MR_OFFLOAD_NONE);
  job->options.device = MR_BACKEND_CUDA;
}

void device_job_fini(struct device_job *job) {
  world_cuda_stop();
  world_fini(&job->world);
}

void device_job_offload(struct device_job *job, mr_offload offload, uint64_t host_bytes) {
  job->options.offload = offload;
  job->options.host_bytes = host_bytes;
  job->options.recompute = MR_RECOMPUTE_NONE;
  job->options.nvme = offload == MR_OFFLOAD_NVME ? &nvme : NULL;
  job->options.nvme_count = offload == MR_OFFLOAD_NVME;
}

struct mr_plan_summary device_job_plan(const struct device_job *job) {
  struct mr_plan *plan = NULL;
  struct mr_plan_summary summary;
  assert_int_equal(mr_plan_create(job->world.graph, &job->options, &plan), MR_OK);
  mr_plan_summarize(plan, &summary);
  mr_plan_destroy(plan);
  return summary;
}

void device_job_tighten(struct device_job *job) {
  job->options.device_bytes = 4096;
  struct mr_plan_summary summary = device_job_plan(job);
  assert_false(summary.fits);
  assert_true(summary.smallest_device_bytes > device_used_bytes());
  job->options.device_bytes = summary.smallest_device_bytes + job->slack_bytes;
}

void device_job_run(struct device_job *job) {
  struct mr_run *run = NULL;
  struct world_state state;
  struct world_shape shape = job->world.shape;
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
    assert_true(device_used_bytes() <= job->options.device_bytes + job->slack_bytes);
    if (step % 2 == 0) {
      world_compare(&job->world, run, &state);
    }
  }
  mr_run_destroy(run);
  world_state_fini(&state, shape);
}

int device_job_forget(void **state) {
  (void)state;
  struct mr_options options;
  world_options(&options, 0, 0, MR_OFFLOAD_NONE);
  (void)unlink(options.profile_path);
  return 0;
}

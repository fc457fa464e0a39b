/* SPDX-License-Identifier: Apache-2.0 */
/* A job on the fake cuda device. */
#include "unit/cuda_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static struct mr_nvme_path nvme_path = {"/var/tmp", 0};

void cuda_job_set(uint64_t seed, const char *faults) {
  char text[24];
  snprintf(text, sizeof text, "%llu", (unsigned long long)seed);
  assert_int_equal(setenv("MEMRUN_FAKE_SEED", text, 1), 0);
  assert_int_equal(
      faults == NULL ? unsetenv("MEMRUN_FAKE_FAIL") : setenv("MEMRUN_FAKE_FAIL", faults, 1), 0);
  fake_settings_read();
}

static void choose_budget(struct cuda_job *job) {
  struct mr_plan *plan = NULL;
  struct mr_plan_summary summary;
  job->options.device_bytes = 4096;
  assert_int_equal(mr_plan_create(job->world.graph, &job->options, &plan), MR_OK);
  mr_plan_summarize(plan, &summary);
  mr_plan_destroy(plan);
  assert_false(summary.fits);
  assert_true(summary.outside_bytes >= job->idle.device_bytes);
  job->options.device_bytes = summary.smallest_device_bytes;
}

void cuda_job_init(struct cuda_job *job, struct world_shape shape, uint32_t steps,
                   struct cuda_job_tiers tiers) {
  *job = (struct cuda_job){.steps = steps};
  assert_int_equal(setenv("MEMRUN_CUDA_DRIVER", FAKE_DRIVER, 1), 0);
  cuda_job_set(0, NULL);
  if (tiers.host_updates) {
    world_init_host_updates(&job->world, shape);
  } else {
    world_init(&job->world, shape);
  }
  assert_int_equal(world_cuda_start(NULL), MR_OK);
  fake_live_count(&job->idle);
  bool nvme = tiers.nvme_bytes != 0;
  world_options(&job->options, 0, tiers.host_bytes, nvme ? MR_OFFLOAD_NVME : MR_OFFLOAD_HOST);
  nvme_path.limit_bytes = tiers.nvme_bytes;
  job->options.nvme = nvme ? &nvme_path : NULL;
  job->options.nvme_count = nvme;
  job->options.device = MR_BACKEND_CUDA;
  job->options.recompute = MR_RECOMPUTE_NONE;
  choose_budget(job);
  fake_live_count(&job->idle); /* with what libraries took while it was planned */
  world_state_init(&job->expected, shape);
  job->expected.rated = tiers.host_updates;
  for (uint64_t step = 1; step <= steps; step++) {
    world_state_step(&job->expected, shape, step, MR_STEP_TRAIN);
  }
}

void cuda_job_fini(struct cuda_job *job) {
  static const struct fake_live nothing;
  struct fake_live live;
  cuda_job_set(0, NULL);
  world_cuda_stop();
  fake_live_count(&live);
  assert_memory_equal(&live, &nothing, sizeof live);
  world_state_fini(&job->expected, job->world.shape);
  world_fini(&job->world);
}

static mr_status compare(struct mr_run *run, mr_tensor_id tensor, const uint32_t *expected,
                         uint64_t bytes, bool *right) {
  char *values = malloc(bytes);
  assert_non_null(values);
  mr_status status = mr_run_read(run, tensor, 0, values, bytes);
  *right = *right && status == MR_OK && memcmp(values, expected, bytes) == 0;
  free(values);
  return status;
}

static mr_status compare_all(const struct cuda_job *job, struct mr_run *run, bool *right) {
  const struct world *world = &job->world;
  uint64_t bytes = world->shape.elements * sizeof(uint32_t);
  *right = true;
  mr_status status =
      compare(run, world->loss, &job->expected.loss, sizeof job->expected.loss, right);
  for (uint32_t l = 0; status == MR_OK && l < world->shape.layers; l++) {
    status = compare(run, world->weights[l], job->expected.weights[l], bytes, right);
    if (status == MR_OK) {
      status = compare(run, world->moments[l], job->expected.moments[l], bytes, right);
    }
  }
  return status;
}

mr_status cuda_job_go_on(struct cuda_job *job, struct mr_run *run, bool *right_out) {
  mr_status status = world_load(&job->world, run);
  for (uint64_t step = 1; status == MR_OK && step <= job->steps; step++) {
    status = world_step(&job->world, run, step, MR_STEP_TRAIN, NULL);
  }
  if (status == MR_OK) {
    status = compare_all(job, run, right_out);
  }
  mr_run_destroy(run);
  struct fake_live live;
  fake_live_count(&live);
  assert_memory_equal(&live, &job->idle, sizeof live);
  return status;
}

mr_status cuda_job_run(struct cuda_job *job, bool *right_out) {
  struct mr_run *run = NULL;
  mr_status status = mr_run_create(job->world.graph, &job->options, &run);
  if (status != MR_OK) {
    struct fake_live live;
    fake_live_count(&live);
    assert_memory_equal(&live, &job->idle, sizeof live);
    return status;
  }
  return cuda_job_go_on(job, run, right_out);
}

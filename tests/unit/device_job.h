/* SPDX-License-Identifier: Apache-2.0 */
/* The job that tests of runtime/ run (runtime_world.h) on a CUDA device, whichever it is. */
#ifndef MEMRUN_TESTS_UNIT_DEVICE_JOB_H
#define MEMRUN_TESTS_UNIT_DEVICE_JOB_H

#include "tests/unit/runtime_world.h"

struct device_job {
  struct world world;
  struct mr_options options;
  /* By how much a budget is looser than the least, and by how much the device may have more in use:
   * what a real one loads at the first launch counts, and no plan knows it. */
  uint64_t slack_bytes;
};

/* Starts the kernels of an image as world_cuda_start does. One tier, whose budget is to be set. */
void device_job_init(struct device_job *job, struct world_shape shape, const char *image_path);
void device_job_fini(struct device_job *job);

/* Gives the job those tiers below the device; NVMe, where asked for, in /var/tmp. */
void device_job_offload(struct device_job *job, mr_offload offload, uint64_t host_bytes);

struct mr_plan_summary device_job_plan(const struct device_job *job);

/* Sets the smallest device budget that will do with the tiers of the options. */
void device_job_tighten(struct device_job *job);

/* Four steps, one of them an evaluation, compared with plain computation. */
void device_job_run(struct device_job *job);

/* A group's teardown: removes the profile that its jobs share. */
int device_job_forget(void **state);

#endif

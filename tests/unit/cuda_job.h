/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small job on the cuda device over the fake driver, run again and again: its graph, its tightest
 * budget, the profile of the machine and what it must compute are made once.
 */
#ifndef MEMRUN_TESTS_UNIT_CUDA_JOB_H
#define MEMRUN_TESTS_UNIT_CUDA_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/fake/fake.h"
#include "tests/unit/runtime_world.h"

struct cuda_job {
  struct world world;
  struct mr_options options;
  struct world_state expected; /* after `steps` */
  uint32_t steps;
  struct fake_live idle; /* what is there without a run */
};

/* As much of the device as the smallest plan needs; the rest goes to the host (host_bytes) and,
 * where nvme_bytes is not 0, to files in /var/tmp. */
struct cuda_job_tiers {
  uint64_t host_bytes;
  uint64_t nvme_bytes;
  bool host_updates; /* as in struct world */
};
void cuda_job_init(struct cuda_job *job, struct world_shape shape, uint32_t steps,
                   struct cuda_job_tiers tiers);
/* Nothing of the device may be left. */
void cuda_job_fini(struct cuda_job *job);

/* The settings of the runs that follow; NULL: no faults. */
void cuda_job_set(uint64_t seed, const char *faults);

/* All of the job in a run that is new, or has been created: MR_OK where every call was; then
 * `right_out` says whether the bits are those of plain computation. The run is destroyed; nothing
 * of it may be left. */
mr_status cuda_job_run(struct cuda_job *job, bool *right_out);
mr_status cuda_job_go_on(struct cuda_job *job, struct mr_run *run, bool *right_out);

#endif

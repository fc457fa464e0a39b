/* SPDX-License-Identifier: Apache-2.0 */
/* bench/plan_jobs.h: jobs and machines. */
#include "bench/plan_jobs.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

const struct bench_machine bench_machines[BENCH_MACHINES] = {
    {"vm", 6e9, 1.0e9, 0.8e9, 1.1e9, 150e9, 15e9, false, 0, 67e-6},
    {"vm-fast", 6e9, 3.0e9, 2.0e9, 3.5e9, 150e9, 15e9, false, 0, 67e-6},
    {"gpu", 25e9, 6e9, 4e9, 7e9, 100e12, 2e12, true, 150e9, 0},
    {"node", 53e9, 24e9, 14e9, 26e9, 50e12, 2.9e12, true, 0, 0},
};

static struct mr_profile *make_profile(const struct bench_machine *machine) {
  struct mr_profile *profile = mr_allocate(1, sizeof *profile);
  MR_ASSERT(profile != NULL);
  profile->copy_bytes_per_second[0] = machine->copy;
  profile->copy_bytes_per_second[1] = machine->copy;
  profile->flops_per_second = machine->flops;
  profile->bytes_per_second = machine->memory;
  profile->bind_seconds_per_move = machine->bind;
  return profile;
}

/* A machine that is not here, as its description tells; its op_overhead is the device's. */
static struct mr_machine *describe(const struct bench_machine *machine) {
  struct mr_machine *described = mr_allocate(1, sizeof *described);
  MR_ASSERT(described != NULL);
  *described = (struct mr_machine){.nvme_mixed_bytes_per_second = machine->nvme_mixed,
                                   .flops_per_second = machine->flops,
                                   .memory_bytes_per_second = machine->memory,
                                   .host_bytes_per_second = machine->host,
                                   .op_overhead_seconds = 5e-6};
  const double rates[MR_LINK_COUNT] = {[MR_LINK_DEVICE_TO_HOST] = machine->copy,
                                       [MR_LINK_HOST_TO_DEVICE] = machine->copy,
                                       [MR_LINK_NVME_READ] = machine->nvme_read,
                                       [MR_LINK_NVME_WRITE] = machine->nvme_write};
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    described->link[l] = (struct mr_link_rate){rates[l], 10e-6};
  }
  return described;
}

struct mr_plan *bench_plan_job(const struct mr_graph *graph, const struct bench_machine *machine,
                               const uint64_t *budget_bytes) {
  struct mr_plan *plan = mr_allocate(1, sizeof *plan);
  MR_ASSERT(plan != NULL);
  struct mr_store_rates nvme = {.read_bytes_per_second = machine->nvme_read,
                                .write_bytes_per_second = machine->nvme_write,
                                .mixed_bytes_per_second = machine->nvme_mixed};
  plan->graph = graph;
  plan->settings.device = mr_device_find(MR_BACKEND_CPU);
  plan->settings.threads = BENCH_PLAN_THREADS;
  plan->profile = make_profile(machine);
  plan->settings.machine = machine->apart ? describe(machine) : NULL;
  memcpy(plan->settings.budget_bytes, budget_bytes, sizeof plan->settings.budget_bytes);
  MR_ASSERT(mr_planning_make(plan, &nvme) == MR_OK);
  return plan;
}

uint64_t bench_footprint_bytes(const struct mr_graph *graph) {
  const uint64_t unlimited[MR_TIER_COUNT] = {1ull << 60, UINT64_MAX, 0};
  struct mr_plan *plan = bench_plan_job(graph, &bench_machines[0], unlimited);
  uint64_t bytes = plan->footprint_bytes;
  mr_plan_destroy(plan);
  return bytes;
}

struct trainer *bench_prepare_job(const struct bench_job *job) {
  struct trainer_options options;
  trainer_options_init(&options);
  options.preset = job->preset;
  options.layers = job->layers;
  options.width = job->width;
  options.batch = job->batch;
  options.seq = job->seq;
  options.clip = job->clip;
  options.dtype = job->dtype;
  options.vocab = job->vocab;
  options.elsewhere = true;
  options.run.threads = BENCH_PLAN_THREADS;
  struct trainer *trainer = NULL;
  MR_ASSERT(trainer_prepare(&options, &trainer) == MR_OK);
  return trainer;
}

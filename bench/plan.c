/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_plan [filter]: plans jobs of the trainer on two threads for machines that are written down
 * here, so that the table is the same everywhere but for its first columns: the seconds that
 * planning took on the clock and of the processors; then the predicted step, the proven bound and
 * what the one is above the other. A filter keeps the rows whose name contains it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "runtime/planning.h"
#include "train/train.h"

#define THREADS 2u

struct machine {
  const char *name;
  double copy, nvme_read, nvme_write, nvme_mixed; /* bytes per second */
  double flops, memory;                           /* per second */
  double host; /* bytes per second of ops on a host that is apart; 0: the device's memory is its */
};

/* A two-core virtual machine with a virtual disk; the same with a fast one; a GPU node. */
static const struct machine machines[] = {
    {"vm", 6e9, 1.0e9, 0.8e9, 1.1e9, 150e9, 15e9, 0},
    {"vm-fast", 6e9, 3.0e9, 2.0e9, 3.5e9, 150e9, 15e9, 0},
    {"gpu", 25e9, 6e9, 4e9, 7e9, 100e12, 2e12, 150e9},
};

struct job {
  const char *name;
  const char *preset;
  uint32_t layers, width, batch, seq;
  double clip;
};

static const struct job jobs[] = {
    {"gpt2", "gpt2", 0, 0, 4, 256, 1},       {"gpt2-noclip", "gpt2", 0, 0, 4, 256, 0},
    {"12x512", NULL, 12, 512, 4, 256, 1},    {"gpt2-medium", "gpt2-medium", 0, 0, 2, 512, 1},
    {"gpt2-xl", "gpt2-xl", 0, 0, 1, 256, 1},
};

/* Where bytes may go. Host is a part of the device's budget; beyond it there is NVMe or nothing. */
struct tiers {
  const char *name;
  bool nvme;
  double host_share; /* of the device budget; INFINITY: no limit */
};

static const struct tiers modes[] = {
    {"host", false, INFINITY},
    {"nvme", true, 0},
    {"host+nvme", true, 0.5},
    {"all", true, INFINITY},
};

static const double budget_shares[] = {1.0, 0.75, 0.5, 0.25, 0.125};

struct row {
  const struct machine *machine;
  const struct tiers *mode;
  double share;
  uint64_t footprint_bytes;
  char name[96];
};

static struct mr_profile *make_profile(const struct machine *machine) {
  struct mr_profile *profile = mr_allocate(1, sizeof *profile);
  MR_ASSERT(profile != NULL);
  profile->copy_bytes_per_second[0] = machine->copy;
  profile->copy_bytes_per_second[1] = machine->copy;
  profile->flops_per_second = machine->flops;
  profile->bytes_per_second = machine->memory;
  return profile;
}

/* A machine that is not here, as its description tells; its op_overhead is the device's. */
static struct mr_machine *describe(const struct machine *machine) {
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

static struct mr_plan *plan_for(const struct mr_graph *graph, const struct row *row) {
  struct mr_plan *plan = mr_allocate(1, sizeof *plan);
  MR_ASSERT(plan != NULL);
  const struct machine *machine = row->machine;
  struct mr_store_rates nvme = {.read_bytes_per_second = machine->nvme_read,
                                .write_bytes_per_second = machine->nvme_write,
                                .mixed_bytes_per_second = machine->nvme_mixed};
  double device = row->footprint_bytes == 0 ? (double)(1ull << 60)
                                            : ceil((double)row->footprint_bytes * row->share);
  plan->graph = graph;
  plan->settings.device = mr_device_find(MR_BACKEND_CPU);
  plan->settings.threads = THREADS;
  plan->profile = make_profile(machine);
  plan->settings.machine = machine->host > 0 ? describe(machine) : NULL;
  plan->settings.budget_bytes[MR_TIER_DEVICE] = (uint64_t)device;
  plan->settings.budget_bytes[MR_TIER_HOST] =
      isinf(row->mode->host_share) ? UINT64_MAX : (uint64_t)(device * row->mode->host_share);
  plan->settings.budget_bytes[MR_TIER_NVME] = row->mode->nvme ? UINT64_MAX : 0;
  MR_ASSERT(mr_planning_make(plan, &nvme) == MR_OK);
  return plan;
}

/* The longest of compute and the links, for which the plan cannot be blamed. */
static double busiest_seconds(const struct mr_program_plan *layout) {
  double most = layout->compute_seconds;
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    most = fmax(most, layout->link_seconds[l]);
  }
  return most;
}

static void print_row(const struct mr_graph *graph, const struct row *row) {
  double start_seconds = bench_seconds(false);
  double start_used = bench_seconds(true);
  struct mr_plan *plan = plan_for(graph, row);
  double seconds = bench_seconds(false) - start_seconds;
  double used = bench_seconds(true) - start_used;
  const struct mr_program_plan *layout = plan->layout;
  printf("%-36s %5u %7.3f %7.3f ", row->name, plan->problem.program->op_count, seconds, used);
  if (layout->fits) {
    MR_ASSERT(mr_plan_verify(plan) == MR_OK);
    printf("%9.4f %9.4f %7.2f%% %9.4f %4u\n", layout->step_seconds, plan->bound_seconds,
           100 * (layout->step_seconds / plan->bound_seconds - 1), busiest_seconds(layout),
           plan->recomputed_op_count);
  } else {
    printf("does not fit; %llu MiB would do\n",
           (unsigned long long)(layout->smallest_device_bytes >> 20));
  }
  fflush(stdout);
  mr_plan_destroy(plan);
}

static void print_job(const struct job *job, const char *filter) {
  struct trainer_options options;
  trainer_options_init(&options);
  options.preset = job->preset;
  options.layers = job->layers;
  options.width = job->width;
  options.batch = job->batch;
  options.seq = job->seq;
  options.clip = job->clip;
  options.vocab = job->preset == NULL ? 50257 : 0;
  options.run.threads = THREADS;
  struct trainer *trainer = NULL;
  MR_ASSERT(trainer_prepare(&options, &trainer) == MR_OK);
  const struct mr_graph *graph = trainer_get_graph(trainer);
  struct row first = {.machine = &machines[0], .mode = &modes[0]};
  struct mr_plan *whole = plan_for(graph, &first);
  uint64_t footprint_bytes = whole->footprint_bytes;
  mr_plan_destroy(whole);
  for (uint32_t m = 0; m < MR_COUNT_OF(machines); m++) {
    for (uint32_t t = 0; t < MR_COUNT_OF(modes); t++) {
      for (uint32_t b = 0; b < MR_COUNT_OF(budget_shares); b++) {
        struct row row = {&machines[m], &modes[t], budget_shares[b], footprint_bytes, {0}};
        snprintf(row.name, sizeof row.name, "%s/%s/%s/%g", job->name, machines[m].name,
                 modes[t].name, budget_shares[b]);
        if (filter == NULL || strstr(row.name, filter) != NULL) {
          print_row(graph, &row);
        }
      }
    }
  }
  MR_ASSERT(trainer_destroy(trainer, MR_OK) == MR_OK);
}

int main(int argc, char **argv) {
  const char *filter = argc > 1 ? argv[1] : NULL;
  bench_print_head(argc, argv);
  printf("%-36s %5s %7s %7s %9s %9s %8s %9s %4s\n", "job/machine/tiers/budget", "ops", "plan s",
         "used s", "predicted", "bound", "gap", "busiest", "again");
  for (uint32_t j = 0; j < MR_COUNT_OF(jobs); j++) {
    print_job(&jobs[j], filter);
  }
  return 0;
}

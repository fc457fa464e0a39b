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
#include "bench/plan_jobs.h"

static const struct bench_job jobs[] = {
    {"gpt2", "gpt2", 0, 0, 0, 4, 256, 1, MR_F32},
    {"gpt2-noclip", "gpt2", 0, 0, 0, 4, 256, 0, MR_F32},
    {"12x512", NULL, 12, 512, 50257, 4, 256, 1, MR_F32},
    {"gpt2-medium", "gpt2-medium", 0, 0, 0, 2, 512, 1, MR_F32},
    {"gpt2-xl", "gpt2-xl", 0, 0, 0, 1, 256, 1, MR_F32},
    {"gpt2-xl-8k", "gpt2-xl", 0, 0, 0, 8, 1024, 1, MR_F32},
    {"450x512", NULL, 450, 512, 50257, 4, 256, 1, MR_F32},
    {"gpt2-bf16", "gpt2", 0, 0, 0, 16, 1024, 1, MR_BF16},
    {"gpt2-xl-bf16", "gpt2-xl", 0, 0, 0, 4, 1024, 1, MR_BF16},
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
  const struct bench_machine *machine;
  const struct tiers *mode;
  double share;
  uint64_t footprint_bytes;
  char name[96];
};

/* The longest of compute and the links, for which the plan cannot be blamed. */
static double busiest_seconds(const struct mr_program_plan *layout) {
  double most = layout->compute_seconds;
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    most = fmax(most, layout->link_seconds[l]);
  }
  return most;
}

static struct mr_plan *plan_row(const struct mr_graph *graph, const struct row *row) {
  double device = ceil((double)row->footprint_bytes * row->share);
  double host = device * row->mode->host_share;
  const uint64_t budget_bytes[MR_TIER_COUNT] = {(uint64_t)device,
                                                isinf(host) ? UINT64_MAX : (uint64_t)host,
                                                row->mode->nvme ? UINT64_MAX : 0};
  return bench_plan_job(graph, row->machine, budget_bytes);
}

static void print_row(const struct mr_graph *graph, const struct row *row) {
  double start_seconds = bench_seconds(false);
  double start_used = bench_seconds(true);
  struct mr_plan *plan = plan_row(graph, row);
  double seconds = bench_seconds(false) - start_seconds;
  double used = bench_seconds(true) - start_used;
  const struct mr_program_plan *layout = plan->layout;
  const struct mr_graph *program = plan->problem.program;
  printf("%-36s %5u %7u %7.3f %7.3f ", row->name, program->op_count, program->tensor_count, seconds,
         used);
  if (layout->fits) {
    MR_ASSERT(mr_plan_verify(plan) == MR_OK);
    double gap = layout->step_seconds / plan->bound_seconds - 1;
    printf("%9.4f %9.4f %7.2f%% %9.4f %4u\n", layout->step_seconds, plan->bound_seconds,
           fabs(gap) < MR_ROUNDING ? 0 : 100 * gap, busiest_seconds(layout),
           plan->recomputed_op_count);
  } else {
    printf("does not fit; %llu MiB would do\n",
           (unsigned long long)(layout->smallest_device_bytes >> 20));
  }
  fflush(stdout);
  mr_plan_destroy(plan);
}

static void print_job(const struct bench_job *job, const char *filter) {
  struct trainer *trainer = bench_prepare_job(job);
  const struct mr_graph *graph = trainer_get_graph(trainer);
  uint64_t footprint_bytes = bench_footprint_bytes(graph);
  for (uint32_t m = 0; m < BENCH_MACHINES; m++) {
    for (uint32_t t = 0; t < MR_COUNT_OF(modes); t++) {
      for (uint32_t b = 0; b < MR_COUNT_OF(budget_shares); b++) {
        struct row row = {&bench_machines[m], &modes[t], budget_shares[b], footprint_bytes, {0}};
        snprintf(row.name, sizeof row.name, "%s/%s/%s/%g", job->name, bench_machines[m].name,
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
  printf("%-36s %5s %7s %7s %7s %9s %9s %8s %9s %4s\n", "job/machine/tiers/budget", "ops",
         "tensors", "plan s", "used s", "predicted", "bound", "gap", "busiest", "again");
  for (uint32_t j = 0; j < MR_COUNT_OF(jobs); j++) {
    print_job(&jobs[j], filter);
  }
  return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_monotone [filter]: how often, and by how much, a job's plan is slower with more to work
 * with. Jobs of the trainer are planned for machines that are written down, under some budgets, and
 * again with more memory, faster links, or one more tier or more of it; nothing is run, and
 * the table is the same everywhere. A filter keeps the lines of jobs, machines and tiers whose name
 * contains it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/plan_jobs.h"

static const struct bench_job jobs[] = {
    {"2x128", NULL, 2, 128, 256, 4, 64, 1, MR_F32},
    {"2x256", NULL, 2, 256, 50257, 4, 256, 1, MR_F32},
    {"4x256", NULL, 4, 256, 50257, 4, 256, 1, MR_F32},
    {"12x512", NULL, 12, 512, 50257, 4, 256, 1, MR_F32},
    {"gpt2", "gpt2", 0, 0, 0, 4, 256, 1, MR_F32},
};

/* Where bytes may go: a part of the footprint on the host, INFINITY: no limit; and NVMe. */
struct tiers {
  const char *name;
  double host_share;
  bool nvme;
};

static const struct tiers modes[] = {
    {"host", INFINITY, false},
    {"nvme", 0, true},
    {"host+nvme", 0.25, true},
    {"some-host", 0.75, false},
};

static const double budget_shares[] = {0.6, 0.4, 0.25};

#define MACHINE_STEP 2u /* of bench_machines: the two-core one and the GPU node */

/* What there is more of; each is compared with the plan before. */
enum kind { KIND_BUDGET, KIND_LINKS, KIND_TIERS, KIND_COUNT };

static const char *const kind_names[KIND_COUNT] = {"memory", "links", "tiers"};

struct more {
  enum kind kind;
  double device; /* times as much, and of a host with a limit */
  double host;
  double copy; /* times as fast, between device and host; and of NVMe */
  double drive;
  bool all_host; /* without limit */
  bool nvme;
};

static const struct more mores[] = {
    {KIND_BUDGET, 1.03, 1, 1, 1, false, false}, {KIND_BUDGET, 1.1, 1, 1, 1, false, false},
    {KIND_BUDGET, 1.3, 1, 1, 1, false, false},  {KIND_BUDGET, 1, 1.05, 1, 1, false, false},
    {KIND_BUDGET, 1, 1.2, 1, 1, false, false},  {KIND_LINKS, 1, 1, 1.25, 1, false, false},
    {KIND_LINKS, 1, 1, 2, 1, false, false},     {KIND_LINKS, 1, 1, 1, 1.25, false, false},
    {KIND_LINKS, 1, 1, 1, 2, false, false},     {KIND_LINKS, 1, 1, 1.25, 1.25, false, false},
    {KIND_TIERS, 1, 1, 1, 1, true, false},      {KIND_TIERS, 1, 1, 1, 1, false, true},
};

struct tally {
  uint32_t pairs;
  uint32_t slower;
  double sum; /* of what those are slower by, relative */
  double worst;
};

struct problem {
  const struct mr_graph *graph;
  struct bench_machine machine;
  uint64_t budget_bytes[MR_TIER_COUNT];
};

/* The predicted step; INFINITY: nothing fits. */
static double plan_seconds(const struct problem *problem) {
  struct mr_plan *plan = bench_plan_job(problem->graph, &problem->machine, problem->budget_bytes);
  double seconds = plan->layout->fits ? plan->layout->step_seconds : INFINITY;
  mr_plan_destroy(plan);
  return seconds;
}

/* Whether there is anything more then. */
static bool add(struct problem *problem, const struct more *more) {
  uint64_t *budget = problem->budget_bytes;
  bool copies = budget[MR_TIER_HOST] > 0 || problem->machine.apart;
  bool drives = budget[MR_TIER_NVME] > 0;
  bool faster = (more->copy > 1 && copies) || (more->drive > 1 && drives);
  bool limited = budget[MR_TIER_HOST] > 0 && budget[MR_TIER_HOST] < UINT64_MAX;
  bool larger = more->device > 1 || (more->host > 1 && limited);
  bool all_host = more->all_host && budget[MR_TIER_HOST] < UINT64_MAX;
  bool nvme = more->nvme && !drives;
  budget[MR_TIER_DEVICE] = (uint64_t)((double)budget[MR_TIER_DEVICE] * more->device);
  if (limited) {
    budget[MR_TIER_HOST] = (uint64_t)((double)budget[MR_TIER_HOST] * more->host);
  }
  budget[MR_TIER_HOST] = all_host ? UINT64_MAX : budget[MR_TIER_HOST];
  budget[MR_TIER_NVME] = nvme ? UINT64_MAX : budget[MR_TIER_NVME];
  problem->machine.copy *= more->copy;
  problem->machine.nvme_read *= more->drive;
  problem->machine.nvme_write *= more->drive;
  problem->machine.nvme_mixed *= more->drive;
  return larger || faster || all_host || nvme;
}

static void compare(const struct problem *base, struct tally *tallies) {
  double seconds = plan_seconds(base);
  if (isinf(seconds)) {
    return;
  }
  for (uint32_t i = 0; i < MR_COUNT_OF(mores); i++) {
    struct problem problem = *base;
    struct tally *tally = &tallies[mores[i].kind];
    if (!add(&problem, &mores[i])) continue;
    double slower = plan_seconds(&problem) / seconds - 1;
    tally->pairs++;
    if (slower > MR_ROUNDING) {
      tally->slower++;
      tally->sum += slower;
      tally->worst = fmax(tally->worst, slower);
    }
  }
}

static void print_line(const char *name, const struct tally *tallies, struct tally *totals) {
  printf("%-24s", name);
  for (enum kind kind = 0; kind < KIND_COUNT; kind++) {
    const struct tally *tally = &tallies[kind];
    printf("  %4u %4u %5.2f%% %5.2f%%", tally->pairs, tally->slower,
           tally->slower > 0 ? 100 * tally->sum / tally->slower : 0, 100 * tally->worst);
    if (totals != NULL) {
      totals[kind].pairs += tally->pairs;
      totals[kind].slower += tally->slower;
      totals[kind].sum += tally->sum;
      totals[kind].worst = fmax(totals[kind].worst, tally->worst);
    }
  }
  printf("\n");
  fflush(stdout);
}

static void print_job(const struct bench_job *job, const char *filter, struct tally *totals) {
  struct trainer *trainer = bench_prepare_job(job);
  const struct mr_graph *graph = trainer_get_graph(trainer);
  double footprint = (double)bench_footprint_bytes(graph);
  for (uint32_t m = 0; m < BENCH_MACHINES; m += MACHINE_STEP) {
    for (uint32_t t = 0; t < MR_COUNT_OF(modes); t++) {
      struct tally tallies[KIND_COUNT] = {0};
      char name[96];
      snprintf(name, sizeof name, "%s/%s/%s", job->name, bench_machines[m].name, modes[t].name);
      if (filter != NULL && strstr(name, filter) == NULL) continue;
      double host = footprint * modes[t].host_share;
      for (uint32_t b = 0; b < MR_COUNT_OF(budget_shares); b++) {
        struct problem base = {.graph = graph,
                               .machine = bench_machines[m],
                               .budget_bytes = {(uint64_t)(footprint * budget_shares[b]),
                                                isinf(host) ? UINT64_MAX : (uint64_t)host,
                                                modes[t].nvme ? UINT64_MAX : 0}};
        compare(&base, tallies);
      }
      print_line(name, tallies, totals);
    }
  }
  MR_ASSERT(trainer_destroy(trainer, MR_OK) == MR_OK);
}

int main(int argc, char **argv) {
  struct tally totals[KIND_COUNT] = {0};
  bench_print_head(argc, argv);
  printf("# pairs of plans, those that are slower with more; by how much on average, at worst\n");
  printf("%-24s", "job/machine/tiers");
  for (enum kind kind = 0; kind < KIND_COUNT; kind++) {
    printf("  %23s", kind_names[kind]);
  }
  printf("\n");
  for (uint32_t j = 0; j < MR_COUNT_OF(jobs); j++) {
    print_job(&jobs[j], argc > 1 ? argv[1] : NULL, totals);
  }
  print_line("all", totals, NULL);
  return 0;
}

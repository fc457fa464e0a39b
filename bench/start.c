/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_start [rounds] [preset] [device MiB] [host MiB]: what passes before the first step of an
 * offloaded job, by phase: the client's graph, the plan, and the run, which plans again, maps every
 * instance, takes the tiers and opens the store. Filling memory with pages is the kernel's work and
 * depends on the machine alone, so the linker puts a clock round the run's calls for it (CMake's
 * --wrap=madvise), and the figure is told apart from the rest.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/base.h"
#include "bench/bench.h"
#include "train/train.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static double filling_seconds; /* of the round; one thread takes the tiers */

/* The linker's names. NOLINTBEGIN(bugprone-reserved-identifier) */
int __real_madvise(void *memory, size_t bytes, int advice);
int __wrap_madvise(void *memory, size_t bytes, int advice);
/* NOLINTEND(bugprone-reserved-identifier) */

int __wrap_madvise(void *memory, size_t bytes, int advice) {
  double start = bench_seconds(false);
  int result = __real_madvise(memory, bytes, advice);
  if (advice == MADV_POPULATE_WRITE) {
    filling_seconds += bench_seconds(false) - start;
  }
  return result;
}

struct phases {
  double graph[BENCH_MAX_ROUNDS];
  double plan[BENCH_MAX_ROUNDS];
  double run[BENCH_MAX_ROUNDS];
  double fill[BENCH_MAX_ROUNDS];
};

static mr_status measure(const struct trainer_options *options, struct phases *phases,
                         uint32_t round) {
  struct trainer *trainer = NULL;
  struct mr_plan *plan = NULL;
  struct mr_run *run = NULL;
  double start = bench_seconds(false);
  mr_status status = trainer_prepare(options, &trainer);
  phases->graph[round] = bench_seconds(false) - start;
  if (status == MR_OK) {
    start = bench_seconds(false);
    status = mr_plan_create(trainer_get_graph(trainer), &options->run, &plan);
    phases->plan[round] = bench_seconds(false) - start;
  }
  if (status == MR_OK) {
    filling_seconds = 0;
    start = bench_seconds(false);
    status = mr_run_create(trainer_get_graph(trainer), &options->run, &run);
    phases->fill[round] = filling_seconds;
    phases->run[round] = bench_seconds(false) - start - filling_seconds;
  }
  mr_run_destroy(run);
  mr_plan_destroy(plan);
  return trainer_destroy(trainer, status);
}

int main(int argc, char **argv) {
  uint32_t rounds = bench_argument(argc, argv, 1, 7, BENCH_MAX_ROUNDS);
  struct trainer_options options;
  trainer_options_init(&options);
  options.preset = argc > 2 ? argv[2] : "gpt2-xl";
  options.batch = 1;
  options.seq = 256;
  options.run.offload = MR_OFFLOAD_NVME;
  options.run.device_bytes = MR_MIB * bench_argument(argc, argv, 3, 4096, 1u << 20);
  options.run.host_bytes = MR_MIB * bench_argument(argc, argv, 4, 1024, 1u << 20);
  struct phases *phases = mr_allocate(1, sizeof *phases);
  if (phases == NULL) return 3;
  /* The first round measures the machine where that was not done yet; it does not count. */
  mr_status status = measure(&options, phases, 0);
  for (uint32_t i = 0; status == MR_OK && i < rounds; i++) {
    status = measure(&options, phases, i);
  }
  if (status == MR_OK) {
    bench_print_head(argc, argv);
    printf("%s, device %.0f MiB, host %.0f MiB; medians of %u rounds, seconds\n", options.preset,
           (double)options.run.device_bytes / (double)MR_MIB,
           (double)options.run.host_bytes / (double)MR_MIB, rounds);
    printf("graph                                %.3f\n", bench_median(phases->graph, rounds));
    printf("plan                                 %.3f\n", bench_median(phases->plan, rounds));
    printf("run: plan, map, take tiers, store    %.3f\n", bench_median(phases->run, rounds));
    printf("    beside it: filling the tiers     %.3f\n", bench_median(phases->fill, rounds));
  }
  free(phases);
  return mr_status_exit(status);
}

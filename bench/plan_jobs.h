/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of the trainer, and machines that are written down, for benchmarks of the planner: what they
 * print is the same everywhere but for the seconds that planning takes. */
#ifndef MEMRUN_BENCH_PLAN_JOBS_H
#define MEMRUN_BENCH_PLAN_JOBS_H

#include "runtime/planning.h"
#include "train/train.h"

#define BENCH_PLAN_THREADS 2u

struct bench_machine {
  const char *name;
  double copy, nvme_read, nvme_write, nvme_mixed; /* bytes per second */
  double flops, memory;                           /* per second */
  bool apart;                                     /* the device's memory is not the host's */
  double host; /* bytes per second of ops on a host that is apart; 0: it runs none */
  double bind; /* seconds for a move of pages */
};

/* A two-core virtual machine with a virtual disk; the same with a fast one; a GPU node; one with
 * the rates of examples/h100-node.profile, whose host runs no ops. */
#define BENCH_MACHINES 4u
extern const struct bench_machine bench_machines[BENCH_MACHINES];

struct bench_job {
  const char *name;
  const char *preset; /* NULL: as the numbers say */
  uint32_t layers, width, vocab, batch, seq;
  double clip;
  mr_dtype dtype;
};

/* Prepares the job, whose graph the caller borrows from the trainer; trainer_destroy ends it. What
 * fails ends the program. */
struct trainer *bench_prepare_job(const struct bench_job *job);

/* Plans the graph for the machine and budgets (of each tier; 0: it may not be used; UINT64_MAX: no
 * limit); mr_plan_destroy ends it. What fails ends the program. */
struct mr_plan *bench_plan_job(const struct mr_graph *graph, const struct bench_machine *machine,
                               const uint64_t *budget_bytes);

/* What the graph takes on the device where no budget binds. */
uint64_t bench_footprint_bytes(const struct mr_graph *graph);

#endif

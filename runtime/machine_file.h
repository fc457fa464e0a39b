/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A described machine: one that is not here, from a text file that a person writes (documented in
 * memrun-profile(5)). Planning for it measures nothing and takes its tiers, links and speeds from
 * the file: the time of an op is a roofline, the longer of its arithmetic and its memory traffic,
 * or the rate that the file gives for its kind.
 */
#ifndef MEMRUN_RUNTIME_MACHINE_FILE_H
#define MEMRUN_RUNTIME_MACHINE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <memrun/run.h>

#include "graph/graph.h"
#include "plan/plan.h"

#define MR_MACHINE_NAME_BYTES 64u
#define MR_MACHINE_KIND_BYTES 64u
#define MR_MACHINE_MAX_RATES  64u

/* What ops of one kind reach. */
struct mr_machine_rate {
  char kind[MR_MACHINE_KIND_BYTES];
  bool by_flops;     /* the unit is an operation, else a byte of memory */
  double per_second; /* > 0 */
};

struct mr_machine {
  char name[MR_MACHINE_NAME_BYTES];
  uint64_t tier_bytes[MR_TIER_COUNT]; /* 0: there is none */
  struct mr_link_rate link[MR_LINK_COUNT];
  double nvme_mixed_bytes_per_second; /* 0: reads and writes do not share a rate */
  double flops_per_second;
  double memory_bytes_per_second;
  double host_bytes_per_second;        /* of ops that run there; 0: not given, so that none does */
  double host_memory_bytes_per_second; /* of these and links together; 0: not given: no limit */
  double op_overhead_seconds;
  struct mr_machine_rate rates[MR_MACHINE_MAX_RATES];
  uint32_t rate_count;
};

/*
 * Reads the text of a description; `path` names it in messages. MR_INVALID: one line at error level
 * with the line's number and the cause.
 */
MR_CHECK_RESULT mr_status mr_machine_parse(const char *path, const char *text, size_t bytes,
                                           struct mr_machine *machine_out);

/*
 * Whether the file is such a description and no measured profile, which begins with a brace. A file
 * that is missing, empty, not a regular one or cannot be read is none.
 */
bool mr_machine_is_described(const char *path);

/* Loads a description; the caller frees it with free(). MR_INVALID as above; MR_IO; MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_machine_load(const char *path, struct mr_machine **machine_out);

/* One line at warn level for each rate that is used for no op of the graph, nor would be in another
 * precision: its kind is mistyped, or its unit is not what such ops count. */
void mr_machine_check_rates(const struct mr_machine *machine, const char *path,
                            const struct mr_graph *graph);

/* What the op should take there, in seconds. */
double mr_machine_op_seconds(const struct mr_machine *machine, const struct mr_op *op);

#endif

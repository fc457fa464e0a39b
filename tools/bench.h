/* SPDX-License-Identifier: Apache-2.0 */
/* The measurements of memrun bench. */
#ifndef MEMRUN_TOOLS_BENCH_H
#define MEMRUN_TOOLS_BENCH_H

#include "tools/cli.h"
#include "tools/output.h"

/* Memory, NVMe and op rates of this machine. */
mr_status bench_machine(struct cli *cli, struct output *output);

/* A job with all the memory that it wants against the same job under a quarter of that. */
mr_status bench_offload(struct cli *cli, struct output *output);

/* A job under less and less device memory; tools/pressure.h. */
mr_status bench_pressure(struct cli *cli, struct output *output);

/* Sorts the values; count > 0. */
double bench_median(double *values, uint32_t count);

#endif

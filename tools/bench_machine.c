/* SPDX-License-Identifier: Apache-2.0 */
/* Memory speed by a copy and an in-place add on the team's threads, then what memrun's own profile
 * measures: links between tiers and rates of ops. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/bench.h"
#include "tools/info.h"
#include "tools/job.h"

#define ARRAY_BYTES (64 * MR_MIB) /* beyond any cache */
#define TASK_BYTES  (1 * MR_MIB)
#define TASK_FLOATS (TASK_BYTES / sizeof(float))

struct arrays {
  float *from;
  float *to;
};

static void copy_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  struct arrays *arrays = context;
  size_t at = task * TASK_FLOATS;
  memcpy(arrays->to + at, arrays->from + at, TASK_BYTES);
}

static void add_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  struct arrays *arrays = context;
  float *to = arrays->to + task * TASK_FLOATS;
  for (size_t i = 0; i < TASK_FLOATS; i++) {
    to[i] += 1.0f;
  }
}

/* The median of bytes read and written in a second. */
static double measure(struct mr_team *team, mr_team_task task, struct arrays *arrays,
                      uint32_t rounds) {
  double rates[CLI_MAX_ROUNDS];
  for (uint32_t round = 0; round < rounds; round++) {
    double began = mr_clock_seconds();
    mr_team_run(team, ARRAY_BYTES / TASK_BYTES, task, arrays);
    rates[round] = 2.0 * ARRAY_BYTES / (mr_clock_seconds() - began);
  }
  return bench_median(rates, rounds);
}

static mr_status tell_memory(struct cli *cli, struct output *output, const char *name,
                             double rate) {
  if (cli->json) {
    return output_json(output,
                       json_pack("{s:s, s:s, s:i, s:o}", "event", "bench", "case", name, "rounds",
                                 (int)cli->rounds, "bytes_per_second", json_number(rate)));
  }
  output_text(output, "%-22s %8.2f GB/s read and written\n", name, rate / 1e9);
  return output_failed(output);
}

static mr_status measure_memory(struct cli *cli, struct output *output, struct mr_team *team) {
  struct arrays arrays = {aligned_alloc(4096, ARRAY_BYTES), aligned_alloc(4096, ARRAY_BYTES)};
  mr_status status = MR_OK;
  if (arrays.from == NULL || arrays.to == NULL) {
    mr_log(MR_LOG_ERROR, "no memory for two arrays of %llu MiB",
           (unsigned long long)(ARRAY_BYTES / MR_MIB));
    status = MR_NO_MEMORY;
    goto done;
  }
  memset(arrays.from, 0, ARRAY_BYTES);
  memset(arrays.to, 0, ARRAY_BYTES);
  status = tell_memory(cli, output, "memory copy", measure(team, copy_task, &arrays, cli->rounds));
  if (status == MR_OK) {
    status = tell_memory(cli, output, "memory add in place",
                         measure(team, add_task, &arrays, cli->rounds));
  }
done:
  free(arrays.from);
  free(arrays.to);
  return status;
}

mr_status bench_machine(struct cli *cli, struct output *output) {
  cli->train.run.reprofile = true;
  uint32_t threads = cli->train.run.threads;
  struct mr_team *team = NULL;
  mr_status status = mr_team_create(threads != 0 ? threads : info_processor_count(), &team);
  if (status == MR_OK) {
    status = measure_memory(cli, output, team);
  }
  mr_team_destroy(team);
  return status == MR_OK ? info_tell_machine(cli, output, "bench") : status;
}

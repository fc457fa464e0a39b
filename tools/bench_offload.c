/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two trainers of one job live side by side: one has all the memory that it wants, the other a
 * quarter of that for device and host together (or what the command line says; beside NVMe the host
 * gets none unless it says so, because on the cpu device both are the same memory, and with the
 * host alone what is free). Groups of steps alternate, and the order within a round too, so that
 * whatever else the machine does falls on both; the first step of a group is not measured, because
 * it still feels the other's write-backs. What is told is the median over rounds of each, and of
 * the ratio within a round.
 */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "tools/bench.h"
#include "tools/job.h"
#include "tools/options.h"
#include "tools/signals.h"

#define GROUP_STEPS   2u /* measured, after one that is not */
#define BUDGET_PART   4u /* of the footprint: device and host together */
#define ENDLESS_STEPS 1000000000ull
#define BUDGET_LEAST  (1ull << 16)

enum { FREE = 0, TIGHT = 1, KIND_COUNT = 2 };

struct offload_bench {
  struct trainer *trainers[KIND_COUNT];
  double seconds[KIND_COUNT][CLI_MAX_ROUNDS]; /* of a step */
  double ratios[CLI_MAX_ROUNDS];
  double losses[KIND_COUNT]; /* of the last step: they must agree */
  struct mr_plan_summary summary[KIND_COUNT];
  uint32_t rounds;
};

static mr_status create(struct offload_bench *bench, int kind,
                        const struct trainer_options *options) {
  mr_status status = trainer_create(options, &bench->trainers[kind]);
  if (status == MR_OK) {
    bench->summary[kind].size_bytes = sizeof bench->summary[kind];
    mr_plan_summarize(mr_run_plan(trainer_get_run(bench->trainers[kind])), &bench->summary[kind]);
  }
  return status;
}

static mr_status create_both(struct cli *cli, struct offload_bench *bench) {
  struct trainer_options tight = cli->train;
  struct trainer_options free_of_budgets = cli->train;
  free_of_budgets.run.offload = MR_OFFLOAD_NONE;
  free_of_budgets.run.recompute = MR_RECOMPUTE_NONE;
  free_of_budgets.run.defer = MR_DEFER_NEVER;
  free_of_budgets.run.device_bytes = MR_BUDGET_AUTO;
  free_of_budgets.run.host_bytes = MR_BUDGET_AUTO;
  free_of_budgets.run.trace_path = NULL;
  mr_status status = create(bench, FREE, &free_of_budgets);
  if (status != MR_OK) {
    return status;
  }
  uint64_t budget = bench->summary[FREE].footprint_bytes / BUDGET_PART;
  uint64_t host_bytes = options_given(cli, "host-mem") ? tight.run.host_bytes : 0;
  if (tight.run.offload != MR_OFFLOAD_HOST) {
    tight.run.host_bytes = host_bytes;
  }
  if (!options_given(cli, "device-mem")) {
    tight.run.device_bytes = budget > host_bytes ? budget - host_bytes : BUDGET_LEAST;
  }
  return create(bench, TIGHT, &tight);
}

static mr_status run_group(struct offload_bench *bench, int kind, uint32_t round) {
  double began = 0;
  for (uint32_t i = 0; i <= GROUP_STEPS; i++) {
    struct trainer_step step = {.report.size_bytes = sizeof step.report};
    if (i == 1) {
      began = mr_clock_seconds();
    }
    mr_status status = trainer_step(bench->trainers[kind], &step);
    if (status != MR_OK) {
      return status;
    }
    bench->losses[kind] = step.loss;
  }
  bench->seconds[kind][round] = (mr_clock_seconds() - began) / GROUP_STEPS;
  return MR_OK;
}

static mr_status run_rounds(struct offload_bench *bench, uint32_t rounds) {
  for (uint32_t round = 0; round < rounds; round++) {
    for (uint32_t turn = 0; turn < KIND_COUNT; turn++) {
      if (*signals_stop_word() != 0) {
        mr_log(MR_LOG_ERROR, "interrupted in round %u of %u", round + 1, rounds);
        return MR_INTERRUPTED;
      }
      mr_status status = run_group(bench, (int)((turn + round) % KIND_COUNT), round);
      if (status != MR_OK) {
        return status;
      }
    }
    if (memcmp(&bench->losses[FREE], &bench->losses[TIGHT], sizeof bench->losses[FREE]) != 0) {
      mr_log(MR_LOG_ERROR, "round %u: the losses %.17g and %.17g differ", round + 1,
             bench->losses[FREE], bench->losses[TIGHT]);
      return MR_MISMATCH;
    }
    bench->ratios[round] = bench->seconds[FREE][round] / bench->seconds[TIGHT][round];
    bench->rounds = round + 1;
  }
  return mr_run_sync(trainer_get_run(bench->trainers[TIGHT]));
}

static mr_status tell(struct cli *cli, struct output *output, struct offload_bench *bench) {
  const struct trainer_info *info = trainer_get_info(bench->trainers[FREE]);
  double step[KIND_COUNT];
  for (int kind = 0; kind < KIND_COUNT; kind++) {
    step[kind] = bench_median(bench->seconds[kind], bench->rounds);
  }
  double ratio = bench_median(bench->ratios, bench->rounds);
  double tokens = (double)info->tokens_per_step;
  const struct mr_plan_summary *tight = &bench->summary[TIGHT];
  /* The ops alone take what the run without budgets takes. */
  double alone = step[FREE];
  for (int link = 0; link < MR_LINK_COUNT; link++) {
    alone = fmax(alone, tight->link_seconds[link]);
  }
  if (cli->json) {
    return output_json(
        output,
        json_pack("{s:s, s:s, s:i, s:o, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s}", "event",
                  "bench", "case", "offload", "rounds", (int)bench->rounds, "model",
                  job_model_json(info), "footprint_bytes", (json_int_t)tight->footprint_bytes,
                  "memory_budget_bytes", (json_int_t)job_memory_budget(tight), "budget_bytes",
                  job_tiers_json(tight->budget_bytes), "unconstrained_tokens_per_second",
                  json_number(tokens / step[FREE]), "constrained_tokens_per_second",
                  json_number(tokens / step[TIGHT]), "ratio", json_number(ratio),
                  "over_busiest_alone", json_number(step[TIGHT] / alone), "predicted_seconds",
                  json_number(tight->predicted_seconds), "moved_bytes",
                  job_links_json(tight->moved_bytes), "bound_by", tight->bound_by));
  }
  struct job_seconds seconds[KIND_COUNT];
  job_print_model(output, info);
  job_print_footprint(output, tight);
  output_text(output, "without budgets   %s a step, %.0f tokens/s\n",
              job_seconds_format(step[FREE], &seconds[FREE]), tokens / step[FREE]);
  output_text(output, "with budgets      %s a step, %.0f tokens/s\n",
              job_seconds_format(step[TIGHT], &seconds[TIGHT]), tokens / step[TIGHT]);
  output_text(output, "speed kept        %.3f (median of %u rounds)\n", ratio, bench->rounds);
  output_text(output, "over the busiest  %.3f times what compute, read or write needs alone\n",
              step[TIGHT] / alone);
  return output_failed(output);
}

mr_status bench_offload(struct cli *cli, struct output *output) {
  static struct offload_bench bench; /* too large for the stack */
  if (!options_given(cli, "offload")) {
    cli->train.run.offload = MR_OFFLOAD_NVME;
  }
  if (!options_given(cli, "steps")) {
    cli->train.steps = ENDLESS_STEPS;
  }
  job_prepare(cli);
  signals_end_in_order();
  mr_status status = job_spares(cli, "--trace", cli->train.run.trace_path);
  if (status == MR_OK) {
    status = create_both(cli, &bench);
  }
  if (status == MR_OK) {
    status = run_rounds(&bench, cli->rounds);
  }
  if (status == MR_OK) {
    status = tell(cli, output, &bench);
  }
  status = trainer_destroy(bench.trainers[TIGHT], status);
  return trainer_destroy(bench.trainers[FREE], status);
}

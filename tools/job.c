/* SPDX-License-Identifier: Apache-2.0 */
/* Describes a job: its model, its footprint against its budgets, its plan. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/json.h"
#include "runtime/machine_file.h"
#include "tools/job.h"

const char *const job_tier_names[MR_TIER_COUNT] = {"device", "host", "nvme"};
const char *const job_link_names[MR_LINK_COUNT] = {"device_to_host", "host_to_device", "nvme_read",
                                                   "nvme_write"};

#define LEAST_SECONDS 5e-9 /* what is less reads as nothing: sums of seconds leave such rests */

const char *job_seconds_format(double seconds, struct job_seconds *buffer) {
  static const struct {
    double scale;
    const char *unit;
  } units[] = {{1, "s"}, {1e3, "ms"}, {1e6, "us"}};
  seconds = seconds < LEAST_SECONDS ? 0 : seconds;
  size_t unit = seconds >= 1 || seconds <= 0 ? 0 : seconds >= 1e-3 ? 1 : 2;
  double value = seconds * units[unit].scale;
  int digits = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  snprintf(buffer->text, sizeof buffer->text, "%.*f %s", digits, value, units[unit].unit);
  return buffer->text;
}

const char *job_parameters_format(uint64_t count, struct job_count *buffer) {
  if (count < 10000) {
    snprintf(buffer->text, sizeof buffer->text, "%llu", (unsigned long long)count);
    return buffer->text;
  }
  bool large = count >= 1000000000;
  snprintf(buffer->text, sizeof buffer->text, "%.4g %s", (double)count / (large ? 1e9 : 1e6),
           large ? "billion" : "million");
  return buffer->text;
}

/* Whether --profile describes a machine that is not here. */
static bool is_elsewhere(const struct cli *cli) {
  const char *path = cli->train.run.profile_path;
  return path != NULL && mr_machine_is_described(path);
}

void job_prepare_nvme(struct cli *cli) {
  struct mr_options *run = &cli->train.run;
  if (run->offload == MR_OFFLOAD_NVME && cli->nvme_count == 0 && !is_elsewhere(cli)) {
    cli->nvme[0].path = cli_scratch_dir();
    cli->nvme[0].limit_bytes = MR_BUDGET_AUTO;
    run->nvme = cli->nvme;
    run->nvme_count = 1;
  }
}

/* A line for each tier that was given and that --offload leaves out. */
static void tell_left_out(const struct cli *cli) {
  const struct mr_options *run = &cli->train.run;
  if (run->offload == MR_OFFLOAD_NONE && run->host_bytes != MR_BUDGET_AUTO) {
    mr_log(MR_LOG_WARN, "--host-mem is not used: --offload none keeps everything on the device");
  }
  if ((run->offload == MR_OFFLOAD_NONE || run->offload == MR_OFFLOAD_HOST) && cli->nvme_count > 0) {
    mr_log(MR_LOG_WARN, "--nvme is not used: --offload %s moves nothing there",
           run->offload == MR_OFFLOAD_NONE ? "none" : "host");
  }
}

void job_prepare(struct cli *cli) {
  tell_left_out(cli);
  job_prepare_nvme(cli);
  cli->train.elsewhere = is_elsewhere(cli);
  /* A described machine has memory of its own, and a kept plan has its budgets. */
  if (!cli->train.elsewhere && cli->train.run.plan_path == NULL) {
    trainer_default_budgets(&cli->train);
  }
}

mr_status job_spares(const struct cli *cli, const char *option, const char *out_path) {
  const struct trainer_options *job = &cli->train;
  bool keeps_plan = out_path == cli->out_path; /* the plan that was read may be kept anew */
  const char *const read[] = {job->data_path, job->eval_data_path, job->init_path,
                              job->run.profile_path, keeps_plan ? NULL : job->run.plan_path};
  mr_status status = MR_OK;
  for (size_t i = 0; i < MR_COUNT_OF(read) && status == MR_OK; i++) {
    status = output_spares(option, out_path, read[i]);
  }
  return status;
}

json_t *job_read_json(const char *what, char *text, mr_status *status_out) {
  json_t *object = NULL;
  json_error_t error;
  *status_out = mr_json_read(what, text, strlen(text), &object, &error);
  free(text);
  return object;
}

json_t *job_plan_details(const struct mr_plan *plan) {
  char *text = NULL;
  mr_status status = mr_plan_json(plan, &text);
  return status == MR_OK ? job_read_json("the plan", text, &status) : NULL;
}

uint64_t job_memory_budget(const struct mr_plan_summary *summary) {
  uint64_t sum = 0;
  if (!mr_add_u64(summary->budget_bytes[MR_TIER_DEVICE], summary->budget_bytes[MR_TIER_HOST],
                  &sum)) {
    return UINT64_MAX;
  }
  return sum;
}

static void print_data(struct output *output, const char *label, const char *path, uint64_t tokens,
                       bool is_bytes) {
  output_text(output, "%-10s %s: %llu tokens, %s\n", label, path, (unsigned long long)tokens,
              is_bytes ? "each a byte" : "as llm.c wrote them");
}

void job_print_model(struct output *output, const struct trainer_info *info) {
  struct job_count count;
  struct mr_size_text bytes;
  output_text(output, "model      %u layers, %u heads, %u wide, %u words: %s parameters (%s)\n",
              info->layers, info->heads, info->width, info->vocab,
              job_parameters_format(info->parameter_count, &count),
              mr_size_format(info->parameter_bytes, &bytes));
  output_text(output, "step       %u sequences of %u tokens, %llu tokens a step%s%s%s\n",
              info->batch, info->seq, (unsigned long long)info->tokens_per_step,
              info->gemm == NULL ? "" : "; GEMM by ", info->gemm == NULL ? "" : info->gemm,
              info->dtype == MR_BF16 ? ", layers in bf16" : "");
  if (info->loss_floor >= 0) {
    output_text(output, "data       Markov source; no model can get below a loss of %.4f\n",
                info->loss_floor);
  } else if (info->data_path != NULL) {
    print_data(output, "data", info->data_path, info->data_tokens, info->data_is_bytes);
  }
  if (info->eval_data_path != NULL) {
    print_data(output, "evaluated", info->eval_data_path, info->eval_data_tokens,
               info->eval_data_is_bytes);
  }
}

void job_print_footprint(struct output *output, const struct mr_plan_summary *summary) {
  struct mr_size_text footprint;
  struct mr_size_text budget;
  uint64_t memory = job_memory_budget(summary);
  mr_size_format(summary->footprint_bytes, &footprint);
  if (memory == UINT64_MAX || memory == 0) {
    output_text(output, "footprint  %s; no budget\n", footprint.text);
    return;
  }
  output_text(output, "footprint  %s = %.2fx the device + host budgets of %s\n", footprint.text,
              (double)summary->footprint_bytes / (double)memory, mr_size_format(memory, &budget));
}

void job_print_forecast(struct output *output, const struct mr_plan *plan) {
  struct mr_plan_summary summary = {.size_bytes = sizeof summary};
  struct job_seconds predicted;
  struct job_seconds bound;
  mr_plan_summarize(plan, &summary);
  output_text(output,
              "forecast   %s a step, bound by %s; no plan on this machine takes less than %s\n",
              job_seconds_format(summary.predicted_seconds, &predicted), summary.bound_by,
              job_seconds_format(summary.bound_seconds, &bound));
}

json_t *job_tiers_json(const uint64_t bytes[MR_TIER_COUNT]) {
  return json_pack("{s:I, s:I, s:I}", job_tier_names[0], (json_int_t)bytes[0], job_tier_names[1],
                   (json_int_t)bytes[1], job_tier_names[2], (json_int_t)bytes[2]);
}

json_t *job_links_json(const uint64_t bytes[MR_LINK_COUNT]) {
  return json_pack("{s:I, s:I, s:I, s:I}", job_link_names[0], (json_int_t)bytes[0],
                   job_link_names[1], (json_int_t)bytes[1], job_link_names[2], (json_int_t)bytes[2],
                   job_link_names[3], (json_int_t)bytes[3]);
}

json_t *job_link_seconds_json(const double seconds[MR_LINK_COUNT]) {
  return json_pack("{s:o, s:o, s:o, s:o}", job_link_names[0], json_number(seconds[0]),
                   job_link_names[1], json_number(seconds[1]), job_link_names[2],
                   json_number(seconds[2]), job_link_names[3], json_number(seconds[3]));
}

json_t *job_model_json(const struct trainer_info *info) {
  return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:I, s:I, s:I}", "layers",
                   (int)info->layers, "heads", (int)info->heads, "width", (int)info->width, "vocab",
                   (int)info->vocab, "positions", (int)info->positions, "batch", (int)info->batch,
                   "seq", (int)info->seq, "dtype", info->dtype == MR_BF16 ? "bf16" : "f32",
                   "parameters", (json_int_t)info->parameter_count, "parameter_bytes",
                   (json_int_t)info->parameter_bytes, "tokens_per_step",
                   (json_int_t)info->tokens_per_step);
}

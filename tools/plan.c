/* SPDX-License-Identifier: Apache-2.0 */
/* memrun plan: the verdict on a job, without running it. */
#include <limits.h>
#include <stdio.h>

#include "base/base.h"
#include "base/json.h"
#include "runtime/runtime.h"
#include "tools/job.h"
#include "tools/options.h"
#include "tools/plan_explain.h"
#include "tools/plan_problem.h"

static void print_tiers(struct output *output, const struct mr_plan_summary *summary) {
  output_text(output, "\n%-10s %12s %12s\n", "tier", "need", "budget");
  for (int tier = 0; tier < MR_TIER_COUNT; tier++) {
    struct mr_size_text need;
    struct mr_size_text budget;
    bool limited = summary->budget_bytes[tier] != UINT64_MAX;
    output_text(output, "%-10s %12s %12s\n", job_tier_names[tier],
                mr_size_format(summary->need_bytes[tier], &need),
                limited ? mr_size_format(summary->budget_bytes[tier], &budget) : "no limit");
  }
}

static void print_queues(struct output *output, const struct mr_plan_summary *summary) {
  struct job_seconds seconds;
  output_text(output, "\n%-16s %12s %12s\n", "each step", "busy", "bytes");
  output_text(output, "%-16s %12s\n", "compute",
              job_seconds_format(summary->compute_seconds, &seconds));
  for (int link = 0; link < MR_LINK_COUNT; link++) {
    struct mr_size_text bytes;
    output_text(output, "%-16s %12s %12s\n", job_link_names[link],
                job_seconds_format(summary->link_seconds[link], &seconds),
                mr_size_format(summary->moved_bytes[link], &bytes));
  }
  struct mr_size_text kept;
  struct mr_size_text host;
  struct mr_size_text nvme;
  struct mr_size_text again;
  output_text(output,
              "between uses: %s stay, %s go to the host, %s to NVMe, %s computed again by "
              "%u ops\n",
              mr_size_format(summary->kept_bytes, &kept),
              mr_size_format(summary->host_bytes, &host),
              mr_size_format(summary->nvme_bytes, &nvme),
              mr_size_format(summary->recomputed_bytes, &again), summary->recomputed_op_count);
  if (summary->deferred_op_count > 0) {
    output_text(output, "%u updates run in the next step, beside its forward pass\n",
                summary->deferred_op_count);
  }
  if (summary->host_op_count > 0) {
    struct job_seconds host_seconds;
    bool beside = summary->host_seconds > 0;
    output_text(output, "%u ops use tensors where they rest, on the host%s%s%s\n",
                summary->host_op_count, beside ? ": " : "",
                beside ? job_seconds_format(summary->host_seconds, &host_seconds) : "",
                beside ? " a step, while the device computes" : "");
  }
}

static mr_status print_largest(struct output *output, const struct mr_plan *plan) {
  json_t *details = job_plan_details(plan);
  if (details == NULL) {
    return MR_NO_MEMORY;
  }
  output_text(output, "\n%-48s %-12s %12s\n", "largest tensors", "role", "size");
  size_t index = 0;
  const json_t *tensor = NULL;
  json_array_foreach(json_object_get(details, "largest_tensors"), index, tensor) {
    struct mr_size_text size;
    uint64_t bytes = (uint64_t)json_integer_value(json_object_get(tensor, "bytes"));
    output_text(output, "%-48s %-12s %12s\n", json_string_value(json_object_get(tensor, "name")),
                json_string_value(json_object_get(tensor, "role")), mr_size_format(bytes, &size));
  }
  json_decref(details);
  return MR_OK;
}

static json_t *machine_json(const struct mr_plan_summary *summary) {
  const char *path = summary->profile_path;
  return json_pack("{s:o, s:b, s:o}", "machine", mr_json_text(summary->machine), "described",
                   summary->described, "profile", path == NULL ? json_null() : mr_json_text(path));
}

/* What the library tells of the plan, after the event and before the machine and the model; the
 * explanation, where there is one, comes last. */
static json_t *plan_json(const struct trainer_info *info, const struct mr_plan *plan,
                         const struct mr_plan_summary *summary, json_t *explanation) {
  json_t *details = job_plan_details(plan);
  json_t *object = details == NULL ? NULL : json_pack("{s:s}", "event", "plan");
  if (object != NULL &&
      (json_object_update(object, details) != 0 ||
       json_object_update_new(object, machine_json(summary)) != 0 ||
       json_object_set_new(object, "model", job_model_json(info)) != 0 ||
       (explanation != NULL && json_object_set(object, "explain", explanation) != 0))) {
    json_decref(object);
    object = NULL;
  }
  json_decref(details);
  return object;
}

/* Which machine was planned for: the name of a description is easily mistyped. */
static void print_machine(struct output *output, const struct mr_plan_summary *summary,
                          bool explained) {
  const char *path = summary->profile_path;
  char line[2 * PATH_MAX];
  if (summary->described) {
    snprintf(line, sizeof line, "machine    %s, described by %s", summary->machine, path);
  } else {
    snprintf(line, sizeof line, "machine    this one%s%s", path == NULL ? "" : ", profile ",
             path == NULL ? "" : path);
  }
  if (explained) {
    output_cut_middle(line, PLAN_EXPLAIN_COLUMNS);
  }
  output_text(output, "%s\n", line);
}

static void print_verdict(struct output *output, const struct trainer_info *info,
                          const struct mr_plan *plan, const struct mr_plan_summary *summary,
                          bool explained) {
  job_print_model(output, info);
  print_machine(output, summary, explained);
  job_print_footprint(output, summary);
  output_text(output, "verdict    %s\n", summary->fits ? "fits" : "does not fit");
  if (summary->fits) {
    job_print_forecast(output, plan);
  }
}

static mr_status show(const struct cli *cli, struct output *output, const struct trainer_info *info,
                      const struct mr_plan *plan) {
  struct mr_plan_summary summary = {.size_bytes = sizeof summary};
  mr_plan_summarize(plan, &summary);
  mr_status status = MR_OK;
  json_t *explanation = cli->explain ? plan_explanation(plan, &status) : NULL;
  if (status != MR_OK) {
    return status;
  }
  if (cli->json) {
    status = output_json(output, plan_json(info, plan, &summary, explanation));
  } else {
    print_verdict(output, info, plan, &summary, explanation != NULL);
    if (explanation != NULL) {
      plan_explain_print(output, &summary, explanation);
    } else {
      print_tiers(output, &summary);
      if (summary.fits) {
        print_queues(output, &summary);
      }
      status = print_largest(output, plan);
    }
    status = status == MR_OK ? output_failed(output) : status;
  }
  json_decref(explanation);
  if (status == MR_OK && !summary.fits) {
    mr_plan_log_refusal(plan);
    return MR_DOES_NOT_FIT;
  }
  return status;
}

mr_status command_plan(struct cli *cli, struct output *output) {
  if (cli->problem_path != NULL) {
    return plan_problem(cli, output);
  }
  if (cli->schedule_path != NULL || options_given(cli, "bound")) {
    mr_log(MR_LOG_ERROR, "--%s is for --problem FILE, which is missing",
           cli->schedule_path != NULL ? "schedule" : "bound");
    return MR_INVALID;
  }
  job_prepare(cli);
  struct trainer *trainer = NULL;
  mr_status status = job_spares(cli, "--out", cli->out_path);
  if (status == MR_OK) {
    status = trainer_prepare(&cli->train, &trainer);
  }
  if (status != MR_OK) {
    return status;
  }
  struct mr_plan *plan = NULL;
  status = mr_plan_create(trainer_get_graph(trainer), &cli->train.run, &plan);
  if (status == MR_OK) {
    status = show(cli, output, trainer_get_info(trainer), plan);
  }
  if (status == MR_OK && cli->out_path != NULL) {
    status = mr_plan_save(plan, cli->out_path);
  }
  if (status == MR_OK && cli->check && !cli->json) {
    output_text(output, "\nchecked: the verifier found no fault in the plan\n");
  }
  mr_plan_destroy(plan);
  return trainer_destroy(trainer, status);
}

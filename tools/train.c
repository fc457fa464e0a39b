/* SPDX-License-Identifier: Apache-2.0 */
/* memrun train: shows what a training does while it runs, and its figures at the end. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/json.h"
#include "tools/job.h"
#include "tools/progress.h"
#include "tools/signals.h"

struct training {
  struct cli *cli;
  struct output *output;
  struct progress *progress;
  mr_status failed; /* of showing, not of training */
  volatile int *stop;
  double *losses; /* kept for --json, whose last line has them all */
  uint32_t loss_capacity;
  uint32_t step_count;
  double seconds;
  double tokens;
  uint64_t checkpoint_step; /* 0: none */
  double first_predicted_seconds;
  struct mr_step_report last;
};

static void fail(struct training *training, mr_status status) {
  if (status != MR_OK && training->failed == MR_OK) {
    training->failed = status;
    *training->stop = 1;
  }
}

static void started(void *context, struct trainer *trainer) {
  struct training *training = context;
  struct output *output = training->output;
  const struct trainer_info *info = trainer_get_info(trainer);
  struct mr_run *run = trainer_get_run(trainer);
  if (!training->cli->json) {
    struct mr_plan_summary summary = {.size_bytes = sizeof summary};
    mr_plan_summarize(mr_run_plan(run), &summary);
    job_print_model(output, info);
    job_print_footprint(output, &summary);
    job_print_forecast(output, mr_run_plan(run));
    if (info->first_step > 1) {
      output_text(output, "resumed    after step %llu\n",
                  (unsigned long long)(info->first_step - 1));
    }
  }
  training->progress = progress_start(output, run, info->first_step, training->cli->train.steps);
}

static json_t *step_json(const struct trainer_step *step) {
  const struct mr_step_report *report = &step->report;
  return json_pack(
      "{s:s, s:I, s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
      "event", "step", "step", (json_int_t)step->step, "loss", json_number(step->loss), "grad_norm",
      json_number(step->grad_norm), "seconds", json_number(report->seconds), "predicted_seconds",
      json_number(report->predicted_seconds), "bound_by", report->bound_by, "tokens_per_second",
      json_number(step->tokens_per_second), "moved_bytes", job_links_json(report->moved_bytes),
      "lr", json_number(step->lr), "compute_busy_seconds",
      json_number(report->compute_busy_seconds), "stall_seconds",
      json_number(report->stall_seconds), "bind_seconds", json_number(report->bind_seconds),
      "host_busy_seconds", json_number(report->host_busy_seconds), "flush_seconds",
      json_number(report->flush_seconds), "link_busy_seconds",
      job_link_seconds_json(report->link_busy_seconds), "peak_bytes",
      job_tiers_json(report->peak_bytes));
}

static void step_text(struct output *output, const struct trainer_step *step) {
  const struct mr_step_report *report = &step->report;
  struct job_seconds seconds;
  struct job_seconds predicted;
  double moved[MR_LINK_COUNT];
  for (int link = 0; link < MR_LINK_COUNT; link++) {
    moved[link] = (double)report->moved_bytes[link] / (double)MR_MIB;
  }
  output_text(output,
              "step %2llu  loss %.6f  norm %.3f  %s, forecast %s, bound by %s  %.0f tokens/s  "
              "MiB out %.0f in %.0f read %.0f write %.0f\n",
              (unsigned long long)step->step, step->loss, step->grad_norm,
              job_seconds_format(report->seconds, &seconds),
              job_seconds_format(report->predicted_seconds, &predicted), report->bound_by,
              step->tokens_per_second, moved[MR_LINK_DEVICE_TO_HOST], moved[MR_LINK_HOST_TO_DEVICE],
              moved[MR_LINK_NVME_READ], moved[MR_LINK_NVME_WRITE]);
}

static void stepped(void *context, struct trainer *trainer, const struct trainer_step *step) {
  struct training *training = context;
  uint64_t tokens = trainer_get_info(trainer)->tokens_per_step;
  training->seconds += step->report.seconds + step->report.flush_seconds;
  training->tokens += (double)tokens;
  if (training->cli->json) {
    mr_status status =
        mr_array_reserve((void **)&training->losses, &training->loss_capacity,
                         (uint64_t)training->step_count + 1, sizeof training->losses[0]);
    if (status != MR_OK) {
      fail(training, status);
      return;
    }
    training->losses[training->step_count] = step->loss;
    fail(training, output_json(training->output, step_json(step)));
  } else if (training->progress == NULL) {
    step_text(training->output, step);
  }
  training->first_predicted_seconds = training->step_count == 0 ? step->report.predicted_seconds
                                                                : training->first_predicted_seconds;
  training->last = step->report;
  training->step_count++;
  progress_step(training->progress, step);
}

static void evaluated(void *context, uint64_t step, double loss) {
  struct training *training = context;
  if (training->cli->json) {
    fail(training,
         output_json(training->output, json_pack("{s:s, s:I, s:o}", "event", "eval", "step",
                                                 (json_int_t)step, "loss", json_number(loss))));
  } else {
    output_text(training->output, "step %llu  evaluation loss %.6f\n", (unsigned long long)step,
                loss);
  }
}

static void checkpointed(void *context, uint64_t step, const char *path) {
  struct training *training = context;
  training->checkpoint_step = step;
  if (training->cli->json) {
    fail(training,
         output_json(training->output, json_pack("{s:s, s:I, s:o}", "event", "checkpoint", "step",
                                                 (json_int_t)step, "path", mr_json_text(path))));
  } else {
    output_text(training->output, "step %llu  checkpoint %s\n", (unsigned long long)step, path);
  }
}

static json_t *losses_json(const struct training *training) {
  json_t *losses = json_array();
  for (uint32_t i = 0; losses != NULL && i < training->step_count; i++) {
    if (json_array_append_new(losses, json_number(training->losses[i])) != 0) {
      json_decref(losses);
      losses = NULL;
    }
  }
  return losses;
}

/* What the last plan of the run promised, and how it treats what waits between two uses. */
static json_t *plan_json(const struct mr_plan_summary *summary) {
  return json_pack(
      "{s:o, s:o, s:s, s:o, s:o, s:{s:I, s:I, s:I, s:I}}", "predicted_seconds",
      json_number(summary->predicted_seconds), "bound_seconds", json_number(summary->bound_seconds),
      "bound_by", summary->bound_by, "need_bytes", job_tiers_json(summary->need_bytes),
      "moved_bytes", job_links_json(summary->moved_bytes), "gap_bytes", "kept",
      (json_int_t)summary->kept_bytes, "host", (json_int_t)summary->host_bytes, "nvme",
      (json_int_t)summary->nvme_bytes, "recomputed", (json_int_t)summary->recomputed_bytes);
}

/* By how much the forecast is above (or, negative, below) what was measured; 0: nothing was. */
static double forecast_error(const struct mr_step_report *report) {
  return report->median_seconds > 0 ? report->judged_seconds / report->median_seconds - 1 : 0;
}

static json_t *forecast_json(const struct training *training) {
  const struct mr_step_report *last = &training->last;
  return json_pack("{s:o, s:o, s:o, s:I, s:o, s:o, s:I, s:I, s:o, s:o}", "first_predicted_seconds",
                   json_number(training->first_predicted_seconds), "predicted_seconds",
                   json_number(last->judged_seconds), "median_seconds",
                   json_number(last->median_seconds), "median_steps",
                   (json_int_t)last->median_step_count, "error", json_number(forecast_error(last)),
                   "others_share", json_number(last->others_share), "replans",
                   (json_int_t)last->replan_count, "replan_step", (json_int_t)last->replan_step,
                   "replan_before_seconds", json_number(last->replan_before_seconds),
                   "replan_after_seconds", json_number(last->replan_after_seconds));
}

static json_t *done_json(const struct training *training, const struct mr_plan_summary *summary,
                         const struct mr_step_report *last, bool interrupted) {
  double rate = training->seconds > 0 ? training->tokens / training->seconds : 0;
  return json_pack(
      "{s:s, s:I, s:o, s:o, s:I, s:o, s:{s:I, s:I, s:I, s:I}, s:o, s:o}", "event",
      interrupted ? "interrupted" : "done", "steps", (json_int_t)training->step_count, "losses",
      losses_json(training), "tokens_per_second", json_number(rate), "footprint_bytes",
      (json_int_t)summary->footprint_bytes, "budget_bytes", job_tiers_json(summary->budget_bytes),
      "peak_bytes", "device", (json_int_t)last->peak_bytes[MR_TIER_DEVICE], "host",
      (json_int_t)last->peak_bytes[MR_TIER_HOST], "nvme",
      (json_int_t)last->peak_bytes[MR_TIER_NVME], "resident", (json_int_t)last->resident_peak_bytes,
      "plan", plan_json(summary), "forecast", forecast_json(training));
}

static void forecast_text(const struct training *training) {
  const struct mr_step_report *last = &training->last;
  struct job_seconds predicted;
  struct job_seconds median;
  if (last->replan_count > 0) {
    output_text(training->output,
                "replanned  before step %llu: forecast %s then, %s for the plan before\n",
                (unsigned long long)last->replan_step,
                job_seconds_format(last->replan_after_seconds, &predicted),
                job_seconds_format(last->replan_before_seconds, &median));
  }
  if (last->median_seconds > 0) {
    double error = forecast_error(last);
    output_text(training->output,
                "forecast   %s a step, measured %s (median of %llu): %.1f %% too %s; "
                "others had %.0f %% of the processors\n",
                job_seconds_format(last->judged_seconds, &predicted),
                job_seconds_format(last->median_seconds, &median),
                (unsigned long long)last->median_step_count, 100 * fabs(error),
                error < 0 ? "low" : "high", 100 * last->others_share);
  }
}

static void done_text(const struct training *training, const struct mr_plan_summary *summary,
                      const struct mr_step_report *last) {
  struct output *output = training->output;
  struct mr_size_text bytes;
  struct mr_size_text budget;
  struct mr_size_text planned;
  struct job_seconds seconds;
  if (training->step_count > 0) {
    output_text(output, "done       %u steps in %s, %.0f tokens/s\n", training->step_count,
                job_seconds_format(training->seconds, &seconds),
                training->seconds > 0 ? training->tokens / training->seconds : 0);
    forecast_text(training);
  }
  for (int tier = 0; tier < MR_TIER_COUNT; tier++) {
    if (summary->budget_bytes[tier] > 0) {
      output_text(output, "%-10s peak %s of %s, planned %s\n", job_tier_names[tier],
                  mr_size_format(last->peak_bytes[tier], &bytes),
                  mr_size_format(summary->budget_bytes[tier], &budget),
                  mr_size_format(last->planned_peak_bytes[tier], &planned));
    }
  }
  output_text(output, "process    peak %s resident\n",
              mr_size_format(last->resident_peak_bytes, &bytes));
}

/* The last line; where the job was interrupted, also the line that says how to go on. */
static mr_status finish(struct training *training, struct trainer *trainer, bool interrupted) {
  struct mr_plan_summary summary = {.size_bytes = sizeof summary};
  struct mr_step_report last = {.size_bytes = sizeof last};
  struct mr_run *run = trainer_get_run(trainer);
  mr_plan_summarize(mr_run_plan(run), &summary);
  mr_run_observe(run, &last);
  if (interrupted) {
    unsigned long long step = trainer_get_info(trainer)->first_step - 1 + training->step_count;
    if (training->checkpoint_step != 0) {
      mr_log(MR_LOG_ERROR, "interrupted after step %llu; go on with --resume %s", step,
             training->cli->train.checkpoint_dir);
    } else {
      mr_log(MR_LOG_ERROR, "interrupted after step %llu; no checkpoint was made", step);
    }
  }
  if (training->cli->json) {
    return output_json(training->output, done_json(training, &summary, &last, interrupted));
  }
  done_text(training, &summary, &last);
  return output_failed(training->output);
}

mr_status command_train(struct cli *cli, struct output *output) {
  struct training training = {.cli = cli, .output = output, .stop = signals_stop_word()};
  const struct trainer_events events = {.context = &training,
                                        .started = started,
                                        .stepped = stepped,
                                        .evaluated = evaluated,
                                        .checkpointed = checkpointed};
  job_prepare(cli);
  signals_end_in_order();
  struct trainer *trainer = NULL;
  mr_status status = job_spares(cli, "--trace", cli->train.run.trace_path);
  if (status == MR_OK) {
    status = trainer_train(&cli->train, &events, training.stop, &trainer);
  }
  progress_stop(training.progress);
  bool ended = status == MR_OK || status == MR_INTERRUPTED;
  if (ended && training.failed != MR_OK) {
    status = training.failed;
  } else if (ended && output_failed(output) != MR_OK) {
    status = output_failed(output); /* whoever read the results is gone: nothing is left to say */
  } else if (ended && trainer != NULL) {
    mr_status shown = finish(&training, trainer, status == MR_INTERRUPTED);
    status = status == MR_OK ? shown : status;
  } else if (ended) {
    mr_log(MR_LOG_ERROR, "interrupted before the first step");
  }
  free(training.losses);
  return trainer_destroy(trainer, status);
}

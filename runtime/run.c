/* SPDX-License-Identifier: Apache-2.0 */
/* A run's beginning and end. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/runtime.h"

/* Steps that must have been measured before a run teaches the profile. */
#define LESSON_STEPS 2u

static mr_status open_trace(struct mr_run *run) {
  static const char *const tracks[MR_QUEUE_COUNT] = {
      "compute", "device to host", "host to device", "nvme read", "nvme write", "host"};
  if (run->plan->settings.trace_path == NULL) {
    return MR_OK;
  }
  return mr_trace_create(run->plan->settings.trace_path, tracks, MR_QUEUE_COUNT, &run->trace);
}

static mr_status check_callbacks(const struct mr_run *run) {
  const struct mr_graph *program = run->layout->program;
  for (uint32_t k = 0; k < program->op_count; k++) {
    bool handed_over = run->layout->instructions[MR_QUEUE_COMPUTE][k].handed_over;
    mr_backend backend = handed_over ? MR_BACKEND_CPU : run->device_ops->backend;
    if (program->ops[k].run[backend] == NULL) {
      mr_log(MR_LOG_ERROR, "op %s has no callback for device %s", program->ops[k].name,
             handed_over ? mr_device_cpu.name : run->device_ops->name);
      return MR_INVALID;
    }
  }
  return MR_OK;
}

static mr_status start(struct mr_run *run) {
  mr_status status = mr_outlook_init(run);
  if (status == MR_OK) {
    status = check_callbacks(run);
  }
  if (status == MR_OK) {
    status = open_trace(run);
  }
  if (status == MR_OK) {
    status = mr_team_create(mr_settings_team_threads(&run->plan->settings), &run->team);
  }
  if (status == MR_OK) {
    status = mr_tiers_init(run, NULL);
  }
  if (status == MR_OK) {
    status = mr_taken_look(run);
  }
  if (status == MR_OK) {
    mr_taken_tell(run);
    atomic_store(&run->forecast_seconds, run->layout->step_seconds);
  }
  return status == MR_OK ? mr_queues_start(run) : status;
}

/* The plan that fits, or the refusal. */
static mr_status plan_run(struct mr_run *run, const struct mr_options *options) {
  mr_status status = mr_plan_create(run->graph, options, &run->plan);
  if (status != MR_OK) {
    return status;
  }
  run->layout = run->plan->layout;
  run->device_ops = run->plan->settings.device;
  const struct mr_settings *settings = &run->plan->settings;
  if (settings->machine != NULL) {
    mr_log(MR_LOG_ERROR,
           "profile %s: describes '%s'; memrun plan takes it, a run is on this machine",
           settings->profile_path, settings->machine->name);
    return MR_INVALID;
  }
  if (!run->layout->fits) {
    mr_plan_log_refusal(run->plan);
    return MR_DOES_NOT_FIT;
  }
  /* Candidates that were not taken leave holes in the heap, which count as resident. */
  malloc_trim(0);
  return MR_OK;
}

mr_status mr_run_create(const struct mr_graph *graph, const struct mr_options *options,
                        struct mr_run **run_out) {
  struct mr_run *run = mr_allocate(1, sizeof *run);
  if (run == NULL) {
    return MR_NO_MEMORY;
  }
  run->graph = graph;
  run->tensor_count = graph->tensor_count;
  run->stale = true;
  mr_status status = plan_run(run, options);
  if (status != MR_OK) {
    mr_plan_destroy(run->plan);
    free(run);
    return status;
  }
  mr_queues_init(run);
  status = mr_queues_load(run);
  if (status == MR_OK) {
    status = start(run);
  }
  if (status != MR_OK) {
    mr_run_destroy(run);
    return status;
  }
  *run_out = run;
  return MR_OK;
}

static void teach_profile(struct mr_run *run) {
  const struct mr_settings *settings = &run->plan->settings;
  if (run->outlook.lesson_count < LESSON_STEPS || settings->profile_path == NULL) {
    return;
  }
  if (mr_outlook_disturbed(&run->outlook)) {
    mr_log(MR_LOG_INFO, "profile: others took %.0f %% of the processors; nothing is learned",
           100 * run->outlook.others_share);
    return;
  }
  struct mr_store_rates not_kept = run->plan->nvme;
  struct mr_store_rates *nvme = mr_profile_nvme(run->plan->profile);
  if (mr_outlook_learn(run, MR_LESSON_MACHINE, run->plan->profile,
                       nvme != NULL ? nvme : &not_kept) == MR_OK) {
    mr_profile_save(settings->profile_path, run->plan->profile);
  }
}

bool mr_run_is_left(struct mr_run *run) {
  return run->device_ops->streams != NULL && mr_run_status(run) == MR_TIMEOUT;
}

mr_status mr_run_destroy(struct mr_run *run) {
  if (run == NULL) {
    return MR_OK;
  }
  mr_status status = mr_run_check_outside(run, "mr_run_destroy");
  if (status != MR_OK) {
    return status;
  }
  if (run->outlook.op_seconds != NULL && mr_run_status(run) == MR_OK) {
    mr_run_replay(run);
    teach_profile(run);
  }
  bool ended = mr_queues_stop(run);
  if (!ended || mr_run_is_left(run)) {
    return MR_TIMEOUT; /* what still runs may use all of it */
  }
  mr_tiers_fini(run);
  mr_team_destroy(run->team);
  /* The timeline is a by-product: whoever wants its status has read the log line. */
  mr_status traced = mr_trace_destroy(run->trace);
  (void)traced;
  mr_queues_fini(run);
  mr_outlook_fini(run);
  mr_plan_destroy(run->plan);
  free(run);
  return MR_OK;
}

const struct mr_plan *mr_run_plan(const struct mr_run *run) {
  return run->plan;
}

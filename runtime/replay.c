/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The present plan played once more, with the times that its own ops and links took. A forecast is
 * wrong where its rates are or where the simulation is; this tells the two apart: what is left
 * between a typical step and its replay is the simulation's.
 */
#include <stdlib.h>

#include "runtime/planning.h"
#include "runtime/runtime.h"

/* The problem of the run's plan by what typical steps took; `op_seconds` is theirs. */
static mr_status measured_problem(const struct mr_run *run, const double *op_seconds,
                                  struct mr_plan_problem *problem_out) {
  struct mr_plan measured = {.settings = run->plan->settings};
  struct mr_store_rates nvme = run->plan->nvme;
  measured.profile = mr_allocate(1, sizeof *measured.profile);
  if (measured.profile == NULL) {
    return MR_NO_MEMORY;
  }
  *measured.profile = *run->plan->profile;
  mr_status status = mr_outlook_learn(run, MR_LESSON_RUN, measured.profile, &nvme);
  if (status == MR_OK) {
    mr_planning_fill_problem(&measured, &nvme);
    *problem_out = measured.problem;
    problem_out->program = run->layout->program;
    problem_out->op_seconds = op_seconds;
    /* What links cost ops is in their times. */
    problem_out->pace_beside_copy = 1;
    problem_out->nvme_op_seconds_per_byte = 0;
  }
  free(measured.profile);
  return status;
}

void mr_run_replay(struct mr_run *run) {
  struct mr_plan_problem problem;
  double *op_seconds = mr_allocate(run->layout->program->op_count, sizeof *op_seconds);
  double seconds = op_seconds == NULL ? 0 : mr_outlook_typical_seconds(run, op_seconds);
  double forecast_seconds = run->layout->step_seconds;
  if (seconds > 0 && measured_problem(run, op_seconds, &problem) == MR_OK &&
      mr_program_plan_simulate(&problem, run->plan->layout) == MR_OK) {
    mr_log(MR_LOG_DEBUG, "replay: a step took %.6f s, %.6f s simulated by the times of its parts",
           seconds, run->layout->step_seconds);
  }
  run->plan->layout->step_seconds = forecast_seconds;
  free(op_seconds);
}

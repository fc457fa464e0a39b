/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another plan for a run that goes on. Where the steps take longer or shorter than forecast, the
 * rates that they show take the place of the profile's; the present plan gets a new forecast, and a
 * plan made for these rates takes over at a step boundary if it promises enough. What the ops
 * compute does not depend on the plan, so not a bit of the result changes.
 */
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/planning.h"
#include "runtime/runtime.h"

/* Steps of a plan that is replaced whatever it gains. */
#define ALWAYS_STEPS 2u
/* Steps that are measured before the forecast is looked at. */
#define REVIEW_STEPS 4u
/* A forecast that is nearer than this is true. */
#define TOLERANCE 0.05
/* What another plan must promise to save, of the present one's time. */
#define LEAST_GAIN 0.03
/* Reviews of a run: planning takes time, and rates that still move after these will always. */
#define MAX_REVIEWS 3u
/* The tiers, taken by `next`, become the run's. */
static void adopt_tiers(struct mr_run *run, struct mr_run *next) {
  run->device = next->device;
  run->host = next->host;
  run->bounce = next->bounce;
  run->store = next->store;
  run->extents = next->extents;
  run->operands = next->operands;
  run->addresses = next->addresses;
  run->taken.small_bytes = next->taken.small_bytes;
  run->taken.host_page_seen = next->taken.host_page_seen;
  run->taken.extent_seen = next->taken.extent_seen;
  atomic_store(&run->taken.host_page_count, atomic_load(&next->taken.host_page_count));
  atomic_store(&run->taken.nvme_bytes, atomic_load(&next->taken.nvme_bytes));
}

/* Everything of a plan but settings and profile, which belong to the run. */
static void exchange_plans(struct mr_plan *a, struct mr_plan *b) {
  struct mr_plan was = *a;
  *a = *b;
  *b = was;
  b->settings = a->settings;
  b->profile = a->profile;
  a->settings = was.settings;
  a->profile = was.profile;
}

/* Queues rest; `next` has its tiers. */
static mr_status move_over(struct mr_run *run, struct mr_run *next, struct mr_plan *plan) {
  mr_status status = mr_tiers_migrate(run, next);
  if (status != MR_OK) {
    next->status = status;
    mr_tiers_fini(next);
    return status;
  }
  mr_tiers_fini(run);
  exchange_plans(run->plan, plan);
  run->layout = run->plan->layout;
  adopt_tiers(run, next);
  run->plan_base = run->step_index;
  status = mr_tiers_complete(run);
  if (status == MR_OK) {
    status = mr_outlook_init(run);
  }
  if (status == MR_OK) {
    status = mr_queues_load(run);
  }
  mr_taken_tell(run);
  return status == MR_OK ? mr_queues_start(run) : status;
}

mr_status mr_run_switch(struct mr_run *run, struct mr_plan *plan) {
  mr_status status = mr_run_sync(run);
  if (status != MR_OK) {
    return status;
  }
  struct mr_run *next = mr_allocate(1, sizeof *next);
  if (next == NULL) {
    return MR_NO_MEMORY;
  }
  next->graph = run->graph;
  next->plan = plan;
  next->layout = plan->layout;
  next->device_ops = run->device_ops;
  status = mr_tiers_can_migrate(run, plan->layout) ? mr_tiers_init(next, run) : MR_NO_SPACE;
  if (status != MR_OK) {
    mr_tiers_fini(next);
  } else {
    uint64_t start_ns = mr_clock_ns();
    mr_queues_rest(run);
    status = move_over(run, next, plan);
    if (status != MR_OK) {
      mr_run_fail(run, status);
    }
    mr_trace_add(run->trace, MR_QUEUE_COMPUTE, "another plan", 0, start_ns, mr_clock_ns());
  }
  free(next);
  return status;
}

/* True where the steps so far call for another look at the plan. */
static bool review_due(const struct mr_run *run) {
  const struct mr_settings *settings = &run->plan->settings;
  const struct mr_outlook *outlook = &run->outlook;
  if (settings->replan != MR_REPLAN_AUTO) {
    return settings->replan == MR_REPLAN_ALWAYS && run->step_index >= run->plan_base + ALWAYS_STEPS;
  }
  double error = mr_outlook_median_seconds(outlook) / run->layout->step_seconds - 1;
  return settings->policy == MR_POLICY_SEARCHED && settings->plan_path == NULL &&
         run->review_count < MAX_REVIEWS && outlook->step_count >= REVIEW_STEPS &&
         fabs(error) > TOLERANCE && !mr_outlook_disturbed(outlook);
}

/* The present plan's forecast by the rates of `plan`, which has been made. */
static mr_status forecast_again(struct mr_run *run, const struct mr_plan *plan) {
  const struct mr_graph *program = run->layout->program;
  struct mr_plan_problem problem = plan->problem;
  for (uint32_t k = 0; k < program->op_count; k++) {
    run->plan->op_seconds[k] = mr_profile_op_seconds(plan->profile, &program->ops[k]);
  }
  problem.program = program;
  problem.op_seconds = run->plan->op_seconds;
  problem.page_bytes = run->plan->problem.page_bytes;
  run->plan->problem = problem;
  run->plan->nvme = plan->nvme;
  return mr_program_plan_simulate(&problem, run->plan->layout);
}

/* Takes the plan where it promises enough; where it cannot be taken, the run goes on as it is. */
static mr_status take_if_better(struct mr_run *run, struct mr_plan *plan) {
  double before_seconds = run->layout->step_seconds;
  double after_seconds = plan->layout->step_seconds;
  bool forced = run->plan->settings.replan == MR_REPLAN_ALWAYS;
  if (!plan->layout->fits || (!forced && after_seconds > before_seconds * (1 - LEAST_GAIN))) {
    return MR_OK;
  }
  mr_status status = mr_run_switch(run, plan);
  if (status != MR_OK) {
    return mr_run_status(run);
  }
  run->replan_count++;
  run->replan_step = run->step_index + 1;
  run->replan_before_seconds = before_seconds;
  mr_log(MR_LOG_INFO,
         "replanned before step %llu: forecast %.4f s, by the same rates %.4f s before",
         (unsigned long long)run->replan_step, after_seconds, before_seconds);
  return MR_OK;
}

/* A plan for what the steps showed. Only the settings are borrowed from the run's. */
static mr_status plan_again(struct mr_run *run, struct mr_plan *plan) {
  const struct mr_plan *present = run->plan;
  struct mr_store_rates nvme = present->nvme;
  plan->graph = present->graph;
  plan->settings = present->settings;
  plan->profile = mr_allocate(1, sizeof *plan->profile);
  if (plan->profile == NULL) {
    return MR_NO_MEMORY;
  }
  *plan->profile = *present->profile;
  mr_status status = mr_outlook_learn(run, 1, plan->profile, &nvme);
  return status == MR_OK ? mr_planning_make(plan, &nvme) : status;
}

mr_status mr_run_review(struct mr_run *run) {
  struct mr_plan *plan = review_due(run) ? mr_allocate(1, sizeof *plan) : NULL;
  if (plan == NULL) {
    return MR_OK;
  }
  run->review_count++;
  mr_status status = plan_again(run, plan);
  if (status == MR_OK) {
    status = forecast_again(run, plan);
  }
  if (status == MR_OK) {
    status = take_if_better(run, plan);
  }
  mr_outlook_restart(&run->outlook);
  plan->settings = (struct mr_settings){0};
  mr_plan_destroy(plan);
  malloc_trim(0);
  /* The present plan is still good where there was no memory for another. */
  return status == MR_NO_MEMORY ? mr_run_status(run) : status;
}

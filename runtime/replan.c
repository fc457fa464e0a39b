/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another plan for a run that goes on. Where the steps take longer or shorter than forecast, the
 * rates that they show take the place of the profile's; the present plan gets a new forecast, and a
 * plan made for these rates takes over at a step boundary if it promises enough. Where others have
 * taken more of an accelerator than they had when the run was planned, and the budget does not hold
 * both, a plan for what is left takes over whatever it promises. What the ops compute does not
 * depend on the plan, so not a bit of the result changes.
 */
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/planning.h"
#include "runtime/runtime.h"

/* Steps of a plan that is replaced whatever it gains. */
#define ALWAYS_STEPS 2u
/* The forecast is looked at after MR_REVIEW_STEPS, and then not before the steps have taken so many
 * times as long as the last look; a plan is not made again before so many times as long as making
 * the last and going over to it. */
#define LOOK_PAUSE 50.0
/* A forecast that is nearer than this is left alone; one that is further off than the second calls
 * for another plan or, until that may be made, for another forecast at least: the first one may be
 * of a machine that was slower for a while. */
#define FORECAST_TOLERANCE 0.01
#define PLAN_TOLERANCE     0.05
/* What another plan must promise to save, of the present one's time. */
#define LEAST_GAIN 0.03
/* Plans that a run makes again: planning takes time, and rates that still move after these always
 * will. */
#define MAX_REPLANS 3u

/* The tiers, taken by `next`, become the run's. */
static void adopt_tiers(struct mr_run *run, struct mr_run *next) {
  run->device = next->device;
  run->host = next->host;
  run->host_pinned = next->host_pinned;
  run->bounce = next->bounce;
  run->handover = next->handover;
  run->store = next->store;
  run->extents = next->extents;
  run->operands = next->operands;
  run->addresses = next->addresses;
  run->ranges = next->ranges;
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
    /* A write that is stuck in a store which both share goes on from `next`'s memory. */
    if (!mr_run_is_left(next) && status != MR_TIMEOUT) {
      mr_tiers_fini(next);
    }
    return status;
  }
  mr_tiers_fini(run);
  exchange_plans(run->plan, plan);
  run->layout = run->plan->layout;
  adopt_tiers(run, next);
  run->plan_base = run->step_index;
  run->stale = true;
  status = mr_tiers_complete(run);
  if (status == MR_OK) {
    status = mr_outlook_init(run);
  }
  if (status == MR_OK) {
    status = mr_queues_load(run);
  }
  if (status == MR_OK) {
    status = mr_rings_init(run);
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
    status = mr_run_flush_trace(run); /* the program that it names things of will be gone */
    if (status == MR_OK) {
      status = move_over(run, next, plan);
    } else {
      mr_tiers_fini(next);
    }
    if (status != MR_OK) {
      mr_run_fail(run, status);
    }
    mr_trace_add(run->trace, MR_QUEUE_COMPUTE, "another plan", 0, start_ns, mr_clock_ns());
  }
  free(next);
  return status;
}

/* How far the steps so far are off the forecast; 0: not enough of them, no further than they are
 * from each other, others took the machine, or the first forecast is to stand. */
static double forecast_error(const struct mr_run *run) {
  const struct mr_outlook *outlook = &run->outlook;
  double seconds = (double)outlook->step_count * mr_outlook_median_seconds(outlook);
  bool rested = seconds >= LOOK_PAUSE * run->look_seconds;
  if (outlook->step_count < MR_REVIEW_STEPS || !rested || mr_outlook_disturbed(outlook) ||
      run->plan->settings.replan == MR_REPLAN_NEVER) {
    return 0;
  }
  return mr_outlook_error(outlook, run->layout->step_seconds);
}

static bool may_plan(const struct mr_run *run) {
  return mr_clock_seconds() - run->planned_at >= LOOK_PAUSE * run->planning_seconds;
}

/* True where the steps so far call for another plan. */
static bool replan_due(const struct mr_run *run, double error) {
  const struct mr_settings *settings = &run->plan->settings;
  if (settings->replan != MR_REPLAN_AUTO) {
    return settings->replan == MR_REPLAN_ALWAYS && run->step_index >= run->plan_base + ALWAYS_STEPS;
  }
  return settings->policy == MR_POLICY_SEARCHED && settings->plan_path == NULL &&
         run->planned_again < MAX_REPLANS && error > PLAN_TOLERANCE && may_plan(run);
}

/* The present plan's forecast by the rates that the steps show, which are left in `next` with the
 * bound; its settings are known. */
static mr_status forecast_again(struct mr_run *run, struct mr_plan *next) {
  struct mr_plan *present = run->plan;
  const struct mr_graph *program = run->layout->program;
  struct mr_store_rates nvme = present->nvme;
  next->graph = present->graph;
  next->profile = mr_allocate(1, sizeof *next->profile);
  if (next->profile == NULL) {
    return MR_NO_MEMORY;
  }
  *next->profile = *present->profile;
  mr_status status = mr_outlook_learn(run, MR_LESSON_RUN, next->profile, &nvme);
  if (status != MR_OK) {
    return status;
  }
  mr_planning_fill_problem(next, &nvme);
  for (uint32_t k = 0; k < program->op_count; k++) {
    present->op_seconds[k] = mr_profile_op_seconds(next->profile, &program->ops[k]);
  }
  struct mr_plan_problem problem = next->problem;
  problem.program = program;
  problem.op_seconds = present->op_seconds;
  problem.page_bytes = present->problem.page_bytes;
  present->problem = problem;
  present->nvme = nvme;
  status = mr_planning_find_bound(next, &next->problem, false, &present->bound_seconds);
  next->bound_seconds = present->bound_seconds;
  return status == MR_OK ? mr_program_plan_simulate(&problem, present->layout) : status;
}

/* Takes the plan. What is told of both is `correction` times their simulation. */
static mr_status take(struct mr_run *run, struct mr_plan *plan, double correction) {
  double before_seconds = correction * run->layout->step_seconds;
  double after_seconds = correction * plan->layout->step_seconds;
  mr_status status = mr_run_switch(run, plan);
  if (status != MR_OK) {
    return status;
  }
  run->replan_count++;
  run->replan_step = run->step_index + 1;
  run->replan_before_seconds = before_seconds;
  run->replan_after_seconds = after_seconds;
  mr_log(MR_LOG_INFO,
         "replanned before step %llu: forecast %.4f s, by the same rates %.4f s before",
         (unsigned long long)run->replan_step, after_seconds, before_seconds);
  return MR_OK;
}

/* Takes the plan where it promises enough; where it cannot be taken, the run goes on as it is. */
static mr_status take_if_better(struct mr_run *run, struct mr_plan *plan, double correction) {
  bool forced = run->plan->settings.replan == MR_REPLAN_ALWAYS;
  double least_seconds = run->layout->step_seconds * (1 - LEAST_GAIN);
  if (!plan->layout->fits || (!forced && plan->layout->step_seconds > least_seconds)) {
    return MR_OK;
  }
  mr_status status = take(run, plan, correction);
  return status == MR_OK ? MR_OK : mr_run_status(run);
}

/* What others have taken, and what becomes of the run. */
static void tell_outside(const struct mr_run *run, mr_log_level level, const char *outcome) {
  const struct mr_settings *settings = &run->plan->settings;
  struct mr_size_text text[3];
  uint64_t budget[MR_TIER_COUNT];
  mr_settings_tell_budgets(settings, budget);
  mr_log(
      level,
      "device %s: after step %llu its context, libraries and others have %s of the budget of %s, "
      "%s when the run was planned: %s",
      run->device_ops->name, (unsigned long long)run->step_index,
      mr_size_format(run->taken.outside_bytes, &text[0]),
      mr_size_format(budget[MR_TIER_DEVICE], &text[1]),
      mr_size_format(settings->outside_bytes, &text[2]), outcome);
}

/* What others have of the device now, but for the tables of the present plan's pinned memory. */
static uint64_t others_bytes(const struct mr_run *run) {
  uint64_t table_bytes = mr_plan_outside_bytes(run->plan) - run->plan->settings.outside_bytes;
  uint64_t taken_bytes = run->taken.outside_bytes;
  return taken_bytes > table_bytes ? taken_bytes - table_bytes : 0;
}

static mr_status refuse_smaller(const struct mr_run *run, const struct mr_plan *plan) {
  struct mr_size_text text;
  char outcome[96];
  uint64_t smallest = mr_plan_smallest_device_bytes(plan);
  snprintf(outcome, sizeof outcome, "no plan fits the rest; --device-mem %llu (%s) would do",
           (unsigned long long)smallest, mr_size_format_enough(smallest, &text));
  tell_outside(run, MR_LOG_ERROR, outcome);
  return MR_DOES_NOT_FIT;
}

/* Takes the plan whatever it promises: the budget holds the present one no longer. */
static mr_status take_smaller(struct mr_run *run, struct mr_plan *plan, double correction) {
  if (!plan->layout->fits) {
    return refuse_smaller(run, plan);
  }
  uint64_t others = others_bytes(run); /* before its own tables change */
  mr_status status = take(run, plan, correction);
  if (status == MR_OK) {
    tell_outside(run, MR_LOG_WARN, "a plan for the rest takes over");
    mr_budget_leave_outside(&run->plan->settings, others);
  } else if (mr_run_status(run) == MR_OK) {
    tell_outside(run, MR_LOG_ERROR,
                 "a plan fits the rest, but there is no room to go over to it; more host or NVMe "
                 "memory or a larger --device-mem would do");
    status = MR_DOES_NOT_FIT;
  }
  return status;
}

/*
 * What steps took, over their simulation by the rates that they showed: what no rate holds, as
 * caches, and the order in which things really come. It is of this job on this machine, and so part
 * of the forecasts that follow, also of another plan's. A bound is never raised by it: another plan
 * might do without.
 */
static void correct_forecast(struct mr_run *run, double correction) {
  run->plan->layout->step_seconds *= correction;
  run->plan->bound_seconds *= fmin(correction, 1);
  mr_log(MR_LOG_DEBUG, "forecast again: %.6f s, %.3f times the simulation by the rates of now",
         run->layout->step_seconds, correction);
}

enum aim {
  AIM_FORECAST, /* the present plan's, by the rates of now */
  AIM_BETTER,   /* and a plan that is better by them */
  AIM_SMALLER,  /* and one that leaves others what they have taken */
};

/* What the settings of `next` point to is borrowed from the run's. */
static mr_status look_again(struct mr_run *run, struct mr_plan *next, enum aim aim) {
  double start_seconds = mr_clock_seconds();
  double seconds = mr_outlook_step_seconds(&run->outlook);
  next->settings = run->plan->settings;
  if (aim == AIM_SMALLER) {
    mr_budget_leave_outside(&next->settings, others_bytes(run));
  }
  mr_status status = forecast_again(run, next);
  double correction = seconds > 0 ? seconds / run->layout->step_seconds : 1;
  run->look_seconds = mr_clock_seconds() - start_seconds;
  if (status == MR_OK && aim != AIM_FORECAST) {
    run->planned_again += aim == AIM_BETTER;
    struct mr_store_rates nvme = run->plan->nvme;
    status = mr_planning_make(next, &nvme);
  }
  if (status == MR_OK && aim == AIM_BETTER) {
    status = take_if_better(run, next, correction);
  }
  if (status == MR_OK && aim == AIM_SMALLER) {
    status = take_smaller(run, next, correction);
  }
  if (status == MR_OK) {
    correct_forecast(run, correction);
  }
  return status;
}

static mr_status look(struct mr_run *run, enum aim aim) {
  double start_seconds = mr_clock_seconds();
  struct mr_plan *next = mr_allocate(1, sizeof *next);
  if (next == NULL) {
    return MR_NO_MEMORY;
  }
  struct mr_judged_forecast judged = mr_outlook_judge(&run->outlook, run->layout->step_seconds);
  mr_status status = look_again(run, next, aim);
  mr_outlook_restart(&run->outlook, &judged);
  next->settings = (struct mr_settings){0};
  mr_plan_destroy(next);
  malloc_trim(0);
  if (aim != AIM_FORECAST) {
    run->planned_at = mr_clock_seconds();
    run->planning_seconds = run->planned_at - start_seconds;
  }
  return status;
}

mr_status mr_run_review(struct mr_run *run) {
  double error = forecast_error(run);
  bool replan = replan_due(run, error);
  if (!replan && error <= (may_plan(run) ? FORECAST_TOLERANCE : PLAN_TOLERANCE)) {
    return MR_OK;
  }
  mr_status status = look(run, replan ? AIM_BETTER : AIM_FORECAST);
  if (status != MR_NO_MEMORY) {
    return status;
  }
  status = mr_run_status(run);
  if (status == MR_OK) { /* the present plan is still good */
    mr_log_once(MR_LOG_WARN,
                "there was no memory for another plan before step %llu; the run goes on with the "
                "present one",
                (unsigned long long)run->step_index + 1);
  }
  return status;
}

mr_status mr_run_make_room(struct mr_run *run) {
  uint64_t excess_bytes = mr_taken_excess_bytes(run);
  mr_status status = excess_bytes == 0 ? MR_OK : look(run, AIM_SMALLER);
  if (status == MR_NO_MEMORY) {
    mr_log(MR_LOG_ERROR,
           "others have %llu bytes too many of the device, and there is no memory to plan without "
           "them; a smaller --device-mem leaves them room from the start",
           (unsigned long long)excess_bytes);
  }
  return status;
}

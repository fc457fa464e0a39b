/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which tensors ops on the host are given there. Three plans are compared: none; all that such ops
 * alone use (an optimizer's states); and, beside those, what the better of the two moves to the
 * host next to such an op for no gain: parameters that leave after their update, gradients that
 * leave before it. The faster is taken; of equals the one that moves less, since the machine's
 * memory is shared by copies and ops whatever the simulator says.
 *
 * A host that is apart computes beside the device, and an op there has all its tensors there. So
 * the choice is how many of the updates that can: all, a half, then more or less than the best of
 * these. They are the last of the program, whose results the next step needs last. Then the other
 * ops that can, beside the best of these: an embedding, whose table is where its update left it,
 * sends the rows that it looked up in place of the table. Since two compute at once there, that may
 * be faster also where the device holds everything.
 *
 * Rungs of the ladder (plan/plan.h) are gone down here, one at a time: what the plan of a rung
 * moves decides what is placed for it, so that this, too, depends on the rung alone.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/draft.h"

/* Predictions closer than this part are equal. */
#define SAME_SECONDS 1e-3
/* Of the updates that can run on a host that is apart. */
#define PARTS 8u

struct placement {
  struct mr_plan_problem problem; /* of the present trial */
  struct mr_liveness liveness;
  bool *chosen; /* for each tensor: in the best plan so far */
  bool *trial;
  struct mr_program_plan *best;
  double trial_seconds; /* of the last trial's plan; INFINITY: there was none */
};

static bool is_better(const struct mr_program_plan *a, const struct mr_program_plan *b) {
  if (a->fits != b->fits) {
    return a->fits;
  }
  if (!a->fits) {
    return a->smallest_device_bytes < b->smallest_device_bytes;
  }
  if (fabs(a->step_seconds - b->step_seconds) > SAME_SECONDS * b->step_seconds) {
    return a->step_seconds < b->step_seconds;
  }
  return mr_program_plan_moved_bytes(a) < mr_program_plan_moved_bytes(b);
}

/* Plans with the trial's tensors on the host and keeps the plan where it is the best so far. */
static mr_status try_placement(struct placement *p) {
  struct mr_program_plan plan = {.program = p->problem.program};
  p->problem.on_host = p->trial;
  mr_status status = mr_plan_make_placed(&p->problem, &plan);
  p->trial_seconds = plan.fits && !plan.useless ? plan.step_seconds : INFINITY;
  if (status == MR_OK && !plan.useless && is_better(&plan, p->best)) {
    plan.footprint_bytes = p->best->footprint_bytes;
    mr_plan_clear(p->best);
    *p->best = plan;
    memcpy(p->chosen, p->trial, p->liveness.tensor_count * sizeof *p->chosen);
  } else {
    mr_plan_clear(&plan);
  }
  return status;
}

static bool add_uses(struct placement *p, enum mr_host_use use) {
  bool any = false;
  for (uint32_t t = 0; t < p->liveness.tensor_count; t++) {
    p->trial[t] = mr_host_use_of(p->problem.program, &p->liveness, NULL, t) == use;
    any = any || p->trial[t];
  }
  return any;
}

/*
 * Adds to what was chosen the tensors whose moves the best plan would save by using them on the
 * host: those that last and leave for the host after such a use, others that leave before it.
 */
static bool add_movers(struct placement *p) {
  const struct mr_graph *graph = p->problem.program;
  bool any = false;
  memcpy(p->trial, p->chosen, p->liveness.tensor_count * sizeof *p->trial);
  for (uint32_t i = 0; i < p->best->gap_count; i++) {
    const struct mr_gap *gap = &p->best->gaps[i];
    if (gap->decision != MR_DECISION_HOST || p->trial[gap->tensor] ||
        mr_host_use_of(graph, &p->liveness, NULL, gap->tensor) != MR_HOST_USE_SOME) {
      continue;
    }
    bool lasts = mr_role_is_persistent(graph->tensors[gap->tensor].role);
    mr_op_id beside = lasts ? gap->after_op : gap->before_op;
    mr_op_id other = lasts ? gap->before_op : gap->after_op;
    if ((graph->ops[beside].flags & MR_OP_HOST_CAPABLE) != 0 &&
        (graph->ops[other].flags & MR_OP_HOST_CAPABLE) == 0) {
      p->trial[gap->tensor] = true;
      any = true;
    }
  }
  return any;
}

static mr_status improve(struct placement *p) {
  mr_status status = add_uses(p, MR_HOST_USE_ALL) ? try_placement(p) : MR_OK;
  if (status == MR_OK && p->best->fits && add_movers(p)) {
    status = try_placement(p);
  }
  return status;
}

static bool is_capable(const struct mr_graph *graph, mr_op_id op) {
  return (graph->ops[op].flags & MR_OP_HOST_CAPABLE) != 0;
}

/* Updates: what they make lasts. */
static bool is_update(const struct mr_graph *graph, mr_op_id op) {
  bool lasts = true;
  for (uint32_t i = 0; i < graph->ops[op].output_count; i++) {
    lasts = lasts && mr_role_is_persistent(graph->tensors[graph->ops[op].outputs[i]].role);
  }
  return lasts;
}

static void want_op(struct placement *p, mr_op_id op) {
  const struct mr_op *wanted = &p->problem.program->ops[op];
  for (uint32_t i = 0; i < wanted->input_count; i++) {
    p->trial[wanted->inputs[i]] = true;
  }
  for (uint32_t i = 0; i < wanted->output_count; i++) {
    p->trial[wanted->outputs[i]] = true;
  }
}

/* Plans with the tensors of the last parts of the updates there, unless that was tried; a tensor
 * that others of them use too is of no harm. */
static mr_status try_updates(struct placement *p, uint32_t parts, double *seconds) {
  const struct mr_graph *graph = p->problem.program;
  uint32_t updates = 0;
  if (seconds[parts] >= 0) {
    return MR_OK;
  }
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    updates += is_capable(graph, k) && is_update(graph, k);
  }
  memset(p->trial, 0, p->liveness.tensor_count * sizeof *p->trial);
  uint64_t left_out = updates - (uint64_t)updates * parts / PARTS;
  uint64_t seen = 0;
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    if (is_capable(graph, k) && is_update(graph, k) && seen++ >= left_out) {
      want_op(p, k);
    }
  }
  p->trial_seconds = INFINITY;
  mr_status status = updates > left_out ? try_placement(p) : MR_OK;
  seconds[parts] = p->trial_seconds;
  return status;
}

/* Plans with those of the other ops there too. */
static mr_status try_others(struct placement *p) {
  const struct mr_graph *graph = p->problem.program;
  bool any = false;
  memcpy(p->trial, p->chosen, p->liveness.tensor_count * sizeof *p->trial);
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    if (is_capable(graph, k) && !is_update(graph, k)) {
      want_op(p, k);
      any = true;
    }
  }
  return any ? try_placement(p) : MR_OK;
}

/* Which parts are tried depends on what others of the rung take, not on the best so far: see
 * plan/plan.h. Without search, quarters will do, and the updates. */
static mr_status improve_apart(struct placement *p) {
  double seconds[PARTS + 1];
  for (uint32_t parts = 0; parts <= PARTS; parts++) {
    seconds[parts] = -1; /* not tried */
  }
  uint32_t best = PARTS;
  bool searches = p->problem.search_rounds > 0;
  mr_status status = try_updates(p, best, seconds);
  for (uint32_t by = PARTS / 2; status == MR_OK && by > (searches ? 0 : 1); by /= 2) {
    uint32_t less = best - by;
    uint32_t more = best + by <= PARTS ? best + by : best;
    status = try_updates(p, less, seconds);
    if (status == MR_OK) {
      status = try_updates(p, more, seconds);
    }
    best = seconds[less] < seconds[best] ? less : best;
    best = seconds[more] < seconds[best] ? more : best;
  }
  return status == MR_OK && searches ? try_others(p) : status;
}

/* Where nothing moves a host that is apart can spare the device its ops and no more. */
static bool may_gain(const struct placement *p) {
  const struct mr_plan_problem *problem = &p->problem;
  double seconds = 0;
  for (mr_op_id k = 0; k < problem->program->op_count; k++) {
    seconds += is_capable(problem->program, k) ? problem->op_seconds[k] : 0;
  }
  bool moves = !p->best->fits || mr_program_plan_moved_bytes(p->best) > 0;
  return moves || (problem->host_apart && seconds > SAME_SECONDS * p->best->step_seconds);
}

/* The plan with nothing on the host, then what is better. That the first is of no use says nothing
 * of the others: what is used on the host need not be moved. */
static mr_status choose(struct placement *p) {
  mr_status status = mr_plan_make_placed(&p->problem, p->best);
  if (status != MR_OK || !may_gain(p)) {
    return status;
  }
  return p->problem.host_apart ? improve_apart(p) : improve(p);
}

/* Places and plans on the rung numbered `from`, and takes that plan where it is faster. *going_out:
 * a lower rung may be of use. */
static mr_status try_rung(struct placement *p, uint32_t from, struct mr_program_plan *plan,
                          bool *going_out) {
  struct mr_program_plan rung = {.program = plan->program};
  p->problem.search_from = from;
  p->problem.on_host = NULL;
  if (plan->fits) {
    p->problem.useful_seconds = plan->step_seconds;
  }
  memset(p->chosen, 0, p->liveness.tensor_count * sizeof *p->chosen);
  p->best = &rung;
  mr_status status = choose(p);
  p->best = NULL;
  *going_out = status == MR_OK && rung.fits && mr_program_plan_moved_bytes(&rung) > 0;
  if (status != MR_OK || (plan->fits && !(rung.fits && rung.step_seconds < plan->step_seconds))) {
    mr_plan_clear(&rung);
    return status;
  }
  mr_plan_clear(plan);
  *plan = rung;
  return MR_OK;
}

static mr_status go_down(struct placement *p, struct mr_program_plan *plan) {
  uint32_t first = p->problem.search_from;
  uint32_t rounds = p->problem.search_rounds;
  bool going = true;
  mr_status status = MR_OK;
  p->problem.search_rounds = rounds > 0 ? 1 : 0;
  for (uint32_t i = 0; status == MR_OK && going && (i == 0 || i < rounds); i++) {
    status = try_rung(p, first + i, plan, &going);
  }
  return status;
}

static bool has_host_ops(const struct mr_graph *graph) {
  for (uint32_t k = 0; k < graph->op_count; k++) {
    if (is_capable(graph, k)) {
      return true;
    }
  }
  return false;
}

mr_status mr_plan_place(const struct mr_plan_problem *problem, struct mr_program_plan *plan) {
  if (problem->on_host != NULL || !mr_host_may_run(problem) || problem->policy == MR_POLICY_LRU ||
      !has_host_ops(problem->program)) {
    return mr_plan_make_placed(problem, plan);
  }
  struct placement p = {.problem = *problem};
  mr_status status = mr_liveness_init(&p.liveness, problem->program);
  if (status != MR_OK) {
    return status;
  }
  p.chosen = mr_allocate(p.liveness.tensor_count, sizeof *p.chosen);
  p.trial = mr_allocate(p.liveness.tensor_count, sizeof *p.trial);
  status = p.chosen == NULL || p.trial == NULL ? MR_NO_MEMORY : go_down(&p, plan);
  mr_liveness_fini(&p.liveness);
  free(p.chosen);
  free(p.trial);
  return status;
}

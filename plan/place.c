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

/* Tensors on the host, and the plan with them there. */
struct trial {
  bool *on_host; /* for each tensor */
  bool wanted;   /* it is to be planned; else it was before, or has nothing to offer */
  struct mr_program_plan plan;
};

#define TRIALS 2u /* that are planned side by side */

struct placement {
  struct mr_plan_problem problem; /* of the present rung, with nothing on the host */
  struct mr_liveness liveness;
  bool *chosen; /* for each tensor: on the host in the best plan so far */
  struct trial trials[TRIALS];
  struct mr_program_plan *best;
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

static mr_status plan_trial(void *context, uint32_t index) {
  struct placement *p = context;
  struct trial *trial = &p->trials[index];
  struct mr_plan_problem problem = p->problem;
  if (!trial->wanted) {
    return MR_OK;
  }
  problem.on_host = trial->on_host;
  trial->plan = (struct mr_program_plan){.program = problem.program};
  return mr_plan_make_placed(&problem, &trial->plan);
}

/* Keeps the trial's plan where it is the best so far, else ends it. Returns its seconds; INFINITY:
 * it is of no use. */
static double take_trial(struct placement *p, struct trial *trial) {
  struct mr_program_plan *plan = &trial->plan;
  double seconds = plan->fits && !plan->useless ? plan->step_seconds : INFINITY;
  if (!plan->useless && is_better(plan, p->best)) {
    plan->footprint_bytes = p->best->footprint_bytes;
    mr_plan_clear(p->best);
    *p->best = *plan;
    memcpy(p->chosen, trial->on_host, p->liveness.tensor_count * sizeof *p->chosen);
  } else {
    mr_plan_clear(plan);
  }
  *plan = (struct mr_program_plan){0};
  return seconds;
}

/* Plans the first trial alone. */
static mr_status try_placement(struct placement *p) {
  p->trials[0].wanted = true;
  mr_status status = plan_trial(p, 0);
  if (status == MR_OK) {
    (void)take_trial(p, &p->trials[0]);
  }
  return status;
}

/* What ops on the host alone use. */
static bool add_unmoved(struct placement *p) {
  bool *on_host = p->trials[0].on_host;
  bool any = false;
  for (uint32_t t = 0; t < p->liveness.tensor_count; t++) {
    enum mr_host_use use = mr_host_use_of(p->problem.program, &p->liveness, NULL, t);
    on_host[t] = use == MR_HOST_USE_ALL;
    any = any || on_host[t];
  }
  return any;
}

/*
 * Adds to what was chosen the tensors whose moves the best plan would save by using them on the
 * host: those that last and leave for the host after such a use, others that leave before it.
 */
static bool add_movers(struct placement *p) {
  const struct mr_graph *graph = p->problem.program;
  bool *on_host = p->trials[0].on_host;
  bool any = false;
  memcpy(on_host, p->chosen, p->liveness.tensor_count * sizeof *on_host);
  for (uint32_t i = 0; i < p->best->gap_count; i++) {
    const struct mr_gap *gap = &p->best->gaps[i];
    if (gap->decision != MR_DECISION_HOST || on_host[gap->tensor] ||
        mr_host_use_of(graph, &p->liveness, NULL, gap->tensor) != MR_HOST_USE_SOME) {
      continue;
    }
    bool lasts = mr_role_is_persistent(graph->tensors[gap->tensor].role);
    mr_op_id beside = lasts ? gap->after_op : gap->before_op;
    mr_op_id other = lasts ? gap->before_op : gap->after_op;
    if ((graph->ops[beside].flags & MR_OP_HOST_CAPABLE) != 0 &&
        (graph->ops[other].flags & MR_OP_HOST_CAPABLE) == 0) {
      on_host[gap->tensor] = true;
      any = true;
    }
  }
  return any;
}

/* `planned`: what ops on the host alone use is in the first trial, planned. */
static mr_status improve(struct placement *p, bool planned) {
  mr_status status = MR_OK;
  if (planned) {
    (void)take_trial(p, &p->trials[0]);
  } else if (add_unmoved(p)) {
    status = try_placement(p);
  }
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

static void want_op(const struct placement *p, struct trial *trial, mr_op_id op) {
  const struct mr_op *wanted = &p->problem.program->ops[op];
  for (uint32_t i = 0; i < wanted->input_count; i++) {
    trial->on_host[wanted->inputs[i]] = true;
  }
  for (uint32_t i = 0; i < wanted->output_count; i++) {
    trial->on_host[wanted->outputs[i]] = true;
  }
}

/* The tensors of the last parts of the updates, unless that was tried; a tensor that others of them
 * use too is of no harm. */
static void want_updates(struct placement *p, struct trial *trial, uint32_t parts,
                         const double *seconds) {
  const struct mr_graph *graph = p->problem.program;
  uint32_t updates = 0;
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    updates += is_capable(graph, k) && is_update(graph, k);
  }
  memset(trial->on_host, 0, p->liveness.tensor_count * sizeof *trial->on_host);
  uint64_t left_out = updates - (uint64_t)updates * parts / PARTS;
  uint64_t seen = 0;
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    if (is_capable(graph, k) && is_update(graph, k) && seen++ >= left_out) {
      want_op(p, trial, k);
    }
  }
  trial->wanted = seconds[parts] < 0 && updates > left_out;
}

/* Plans with so many parts of the updates there, one number of them beside the other. */
static mr_status try_updates(struct placement *p, const uint32_t parts[TRIALS], double *seconds) {
  for (uint32_t i = 0; i < TRIALS; i++) {
    want_updates(p, &p->trials[i], parts[i], seconds);
  }
  p->trials[1].wanted = p->trials[1].wanted && parts[1] != parts[0];
  mr_status status = mr_crew_run(p->problem.crew, TRIALS, plan_trial, p);
  for (uint32_t i = 0; status == MR_OK && i < TRIALS; i++) {
    double trial_seconds = p->trials[i].wanted ? take_trial(p, &p->trials[i]) : INFINITY;
    seconds[parts[i]] = seconds[parts[i]] < 0 ? trial_seconds : seconds[parts[i]];
  }
  return status;
}

/* Plans with those of the other ops there too. */
static mr_status try_others(struct placement *p) {
  const struct mr_graph *graph = p->problem.program;
  struct trial *trial = &p->trials[0];
  bool any = false;
  memcpy(trial->on_host, p->chosen, p->liveness.tensor_count * sizeof *trial->on_host);
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    if (is_capable(graph, k) && !is_update(graph, k)) {
      want_op(p, trial, k);
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
  mr_status status = try_updates(p, (uint32_t[TRIALS]){best, best}, seconds);
  for (uint32_t by = PARTS / 2; status == MR_OK && by > (searches ? 0 : 1); by /= 2) {
    uint32_t less = best - by;
    uint32_t more = best + by <= PARTS ? best + by : best;
    status = try_updates(p, (uint32_t[TRIALS]){less, more}, seconds);
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

static mr_status plan_first(void *context, uint32_t index) {
  struct placement *p = context;
  return index == 0 ? mr_plan_make_placed(&p->problem, p->best) : plan_trial(p, 0);
}

/* The plan with nothing on the host, then what is better; where a thread is to spare, the first
 * trial beside it. That the first plan is of no use says nothing of the others: what is used on the
 * host need not be moved. */
static mr_status choose(struct placement *p) {
  bool apart = p->problem.host_apart;
  bool ahead = !apart && mr_crew_has_spare(p->problem.crew) && add_unmoved(p);
  p->trials[0].wanted = ahead;
  mr_status status = mr_crew_run(p->problem.crew, ahead ? 2 : 1, plan_first, p);
  if (status == MR_OK && may_gain(p)) {
    status = apart ? improve_apart(p) : improve(p, ahead);
  }
  for (uint32_t i = 0; i < TRIALS; i++) {
    mr_plan_clear(&p->trials[i].plan);
  }
  return status;
}

/* Places and plans on the rung numbered `from`, and takes that plan where it is faster. *going_out:
 * a lower rung may be of use. */
static mr_status try_rung(struct placement *p, uint32_t from, struct mr_program_plan *plan,
                          bool *going_out) {
  struct mr_program_plan rung = {.program = plan->program};
  p->problem.search_from = from;
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
  bool failed = p.chosen == NULL;
  for (uint32_t i = 0; i < TRIALS; i++) {
    p.trials[i].on_host = mr_allocate(p.liveness.tensor_count, sizeof *p.trials[i].on_host);
    failed = failed || p.trials[i].on_host == NULL;
  }
  status = failed ? MR_NO_MEMORY : go_down(&p, plan);
  mr_liveness_fini(&p.liveness);
  free(p.chosen);
  for (uint32_t i = 0; i < TRIALS; i++) {
    free(p.trials[i].on_host);
  }
  return status;
}

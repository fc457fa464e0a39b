/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which tensors ops on the host are given there. Three plans are compared: none; all that such ops
 * alone use (an optimizer's states); and, beside those, what the better of the two moves to the
 * host next to such an op for no gain: parameters that leave after their update, gradients that
 * leave before it. The faster is taken; of equals the one that moves less, since the machine's
 * memory is shared by copies and ops whatever the simulator says. On a host that is apart other
 * plans are compared with none: plan/place_apart.c.
 *
 * Rungs of the ladder (plan/plan.h) are gone down here, one at a time: what the plan of a rung
 * moves decides what is placed for it, so that this, too, depends on the rung alone.
 */
#include "plan/place.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/host.h"
#include "plan/ladder.h"
#include "plan/stages.h"

/* Predictions closer than this part are equal. */
#define SAME_SECONDS 1e-3

bool mr_placement_is_long(const struct mr_placement *p) {
  return p->problem.program->op_count > MR_LONG_OPS;
}

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

/* The budget that the present rung is planned for. */
static uint64_t rung_bytes(const struct mr_placement *p) {
  uint64_t budget_bytes = mr_min_u64(p->problem.budget_bytes[MR_TIER_DEVICE], UINT64_MAX - 1);
  bool whole = p->problem.whole_budget;
  uint64_t bytes = whole ? budget_bytes : budget_bytes + 1;
  for (uint32_t i = whole ? 1 : 0; i <= p->problem.search_from; i++) {
    uint64_t below = mr_ladder_below(p->best->footprint_bytes, bytes);
    bytes = below > 0 ? below : bytes;
  }
  return bytes;
}

mr_status mr_placement_plan(void *context, uint32_t index) {
  struct mr_placement *p = context;
  struct mr_trial *trial = &p->trials[index];
  struct mr_plan_problem problem = p->problem;
  if (!trial->wanted) {
    return MR_OK;
  }
  if (p->briefly) {
    problem.budget_bytes[MR_TIER_DEVICE] = rung_bytes(p);
    problem.search_from = 0;
    problem.search_rounds = 0;
    problem.useful_seconds = INFINITY;
  }
  problem.on_host = trial->none ? NULL : trial->on_host;
  trial->plan = (struct mr_program_plan){.program = problem.program};
  return mr_plan_make_placed(&problem, &trial->plan);
}

double mr_placement_take(struct mr_placement *p, struct mr_trial *trial) {
  struct mr_program_plan *plan = &trial->plan;
  double seconds = plan->fits && !plan->useless ? plan->step_seconds : INFINITY;
  if (!p->briefly && !plan->useless && is_better(plan, p->best)) {
    plan->footprint_bytes = p->best->footprint_bytes;
    mr_plan_clear(p->best);
    *p->best = *plan;
    for (uint32_t t = 0; t < p->liveness.tensor_count; t++) {
      p->chosen[t] = trial->on_host[t] && !trial->none;
    }
  } else {
    mr_plan_clear(plan);
  }
  *plan = (struct mr_program_plan){0};
  return seconds;
}

mr_status mr_placement_try(struct mr_placement *p) {
  p->trials[0].wanted = true;
  mr_status status = mr_placement_plan(p, 0);
  if (status == MR_OK) {
    (void)mr_placement_take(p, &p->trials[0]);
  }
  return status;
}

/* What ops on the host alone use. */
static bool add_unmoved(struct mr_placement *p) {
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
static bool add_movers(struct mr_placement *p) {
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
    bool lasts = mr_tensor_goes_round(&graph->tensors[gap->tensor]);
    mr_op_id beside = lasts ? gap->after_op : gap->before_op;
    mr_op_id other = lasts ? gap->before_op : gap->after_op;
    if (mr_op_is_host_capable(graph, beside) && !mr_op_is_host_capable(graph, other)) {
      on_host[gap->tensor] = true;
      any = true;
    }
  }
  return any;
}

/* `planned`: what ops on the host alone use is in the first trial, planned. */
static mr_status improve(struct mr_placement *p, bool planned) {
  mr_status status = MR_OK;
  if (planned) {
    (void)mr_placement_take(p, &p->trials[0]);
  } else if (add_unmoved(p)) {
    status = mr_placement_try(p);
  }
  if (status == MR_OK && p->best->fits && add_movers(p)) {
    status = mr_placement_try(p);
  }
  return status;
}

/* Where nothing moves a host that is apart can spare the device its ops and no more. */
static bool may_gain(const struct mr_placement *p) {
  const struct mr_plan_problem *problem = &p->problem;
  double seconds = 0;
  for (mr_op_id k = 0; k < problem->program->op_count; k++) {
    seconds += mr_op_is_host_capable(problem->program, k) ? problem->op_seconds[k] : 0;
  }
  bool moves = !p->best->fits || mr_program_plan_moved_bytes(p->best) > 0;
  return moves || (problem->host_apart && seconds > SAME_SECONDS * p->best->step_seconds);
}

/* Whether something that lasts has to leave the device. */
static bool must_move(const struct mr_plan_problem *problem) {
  uint64_t bytes = 0;
  for (uint32_t t = 0; t < problem->program->tensor_count; t++) {
    const struct mr_tensor *tensor = &problem->program->tensors[t];
    bytes += mr_tensor_goes_round(tensor) ? tensor->bytes : 0;
  }
  return bytes > problem->budget_bytes[MR_TIER_DEVICE];
}

static mr_status plan_first(void *context, uint32_t index) {
  struct mr_placement *p = context;
  return index > 0 ? mr_placement_plan(p, 0) : mr_plan_make_placed(&p->problem, p->best);
}

/* The plan with nothing on the host, then what is better; where a thread is to spare, the first
 * trial beside it. That the first plan is of no use says nothing of the others: what is used on the
 * host need not be moved. */
static mr_status choose(struct mr_placement *p) {
  bool apart = p->problem.host_apart;
  bool ahead = !apart && mr_crew_has_spare(p->problem.crew) && add_unmoved(p);
  p->trials[0].wanted = ahead;
  mr_status status = mr_crew_run(p->problem.crew, ahead ? 2 : 1, plan_first, p);
  if (status == MR_OK && may_gain(p)) {
    status = apart ? mr_placement_improve_apart(p, false) : improve(p, ahead);
  }
  return status;
}

static mr_status measure_footprint(struct mr_placement *p) {
  struct mr_plan_problem problem = p->problem;
  problem.footprint_alone = true;
  return mr_plan_make_placed(&problem, p->best);
}

/* Whether the plan with nothing on the host is left out, unless no other is to be had: in a long
 * program it is hardly ever the best where parameters or states must move. */
static bool leaves_none_out(const struct mr_placement *p) {
  return mr_placement_is_long(p) && must_move(&p->problem);
}

/* Beside a host that is apart, where not everything can stay on the device: the plan with nothing
 * on the host is made beside the others, and with search where it looks as good as they do. Which
 * rung all of them are made for follows from its footprint. */
static mr_status choose_apart(struct mr_placement *p) {
  mr_status status = measure_footprint(p);
  if (status != MR_OK) {
    return status;
  }
  if (p->best->footprint_bytes <= p->problem.budget_bytes[MR_TIER_DEVICE]) {
    mr_plan_clear(p->best);
    *p->best = (struct mr_program_plan){.program = p->problem.program};
    return choose(p);
  }
  p->best->smallest_device_bytes = UINT64_MAX;
  p->best->useless = p->problem.useful_seconds != 0; /* else a refusal is of use */
  status = mr_placement_improve_apart(p, !leaves_none_out(p));
  if (status == MR_OK && !p->best->fits) {
    p->trials[0].none = true;
    status = mr_placement_try(p);
    p->trials[0].none = false;
  }
  return status;
}

static mr_status choose_either(struct mr_placement *p) {
  mr_status status = p->problem.host_apart ? choose_apart(p) : choose(p);
  for (uint32_t i = 0; i < MR_TRIALS; i++) {
    mr_plan_clear(&p->trials[i].plan);
  }
  return status;
}

/* Places and plans on the rung numbered `from`, and takes that plan where it is faster. *going_out:
 * a lower rung may be of use. */
static mr_status try_rung(struct mr_placement *p, uint32_t from, struct mr_program_plan *plan,
                          bool *going_out) {
  struct mr_program_plan rung = {.program = plan->program};
  p->problem.search_from = from;
  if (plan->fits) {
    p->problem.useful_seconds = plan->step_seconds;
  }
  memset(p->chosen, 0, p->liveness.tensor_count * sizeof *p->chosen);
  p->best = &rung;
  mr_status status = choose_either(p);
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

static mr_status go_down(struct mr_placement *p, struct mr_program_plan *plan) {
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
    if (mr_op_is_host_capable(graph, k)) {
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
  struct mr_placement p = {.problem = *problem};
  mr_status status = mr_liveness_init(&p.liveness, problem->program);
  if (status != MR_OK) {
    return status;
  }
  p.chosen = mr_allocate(p.liveness.tensor_count, sizeof *p.chosen);
  bool failed = p.chosen == NULL;
  for (uint32_t i = 0; i < MR_TRIALS; i++) {
    p.trials[i].on_host = mr_allocate(p.liveness.tensor_count, sizeof *p.trials[i].on_host);
    failed = failed || p.trials[i].on_host == NULL;
  }
  status = failed ? MR_NO_MEMORY : go_down(&p, plan);
  mr_liveness_fini(&p.liveness);
  free(p.chosen);
  for (uint32_t i = 0; i < MR_TRIALS; i++) {
    free(p.trials[i].on_host);
  }
  return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of a program that depend neither on the rates of its links nor on which tiers there are
 * beside those used, so that a faster link or one more tier never makes the best of them slower
 * (plan/plan.h says why). They are drawn for machines that follow from the program alone: a link of
 * the usual machine moves a part of all tensors in the time of the ops, and the links of host and
 * NVMe may each be several times slower or faster. On random programs the best of such plans takes
 * no longer than one for the machine at hand, on average. Each rung is drawn for the usual machine
 * and for some of the others, which take turns as rungs go down: neighbours differ little. Every
 * plan is played on the machine at hand, and the fastest is taken.
 */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "plan/bound.h"
#include "plan/host.h"
#include "plan/ladder.h"
#include "plan/stages.h"

#define USUAL_PART  0.25 /* of all tensors moves over a usual link in the time of the ops */
#define LEVELS      3u   /* of each kind of link */
#define LEVEL_STEP  8.0  /* how much faster than the level below */
#define TURNS       2u   /* rungs on which every other machine has had its turn */
#define MOST_PLANS  (1 + (LEVELS * LEVELS - 1 + TURNS - 1) / TURNS) /* of a rung */
#define BOUND_RUNGS 4u /* from one on which the bound is asked whether to go on to the next */

struct machines {
  const struct mr_plan_problem *problem; /* at hand */
  struct mr_plan_problem drawn;          /* the machine and the budgets that are planned for */
  struct mr_program_plan *best;
  uint64_t footprint_bytes;
  double usual_bytes_per_second;
};

static uint32_t levels_of(const struct machines *m, mr_tier tier) {
  return m->drawn.budget_bytes[tier] > 0 ? LEVELS : 1;
}

static uint32_t machine_count(const struct machines *m) {
  return levels_of(m, MR_TIER_HOST) * levels_of(m, MR_TIER_NVME);
}

/* Draws for the machine numbered so; 0 is the usual one. Latencies are left to the machine at hand:
 * they tell little of what is to move. */
static void set_machine(struct machines *m, uint32_t number) {
  uint32_t host_levels = levels_of(m, MR_TIER_HOST);
  uint32_t cell = (number + machine_count(m) / 2) % machine_count(m);
  double host = (double)(cell % host_levels) - host_levels / 2;
  double nvme = (double)(cell / host_levels) - levels_of(m, MR_TIER_NVME) / 2;
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    double level = mr_link_is_nvme((mr_link)l) ? nvme : host;
    m->drawn.link[l] = (struct mr_link_rate){.bytes_per_second = m->usual_bytes_per_second *
                                                                 pow(LEVEL_STEP, level)};
  }
  bool shared = m->problem->nvme_mixed_bytes_per_second > 0;
  m->drawn.nvme_mixed_bytes_per_second =
      shared ? m->drawn.link[MR_LINK_NVME_READ].bytes_per_second : 0;
}

/* Plans the highest rung that the device budget holds for the machine drawn for, and plays the plan
 * on the one at hand; a plan that does not fit says what would only where it `tells`, of a rung
 * below the budget always. */
static mr_status draw(struct machines *m, uint64_t device_bytes, bool tells,
                      struct mr_program_plan *plan) {
  *plan = (struct mr_program_plan){.program = m->problem->program};
  m->drawn.budget_bytes[MR_TIER_DEVICE] = device_bytes;
  m->drawn.useful_seconds = tells ? 0 : INFINITY;
  m->drawn.terse = m->problem->terse && device_bytes == m->problem->budget_bytes[MR_TIER_DEVICE];
  mr_status status = mr_plan_place(&m->drawn, plan);
  if (status == MR_OK && plan->fits) {
    status = mr_program_plan_share_drive(m->problem, plan);
  }
  if (status != MR_OK) {
    mr_plan_clear(plan);
  }
  return status;
}

/* Keeps the plan where it is the fastest so far, else ends it. */
static void judge(struct machines *m, struct mr_program_plan *plan) {
  if (!plan->fits || (m->best->fits && plan->step_seconds >= m->best->step_seconds)) {
    mr_plan_clear(plan);
    return;
  }
  plan->footprint_bytes = m->footprint_bytes;
  mr_plan_clear(m->best);
  *m->best = *plan;
}

/* The machines that a rung is planned for, and the plans. */
struct turn {
  const struct machines *machines;
  uint64_t rung_bytes;
  uint32_t others; /* than the usual one, of which each rung has the next `count` - 1 */
  uint32_t count;
  struct mr_program_plan plans[MOST_PLANS];
};

static mr_status draw_one(void *context, uint32_t index) {
  struct turn *turn = context;
  struct machines m = *turn->machines;
  uint32_t first = mr_ladder_number(m.footprint_bytes, turn->rung_bytes) * (turn->count - 1);
  set_machine(&m, index == 0 ? 0 : 1 + (first + index - 1) % turn->others);
  return draw(&m, turn->rung_bytes, false, &turn->plans[index]);
}

/* A rung is planned for the usual machine and for those whose turn it is, which count where it fits
 * the usual one. */
static mr_status try_rung(struct machines *m, uint64_t rung_bytes, bool *fits_out) {
  uint32_t others = machine_count(m) - 1;
  struct turn turn = {.machines = m,
                      .rung_bytes = rung_bytes,
                      .others = others,
                      .count = 1 + (uint32_t)mr_div_up(others, TURNS)};
  MR_ASSERT(turn.count <= MOST_PLANS);
  mr_status status = mr_crew_run(m->problem->crew, turn.count, draw_one, &turn);
  bool fits = status == MR_OK && turn.plans[0].fits;
  for (uint32_t i = 0; i < turn.count; i++) {
    if (fits) {
      judge(m, &turn.plans[i]);
    } else {
      mr_plan_clear(&turn.plans[i]);
    }
  }
  *fits_out = fits;
  return status;
}

/* The foot of the ladder: the smallest budget that would do, where the problem has as much. A plan
 * for the rung, which is too low, says what that is. */
static mr_status try_smallest(struct machines *m, uint64_t rung_bytes) {
  struct mr_program_plan plan;
  set_machine(m, 0);
  mr_status status = draw(m, rung_bytes, true, &plan);
  uint64_t smallest_bytes = plan.smallest_device_bytes;
  bool fits = status == MR_OK && plan.fits;
  if (status == MR_OK && !fits && smallest_bytes <= m->problem->budget_bytes[MR_TIER_DEVICE]) {
    mr_plan_clear(&plan);
    status = draw(m, smallest_bytes, true, &plan);
  }
  if (status == MR_OK) {
    judge(m, &plan);
  }
  return status;
}

/* Whether no plan of the rung can beat the best one, or be of use. */
static mr_status is_hopeless(const struct machines *m, uint64_t rung_bytes, bool *hopeless_out) {
  struct mr_plan_problem problem = *m->problem;
  memcpy(problem.budget_bytes, m->drawn.budget_bytes, sizeof problem.budget_bytes);
  problem.budget_bytes[MR_TIER_DEVICE] = rung_bytes;
  double bound_seconds = 0;
  double better_seconds = m->best->fits ? m->best->step_seconds * (1 - MR_ROUNDING) : INFINITY;
  problem.useful_seconds = fmin(mr_bound_enough(&problem), better_seconds);
  mr_status status = mr_program_plan_bound(&problem, &bound_seconds);
  *hopeless_out = bound_seconds >= problem.useful_seconds;
  return status;
}

/* Down the ladder with the tiers that are drawn for. */
static mr_status climb_down(struct machines *m) {
  const struct mr_plan_problem *problem = m->problem;
  uint64_t rung_bytes = mr_min_u64(problem->budget_bytes[MR_TIER_DEVICE], UINT64_MAX - 1) + 1;
  uint32_t last = problem->search_from + problem->search_rounds;
  for (uint32_t rung = 0; rung < last; rung++) {
    bool hopeless = false;
    bool fits = false;
    rung_bytes = mr_ladder_below(m->footprint_bytes, rung_bytes);
    if (rung_bytes == 0) {
      return MR_OK;
    }
    if (rung < problem->search_from) continue;
    mr_status status = MR_OK;
    if ((rung - problem->search_from) % BOUND_RUNGS == 0) {
      status = is_hopeless(m, rung_bytes, &hopeless);
    }
    if (status != MR_OK || hopeless) {
      return status;
    }
    status = try_rung(m, rung_bytes, &fits);
    if (status != MR_OK) {
      return status;
    }
    if (!fits) {
      return try_smallest(m, rung_bytes);
    }
  }
  return MR_OK;
}

/* Nothing beats a plan that moves nothing, unless a host that is apart could spare the device some
 * of its ops. */
static bool is_unbeatable(const struct machines *m) {
  bool spares = m->problem->host_apart && mr_host_may_run(m->problem);
  return mr_program_plan_moves_nothing(m->best) && !spares;
}

/* With the tiers that are drawn for: the usual machine's plan, which keeps everything or is for the
 * highest rung, then down the ladder. Where it does not fit it says what would. */
static mr_status make_with(struct machines *m) {
  struct mr_program_plan plan;
  set_machine(m, 0);
  mr_status status = draw(m, m->problem->budget_bytes[MR_TIER_DEVICE], true, &plan);
  if (status != MR_OK) {
    return status;
  }
  if (m->footprint_bytes == 0) {
    m->footprint_bytes = plan.footprint_bytes;
    *m->best = plan;
  } else {
    judge(m, &plan);
  }
  return is_unbeatable(m) ? MR_OK : climb_down(m);
}

/* With all tiers, without NVMe and without the host. */
static mr_status make(struct machines *m) {
  static const mr_tier without[] = {MR_TIER_COUNT, MR_TIER_NVME, MR_TIER_HOST};
  const uint64_t *budget = m->problem->budget_bytes;
  bool both = budget[MR_TIER_HOST] > 0 && budget[MR_TIER_NVME] > 0;
  uint32_t count = both ? MR_COUNT_OF(without) : 1;
  mr_status status = MR_OK;
  for (uint32_t i = 0; i < count && status == MR_OK && !is_unbeatable(m); i++) {
    memcpy(m->drawn.budget_bytes, budget, sizeof m->drawn.budget_bytes);
    if (without[i] != MR_TIER_COUNT) {
      m->drawn.budget_bytes[without[i]] = 0;
    }
    status = make_with(m);
  }
  m->best->useless = !m->best->fits && m->problem->search_from > 0;
  return status;
}

static double compute_seconds(const struct mr_plan_problem *problem) {
  double seconds = 0;
  for (uint32_t k = 0; k < problem->program->op_count; k++) {
    seconds += problem->op_seconds[k];
  }
  return seconds;
}

static double all_bytes(const struct mr_graph *graph) {
  double bytes = 1;
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    bytes += (double)graph->tensors[t].bytes;
  }
  return bytes;
}

mr_status mr_plan_for_machines(const struct mr_plan_problem *problem,
                               struct mr_program_plan *plan) {
  bool hopeless = false;
  double op_seconds = compute_seconds(problem);
  bool searched =
      problem->policy == MR_POLICY_SEARCHED && problem->search_rounds >= MR_MACHINE_ROUNDS;
  if (!searched || problem->program->op_count > MR_MACHINE_OPS || !(op_seconds > 0)) {
    return mr_plan_place(problem, plan);
  }
  struct machines m = {.problem = problem,
                       .drawn = *problem,
                       .best = plan,
                       .usual_bytes_per_second =
                           USUAL_PART * all_bytes(problem->program) / op_seconds};
  m.drawn.search_from = 0;
  m.drawn.search_rounds = 1;
  m.drawn.whole_budget = false;
  mr_status status = MR_OK;
  if (mr_plan_must_be_useful(problem)) {
    status = is_hopeless(&m, problem->budget_bytes[MR_TIER_DEVICE], &hopeless);
  }
  if (status != MR_OK || hopeless) {
    plan->useless = hopeless;
    return status;
  }
  return make(&m);
}

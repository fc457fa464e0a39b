/* SPDX-License-Identifier: Apache-2.0 */
/* Planning again with one thing changed. */
#include "runtime/whatif.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "recompute/recompute.h"
#include "runtime/planning.h"

/* ---- Other budgets and rates: another plan ---- */

/* The job under another problem's budgets and rates, to be planned; mr_planning_clear it. */
static struct mr_plan make_trial(const struct mr_plan *plan,
                                 const struct mr_plan_problem *problem) {
  struct mr_plan trial = *plan; /* settings, profile and graph are borrowed */
  trial.layout = NULL;
  trial.rewritten = NULL;
  trial.op_seconds = NULL;
  trial.problem = *problem;
  return trial;
}

/* More of something never makes a plan worse: the present one would still do. */
static mr_status ask_gain(const struct mr_plan *plan, const struct mr_plan_problem *problem,
                          struct mr_outcome *outcome_out) {
  const struct mr_program_plan *layout = plan->layout;
  struct mr_plan trial = make_trial(plan, problem);
  mr_status status = mr_planning_search(&trial);
  if (status == MR_OK) {
    struct mr_outcome outcome = {.asked = true, .fits = trial.layout->fits || layout->fits};
    double seconds = trial.layout->fits ? trial.layout->step_seconds : INFINITY;
    outcome.seconds = layout->fits ? fmin(seconds, layout->step_seconds) : seconds;
    *outcome_out = outcome;
  }
  mr_planning_clear(&trial);
  return status;
}

/* The present plan answers: the change is of no use to it. */
static struct mr_outcome present(const struct mr_plan *plan) {
  bool fits = plan->layout->fits;
  return (struct mr_outcome){
      .asked = true, .fits = fits, .seconds = fits ? plan->layout->step_seconds : INFINITY};
}

/* Whether nothing could gain: all stays where it is, and no host could spare the device an op. */
static bool is_settled(const struct mr_plan *plan) {
  const struct mr_plan_problem *problem = &plan->problem;
  bool spares = problem->host_apart && problem->host_bytes_per_second > 0;
  return mr_program_plan_moves_nothing(plan->layout) && plan->recomputed_op_count == 0 && !spares;
}

/* A drive is measured where it is used; that of a described machine is known anyway. */
static bool knows_drive(const struct mr_plan *plan) {
  const struct mr_machine *machine = plan->settings.machine;
  return plan->problem.budget_bytes[MR_TIER_NVME] > 0 ||
         (machine != NULL && machine->tier_bytes[MR_TIER_NVME] > 0);
}

static mr_status ask_more(const struct mr_plan *plan, mr_tier tier, uint64_t bytes,
                          struct mr_outcome *outcome_out) {
  struct mr_plan_problem problem = plan->problem;
  uint64_t *budget = &problem.budget_bytes[tier];
  if (tier == MR_TIER_NVME && !knows_drive(plan)) {
    *outcome_out = (struct mr_outcome){0};
    return MR_OK;
  }
  if (is_settled(plan) || !mr_add_u64(*budget, bytes, budget)) { /* what has no limit cannot grow */
    *outcome_out = present(plan);
    return MR_OK;
  }
  return ask_gain(plan, &problem, outcome_out);
}

/* Whether the budgets let anything cross the link. */
static bool is_open(const struct mr_plan_problem *problem, mr_link link) {
  bool drives = problem->budget_bytes[MR_TIER_NVME] > 0;
  return mr_link_is_nvme(link)
             ? drives
             : problem->budget_bytes[MR_TIER_HOST] > 0 || (problem->nvme_staged && drives);
}

static mr_status ask_faster(const struct mr_plan *plan, mr_link link, double factor,
                            struct mr_outcome *outcome_out) {
  struct mr_plan_problem problem = plan->problem;
  struct mr_link_rate *rate = problem.link;
  double before =
      rate[MR_LINK_NVME_READ].bytes_per_second + rate[MR_LINK_NVME_WRITE].bytes_per_second;
  if (!plan->layout->fits || is_settled(plan) || !is_open(&problem, link)) {
    *outcome_out = present(plan); /* speed makes no room */
    return MR_OK;
  }
  rate[link].bytes_per_second *= factor;
  if (mr_link_is_nvme(link)) { /* what a drive does both ways at once grows in proportion */
    problem.nvme_mixed_bytes_per_second *=
        (rate[MR_LINK_NVME_READ].bytes_per_second + rate[MR_LINK_NVME_WRITE].bytes_per_second) /
        before;
  }
  return ask_gain(plan, &problem, outcome_out);
}

static mr_status ask_smallest(const struct mr_plan *plan, uint64_t *device_bytes_out) {
  if (!plan->layout->fits) {
    *device_bytes_out = plan->layout->smallest_device_bytes;
    return MR_OK;
  }
  struct mr_plan_problem problem = plan->problem;
  /* Nothing fits a byte, and a refusal says what would do. */
  problem.budget_bytes[MR_TIER_DEVICE] = 1;
  struct mr_plan trial = make_trial(plan, &problem);
  mr_status status = mr_planning_search(&trial);
  if (status == MR_OK) {
    uint64_t peak =
        plan->layout->small_bytes + plan->layout->device_page_count * plan->layout->page_bytes;
    *device_bytes_out = mr_min_u64(trial.layout->smallest_device_bytes, peak);
  }
  mr_planning_clear(&trial);
  return status;
}

/* ---- Another decision: the same program, or one with other clones ---- */

/* The plan's problem, to be searched under its own budget: the plan may come from a file. */
static struct mr_plan_problem problem_again(const struct mr_plan *plan) {
  struct mr_plan_problem problem = plan->problem;
  bool searched = problem.policy == MR_POLICY_SEARCHED;
  problem.search_rounds = searched ? 1 : 0;
  problem.whole_budget = problem.program->op_count > MR_MACHINE_OPS;
  return problem;
}

/* Bytes over the gaps of tensors alike, by what was decided for them. */
static void sum_gaps(const struct mr_program_plan *layout, const struct mr_tensor *alike,
                     uint64_t bytes[3]) {
  for (uint32_t i = 0; i < layout->gap_count; i++) {
    const struct mr_tensor *tensor = &layout->program->tensors[layout->gaps[i].tensor];
    if (mr_explain_alike(tensor, alike)) {
      bytes[layout->gaps[i].decision] += tensor->bytes;
    }
  }
}

/* What is told of a layout, and where the decision's tensors went: what each tier has gained. */
static void fill_outcome(const struct mr_plan *plan, const struct mr_program_plan *layout,
                         mr_tensor_id tensor, struct mr_outcome *outcome) {
  const struct mr_tensor *alike = &plan->problem.program->tensors[tensor];
  uint64_t before[3] = {0};
  uint64_t after[3] = {0};
  *outcome = (struct mr_outcome){.asked = true, .fits = layout->fits};
  if (!layout->fits) {
    return;
  }
  outcome->seconds = layout->step_seconds;
  sum_gaps(plan->layout, alike, before);
  sum_gaps(layout, alike, after);
  for (uint32_t i = 0; i < 3; i++) {
    outcome->decision_bytes[i] = after[i] > before[i] ? after[i] - before[i] : 0;
  }
}

static mr_status plan_without_moves(const struct mr_plan *plan, const struct mr_decision *decision,
                                    struct mr_outcome *outcome) {
  const struct mr_graph *program = plan->problem.program;
  struct mr_plan_problem problem = problem_again(plan);
  struct mr_plan_ban *bans = mr_allocate(program->tensor_count, sizeof *bans);
  struct mr_program_plan *layout = NULL;
  if (bans == NULL) {
    return MR_NO_MEMORY;
  }
  for (uint32_t t = 0; t < program->tensor_count; t++) {
    if (mr_explain_alike(&program->tensors[t], &program->tensors[decision->tensor])) {
      bans[problem.ban_count++] = (struct mr_plan_ban){t, decision->decision};
    }
  }
  problem.bans = bans;
  mr_status status = mr_program_plan_make(&problem, &layout);
  if (status == MR_OK) {
    fill_outcome(plan, layout, decision->tensor, outcome);
  }
  mr_program_plan_destroy(layout);
  free(bans);
  return status;
}

/* Plans the program in which `again` run twice. MR_INVALID: an op may not. Not asked where more
 * should run twice and nobody needs it to. */
static mr_status plan_repeating(const struct mr_plan *plan, const mr_op_id *again, uint32_t count,
                                const struct mr_decision *decision, struct mr_outcome *outcome) {
  struct mr_graph *rewritten = NULL;
  double *op_seconds = NULL;
  struct mr_program_plan *layout = NULL;
  struct mr_deferral deferral = {plan->deferred_op_count > 0, plan->problem.program->staying_count};
  mr_status status = mr_planning_rewrite(plan, again, count, &deferral, &rewritten);
  const struct mr_graph *program = rewritten != NULL ? rewritten : plan->graph;
  bool more = count > plan->recomputed_op_count;
  if (status == MR_OK && more && program->op_count <= plan->problem.program->op_count) {
    mr_graph_destroy(rewritten);
    return MR_OK;
  }
  if (status == MR_OK) {
    status = mr_planning_estimate(plan, program, &op_seconds);
  }
  if (status == MR_OK) {
    struct mr_plan_problem problem = problem_again(plan);
    problem.program = program;
    problem.op_seconds = op_seconds;
    status = mr_program_plan_make(&problem, &layout);
  }
  if (status == MR_OK) {
    fill_outcome(plan, layout, decision->tensor, outcome);
  }
  mr_program_plan_destroy(layout);
  mr_graph_destroy(rewritten);
  free(op_seconds);
  return status;
}

static mr_status ask_without(const struct mr_plan *plan, const struct mr_decision *decision,
                             struct mr_outcome *outcome_out) {
  struct mr_outcome outcome = {0};
  mr_status status = MR_OK;
  if (decision->decision == MR_DECISION_AGAIN) {
    mr_op_id *again = mr_allocate(plan->graph->op_count, sizeof *again);
    if (again == NULL) {
      return MR_NO_MEMORY;
    }
    const struct mr_tensor *remade = &plan->graph->tensors[decision->tensor];
    uint32_t count = mr_planning_list_again(plan->problem.program, remade, again);
    status = plan_repeating(plan, again, count, decision, &outcome);
    free(again);
  } else {
    status = plan_without_moves(plan, decision, &outcome);
  }
  if (status == MR_OK) {
    *outcome_out = outcome;
  }
  return status;
}

static mr_status ask_again(const struct mr_plan *plan, const struct mr_decision *decision,
                           struct mr_outcome *outcome_out) {
  const struct mr_graph *graph = plan->graph;
  *outcome_out = (struct mr_outcome){0};
  if (decision->decision == MR_DECISION_AGAIN || decision->tensor >= graph->tensor_count ||
      graph->tensors[decision->tensor].role != MR_ACTIVATION) {
    return MR_OK;
  }
  mr_op_id *again = mr_allocate((uint64_t)graph->op_count + graph->tensor_count, sizeof *again);
  if (again == NULL) {
    return MR_NO_MEMORY;
  }
  uint32_t count = mr_planning_list_again(plan->problem.program, NULL, again);
  uint32_t makers =
      mr_planning_list_makers(graph, &graph->tensors[decision->tensor], again + count);
  struct mr_outcome outcome = {0};
  mr_status status =
      makers == 0 ? MR_OK : plan_repeating(plan, again, count + makers, decision, &outcome);
  free(again);
  if (status == MR_INVALID) {
    return MR_OK; /* an op among them may not run twice */
  }
  if (status == MR_OK) {
    *outcome_out = outcome;
  }
  return status;
}

/* ---- The interview ---- */

/* Questions in the order in which threads take them: those that take longest come first. */
#define FIRST_FASTER   1u
#define FIRST_MORE     (FIRST_FASTER + MR_LINK_COUNT)
#define FIRST_WITHOUT  (FIRST_MORE + MR_TIER_COUNT)
#define FIRST_AGAIN    (FIRST_WITHOUT + MR_MOST_DECISIONS)
#define MOST_QUESTIONS (FIRST_AGAIN + MR_MOST_DECISIONS)

struct asking {
  const struct mr_plan *plan;
  uint64_t more_bytes;
  double faster_factor;
  struct mr_interview *interview;
};

static mr_status ask_of_decision(const struct asking *asking, uint32_t question) {
  struct mr_interview *interview = asking->interview;
  bool again = question >= FIRST_AGAIN;
  uint32_t index = question - (again ? FIRST_AGAIN : FIRST_WITHOUT);
  if (index >= interview->decision_count) {
    return MR_OK;
  }
  const struct mr_decision *decision = &interview->decisions[index];
  return again ? ask_again(asking->plan, decision, &interview->again[index])
               : ask_without(asking->plan, decision, &interview->without[index]);
}

static mr_status ask_one(void *context, uint32_t question) {
  const struct asking *asking = context;
  struct mr_interview *interview = asking->interview;
  if (question < FIRST_FASTER) {
    return ask_smallest(asking->plan, &interview->smallest_device_bytes);
  }
  if (question < FIRST_MORE) {
    mr_link link = (mr_link)(question - FIRST_FASTER);
    return ask_faster(asking->plan, link, asking->faster_factor, &interview->faster[link]);
  }
  if (question < FIRST_WITHOUT) {
    mr_tier tier = (mr_tier)(question - FIRST_MORE);
    return ask_more(asking->plan, tier, asking->more_bytes, &interview->more[tier]);
  }
  return ask_of_decision(asking, question);
}

mr_status mr_whatif_ask(const struct mr_plan *plan, uint64_t more_bytes, double faster_factor,
                        struct mr_interview *interview_out) {
  struct mr_interview interview = {.smallest_device_bytes = UINT64_MAX};
  struct mr_crew crew;
  mr_crew_init(&crew, plan->settings.threads);
  struct mr_plan lent = *plan; /* with the crew, which every question's problem takes from it */
  lent.problem.crew = &crew;
  struct asking asking = {.plan = &lent,
                          .more_bytes = more_bytes,
                          .faster_factor = faster_factor,
                          .interview = &interview};
  mr_status status = MR_OK;
  if (plan->layout->fits) {
    status = mr_explain_decisions(&plan->problem, plan->layout, MR_MOST_DECISIONS,
                                  interview.decisions, &interview.decision_count);
  }
  if (status == MR_OK) {
    status = mr_crew_run(&crew, MOST_QUESTIONS, ask_one, &asking);
  }
  if (status == MR_OK) {
    *interview_out = interview;
  }
  return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The programs that a plan may be of: the client's graph, with ops that run twice, with updates
 * that run in the next step; what their ops take, and the bound that holds for all of them. */
#include <math.h>
#include <stdlib.h>

#include "plan/explain.h"
#include "recompute/recompute.h"
#include "runtime/planning.h"

/* Of two bounds by windows that are as close as that, the second is hardly ever the lower one by
 * prices. */
#define CLOSE_BOUNDS 0.01

mr_status mr_planning_estimate(const struct mr_plan *plan, const struct mr_graph *program,
                               double **op_seconds_out) {
  double *op_seconds = mr_allocate(program->op_count, sizeof *op_seconds);
  if (op_seconds == NULL) {
    return MR_NO_MEMORY;
  }
  const struct mr_machine *machine = plan->settings.machine;
  for (uint32_t k = 0; k < program->op_count; k++) {
    op_seconds[k] = machine != NULL ? mr_machine_op_seconds(machine, &program->ops[k])
                                    : mr_profile_op_seconds(plan->profile, &program->ops[k]);
  }
  *op_seconds_out = op_seconds;
  return MR_OK;
}

mr_status mr_planning_rewrite(const struct mr_plan *plan, const mr_op_id *again,
                              uint32_t again_count, const struct mr_deferral *deferral,
                              struct mr_graph **program_out) {
  struct mr_graph *repeating = NULL;
  mr_status status = MR_OK;
  if (again_count > 0) {
    status = mr_recompute_repeat(plan->graph, again, again_count, &repeating);
  }
  if (status != MR_OK || !deferral->deferred) {
    *program_out = repeating;
    return status;
  }
  status =
      mr_graph_defer(repeating != NULL ? repeating : plan->graph, deferral->staying, program_out);
  mr_graph_destroy(repeating);
  return status == MR_OK && *program_out == NULL ? MR_INVALID : status;
}

uint32_t mr_planning_list_again(const struct mr_graph *program, const struct mr_tensor *leave_out,
                                mr_op_id *again_out) {
  uint32_t count = 0;
  for (uint32_t k = 0; k < program->op_count; k++) {
    const struct mr_op *op = &program->ops[k];
    if (op->clone_of == MR_NO_OP) continue;
    if (leave_out == NULL || !mr_explain_alike(&program->tensors[op->remade], leave_out)) {
      again_out[count++] = op->clone_of;
    }
  }
  return count;
}

/* The op that first writes a tensor; MR_NO_OP: none does. */
static mr_op_id find_maker(const struct mr_graph *graph, mr_tensor_id tensor) {
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    for (uint32_t i = 0; i < graph->ops[k].output_count; i++) {
      if (graph->ops[k].outputs[i] == tensor) {
        return k;
      }
    }
  }
  return MR_NO_OP;
}

uint32_t mr_planning_list_makers(const struct mr_graph *graph, const struct mr_tensor *alike,
                                 mr_op_id *makers_out) {
  uint32_t count = 0;
  for (mr_tensor_id t = 0; t < graph->tensor_count; t++) {
    mr_op_id maker = mr_explain_alike(&graph->tensors[t], alike) ? find_maker(graph, t) : MR_NO_OP;
    if (maker != MR_NO_OP) {
      makers_out[count++] = maker;
    }
  }
  return count;
}

/* A program and the bound of it. */
struct bounded {
  struct mr_plan_problem problem; /* of no program where there is none */
  double *op_seconds;
  double seconds;
  bool has_room; /* all tiers together have room for what must live at once */
};

/* By windows. */
static mr_status bounded_init(struct bounded *bounded, const struct mr_plan *plan,
                              const struct mr_plan_problem *budgets,
                              const struct mr_graph *program) {
  struct mr_plan_problem *problem = &bounded->problem;
  double least_bytes = 0;
  *bounded = (struct bounded){.problem = *budgets, .seconds = INFINITY};
  problem->program = program;
  if (program == NULL) {
    return MR_OK;
  }
  mr_status status = mr_planning_estimate(plan, program, &bounded->op_seconds);
  problem->op_seconds = bounded->op_seconds;
  problem->bound_any_recompute = plan->settings.recompute != MR_RECOMPUTE_NONE;
  problem->useful_seconds = 0;
  if (status == MR_OK) {
    status = mr_program_plan_least_bytes(problem, &least_bytes);
  }
  bounded->has_room = least_bytes <= mr_plan_room_bytes(problem);
  return status == MR_OK ? mr_program_plan_quick_bound(problem, &bounded->seconds) : status;
}

static double seconds_with_room(const struct bounded *bounded) {
  return bounded->has_room ? bounded->seconds : INFINITY;
}

/* By prices, as far as it is not to exceed another. */
static mr_status raise_bound(struct bounded *bounded, double other_seconds) {
  bool open = bounded->problem.program != NULL && bounded->seconds < other_seconds;
  bounded->problem.useful_seconds = isinf(other_seconds) ? 0 : other_seconds;
  return open ? mr_program_plan_raise_bound(&bounded->problem, &bounded->seconds) : MR_OK;
}

/* The one that seems to be lower comes first: it tells when to end the other. */
static mr_status raise_both(struct bounded both[2]) {
  double first_seconds = seconds_with_room(&both[0]);
  bool swapped = seconds_with_room(&both[1]) < first_seconds * (1 - CLOSE_BOUNDS);
  struct bounded *lower = &both[swapped];
  mr_status status = raise_bound(lower, INFINITY);
  double seconds = lower->seconds * (1 - MR_ROUNDING);
  return status == MR_OK ? raise_bound(&both[!swapped], seconds) : status;
}

/* The lower one of the bounds of the graph and of the same with updates in the next step. Updates
 * that the host may run are in neither bound, so that these hold too where such updates stay in
 * their step and others do not. */
mr_status mr_planning_find_bound(const struct mr_plan *plan, const struct mr_plan_problem *problem,
                                 bool quick, double *seconds_out) {
  struct mr_graph *deferred = NULL;
  struct bounded both[2] = {0};
  mr_status status = mr_graph_defer(plan->graph, 0, &deferred);
  bool beside_host = problem->host_apart && problem->host_bytes_per_second > 0 &&
                     problem->budget_bytes[MR_TIER_HOST] > 0;
  bool stays = deferred == NULL || beside_host; /* the lower one mostly, of two that seem equal */
  for (uint32_t i = 0; status == MR_OK && i < 2; i++) {
    status = bounded_init(&both[i], plan, problem, stays == (i == 0) ? plan->graph : deferred);
  }
  if (status == MR_OK && !quick) {
    status = raise_both(both);
  }
  *seconds_out = quick ? fmin(seconds_with_room(&both[0]), seconds_with_room(&both[1]))
                       : fmin(both[0].seconds, both[1].seconds);
  for (uint32_t i = 0; i < 2; i++) {
    free(both[i].op_seconds);
  }
  mr_graph_destroy(deferred);
  return status;
}

void mr_planning_sum_clones(struct mr_plan *plan) {
  const struct mr_graph *program = plan->problem.program;
  for (uint32_t k = 0; k < program->op_count; k++) {
    const struct mr_op *op = &program->ops[k];
    plan->deferred_op_count += op->deferred;
    if (op->clone_of == MR_NO_OP) {
      continue;
    }
    plan->recomputed_op_count++;
    plan->recomputed_seconds += plan->op_seconds[k];
    for (uint32_t i = 0; i < op->output_count; i++) {
      plan->recomputed_bytes += program->tensors[op->outputs[i]].bytes;
    }
  }
}

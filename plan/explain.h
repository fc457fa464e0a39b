/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a finished plan does, summed up for people: where a step's time goes by phase, what each
 * tier holds when it holds most, and which decisions take most of the links. Pure sums over the
 * plan; what else could have been decided takes planning again (runtime/).
 *
 * A *phase* is told from the program without knowing what it computes. Forward: ops that an
 * evaluation step runs too. Of the others, update: an op that writes a parameter, or that writes
 * what lasts between steps and neither a gradient nor an activation; backward: all the rest, ops
 * that run again included.
 *
 * A *decision* is made for all tensors alike: of one role and size, with names that differ in
 * numbers alone ("h.3.mlp.act", "h.11.mlp.act"), sent to the same tier or made again.
 */
#ifndef MEMRUN_PLAN_EXPLAIN_H
#define MEMRUN_PLAN_EXPLAIN_H

#include "plan/plan.h"

#define MR_HELD_ROLES MR_DERIVED /* the roles before it */

enum mr_phase {
  MR_PHASE_FORWARD = 0,
  MR_PHASE_BACKWARD = 1,
  MR_PHASE_UPDATE = 2,
  MR_PHASE_COUNT = 3,
};

enum mr_phase mr_phase_of(const struct mr_graph *program, const struct mr_op *op);

/* The time of a phase: from the end of the op before to the end of the op, over its ops, so that
 * waiting belongs to the op that waits. The phases' times add up to the step. */
struct mr_phase_time {
  uint32_t op_count;
  double seconds;
  /* For how long of those compute was at work, with what ops lose to moves beside them and what
   * handing ops over to a host takes; the host, and each link, perhaps for other phases. */
  double compute_seconds;
  double host_seconds;
  double link_seconds[MR_LINK_COUNT];
};

/* For a plan that fits and was simulated. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_explain_phases(const struct mr_program_plan *plan,
                                            struct mr_phase_time phases_out[MR_PHASE_COUNT]);

/* What a tier holds at the op where it holds most. All of it adds up to the plan's peak there. */
struct mr_holding {
  uint32_t op; /* NVMe: 0, its extents are there all the time */
  uint64_t role_bytes[MR_HELD_ROLES]; /* derived tensors are under MR_PARAMETER */
  uint64_t small_bytes;    /* device: the arena of small tensors; host: what its ops are handed */
  uint64_t rounding_bytes; /* up to whole pages or units */
  uint64_t idle_bytes;     /* pages that others need at other ops */
};
MR_CHECK_RESULT mr_status mr_explain_holdings(const struct mr_plan_problem *problem,
                                              const struct mr_program_plan *plan,
                                              struct mr_holding holdings_out[MR_TIER_COUNT]);

enum { MR_DECISION_AGAIN = 3 }; /* beside those of a gap: made again */

struct mr_decision {
  uint8_t decision;
  mr_tensor_id tensor; /* the first of those it is made for */
  uint32_t tensor_count;
  uint64_t bytes; /* moved in a step, or made again */
  double seconds; /* that their links, or the ops, take for them */
};

/* True where one decision is made for both. */
bool mr_explain_alike(const struct mr_tensor *a, const struct mr_tensor *b);

/* The costliest decisions, at most `limit` of them, by seconds. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_explain_decisions(const struct mr_plan_problem *problem,
                                               const struct mr_program_plan *plan, uint32_t limit,
                                               struct mr_decision *decisions_out,
                                               uint32_t *count_out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least that moves and repeated ops take of a step, over all choices together.
 *
 * At each op the device holds the op's operands and what is kept of the spans that go on; the rest
 * has left. So the parts that leave cover, at each op, what all spans would take beyond the budget.
 * A part that leaves comes back once in its span, or is made again by an op that runs once more;
 * and what was written goes out once before it may leave.
 *
 * The step is cut into windows of consecutive ops. A byte has left at an op only if it went out
 * before the op began, and comes back after that; so it goes out no later than in the window before
 * the op and comes back no sooner than in the op's. Each resource takes so many seconds for a byte
 * in, a byte out and a second of ops, and a window is at least as long as any of them, hence as
 * long as any weighted mean of them; the step is the sum of its windows. Finer windows tell more
 * where the step passes from one resource that binds it to another: there they are halved as prices
 * and weights are found, which comes near to a window for each op. Where a host may run ops,
 * windows end where it must have run those that are awaited and where it may begin to again, so
 * that all that these want crosses the links in between (plan/hosted.h).
 *
 * For given weights this is a linear program, and any prices of room at the ops give a bound of it
 * by duality: the room that is short at its price, less what spans that would rather leave save by
 * leaving (the Lagrangian relaxation; A. M. Geoffrion, Lagrangean relaxation for integer
 * programming, 1974). Prices and weights are found by an ascent along slopes of the bound; however
 * good they are, what they give holds. They also tell what room and links are worth where, which
 * guides the choice of what leaves.
 */
#ifndef MEMRUN_PLAN_DUAL_H
#define MEMRUN_PLAN_DUAL_H

#include "plan/plan.h"

/* Seconds that no plan of the problem beats under these budgets, by the accesses that need the
 * device; useful_seconds as in mr_program_plan_bound. Fewer where more than `known_seconds` are not
 * to be expected: the ascent is given up then. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_dual_seconds(const struct mr_plan_problem *problem,
                                          const struct mr_liveness *liveness,
                                          const uint64_t budget_bytes[MR_TIER_COUNT],
                                          double known_seconds, double *seconds_out);

/* What the ascent found after some rounds. */
struct mr_guide {
  double *room;     /* sums of the prices of room before each op, over two steps; 1 is the mean */
  double *in, *out; /* beside each op: what a byte costs, in seconds of the step */
};

/* As mr_dual_seconds. MR_NO_MEMORY, and the guide holds nothing. */
MR_CHECK_RESULT mr_status mr_guide_find(struct mr_guide *guide,
                                        const struct mr_plan_problem *problem,
                                        const struct mr_liveness *liveness,
                                        const uint64_t budget_bytes[MR_TIER_COUNT]);
void mr_guide_fini(struct mr_guide *guide);

#endif

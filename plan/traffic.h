/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least that moves and repeated ops take of a step, over all choices together.
 *
 * At each op the device holds the op's operands and what is kept of the spans that go on; the rest
 * has left. So the parts that leave cover, at each op, what all spans would take beyond the budget.
 * A part that leaves comes back once in its span, or is made again by an op that runs once more;
 * and what was written goes out once before it may leave. Each resource takes so many seconds for a
 * byte in, a byte out and a second of ops, and the step is at least as long as any of them, hence
 * as long as any weighted mean of them.
 *
 * For given weights this is a linear program, and any prices of room at the ops give a bound of it
 * by duality: the room that is short at its price, less what spans that would rather leave save by
 * leaving (the Lagrangian relaxation; A. M. Geoffrion, Lagrangean relaxation for integer
 * programming, 1974). Prices and weights are found by an ascent on a smoothed objective; however
 * good they are, what they give holds.
 */
#ifndef MEMRUN_PLAN_TRAFFIC_H
#define MEMRUN_PLAN_TRAFFIC_H

#include "plan/plan.h"

/* Seconds that no plan of the problem beats under these budgets, by the accesses that need the
 * device. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_traffic_seconds(const struct mr_plan_problem *problem,
                                             const struct mr_liveness *liveness,
                                             const uint64_t budget_bytes[MR_TIER_COUNT],
                                             double *seconds_out);

#endif

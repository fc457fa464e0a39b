/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A time that no plan can beat, whatever it decides and whenever it moves what. Three arguments;
 * the largest counts. Two of them are here; the third prices room at every op and is made once for
 * a plan (plan/dual.h).
 *
 * Totals. The bytes that live at an op and exceed the device are below it at that moment, so in
 * each step they come in once; those that are written in a step also go out once. At best all links
 * work all the time.
 *
 * Windows. A window is the time from the start of op k to the start of op m. It lasts at least as
 * long as its ops. At its start the device holds op k's operands and at most the rest of its budget
 * of what else lives; so what the window's ops touch of the rest, beyond that room, comes in before
 * its last op starts. At its end the device holds op m's operands and at most the rest; so what
 * lives across the start of op m and was written last in the window, beyond that room, goes out
 * after its first op has ended. What exceeds the host's budget too comes from NVMe, or goes there.
 * Windows that follow each other round the step do not overlap, so the step is at least the sum of
 * their times: the best way to cut it is found by dynamic programming over a sample of ops, which
 * gives a bound that holds wherever it is taken.
 *
 * Links. Reads and writes of a drive that shares its rate go at the pace of the simulator: either
 * alone, or both slowed down, the one that compute does not wait for by more. The points (bytes
 * read, bytes written) that it can pass in a second have a convex hull; each face is a bound.
 *
 * Ops beside NVMe. What a drive moves takes time from the ops that run meanwhile, a given part of a
 * second for each byte; and a byte that moves while no op runs takes the drive at least as long. So
 * a window lasts as long as its ops and what they lose to all the bytes that must pass in it.
 *
 * Ops on the host. Where such ops may find their tensors there, two bounds hold and the larger
 * counts: that of the accesses which need the device wherever the rest is, and that of all accesses
 * with as much more room as the host has, because every tensor that is used on the host has a place
 * there all the time. What rests on the host takes the same room, so only NVMe carries the rest.
 * When a host that is apart runs an op nobody knows: what that uses is in that room at some time
 * between the last op that makes something for it and the first that reads its results, so windows
 * which hold all of that time count it (mr_spans_add_hosted). Prices also tell that an op of a host
 * that is apart has all it uses there or nothing, and that it does not run while the device makes
 * what it waits for (plan/hosted.h).
 *
 * Recompute. Where the bound is to hold for every program that recompute makes of this one, what a
 * clone could make again counts as the cheaper of two: its bytes that go out in one window, or the
 * time of its op in the next (plan/ransom.h).
 */
#ifndef MEMRUN_PLAN_BOUND_H
#define MEMRUN_PLAN_BOUND_H

#include <math.h>

#include "plan/plan.h"
#include "plan/ransom.h"

/* The bound from which on nobody asks for a higher one: it tells that no plan is of use. */
static inline double mr_bound_enough(const struct mr_plan_problem *problem) {
  return problem->useful_seconds > 0 ? problem->useful_seconds : INFINITY;
}

/* Whether somebody still asks for the bound. */
static inline bool mr_bound_is_wanted(const struct mr_plan_problem *problem) {
  return problem->unwanted == NULL || !atomic_load(problem->unwanted);
}

/* Whether a plan that takes as long as the problem says is of no use, not just any that fits. */
static inline bool mr_plan_must_be_useful(const struct mr_plan_problem *problem) {
  return problem->useful_seconds > 0 && !isinf(problem->useful_seconds);
}

/* A program with more ops than this is cut at a sample of them. */
#define MR_BOUND_CUTS 96u

struct mr_bound {
  const struct mr_plan_problem *problem; /* its program and rates; borrowed */
  uint32_t cut_count;
  uint32_t *cuts;        /* ops, ascending */
  double *clock;         /* compute seconds before each cut; cut_count + 1 */
  double *held_bytes;    /* by the operands of each cut's op on the device */
  double *first_seconds; /* of each cut's op */
  double *last_seconds;  /* of the op before it, round the end of the step */
  double *in_bytes;      /* [cut * (cut_count + 1) + d]: live there, touched before the d-th next */
  double *out_bytes;     /* [cut * (cut_count + 1) + d]: live there, written since the d-th last */
  double *live_bytes;    /* of each op: what must be somewhere while it runs */
  double *constant_bytes;    /* of each op: the part of it that no op writes */
  struct mr_ransoms ransoms; /* of what a clone could make again */
};

/* What does not depend on budgets. The liveness lists the accesses that need the device. `pooled`:
 * the device budget is what device and host hold together. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_bound_init(struct mr_bound *bound,
                                        const struct mr_plan_problem *problem,
                                        const struct mr_liveness *liveness, bool pooled);
void mr_bound_fini(struct mr_bound *bound);

/* What must be somewhere at once, in bytes: tiers with less room in all have no plan. */
double mr_bound_least_bytes(const struct mr_bound *bound);

/* The bound under these budgets; it never grows with one of them. Of bounds of `enough` or more any
 * will do. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_bound_seconds(const struct mr_bound *bound,
                                           const uint64_t budget_bytes[MR_TIER_COUNT],
                                           double enough, double *seconds_out);

#endif

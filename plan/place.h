/* SPDX-License-Identifier: Apache-2.0 */
/* Plans that are compared to find out which tensors ops on the host are given there. */
#ifndef MEMRUN_PLAN_PLACE_H
#define MEMRUN_PLAN_PLACE_H

#include "plan/plan.h"

#define MR_TRIALS 5u /* at most that are planned side by side */

/* Tensors on the host, and the plan with them there. */
struct mr_trial {
  bool *on_host; /* for each tensor */
  bool none;     /* no op is to run there, whatever on_host says */
  bool wanted;   /* it is to be planned; else it was before, or has nothing to offer */
  struct mr_program_plan plan;
};

struct mr_placement {
  struct mr_plan_problem problem; /* of the present rung, with nothing on the host */
  bool briefly;                   /* trials are planned without search, and not kept */
  struct mr_liveness liveness;
  bool *chosen; /* for each tensor: on the host in the best plan so far */
  struct mr_trial trials[MR_TRIALS];
  struct mr_program_plan *best; /* that was kept; none before: it tells the footprint */
};

/* Whether the program has so many ops that less is tried. */
bool mr_placement_is_long(const struct mr_placement *p);

/* Plans the trial of that number where it is wanted; `context` is the placement. MR_NO_MEMORY,
 * MR_INVALID. */
MR_CHECK_RESULT mr_status mr_placement_plan(void *context, uint32_t index);

/* Keeps the trial's plan where it is the best so far, else ends it. Returns its seconds; INFINITY:
 * it is of no use. */
double mr_placement_take(struct mr_placement *p, struct mr_trial *trial);

/* Plans the first trial alone and takes it. MR_NO_MEMORY, MR_INVALID. */
MR_CHECK_RESULT mr_status mr_placement_try(struct mr_placement *p);

/* Takes better plans with ops on a host that is apart, where the best has none, or there is none
 * yet: plan/place_apart.c. `none`: that with none is one of them. MR_NO_MEMORY, MR_INVALID.
 */
MR_CHECK_RESULT mr_status mr_placement_improve_apart(struct mr_placement *p, bool none);

#endif

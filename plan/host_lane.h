/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue of a host that is apart, as a sweep plays it (plan/schedule.c): ops in the order in
 * which the device hands them over, each when what it wants has left the device. Counts go on over
 * the laps of a sweep.
 */
#ifndef MEMRUN_PLAN_HOST_LANE_H
#define MEMRUN_PLAN_HOST_LANE_H

#include "plan/draft.h"

struct mr_host_lane {
  const struct mr_plan_problem *problem;
  uint32_t op_count; /* of the program */
  uint32_t *ops;     /* those that the queue runs, in order */
  uint32_t count;
  uint32_t *before; /* for each op of the program, and the end: how many of them come before it */
  uint32_t *makes;  /* for each number of them: how many fetches bring what so many have made */
  uint32_t handed_over;
  uint32_t ended;
  double remaining_seconds;
  bool busy;
};

/* MR_NO_MEMORY; it may be ended then too. */
MR_CHECK_RESULT mr_status mr_host_lane_init(struct mr_host_lane *lane,
                                            const struct mr_draft *draft);
void mr_host_lane_fini(struct mr_host_lane *lane);

/* Whether the next op to be handed over is still to run, or runs, for the step before. */
bool mr_host_lane_is_behind(const struct mr_host_lane *lane);

/* Starts the next op where that can be: due has for each op the moves out that it waits for. */
void mr_host_lane_start(struct mr_host_lane *lane, const uint32_t *due);

/* The op of the queue whose result a gap's fetch brings; MR_NO_OP: none. */
mr_op_id mr_host_lane_maker(const struct mr_draft *draft, const struct mr_draft_gap *gap);

/* Whether the ops of the queue up to an op, unrolled, have all run. */
bool mr_host_lane_has_run(const struct mr_host_lane *lane, uint32_t op);

/* Fetches that could have begun by now, of those that bring what ops of the queue have made. */
uint32_t mr_host_lane_made(const struct mr_host_lane *lane);

/* Lets time pass, no longer than the op that runs takes: seconds of its time alone. */
void mr_host_lane_pass(struct mr_host_lane *lane, double seconds);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The outlook holds what was measured under the present plan against what the plan forecast: times
 * of steps and ops, busy links, and how much of the processors others took meanwhile. A plan's
 * first step counts for nothing: it warms caches and libraries up.
 */
#ifndef MEMRUN_RUNTIME_OUTLOOK_H
#define MEMRUN_RUNTIME_OUTLOOK_H

#include <stdbool.h>
#include <stdint.h>

#include <memrun/run.h>

#include "runtime/load.h"
#include "runtime/profile.h"

/* Steps whose median is told: enough to pass over some bad ones, few enough to sort at each step.
 */
#define MR_OUTLOOK_STEPS 63u

struct mr_op_sum {
  double seconds;
  uint32_t samples;
};

struct mr_outlook {
  /* Of each op of the program: when no link was busy, and when any was. */
  struct mr_op_sum *alone;
  struct mr_op_sum *crowded;
  double step_seconds[MR_OUTLOOK_STEPS]; /* of training steps, a ring */
  uint64_t step_count;
  uint64_t moved_bytes[MR_LINK_COUNT];
  double busy_seconds[MR_LINK_COUNT];
  double compute_seconds;
  double bind_seconds;
  uint64_t measured_steps; /* in these sums */
  struct mr_load_mark load_mark;
  double others_share; /* of the processors, while these steps were measured */
};

struct mr_run;

/* Nothing measured yet, for the program of run->layout. MR_NO_MEMORY leaves the outlook as it was.
 */
MR_CHECK_RESULT mr_status mr_outlook_init(struct mr_run *run);
void mr_outlook_fini(struct mr_run *run);

/* The steps so far belong to a forecast that is gone; what ops and links took stays. */
void mr_outlook_restart(struct mr_outlook *outlook);

/* Adds what an op took, beside a busy link or not. */
void mr_outlook_record_op(struct mr_run *run, mr_op_id op, double seconds, bool crowded);

/* Adds a step, where it is one of those that the forecast is of: a training step that runs all of
 * the plan's ops. */
void mr_outlook_record(struct mr_run *run, const struct mr_step_report *report);

/* The median step; 0 where none was measured. */
double mr_outlook_median_seconds(const struct mr_outlook *outlook);

/* True where others took so much of the machine that its speed cannot be learned from the steps. */
bool mr_outlook_disturbed(const struct mr_outlook *outlook);

/* Merges the rates that the steps show into the profile's and the store's, where they count
 * `weight` (0 to 1) of the whole; what the steps did not use stays. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_outlook_learn(const struct mr_run *run, double weight,
                                           struct mr_profile *profile, struct mr_store_rates *nvme);

#endif

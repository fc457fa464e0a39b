/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What another machine, other budgets or another decision would come to: each question is answered
 * by planning again. Nothing here changes the plan that is asked about.
 */
#ifndef MEMRUN_RUNTIME_WHATIF_H
#define MEMRUN_RUNTIME_WHATIF_H

#include "plan/explain.h"
#include "runtime/runtime.h"

#define MR_MOST_DECISIONS 10u

/* What planning again came to. */
struct mr_outcome {
  bool asked; /* false: it cannot be */
  bool fits;
  double seconds;             /* of a step, where it fits */
  uint64_t decision_bytes[3]; /* where more of the tensors asked about is now, over their gaps */
};

/* All that is asked about a plan. Decisions are those of a plan that fits. */
struct mr_interview {
  struct mr_decision decisions[MR_MOST_DECISIONS];
  uint32_t decision_count;
  /* The best plan that does not take the decision for any of its tensors; and the plan that makes
   * them again in place of moving them, where that can be. */
  struct mr_outcome without[MR_MOST_DECISIONS];
  struct mr_outcome again[MR_MOST_DECISIONS];
  /* More of a tier, and a faster link: never slower than the present plan. Not asked of a drive
   * whose speed is not known. */
  struct mr_outcome more[MR_TIER_COUNT];
  struct mr_outcome faster[MR_LINK_COUNT];
  /* With which the job fits, the other budgets being equal; UINT64_MAX: none. */
  uint64_t smallest_device_bytes;
};

/* Asks everything, on all threads of the plan's settings. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_whatif_ask(const struct mr_plan *plan, uint64_t more_bytes,
                                        double faster_factor, struct mr_interview *interview_out);

#endif

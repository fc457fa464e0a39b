/* SPDX-License-Identifier: Apache-2.0 */
/* What the steps of lowering a draft into a plan hand to each other. */
#ifndef MEMRUN_PLAN_LOWER_H
#define MEMRUN_PLAN_LOWER_H

#include "plan/colour.h"
#include "plan/draft.h"

struct mr_lowering {
  const struct mr_draft *draft;
  struct mr_program_plan *plan;
  struct mr_colour_item *items; /* for each instance; page_count 0: small, or on the host */
  uint32_t *stay_of_access;     /* for each access on the device: its instance */
  uint32_t *host_stay;          /* for each tensor: its instance on the host; MR_NO_INSTANCE */
  uint32_t *slot_of_gap;        /* for each gap: its host slot or extent */
};

/* The index of the access that opens a gap, and of the one that closes it. */
uint32_t mr_lowering_opening(const struct mr_draft *draft, uint32_t gap);
uint32_t mr_lowering_closing(const struct mr_draft *draft, uint32_t gap);

/* Queues, births and operands from the stays. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_lowering_add_instructions(struct mr_lowering *lowering);

#endif

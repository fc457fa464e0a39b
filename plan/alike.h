/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gaps alike: those of tensors of one size between ops of the same two kinds, as the layers of a
 * model or the slices of a table have them.
 */
#ifndef MEMRUN_PLAN_ALIKE_H
#define MEMRUN_PLAN_ALIKE_H

#include "plan/draft.h"

struct mr_alike_class {
  uint32_t first; /* of its gaps in the list */
  uint32_t count;
  double worth; /* byte seconds that its kept gaps hold, for a second that their moves would take */
};

struct mr_alike {
  uint32_t *gaps;
  struct mr_alike_class *classes; /* of which gaps are kept and could leave; the most worth first */
  uint32_t class_count;
};

/* By the draft's last sweep. MR_NO_MEMORY, and the list holds nothing. */
MR_CHECK_RESULT mr_status mr_alike_init(struct mr_alike *alike, const struct mr_draft *draft);
void mr_alike_fini(struct mr_alike *alike);

/* Evicts what a class has of kept gaps, with the widest holes, as far as there is room below; false
 * where that is none. */
bool mr_alike_evict(const struct mr_alike *alike, uint32_t class, struct mr_draft *draft);

#endif

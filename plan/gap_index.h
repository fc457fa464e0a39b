/* SPDX-License-Identifier: Apache-2.0 */
/* Gaps by an op of theirs: those that open behind it, or whose bytes may leave from there on. */
#ifndef MEMRUN_PLAN_GAP_INDEX_H
#define MEMRUN_PLAN_GAP_INDEX_H

#include "plan/draft.h"

struct mr_gap_index {
  uint32_t *gaps;  /* by op, in their own order */
  uint32_t *first; /* op_count + 1: of op k, gaps[first[k] .. first[k + 1]) */
};

/* The op that a gap is listed under; MR_NO_OP: it is left out. */
typedef mr_op_id (*mr_gap_op)(const struct mr_draft *draft, uint32_t gap);

/* MR_NO_MEMORY, and the index holds nothing. */
MR_CHECK_RESULT mr_status mr_gap_index_init(struct mr_gap_index *index,
                                            const struct mr_draft *draft, mr_gap_op op_of);
void mr_gap_index_fini(struct mr_gap_index *index);

#endif

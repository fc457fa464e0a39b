/* SPDX-License-Identifier: Apache-2.0 */
/* A finalist's plan, changed in one decision at a time. */
#ifndef MEMRUN_RUNTIME_AMEND_H
#define MEMRUN_RUNTIME_AMEND_H

#include "runtime/finalists.h"

/* Takes what makes the plan of a candidate, which fits, faster, until nothing does, half of
 * *plans_left, of plans that may be made, gained next to nothing, or none is left. The finalists'
 * plan says what for. MR_NO_MEMORY, MR_INVALID. */
MR_CHECK_RESULT mr_status mr_amend(const struct mr_finalists *finalists,
                                   struct mr_candidate *candidate, uint32_t *plans_left);

#endif

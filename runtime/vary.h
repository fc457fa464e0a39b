/* SPDX-License-Identifier: Apache-2.0 */
/* A finalist's plan, varied at random in what no rule finds. */
#ifndef MEMRUN_RUNTIME_VARY_H
#define MEMRUN_RUNTIME_VARY_H

#include "runtime/finalists.h"

/* Takes what makes the plan of a candidate, which fits, faster, for so much work: a variant that is
 * swept is one, a plan that is made of it four more. Ends sooner where nothing was found for long.
 * The same plan is varied in the same ways. MR_NO_MEMORY, MR_INVALID. */
MR_CHECK_RESULT mr_status mr_vary(const struct mr_finalists *finalists,
                                  struct mr_candidate *candidate, uint32_t work);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memrun plan --explain: the explanation of a plan on one screen of 50 lines and
 * PLAN_EXPLAIN_COLUMNS columns.
 */
#ifndef MEMRUN_TOOLS_PLAN_EXPLAIN_H
#define MEMRUN_TOOLS_PLAN_EXPLAIN_H

#include <jansson.h>

#include <memrun/run.h>

#include "tools/output.h"

#define PLAN_EXPLAIN_COLUMNS 100u

/* What mr_plan_explain tells of the plan, as an object; NULL: it failed, with *status_out. */
json_t *plan_explanation(const struct mr_plan *plan, mr_status *status_out);

/* Shows it, without verdict and forecast. */
void plan_explain_print(struct output *output, const struct mr_plan_summary *summary,
                        const json_t *explanation);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Planning for a machine whose rates are known, measured here or not. */
#ifndef MEMRUN_RUNTIME_PLANNING_H
#define MEMRUN_RUNTIME_PLANNING_H

#include "runtime/runtime.h"

/*
 * Plans plan->graph under plan->settings (budgets and recompute mode) for the machine that
 * plan->profile and these NVMe rates describe, which may be another one than this. Fills in what of
 * the plan is not filled in yet; a failure leaves what mr_plan_destroy frees. MR_NO_MEMORY,
 * MR_INVALID.
 */
MR_CHECK_RESULT mr_status mr_planning_make(struct mr_plan *plan, const struct mr_store_rates *nvme);

#endif

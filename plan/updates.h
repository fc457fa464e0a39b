/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Updates: ops that the host can run and whose outputs last between steps. Those that write pieces
 * of one tensor run at the same place: a *group* is such ops that follow one another, or one op.
 */
#ifndef MEMRUN_PLAN_UPDATES_H
#define MEMRUN_PLAN_UPDATES_H

#include "plan/plan.h"

struct mr_update_group {
  mr_op_id from, to; /* ops from .. to - 1 */
};

bool mr_is_update(const struct mr_graph *graph, mr_op_id op);

/* The groups in the order of the program, in an array that the caller frees. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_updates_find(const struct mr_graph *graph,
                                          struct mr_update_group **groups_out, uint32_t *count_out);

/* Which tensors of problem->on_host are used on the host as far as it has room, in pages of that
 * size, and which ops use them: on a host that is apart they run there. NULL: not asked for.
 * MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_find_on_host(const struct mr_plan_problem *problem,
                                          uint64_t page_bytes, bool *tensors_out, bool *ops_out);

/* Wants an op's operands on the host, so that it may run there: on_host as in mr_plan_problem. */
void mr_want_on_host(const struct mr_graph *graph, mr_op_id op, bool *on_host);

#endif

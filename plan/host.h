/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that can run on the host: which tensors they use, what they take there and of the device. */
#ifndef MEMRUN_PLAN_HOST_H
#define MEMRUN_PLAN_HOST_H

#include "plan/plan.h"

/* How ops that can run on the host use a tensor: not so that it could be used there, beside ops on
 * the device, or alone. */
enum mr_host_use { MR_HOST_USE_NONE, MR_HOST_USE_SOME, MR_HOST_USE_ALL };
/* `runs_on_host`: for each op; NULL: all that can do. */
enum mr_host_use mr_host_use_of(const struct mr_graph *graph, const struct mr_liveness *liveness,
                                const bool *runs_on_host, mr_tensor_id tensor);

/* Whether any op may run on the host; what one takes there where the host is apart; the small
 * tensors that compute hands over to it. */
bool mr_host_may_run(const struct mr_plan_problem *problem);
double mr_host_op_seconds(const struct mr_plan_problem *problem, mr_op_id op);
/* How fast it runs there, as a part of its speed alone, while links move so many bytes a second: it
 * gets on whatever they move. */
#define MR_HOST_LEAST_PACE 0.1
double mr_host_pace_beside_moves(const struct mr_plan_problem *problem, double bytes_per_second);
uint64_t mr_host_handover_bytes(const struct mr_graph *graph, mr_op_id id, uint64_t page_bytes);
/* Whether a host that is apart can be handed the op; with larger pages it can be handed no more. */
bool mr_host_can_take(const struct mr_graph *graph, mr_op_id id, uint64_t page_bytes);
/* What the op takes of the device's time at least, whoever runs it. */
double mr_host_least_seconds(const struct mr_plan_problem *problem, mr_op_id op);

/* The accesses for which a tensor is on the device wherever ops on the host use theirs. The first
 * after such an op wrote the tensor without reading it reads nothing of before. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_host_liveness_needed(const struct mr_plan_problem *problem,
                                                  struct mr_liveness *liveness_out);

/* Ops of a plan with an operand on the host. */
uint32_t mr_plan_count_host_ops(const struct mr_program_plan *plan);

#endif

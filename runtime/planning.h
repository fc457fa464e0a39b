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

/* The second half of it: plans under plan->problem's budgets and rates. mr_planning_clear frees
 * what it makes. MR_NO_MEMORY, MR_INVALID. */
MR_CHECK_RESULT mr_status mr_planning_search(struct mr_plan *plan);
void mr_planning_clear(struct mr_plan *plan);

/* What the device of the settings can do: that of a machine that is not here is an accelerator. */
void mr_planning_query(const struct mr_settings *settings, struct mr_device_caps *caps_out);

/* The steps of planning that a plan from a file takes too: the problem from settings and rates;
 * what each op of a program should take, for the caller to free (MR_NO_MEMORY); what is run again.
 */
void mr_planning_fill_problem(struct mr_plan *plan, const struct mr_store_rates *nvme);
MR_CHECK_RESULT mr_status mr_planning_estimate(const struct mr_plan *plan,
                                               const struct mr_graph *program,
                                               double **op_seconds_out);
void mr_planning_sum_clones(struct mr_plan *plan);

/* Whether updates run in the next step, and how many of the last stay: mr_graph_defer. */
struct mr_deferral {
  bool deferred;
  uint32_t staying;
};

/*
 * The program in which the ops `again` of the plan's graph run twice and updates run in the next
 * step as the deferral says. *program_out is NULL where that is the graph itself. MR_INVALID
 * (nothing is logged): an op may not run twice, or no update may be deferred; MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_planning_rewrite(const struct mr_plan *plan, const mr_op_id *again,
                                              uint32_t again_count,
                                              const struct mr_deferral *deferral,
                                              struct mr_graph **program_out);

/* The ops that run twice in a program, by the client's numbers, without those that make tensors
 * alike where `leave_out` is one; again_out has room for every op of the program. Returns how many.
 */
uint32_t mr_planning_list_again(const struct mr_graph *program, const struct mr_tensor *leave_out,
                                mr_op_id *again_out);

/* The ops of the client's graph that first write tensors alike; makers_out has room for one of
 * every tensor. Returns how many. */
uint32_t mr_planning_list_makers(const struct mr_graph *graph, const struct mr_tensor *alike,
                                 mr_op_id *makers_out);

/* Fills in plan->footprint_bytes, under the problem's budgets and rates; plans the graph once. Only
 * where nothing else plans. MR_NO_MEMORY, MR_INVALID. */
MR_CHECK_RESULT mr_status mr_planning_find_footprint(struct mr_plan *plan);

/* What no plan of the graph is faster than, under the problem's budgets and rates, with any
 * recompute allowed and updates deferred or not. `quick`: a little less, in a small part of the
 * time, or INFINITY where it tells that no plan fits. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_planning_find_bound(const struct mr_plan *plan,
                                                 const struct mr_plan_problem *problem, bool quick,
                                                 double *seconds_out);

/*
 * Takes the plan from settings.plan_path in place of making one. MR_INVALID: it is for another job
 * or machine; MR_DOES_NOT_FIT: it needs more than a budget; MR_CORRUPT: no plan, or a wrong one;
 * MR_IO; each logs one line. MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_plan_load(struct mr_plan *plan, const struct mr_store_rates *nvme);

#endif

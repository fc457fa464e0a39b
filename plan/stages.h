/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stages of making a plan, from mr_program_plan_make() inwards. For a short program the best of
 * plans for many machines is taken; for each, the tensors that ops use on the host are chosen; with
 * these, plan/plan.c goes down the ladder, where a draft is made for each rung (plan/draft.h),
 * lowered, and given its waits.
 */
#ifndef MEMRUN_PLAN_STAGES_H
#define MEMRUN_PLAN_STAGES_H

#include "plan/plan.h"

/* MR_INVALID: something of the problem makes no sense; a line says what. */
MR_CHECK_RESULT mr_status mr_plan_check_problem(const struct mr_plan_problem *problem);

/* Plans the program; where it is short, as the best of plans for many machines. For this one and
 * the next two *plan has nothing but its program before. MR_NO_MEMORY, MR_INVALID. */
MR_CHECK_RESULT mr_status mr_plan_for_machines(const struct mr_plan_problem *problem,
                                               struct mr_program_plan *plan);

/* Plans it with the best tensors on the host, or those of problem->on_host where that is given.
 * MR_NO_MEMORY, MR_INVALID. */
MR_CHECK_RESULT mr_status mr_plan_place(const struct mr_plan_problem *problem,
                                        struct mr_program_plan *plan);

/* Plans it with those of problem->on_host. MR_NO_MEMORY, MR_INVALID. */
MR_CHECK_RESULT mr_status mr_plan_make_placed(const struct mr_plan_problem *problem,
                                              struct mr_program_plan *plan);

/* Fills in the waits of a lowered plan from hazards on pages, host pages, slots and extents.
 * MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_plan_add_waits(struct mr_program_plan *plan);

/* Fills in bind_moves of every instruction. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_plan_count_moves(struct mr_program_plan *plan);

/* Fills in the op with the most operands and scratch in bytes. */
void mr_plan_name_largest_op(struct mr_program_plan *plan);

/* Frees what lowering and mr_plan_add_waits() made; the plan keeps its program. */
void mr_plan_clear(struct mr_program_plan *plan);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans are made once. Short programs are planned for machines that follow from the program alone
 * (plan/machines.c), so that the plans of two machines or budgets that a test compares are for the
 * most part picked from the same ones. The linker hands calls of mr_plan_place to plans_made.c
 * (tests/plan.cmake): it makes each plan when it is asked for first, and a copy of it when all of
 * the problem is the same again. With and without threads are two problems.
 */
#ifndef MEMRUN_TESTS_PLANS_MADE_H
#define MEMRUN_TESTS_PLANS_MADE_H

/* Forgets them: before what a problem points to is changed or freed. */
void plans_made_forget(void);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A finalist as the search for a plan has them: a program planned by one search, on the machine of
 * shed.profile. */
#ifndef MEMRUN_TESTS_UNIT_FINALIST_H
#define MEMRUN_TESTS_UNIT_FINALIST_H

#include "runtime/finalists.h"

/* The plan of the graph, which fits, under 4 GiB of the host. The caller destroys it. */
struct mr_plan *finalist_plan(const struct mr_graph *graph, uint64_t device_bytes);

/* The problem of the plan, with the candidate's program and one search. */
struct mr_plan_problem finalist_problem(const struct mr_plan *plan,
                                        const struct mr_candidate *candidate);

/* Plans the candidate, which has its program alone, by one search beside a host that gets through
 * so many bytes; `rung`: of the ladder of budgets. It fits. */
void finalist_search(struct mr_plan *plan, double host_bytes_per_second, uint32_t rung,
                     struct mr_candidate *candidate);

/* Asserts that the candidate's plan is sound, and plays it once more. */
void finalist_verify(const struct mr_plan *plan, const struct mr_candidate *candidate);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Finalists for tests. */
#include "unit/finalist.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "runtime/planning.h"

struct mr_plan *finalist_plan(const struct mr_graph *graph, uint64_t device_bytes) {
  struct mr_options options;
  struct mr_plan *plan = NULL;
  mr_options_init(&options);
  options.profile_path = SHED_PROFILE;
  options.device_bytes = device_bytes;
  options.host_bytes = 4 * MR_GIB;
  assert_int_equal(mr_plan_create(graph, &options, &plan), MR_OK);
  assert_true(plan->layout->fits);
  return plan;
}

struct mr_plan_problem finalist_problem(const struct mr_plan *plan,
                                        const struct mr_candidate *candidate) {
  struct mr_plan_problem problem = plan->problem;
  problem.program = candidate->program;
  problem.op_seconds = candidate->op_seconds;
  problem.search_rounds = 1;
  return problem;
}

void finalist_search(struct mr_plan *plan, double host_bytes_per_second, uint32_t rung,
                     struct mr_candidate *candidate) {
  plan->problem.host_bytes_per_second = host_bytes_per_second;
  assert_int_equal(mr_planning_estimate(plan, candidate->program, &candidate->op_seconds), MR_OK);
  struct mr_plan_problem problem = finalist_problem(plan, candidate);
  problem.search_from = rung;
  assert_int_equal(mr_program_plan_make(&problem, &candidate->layout), MR_OK);
  assert_true(candidate->layout->fits);
}

void finalist_verify(const struct mr_plan *plan, const struct mr_candidate *candidate) {
  struct mr_plan_problem problem = finalist_problem(plan, candidate);
  assert_int_equal(mr_program_plan_verify(&problem, candidate->layout), MR_OK);
  assert_int_equal(mr_program_plan_simulate(&problem, candidate->layout), MR_OK);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/vary.h: plans are varied at random, by the recipes of plan/plan.h. The machine is one
 * that is written down. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/planning.h"
#include "runtime/vary.h"
#include "unit/finalist.h"
#include "unit/plan_programs.h"

#define WORK 400u

/* The graph, or the graph with every op run again that may be, planned by one search. */
static struct mr_candidate search_once(struct mr_plan *plan, double host_bytes_per_second,
                                       bool again) {
  const struct mr_graph *graph = plan->graph;
  struct mr_candidate candidate = {.program = graph};
  if (again) {
    mr_op_id *ops = calloc(graph->op_count, sizeof *ops);
    uint32_t count = 0;
    const struct mr_deferral none = {0};
    for (mr_op_id k = 0; k < graph->op_count; k++) {
      struct mr_graph *alone = NULL;
      count += mr_planning_rewrite(plan, &k, 1, &none, &alone) == MR_OK && (ops[count] = k, true);
      mr_graph_destroy(alone);
    }
    assert_int_equal(mr_planning_rewrite(plan, ops, count, &none, &candidate.rewritten), MR_OK);
    assert_non_null(candidate.rewritten);
    candidate.program = candidate.rewritten;
    free(ops);
  }
  finalist_search(plan, host_bytes_per_second, 0, &candidate);
  return candidate;
}

/* By its own recipe a problem has the plan that a search found for it, unless what room is worth
 * guided that; where the sweep takes longer than the recipe says, it has none. */
static void recipes_make_the_plan_again(void **state) {
  (void)state;
  uint32_t same = 0;
  for (uint64_t mebibytes = 96; mebibytes <= 288; mebibytes += 32) {
    struct mr_graph *graph = plan_layers_graph(6, LINKS_TAKE_LONGER);
    struct mr_plan *plan = finalist_plan(graph, mebibytes * MR_MIB);
    struct mr_candidate candidate = search_once(plan, 0, false);
    struct mr_recipe recipe = candidate.layout->recipe;
    struct mr_plan_problem problem = finalist_problem(plan, &candidate);
    struct mr_program_plan *followed = NULL;
    problem.useful_seconds = INFINITY;
    problem.recipe = &recipe;
    assert_int_equal(mr_program_plan_make(&problem, &followed), MR_OK);
    print_message("%3u MiB: searched %.6f s, by the recipe %.6f s%s\n", (uint32_t)mebibytes,
                  candidate.layout->step_seconds, followed->step_seconds,
                  recipe.trial.guided ? ", guided" : "");
    assert_true(recipe.seconds > 0);
    if (!recipe.trial.guided) {
      assert_true(followed->fits && !followed->useless);
      assert_true(followed->recipe.seconds == recipe.seconds);
      assert_true(followed->step_seconds == candidate.layout->step_seconds);
      same++;
    }
    mr_program_plan_destroy(followed);

    recipe.seconds /= 1.01;
    assert_int_equal(mr_program_plan_make(&problem, &followed), MR_OK);
    assert_true(followed->useless && !followed->fits);
    mr_program_plan_destroy(followed);
    mr_candidate_fini(&candidate);
    mr_plan_destroy(plan);
    mr_graph_destroy(graph);
  }
  assert_true(same >= 3);
}

/* Plans varied are valid, faster, and the same ones however many threads vary them. */
static void varied_plans_are_valid_and_faster(void **state) {
  (void)state;
  struct mr_crew crew;
  mr_crew_init(&crew, 2);
  for (uint64_t mebibytes = 96; mebibytes <= 224; mebibytes += 64) {
    struct mr_graph *graph = plan_layers_graph(6, LINKS_TAKE_LONGER);
    struct mr_plan *plan = finalist_plan(graph, mebibytes * MR_MIB);
    const struct mr_finalists finalists = {.plan = plan, .max_page_count = UINT64_MAX};
    double seconds[2];
    for (uint32_t beside = 0; beside < 2; beside++) {
      struct mr_candidate candidate = search_once(plan, 1e9, false);
      double searched = candidate.layout->step_seconds;
      plan->problem.crew = beside ? &crew : NULL;
      assert_int_equal(mr_vary(&finalists, &candidate, 0), MR_OK);
      assert_true(candidate.layout->step_seconds == searched);
      assert_int_equal(mr_vary(&finalists, &candidate, WORK), MR_OK);
      plan->problem.crew = NULL;
      seconds[beside] = candidate.layout->step_seconds;
      finalist_verify(plan, &candidate);
      assert_true(candidate.layout->step_seconds == seconds[beside]);
      print_message("%3u MiB: %.6f s, varied %.6f s\n", (uint32_t)mebibytes, searched,
                    seconds[beside]);
      assert_true(seconds[beside] < searched);
      mr_candidate_fini(&candidate);
    }
    assert_true(seconds[0] == seconds[1]);
    mr_plan_destroy(plan);
    mr_graph_destroy(graph);
  }
}

/* What need not run again does not: of a program that runs everything again some ops stay out. */
static void ops_run_again_where_it_helps(void **state) {
  (void)state;
  struct mr_graph *graph = plan_layers_graph(6, LINKS_TAKE_LONGER);
  struct mr_plan *plan = finalist_plan(graph, 288 * MR_MIB);
  const struct mr_finalists finalists = {.plan = plan, .max_page_count = UINT64_MAX};
  struct mr_candidate candidate = search_once(plan, 0, true);
  double searched = candidate.layout->step_seconds;
  uint32_t op_count = candidate.program->op_count;
  assert_int_equal(mr_vary(&finalists, &candidate, WORK), MR_OK);
  finalist_verify(plan, &candidate);
  print_message("%u ops, %.6f s; varied %u, %.6f s\n", op_count, searched,
                candidate.program->op_count, candidate.layout->step_seconds);
  assert_true(candidate.program->op_count < op_count);
  assert_true(candidate.layout->step_seconds < searched);
  mr_candidate_fini(&candidate);
  mr_plan_destroy(plan);
  mr_graph_destroy(graph);
}

/* A plan that takes more pages than the device can map is none, however fast it is. */
static void varied_plans_can_be_mapped(void **state) {
  (void)state;
  struct mr_graph *graph = plan_layers_graph(6, LINKS_TAKE_LONGER);
  struct mr_plan *plan = finalist_plan(graph, 160 * MR_MIB);
  struct mr_candidate candidate = search_once(plan, 1e9, false);
  double searched = candidate.layout->step_seconds;
  const struct mr_finalists finalists = {.plan = plan, .max_page_count = 1};
  assert_int_equal(mr_vary(&finalists, &candidate, WORK), MR_OK);
  assert_true(candidate.layout->step_seconds == searched);
  mr_candidate_fini(&candidate);
  mr_plan_destroy(plan);
  mr_graph_destroy(graph);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(recipes_make_the_plan_again),
      cmocka_unit_test(varied_plans_are_valid_and_faster),
      cmocka_unit_test(ops_run_again_where_it_helps),
      cmocka_unit_test(varied_plans_can_be_mapped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

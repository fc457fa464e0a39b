/* SPDX-License-Identifier: Apache-2.0 */
/* What a problem may ask of a plan, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/crew.h"
#include "plan/ladder.h"
#include "unit/plan_programs.h"

#define PAGE 4096u

struct asked {
  struct mr_graph *graph;
  double *op_seconds;
  struct mr_plan_problem problem;
};

static void asked_init(struct asked *asked, struct mr_graph *graph, double op_seconds) {
  asked->graph = graph;
  asked->op_seconds = plan_op_seconds(graph, op_seconds);
  plan_problem_init(&asked->problem, graph);
  asked->problem.op_seconds = asked->op_seconds;
  asked->problem.budget_bytes[MR_TIER_DEVICE] = UINT64_MAX;
}

static void asked_fini(struct asked *asked) {
  free(asked->op_seconds);
  mr_graph_destroy(asked->graph);
}

static uint64_t footprint_of(const struct asked *asked) {
  struct mr_plan_problem problem = asked->problem;
  struct mr_program_plan *plan = NULL;
  problem.footprint_alone = true;
  problem.budget_bytes[MR_TIER_DEVICE] = UINT64_MAX;
  assert_int_equal(mr_program_plan_make(&problem, &plan), MR_OK);
  uint64_t bytes = plan->footprint_bytes;
  mr_program_plan_destroy(plan);
  return bytes;
}

/* A step that its ops bind: the first plan that moves its bytes beside them cannot be beaten, so
 * that what else is planned depends on when that is known. */
static void the_crew_changes_no_plan(void **state) {
  (void)state;
  struct mr_crew crew;
  mr_crew_init(&crew, 2);
  for (uint32_t seed = 1; seed <= 6; seed++) {
    struct asked asked;
    struct mr_random random;
    asked_init(&asked, plan_training_graph(11 + seed % 3, 8, 64 * MR_KIB, 128 * MR_KIB), 0);
    assert_true(asked.graph->op_count > MR_MACHINE_OPS);
    mr_random_init(&random, seed);
    for (uint32_t k = 0; k < asked.graph->op_count; k++) {
      asked.op_seconds[k] = 0.5 * (0.2 + mr_random_unit(&random));
    }
    for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
      asked.problem.link[l].bytes_per_second = 1e8;
    }
    asked.problem.budget_bytes[MR_TIER_NVME] = UINT64_MAX;
    asked.problem.search_rounds = 12;
    uint64_t footprint = footprint_of(&asked);
    for (uint64_t twentieths = 4; twentieths < 20; twentieths += 5) {
      struct mr_program_plan *alone = NULL;
      struct mr_program_plan *beside = NULL;
      asked.problem.budget_bytes[MR_TIER_DEVICE] = footprint / 20 * twentieths;
      assert_int_equal(mr_program_plan_make(&asked.problem, &alone), MR_OK);
      asked.problem.crew = &crew;
      assert_int_equal(mr_program_plan_make(&asked.problem, &beside), MR_OK);
      asked.problem.crew = NULL;
      assert_true(alone->fits && beside->fits);
      assert_true(alone->step_seconds == beside->step_seconds);
      assert_int_equal(alone->device_page_count, beside->device_page_count);
      assert_int_equal(mr_program_plan_moved_bytes(alone), mr_program_plan_moved_bytes(beside));
      mr_program_plan_destroy(alone);
      mr_program_plan_destroy(beside);
    }
    asked_fini(&asked);
  }
}

static uint64_t device_bytes(const struct mr_program_plan *plan) {
  return plan->small_bytes + plan->device_page_count * plan->page_bytes;
}

static struct mr_program_plan *plan_whole(struct asked *asked, bool whole) {
  asked->problem.whole_budget = whole;
  return plan_make_proven(&asked->problem);
}

/* A plan uses the budget above a rung of the ladder where it is asked to; short programs that are
 * searched at length keep to the ladder. */
static void all_of_a_budget_is_used_where_asked(void **state) {
  (void)state;
  for (uint32_t is_long = 0; is_long < 2; is_long++) {
    struct asked asked;
    asked_init(&asked, plan_training_graph(is_long ? 12 : 3, 8, 64 * MR_KIB, 128 * MR_KIB), 1e-4);
    uint64_t footprint = footprint_of(&asked);
    uint64_t above = mr_ladder_below(footprint, footprint / 2);
    uint64_t rung = mr_ladder_below(footprint, above);
    asked.problem.budget_bytes[MR_TIER_DEVICE] = above - 1;
    asked.problem.budget_bytes[MR_TIER_NVME] = UINT64_MAX;
    asked.problem.search_rounds = is_long ? 1 : MR_MACHINE_ROUNDS;
    struct mr_program_plan *part = plan_whole(&asked, false);
    struct mr_program_plan *all = plan_whole(&asked, true);
    assert_true(part->fits && device_bytes(part) <= rung);
    assert_true(all->fits && device_bytes(all) < above);
    assert_true((device_bytes(all) > rung) == (is_long == 1));
    mr_program_plan_destroy(part);
    mr_program_plan_destroy(all);
    asked_fini(&asked);
  }
}

/* The footprint is that of a plan without limits, and no plan is made. */
static void the_footprint_alone_is_told(void **state) {
  (void)state;
  struct asked asked;
  asked_init(&asked, plan_training_graph(3, 8, 64 * MR_KIB, 128 * MR_KIB), 1e-4);
  struct mr_program_plan *plan = plan_make_proven(&asked.problem);
  assert_true(plan->fits);
  assert_int_equal(plan->footprint_bytes, device_bytes(plan));
  assert_int_equal(footprint_of(&asked), plan->footprint_bytes);
  mr_program_plan_destroy(plan);
  asked.problem.footprint_alone = true;
  assert_int_equal(mr_program_plan_make(&asked.problem, &plan), MR_OK);
  assert_true(!plan->fits && plan->instance_count == 0 && plan->page_bytes == PAGE);
  mr_program_plan_destroy(plan);
  asked_fini(&asked);
}

/* What a refusal says of the three tiers does, to the byte. */
static void what_would_do_does(void **state) {
  (void)state;
  for (mr_tier below = MR_TIER_HOST; below <= MR_TIER_NVME; below++) {
    struct asked asked;
    asked_init(&asked, plan_training_graph(3, 8, 64 * MR_KIB, 128 * MR_KIB), 1e-4);
    asked.problem.budget_bytes[MR_TIER_DEVICE] = 64 * MR_KIB;
    asked.problem.budget_bytes[below] = UINT64_MAX;
    struct mr_program_plan *plan = plan_make_proven(&asked.problem);
    assert_false(plan->fits);
    asked.problem.budget_bytes[MR_TIER_DEVICE] = plan->smallest_device_bytes;
    asked.problem.budget_bytes[MR_TIER_HOST] = plan->smallest_host_bytes;
    asked.problem.budget_bytes[MR_TIER_NVME] = plan->smallest_nvme_bytes;
    assert_true(plan->smallest_device_bytes > 64 * MR_KIB);
    assert_true((plan->smallest_host_bytes > 0) == (below == MR_TIER_HOST));
    assert_true((plan->smallest_nvme_bytes > 0) == (below == MR_TIER_NVME));
    mr_program_plan_destroy(plan);
    plan = plan_make_proven(&asked.problem);
    assert_true(plan->fits);
    mr_program_plan_destroy(plan);
    asked_fini(&asked);
  }
}

static double seconds_on(const struct mr_plan_problem *problem, struct mr_program_plan *plan) {
  assert_int_equal(mr_program_plan_simulate(problem, plan), MR_OK);
  return plan->step_seconds;
}

/* What ops lose to moves only makes the steps of a plan longer. */
static void losses_make_steps_longer(void **state) {
  (void)state;
  for (mr_tier below = MR_TIER_HOST; below <= MR_TIER_NVME; below++) {
    struct asked asked;
    asked_init(&asked, plan_training_graph(3, 8, 64 * MR_KIB, 128 * MR_KIB), 0.2);
    asked.problem.budget_bytes[below] = UINT64_MAX;
    asked.problem.budget_bytes[MR_TIER_DEVICE] = footprint_of(&asked) / 2;
    struct mr_program_plan *plan = plan_make_proven(&asked.problem);
    assert_true(plan->fits);
    double before = seconds_on(&asked.problem, plan);
    for (double loss = 0.1; loss < 0.75; loss += 0.2) {
      struct mr_plan_problem slower = asked.problem;
      if (below == MR_TIER_HOST) {
        slower.pace_beside_copy = 1 - loss;
      } else {
        slower.nvme_op_seconds_per_byte = loss / slower.link[MR_LINK_NVME_READ].bytes_per_second;
      }
      double seconds = seconds_on(&slower, plan);
      assert_true(seconds > before);
      before = seconds;
    }
    mr_program_plan_destroy(plan);
    asked_fini(&asked);
  }
}

static void count(void *context, mr_log_level level, const char *line) {
  (void)level;
  (void)line;
  ++*(uint32_t *)context;
}

/* One line says why. */
static void expect_refused(const struct mr_plan_problem *problem) {
  struct mr_program_plan *plan = NULL;
  uint32_t lines = 0;
  mr_log_configure(count, &lines, MR_LOG_ERROR);
  assert_int_equal(mr_program_plan_make(problem, &plan), MR_INVALID);
  mr_log_configure(NULL, NULL, MR_LOG_ERROR);
  assert_int_equal(lines, 1);
  assert_null(plan);
}

static void bad_problems_are_refused(void **state) {
  (void)state;
  static const double bad_rates[] = {0, -1, NAN};
  static const double bad_latencies[] = {-1e-9, NAN};
  static const double bad_seconds[] = {-1, NAN, INFINITY};
  static const uint64_t bad_pages[] = {2048, 12288, 4 * MR_MIB};
  struct asked asked;
  asked_init(&asked, plan_training_graph(1, 1, 64 * MR_KIB, 128 * MR_KIB), 1e-4);
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    struct mr_plan_problem problem = asked.problem;
    for (uint32_t i = 0; i < MR_COUNT_OF(bad_rates); i++) {
      problem.link[l].bytes_per_second = bad_rates[i];
      expect_refused(&problem);
    }
    problem.link[l].bytes_per_second = 1e9;
    for (uint32_t i = 0; i < MR_COUNT_OF(bad_latencies); i++) {
      problem.link[l].latency_seconds = bad_latencies[i];
      expect_refused(&problem);
    }
  }
  for (uint32_t i = 0; i < MR_COUNT_OF(bad_pages); i++) {
    struct mr_plan_problem problem = asked.problem;
    problem.page_bytes = bad_pages[i];
    expect_refused(&problem);
  }
  struct mr_plan_problem problem = asked.problem;
  problem.extent_unit_bytes = 0;
  expect_refused(&problem);
  for (uint32_t i = 0; i < MR_COUNT_OF(bad_seconds); i++) {
    asked.op_seconds[1] = bad_seconds[i];
    expect_refused(&asked.problem);
  }
  asked_fini(&asked);
}

/* Pages have numbers below 2^31: larger ones are taken where they may be chosen. */
static void huge_tensors_have_large_pages(void **state) {
  (void)state;
  static const mr_tensor_id none[] = {MR_NO_TENSOR};
  struct asked asked;
  struct mr_graph *graph = NULL;
  struct mr_program_plan *plan = NULL;
  assert_int_equal(mr_graph_create(&graph), MR_OK);
  mr_tensor_id huge = plan_add_tensor(graph, MR_ACTIVATION, 16ull << 40);
  (void)plan_add_op(graph, none, (mr_tensor_id[]){huge, MR_NO_TENSOR}, 0);
  asked_init(&asked, graph, 1);
  expect_refused(&asked.problem);
  asked.problem.page_bytes = 0;
  asked.problem.footprint_alone = true;
  assert_int_equal(mr_program_plan_make(&asked.problem, &plan), MR_OK);
  assert_int_equal(plan->footprint_bytes, 16ull << 40);
  assert_true(plan->page_bytes > PAGE);
  mr_program_plan_destroy(plan);
  asked_fini(&asked);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_crew_changes_no_plan),
      cmocka_unit_test(all_of_a_budget_is_used_where_asked),
      cmocka_unit_test(the_footprint_alone_is_told),
      cmocka_unit_test(what_would_do_does),
      cmocka_unit_test(losses_make_steps_longer),
      cmocka_unit_test(bad_problems_are_refused),
      cmocka_unit_test(huge_tensors_have_large_pages),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

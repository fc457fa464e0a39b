/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans whose pages are halves of what the device maps at once: two stays share a page, one of them
 * with its lower half at the end, the other with its upper half at the start.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "plan/colour.h"
#include "unit/plan_programs.h"

#define SEEDS         150u
#define HALF_BYTES    (8 * MR_KIB)
#define LARGEST_BYTES (96 * MR_KIB) /* of the random programs' tensors */
#define OPS           10u

static struct mr_colour_item item(uint32_t first_op, uint32_t last_op, uint32_t page_count,
                                  uint32_t first_page) {
  return (struct mr_colour_item){.first_op = first_op,
                                 .last_op = last_op,
                                 .page_count = page_count,
                                 .first_page = first_page,
                                 .like = UINT32_MAX};
}

static uint64_t colour(const struct mr_colour_item *items, uint32_t count, uint32_t *pages) {
  uint64_t needed = 0;
  uint64_t again = 0;
  assert_int_equal(mr_colour(items, count, OPS, 0, MR_COLOUR_HALVES, pages, &needed), MR_OK);
  assert_int_equal(mr_colour(items, count, OPS, needed, MR_COLOUR_HALVES, pages, &again), MR_OK);
  assert_int_equal(again, needed);
  return needed;
}

static void two_stays_share_a_page(void **state) {
  (void)state;
  uint32_t pages[6];
  const struct mr_colour_item both[] = {item(0, 9, 3, 0), item(2, 5, 3, 3)};
  assert_int_equal(colour(both, 2, pages), 6);
  assert_int_equal(pages[0] % 2, 0);
  assert_int_equal(pages[1], pages[0] + 1);
  assert_int_equal(pages[3], pages[2] + 1);
  assert_int_equal(pages[5], pages[4] + 1);
}

/* Round the end of the step: its half is another's in the middle. */
static void a_half_is_used_again(void **state) {
  (void)state;
  uint32_t pages[4];
  const struct mr_colour_item items[] = {item(8, 11, 1, 0), item(0, 9, 1, 1), item(3, 6, 1, 2),
                                         item(7, 7, 1, 3)};
  assert_int_equal(colour(items, 4, pages), 2);
  assert_int_equal(pages[2], pages[0]);
  assert_int_equal(pages[3], pages[0]);
  assert_int_equal(pages[1] ^ 1u, pages[0]);
}

static void problem_init(struct mr_plan_problem *problem, const struct mr_graph *graph,
                         const double *op_seconds) {
  plan_problem_init(problem, graph);
  problem->op_seconds = op_seconds;
  problem->search_rounds = 3;
  problem->budget_bytes[MR_TIER_HOST] = UINT64_MAX;
}

static struct mr_program_plan *plan_with(struct mr_plan_problem *problem, bool halves,
                                         uint64_t device_bytes) {
  struct mr_program_plan *plan = NULL;
  problem->half_pages = halves;
  problem->page_bytes = halves ? HALF_BYTES : 2 * HALF_BYTES;
  problem->budget_bytes[MR_TIER_DEVICE] = device_bytes;
  assert_int_equal(mr_program_plan_make(problem, &plan), MR_OK);
  if (plan->fits) {
    assert_int_equal(mr_program_plan_verify(problem, plan), MR_OK);
    assert_true(plan->small_bytes + plan->device_page_count * plan->page_bytes <= device_bytes);
    assert_int_equal(plan->small_bytes % (2 * HALF_BYTES), 0);
    assert_int_equal(plan->device_page_count * plan->page_bytes % (2 * HALF_BYTES), 0);
  }
  return plan;
}

/* A plan with the first two halves of a longer stay in the wrong order: refused. */
static void assert_exchange_is_refused(const struct mr_plan_problem *problem,
                                       struct mr_program_plan *plan) {
  uint32_t i = 0;
  while (i < plan->instance_count && plan->instances[i].page_count < 3) {
    i++;
  }
  if (i == plan->instance_count) {
    return;
  }
  uint32_t *pages = &plan->pages[plan->instances[i].first_page];
  uint32_t second = pages[1];
  pages[1] = pages[0];
  pages[0] = second;
  assert_int_equal(mr_program_plan_verify(problem, plan), MR_CORRUPT);
  pages[0] = pages[1];
  pages[1] = second;
}

/* A budget that is said to do does. Whole pages need more, and take longer where there is a little
 * more than that. */
static void random_programs_need_less(void **state) {
  (void)state;
  double halves_bytes = 0;
  double whole_bytes = 0;
  double halves_seconds = 0;
  double whole_seconds = 0;
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    struct mr_random random;
    struct mr_plan_problem problem;
    mr_random_init(&random, seed);
    struct mr_graph *graph = plan_random_graph(&random, 40, LARGEST_BYTES);
    double *op_seconds = plan_op_seconds(graph, 1e-3);
    problem_init(&problem, graph, op_seconds);
    struct mr_program_plan *whole = plan_with(&problem, false, 0);
    struct mr_program_plan *halves = plan_with(&problem, true, 0);
    assert_false(whole->fits || halves->fits);
    uint64_t least[] = {halves->smallest_device_bytes, whole->smallest_device_bytes};
    halves_bytes += (double)least[0];
    whole_bytes += (double)least[1];
    mr_program_plan_destroy(whole);
    mr_program_plan_destroy(halves);
    halves = plan_with(&problem, true, least[0]);
    assert_true(halves->fits);
    assert_exchange_is_refused(&problem, halves);
    mr_program_plan_destroy(halves);
    for (uint64_t bytes = least[0]; bytes <= 2 * least[0]; bytes += HALF_BYTES) {
      halves = plan_with(&problem, true, bytes);
      assert_true(halves->fits);
      mr_program_plan_destroy(halves);
    }
    uint64_t more = mr_max_u64(least[0], least[1]) / 4 * 5;
    halves = plan_with(&problem, true, more);
    whole = plan_with(&problem, false, more);
    assert_true(halves->fits && whole->fits);
    halves_seconds += halves->step_seconds;
    whole_seconds += whole->step_seconds;
    mr_program_plan_destroy(whole);
    mr_program_plan_destroy(halves);
    free(op_seconds);
    mr_graph_destroy(graph);
  }
  print_message(
      "halves need %.3f of the room of whole pages, with some more take %.3f of the time\n",
      halves_bytes / whole_bytes, halves_seconds / whole_seconds);
  assert_true(halves_bytes < 0.97 * whole_bytes && halves_seconds < 0.9 * whole_seconds);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(two_stays_share_a_page),
      cmocka_unit_test(a_half_is_used_again),
      cmocka_unit_test(random_programs_need_less),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

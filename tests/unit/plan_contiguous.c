/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans for devices that cannot map pages where they like: neighbouring pages for every stay, and a
 * new choice under less where the first one cannot be packed.
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

#define SEEDS 150u

static bool neighbours(const struct mr_program_plan *plan) {
  for (uint32_t i = 0; i < plan->instance_count; i++) {
    const struct mr_instance *instance = &plan->instances[i];
    for (uint32_t p = 1; p < instance->page_count; p++) {
      const uint32_t *pages = &plan->pages[instance->first_page];
      if (pages[p] != pages[0] + p) {
        return false;
      }
    }
  }
  return true;
}

static struct mr_program_plan *plan_within(struct mr_plan_problem *problem, uint64_t device_bytes,
                                           bool contiguous) {
  struct mr_program_plan *plan = NULL;
  problem->budget_bytes[MR_TIER_DEVICE] = device_bytes;
  problem->contiguous = contiguous;
  assert_int_equal(mr_program_plan_make(problem, &plan), MR_OK);
  if (plan->fits) {
    assert_int_equal(mr_program_plan_verify(problem, plan), MR_OK);
    assert_true(plan->small_bytes + plan->device_page_count * plan->page_bytes <= device_bytes);
  }
  return plan;
}

/* The pages that the stays of a plan take side by side, within a limit if that can be. */
static uint64_t packed_pages(const struct mr_program_plan *plan, uint64_t page_limit) {
  uint32_t op_count = mr_graph_op_count(plan->program);
  struct mr_colour_item *items = calloc(plan->instance_count, sizeof *items);
  uint32_t *pages = calloc(plan->page_entry_count + 1ull, sizeof *pages);
  uint64_t count = 0;
  assert_true(items != NULL && pages != NULL);
  for (uint32_t i = 0; i < plan->instance_count; i++) {
    const struct mr_instance *instance = &plan->instances[i];
    bool wraps = instance->last_op < instance->first_op;
    items[i] = (struct mr_colour_item){.first_op = instance->first_op,
                                       .last_op = instance->last_op + (wraps ? op_count : 0),
                                       .always = instance->always,
                                       .page_count = instance->page_count,
                                       .first_page = instance->first_page,
                                       .like = UINT32_MAX};
  }
  assert_int_equal(
      mr_colour_contiguous(items, plan->instance_count, op_count, page_limit, pages, &count),
      MR_OK);
  free(items);
  free(pages);
  return count;
}

/* Plans one program with and without neighbours. True: the choice for pages anywhere cannot be
 * packed within the budget, and another choice was found that can. */
static bool plan_both(struct mr_plan_problem *problem, uint64_t device_bytes) {
  struct mr_program_plan *apart = plan_within(problem, device_bytes, false);
  struct mr_program_plan *side = plan_within(problem, device_bytes, true);
  bool chosen_again = false;
  assert_true(apart->fits || !side->fits);
  if (side->fits) {
    assert_true(neighbours(side));
    uint64_t limit = (device_bytes - apart->small_bytes) / apart->page_bytes;
    chosen_again = apart->page_bytes == side->page_bytes && packed_pages(apart, limit) > limit;
  } else {
    assert_true(side->smallest_device_bytes > device_bytes);
  }
  mr_program_plan_destroy(apart);
  mr_program_plan_destroy(side);
  return chosen_again;
}

static void random_programs_are_packed(void **state) {
  (void)state;
  uint32_t chosen_again = 0;
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    struct mr_random random;
    struct mr_plan_problem problem;
    mr_random_init(&random, seed);
    struct mr_graph *graph = plan_random_graph(&random, 40, 256 * MR_KIB);
    double *op_seconds = plan_op_seconds(graph, 1e-3);
    plan_problem_init(&problem, graph);
    problem.op_seconds = op_seconds;
    problem.search_rounds = 3;
    problem.budget_bytes[MR_TIER_HOST] = UINT64_MAX;
    struct mr_program_plan *refused = plan_within(&problem, 0, true);
    assert_false(refused->fits);
    struct mr_program_plan *least = plan_within(&problem, refused->smallest_device_bytes, true);
    assert_true(least->fits && neighbours(least));
    chosen_again += plan_both(&problem, refused->smallest_device_bytes);
    chosen_again += plan_both(&problem, refused->smallest_device_bytes / 8 * 9);
    mr_program_plan_destroy(refused);
    mr_program_plan_destroy(least);
    free(op_seconds);
    mr_graph_destroy(graph);
  }
  printf("%u of %u choices had to be made again\n", chosen_again, 2 * SEEDS);
  assert_true(chosen_again > 0);
}

/* Four stays on a step of four ops, one of them round its end, one all the time. */
static void the_circle_is_cut_where_least_is_in_use(void **state) {
  (void)state;
  const struct mr_colour_item items[] = {
      {.first_op = 3, .last_op = 4, .page_count = 5, .first_page = 0},
      {.first_op = 1, .last_op = 2, .page_count = 5, .first_page = 5},
      {.always = true, .page_count = 2, .first_page = 10},
      {.first_op = 2, .last_op = 2, .page_count = 1, .first_page = 12},
  };
  uint32_t pages[13];
  uint64_t count = 0;
  assert_int_equal(mr_colour_contiguous(items, 4, 4, 8, pages, &count), MR_OK);
  assert_int_equal(count, 8); /* with the cut at op 0 it would be 13 */
  assert_int_equal(pages[10], 0);
  assert_int_equal(pages[0], pages[5]);
  assert_int_equal(pages[12], 7);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_programs_are_packed),
      cmocka_unit_test(the_circle_is_cut_where_least_is_in_use),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

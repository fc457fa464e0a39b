/* SPDX-License-Identifier: Apache-2.0 */
/* How often binding moves pages, and what a simulation makes of it, counted by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "plan/stages.h"

#define OPS       3u
#define PAGES     4u
#define INSTANCES 4u

/* Three ops on four pages. The first needs all four, the last two first; the second two, as they
 * lie; the third the other two, the other way round, and something without pages. */
struct example {
  struct mr_graph graph;
  struct mr_op ops[OPS];
  struct mr_instance instances[INSTANCES];
  struct mr_instruction instructions[OPS];
  uint32_t pages[8];
  uint32_t births[INSTANCES];
  struct mr_program_plan plan;
};

static void example_init(struct example *example) {
  static const uint32_t pages[] = {2, 3, 0, 1, 0, 1, 3, 2};
  static const uint32_t page_counts[] = {4, 2, 2, 0};
  *example = (struct example){0};
  memcpy(example->pages, pages, sizeof pages);
  uint32_t first_page = 0;
  for (uint32_t i = 0; i < INSTANCES; i++) {
    example->instances[i] = (struct mr_instance){
        .bytes = page_counts[i] * 4096ull, .first_page = first_page, .page_count = page_counts[i]};
    first_page += page_counts[i];
    example->births[i] = i;
  }
  for (uint32_t k = 0; k < OPS; k++) {
    example->instructions[k] = (struct mr_instruction){
        .op = k, .instance = MR_NO_INSTANCE, .first_birth = k, .birth_count = k == OPS - 1 ? 2 : 1};
  }
  example->graph = (struct mr_graph){.ops = example->ops, .op_count = OPS};
  example->plan = (struct mr_program_plan){.program = &example->graph,
                                           .fits = true,
                                           .page_bytes = 4096,
                                           .device_page_count = PAGES,
                                           .instances = example->instances,
                                           .instance_count = INSTANCES,
                                           .pages = example->pages,
                                           .instructions = {example->instructions},
                                           .instruction_count = {OPS},
                                           .births = example->births,
                                           .birth_count = INSTANCES};
}

static void neighbours_that_came_together_are_one_move(void **state) {
  (void)state;
  struct example example;
  example_init(&example);
  assert_int_equal(mr_plan_count_moves(&example.plan), MR_OK);
  /* From the step before: 0 and 1 at home, 3 and 2 the wrong way round for the first op. */
  assert_int_equal(example.instructions[0].bind_moves, 3);
  assert_int_equal(example.instructions[1].bind_moves, 1);
  assert_int_equal(example.instructions[2].bind_moves, 2);
}

static void pages_in_their_place_do_not_move(void **state) {
  (void)state;
  struct example example;
  example_init(&example);
  for (uint32_t k = 0; k < OPS; k++) {
    example.instructions[k].first_birth = 0;
    example.instructions[k].birth_count = 1;
  }
  assert_int_equal(mr_plan_count_moves(&example.plan), MR_OK);
  for (uint32_t k = 0; k < OPS; k++) {
    assert_int_equal(example.instructions[k].bind_moves, 0);
  }
}

static void pages_that_follow_one_another_stay_at_home(void **state) {
  (void)state;
  static const uint32_t pages[] = {0, 1, 2, 3, 0, 1, 2, 3};
  struct example example;
  example_init(&example);
  memcpy(example.pages, pages, sizeof pages);
  assert_int_equal(mr_plan_count_moves(&example.plan), MR_OK);
  for (uint32_t k = 0; k < OPS; k++) {
    assert_int_equal(example.instructions[k].bind_moves, 0);
  }
  /* The second op has two of them the other way round. */
  example.pages[4] = 1;
  example.pages[5] = 0;
  assert_int_equal(mr_plan_count_moves(&example.plan), MR_OK);
  assert_int_equal(example.instructions[0].bind_moves, 2);
  assert_int_equal(example.instructions[1].bind_moves, 2);
  assert_int_equal(example.instructions[2].bind_moves, 0);
}

/* As often as two instances have the same pages in the same order they have one range. */
static void the_same_pages_are_one_range(void **state) {
  (void)state;
  struct example example;
  example_init(&example);
  uint32_t ranges[INSTANCES];
  uint32_t count = 0;
  assert_int_equal(mr_program_plan_list_ranges(&example.plan, ranges, &count), MR_OK);
  assert_int_equal(count, 3);
  assert_int_equal(ranges[0], 0);
  assert_int_equal(ranges[1], 1);
  assert_int_equal(ranges[2], 2);
  assert_int_equal(ranges[3], MR_NO_RANGE);
  example.pages[4] = 3;
  example.pages[5] = 2;
  assert_int_equal(mr_program_plan_list_ranges(&example.plan, ranges, &count), MR_OK);
  assert_int_equal(count, 2);
  assert_int_equal(ranges[1], 1);
  assert_int_equal(ranges[2], 1);
  /* Then no page moves from one to the other. */
  assert_int_equal(mr_plan_count_moves(&example.plan), MR_OK);
  assert_int_equal(example.instructions[1].bind_moves, 2);
  assert_int_equal(example.instructions[2].bind_moves, 0);
}

static void a_step_takes_its_ops_and_its_moves(void **state) {
  (void)state;
  struct example example;
  example_init(&example);
  const double op_seconds[OPS] = {1e-3, 2e-3, 3e-3};
  struct mr_plan_problem problem = {
      .program = &example.graph, .op_seconds = op_seconds, .bind_seconds_per_move = 1e-3};
  assert_int_equal(mr_program_plan_simulate(&problem, &example.plan), MR_OK);
  assert_true(fabs(example.plan.step_seconds - 12e-3) < 1e-9);
}

/* 2 MB come in 2 ms of the first two ops, which lose a quarter of a second to a GB. */
static void ops_lose_time_to_bytes_that_move(void **state) {
  (void)state;
  struct example example;
  example_init(&example);
  const double op_seconds[OPS] = {1e-3, 2e-3, 3e-3};
  struct mr_plan_problem problem = {
      .program = &example.graph, .op_seconds = op_seconds, .nvme_op_seconds_per_byte = 0.25e-9};
  struct mr_instruction read = {.instance = INSTANCES - 1};
  example.instances[INSTANCES - 1].bytes = 2000000;
  example.plan.instructions[MR_QUEUE_OF(MR_LINK_NVME_READ)] = &read;
  example.plan.instruction_count[MR_QUEUE_OF(MR_LINK_NVME_READ)] = 1;
  for (uint32_t link = 0; link < MR_LINK_COUNT; link++) {
    problem.link[link].bytes_per_second = 1e9;
  }
  assert_int_equal(mr_program_plan_simulate(&problem, &example.plan), MR_OK);
  assert_true(fabs(example.plan.step_seconds - 6.5e-3) < 1e-9);
  /* However dear a byte is, ops go on: a quarter of 2 ms is done meanwhile. */
  problem.nvme_op_seconds_per_byte = 1;
  assert_int_equal(mr_program_plan_simulate(&problem, &example.plan), MR_OK);
  assert_true(fabs(example.plan.step_seconds - 7.5e-3) < 1e-9);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(neighbours_that_came_together_are_one_move),
      cmocka_unit_test(pages_in_their_place_do_not_move),
      cmocka_unit_test(pages_that_follow_one_another_stay_at_home),
      cmocka_unit_test(the_same_pages_are_one_range),
      cmocka_unit_test(a_step_takes_its_ops_and_its_moves),
      cmocka_unit_test(ops_lose_time_to_bytes_that_move),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The n-th allocation fails, for every n: the graph's copies, the menu, the pass and the verifier
 * pass the failure up, leave nothing behind (the sanitizer's leak check sees it) and work the next
 * time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "model/program.h"
#include "plan/plan.h"
#include "recompute/recompute.h"
#include "unit/failing_memory.h"

struct world {
  struct mr_graph *graph;
  double *seconds;
  struct mr_recompute_menu menu;
  uint32_t *selected;
  struct mr_plan_problem problem;
  struct mr_program_plan *plan;
};

static mr_status copy_tensors(void *context) {
  const struct world *world = context;
  struct mr_graph *copy = NULL;
  mr_status status = mr_graph_copy_tensors(world->graph, &copy);
  if (status == MR_OK) {
    mr_graph_destroy(copy);
  }
  return status;
}

static mr_status list_accesses(void *context) {
  const struct world *world = context;
  struct mr_liveness liveness;
  mr_status status = mr_liveness_init(&liveness, world->graph);
  if (status == MR_OK) {
    mr_liveness_fini(&liveness);
  }
  return status;
}

static mr_status make_menu(void *context) {
  const struct world *world = context;
  struct mr_recompute_menu menu;
  mr_status status = mr_recompute_menu_init(&menu, world->graph, world->seconds);
  if (status == MR_OK) {
    mr_recompute_menu_fini(&menu);
  }
  return status;
}

static mr_status apply_menu(void *context) {
  const struct world *world = context;
  struct mr_graph *program = NULL;
  mr_status status = mr_recompute_apply(&world->menu, world->graph, world->selected, &program);
  if (status == MR_OK) {
    mr_graph_destroy(program);
  }
  return status;
}

static mr_status verify(void *context) {
  const struct world *world = context;
  return mr_program_plan_verify(&world->problem, world->plan);
}

static void world_make(struct world *world) {
  struct model_options options = {
      .layers = 2, .micro_steps = 1, .layer_ops = 4, .small_bytes = 2048, .large_bytes = 16384};
  *world = (struct world){.graph = model_program_create(3, &options)};
  world->seconds = mr_allocate(world->graph->op_count, sizeof *world->seconds);
  for (mr_op_id k = 0; k < world->graph->op_count; k++) {
    world->seconds[k] = 1e-6 * (k + 1);
  }
  assert_int_equal(mr_recompute_menu_init(&world->menu, world->graph, world->seconds), MR_OK);
  world->selected = mr_allocate(world->menu.block_count, sizeof *world->selected);
  for (uint32_t i = 0; i < world->menu.block_count; i++) {
    world->selected[i] = world->menu.blocks[i].choice_count - 1;
  }
  world->problem = (struct mr_plan_problem){
      .program = world->graph,
      .op_seconds = world->seconds,
      .budget_bytes = {UINT64_MAX, UINT64_MAX, UINT64_MAX},
      .page_bytes = 4096,
      .extent_unit_bytes = 4096,
  };
  for (uint32_t link = 0; link < MR_LINK_COUNT; link++) {
    world->problem.link[link] = (struct mr_link_rate){1e9, 1e-6};
  }
  assert_int_equal(mr_program_plan_make(&world->problem, &world->plan), MR_OK);
}

static void world_free(struct world *world) {
  mr_program_plan_destroy(world->plan);
  mr_recompute_menu_fini(&world->menu);
  free(world->selected);
  free(world->seconds);
  mr_graph_destroy(world->graph);
}

static void every_failure_goes_up(void **state) {
  (void)state;
  static const struct {
    const char *name;
    mr_status (*run)(void *world);
  } cases[] = {{"copy", copy_tensors},
               {"accesses", list_accesses},
               {"menu", make_menu},
               {"pass", apply_menu},
               {"verifier", verify}};
  struct world world;
  world_make(&world);
  for (size_t i = 0; i < MR_COUNT_OF(cases); i++) {
    uint32_t failures = failing_memory_each(cases[i].run, &world);
    print_message("%s: %u allocations\n", cases[i].name, failures);
    assert_true(failures > 0);
  }
  world_free(&world);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_failure_goes_up)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

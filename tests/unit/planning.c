/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/planning.h: which programs are planned. The machine is one that is written down, so that
 * nothing depends on the one that tests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "runtime/planning.h"
#include "runtime/whatif.h"
#include "unit/plan_programs.h"

/* A step whose update has large scratch and stands where an activation is wanted once more: done in
 * the next step, before the activation is made anew, it needs less room. */
static struct mr_graph *make_step(void) {
  const mr_tensor_id none = MR_NO_TENSOR;
  struct mr_graph *graph = NULL;
  assert_int_equal(mr_graph_create(&graph), MR_OK);
  mr_tensor_id weight = plan_add_tensor(graph, MR_PARAMETER, MR_MIB);
  mr_tensor_id activation = plan_add_tensor(graph, MR_ACTIVATION, 8 * MR_MIB);
  mr_tensor_id gradient = plan_add_tensor(graph, MR_GRADIENT, MR_MIB);
  mr_tensor_id loss = plan_add_tensor(graph, MR_ACTIVATION, MR_MIB);
  (void)plan_add_op(graph, (mr_tensor_id[]){weight, none}, (mr_tensor_id[]){activation, none}, 0);
  (void)plan_add_op(graph, (mr_tensor_id[]){activation, weight, none},
                    (mr_tensor_id[]){gradient, none}, 0);
  mr_op_id update = plan_add_op(graph, (mr_tensor_id[]){gradient, weight, none},
                                (mr_tensor_id[]){weight, none}, 4 * MR_MIB);
  (void)plan_add_op(graph, (mr_tensor_id[]){activation, none}, (mr_tensor_id[]){loss, none}, 0);
  graph->ops[update].flags |= MR_OP_DEFERRABLE | MR_OP_TRAIN_ONLY;
  return graph;
}

static struct mr_plan *make_plan(const struct mr_graph *graph, uint64_t device_bytes,
                                 mr_defer defer) {
  struct mr_options options;
  struct mr_plan *plan = NULL;
  mr_options_init(&options);
  options.profile_path = SHED_PROFILE;
  options.device_bytes = device_bytes;
  options.host_bytes = MR_MIB;
  options.offload = MR_OFFLOAD_NONE;
  options.defer = defer;
  assert_int_equal(mr_plan_create(graph, &options, &plan), MR_OK);
  return plan;
}

static uint64_t smallest_bytes(const struct mr_graph *graph, uint64_t device_bytes,
                               mr_defer defer) {
  struct mr_plan *plan = make_plan(graph, device_bytes, defer);
  assert_false(plan->layout->fits);
  uint64_t bytes = plan->layout->smallest_device_bytes;
  mr_plan_destroy(plan);
  return bytes;
}

static void updates_are_deferred_where_only_that_fits(void **state) {
  (void)state;
  struct mr_graph *graph = make_step();
  uint64_t in_place = smallest_bytes(graph, 4096, MR_DEFER_NEVER);
  uint64_t smallest = smallest_bytes(graph, 4096, MR_DEFER_AUTO);
  assert_true(smallest < in_place);
  assert_int_equal(smallest_bytes(graph, 4096, MR_DEFER_ALWAYS), smallest);
  assert_int_equal(smallest_bytes(graph, smallest - 1, MR_DEFER_AUTO), smallest);
  assert_int_equal(smallest_bytes(graph, smallest, MR_DEFER_NEVER), in_place);

  struct mr_plan *plan = make_plan(graph, smallest, MR_DEFER_AUTO);
  assert_true(plan->layout->fits);
  assert_int_equal(plan->deferred_op_count, 1);
  assert_int_equal(mr_plan_verify(plan), MR_OK);
  mr_plan_destroy(plan);

  /* With room for either there is nothing to defer for; the smallest budget is the same. */
  struct mr_interview interview;
  plan = make_plan(graph, 64 * MR_MIB, MR_DEFER_AUTO);
  assert_int_equal(plan->deferred_op_count, 0);
  assert_int_equal(mr_whatif_ask(plan, MR_MIB, 2, &interview), MR_OK);
  assert_int_equal(interview.smallest_device_bytes, smallest);
  mr_plan_destroy(plan);
  mr_graph_destroy(graph);
}

/* What is asked about a plan that was to defer is answered by plans that do. */
static void questions_defer_where_the_plan_had_to(void **state) {
  (void)state;
  struct mr_graph *graph = make_step();
  struct mr_plan *plan = make_plan(graph, 64 * MR_MIB, MR_DEFER_ALWAYS);
  assert_int_equal(plan->deferred_op_count, 1);
  struct mr_plan trial = *plan;
  trial.layout = NULL;
  trial.rewritten = NULL;
  trial.op_seconds = NULL;
  trial.deferred_op_count = 0;
  trial.problem.budget_bytes[MR_TIER_DEVICE] *= 2;
  assert_int_equal(mr_planning_search_like(&trial, plan->problem.program), MR_OK);
  assert_int_equal(trial.deferred_op_count, 1);
  mr_planning_clear(&trial);
  mr_plan_destroy(plan);
  mr_graph_destroy(graph);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(updates_are_deferred_where_only_that_fits),
      cmocka_unit_test(questions_defer_where_the_plan_had_to),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

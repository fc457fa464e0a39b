/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Published vectors of a swap planner: five kernels that add tensors of 32 bytes in a chain, with a
 * workspace of 4 bytes each, and what they need at least. Plans work in pages of 4 KiB, so every
 * byte of the vectors is a kilobyte here: a workspace is one page and a tensor eight, nothing is
 * rounded, and each statement keeps its meaning.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>

#include "unit/plan_programs.h"

#define UNIT      1024u /* for one byte of the vectors */
#define TENSOR    (32u * UNIT)
#define WORKSPACE (4u * UNIT)
#define WEIGHTS   5
#define END       MR_NO_TENSOR

struct vector {
  struct mr_graph *graph;
  double *op_seconds;
  struct mr_plan_problem problem;
};

/* x1 .. x5 are weights; s1 = x1 + x2, s2 = s1 + x3, s3 = s2 + x4, s4 = s3 + x5, and last
 * s4 + s1, or s4 + s1 + s2. */
static void vector_init(struct vector *vector, bool adds_three) {
  struct mr_graph *graph = NULL;
  assert_int_equal(mr_graph_create(&graph), MR_OK);
  mr_tensor_id x[WEIGHTS];
  mr_tensor_id s[WEIGHTS];
  for (int i = 0; i < WEIGHTS; i++) {
    x[i] = plan_add_tensor(graph, MR_PARAMETER, TENSOR);
  }
  for (int i = 0; i < WEIGHTS; i++) {
    s[i] = plan_add_tensor(graph, MR_ACTIVATION, TENSOR);
  }
  for (int i = 0; i < WEIGHTS - 1; i++) {
    const mr_tensor_id inputs[] = {i == 0 ? x[0] : s[i - 1], x[i + 1], END};
    const mr_tensor_id outputs[] = {s[i], END};
    plan_add_op(graph, inputs, outputs, WORKSPACE);
  }
  const mr_tensor_id inputs[] = {s[3], s[0], adds_three ? s[1] : END, END};
  const mr_tensor_id outputs[] = {s[4], END};
  plan_add_op(graph, inputs, outputs, WORKSPACE);
  vector->graph = graph;
  vector->op_seconds = plan_op_seconds(graph, 1e-3);
  plan_problem_init(&vector->problem, graph);
  vector->problem.op_seconds = vector->op_seconds;
  vector->problem.budget_bytes[MR_TIER_NVME] = UINT64_MAX;
}

static void vector_fini(struct vector *vector) {
  free(vector->op_seconds);
  mr_graph_destroy(vector->graph);
}

/* A plan under budgets in the vectors' bytes; what fits is verified. */
static struct mr_program_plan *plan(struct vector *vector, uint64_t host, uint64_t device) {
  struct mr_program_plan *plan = NULL;
  vector->problem.budget_bytes[MR_TIER_HOST] = host * UNIT;
  vector->problem.budget_bytes[MR_TIER_DEVICE] = device * UNIT;
  assert_int_equal(mr_program_plan_make(&vector->problem, &plan), MR_OK);
  if (plan->fits) {
    assert_int_equal(mr_program_plan_verify(&vector->problem, plan), MR_OK);
    uint64_t device_bytes = plan->small_bytes + plan->device_page_count * plan->page_bytes;
    assert_true(device_bytes <= device * UNIT);
    assert_true(plan->host_page_count * mr_plan_host_page_bytes(plan->page_bytes) <= host * UNIT);
  }
  return plan;
}

static uint64_t moved_bytes(const struct mr_program_plan *plan) {
  uint64_t bytes = 0;
  for (int link = 0; link < MR_LINK_COUNT; link++) {
    bytes += plan->moved_bytes[link];
  }
  return bytes;
}

static void least_memory_is(struct vector *vector, uint64_t least) {
  struct mr_program_plan *refused = plan(vector, 10000, least - 4);
  assert_false(refused->fits);
  assert_int_equal(refused->smallest_device_bytes, least * UNIT);
  mr_program_plan_destroy(refused);
  struct mr_program_plan *enough = plan(vector, 10000, least);
  assert_true(enough->fits);
  mr_program_plan_destroy(enough);
}

static void the_chain_needs_100_bytes(void **state) {
  (void)state;
  struct vector vector;
  vector_init(&vector, false);
  least_memory_is(&vector, 100);
  vector_fini(&vector);
}

static void adding_three_at_last_needs_132_bytes(void **state) {
  (void)state;
  struct vector vector;
  vector_init(&vector, true);
  least_memory_is(&vector, 132);
  vector_fini(&vector);
}

static void nothing_moves_where_all_fits(void **state) {
  (void)state;
  struct vector vector;
  vector_init(&vector, false);
  struct mr_program_plan *made = plan(&vector, 10000, 10000);
  assert_true(made->fits);
  assert_int_equal(moved_bytes(made), 0);
  mr_program_plan_destroy(made);
  vector_fini(&vector);
}

/* Of five weights of 32 bytes the device has room for one beside 100 bytes, a host of 100 bytes for
 * three: with the small host NVMe takes the rest, and without NVMe there is no plan. */
static void a_device_of_136_bytes_is_enough_with_either_host(void **state) {
  (void)state;
  struct vector vector;
  vector_init(&vector, false);
  struct mr_program_plan *large = plan(&vector, 10000, 136);
  assert_true(large->fits);
  assert_true(moved_bytes(large) > 0);
  mr_program_plan_destroy(large);
  struct mr_program_plan *small = plan(&vector, 100, 136);
  assert_true(small->fits);
  assert_true(small->nvme_bytes > 0);
  mr_program_plan_destroy(small);
  vector.problem.budget_bytes[MR_TIER_NVME] = 0;
  struct mr_program_plan *none = plan(&vector, 100, 136);
  assert_false(none->fits);
  mr_program_plan_destroy(none);
  vector_fini(&vector);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_chain_needs_100_bytes),
      cmocka_unit_test(adding_three_at_last_needs_132_bytes),
      cmocka_unit_test(nothing_moves_where_all_fits),
      cmocka_unit_test(a_device_of_136_bytes_is_enough_with_either_host),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

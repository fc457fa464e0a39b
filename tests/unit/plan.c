/* SPDX-License-Identifier: Apache-2.0 */
/* plan/ on small programs with known answers, and on a training step for its speed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/colour.h"
#include "unit/plan_programs.h"

#define PAGE 4096u
#define END  MR_NO_TENSOR

#define LIST(...)                                                                                  \
  ((const mr_tensor_id[]){__VA_ARGS__, END}) /* operands of an op, ended as plan_add_op wants it   \
                                              */
#define NONE ((const mr_tensor_id[]){END})

struct fixture {
  struct mr_graph *graph;
  double *op_seconds;
  struct mr_plan_problem problem;
};

static void fixture_init(struct fixture *fixture, struct mr_graph *graph) {
  fixture->graph = graph;
  fixture->op_seconds = plan_op_seconds(graph, 1e-3);
  plan_problem_init(&fixture->problem, graph);
  fixture->problem.op_seconds = fixture->op_seconds;
}

static void fixture_fini(struct fixture *fixture) {
  free(fixture->op_seconds);
  mr_graph_destroy(fixture->graph);
}

static struct mr_graph *new_graph(void) {
  struct mr_graph *graph = NULL;
  assert_int_equal(mr_graph_create(&graph), MR_OK);
  return graph;
}

static struct mr_program_plan *make(struct fixture *fixture, uint64_t device_pages) {
  struct mr_program_plan *plan = NULL;
  fixture->problem.budget_bytes[MR_TIER_DEVICE] = device_pages * PAGE;
  assert_int_equal(mr_program_plan_make(&fixture->problem, &plan), MR_OK);
  if (plan->fits) {
    assert_int_equal(mr_program_plan_verify(&fixture->problem, plan), MR_OK);
  }
  return plan;
}

/* a is made first and read last; between them b of the same size is made and dies. */
static struct mr_graph *sandwich(void) {
  struct mr_graph *graph = new_graph();
  mr_tensor_id a = plan_add_tensor(graph, MR_ACTIVATION, 10 * PAGE);
  mr_tensor_id b = plan_add_tensor(graph, MR_ACTIVATION, 10 * PAGE);
  mr_tensor_id loss = plan_add_tensor(graph, MR_STATE, 4);
  (void)plan_add_op(graph, NONE, LIST(a), 0);
  (void)plan_add_op(graph, NONE, LIST(b), 0);
  (void)plan_add_op(graph, LIST(b), LIST(loss), 0);
  (void)plan_add_op(graph, LIST(a), LIST(loss), 0);
  return graph;
}

static void crowded_activation_goes_and_comes_back(void **state) {
  (void)state;
  struct fixture f;
  fixture_init(&f, sandwich());
  f.problem.budget_bytes[MR_TIER_NVME] = UINT64_MAX;
  struct mr_program_plan *plan = make(&f, 11); /* one of them and the small arena */
  assert_true(plan->fits);
  assert_int_equal(plan->device_page_count, 10);
  assert_int_equal(plan->small_bytes, PAGE);
  assert_int_equal(plan->footprint_bytes, 21 * PAGE);
  assert_int_equal(plan->instruction_count[MR_QUEUE_OF(MR_LINK_NVME_WRITE)], 1);
  assert_int_equal(plan->instruction_count[MR_QUEUE_OF(MR_LINK_NVME_READ)], 1);
  assert_int_equal(plan->moved_bytes[MR_LINK_NVME_WRITE], 10 * PAGE);
  assert_int_equal(plan->nvme_bytes, 10 * PAGE);
  /* Nothing overlaps: four ops, 41 ms out, 41 ms in. */
  double moves = 2 * (10.0 * PAGE / 1e6 + 1e-6);
  assert_true(plan->step_seconds > 0.0039 + moves && plan->step_seconds < 0.0041 + moves);
  mr_program_plan_destroy(plan);
  plan = make(&f, 21);
  assert_true(plan->fits);
  assert_int_equal(plan->gap_count, 2);
  assert_int_equal(plan->gaps[0].decision, MR_DECISION_KEEP);
  assert_true(plan->step_seconds > 0.0039 && plan->step_seconds < 0.0041);
  mr_program_plan_destroy(plan);
  fixture_fini(&f);
}

static void refusal_names_what_would_do(void **state) {
  (void)state;
  struct fixture f;
  fixture_init(&f, sandwich());
  struct mr_program_plan *plan = make(&f, 20); /* nowhere to go */
  assert_false(plan->fits);
  assert_int_equal(plan->failed_tier, MR_TIER_DEVICE);
  assert_int_equal(plan->smallest_device_bytes, 21 * PAGE);
  mr_program_plan_destroy(plan);
  f.problem.budget_bytes[MR_TIER_HOST] = 10 * PAGE;
  plan = make(&f, 10);
  assert_false(plan->fits);
  assert_int_equal(plan->smallest_device_bytes, 11 * PAGE);
  assert_int_equal(plan->largest_op_bytes, 10 * PAGE + 4);
  mr_program_plan_destroy(plan);
  f.problem.budget_bytes[MR_TIER_HOST] = 9 * PAGE;
  plan = make(&f, 11);
  assert_false(plan->fits);
  assert_int_equal(plan->failed_tier, MR_TIER_HOST);
  assert_int_equal(plan->smallest_device_bytes, 21 * PAGE);
  mr_program_plan_destroy(plan);
  fixture_fini(&f);
}

/* Where NVMe is short, what fits while moves happen when they must need not fit once they run
 * ahead: the budget that a refusal names will do all the same. */
static void what_a_refusal_names_does_where_nvme_is_short(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 40; seed++) {
    struct fixture f;
    struct mr_random random;
    mr_random_init(&random, seed);
    uint32_t layers = 1 + (uint32_t)mr_random_below(&random, 2);
    uint32_t per_layer = 1 + (uint32_t)mr_random_below(&random, 3);
    fixture_init(&f, plan_copies_graph(layers, per_layer, 15 * PAGE, 6 * PAGE));
    f.problem.search_rounds = 3;
    for (uint32_t k = 0; k < mr_graph_op_count(f.graph); k++) {
      f.op_seconds[k] = 1e-3 * mr_random_unit(&random);
    }
    for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
      f.problem.link[l].bytes_per_second = 1e9 * (0.01 + mr_random_unit(&random));
    }
    uint64_t copies = 100ull * PAGE * layers * per_layer;
    f.problem.budget_bytes[MR_TIER_NVME] = mr_random_below(&random, copies);
    struct mr_program_plan *plan = make(&f, 1);
    uint64_t smallest = plan->smallest_device_bytes;
    assert_true(!plan->fits && smallest % PAGE == 0);
    mr_program_plan_destroy(plan);
    plan = make(&f, smallest / PAGE);
    if (!plan->fits) {
      fail_msg("seed %llu: %llu bytes should do", (unsigned long long)seed,
               (unsigned long long)smallest);
    }
    mr_program_plan_destroy(plan);
    fixture_fini(&f);
  }
}

/* A weight that is only read is fetched for each use and never written back. */
static void clean_parameter_is_dropped(void **state) {
  (void)state;
  struct mr_graph *graph = new_graph();
  mr_tensor_id w = plan_add_tensor(graph, MR_PARAMETER, 8 * PAGE);
  mr_tensor_id v = plan_add_tensor(graph, MR_PARAMETER, 8 * PAGE);
  mr_tensor_id loss = plan_add_tensor(graph, MR_STATE, 4);
  for (uint32_t i = 0; i < 2; i++) {
    (void)plan_add_op(graph, LIST(w), LIST(loss), 0);
    (void)plan_add_op(graph, LIST(v), LIST(loss), 0);
  }
  struct fixture f;
  fixture_init(&f, graph);
  f.problem.budget_bytes[MR_TIER_HOST] = 16 * PAGE;
  struct mr_program_plan *plan = make(&f, 9);
  assert_true(plan->fits);
  assert_int_equal(plan->instruction_count[MR_QUEUE_OF(MR_LINK_HOST_TO_DEVICE)], 4);
  assert_int_equal(plan->instruction_count[MR_QUEUE_OF(MR_LINK_DEVICE_TO_HOST)], 0);
  assert_int_equal(plan->homes[w].tier, MR_TIER_HOST);
  assert_int_equal(plan->homes[v].tier, MR_TIER_HOST);
  assert_int_equal(plan->host_page_count, 16);
  mr_program_plan_destroy(plan);
  fixture_fini(&f);
}

/* Tensors of nine pages take 16 on the device, where pages are mapped by eight, and nine below. */
static void host_is_counted_in_smaller_pages(void **state) {
  (void)state;
  struct mr_graph *graph = new_graph();
  mr_tensor_id w = plan_add_tensor(graph, MR_PARAMETER, 9 * PAGE);
  mr_tensor_id v = plan_add_tensor(graph, MR_PARAMETER, 9 * PAGE);
  mr_tensor_id loss = plan_add_tensor(graph, MR_STATE, 4);
  (void)plan_add_op(graph, LIST(w), LIST(loss), 0);
  (void)plan_add_op(graph, LIST(v), LIST(loss), 0);
  struct fixture f;
  fixture_init(&f, graph);
  f.problem.page_bytes = 8 * PAGE;
  f.problem.budget_bytes[MR_TIER_HOST] = 18 * PAGE;
  struct mr_program_plan *plan = make(&f, 8 + 16);
  assert_true(plan->fits);
  assert_int_equal(plan->device_page_count, 2);
  assert_int_equal(plan->host_page_count, 18);
  assert_int_equal(mr_program_plan_host_bytes(plan), 18 * PAGE);
  mr_program_plan_destroy(plan);
  f.problem.budget_bytes[MR_TIER_HOST] = 18 * PAGE - 1;
  plan = make(&f, 8 + 16);
  assert_false(plan->fits);
  mr_program_plan_destroy(plan);
  fixture_fini(&f);
}

static void untouched_parameter_rests_below(void **state) {
  (void)state;
  struct mr_graph *graph = new_graph();
  mr_tensor_id idle = plan_add_tensor(graph, MR_PARAMETER, 8 * PAGE);
  mr_tensor_id w = plan_add_tensor(graph, MR_PARAMETER, 8 * PAGE);
  (void)plan_add_op(graph, LIST(w), LIST(w), 0);
  struct fixture f;
  fixture_init(&f, graph);
  f.problem.budget_bytes[MR_TIER_NVME] = UINT64_MAX;
  struct mr_program_plan *plan = make(&f, 8);
  assert_true(plan->fits);
  assert_int_equal(plan->homes[idle].tier, MR_TIER_NVME);
  assert_int_equal(plan->homes[w].tier, MR_TIER_DEVICE);
  assert_int_equal(plan->instruction_count[MR_QUEUE_OF(MR_LINK_NVME_READ)], 0);
  mr_program_plan_destroy(plan);
  fixture_fini(&f);
}

static void small_tensors_share_their_arena(void **state) {
  (void)state;
  struct mr_graph *graph = new_graph();
  mr_tensor_id bias = plan_add_tensor(graph, MR_PARAMETER, 100);
  mr_tensor_id a = plan_add_tensor(graph, MR_ACTIVATION, 1000);
  mr_tensor_id b = plan_add_tensor(graph, MR_ACTIVATION, 900);
  (void)plan_add_op(graph, LIST(bias), LIST(a), 64);
  (void)plan_add_op(graph, LIST(a), LIST(bias), 0);
  (void)plan_add_op(graph, LIST(bias), LIST(b), 0);
  struct fixture f;
  fixture_init(&f, graph);
  struct mr_program_plan *plan = make(&f, 1);
  assert_true(plan->fits);
  assert_int_equal(plan->device_page_count, 0);
  uint64_t offsets[3];
  for (uint32_t i = 0; i < plan->instance_count; i++) {
    const struct mr_instance *instance = &plan->instances[i];
    assert_true(instance->small);
    assert_int_equal(instance->small_offset % 64, 0);
    if (instance->tensor != MR_NO_TENSOR) {
      offsets[instance->tensor] = instance->small_offset;
    }
  }
  assert_int_equal(offsets[bias], 0);
  assert_int_equal(offsets[a], 128);
  assert_int_equal(offsets[b], 128); /* a is dead by then */
  mr_program_plan_destroy(plan);
  fixture_fini(&f);
}

static void wrapping_stays_lend_their_pages(void **state) {
  (void)state;
  /* Item 0 goes round the end of 10 ops; 1 fits into its hole, 2 does not. */
  const struct mr_colour_item items[] = {
      {.first_op = 8, .last_op = 12, .page_count = 2, .first_page = 0, .like = UINT32_MAX},
      {.first_op = 3, .last_op = 7, .page_count = 2, .first_page = 2, .like = UINT32_MAX},
      {.first_op = 5, .last_op = 9, .page_count = 1, .first_page = 4, .like = UINT32_MAX},
  };
  uint32_t pages[5];
  uint64_t count = 0;
  assert_int_equal(mr_colour(items, 3, 10, 3, MR_COLOUR_PAGES, pages, &count), MR_OK);
  assert_int_equal(count, 3);
  assert_int_equal(pages[2], pages[0]);
  assert_int_equal(pages[3], pages[1]);
  assert_int_equal(pages[4], 2);
}

/* Links that are busy for less than half of the step hide behind it, whatever the budget. */
/* Activations of 19 MiB, which waste a twentieth of pages of 2 MiB, made one after the other and
 * read backwards. */
#define STACK 16u
static struct mr_graph *stack(void) {
  struct mr_graph *graph = new_graph();
  mr_tensor_id loss = plan_add_tensor(graph, MR_STATE, 4);
  mr_tensor_id made[STACK];
  for (uint32_t i = 0; i < STACK; i++) {
    made[i] = plan_add_tensor(graph, MR_ACTIVATION, 19 * MR_MIB);
    (void)plan_add_op(graph, NONE, LIST(made[i]), 0);
  }
  for (uint32_t i = STACK; i-- > 0;) {
    (void)plan_add_op(graph, LIST(made[i]), LIST(loss), 0);
  }
  return graph;
}

static void huge_pages_may_waste_where_memory_is_short(void **state) {
  (void)state;
  struct fixture f;
  fixture_init(&f, stack());
  f.problem.page_bytes = 0;
  f.problem.budget_bytes[MR_TIER_NVME] = UINT64_MAX;
  for (uint32_t huge = 0; huge < 2; huge++) {
    f.problem.huge_pages = huge;
    struct mr_program_plan *roomy = make(&f, 400 * MR_MIB / PAGE);
    struct mr_program_plan *tight = make(&f, 200 * MR_MIB / PAGE);
    assert_true(roomy->fits && tight->fits);
    assert_int_equal(roomy->page_bytes, MR_MIB);
    assert_int_equal(tight->page_bytes, (1 + huge) * MR_MIB);
    /* What is needed at most does not count what might be wasted. */
    assert_int_equal(roomy->footprint_bytes, tight->footprint_bytes);
    mr_program_plan_destroy(roomy);
    mr_program_plan_destroy(tight);
  }
  fixture_fini(&f);
}

static void training_step_hides_its_moves(void **state) {
  (void)state;
  const double parts[] = {0.5, 0.25, 0.125, 0.06};
  struct fixture f;
  fixture_init(&f, plan_training_graph(48, 4, 4 * MR_MIB, MR_MIB));
  f.problem.page_bytes = 0;
  f.problem.budget_bytes[MR_TIER_NVME] = UINT64_MAX;
  f.problem.search_rounds = 20;
  for (uint32_t k = 0; k < mr_graph_op_count(f.graph); k++) {
    f.op_seconds[k] = 0.01;
  }
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    f.problem.link[l].bytes_per_second = 4e9;
  }
  struct mr_program_plan *plan = make(&f, UINT64_MAX / PAGE);
  uint64_t footprint = plan->footprint_bytes;
  mr_program_plan_destroy(plan);
  for (uint32_t i = 0; i < MR_COUNT_OF(parts); i++) {
    double start = mr_clock_seconds();
    plan = make(&f, (uint64_t)(parts[i] * (double)footprint) / PAGE);
    assert_true(plan->fits);
    print_message("%5.3f of the footprint: %.3f s for %.3f s of ops and %.3f s of reads; planned "
                  "and verified in %.0f ms\n",
                  parts[i], plan->step_seconds, plan->compute_seconds,
                  plan->link_seconds[MR_LINK_NVME_READ], 1e3 * (mr_clock_seconds() - start));
    assert_true(plan->step_seconds < 1.01 * plan->compute_seconds);
    mr_program_plan_destroy(plan);
  }
  fixture_fini(&f);
}

/*
 * Ops take no time to speak of; parameters come in during one half of the step, gradients go out
 * during the other. At 30 % of the footprint a plan that looks at what links move in a whole step
 * takes 0.058 s, and little more than half of that where it looks at each part.
 */
static void links_are_priced_where_they_bind(void **state) {
  (void)state;
  struct fixture f;
  fixture_init(&f, plan_training_graph(16, 4, 256 * MR_KIB, 64 * MR_KIB));
  f.problem.search_rounds = 1;
  for (uint32_t k = 0; k < mr_graph_op_count(f.graph); k++) {
    f.op_seconds[k] = 1e-5;
  }
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    f.problem.link[l].bytes_per_second = 1e9;
  }
  struct mr_program_plan *plan = make(&f, UINT64_MAX / PAGE);
  uint64_t footprint = plan->footprint_bytes;
  mr_program_plan_destroy(plan);
  f.problem.budget_bytes[MR_TIER_HOST] = UINT64_MAX;
  plan = make(&f, footprint / 10 * 3 / PAGE);
  assert_true(plan->fits);
  print_message("%.4f s, %.4f s of fetches\n", plan->step_seconds,
                plan->link_seconds[MR_LINK_HOST_TO_DEVICE]);
  assert_true(plan->step_seconds < 0.040);
  mr_program_plan_destroy(plan);
  fixture_fini(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(crowded_activation_goes_and_comes_back),
      cmocka_unit_test(refusal_names_what_would_do),
      cmocka_unit_test(what_a_refusal_names_does_where_nvme_is_short),
      cmocka_unit_test(clean_parameter_is_dropped),
      cmocka_unit_test(host_is_counted_in_smaller_pages),
      cmocka_unit_test(untouched_parameter_rests_below),
      cmocka_unit_test(small_tensors_share_their_arena),
      cmocka_unit_test(wrapping_stays_lend_their_pages),
      cmocka_unit_test(huge_pages_may_waste_where_memory_is_short),
      cmocka_unit_test(training_step_hides_its_moves),
      cmocka_unit_test(links_are_priced_where_they_bind),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Updates on a host that is apart: they and the ways there and back hide behind the device's ops,
 * on a program with known answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/evict_lane.h"
#include "plan/updates.h"
#include "unit/plan_programs.h"

#define PAGE       4096u
#define SIZE       (8 * PAGE) /* of every tensor */
#define LAYERS     12u
#define HOST_OPS   7u /* as many as hide wholly */
#define OP_SECONDS 1e-3
#define END        MR_NO_TENSOR

#define LIST(...)  ((const mr_tensor_id[]){__VA_ARGS__, END})

/* A step: forward ops w x -> y of all layers, then back from the last, for each, backward w y -> g
 * and its update w g m; or all updates from the first layer on behind an op that waits for all g.
 */
struct fixture {
  struct mr_graph *graph;
  double *op_seconds;
  struct mr_plan_problem problem;
  mr_tensor_id weight[LAYERS], state[LAYERS], gradient[LAYERS], activation[LAYERS];
  mr_op_id update[LAYERS];
  mr_op_id norm;
};

static void add_update(struct fixture *f, uint32_t i, mr_tensor_id norm) {
  f->update[i] = plan_add_op(f->graph, LIST(f->weight[i], f->gradient[i], f->state[i], norm),
                             LIST(f->weight[i], f->state[i]), 0);
  f->graph->ops[f->update[i]].flags |= MR_OP_HOST_CAPABLE;
}

static void fixture_init(struct fixture *f, bool clips) {
  *f = (struct fixture){0};
  assert_int_equal(mr_graph_create(&f->graph), MR_OK);
  for (uint32_t i = 0; i < LAYERS; i++) {
    f->weight[i] = plan_add_tensor(f->graph, MR_PARAMETER, SIZE);
    f->state[i] = plan_add_tensor(f->graph, MR_STATE, SIZE);
    f->gradient[i] = plan_add_tensor(f->graph, MR_GRADIENT, SIZE);
    f->activation[i] = plan_add_tensor(f->graph, MR_ACTIVATION, SIZE);
  }
  for (uint32_t i = 0; i < LAYERS; i++) {
    (void)plan_add_op(f->graph, LIST(f->weight[i], i > 0 ? f->activation[i - 1] : END),
                      LIST(f->activation[i]), 0);
  }
  mr_tensor_id norm = END;
  for (uint32_t i = LAYERS; i-- > 0;) {
    (void)plan_add_op(f->graph, LIST(f->weight[i], f->activation[i]), LIST(f->gradient[i]), 0);
    if (clips) {
      mr_tensor_id sum = norm;
      norm = plan_add_tensor(f->graph, MR_ACTIVATION, sizeof(float));
      f->norm = plan_add_op(f->graph, LIST(f->gradient[i], sum), LIST(norm), 0);
    } else {
      add_update(f, i, END);
    }
  }
  for (uint32_t i = 0; i < LAYERS && clips; i++) {
    add_update(f, i, norm);
  }
  f->op_seconds = plan_op_seconds(f->graph, OP_SECONDS);
  plan_problem_init(&f->problem, f->graph);
  f->problem.op_seconds = f->op_seconds;
  f->problem.search_rounds = 32;
  f->problem.budget_bytes[MR_TIER_HOST] = UINT64_MAX;
  f->problem.host_apart = true;
  f->problem.host_bytes_per_second = 1e12;
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    f->problem.link[l].bytes_per_second = SIZE / (2 * OP_SECONDS);
  }
}

static void fixture_fini(struct fixture *f) {
  free(f->op_seconds);
  mr_graph_destroy(f->graph);
}

/* A plan for so many tensors on the device at once. */
static struct mr_program_plan *make(struct fixture *f, uint64_t tensors) {
  f->problem.budget_bytes[MR_TIER_DEVICE] = tensors * SIZE + PAGE; /* and the small arena */
  struct mr_program_plan *plan = plan_make_proven(&f->problem);
  assert_true(plan->fits);
  return plan;
}

static void quiet(void *context, mr_log_level level, const char *line) {
  (void)context;
  (void)level;
  (void)line;
}

static bool runs_on_host(const struct mr_program_plan *plan, mr_op_id op) {
  return plan->instructions[MR_QUEUE_COMPUTE][op].handed_over;
}

/* With room for what the device updates itself, and a gradient or two on their way, the step takes
 * what the device computes: its updates too, and no longer. */
static void they_hide_behind_the_backward_pass(void **state) {
  (void)state;
  struct fixture f;
  for (uint64_t tensors = 30; tensors <= 34; tensors++) {
    fixture_init(&f, false);
    struct mr_program_plan *plan = make(&f, tensors);
    uint32_t host_ops = plan->instruction_count[MR_QUEUE_HOST];
    double device_seconds = (3 * LAYERS - host_ops) * OP_SECONDS;
    assert_int_equal(host_ops, HOST_OPS);
    assert_true(plan->step_seconds < device_seconds + 0.05 * OP_SECONDS);
    mr_program_plan_destroy(plan);
    fixture_fini(&f);
  }
}

/* The last layers' gradients are there first, and their weights wanted last. */
static void those_with_time_to_spare_are_the_hosts(void **state) {
  (void)state;
  struct fixture f;
  fixture_init(&f, false);
  struct mr_program_plan *plan = make(&f, 32);
  for (uint32_t i = 0; i < LAYERS; i++) {
    assert_int_equal(runs_on_host(plan, f.update[i]), i >= LAYERS - HOST_OPS);
  }
  mr_program_plan_destroy(plan);
  fixture_fini(&f);
}

/* The host makes last what is wanted first: what it has made before does not wait behind that. In
 * the order in which weights are wanted, steps take an op longer. */
static void what_is_made_is_not_held_up(void **state) {
  (void)state;
  static const struct {
    uint64_t tensors;
    double ops;
  } cases[] = {{20, 38.1}, {22, 35.1}};
  struct fixture f;
  for (uint32_t i = 0; i < MR_COUNT_OF(cases); i++) {
    fixture_init(&f, false);
    struct mr_program_plan *plan = make(&f, cases[i].tensors);
    assert_true(plan->step_seconds < cases[i].ops * OP_SECONDS);
    mr_program_plan_destroy(plan);
    fixture_fini(&f);
  }
}

/* Moves out go in the order in which they came, but those that the host waits for in its own where
 * one of them is the first. */
static void the_host_is_served_in_its_order(void **state) {
  (void)state;
  static const uint64_t due_at[] = {MR_EVICT_NOT_DUE, 7, 9, MR_EVICT_NOT_DUE, 5, 5};
  static const uint32_t order[] = {0, 4, 5, 1, 2, 3};
  struct mr_evict_lane lane;
  assert_int_equal(mr_evict_lane_init(&lane, MR_LINK_DEVICE_TO_HOST, MR_COUNT_OF(due_at)), MR_OK);
  for (uint32_t turn = 0; turn < 3; turn++) { /* round the end of the ring */
    for (uint32_t gap = 0; gap < MR_COUNT_OF(due_at); gap++) {
      mr_evict_lane_add(&lane, gap, due_at[gap]);
    }
    for (uint32_t i = 0; i < MR_COUNT_OF(order); i++) {
      mr_evict_lane_sort(&lane);
      assert_int_equal(mr_evict_lane_gap(&lane, 0), order[i]);
      mr_evict_lane_drop(&lane);
    }
    mr_evict_lane_sort(&lane);
    assert_int_equal(lane.count, 0);
  }
  mr_evict_lane_fini(&lane);
}

/* The host updates everything, from the first layer on, whose gradient is made last while others
 * still leave: it goes out before them, so that the host need not wait for all. */
static void the_first_update_waits_for_one_gradient(void **state) {
  (void)state;
  struct fixture f;
  fixture_init(&f, true);
  bool *on_host = mr_allocate(f.graph->tensor_count, sizeof *on_host);
  assert_non_null(on_host);
  for (uint32_t i = 0; i < LAYERS; i++) {
    mr_want_on_host(f.graph, f.update[i], on_host);
    f.op_seconds[f.norm - 2 * i] = 0;
  }
  f.problem.on_host = on_host;
  f.problem.host_bytes_per_second = 3e8;
  struct mr_program_plan *plan = make(&f, 2 * LAYERS);
  const struct mr_instruction *first = &plan->instructions[MR_QUEUE_HOST][0];
  double norm_seconds = plan->instructions[MR_QUEUE_COMPUTE][f.norm].end_seconds;
  assert_int_equal(plan->instruction_count[MR_QUEUE_HOST], LAYERS);
  assert_int_equal(first->op, f.update[0]);
  assert_true(first->start_seconds < norm_seconds + 2.1 * OP_SECONDS);
  assert_true(plan->step_seconds < 40 * OP_SECONDS); /* in the order they are made: 41.6 */
  mr_program_plan_destroy(plan);
  free(on_host);
  fixture_fini(&f);
}

/* Some weight is back before the step ends; then the host's bytes rest there still, since the next
 * update reads them. */
static void a_home_on_the_device_has_a_copy(void **state) {
  (void)state;
  struct fixture f;
  fixture_init(&f, false);
  struct mr_program_plan *plan = make(&f, 32);
  uint32_t copies = 0;
  for (uint32_t i = 0; i < LAYERS; i++) {
    struct mr_home *home = &plan->homes[f.weight[i]];
    if (home->copy == MR_TIER_DEVICE) continue;
    copies++;
    assert_int_equal(home->tier, MR_TIER_DEVICE);
    assert_int_equal(home->copy, MR_TIER_HOST);
    assert_int_equal(plan->slots[home->slot].tensor, f.weight[i]);
    home->copy = MR_TIER_DEVICE;
    mr_log_configure(quiet, NULL, MR_LOG_ERROR);
    assert_int_equal(mr_program_plan_verify(&f.problem, plan), MR_CORRUPT);
    mr_log_configure(NULL, NULL, MR_LOG_INFO);
    home->copy = MR_TIER_HOST;
  }
  assert_true(copies > 0);
  mr_program_plan_destroy(plan);
  fixture_fini(&f);
}

/* Ops that the host may run and that only read weights, as an embedding its table, make no weight
 * cheaper to send to NVMe and to have back. */
/* Slots that use a host page of another slot. */
static uint32_t count_shared(const struct mr_program_plan *plan) {
  bool *taken = calloc(plan->host_page_count, sizeof *taken);
  uint32_t shared = 0;
  assert_non_null(taken);
  for (uint32_t i = 0; i < plan->slot_count; i++) {
    const uint32_t *pages = &plan->host_pages[plan->slots[i].first_page];
    shared += plan->slots[i].page_count > 0 && taken[pages[0]];
    for (uint32_t k = 0; k < plan->slots[i].page_count; k++) {
      taken[pages[k]] = true;
    }
  }
  free(taken);
  return shared;
}

/* The verifier refuses slots that are another's too where ops use them: one that goes before its
 * update, and one that gets the pages of a gradient that is still there. */
static void assert_turns_are_proven(const struct fixture *f, struct mr_program_plan *plan) {
  struct mr_slot *slots[2] = {NULL, NULL}; /* of the last two layers, whose gradients come first */
  for (uint32_t i = 0; i < plan->slot_count; i++) {
    for (uint32_t k = 0; k < 2; k++) {
      bool is = plan->slots[i].tensor == f->gradient[LAYERS - 1 - k];
      slots[k] = is ? &plan->slots[i] : slots[k];
    }
  }
  assert_true(slots[0] != NULL && slots[1] != NULL);
  const struct mr_slot before = *slots[0];
  mr_log_configure(quiet, NULL, MR_LOG_ERROR);
  slots[0]->last_op = f->update[LAYERS - 1] - 1;
  assert_int_equal(mr_program_plan_verify(&f->problem, plan), MR_CORRUPT);
  *slots[0] = before;
  slots[0]->first_page = slots[1]->first_page;
  assert_int_equal(mr_program_plan_verify(&f->problem, plan), MR_CORRUPT);
  *slots[0] = before;
  mr_log_configure(NULL, NULL, MR_LOG_WARN);
  assert_int_equal(mr_program_plan_verify(&f->problem, plan), MR_OK);
}

/* A host with room for weights and states and for four gradients runs all updates, as gradients are
 * used up while they come; activations go to NVMe. Where all wait for their norm, each needs a
 * place, and fewer updates have one. With room for all gradients nobody waits for another's place.
 */
static void gradients_take_turns_where_the_host_is_tight(void **state) {
  (void)state;
  bool on_host[4 * LAYERS + LAYERS];
  memset(on_host, 1, sizeof on_host);
  for (uint32_t i = 0; i < 3; i++) {
    bool clips = i == 1, tight = i < 2;
    struct fixture f;
    fixture_init(&f, clips);
    assert_true(f.graph->tensor_count <= MR_COUNT_OF(on_host));
    f.problem.on_host = on_host;
    f.problem.budget_bytes[MR_TIER_HOST] = (tight ? 2 * LAYERS + 4 : 8 * LAYERS) * SIZE + PAGE;
    f.problem.budget_bytes[MR_TIER_NVME] = UINT64_MAX;
    struct mr_program_plan *plan = make(&f, 6);
    uint32_t host_ops = plan->instruction_count[MR_QUEUE_HOST];
    assert_int_equal(count_shared(plan), tight && !clips ? LAYERS - 4 : 0);
    assert_true(clips ? host_ops > 0 && host_ops < LAYERS : host_ops == LAYERS);
    if (count_shared(plan) > 0) {
      assert_turns_are_proven(&f, plan);
    }
    mr_program_plan_destroy(plan);
    fixture_fini(&f);
  }
}

/* Gives what a layer's update uses so many bytes, and returns them. */
static uint64_t size_layer(struct fixture *f, uint32_t layer, uint64_t bytes) {
  f->graph->tensors[f->weight[layer]].bytes = bytes;
  f->graph->tensors[f->state[layer]].bytes = bytes;
  f->graph->tensors[f->gradient[layer]].bytes = bytes;
  return bytes;
}

/* Two places do for gradients of two sizes, since smaller ones find room where larger ones were:
 * all updates run on a host that has no more beside weights and states. */
static void gradients_of_two_sizes_share_two_places(void **state) {
  (void)state;
  bool on_host[4 * LAYERS];
  uint64_t lasting = 0;
  struct fixture f;
  memset(on_host, 1, sizeof on_host);
  fixture_init(&f, false);
  for (uint32_t i = 0; i < LAYERS; i++) {
    lasting += 2 * size_layer(&f, i, i % 3 == 0 ? SIZE / 2 : SIZE);
  }
  assert_true(f.graph->tensor_count <= MR_COUNT_OF(on_host));
  f.problem.on_host = on_host;
  f.problem.budget_bytes[MR_TIER_HOST] = lasting + 2 * SIZE;
  f.problem.budget_bytes[MR_TIER_NVME] = UINT64_MAX;
  struct mr_program_plan *plan = make(&f, 6);
  assert_int_equal(plan->instruction_count[MR_QUEUE_HOST], LAYERS);
  assert_int_equal(count_shared(plan), LAYERS - 2);
  mr_program_plan_destroy(plan);
  fixture_fini(&f);
}

/* A host that has no room for one of the larger updates runs smaller ones, of the layers 0, 3, 6
 * and 9 the two that can hide, though larger ones have more time to spare. */
static void a_crowded_host_runs_small_updates(void **state) {
  (void)state;
  struct fixture f;
  fixture_init(&f, false);
  for (uint32_t i = 0; i < LAYERS; i++) {
    uint64_t bytes = size_layer(&f, i, i % 3 == 0 ? SIZE / 4 : SIZE);
    f.graph->ops[f.update[i]].memory_bytes = 5 * bytes;
  }
  f.problem.budget_bytes[MR_TIER_HOST] = 3 * SIZE - PAGE;
  f.problem.budget_bytes[MR_TIER_NVME] = UINT64_MAX;
  struct mr_program_plan *plan = make(&f, 24);
  for (uint32_t i = 0; i < LAYERS; i++) {
    assert_int_equal(runs_on_host(plan, f.update[i]), i == 6 || i == 9);
  }
  mr_program_plan_destroy(plan);
  fixture_fini(&f);
}

static void what_is_looked_up_moves_as_well(void **state) {
  (void)state;
  double bounds[2];
  for (uint32_t i = 0; i < MR_COUNT_OF(bounds); i++) {
    struct fixture f;
    fixture_init(&f, true);
    for (uint32_t layer = 0; layer < LAYERS && i == 1; layer++) {
      mr_tensor_id row = plan_add_tensor(f.graph, MR_ACTIVATION, sizeof(float));
      mr_op_id op = plan_add_op(f.graph, LIST(f.weight[layer]), LIST(row), 0);
      f.graph->ops[op].flags |= MR_OP_HOST_CAPABLE;
    }
    free(f.op_seconds);
    f.op_seconds = plan_op_seconds(f.graph, OP_SECONDS);
    f.problem.op_seconds = f.op_seconds;
    f.problem.budget_bytes[MR_TIER_DEVICE] = LAYERS * SIZE;
    f.problem.budget_bytes[MR_TIER_HOST] = LAYERS * SIZE;
    f.problem.budget_bytes[MR_TIER_NVME] = UINT64_MAX;
    f.problem.link[MR_LINK_NVME_READ].bytes_per_second /= 16;
    f.problem.link[MR_LINK_NVME_WRITE].bytes_per_second /= 16;
    f.problem.nvme_mixed_bytes_per_second = f.problem.link[MR_LINK_NVME_READ].bytes_per_second;
    assert_int_equal(mr_program_plan_bound(&f.problem, &bounds[i]), MR_OK);
    fixture_fini(&f);
  }
  print_message("bounds: %.4f s, %.4f s with lookups\n", bounds[0], bounds[1]);
  assert_true(bounds[1] >= 0.99 * bounds[0]);
}

/* Fewer ways are looked at in a long program, but what fits does: beside a host with room for some
 * updates, for all, and for none, where NVMe takes what moves. */
static void a_long_program_is_planned_for_any_host(void **state) {
  (void)state;
  struct mr_graph *graph = plan_training_graph(1010, 3, 8 * PAGE, 8 * PAGE);
  double *op_seconds = plan_op_seconds(graph, OP_SECONDS);
  struct mr_plan_problem problem;
  assert_true(graph->op_count > MR_LONG_OPS);
  plan_problem_init(&problem, graph);
  problem.op_seconds = op_seconds;
  problem.host_apart = true;
  problem.host_bytes_per_second = 1e12;
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    problem.link[l].bytes_per_second = 8 * PAGE / (2 * OP_SECONDS);
  }
  problem.budget_bytes[MR_TIER_DEVICE] = UINT64_MAX;
  struct mr_program_plan *whole = plan_make_proven(&problem);
  uint64_t footprint_bytes = whole->footprint_bytes;
  mr_program_plan_destroy(whole);
  const uint64_t host_bytes[] = {footprint_bytes / 16, UINT64_MAX, PAGE};
  uint32_t plans = getenv("MEMRUN_SANITIZE") == NULL ? MR_COUNT_OF(host_bytes) + 1 : 1;
  for (uint32_t i = 0; i < plans; i++) {
    uint64_t host = host_bytes[i % MR_COUNT_OF(host_bytes)];
    problem.search_rounds = i < MR_COUNT_OF(host_bytes);
    problem.budget_bytes[MR_TIER_DEVICE] = footprint_bytes / 3;
    problem.budget_bytes[MR_TIER_HOST] = host;
    problem.budget_bytes[MR_TIER_NVME] = UINT64_MAX;
    struct mr_program_plan *plan = plan_make_proven(&problem);
    assert_true(plan->fits);
    assert_int_equal(plan->footprint_bytes, footprint_bytes);
    assert_true((plan->instruction_count[MR_QUEUE_HOST] > 0) == (host > PAGE));
    mr_program_plan_destroy(plan);
  }
  free(op_seconds);
  mr_graph_destroy(graph);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(they_hide_behind_the_backward_pass),
      cmocka_unit_test(those_with_time_to_spare_are_the_hosts),
      cmocka_unit_test(what_is_made_is_not_held_up),
      cmocka_unit_test(the_host_is_served_in_its_order),
      cmocka_unit_test(the_first_update_waits_for_one_gradient),
      cmocka_unit_test(a_home_on_the_device_has_a_copy),
      cmocka_unit_test(gradients_take_turns_where_the_host_is_tight),
      cmocka_unit_test(gradients_of_two_sizes_share_two_places),
      cmocka_unit_test(a_crowded_host_runs_small_updates),
      cmocka_unit_test(what_is_looked_up_moves_as_well),
      cmocka_unit_test(a_long_program_is_planned_for_any_host),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

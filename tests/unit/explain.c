/* SPDX-License-Identifier: Apache-2.0 */
/* The explanation of plans: phases, holdings and decisions, counted again from the plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/explain.h"
#include "unit/plan_programs.h"

#define ROUNDS    200u
#define LAYERS    6u
#define PAGE      4096u
#define LIST(...) ((const mr_tensor_id[]){__VA_ARGS__, MR_NO_TENSOR})
#define NONE      ((const mr_tensor_id[]){MR_NO_TENSOR})

/* A problem and its plan under a budget between the smallest and the footprint. */
struct draw {
  struct mr_graph *graph;
  double *op_seconds;
  struct mr_plan_problem problem;
  struct mr_program_plan *plan;
};

static void draw_plan(struct draw *draw, struct mr_random *random) {
  draw->op_seconds = plan_op_seconds(draw->graph, 1e-3);
  plan_problem_init(&draw->problem, draw->graph);
  draw->problem.op_seconds = draw->op_seconds;
  draw->problem.search_rounds = 4;
  draw->problem.budget_bytes[MR_TIER_HOST] = mr_random_below(random, 2) * 512 * MR_KIB;
  draw->problem.budget_bytes[MR_TIER_NVME] = UINT64_MAX;
  draw->problem.budget_bytes[MR_TIER_DEVICE] = 1;
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    draw->problem.link[l].bytes_per_second = l < MR_LINK_NVME_READ ? 1e8 : 0.8e8;
  }
  assert_int_equal(mr_program_plan_make(&draw->problem, &draw->plan), MR_OK);
  if (!draw->plan->fits) {
    uint64_t smallest = draw->plan->smallest_device_bytes;
    draw->problem.budget_bytes[MR_TIER_DEVICE] = smallest + mr_random_below(random, smallest);
    mr_program_plan_destroy(draw->plan);
    assert_int_equal(mr_program_plan_make(&draw->problem, &draw->plan), MR_OK);
  }
  assert_true(draw->plan->fits);
}

static void draw_random(struct draw *draw, struct mr_random *random) {
  draw->graph = plan_random_graph(random, 2u << mr_random_below(random, 6), 256 * MR_KIB);
  draw_plan(draw, random);
}

static void draw_fini(struct draw *draw) {
  mr_program_plan_destroy(draw->plan);
  free(draw->op_seconds);
  mr_graph_destroy(draw->graph);
}

static uint64_t sum_of(const struct mr_holding *holding) {
  uint64_t sum = holding->small_bytes + holding->rounding_bytes + holding->idle_bytes;
  for (uint32_t role = 0; role < MR_HELD_ROLES; role++) {
    sum += holding->role_bytes[role];
  }
  return sum;
}

static bool is_there(const struct mr_instance *stay, uint32_t op) {
  if (stay->always) {
    return true;
  }
  return stay->first_op <= stay->last_op ? stay->first_op <= op && op <= stay->last_op
                                         : op >= stay->first_op || op <= stay->last_op;
}

static uint64_t pages_at(const struct mr_program_plan *plan, uint32_t op) {
  uint64_t pages = 0;
  for (uint32_t i = 0; i < plan->instance_count; i++) {
    pages += is_there(&plan->instances[i], op) ? plan->instances[i].page_count : 0;
  }
  return pages;
}

static void holdings_add_up_to_the_peaks(void **state) {
  (void)state;
  struct mr_random random;
  mr_random_init(&random, 21);
  for (uint32_t round = 0; round < ROUNDS; round++) {
    struct draw draw;
    struct mr_holding holdings[MR_TIER_COUNT];
    draw_random(&draw, &random);
    const struct mr_program_plan *plan = draw.plan;
    assert_int_equal(mr_explain_holdings(&draw.problem, plan, holdings), MR_OK);
    assert_int_equal(sum_of(&holdings[MR_TIER_DEVICE]),
                     plan->small_bytes + plan->device_page_count * plan->page_bytes);
    assert_int_equal(sum_of(&holdings[MR_TIER_HOST]),
                     plan->host_page_count * mr_plan_host_page_bytes(plan->page_bytes));
    assert_int_equal(sum_of(&holdings[MR_TIER_NVME]), plan->nvme_bytes);
    uint64_t at_peak = pages_at(plan, holdings[MR_TIER_DEVICE].op);
    assert_int_equal(holdings[MR_TIER_DEVICE].idle_bytes,
                     (plan->device_page_count - at_peak) * plan->page_bytes);
    for (uint32_t k = 0; k < draw.graph->op_count; k++) {
      assert_true(pages_at(plan, k) <= at_peak);
    }
    draw_fini(&draw);
  }
}

/* How long the instructions of a queue whose work does not overlap take in a step. */
static double busy_seconds(const struct mr_program_plan *plan, uint32_t queue) {
  double seconds = 0;
  for (uint32_t i = 0; i < plan->instruction_count[queue]; i++) {
    const struct mr_instruction *work = &plan->instructions[queue][i];
    seconds += work->end_seconds - work->start_seconds;
  }
  return seconds;
}

static void phases_add_up_to_the_step(void **state) {
  (void)state;
  struct mr_random random;
  mr_random_init(&random, 22);
  for (uint32_t round = 0; round < ROUNDS; round++) {
    struct draw draw;
    struct mr_phase_time phases[MR_PHASE_COUNT];
    draw_random(&draw, &random);
    assert_int_equal(mr_explain_phases(draw.plan, phases), MR_OK);
    double seconds = 0;
    double compute = 0;
    double host = 0;
    uint32_t ops = 0;
    for (uint32_t p = 0; p < MR_PHASE_COUNT; p++) {
      seconds += phases[p].seconds;
      compute += phases[p].compute_seconds;
      host += phases[p].host_seconds;
      assert_true(phases[p].compute_seconds <= phases[p].seconds * (1 + 1e-9) + 1e-12);
      ops += phases[p].op_count;
      for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
        assert_true(phases[p].link_seconds[l] <= phases[p].seconds * (1 + 1e-9) + 1e-12);
      }
    }
    assert_int_equal(ops, draw.graph->op_count);
    assert_true(fabs(seconds - draw.plan->step_seconds) <= 1e-9 * draw.plan->step_seconds);
    assert_true(fabs(compute - busy_seconds(draw.plan, MR_QUEUE_COMPUTE)) <= 1e-9 * compute);
    assert_true(fabs(host - busy_seconds(draw.plan, MR_QUEUE_HOST)) <= 1e-9 * compute);
    assert_true(compute >= draw.plan->compute_seconds * (1 - 1e-9));
    draw_fini(&draw);
  }
}

/* Copies run one after another, so that a link is at work for as long as its moves take. */
static void a_copy_link_works_as_long_as_its_moves(void **state) {
  (void)state;
  struct mr_random random;
  mr_random_init(&random, 23);
  uint32_t moving = 0;
  for (uint32_t round = 0; round < ROUNDS; round++) {
    struct draw draw;
    struct mr_phase_time phases[MR_PHASE_COUNT];
    draw_random(&draw, &random);
    assert_int_equal(mr_explain_phases(draw.plan, phases), MR_OK);
    for (uint32_t l = 0; l <= MR_LINK_HOST_TO_DEVICE; l++) {
      double busy = 0;
      for (uint32_t p = 0; p < MR_PHASE_COUNT; p++) {
        busy += phases[p].link_seconds[l];
      }
      double wanted = draw.plan->link_seconds[l];
      moving += wanted > 0;
      assert_true(fabs(busy - wanted) <= 1e-9 * draw.plan->step_seconds);
    }
    draw_fini(&draw);
  }
  assert_true(moving > ROUNDS / 8);
}

static mr_status no_run(const struct mr_op_call *call) {
  (void)call;
  return MR_OK;
}

static void add_op(struct mr_graph *graph, const mr_tensor_id *inputs, mr_tensor_id output,
                   uint32_t flags) {
  uint32_t count = 0;
  while (inputs[count] != MR_NO_TENSOR) {
    count++;
  }
  char name[32];
  snprintf(name, sizeof name, "op%u", mr_graph_op_count(graph));
  struct mr_op_desc desc = {.size_bytes = sizeof desc,
                            .name = name,
                            .kind = "test",
                            .run = {no_run},
                            .inputs = inputs,
                            .input_count = count,
                            .outputs = &output,
                            .output_count = 1,
                            .flags = flags,
                            .block = MR_NO_BLOCK};
  mr_op_id op = 0;
  assert_int_equal(mr_graph_add_op(graph, &desc, &op), MR_OK);
}

static mr_tensor_id add_tensor(struct mr_graph *graph, const char *name, uint32_t number,
                               mr_role role, uint64_t bytes) {
  char text[32];
  snprintf(text, sizeof text, "layer.%u.%s", number, name);
  struct mr_tensor_desc desc = {.size_bytes = sizeof desc,
                                .name = text,
                                .role = role,
                                .dtype = MR_U8,
                                .rank = 1,
                                .shape = {bytes}};
  mr_tensor_id tensor = 0;
  assert_int_equal(mr_graph_add_tensor(graph, &desc, &tensor), MR_OK);
  return tensor;
}

/* Layers whose activations wait for the backward pass; a weight and a moment each; a norm. */
static struct mr_graph *layers_graph(void) {
  struct mr_graph *graph = NULL;
  mr_tensor_id weight[LAYERS];
  mr_tensor_id moment[LAYERS];
  mr_tensor_id activation[LAYERS];
  mr_tensor_id gradient[LAYERS];
  assert_int_equal(mr_graph_create(&graph), MR_OK);
  for (uint32_t i = 0; i < LAYERS; i++) {
    weight[i] = add_tensor(graph, "weight", i, MR_PARAMETER, 4 * PAGE);
    moment[i] = add_tensor(graph, "moment", i, MR_STATE, 4 * PAGE);
    activation[i] = add_tensor(graph, "activation", i, MR_ACTIVATION, 16 * PAGE);
    gradient[i] = add_tensor(graph, "gradient", i, MR_GRADIENT, 4 * PAGE);
  }
  mr_tensor_id norm = add_tensor(graph, "norm", 0, MR_STATE, 4);
  for (uint32_t i = 0; i < LAYERS; i++) {
    add_op(graph, i == 0 ? LIST(weight[0]) : LIST(weight[i], activation[i - 1]), activation[i], 0);
  }
  for (uint32_t i = LAYERS; i-- > 0;) {
    add_op(graph, LIST(activation[i]), gradient[i], MR_OP_TRAIN_ONLY);
  }
  add_op(graph, LIST(gradient[0]), norm, MR_OP_TRAIN_ONLY);
  for (uint32_t i = 0; i < LAYERS; i++) {
    add_op(graph, LIST(gradient[i], moment[i]), moment[i], MR_OP_TRAIN_ONLY);
    add_op(graph, LIST(moment[i], weight[i]), weight[i], MR_OP_TRAIN_ONLY);
  }
  return graph;
}

static void phases_follow_from_flags_and_roles(void **state) {
  (void)state;
  struct mr_graph *graph = layers_graph();
  for (uint32_t k = 0; k < graph->op_count; k++) {
    enum mr_phase wanted = k < LAYERS       ? MR_PHASE_FORWARD
                           : k < 2 * LAYERS ? MR_PHASE_BACKWARD
                                            : MR_PHASE_UPDATE;
    assert_int_equal(mr_phase_of(graph, &graph->ops[k]), wanted);
  }
  mr_graph_destroy(graph);
}

static void names_that_differ_in_numbers_are_alike(void **state) {
  (void)state;
  struct mr_tensor a = {.name = "h.3.mlp.act", .role = MR_ACTIVATION, .bytes = 8};
  struct mr_tensor b = {.name = "h.11.mlp.act", .role = MR_ACTIVATION, .bytes = 8};
  assert_true(mr_explain_alike(&a, &b));
  b.bytes = 9;
  assert_false(mr_explain_alike(&a, &b));
  b.bytes = 8;
  b.role = MR_GRADIENT;
  assert_false(mr_explain_alike(&a, &b));
  b.role = MR_ACTIVATION;
  b.name = "h.11.mlp.ac";
  assert_false(mr_explain_alike(&a, &b));
  b.name = "h.x.mlp.act";
  assert_false(mr_explain_alike(&a, &b));
  b.name = "h.3.mlp.act2";
  assert_false(mr_explain_alike(&a, &b));
}

/* Every byte that moves belongs to one decision; the costliest comes first. */
static void decisions_add_up_to_what_moves(void **state) {
  (void)state;
  struct mr_random random;
  mr_random_init(&random, 24);
  struct draw draw = {.graph = layers_graph()};
  draw_plan(&draw, &random);
  struct mr_decision decisions[64];
  uint32_t count = 0;
  assert_int_equal(mr_explain_decisions(&draw.problem, draw.plan, 64, decisions, &count), MR_OK);
  assert_true(count > 0 && count < 12); /* alike as one: roles and tiers, not layers */
  uint64_t bytes = 0;
  uint64_t moved = 0;
  double seconds = 0;
  double busy = 0;
  for (uint32_t i = 0; i < count; i++) {
    bytes += decisions[i].bytes;
    seconds += decisions[i].seconds;
    assert_true(i == 0 || decisions[i - 1].seconds >= decisions[i].seconds);
    assert_true(decisions[i].tensor_count <= LAYERS);
  }
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    moved += draw.plan->moved_bytes[l];
    busy += draw.plan->link_seconds[l];
  }
  assert_true(moved > 0);
  assert_int_equal(bytes, moved);
  assert_true(fabs(seconds - busy) <= 1e-9 * busy);
  assert_int_equal(mr_explain_decisions(&draw.problem, draw.plan, 1, decisions, &count), MR_OK);
  assert_int_equal(count, 1);
  draw_fini(&draw);
}

/* A ban is kept: nothing of those tensors goes that way. */
static void bans_hold(void **state) {
  (void)state;
  struct mr_random random;
  mr_random_init(&random, 25);
  for (uint32_t round = 0; round < ROUNDS; round++) {
    struct draw draw;
    draw_random(&draw, &random);
    struct mr_plan_ban bans[2];
    mr_tensor_id tensor = (mr_tensor_id)mr_random_below(&random, draw.graph->tensor_count);
    for (uint32_t i = 0; i < 2; i++) {
      bans[i] = (struct mr_plan_ban){tensor, (uint8_t)(MR_DECISION_HOST + i)};
    }
    struct mr_plan_problem problem = draw.problem;
    problem.bans = bans;
    problem.ban_count = 1 + (uint32_t)mr_random_below(&random, 2);
    struct mr_program_plan *plan = NULL;
    assert_int_equal(mr_program_plan_make(&problem, &plan), MR_OK);
    for (uint32_t i = 0; i < plan->gap_count; i++) {
      const struct mr_gap *gap = &plan->gaps[i];
      bool host = gap->decision == MR_DECISION_HOST;
      bool nvme = gap->decision == MR_DECISION_NVME && problem.ban_count == 2;
      assert_false(gap->tensor == tensor && (host || nvme));
    }
    assert_true(!plan->fits || mr_program_plan_verify(&problem, plan) == MR_OK);
    mr_program_plan_destroy(plan);
    draw_fini(&draw);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(holdings_add_up_to_the_peaks),
      cmocka_unit_test(phases_add_up_to_the_step),
      cmocka_unit_test(a_copy_link_works_as_long_as_its_moves),
      cmocka_unit_test(phases_follow_from_flags_and_roles),
      cmocka_unit_test(names_that_differ_in_numbers_are_alike),
      cmocka_unit_test(decisions_add_up_to_what_moves),
      cmocka_unit_test(bans_hold),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Ops on the host: what they save, and where they are not worth it, on programs with known answers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/host.h"
#include "unit/plan_programs.h"

#define PAGE      4096u
#define SIZE      (8 * PAGE) /* of every tensor but the loss */
#define END       MR_NO_TENSOR

#define LIST(...) ((const mr_tensor_id[]){__VA_ARGS__, END})

/*
 * A step of two layers that hold SIZE each of weight, gradient and state:
 *   0 forward: w0 -> a0   1 forward: w1 a0 -> a1   2 backward: w1 a1 -> g1   3 backward: w0 a0 ->
 * g0 4 norm -> loss   5 update: w0 g0 m0   6 update: w1 g1 m1
 */
enum { W0, W1, M0, M1, G0, G1, A0, A1, LOSS };

struct fixture {
  struct mr_graph *graph;
  double *op_seconds;
  struct mr_plan_problem problem;
};

static void fixture_init(struct fixture *f, bool capable) {
  static const mr_role roles[] = {MR_PARAMETER, MR_PARAMETER, MR_STATE,      MR_STATE,
                                  MR_GRADIENT,  MR_GRADIENT,  MR_ACTIVATION, MR_ACTIVATION};
  assert_int_equal(mr_graph_create(&f->graph), MR_OK);
  for (uint32_t t = 0; t < MR_COUNT_OF(roles); t++) {
    assert_int_equal(plan_add_tensor(f->graph, roles[t], SIZE), t);
  }
  assert_int_equal(plan_add_tensor(f->graph, MR_STATE, 4), LOSS);
  (void)plan_add_op(f->graph, LIST(W0), LIST(A0), 0);
  (void)plan_add_op(f->graph, LIST(W1, A0), LIST(A1), 0);
  (void)plan_add_op(f->graph, LIST(W1, A1), LIST(G1), 0);
  (void)plan_add_op(f->graph, LIST(W0, A0), LIST(G0), 0);
  (void)plan_add_op(f->graph, LIST(LOSS), LIST(LOSS), 0);
  mr_op_id updates[] = {plan_add_op(f->graph, LIST(W0, G0, M0), LIST(W0, M0), 0),
                        plan_add_op(f->graph, LIST(W1, G1, M1), LIST(W1, M1), 0)};
  for (uint32_t i = 0; capable && i < MR_COUNT_OF(updates); i++) {
    f->graph->ops[updates[i]].flags |= MR_OP_HOST_CAPABLE;
  }
  f->op_seconds = plan_op_seconds(f->graph, 1e-3);
  plan_problem_init(&f->problem, f->graph);
  f->problem.op_seconds = f->op_seconds;
  f->problem.search_rounds = 8;
  f->problem.budget_bytes[MR_TIER_HOST] = UINT64_MAX;
}

static void fixture_fini(struct fixture *f) {
  free(f->op_seconds);
  mr_graph_destroy(f->graph);
}

/* A plan for so many tensors on the device at once. */
static struct mr_program_plan *make(struct fixture *f, uint64_t tensors) {
  f->problem.budget_bytes[MR_TIER_DEVICE] = tensors * SIZE + PAGE; /* and the small arena */
  return plan_make_proven(&f->problem);
}

static uint64_t moved(const struct mr_program_plan *plan) {
  return plan->moved_bytes[MR_LINK_DEVICE_TO_HOST] + plan->moved_bytes[MR_LINK_HOST_TO_DEVICE];
}

/* The instance that the op has of the tensor. */
static const struct mr_instance *operand(const struct mr_program_plan *plan, mr_op_id op,
                                         mr_tensor_id tensor) {
  for (uint32_t i = plan->first_operand[op]; i < plan->first_operand[op + 1]; i++) {
    const struct mr_instance *instance = &plan->instances[plan->operands[i]];
    if (plan->operands[i] != MR_NO_INSTANCE && instance->tensor == tensor) {
      return instance;
    }
  }
  fail_msg("op %u has no tensor %u", op, tensor);
  return NULL;
}

static void states_rest_and_never_move(void **state) {
  (void)state;
  struct fixture f;
  fixture_init(&f, true);
  /* Weights, gradients and activations: never more than five at once. */
  struct mr_program_plan *plan = make(&f, 5);
  assert_true(plan->fits);
  assert_int_equal(moved(plan), 0);
  assert_int_equal(plan->host_op_count, 2);
  assert_int_equal(plan->host_page_count, 2 * SIZE / PAGE);
  for (mr_tensor_id t = M0; t <= M1; t++) {
    const struct mr_instance *place = operand(plan, 5 + t - M0, t);
    assert_true(place->on_host && place->always);
    assert_int_equal(place->page_count, 0);
    assert_int_equal(plan->homes[t].tier, MR_TIER_HOST);
    assert_int_equal(plan->homes[t].slot, place->slot);
  }
  assert_false(operand(plan, 5, W0)->on_host);
  mr_program_plan_destroy(plan);
  fixture_fini(&f);
}

static void quiet(void *context, mr_log_level level, const char *line) {
  (void)context;
  (void)level;
  (void)line;
}

static void the_verifier_wants_a_capable_op(void **state) {
  (void)state;
  struct fixture f;
  fixture_init(&f, true);
  struct mr_program_plan *plan = make(&f, 5);
  f.graph->ops[5].flags = 0;
  mr_log_configure(quiet, NULL, MR_LOG_ERROR);
  assert_int_equal(mr_program_plan_verify(&f.problem, plan), MR_CORRUPT);
  mr_log_configure(NULL, NULL, MR_LOG_INFO);
  mr_program_plan_destroy(plan);
  fixture_fini(&f);
}

static void nothing_is_on_the_host_where_all_fits(void **state) {
  (void)state;
  struct fixture f;
  fixture_init(&f, true);
  struct mr_program_plan *plan = make(&f, 8);
  assert_true(plan->fits);
  assert_int_equal(plan->host_op_count, 0);
  assert_int_equal(plan->host_page_count, 0);
  mr_program_plan_destroy(plan);
  fixture_fini(&f);
}

static void other_ops_stay_on_the_device(void **state) {
  (void)state;
  struct fixture f;
  fixture_init(&f, false);
  struct mr_program_plan *plan = make(&f, 6);
  assert_true(plan->fits);
  assert_int_equal(plan->host_op_count, 0);
  assert_true(moved(plan) > 0);
  mr_program_plan_destroy(plan);
  fixture_fini(&f);
}

static void a_full_host_takes_what_it_can(void **state) {
  (void)state;
  struct fixture f;
  fixture_init(&f, true);
  bool on_host[LOSS + 1] = {[M0] = true, [M1] = true, [W0] = true};
  f.problem.on_host = on_host;
  f.problem.budget_bytes[MR_TIER_HOST] = 2 * SIZE - PAGE;
  struct mr_program_plan *plan = make(&f, 8);
  assert_true(plan->fits);
  assert_int_equal(plan->host_op_count, 1);
  assert_true(operand(plan, 5, M0)->on_host);
  assert_false(operand(plan, 6, M1)->on_host);
  mr_program_plan_destroy(plan);
  fixture_fini(&f);
}

/* What is put there whatever there is: no plan takes more of the host than its budget. */
static void a_host_that_is_too_small_does_not_fit(void **state) {
  (void)state;
  struct fixture f;
  fixture_init(&f, true);
  bool on_host[LOSS + 1] = {[M0] = true, [M1] = true};
  f.problem.on_host = on_host;
  f.problem.budget_bytes[MR_TIER_DEVICE] = 5 * SIZE + PAGE;
  for (uint64_t pages = 0; pages <= 2 * SIZE / PAGE; pages++) {
    struct mr_program_plan *plan = NULL;
    f.problem.budget_bytes[MR_TIER_HOST] = pages * PAGE;
    assert_int_equal(mr_program_plan_make(&f.problem, &plan), MR_OK);
    assert_int_equal(plan->fits, pages == 2 * SIZE / PAGE);
    mr_program_plan_destroy(plan);
  }
  fixture_fini(&f);
}

static void bans_hold(void **state) {
  (void)state;
  struct fixture f;
  fixture_init(&f, true);
  const struct mr_plan_ban ban = {.tensor = M0, .decision = MR_DECISION_HOST};
  f.problem.bans = &ban;
  f.problem.ban_count = 1;
  struct mr_program_plan *plan = make(&f, 6);
  assert_true(plan->fits);
  assert_false(operand(plan, 5, M0)->on_host);
  assert_true(operand(plan, 6, M1)->on_host);
  mr_program_plan_destroy(plan);
  fixture_fini(&f);
}

/* A weight that is updated on the host comes in once a step and never goes out: before the step
 * ends, so that the next begins with it on the device and on the host. */
static void weights_only_come_in(void **state) {
  (void)state;
  struct fixture f;
  fixture_init(&f, true);
  bool on_host[LOSS + 1] = {[W0] = true};
  f.problem.on_host = on_host;
  struct mr_program_plan *plan = make(&f, 8);
  assert_true(plan->fits);
  assert_int_equal(plan->moved_bytes[MR_LINK_HOST_TO_DEVICE], SIZE);
  assert_int_equal(plan->moved_bytes[MR_LINK_DEVICE_TO_HOST], 0);
  assert_true(operand(plan, 5, W0)->on_host);
  assert_false(operand(plan, 3, W0)->on_host);
  assert_int_equal(plan->homes[W0].tier, MR_TIER_DEVICE);
  assert_int_equal(plan->homes[W0].copy, MR_TIER_HOST);
  assert_int_equal(plan->homes[W0].slot, operand(plan, 5, W0)->slot);
  mr_program_plan_destroy(plan);
  fixture_fini(&f);
}

/* A gradient that is last used on the host goes out once and never comes back. */
static void gradients_only_go_out(void **state) {
  (void)state;
  struct fixture f;
  fixture_init(&f, true);
  bool on_host[LOSS + 1] = {[G1] = true};
  f.problem.on_host = on_host;
  struct mr_program_plan *plan = make(&f, 8);
  assert_true(plan->fits);
  assert_int_equal(plan->moved_bytes[MR_LINK_HOST_TO_DEVICE], 0);
  assert_int_equal(plan->moved_bytes[MR_LINK_DEVICE_TO_HOST], SIZE);
  for (uint32_t i = 0; i < plan->gap_count; i++) {
    assert_int_equal(plan->gaps[i].final, plan->gaps[i].tensor == G1);
  }
  mr_program_plan_destroy(plan);
  fixture_fini(&f);
}

/* What is wanted where it cannot be is left where it is. */
static void impossible_wishes_are_ignored(void **state) {
  (void)state;
  struct fixture f;
  fixture_init(&f, true);
  bool on_host[LOSS + 1] = {[A0] = true, [LOSS] = true};
  f.problem.on_host = on_host;
  f.graph->ops[1].flags |= MR_OP_HOST_CAPABLE; /* the device uses A0 after it */
  struct mr_program_plan *plan = make(&f, 8);
  assert_true(plan->fits);
  assert_int_equal(plan->host_op_count, 0);
  assert_int_equal(moved(plan), 0);
  mr_program_plan_destroy(plan);
  fixture_fini(&f);
}

/* ---- Beside a device whose memory the processor cannot read ---- */

/* The second update, with the loss as a scalar that it reads, on the host. */
static struct mr_program_plan *make_apart(struct fixture *f, bool *on_host) {
  f->problem.host_apart = true;
  f->problem.host_bytes_per_second = 1e9;
  f->problem.on_host = on_host;
  return make(f, 8);
}

static const struct mr_wait *find_wait(const struct mr_program_plan *plan,
                                       const struct mr_instruction *instruction, uint32_t queue) {
  const struct mr_wait *found = NULL;
  for (uint32_t i = 0; i < instruction->wait_count; i++) {
    const struct mr_wait *wait = &plan->waits[instruction->first_wait + i];
    found = wait->queue == queue ? wait : found;
  }
  return found;
}

static void an_op_beside_the_device_has_all_on_the_host(void **state) {
  (void)state;
  struct fixture f;
  fixture_init(&f, true);
  bool on_host[LOSS + 1] = {[M1] = true, [W1] = true, [G1] = true, [M0] = true, [W0] = true};
  struct mr_program_plan *plan = make_apart(&f, on_host); /* G0 is not wanted there */
  assert_true(plan->fits);
  assert_int_equal(plan->host_op_count, 1);
  assert_int_equal(plan->instruction_count[MR_QUEUE_HOST], 1);
  const struct mr_instruction *op = plan->instructions[MR_QUEUE_HOST];
  const struct mr_instruction *compute = plan->instructions[MR_QUEUE_COMPUTE];
  assert_int_equal(op->op, 6);
  assert_true(compute[6].handed_over && !compute[5].handed_over);
  for (uint32_t i = plan->first_operand[6]; i + 1 < plan->first_operand[7]; i++) {
    assert_true(plan->instances[plan->operands[i]].on_host);
  }
  for (uint32_t i = plan->first_operand[5]; i + 1 < plan->first_operand[6]; i++) {
    assert_false(plan->instances[plan->operands[i]].on_host);
  }
  /* The op comes after compute handed it over and the gradient is there; the weight comes back
   * after it, and compute, which reads the weight, hands over again after that. */
  assert_int_equal(find_wait(plan, op, MR_QUEUE_COMPUTE)->count, 7);
  assert_non_null(find_wait(plan, op, MR_QUEUE_OF(MR_LINK_DEVICE_TO_HOST)));
  const struct mr_instruction *in = plan->instructions[MR_QUEUE_OF(MR_LINK_HOST_TO_DEVICE)];
  assert_true(find_wait(plan, in, MR_QUEUE_HOST)->previous_step);
  assert_null(find_wait(plan, &compute[6], MR_QUEUE_HOST));
  assert_true(fabs(plan->host_seconds - 5 * SIZE / 1e9) < 1e-12);
  assert_true(fabs(plan->compute_seconds - 6e-3) < 1e-12);
  mr_program_plan_destroy(plan);
  fixture_fini(&f);
}

static uint32_t count_beside(struct fixture *f) {
  bool on_host[LOSS + 1];
  memset(on_host, 1, sizeof on_host);
  struct mr_program_plan *plan = make_apart(f, on_host);
  uint32_t count = plan->instruction_count[MR_QUEUE_HOST];
  f->problem.on_host = NULL;
  mr_program_plan_destroy(plan);
  return count;
}

static void scalars_are_handed_over(void **state) {
  (void)state;
  struct fixture f;
  fixture_init(&f, true);
  assert_int_equal(count_beside(&f), 2);
  mr_tensor_id scalar = plan_add_tensor(f.graph, MR_STATE, 4);
  mr_tensor_id crowd = plan_add_tensor(f.graph, MR_STATE, PAGE / 2 - 1);
  mr_op_id reader = plan_add_op(f.graph, LIST(M0, scalar, crowd), LIST(M0), 0);
  f.graph->ops[reader].flags |= MR_OP_HOST_CAPABLE;
  free(f.op_seconds);
  f.op_seconds = plan_op_seconds(f.graph, 1e-3);
  f.problem.op_seconds = f.op_seconds;
  bool on_host[LOSS + 3];
  memset(on_host, 1, sizeof on_host);
  struct mr_program_plan *plan = make_apart(&f, on_host);
  assert_int_equal(plan->instruction_count[MR_QUEUE_HOST], 3);
  assert_true(operand(plan, reader, scalar)->small && operand(plan, reader, M0)->on_host);
  mr_program_plan_destroy(plan);
  fixture_fini(&f);
}

/* What an op is handed is memory of the host: without room for that too the device keeps it. */
static void what_is_handed_over_is_in_the_budget(void **state) {
  (void)state;
  struct fixture f;
  fixture_init(&f, true);
  mr_op_id reader = plan_add_op(f.graph, LIST(M0, LOSS), LIST(M0), 0);
  f.graph->ops[reader].flags |= MR_OP_HOST_CAPABLE;
  f.graph->ops[5].flags = f.graph->ops[6].flags = 0;
  free(f.op_seconds);
  f.op_seconds = plan_op_seconds(f.graph, 1e-3);
  f.problem.op_seconds = f.op_seconds;
  bool on_host[LOSS + 1] = {[M0] = true};
  for (uint64_t more = 0; more <= MR_HANDOVER_UNIT; more += MR_HANDOVER_UNIT) {
    f.problem.budget_bytes[MR_TIER_HOST] = SIZE + more;
    struct mr_program_plan *plan = make_apart(&f, on_host);
    assert_int_equal(plan->instruction_count[MR_QUEUE_HOST], more > 0);
    assert_int_equal(mr_program_plan_handover_bytes(plan), more);
    assert_true(mr_program_plan_host_bytes(plan) <= SIZE + more);
    if (more > 0) {
      assert_int_equal(mr_program_plan_host_bytes(plan), SIZE + more);
      f.problem.budget_bytes[MR_TIER_HOST]--;
      mr_log_configure(quiet, NULL, MR_LOG_ERROR);
      assert_int_equal(mr_program_plan_verify(&f.problem, plan), MR_CORRUPT);
      mr_log_configure(NULL, NULL, MR_LOG_INFO);
    }
    mr_program_plan_destroy(plan);
  }
  fixture_fini(&f);
}

static void some_ops_are_the_devices(void **state) {
  (void)state;
  struct fixture f;
  for (uint32_t which = 0; which < 4; which++) {
    fixture_init(&f, true);
    if (which == 0) {
      f.graph->ops[5].scratch_bytes = 64;
    } else if (which == 1) {
      f.graph->ops[5].run[MR_BACKEND_CPU] = NULL;
    } else if (which == 2) {
      f.graph->tensors[M0].bytes = PAGE / 4; /* a small output */
    } else {
      f.problem.budget_bytes[MR_TIER_HOST] = 3 * SIZE;
    }
    assert_int_equal(count_beside(&f), 1);
    fixture_fini(&f);
  }
}

/* A fast host beside a device that would be long about its updates. */
static void the_plan_chooses_the_host_where_that_is_faster(void **state) {
  (void)state;
  struct fixture f;
  for (uint32_t fast = 0; fast < 2; fast++) {
    fixture_init(&f, true);
    f.problem.host_apart = true;
    f.problem.host_bytes_per_second = fast == 1 ? 1e12 : 1e3;
    struct mr_program_plan *plan = make(&f, 4);
    assert_true(plan->fits);
    assert_int_equal(plan->instruction_count[MR_QUEUE_HOST] > 0, fast == 1);
    mr_program_plan_destroy(plan);
    f.problem.host_bytes_per_second = 0;
    plan = make(&f, 4);
    assert_int_equal(plan->instruction_count[MR_QUEUE_HOST], 0);
    mr_program_plan_destroy(plan);
    fixture_fini(&f);
  }
}

/* Where all fits the host may still spare the device its updates, or had better leave them. */
static void a_host_beside_a_device_that_holds_all(void **state) {
  (void)state;
  struct fixture f;
  for (uint32_t fast = 0; fast < 2; fast++) {
    fixture_init(&f, true);
    f.problem.host_apart = true;
    f.problem.host_bytes_per_second = fast == 1 ? 1e12 : 1e3;
    for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
      f.problem.link[l].bytes_per_second = 1e9;
    }
    struct mr_program_plan *plan = make(&f, 8);
    assert_true(plan->fits);
    assert_int_equal(plan->instruction_count[MR_QUEUE_HOST] > 0, fast == 1);
    assert_int_equal(moved(plan) > 0, fast == 1);
    assert_int_equal(plan->step_seconds < 7e-3 * (1 - 1e-9), fast == 1);
    mr_program_plan_destroy(plan);
    fixture_fini(&f);
  }
}

/* Ops there and links share the host's memory: an op beside a move has what that leaves, and never
 * less than its least. Where the memory passes less a step is no shorter, and longer in the end. */
static void moves_take_from_ops_on_the_host(void **state) {
  (void)state;
  struct mr_plan_problem problem = {.host_bytes_per_second = 80, .host_memory_bytes_per_second = 0};
  const double cases[][3] = {{0, 1000, 1},    {120, 0, 1},      {120, 40, 1},
                             {120, 60, 0.75}, {120, 100, 0.25}, {120, 200, MR_HOST_LEAST_PACE}};
  for (uint32_t i = 0; i < MR_COUNT_OF(cases); i++) {
    problem.host_memory_bytes_per_second = cases[i][0];
    assert_true(fabs(mr_host_pace_beside_moves(&problem, cases[i][1]) - cases[i][2]) < 1e-12);
  }
  struct fixture f;
  fixture_init(&f, true);
  f.problem.host_apart = true;
  f.problem.host_bytes_per_second = 1e12;
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    f.problem.link[l].bytes_per_second = 1e9;
  }
  struct mr_program_plan *plan = make(&f, 8);
  assert_true(plan->fits && plan->instruction_count[MR_QUEUE_HOST] > 0 && moved(plan) > 0);
  f.problem.host_bytes_per_second = 3 * SIZE / 1e-3;
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    f.problem.link[l].bytes_per_second = SIZE / 1e-3;
  }
  assert_int_equal(mr_program_plan_simulate(&f.problem, plan), MR_OK);
  double first = plan->step_seconds;
  double before = first;
  for (uint32_t left = 6; left > 0; left--) {
    f.problem.host_memory_bytes_per_second = left * SIZE / 1e-3;
    assert_int_equal(mr_program_plan_simulate(&f.problem, plan), MR_OK);
    assert_true(plan->step_seconds >= before * (1 - 1e-12));
    before = plan->step_seconds;
    assert_true(left < 5 || before <= first * (1 + 1e-12)); /* both ways and the ops are 5 */
  }
  assert_true(before > 1.01 * first);
  mr_program_plan_destroy(plan);
  fixture_fini(&f);
}

/*
 * A table of 8 SIZE whose rows are looked up first, and that the last op on the device reads whole:
 *   0 lookup: t -> x   1 forward: w x -> a   2 head: t a -> g   3 update: t g m
 */
enum { TABLE, WEIGHT, STATE, GRADIENT, ROWS, ACTIVATION };
enum { LOOKUP, FORWARD, HEAD, UPDATE };

static void lookup_init(struct fixture *f, uint64_t rows_bytes) {
  assert_int_equal(mr_graph_create(&f->graph), MR_OK);
  assert_int_equal(plan_add_tensor(f->graph, MR_PARAMETER, 8 * SIZE), TABLE);
  assert_int_equal(plan_add_tensor(f->graph, MR_PARAMETER, 12 * SIZE), WEIGHT);
  assert_int_equal(plan_add_tensor(f->graph, MR_STATE, 8 * SIZE), STATE);
  assert_int_equal(plan_add_tensor(f->graph, MR_GRADIENT, 8 * SIZE), GRADIENT);
  assert_int_equal(plan_add_tensor(f->graph, MR_ACTIVATION, rows_bytes), ROWS);
  assert_int_equal(plan_add_tensor(f->graph, MR_ACTIVATION, SIZE), ACTIVATION);
  mr_op_id lookup = plan_add_op(f->graph, LIST(TABLE), LIST(ROWS), 0);
  (void)plan_add_op(f->graph, LIST(WEIGHT, ROWS), LIST(ACTIVATION), 0);
  (void)plan_add_op(f->graph, LIST(TABLE, ACTIVATION), LIST(GRADIENT), 0);
  mr_op_id update = plan_add_op(f->graph, LIST(TABLE, GRADIENT, STATE), LIST(TABLE, STATE), 0);
  f->graph->ops[lookup].flags |= MR_OP_HOST_CAPABLE;
  f->graph->ops[update].flags |= MR_OP_HOST_CAPABLE;
  f->op_seconds = plan_op_seconds(f->graph, 1e-3);
  plan_problem_init(&f->problem, f->graph);
  f->problem.op_seconds = f->op_seconds;
  f->problem.search_rounds = 8;
  f->problem.budget_bytes[MR_TIER_HOST] = UINT64_MAX;
  f->problem.host_apart = true;
  f->problem.host_bytes_per_second = 1e12;
}

/* Few rows cross the link in place of the table, which the head alone wants; as many rows as the
 * table has do not. */
static void a_lookup_sends_rows_in_place_of_a_table(void **state) {
  (void)state;
  struct fixture f;
  for (uint32_t few = 0; few < 2; few++) {
    lookup_init(&f, few == 1 ? SIZE : 8 * SIZE);
    struct mr_program_plan *plan = make(&f, few == 1 ? 21 : 29);
    assert_true(plan->fits);
    const struct mr_instruction *compute = plan->instructions[MR_QUEUE_COMPUTE];
    assert_true(compute[UPDATE].handed_over);
    assert_int_equal(compute[LOOKUP].handed_over, few == 1);
    assert_int_equal(operand(plan, LOOKUP, TABLE)->on_host, few == 1);
    assert_int_equal(operand(plan, LOOKUP, ROWS)->on_host, few == 1);
    assert_false(operand(plan, FORWARD, ROWS)->on_host || operand(plan, HEAD, TABLE)->on_host);
    mr_program_plan_destroy(plan);
    fixture_fini(&f);
  }
}

/* What the host makes comes in once and never goes out, and its gap says so. */
static void what_the_host_makes_only_comes_in(void **state) {
  (void)state;
  struct fixture f;
  lookup_init(&f, SIZE);
  bool on_host[ACTIVATION + 1] = {[TABLE] = true, [ROWS] = true};
  f.problem.on_host = on_host;
  struct mr_program_plan *plan = make(&f, 40);
  assert_true(plan->fits);
  assert_int_equal(plan->instruction_count[MR_QUEUE_HOST], 1);
  uint32_t told = 0;
  for (uint32_t i = 0; i < plan->gap_count; i++) {
    const struct mr_gap *gap = &plan->gaps[i];
    if (gap->tensor != ROWS) continue;
    assert_true(gap->decision == MR_DECISION_HOST && !gap->written && !gap->final);
    assert_int_equal(gap->after_op, LOOKUP);
    assert_int_equal(gap->before_op, FORWARD);
    told++;
  }
  assert_int_equal(told, 1);
  /* The table leaves after its update on the device, for the lookup, and comes back for the head.
   */
  assert_int_equal(plan->moved_bytes[MR_LINK_DEVICE_TO_HOST], 8 * SIZE);
  assert_int_equal(plan->moved_bytes[MR_LINK_HOST_TO_DEVICE], 9 * SIZE);
  mr_program_plan_destroy(plan);
  fixture_fini(&f);
}

/* An update of everything needs four tensors on the device; on the host it needs what is not there.
 */
static void less_memory_will_do(void **state) {
  (void)state;
  struct fixture f;
  uint64_t smallest[2];
  for (uint32_t capable = 0; capable < 2; capable++) {
    fixture_init(&f, capable == 1);
    for (uint32_t i = 5; i <= 6; i++) {
      f.graph->ops[i].scratch_bytes = 2 * SIZE;
    }
    struct mr_program_plan *plan = make(&f, 0);
    assert_false(plan->fits);
    smallest[capable] = plan->smallest_device_bytes;
    mr_program_plan_destroy(plan);
    f.problem.budget_bytes[MR_TIER_DEVICE] = smallest[capable];
    plan = NULL;
    assert_int_equal(mr_program_plan_make(&f.problem, &plan), MR_OK);
    assert_true(plan->fits);
    mr_program_plan_destroy(plan);
    fixture_fini(&f);
  }
  assert_int_equal(smallest[0], 5 * SIZE + PAGE);
  assert_int_equal(smallest[1], 4 * SIZE + PAGE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(states_rest_and_never_move),
      cmocka_unit_test(the_verifier_wants_a_capable_op),
      cmocka_unit_test(nothing_is_on_the_host_where_all_fits),
      cmocka_unit_test(other_ops_stay_on_the_device),
      cmocka_unit_test(a_full_host_takes_what_it_can),
      cmocka_unit_test(a_host_that_is_too_small_does_not_fit),
      cmocka_unit_test(bans_hold),
      cmocka_unit_test(weights_only_come_in),
      cmocka_unit_test(gradients_only_go_out),
      cmocka_unit_test(impossible_wishes_are_ignored),
      cmocka_unit_test(less_memory_will_do),
      cmocka_unit_test(an_op_beside_the_device_has_all_on_the_host),
      cmocka_unit_test(scalars_are_handed_over),
      cmocka_unit_test(what_is_handed_over_is_in_the_budget),
      cmocka_unit_test(some_ops_are_the_devices),
      cmocka_unit_test(the_plan_chooses_the_host_where_that_is_faster),
      cmocka_unit_test(a_host_beside_a_device_that_holds_all),
      cmocka_unit_test(moves_take_from_ops_on_the_host),
      cmocka_unit_test(a_lookup_sends_rows_in_place_of_a_table),
      cmocka_unit_test(what_the_host_makes_only_comes_in),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

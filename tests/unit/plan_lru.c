/* SPDX-License-Identifier: Apache-2.0 */
/* The baseline of plan/lru.c: who leaves, when, to where, and that nothing runs ahead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>

#include "unit/plan_programs.h"

#define PAGE      4096u
#define ROUNDS    200u
#define END       MR_NO_TENSOR

#define LIST(...) ((const mr_tensor_id[]){__VA_ARGS__, END})
#define NONE      ((const mr_tensor_id[]){END})

struct job {
  struct mr_graph *graph;
  double *op_seconds;
  struct mr_plan_problem problem;
};

static void job_init(struct job *job, struct mr_graph *graph) {
  job->graph = graph;
  job->op_seconds = plan_op_seconds(graph, 1e-3);
  plan_problem_init(&job->problem, graph);
  job->problem.op_seconds = job->op_seconds;
  job->problem.policy = MR_POLICY_LRU;
}

static void job_fini(struct job *job) {
  free(job->op_seconds);
  mr_graph_destroy(job->graph);
}

static struct mr_program_plan *make(struct job *job, uint64_t device_bytes) {
  struct mr_program_plan *plan = NULL;
  job->problem.budget_bytes[MR_TIER_DEVICE] = device_bytes;
  assert_int_equal(mr_program_plan_make(&job->problem, &plan), MR_OK);
  if (plan->fits) {
    assert_int_equal(mr_program_plan_verify(&job->problem, plan), MR_OK);
  }
  return plan;
}

/* Ops 0 to 2 make a, b and c; op 3 makes d, which wants the room of one; the rest read them. */
static struct mr_graph *four_in_a_row(void) {
  struct mr_graph *graph = NULL;
  assert_int_equal(mr_graph_create(&graph), MR_OK);
  mr_tensor_id made[4];
  for (uint32_t i = 0; i < 4; i++) {
    made[i] = plan_add_tensor(graph, MR_ACTIVATION, 10 * PAGE);
    (void)plan_add_op(graph, NONE, LIST(made[i]), 0);
  }
  mr_tensor_id loss = plan_add_tensor(graph, MR_STATE, 4);
  for (uint32_t i = 4; i-- > 0;) {
    (void)plan_add_op(graph, LIST(made[i]), LIST(loss), 0);
  }
  return graph;
}

static const struct mr_gap *gap_of(const struct mr_program_plan *plan, mr_tensor_id tensor) {
  for (uint32_t i = 0; i < plan->gap_count; i++) {
    if (plan->gaps[i].tensor == tensor) {
      return &plan->gaps[i];
    }
  }
  fail_msg("tensor %u has no gap", tensor);
  return NULL;
}

static void the_oldest_leaves_when_room_is_wanted(void **state) {
  (void)state;
  struct job job;
  job_init(&job, four_in_a_row());
  job.problem.budget_bytes[MR_TIER_HOST] = 10 * PAGE;
  job.problem.budget_bytes[MR_TIER_NVME] = UINT64_MAX;
  struct mr_program_plan *plan = make(&job, 31 * PAGE); /* three of them and the small arena */
  assert_true(plan->fits);
  assert_int_equal(gap_of(plan, 0)->decision, MR_DECISION_HOST);
  assert_int_equal(gap_of(plan, 0)->release_op, 3); /* not before */
  assert_int_equal(gap_of(plan, 0)->fetch_op, 7);
  for (mr_tensor_id t = 1; t < 4; t++) {
    assert_int_equal(gap_of(plan, t)->decision, MR_DECISION_KEEP);
  }
  mr_program_plan_destroy(plan);

  plan = make(&job, 21 * PAGE); /* two of them: the host has no room for a second one */
  assert_true(plan->fits);
  assert_int_equal(gap_of(plan, 0)->decision, MR_DECISION_HOST);
  assert_int_equal(gap_of(plan, 0)->release_op, 2);
  assert_int_equal(gap_of(plan, 1)->decision, MR_DECISION_NVME);
  assert_int_equal(gap_of(plan, 1)->release_op, 3);
  mr_program_plan_destroy(plan);

  job.problem.budget_bytes[MR_TIER_NVME] = 0;
  plan = make(&job, 21 * PAGE);
  assert_false(plan->fits);
  assert_int_equal(plan->smallest_device_bytes, 31 * PAGE);
  mr_program_plan_destroy(plan);
  job_fini(&job);
}

/* Ten pages take 41 ms, an op 1 ms: one move out, one in, and neither hides behind an op. */
static void nothing_runs_ahead(void **state) {
  (void)state;
  struct job job;
  job_init(&job, four_in_a_row());
  job.problem.budget_bytes[MR_TIER_HOST] = UINT64_MAX;
  struct mr_program_plan *plan = make(&job, 31 * PAGE);
  const struct mr_instruction *ops = plan->instructions[MR_QUEUE_COMPUTE];
  const struct mr_instruction *out = plan->instructions[MR_QUEUE_OF(MR_LINK_DEVICE_TO_HOST)];
  const struct mr_instruction *in = plan->instructions[MR_QUEUE_OF(MR_LINK_HOST_TO_DEVICE)];
  double move_seconds = 10.0 * PAGE / 1e6 + 1e-6;
  assert_true(out[0].start_seconds >= ops[2].end_seconds - 1e-9);
  assert_true(in[0].start_seconds >= ops[6].end_seconds - 1e-9);
  assert_true(plan->step_seconds > 8e-3 + 2 * move_seconds - 1e-9);
  double on_demand_seconds = plan->step_seconds;
  mr_program_plan_destroy(plan);
  job.problem.policy = MR_POLICY_SEARCHED;
  plan = make(&job, 31 * PAGE);
  assert_true(plan->step_seconds < on_demand_seconds);
  mr_program_plan_destroy(plan);
  job_fini(&job);
}

/* How long before op k a gap opened; wrapping ones opened in the step before. */
static uint32_t age_at(const struct mr_gap *gap, uint32_t k, uint32_t op_count) {
  return (k + op_count - gap->after_op) % op_count;
}

/* Between the gap's two ops, and its pages are on the device at op k. */
static bool idles_at(const struct mr_gap *gap, uint32_t k, uint32_t op_count) {
  uint32_t span = (gap->before_op + op_count - gap->after_op - 1) % op_count + 1;
  uint32_t age = age_at(gap, k, op_count);
  if (age == 0 || age >= span) {
    return false;
  }
  uint32_t stays = (gap->release_op + op_count - gap->after_op - 1) % op_count + 1;
  return gap->decision == MR_DECISION_KEEP || age < stays;
}

/* Whoever stays through the op for which another left was used no longer ago than that one. */
static void check_order(const struct mr_program_plan *plan, uint32_t op_count, uint64_t seed) {
  for (uint32_t i = 0; i < plan->gap_count; i++) {
    const struct mr_gap *gone = &plan->gaps[i];
    uint32_t k = gone->release_op;
    if (gone->decision == MR_DECISION_KEEP || k == 0) continue; /* 0: at the end of the step */
    for (uint32_t j = 0; j < plan->gap_count; j++) {
      const struct mr_gap *other = &plan->gaps[j];
      if (idles_at(other, k, op_count) && age_at(other, k, op_count) > age_at(gone, k, op_count)) {
        fail_msg("seed %llu, op %u: tensor %u leaves, tensor %u stays", (unsigned long long)seed, k,
                 gone->tensor, other->tensor);
      }
    }
  }
}

static void random_plans_evict_in_order(void **state) {
  (void)state;
  uint32_t evictions = 0;
  for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
    struct mr_random random;
    mr_random_init(&random, seed);
    struct job job;
    job_init(&job, plan_random_graph(&random, 2u << mr_random_below(&random, 6), 256 * MR_KIB));
    bool host = mr_random_below(&random, 2) == 0;
    job.problem.budget_bytes[host ? MR_TIER_HOST : MR_TIER_NVME] = UINT64_MAX;
    struct mr_program_plan *plan = make(&job, 0);
    uint64_t smallest = plan->fits ? 0 : plan->smallest_device_bytes;
    uint64_t footprint = mr_max_u64(plan->footprint_bytes, smallest);
    mr_program_plan_destroy(plan);
    for (uint32_t i = 0; i <= 4; i++) {
      plan = make(&job, smallest + (footprint - smallest) * i / 4);
      assert_true(plan->fits);
      check_order(plan, mr_graph_op_count(job.graph), seed);
      evictions +=
          plan->instruction_count[MR_QUEUE_OF(host ? MR_LINK_HOST_TO_DEVICE : MR_LINK_NVME_READ)];
      mr_program_plan_destroy(plan);
    }
    job_fini(&job);
  }
  print_message("%u evictions\n", evictions);
  assert_true(evictions > ROUNDS);
}

/* The program of `graph`, whose norm's updates run in the next step; the graph is destroyed. */
static struct mr_graph *deferred(struct mr_graph *graph) {
  struct mr_graph *program = NULL;
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    struct mr_op *op = &graph->ops[k];
    bool updates = (op->flags & MR_OP_HOST_CAPABLE) != 0;
    op->flags |= updates ? MR_OP_DEFERRABLE | MR_OP_TRAIN_ONLY : 0;
  }
  assert_int_equal(mr_graph_defer(graph, 0, &program), MR_OK);
  assert_non_null(program);
  mr_graph_destroy(graph);
  return program;
}

/* Gradients that are carried into the next step, and copies that updates make anew, have no pages
 * where they are dead: then none of their stays goes round the end of the step where no stay may.
 */
static void what_is_dead_leaves_at_the_end(void **state) {
  (void)state;
  for (uint32_t layers = 1; layers <= 3; layers++) {
    for (uint32_t kind = 0; kind < 4; kind++) {
      struct mr_graph *graph = kind % 2 == 0 ? plan_clipped_graph(layers, 4, 5 * PAGE, PAGE)
                                             : plan_copies_graph(layers, 4, 5 * PAGE, PAGE);
      struct job job;
      job_init(&job, kind < 2 ? deferred(graph) : graph);
      for (mr_tier tier = MR_TIER_HOST; tier <= MR_TIER_NVME; tier++) {
        job.problem.budget_bytes[MR_TIER_HOST] = tier == MR_TIER_HOST ? UINT64_MAX : 0;
        job.problem.budget_bytes[MR_TIER_NVME] = tier == MR_TIER_NVME ? UINT64_MAX : 0;
        struct mr_program_plan *plan = make(&job, PAGE);
        assert_false(plan->fits);
        uint64_t smallest = plan->smallest_device_bytes;
        uint64_t footprint = plan->footprint_bytes;
        mr_program_plan_destroy(plan);
        assert_true(smallest < footprint);
        for (uint32_t i = 0; i <= 8; i++) {
          plan = make(&job, smallest + (footprint - smallest) * i / 8);
          assert_true(plan->fits);
          check_order(plan, mr_graph_op_count(job.graph), i);
          mr_program_plan_destroy(plan);
        }
      }
      job_fini(&job);
    }
  }
}

/* A training step of tensors of random sizes, with updates in the next step. */
static struct mr_graph *random_deferred(struct mr_random *random) {
  struct mr_graph *graph = plan_layers_graph(2 + (uint32_t)mr_random_below(random, 3), MR_MIB);
  struct mr_graph *program = NULL;
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    graph->tensors[t].bytes = PAGE * (1 + mr_random_below(random, 64));
  }
  assert_int_equal(mr_graph_defer(graph, 0, &program), MR_OK);
  assert_non_null(program);
  mr_graph_destroy(graph);
  return program;
}

/* What such updates need goes round the end of the step and gives up its pages in between: where
 * colouring is short, it is to leave at the end too. Tiers below that cannot hold much make the
 * smallest device large, which is where that is found out. */
static void what_is_carried_leaves_on_a_line(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= ROUNDS / 20; seed++) {
    struct mr_random random;
    mr_random_init(&random, seed);
    struct job job;
    job_init(&job, random_deferred(&random));
    uint64_t bytes = 0;
    for (uint32_t t = 0; t < job.graph->tensor_count; t++) {
      bytes += job.graph->tensors[t].bytes;
    }
    for (uint32_t eighths = 1; eighths <= 4; eighths++) {
      job.problem.budget_bytes[MR_TIER_NVME] = bytes * eighths / 8;
      struct mr_program_plan *plan = make(&job, 0);
      uint64_t smallest = plan->smallest_device_bytes;
      mr_program_plan_destroy(plan);
      plan = make(&job, smallest);
      assert_true(plan->fits);
      mr_program_plan_destroy(plan);
    }
    job_fini(&job);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_oldest_leaves_when_room_is_wanted),
      cmocka_unit_test(nothing_runs_ahead),
      cmocka_unit_test(random_plans_evict_in_order),
      cmocka_unit_test(what_is_dead_leaves_at_the_end),
      cmocka_unit_test(what_is_carried_leaves_on_a_line),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

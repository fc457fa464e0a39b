/* SPDX-License-Identifier: Apache-2.0 */
/* How NVMe reads and writes share a drive: evenly or not, and when writes wait for ops or leave
 * while they do not have to, there and for the host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "unit/plan_programs.h"

/* A step of so many layers whose ops take so long each, beside a drive that reads faster than it
 * writes and does more of both at once than of either. */
struct job {
  struct mr_graph *graph;
  double *op_seconds;
  struct mr_plan_problem problem;
  struct mr_program_plan *plan;
};

/* Takes the graph. The tier below the device, which is apart where that is the host. */
static void job_init(struct job *job, struct mr_graph *graph, double op_seconds, double share,
                     mr_tier tier) {
  job->graph = graph;
  job->op_seconds = plan_op_seconds(job->graph, op_seconds);
  plan_problem_init(&job->problem, job->graph);
  job->problem.op_seconds = job->op_seconds;
  job->problem.link[MR_LINK_NVME_READ].bytes_per_second = 6e9;
  job->problem.link[MR_LINK_NVME_WRITE].bytes_per_second = 4e9;
  job->problem.nvme_mixed_bytes_per_second = 7e9;
  job->problem.link[MR_LINK_DEVICE_TO_HOST].bytes_per_second = 5e9;
  job->problem.link[MR_LINK_HOST_TO_DEVICE].bytes_per_second = 5e9;
  job->problem.host_apart = tier == MR_TIER_HOST;
  job->problem.budget_bytes[MR_TIER_DEVICE] = UINT64_MAX;
  job->problem.budget_bytes[MR_TIER_HOST] = 0;
  job->problem.budget_bytes[MR_TIER_NVME] = 0;
  job->problem.budget_bytes[tier] = UINT64_MAX;
  job->problem.search_rounds = 1;
  struct mr_program_plan *whole = plan_make_proven(&job->problem);
  uint64_t device_bytes = (uint64_t)(share * (double)whole->footprint_bytes);
  mr_program_plan_destroy(whole);
  job->problem.budget_bytes[MR_TIER_DEVICE] = device_bytes;
  job->plan = plan_make_proven(&job->problem);
  assert_true(job->plan->fits);
}

static struct mr_graph *layers_of(uint32_t layers) {
  return plan_training_graph(layers, 2, 256 * MR_KIB, 256 * MR_KIB);
}

static void job_fini(struct job *job) {
  mr_program_plan_destroy(job->plan);
  free(job->op_seconds);
  mr_graph_destroy(job->graph);
}

static double seconds_when(struct job *job, bool even_drive) {
  bool chosen = job->plan->even_drive;
  job->plan->even_drive = even_drive;
  assert_int_equal(mr_program_plan_simulate(&job->problem, job->plan), MR_OK);
  double seconds = job->plan->step_seconds;
  job->plan->even_drive = chosen;
  assert_int_equal(mr_program_plan_simulate(&job->problem, job->plan), MR_OK);
  return seconds;
}

/* Each plan has the way of sharing that makes it faster; steps that the drive binds are faster
 * where it is even, and where it hardly matters it is not. */
static void the_faster_way_is_taken(void **state) {
  (void)state;
  uint32_t even = 0;
  uint32_t favouring = 0;
  for (uint32_t layers = 4; layers <= 12; layers += 4) {
    for (double seconds = 2e-6; seconds < 1e-3; seconds *= 4) {
      struct job job;
      job_init(&job, layers_of(layers), seconds, 0.5, MR_TIER_NVME);
      double when_even = seconds_when(&job, true);
      double when_not = seconds_when(&job, false);
      print_message("%u layers, %.0f us: %s, even %.1f us, else %.1f us\n", layers, 1e6 * seconds,
                    job.plan->even_drive ? "even" : "favouring", 1e6 * when_even, 1e6 * when_not);
      assert_true(job.plan->step_seconds == (job.plan->even_drive ? when_even : when_not));
      assert_true(job.plan->even_drive == (when_even < when_not));
      even += when_even < when_not;
      favouring += when_even > when_not;
      job_fini(&job);
    }
  }
  assert_true(even > 0 && favouring > 0);
}

/* The time of all that a drive moves in a step, were it always reading and writing at once. */
static double drive_seconds(const struct job *job) {
  const uint64_t *moved = job->plan->moved_bytes;
  return (double)(moved[MR_LINK_NVME_READ] + moved[MR_LINK_NVME_WRITE]) /
         job->problem.nvme_mixed_bytes_per_second;
}

/* A write that waited for its lane starts as soon as that is free, whatever ops do meanwhile. */
static void drives_hardly_rest(void **state) {
  (void)state;
  for (uint32_t layers = 8; layers <= 12; layers += 4) {
    struct job job;
    job_init(&job, layers_of(layers), 2e-6, 0.5, MR_TIER_NVME);
    double part = drive_seconds(&job) / job.plan->step_seconds;
    print_message("%u layers: at work in %.3f of the step\n", layers, part);
    assert_true(part >
                0.92); /* 0.85 where it waits for the op that was over when it had its turn */
    job_fini(&job);
  }
}

/* A step that begins with updates: each changes a weight and two moments, a forward op reads the
 * weight and so does a backward op, whose gradient lives to the end of the step. */
#define UPDATED_LAYERS 12u

static struct mr_graph *updates_first(void) {
  struct mr_graph *graph = NULL;
  mr_tensor_id weights[UPDATED_LAYERS];
  mr_tensor_id gradients[UPDATED_LAYERS + 1];
  const mr_tensor_id none[] = {MR_NO_TENSOR};
  assert_int_equal(mr_graph_create(&graph), MR_OK);
  for (uint32_t i = 0; i < UPDATED_LAYERS; i++) {
    mr_tensor_id m = plan_add_tensor(graph, MR_STATE, 256 * MR_KIB);
    mr_tensor_id v = plan_add_tensor(graph, MR_STATE, 256 * MR_KIB);
    weights[i] = plan_add_tensor(graph, MR_PARAMETER, 256 * MR_KIB);
    const mr_tensor_id all[] = {weights[i], m, v, MR_NO_TENSOR};
    const mr_tensor_id weight[] = {weights[i], MR_NO_TENSOR};
    plan_add_op(graph, all, all, 0);
    plan_add_op(graph, weight, none, 0);
  }
  for (uint32_t i = UPDATED_LAYERS; i-- > 0;) {
    gradients[i] = plan_add_tensor(graph, MR_GRADIENT, 256 * MR_KIB);
    plan_add_op(graph, (const mr_tensor_id[]){weights[i], MR_NO_TENSOR},
                (const mr_tensor_id[]){gradients[i], MR_NO_TENSOR}, 0);
  }
  gradients[UPDATED_LAYERS] = MR_NO_TENSOR;
  plan_add_op(graph, gradients, none, 0);
  return graph;
}

/* Ops of the step from where a stay begins, for it may go round the end of the step. */
static uint32_t since_birth(const struct mr_program_plan *plan, uint32_t instance, mr_op_id op) {
  uint32_t n = plan->program->op_count;
  return (op + n - plan->instances[instance].first_op % n) % n;
}

static uint32_t last_use(const struct mr_program_plan *plan, uint32_t instance) {
  uint32_t last = 0;
  for (mr_op_id k = 0; k < plan->program->op_count; k++) {
    for (uint32_t i = plan->first_operand[k]; i < plan->first_operand[k + 1]; i++) {
      uint32_t since = since_birth(plan, instance, k);
      last = plan->operands[i] == instance && since > last ? since : last;
    }
  }
  return last;
}

/* Writes of what an op still uses. */
static uint32_t early_writes(const struct mr_program_plan *plan, uint32_t queue) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < plan->instruction_count[queue]; i++) {
    const struct mr_instruction *move = &plan->instructions[queue][i];
    count += last_use(plan, move->instance) > since_birth(plan, move->instance, move->op);
  }
  return count;
}

/* What is not changed any more is written while it is still read, where links bind the step; the
 * plans were proven. Where ops do, that is left for later. */
static void check_early(mr_tier tier, mr_link link) {
  const uint32_t queue = MR_QUEUE_OF(link);
  for (double seconds = 2e-6; seconds < 1e-2; seconds *= 1000) {
    struct job job;
    job_init(&job, updates_first(), seconds, 0.3, tier);
    uint32_t count = early_writes(job.plan, queue);
    print_message("%.0f us: %u of %u writes are early\n", 1e6 * seconds, count,
                  job.plan->instruction_count[queue]);
    assert_true(seconds > 1e-3 ? count == 0 : count > 0);
    job_fini(&job);
  }
}

static void writes_leave_early(void **state) {
  (void)state;
  check_early(MR_TIER_NVME, MR_LINK_NVME_WRITE);
}

static void so_do_copies_to_the_host(void **state) {
  (void)state;
  check_early(MR_TIER_HOST, MR_LINK_DEVICE_TO_HOST);
}

static uint32_t gradients_that_leave(const struct job *job) {
  uint32_t queue = MR_QUEUE_OF(MR_LINK_NVME_WRITE);
  uint32_t count = 0;
  for (uint32_t i = 0; i < job->plan->instruction_count[queue]; i++) {
    uint32_t instance = job->plan->instructions[queue][i].instance;
    count += job->graph->tensors[job->plan->instances[instance].tensor].role == MR_GRADIENT;
  }
  return count;
}

/* Few gradients are written in a backward pass that has next to nothing to read, where other
 * tensors can leave in their place: 17 to 21 of 96 leave where none are held for a trial. */
static void few_gradients_leave(void **state) {
  (void)state;
  struct mr_graph *graph = plan_layers_graph(12, MR_MIB);
  for (double seconds = 1e-6; seconds < 3e-4; seconds *= 3) {
    struct job job;
    struct mr_graph *program = NULL;
    assert_int_equal(mr_graph_defer(graph, 0, &program), MR_OK);
    job_init(&job, program, seconds, 0.3, MR_TIER_NVME);
    uint32_t count = gradients_that_leave(&job);
    print_message("%.0f us: %u gradients leave\n", 1e6 * seconds, count);
    assert_in_range(count, 0, 13);
    job_fini(&job);
  }
  mr_graph_destroy(graph);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_faster_way_is_taken), cmocka_unit_test(drives_hardly_rest),
      cmocka_unit_test(writes_leave_early),      cmocka_unit_test(so_do_copies_to_the_host),
      cmocka_unit_test(few_gradients_leave),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

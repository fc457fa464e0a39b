/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify of a GPT on the cuda device, over the fake driver, under a plan that has some of its
 * updates on the host and leaves the others to the next step. Whether the planner mixes them hangs
 * on the machine's speeds, so the plan is made here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/planning.h"
#include "train/job.h"
#include "train/step.h"

static char plan_path[64];
static char profile_path[64];

static void set_options(struct trainer_options *options) {
  trainer_options_init(options);
  options->layers = 1;
  options->heads = 4;
  options->width = 256;
  options->vocab = 512;
  options->batch = 1;
  options->seq = 8;
  options->steps = 3;
  options->run.device = MR_BACKEND_CUDA;
  options->run.offload = MR_OFFLOAD_HOST;
  options->run.host_bytes = 256 * MR_MIB;
  options->run.recompute = MR_RECOMPUTE_NONE;
  options->run.replan = MR_REPLAN_NEVER;
  options->run.threads = 2;
  options->run.profile_path = profile_path;
}

/* A budget that is not enough for all of the job, but for more than its largest op. */
static void choose_budget(const struct mr_graph *graph, struct mr_options *options) {
  struct mr_plan *plan = NULL;
  struct mr_plan_summary summary = {.size_bytes = sizeof summary};
  options->device_bytes = 4096;
  assert_int_equal(mr_plan_create(graph, options, &plan), MR_OK);
  mr_plan_summarize(plan, &summary);
  mr_plan_destroy(plan);
  assert_false(summary.fits);
  options->device_bytes = summary.smallest_device_bytes + 8 * MR_MIB;
}

static uint32_t updates_on_the_host(const struct mr_plan *plan) {
  const struct mr_program_plan *layout = plan->layout;
  uint32_t count = 0;
  for (uint32_t i = 0; i < layout->instruction_count[MR_QUEUE_HOST]; i++) {
    const struct mr_op *op = &layout->program->ops[layout->instructions[MR_QUEUE_HOST][i].op];
    count += (op->flags & MR_OP_DEFERRABLE) != 0;
  }
  return count;
}

/* Plans with all but the last updates deferred, and on the host what can be. */
static void plan_again(struct mr_plan *plan, uint32_t staying) {
  mr_planning_clear(plan);
  plan->deferred_op_count = 0;
  assert_int_equal(mr_graph_defer(plan->graph, staying, &plan->rewritten), MR_OK);
  struct mr_plan_problem *problem = &plan->problem;
  bool *on_host = malloc(plan->rewritten->tensor_count * sizeof *on_host);
  assert_non_null(on_host);
  memset(on_host, 1, plan->rewritten->tensor_count * sizeof *on_host);
  problem->program = plan->rewritten;
  assert_int_equal(mr_planning_estimate(plan, plan->rewritten, &plan->op_seconds), MR_OK);
  problem->op_seconds = plan->op_seconds;
  problem->on_host = on_host;
  assert_int_equal(mr_program_plan_make(problem, &plan->layout), MR_OK);
  problem->on_host = NULL;
  free(on_host);
  mr_planning_sum_clones(plan);
}

/* Keeps the first plan that has both kinds: the last updates may be too small for the host. */
static void keep_mixed_plan(const struct mr_graph *graph, const struct mr_options *options) {
  struct mr_plan *plan = NULL;
  assert_int_equal(mr_plan_create(graph, options, &plan), MR_OK);
  uint32_t staying = 0;
  do {
    plan_again(plan, ++staying);
    assert_true(plan->deferred_op_count > 0);
  } while (updates_on_the_host(plan) == 0);
  print_message("%u updates in the next step, %u on the host\n", plan->deferred_op_count,
                updates_on_the_host(plan));
  assert_true(plan->layout->fits);
  assert_int_equal(mr_plan_verify(plan), MR_OK);
  assert_int_equal(mr_plan_save(plan, plan_path), MR_OK);
  mr_plan_destroy(plan);
}

static void both_at_once_change_no_bit(void **state) {
  (void)state;
  struct trainer_options options;
  struct trainer *trainer = NULL;
  struct trainer_verification verification;
  snprintf(plan_path, sizeof plan_path, "/tmp/memrun-test-mixed-%ld.tmp", (long)getpid());
  snprintf(profile_path, sizeof profile_path, "/tmp/memrun-test-mixed-%ld.json", (long)getpid());
  set_options(&options);
  assert_int_equal(trainer_prepare(&options, &trainer), MR_OK);
  choose_budget(trainer->step->graph, &options.run);
  keep_mixed_plan(trainer->step->graph, &options.run);
  assert_int_equal(trainer_destroy(trainer, MR_OK), MR_OK);
  options.run.plan_path = plan_path;
  assert_int_equal(trainer_verify(&options, "/tmp", NULL, &verification), MR_OK);
  assert_int_equal(verification.steps, options.steps);
  assert_null(verification.first_difference);
  assert_int_equal(unlink(plan_path), 0);
  (void)unlink(profile_path);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(both_at_once_change_no_bit)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

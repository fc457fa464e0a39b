/* SPDX-License-Identifier: Apache-2.0 */
/* How NVMe reads and writes share a drive: evenly or not, and when writes wait for ops. */
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

static void job_init(struct job *job, uint32_t layers, double op_seconds, double share) {
  job->graph = plan_training_graph(layers, 2, 256 * MR_KIB, 256 * MR_KIB);
  job->op_seconds = plan_op_seconds(job->graph, op_seconds);
  plan_problem_init(&job->problem, job->graph);
  job->problem.op_seconds = job->op_seconds;
  job->problem.link[MR_LINK_NVME_READ].bytes_per_second = 6e9;
  job->problem.link[MR_LINK_NVME_WRITE].bytes_per_second = 4e9;
  job->problem.nvme_mixed_bytes_per_second = 7e9;
  job->problem.budget_bytes[MR_TIER_DEVICE] = UINT64_MAX;
  job->problem.budget_bytes[MR_TIER_NVME] = UINT64_MAX;
  job->problem.search_rounds = 1;
  struct mr_program_plan *whole = plan_make_proven(&job->problem);
  uint64_t device_bytes = (uint64_t)(share * (double)whole->footprint_bytes);
  mr_program_plan_destroy(whole);
  job->problem.budget_bytes[MR_TIER_DEVICE] = device_bytes;
  job->plan = plan_make_proven(&job->problem);
  assert_true(job->plan->fits);
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
      job_init(&job, layers, seconds, 0.5);
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
    job_init(&job, layers, 2e-6, 0.5);
    double part = drive_seconds(&job) / job.plan->step_seconds;
    print_message("%u layers: at work in %.3f of the step\n", layers, part);
    assert_true(part >
                0.92); /* 0.85 where it waits for the op that was over when it had its turn */
    job_fini(&job);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_faster_way_is_taken),
      cmocka_unit_test(drives_hardly_rest),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

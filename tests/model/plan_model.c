/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random programs through the public interface against the oracle: after every step each persistent
 * tensor has the oracle's bytes, whatever the budgets, the tiers, recompute, the engine and the
 * timing. With faults injected into transfers a run either ends with an error or is right.
 *
 * plan_model DIRECTORY [FIRST_SEED COUNT]: the directory holds the NVMe files and the profile.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memrun/memrun.h>

#include "base/base.h"
#include "model/program.h"

#define ROUNDS       240u
#define FAULT_ROUNDS 60u
#define MOST_STEPS   5u
#define SLEEP_US     300u

static const char *directory;
static char profile_path[4096];
static uint64_t first_seed = 1;
static uint64_t round_count = ROUNDS;

static uint32_t error_lines;
static uint32_t host_runs;     /* with ops on the host */
static uint32_t deferred_runs; /* with ops that run in the next step */

static void count_errors(void *context, mr_log_level level, const char *line) {
  (void)context;
  (void)line;
  error_lines += level == MR_LOG_ERROR;
}

static void show_nothing(void) {
  error_lines = 0;
  mr_log_configure(count_errors, NULL, MR_LOG_ERROR);
}

static void show_errors(void) {
  mr_log_configure(NULL, NULL, MR_LOG_ERROR);
}

/* One drawn job. */
struct job {
  uint64_t seed;
  struct mr_random random;
  struct mr_graph *graph;
  struct mr_nvme_path path;
  struct mr_options options;
  struct mr_plan_summary summary; /* its names are of a plan that is gone */
  uint8_t *buffer;                /* of the largest tensor */
};

static mr_status summarize(const struct job *job, struct mr_plan_summary *summary_out) {
  struct mr_plan *plan = NULL;
  *summary_out = (struct mr_plan_summary){.size_bytes = sizeof *summary_out};
  mr_status status = mr_plan_create(job->graph, &job->options, &plan);
  if (status == MR_OK) {
    mr_plan_summarize(plan, summary_out);
    mr_plan_destroy(plan);
  }
  return status;
}

/* Budgets from just enough to all; tight: just enough, and no host, so that everything goes to
 * NVMe.
 */
static void budgets_draw(struct job *job, bool tight) {
  struct mr_plan_summary *summary = &job->summary;
  struct mr_options *options = &job->options;
  options->host_bytes = mr_random_below(&job->random, 4 * MR_MIB);
  options->device_bytes = 1 * MR_GIB;
  assert_int_equal(summarize(job, summary), MR_OK);
  assert_true(summary->fits);
  uint64_t footprint = summary->footprint_bytes;
  options->host_bytes = tight ? 0 : mr_random_below(&job->random, footprint + 1);
  options->device_bytes = 1;
  assert_int_equal(summarize(job, summary), MR_OK);
  assert_true(!summary->fits);
  uint64_t smallest = summary->smallest_device_bytes;
  uint64_t room = footprint > smallest ? footprint - smallest : 0;
  tight = tight || mr_random_below(&job->random, 2) == 0;
  options->device_bytes = smallest + (tight ? 0 : mr_random_below(&job->random, room + 1));
}

/* The options point into the job, so it stays where it is. */
static void job_draw(struct job *job, uint64_t seed, bool must_use_nvme) {
  *job = (struct job){.seed = seed, .path = {directory, 256 * MR_MIB}};
  struct model_options model;
  model_options_draw(seed, &model);
  mr_random_init(&job->random, seed ^ 0x6a6f62ull);
  model.sleep_us = mr_random_below(&job->random, 2) == 0 ? 0 : SLEEP_US;
  job->graph = model_program_create(seed, &model);
  mr_options_init(&job->options);
  uint32_t offload = (uint32_t)mr_random_below(&job->random, 6);
  job->options.offload = must_use_nvme || offload > 1 ? MR_OFFLOAD_NVME
                         : offload == 1               ? MR_OFFLOAD_HOST
                                                      : MR_OFFLOAD_NONE;
  job->options.nvme = &job->path;
  job->options.nvme_count = 1;
  job->options.recompute = (mr_recompute)mr_random_below(&job->random, 3);
  job->options.io_engine = mr_random_below(&job->random, 2) == 0 ? MR_IO_AUTO : MR_IO_PREAD;
  job->options.io_timeout_seconds = 20;
  job->options.threads = 1;
  job->options.profile_path = profile_path;
  job->options.replan = (mr_replan)mr_random_below(&job->random, 3);
  job->options.defer = (mr_defer)mr_random_below(&job->random, 3);
  uint64_t largest = 0;
  for (mr_tensor_id t = 0; t < job->graph->tensor_count; t++) {
    largest = mr_max_u64(largest, job->graph->tensors[t].bytes);
  }
  job->buffer = mr_allocate(1, largest);
  assert_non_null(job->buffer);
}

static void job_free(struct job *job) {
  mr_graph_destroy(job->graph);
  free(job->buffer);
}

/* The same bytes into the run and into the oracle: all inputs, now and then something that lasts.
 */
static mr_status write_tensors(struct job *job, struct mr_run *run, struct model_oracle *oracle,
                               uint64_t step) {
  mr_status status = MR_OK;
  for (mr_tensor_id t = 0; status == MR_OK && t < job->graph->tensor_count; t++) {
    const struct mr_tensor *tensor = &job->graph->tensors[t];
    bool lasts = mr_role_is_persistent(tensor->role) && tensor->role != MR_DERIVED;
    bool now = tensor->role == MR_INPUT ||
               (lasts && (step == 0 || mr_random_below(&job->random, 16) == 0));
    if (!now) {
      continue;
    }
    model_fill(job->seed, step, t, oracle->memory[t], tensor->bytes);
    uint64_t cut = mr_random_below(&job->random, tensor->bytes + 1);
    status = mr_run_write(run, t, 0, oracle->memory[t], cut);
    if (status == MR_OK) {
      status = mr_run_write(run, t, cut, oracle->memory[t] + cut, tensor->bytes - cut);
    }
  }
  return status;
}

static mr_status compare_tensors(struct job *job, struct mr_run *run,
                                 const struct model_oracle *oracle, uint64_t step) {
  for (mr_tensor_id t = 0; t < job->graph->tensor_count; t++) {
    const struct mr_tensor *tensor = &job->graph->tensors[t];
    if (!mr_role_is_persistent(tensor->role) || tensor->role == MR_DERIVED) {
      continue;
    }
    uint64_t cut = mr_random_below(&job->random, tensor->bytes + 1);
    mr_status status = mr_run_read(run, t, cut, job->buffer + cut, tensor->bytes - cut);
    if (status == MR_OK) {
      status = mr_run_read(run, t, 0, job->buffer, cut);
    }
    if (status != MR_OK) {
      return status;
    }
    if (memcmp(job->buffer, oracle->memory[t], tensor->bytes) != 0) {
      fail_msg("seed %llu: %s differs after step %llu", (unsigned long long)job->seed, tensor->name,
               (unsigned long long)step);
    }
  }
  return MR_OK;
}

static void check_report(const struct job *job, const struct mr_step_report *report,
                         uint64_t step) {
  assert_int_equal(report->step, step);
  assert_true(report->seconds > 0);
  for (uint32_t tier = 0; tier < MR_TIER_COUNT; tier++) {
    assert_true(report->peak_bytes[tier] <= report->planned_peak_bytes[tier]);
    if (report->peak_bytes[tier] > report->budget_bytes[tier]) {
      fail_msg("seed %llu: tier %u took %llu bytes of %llu", (unsigned long long)job->seed, tier,
               (unsigned long long)report->peak_bytes[tier],
               (unsigned long long)report->budget_bytes[tier]);
    }
  }
}

/* What was counted while the run went on is what its only plan said, to the byte. */
static void check_peaks(const struct job *job, const struct mr_run *run) {
  struct mr_plan_summary summary = {.size_bytes = sizeof summary};
  struct mr_step_report now = {.size_bytes = sizeof now};
  mr_plan_summarize(mr_run_plan(run), &summary);
  mr_run_observe(run, &now);
  for (uint32_t tier = 0; tier < MR_TIER_COUNT; tier++) {
    assert_int_equal(now.planned_peak_bytes[tier], summary.need_bytes[tier]);
    if (now.peak_bytes[tier] != summary.need_bytes[tier]) {
      fail_msg("seed %llu: tier %u took %llu bytes, planned were %llu",
               (unsigned long long)job->seed, tier, (unsigned long long)now.peak_bytes[tier],
               (unsigned long long)summary.need_bytes[tier]);
    }
  }
}

/* Runs the job step by step beside the oracle; adds the bytes that it moved. */
static mr_status run_beside(struct job *job, struct mr_run *run, struct model_oracle *oracle,
                            uint64_t *moved) {
  uint64_t steps = 2 + mr_random_below(&job->random, MOST_STEPS - 1);
  mr_status status = MR_OK;
  bool trained = false;
  uint32_t replan_count = 0;
  for (uint64_t step = 0; status == MR_OK && step < steps; step++) {
    mr_step_mode mode = mr_random_below(&job->random, 4) == 0 ? MR_STEP_EVALUATE : MR_STEP_TRAIN;
    struct mr_step_report report = {.size_bytes = sizeof report};
    status = write_tensors(job, run, oracle, step);
    if (status == MR_OK) {
      status = mr_run_step(run, mode, &report);
    }
    if (status != MR_OK) {
      return status;
    }
    model_oracle_step(oracle, mode);
    trained = trained || mode == MR_STEP_TRAIN;
    check_report(job, &report, step + 1);
    replan_count = report.replan_count;
    for (uint32_t link = 0; link < MR_LINK_COUNT; link++) {
      moved[link] += report.moved_bytes[link];
    }
    if (mr_random_below(&job->random, 3) > 0 || step + 1 == steps) {
      status = compare_tensors(job, run, oracle, step);
    }
  }
  status = status == MR_OK ? mr_run_sync(run) : status;
  if (status == MR_OK && trained && replan_count == 0) {
    check_peaks(job, run);
  }
  return status;
}

static mr_status job_run(struct job *job, uint64_t *moved) {
  struct mr_run *run = NULL;
  struct model_oracle oracle;
  mr_status status = mr_run_create(job->graph, &job->options, &run);
  if (status != MR_OK) {
    return status;
  }
  struct mr_plan_summary summary = {.size_bytes = sizeof summary};
  mr_plan_summarize(mr_run_plan(run), &summary);
  host_runs += summary.host_op_count > 0;
  deferred_runs += summary.deferred_op_count > 0;
  model_oracle_init(&oracle, job->graph);
  status = run_beside(job, run, &oracle, moved);
  mr_run_destroy(run);
  model_oracle_fini(&oracle);
  return status;
}

static void runs_agree(void **state) {
  (void)state;
  uint64_t moved[MR_LINK_COUNT] = {0};
  print_message("seeds %llu to %llu\n", (unsigned long long)first_seed,
                (unsigned long long)(first_seed + round_count - 1));
  for (uint64_t seed = first_seed; seed < first_seed + round_count; seed++) {
    struct job job;
    job_draw(&job, seed, false);
    show_nothing();
    budgets_draw(&job, false);
    show_errors();
    mr_status status = job_run(&job, moved);
    if (status != MR_OK) {
      fail_msg("seed %llu: %s", (unsigned long long)seed, mr_status_name(status));
    }
    job_free(&job);
  }
  print_message("moved: %llu KiB out, %llu in, %llu read, %llu written\n",
                (unsigned long long)(moved[0] / MR_KIB), (unsigned long long)(moved[1] / MR_KIB),
                (unsigned long long)(moved[2] / MR_KIB), (unsigned long long)(moved[3] / MR_KIB));
  print_message("%u runs with ops on the host, %u with deferred ops\n", host_runs, deferred_runs);
  assert_true(round_count < ROUNDS || (host_runs > ROUNDS / 20 && deferred_runs > ROUNDS / 10));
  for (uint32_t link = 0; link < MR_LINK_COUNT; link++) {
    assert_true(round_count < ROUNDS || moved[link] > 0);
  }
}

/* One faulty transfer: whatever it is, a run that says it is well has the right bytes. */
static void faults_are_seen(void **state) {
  (void)state;
  static const char *const kinds[] = {"read:eio",  "write:eio",  "read:short",  "write:short",
                                      "read:flip", "write:flip", "write:enospc"};
  uint32_t failed = 0;
  uint32_t survived = 0;
  for (uint64_t round = 0; round < FAULT_ROUNDS; round++) {
    struct job job;
    job_draw(&job, first_seed + 7 * round, true);
    uint64_t moved[MR_LINK_COUNT] = {0};
    char inject[64];
    snprintf(inject, sizeof inject, "%s:%llu", kinds[round % MR_COUNT_OF(kinds)],
             (unsigned long long)(1 + mr_random_below(&job.random, 20)));
    show_nothing();
    budgets_draw(&job, true);
    error_lines = 0;
    setenv("MEMRUN_INJECT", inject, 1);
    mr_status status = job_run(&job, moved);
    unsetenv("MEMRUN_INJECT");
    if ((status != MR_OK) != (error_lines > 0)) {
      fail_msg("seed %llu, %s: %s with %u error lines", (unsigned long long)job.seed, inject,
               mr_status_name(status), error_lines);
    }
    failed += status != MR_OK;
    survived += status == MR_OK;
    job_free(&job);
  }
  show_errors();
  print_message("%u runs ended with an error, %u went on\n", failed, survived);
  assert_true(failed > 0 && survived > 0);
}

/* A transfer that never ends is given up and named. */
static void hangs_end(void **state) {
  (void)state;
  uint32_t ended = 0;
  for (uint64_t seed = first_seed; seed < first_seed + 20 && ended < 2; seed++) {
    struct job job;
    job_draw(&job, seed, true);
    uint64_t moved[MR_LINK_COUNT] = {0};
    show_nothing();
    budgets_draw(&job, true);
    job.options.io_timeout_seconds = 0.5;
    setenv("MEMRUN_INJECT", ended == 0 ? "read:hang:2" : "write:hang:2", 1);
    double start = mr_clock_seconds();
    mr_status status = job_run(&job, moved);
    unsetenv("MEMRUN_INJECT");
    assert_true(status == MR_OK || status == MR_TIMEOUT);
    assert_true(mr_clock_seconds() - start < 30);
    ended += status == MR_TIMEOUT;
    job_free(&job);
  }
  show_errors();
  assert_int_equal(ended, 2);
}

int main(int argument_count, char **arguments) {
  if (argument_count != 2 && argument_count != 4) {
    fprintf(stderr, "usage: plan_model DIRECTORY [FIRST_SEED COUNT]\n");
    return 2;
  }
  directory = arguments[1];
  snprintf(profile_path, sizeof profile_path, "%s/profile.json", directory);
  if (argument_count == 4) {
    first_seed = strtoull(arguments[2], NULL, 10);
    round_count = strtoull(arguments[3], NULL, 10);
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(runs_agree),
      cmocka_unit_test(faults_are_seen),
      cmocka_unit_test(hangs_end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

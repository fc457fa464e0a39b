/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/: a run that changes its plan between steps gives the same bits as one that does not,
 * stays inside its budgets while bytes move, and ends in order where moving them fails.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/runtime.h"
#include "unit/runtime_world.h"

#define SWITCHES   10u
#define NVME_BYTES (256 * MR_MIB)
#define SANITIZED  (getenv("MEMRUN_SANITIZE") != NULL)

static const struct world_shape shape = {5, 200 * 1000 + 7};
static const struct mr_nvme_path path = {"/var/tmp", NVME_BYTES};
static struct world world;

static void set_options(struct mr_options *options, uint64_t device_bytes, uint64_t host_bytes,
                        mr_offload offload) {
  world_options(options, device_bytes, host_bytes, offload);
  options->replan = MR_REPLAN_NEVER;
  options->nvme = &path;
  options->nvme_count = offload == MR_OFFLOAD_NVME;
}

static struct mr_plan *make_plan(const struct mr_options *options,
                                 struct mr_plan_summary *summary) {
  struct mr_plan *plan = NULL;
  assert_int_equal(mr_plan_create(world.graph, options, &plan), MR_OK);
  mr_plan_summarize(plan, summary);
  return plan;
}

static uint64_t smallest_device_bytes(const struct mr_options *options) {
  struct mr_options tiny = *options;
  struct mr_plan_summary summary;
  tiny.device_bytes = 4096;
  mr_plan_destroy(make_plan(&tiny, &summary));
  return summary.smallest_device_bytes;
}

/* Other ways to spend the same budgets. */
static void vary(struct mr_options *options, struct mr_random *random) {
  static const mr_policy policies[] = {MR_POLICY_SEARCHED, MR_POLICY_FIRST, MR_POLICY_LRU};
  static const mr_recompute recomputes[] = {MR_RECOMPUTE_AUTO, MR_RECOMPUTE_NONE,
                                            MR_RECOMPUTE_FULL};
  options->policy = policies[mr_random_below(random, 3)];
  options->recompute = recomputes[mr_random_below(random, 3)];
  options->host_bytes = mr_random_below(random, 3) == 0 ? 0 : options->host_bytes;
  uint64_t least = smallest_device_bytes(options);
  if (least < options->device_bytes) {
    options->device_bytes = least + mr_random_below(random, options->device_bytes - least + 1);
  }
}

static void check_peaks(const struct mr_run *run) {
  struct mr_step_report report = {.size_bytes = sizeof report};
  mr_run_observe(run, &report);
  for (uint32_t tier = 0; tier < MR_TIER_COUNT; tier++) {
    assert_int_equal(report.peak_bytes[tier], report.planned_peak_bytes[tier]);
    assert_true(report.peak_bytes[tier] <= report.budget_bytes[tier]);
  }
}

/* Ends with how many of the switches were made. */
static uint32_t switch_and_compare(const struct mr_options *options, struct mr_random *random) {
  struct mr_run *run = NULL;
  struct world_state state;
  world_state_init(&state, shape);
  assert_int_equal(mr_run_create(world.graph, options, &run), MR_OK);
  assert_int_equal(world_load(&world, run), MR_OK);
  uint32_t made = 0;
  for (uint64_t step = 1; step <= 2 * SWITCHES; step++) {
    mr_step_mode mode = step % 5 == 3 ? MR_STEP_EVALUATE : MR_STEP_TRAIN;
    struct mr_step_report report = {.size_bytes = sizeof report};
    assert_int_equal(world_step(&world, run, step, mode, &report), MR_OK);
    assert_int_equal(report.step, step);
    world_state_step(&state, shape, step, mode);
    if (step % 2 == 1) {
      continue;
    }
    assert_int_equal(mr_run_sync(run), MR_OK);
    check_peaks(run);
    struct mr_options varied = *options;
    struct mr_plan_summary summary;
    vary(&varied, random);
    struct mr_plan *plan = make_plan(&varied, &summary);
    mr_status status = mr_run_switch(run, plan);
    assert_true(status == MR_OK || status == MR_NO_SPACE);
    made += status == MR_OK;
    mr_plan_destroy(plan);
    world_compare(&world, run, &state);
  }
  assert_true(SANITIZED || mr_resident_peak_bytes() <
                               options->device_bytes + options->host_bytes + MR_OVERHEAD_BYTES);
  mr_run_destroy(run);
  world_state_fini(&state, shape);
  return made;
}

static void plans_change_without_a_trace(void **unused) {
  (void)unused;
  static const struct {
    mr_offload offload;
    uint64_t host_bytes;
  } modes[] = {{MR_OFFLOAD_HOST, 64 * MR_MIB}, {MR_OFFLOAD_NVME, 0}, {MR_OFFLOAD_NVME, 6 * MR_MIB}};
  struct mr_random random;
  mr_random_init(&random, 20260401);
  for (uint32_t i = 0; i < MR_COUNT_OF(modes); i++) {
    struct mr_options options;
    set_options(&options, 0, modes[i].host_bytes, modes[i].offload);
    options.device_bytes = smallest_device_bytes(&options) * 3 / 2;
    uint32_t made = switch_and_compare(&options, &random);
    assert_true(made >= SWITCHES / 2);
  }
}

/* Planning again after each step, for the rates that were just measured. */
static void a_run_replans_itself(void **unused) {
  (void)unused;
  struct mr_options options;
  set_options(&options, 0, 4 * MR_MIB, MR_OFFLOAD_NVME);
  options.device_bytes = smallest_device_bytes(&options) * 5 / 4;
  options.replan = MR_REPLAN_ALWAYS;
  struct mr_run *run = NULL;
  struct world_state state;
  world_state_init(&state, shape);
  assert_int_equal(mr_run_create(world.graph, &options, &run), MR_OK);
  assert_int_equal(world_load(&world, run), MR_OK);
  struct mr_step_report report = {.size_bytes = sizeof report};
  for (uint64_t step = 1; step <= 9; step++) {
    assert_int_equal(world_step(&world, run, step, MR_STEP_TRAIN, &report), MR_OK);
    world_state_step(&state, shape, step, MR_STEP_TRAIN);
    assert_int_equal(report.replan_count, (step - 1) / 2);
    assert_int_equal(report.replan_step, step < 3 ? 0 : (step - 1) / 2 * 2 + 1);
    assert_true((report.replan_before_seconds > 0) == (step >= 3));
    assert_true((report.replan_after_seconds > 0) == (step >= 3));
  }
  world_compare(&world, run, &state);
  mr_run_destroy(run);
  world_state_fini(&state, shape);
}

/* A look at a forecast of so many times what the last steps took, just after a look for another
 * plan that took so long. Returns the forecast that follows, over what the steps took. */
static double look_at(struct mr_run *run, double forecast, double planning_seconds) {
  static const double seconds = 0.1;
  struct mr_outlook *outlook = &run->outlook;
  for (uint32_t i = 0; i < MR_OUTLOOK_STEPS; i++) {
    outlook->step_seconds[i] = seconds;
  }
  outlook->step_count = MR_REVIEW_STEPS;
  outlook->others_share = 0;
  run->look_seconds = 0;
  run->planning_seconds = planning_seconds;
  run->planned_at = mr_clock_seconds();
  run->plan->layout->step_seconds = forecast * seconds;
  assert_int_equal(mr_run_review(run), MR_OK);
  return run->plan->layout->step_seconds / seconds;
}

/* A plan that was made again a moment ago rests; a forecast that is far off does not. */
static void a_forecast_does_not_wait_for_plans(void **unused) {
  (void)unused;
  struct mr_options options;
  set_options(&options, 0, 4 * MR_MIB, MR_OFFLOAD_NVME);
  options.device_bytes = smallest_device_bytes(&options) * 5 / 4;
  struct mr_run *run = NULL;
  struct world_state state;
  world_state_init(&state, shape);
  assert_int_equal(mr_run_create(world.graph, &options, &run), MR_OK);
  assert_int_equal(world_load(&world, run), MR_OK);
  for (uint64_t step = 1; step <= MR_REVIEW_STEPS + 2; step++) {
    assert_int_equal(world_step(&world, run, step, MR_STEP_TRAIN, NULL), MR_OK);
    world_state_step(&state, shape, step, MR_STEP_TRAIN);
  }
  run->plan->settings.replan = MR_REPLAN_AUTO;
  assert_float_equal(look_at(run, 1.5, 1e6), 1, 1e-6);
  assert_float_equal(look_at(run, 0.8, 1e6), 1, 1e-6);
  assert_float_equal(look_at(run, 1.03, 1e6), 1.03, 1e-6);
  assert_int_equal(run->planned_again, 0);
  assert_float_equal(look_at(run, 1.03, 0), 1, 1e-6);
  assert_int_equal(run->planned_again, 0);
  assert_float_equal(look_at(run, 1.5, 0), 1, 0.5);
  assert_int_equal(run->planned_again, 1);
  assert_true(run->planning_seconds > 0);
  world_compare(&world, run, &state);
  mr_run_destroy(run);
  world_state_fini(&state, shape);
}

/* Steps with a change of plan after the second, and that fault in the stores. */
static mr_status run_with(const struct mr_options *options, struct mr_plan *plan,
                          const char *fault) {
  struct mr_run *run = NULL;
  struct world_state state;
  world_state_init(&state, shape);
  assert_int_equal(setenv("MEMRUN_INJECT", fault, 1), 0);
  mr_status status = mr_run_create(world.graph, options, &run);
  status = status == MR_OK ? world_load(&world, run) : status;
  for (uint64_t step = 1; step <= 4 && status == MR_OK; step++) {
    status = world_step(&world, run, step, MR_STEP_TRAIN, NULL);
    world_state_step(&state, shape, step, MR_STEP_TRAIN);
    if (status == MR_OK && step == 2) {
      mr_status switched = mr_run_switch(run, plan);
      assert_true(switched == MR_OK || switched == MR_NO_SPACE || switched == mr_run_status(run));
      status = mr_run_status(run);
    }
  }
  unsetenv("MEMRUN_INJECT");
  if (status == MR_OK && (status = mr_run_sync(run)) == MR_OK) {
    world_compare(&world, run, &state);
  }
  mr_run_destroy(run);
  world_state_fini(&state, shape);
  return status;
}

static void faults_on_the_way_end_the_run_or_nothing(void **unused) {
  (void)unused;
  static const char *const kinds[] = {"read:flip", "write:eio", "write:enospc", "read:short"};
  uint32_t ended = 0;
  uint32_t went_on = 0;
  struct mr_options options;
  set_options(&options, 0, 0, MR_OFFLOAD_NVME);
  options.recompute = MR_RECOMPUTE_NONE;
  options.device_bytes = smallest_device_bytes(&options) * 5 / 4;
  mr_log_configure(NULL, NULL, MR_LOG_ERROR);
  for (uint32_t nth = 1; nth <= (SANITIZED ? 60u : 240u); nth += 20) {
    char fault[64];
    struct mr_plan_summary summary;
    struct mr_options other = options;
    other.policy = MR_POLICY_LRU;
    struct mr_plan *plan = make_plan(&other, &summary);
    snprintf(fault, sizeof fault, "%s:%u", kinds[nth / 20 % MR_COUNT_OF(kinds)], nth);
    mr_status status = run_with(&options, plan, fault);
    ended += status != MR_OK;
    went_on += status == MR_OK;
    mr_plan_destroy(plan);
  }
  assert_true(ended > 0 && went_on > 0);
}

static int set_up(void **unused) {
  (void)unused;
  world_init(&world, shape);
  return 0;
}

static int tear_down(void **unused) {
  (void)unused;
  struct mr_options options;
  world_options(&options, 0, 0, MR_OFFLOAD_NONE);
  (void)unlink(options.profile_path);
  world_fini(&world);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(plans_change_without_a_trace),
      cmocka_unit_test(a_run_replans_itself),
      cmocka_unit_test(a_forecast_does_not_wait_for_plans),
      cmocka_unit_test(faults_on_the_way_end_the_run_or_nothing),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/: an NVMe fault at any moment either leaves no trace in the results or ends the run with
 * its status, in order and in time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "unit/runtime_world.h"

static const struct world_shape shape = {4, 300 * 1000 + 7};
static struct world world;
static struct mr_options options;

static int set_up(void **unused) {
  (void)unused;
  static const struct mr_nvme_path path = {"/var/tmp", 128 * MR_MIB};
  world_init(&world, shape);
  world_options(&options, 4096, 0, MR_OFFLOAD_NVME);
  options.nvme = &path;
  options.nvme_count = 1;
  options.recompute = MR_RECOMPUTE_NONE;
  struct mr_plan *plan = NULL;
  struct mr_plan_summary summary;
  if (mr_plan_create(world.graph, &options, &plan) != MR_OK) {
    return -1;
  }
  mr_plan_summarize(plan, &summary);
  mr_plan_destroy(plan);
  options.device_bytes = summary.smallest_device_bytes;
  return 0;
}

static int tear_down(void **unused) {
  (void)unused;
  (void)unlink(options.profile_path);
  world_fini(&world);
  return 0;
}

/* A job of three steps with that fault; whatever ends well must be right. */
static mr_status run_with(const char *fault) {
  assert_int_equal(setenv("MEMRUN_INJECT", fault, 1), 0);
  struct mr_run *run = NULL;
  struct world_state state;
  world_state_init(&state, shape);
  mr_status status = mr_run_create(world.graph, &options, &run);
  if (status == MR_OK) {
    status = world_load(&world, run);
  }
  for (uint64_t step = 1; step <= 3 && status == MR_OK; step++) {
    status = world_step(&world, run, step, MR_STEP_TRAIN, NULL);
    world_state_step(&state, shape, step, MR_STEP_TRAIN);
  }
  if (status == MR_OK) {
    char byte = 0;
    for (uint32_t l = 0; l < shape.layers && status == MR_OK; l++) {
      status = mr_run_read(run, world.moments[l], 0, &byte, 1);
    }
  }
  if (status == MR_OK) {
    world_compare(&world, run, &state);
  }
  assert_true(run == NULL || mr_run_status(run) == status);
  double start = mr_clock_seconds();
  mr_run_destroy(run);
  assert_true(mr_clock_seconds() - start < 20);
  world_state_fini(&state, shape);
  assert_int_equal(unsetenv("MEMRUN_INJECT"), 0);
  return status;
}

static void mended_faults_leave_no_trace(void **unused) {
  (void)unused;
  static const char *const kinds[] = {"read:short", "read:flip", "write:short", "read:eio"};
  for (size_t k = 0; k < MR_COUNT_OF(kinds); k++) {
    for (uint32_t n = 1; n < 60; n += 13) {
      char fault[32];
      snprintf(fault, sizeof fault, "%s:%u", kinds[k], n);
      assert_int_equal(run_with(fault), MR_OK);
    }
  }
}

static void every_failed_write_is_seen(void **unused) {
  (void)unused;
  for (uint32_t n = 1; n < 60; n += 7) {
    char fault[32];
    snprintf(fault, sizeof fault, "write:eio:%u", n);
    assert_int_equal(run_with(fault), MR_IO);
    snprintf(fault, sizeof fault, "write:enospc:%u", n);
    assert_int_equal(run_with(fault), MR_NO_SPACE);
  }
}

/* One step, with nothing read after it: only mr_run_sync can tell of its last write-backs. */
static mr_status step_and_sync(uint32_t n) {
  char fault[32];
  snprintf(fault, sizeof fault, "write:eio:%u", n);
  assert_int_equal(setenv("MEMRUN_INJECT", fault, 1), 0);
  struct mr_run *run = NULL;
  mr_status status = mr_run_create(world.graph, &options, &run);
  if (status == MR_OK) {
    status = world_load(&world, run);
  }
  if (status == MR_OK) {
    status = world_step(&world, run, 1, MR_STEP_TRAIN, NULL);
  }
  if (status == MR_OK) {
    status = mr_run_sync(run);
  }
  mr_run_destroy(run);
  assert_int_equal(unsetenv("MEMRUN_INJECT"), 0);
  return status;
}

static void a_write_behind_the_last_step_is_told(void **unused) {
  (void)unused;
  uint32_t writes = 0;
  while (step_and_sync(writes + 1) != MR_OK) {
    writes++;
    assert_true(writes < 1000);
  }
  assert_true(writes > 3);
  for (uint32_t i = 0; i < 10; i++) {
    assert_int_equal(step_and_sync(writes - i % 3), MR_IO);
    assert_int_equal(step_and_sync(writes + 1 + i), MR_OK);
  }
}

static void lasting_faults_end_the_run(void **unused) {
  (void)unused;
  assert_int_equal(run_with("read:eio:0"), MR_IO);
  assert_int_equal(run_with("read:flip:0"), MR_CORRUPT);
  assert_int_equal(run_with("write:flip:0"), MR_CORRUPT);
}

static void stuck_transfers_end_the_run_in_time(void **unused) {
  (void)unused;
  double seconds = options.io_timeout_seconds;
  options.io_timeout_seconds = 0.5;
  double start = mr_clock_seconds();
  assert_int_equal(run_with("read:hang:9"), MR_TIMEOUT);
  assert_int_equal(run_with("write:hang:20"), MR_TIMEOUT);
  assert_true(mr_clock_seconds() - start < 30);
  options.io_timeout_seconds = seconds;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(mended_faults_leave_no_trace),
      cmocka_unit_test(every_failed_write_is_seen),
      cmocka_unit_test(a_write_behind_the_last_step_is_told),
      cmocka_unit_test(lasting_faults_end_the_run),
      cmocka_unit_test(stuck_transfers_end_the_run_in_time),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/: a job gives the same bits under every budget, and reads, writes and ends in order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "unit/runtime_world.h"

static const struct world_shape shape = {6, 300 * 1000 + 7};

static uint64_t footprint(const struct world *world) {
  struct mr_options options;
  world_options(&options, MR_GIB, 0, MR_OFFLOAD_NONE);
  struct mr_plan *plan = NULL;
  assert_int_equal(mr_plan_create(world->graph, &options, &plan), MR_OK);
  struct mr_plan_summary summary;
  mr_plan_summarize(plan, &summary);
  assert_true(summary.fits);
  mr_plan_destroy(plan);
  return summary.footprint_bytes;
}

/* The smallest device budget with the other budgets of `options`. */
static uint64_t smallest(const struct world *world, struct mr_options options) {
  options.device_bytes = 4096;
  struct mr_plan *plan = NULL;
  assert_int_equal(mr_plan_create(world->graph, &options, &plan), MR_OK);
  struct mr_plan_summary summary;
  mr_plan_summarize(plan, &summary);
  assert_false(summary.fits);
  mr_plan_destroy(plan);
  return summary.smallest_device_bytes;
}

static void check_report(const struct mr_step_report *report, uint64_t step) {
  assert_int_equal(report->step, step);
  assert_true(report->seconds > 0 && report->predicted_seconds > 0);
  assert_true(report->compute_busy_seconds > 0);
  assert_non_null(report->bound_by);
  for (int tier = 0; tier < MR_TIER_COUNT; tier++) {
    assert_true(report->peak_bytes[tier] <= report->budget_bytes[tier]);
  }
}

/* Five steps, one of them an evaluation, compared with plain computation after each second one. */
static void run_job(const struct world *world, const struct mr_options *options,
                    struct mr_plan_summary *summary) {
  struct mr_run *run = NULL;
  struct world_state state;
  world_state_init(&state, world->shape);
  assert_int_equal(mr_run_create(world->graph, options, &run), MR_OK);
  mr_plan_summarize(mr_run_plan(run), summary);
  assert_int_equal(world_load(world, run), MR_OK);
  for (uint64_t step = 1; step <= 5; step++) {
    mr_step_mode mode = step == 3 ? MR_STEP_EVALUATE : MR_STEP_TRAIN;
    struct mr_step_report report = {.size_bytes = sizeof report};
    assert_int_equal(world_step(world, run, step, mode, &report), MR_OK);
    check_report(&report, step);
    world_state_step(&state, world->shape, step, mode);
    if (step % 2 == 1) {
      world_compare(world, run, &state);
    }
  }
  mr_run_destroy(run);
  world_state_fini(&state, world->shape);
}

static void everything_fits(void **unused) {
  (void)unused;
  struct world world;
  struct mr_options options;
  struct mr_plan_summary summary;
  world_init(&world, shape);
  world_options(&options, MR_GIB, 0, MR_OFFLOAD_NONE);
  run_job(&world, &options, &summary);
  for (int link = 0; link < MR_LINK_COUNT; link++) {
    assert_int_equal(summary.moved_bytes[link], 0);
  }
  world_fini(&world);
}

static void run_budgets(mr_offload offload, uint64_t host_bytes, mr_recompute recompute,
                        mr_io_engine engine) {
  struct world world;
  struct mr_options options;
  struct mr_plan_summary summary;
  world_init(&world, shape);
  uint64_t whole = footprint(&world);
  world_options(&options, whole, host_bytes, offload);
  options.recompute = recompute;
  options.io_engine = engine;
  struct mr_nvme_path path = {"/var/tmp", 256 * MR_MIB};
  if (offload == MR_OFFLOAD_NVME) {
    options.nvme = &path;
    options.nvme_count = 1;
  }
  uint64_t least = smallest(&world, options);
  assert_true(least < whole);
  /* A sanitizer takes tens of times as long; the tightest budget moves the most. */
  uint32_t budget_count = getenv("MEMRUN_SANITIZE") == NULL ? 3 : 1;
  for (uint32_t i = 0; i < budget_count; i++) {
    options.device_bytes = least + (whole - least) * i / 4;
    run_job(&world, &options, &summary);
    assert_true(summary.need_bytes[MR_TIER_DEVICE] <= options.device_bytes);
    assert_true(recompute != MR_RECOMPUTE_FULL || summary.recomputed_op_count > 0);
    assert_true(recompute != MR_RECOMPUTE_NONE || summary.recomputed_op_count == 0);
  }
  world_fini(&world);
}

static void host_budgets(void **unused) {
  (void)unused;
  run_budgets(MR_OFFLOAD_HOST, 64 * MR_MIB, MR_RECOMPUTE_NONE, MR_IO_AUTO);
  run_budgets(MR_OFFLOAD_HOST, 64 * MR_MIB, MR_RECOMPUTE_AUTO, MR_IO_AUTO);
}

static void nvme_budgets(void **unused) {
  (void)unused;
  run_budgets(MR_OFFLOAD_NVME, 0, MR_RECOMPUTE_NONE, MR_IO_AUTO);
  run_budgets(MR_OFFLOAD_NVME, 4 * MR_MIB, MR_RECOMPUTE_AUTO, MR_IO_PREAD);
  run_budgets(MR_OFFLOAD_NVME, 4 * MR_MIB, MR_RECOMPUTE_FULL, MR_IO_AUTO);
}

static void zeros_are_read_before_anything_is_written(void **unused) {
  (void)unused;
  struct world world;
  struct mr_options options;
  world_init(&world, shape);
  world_options(&options, 0, 0, MR_OFFLOAD_NVME);
  options.device_bytes = smallest(&world, options);
  struct mr_run *run = NULL;
  assert_int_equal(mr_run_create(world.graph, &options, &run), MR_OK);
  for (uint32_t l = 0; l < shape.layers; l++) {
    char bytes[100] = {1};
    static const char zeros[100];
    assert_int_equal(mr_run_read(run, world.moments[l], 600001, bytes, sizeof bytes), MR_OK);
    assert_memory_equal(bytes, zeros, sizeof zeros);
    assert_int_equal(mr_run_write(run, world.moments[l], 524280, "0123456789", 10), MR_OK);
    assert_int_equal(mr_run_read(run, world.moments[l], 524279, bytes, 12), MR_OK);
    assert_memory_equal(bytes,
                        "\0"
                        "0123456789"
                        "\0",
                        12);
  }
  mr_run_destroy(run);
  world_fini(&world);
}

static void bad_ranges_are_refused(void **unused) {
  (void)unused;
  struct world world;
  struct mr_options options;
  world_init(&world, shape);
  world_options(&options, MR_GIB, 0, MR_OFFLOAD_NONE);
  struct mr_run *run = NULL;
  assert_int_equal(mr_run_create(world.graph, &options, &run), MR_OK);
  char byte = 0;
  uint64_t bytes = mr_graph_tensor_bytes(world.graph, world.weights[0]);
  mr_tensor_id activation = 0;
  assert_int_equal(mr_graph_find(world.graph, "x1", &activation), MR_OK);
  assert_int_equal(mr_run_read(run, world.weights[0], bytes, &byte, 1), MR_INVALID);
  assert_int_equal(mr_run_read(run, world.weights[0], UINT64_MAX, &byte, 1), MR_INVALID);
  assert_int_equal(mr_run_write(run, activation, 0, &byte, 1), MR_INVALID);
  assert_int_equal(mr_run_write(run, 12345, 0, &byte, 1), MR_INVALID);
  assert_int_equal(mr_run_write(run, world.weights[0], 0, NULL, 1), MR_INVALID);
  assert_int_equal(mr_run_read(run, world.weights[0], 0, NULL, 1), MR_INVALID);
  assert_int_equal(mr_run_read(run, world.weights[0], bytes, &byte, 0), MR_OK);
  assert_int_equal(mr_run_step(run, (mr_step_mode)7, NULL), MR_INVALID);
  assert_int_equal(mr_run_step(run, MR_STEP_TRAIN, NULL), MR_OK);
  mr_run_destroy(run);
  world_fini(&world);
}

static void a_job_that_does_not_fit_is_refused(void **unused) {
  (void)unused;
  struct world world;
  struct mr_options options;
  world_init(&world, shape);
  world_options(&options, MR_MIB, 0, MR_OFFLOAD_NONE);
  struct mr_run *run = NULL;
  assert_int_equal(mr_run_create(world.graph, &options, &run), MR_DOES_NOT_FIT);
  assert_null(run);
  options.device_bytes = smallest(&world, options);
  assert_int_equal(mr_run_create(world.graph, &options, &run), MR_OK);
  mr_run_destroy(run);
  run = NULL;
  options.device_bytes--;
  assert_int_equal(mr_run_create(world.graph, &options, &run), MR_DOES_NOT_FIT);
  world_fini(&world);
}

static void bad_options_are_refused(void **unused) {
  (void)unused;
  struct world world;
  world_init(&world, (struct world_shape){1, 100});
  struct mr_plan *plan = NULL;
  struct mr_options options;
  world_options(&options, MR_GIB, 0, MR_OFFLOAD_NONE);
  options.size_bytes--;
  assert_int_equal(mr_plan_create(world.graph, &options, &plan), MR_INVALID);
  options.size_bytes = 0;
  assert_int_equal(mr_plan_create(world.graph, &options, &plan), MR_INVALID);
  world_options(&options, MR_GIB, 0, MR_OFFLOAD_NONE);
  options.io_timeout_seconds = 0;
  assert_int_equal(mr_plan_create(world.graph, &options, &plan), MR_INVALID);
  world_options(&options, MR_GIB, 0, MR_OFFLOAD_NONE);
  options.threads = 5000;
  assert_int_equal(mr_plan_create(world.graph, &options, &plan), MR_INVALID);
  world_options(&options, MR_GIB, 0, MR_OFFLOAD_NVME);
  struct mr_nvme_path path = {"/nonexistent/of/memrun", MR_BUDGET_AUTO};
  options.nvme = &path;
  options.nvme_count = 1;
  assert_int_equal(mr_plan_create(world.graph, &options, &plan), MR_IO);
  assert_null(plan);
  world_fini(&world);
}

static void a_failing_op_ends_the_run(void **unused) {
  (void)unused;
  struct world world;
  struct mr_options options;
  world_init(&world, shape);
  world_options(&options, 0, 64 * MR_MIB, MR_OFFLOAD_HOST);
  options.device_bytes = smallest(&world, options);
  for (uint64_t call = 1; call < 40; call += 5) {
    struct mr_run *run = NULL;
    assert_int_equal(mr_run_create(world.graph, &options, &run), MR_OK);
    world_faults = (struct world_faults){.fail_call = call, .status = MR_MISMATCH};
    mr_status status = MR_OK;
    for (uint64_t step = 1; step <= 3 && status == MR_OK; step++) {
      status = world_step(&world, run, step, MR_STEP_TRAIN, NULL);
    }
    assert_int_equal(status, MR_MISMATCH);
    assert_int_equal(mr_run_step(run, MR_STEP_TRAIN, NULL), MR_MISMATCH);
    char byte = 0;
    assert_int_equal(mr_run_read(run, world.weights[0], 0, &byte, 1), MR_MISMATCH);
    mr_run_destroy(run);
  }
  world_fini(&world);
}

static struct mr_run *meddled;
static uint32_t meddled_count;

/* What an op may not call: it would wait for itself. */
static void meddle(void) {
  char byte = 0;
  struct mr_step_report report = {.size_bytes = sizeof report};
  assert_int_equal(mr_run_read(meddled, 0, 0, &byte, 1), MR_INVALID);
  assert_int_equal(mr_run_write(meddled, 0, 0, &byte, 1), MR_INVALID);
  assert_int_equal(mr_run_step(meddled, MR_STEP_TRAIN, NULL), MR_INVALID);
  assert_int_equal(mr_run_sync(meddled), MR_INVALID);
  assert_int_equal(mr_run_destroy(meddled), MR_INVALID);
  assert_int_equal(mr_run_status(meddled), MR_OK);
  mr_run_observe(meddled, &report);
  meddled_count++;
}

static void ops_may_not_use_their_run(void **unused) {
  (void)unused;
  struct world world;
  struct mr_options options;
  world_init(&world, shape);
  world_options(&options, MR_GIB, 0, MR_OFFLOAD_NONE);
  assert_int_equal(mr_run_create(world.graph, &options, &meddled), MR_OK);
  world_faults = (struct world_faults){.meddle = meddle};
  assert_int_equal(world_step(&world, meddled, 1, MR_STEP_TRAIN, NULL), MR_OK);
  assert_int_equal(mr_run_sync(meddled), MR_OK);
  assert_true(meddled_count >= mr_graph_op_count(world.graph));
  world_faults = (struct world_faults){0};
  assert_int_equal(mr_run_destroy(meddled), MR_OK);
  world_fini(&world);
}

/* Callers with shorter structs get what they have room for. */
static void summaries_are_as_long_as_asked_for(void **unused) {
  (void)unused;
  struct world world;
  struct mr_options options;
  struct mr_plan *plan = NULL;
  world_init(&world, shape);
  world_options(&options, MR_GIB, 0, MR_OFFLOAD_NONE);
  assert_int_equal(mr_plan_create(world.graph, &options, &plan), MR_OK);
  const size_t sizes[] = {sizeof(size_t), offsetof(struct mr_plan_summary, budget_bytes),
                          sizeof(struct mr_plan_summary)};
  for (size_t i = 0; i < MR_COUNT_OF(sizes); i++) {
    _Alignas(struct mr_plan_summary) unsigned char room[sizeof(struct mr_plan_summary)];
    memset(room, 0x5a, sizeof room);
    memcpy(room, &sizes[i], sizeof sizes[i]);
    mr_plan_summarize(plan, (struct mr_plan_summary *)(void *)room);
    assert_memory_equal(room, &sizes[i], sizeof sizes[i]);
    for (size_t at = sizes[i]; at < sizeof room; at++) {
      assert_int_equal(room[at], 0x5a);
    }
  }
  mr_plan_destroy(plan);
  world_fini(&world);
}

static void plans_are_told_as_json(void **unused) {
  (void)unused;
  struct world world;
  struct mr_options options;
  world_init(&world, shape);
  world_options(&options, MR_GIB, 0, MR_OFFLOAD_NONE);
  struct mr_plan *plan = NULL;
  assert_int_equal(mr_plan_create(world.graph, &options, &plan), MR_OK);
  char *json = NULL;
  assert_int_equal(mr_plan_json(plan, &json), MR_OK);
  assert_non_null(strstr(json, "\"fits\":true"));
  assert_non_null(strstr(json, "\"largest_tensors\":[{"));
  free(json);
  assert_int_equal(mr_plan_verify(plan), MR_OK);
  mr_plan_destroy(plan);
  assert_int_equal(mr_machine_json(&options, &json), MR_OK);
  assert_non_null(strstr(json, "\"flops_per_second\""));
  free(json);
  world_fini(&world);
}

static int remove_profile(void **unused) {
  (void)unused;
  struct mr_options options;
  world_options(&options, 0, 0, MR_OFFLOAD_NONE);
  (void)unlink(options.profile_path);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(everything_fits),
      cmocka_unit_test(host_budgets),
      cmocka_unit_test(nvme_budgets),
      cmocka_unit_test(zeros_are_read_before_anything_is_written),
      cmocka_unit_test(bad_ranges_are_refused),
      cmocka_unit_test(a_job_that_does_not_fit_is_refused),
      cmocka_unit_test(bad_options_are_refused),
      cmocka_unit_test(a_failing_op_ends_the_run),
      cmocka_unit_test(ops_may_not_use_their_run),
      cmocka_unit_test(summaries_are_as_long_as_asked_for),
      cmocka_unit_test(plans_are_told_as_json),
  };
  return cmocka_run_group_tests(tests, NULL, remove_profile);
}

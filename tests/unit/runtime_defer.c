/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/: updates that run in the next step. Whoever looks sees them, they run exactly once, and
 * what fails in a flush is told.
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

#define STEPS 6u

static const struct world_shape shape = {5, 60 * 1000 + 7};
static const struct mr_nvme_path path = {"/var/tmp", 256 * MR_MIB};
static struct world world;
static struct world_state expected;

static int set_up(void **state) {
  (void)state;
  world_init(&world, shape);
  world_state_init(&expected, shape);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  world_state_fini(&expected, shape);
  world_fini(&world);
  return 0;
}

static struct mr_options options_for(uint64_t device_bytes, mr_offload offload) {
  struct mr_options options;
  world_options(&options, device_bytes, offload == MR_OFFLOAD_HOST ? 64 * MR_MIB : 0, offload);
  options.nvme = &path;
  options.nvme_count = offload == MR_OFFLOAD_NVME;
  options.replan = MR_REPLAN_NEVER;
  options.defer = MR_DEFER_ALWAYS;
  return options;
}

static struct mr_plan_summary summary_of(const struct mr_options *options) {
  struct mr_plan_summary summary = {.size_bytes = sizeof summary};
  struct mr_plan *plan = NULL;
  assert_int_equal(mr_plan_create(world.graph, options, &plan), MR_OK);
  mr_plan_summarize(plan, &summary);
  mr_plan_destroy(plan);
  return summary;
}

/* A little more than the smallest budget. */
static uint64_t tight_bytes(mr_offload offload) {
  struct mr_options options = options_for(4096, offload);
  return summary_of(&options).smallest_device_bytes * 5 / 4;
}

static struct mr_run *run_make(const struct mr_options *options) {
  struct mr_run *run = NULL;
  struct mr_plan_summary summary = {.size_bytes = sizeof summary};
  assert_int_equal(mr_run_create(world.graph, options, &run), MR_OK);
  mr_plan_summarize(mr_run_plan(run), &summary);
  assert_int_equal(summary.deferred_op_count, options->defer == MR_DEFER_NEVER ? 0 : shape.layers);
  assert_int_equal(world_load(&world, run), MR_OK);
  return run;
}

static struct mr_step_report take_step(struct mr_run *run, uint64_t step, mr_step_mode mode) {
  struct mr_step_report report = {.size_bytes = sizeof report};
  assert_int_equal(world_step(&world, run, step, mode, &report), MR_OK);
  world_state_step(&expected, shape, step, mode);
  return report;
}

static void check_loss(struct mr_run *run) {
  uint32_t loss = 0;
  assert_int_equal(mr_run_read(run, world.loss, 0, &loss, sizeof loss), MR_OK);
  assert_int_equal(loss, expected.loss);
}

/* Nothing but the loss is read between the steps. */
static void steps_in_a_row(struct mr_run *run) {
  for (uint64_t step = 1; step <= STEPS; step++) {
    struct mr_step_report report = take_step(run, step, MR_STEP_TRAIN);
    assert_true(report.flush_seconds == 0);
    check_loss(run);
    assert_true(run->pending);
  }
  world_compare(&world, run, &expected);
  assert_false(run->pending);
}

static void updates_wait_for_the_next_step(void **state) {
  (void)state;
  static const mr_offload offloads[] = {MR_OFFLOAD_NONE, MR_OFFLOAD_HOST, MR_OFFLOAD_NVME};
  for (size_t i = 0; i < MR_COUNT_OF(offloads); i++) {
    bool moves = offloads[i] != MR_OFFLOAD_NONE;
    struct mr_options options =
        options_for(moves ? tight_bytes(offloads[i]) : 64 * MR_MIB, offloads[i]);
    struct mr_run *run = run_make(&options);
    steps_in_a_row(run);
    mr_run_destroy(run);
    tear_down(NULL);
    set_up(NULL);
  }
}

static void whoever_looks_sees_them(void **state) {
  (void)state;
  struct mr_options options = options_for(tight_bytes(MR_OFFLOAD_NVME), MR_OFFLOAD_NVME);
  struct mr_run *run = run_make(&options);
  take_step(run, 1, MR_STEP_TRAIN);
  take_step(run, 2, MR_STEP_EVALUATE); /* the loss is that of updated weights */
  check_loss(run);
  assert_false(run->pending);
  struct mr_step_report report = take_step(run, 3, MR_STEP_TRAIN);
  assert_true(run->pending && report.step == 3);
  world_compare(&world, run, &expected);
  report = take_step(run, 4, MR_STEP_TRAIN);
  assert_true(report.flush_seconds > 0);
  assert_int_equal(mr_run_sync(run), MR_OK);
  assert_false(run->pending);
  assert_int_equal(mr_run_sync(run), MR_OK); /* once */
  world_compare(&world, run, &expected);
  mr_run_destroy(run);
}

/* What the client writes is not updated with what the steps before left. */
static void writes_come_after_them(void **state) {
  (void)state;
  struct mr_options options = options_for(tight_bytes(MR_OFFLOAD_NVME), MR_OFFLOAD_NVME);
  struct mr_run *run = run_make(&options);
  take_step(run, 1, MR_STEP_TRAIN);
  for (uint64_t i = 0; i < shape.elements; i++) {
    expected.weights[2][i] = world_weight(7, i);
  }
  assert_int_equal(mr_run_write(run, world.weights[2], 0, expected.weights[2],
                                shape.elements * sizeof(uint32_t)),
                   MR_OK);
  assert_false(run->pending);
  take_step(run, 2, MR_STEP_TRAIN);
  take_step(run, 3, MR_STEP_TRAIN);
  world_compare(&world, run, &expected);
  mr_run_destroy(run);
}

/* From a plan that defers to one that does not, and back, with updates pending. */
static void another_plan_begins_with_nothing_left(void **state) {
  (void)state;
  struct mr_options options = options_for(tight_bytes(MR_OFFLOAD_NVME), MR_OFFLOAD_NVME);
  struct mr_options other = options;
  struct mr_run *run = run_make(&options);
  for (uint64_t step = 1; step <= STEPS; step++) {
    take_step(run, step, MR_STEP_TRAIN);
    struct mr_plan *plan = NULL;
    other.defer = step % 2 == 1 ? MR_DEFER_NEVER : MR_DEFER_ALWAYS;
    assert_int_equal(mr_plan_create(world.graph, &other, &plan), MR_OK);
    assert_int_equal(mr_run_switch(run, plan), MR_OK);
    mr_plan_destroy(plan);
    assert_false(run->pending);
    if (step % 3 == 0) {
      world_compare(&world, run, &expected);
    }
  }
  mr_run_destroy(run);
}

static void kept_plans_defer_too(void **state) {
  (void)state;
  char file[64];
  snprintf(file, sizeof file, "/tmp/memrun-test-defer-%ld.plan", (long)getpid());
  struct mr_options options = options_for(tight_bytes(MR_OFFLOAD_NVME), MR_OFFLOAD_NVME);
  struct mr_plan *plan = NULL;
  assert_int_equal(mr_plan_create(world.graph, &options, &plan), MR_OK);
  assert_int_equal(mr_plan_save(plan, file), MR_OK);
  mr_plan_destroy(plan);
  options.plan_path = file;
  options.defer = MR_DEFER_AUTO;
  struct mr_run *run = run_make(&options);
  steps_in_a_row(run);
  mr_run_destroy(run);
  unlink(file);
}

static void ignore_line(void *context, mr_log_level level, const char *line) {
  (void)level;
  (void)line;
  ++*(uint32_t *)context;
}

/* Two steps, then a flush whose n-th op fails. */
static void an_update_that_fails_is_told(void **state) {
  (void)state;
  struct mr_options options = options_for(tight_bytes(MR_OFFLOAD_NVME), MR_OFFLOAD_NVME);
  for (uint32_t n = 1; n <= shape.layers + 1; n++) {
    world_faults = (struct world_faults){0};
    struct mr_run *run = run_make(&options);
    take_step(run, 1, MR_STEP_TRAIN);
    take_step(run, 2, MR_STEP_TRAIN);
    world_faults.fail_call = world_faults.calls + n;
    world_faults.status = MR_CORRUPT;
    bool fails = n <= shape.layers;
    assert_int_equal(mr_run_sync(run), fails ? MR_CORRUPT : MR_OK);
    uint32_t word = 0;
    assert_int_equal(mr_run_read(run, world.weights[0], 0, &word, sizeof word),
                     fails ? MR_CORRUPT : MR_OK);
    mr_run_destroy(run);
  }
  world_faults = (struct world_faults){0};
}

/* One step and a flush in which the n-th write fails; *in_flush_out: the flush told it. */
static mr_status step_and_flush(uint32_t n, bool *in_flush_out) {
  struct mr_options options = options_for(tight_bytes(MR_OFFLOAD_NVME), MR_OFFLOAD_NVME);
  char fault[32];
  snprintf(fault, sizeof fault, "write:eio:%u", n);
  assert_int_equal(setenv("MEMRUN_INJECT", fault, 1), 0);
  struct mr_run *run = NULL;
  assert_int_equal(mr_run_create(world.graph, &options, &run), MR_OK);
  mr_status status = world_load(&world, run);
  if (status == MR_OK) {
    status = world_step(&world, run, 1, MR_STEP_TRAIN, NULL);
  }
  if (status == MR_OK && (status = mr_run_drain(run)) == MR_OK) {
    status = mr_run_sync(run);
    *in_flush_out = status != MR_OK;
  }
  mr_run_destroy(run);
  assert_int_equal(unsetenv("MEMRUN_INJECT"), 0);
  return status;
}

/* The writes of loading, a step and a flush, some of each. */
static void a_write_that_fails_in_a_flush_is_told(void **state) {
  (void)state;
  uint32_t lines = 0;
  uint32_t in_flushes = 0;
  mr_status status = MR_INVALID;
  mr_log_configure(ignore_line, &lines, MR_LOG_ERROR);
  for (uint32_t n = 1; status != MR_OK; n += n < 20 ? 1 : 3) {
    bool in_flush = false;
    assert_true(n < 1000);
    status = step_and_flush(n, &in_flush);
    assert_true(status == MR_OK || status == MR_IO);
    in_flushes += in_flush;
  }
  assert_true(in_flushes > 0 && lines > 0);
  mr_log_configure(NULL, NULL, MR_LOG_ERROR);
}

/* ---- What one update leaves to another ---- */

#define LARGE (256u << 10)
#define SMALL 64u

enum { W, X, H, G, M1, M2, K, Y, TENSORS };

/* Mixes all inputs into all outputs, byte by byte; the attributes are the operands' sizes. */
static mr_status mix(const struct mr_op_call *call) {
  const uint32_t *bytes = call->attributes; /* inputs, outputs: counts, then sizes */
  for (uint32_t o = 0; o < bytes[1]; o++) {
    uint8_t *output = call->outputs[o];
    for (uint32_t at = 0; at < bytes[2 + bytes[0] + o]; at++) {
      uint32_t sum = o + 1;
      for (uint32_t i = 0; i < bytes[0]; i++) {
        sum = 31 * sum + ((const uint8_t *)call->inputs[i])[at % bytes[2 + i]];
      }
      output[at] = (uint8_t)(sum ^ sum >> 8);
    }
  }
  return MR_OK;
}

static void add_mix(struct mr_graph *graph, const mr_tensor_id *operands, uint32_t inputs,
                    uint32_t outputs, uint32_t flags) {
  uint32_t bytes[8] = {inputs, outputs};
  mr_op_id id = 0;
  for (uint32_t i = 0; i < inputs + outputs; i++) {
    bytes[2 + i] = (uint32_t)mr_graph_tensor_bytes(graph, operands[i]);
  }
  const struct mr_op_desc desc = {.size_bytes = sizeof desc,
                                  .name = "mix",
                                  .kind = "mix",
                                  .run = {mix},
                                  .attributes = bytes,
                                  .attributes_bytes = sizeof bytes,
                                  .inputs = operands,
                                  .input_count = inputs,
                                  .outputs = operands + inputs,
                                  .output_count = outputs,
                                  .flags = flags,
                                  .block = MR_NO_BLOCK};
  assert_int_equal(mr_graph_add_op(graph, &desc, &id), MR_OK);
}

/* Three updates: the first leaves H to the third, and the second wants the room of it. */
static struct mr_graph *chained_updates(void) {
  static const char *const names[TENSORS] = {"w", "x", "h", "g", "m1", "m2", "k", "y"};
  static const mr_role roles[TENSORS] = {MR_PARAMETER, MR_ACTIVATION, MR_ACTIVATION, MR_GRADIENT,
                                         MR_STATE,     MR_STATE,      MR_ACTIVATION, MR_STATE};
  const uint32_t late = MR_OP_TRAIN_ONLY | MR_OP_DEFERRABLE;
  struct mr_graph *graph = NULL;
  assert_int_equal(mr_graph_create(&graph), MR_OK);
  for (mr_tensor_id t = 0; t < TENSORS; t++) {
    mr_tensor_id id = 0;
    bool small = t == X || t == K || t == Y;
    const struct mr_tensor_desc desc = {.size_bytes = sizeof desc,
                                        .name = names[t],
                                        .role = roles[t],
                                        .dtype = MR_U8,
                                        .rank = 1,
                                        .shape = {small ? SMALL : LARGE}};
    assert_int_equal(mr_graph_add_tensor(graph, &desc, &id), MR_OK);
  }
  add_mix(graph, (const mr_tensor_id[]){W, X, H, K}, 1, 3, 0);
  add_mix(graph, (const mr_tensor_id[]){M1, M2, Y}, 2, 1, 0);
  add_mix(graph, (const mr_tensor_id[]){X, G}, 1, 1, MR_OP_TRAIN_ONLY);
  add_mix(graph, (const mr_tensor_id[]){G, H}, 1, 1, late);
  add_mix(graph, (const mr_tensor_id[]){G, M1, M2, M1, M2, K}, 3, 3, late);
  add_mix(graph, (const mr_tensor_id[]){H, K, W, W}, 3, 1, late);
  return graph;
}

/* The last bytes of the parameter, which is looked at after each step. */
static void run_chained(const struct mr_graph *graph, const struct mr_options *options,
                        uint8_t *w_out) {
  struct mr_run *run = NULL;
  assert_int_equal(mr_run_create(graph, options, &run), MR_OK);
  for (uint32_t i = 0; i < LARGE; i++) {
    w_out[i] = (uint8_t)(i * 7 + i / 256);
  }
  assert_int_equal(mr_run_write(run, W, 0, w_out, LARGE), MR_OK);
  for (uint32_t step = 0; step < 4; step++) {
    assert_int_equal(mr_run_step(run, MR_STEP_TRAIN, NULL), MR_OK);
    assert_int_equal(mr_run_read(run, W, 0, w_out, LARGE), MR_OK);
  }
  assert_int_equal(mr_run_destroy(run), MR_OK);
}

/* What lies on the host between two updates is there for the second one in a flush, too. */
static void updates_hand_on_in_a_flush(void **state) {
  (void)state;
  static uint8_t wanted[LARGE];
  static uint8_t found[LARGE];
  struct mr_graph *graph = chained_updates();
  struct mr_options options;
  struct mr_plan *plan = NULL;
  struct mr_plan_summary summary;
  world_options(&options, 64 * MR_MIB, 0, MR_OFFLOAD_NONE);
  options.defer = MR_DEFER_NEVER;
  run_chained(graph, &options, wanted);
  world_options(&options, 4096, 64 * MR_MIB, MR_OFFLOAD_HOST);
  options.defer = MR_DEFER_ALWAYS;
  options.replan = MR_REPLAN_NEVER;
  assert_int_equal(mr_plan_create(graph, &options, &plan), MR_OK);
  mr_plan_summarize(plan, &summary);
  mr_plan_destroy(plan);
  options.device_bytes = summary.smallest_device_bytes;
  assert_int_equal(mr_plan_create(graph, &options, &plan), MR_OK);
  mr_plan_summarize(plan, &summary);
  assert_true(summary.fits && summary.deferred_op_count == 3);
  mr_plan_destroy(plan);
  run_chained(graph, &options, found);
  assert_memory_equal(found, wanted, LARGE);
  mr_graph_destroy(graph);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(updates_wait_for_the_next_step, set_up, tear_down),
      cmocka_unit_test_setup_teardown(whoever_looks_sees_them, set_up, tear_down),
      cmocka_unit_test_setup_teardown(writes_come_after_them, set_up, tear_down),
      cmocka_unit_test_setup_teardown(another_plan_begins_with_nothing_left, set_up, tear_down),
      cmocka_unit_test_setup_teardown(kept_plans_defer_too, set_up, tear_down),
      cmocka_unit_test_setup_teardown(an_update_that_fails_is_told, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_write_that_fails_in_a_flush_is_told, set_up, tear_down),
      cmocka_unit_test_setup_teardown(updates_hand_on_in_a_flush, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

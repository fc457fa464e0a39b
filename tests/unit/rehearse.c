/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops that were never run are run by themselves before the first plan, and never again: what they
 * take is then known. Those that a budget does not hold, or that may take too long, are left alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/planning.h"

#define ELEMENTS 1000u
#define SLOW_NS  5000000u
#define MANY_OPS 300u

/* What the callbacks saw. */
static struct {
  uint64_t calls;
  uint64_t fail_call; /* 0: none */
  uint64_t late_ns;
  bool spoiled; /* an operand was not as it must be */
} seen;

static bool is_zero(const uint32_t *data) {
  for (uint32_t i = 0; i < ELEMENTS; i++) {
    if (data[i] != 0) {
      return false;
    }
  }
  return true;
}

static mr_status run(const struct mr_op_call *call) {
  const struct timespec late = {.tv_nsec = (long)seen.late_ns};
  seen.calls++;
  if (call->scratch == NULL) {
    seen.spoiled = true;
    return MR_INVALID;
  }
  seen.spoiled |= call->team == NULL || call->stream != NULL || call->mode != MR_STEP_TRAIN ||
                  call->inputs[0] == call->scratch || call->inputs[1] != call->outputs[0] ||
                  !is_zero(call->inputs[0]);
  memset(call->scratch, 0xff, ELEMENTS * sizeof(uint32_t));
  nanosleep(&late, NULL);
  return seen.calls == seen.fail_call ? MR_CORRUPT : MR_OK;
}

/* A graph of so many ops, a different size each; all of one kind change a tensor in place. */
static struct mr_graph *graph_of(uint32_t op_count, double flops) {
  struct mr_graph *graph = NULL;
  mr_tensor_id tensors[2] = {0};
  struct mr_tensor_desc tensor = {
      .size_bytes = sizeof tensor, .dtype = MR_F32, .rank = 1, .shape = {ELEMENTS}};
  assert_int_equal(mr_graph_create(&graph), MR_OK);
  tensor.name = "in";
  tensor.role = MR_INPUT;
  assert_int_equal(mr_graph_add_tensor(graph, &tensor, &tensors[0]), MR_OK);
  tensor.name = "state";
  tensor.role = MR_STATE;
  assert_int_equal(mr_graph_add_tensor(graph, &tensor, &tensors[1]), MR_OK);
  for (uint32_t k = 0; k < op_count; k++) {
    char name[32];
    mr_op_id id = 0;
    snprintf(name, sizeof name, "op.%u", k);
    struct mr_op_desc op = {.size_bytes = sizeof op,
                            .name = name,
                            .kind = "change",
                            .run = {run},
                            .inputs = tensors,
                            .input_count = 2,
                            .outputs = &tensors[1],
                            .output_count = 1,
                            .scratch_bytes = ELEMENTS * sizeof(uint32_t),
                            .flops = flops * (1 + k),
                            .flags = MR_OP_REPEATABLE,
                            .block = MR_NO_BLOCK};
    assert_int_equal(mr_graph_add_op(graph, &op, &id), MR_OK);
  }
  return graph;
}

static const char *profile_path(void) {
  static char path[64];
  snprintf(path, sizeof path, "/tmp/memrun-test-rehearse-%ld.tmp", (long)getpid());
  return path;
}

static struct mr_plan *plan_of(const struct mr_graph *graph, uint64_t device_bytes,
                               mr_status expected) {
  struct mr_plan *plan = NULL;
  struct mr_options options;
  mr_options_init(&options);
  options.device_bytes = device_bytes;
  options.host_bytes = 0;
  options.threads = 2;
  options.offload = MR_OFFLOAD_NONE;
  options.profile_path = profile_path();
  seen.calls = 0;
  assert_int_equal(mr_plan_create(graph, &options, &plan), expected);
  assert_false(seen.spoiled);
  return plan;
}

static void ops_are_timed_once(void **state) {
  (void)state;
  struct mr_graph *graph = graph_of(2, 1e6);
  seen.late_ns = SLOW_NS;
  struct mr_plan *plan = plan_of(graph, MR_MIB, MR_OK);
  assert_true(seen.calls >= 4 && seen.calls <= 12);
  double seconds = plan->layout->step_seconds;
  assert_true(seconds > 2e-9 * SLOW_NS && seconds < 2e-9 * SLOW_NS + 1);
  mr_plan_destroy(plan);
  plan = plan_of(graph, MR_MIB, MR_OK); /* from the profile's file */
  assert_int_equal(seen.calls, 0);
  assert_float_equal(plan->layout->step_seconds, seconds, 1e-12);
  mr_plan_destroy(plan);
  mr_graph_destroy(graph);
  assert_int_equal(unlink(profile_path()), 0);
  seen.late_ns = 0;
}

static void what_an_op_gives_is_told(void **state) {
  (void)state;
  struct mr_graph *graph = graph_of(3, 1e6);
  for (uint64_t call = 1; call <= 4; call++) {
    seen.fail_call = call;
    assert_null(plan_of(graph, MR_MIB, MR_CORRUPT));
    assert_int_equal(seen.calls, call);
  }
  seen.fail_call = 0;
  mr_graph_destroy(graph);
  assert_int_equal(access(profile_path(), F_OK), -1);
}

static void no_op_runs_outside_the_budget(void **state) {
  (void)state;
  struct mr_graph *graph = graph_of(2, 1e6);
  struct mr_plan *plan = plan_of(graph, 2 * ELEMENTS * sizeof(uint32_t), MR_OK);
  assert_false(plan->layout->fits);
  assert_int_equal(seen.calls, 0);
  mr_plan_destroy(plan);
  mr_graph_destroy(graph);
  assert_int_equal(unlink(profile_path()), 0);
}

/* After 2 s in all; and no op is begun that may take longer by itself. */
static void timing_ends(void **state) {
  (void)state;
  struct mr_graph *graph = graph_of(1, 1e18);
  mr_plan_destroy(plan_of(graph, MR_MIB, MR_OK));
  assert_int_equal(seen.calls, 0);
  mr_graph_destroy(graph);
  assert_int_equal(unlink(profile_path()), 0);
  graph = graph_of(MANY_OPS, 1e3);
  seen.late_ns = 2 * SLOW_NS;
  mr_plan_destroy(plan_of(graph, MR_MIB, MR_OK));
  assert_true(seen.calls >= 2 && seen.calls <= 206);
  mr_graph_destroy(graph);
  assert_int_equal(unlink(profile_path()), 0);
  seen.late_ns = 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ops_are_timed_once),
      cmocka_unit_test(what_an_op_gives_is_told),
      cmocka_unit_test(no_op_runs_outside_the_budget),
      cmocka_unit_test(timing_ends),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

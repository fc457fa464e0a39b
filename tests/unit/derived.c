/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Derived tensors: where they live, what their memory is worth to a plan, which rounds restore
 * them, and who may not touch them. That no bit depends on it is tested with random programs
 * (model/plan).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/runtime.h"

#define LAYERS    4u
#define WORDS     (512u * 1024)

#define LIST(...) ((const mr_tensor_id[]){__VA_ARGS__})

static struct { uint32_t updates, restored; } seen;

/* Layers x[l + 1] = c[l] x[l]; gradients g[l] = c[l] x[LAYERS]; updates w[l] += g[l] and
 * c[l] = w[l] + 1. */
struct job {
  struct mr_graph *graph;
  mr_tensor_id input, loss;
  mr_tensor_id x[LAYERS + 1], weight[LAYERS], copy[LAYERS], gradient[LAYERS];
};

static mr_status multiply(const struct mr_op_call *call) {
  const uint32_t *x = call->inputs[0], *c = call->inputs[1];
  for (uint32_t i = 0; i < WORDS; i++) {
    ((uint32_t *)call->outputs[0])[i] = x[i] * c[i];
  }
  return MR_OK;
}

static mr_status add_up(const struct mr_op_call *call) {
  uint32_t sum = 0;
  for (uint32_t i = 0; i < WORDS; i++) {
    sum = sum * 31 + ((const uint32_t *)call->inputs[0])[i];
  }
  *(uint32_t *)call->outputs[0] = sum;
  return MR_OK;
}

static mr_status update(const struct mr_op_call *call) {
  uint32_t *w = call->outputs[0], *c = call->outputs[1];
  bool restores = call->mode == MR_STEP_RESTORE;
  seen.updates += !restores;
  seen.restored += restores;
  for (uint32_t i = 0; i < WORDS; i++) {
    w[i] += restores ? 0 : ((const uint32_t *)call->inputs[1])[i];
    c[i] = w[i] + 1;
  }
  return MR_OK;
}

static mr_tensor_id add_tensor(struct job *job, const char *what, uint32_t layer, mr_role role,
                               uint64_t words) {
  char name[32];
  snprintf(name, sizeof name, "%s%u", what, layer);
  struct mr_tensor_desc desc = {.size_bytes = sizeof desc,
                                .name = name,
                                .role = role,
                                .dtype = MR_I32,
                                .rank = 1,
                                .shape = {words}};
  mr_tensor_id id = 0;
  assert_int_equal(mr_graph_add_tensor(job->graph, &desc, &id), MR_OK);
  return id;
}

/* Two inputs, and `outputs` from `out` on. */
static void add_op(struct job *job, const char *kind, mr_op_run run, const mr_tensor_id *in,
                   const mr_tensor_id *out, uint32_t outputs, uint32_t flags) {
  char name[32];
  snprintf(name, sizeof name, "%s.%u", kind, mr_graph_op_count(job->graph));
  struct mr_op_desc desc = {.size_bytes = sizeof desc,
                            .name = name,
                            .kind = kind,
                            .run = {run},
                            .inputs = in,
                            .input_count = 2,
                            .outputs = out,
                            .output_count = outputs,
                            .flags = flags,
                            .block = MR_NO_BLOCK};
  mr_op_id id = 0;
  assert_int_equal(mr_graph_add_op(job->graph, &desc, &id), MR_OK);
}

static void job_init(struct job *job, mr_role copies) {
  *job = (struct job){0};
  seen.updates = seen.restored = 0;
  assert_int_equal(mr_graph_create(&job->graph), MR_OK);
  job->input = job->x[0] = add_tensor(job, "x", 0, MR_INPUT, WORDS);
  job->loss = add_tensor(job, "loss", 0, MR_STATE, 1);
  for (uint32_t l = 0; l < LAYERS; l++) {
    job->weight[l] = add_tensor(job, "w", l, MR_PARAMETER, WORDS);
    job->copy[l] = add_tensor(job, "c", l, copies, WORDS);
    job->gradient[l] = add_tensor(job, "g", l, MR_GRADIENT, WORDS);
    job->x[l + 1] = add_tensor(job, "x", l + 1, MR_ACTIVATION, WORDS);
    add_op(job, "forward", multiply, LIST(job->x[l], job->copy[l]), &job->x[l + 1], 1, 0);
  }
  add_op(job, "loss", add_up, LIST(job->x[LAYERS], job->x[0]), &job->loss, 1, 0);
  for (uint32_t l = LAYERS; l-- > 0;) {
    add_op(job, "backward", multiply, LIST(job->x[LAYERS], job->copy[l]), &job->gradient[l], 1,
           MR_OP_TRAIN_ONLY);
  }
  for (uint32_t l = 0; l < LAYERS; l++) {
    add_op(job, "update", update, LIST(job->weight[l], job->gradient[l]),
           LIST(job->weight[l], job->copy[l]), 2, MR_OP_TRAIN_ONLY | MR_OP_DEFERRABLE);
  }
}

static char profile[64]; /* of the machine, measured once */

static struct mr_options options_for(mr_defer defer, uint64_t device_bytes) {
  static const struct mr_nvme_path path = {"/var/tmp", 64 * MR_MIB};
  struct mr_options options;
  snprintf(profile, sizeof profile, "/tmp/memrun-test-derived-%ld.json.tmp", (long)getpid());
  mr_options_init(&options);
  options.device_bytes = device_bytes;
  options.host_bytes = 0;
  options.offload = MR_OFFLOAD_NVME;
  options.nvme = &path;
  options.nvme_count = 1;
  options.defer = defer;
  options.replan = MR_REPLAN_NEVER;
  options.threads = 1;
  options.profile_path = profile;
  return options;
}

static struct mr_plan_summary summary_of(const struct job *job, mr_defer defer, uint64_t bytes) {
  struct mr_options options = options_for(defer, bytes);
  struct mr_plan_summary summary = {.size_bytes = sizeof summary};
  struct mr_plan *plan = NULL;
  assert_int_equal(mr_plan_create(job->graph, &options, &plan), MR_OK);
  mr_plan_summarize(plan, &summary);
  mr_plan_destroy(plan);
  return summary;
}

/* ---- Where they live ---- */

static bool goes_round(const struct mr_graph *graph, uint32_t staying, mr_tensor_id tensor) {
  struct mr_graph *program = NULL;
  assert_int_equal(mr_graph_defer(graph, staying, &program), MR_OK);
  bool round = mr_tensor_goes_round(&(program == NULL ? graph : program)->tensors[tensor]);
  mr_graph_destroy(program);
  return round;
}

static void what_a_deferred_update_makes_lives_inside_a_step(void **state) {
  (void)state;
  struct job job;
  job_init(&job, MR_DERIVED);
  for (uint32_t l = 0; l < LAYERS; l++) {
    assert_false(goes_round(job.graph, 0, job.copy[l]));
    assert_true(goes_round(job.graph, 0, job.weight[l]));
    assert_int_equal(goes_round(job.graph, 2, job.copy[l]), l >= LAYERS - 2); /* its update stays */
    assert_true(mr_tensor_goes_round(&job.graph->tensors[job.copy[l]]));
  }
  mr_graph_destroy(job.graph);
}

/* A deferred op that comes before the update wants what the update before made. */
static void what_is_read_before_goes_round(void **state) {
  (void)state;
  struct job job;
  const mr_tensor_id read = LAYERS - 1;
  job_init(&job, MR_DERIVED);
  add_op(&job, "sum", add_up, LIST(job.copy[read], job.x[0]), &job.loss, 1,
         MR_OP_TRAIN_ONLY | MR_OP_DEFERRABLE);
  job.graph->ops[job.graph->op_count - 1].input_count = 1; /* an input would keep it in its step */
  assert_false(goes_round(job.graph, 0, job.copy[read]));  /* it comes behind the update */
  struct mr_op sum = job.graph->ops[job.graph->op_count - 1];
  job.graph->ops[job.graph->op_count - 1] = job.graph->ops[job.graph->op_count - 2];
  job.graph->ops[job.graph->op_count - 2] = sum;
  assert_true(goes_round(job.graph, 0, job.copy[read]));
  assert_false(goes_round(job.graph, 0, job.copy[0]));
  mr_graph_destroy(job.graph);
}

/* While gradients come to be, one after the other, copies end: in their memory. */
static void the_dead_take_no_memory(void **state) {
  (void)state;
  static const mr_defer defers[] = {MR_DEFER_NEVER, MR_DEFER_ALWAYS};
  for (uint32_t i = 0; i < MR_COUNT_OF(defers); i++) {
    struct job with, without;
    job_init(&with, MR_DERIVED);
    job_init(&without, MR_PARAMETER);
    uint64_t derived = summary_of(&with, defers[i], MR_GIB).footprint_bytes;
    uint64_t kept = summary_of(&without, defers[i], MR_GIB).footprint_bytes;
    print_message("%llu bytes, %llu with copies that are kept\n", (unsigned long long)derived,
                  (unsigned long long)kept);
    assert_true(derived + 2 * WORDS * sizeof(uint32_t) <= kept);
    mr_graph_destroy(with.graph);
    mr_graph_destroy(without.graph);
  }
}

/* ---- Rounds ---- */

struct expected {
  uint32_t x[WORDS], weight[LAYERS][WORDS];
  uint32_t loss;
};

static void expect_step(struct expected *e, bool trains) {
  e->loss = 0;
  for (uint32_t i = 0; i < WORDS; i++) {
    uint32_t x[LAYERS + 1] = {e->x[i]};
    for (uint32_t l = 0; l < LAYERS; l++) {
      x[l + 1] = x[l] * (e->weight[l][i] + 1);
    }
    e->loss = e->loss * 31 + x[LAYERS];
    for (uint32_t l = 0; l < LAYERS && trains; l++) {
      e->weight[l][i] += x[LAYERS] * (e->weight[l][i] + 1);
    }
  }
}

static void step(struct job *job, struct mr_run *run, struct expected *e, mr_step_mode mode,
                 uint32_t updates, uint32_t restored) {
  uint32_t loss = 0;
  seen.updates = seen.restored = 0;
  assert_int_equal(mr_run_step(run, mode, NULL), MR_OK);
  assert_int_equal(seen.updates, updates);
  assert_int_equal(seen.restored, restored);
  expect_step(e, mode == MR_STEP_TRAIN);
  assert_int_equal(mr_run_read(run, job->loss, 0, &loss, sizeof loss), MR_OK);
  assert_int_equal(loss, e->loss);
}

static void write_weight(struct job *job, struct mr_run *run, struct expected *e, uint32_t l,
                         uint32_t factor) {
  for (uint32_t i = 0; i < WORDS; i++) {
    e->weight[l][i] = i * factor + l;
  }
  assert_int_equal(mr_run_write(run, job->weight[l], 0, e->weight[l], sizeof e->weight[l]), MR_OK);
}

static struct mr_run *run_make(struct job *job, mr_defer defer, struct expected *e) {
  job_init(job, MR_DERIVED);
  uint64_t smallest = summary_of(job, defer, 4096).smallest_device_bytes;
  struct mr_options options = options_for(defer, smallest * 5 / 4);
  struct mr_run *run = NULL;
  assert_int_equal(mr_run_create(job->graph, &options, &run), MR_OK);
  for (uint32_t i = 0; i < WORDS; i++) {
    e->x[i] = i * 7 + 1;
  }
  assert_int_equal(mr_run_write(run, job->input, 0, e->x, sizeof e->x), MR_OK);
  for (uint32_t l = 0; l < LAYERS; l++) {
    write_weight(job, run, e, l, 3);
  }
  return run;
}

static void run_end(struct job *job, struct mr_run *run) {
  mr_run_destroy(run);
  mr_graph_destroy(job->graph);
}

static void check_weights(struct job *job, struct mr_run *run, const struct expected *e) {
  static uint32_t words[WORDS];
  for (uint32_t l = 0; l < LAYERS; l++) {
    assert_int_equal(mr_run_read(run, job->weight[l], 0, words, sizeof words), MR_OK);
    assert_memory_equal(words, e->weight[l], sizeof words);
  }
}

static void rounds_restore_what_they_leave_out(void **state) {
  (void)state;
  static struct expected e;
  struct job job;
  struct mr_run *run = run_make(&job, MR_DEFER_NEVER, &e);
  step(&job, run, &e, MR_STEP_TRAIN, LAYERS, LAYERS); /* before it, nothing had been made */
  step(&job, run, &e, MR_STEP_TRAIN, LAYERS, 0);
  step(&job, run, &e, MR_STEP_EVALUATE, 0, LAYERS);
  step(&job, run, &e, MR_STEP_TRAIN, LAYERS, 0);
  write_weight(&job, run, &e, 1, 5);
  step(&job, run, &e, MR_STEP_EVALUATE, 0, 2 * LAYERS); /* and before it */
  step(&job, run, &e, MR_STEP_TRAIN, LAYERS, 0);
  check_weights(&job, run, &e);
  run_end(&job, run);
}

static void deferred_ones_need_no_round_of_their_own(void **state) {
  (void)state;
  static struct expected e;
  struct job job;
  struct mr_run *run = run_make(&job, MR_DEFER_ALWAYS, &e);
  step(&job, run, &e, MR_STEP_TRAIN, 0, LAYERS); /* nothing is pending yet */
  step(&job, run, &e, MR_STEP_TRAIN, LAYERS, 0);
  step(&job, run, &e, MR_STEP_EVALUATE, LAYERS, LAYERS); /* what was pending, then the evaluation */
  write_weight(&job, run, &e, 2, 9);
  step(&job, run, &e, MR_STEP_TRAIN, 0, LAYERS);
  check_weights(&job, run, &e);
  step(&job, run, &e, MR_STEP_TRAIN, 0, LAYERS);
  run_end(&job, run);
}

/* ---- Who may touch them ---- */

static void count_line(void *context, mr_log_level level, const char *line) {
  (void)level;
  assert_non_null(strstr(line, "c0 is derived"));
  ++*(uint32_t *)context;
}

static void the_client_does_not_touch_them(void **state) {
  (void)state;
  static struct expected e;
  uint32_t lines = 0;
  uint32_t word = 0;
  struct job job;
  struct mr_run *run = run_make(&job, MR_DEFER_NEVER, &e);
  mr_log_configure(count_line, &lines, MR_LOG_ERROR);
  assert_int_equal(mr_run_read(run, job.copy[0], 0, &word, sizeof word), MR_INVALID);
  assert_int_equal(mr_run_write(run, job.copy[0], 0, &word, sizeof word), MR_INVALID);
  mr_log_configure(NULL, NULL, MR_LOG_ERROR);
  assert_int_equal(lines, 2);
  step(&job, run, &e, MR_STEP_TRAIN, LAYERS, LAYERS); /* nothing came of it */
  run_end(&job, run);
}

static int remove_profile(void **state) {
  (void)state;
  (void)unlink(profile);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_a_deferred_update_makes_lives_inside_a_step),
      cmocka_unit_test(what_is_read_before_goes_round),
      cmocka_unit_test(the_dead_take_no_memory),
      cmocka_unit_test(rounds_restore_what_they_leave_out),
      cmocka_unit_test(deferred_ones_need_no_round_of_their_own),
      cmocka_unit_test(the_client_does_not_touch_them),
  };
  return cmocka_run_group_tests(tests, NULL, remove_profile);
}

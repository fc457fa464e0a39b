/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph/defer.c: where updates go, which stay, and what is carried; and random programs, run with
 * their updates in the next step and without.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "graph/graph.h"
#include "model/program.h"

#define ROUNDS 300u
#define STEPS  4u

#define UPDATE (MR_OP_TRAIN_ONLY | MR_OP_DEFERRABLE)

static mr_status no_run(const struct mr_op_call *call) {
  (void)call;
  return MR_OK;
}

static mr_tensor_id tensor(struct mr_graph *graph, const char *name, mr_role role) {
  struct mr_tensor_desc desc = {
      .size_bytes = sizeof desc, .name = name, .role = role, .dtype = MR_F32};
  mr_tensor_id id = 0;
  assert_int_equal(mr_graph_add_tensor(graph, &desc, &id), MR_OK);
  return id;
}

/* Lists of operands end with MR_NO_TENSOR. */
static void op(struct mr_graph *graph, const char *name, const mr_tensor_id *inputs,
               const mr_tensor_id *outputs, uint32_t flags) {
  struct mr_op_desc desc = {.size_bytes = sizeof desc,
                            .name = name,
                            .kind = "kind",
                            .run = {no_run},
                            .inputs = inputs,
                            .outputs = outputs,
                            .flags = flags,
                            .block = MR_NO_BLOCK};
  while (inputs[desc.input_count] != MR_NO_TENSOR) {
    desc.input_count++;
  }
  while (outputs[desc.output_count] != MR_NO_TENSOR) {
    desc.output_count++;
  }
  mr_op_id id = 0;
  assert_int_equal(mr_graph_add_op(graph, &desc, &id), MR_OK);
}

#define LIST(...) ((const mr_tensor_id[]){__VA_ARGS__, MR_NO_TENSOR})

/* Two layers: forward, backward, a scale of both gradients; updates are the test's. */
struct step {
  struct mr_graph *graph;
  mr_tensor_id input, x[2], p[2], g[2], scale;
};

static struct step step_make(void) {
  struct step s;
  assert_int_equal(mr_graph_create(&s.graph), MR_OK);
  s.input = tensor(s.graph, "input", MR_INPUT);
  for (uint32_t i = 0; i < 2; i++) {
    s.p[i] = tensor(s.graph, i == 0 ? "p0" : "p1", MR_PARAMETER);
    s.x[i] = tensor(s.graph, i == 0 ? "x0" : "x1", MR_ACTIVATION);
    s.g[i] = tensor(s.graph, i == 0 ? "g0" : "g1", MR_GRADIENT);
  }
  s.scale = tensor(s.graph, "scale", MR_SCRATCH);
  op(s.graph, "forward0", LIST(s.input, s.p[0]), LIST(s.x[0]), 0);
  op(s.graph, "forward1", LIST(s.x[0], s.p[1]), LIST(s.x[1]), 0);
  op(s.graph, "backward1", LIST(s.x[1]), LIST(s.g[1]), MR_OP_TRAIN_ONLY);
  op(s.graph, "backward0", LIST(s.x[0]), LIST(s.g[0]), MR_OP_TRAIN_ONLY);
  op(s.graph, "norm", LIST(s.g[0], s.g[1]), LIST(s.scale), MR_OP_TRAIN_ONLY);
  return s;
}

static void update(struct step *s, const char *name, uint32_t layer, uint32_t flags) {
  op(s->graph, name, LIST(s->g[layer], s->scale, s->p[layer]), LIST(s->p[layer]), flags);
}

/* The names of the program's ops, deferred ones with a star; "" where nothing is deferred. Frees
 * the graph and gives the program back, to be destroyed. */
static struct mr_graph *defer(struct step *s, char *text, size_t capacity) {
  struct mr_graph *program = NULL;
  size_t length = 0;
  assert_int_equal(mr_graph_defer(s->graph, 0, &program), MR_OK);
  text[0] = '\0';
  for (mr_op_id k = 0; program != NULL && k < program->op_count; k++) {
    const struct mr_op *each = &program->ops[k];
    length += (size_t)snprintf(text + length, capacity - length, "%s%s%s", k > 0 ? " " : "",
                               each->name, each->deferred ? "*" : "");
    assert_true(length < capacity);
  }
  mr_graph_destroy(s->graph);
  return program;
}

static void expect(struct step *s, const char *order) {
  char text[256];
  struct mr_graph *program = defer(s, text, sizeof text);
  assert_string_equal(text, order);
  mr_graph_destroy(program);
}

static void updates_go_before_their_readers(void **state) {
  (void)state;
  char text[256];
  struct step s = step_make();
  update(&s, "first0", 0, UPDATE);
  update(&s, "second0", 0, UPDATE);
  update(&s, "only1", 1, UPDATE);
  struct mr_graph *program = defer(&s, text, sizeof text);
  assert_string_equal(text, "first0* second0* forward0 only1* forward1 backward1 backward0 norm");
  assert_true(program->tensors[s.g[0]].carried && program->tensors[s.g[1]].carried);
  assert_true(program->tensors[s.scale].carried);
  assert_false(program->tensors[s.p[0]].carried || program->tensors[s.x[0]].carried ||
               program->tensors[s.input].carried);
  assert_true(mr_tensor_goes_round(&program->tensors[s.g[0]]) &&
              mr_tensor_goes_round(&program->tensors[s.p[0]]) &&
              !mr_tensor_goes_round(&program->tensors[s.x[0]]));
  mr_graph_destroy(program);
}

/* The last of them where that is asked for, and nothing is deferred where all do. */
static void the_last_stay(void **state) {
  (void)state;
  for (uint32_t staying = 1; staying <= 2; staying++) {
    struct mr_graph *program = NULL;
    struct step s = step_make();
    update(&s, "only0", 0, UPDATE);
    update(&s, "only1", 1, UPDATE);
    assert_int_equal(mr_graph_defer(s.graph, staying, &program), MR_OK);
    assert_int_equal(program == NULL, staying == 2);
    if (program != NULL) {
      assert_int_equal(program->staying_count, 1);
      assert_string_equal(program->ops[0].name, "only0");
      assert_string_equal(program->ops[6].name, "only1");
      assert_true(program->ops[0].deferred && !program->ops[6].deferred);
      assert_true(program->tensors[s.g[0]].carried && !program->tensors[s.g[1]].carried);
    }
    mr_graph_destroy(program);
    mr_graph_destroy(s.graph);
  }
}

static void what_is_not_deferrable_stays(void **state) {
  (void)state;
  struct step s = step_make();
  update(&s, "update0", 0, MR_OP_TRAIN_ONLY);
  update(&s, "update1", 1, UPDATE);
  expect(&s, "forward0 update1* forward1 backward1 backward0 norm update0");
  s = step_make();
  update(&s, "update0", 0, MR_OP_DEFERRABLE); /* it runs in evaluation too */
  expect(&s, "");
}

static void a_reader_of_an_input_stays(void **state) {
  (void)state;
  struct step s = step_make();
  op(s.graph, "update0", LIST(s.g[0], s.input, s.p[0]), LIST(s.p[0]), UPDATE);
  expect(&s, "");
}

static void who_is_read_in_its_step_stays(void **state) {
  (void)state;
  struct step s = step_make();
  mr_tensor_id average = tensor(s.graph, "average", MR_STATE);
  update(&s, "update0", 0, UPDATE);
  update(&s, "update1", 1, UPDATE);
  op(s.graph, "average", LIST(s.p[0], average), LIST(average), MR_OP_TRAIN_ONLY);
  expect(&s, "forward0 update1* forward1 backward1 backward0 norm update0 average");
}

/* Where the reader is deferred too, both go, in their order; nothing reads the average, but the
 * next update of its parameter must not come first. */
static void a_deferred_reader_follows(void **state) {
  (void)state;
  struct step s = step_make();
  mr_tensor_id copy = tensor(s.graph, "copy", MR_SCRATCH);
  op(s.graph, "clip0", LIST(s.g[0], s.scale), LIST(copy), UPDATE);
  op(s.graph, "update0", LIST(copy, s.p[0]), LIST(s.p[0]), UPDATE);
  char text[256];
  struct mr_graph *program = defer(&s, text, sizeof text);
  assert_string_equal(text, "clip0* update0* forward0 forward1 backward1 backward0 norm");
  assert_false(program->tensors[copy].carried);
  mr_graph_destroy(program);
}

static void who_loses_what_it_reads_stays(void **state) {
  (void)state;
  struct step s = step_make();
  update(&s, "update0", 0, UPDATE);
  update(&s, "update1", 1, UPDATE);
  op(s.graph, "reuse", LIST(s.x[0]), LIST(s.g[0]), MR_OP_TRAIN_ONLY);
  expect(&s, "forward0 update1* forward1 backward1 backward0 norm update0 reuse");
}

/* The gradient is written again early in the next step: the update goes before that. */
static void an_early_writer_limits(void **state) {
  (void)state;
  struct step s;
  assert_int_equal(mr_graph_create(&s.graph), MR_OK);
  s.p[0] = tensor(s.graph, "p", MR_PARAMETER);
  s.g[0] = tensor(s.graph, "g", MR_GRADIENT);
  s.x[0] = tensor(s.graph, "x", MR_STATE);
  op(s.graph, "other", LIST(s.x[0]), LIST(s.x[0]), 0);
  op(s.graph, "backward", LIST(s.x[0]), LIST(s.g[0]), MR_OP_TRAIN_ONLY);
  op(s.graph, "reader", LIST(s.p[0], s.x[0]), LIST(s.x[0]), 0);
  op(s.graph, "update", LIST(s.g[0], s.p[0]), LIST(s.p[0]), UPDATE);
  expect(&s, "other update* backward reader");
}

static void nobody_waits_for_what_nobody_reads(void **state) {
  (void)state;
  struct step s = step_make();
  mr_tensor_id unread = tensor(s.graph, "unread", MR_STATE);
  op(s.graph, "update", LIST(s.p[0]), LIST(unread), UPDATE);
  expect(&s, "");
}

/* ---- Random programs ---- */

static bool is_run(const struct mr_op *each, bool deferred, bool others) {
  return each->deferred ? deferred : others;
}

/* The deferred program as the runtime runs it: a first step without deferred ops, whole steps,
 * a flush. */
static void run_deferred(struct model_oracle *oracle, uint64_t seed, uint32_t input) {
  for (uint32_t step = 0; step <= STEPS; step++) {
    const struct mr_tensor *tensors = oracle->graph->tensors;
    model_fill(seed, step, input, oracle->memory[input], tensors[input].bytes);
    for (mr_op_id k = 0; k < oracle->graph->op_count; k++) {
      if (is_run(&oracle->graph->ops[k], step > 0, step < STEPS)) {
        model_oracle_op(oracle, k);
      }
    }
  }
}

static void random_programs_agree(void **state) {
  (void)state;
  uint32_t deferring = 0;
  for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
    struct model_options options;
    model_options_draw(seed, &options);
    struct mr_graph *graph = model_program_create(seed, &options);
    struct mr_graph *program = NULL;
    mr_tensor_id input = 0;
    assert_int_equal(mr_graph_find(graph, "input", &input), MR_OK);
    assert_int_equal(mr_graph_defer(graph, (uint32_t)(seed % 3), &program), MR_OK);
    if (program != NULL) {
      struct model_oracle plain;
      struct model_oracle moved;
      deferring++;
      model_oracle_init(&plain, graph);
      model_oracle_init(&moved, program);
      for (uint32_t step = 0; step < STEPS; step++) {
        model_fill(seed, step, input, plain.memory[input], graph->tensors[input].bytes);
        model_oracle_step(&plain, MR_STEP_TRAIN);
      }
      run_deferred(&moved, seed, input);
      for (mr_tensor_id t = 0; t < graph->tensor_count; t++) {
        bool lasts = mr_role_is_persistent(graph->tensors[t].role);
        if (lasts && memcmp(plain.memory[t], moved.memory[t], graph->tensors[t].bytes) != 0) {
          fail_msg("seed %llu: %s differs", (unsigned long long)seed, graph->tensors[t].name);
        }
      }
      model_oracle_fini(&plain);
      model_oracle_fini(&moved);
    }
    mr_graph_destroy(program);
    mr_graph_destroy(graph);
  }
  print_message("%u of %u programs have ops that can be deferred\n", deferring, ROUNDS);
  assert_true(deferring > ROUNDS / 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(updates_go_before_their_readers),
      cmocka_unit_test(the_last_stay),
      cmocka_unit_test(what_is_not_deferrable_stays),
      cmocka_unit_test(a_reader_of_an_input_stays),
      cmocka_unit_test(who_is_read_in_its_step_stays),
      cmocka_unit_test(a_deferred_reader_follows),
      cmocka_unit_test(who_loses_what_it_reads_stays),
      cmocka_unit_test(an_early_writer_limits),
      cmocka_unit_test(nobody_waits_for_what_nobody_reads),
      cmocka_unit_test(random_programs_agree),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* recompute/: the cut against every subset, the pass against the program that it rewrote. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "model/program.h"
#include "recompute/cut.h"
#include "recompute/recompute.h"
#include "recompute/values.h"

#define CUT_NODES      8u
#define CUT_ROUNDS     400u
#define PROGRAM_ROUNDS 300u
#define MOST_BRUTE_OPS 12u

/* ---- The cut. ---- */

static uint64_t cut_value(const uint64_t capacity[CUT_NODES][CUT_NODES], uint32_t source_side) {
  uint64_t value = 0;
  for (uint32_t i = 0; i < CUT_NODES; i++) {
    for (uint32_t j = 0; j < CUT_NODES; j++) {
      bool crosses = (source_side >> i & 1) != 0 && (source_side >> j & 1) == 0;
      value += crosses ? capacity[i][j] : 0;
    }
  }
  return value;
}

static void cut_is_minimal(void **state) {
  (void)state;
  struct mr_random random;
  mr_random_init(&random, 11);
  for (uint32_t round = 0; round < CUT_ROUNDS; round++) {
    uint64_t capacity[CUT_NODES][CUT_NODES] = {{0}};
    struct mr_cut cut;
    uint32_t edge = 0;
    assert_int_equal(mr_cut_init(&cut, CUT_NODES), MR_OK);
    for (uint32_t i = 0; i < CUT_NODES; i++) {
      for (uint32_t j = 0; j < CUT_NODES; j++) {
        if (i != j && mr_random_below(&random, 3) == 0) {
          capacity[i][j] = mr_random_below(&random, 1ull << (1 + mr_random_below(&random, 40)));
          assert_int_equal(mr_cut_add(&cut, i, j), MR_OK);
          mr_cut_set(&cut, edge++, capacity[i][j]);
        }
      }
    }
    mr_cut_solve(&cut);
    uint32_t found = 0;
    uint64_t best = UINT64_MAX;
    for (uint32_t i = 0; i < CUT_NODES; i++) {
      found |= mr_cut_on_source_side(&cut, i) ? 1u << i : 0;
    }
    for (uint32_t side = 0; side < 1u << CUT_NODES; side++) {
      if ((side & 1) != 0 && (side & 2) == 0) {
        best = mr_min_u64(best, cut_value(capacity, side));
      }
    }
    assert_true((found & 3) == 1);
    assert_int_equal(cut_value(capacity, found), best);
    mr_cut_fini(&cut);
  }
}

/* ---- The menu against every subset of ops. ---- */

struct brute {
  const struct mr_values *values;
  const double *op_seconds;
  mr_op_id ops[MOST_BRUTE_OPS];
  uint32_t op_count;
};

static bool brute_runs(const struct brute *b, uint32_t subset, mr_op_id k) {
  for (uint32_t i = 0; i < b->op_count; i++) {
    if (b->ops[i] == k) {
      return (subset >> i & 1) != 0;
    }
  }
  return false;
}

static void need(const struct brute *b, uint32_t subset, uint32_t value, bool *saved) {
  const struct mr_value *v = &b->values->values[value];
  bool remade = v->remakable && brute_runs(b, subset, v->producer);
  bool free_of_cost = !v->remakable && mr_value_lives_anyway(b->values, value);
  saved[value] = saved[value] || !(remade || free_of_cost);
}

/* What a subset costs: seconds, and bytes that live from forward to backward because of it. */
static void brute_cost(const struct brute *b, uint32_t subset, double *seconds_out,
                       uint64_t *bytes_out) {
  const struct mr_graph *graph = b->values->graph;
  bool *saved = mr_allocate(b->values->value_count, sizeof *saved);
  *seconds_out = 0;
  *bytes_out = 0;
  for (uint32_t i = 0; i < b->op_count; i++) {
    const struct mr_op *op = &graph->ops[b->ops[i]];
    const uint32_t *operands = &b->values->operands[b->values->first_operand[b->ops[i]]];
    for (uint32_t j = 0; j < op->input_count && (subset >> i & 1) != 0; j++) {
      need(b, subset, operands[j], saved);
    }
    for (uint32_t j = op->input_count; j < op->input_count + op->output_count; j++) {
      const struct mr_value *value = &b->values->values[operands[j]];
      if (value->remakable && value->first_train != MR_NO_OP) {
        need(b, subset, operands[j], saved);
      }
    }
    *seconds_out += (subset >> i & 1) != 0 ? b->op_seconds[b->ops[i]] : 0;
  }
  for (uint32_t i = 0; i < b->values->value_count; i++) {
    *bytes_out += saved[i] ? graph->tensors[b->values->values[i].tensor].bytes : 0;
  }
  free(saved);
}

static void compare_prices(const struct brute *b, const struct mr_recompute_block *block) {
  static const double prices[] = {0, 1e-12, 1e-10, 1e-9, 3e-9, 1e-8, 3e-8, 1e-7, 1e-6, 1e-3};
  double best[MR_COUNT_OF(prices)];
  uint64_t base = 0;
  uint64_t least = UINT64_MAX;
  double none = 0;
  brute_cost(b, 0, &none, &base);
  for (size_t p = 0; p < MR_COUNT_OF(prices); p++) {
    best[p] = 1e300;
  }
  for (uint32_t subset = 0; subset < 1u << b->op_count; subset++) {
    double seconds = 0;
    uint64_t bytes = 0;
    brute_cost(b, subset, &seconds, &bytes);
    least = mr_min_u64(least, bytes);
    for (size_t p = 0; p < MR_COUNT_OF(prices); p++) {
      double cost = seconds + prices[p] * (double)bytes;
      best[p] = cost < best[p] ? cost : best[p];
    }
  }
  for (size_t p = 0; p < MR_COUNT_OF(prices); p++) {
    double found = 1e300;
    for (uint32_t i = 0; i < block->choice_count; i++) {
      double cost =
          block->choices[i].seconds + prices[p] * (double)(base - block->choices[i].freed_bytes);
      found = cost < found ? cost : found;
    }
    assert_true(found <= best[p] * (1 + 1e-9) + 1e-15 && found >= best[p] * (1 - 1e-9) - 1e-15);
  }
  assert_int_equal(base - block->choices[block->choice_count - 1].freed_bytes, least);
}

static double *random_seconds(const struct mr_graph *graph, uint64_t seed) {
  struct mr_random random;
  mr_random_init(&random, seed);
  double *seconds = mr_allocate(graph->op_count, sizeof *seconds);
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    seconds[k] = (double)mr_random_below(&random, 1000000) * 1e-9;
  }
  return seconds;
}

static void menu_is_optimal(void **state) {
  (void)state;
  uint32_t compared = 0;
  uint32_t choices = 0;
  for (uint64_t seed = 1; seed <= PROGRAM_ROUNDS / 3; seed++) {
    struct model_options options;
    model_options_draw(seed, &options);
    struct mr_graph *graph = model_program_create(seed, &options);
    double *seconds = random_seconds(graph, seed);
    struct mr_recompute_menu menu;
    struct mr_values values;
    assert_int_equal(mr_recompute_menu_init(&menu, graph, seconds), MR_OK);
    assert_int_equal(mr_values_init(&values, graph), MR_OK);
    for (uint32_t i = 0; i < menu.block_count; i++) {
      struct brute b = {.values = &values, .op_seconds = seconds};
      for (mr_op_id k = 0; k < graph->op_count; k++) {
        if (values.repeatable[k] && graph->ops[k].block == menu.blocks[i].block) {
          assert_true(b.op_count < MOST_BRUTE_OPS);
          b.ops[b.op_count++] = k;
        }
      }
      const struct mr_recompute_choice *menu_choices = menu.blocks[i].choices;
      assert_int_equal(menu_choices[0].op_count, 0);
      assert_int_equal(menu_choices[0].freed_bytes, 0);
      for (uint32_t j = 1; j < menu.blocks[i].choice_count; j++) {
        assert_true(menu_choices[j].freed_bytes > menu_choices[j - 1].freed_bytes);
        assert_true(menu_choices[j].seconds >= menu_choices[j - 1].seconds);
      }
      compare_prices(&b, &menu.blocks[i]);
      compared++;
      choices += menu.blocks[i].choice_count;
    }
    mr_values_fini(&values);
    mr_recompute_menu_fini(&menu);
    free(seconds);
    mr_graph_destroy(graph);
  }
  print_message("%u blocks compared, %u choices\n", compared, choices);
  assert_true(compared > 100 && choices > 2 * compared);
}

/* The last choice is the same ops whatever they take; others are not. */
static void last_is_not_measured(void **state) {
  (void)state;
  uint32_t compared = 0;
  uint32_t differ = 0;
  for (uint64_t seed = 1; seed <= PROGRAM_ROUNDS; seed++) {
    struct model_options options;
    model_options_draw(seed, &options);
    options.large_bytes = options.small_bytes; /* choices that save as much are common then */
    struct mr_graph *graph = model_program_create(seed, &options);
    struct mr_recompute_menu menus[2];
    for (uint32_t i = 0; i < 2; i++) {
      double *seconds = random_seconds(graph, 2 * seed + i);
      assert_int_equal(mr_recompute_menu_init(&menus[i], graph, seconds), MR_OK);
      free(seconds);
    }
    for (uint32_t i = 0; i < menus[0].block_count; i++) {
      const struct mr_recompute_block *blocks[] = {&menus[0].blocks[i], &menus[1].blocks[i]};
      const struct mr_recompute_choice *last[2];
      for (uint32_t j = 0; j < 2; j++) {
        last[j] = &blocks[j]->choices[blocks[j]->choice_count - 1];
      }
      assert_int_equal(last[0]->op_count, last[1]->op_count);
      assert_memory_equal(last[0]->ops, last[1]->ops, last[0]->op_count * sizeof *last[0]->ops);
      differ += blocks[0]->choice_count != blocks[1]->choice_count;
      compared++;
    }
    mr_recompute_menu_fini(&menus[0]);
    mr_recompute_menu_fini(&menus[1]);
    mr_graph_destroy(graph);
  }
  print_message("%u blocks compared, the menus of %u differ\n", compared, differ);
  assert_true(compared > 100 && differ > 100);
}

/* ---- The pass. ---- */

static void fill_persistent(struct model_oracle *oracle, uint64_t seed, uint64_t step) {
  for (mr_tensor_id t = 0; t < oracle->graph->tensor_count; t++) {
    mr_role role = oracle->graph->tensors[t].role;
    if (role == MR_INPUT || (step == 0 && mr_role_is_persistent(role))) {
      model_fill(seed, step, t, oracle->memory[t], oracle->graph->tensors[t].bytes);
    }
  }
}

/* Runs both programs side by side; activations hold garbage of their own from the start. */
static void programs_agree(const struct mr_graph *graph, const struct mr_graph *program,
                           uint64_t seed) {
  struct model_oracle first;
  struct model_oracle second;
  model_oracle_init(&first, graph);
  model_oracle_init(&second, program);
  static const mr_step_mode modes[] = {MR_STEP_TRAIN, MR_STEP_EVALUATE, MR_STEP_TRAIN};
  for (uint32_t step = 0; step < MR_COUNT_OF(modes); step++) {
    fill_persistent(&first, seed, step);
    fill_persistent(&second, seed, step);
    model_oracle_step(&first, modes[step]);
    model_oracle_step(&second, modes[step]);
    for (mr_tensor_id t = 0; t < graph->tensor_count; t++) {
      if (mr_role_is_persistent(graph->tensors[t].role)) {
        assert_memory_equal(first.memory[t], second.memory[t], graph->tensors[t].bytes);
      }
    }
  }
  model_oracle_fini(&first);
  model_oracle_fini(&second);
}

/* Clones repeat what they say, run in training alone, and the rest is the program in order. */
static uint32_t check_shape(const struct mr_graph *graph, const struct mr_graph *program) {
  mr_op_id next = 0;
  uint32_t clones = 0;
  for (mr_op_id k = 0; k < program->op_count; k++) {
    const struct mr_op *op = &program->ops[k];
    const struct mr_op *like = &graph->ops[op->clone_of == MR_NO_OP ? next++ : op->clone_of];
    assert_string_equal(op->kind, like->kind);
    assert_int_equal(op->input_count, like->input_count);
    assert_int_equal(op->output_count, like->output_count);
    if (op->clone_of != MR_NO_OP) {
      clones++;
      assert_int_equal(op->remade, like->outputs[0]);
      assert_true((op->flags & MR_OP_TRAIN_ONLY) != 0);
      assert_true((like->flags & MR_OP_REPEATABLE) != 0);
    }
  }
  assert_int_equal(next, graph->op_count);
  for (mr_tensor_id t = 0; t < graph->tensor_count; t++) {
    assert_string_equal(graph->tensors[t].name, program->tensors[t].name);
  }
  return clones;
}

/* What a clone makes again is known wherever updates go. Returns whether any is moved. */
static bool check_deferred(const struct mr_graph *graph, const struct mr_graph *program) {
  struct mr_graph *deferred = NULL;
  assert_int_equal(mr_graph_defer(program, 0, &deferred), MR_OK);
  for (mr_op_id k = 0; deferred != NULL && k < deferred->op_count; k++) {
    const struct mr_op *op = &deferred->ops[k];
    bool clone = op->clone_of != MR_NO_OP;
    assert_int_equal(op->remade, clone ? graph->ops[op->clone_of].outputs[0] : MR_NO_TENSOR);
  }
  bool any = deferred != NULL;
  mr_graph_destroy(deferred);
  return any;
}

/* Bytes that live from the forward to the backward pass. */
static uint64_t living_bytes(const struct mr_graph *graph) {
  struct mr_values values;
  uint64_t bytes = 0;
  assert_int_equal(mr_values_init(&values, graph), MR_OK);
  for (uint32_t i = 0; i < values.value_count; i++) {
    const struct mr_value *value = &values.values[i];
    bool forward =
        value->producer != MR_NO_OP && (graph->ops[value->producer].flags & MR_OP_TRAIN_ONLY) == 0;
    if (forward && value->first_train != MR_NO_OP) {
      bytes += graph->tensors[value->tensor].bytes;
    }
  }
  mr_values_fini(&values);
  return bytes;
}

/* The pass frees what the menu promised. */
static void check_freed(const struct mr_graph *graph, const struct mr_graph *program,
                        const struct mr_recompute_menu *menu, const uint32_t *selected) {
  uint64_t promised = 0;
  for (uint32_t i = 0; i < menu->block_count; i++) {
    promised += menu->blocks[i].choices[selected[i]].freed_bytes;
  }
  assert_true(living_bytes(graph) - living_bytes(program) >= promised);
}

static void pass_keeps_results(void **state) {
  (void)state;
  uint32_t clones = 0;
  uint32_t deferring = 0;
  for (uint64_t seed = 1; seed <= PROGRAM_ROUNDS; seed++) {
    struct model_options options;
    model_options_draw(seed, &options);
    options.large_bytes = 2048;
    options.small_bytes = 256;
    struct mr_graph *graph = model_program_create(seed, &options);
    double *seconds = random_seconds(graph, seed);
    struct mr_recompute_menu menu;
    assert_int_equal(mr_recompute_menu_init(&menu, graph, seconds), MR_OK);
    uint32_t *selected = mr_allocate(menu.block_count, sizeof *selected);
    struct mr_random random;
    mr_random_init(&random, seed);
    for (uint32_t round = 0; round < 3; round++) {
      for (uint32_t i = 0; i < menu.block_count; i++) {
        uint32_t last = menu.blocks[i].choice_count - 1;
        selected[i] = round == 0   ? 0
                      : round == 1 ? last
                                   : (uint32_t)mr_random_below(&random, last + 1ull);
      }
      struct mr_graph *program = NULL;
      assert_int_equal(mr_recompute_apply(&menu, graph, selected, &program), MR_OK);
      uint32_t count = check_shape(graph, program);
      assert_true(round > 0 || count == 0);
      clones += count;
      deferring += check_deferred(graph, program) && count > 0;
      check_freed(graph, program, &menu, selected);
      programs_agree(graph, program, seed);
      mr_graph_destroy(program);
    }
    free(selected);
    mr_recompute_menu_fini(&menu);
    free(seconds);
    mr_graph_destroy(graph);
  }
  print_message("%u programs, %u clones; %u with clones and deferred updates\n", PROGRAM_ROUNDS,
                clones, deferring);
  assert_true(clones > 10 * PROGRAM_ROUNDS && deferring > PROGRAM_ROUNDS / 2);
}

/* ---- One program by hand. ---- */

static mr_status no_run(const struct mr_op_call *call) {
  (void)call;
  return MR_OK;
}

static mr_tensor_id tensor(struct mr_graph *graph, const char *name, mr_role role,
                           uint64_t kibibytes) {
  struct mr_tensor_desc desc = {.size_bytes = sizeof desc,
                                .name = name,
                                .role = role,
                                .dtype = MR_U8,
                                .rank = 1,
                                .shape = {kibibytes * MR_KIB}};
  mr_tensor_id id = 0;
  assert_int_equal(mr_graph_add_tensor(graph, &desc, &id), MR_OK);
  return id;
}

struct operands {
  mr_tensor_id inputs[4];
  uint32_t input_count;
  mr_tensor_id outputs[4];
  uint32_t output_count;
};

static void op(struct mr_graph *graph, const char *name, uint32_t flags, uint32_t block,
               struct operands operands) {
  struct mr_op_desc desc = {.size_bytes = sizeof desc,
                            .name = name,
                            .kind = name,
                            .run = {no_run},
                            .inputs = operands.inputs,
                            .input_count = operands.input_count,
                            .outputs = operands.outputs,
                            .output_count = operands.output_count,
                            .flags = flags,
                            .block = block};
  mr_op_id id = 0;
  assert_int_equal(mr_graph_add_op(graph, &desc, &id), MR_OK);
}

/* x -> norm a -> up b -> bend c -> down y, and back: what a transformer's second half looks like.
 */
struct feed_forward {
  struct mr_graph *graph;
  mr_tensor_id a, b, c, y;
};

enum { PLAIN, UNREPEATABLE_UP, EARLY_UPDATE, DROP_IN_PLACE, INNER_NORM };

static struct feed_forward feed_forward_make(int kind) {
  struct feed_forward f = {NULL, 0, 0, 0, 0};
  assert_int_equal(mr_graph_create(&f.graph), MR_OK);
  struct mr_graph *g = f.graph;
  mr_tensor_id in = tensor(g, "in", MR_INPUT, 4);
  mr_tensor_id w = tensor(g, "w", MR_PARAMETER, 64);
  mr_tensor_id x = tensor(g, "x", MR_ACTIVATION, 16);
  mr_tensor_id d = tensor(g, "d", MR_GRADIENT, 16);
  mr_tensor_id e = tensor(g, "e", MR_ACTIVATION, 16);
  f.a = tensor(g, "a", MR_ACTIVATION, 16);
  f.b = tensor(g, "b", MR_ACTIVATION, 64);
  f.c = tensor(g, "c", MR_ACTIVATION, 64);
  f.y = tensor(g, "y", MR_ACTIVATION, 16);
  const uint32_t r = MR_OP_REPEATABLE;
  const uint32_t t = MR_OP_TRAIN_ONLY;
  op(g, "embed", r, MR_NO_BLOCK, (struct operands){{in}, 1, {x}, 1});
  op(g, "norm", r, 7, (struct operands){{x}, 1, {f.a}, 1});
  op(g, "up", kind == UNREPEATABLE_UP ? 0 : r, 7, (struct operands){{f.a, w}, 2, {f.b}, 1});
  op(g, "bend", r, 7, (struct operands){{f.b}, 1, {f.c}, 1});
  if (kind == DROP_IN_PLACE) {
    op(g, "drop", r, 7, (struct operands){{f.c}, 1, {f.c}, 1});
  }
  op(g, "down", r, 7, (struct operands){{f.c, w}, 2, {f.y}, 1});
  op(g, "loss", 0, MR_NO_BLOCK, (struct operands){{f.y}, 1, {e}, 1});
  op(g, "head", t, MR_NO_BLOCK, (struct operands){{e}, 1, {d}, 1});
  if (kind == EARLY_UPDATE) {
    op(g, "update", t, MR_NO_BLOCK, (struct operands){{d, w}, 2, {w}, 1});
  }
  op(g, "down.backward", t, MR_NO_BLOCK, (struct operands){{f.c, w, d}, 3, {d}, 1});
  op(g, "bend.backward", t, 7, (struct operands){{f.b, d}, 2, {d}, 1});
  op(g, "up.backward", t, 7, (struct operands){{kind == INNER_NORM ? x : f.a, w, d}, 3, {d}, 1});
  op(g, "norm.backward", t, 7, (struct operands){{x, d}, 2, {d}, 1});
  op(g, "update", t, MR_NO_BLOCK, (struct operands){{d, w}, 2, {w}, 1});
  return f;
}

static void expect_last(const struct feed_forward *f, uint64_t freed_kibibytes, uint32_t op_count) {
  static const double seconds[16] = {1, 1, 10, 1, 10, 1, 1, 1, 1, 1, 1, 1};
  struct mr_recompute_menu menu;
  assert_int_equal(mr_recompute_menu_init(&menu, f->graph, seconds), MR_OK);
  assert_int_equal(menu.block_count, 1);
  assert_int_equal(menu.blocks[0].block, 7);
  const struct mr_recompute_choice *last = &menu.blocks[0].choices[menu.blocks[0].choice_count - 1];
  assert_int_equal(last->freed_bytes, freed_kibibytes * MR_KIB);
  assert_int_equal(last->op_count, op_count);
  mr_recompute_menu_fini(&menu);
}

static void borders_and_changes(void **state) {
  (void)state;
  static const struct {
    int kind;
    uint64_t freed_kibibytes;
    uint32_t op_count;
  } cases[] = {
      {PLAIN, 16 + 64 + 64, 3},      /* a, b, c from x by norm, up and bend; y is the border */
      {UNREPEATABLE_UP, 16 + 64, 2}, /* b is saved, a and c follow from x and b */
      {EARLY_UPDATE, 16 + 64, 2},    /* w changes before the clone of up could go in */
      {DROP_IN_PLACE, 16 + 64, 2},   /* c is not what bend made */
      {INNER_NORM, 64 + 64, 3},      /* a is remade for up alone */
  };
  for (size_t i = 0; i < MR_COUNT_OF(cases); i++) {
    struct feed_forward f = feed_forward_make(cases[i].kind);
    expect_last(&f, cases[i].freed_kibibytes, cases[i].op_count);
    mr_graph_destroy(f.graph);
  }
}

static void clones_come_late(void **state) {
  (void)state;
  struct feed_forward f = feed_forward_make(UNREPEATABLE_UP);
  static const double seconds[16] = {1, 1, 10, 1, 10, 1, 1, 1, 1, 1, 1};
  struct mr_recompute_menu menu;
  struct mr_graph *program = NULL;
  assert_int_equal(mr_recompute_menu_init(&menu, f.graph, seconds), MR_OK);
  uint32_t selected = menu.blocks[0].choice_count - 1;
  assert_int_equal(mr_recompute_apply(&menu, f.graph, &selected, &program), MR_OK);
  static const char *const names[] = {"embed",         "norm",          "up",         "bend",
                                      "down",          "loss",          "head",       "bend.again",
                                      "down.backward", "bend.backward", "norm.again", "up.backward",
                                      "norm.backward", "update"};
  assert_int_equal(program->op_count, MR_COUNT_OF(names));
  for (uint32_t k = 0; k < program->op_count; k++) {
    assert_string_equal(program->ops[k].name, names[k]);
  }
  /* The originals die with their last forward reader; the clones' outputs take their place. */
  struct mr_liveness liveness;
  assert_int_equal(mr_liveness_init(&liveness, program), MR_OK);
  assert_int_equal(liveness.accesses[liveness.first[f.c + 1] - 1].op, 4);
  assert_int_equal(liveness.accesses[liveness.first[f.a + 1] - 1].op, 2);
  assert_int_equal(liveness.accesses[liveness.first[f.b + 1] - 1].op, 9);
  mr_tensor_id again = 0;
  assert_int_equal(mr_graph_find(program, "c.again", &again), MR_OK);
  assert_int_equal(liveness.accesses[liveness.first[again]].op, 7);
  mr_liveness_fini(&liveness);
  mr_graph_destroy(program);
  mr_recompute_menu_fini(&menu);
  mr_graph_destroy(f.graph);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cut_is_minimal),       cmocka_unit_test(menu_is_optimal),
      cmocka_unit_test(last_is_not_measured), cmocka_unit_test(pass_keeps_results),
      cmocka_unit_test(borders_and_changes),  cmocka_unit_test(clones_come_late),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

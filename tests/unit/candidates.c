/* SPDX-License-Identifier: Apache-2.0 */
/* Paths through a recompute menu: every block goes one choice deeper at a time, to its last; and
 * the search along them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "model/program.h"
#include "recompute/recompute.h"
#include "runtime/candidates.h"

#define ROUNDS 300u

/* Each position takes one block one choice deeper, and the last has all at their last. */
static void check_path(const struct mr_recompute_menu *menu, bool last_first) {
  struct mr_path path;
  assert_int_equal(mr_path_init(&path, menu, last_first), MR_OK);
  uint32_t *before = mr_allocate(menu->block_count, sizeof *before);
  for (uint32_t position = 0; position <= path.step_count; position++) {
    mr_path_select(&path, position);
    uint32_t taken = 0;
    for (uint32_t b = 0; b < menu->block_count; b++) {
      assert_true(path.selected[b] == before[b] || path.selected[b] == before[b] + 1);
      taken += path.selected[b] - before[b];
      before[b] = path.selected[b];
    }
    assert_int_equal(taken, position == 0 ? 0 : 1);
  }
  for (uint32_t b = 0; b < menu->block_count; b++) {
    assert_int_equal(path.selected[b], menu->blocks[b].choice_count - 1);
  }
  free(before);
  mr_path_fini(&path);
}

/* Seconds of measured ops: the two prices are one but for their last digits, and fall. */
static void rounding_leaves_the_order(void **state) {
  (void)state;
  struct mr_recompute_choice choices[] = {
      {.freed_bytes = 0, .seconds = 0},
      {.freed_bytes = 128000, .seconds = 0.00028342449018477569},
      {.freed_bytes = 177152, .seconds = 0.00060126048133920065},
      {.freed_bytes = 189440, .seconds = 0.00068071947912780686}};
  struct mr_recompute_block blocks[] = {{.block = 0, .choices = choices, .choice_count = 4},
                                        {.block = 1, .choices = choices, .choice_count = 4}};
  struct mr_recompute_menu menu = {.blocks = blocks, .block_count = MR_COUNT_OF(blocks)};
  assert_true((choices[3].seconds - choices[2].seconds) / 12288 <
              (choices[2].seconds - choices[1].seconds) / 49152);
  check_path(&menu, false);
  check_path(&menu, true);
}

/* Ops that take what their bytes take, at one rate: whole edges of the hull have one price. */
static void one_price(void **state) {
  (void)state;
  uint32_t steps = 0;
  for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
    struct model_options options;
    model_options_draw(seed, &options);
    struct mr_graph *graph = model_program_create(seed, &options);
    double *seconds = mr_allocate(graph->op_count, sizeof *seconds);
    for (mr_op_id k = 0; k < graph->op_count; k++) {
      seconds[k] = (double)graph->ops[k].memory_bytes / 7.3e9;
    }
    struct mr_recompute_menu menu;
    assert_int_equal(mr_recompute_menu_init(&menu, graph, seconds), MR_OK);
    for (uint32_t b = 0; b < menu.block_count; b++) {
      steps += menu.blocks[b].choice_count - 1;
    }
    check_path(&menu, seed % 2 == 0);
    mr_recompute_menu_fini(&menu);
    free(seconds);
    mr_graph_destroy(graph);
  }
  print_message("%u steps of %u paths\n", steps, ROUNDS);
  assert_true(steps > 10 * ROUNDS);
}

#define STEPS 200u

/* A path of that many steps, whose times fall to one position and rise from there. */
struct valley {
  struct mr_path_search search;
  uint32_t lowest;
  bool tried[STEPS + 1];
  uint32_t trials;
};

static double time_at(const struct valley *valley, uint32_t position) {
  double away = (double)position - valley->lowest;
  return 1 + away * away * (away < 0 ? 1 : 3);
}

static mr_status try_valley(void *context, struct mr_path *path, const uint32_t *positions,
                            uint32_t count, double *seconds_out) {
  struct valley *valley = context;
  const struct mr_path_search *search = &valley->search;
  assert_in_range(count, 1, MR_PATH_TRIALS);
  for (uint32_t i = 0; i < count; i++) {
    assert_in_range(positions[i], search->from, search->to);
    assert_true(positions[i] <= path->step_count);
    assert_false(valley->tried[positions[i]]);
    valley->tried[positions[i]] = true;
    seconds_out[i] = time_at(valley, positions[i]);
  }
  valley->trials += count;
  return MR_OK;
}

static void run_valley(struct valley *valley) {
  struct mr_path path = {.step_count = STEPS};
  valley->search.trial = try_valley;
  valley->search.context = valley;
  for (uint32_t i = 0; i < valley->search.known_count; i++) {
    valley->tried[valley->search.known[i].position] = true;
  }
  assert_int_equal(mr_path_find(&path, &valley->search), MR_OK);
  assert_true(valley->trials <= valley->search.most_trials);
}

/* With trials enough the lowest position is found, wherever it is. */
static void the_lowest_is_found(void **state) {
  (void)state;
  for (uint32_t lowest = 0; lowest <= STEPS; lowest++) {
    struct valley valley = {.lowest = lowest, .search = {.most_trials = 24, .to = STEPS}};
    run_valley(&valley);
    assert_int_equal(valley.search.best.position, lowest);
    assert_true(valley.search.best.seconds == 1);
  }
}

/* What is known is not tried again, ends that are useless are never the best, and few trials are
 * spent between what is known. */
static void what_is_known_narrows_the_search(void **state) {
  (void)state;
  for (uint32_t lowest = 60; lowest <= 80; lowest++) {
    struct valley valley = {.lowest = lowest, .search = {.most_trials = 8, .from = 50, .to = 90}};
    mr_path_know(&valley.search, 65, time_at(&valley, 65));
    mr_path_know(&valley.search, 50, INFINITY);
    mr_path_know(&valley.search, 90, INFINITY);
    mr_path_know(&valley.search, 65, 0); /* is known */
    assert_int_equal(valley.search.known_count, MR_PATH_KNOWN);
    run_valley(&valley);
    assert_true(valley.search.best.seconds <= time_at(&valley, 65));
    assert_in_range(valley.search.best.position, lowest - 3, lowest + 3);
  }
}

/* Where there is nothing to try what is known is the best. */
static void a_single_position(void **state) {
  (void)state;
  struct valley valley = {.lowest = 7, .search = {.most_trials = 3, .from = 7, .to = 7}};
  mr_path_know(&valley.search, 7, 1);
  run_valley(&valley);
  assert_int_equal(valley.trials, 0);
  assert_int_equal(valley.search.best.position, 7);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rounding_leaves_the_order),
      cmocka_unit_test(one_price),
      cmocka_unit_test(the_lowest_is_found),
      cmocka_unit_test(what_is_known_narrows_the_search),
      cmocka_unit_test(a_single_position),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

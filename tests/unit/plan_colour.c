/* SPDX-License-Identifier: Apache-2.0 */
/* Pages for stays: no page has two owners, and neighbours are given where there is room for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/base.h"
#include "plan/colour.h"

#define SEEDS   2000u
#define OPS     24u
#define ITEMS   30u
#define LARGEST 5u /* pages */

struct drawn {
  struct mr_colour_item items[ITEMS];
  uint32_t pages[ITEMS * LARGEST];
};

static void draw(struct drawn *drawn, uint64_t seed) {
  struct mr_random random;
  mr_random_init(&random, seed);
  uint32_t first_page = 0;
  for (uint32_t i = 0; i < ITEMS; i++) {
    uint32_t first_op = (uint32_t)mr_random_below(&random, OPS);
    drawn->items[i] =
        (struct mr_colour_item){.first_op = first_op,
                                .last_op = first_op + (uint32_t)mr_random_below(&random, OPS / 2),
                                .always = mr_random_below(&random, 8) == 0,
                                .page_count = 1 + (uint32_t)mr_random_below(&random, LARGEST),
                                .first_page = first_page,
                                .like = UINT32_MAX};
    first_page += drawn->items[i].page_count;
  }
}

static bool is_there(const struct mr_colour_item *item, uint32_t op) {
  return item->always || (op >= item->first_op && op <= item->last_op) || op + OPS <= item->last_op;
}

static void assert_one_owner(const struct drawn *drawn, uint64_t page_count) {
  for (uint32_t k = 0; k < OPS; k++) {
    bool taken[ITEMS * LARGEST] = {false};
    for (uint32_t i = 0; i < ITEMS; i++) {
      const struct mr_colour_item *item = &drawn->items[i];
      for (uint32_t n = 0; is_there(item, k) && n < item->page_count; n++) {
        uint32_t page = drawn->pages[item->first_page + n];
        assert_true(page < page_count);
        assert_false(taken[page]);
        taken[page] = true;
      }
    }
  }
}

/* Items whose pages do not follow one another. */
static uint32_t count_spread(const struct drawn *drawn) {
  uint32_t spread = 0;
  for (uint32_t i = 0; i < ITEMS; i++) {
    const uint32_t *pages = &drawn->pages[drawn->items[i].first_page];
    uint32_t together = 1;
    while (together < drawn->items[i].page_count && pages[together] == pages[0] + together) {
      together++;
    }
    spread += together < drawn->items[i].page_count;
  }
  return spread;
}

static uint64_t colour(struct drawn *drawn, uint64_t limit, enum mr_colouring how) {
  uint64_t count = 0;
  assert_int_equal(mr_colour(drawn->items, ITEMS, OPS, limit, how, drawn->pages, &count), MR_OK);
  if (count <= limit) {
    assert_one_owner(drawn, count);
  }
  return count;
}

/* As many pages as were needed otherwise are enough; with a tenth more about half as many items are
 * spread, and about half of those where all cuts are tried. */
static void neighbours_need_no_more_pages(void **state) {
  (void)state;
  uint32_t spread = 0;
  uint32_t spread_as_usual = 0;
  uint32_t spread_at_best = 0;
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    struct drawn drawn;
    draw(&drawn, seed);
    uint64_t fewest = colour(&drawn, 0, MR_COLOUR_PAGES);
    assert_int_equal(colour(&drawn, fewest, MR_COLOUR_PAGES), fewest);
    assert_true(colour(&drawn, fewest, MR_COLOUR_NEIGHBOURS) <= fewest);
    uint64_t limit = fewest + fewest / 10;
    assert_true(colour(&drawn, limit, MR_COLOUR_PAGES) <= limit);
    spread_as_usual += count_spread(&drawn);
    assert_true(colour(&drawn, limit, MR_COLOUR_NEIGHBOURS) <= limit);
    spread += count_spread(&drawn);
    assert_true(colour(&drawn, limit, MR_COLOUR_CLOSEST) <= limit);
    spread_at_best += count_spread(&drawn);
    assert_true(colour(&drawn, fewest, MR_COLOUR_CLOSEST) <= fewest);
  }
  print_message("%u of %u items spread, %u as usual, %u at best\n", spread, SEEDS * ITEMS,
                spread_as_usual, spread_at_best);
  assert_true(spread < 0.6 * spread_as_usual);
  assert_true(spread_at_best < 0.6 * spread);
}

/* Pages 0, 2 and 3 are free in the middle, 0 wanted first. */
static void a_run_that_holds_all_comes_first(void **state) {
  (void)state;
  static const struct mr_colour_item items[] = {
      {.first_op = 6, .last_op = OPS, .page_count = 1, .first_page = 0, .like = UINT32_MAX},
      {.always = true, .page_count = 1, .first_page = 1, .like = UINT32_MAX},
      {.first_op = 9, .last_op = OPS, .page_count = 2, .first_page = 2, .like = UINT32_MAX},
      {.first_op = 3, .last_op = 4, .page_count = 2, .first_page = 4, .like = UINT32_MAX}};
  const uint32_t count = MR_COUNT_OF(items);
  uint32_t pages[6];
  uint64_t needed = 0;
  assert_int_equal(mr_colour(items, count, OPS, 4, MR_COLOUR_PAGES, pages, &needed), MR_OK);
  assert_int_equal(needed, 4);
  assert_int_equal(pages[4], 0);
  assert_int_equal(pages[5], 2);
  assert_int_equal(mr_colour(items, count, OPS, 4, MR_COLOUR_NEIGHBOURS, pages, &needed), MR_OK);
  assert_int_equal(needed, 4);
  assert_int_equal(pages[4], 2);
  assert_int_equal(pages[5], 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_run_that_holds_all_comes_first),
      cmocka_unit_test(neighbours_need_no_more_pages),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

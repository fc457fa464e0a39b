/* SPDX-License-Identifier: Apache-2.0 */
/* Free runs of pages against an array of pages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>

#include "base/base.h"
#include "plan/runs.h"

#define SEED       20261129u
#define CASES      40u
#define CHANGES    400u
#define MOST_PAGES 300u
#define LAST_OP    12u /* pages are wanted at ops 1 to this one */
#define TAKEN      0u  /* instead of an op */

static uint32_t below(struct mr_random *random, uint32_t bound) {
  return (uint32_t)mr_random_below(random, bound);
}

/* The length of the run that begins at a page. */
static uint32_t run_at(const uint32_t *wanted_at, uint32_t page_count, uint32_t page) {
  uint32_t count = 1;
  while (page + count < page_count && wanted_at[page + count] == wanted_at[page]) {
    count++;
  }
  return count;
}

/* Every run of the array is one, in order, and there is no other. */
static void check_runs(const struct mr_runs *runs, const uint32_t *wanted_at, uint32_t page_count) {
  uint32_t at = 0;
  uint32_t count = 0;
  for (uint32_t page = 0; page < page_count; page += count) {
    count = run_at(wanted_at, page_count, page);
    assert_int_equal(mr_runs_after(runs, page), at);
    if (wanted_at[page] == TAKEN) continue;
    assert_true(at < runs->count);
    struct mr_run run = mr_runs_at(runs, at++);
    assert_int_equal(run.page, page);
    assert_int_equal(run.count, count);
    assert_int_equal(run.wanted_at, wanted_at[page]);
  }
  assert_int_equal(at, runs->count);
}

/* The less, the better a run suits; of what counts first, then of the other. */
struct misfit {
  uint64_t first, second;
};

static struct misfit misfit_of(const struct mr_run *run, uint32_t count, bool sizes_first) {
  uint64_t size = run->count >= count ? run->count : UINT32_MAX + (uint64_t)UINT32_MAX - run->count;
  return sizes_first ? (struct misfit){size, run->wanted_at}
                     : (struct misfit){run->wanted_at, size};
}

/* The first of those that suit best, one at a time. */
static uint32_t best_of(const struct mr_runs *runs, uint32_t last_op, uint32_t count,
                        bool sizes_first) {
  uint32_t best = runs->count;
  struct misfit least = {UINT64_MAX, UINT64_MAX};
  for (uint32_t i = 0; i < runs->count; i++) {
    struct mr_run run = mr_runs_at(runs, i);
    struct misfit misfit = misfit_of(&run, count, sizes_first);
    bool better =
        misfit.first < least.first || (misfit.first == least.first && misfit.second < least.second);
    if (run.wanted_at > last_op && better) {
      best = i;
      least = misfit;
    }
  }
  return best;
}

/* Gives pages back where they are taken, else takes some out of the run they are in. */
static void change(struct mr_random *random, struct mr_runs *runs, uint32_t *wanted_at,
                   uint32_t page_count) {
  uint32_t page = below(random, page_count);
  uint32_t most = run_at(wanted_at, page_count, page);
  uint32_t count = 1 + below(random, most < 9 ? most : 9);
  uint32_t now = wanted_at[page] == TAKEN ? 1 + below(random, LAST_OP) : TAKEN;
  mr_status status = now == TAKEN
                         ? mr_runs_cut(runs, mr_runs_after(runs, page + 1) - 1, page, count)
                         : mr_runs_add(runs, (struct mr_run){page, count, now});
  assert_int_equal(status, MR_OK);
  for (uint32_t i = 0; i < count; i++) {
    wanted_at[page + i] = now;
  }
}

static void runs_are_those_of_the_pages(void **state) {
  (void)state;
  struct mr_random random;
  uint32_t found = 0;
  uint32_t missed = 0;
  mr_random_init(&random, SEED);
  for (uint32_t i = 0; i < CASES; i++) {
    uint32_t page_count = 1 + below(&random, MOST_PAGES);
    uint32_t *wanted_at = calloc(page_count, sizeof *wanted_at);
    struct mr_runs runs = {0};
    assert_non_null(wanted_at);
    for (uint32_t j = 0; j < CHANGES; j++) {
      change(&random, &runs, wanted_at, page_count);
      check_runs(&runs, wanted_at, page_count);
      uint32_t last_op = below(&random, LAST_OP + 1);
      uint32_t count = 1 + below(&random, 9);
      for (int sizes_first = 0; sizes_first < 2; sizes_first++) {
        uint32_t best = mr_runs_best(&runs, last_op, count, sizes_first == 1);
        assert_int_equal(best, best_of(&runs, last_op, count, sizes_first == 1));
        found += best < runs.count;
        missed += best == runs.count;
      }
    }
    mr_runs_fini(&runs);
    free(wanted_at);
  }
  assert_true(found > CHANGES);
  assert_true(missed > CHANGES);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(runs_are_those_of_the_pages)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

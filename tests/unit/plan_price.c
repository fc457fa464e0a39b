/* SPDX-License-Identifier: Apache-2.0 */
/* What moves cost while gaps are chosen, against what links are said to do once they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "plan/draft.h"
#include "plan/page_sizes.h"
#include "unit/plan_programs.h"

#define SEED         20261123u
#define CASES        40u
#define MANY_OPS     240u
#define FEW_OPS      12u
#define DECISIONS    30u
#define TENSOR_PAGES 3u
#define ROUNDING     1e-9 /* relative */

static const double prices[MR_LINK_COUNT] = {1, 1, 1, 1};
static const uint8_t tiers[] = {MR_DECISION_HOST, MR_DECISION_NVME};

struct rig {
  struct mr_random random;
  struct mr_graph *graph;
  double *op_seconds;
  struct mr_plan_problem problem;
  struct mr_draft draft;
};

/* Ops that each read one of three tensors, and change it now and then: a parameter that nobody
 * changes, one that is changed, and what is made in the step. */
static void rig_init(struct rig *rig, uint64_t seed, uint32_t op_count) {
  mr_random_init(&rig->random, seed);
  assert_int_equal(mr_graph_create(&rig->graph), MR_OK);
  const mr_role roles[] = {MR_PARAMETER, MR_PARAMETER, MR_ACTIVATION};
  const mr_tensor_id none[] = {MR_NO_TENSOR};
  for (uint32_t i = 0; i < MR_COUNT_OF(roles); i++) {
    (void)plan_add_tensor(rig->graph, roles[i], TENSOR_PAGES * MR_LEAST_PAGE_BYTES);
  }
  const mr_tensor_id made[] = {2, MR_NO_TENSOR};
  (void)plan_add_op(rig->graph, none, made, 0);
  for (uint32_t k = 1; k < op_count; k++) {
    mr_tensor_id used[] = {(mr_tensor_id)mr_random_below(&rig->random, 3), MR_NO_TENSOR};
    bool writes = used[0] > 0 && mr_random_below(&rig->random, 5) == 0;
    (void)plan_add_op(rig->graph, used, writes ? used : none, 0);
  }
  rig->op_seconds = plan_op_seconds(rig->graph, 1e-3);
  plan_problem_init(&rig->problem, rig->graph);
  rig->problem.op_seconds = rig->op_seconds;
  for (mr_link l = 0; l < MR_LINK_COUNT; l++) {
    rig->problem.link[l].bytes_per_second = 1e6 * (double)(1 + mr_random_below(&rig->random, 9));
  }
  for (mr_tier tier = 0; tier < MR_TIER_COUNT; tier++) {
    rig->problem.budget_bytes[tier] = UINT64_MAX;
  }
  assert_int_equal(mr_draft_init(&rig->draft, &rig->problem, MR_LEAST_PAGE_BYTES), MR_OK);
}

static void rig_fini(struct rig *rig) {
  mr_draft_fini(&rig->draft);
  free(rig->op_seconds);
  mr_graph_destroy(rig->graph);
}

/* Seconds of all links. */
static double all_seconds(const struct mr_draft *draft) {
  double sum = 0;
  for (mr_link l = 0; l < MR_LINK_COUNT; l++) {
    sum += draft->link_seconds[l];
  }
  return sum;
}

static double price_of(const struct mr_draft *draft, uint32_t gap, uint8_t decision) {
  return mr_draft_tensor_price(draft, gap, decision, prices) -
         mr_draft_tensor_price(draft, gap, MR_DECISION_KEEP, prices);
}

static void assert_near(double seconds, double other_seconds, double scale_seconds) {
  assert_true(fabs(seconds - other_seconds) <= ROUNDING * scale_seconds);
}

/* Every kept gap, were it decided for every tier. */
static void check_prices(struct rig *rig) {
  struct mr_draft *draft = &rig->draft;
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    if (draft->gaps[i].decision != MR_DECISION_KEEP ||
        !mr_draft_can_evict(draft, &draft->gaps[i])) {
      continue;
    }
    for (uint32_t k = 0; k < MR_COUNT_OF(tiers); k++) {
      double price = price_of(draft, i, tiers[k]);
      double before = all_seconds(draft);
      assert_true(mr_draft_decide(draft, i, tiers[k]));
      double after = all_seconds(draft);
      assert_near(after - before, price, after + before);
      mr_draft_keep(draft, i);
    }
  }
}

static double *list_prices(const struct mr_draft *draft) {
  double *list = mr_allocate(2ull * draft->gap_count, sizeof *list);
  assert_non_null(list);
  for (uint32_t i = 0; i < 2 * draft->gap_count; i++) {
    list[i] = price_of(draft, i / 2, tiers[i % 2]);
  }
  return list;
}

/* A decision changes the prices of the gaps that are named with it alone. */
static void decide_and_check(struct rig *rig, uint32_t gap, uint8_t decision) {
  struct mr_draft *draft = &rig->draft;
  struct mr_gap_range ranges[MR_PRICED_RANGES];
  double *before = list_prices(draft);
  assert_true(mr_draft_decide(draft, gap, decision));
  double *after = list_prices(draft);
  uint32_t count = mr_draft_list_priced(draft, gap, ranges);
  assert_true(count >= 1 && count <= MR_PRICED_RANGES);
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    bool named = false;
    for (uint32_t r = 0; r < count; r++) {
      named = named || (i >= ranges[r].from && i < ranges[r].to);
    }
    if (named || draft->gaps[i].decision != MR_DECISION_KEEP) continue;
    for (uint32_t k = 0; k < 2; k++) {
      assert_near(after[2 * i + k], before[2 * i + k], 1);
    }
  }
  free(before);
  free(after);
}

static void check_job(uint64_t seed, uint32_t op_count, bool many) {
  struct rig rig = {0};
  rig_init(&rig, seed, op_count);
  struct mr_draft *draft = &rig.draft;
  check_prices(&rig);
  for (uint32_t i = 0; i < DECISIONS; i++) {
    uint32_t gap = (uint32_t)mr_random_below(&rig.random, draft->gap_count);
    uint8_t tier = tiers[mr_random_below(&rig.random, 2)];
    assert_true(mr_draft_has_many_gaps(draft, draft->gaps[gap].tensor) == many);
    if (draft->gaps[gap].decision == MR_DECISION_KEEP &&
        mr_draft_can_evict(draft, &draft->gaps[gap])) {
      decide_and_check(&rig, gap, tier);
      check_prices(&rig);
    }
  }
  rig_fini(&rig);
}

/* Tensors that a few ops use, whose moves are all summed. */
static void prices_of_few(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < CASES; seed++) {
    check_job(SEED + seed, FEW_OPS, false);
  }
}

/* Tensors that many use, of whose moves those are summed that depend on the decision. */
static void prices_of_many(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < CASES; seed++) {
    check_job(SEED + seed, MANY_OPS, true);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(prices_of_few),
      cmocka_unit_test(prices_of_many),
  };
  return cmocka_run_group_tests_name("plan_price", tests, NULL, NULL);
}

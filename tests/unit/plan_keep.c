/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept on the device again while a plan is searched takes no more of the host than there
 * is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "plan/draft.h"
#include "plan/page_sizes.h"
#include "unit/plan_programs.h"

#define OPS   24u
#define CASES 200u
#define PAGES 3u

struct rig {
  struct mr_random random;
  struct mr_graph *graph;
  double *op_seconds;
  struct mr_plan_problem problem;
  struct mr_draft draft;
};

/* Ops that read one of two parameters, and change it now and then. The host has room for one of
 * them all the time. */
static void rig_init(struct rig *rig, uint64_t seed) {
  mr_random_init(&rig->random, seed);
  assert_int_equal(mr_graph_create(&rig->graph), MR_OK);
  for (uint32_t i = 0; i < 2; i++) {
    (void)plan_add_tensor(rig->graph, MR_PARAMETER, PAGES * MR_LEAST_PAGE_BYTES);
  }
  for (uint32_t k = 0; k < OPS; k++) {
    const mr_tensor_id none[] = {MR_NO_TENSOR};
    const mr_tensor_id used[] = {(mr_tensor_id)mr_random_below(&rig->random, 2), MR_NO_TENSOR};
    (void)plan_add_op(rig->graph, used, mr_random_below(&rig->random, 3) == 0 ? used : none, 0);
  }
  rig->op_seconds = plan_op_seconds(rig->graph, 1e-3);
  plan_problem_init(&rig->problem, rig->graph);
  rig->problem.op_seconds = rig->op_seconds;
  rig->problem.budget_bytes[MR_TIER_DEVICE] = UINT64_MAX;
  rig->problem.budget_bytes[MR_TIER_HOST] = PAGES * MR_LEAST_PAGE_BYTES;
  rig->problem.budget_bytes[MR_TIER_NVME] = UINT64_MAX;
  assert_int_equal(mr_draft_init(&rig->draft, &rig->problem, MR_LEAST_PAGE_BYTES), MR_OK);
  mr_draft_reset(&rig->draft);
}

static void rig_fini(struct rig *rig) {
  mr_draft_fini(&rig->draft);
  free(rig->op_seconds);
  mr_graph_destroy(rig->graph);
}

/* A gap that is to be kept is, or the draft is what it was. Returns whether it could not be. */
static bool keep(struct mr_draft *draft, uint32_t index) {
  struct mr_draft_gap before[2 * OPS];
  uint64_t bytes = draft->gap_count * sizeof before[0];
  uint64_t peak = mr_draft_peak(draft);
  assert_true(draft->gap_count <= MR_COUNT_OF(before));
  memcpy(before, draft->gaps, bytes);
  bool kept = mr_draft_keep_again(draft, index);
  assert_true(mr_draft_lower_tiers_fit(draft));
  if (kept) {
    assert_int_equal(draft->gaps[index].decision, MR_DECISION_KEEP);
  } else {
    assert_memory_equal(draft->gaps, before, bytes);
    assert_int_equal(mr_draft_peak(draft), peak);
  }
  return !kept;
}

/* A tensor that stays round the end of the step and not in it has a place on the host before an op
 * that writes it and another one behind, where it had one all the time. */
static void the_host_has_room_for_what_is_kept(void **state) {
  (void)state;
  uint32_t refused = 0;
  for (uint64_t seed = 1; seed <= CASES; seed++) {
    struct rig rig;
    rig_init(&rig, seed);
    for (uint32_t i = 0; i < 2 * OPS; i++) {
      uint32_t gap = (uint32_t)mr_random_below(&rig.random, rig.draft.gap_count);
      if (rig.draft.gaps[gap].decision == MR_DECISION_KEEP) {
        (void)mr_draft_decide(&rig.draft, gap, MR_DECISION_HOST);
      }
    }
    for (uint32_t i = 0; i < rig.draft.gap_count; i++) {
      refused += keep(&rig.draft, rig.draft.gap_count - 1 - i);
    }
    rig_fini(&rig);
  }
  assert_true(refused > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_host_has_room_for_what_is_kept),
  };
  return cmocka_run_group_tests_name("plan_keep", tests, NULL, NULL);
}

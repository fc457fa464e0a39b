/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The baseline that plans are compared with: what a runtime does that swaps without looking ahead.
 * Everything stays on the device until an op wants room; then the tensor that was used longest ago
 * goes, to the host while that has room, else to NVMe, and comes back when an op reads it. The
 * moves wait for those ops (after_op of their instructions).
 *
 * A gap is open from one use of its tensor to the next, so the gap that opened first is that of the
 * tensor used longest ago: the list of gaps by the op that opens them is the LRU list. Gaps that
 * opened in the step before come first. They leave at the end of that step at the latest, because a
 * tensor has to be in its home before the next one begins.
 */
#include <stdlib.h>

#include "plan/draft.h"

/* A gap on the line of this step; what opened in the step before has negative ops. */
struct idle {
  uint32_t gap;
  int64_t after_op;
  int64_t before_op;
};

struct lru {
  struct mr_draft *draft;
  struct idle *idle; /* the first opened first */
  uint32_t count;
  uint32_t first; /* those before are closed, or evicted in time for every op to come */
};

/* Appends the gaps by the op that opens them; `turn` ops are taken off. */
static void add_gaps(struct lru *lru, const uint32_t *order, uint32_t turn) {
  const struct mr_draft *draft = lru->draft;
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    const struct mr_draft_gap *gap = &draft->gaps[order[i]];
    if (turn == 0 || gap->wrap) {
      lru->idle[lru->count++] =
          (struct idle){order[i], (int64_t)gap->after_op - turn, (int64_t)gap->before_op - turn};
    }
  }
}

/* A counting sort of the gaps by the op that opens them; those that no op opens come first. */
static void sort_gaps(const struct mr_draft *draft, uint32_t *starts, uint32_t *order) {
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    const struct mr_draft_gap *gap = &draft->gaps[i];
    starts[gap->resting ? 0 : gap->after_op + 1]++;
  }
  uint32_t sum = 0;
  for (uint32_t k = 0; k <= draft->op_count; k++) {
    uint32_t here = starts[k];
    starts[k] = sum;
    sum += here;
  }
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    const struct mr_draft_gap *gap = &draft->gaps[i];
    order[starts[gap->resting ? 0 : gap->after_op + 1]++] = i;
  }
}

static mr_status lru_init(struct lru *lru, struct mr_draft *draft) {
  *lru = (struct lru){.draft = draft};
  lru->idle = mr_allocate(2ull * draft->gap_count, sizeof *lru->idle);
  uint32_t *starts = mr_allocate(draft->op_count + 1ull, sizeof *starts);
  uint32_t *order = mr_allocate(draft->gap_count, sizeof *order);
  bool whole = lru->idle != NULL && starts != NULL && order != NULL;
  if (whole) {
    sort_gaps(draft, starts, order);
    add_gaps(lru, order, draft->op_count);
    add_gaps(lru, order, 0);
  } else {
    free(lru->idle);
  }
  free(starts);
  free(order);
  return whole ? MR_OK : MR_NO_MEMORY;
}

static bool decide(struct mr_draft *draft, uint32_t gap) {
  return (draft->problem->budget_bytes[MR_TIER_HOST] > 0 &&
          mr_draft_decide(draft, gap, MR_DECISION_HOST)) ||
         (draft->problem->budget_bytes[MR_TIER_NVME] > 0 &&
          mr_draft_decide(draft, gap, MR_DECISION_NVME));
}

/* On a line alone, a tensor that ever leaves also leaves at the end of the step. */
static bool close_circle(struct mr_draft *draft, mr_tensor_id tensor) {
  uint32_t last = draft->first_gap[tensor + 1] - 1;
  const struct mr_draft_gap *gap = &draft->gaps[last];
  if (!draft->line_only || !gap->wrap || gap->decision != MR_DECISION_KEEP) {
    return true;
  }
  if (!decide(draft, last)) {
    return false;
  }
  mr_draft_set_release(draft, last, draft->op_count);
  draft->gaps[last].evict_op = draft->op_count - 1;
  return true;
}

/* Frees the pages for op k; false where no lower tier has room. */
static bool evict(struct mr_draft *draft, const struct idle *idle, uint32_t k) {
  struct mr_draft_gap *gap = &draft->gaps[idle->gap];
  bool kept = gap->decision == MR_DECISION_KEEP;
  if (kept && !decide(draft, idle->gap)) {
    return false;
  }
  if (kept && !close_circle(draft, gap->tensor)) {
    mr_draft_keep(draft, idle->gap);
    return false;
  }
  mr_draft_set_release(draft, idle->gap, idle->after_op < 0 ? draft->op_count : k);
  gap->evict_op = gap->release_op - 1;
  return true;
}

/* The pages are in use at op k, and neither of the gap's ops is k. */
static bool is_victim(const struct mr_draft *draft, const struct idle *idle, uint32_t k) {
  const struct mr_draft_gap *gap = &draft->gaps[idle->gap];
  uint32_t now = idle->after_op < 0 ? draft->op_count + k : k;
  return idle->before_op > k && (gap->decision == MR_DECISION_KEEP || gap->release_op > now);
}

/* Evicts until op k has room; false where nothing is left that may go. */
static bool make_room(struct lru *lru, uint32_t k) {
  struct mr_draft *draft = lru->draft;
  for (uint32_t i = lru->first; mr_books_at(&draft->usage, k) > draft->limit_pages; i++) {
    if (i == lru->count || lru->idle[i].after_op >= k) {
      return false;
    }
    bool gone = !is_victim(draft, &lru->idle[i], k) || evict(draft, &lru->idle[i], k);
    lru->first += gone && i == lru->first;
  }
  return true;
}

mr_status mr_draft_evict_lru(struct mr_draft *draft, bool *fits_out) {
  struct lru lru;
  mr_draft_reset(draft);
  mr_status status = lru_init(&lru, draft);
  if (status != MR_OK) {
    return status;
  }
  bool fits = mr_draft_close_dead(draft, close_circle);
  for (uint32_t k = 0; k < draft->op_count && fits; k++) {
    fits = make_room(&lru, k);
  }
  free(lru.idle);
  *fits_out = fits && mr_draft_lower_tiers_fit(draft);
  return MR_OK;
}

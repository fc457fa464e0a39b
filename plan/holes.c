/* SPDX-License-Identifier: Apache-2.0 */
/* The ends of holes: where the pages of a gap that is not kept become free, and its own again. */
#include "plan/draft.h"

/* Pages become the tensor's again (own) or free at the ops [from, to). */
static void edge_add(struct mr_draft *draft, const struct mr_draft_gap *gap, uint32_t from,
                     uint32_t to, bool own) {
  int64_t pages = (int64_t)draft->pages[gap->tensor];
  mr_books_add(&draft->usage, from, to, own ? pages : -pages);
}

void mr_draft_set_release(struct mr_draft *draft, uint32_t index, uint32_t release_op) {
  struct mr_draft_gap *gap = &draft->gaps[index];
  MR_ASSERT(release_op > gap->after_op && release_op <= mr_draft_last_release(draft, gap));
  edge_add(draft, gap, gap->release_op, release_op, true);
  edge_add(draft, gap, release_op, gap->release_op, false);
  gap->release_op = release_op;
}

void mr_draft_set_fetch(struct mr_draft *draft, uint32_t index, uint32_t fetch_op) {
  struct mr_draft_gap *gap = &draft->gaps[index];
  MR_ASSERT((fetch_op >= gap->release_op || gap->final) && fetch_op <= gap->before_op &&
            fetch_op >= gap->earliest_fetch_op);
  edge_add(draft, gap, fetch_op, gap->fetch_op, true);
  edge_add(draft, gap, gap->fetch_op, fetch_op, false);
  gap->fetch_op = fetch_op;
}

void mr_draft_widen(struct mr_draft *draft) {
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    if (draft->gaps[i].decision != MR_DECISION_KEEP) {
      mr_draft_set_release(draft, i, draft->gaps[i].after_op + 1);
      mr_draft_set_fetch(draft, i, draft->gaps[i].before_op);
      draft->gaps[i].evict_op = draft->gaps[i].after_op;
      draft->gaps[i].fetch_seconds = 0;
    }
  }
}

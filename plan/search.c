/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded local search over decisions. Each trial changes one thing, repairs what that broke with
 * the rules that made the first draft, and keeps the result where the sweep says that the step got
 * faster. What is changed is drawn from a seeded stream, more often among the gaps whose moves made
 * ops stand still, so that the same problem gives the same plan.
 */
#include <math.h>
#include <stdlib.h>

#include "plan/draft.h"

#define SEARCH_SEED       0x6d656d72756eull
#define SEARCH_LAPS       2u /* of a trial: one to fill the queues, one to measure */
#define FINAL_LAPS        3u
#define LEAST_GAIN        1e-9 /* relative: a smaller gain is rounding */
#define LOOKAHEAD_CHOICES 5u
#define FIRST_LOOKAHEAD   4u
#define SPARE_CHOICES     6u   /* 1/64 to 1/2 of the limit */
#define GOOD_ENOUGH       1e-4 /* of the bound: no more trials */

struct search {
  struct mr_draft *draft;
  struct mr_draft_saved best;
  double *blame_seconds; /* of the best draft, for each gap */
  double *trial_blame;
  double best_seconds;
  struct mr_random random;
  double bound_seconds;
};

/* How far ahead fetches look: the whole step, or less so that early fetches do not take the room of
 * late evictions. */
static double lookahead_of(const struct mr_draft *draft, uint32_t choice) {
  static const double parts[LOOKAHEAD_CHOICES] = {2.0, 0.15, 0.04, 0.004, 0.01};
  return parts[choice] * draft->clock[draft->op_count];
}

static void clear(double *values, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    values[i] = 0;
  }
}

static void accept(struct search *search, double seconds) {
  double *swap = search->blame_seconds;
  search->blame_seconds = search->trial_blame;
  search->trial_blame = swap;
  search->best_seconds = seconds;
  mr_draft_save(search->draft, &search->best);
}

static mr_status measure(struct search *search, double lookahead_seconds, double *seconds_out) {
  clear(search->trial_blame, search->draft->gap_count);
  return mr_draft_schedule(search->draft, SEARCH_LAPS, lookahead_seconds, search->trial_blame,
                           seconds_out);
}

/* Measures the draft with one lookahead and keeps it where it is the best so far. */
static mr_status try_lookahead(struct search *search, uint32_t choice, uint64_t spare_pages) {
  struct mr_draft *draft = search->draft;
  double seconds = 0;
  double lookahead_seconds = lookahead_of(draft, choice);
  mr_status status = measure(search, lookahead_seconds, &seconds);
  if (status == MR_OK && seconds < search->best_seconds * (1 - LEAST_GAIN)) {
    draft->lookahead_seconds = lookahead_seconds;
    draft->spare_pages = spare_pages;
    accept(search, seconds);
  }
  return status;
}

static bool good_enough(const struct search *search) {
  return search->best_seconds <= search->bound_seconds * (1 + GOOD_ENOUGH);
}

/* Drafts that leave more and more of the limit free for moves in flight; then other lookaheads for
 * the best of them. */
static mr_status try_spares(struct search *search) {
  struct mr_draft *draft = search->draft;
  mr_status status = try_lookahead(search, FIRST_LOOKAHEAD, 0);
  uint32_t worse = 0;
  for (uint32_t i = 0; i < SPARE_CHOICES && status == MR_OK && worse < 2; i++) {
    uint64_t spare = draft->limit_pages >> (SPARE_CHOICES - i);
    bool fits = false;
    if (good_enough(search) || spare == 0) continue;
    double before = search->best_seconds;
    mr_draft_reset(draft);
    status = mr_draft_choose(draft, spare, &fits);
    if (status == MR_OK && fits) {
      status = try_lookahead(search, FIRST_LOOKAHEAD, spare);
    }
    worse = search->best_seconds < before ? 0 : worse + 1;
  }
  for (uint32_t i = 0; i < LOOKAHEAD_CHOICES && status == MR_OK; i++) {
    if (good_enough(search)) break;
    mr_draft_restore(draft, &search->best);
    status = try_lookahead(search, i, draft->spare_pages);
  }
  return status;
}

/* Draws a gap that moves: with even odds by blame, else any. UINT32_MAX: none. */
static uint32_t draw_gap(struct search *search) {
  const struct mr_draft *draft = search->draft;
  double total = 0;
  uint32_t moving = 0;
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    total += search->blame_seconds[i];
    moving += draft->gaps[i].decision != MR_DECISION_KEEP;
  }
  bool by_blame = total > 0 && mr_random_below(&search->random, 4) > 0;
  double mark = mr_random_unit(&search->random) * total;
  uint64_t rank = moving > 0 ? mr_random_below(&search->random, moving) : 0;
  uint32_t last = UINT32_MAX;
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    if (draft->gaps[i].decision == MR_DECISION_KEEP) continue;
    last = i;
    mark -= search->blame_seconds[i];
    if (by_blame ? mark < 0 : rank-- == 0) {
      return i;
    }
  }
  return last;
}

static bool change_tier(struct mr_draft *draft, uint32_t gap) {
  const struct mr_plan_problem *problem = draft->problem;
  bool host = draft->gaps[gap].decision == MR_DECISION_HOST;
  if (problem->budget_bytes[host ? MR_TIER_NVME : MR_TIER_HOST] == 0) {
    return false;
  }
  return mr_draft_decide(draft, gap, host ? MR_DECISION_NVME : MR_DECISION_HOST);
}

/* On a line alone, keeping the way round the end means keeping all the tensor's gaps. */
static void keep(struct mr_draft *draft, uint32_t gap) {
  mr_tensor_id tensor = draft->gaps[gap].tensor;
  bool all = draft->line_only && draft->gaps[gap].wrap;
  for (uint32_t i = draft->first_gap[tensor]; i < draft->first_gap[tensor + 1]; i++) {
    if (i == gap || all) {
      mr_draft_keep(draft, i);
      draft->gaps[i].locked = true;
    }
  }
}

/* Evicts a random kept gap, so that another may stay. */
static bool evict_another(struct search *search) {
  struct mr_draft *draft = search->draft;
  uint32_t gap = (uint32_t)mr_random_below(&search->random, draft->gap_count);
  const struct mr_draft_gap *g = &draft->gaps[gap];
  if (g->decision != MR_DECISION_KEEP || g->locked || g->resting || !mr_draft_can_evict(draft, g) ||
      (draft->line_only && !g->wrap)) {
    return false;
  }
  bool host_first = mr_random_below(&search->random, 2) == 0;
  for (uint32_t i = 0; i < 2; i++) {
    bool host = host_first == (i == 0);
    if (draft->problem->budget_bytes[host ? MR_TIER_HOST : MR_TIER_NVME] > 0 &&
        mr_draft_decide(draft, gap, host ? MR_DECISION_HOST : MR_DECISION_NVME)) {
      draft->gaps[gap].locked = true;
      return true;
    }
  }
  return false;
}

/* One change and its repair; false where it led nowhere. */
static mr_status change(struct search *search, bool *changed_out) {
  struct mr_draft *draft = search->draft;
  uint32_t gap = draw_gap(search);
  *changed_out = false;
  if (gap == UINT32_MAX) {
    return MR_OK;
  }
  uint64_t kind = mr_random_below(&search->random, 4);
  if (kind == 0) {
    *changed_out = change_tier(draft, gap);
    return MR_OK;
  }
  keep(draft, gap);
  if (kind == 1) {
    (void)evict_another(search);
  }
  bool fits = false;
  mr_status status = mr_draft_choose(draft, draft->spare_pages, &fits);
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    draft->gaps[i].locked = false;
  }
  *changed_out = status == MR_OK && fits;
  return status;
}

static mr_status search_rounds(struct search *search) {
  struct mr_draft *draft = search->draft;
  for (uint32_t round = 0; round < draft->search_rounds; round++) {
    if (good_enough(search)) break;
    bool changed = false;
    double seconds = 0;
    mr_status status = change(search, &changed);
    if (status == MR_OK && changed) {
      status = measure(search, draft->lookahead_seconds, &seconds);
    }
    if (status != MR_OK) {
      return status;
    }
    if (changed && seconds < search->best_seconds * (1 - LEAST_GAIN)) {
      accept(search, seconds);
    } else {
      mr_draft_restore(draft, &search->best);
    }
  }
  return MR_OK;
}

static mr_status improve(struct search *search) {
  struct mr_draft *draft = search->draft;
  mr_status status = try_spares(search);
  mr_draft_restore(draft, &search->best);
  if (status == MR_OK) {
    status = search_rounds(search);
  }
  mr_draft_restore(draft, &search->best);
  if (status != MR_OK) {
    return status;
  }
  double seconds = 0;
  return mr_draft_schedule(draft, FINAL_LAPS, draft->lookahead_seconds, NULL, &seconds);
}

mr_status mr_draft_repair(struct mr_draft *draft, bool *fits_out) {
  double seconds = 0;
  mr_status status = mr_draft_choose(draft, draft->spare_pages, fits_out);
  if (status != MR_OK || !*fits_out) {
    return status;
  }
  return mr_draft_schedule(draft, FINAL_LAPS, draft->lookahead_seconds, NULL, &seconds);
}

mr_status mr_draft_search(struct mr_draft *draft, bool *fits_out) {
  mr_status status = mr_draft_choose(draft, 0, fits_out);
  if (status != MR_OK || !*fits_out) {
    return status;
  }
  struct search search = {.draft = draft, .best_seconds = INFINITY};
  search.bound_seconds = draft->clock[draft->op_count];
  mr_random_init(&search.random, SEARCH_SEED);
  search.blame_seconds = mr_allocate(draft->gap_count, sizeof *search.blame_seconds);
  search.trial_blame = mr_allocate(draft->gap_count, sizeof *search.trial_blame);
  status = mr_draft_saved_init(&search.best, draft);
  if (status == MR_OK && (search.blame_seconds == NULL || search.trial_blame == NULL)) {
    status = MR_NO_MEMORY;
  }
  if (status == MR_OK) {
    status = improve(&search);
  }
  mr_draft_saved_fini(&search.best);
  free(search.blame_seconds);
  free(search.trial_blame);
  return status;
}

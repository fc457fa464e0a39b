/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a limit in pages to a plan without waits. Stays that go round the end of the step can make
 * colouring need a few pages more than are ever in use; so a little is kept back, and what is
 * missing still is taken off the limit and the draft repaired. Where that does not help, or costs
 * much, a plan without such stays is made, and the faster is taken. What colouring left is filled.
 * A plan that was found without search is not lost by searching: what is said to fit fits.
 */
#include <math.h>

#include "base/base.h"
#include "plan/draft.h"
#include "plan/stages.h"

#define REPAIR_ROUNDS 6u
#define REPAIR_COST   1.02 /* a repair that slows the step by more is not the last word */
/* In a long program a plan without search is repaired less often, and may cost more by it; what is
 * planned without such stays is not searched. */
#define LONG_ROUNDS    3u
#define LONG_COST      1.1
#define COLOURING_PART 96u /* about 1 % of the pages is kept back for colouring */
#define TOP_UPS        3u

static bool is_long(const struct mr_draft *draft) {
  return draft->op_count > MR_LONG_OPS;
}

/* A draft under the draft's limits, lowered where its colouring fits too. */
static mr_status attempt(struct mr_draft *draft, bool repair, uint64_t page_limit,
                         struct mr_program_plan *plan, uint64_t *pages_out) {
  bool fits = false;
  mr_status status = MR_OK;
  if (draft->problem->policy == MR_POLICY_LRU) {
    status = mr_draft_evict_lru(draft, &fits);
  } else if (repair) {
    status = mr_draft_repair(draft, &fits);
  } else {
    mr_draft_reset(draft);
    status = mr_draft_search(draft, &fits);
  }
  *pages_out = UINT64_MAX;
  if (status == MR_OK && fits) {
    status = mr_draft_lower(draft, page_limit, plan, pages_out);
  }
  return status;
}

/* Tightens the limit by what colouring is short of and repairs, a few times. *seconds_out: the time
 * before any repair; INFINITY where nothing fits. */
static mr_status make_round(struct mr_draft *draft, uint64_t page_limit,
                            struct mr_program_plan *plan, bool *fits_out, double *seconds_out) {
  bool briefly = is_long(draft) && draft->effort == MR_EFFORT_FIRST;
  uint32_t rounds = briefly ? LONG_ROUNDS : REPAIR_ROUNDS;
  *fits_out = false;
  for (uint32_t round = 0; round < rounds; round++) {
    uint64_t pages = 0;
    mr_status status = attempt(draft, round > 0, page_limit, plan, &pages);
    if (round == 0) {
      *seconds_out = pages == UINT64_MAX ? INFINITY : draft->times.seconds;
    }
    bool may_lack = draft->problem->contiguous || draft->problem->half_pages || !draft->line_only;
    MR_ASSERT(status != MR_OK || pages <= page_limit || pages == UINT64_MAX || may_lack);
    if (status != MR_OK || pages <= page_limit) {
      *fits_out = status == MR_OK;
      return status;
    }
    if (pages == UINT64_MAX) break;
    draft->limit_pages -= mr_min_u64(pages - page_limit, draft->limit_pages);
  }
  return MR_OK;
}

/* Gives up stays that go round the end of the step; colouring then needs what is in use, but for
 * halves of pages that find no other. */
static mr_status make_line(struct mr_draft *draft, uint64_t page_limit,
                           struct mr_program_plan *plan, bool *fits_out) {
  double first_seconds = 0;
  enum mr_draft_effort effort = draft->effort;
  draft->limit_pages = page_limit;
  draft->line_only = true;
  draft->effort = is_long(draft) && effort == MR_EFFORT_SEARCH ? MR_EFFORT_FIRST : effort;
  mr_status status = make_round(draft, page_limit, plan, fits_out, &first_seconds);
  draft->line_only = false;
  draft->effort = effort;
  return status;
}

/* Room that the search filled again can be what colouring is short of. */
static mr_status make_unfilled(struct mr_draft *draft, uint64_t page_limit,
                               struct mr_program_plan *plan, bool *fits_out) {
  uint64_t pages = UINT64_MAX;
  mr_status status = mr_draft_unfill(draft);
  if (status == MR_OK) {
    status = mr_draft_lower(draft, page_limit, plan, &pages);
  }
  *fits_out = status == MR_OK && pages <= page_limit;
  return status;
}

/* The faster of two plans, which stays in `plan`; the other is ended. */
static void take_faster(struct mr_program_plan *plan, bool *fits, double *seconds,
                        struct mr_program_plan *other, bool other_fits, double other_seconds) {
  if (other_fits && (!*fits || other_seconds < *seconds)) {
    mr_plan_clear(plan);
    *plan = *other;
    *fits = true;
    *seconds = other_seconds;
  } else {
    mr_plan_clear(other);
  }
}

/*
 * Keeps more in the pages that colouring has left: a hundredth of a device may be a tenth of what
 * it is short of. Beside a GPU steps get 0.2 to 0.6 % shorter on average, up to 5 %.
 */
static mr_status top_up(struct mr_draft *draft, uint64_t page_limit, struct mr_program_plan *plan,
                        bool *fits, double *seconds) {
  bool better = draft->effort == MR_EFFORT_SEARCH;
  for (uint32_t i = 0; i < TOP_UPS && better; i++) {
    struct mr_program_plan more = {.program = plan->program};
    uint64_t left = page_limit - plan->device_page_count;
    uint64_t pages = UINT64_MAX;
    bool changed = false;
    draft->limit_pages = mr_min_u64(draft->limit_pages + left, page_limit);
    mr_status status = mr_draft_fill_up(draft, &changed);
    if (status == MR_OK && changed) {
      status = mr_draft_lower(draft, page_limit, &more, &pages);
    }
    if (status != MR_OK) {
      return status;
    }
    better = pages <= page_limit && draft->times.seconds < *seconds;
    take_faster(plan, fits, seconds, &more, better, draft->times.seconds);
  }
  return MR_OK;
}

/* Decides and lowers under a limit in pages. */
static mr_status make_within(struct mr_draft *draft, uint64_t page_limit,
                             struct mr_program_plan *plan, bool *fits_out) {
  double first_seconds = INFINITY;
  bool follows = mr_draft_follows_recipe(draft);
  mr_draft_reset(draft);
  draft->whole_pages = mr_draft_peak(draft);
  if (follows && draft->problem->recipe->line) {
    return make_line(draft, page_limit, plan, fits_out);
  }
  bool all_kept = draft->whole_pages <= page_limit;
  uint64_t limit = all_kept ? page_limit : page_limit - page_limit / COLOURING_PART;
  draft->limit_pages = limit;
  mr_status status = make_round(draft, page_limit, plan, fits_out, &first_seconds);
  double seconds = draft->times.seconds;
  bool repaired = draft->limit_pages < limit;
  struct mr_program_plan other = {.program = plan->program};
  bool other_fits = false;
  if (status == MR_OK && *fits_out && !all_kept) {
    status = top_up(draft, page_limit, plan, fits_out, &seconds);
  }
  if (status == MR_OK && draft->is_filled && repaired) {
    draft->limit_pages = limit;
    status = make_unfilled(draft, page_limit, &other, &other_fits);
    take_faster(plan, fits_out, &seconds, &other, other_fits, draft->times.seconds);
  }
  double cost = is_long(draft) && draft->effort == MR_EFFORT_FIRST ? LONG_COST : REPAIR_COST;
  if (status != MR_OK || follows || (*fits_out && seconds <= first_seconds * cost)) {
    return status;
  }
  other = (struct mr_program_plan){.program = plan->program};
  status = make_line(draft, page_limit, &other, &other_fits);
  take_faster(plan, fits_out, &seconds, &other, other_fits, draft->times.seconds);
  return status;
}

/* What may fit where this much does not: without search, and where stays have halves of pages, as
 * short as they can be. False: nothing. */
static bool less_effort(struct mr_draft *draft) {
  if (draft->effort == MR_EFFORT_SEARCH) {
    draft->effort = MR_EFFORT_FIRST;
    return true;
  }
  bool shorter = draft->effort == MR_EFFORT_FIRST && draft->problem->half_pages;
  draft->effort = shorter ? MR_EFFORT_FIT : draft->effort;
  return shorter;
}

mr_status mr_draft_make(struct mr_draft *draft, enum mr_draft_effort effort,
                        struct mr_program_plan *plan, bool *fits_out) {
  uint64_t page_limit = draft->limit_pages;
  struct mr_draft_saved unfilled = {0};
  mr_status status = mr_draft_saved_init(&unfilled, draft);
  if (status != MR_OK) {
    return status;
  }
  draft->unfilled = &unfilled;
  draft->effort = effort;
  status = make_within(draft, page_limit, plan, fits_out);
  while (status == MR_OK && !*fits_out && !draft->in_vain && less_effort(draft)) {
    status = make_within(draft, page_limit, plan, fits_out);
  }
  draft->limit_pages = page_limit;
  draft->unfilled = NULL;
  mr_draft_saved_fini(&unfilled);
  return status;
}

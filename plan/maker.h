/* SPDX-License-Identifier: Apache-2.0 */
/* What making a plan works with (plan/plan.c), also where it looks for the smallest device budget
 * that would do (plan/smallest.c). */
#ifndef MEMRUN_PLAN_MAKER_H
#define MEMRUN_PLAN_MAKER_H

#include "plan/bound.h"
#include "plan/draft.h"
#include "plan/page_sizes.h"

/* The smallest device budget that would do, once it was looked for. */
struct mr_smallest {
  bool known;
  uint64_t bytes;       /* UINT64_MAX: none was found */
  uint64_t least_bytes; /* no budget below it leaves an op its room */
  uint64_t short_bytes; /* what must be somewhere and has no room in the other tiers */
  uint64_t host_bytes;  /* that a plan for it takes */
  uint64_t nvme_bytes;
  uint32_t choice; /* of pages, with which it would do */
};

/* The problem at hand, and what is kept from one point of the ladder to the next. */
struct mr_maker {
  const struct mr_plan_problem *problem;
  struct mr_plan_problem point; /* the problem under the budgets being planned */
  struct mr_page_choice choices[MR_MOST_PAGE_SIZES];
  uint32_t choice_count;
  struct mr_draft drafts[MR_MOST_PAGE_SIZES]; /* one for each page size that was wanted */
  bool drafted[MR_MOST_PAGE_SIZES];
  uint64_t footprint_bytes[MR_MOST_PAGE_SIZES];
  uint64_t least_bytes[MR_MOST_PAGE_SIZES]; /* no device budget below it would do */
  uint32_t footprint_choice;                /* the largest that are not wasteful */
  struct mr_smallest smallest;
  struct mr_bound bound;        /* of no cuts before it is asked for */
  struct mr_program_plan *plan; /* the best so far, where it fits */
};

/* The draft of a page size. MR_NO_MEMORY, MR_INVALID. */
MR_CHECK_RESULT mr_status mr_maker_draft(struct mr_maker *maker, uint32_t choice,
                                         struct mr_draft **draft_out);
/* Plans with one page size for a device budget; the other budgets are the point's. MR_NO_MEMORY,
 * MR_INVALID. */
MR_CHECK_RESULT mr_status mr_maker_plan(struct mr_maker *maker, uint32_t choice,
                                        uint64_t device_bytes, enum mr_draft_effort effort,
                                        struct mr_program_plan *plan);
/* Makes sure that there is the bound. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_maker_open_bound(struct mr_maker *maker);
/* Makes sure that the smallest budget with which planning succeeds is known. MR_NO_MEMORY,
 * MR_INVALID. */
MR_CHECK_RESULT mr_status mr_maker_find_smallest(struct mr_maker *maker);

#endif

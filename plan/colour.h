/* SPDX-License-Identifier: Apache-2.0 */
/* Page numbers for stays: no two that are there at once have one in common. */
#ifndef MEMRUN_PLAN_COLOUR_H
#define MEMRUN_PLAN_COLOUR_H

#include "plan/plan.h"

/*
 * Interval colouring. Items are stays on a line of op_count ops; last_op >= op_count means that the
 * stay goes round the end and keeps its pages. Page numbers of item i go to
 * pages[items[i].first_page ..). Wrapping items are given pages of their own first; the others take
 * free pages that are free long enough. While that needs more than page_limit, the circle is cut
 * elsewhere, a few times. *page_count_out: the fewest pages that were needed; where they are more
 * than page_limit, `pages` tells nothing. MR_NO_MEMORY.
 */
enum mr_colouring {
  MR_COLOUR_PAGES,      /* whatever needs the fewest */
  MR_COLOUR_NEIGHBOURS, /* within page_limit, for each item pages that follow one another if it can
                           be */
  MR_COLOUR_CLOSEST,    /* the same as well as can be, with up to an eighth more than is in use at
                           once; takes sixteen times as long */
  MR_COLOUR_HALVES,     /* two pages that lie side by side, an even one and the next, are whole; an
                           item has whole ones and at most one half, a lower one behind them or an
                           upper one before; the count is even */
};
struct mr_colour_item {
  uint32_t first_op;
  uint32_t last_op; /* unrolled */
  bool always;
  uint32_t page_count;
  uint32_t first_page; /* filled in by the caller: where its numbers go */
  uint32_t like; /* an item with a smaller index whose pages it would like; UINT32_MAX: none */
};
MR_CHECK_RESULT mr_status mr_colour(const struct mr_colour_item *items, uint32_t item_count,
                                    uint32_t op_count, uint64_t page_limit, enum mr_colouring how,
                                    uint32_t *pages, uint64_t *page_count_out);

/*
 * The same with neighbouring pages for each item, in ascending order, at best within page_limit.
 * Such a packing is on a line: the circle is cut where the fewest pages are in use across the cut,
 * and what is there keeps its pages all the time. Wishes (`like`) are not granted. MR_NO_MEMORY,
 * MR_INVALID (more pages than can be packed).
 */
MR_CHECK_RESULT mr_status mr_colour_contiguous(const struct mr_colour_item *items,
                                               uint32_t item_count, uint32_t op_count,
                                               uint64_t page_limit, uint32_t *pages,
                                               uint64_t *page_count_out);

#endif

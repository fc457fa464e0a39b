/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exact search of plan/pack/: finds a packing within a capacity or proves that there is none.
 *
 * Among all packings take one with the least sum of offsets. In it every box lies on the floor or
 * on top of a box below, and no box could be moved down alone. The search walks through such
 * packings only. A *box* is a buffer seen as its range of sections; its *offset* is the highest top
 * of the boxes that were placed where it lives; its *low* is a proven lower bound of where it ends
 * up. The search takes a box under which nothing that is still to be placed can fit, and splits
 * two ways:
 *
 *   placed   it stays at its offset; all boxes still to come that meet it go above it;
 *   raised   it does not stay there: then a box still to come must lie in its way, so its low is
 *            at least the lowest top that such a box can have. When a placement does lift its
 *            offset, the box can be placed again.
 *
 * After each decision lows are raised as far as they follow from one another, and each section is
 * checked: boxes that cannot lie below some height must fit between it and the capacity.
 *
 * When no box still to come lives on both sides of a border between sections, the sides are solved
 * apart: a side that cannot be solved undoes the decision that parted them, and no other.
 *
 * Which box is taken decides how long the search takes, never its result. So several rules take
 * turns, each with as many tries as the one before and, once all had theirs, twice as many.
 *
 * Several searches take each turn, one after another. Where memory must be full, a wrong decision
 * is seen soon; with room to spare it is seen late, though a packing with less room would do. So
 * one search is for a packing as high as the load; where there is none, its peak goes half way to
 * the capacity. Another is for one within the capacity, and the only one whose failure is the
 * verdict. Both are also made with boxes that stand for several buffers (join.h), which are fewer;
 * what these do not find means nothing.
 *
 * Canonical orders, section bounds, dominance and decomposition are from Moffitt, "MiniMalloc: A
 * Lightweight Memory Allocator for Hardware-Accelerated Machine Learning", ASPLOS 2023; the
 * two-way split, the free choice of the next box, learning from failed sections, searches below the
 * capacity and joined buffers are our own.
 */
#ifndef MEMRUN_PLAN_PACK_SEARCH_H
#define MEMRUN_PLAN_PACK_SEARCH_H

#include "plan/pack/pack.h"

#define MR_PACK_NONE UINT32_MAX

/* What may live at once, and no offset and size that the search adds then exceed 63 bits: each
 * offset is below the capacity of the search, which is no larger either. */
#define MR_PACK_MOST_BYTES (1ull << 62)

/* Ranges of sections of each buffer: it lives through [first[i], end[i]). */
struct mr_pack_sections {
  uint32_t *first;
  uint32_t *end;
  uint64_t *load_bytes; /* of each section */
  uint32_t count;
  uint32_t overfull; /* with it more than MR_PACK_MOST_BYTES live, and the rest here means nothing;
                        MR_PACK_NONE */
};
MR_CHECK_RESULT mr_status mr_pack_sections_init(struct mr_pack_sections *sections,
                                                const struct mr_pack_problem *problem);
void mr_pack_sections_fini(struct mr_pack_sections *sections);

/* The best packing of the portfolio; ends early where its peak is at most `enough_bytes`.
 * MR_INVALID, with a line: none has a peak below 2^63; MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_pack_portfolio(const struct mr_pack_problem *problem,
                                            uint64_t enough_bytes, uint64_t *offsets,
                                            uint64_t *peak_out);

/* Searches for a packing within the capacity, which no section's load exceeds; offsets are written
 * with MR_PACK_FITS alone. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_pack_search(const struct mr_pack_problem *problem,
                                         const struct mr_pack_sections *sections, uint64_t *offsets,
                                         struct mr_pack_result *result);

/* Below: between search.c, which chooses, and infer.c, which draws the consequences. */

struct mr_pack_box {
  int64_t size;
  int64_t offset;
  int64_t low;
  uint32_t first; /* sections [first, end) */
  uint32_t end;
  uint32_t rank; /* smaller: taken first among equals; changes from turn to turn */
  bool placed;
  bool raised;
};

struct mr_pack_section {
  uint32_t crossing; /* boxes to be placed that live in the next section too */
  uint32_t failures; /* how often its check failed, over all turns */
};

/* What a box was before a decision changed it. */
struct mr_pack_undo {
  uint32_t box;
  bool placed;
  bool raised;
  int64_t offset;
  int64_t low;
};

struct mr_pack_state {
  int64_t capacity;
  struct mr_pack_box *boxes;
  struct mr_pack_section *sections;
  uint32_t box_count;
  uint32_t section_count;
  struct mr_pack_undo *undo;
  uint32_t undo_count;
  uint32_t undo_capacity;
  int64_t *load;    /* scratch, for each section: bytes of boxes */
  uint32_t *sorted; /* scratch: boxes by low, descending */
};

/* The boxes that a decision concerns: those still to be placed in one connected range. */
struct mr_pack_members {
  const uint32_t *boxes;
  uint32_t count;
};

static inline bool mr_pack_boxes_meet(const struct mr_pack_box *a, const struct mr_pack_box *b) {
  return a->first < b->end && b->first < a->end;
}

/*
 * Decide that the box stays at its offset, or does not, and draw the consequences. *holds_out is
 * false where no packing is left; the changes stay until undone. MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_pack_place(struct mr_pack_state *state, struct mr_pack_members members,
                                        uint32_t box, bool *holds_out);
MR_CHECK_RESULT mr_status mr_pack_raise(struct mr_pack_state *state, struct mr_pack_members members,
                                        uint32_t box, bool *holds_out);

/* Takes back all changes since undo_count was `mark`. */
void mr_pack_undo_to(struct mr_pack_state *state, uint32_t mark);

#endif

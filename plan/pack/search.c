/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exact search: turns of a depth-first walk with a stack of its own. Each frame holds the boxes
 * of one side; it places one, then has the sides that this parts solved by frames above it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/pack/choose.h"
#include "plan/pack/search.h"

/* Tries between two questions whether to stop: below a tenth of a second. */
#define TRIES_BETWEEN_QUESTIONS 1024u
/* Tries of the first turns for each box: a walk without a wrong turn takes one. */
#define FIRST_TRIES_PER_BOX 2u

struct frame {
  uint32_t first; /* its boxes are order[first .. first + count) */
  uint32_t count;
  uint32_t section; /* and live in sections [section, section_end) */
  uint32_t section_end;
  uint32_t mark;      /* of the undo list, before any of its decisions */
  uint32_t box;       /* placed now; MR_PACK_NONE */
  uint32_t box_mark;  /* of the undo list, before the box was placed */
  uint32_t side;      /* order[first .. side) are of sides that are solved or being solved ... */
  uint32_t side_from; /* ... which end before this section */
};

enum walk { WALK_ON, WALK_SOLVED, WALK_IMPOSSIBLE, WALK_STOPPED };

struct search {
  const struct mr_pack_problem *problem;
  struct mr_pack_state state;
  struct mr_pack_chooser chooser;
  uint32_t *order;
  struct frame *frames;
  uint32_t depth;
  uint64_t tries;
  uint64_t last_try; /* of this turn */
  bool stopped;      /* by the caller or its limit, not by the turn */
};

static struct mr_pack_members members_of(const struct search *search, const struct frame *frame) {
  return (struct mr_pack_members){&search->order[frame->first], frame->count};
}

/* Whether one more try may be made. */
static bool may_try(struct search *search) {
  const struct mr_pack_problem *problem = search->problem;
  if (search->tries >= problem->search_tries) {
    search->stopped = true;
  } else if (search->tries % TRIES_BETWEEN_QUESTIONS == 0 && problem->stopped != NULL) {
    search->stopped = problem->stopped(problem->context);
  }
  if (search->stopped || search->tries >= search->last_try) {
    return false;
  }
  search->tries++;
  return true;
}

/*
 * A box that lives all through its side, while all that is to be placed there starts from one flat
 * floor: whatever a packing has below it can change places with it, so it may lie at the bottom.
 */
static bool lies_at_bottom(const struct search *search, const struct frame *frame, uint32_t index) {
  const struct mr_pack_box *box = &search->state.boxes[index];
  if (box->first != frame->section || box->end != frame->section_end) {
    return false;
  }
  struct mr_pack_members members = members_of(search, frame);
  for (uint32_t m = 0; m < members.count; m++) {
    const struct mr_pack_box *other = &search->state.boxes[members.boxes[m]];
    if (!other->placed && (other->raised || other->offset != box->offset)) {
      return false;
    }
  }
  return true;
}

/* Takes the placed box of a frame back and decides that it is not there. False: the frame has no
 * packing. */
static mr_status turn_down(struct search *search, struct frame *frame, bool *holds_out) {
  uint32_t box = frame->box;
  frame->box = MR_PACK_NONE;
  mr_pack_undo_to(&search->state, frame->box_mark);
  if (lies_at_bottom(search, frame, box)) {
    *holds_out = false;
    return MR_OK;
  }
  return mr_pack_raise(&search->state, members_of(search, frame), box, holds_out);
}

/* Places a box of the frame that has none. WALK_IMPOSSIBLE: no box of it can be placed. */
static mr_status place_one(struct search *search, struct frame *frame, enum walk *walk_out) {
  bool holds = true;
  *walk_out = WALK_ON;
  while (holds) {
    if (!may_try(search)) {
      *walk_out = WALK_STOPPED;
      return MR_OK;
    }
    struct mr_pack_members members = members_of(search, frame);
    frame->box = mr_pack_choose(&search->chooser, &search->state, members, frame->section,
                                frame->section_end);
    if (frame->box == MR_PACK_NONE) break;
    frame->box_mark = search->state.undo_count;
    frame->side = frame->first;
    frame->side_from = frame->section;
    mr_status status = mr_pack_place(&search->state, members, frame->box, &holds);
    if (status != MR_OK || holds) {
      return status;
    }
    status = turn_down(search, frame, &holds);
    if (status != MR_OK) {
      return status;
    }
  }
  *walk_out = WALK_IMPOSSIBLE;
  return MR_OK;
}

static void push(struct search *search, struct frame frame) {
  frame.mark = search->state.undo_count;
  frame.box = MR_PACK_NONE;
  search->frames[search->depth++] = frame;
}

/* Moves the boxes of the next side that are to be placed to its place in the order and gives it a
 * frame. False: no side is left. */
static bool push_next_side(struct search *search, struct frame *frame) {
  const struct mr_pack_state *state = &search->state;
  while (frame->side_from < frame->section_end) {
    uint32_t from = frame->side_from;
    uint32_t end = from + 1;
    while (end < frame->section_end && state->sections[end - 1].crossing > 0) {
      end++;
    }
    uint32_t first = frame->side;
    for (uint32_t i = first; i < frame->first + frame->count; i++) {
      uint32_t index = search->order[i];
      const struct mr_pack_box *box = &state->boxes[index];
      if (!box->placed && box->first >= from && box->end <= end) {
        search->order[i] = search->order[frame->side];
        search->order[frame->side++] = index;
      }
    }
    frame->side_from = end;
    if (frame->side > first) {
      push(search, (struct frame){
                       .first = first,
                       .count = frame->side - first,
                       .section = from,
                       .section_end = end,
                   });
      return true;
    }
  }
  return false;
}

/* Leaves frames that have no packing, up to one that can decide otherwise. */
static mr_status back_up(struct search *search, enum walk *walk_out) {
  bool holds = false;
  while (!holds) {
    mr_pack_undo_to(&search->state, search->frames[--search->depth].mark);
    if (search->depth == 1) {
      *walk_out = WALK_IMPOSSIBLE;
      return MR_OK;
    }
    mr_status status = turn_down(search, &search->frames[search->depth - 1], &holds);
    if (status != MR_OK) {
      return status;
    }
  }
  *walk_out = WALK_ON;
  return MR_OK;
}

/* One turn. The lowest frame has no box of its own: its sides are those of the problem. */
static mr_status walk_turn(struct search *search, enum walk *walk_out) {
  mr_status status = MR_OK;
  search->depth = 0;
  push(search, (struct frame){.count = search->state.box_count,
                              .section_end = search->state.section_count});
  *walk_out = WALK_ON;
  while (status == MR_OK && *walk_out == WALK_ON) {
    struct frame *frame = &search->frames[search->depth - 1];
    if (search->depth > 1 && frame->box == MR_PACK_NONE) {
      status = place_one(search, frame, walk_out);
      if (status == MR_OK && *walk_out == WALK_IMPOSSIBLE) {
        status = back_up(search, walk_out);
      }
    } else if (!push_next_side(search, frame)) {
      search->depth--;
      *walk_out = search->depth == 0 ? WALK_SOLVED : WALK_ON;
    }
  }
  return status;
}

/* Turns, until one gets to an end. */
static mr_status walk_all(struct search *search, enum walk *walk_out) {
  uint64_t tries = FIRST_TRIES_PER_BOX * (uint64_t)search->state.box_count;
  mr_status status = MR_OK;
  uint32_t turn = 0;
  *walk_out = WALK_STOPPED;
  while (status == MR_OK && *walk_out == WALK_STOPPED && !search->stopped) {
    mr_pack_undo_to(&search->state, 0);
    mr_pack_chooser_turn(&search->chooser, &search->state, turn);
    search->last_try = search->tries + tries;
    status = walk_turn(search, walk_out);
    if (++turn == MR_PACK_TURNS) {
      turn = 0;
      tries *= 2;
    }
  }
  return status;
}

static void fill(struct search *search, const struct mr_pack_sections *sections) {
  const struct mr_pack_problem *problem = search->problem;
  struct mr_pack_state *state = &search->state;
  for (uint32_t i = 0; i < problem->buffer_count; i++) {
    state->boxes[i] = (struct mr_pack_box){.size = (int64_t)problem->buffers[i].size_bytes,
                                           .first = sections->first[i],
                                           .end = sections->end[i]};
    search->order[i] = i;
    for (uint32_t s = sections->first[i]; s + 1 < sections->end[i]; s++) {
      state->sections[s].crossing++;
    }
  }
}

static mr_status search_init(struct search *search, const struct mr_pack_problem *problem,
                             const struct mr_pack_sections *sections) {
  uint32_t count = problem->buffer_count;
  *search = (struct search){
      .problem = problem,
      .state = {.capacity = (int64_t)mr_min_u64(problem->capacity_bytes, MR_PACK_MOST_BYTES),
                .boxes = mr_allocate(count, sizeof *search->state.boxes),
                .sections = mr_allocate(sections->count, sizeof *search->state.sections),
                .box_count = count,
                .section_count = sections->count,
                .load = mr_allocate(sections->count, sizeof *search->state.load),
                .sorted = mr_allocate(count, sizeof *search->state.sorted)},
      .order = mr_allocate(count, sizeof *search->order),
      .frames = mr_allocate(count + 2ull, sizeof *search->frames),
  };
  const struct mr_pack_state *state = &search->state;
  if (state->boxes == NULL || state->sections == NULL || state->load == NULL ||
      state->sorted == NULL || search->order == NULL || search->frames == NULL) {
    return MR_NO_MEMORY;
  }
  fill(search, sections);
  return mr_pack_chooser_init(&search->chooser, problem, sections);
}

static void search_fini(struct search *search) {
  mr_pack_chooser_fini(&search->chooser);
  free(search->state.boxes);
  free(search->state.sections);
  free(search->state.load);
  free(search->state.sorted);
  free(search->state.undo);
  free(search->order);
  free(search->frames);
}

static void take_offsets(const struct mr_pack_state *state, uint64_t *offsets,
                         struct mr_pack_result *result) {
  result->verdict = MR_PACK_FITS;
  result->peak_bytes = 0;
  for (uint32_t i = 0; i < state->box_count; i++) {
    const struct mr_pack_box *box = &state->boxes[i];
    MR_ASSERT(box->placed && box->offset + box->size <= state->capacity);
    offsets[i] = (uint64_t)box->offset;
    result->peak_bytes = mr_max_u64(result->peak_bytes, (uint64_t)(box->offset + box->size));
  }
}

mr_status mr_pack_search(const struct mr_pack_problem *problem,
                         const struct mr_pack_sections *sections, uint64_t *offsets,
                         struct mr_pack_result *result) {
  struct search search;
  enum walk walk = WALK_STOPPED;
  mr_status status = search_init(&search, problem, sections);
  if (status == MR_OK) {
    status = walk_all(&search, &walk);
  }
  result->tries = search.tries;
  bool proven = walk == WALK_IMPOSSIBLE && problem->capacity_bytes <= MR_PACK_MOST_BYTES;
  result->verdict = proven ? MR_PACK_IMPOSSIBLE : MR_PACK_UNDECIDED;
  if (status == MR_OK && walk == WALK_SOLVED) {
    take_offsets(&search.state, offsets, result);
  }
  search_fini(&search);
  return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exact search: turns of a depth-first walk with a stack of its own. Each frame holds the boxes
 * of one side; it places one, then has the sides that this parts solved by frames above it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/pack/choose.h"
#include "plan/pack/join.h"
#include "plan/pack/search.h"

/* Boxes that are looked at between two questions whether to stop: below a tenth of a second. */
#define BOXES_BETWEEN_QUESTIONS (1u << 19)
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

/* What all searches for one packing share. */
struct limits {
  const struct mr_pack_problem *problem;
  uint64_t tries;
  bool stopped; /* by the caller or its limit, not by a turn */
};

/* A search for a packing of some boxes with some peak. */
struct search {
  struct limits *limits;
  const struct boxes *boxes;
  struct mr_pack_state state; /* its capacity is the peak that is searched for */
  struct mr_pack_chooser chooser;
  uint32_t *order;
  struct frame *frames;
  uint32_t depth;
  uint64_t tries_left; /* in this turn */
  bool over;           /* nothing is left to search */
};

/* What is packed: the buffers, or what is joined of them. */
struct boxes {
  struct mr_pack_problem problem;
  struct mr_pack_sections sections;
  struct mr_pack_joined joined; /* of the buffers themselves: empty */
};

/* All searches for one packing. */
struct contest {
  struct limits limits;
  struct boxes boxes[MR_PACK_GUESSES + 1u]; /* the buffers themselves are the last */
  struct search searches[2 * (MR_PACK_GUESSES + 1u)];
  uint32_t count;
  uint64_t capacity;
  const struct search *winner; /* has found a packing; NULL */
  bool proven;                 /* that there is none */
};

static struct mr_pack_members members_of(const struct search *search, const struct frame *frame) {
  return (struct mr_pack_members){&search->order[frame->first], frame->count};
}

/* Whether one more try may be made. */
static bool may_try(struct search *search) {
  struct limits *limits = search->limits;
  const struct mr_pack_problem *problem = limits->problem;
  if (limits->tries >= problem->search_tries) {
    limits->stopped = true;
  } else if (limits->tries % (1 + BOXES_BETWEEN_QUESTIONS / search->state.box_count) == 0 &&
             problem->stopped != NULL) {
    limits->stopped = problem->stopped(problem->context);
  }
  if (limits->stopped || search->tries_left == 0) {
    return false;
  }
  search->tries_left--;
  limits->tries++;
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

static void fill(struct search *search) {
  const struct mr_pack_problem *problem = &search->boxes->problem;
  const struct mr_pack_sections *sections = &search->boxes->sections;
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

static mr_status search_init(struct search *search, struct limits *limits,
                             const struct boxes *boxes, uint64_t peak_bytes) {
  uint32_t count = boxes->problem.buffer_count;
  uint32_t section_count = boxes->sections.count;
  *search = (struct search){
      .limits = limits,
      .boxes = boxes,
      .state = {.capacity = (int64_t)peak_bytes,
                .boxes = mr_allocate(count, sizeof *search->state.boxes),
                .sections = mr_allocate(section_count, sizeof *search->state.sections),
                .box_count = count,
                .section_count = section_count,
                .load = mr_allocate(section_count, sizeof *search->state.load),
                .sorted = mr_allocate(count, sizeof *search->state.sorted)},
      .order = mr_allocate(count, sizeof *search->order),
      .frames = mr_allocate(count + 2ull, sizeof *search->frames),
  };
  const struct mr_pack_state *state = &search->state;
  if (state->boxes == NULL || state->sections == NULL || state->load == NULL ||
      state->sorted == NULL || search->order == NULL || search->frames == NULL) {
    return MR_NO_MEMORY;
  }
  fill(search);
  return mr_pack_chooser_init(&search->chooser, &boxes->problem, &boxes->sections);
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

static mr_status add_search(struct contest *contest, const struct boxes *boxes,
                            uint64_t peak_bytes) {
  return search_init(&contest->searches[contest->count++], &contest->limits, boxes, peak_bytes);
}

/* Searches with these boxes for a packing with the peak `least_bytes`, and for one within the
 * capacity. */
static mr_status enter(struct contest *contest, struct boxes *boxes, uint64_t least_bytes) {
  mr_status status = mr_pack_sections_init(&boxes->sections, &boxes->problem);
  if (status == MR_OK && least_bytes < contest->capacity) {
    status = add_search(contest, boxes, least_bytes);
  }
  if (status == MR_OK) {
    status = add_search(contest, boxes, contest->capacity);
  }
  return status;
}

/* Whether the caller's deadline is over: of very many buffers each search takes long to set up. */
static bool is_over(struct contest *contest) {
  const struct mr_pack_problem *problem = contest->limits.problem;
  contest->limits.stopped =
      contest->limits.stopped || (problem->stopped != NULL && problem->stopped(problem->context));
  return contest->limits.stopped;
}

static mr_status contest_init(struct contest *contest, const struct mr_pack_problem *problem,
                              uint64_t least_bytes) {
  mr_status status = MR_OK;
  *contest = (struct contest){
      .limits = {.problem = problem},
      .capacity = mr_min_u64(problem->capacity_bytes, MR_PACK_MOST_BYTES),
  };
  for (uint32_t g = 0; g < MR_PACK_GUESSES && status == MR_OK && !is_over(contest); g++) {
    struct boxes *boxes = &contest->boxes[g];
    status = mr_pack_join(&boxes->joined, problem, (enum mr_pack_guess)g);
    boxes->problem = (struct mr_pack_problem){.buffers = boxes->joined.buffers,
                                              .buffer_count = boxes->joined.count};
    if (status == MR_OK && boxes->joined.count < problem->buffer_count) {
      status = enter(contest, boxes, least_bytes);
    }
  }
  if (status == MR_OK && !is_over(contest)) {
    contest->boxes[MR_PACK_GUESSES].problem = *problem;
    status = enter(contest, &contest->boxes[MR_PACK_GUESSES], least_bytes);
  }
  return status;
}

static void contest_fini(struct contest *contest) {
  for (uint32_t i = 0; i < contest->count; i++) {
    search_fini(&contest->searches[i]);
  }
  for (uint32_t b = 0; b < MR_COUNT_OF(contest->boxes); b++) {
    mr_pack_sections_fini(&contest->boxes[b].sections);
    mr_pack_joined_fini(&contest->boxes[b].joined);
  }
}

/* After a search has seen that its boxes have no packing with its peak: what that proves, and a
 * peak half way to the capacity, which another searches for. */
static void search_higher(struct contest *contest, struct search *search, uint64_t *bound_bytes) {
  bool exact = search->boxes == &contest->boxes[MR_PACK_GUESSES];
  uint64_t peak = (uint64_t)search->state.capacity;
  if (exact) {
    *bound_bytes = mr_max_u64(*bound_bytes, peak + 1);
    contest->proven = peak == contest->capacity;
  }
  peak += (contest->capacity - peak + 1) / 2;
  search->state.capacity = (int64_t)peak;
  search->over = peak == contest->capacity;
}

static mr_status take_turn(struct contest *contest, struct search *search, uint64_t tries,
                           uint64_t *bound_bytes) {
  enum walk walk = WALK_STOPPED;
  mr_pack_undo_to(&search->state, 0);
  search->tries_left = tries;
  mr_status status = walk_turn(search, &walk);
  if (status == MR_OK && walk == WALK_IMPOSSIBLE) {
    search_higher(contest, search, bound_bytes);
  }
  if (status == MR_OK && walk == WALK_SOLVED) {
    contest->winner = search;
  }
  return status;
}

/* Turns of all searches, until one has found a packing or proven that there is none. */
static mr_status compete(struct contest *contest, uint64_t *bound_bytes) {
  mr_status status = MR_OK;
  uint64_t tries_per_box = FIRST_TRIES_PER_BOX;
  for (uint32_t turn = 0;; turn++) {
    if (turn == MR_PACK_TURNS) {
      turn = 0;
      tries_per_box *= 2;
    }
    for (uint32_t i = 0; i < contest->count; i++) {
      struct search *search = &contest->searches[i];
      if (search->over) continue;
      mr_pack_chooser_turn(&search->chooser, &search->state, turn);
      status = take_turn(contest, search, tries_per_box * search->state.box_count, bound_bytes);
      if (status != MR_OK || contest->limits.stopped || contest->proven ||
          contest->winner != NULL) {
        return status;
      }
    }
  }
}

static void take_offsets(const struct search *search, uint64_t *offsets,
                         struct mr_pack_result *result) {
  const struct mr_pack_state *state = &search->state;
  const struct mr_pack_joined *joined = &search->boxes->joined;
  result->verdict = MR_PACK_FITS;
  result->peak_bytes = 0;
  for (uint32_t i = 0; i < state->box_count; i++) {
    const struct mr_pack_box *box = &state->boxes[i];
    MR_ASSERT(box->placed && box->offset + box->size <= state->capacity);
    result->peak_bytes = mr_max_u64(result->peak_bytes, (uint64_t)(box->offset + box->size));
  }
  for (uint32_t i = 0; i < search->limits->problem->buffer_count; i++) {
    bool whole = joined->whole == NULL;
    uint32_t box = whole ? i : joined->whole[i];
    offsets[i] = (uint64_t)state->boxes[box].offset + (whole ? 0 : joined->within[i]);
  }
}

mr_status mr_pack_search(const struct mr_pack_problem *problem,
                         const struct mr_pack_sections *sections, uint64_t *offsets,
                         struct mr_pack_result *result) {
  struct contest contest;
  uint64_t load_bytes = 0;
  for (uint32_t s = 0; s < sections->count; s++) {
    load_bytes = mr_max_u64(load_bytes, sections->load_bytes[s]);
  }
  mr_status status = contest_init(&contest, problem, load_bytes);
  if (status == MR_OK && !contest.limits.stopped) {
    status = compete(&contest, &result->bound_bytes);
  }
  bool proven = contest.proven && contest.capacity == problem->capacity_bytes;
  result->tries = contest.limits.tries;
  result->verdict = proven ? MR_PACK_IMPOSSIBLE : MR_PACK_UNDECIDED;
  if (status == MR_OK && contest.winner != NULL) {
    take_offsets(contest.winner, offsets, result);
  }
  contest_fini(&contest);
  return status;
}

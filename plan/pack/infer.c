/* SPDX-License-Identifier: Apache-2.0 */
/* What follows from a decision of the exact search: offsets, lows, and the check of sections. */
#include "base/base.h"
#include "plan/pack/search.h"

/* Sections [first, end) in which a low or an offset has changed. */
struct change {
  uint32_t first;
  uint32_t end;
};

static void extend(struct change *change, const struct mr_pack_box *box) {
  change->first = box->first < change->first ? box->first : change->first;
  change->end = box->end > change->end ? box->end : change->end;
}

static mr_status remember(struct mr_pack_state *state, uint32_t box) {
  mr_status status = mr_array_reserve((void **)&state->undo, &state->undo_capacity,
                                      state->undo_count + 1ull, sizeof *state->undo);
  if (status == MR_OK) {
    const struct mr_pack_box *b = &state->boxes[box];
    state->undo[state->undo_count++] =
        (struct mr_pack_undo){box, b->placed, b->raised, b->offset, b->low};
  }
  return status;
}

static void count_crossings(struct mr_pack_state *state, const struct mr_pack_box *box,
                            uint32_t change) {
  for (uint32_t s = box->first; s + 1 < box->end; s++) {
    state->sections[s].crossing += change;
  }
}

void mr_pack_undo_to(struct mr_pack_state *state, uint32_t mark) {
  while (state->undo_count > mark) {
    const struct mr_pack_undo *undo = &state->undo[--state->undo_count];
    struct mr_pack_box *box = &state->boxes[undo->box];
    if (box->placed && !undo->placed) {
      count_crossings(state, box, 1);
    }
    box->placed = undo->placed;
    box->raised = undo->raised;
    box->offset = undo->offset;
    box->low = undo->low;
  }
}

/* The lowest top of a box that can lie in the way of a raised one; INT64_MAX: none can. */
static int64_t lowest_support(const struct mr_pack_state *state, struct mr_pack_members members,
                              const struct mr_pack_box *raised) {
  int64_t top = raised->offset + raised->size;
  int64_t lowest = INT64_MAX;
  for (uint32_t m = 0; m < members.count; m++) {
    const struct mr_pack_box *box = &state->boxes[members.boxes[m]];
    bool in_way =
        !box->placed && box != raised && box->low < top && mr_pack_boxes_meet(box, raised);
    if (in_way && box->low + box->size < lowest) {
      lowest = box->low + box->size;
    }
  }
  return lowest;
}

/* Raises the lows of raised boxes until none follows from another any more. */
static mr_status lift(struct mr_pack_state *state, struct mr_pack_members members,
                      struct change *change, bool *holds_out) {
  bool changed = true;
  *holds_out = true;
  while (changed) {
    changed = false;
    for (uint32_t m = 0; m < members.count; m++) {
      struct mr_pack_box *box = &state->boxes[members.boxes[m]];
      bool concerned =
          !box->placed && box->raised && box->first < change->end && change->first < box->end;
      if (!concerned) continue;
      int64_t support = lowest_support(state, members, box);
      if (support == INT64_MAX || support + box->size > state->capacity) {
        *holds_out = false;
        return MR_OK;
      }
      if (support <= box->low) continue;
      mr_status status = remember(state, members.boxes[m]);
      if (status != MR_OK) {
        return status;
      }
      box->low = support;
      extend(change, box);
      changed = true;
    }
  }
  return MR_OK;
}

/* Boxes to be placed that live in the changed sections, by low, descending. */
static uint32_t sort_by_low(struct mr_pack_state *state, struct mr_pack_members members,
                            const struct change *change) {
  uint32_t *sorted = state->sorted;
  uint32_t count = 0;
  for (uint32_t m = 0; m < members.count; m++) {
    const struct mr_pack_box *box = &state->boxes[members.boxes[m]];
    if (box->placed || box->end <= change->first || change->end <= box->first) continue;
    uint32_t at = count++;
    for (; at > 0 && state->boxes[sorted[at - 1]].low < box->low; at--) {
      sorted[at] = sorted[at - 1];
    }
    sorted[at] = members.boxes[m];
  }
  return count;
}

/*
 * The check of sections: what cannot lie below a height must fit between it and the capacity. With
 * boxes taken by low, descending, it is enough to look at the height of each.
 */
static bool sections_hold(struct mr_pack_state *state, struct mr_pack_members members,
                          const struct change *change) {
  uint32_t count = sort_by_low(state, members, change);
  int64_t *load = state->load;
  for (uint32_t s = change->first; s < change->end; s++) {
    load[s] = 0;
  }
  for (uint32_t i = 0; i < count; i++) {
    const struct mr_pack_box *box = &state->boxes[state->sorted[i]];
    uint32_t first = box->first > change->first ? box->first : change->first;
    uint32_t end = box->end < change->end ? box->end : change->end;
    int64_t room = state->capacity - box->low;
    int64_t left = 0; /* negative where one is */
    for (uint32_t s = first; s < end; s++) {
      load[s] += box->size;
      left |= room - load[s];
    }
    if (left >= 0) continue;
    for (uint32_t s = first; s < end; s++) {
      state->sections[s].failures += load[s] > room;
    }
    return false;
  }
  return true;
}

static mr_status draw_consequences(struct mr_pack_state *state, struct mr_pack_members members,
                                   struct change change, bool *holds_out) {
  mr_status status = lift(state, members, &change, holds_out);
  if (status == MR_OK && *holds_out) {
    *holds_out = sections_hold(state, members, &change);
  }
  return status;
}

mr_status mr_pack_place(struct mr_pack_state *state, struct mr_pack_members members, uint32_t box,
                        bool *holds_out) {
  struct mr_pack_box *placed = &state->boxes[box];
  int64_t top = placed->offset + placed->size;
  struct change change = {placed->first, placed->end};
  mr_status status = remember(state, box);
  if (status != MR_OK) {
    return status;
  }
  placed->placed = true;
  count_crossings(state, placed, UINT32_MAX); /* one less */
  for (uint32_t m = 0; m < members.count; m++) {
    struct mr_pack_box *other = &state->boxes[members.boxes[m]];
    if (other->placed || other->offset >= top || !mr_pack_boxes_meet(other, placed)) continue;
    status = remember(state, members.boxes[m]);
    if (status != MR_OK) {
      return status;
    }
    other->offset = top;
    other->raised = false;
    if (other->low < top) {
      other->low = top;
      extend(&change, other);
    }
  }
  return draw_consequences(state, members, change, holds_out);
}

mr_status mr_pack_raise(struct mr_pack_state *state, struct mr_pack_members members, uint32_t box,
                        bool *holds_out) {
  struct mr_pack_box *raised = &state->boxes[box];
  mr_status status = remember(state, box);
  if (status != MR_OK) {
    return status;
  }
  raised->raised = true;
  return draw_consequences(state, members, (struct change){raised->first, raised->end}, holds_out);
}

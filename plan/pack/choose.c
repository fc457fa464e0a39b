/* SPDX-License-Identifier: Apache-2.0 */
/* Rules and rankings of the exact search. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/pack/choose.h"

enum trait { SIZE, LIFE, AREA, LOAD, TRAIT_COUNT };

#define KEYS 3u

struct mr_pack_traits {
  double value[TRAIT_COUNT]; /* LOAD: of the fullest section it lives in */
  double key[KEYS];          /* those of this turn, the most important first */
  uint32_t box;
};

/* Found by trial on published and planted instances: each of them is the best for some. */
static const enum trait rankings[MR_PACK_RANKINGS][KEYS] = {
    {LIFE, AREA, LOAD}, {LOAD, AREA, LIFE}, {LOAD, LIFE, AREA},
    {SIZE, LOAD, AREA}, {AREA, LOAD, SIZE},
};

mr_status mr_pack_chooser_init(struct mr_pack_chooser *chooser,
                               const struct mr_pack_problem *problem,
                               const struct mr_pack_sections *sections) {
  uint32_t count = problem->buffer_count;
  chooser->traits = mr_allocate(count, sizeof *chooser->traits);
  chooser->floor = mr_allocate(sections->count, sizeof *chooser->floor);
  chooser->open = mr_allocate(sections->count, sizeof *chooser->open);
  if (chooser->traits == NULL || chooser->floor == NULL || chooser->open == NULL) {
    return MR_NO_MEMORY;
  }
  for (uint32_t i = 0; i < count; i++) {
    const struct mr_pack_buffer *buffer = &problem->buffers[i];
    struct mr_pack_traits *traits = &chooser->traits[i];
    uint64_t load = 0;
    for (uint32_t s = sections->first[i]; s < sections->end[i]; s++) {
      load = mr_max_u64(load, sections->load_bytes[s]);
    }
    traits->box = i;
    traits->value[SIZE] = (double)buffer->size_bytes;
    traits->value[LIFE] = (double)(buffer->upper - buffer->lower);
    traits->value[AREA] = traits->value[SIZE] * traits->value[LIFE];
    traits->value[LOAD] = (double)load;
  }
  return MR_OK;
}

void mr_pack_chooser_fini(struct mr_pack_chooser *chooser) {
  free(chooser->traits);
  free(chooser->floor);
  free(chooser->open);
}

static int by_keys(const void *left, const void *right) {
  const struct mr_pack_traits *a = left;
  const struct mr_pack_traits *b = right;
  for (uint32_t k = 0; k < KEYS; k++) {
    if (a->key[k] != b->key[k]) {
      return a->key[k] > b->key[k] ? -1 : 1;
    }
  }
  return a->box < b->box ? -1 : a->box > b->box;
}

void mr_pack_chooser_turn(struct mr_pack_chooser *chooser, struct mr_pack_state *state,
                          uint32_t turn) {
  const enum trait *ranking = rankings[turn % MR_PACK_RANKINGS];
  chooser->rule = (enum mr_pack_rule)(turn / MR_PACK_RANKINGS);
  for (uint32_t i = 0; i < state->box_count; i++) {
    for (uint32_t k = 0; k < KEYS; k++) {
      chooser->traits[i].key[k] = chooser->traits[i].value[ranking[k]];
    }
  }
  qsort(chooser->traits, state->box_count, sizeof *chooser->traits, by_keys);
  for (uint32_t i = 0; i < state->box_count; i++) {
    state->boxes[chooser->traits[i].box].rank = i;
  }
}

/* No box to be placed can end at or below the offset. */
static bool nothing_fits_below(const struct mr_pack_state *state, struct mr_pack_members members,
                               const struct mr_pack_box *box) {
  for (uint32_t m = 0; m < members.count; m++) {
    const struct mr_pack_box *other = &state->boxes[members.boxes[m]];
    if (!other->placed && other->low + other->size <= box->offset &&
        mr_pack_boxes_meet(box, other)) {
      return false;
    }
  }
  return true;
}

static bool comes_before(const struct mr_pack_box *a, const struct mr_pack_box *b) {
  return a->offset < b->offset || (a->offset == b->offset && a->rank < b->rank);
}

/* The lowest box that may be taken, of those that live in a section or, for MR_PACK_NONE, of all:
 * below the lowest of all nothing else can end. */
static uint32_t lowest_box(const struct mr_pack_state *state, struct mr_pack_members members,
                           uint32_t section) {
  uint32_t lowest = MR_PACK_NONE;
  for (uint32_t m = 0; m < members.count; m++) {
    const struct mr_pack_box *box = &state->boxes[members.boxes[m]];
    bool here = section == MR_PACK_NONE || (box->first <= section && section < box->end);
    if (!here || box->placed || box->raised) continue;
    if (lowest != MR_PACK_NONE && !comes_before(box, &state->boxes[lowest])) continue;
    if (section == MR_PACK_NONE || nothing_fits_below(state, members, box)) {
      lowest = members.boxes[m];
    }
  }
  return lowest;
}

static void survey(struct mr_pack_chooser *chooser, const struct mr_pack_state *state,
                   struct mr_pack_members members, uint32_t from, uint32_t end) {
  for (uint32_t s = from; s < end; s++) {
    chooser->floor[s] = INT64_MAX;
    chooser->open[s] = false;
    state->load[s] = 0;
  }
  for (uint32_t m = 0; m < members.count; m++) {
    const struct mr_pack_box *box = &state->boxes[members.boxes[m]];
    if (box->placed) continue;
    for (uint32_t s = box->first; s < box->end; s++) {
      chooser->floor[s] = box->low < chooser->floor[s] ? box->low : chooser->floor[s];
      chooser->open[s] = chooser->open[s] || !box->raised;
      state->load[s] += box->size;
    }
  }
}

/* The first choice of the rule among open sections; MR_PACK_NONE: none is open. */
static uint32_t deepest_valley(const struct mr_pack_chooser *chooser,
                               const struct mr_pack_state *state, uint32_t from, uint32_t end) {
  uint32_t best = MR_PACK_NONE;
  for (uint32_t s = from; s < end; s++) {
    if (!chooser->open[s]) continue;
    bool better = best == MR_PACK_NONE || chooser->floor[s] < chooser->floor[best];
    if (!better && chooser->floor[s] == chooser->floor[best]) {
      better = chooser->rule == MR_PACK_FULLEST_VALLEY
                   ? state->load[s] > state->load[best]
                   : state->sections[s].failures > state->sections[best].failures;
    }
    best = better ? s : best;
  }
  return best;
}

uint32_t mr_pack_choose(struct mr_pack_chooser *chooser, const struct mr_pack_state *state,
                        struct mr_pack_members members, uint32_t from, uint32_t end) {
  if (chooser->rule == MR_PACK_LOWEST) {
    return lowest_box(state, members, MR_PACK_NONE);
  }
  survey(chooser, state, members, from, end);
  uint32_t box = MR_PACK_NONE;
  while (box == MR_PACK_NONE) {
    uint32_t valley = deepest_valley(chooser, state, from, end);
    if (valley == MR_PACK_NONE) break;
    chooser->open[valley] = false;
    box = lowest_box(state, members, valley);
  }
  return box;
}

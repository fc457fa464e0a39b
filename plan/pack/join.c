/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joins buffers, pass after pass until nothing changes. A pass has all buffers in the orders of
 * their starts and of their ends, so that those which live and die together are neighbours, and
 * walks through the moments at which some end and others start.
 */
#include "plan/pack/join.h"

#include <stdlib.h>

#include "base/base.h"

#define NO_NODE UINT32_MAX

/* Buffers that all passes see together, each in two orders: some tenths of a second. Planted
 * packings of 500 take below 20 passes. */
#define MOST_LISTED (1u << 20)

/* Buffers given, and after them those that are joined; a whole comes after its parts. */
struct node {
  struct mr_pack_buffer buffer;
  uint32_t whole; /* NO_NODE: it is part of none */
  uint64_t within;
};

struct entry {
  uint64_t time;  /* a start or an end */
  uint64_t other; /* the end or the start */
  uint64_t size;
  uint32_t node;
};

/* Entries next to each other that may fill a place: one, or all that live and die together. */
struct piece {
  uint64_t size;
  const struct entry *entries;
  uint32_t count;
};

struct joiner {
  struct node *nodes; /* room for two of each buffer: each whole has two parts at least */
  uint32_t node_count;
  struct entry *starts;
  struct entry *ends;
  uint32_t whole_count; /* of starts, and of ends */
  struct piece *ones;   /* scratch, room for one of each buffer */
  struct piece *places; /* and for two */
};

static int by_time(const void *left, const void *right) {
  const struct entry *a = left;
  const struct entry *b = right;
  if (a->time != b->time) {
    return a->time < b->time ? -1 : 1;
  }
  if (a->other != b->other) {
    return a->other < b->other ? -1 : 1;
  }
  return a->node < b->node ? -1 : a->node > b->node;
}

static int by_size(const void *left, const void *right) {
  const struct piece *a = left;
  const struct piece *b = right;
  if (a->size != b->size) {
    return a->size < b->size ? -1 : 1;
  }
  return a->entries < b->entries ? -1 : a->entries > b->entries;
}

static void list_wholes(struct joiner *joiner) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < joiner->node_count; i++) {
    const struct mr_pack_buffer *buffer = &joiner->nodes[i].buffer;
    if (joiner->nodes[i].whole != NO_NODE) continue;
    joiner->starts[count] = (struct entry){buffer->lower, buffer->upper, buffer->size_bytes, i};
    joiner->ends[count++] = (struct entry){buffer->upper, buffer->lower, buffer->size_bytes, i};
  }
  joiner->whole_count = count;
  qsort(joiner->starts, count, sizeof *joiner->starts, by_time);
  qsort(joiner->ends, count, sizeof *joiner->ends, by_time);
}

static bool is_whole(const struct joiner *joiner, const struct piece *piece) {
  for (uint32_t i = 0; i < piece->count; i++) {
    if (joiner->nodes[piece->entries[i].node].whole != NO_NODE) {
      return false;
    }
  }
  return true;
}

/* The entries that begin with this one and live and die together with it. */
static struct piece group_of(const struct entry *entries, uint32_t count) {
  struct piece group = {0, entries, 0};
  while (group.count < count && entries[group.count].time == entries[0].time &&
         entries[group.count].other == entries[0].other) {
    group.size += entries[group.count++].size;
  }
  return group;
}

/* Lays the entries of a piece one above another into a whole, and extends its life by theirs. */
static void add_part(struct joiner *joiner, uint32_t whole, const struct piece *piece) {
  struct mr_pack_buffer *buffer = &joiner->nodes[whole].buffer;
  uint64_t within = 0;
  for (uint32_t i = 0; i < piece->count; i++) {
    struct node *part = &joiner->nodes[piece->entries[i].node];
    part->whole = whole;
    part->within = within;
    within += part->buffer.size_bytes;
    buffer->lower = part->buffer.lower < buffer->lower ? part->buffer.lower : buffer->lower;
    buffer->upper = mr_max_u64(buffer->upper, part->buffer.upper);
  }
  buffer->size_bytes = within;
}

static uint32_t add_whole(struct joiner *joiner) {
  uint32_t whole = joiner->node_count++;
  joiner->nodes[whole] = (struct node){.buffer = {.lower = UINT64_MAX}, .whole = NO_NODE};
  return whole;
}

/* Joins what lives and dies together. Whether there was any. */
static bool stack(struct joiner *joiner) {
  bool changed = false;
  for (uint32_t i = 0; i < joiner->whole_count;) {
    struct piece group = group_of(&joiner->starts[i], joiner->whole_count - i);
    i += group.count;
    if (group.count > 1) {
      add_part(joiner, add_whole(joiner), &group);
      changed = true;
    }
  }
  return changed;
}

/* Entries of one moment that are still wholes, one by one and with `grouped` also in their groups,
 * by size. */
static uint32_t list_pieces(const struct joiner *joiner, struct piece moment, bool grouped,
                            struct piece *pieces) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < moment.count;) {
    struct piece group = group_of(&moment.entries[i], moment.count - i);
    i += group.count;
    if (grouped && group.count > 1 && is_whole(joiner, &group)) {
      pieces[count++] = group;
    }
    for (uint32_t k = 0; k < group.count; k++) {
      struct piece one = {group.entries[k].size, &group.entries[k], 1};
      if (is_whole(joiner, &one)) {
        pieces[count++] = one;
      }
    }
  }
  qsort(pieces, count, sizeof *pieces, by_size);
  return count;
}

static uint32_t run_of(const struct piece *pieces, uint32_t count) {
  uint32_t run = 1;
  while (run < count && pieces[run].size == pieces[0].size) {
    run++;
  }
  return run;
}

/* Joins each entry of one side of a moment with the only piece of the other that has its size.
 * Whether there was any. */
static bool match(struct joiner *joiner, struct piece side, struct piece other_side) {
  uint32_t one_count = list_pieces(joiner, side, false, joiner->ones);
  uint32_t place_count = list_pieces(joiner, other_side, true, joiner->places);
  bool changed = false;
  for (uint32_t i = 0, k = 0; i < one_count && k < place_count;) {
    const struct piece *one = &joiner->ones[i];
    const struct piece *place = &joiner->places[k];
    uint32_t ones = run_of(one, one_count - i);
    uint32_t places = run_of(place, place_count - k);
    if (one->size == place->size && ones == 1 && places == 1 && is_whole(joiner, place)) {
      uint32_t whole = add_whole(joiner);
      add_part(joiner, whole, place);
      add_part(joiner, whole, one);
      changed = true;
    }
    i += one->size <= place->size ? ones : 0;
    k += place->size <= one->size ? places : 0;
  }
  return changed;
}

/* The entries from `at` on that have the same time. */
static struct piece moment_of(const struct entry *entries, uint32_t at, uint32_t count) {
  struct piece moment = {0, &entries[at], 0};
  while (at + moment.count < count && entries[at + moment.count].time == entries[at].time) {
    moment.count++;
  }
  return moment;
}

static bool match_all(struct joiner *joiner) {
  uint32_t count = joiner->whole_count;
  bool changed = false;
  for (uint32_t s = 0, e = 0; s < count && e < count;) {
    struct piece starting = moment_of(joiner->starts, s, count);
    struct piece ending = moment_of(joiner->ends, e, count);
    uint64_t start = starting.entries->time;
    uint64_t end = ending.entries->time;
    if (start == end) {
      changed |= match(joiner, ending, starting);
      changed |= match(joiner, starting, ending);
    }
    s += start <= end ? starting.count : 0;
    e += end <= start ? ending.count : 0;
  }
  return changed;
}

static void join_all(struct joiner *joiner, enum mr_pack_guess guess) {
  bool changed = true;
  for (uint32_t listed = 0; changed && listed < MOST_LISTED; listed += joiner->whole_count) {
    list_wholes(joiner);
    changed = guess == MR_PACK_STACKED && stack(joiner);
    if (!changed) {
      changed = match_all(joiner);
    }
  }
}

/* From wholes to their parts, so that each part finds where its whole is. */
static void take_joined(struct joiner *joiner, uint32_t given_count,
                        struct mr_pack_joined *joined) {
  for (uint32_t i = 0; i < joiner->node_count; i++) {
    joined->count += joiner->nodes[i].whole == NO_NODE;
  }
  uint32_t index = joined->count;
  for (uint32_t i = joiner->node_count; i-- > 0;) {
    struct node *node = &joiner->nodes[i];
    if (node->whole == NO_NODE) {
      joined->buffers[--index] = node->buffer;
      node->whole = index;
    } else {
      const struct node *whole = &joiner->nodes[node->whole];
      node->whole = whole->whole;
      node->within += whole->within;
    }
    if (i < given_count) {
      joined->whole[i] = node->whole;
      joined->within[i] = node->within;
    }
  }
}

mr_status mr_pack_join(struct mr_pack_joined *joined, const struct mr_pack_problem *problem,
                       enum mr_pack_guess guess) {
  uint64_t count = problem->buffer_count;
  struct joiner joiner = {.nodes = mr_allocate(2 * count, sizeof *joiner.nodes),
                          .node_count = problem->buffer_count,
                          .starts = mr_allocate(count, sizeof *joiner.starts),
                          .ends = mr_allocate(count, sizeof *joiner.ends),
                          .ones = mr_allocate(count, sizeof *joiner.ones),
                          .places = mr_allocate(2 * count, sizeof *joiner.places)};
  *joined = (struct mr_pack_joined){.buffers = mr_allocate(count, sizeof *joined->buffers),
                                    .whole = mr_allocate(count, sizeof *joined->whole),
                                    .within = mr_allocate(count, sizeof *joined->within)};
  mr_status status = MR_NO_MEMORY;
  if (joiner.nodes != NULL && joiner.starts != NULL && joiner.ends != NULL && joiner.ones != NULL &&
      joiner.places != NULL && joined->buffers != NULL && joined->whole != NULL &&
      joined->within != NULL) {
    for (uint32_t i = 0; i < count; i++) {
      joiner.nodes[i] = (struct node){.buffer = problem->buffers[i], .whole = NO_NODE};
    }
    join_all(&joiner, guess);
    take_joined(&joiner, problem->buffer_count, joined);
    status = MR_OK;
  }
  free(joiner.nodes);
  free(joiner.starts);
  free(joiner.ends);
  free(joiner.ones);
  free(joiner.places);
  return status;
}

void mr_pack_joined_fini(struct mr_pack_joined *joined) {
  free(joined->buffers);
  free(joined->whole);
  free(joined->within);
  *joined = (struct mr_pack_joined){0};
}

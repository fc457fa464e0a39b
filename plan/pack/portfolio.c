/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The portfolio: one buffer after another at an offset that is free over its life, in several
 * orders. Placed buffers are kept in a list by offset, so that one walk meets the holes from below.
 * In the order of their starts it is enough to know what is free at that time, as an allocator
 * does: that takes little even with thousands of buffers, and comes first.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/pack/search.h"

/* Steps of all walks after which no further order is tried: some tens of milliseconds. */
#define MOST_STEPS (1ull << 24)
/* And between two questions whether to stop: some milliseconds. */
#define STEPS_BETWEEN_QUESTIONS (1ull << 20)
#define MOST_PEAK               ((uint64_t)INT64_MAX) /* an order that goes above it is given up */
#define NO_BUFFER               UINT32_MAX

enum order { BY_START, BY_SIZE, BY_SIZE_AND_LIFE, BY_LIFE, BY_END, ORDER_COUNT };
enum fit { FIRST_FIT, BEST_FIT, FIT_COUNT };

struct ordered {
  double key;    /* larger first */
  uint64_t time; /* a moment, of which the key has but 53 bits; larger first */
  uint32_t buffer;
};

/* What is free at some time: up to `end`. */
struct space {
  uint64_t offset;
  uint64_t end;
};

struct packing {
  const struct mr_pack_problem *problem;
  const struct mr_pack_buffer *buffers;
  uint64_t *offsets;
  uint32_t *above; /* the next in the list of each placed buffer */
  uint32_t lowest; /* the head of the list */
  uint64_t peak;
  uint64_t steps;
  uint64_t question; /* steps at which the next is asked */
  bool stopped;
  struct ordered *by_end; /* the last to end first */
  struct space *spaces;   /* by offset; the last has no end, and no two touch */
  uint32_t space_count;
};

/* A hole: where it begins, how much of it would be left, and behind whom it is in the list. */
struct hole {
  uint64_t offset;
  uint64_t left;
  uint32_t after;
};

static double key_of(const struct mr_pack_buffer *buffer, enum order order) {
  double size = (double)buffer->size_bytes;
  double life = (double)(buffer->upper - buffer->lower);
  switch (order) {
  case BY_SIZE:
    return size;
  case BY_SIZE_AND_LIFE:
    return size * sqrt(life);
  case BY_LIFE:
    return life;
  case BY_END:
    return (double)buffer->upper;
  default:
    return -(double)buffer->lower;
  }
}

static int by_key(const void *left, const void *right) {
  const struct ordered *a = left;
  const struct ordered *b = right;
  if (a->key != b->key) {
    return a->key > b->key ? -1 : 1;
  }
  if (a->time != b->time) {
    return a->time > b->time ? -1 : 1;
  }
  return a->buffer < b->buffer ? -1 : a->buffer > b->buffer;
}

/* The lowest hole, or the tightest, that holds the buffer; above all others there always is one. */
static struct hole find_hole(struct packing *packing, const struct mr_pack_buffer *buffer,
                             enum fit fit) {
  const struct mr_pack_buffer *buffers = packing->buffers;
  struct hole here = {0, 0, NO_BUFFER};
  struct hole best = {0, UINT64_MAX, NO_BUFFER};
  for (uint32_t i = packing->lowest; i != NO_BUFFER; i = packing->above[i]) {
    uint64_t offset = packing->offsets[i];
    packing->steps++;
    if (buffers[i].lower >= buffer->upper || buffer->lower >= buffers[i].upper) {
      here.after = offset <= here.offset ? i : here.after;
      continue;
    }
    if (offset >= here.offset + buffer->size_bytes) {
      here.left = offset - here.offset - buffer->size_bytes;
      best = here.left < best.left ? here : best;
      if (fit == FIRST_FIT || best.left == 0) {
        return best;
      }
    }
    here.offset = mr_max_u64(here.offset, offset + buffers[i].size_bytes);
    here.after = i;
  }
  return best.left < UINT64_MAX ? best : here;
}

static void put(struct packing *packing, uint32_t buffer, enum fit fit) {
  struct hole hole = find_hole(packing, &packing->buffers[buffer], fit);
  uint32_t *link = hole.after == NO_BUFFER ? &packing->lowest : &packing->above[hole.after];
  packing->offsets[buffer] = hole.offset;
  packing->above[buffer] = *link;
  *link = buffer;
  packing->peak = mr_max_u64(packing->peak, hole.offset + packing->buffers[buffer].size_bytes);
}

static bool is_stopped(struct packing *packing) {
  const struct mr_pack_problem *problem = packing->problem;
  if (packing->steps >= packing->question && problem->stopped != NULL) {
    packing->question = packing->steps + STEPS_BETWEEN_QUESTIONS;
    packing->stopped = problem->stopped(problem->context);
  }
  return packing->stopped;
}

/* Gives up where it is stopped or the peak is too high: the peak is then above MOST_PEAK. */
static void pack_ordered(struct packing *packing, const struct ordered *ordered, uint32_t count,
                         enum fit fit) {
  packing->lowest = NO_BUFFER;
  packing->peak = 0;
  for (uint32_t i = 0; i < count && packing->peak <= MOST_PEAK; i++) {
    put(packing, ordered[i].buffer, fit);
    if (is_stopped(packing)) {
      packing->peak = MOST_PEAK + 1;
    }
  }
}

/* The lowest space, or the tightest, that holds so many bytes. */
static struct space *find_space(struct packing *packing, uint64_t bytes, enum fit fit) {
  struct space *best = NULL;
  for (uint32_t i = 0; i < packing->space_count; i++) {
    struct space *space = &packing->spaces[i];
    packing->steps++;
    if (space->end - space->offset < bytes) continue;
    if (best == NULL || space->end - space->offset < best->end - best->offset) {
      best = space;
    }
    if (fit == FIRST_FIT) break;
  }
  return best;
}

static void take_space(struct packing *packing, uint32_t buffer, enum fit fit) {
  uint64_t bytes = packing->buffers[buffer].size_bytes;
  struct space *space = find_space(packing, bytes, fit);
  packing->offsets[buffer] = space->offset;
  packing->peak = mr_max_u64(packing->peak, space->offset + bytes);
  space->offset += bytes;
  if (space->offset == space->end) {
    struct space *last = packing->spaces + --packing->space_count;
    memmove(space, space + 1, (size_t)(last - space) * sizeof *space);
  }
}

/* Joins the space below and the one above where they touch what a buffer leaves. */
static void free_space(struct packing *packing, uint32_t buffer) {
  struct space *spaces = packing->spaces;
  uint64_t offset = packing->offsets[buffer];
  uint64_t end = offset + packing->buffers[buffer].size_bytes;
  uint32_t above = 0; /* the first space that is */
  for (uint32_t high = packing->space_count - 1; above < high;) {
    uint32_t middle = above + (high - above) / 2;
    above = spaces[middle].offset < offset ? middle + 1 : above;
    high = spaces[middle].offset < offset ? high : middle;
  }
  bool joins_above = spaces[above].offset == end;
  bool joins_below = above > 0 && spaces[above - 1].end == offset;
  uint32_t behind = packing->space_count - above;
  if (joins_above && joins_below) {
    spaces[above - 1].end = spaces[above].end;
    memmove(&spaces[above], &spaces[above + 1], (behind - 1ull) * sizeof *spaces);
    packing->space_count--;
  } else if (joins_above) {
    spaces[above].offset = offset;
  } else if (joins_below) {
    spaces[above - 1].end = end;
  } else {
    memmove(&spaces[above + 1], &spaces[above], behind * sizeof *spaces);
    spaces[above] = (struct space){offset, end};
    packing->space_count++;
  }
}

/* One buffer after another in the order of their starts; never stopped, so that there is a packing
 * in any case. */
static void pack_in_time(struct packing *packing, const struct ordered *ordered, uint32_t count,
                         enum fit fit) {
  const struct mr_pack_buffer *buffers = packing->buffers;
  uint32_t living = count; /* the first so many by end, and those to come */
  packing->spaces[0] = (struct space){0, UINT64_MAX};
  packing->space_count = 1;
  packing->peak = 0;
  for (uint32_t i = 0; i < count && packing->peak <= MOST_PEAK; i++) {
    uint32_t buffer = ordered[i].buffer;
    while (buffers[packing->by_end[living - 1].buffer].upper <= buffers[buffer].lower) {
      free_space(packing, packing->by_end[--living].buffer);
    }
    take_space(packing, buffer, fit);
  }
}

static void list(const struct mr_pack_problem *problem, enum order order, struct ordered *ordered) {
  for (uint32_t i = 0; i < problem->buffer_count; i++) {
    const struct mr_pack_buffer *buffer = &problem->buffers[i];
    uint64_t time = order == BY_START ? UINT64_MAX - buffer->lower : 0;
    time = order == BY_END ? buffer->upper : time;
    ordered[i] = (struct ordered){key_of(buffer, order), time, i};
  }
  qsort(ordered, problem->buffer_count, sizeof *ordered, by_key);
}

static void pack_all(struct packing *packing, const struct mr_pack_problem *problem,
                     struct ordered *ordered, uint64_t enough_bytes, uint64_t *best_offsets,
                     uint64_t *best_out) {
  uint32_t count = problem->buffer_count;
  uint64_t best = MOST_PEAK + 1;
  list(problem, BY_END, packing->by_end);
  for (uint32_t o = 0; o < ORDER_COUNT; o++) {
    list(problem, (enum order)o, ordered);
    for (uint32_t fit = 0; fit < FIT_COUNT; fit++) {
      if (o == BY_START) {
        pack_in_time(packing, ordered, count, (enum fit)fit);
      } else {
        pack_ordered(packing, ordered, count, (enum fit)fit);
      }
      if (packing->peak < best) {
        best = packing->peak;
        memcpy(best_offsets, packing->offsets, count * sizeof *best_offsets);
      }
      if (best <= enough_bytes || packing->steps > MOST_STEPS || packing->stopped) {
        *best_out = best;
        return;
      }
    }
  }
  *best_out = best;
}

mr_status mr_pack_portfolio(const struct mr_pack_problem *problem, uint64_t enough_bytes,
                            uint64_t *offsets, uint64_t *peak_out) {
  uint64_t count = problem->buffer_count;
  struct ordered *ordered = mr_allocate(count, sizeof *ordered);
  struct packing packing = {.problem = problem,
                            .buffers = problem->buffers,
                            .question = STEPS_BETWEEN_QUESTIONS,
                            .offsets = mr_allocate(count, sizeof *packing.offsets),
                            .above = mr_allocate(count, sizeof *packing.above),
                            .by_end = mr_allocate(count, sizeof *packing.by_end),
                            .spaces = mr_allocate(count + 1, sizeof *packing.spaces)};
  mr_status status = MR_NO_MEMORY;
  if (ordered != NULL && packing.offsets != NULL && packing.above != NULL &&
      packing.by_end != NULL && packing.spaces != NULL) {
    pack_all(&packing, problem, ordered, enough_bytes, offsets, peak_out);
    status = MR_OK;
    if (*peak_out > MOST_PEAK) {
      mr_log(MR_LOG_ERROR, "no packing with a peak of at most %" PRIu64 " bytes was found",
             MOST_PEAK);
      status = MR_INVALID;
    }
  }
  free(ordered);
  free(packing.offsets);
  free(packing.above);
  free(packing.by_end);
  free(packing.spaces);
  return status;
}

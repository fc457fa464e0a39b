/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The portfolio: one buffer after another at an offset that is free over its life, in several
 * orders. Placed buffers are kept in a list by offset, so that one walk meets the gaps from below.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/pack/search.h"

/* Steps of all walks after which no further order is tried: some tens of milliseconds. */
#define MOST_STEPS (1ull << 24)
#define NO_BUFFER  UINT32_MAX

enum order { BY_SIZE, BY_SIZE_AND_LIFE, BY_LIFE, BY_END, BY_START, ORDER_COUNT };
enum fit { FIRST_FIT, BEST_FIT, FIT_COUNT };

struct ordered {
  double key; /* larger first */
  uint32_t buffer;
};

struct packing {
  const struct mr_pack_buffer *buffers;
  uint64_t *offsets;
  uint32_t *above; /* the next in the list of each placed buffer */
  uint32_t lowest; /* the head of the list */
  uint64_t peak;
  uint64_t steps;
};

/* A gap: where it begins, how much of it would be left, and behind whom it is in the list. */
struct gap {
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
  return a->buffer < b->buffer ? -1 : a->buffer > b->buffer;
}

/* The lowest gap, or the tightest, that holds the buffer; above all others there always is one. */
static struct gap find_gap(struct packing *packing, const struct mr_pack_buffer *buffer,
                           enum fit fit) {
  const struct mr_pack_buffer *buffers = packing->buffers;
  struct gap here = {0, 0, NO_BUFFER};
  struct gap best = {0, UINT64_MAX, NO_BUFFER};
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
  struct gap gap = find_gap(packing, &packing->buffers[buffer], fit);
  uint32_t *link = gap.after == NO_BUFFER ? &packing->lowest : &packing->above[gap.after];
  packing->offsets[buffer] = gap.offset;
  packing->above[buffer] = *link;
  *link = buffer;
  packing->peak = mr_max_u64(packing->peak, gap.offset + packing->buffers[buffer].size_bytes);
}

static void pack_ordered(struct packing *packing, const struct ordered *ordered, uint32_t count,
                         enum fit fit) {
  packing->lowest = NO_BUFFER;
  packing->peak = 0;
  for (uint32_t i = 0; i < count; i++) {
    put(packing, ordered[i].buffer, fit);
  }
}

static void pack_all(struct packing *packing, const struct mr_pack_problem *problem,
                     struct ordered *ordered, uint64_t enough_bytes, uint64_t *best_offsets,
                     uint64_t *best_out) {
  uint32_t count = problem->buffer_count;
  uint64_t best = UINT64_MAX;
  for (uint32_t o = 0; o < ORDER_COUNT; o++) {
    for (uint32_t i = 0; i < count; i++) {
      ordered[i] = (struct ordered){key_of(&problem->buffers[i], (enum order)o), i};
    }
    qsort(ordered, count, sizeof *ordered, by_key);
    for (uint32_t fit = 0; fit < FIT_COUNT; fit++) {
      pack_ordered(packing, ordered, count, (enum fit)fit);
      if (packing->peak < best) {
        best = packing->peak;
        memcpy(best_offsets, packing->offsets, count * sizeof *best_offsets);
      }
      if (best <= enough_bytes || packing->steps > MOST_STEPS) {
        *best_out = best;
        return;
      }
    }
  }
  *best_out = best;
}

mr_status mr_pack_portfolio(const struct mr_pack_problem *problem, uint64_t enough_bytes,
                            uint64_t *offsets, uint64_t *peak_out) {
  struct ordered *ordered = mr_allocate(problem->buffer_count, sizeof *ordered);
  struct packing packing = {
      .buffers = problem->buffers,
      .offsets = mr_allocate(problem->buffer_count, sizeof *packing.offsets),
      .above = mr_allocate(problem->buffer_count, sizeof *packing.above),
  };
  mr_status status = MR_NO_MEMORY;
  if (ordered != NULL && packing.offsets != NULL && packing.above != NULL) {
    pack_all(&packing, problem, ordered, enough_bytes, offsets, peak_out);
    status = MR_OK;
  }
  free(ordered);
  free(packing.offsets);
  free(packing.above);
  return status;
}

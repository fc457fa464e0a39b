/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Neighbouring pages for every stay. What is there all the time lies at the bottom, side by side;
 * the others are packed above it over their lives, in pages (plan/pack/). The step is a circle and
 * a packing is on a line, so the circle is cut where that costs the fewest pages: a stay that goes
 * across the cut keeps its pages for the whole step.
 */
#include <stdlib.h>

#include "base/base.h"
#include "plan/colour.h"
#include "plan/pack/pack.h"

/* Of one packing; a plan packs a few times, and each try takes some microseconds. */
#define SEARCH_TRIES 10000u

struct line {
  const struct mr_colour_item *items;
  uint32_t item_count;
  uint32_t op_count;
  uint32_t cut;                   /* the op with which the line begins */
  struct mr_pack_buffer *buffers; /* what does not last all the time, in pages */
  uint32_t *item_of_buffer;
  uint32_t buffer_count;
};

/* Whether a stay goes on from the op before `op` to `op`. */
static bool goes_across(const struct line *line, const struct mr_colour_item *item, uint32_t op) {
  return item->always || (item->first_op < op && op <= item->last_op) ||
         op + line->op_count <= item->last_op;
}

/* The pages in use across the start of each op: 2 * op_count + 1 sums of changes, unrolled. */
static uint32_t cheapest_cut(const struct line *line, int64_t *changes) {
  for (uint32_t i = 0; i < line->item_count; i++) {
    const struct mr_colour_item *item = &line->items[i];
    if (!item->always) {
      changes[item->first_op + 1] += item->page_count;
      changes[item->last_op + 1] -= item->page_count;
    }
  }
  uint32_t best = 0;
  int64_t across = 0;
  int64_t least = INT64_MAX;
  for (uint32_t k = 0; k < 2 * line->op_count; k++) {
    across += changes[k];
    changes[k] = across;
  }
  for (uint32_t k = 0; k < line->op_count; k++) {
    int64_t pages = changes[k] + changes[k + line->op_count];
    if (pages < least) {
      least = pages;
      best = k;
    }
  }
  return best;
}

/* Gives what lasts the pages at the bottom and lists the others. Returns the pages given. */
static uint64_t place_lasting(struct line *line, uint64_t *bottoms) {
  uint64_t base = 0;
  for (uint32_t i = 0; i < line->item_count; i++) {
    const struct mr_colour_item *item = &line->items[i];
    if (item->page_count == 0) continue;
    if (goes_across(line, item, line->cut)) {
      bottoms[i] = base;
      base += item->page_count;
      continue;
    }
    uint32_t lower = (item->first_op + line->op_count - line->cut) % line->op_count;
    line->item_of_buffer[line->buffer_count] = i;
    line->buffers[line->buffer_count++] = (struct mr_pack_buffer){
        lower, lower + 1ull + item->last_op - item->first_op, item->page_count};
  }
  return base;
}

static mr_status pack_rest(const struct line *line, uint64_t base, uint64_t page_limit,
                           uint64_t *bottoms, uint64_t *page_count_out) {
  uint64_t *offsets = mr_allocate(line->buffer_count, sizeof *offsets);
  if (offsets == NULL) {
    return MR_NO_MEMORY;
  }
  struct mr_pack_problem problem = {
      .buffers = line->buffers,
      .buffer_count = line->buffer_count,
      .capacity_bytes = page_limit > base ? page_limit - base : 0,
      .search_tries = SEARCH_TRIES,
  };
  struct mr_pack_result result;
  mr_status status = mr_pack_solve(&problem, offsets, &result);
  if (status == MR_OK) {
    for (uint32_t i = 0; i < line->buffer_count; i++) {
      bottoms[line->item_of_buffer[i]] = base + offsets[i];
    }
    *page_count_out = base + result.peak_bytes;
  }
  free(offsets);
  return status;
}

static void number_pages(const struct line *line, const uint64_t *bottoms, uint32_t *pages) {
  for (uint32_t i = 0; i < line->item_count; i++) {
    for (uint32_t p = 0; p < line->items[i].page_count; p++) {
      pages[line->items[i].first_page + p] = (uint32_t)bottoms[i] + p;
    }
  }
}

mr_status mr_colour_contiguous(const struct mr_colour_item *items, uint32_t item_count,
                               uint32_t op_count, uint64_t page_limit, uint32_t *pages,
                               uint64_t *page_count_out) {
  MR_ASSERT(op_count > 0);
  struct line line = {.items = items,
                      .item_count = item_count,
                      .op_count = op_count,
                      .buffers = mr_allocate(item_count, sizeof *line.buffers),
                      .item_of_buffer = mr_allocate(item_count, sizeof *line.item_of_buffer)};
  int64_t *changes = mr_allocate(2ull * op_count + 1, sizeof *changes);
  uint64_t *bottoms = mr_allocate(item_count, sizeof *bottoms);
  uint64_t page_count = 0;
  mr_status status = MR_NO_MEMORY;
  if (line.buffers != NULL && line.item_of_buffer != NULL && changes != NULL && bottoms != NULL) {
    line.cut = cheapest_cut(&line, changes);
    uint64_t base = place_lasting(&line, bottoms);
    status = pack_rest(&line, base, page_limit, bottoms, &page_count);
  }
  if (status == MR_OK && page_count > UINT32_MAX) {
    mr_log(MR_LOG_ERROR, "a packing of %llu pages; there are at most %u",
           (unsigned long long)page_count, UINT32_MAX);
    status = MR_INVALID;
  }
  if (status == MR_OK) {
    number_pages(&line, bottoms, pages);
    *page_count_out = page_count;
  }
  free(line.buffers);
  free(line.item_of_buffer);
  free(changes);
  free(bottoms);
  return status;
}

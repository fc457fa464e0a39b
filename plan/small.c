/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small arena: what is below half a page is packed by offset. Persistent tensors and inputs lie
 * side by side; the others are placed from the largest to the smallest at the lowest offset that is
 * free over their whole life.
 */
#include <stdlib.h>

#include "plan/draft.h"

#define SMALL_ALIGNMENT 64u /* a cache line, and what op callbacks are promised */

struct small_item {
  uint64_t bytes;
  uint64_t offset;
  uint32_t first_op;
  uint32_t last_op;
  uint32_t place; /* index into small_offsets */
};

static int by_size(const void *left, const void *right) {
  const struct small_item *a = left;
  const struct small_item *b = right;
  if (a->bytes != b->bytes) {
    return a->bytes > b->bytes ? -1 : 1;
  }
  return a->place < b->place ? -1 : 1;
}

static int by_offset(const void *left, const void *right) {
  const struct small_item *a = *(const struct small_item *const *)left;
  const struct small_item *b = *(const struct small_item *const *)right;
  return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* The lowest offset at which items[index] overlaps none of the items before it. `near` is scratch
 * for index pointers. */
static uint64_t lowest_offset(const struct small_item *items, uint32_t index, uint64_t base,
                              const struct small_item **near) {
  const struct small_item *item = &items[index];
  uint32_t count = 0;
  for (uint32_t i = 0; i < index; i++) {
    if (items[i].first_op <= item->last_op && item->first_op <= items[i].last_op) {
      near[count++] = &items[i];
    }
  }
  qsort(near, count, sizeof *near, by_offset);
  uint64_t offset = base;
  for (uint32_t i = 0; i < count; i++) {
    if (near[i]->offset >= offset + item->bytes) break;
    offset = mr_max_u64(offset, near[i]->offset + near[i]->bytes);
  }
  return offset;
}

/* Lays out what lives all the time and lists the others. Returns the bytes laid out. */
static uint64_t place_lasting(struct mr_draft *draft, struct small_item *items,
                              uint32_t *count_out) {
  const struct mr_graph *graph = draft->program;
  uint64_t base = 0;
  uint32_t count = 0;
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    const struct mr_tensor *tensor = &graph->tensors[t];
    uint32_t first = draft->liveness.first[t];
    uint32_t last = draft->liveness.first[t + 1];
    uint64_t bytes = mr_round_up(tensor->bytes, SMALL_ALIGNMENT);
    if (draft->pages[t] > 0) continue;
    if (tensor->role == MR_INPUT || mr_role_is_persistent(tensor->role)) {
      draft->small_offsets[t] = base;
      base += bytes;
    } else if (first < last) {
      const struct mr_access *accesses = draft->liveness.accesses;
      items[count++] = (struct small_item){bytes, 0, accesses[first].op, accesses[last - 1].op, t};
    }
  }
  for (uint32_t k = 0; k < graph->op_count; k++) {
    uint32_t place = graph->tensor_count + k;
    uint64_t bytes = mr_round_up(graph->ops[k].scratch_bytes, SMALL_ALIGNMENT);
    if (draft->pages[place] == 0 && bytes > 0) {
      items[count++] = (struct small_item){bytes, 0, k, k, place};
    }
  }
  *count_out = count;
  return base;
}

mr_status mr_draft_pack_small(struct mr_draft *draft) {
  uint64_t places = (uint64_t)draft->program->tensor_count + draft->op_count;
  struct small_item *items = mr_allocate(places, sizeof *items);
  const struct small_item **near = mr_allocate(places, sizeof *near);
  if (items == NULL || near == NULL) {
    free(items);
    free(near);
    return MR_NO_MEMORY;
  }
  uint32_t count = 0;
  uint64_t base = place_lasting(draft, items, &count);
  uint64_t bytes = base;
  qsort(items, count, sizeof *items, by_size);
  for (uint32_t i = 0; i < count; i++) {
    items[i].offset = lowest_offset(items, i, base, near);
    draft->small_offsets[items[i].place] = items[i].offset;
    bytes = mr_max_u64(bytes, items[i].offset + items[i].bytes);
  }
  draft->small_bytes = mr_round_up(bytes, draft->page_bytes);
  free(items);
  free(near);
  return MR_OK;
}

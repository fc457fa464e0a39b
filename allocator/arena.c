/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas as sorted arrays of free spans: a binary search finds the place, a memmove keeps the
 * order. Arenas here have few free spans, so moving them costs less than a tree would. */
#include "allocator/arena.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

mr_status mr_arena_init(struct mr_arena *arena, uint64_t size, uint32_t span_limit) {
  if (size == 0 || span_limit == 0) {
    mr_log(MR_LOG_ERROR, "an arena needs a size and a span limit above 0");
    return MR_INVALID;
  }
  struct mr_span *spans = mr_allocate(span_limit, sizeof *spans);
  if (spans == NULL) {
    return MR_NO_MEMORY;
  }
  spans[0] = (struct mr_span){.first = 0, .count = size};
  *arena = (struct mr_arena){
      .spans = spans, .span_count = 1, .span_limit = span_limit, .size = size, .free_count = size};
  return MR_OK;
}

void mr_arena_fini(struct mr_arena *arena) {
  free(arena->spans);
  *arena = (struct mr_arena){0};
}

/* The index of the first span that ends behind `position`; span_count where there is none. */
static uint32_t find_span(const struct mr_arena *arena, uint64_t position) {
  uint32_t low = 0;
  uint32_t high = arena->span_count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (arena->spans[middle].first + arena->spans[middle].count > position) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

static void remove_span(struct mr_arena *arena, uint32_t index) {
  MR_ASSERT(arena->spans != NULL && index < arena->span_count);
  uint32_t behind = arena->span_count - index - 1;
  memmove(&arena->spans[index], &arena->spans[index + 1], behind * sizeof *arena->spans);
  arena->span_count--;
}

static void insert_span(struct mr_arena *arena, uint32_t index, struct mr_span span) {
  MR_ASSERT(arena->spans != NULL && arena->span_count < arena->span_limit);
  uint32_t behind = arena->span_count - index;
  memmove(&arena->spans[index + 1], &arena->spans[index], behind * sizeof *arena->spans);
  arena->spans[index] = span;
  arena->span_count++;
}

/* Takes the first `count` integers of a free span. */
static uint64_t take(struct mr_arena *arena, uint32_t index, uint64_t count) {
  struct mr_span *span = &arena->spans[index];
  MR_ASSERT(count > 0 && count <= span->count);
  uint64_t first = span->first;
  span->first += count;
  span->count -= count;
  if (span->count == 0) {
    remove_span(arena, index);
  }
  arena->free_count -= count;
  arena->next = first + count;
  if (MR_CHECKED) {
    mr_arena_validate(arena);
  }
  return first;
}

mr_status mr_arena_allocate(struct mr_arena *arena, uint64_t count, uint64_t *first_out) {
  MR_ASSERT(count > 0);
  uint32_t start = find_span(arena, arena->next);
  for (uint32_t i = 0; i < arena->span_count; i++) {
    uint32_t index = (start + i) % arena->span_count;
    if (arena->spans[index].count >= count) {
      *first_out = take(arena, index, count);
      return MR_OK;
    }
  }
  return MR_NO_SPACE;
}

mr_status mr_arena_allocate_some(struct mr_arena *arena, uint64_t count, struct mr_span *span_out) {
  uint64_t first = 0;
  if (mr_arena_allocate(arena, count, &first) == MR_OK) {
    *span_out = (struct mr_span){.first = first, .count = count};
    return MR_OK;
  }
  if (arena->span_count == 0) {
    return MR_NO_SPACE;
  }
  uint32_t longest = 0;
  for (uint32_t i = 1; i < arena->span_count; i++) {
    if (arena->spans[i].count > arena->spans[longest].count) {
      longest = i;
    }
  }
  uint64_t taken = arena->spans[longest].count;
  *span_out = (struct mr_span){.first = take(arena, longest, taken), .count = taken};
  return MR_OK;
}

void mr_arena_release(struct mr_arena *arena, uint64_t first, uint64_t count) {
  MR_ASSERT(count > 0 && first < arena->size && count <= arena->size - first);
  uint32_t index = find_span(arena, first);
  struct mr_span *after = index < arena->span_count ? &arena->spans[index] : NULL;
  struct mr_span *before = index > 0 ? &arena->spans[index - 1] : NULL;
  MR_ASSERT(after == NULL || first + count <= after->first);
  bool joins_before = before != NULL && before->first + before->count == first;
  bool joins_after = after != NULL && first + count == after->first;
  if (joins_before && joins_after) {
    before->count += count + after->count;
    remove_span(arena, index);
  } else if (joins_before) {
    before->count += count;
  } else if (joins_after) {
    after->first = first;
    after->count += count;
  } else {
    insert_span(arena, index, (struct mr_span){.first = first, .count = count});
  }
  arena->free_count += count;
  if (MR_CHECKED) {
    mr_arena_validate(arena);
  }
}

void mr_arena_validate(const struct mr_arena *arena) {
  uint64_t total = 0;
  uint64_t end = 0;
  for (uint32_t i = 0; i < arena->span_count; i++) {
    const struct mr_span *span = &arena->spans[i];
    MR_ASSERT(span->count > 0);
    MR_ASSERT(i == 0 || span->first > end);
    end = span->first + span->count;
    total += span->count;
  }
  MR_ASSERT(end <= arena->size);
  MR_ASSERT(total == arena->free_count);
  MR_ASSERT(arena->span_count <= arena->span_limit);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An arena hands out ranges of the integers [0, size): pages of a memory tier, chunks of a file.
 * It keeps only the free ranges, sorted and never touching one another, so a release joins its
 * neighbours and an allocation splits one range. Next fit: the search goes on where the last one
 * ended, which keeps ranges that were made together close together and spares the front from
 * crumbling. All memory is taken at init. One thread at a time.
 */
#ifndef MEMRUN_ALLOCATOR_ARENA_H
#define MEMRUN_ALLOCATOR_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include <memrun/status.h>

struct mr_span {
  uint64_t first;
  uint64_t count;
};

struct mr_arena {
  struct mr_span *spans; /* free, ascending, with at least one used integer between two */
  uint32_t span_count;
  uint32_t span_limit;
  uint64_t size;
  uint64_t free_count;
  uint64_t next; /* where the next search begins */
};

/*
 * Makes [0, size) free. `span_limit` bounds the free ranges: one more than the ranges in use at a
 * time is always enough, and size / 2 + 1 is enough for anything. MR_INVALID (0 for either);
 * MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_arena_init(struct mr_arena *arena, uint64_t size, uint32_t span_limit);
void mr_arena_fini(struct mr_arena *arena);

/* Takes `count` (> 0) integers in a row. MR_NO_SPACE where no free range is long enough; nothing is
 * logged, because only the caller knows what for. */
MR_CHECK_RESULT mr_status mr_arena_allocate(struct mr_arena *arena, uint64_t count,
                                            uint64_t *first_out);

/* Takes `count` in a row where there is such a range, else the longest range; MR_NO_SPACE where
 * nothing is free. For callers that can piece a whole together. */
MR_CHECK_RESULT mr_status mr_arena_allocate_some(struct mr_arena *arena, uint64_t count,
                                                 struct mr_span *span_out);

/* Gives back a range, or a part of one, that is in use. */
void mr_arena_release(struct mr_arena *arena, uint64_t first, uint64_t count);

/* Walks the whole structure and asserts its invariants. */
void mr_arena_validate(const struct mr_arena *arena);

#endif

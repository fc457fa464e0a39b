/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan/pack/ lays buffers out in one contiguous range of memory: for devices whose pages cannot be
 * mapped where one likes, and for the arena of small tensors. Pure arithmetic over integers.
 *
 * Nouns. A *buffer* has a size and a half-open lifetime [lower, upper) in any unit of time. A
 * *packing* gives each buffer an offset so that no two that live at the same time overlap; its
 * *peak* is the highest end. The *load* of a moment is the sum of the sizes that live then; the
 * largest load is a lower bound of every peak. A *section* is a moment whose set of live buffers is
 * in no other moment's set: sections say all that matters about time, and a buffer lives through a
 * contiguous range of them.
 *
 * How a packing is found. First a portfolio: buffers are placed one after another at the lowest
 * offset that is free over their life (first fit) or in the tightest gap (best fit), in the order
 * of size, size * sqrt(life), life, end and start. That is mostly enough, and fast. Then, where the
 * peak is above the capacity and the bound is not, an exact search: search.h has its theory. It may
 * find a packing far below the capacity, since those as high as the load are searched for too.
 *
 * Everything is deterministic: the same buffers and limits give the same packing on every machine.
 * A deadline is a question (`stopped`) that is asked between tries and between the buffers of the
 * portfolio; it ends both and chooses nothing.
 *
 * Not here: alignment (sizes in multiples of it give offsets in multiples of it), wrapping
 * lifetimes (plan/contiguous.c cuts the circle).
 */
#ifndef MEMRUN_PLAN_PACK_PACK_H
#define MEMRUN_PLAN_PACK_PACK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <memrun/status.h>

struct mr_pack_buffer {
  uint64_t lower; /* lives in [lower, upper), lower < upper */
  uint64_t upper;
  uint64_t size_bytes; /* > 0 */
};

struct mr_pack_problem {
  const struct mr_pack_buffer *buffers; /* borrowed during the call */
  uint32_t buffer_count;
  uint64_t capacity_bytes;        /* the peak that is wanted */
  uint64_t base_bytes;            /* below all buffers, and */
  uint64_t page_bytes;            /* as many pages for base and peak are as good; 0: bytes count */
  uint64_t search_tries;          /* of the exact search at most; 0: the portfolio alone */
  bool (*stopped)(void *context); /* true ends the search; NULL: nothing does but search_tries */
  void *context;
};

typedef enum mr_pack_verdict {
  MR_PACK_FITS,       /* the peak is at most the capacity */
  MR_PACK_IMPOSSIBLE, /* proven: no packing fits */
  MR_PACK_UNDECIDED,  /* the search ended before it knew */
} mr_pack_verdict;

struct mr_pack_result {
  mr_pack_verdict verdict;
  uint64_t peak_bytes;  /* of the best packing found */
  uint64_t bound_bytes; /* no packing has a lower peak */
  uint64_t tries;       /* placements that the exact search tried */
};

/*
 * Writes the offsets of the best packing found, for each buffer; the verdict says whether it fits.
 * MR_INVALID: a buffer without size or life, or with which more than 2^62 bytes live at once,
 * logged by index; or no packing with a peak below 2^63 bytes was found, which takes buffers of
 * more than that together; MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_pack_solve(const struct mr_pack_problem *problem, uint64_t *offsets,
                                        struct mr_pack_result *result_out);

/* Whether the offsets are a packing, checked pair by pair; *peak_out: its peak. */
bool mr_pack_valid(const struct mr_pack_problem *problem, const uint64_t *offsets,
                   uint64_t *peak_out);

/* What a file calls a buffer, and where. */
struct mr_pack_name {
  char *text;
  uint64_t line;
};

/* Buffers from a file. No two have the same name, and none has an empty one: whoever reads the
 * offsets knows them by it. */
struct mr_pack_table {
  struct mr_pack_buffer *buffers;
  struct mr_pack_name *names;
  uint32_t count;
  uint32_t buffer_capacity;
  uint32_t name_capacity;
};

/*
 * Reads comma-separated values: the line `id,lower,upper,size`, then a buffer a line; empty lines
 * are passed over. Lines end with a line feed, or with a carriage return and a line feed. `path`
 * names the file in messages. Not more than 2^62 bytes live at once. MR_INVALID: one log line with
 * the number of the line, which quotes no more than the beginning of a field; MR_IO, MR_NO_MEMORY.
 * mr_pack_table_fini afterwards in any case.
 */
MR_CHECK_RESULT mr_status mr_pack_table_read(struct mr_pack_table *table, FILE *file,
                                             const char *path);
void mr_pack_table_fini(struct mr_pack_table *table);

/* Writes the same with a column `offset`. MR_IO; nothing is logged. */
MR_CHECK_RESULT mr_status mr_pack_table_write(const struct mr_pack_table *table,
                                              const uint64_t *offsets, FILE *file);

#endif

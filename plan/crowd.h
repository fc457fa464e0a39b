/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The crowd: by how many pages each op of a step is over the limit while gaps are evicted one after
 * another. Excess only ever goes down, and an op that is no longer crowded stays so until the crowd
 * is measured anew. Ops lie in blocks of about the square root of their number, with sums up to
 * each op of a block, so that a range of ops is changed or summed in that time.
 */
#ifndef MEMRUN_PLAN_CROWD_H
#define MEMRUN_PLAN_CROWD_H

#include <stdint.h>

#include <memrun/status.h>

#include "plan/books.h"

struct mr_crowd_block {
  uint64_t taken; /* off every crowded op of the block, not yet seen in excess[] */
  uint64_t least; /* excess of a crowded op */
  uint64_t pages; /* excess of all ops */
  uint32_t ops;   /* that are crowded */
};

struct mr_crowd {
  uint32_t op_count;
  uint32_t block_bits;    /* a block has 2 to that many ops */
  uint64_t *excess;       /* of each op; 0: not crowded */
  uint64_t *pages_before; /* each op: excess of those before it in its block, `taken` unseen */
  uint32_t *ops_before;   /* and how many of them are crowded */
  struct mr_crowd_block *blocks;
  uint32_t crowded_ops;
};

/* Crowded ops of a range, and the sum of their excess. */
struct mr_crowd_sum {
  uint64_t pages;
  uint32_t ops;
};

/* MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_crowd_init(struct mr_crowd *crowd, uint32_t op_count);
void mr_crowd_fini(struct mr_crowd *crowd);

/* What the books have over the limit. */
void mr_crowd_measure(struct mr_crowd *crowd, const struct mr_books *usage, uint64_t limit_pages);

/* Takes pages off the ops [from, to), unrolled. */
void mr_crowd_take(struct mr_crowd *crowd, uint32_t from, uint32_t to, uint64_t pages);
struct mr_crowd_sum mr_crowd_sum(const struct mr_crowd *crowd, uint32_t from, uint32_t to);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Excess over the limit, in blocks of ops. */
#include "plan/crowd.h"

#include <stdlib.h>

#include "base/base.h"

#define LEAST_BLOCK_BITS 4u

static uint32_t block_of(const struct mr_crowd *crowd, uint32_t op) {
  return op >> crowd->block_bits;
}

/* The first op of a block. */
static uint32_t block_start(const struct mr_crowd *crowd, uint32_t block) {
  return block << crowd->block_bits;
}

/* The first op behind it. */
static uint32_t block_end(const struct mr_crowd *crowd, uint32_t block) {
  uint32_t end = block_start(crowd, block + 1);
  return end < crowd->op_count ? end : crowd->op_count;
}

mr_status mr_crowd_init(struct mr_crowd *crowd, uint32_t op_count) {
  *crowd = (struct mr_crowd){.op_count = op_count, .block_bits = LEAST_BLOCK_BITS};
  while (1ull << 2 * crowd->block_bits < op_count) {
    crowd->block_bits++;
  }
  crowd->excess = mr_allocate(op_count, sizeof *crowd->excess);
  crowd->blocks = mr_allocate(block_of(crowd, op_count) + 1ull, sizeof *crowd->blocks);
  crowd->pages_before = mr_allocate(op_count, sizeof *crowd->pages_before);
  crowd->ops_before = mr_allocate(op_count, sizeof *crowd->ops_before);
  if (crowd->excess == NULL || crowd->blocks == NULL || crowd->pages_before == NULL ||
      crowd->ops_before == NULL) {
    mr_crowd_fini(crowd);
    return MR_NO_MEMORY;
  }
  return MR_OK;
}

void mr_crowd_fini(struct mr_crowd *crowd) {
  free(crowd->excess);
  free(crowd->pages_before);
  free(crowd->ops_before);
  free(crowd->blocks);
  *crowd = (struct mr_crowd){0};
}

/* Sums a block whose ops tell all. */
static void sum_block(struct mr_crowd *crowd, uint32_t block) {
  struct mr_crowd_block sum = {.least = UINT64_MAX};
  for (uint32_t k = block_start(crowd, block); k < block_end(crowd, block); k++) {
    uint64_t excess = crowd->excess[k];
    crowd->pages_before[k] = sum.pages;
    crowd->ops_before[k] = sum.ops;
    if (excess > 0) {
      sum.ops++;
      sum.pages += excess;
      sum.least = mr_min_u64(sum.least, excess);
    }
  }
  crowd->crowded_ops += sum.ops;
  crowd->crowded_ops -= crowd->blocks[block].ops;
  crowd->blocks[block] = sum;
}

void mr_crowd_measure(struct mr_crowd *crowd, const struct mr_books *usage, uint64_t limit_pages) {
  for (uint32_t k = 0; k < crowd->op_count; k++) {
    uint64_t pages = mr_books_at(usage, k);
    crowd->excess[k] = pages > limit_pages ? pages - limit_pages : 0;
  }
  for (uint32_t block = 0; block_start(crowd, block) < crowd->op_count; block++) {
    sum_block(crowd, block);
  }
}

/* Takes pages off some ops of one block. */
static void take_from_ops(struct mr_crowd *crowd, uint32_t block, uint32_t from, uint32_t to,
                          uint64_t pages) {
  uint64_t taken = crowd->blocks[block].taken;
  for (uint32_t k = block_start(crowd, block); k < block_end(crowd, block); k++) {
    uint64_t off = taken + (k >= from && k < to ? pages : 0);
    crowd->excess[k] = crowd->excess[k] > off ? crowd->excess[k] - off : 0;
  }
  sum_block(crowd, block);
}

static void take_inside(struct mr_crowd *crowd, uint32_t from, uint32_t to, uint64_t pages) {
  uint32_t index = block_of(crowd, from);
  for (uint32_t k = from; k < to; index++) {
    struct mr_crowd_block *block = &crowd->blocks[index];
    uint32_t end = block_end(crowd, index);
    bool whole = k == block_start(crowd, index) && end <= to;
    if (block->ops > 0 && whole && pages < block->least) {
      block->taken += pages;
      block->least -= pages;
      block->pages -= pages * block->ops;
    } else if (block->ops > 0) {
      take_from_ops(crowd, index, k, to, pages);
    }
    k = end;
  }
}

void mr_crowd_take(struct mr_crowd *crowd, uint32_t from, uint32_t to, uint64_t pages) {
  uint32_t n = crowd->op_count;
  uint32_t begin = mr_op_in_turn(from, n);
  uint32_t end = begin + (to - from);
  take_inside(crowd, begin, end < n ? end : n, pages);
  take_inside(crowd, 0, end < n ? 0 : end - n, pages);
}

/* Adds the ops [from, to) of a block. */
static void sum_part(const struct mr_crowd *crowd, uint32_t index, uint32_t from, uint32_t to,
                     struct mr_crowd_sum *sum) {
  const struct mr_crowd_block *block = &crowd->blocks[index];
  bool to_end = to == block_end(crowd, index);
  uint64_t all = block->pages + block->taken * block->ops;
  uint32_t ops = (to_end ? block->ops : crowd->ops_before[to]) - crowd->ops_before[from];
  uint64_t pages = (to_end ? all : crowd->pages_before[to]) - crowd->pages_before[from];
  sum->ops += ops;
  sum->pages += pages - block->taken * ops;
}

static void sum_inside(const struct mr_crowd *crowd, uint32_t from, uint32_t to,
                       struct mr_crowd_sum *sum) {
  uint32_t index = block_of(crowd, from);
  if (from >= to) {
    return;
  }
  if (from > block_start(crowd, index)) {
    uint32_t end = block_end(crowd, index);
    sum_part(crowd, index++, from, to < end ? to : end, sum);
  }
  for (; block_start(crowd, index) < to && block_end(crowd, index) <= to; index++) {
    sum->ops += crowd->blocks[index].ops;
    sum->pages += crowd->blocks[index].pages;
  }
  if (block_start(crowd, index) < to) {
    sum_part(crowd, index, block_start(crowd, index), to, sum);
  }
}

struct mr_crowd_sum mr_crowd_sum(const struct mr_crowd *crowd, uint32_t from, uint32_t to) {
  struct mr_crowd_sum sum = {0};
  uint32_t n = crowd->op_count;
  uint32_t begin = mr_op_in_turn(from, n);
  uint32_t end = begin + (to - from);
  sum_inside(crowd, begin, end < n ? end : n, &sum);
  sum_inside(crowd, 0, end < n ? 0 : end - n, &sum);
  return sum;
}

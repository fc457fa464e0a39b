/* SPDX-License-Identifier: Apache-2.0 */
/* Excess over the limit, in blocks of ops. */
#include "plan/crowd.h"

#include <stdlib.h>

#include "base/base.h"

#define LEAST_BLOCK_OPS 16u

mr_status mr_crowd_init(struct mr_crowd *crowd, uint32_t op_count) {
  *crowd = (struct mr_crowd){.op_count = op_count, .block_ops = LEAST_BLOCK_OPS};
  while ((uint64_t)crowd->block_ops * crowd->block_ops < op_count) {
    crowd->block_ops *= 2;
  }
  crowd->excess = mr_allocate(op_count, sizeof *crowd->excess);
  crowd->blocks = mr_allocate(mr_div_up(op_count, crowd->block_ops), sizeof *crowd->blocks);
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

/* The first op behind a block. */
static uint32_t block_end(const struct mr_crowd *crowd, uint32_t block) {
  return (uint32_t)mr_min_u64((block + 1ull) * crowd->block_ops, crowd->op_count);
}

/* Sums a block whose ops tell all. */
static void sum_block(struct mr_crowd *crowd, uint32_t block) {
  struct mr_crowd_block sum = {.least = UINT64_MAX};
  for (uint32_t k = block * crowd->block_ops; k < block_end(crowd, block); k++) {
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
  for (uint32_t block = 0; block * crowd->block_ops < crowd->op_count; block++) {
    sum_block(crowd, block);
  }
}

/* Takes pages off some ops of one block. */
static void take_from_ops(struct mr_crowd *crowd, uint32_t block, uint32_t from, uint32_t to,
                          uint64_t pages) {
  uint64_t taken = crowd->blocks[block].taken;
  for (uint32_t k = block * crowd->block_ops; k < block_end(crowd, block); k++) {
    uint64_t off = taken + (k >= from && k < to ? pages : 0);
    crowd->excess[k] = crowd->excess[k] > off ? crowd->excess[k] - off : 0;
  }
  sum_block(crowd, block);
}

static void take_inside(struct mr_crowd *crowd, uint32_t from, uint32_t to, uint64_t pages) {
  uint32_t index = from / crowd->block_ops;
  for (uint32_t k = from; k < to; index++) {
    struct mr_crowd_block *block = &crowd->blocks[index];
    uint32_t end = block_end(crowd, index);
    bool whole = k == index * crowd->block_ops && end <= to;
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
  uint32_t begin = from % n;
  uint32_t end = begin + (to - from);
  take_inside(crowd, begin, end < n ? end : n, pages);
  take_inside(crowd, 0, end < n ? 0 : end - n, pages);
}

static void sum_inside(const struct mr_crowd *crowd, uint32_t from, uint32_t to,
                       struct mr_crowd_sum *sum) {
  uint32_t index = from / crowd->block_ops;
  for (uint32_t k = from; k < to; index++) {
    const struct mr_crowd_block *block = &crowd->blocks[index];
    uint32_t end = block_end(crowd, index);
    if (block->ops > 0 && k == index * crowd->block_ops && end <= to) {
      sum->ops += block->ops;
      sum->pages += block->pages;
    } else if (block->ops > 0) {
      uint64_t all = block->pages + block->taken * block->ops;
      uint32_t ops = (to < end ? crowd->ops_before[to] : block->ops) - crowd->ops_before[k];
      uint64_t pages = (to < end ? crowd->pages_before[to] : all) - crowd->pages_before[k];
      sum->ops += ops;
      sum->pages += pages - block->taken * ops;
    }
    k = end;
  }
}

struct mr_crowd_sum mr_crowd_sum(const struct mr_crowd *crowd, uint32_t from, uint32_t to) {
  struct mr_crowd_sum sum = {0};
  uint32_t n = crowd->op_count;
  uint32_t begin = from % n;
  uint32_t end = begin + (to - from);
  sum_inside(crowd, begin, end < n ? end : n, &sum);
  sum_inside(crowd, 0, end < n ? 0 : end - n, &sum);
  return sum;
}

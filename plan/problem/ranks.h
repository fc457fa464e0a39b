/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of numbers of which the least is taken out, such as the tensors that wait for a link by the
 * order of their need: a bit for each number, a bit for each word of bits that is not empty, and so
 * on up to one word. All that is done to it takes a step for each level.
 */
#ifndef MEMRUN_PLAN_PROBLEM_RANKS_H
#define MEMRUN_PLAN_PROBLEM_RANKS_H

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define MR_RANK_WORD_BITS 6
#define MR_RANK_LEVELS    6 /* of 64: more than an int32_t can number */

struct mr_ranks {
  int32_t level_count;
  int32_t word_count;              /* of all levels */
  uint64_t *words[MR_RANK_LEVELS]; /* one allocation, of level 0 on */
};

static inline void mr_ranks_fini(struct mr_ranks *ranks) {
  free(ranks->words[0]);
}

/* For numbers below `count`. */
MR_CHECK_RESULT static inline mr_status mr_ranks_init(struct mr_ranks *ranks, int32_t count) {
  int32_t first[MR_RANK_LEVELS] = {0};
  *ranks = (struct mr_ranks){0};
  do {
    count = count == 0 ? 1 : (int32_t)(((int64_t)count + 63) >> MR_RANK_WORD_BITS);
    first[ranks->level_count++] = ranks->word_count;
    ranks->word_count += count;
  } while (count > 1);
  uint64_t *words = mr_allocate((uint64_t)ranks->word_count, sizeof *words);
  if (words == NULL) {
    return MR_NO_MEMORY;
  }
  for (int32_t level = 0; level < ranks->level_count; level++) {
    ranks->words[level] = words + first[level];
  }
  return MR_OK;
}

static inline void mr_ranks_clear(struct mr_ranks *ranks) {
  memset(ranks->words[0], 0, (size_t)ranks->word_count * sizeof *ranks->words[0]);
}

static inline bool mr_ranks_are_empty(const struct mr_ranks *ranks) {
  return ranks->words[ranks->level_count - 1][0] == 0;
}

static inline void mr_ranks_add(struct mr_ranks *ranks, int32_t rank) {
  for (int32_t level = 0; level < ranks->level_count; level++) {
    ranks->words[level][rank >> MR_RANK_WORD_BITS] |= 1ULL << (rank & 63);
    rank >>= MR_RANK_WORD_BITS;
  }
}

/* The least of a set that is not empty. */
static inline int32_t mr_ranks_least(const struct mr_ranks *ranks) {
  int32_t rank = 0;
  for (int32_t level = ranks->level_count - 1; level >= 0; level--) {
    rank = rank << MR_RANK_WORD_BITS | __builtin_ctzll(ranks->words[level][rank]);
  }
  return rank;
}

static inline int32_t mr_ranks_take_least(struct mr_ranks *ranks) {
  int32_t least = mr_ranks_least(ranks);
  int32_t rank = least;
  uint64_t left = 0;
  for (int32_t level = 0; level < ranks->level_count && left == 0; level++) {
    left = ranks->words[level][rank >> MR_RANK_WORD_BITS] &= ~(1ULL << (rank & 63));
    rank >>= MR_RANK_WORD_BITS;
  }
  return least;
}

#endif

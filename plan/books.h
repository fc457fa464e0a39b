/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Books say how many pages are in use at every op of a step, and answer for a range of ops how many
 * are in use at most. A range is unrolled: [from, to) with to - from at most one turn, and it may
 * go round the end of the step. Changing or asking for a range takes logarithmic time: a tree in
 * which every node holds what was added to all ops below it and the most that lies below.
 */
#ifndef MEMRUN_PLAN_BOOKS_H
#define MEMRUN_PLAN_BOOKS_H

#include <stdbool.h>
#include <stdint.h>

#include <memrun/status.h>

struct mr_books {
  int64_t *most;   /* of each node: over the ops below, without what was added above it */
  int64_t *added;  /* of each inner node: to every op below */
  uint32_t leaves; /* a power of two; op k is node leaves + k */
  uint32_t op_count;
};

/* The op that an unrolled one is. Few are beyond the second turn, and a division would take longer
 * than what it is for. */
static inline uint32_t mr_op_in_turn(uint32_t op, uint32_t op_count) {
  uint32_t left = op < op_count ? op : op - op_count;
  return left < op_count ? left : left % op_count;
}

/* Nothing in use. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_books_init(struct mr_books *books, uint32_t op_count);
void mr_books_fini(struct mr_books *books);

/* Nothing in use again. */
void mr_books_clear(struct mr_books *books);
/* `to` has been made for as many ops. */
void mr_books_copy(struct mr_books *to, const struct mr_books *from);

/* Adds pages, perhaps a negative number of them, at the ops [from, to). */
void mr_books_add(struct mr_books *books, uint32_t from, uint32_t to, int64_t pages);

/* The most in use at any op of [from, to); 0 where the range is empty. */
uint64_t mr_books_most(const struct mr_books *books, uint32_t from, uint32_t to);
/* At how many ops in a row, at most `longest`, no more than so many are in use: from the op on, or
 * right before it. */
uint32_t mr_books_run(const struct mr_books *books, uint32_t op, bool before, uint32_t longest,
                      uint64_t pages);
/* The most in use over the whole step. */
uint64_t mr_books_peak(const struct mr_books *books);
uint64_t mr_books_at(const struct mr_books *books, uint32_t op);

#endif

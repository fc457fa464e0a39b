/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A problem of several steps falls into parts: between two segments where no tensor is alive but
 * weights and gradients. Their schedules follow each other, so the times of parts, each without
 * weights and gradients, add up to a bound; and what is decided for each is a start for the whole.
 */
#ifndef MEMRUN_PLAN_PROBLEM_PARTS_H
#define MEMRUN_PLAN_PROBLEM_PARTS_H

#include "plan/problem/draft.h"

struct mr_problem_parts {
  const struct mr_problem *problem;
  int32_t count;
  int32_t *first_segment; /* of each part; count + 1 entries */
  int32_t *first_member;  /* members[first_member[i] ...] are the tensors of part i; likewise */
  int32_t *members;
  struct mr_problem part; /* the one that was taken last; borrows all but its tensors */
  int32_t *part_members;  /* the tensors that its tensors stand for */
};

MR_CHECK_RESULT mr_status mr_problem_parts_create(const struct mr_problem *problem,
                                                  struct mr_problem_parts **parts_out);
void mr_problem_parts_destroy(struct mr_problem_parts *parts);
/* Fills in parts->part with part i, with or without its weights and gradients. */
void mr_problem_parts_take(struct mr_problem_parts *parts, int32_t i, bool whole);
/* Whether part i is the one before once more. */
bool mr_problem_parts_repeat(const struct mr_problem_parts *parts, int32_t i);

#endif

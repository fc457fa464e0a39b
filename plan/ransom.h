/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What recompute costs a bound that holds for every program it makes.
 *
 * A value that is used behind a cut of the step either lives across the cut, or the op that makes
 * it runs again after the cut and before that use. So of two windows that follow each other, with
 * the cut between them, either the first passes the value out, or the second runs the op again:
 * whoever chooses pays the smaller of the two, op by op. What a clone needs for that is not
 * counted.
 */
#ifndef MEMRUN_PLAN_RANSOM_H
#define MEMRUN_PLAN_RANSOM_H

#include "plan/plan.h"

/* The outputs of one op that are used behind a cut. */
struct mr_ransom {
  uint32_t cut;
  mr_op_id op;
  uint32_t since; /* cuts from the last one before the op, or at it, to this one: none round the end
                     of the step */
  uint32_t till;  /* cuts from this one to the first behind the next uses */
  double seconds; /* of the op */
  double bytes;
};

struct mr_ransoms {
  struct mr_ransom *items; /* once indexed, by cut, then by till */
  uint32_t count;
  uint32_t capacity;
  uint32_t cut_count;
  uint32_t *first; /* of each cut; cut_count + 1 */
  double *bytes;   /* [cut * (cut_count + 1) + since]: of its items, to that `since` */
};

/* Adds an item. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_ransoms_add(struct mr_ransoms *ransoms,
                                         const struct mr_ransom *ransom);
/* Merges the outputs of each op at each cut, and makes them found by cut. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_ransoms_index(struct mr_ransoms *ransoms, uint32_t cut_count);
void mr_ransoms_fini(struct mr_ransoms *ransoms);

/* All bytes at a cut that ops up to `since` cuts before it made. */
double mr_ransoms_bytes(const struct mr_ransoms *ransoms, uint32_t cut, uint32_t since);

/*
 * The least that these bytes cost, at so many seconds a byte or the time of the op that makes them
 * again. seconds_out[d], for d <= most: of those that are used before the d-th cut on.
 */
void mr_ransoms_least(const struct mr_ransoms *ransoms, uint32_t cut, uint32_t since,
                      double seconds_per_byte, uint32_t most, double *seconds_out);

#endif

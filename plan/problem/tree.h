/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tree over an array of numbers that adds to a range and finds the most in a range, both in
 * logarithmic time: what a seed needs where gaps are long.
 */
#ifndef MEMRUN_PLAN_PROBLEM_TREE_H
#define MEMRUN_PLAN_PROBLEM_TREE_H

#include "base/base.h"

struct mr_problem_tree {
  int32_t leaf_count; /* a power of two */
  double *most;       /* of each node's leaves, with what was added to the node itself */
  double *added;      /* to all leaves of a node at once */
};

MR_CHECK_RESULT mr_status mr_problem_tree_init(struct mr_problem_tree *tree, int32_t count);
void mr_problem_tree_fini(struct mr_problem_tree *tree);
/* Takes `count` values, as many as it was made for. */
void mr_problem_tree_fill(struct mr_problem_tree *tree, const double *values, int32_t count);
/* Over first .. last; nothing where last < first. */
void mr_problem_tree_add(struct mr_problem_tree *tree, int32_t first, int32_t last, double value);
/* -INFINITY where last < first. */
double mr_problem_tree_most(const struct mr_problem_tree *tree, int32_t first, int32_t last);

#endif

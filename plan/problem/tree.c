/* SPDX-License-Identifier: Apache-2.0 */
/* A tree over an array: node i has the children 2 i and 2 i + 1, the leaves come last. */
#include "plan/problem/tree.h"

#include <math.h>
#include <stdlib.h>

mr_status mr_problem_tree_init(struct mr_problem_tree *tree, int32_t count) {
  *tree = (struct mr_problem_tree){.leaf_count = 1};
  while (tree->leaf_count < count) {
    tree->leaf_count *= 2;
  }
  tree->most = mr_allocate(2 * (uint64_t)tree->leaf_count, sizeof *tree->most);
  tree->added = mr_allocate(2 * (uint64_t)tree->leaf_count, sizeof *tree->added);
  if (tree->most == NULL || tree->added == NULL) {
    mr_problem_tree_fini(tree);
    return MR_NO_MEMORY;
  }
  return MR_OK;
}

void mr_problem_tree_fini(struct mr_problem_tree *tree) {
  free(tree->most);
  free(tree->added);
  *tree = (struct mr_problem_tree){0};
}

static void find_most(struct mr_problem_tree *tree, int32_t node) {
  int32_t child = 2 * node;
  tree->most[node] = mr_max_double(tree->most[child], tree->most[child + 1]) + tree->added[node];
}

void mr_problem_tree_fill(struct mr_problem_tree *tree, const double *values, int32_t count) {
  for (int32_t i = 0; i < tree->leaf_count; i++) {
    tree->most[tree->leaf_count + i] = i < count ? values[i] : -INFINITY;
    tree->added[tree->leaf_count + i] = 0;
  }
  for (int32_t node = tree->leaf_count - 1; node >= 1; node--) {
    tree->added[node] = 0;
    find_most(tree, node);
  }
}

void mr_problem_tree_add(struct mr_problem_tree *tree, int32_t first, int32_t last, double value) {
  if (last < first) {
    return;
  }
  int32_t left = first + tree->leaf_count;
  int32_t right = last + tree->leaf_count + 1;
  for (; left < right; left /= 2, right /= 2) {
    if (left % 2 == 1) {
      tree->most[left] += value;
      tree->added[left] += value;
      left++;
    }
    if (right % 2 == 1) {
      right--;
      tree->most[right] += value;
      tree->added[right] += value;
    }
  }
  for (int32_t node = (first + tree->leaf_count) / 2; node >= 1; node /= 2) {
    find_most(tree, node);
  }
  for (int32_t node = (last + tree->leaf_count) / 2; node >= 1; node /= 2) {
    find_most(tree, node);
  }
}

/* What was added to the nodes above one. */
static double added_above(const struct mr_problem_tree *tree, int32_t node) {
  double added = 0;
  for (node /= 2; node >= 1; node /= 2) {
    added += tree->added[node];
  }
  return added;
}

double mr_problem_tree_most(const struct mr_problem_tree *tree, int32_t first, int32_t last) {
  double most = -INFINITY;
  if (last < first) {
    return most;
  }
  int32_t left = first + tree->leaf_count;
  int32_t right = last + tree->leaf_count + 1;
  for (; left < right; left /= 2, right /= 2) {
    if (left % 2 == 1) {
      most = mr_max_double(most, tree->most[left] + added_above(tree, left));
      left++;
    }
    if (right % 2 == 1) {
      right--;
      most = mr_max_double(most, tree->most[right] + added_above(tree, right));
    }
  }
  return most;
}

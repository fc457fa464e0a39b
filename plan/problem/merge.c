/* SPDX-License-Identifier: Apache-2.0 */
/* Coarser problems: alike tensors as one. */
#include <stdlib.h>
#include <string.h>

#include "plan/problem/search.h"

struct member {
  const struct mr_problem_tensor *tensor;
  double price; /* seconds for each byte; a large one where it cannot be recomputed */
};

static int compare_flags(const struct mr_problem_tensor *a, const struct mr_problem_tensor *b) {
  int x = (a->start ? 4 : 0) + (a->end ? 2 : 0) + (a->clean ? 1 : 0);
  int y = (b->start ? 4 : 0) + (b->end ? 2 : 0) + (b->clean ? 1 : 0);
  return (x > y) - (x < y);
}

static int compare_members(const void *left, const void *right) {
  const struct member *a = left;
  const struct member *b = right;
  if (a->tensor->p != b->tensor->p) {
    return a->tensor->p < b->tensor->p ? -1 : 1;
  }
  if (a->tensor->g != b->tensor->g) {
    return a->tensor->g < b->tensor->g ? -1 : 1;
  }
  int flags = compare_flags(a->tensor, b->tensor);
  if (flags != 0) {
    return flags;
  }
  if (a->price != b->price) {
    return a->price < b->price ? -1 : 1;
  }
  return (a->tensor > b->tensor) - (a->tensor < b->tensor);
}

static bool belong_together(const struct member *first, const struct member *other) {
  return first->tensor->p == other->tensor->p && first->tensor->g == other->tensor->g &&
         compare_flags(first->tensor, other->tensor) == 0 &&
         other->price <= first->price * (1 + MR_PROBLEM_SAME_PRICE);
}

static double price_of(const struct mr_problem_tensor *t) {
  bool again = t->recompute_seconds < MR_PROBLEM_NO_RECOMPUTE && t->bytes > 0;
  return again ? t->recompute_seconds / t->bytes : MR_PROBLEM_NO_RECOMPUTE;
}

static void add_to_group(struct mr_problem_tensor *group, const struct mr_problem_tensor *t,
                         bool is_first) {
  if (is_first) {
    *group = *t;
    return;
  }
  group->bytes += t->bytes;
  if (group->recompute_seconds >= MR_PROBLEM_NO_RECOMPUTE) {
    return;
  }
  group->recompute_seconds += t->recompute_seconds;
}

/* Fills in the coarse tensors and group_of; returns their count. */
static int32_t fill_groups(struct mr_problem_merge *merge, const struct mr_problem *fine,
                           const struct member *members, int32_t parts) {
  int32_t count = 0;
  int32_t end = 0;
  for (int32_t begin = 0; begin < fine->tensor_count; begin = end) {
    for (end = begin + 1;
         end < fine->tensor_count && belong_together(&members[begin], &members[end]);) {
      end++;
    }
    int64_t size = end - begin;
    int64_t part_count = size < parts ? size : parts;
    int64_t last_part = -1;
    for (int32_t i = begin; i < end; i++) {
      int64_t part = (i - begin) * part_count / size;
      count += part != last_part;
      add_to_group(&merge->problem->tensors[count - 1], members[i].tensor, part != last_part);
      merge->group_of[members[i].tensor - fine->tensors] = count - 1;
      last_part = part;
    }
  }
  return count;
}

void mr_problem_merge_destroy(struct mr_problem_merge *merge) {
  if (merge == NULL) {
    return;
  }
  mr_problem_destroy(merge->problem);
  free(merge->group_of);
  free(merge);
}

mr_status mr_problem_merge_create(const struct mr_problem *fine, int32_t parts,
                                  struct mr_problem_merge **merge_out) {
  uint64_t n = (uint64_t)fine->tensor_count;
  uint64_t segment_count = (uint64_t)fine->segment_count;
  struct member *members = mr_allocate(n, sizeof *members);
  struct mr_problem_merge *merge = mr_allocate(1, sizeof *merge);
  struct mr_problem *coarse = mr_allocate(1, sizeof *coarse);
  mr_status status = MR_NO_MEMORY;
  if (members == NULL || merge == NULL || coarse == NULL) {
    free(coarse);
    goto done;
  }
  merge->problem = coarse;
  *coarse = *fine;
  coarse->compute_seconds = mr_allocate(segment_count, sizeof *coarse->compute_seconds);
  coarse->workset_bytes = mr_allocate(segment_count, sizeof *coarse->workset_bytes);
  coarse->tensors = mr_allocate(n, sizeof *coarse->tensors);
  merge->group_of = mr_allocate(n, sizeof *merge->group_of);
  if (coarse->compute_seconds == NULL || coarse->workset_bytes == NULL || coarse->tensors == NULL ||
      merge->group_of == NULL) {
    goto done;
  }
  memcpy(coarse->compute_seconds, fine->compute_seconds,
         segment_count * sizeof *coarse->compute_seconds);
  memcpy(coarse->workset_bytes, fine->workset_bytes, segment_count * sizeof *coarse->workset_bytes);
  for (int32_t v = 0; v < fine->tensor_count; v++) {
    members[v] = (struct member){&fine->tensors[v], price_of(&fine->tensors[v])};
  }
  qsort(members, n, sizeof *members, compare_members);
  coarse->tensor_count = fill_groups(merge, fine, members, parts);
  *merge_out = merge;
  merge = NULL;
  status = MR_OK;
done:
  free(members);
  mr_problem_merge_destroy(merge);
  return status;
}

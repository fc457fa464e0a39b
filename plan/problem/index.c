/* SPDX-License-Identifier: Apache-2.0 */
/* The orders of a problem's tensors, the limits of its points, and drafts as memory. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/problem/draft.h"

/* One of the two orders: by boundary, then by a second key and by a third. */
struct order_entry {
  int32_t boundary;
  int32_t second;
  double third;
  int32_t tensor;
};

static int compare_entries(const void *left, const void *right) {
  const struct order_entry *a = left;
  const struct order_entry *b = right;
  if (a->boundary != b->boundary) {
    return a->boundary < b->boundary ? -1 : 1;
  }
  if (a->second != b->second) {
    return a->second < b->second ? -1 : 1;
  }
  if (a->third != b->third) {
    return a->third < b->third ? -1 : 1;
  }
  return (a->tensor > b->tensor) - (a->tensor < b->tensor);
}

static void fill_birth_order(const struct mr_problem *problem, struct order_entry *entries,
                             struct mr_problem_index *index) {
  for (int32_t v = 0; v < problem->tensor_count; v++) {
    const struct mr_problem_tensor *t = &problem->tensors[v];
    entries[v] = (struct order_entry){t->p + 1, -t->g, 0, v};
  }
  qsort(entries, (size_t)problem->tensor_count, sizeof *entries, compare_entries);
  int32_t boundary = 0;
  for (int32_t i = 0; i < problem->tensor_count; i++) {
    index->by_birth[i] = entries[i].tensor;
    for (; boundary <= entries[i].boundary; boundary++) {
      index->first_birth[boundary] = i;
    }
  }
  for (; boundary <= problem->segment_count + 1; boundary++) {
    index->first_birth[boundary] = problem->tensor_count;
  }
}

static void fill_need_order(const struct mr_problem *problem, struct order_entry *entries,
                            struct mr_problem_index *index) {
  for (int32_t v = 0; v < problem->tensor_count; v++) {
    const struct mr_problem_tensor *t = &problem->tensors[v];
    entries[v] = (struct order_entry){t->g, t->p, -t->bytes, v};
  }
  qsort(entries, (size_t)problem->tensor_count, sizeof *entries, compare_entries);
  for (int32_t i = 0; i < problem->tensor_count; i++) {
    index->by_need[i] = entries[i].tensor;
    index->need_rank[entries[i].tensor] = i;
  }
}

/* Whether the segment after the one that makes a tensor needs it: kept, it takes no room where the
 * two follow each other without a pause. */
static bool is_handed_on(const struct mr_problem *problem, const struct mr_problem_tensor *tensor) {
  return tensor->g == tensor->p + 1 && tensor->g < problem->segment_count;
}

static void fill_limits(const struct mr_problem *problem, bool bold,
                        struct mr_problem_index *index) {
  double limit = mr_problem_limit(problem->device_bytes);
  bool leaves_last = false; /* what the last segment made */
  for (int32_t v = 0; v < problem->tensor_count; v++) {
    const struct mr_problem_tensor *t = &problem->tensors[v];
    leaves_last = leaves_last || (t->end && t->p + 1 == problem->segment_count);
    bool born = t->end || (!t->start && (!t->clean || is_handed_on(problem, t)));
    bool moves = t->start || t->end;
    if (moves || (index->free_choice[v] && t->recompute_seconds >= MR_PROBLEM_NO_RECOMPUTE)) {
      index->limit[mr_point_after(t->p + 1)] += born ? t->bytes : 0;
      index->limit[mr_point_before(t->g)] += t->end ? 0 : t->bytes;
    }
  }
  for (int32_t boundary = 0; boundary <= problem->segment_count; boundary++) {
    double *after = &index->limit[mr_point_after(boundary)];
    double *before = &index->limit[mr_point_before(boundary)];
    bool paused = boundary == problem->segment_count && leaves_last;
    bool forced = fmax(*after, *before) > limit;
    *after = *before = !paused && (bold || forced) ? INFINITY : limit;
    index->limit[mr_point_during(boundary)] = limit;
  }
}

void mr_problem_index_destroy(struct mr_problem_index *index) {
  if (index == NULL) {
    return;
  }
  free(index->by_birth);
  free(index->first_birth);
  free(index->by_need);
  free(index->need_rank);
  free(index->free_choice);
  free(index->limit);
  free(index);
}

mr_status mr_problem_index_create(const struct mr_problem *problem, bool bold,
                                  struct mr_problem_index **index_out) {
  uint64_t n = (uint64_t)problem->tensor_count;
  uint64_t boundary_count = (uint64_t)problem->segment_count + 1;
  struct order_entry *entries = mr_allocate(n, sizeof *entries);
  struct mr_problem_index *index = mr_allocate(1, sizeof *index);
  mr_status status = MR_NO_MEMORY;
  if (entries == NULL || index == NULL) {
    goto done;
  }
  index->by_birth = mr_allocate(n, sizeof *index->by_birth);
  index->first_birth = mr_allocate(boundary_count + 1, sizeof *index->first_birth);
  index->by_need = mr_allocate(n, sizeof *index->by_need);
  index->need_rank = mr_allocate(n, sizeof *index->need_rank);
  index->free_choice = mr_allocate(n, sizeof *index->free_choice);
  index->limit = mr_allocate(3 * boundary_count, sizeof *index->limit);
  if (index->by_birth == NULL || index->first_birth == NULL || index->by_need == NULL ||
      index->need_rank == NULL || index->free_choice == NULL || index->limit == NULL) {
    goto done;
  }
  for (int32_t v = 0; v < problem->tensor_count; v++) {
    const struct mr_problem_tensor *t = &problem->tensors[v];
    index->free_choice[v] = !mr_problem_tensor_is_fixed(t);
  }
  fill_birth_order(problem, entries, index);
  fill_need_order(problem, entries, index);
  fill_limits(problem, bold, index);
  *index_out = index;
  index = NULL;
  status = MR_OK;
done:
  free(entries);
  mr_problem_index_destroy(index);
  return status;
}

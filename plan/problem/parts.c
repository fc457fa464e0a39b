/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a problem that follow each other. */
#include "plan/problem/parts.h"

#include <stdlib.h>

/* Parts cost a little each, so the last one takes all that is left. */
#define MOST_PARTS 1000

/* Fills in first_segment and count: a part begins wherever nothing lies across. `across` counts, at
 * each boundary, the tensors that begin to lie across less those that no longer do. */
static void find_parts(struct mr_problem_parts *parts, int32_t *across) {
  const struct mr_problem *problem = parts->problem;
  for (int32_t v = 0; v < problem->tensor_count; v++) {
    const struct mr_problem_tensor *t = &problem->tensors[v];
    if (!mr_problem_tensor_is_fixed(t)) {
      across[t->p + 1]++;
      across[t->g + 1]--;
    }
  }
  int32_t alive = across[0];
  parts->count = 1;
  for (int32_t k = 1; k < problem->segment_count; k++) {
    alive += across[k];
    if (alive == 0 && parts->count < MOST_PARTS) {
      parts->first_segment[parts->count++] = k;
    }
  }
  parts->first_segment[parts->count] = problem->segment_count;
}

/* The part of a segment. */
static int32_t part_of(const struct mr_problem_parts *parts, int32_t segment) {
  int32_t low = 0;
  int32_t high = parts->count - 1;
  while (low < high) {
    int32_t middle = low + (high - low + 1) / 2;
    if (parts->first_segment[middle] <= segment) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

/* The part of a tensor: where it is made, or, of a weight, where it is needed. */
static int32_t part_of_tensor(const struct mr_problem_parts *parts,
                              const struct mr_problem_tensor *t) {
  return part_of(parts, t->start && !t->end ? t->g : t->p);
}

static void sort_members(struct mr_problem_parts *parts) {
  const struct mr_problem *problem = parts->problem;
  for (int32_t v = 0; v < problem->tensor_count; v++) {
    parts->first_member[part_of_tensor(parts, &problem->tensors[v]) + 1]++;
  }
  for (int32_t i = 0; i < parts->count; i++) {
    parts->first_member[i + 1] += parts->first_member[i];
  }
  for (int32_t v = problem->tensor_count - 1; v >= 0; v--) {
    int32_t i = part_of_tensor(parts, &problem->tensors[v]);
    parts->members[--parts->first_member[i + 1]] = v;
  }
  for (int32_t i = 0; i < parts->count; i++) {
    parts->first_member[i] = parts->first_member[i + 1];
  }
  parts->first_member[parts->count] = problem->tensor_count;
}

/* A tensor of part i as its part sees it; what is needed before it is made stays so. */
static struct mr_problem_tensor seen_from_part(const struct mr_problem_parts *parts, int32_t i,
                                               int32_t member) {
  int32_t first = parts->first_segment[i];
  int32_t count = parts->first_segment[i + 1] - first;
  struct mr_problem_tensor tensor = parts->problem->tensors[parts->members[member]];
  tensor.p = tensor.p < first ? -1 : tensor.p - first;
  tensor.g = tensor.g < first ? 0 : tensor.g - first;
  tensor.g = tensor.g < count ? tensor.g : count;
  return tensor;
}

void mr_problem_parts_take(struct mr_problem_parts *parts, int32_t i, bool whole) {
  int32_t first = parts->first_segment[i];
  struct mr_problem *part = &parts->part;
  part->segment_count = parts->first_segment[i + 1] - first;
  part->compute_seconds = parts->problem->compute_seconds + first;
  part->workset_bytes = parts->problem->workset_bytes + first;
  part->tensor_count = 0;
  for (int32_t j = parts->first_member[i]; j < parts->first_member[i + 1]; j++) {
    struct mr_problem_tensor tensor = seen_from_part(parts, i, j);
    if (whole || (!tensor.start && !tensor.end)) {
      part->tensors[part->tensor_count] = tensor;
      parts->part_members[part->tensor_count++] = parts->members[j];
    }
  }
}

bool mr_problem_parts_repeat(const struct mr_problem_parts *parts, int32_t i) {
  int32_t here = parts->first_segment[i];
  int32_t before = i == 0 ? 0 : parts->first_segment[i - 1];
  int32_t count = parts->first_segment[i + 1] - here;
  int32_t members = parts->first_member[i + 1] - parts->first_member[i];
  if (i == 0 || here - before != count ||
      parts->first_member[i] - parts->first_member[i - 1] != members) {
    return false;
  }
  const struct mr_problem *problem = parts->problem;
  for (int32_t k = 0; k < count; k++) {
    if (problem->compute_seconds[here + k] != problem->compute_seconds[before + k] ||
        problem->workset_bytes[here + k] != problem->workset_bytes[before + k]) {
      return false;
    }
  }
  for (int32_t j = 0; j < members; j++) {
    struct mr_problem_tensor a = seen_from_part(parts, i, parts->first_member[i] + j);
    struct mr_problem_tensor b = seen_from_part(parts, i - 1, parts->first_member[i - 1] + j);
    if (a.bytes != b.bytes || a.p != b.p || a.g != b.g ||
        a.recompute_seconds != b.recompute_seconds || a.start != b.start || a.end != b.end ||
        a.clean != b.clean) {
      return false;
    }
  }
  return true;
}

void mr_problem_parts_destroy(struct mr_problem_parts *parts) {
  if (parts == NULL) {
    return;
  }
  free(parts->first_segment);
  free(parts->first_member);
  free(parts->members);
  free(parts->part.tensors);
  free(parts->part_members);
  free(parts);
}

mr_status mr_problem_parts_create(const struct mr_problem *problem,
                                  struct mr_problem_parts **parts_out) {
  uint64_t n = (uint64_t)problem->tensor_count;
  uint64_t boundary_count = (uint64_t)problem->segment_count + 1;
  int32_t *across = mr_allocate(boundary_count + 1, sizeof *across);
  struct mr_problem_parts *parts = mr_allocate(1, sizeof *parts);
  if (across == NULL || parts == NULL) {
    free(across);
    free(parts);
    return MR_NO_MEMORY;
  }
  parts->problem = problem;
  parts->part = *problem;
  parts->part.tensors = mr_allocate(n, sizeof *parts->part.tensors);
  parts->first_segment = mr_allocate(boundary_count, sizeof *parts->first_segment);
  parts->first_member = mr_allocate(boundary_count + 1, sizeof *parts->first_member);
  parts->members = mr_allocate(n, sizeof *parts->members);
  parts->part_members = mr_allocate(n, sizeof *parts->part_members);
  if (parts->part.tensors == NULL || parts->first_segment == NULL || parts->first_member == NULL ||
      parts->members == NULL || parts->part_members == NULL) {
    free(across);
    mr_problem_parts_destroy(parts);
    return MR_NO_MEMORY;
  }
  find_parts(parts, across);
  sort_members(parts);
  free(across);
  *parts_out = parts;
  return MR_OK;
}

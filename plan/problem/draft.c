/* SPDX-License-Identifier: Apache-2.0 */
/* Drafts: decisions, and the loads that follow from them. */
#include "plan/problem/draft.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Adds to a range of values, or, while a draft is built anew, to their differences. */
static void add_over(const struct mr_problem_draft *draft, double *values, int32_t first,
                     int32_t last, double bytes) {
  if (draft->in_differences) {
    values[first] += bytes;
    values[last + 1] -= bytes;
    return;
  }
  for (int32_t i = first; i <= last; i++) {
    values[i] += bytes;
  }
}

/* Adds (sign 1) or takes away (sign -1) what a tensor that is on the device at both ends of its
 * gap, or comes from or goes to the host for good, means for the loads. */
static void apply_stay(struct mr_problem_draft *draft, int32_t tensor, bool kept, double sign) {
  const struct mr_problem_tensor *t = &draft->problem->tensors[tensor];
  double bytes = sign * t->bytes;
  bool is_born = t->end || (!t->start && (kept || !t->clean));
  bool is_needed = !t->end;
  if (kept) {
    add_over(draft, draft->load, mr_point_after(t->p + 1), mr_point_before(t->g), bytes);
  } else if (is_born) {
    add_over(draft, draft->load, mr_point_after(t->p + 1), mr_point_after(t->p + 1), bytes);
  }
  if (is_born) {
    draft->birth_bytes[t->p + 1] += bytes;
  }
  if (is_needed) {
    draft->need_bytes[t->g] += bytes;
    if (!kept) {
      add_over(draft, draft->load, mr_point_before(t->g), mr_point_before(t->g), bytes);
      draft->fetch_count[t->g] += sign > 0 ? 1 : -1;
      draft->fetch_bytes[t->g] += bytes;
    }
  }
}

static void apply(struct mr_problem_draft *draft, int32_t tensor, double sign) {
  const struct mr_problem_tensor *t = &draft->problem->tensors[tensor];
  if (!draft->index->free_choice[tensor]) {
    if (t->start || t->end) {
      apply_stay(draft, tensor, false, sign);
    }
    return; /* needed before it is made: never there */
  }
  switch (draft->decisions[tensor]) {
  case MR_PROBLEM_RECOMPUTE:
    draft->recompute_seconds[t->g] += sign * t->recompute_seconds;
    break;
  case MR_PROBLEM_HOST:
    if (!t->clean) {
      add_over(draft, draft->host_load, t->p + 1, t->g, sign * t->bytes);
    }
    apply_stay(draft, tensor, false, sign);
    break;
  default:
    apply_stay(draft, tensor, draft->decisions[tensor] == MR_PROBLEM_KEEP, sign);
    break;
  }
}

void mr_problem_draft_set(struct mr_problem_draft *draft, int32_t tensor,
                          enum mr_problem_decision decision) {
  MR_ASSERT(draft->index->free_choice[tensor]);
  apply(draft, tensor, -1);
  draft->decisions[tensor] = (uint8_t)decision;
  apply(draft, tensor, 1);
}

int32_t mr_problem_draft_overload(const struct mr_problem_draft *draft) {
  int32_t point_count = 3 * (draft->problem->segment_count + 1);
  for (int32_t point = 0; point < point_count; point++) {
    if (draft->load[point] > draft->index->limit[point]) {
      return point;
    }
  }
  return -1;
}

int32_t mr_problem_draft_host_overload(const struct mr_problem_draft *draft) {
  double limit = mr_problem_limit(draft->problem->host_bytes);
  for (int32_t boundary = 0; boundary <= draft->problem->segment_count; boundary++) {
    if (draft->host_load[boundary] > limit) {
      return boundary;
    }
  }
  return -1;
}

void mr_problem_draft_destroy(struct mr_problem_draft *draft) {
  if (draft == NULL) {
    return;
  }
  free(draft->decisions);
  free(draft->load);
  free(draft->host_load);
  free(draft->birth_bytes);
  free(draft->need_bytes);
  free(draft->recompute_seconds);
  free(draft->fetch_count);
  free(draft->fetch_bytes);
  free(draft);
}

static void sum_up(double *values, int32_t count) {
  for (int32_t i = 1; i < count; i++) {
    values[i] += values[i - 1];
  }
}

void mr_problem_draft_rebuild(struct mr_problem_draft *draft) {
  const struct mr_problem *problem = draft->problem;
  int32_t boundary_count = problem->segment_count + 1;
  size_t bytes = (size_t)boundary_count * sizeof(double);
  memset(draft->load, 0, 3 * bytes);
  memset(draft->host_load, 0, bytes);
  memset(draft->birth_bytes, 0, bytes);
  memset(draft->need_bytes, 0, bytes);
  memset(draft->recompute_seconds, 0, bytes);
  memset(draft->fetch_count, 0, (size_t)boundary_count * sizeof *draft->fetch_count);
  memset(draft->fetch_bytes, 0, bytes);
  draft->in_differences = true;
  for (int32_t v = 0; v < problem->tensor_count; v++) {
    apply(draft, v, 1);
  }
  draft->in_differences = false;
  sum_up(draft->load, 3 * boundary_count);
  sum_up(draft->host_load, boundary_count);
  for (int32_t k = 0; k < problem->segment_count; k++) {
    draft->load[mr_point_during(k)] += problem->workset_bytes[k];
  }
}

mr_status mr_problem_draft_create(const struct mr_problem *problem,
                                  const struct mr_problem_index *index,
                                  struct mr_problem_draft **draft_out) {
  uint64_t boundary_count = (uint64_t)problem->segment_count + 1;
  struct mr_problem_draft *draft = mr_allocate(1, sizeof *draft);
  if (draft == NULL) {
    return MR_NO_MEMORY;
  }
  draft->problem = problem;
  draft->index = index;
  draft->knobs =
      (struct mr_problem_knobs){.lookahead = problem->segment_count + 1, .patient = false};
  draft->decisions = mr_allocate((uint64_t)problem->tensor_count, sizeof *draft->decisions);
  /* One entry more, for the difference after the last. */
  draft->load = mr_allocate(3 * boundary_count + 1, sizeof *draft->load);
  draft->host_load = mr_allocate(boundary_count + 1, sizeof *draft->host_load);
  draft->birth_bytes = mr_allocate(boundary_count, sizeof *draft->birth_bytes);
  draft->need_bytes = mr_allocate(boundary_count, sizeof *draft->need_bytes);
  draft->recompute_seconds = mr_allocate(boundary_count, sizeof *draft->recompute_seconds);
  draft->fetch_count = mr_allocate(boundary_count, sizeof *draft->fetch_count);
  draft->fetch_bytes = mr_allocate(boundary_count, sizeof *draft->fetch_bytes);
  if (draft->decisions == NULL || draft->load == NULL || draft->host_load == NULL ||
      draft->birth_bytes == NULL || draft->need_bytes == NULL || draft->recompute_seconds == NULL ||
      draft->fetch_count == NULL || draft->fetch_bytes == NULL) {
    mr_problem_draft_destroy(draft);
    return MR_NO_MEMORY;
  }
  mr_problem_draft_rebuild(draft);
  *draft_out = draft;
  return MR_OK;
}

void mr_problem_draft_copy(struct mr_problem_draft *to, const struct mr_problem_draft *from) {
  size_t boundary_count = (size_t)from->problem->segment_count + 1;
  MR_ASSERT(to->problem == from->problem);
  to->knobs = from->knobs;
  memcpy(to->decisions, from->decisions,
         (size_t)from->problem->tensor_count * sizeof *to->decisions);
  memcpy(to->load, from->load, 3 * boundary_count * sizeof *to->load);
  memcpy(to->host_load, from->host_load, boundary_count * sizeof *to->host_load);
  memcpy(to->birth_bytes, from->birth_bytes, boundary_count * sizeof *to->birth_bytes);
  memcpy(to->need_bytes, from->need_bytes, boundary_count * sizeof *to->need_bytes);
  memcpy(to->recompute_seconds, from->recompute_seconds,
         boundary_count * sizeof *to->recompute_seconds);
  memcpy(to->fetch_count, from->fetch_count, boundary_count * sizeof *to->fetch_count);
  memcpy(to->fetch_bytes, from->fetch_bytes, boundary_count * sizeof *to->fetch_bytes);
}

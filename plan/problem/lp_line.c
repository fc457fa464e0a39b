/* SPDX-License-Identifier: Apache-2.0 */
/* The points of the LP bound. */
#include <stdlib.h>

#include "plan/problem/cut.h"
#include "plan/problem/lp.h"

void mr_lp_line_destroy(struct mr_lp_line *line) {
  if (line == NULL) {
    return;
  }
  mr_problem_index_destroy(line->index);
  free(line->segment);
  free(line->first_point);
  free(line->interval);
  free(line->work_seconds);
  free(line);
}

/* Of all starts and ends of segments that last, evenly as many as there is room for. */
static void choose_points(struct mr_lp_line *line, int32_t most_points) {
  const struct mr_problem *problem = line->problem;
  int64_t candidate_count = 0;
  for (int32_t k = 0; k < problem->segment_count; k++) {
    candidate_count += problem->compute_seconds[k] >= MR_PROBLEM_SHORTEST_SEGMENT_SECONDS ? 2 : 0;
  }
  /* One of every few candidates; where there are none, none is asked for. */
  int64_t whole = candidate_count > 0 ? candidate_count : 1;
  int64_t chosen_count = candidate_count < most_points ? candidate_count : most_points;
  int64_t candidate = 0;
  line->first_point[0] = 0;
  for (int32_t k = 0; k < problem->segment_count; k++) {
    bool lasts = problem->compute_seconds[k] >= MR_PROBLEM_SHORTEST_SEGMENT_SECONDS;
    line->interval[k] = line->point_count;
    for (int side = 0; side < 2 && lasts; side++, candidate++) {
      bool chosen = candidate * chosen_count / whole != (candidate + 1) * chosen_count / whole;
      if (chosen) {
        line->segment[line->point_count++] = k;
      }
      if (side == 0) {
        line->interval[k] = line->point_count;
      }
    }
    line->work_seconds[line->interval[k]] += problem->compute_seconds[k];
    line->first_point[k + 1] = line->point_count;
  }
}

mr_status mr_lp_line_create(const struct mr_problem *problem, int32_t most_points,
                            struct mr_lp_line **line_out) {
  uint64_t segment_count = (uint64_t)problem->segment_count;
  struct mr_lp_line *line = mr_allocate(1, sizeof *line);
  if (line == NULL) {
    return MR_NO_MEMORY;
  }
  line->problem = problem;
  line->segment = mr_allocate(2 * segment_count, sizeof *line->segment);
  line->first_point = mr_allocate(segment_count + 1, sizeof *line->first_point);
  line->interval = mr_allocate(segment_count, sizeof *line->interval);
  line->work_seconds = mr_allocate(2 * segment_count + 1, sizeof *line->work_seconds);
  mr_status status = MR_NO_MEMORY;
  if (line->segment == NULL || line->first_point == NULL || line->interval == NULL ||
      line->work_seconds == NULL) {
    goto fail;
  }
  status = mr_problem_index_create(problem, false, &line->index);
  if (status != MR_OK) {
    goto fail;
  }
  choose_points(line, most_points);
  *line_out = line;
  return MR_OK;
fail:
  mr_lp_line_destroy(line);
  return status;
}

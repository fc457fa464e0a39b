/* SPDX-License-Identifier: Apache-2.0 */
/* The LP bound of a problem: points, prices, and what no schedule beats by them. lp.h has the
 * theory. */
#include <math.h>

#include "plan/problem/lp.h"

/* Pairs of points with tensors between them; the program grows with them. */
#define MOST_PAIRS 2048
/* Few enough points that all pairs of them are below that. */
#define FEW_POINTS 64

/* As many points as the library can do with in seconds. */
static mr_status create_line(const struct mr_problem *problem, int32_t most_points,
                             struct mr_lp_line **line_out) {
  for (int32_t points = most_points;; points /= 2) {
    struct mr_lp_line *line = NULL;
    int32_t pair_count = 0;
    mr_status status = mr_lp_line_create(problem, points, &line);
    if (status == MR_OK) {
      status = mr_lp_flow_count(line, &pair_count);
    }
    if (status == MR_OK && (pair_count <= MOST_PAIRS || points <= FEW_POINTS)) {
      *line_out = line;
      return MR_OK;
    }
    mr_lp_line_destroy(line);
    if (status != MR_OK) {
      return status;
    }
  }
}

mr_status mr_lp_bound_with(const struct mr_problem *problem, const struct mr_lp_library *library,
                           double *seconds_out) {
  struct mr_lp_line *line = NULL;
  struct mr_lp_prices *prices = NULL;
  mr_status status = create_line(problem, library->most_points, &line);
  if (status == MR_OK) {
    status = mr_lp_prices_create(line, &prices);
  }
  if (status == MR_OK) {
    status = mr_lp_flow_solve(line, library, prices);
  }
  if (status == MR_OK) {
    status = mr_lp_bound(line, prices, seconds_out);
  }
  mr_lp_prices_destroy(prices);
  mr_lp_line_destroy(line);
  return status;
}

mr_status mr_problem_bound_lp(const struct mr_problem *problem, double *seconds_out) {
  const struct mr_lp_library *library = mr_lp_library_find();
  if (library == NULL) {
    mr_log(MR_LOG_ERROR, "the lp bound needs CLP or GLPK, and neither libClp.so.1 nor "
                         "libglpk.so.40 could be loaded; install the package coinor-libclp1 or "
                         "libglpk40, or take --bound cut");
    return MR_UNSUPPORTED;
  }
  return mr_lp_bound_with(problem, library, seconds_out);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The LP bound: prices for a second of each link and for a byte of room, found by a linear program,
 * and what any schedule costs at those prices.
 *
 * Nouns. The *points* are moments of a schedule: starts and ends of some of its segments, in their
 * order. They cut its time into *intervals*; interval j ends at point j, and the last one, after
 * all points, at the end of the schedule. In each interval a second has five *shares*, none below 0
 * and together 1: of compute and of the four links. A link's *price* is its share over its rate,
 * seconds for a byte. A byte that lies on the device at a point, or rests on the host, has a price
 * too, >= 0.
 *
 * The bound. Let a schedule spend D_j seconds in interval j. Its time is
 *   sum_j D_j = sum_j D_j (share of compute) + sum_links sum_j D_j (share of the link).
 *  1. Compute: D_j is at least the compute time of the segments in interval j and the recompute
 *     time of the tensors that are made again in them: segments run one at a time, and each lies in
 *     one interval, because points are starts and ends of segments.
 *  2. Links: D_j is at least the time for which the link's moves run in interval j, because they do
 *     not overlap. Say that of a move that runs for a part f of its time in an interval, f of its
 *     bytes move there: the time is at least these bytes over the rate.
 *  3. Device: at a point just after the start or just before the end of segment k, the working set
 *     of k and what else is there are at most the budget. So the price of the point times
 *     (bytes - budget) can be added to the right side, being <= 0.
 *  4. Host: likewise.
 * After that the right side is a constant,
 *   sum_j (share of compute) (compute time) + sum_points (price) (working set - budget)
 *   - sum_points (price of the host) (host budget),
 * and a sum over tensors, in which each one's moves, room and recompute are paid by itself. So the
 * time is at least the constant and for each tensor the least that it can pay:
 *  - kept: room on the device at all points of segments k with p < k < g: it is there from the end
 *    of p to the start of g, and a segment that is a point lasts
 * (MR_PROBLEM_SHORTEST_SEGMENT_SECONDS);
 *  - recomputed: its time at the compute share of the interval of g;
 *  - sent away: if its out has parts f_a in intervals a and its in has parts f'_b in intervals b,
 * it is on the device up to the end of out, hence at every point before each such a, on the host at
 * every point from each such a to before each such b, and on the device from each such b to before
 * g. What it pays is therefore at least sum_a sum_b f_a f'_b (pay of moving all of it out in a and
 * in in b), and so at least the least of these. Such a is after p, b not after g, and a <= b,
 * because in starts when out has ended. By way of NVMe, where the host asks for nothing, the same
 * with write and read in between;
 *  - a weight comes in, at the latest for g; a clean tensor comes in at or after its birth; a
 *    gradient goes out after p.
 * A tensor needed before it is made pays nothing where it is kept. Points may be left out and
 * prices may be anything: the bound is weaker, never wrong. No property of the linear program or of
 * the solver is needed.
 *
 * The linear program (lp_flow.c) looks for the prices that give the most. It moves bytes of alike
 * tensors as a fluid along the intervals; its dual values are the prices.
 *
 * The idea of a fluid program whose dual values are checked over all tensors is the project's
 * planner note; pricing each tensor's own cheapest way, which needs no bounds on any variable, and
 * the points at ends of segments, which keep a tensor from leaving while it is made, are additions.
 */
#ifndef MEMRUN_PLAN_PROBLEM_LP_H
#define MEMRUN_PLAN_PROBLEM_LP_H

#include "plan/problem/draft.h"

/* The points of a problem's schedules, and where its segments lie between them. */
struct mr_lp_line {
  const struct mr_problem *problem;
  struct mr_problem_index *index;
  int32_t point_count;
  int32_t *segment;     /* of each point */
  int32_t *first_point; /* for each boundary b = 0 .. K: the first point of a segment >= b */
  int32_t *interval;    /* for each segment: where it runs */
  double *work_seconds; /* for each interval, point_count + 1: compute time */
};

/* Points at starts and ends of segments, `most_points` at most. The problem is borrowed.
 * MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_lp_line_create(const struct mr_problem *problem, int32_t most_points,
                                            struct mr_lp_line **line_out);
void mr_lp_line_destroy(struct mr_lp_line *line);

/* Seconds for a byte. All are >= 0. */
struct mr_lp_prices {
  double *link[MR_PROBLEM_LINK_COUNT]; /* for each interval */
  double *device;                      /* for each point */
  double *host;                        /* for each point */
};

/* Prices of 0. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_lp_prices_create(const struct mr_lp_line *line,
                                              struct mr_lp_prices **prices_out);
void mr_lp_prices_destroy(struct mr_lp_prices *prices);

/*
 * What no schedule can beat, by these prices, whatever they are. Shares of links that come to more
 * than 1 in an interval are first made smaller together; compute has what they leave.
 * MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_lp_bound(const struct mr_lp_line *line,
                                      const struct mr_lp_prices *prices, double *seconds_out);

/* A linear program: least cost where lower <= column, row <= upper. DBL_MAX: no limit. */
struct mr_lp_program {
  int32_t row_count;
  int32_t column_count;
  int32_t entry_count;
  int32_t *column_start; /* column_count + 1: entries by column */
  int32_t *entry_row;
  double *entry_value;
  double *column_lower, *column_upper, *column_cost;
  double *row_lower, *row_upper;
};

/* A library that solves them. */
struct mr_lp_library {
  const char *name;
  int32_t most_points; /* so that it takes seconds, not minutes */
  bool (*is_here)(void);
  /* The dual values of the rows; of those where it stopped, if it did. MR_NO_MEMORY. */
  mr_status (*solve)(const struct mr_lp_program *program, double *row_duals_out);
};

/* The libraries that are looked for, the best first, ending with a NULL name. */
extern const struct mr_lp_library mr_lp_libraries[];
/* The first that is here; NULL: none is. */
const struct mr_lp_library *mr_lp_library_find(void);

/* For how many pairs of points there are tensors with a choice between them: the fluid program has
 * a column for each, or more. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_lp_flow_count(const struct mr_lp_line *line, int32_t *count_out);
/* The prices that the fluid program gives. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_lp_flow_solve(const struct mr_lp_line *line,
                                           const struct mr_lp_library *library,
                                           struct mr_lp_prices *prices);

/* mr_problem_bound_lp with one library. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_lp_bound_with(const struct mr_problem *problem,
                                           const struct mr_lp_library *library,
                                           double *seconds_out);

#endif

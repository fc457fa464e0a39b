/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A draft is a schedule in the making: what was decided for each tensor, and the bytes that follow
 * from it at every point of the line of segments. Seconds come from a simulation of the draft.
 *
 * Points. Memory changes hands between segments, so each boundary b = 0 .. K (before segment b) and
 * each segment has its points, in the order of time: *after* (3 b: segment b - 1 has ended and what
 * it made is there), *before* (3 b + 1: what segment b needs is there) and *during* (3 b + 2:
 * segment b runs beside its working set). A tensor that is kept lies at every point from after p
 * to before g; one that leaves lies at the first and at the last of them, and at others for as long
 * as its moves take. The load of a point is what lies there for certain; a draft is *sound* where
 * no load exceeds its limit, and then waiting for moves alone brings every segment to its start.
 */
#ifndef MEMRUN_PLAN_PROBLEM_DRAFT_H
#define MEMRUN_PLAN_PROBLEM_DRAFT_H

#include "base/base.h"
#include "plan/problem/problem.h"

static inline int32_t mr_point_after(int32_t boundary) {
  return 3 * boundary;
}
static inline int32_t mr_point_before(int32_t boundary) {
  return 3 * boundary + 1;
}
static inline int32_t mr_point_during(int32_t segment) {
  return 3 * segment + 2;
}

/* A budget with room for what rounding does to sums of bytes. */
static inline double mr_problem_limit(double budget_bytes) {
  return budget_bytes * (1 + 1e-9);
}

/* Whether nothing can be decided: weights come in, gradients go out, and what is needed before it
 * is made is never there. */
static inline bool mr_problem_tensor_is_fixed(const struct mr_problem_tensor *tensor) {
  return tensor->start || tensor->end || tensor->p >= tensor->g;
}

/* What a problem says in other orders; fixed while it lives. */
struct mr_problem_index {
  int32_t *by_birth;    /* tensors by p, of one p the longest gap first */
  int32_t *first_birth; /* by_birth[first_birth[b] ...] are made by segment b - 1; K + 2 entries */
  int32_t *by_need;   /* tensors by g, of one g the largest first, so that the last is soon there */
  int32_t *need_rank; /* the place of each tensor in by_need */
  bool *free_choice;  /* for each tensor: it is alive, and neither a weight nor a gradient */
  double *limit;      /* for each point; INFINITY: the simulation decides */
};

struct mr_problem_knobs {
  int32_t lookahead; /* a tensor is fetched at most so many segments before it is needed */
  /* For each link: by which part of its time a move ends later than it could. What is there sooner
   * may start something else, and that may end up in the way. */
  double lag[MR_PROBLEM_LINK_COUNT];
  bool patient; /* a fetch leaves room for the next segment to start beside what still leaves */
};

struct mr_problem_draft {
  const struct mr_problem *problem;
  const struct mr_problem_index *index;
  struct mr_problem_knobs knobs;
  uint8_t *decisions;
  double *load;              /* for each point: device bytes */
  double *host_load;         /* for each boundary: bytes that rest on the host across it */
  double *birth_bytes;       /* for each boundary: what appears on the device as b - 1 ends */
  double *need_bytes;        /* for each boundary: what goes into the working set of b */
  double *recompute_seconds; /* for each segment */
  int32_t *fetch_count;      /* for each boundary: tensors that must come in before it */
  double *fetch_bytes;       /* and their bytes */
  bool in_differences;       /* loads are being built as differences */
};

/*
 * Limits of points. "After" and "before" points last no time where two segments follow each other
 * without a pause, so a draft may exceed the device there and still run; whether it does, only the
 * simulation finds out. A cautious index gives such a point no limit only where nothing else could
 * be done, a bold one never gives it one: good where what waits for one segment, such as its
 * weights, is much beside its working set, and for small problems, where one tensor is much of the
 * device.
 */
MR_CHECK_RESULT mr_status mr_problem_index_create(const struct mr_problem *problem, bool bold,
                                                  struct mr_problem_index **index_out);
void mr_problem_index_destroy(struct mr_problem_index *index);

/* Every tensor with a choice is kept. The problem and the index are borrowed. */
MR_CHECK_RESULT mr_status mr_problem_draft_create(const struct mr_problem *problem,
                                                  const struct mr_problem_index *index,
                                                  struct mr_problem_draft **draft_out);
void mr_problem_draft_destroy(struct mr_problem_draft *draft);
void mr_problem_draft_copy(struct mr_problem_draft *to, const struct mr_problem_draft *from);
/* Builds the loads from the decisions, in one pass. */
void mr_problem_draft_rebuild(struct mr_problem_draft *draft);
void mr_problem_draft_set(struct mr_problem_draft *draft, int32_t tensor,
                          enum mr_problem_decision decision);
/* The first point whose load exceeds its limit; -1: none. */
int32_t mr_problem_draft_overload(const struct mr_problem_draft *draft);
/* The first boundary at which the host holds too much; -1: none. */
int32_t mr_problem_draft_host_overload(const struct mr_problem_draft *draft);

/*
 * Simulation. Compute and the four links run side by side. Outs and writes start in the order of
 * birth and of need, as soon as their link is free; ins start in the order of need, as early as
 * the loads of all points up to the need leave room. Between two segments at which the draft has
 * none itself there is no pause: what must come in before the second has its room reserved while
 * the first of them runs, and later fetches leave room for all that lies there as the second
 * starts. A segment ends and starts as soon as the device holds what that takes.
 */
struct mr_problem_simulation;
MR_CHECK_RESULT mr_status mr_problem_simulation_create(
    const struct mr_problem *problem, struct mr_problem_simulation **simulation_out);
void mr_problem_simulation_destroy(struct mr_problem_simulation *simulation);
/*
 * The time of a sound draft; INFINITY where it is above `cutoff` or where everybody waits for
 * everybody else. With a schedule, its times are filled in (whole only where the time is finite).
 */
double mr_problem_simulate(struct mr_problem_simulation *simulation,
                           const struct mr_problem_draft *draft, double cutoff,
                           struct mr_problem_schedule *schedule);
/* Work done since it was created, in events: what bounds a search. */
uint64_t mr_problem_simulation_events(const struct mr_problem_simulation *simulation);

#endif

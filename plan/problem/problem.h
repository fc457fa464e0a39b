/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan/problem/ plans abstract problems: segments, tensors and links as bare numbers, with no
 * program behind them. It reads a problem from text, finds a schedule and a lower bound, and writes
 * the schedule as text. memrun-plan(1) has the two formats.
 *
 * Nouns. A *segment* is a stretch of compute; segments run in order, one at a time. While segment k
 * runs, its *working set* is on the device. A *tensor* is needed from the end of segment p to the
 * start of segment g; inside p and g its bytes are in their working sets. In between it is kept, or
 * it is sent *out* and brought *in* again, by way of NVMe with a *write* and a *read*, or it is
 * dropped and recomputed inside g. A weight only comes in, a gradient only goes out, and a *clean*
 * tensor, of which the host has a copy, is dropped without a move.
 *
 * Model. Compute and the four links run side by side, each link one tensor at a time. A tensor that
 * leaves counts on the device from the end of p to the end of its out, and from the start of its in
 * to the start of g; on the host from the start of its out to the end of its in, but not at all
 * where it goes on to NVMe: what is on its way to or from there is not counted. A segment may start
 * late, and may last longer than its compute until there is room for what it made. A tensor that is
 * recomputed adds its time to g and no bytes anywhere. The time of a schedule is the end of its
 * last entry.
 *
 * How a schedule is made. A draft (draft.h) is a decision for every tensor; an event simulation
 * turns it into times, so whatever the search does, a schedule keeps every rule. Seeds (seed.c)
 * recompute a prefix of the cheapest bytes, keep the shortest gaps that fit and send the rest away.
 * A local search (improve.c, trial.c) then changes a few tensors at a time and keeps what is not
 * slower. Large problems are searched as merged ones first, those of several steps part by part,
 * and every level tries seeds of its own where what it was handed is not near the bound. What then
 * is not is searched once more, boldly, merged and as a whole, and small ones beside that from many
 * starts, as if they had less of one thing, until several have found the same (draft.h, levels.c).
 * Work is counted in simulated events, never in seconds, and chance has a fixed seed: the same
 * problem gives the same schedule, whoever searches beside whom.
 *
 * The cut bound. Look at any schedule at the moment at which segment k has just started, `a`
 * seconds after its start and `b` seconds before its end. Let r be the compute time up to the first
 * birth of a tensor that matters below, t the compute time after the last need of one.
 *  1. a is at least the compute time before k; b at least the compute time from k on, and the
 *     recompute time of the tensors across k (p < k < g), which is spent in their segments g.
 *  2. The tensors across k, the gradients made before it and the weights that came in early, less
 *     those that are away and those that will be recomputed, lie on the device beside the working
 *     set. The bytes that are away are therefore at least what these exceed the budget by.
 *  3. What is away, and is not clean, went out in the a - r seconds before; what is away, and is no
 *     gradient, comes in during the b - t seconds after, and so does every later weight that did
 *     not come early; weights needed up to k, and early ones, came in during a; gradients that are
 *     not away leave during b. Rates bound the bytes of each.
 *  4. Of what is away and will come back, the host holds no more than its budget. The rest was or
 *     will be written and read, between r and t from the end: within a + b - r - t seconds, less
 *     the out of one tensor before the first write, and its read and in after the last.
 * Recompute brings at most what the cheapest bytes per second bring (a continuous knapsack). The
 * pairs (a, b) that meet 1 to 4 form a convex set, because each condition is linear in bytes and
 * times or concave; the least a + b over it, at the best k, is a bound. So is what a link must
 * carry whatever is decided.
 *
 * The same holds at the end of segment k, and just before k starts. At that moment all that k needs
 * has come or was kept (but for what can be recomputed), and beside it lies what k - 1 has made for
 * k, or, where the two follow without a pause, the working set of k - 1; tensors across both, with
 * p < k - 1, are there or away as above.
 *
 * Windows. In a schedule of T seconds let a be the least time before a cut at the start of segment
 * i that 1 to 4 allow with b = T - a, and b' the least time after a cut at the end of segment j >=
 * i with a' = T - b'. Then a + (compute of i .. j) + b' <= T, and the smallest T for which this
 * holds for all i and j is a bound. It counts what no single cut sees: while a device is full, its
 * links can hide nothing behind the segments in between.
 *
 * Parts. Where no tensor but weights and gradients lies across a boundary, what is before and what
 * is after follow each other, and so do their bounds without weights and gradients: they add up.
 *
 * To this cut at one boundary, with the time split in two, the common time of NVMe, clean tensors,
 * early weights, r and t, the other moments and windows were added. What is on its way to or from
 * NVMe counts nowhere, so NVMe bounds the whole and not each side.
 *
 * Invariants. bound_seconds <= seconds for every schedule that is returned; a schedule that is
 * returned keeps every rule of the model.
 */
#ifndef MEMRUN_PLAN_PROBLEM_PROBLEM_H
#define MEMRUN_PLAN_PROBLEM_PROBLEM_H

#include <stdbool.h>
#include <stdint.h>

#include <memrun/status.h>

#include "base/crew.h"

/* From this many seconds on, a recompute time says that the tensor cannot be made again. */
#define MR_PROBLEM_NO_RECOMPUTE 1e8

/* The four links; each moves one tensor at a time. */
enum mr_problem_link {
  MR_PROBLEM_OUT,   /* device to host */
  MR_PROBLEM_IN,    /* host to device */
  MR_PROBLEM_WRITE, /* host to NVMe */
  MR_PROBLEM_READ,  /* NVMe to host */
  MR_PROBLEM_LINK_COUNT
};

struct mr_problem_tensor {
  double bytes;             /* >= 0 */
  int32_t p;                /* made by segment p; -1: there before the first */
  int32_t g;                /* needed from the start of segment g on; segment_count: to the end */
  double recompute_seconds; /* to make it again inside g; >= MR_PROBLEM_NO_RECOMPUTE: cannot be */
  bool start;               /* begins on the host: must be brought in before g (a weight) */
  bool end;                 /* must end on the host: must be sent out after p (a gradient) */
  bool clean;               /* the host has a copy: dropping is free, only the way back costs */
};

struct mr_problem {
  int32_t segment_count;                               /* K */
  int32_t tensor_count;                                /* n */
  double device_bytes;                                 /* budget */
  double host_bytes;                                   /* budget */
  double link_bytes_per_second[MR_PROBLEM_LINK_COUNT]; /* > 0 */
  double *compute_seconds;                             /* for each segment; >= 0 */
  double *workset_bytes;                               /* for each segment; >= 0 */
  struct mr_problem_tensor *tensors;
};

enum mr_problem_decision {
  MR_PROBLEM_KEEP,
  MR_PROBLEM_HOST, /* of a clean tensor: dropped and brought in again */
  MR_PROBLEM_NVME,
  MR_PROBLEM_RECOMPUTE
};

struct mr_problem_span {
  double start_seconds; /* < 0: the move does not happen */
  double end_seconds;
};

struct mr_problem_schedule {
  int32_t segment_count;
  int32_t tensor_count;
  bool fits; /* where not, only smallest_device_bytes means something */
  double smallest_device_bytes;
  double seconds;       /* the end of the last entry */
  double bound_seconds; /* no schedule of the problem is shorter */
  struct mr_problem_span *segments;
  struct mr_problem_span *moves[MR_PROBLEM_LINK_COUNT]; /* for each tensor */
  uint8_t *decisions;                                   /* for each tensor */
};

/*
 * Reads a problem from `length` bytes of text; `name` is what messages call it. MR_INVALID: one
 * line that names the line, the word and what is wrong with it; MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_problem_parse(const char *text, uint64_t length, const char *name,
                                           struct mr_problem **problem_out);
void mr_problem_destroy(struct mr_problem *problem);

/* The cut bound. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_problem_bound_cut(const struct mr_problem *problem,
                                               double *seconds_out);
/*
 * The LP bound (lp.h), which is mostly the higher one and takes longer: a library that solves
 * linear programs is found at run time. Meant for problems that fit. MR_UNSUPPORTED: there is none,
 * and one line says what to install; MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_problem_bound_lp(const struct mr_problem *problem,
                                              double *seconds_out);

/*
 * The best schedule that a search of bounded work finds, with the cut bound. The same problem gives
 * the same schedule. A crew searches in several places side by side; it is borrowed, and NULL where
 * the caller does all. A problem that does not fit gives MR_OK and fits false. MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_problem_plan(const struct mr_problem *problem, struct mr_crew *crew,
                                          struct mr_problem_schedule **schedule_out);
void mr_problem_schedule_destroy(struct mr_problem_schedule *schedule);

/* The schedule as text, which the caller frees with free(). MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_problem_schedule_print(const struct mr_problem_schedule *schedule,
                                                    char **text_out);

#endif

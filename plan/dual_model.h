/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The linear program of plan/dual.h: what a step has to place and to move, what its resources
 * take for that, and what spans and ops choose under given prices and weights.
 */
#ifndef MEMRUN_PLAN_DUAL_MODEL_H
#define MEMRUN_PLAN_DUAL_MODEL_H

#include "plan/hosted.h"
#include "plan/rates.h"
#include "plan/spans.h"

/* The most windows of a step. */
#define MR_DUAL_WINDOWS 64u
#define MR_DUAL_TOLLS   (MR_DRIVE_FACES + 7)

/* What a resource takes: seconds for a byte in, a byte out, a second of ops on the device and on a
 * host apart, beside that for a byte in or out because an op runs there. Or how much there is of
 * each. */
struct mr_toll {
  double in, out, ops, host_ops, host_in, host_out;
};

/* A span as its version sees it, in ops and windows from the version's first step on. */
struct mr_stay {
  uint32_t span;
  uint32_t begin, end; /* the ops inside it */
  uint32_t from, to;   /* the windows of these */
  uint32_t ahead;      /* where its row begins: see struct mr_dual */
  double remake;       /* seconds of ops that make a byte of it; negative: none do */
  double remade;       /* what that costs at least, less the price of room */
};

/* Spans of one tensor between whose accesses it is not written: it goes out once for all. */
struct mr_version {
  uint32_t first, end; /* stays */
  double bytes;
  bool written;
  uint32_t write_op;     /* from its first step on */
  uint32_t write_window; /* the first in which it may go out: that op's */
  uint32_t hosted;       /* 1 + the number of the op that wrote it, perhaps on the host; 0: none */
  uint32_t stale;        /* of a hosted one: the stay that the op runs in; `end`: in none */
  bool rests;            /* no other op uses it */
  bool made;             /* and device ops made it in the step */
};

/* What a choice between the device and the host costs, and how much of the host is chosen. */
struct mr_site {
  double device, host, bytes, part;
};

/* For each window of two steps: its tolls, those of bytes INFINITY where there is no tier below;
 * the prices of room before the op at which what goes out in it may be gone, and before its end;
 * and what coming back costs less the latter. */
struct mr_dual_rows {
  double in[2 * MR_DUAL_WINDOWS], out[2 * MR_DUAL_WINDOWS], ops[2 * MR_DUAL_WINDOWS];
  double gone[2 * MR_DUAL_WINDOWS], till[2 * MR_DUAL_WINDOWS], back[2 * MR_DUAL_WINDOWS];
};

struct mr_dual {
  uint32_t op_count;
  uint32_t window_count;
  uint32_t window_start[2 * MR_DUAL_WINDOWS + 1]; /* ops, over two steps */
  bool quiet[MR_DUAL_WINDOWS];                    /* no awaited op runs there: plan/hosted.h */
  uint32_t same[MR_DUAL_WINDOWS]; /* the first of the windows that are taken together; itself */
  uint32_t *window_of;            /* of each op */
  struct mr_spans spans;
  uint32_t resting_from; /* spans from here on are not between accesses on the device */
  struct mr_stay *stays; /* by version */
  struct mr_version *versions;
  uint32_t version_count;
  double *short_bytes; /* for each op: what is over the budget when everything stays */
  double ops_seconds[MR_DUAL_WINDOWS];
  bool movable; /* there is a tier below */
  struct mr_hosted hosted;
  struct mr_site *sites; /* of each of the hosted */
  bool may_host;         /* the budgets leave a host to run them */
  struct mr_toll tolls[MR_DUAL_TOLLS];
  uint32_t toll_count;

  double *price;                        /* of a byte of room at each op */
  struct mr_toll toll[MR_DUAL_WINDOWS]; /* what the weighted resources take */

  double *before; /* sums of prices over two steps, before each op */
  struct mr_dual_rows rows;
  double *back;   /* for each window of each stay: what coming back in it costs, less the prices up
                     to there */
  double *ahead;  /* the least of that window and later ones */
  double *again;  /* what being made again in it costs, less the prices up to there; of stays that
                     may be */
  double *freed;  /* the room that is free at each op of two steps under what is chosen, less that
                     at the op before */
  double *excess; /* the room that is short at each op then */
  struct mr_toll used[MR_DUAL_WINDOWS]; /* by it */
};

/* What moves and repeated ops there may be under the budgets, by the accesses that need the device;
 * no windows yet. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_dual_init(struct mr_dual *t, const struct mr_plan_problem *problem,
                                       const struct mr_liveness *liveness,
                                       const uint64_t budget_bytes[MR_TIER_COUNT]);
void mr_dual_fini(struct mr_dual *t);

/* Where windows begin: at op 0, and at later ones in order. */
struct mr_dual_cuts {
  uint32_t ops[MR_DUAL_WINDOWS];
  uint32_t count;
};

/* Cuts the step into windows, each of which is quiet or is not. May be called again. MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_dual_cut(struct mr_dual *t, const struct mr_plan_problem *problem,
                                      const struct mr_dual_cuts *cuts);

/*
 * What is chosen under price and toll: excess and used. Returns the bound that they give. Choices
 * that cost no more than `width` above the best, in seconds for a byte, have a part too, so that
 * the slope of the bound (excess and used) does not jump from one to the other.
 */
double mr_dual_choose(struct mr_dual *t, double width);

double mr_toll_on(const struct mr_toll *toll, const struct mr_toll *amounts);
void mr_toll_add(struct mr_toll *sum, double times, const struct mr_toll *toll);

#endif

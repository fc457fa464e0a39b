/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spans of a step: the times between two accesses of a tensor on the device in which its bytes
 * are wanted again, and so are there, below, or made anew before the span ends. Bounds are built of
 * them; they hold for every plan.
 */
#ifndef MEMRUN_PLAN_SPANS_H
#define MEMRUN_PLAN_SPANS_H

#include "plan/plan.h"

struct mr_span {
  mr_tensor_id tensor;
  double bytes;
  int64_t last_write; /* the last op that wrote it, at or before the span; below 0: a step ago */
  uint32_t after_op;
  uint32_t before_op;  /* unrolled: round the end of the step it is counted on */
  uint32_t touched_op; /* the first op that begins when they have been used: before_op, or a later
                          one where it is not known when they are; unrolled */
  bool written;        /* some op of the step writes it */
  mr_op_id maker;      /* a clone of this op could make the bytes anew; MR_NO_OP: none could */
};

struct mr_spans {
  struct mr_span *items; /* by tensor, then in time */
  uint32_t count;
  uint32_t capacity;
};

/*
 * Lists the spans of a problem's program for the accesses that need the device. Where the bound is
 * for every program that recompute makes of it, spans of what clones could make name the maker, and
 * those of what is neither lasting nor made by one op alone are left out. MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_spans_find(struct mr_spans *spans,
                                        const struct mr_plan_problem *problem,
                                        const struct mr_liveness *liveness);
void mr_spans_fini(struct mr_spans *spans);

/* Adds a span of a tensor that has none yet. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_spans_add(struct mr_spans *spans, const struct mr_span *span);

/*
 * Adds what ops that a host apart may run use, in a place that holds what device and host do, and
 * says of the others when such ops write them. Each of these ops runs between its maker's end and
 * its reader's start (plan/hosted.h), be it there or here, in its step or in the next: till the
 * first what it reads is wanted, and by the second it has been in that place, and what it writes
 * has been written. spans: those of the accesses that need the device. MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_spans_add_hosted(struct mr_spans *spans,
                                              const struct mr_plan_problem *problem);

/* Adds an amount at each op strictly inside the span, to differences whose running sums are what
 * the ops have. */
void mr_span_spread(const struct mr_span *span, uint32_t op_count, double amount,
                    double *differences);

/* What the operands and the scratch of each op have on the device; of ops that may run on the host,
 * the operands alone. */
void mr_spans_measure_held(const struct mr_graph *graph, const struct mr_liveness *liveness,
                           double *held_bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a bound knows of ops that a host apart may run: each runs there or on the device, with all
 * its operands, and what lasts and only it writes is wherever it ran. So the tensors of such an op
 * have two fates together:
 *
 * - on the device, what it writes is kept round the step or goes out and comes back, what device
 *   ops made for it is kept or goes out and comes back, and the device spends the op's time;
 * - on the host, what device ops read comes in once after the op, what they made for it goes out,
 *   what they never use takes no room, the host spends the op's time, and the device that of
 *   handing it over.
 *
 * What it writes anew, without reading it, is nowhere before: where it runs on the device that is
 * kept up to the last op that reads it, or goes out and comes back; where on the host, it comes in.
 *
 * An op that writes small tensors, or that the host cannot be handed for another reason, runs on
 * the device.
 *
 * Of what lasts the ops that write it are meant; that others which the host may run read it too, as
 * an embedding its table, is left out: they only want more.
 *
 * That holds wherever in the step the op runs, hence also where updates run in the next step. Of a
 * tensor that several such ops use, each a part (an update in pieces), every op is given an equal
 * slice: where they run at different sites the whole of it moves as often as one of its slices.
 *
 * An op whose results the device reads runs after the device made what it reads, and before the
 * device reads them in the step behind. So while the device is at work from the last op that is
 * first to read one's results to the first op that such ops wait for, the *barrier*, none of them
 * runs, there or here, and nothing that they wrote on the host comes in: a backward pass and the
 * norm behind it, where gradients are clipped. What they use on the device is wanted after the
 * barrier, in any order of theirs and also where they run in the next step.
 */
#ifndef MEMRUN_PLAN_HOSTED_H
#define MEMRUN_PLAN_HOSTED_H

#include "plan/plan.h"

struct mr_hosted_op {
  mr_op_id op;
  mr_op_id not_before; /* the last op of the device that makes what it reads, in its step;
                          MR_NO_OP: none */
  double device_seconds, host_seconds;
  bool can_leave;          /* the host can be handed it, whatever the size of pages */
  double handover_seconds; /* that the device takes for that at least */
  bool awaited;            /* by device ops, which read what it writes: */
  mr_op_id reader;         /* the first of them in a step; MR_NO_OP: none does */
  mr_op_id maker;          /* not_before or, where that is none, the same of a step ago */
  double made_bytes;       /* by device ops in the step, for it and its like, that do not rest */
  double anew_bytes;       /* that it writes anew, and ops of the device read */
};

struct mr_hosted {
  struct mr_hosted_op *ops;
  uint32_t count;
  /* None that is awaited runs from the start of quiet_from to the end of the barrier; equal where
   * nothing is known. */
  mr_op_id quiet_from, barrier;
  /* users[first_user[t] .. first_user[t + 1]): the numbers of the ops that each have a slice of
   * tensor t: those that alone write it, or that it is made for; none of others. */
  uint32_t *users;
  uint32_t *first_user;
  bool *made;             /* for each tensor: it is made for them */
  mr_op_id *made_by;      /* then: the last device op that writes it */
  mr_op_id *rests_after;  /* for each with users: the op after which it is there for them alone;
                             MR_NO_OP: it never is */
  uint32_t *rests_before; /* and before which, a step later counted on */
};

/* Finds such ops; none where no host apart may run any. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_hosted_find(struct mr_hosted *hosted,
                                         const struct mr_plan_problem *problem);
void mr_hosted_fini(struct mr_hosted *hosted);

/* Whether no awaited op runs while the device is at this one. */
bool mr_hosted_is_quiet(const struct mr_hosted *hosted, mr_op_id op);

#endif

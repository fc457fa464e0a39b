/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A *value* is what a tensor holds from one op that writes it whole to the next: a client may use
 * one tensor for several values, such as the same activation of each micro-step. An op that changes
 * a tensor in place changes its value and makes no new one.
 *
 * A value is *remakable* where running its producer again, at any place where the pass may put the
 * clone, gives the same bits, and where every reader that must get the remade one can be told so.
 */
#ifndef MEMRUN_RECOMPUTE_VALUES_H
#define MEMRUN_RECOMPUTE_VALUES_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/graph.h"

#define MR_NO_VALUE UINT32_MAX

struct mr_value {
  mr_tensor_id tensor;
  mr_op_id producer;    /* MR_NO_OP: there before the step */
  mr_op_id first_train; /* the first op with MR_OP_TRAIN_ONLY that touches it; MR_NO_OP: none */
  bool border;          /* a forward op of another block, or after first_train, touches it */
  bool changed;         /* in place, by an op that runs in evaluation too */
  bool remakable;
};

struct mr_values {
  const struct mr_graph *graph;
  struct mr_value *values;
  uint32_t value_count;
  uint32_t *operands;      /* operands[first_operand[op] ...]: values of inputs, then of outputs */
  uint32_t *first_operand; /* op count + 1 */
  mr_op_id *changed_at;    /* beside operands: the next op that writes the tensor; op count: none */
  bool *repeatable;        /* of each op: it may be cloned, and a clone would serve someone */
};

/* Analyses a graph, which is borrowed. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_values_init(struct mr_values *values, const struct mr_graph *graph);
void mr_values_fini(struct mr_values *values);

/* True where keeping the value from its forward use to the backward pass costs nothing more. */
bool mr_value_lives_anyway(const struct mr_values *values, uint32_t value);

#endif

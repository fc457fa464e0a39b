/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plainest way to run a graph: every tensor in its own memory for good, ops one after another.
 * What does not last from step to step is filled with NaNs before each step, and scratch before
 * each op, so that a read of what nothing wrote shows in the results.
 */
#ifndef MEMRUN_TESTS_TRAIN_NAIVE_H
#define MEMRUN_TESTS_TRAIN_NAIVE_H

#include <memrun/memrun.h>

struct naive {
  const struct mr_graph *graph; /* borrowed */
  void **data;                  /* of each tensor; what lasts starts as zeros */
  void *scratch;
  uint64_t scratch_bytes;
  struct mr_team *team;
};

/* Fails the test where memory runs out. */
void naive_init(struct naive *naive, const struct mr_graph *graph, uint32_t threads);
void naive_fini(struct naive *naive);

/* One step; fails the test where an op fails. */
void naive_step(struct naive *naive, mr_step_mode mode);

/* The memory of the tensor of that name. */
void *naive_find(const struct naive *naive, const char *name);

#endif

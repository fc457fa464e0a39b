/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The best schedule of a tiny planning problem, by trying all: every decision for every tensor, and
 * every order in which segments start and end and moves start.
 *
 * Why all orders are enough. Take any schedule and the order of its starts and segment ends. Start
 * everything again in that order, each as early as the rules allow but not before the one that went
 * before. By induction nothing is later than it was: what an event waits for (a link, an earlier
 * move, bytes that another move gives back) is there no later, and what lies on the device when it
 * starts was brought by the same events as before. So some order gives a schedule that is no longer
 * than the best one. An end and the next start may fall together, because bytes that the second
 * takes away never have to fit beside those that the first brings; they are also one event.
 */
#ifndef MEMRUN_TESTS_PROBLEM_OPTIMUM_H
#define MEMRUN_TESTS_PROBLEM_OPTIMUM_H

#include <stdint.h>

#include "plan/problem/problem.h"

#define OPTIMUM_SEGMENTS 4
#define OPTIMUM_TENSORS  4

struct optimum {
  double seconds; /* of the best schedule that takes less than `below`; INFINITY: there is none */
  uint64_t nodes; /* events that were placed */
};

struct optimum problem_optimum(const struct mr_problem *problem, double below);

#endif

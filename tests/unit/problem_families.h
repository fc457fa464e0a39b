/* SPDX-License-Identifier: Apache-2.0 */
/* Planning problems as text: training steps in the shape of Llama models, and random ones. */
#ifndef MEMRUN_TESTS_PROBLEM_FAMILIES_H
#define MEMRUN_TESTS_PROBLEM_FAMILIES_H

#include <stdbool.h>
#include <stdint.h>

/* Steps of `layers` layers: attention and MLP forward, then both backward in reverse. */
struct problem_shape {
  const char *name;
  int layers;
  int parts;           /* each tensor comes in so many */
  int steps;           /* one after the other; 0: one */
  double device_bytes; /* where below 10: this part of what a step without moves needs */
  double host_bytes;
  double rates[4];   /* out, in, write, read; 0: 25, 25, 3, 6 GB/s */
  double cost;       /* compute and recompute times the usual */
  double weight;     /* bytes of weights times the usual; 0: the weights are always there */
  bool weights_stay; /* a weight of the forward pass may serve the backward pass too */
  bool gradients;    /* leave as they are made */
  bool no_recompute;
  bool clean;
};

/* The text of a file of less than 1 MiB, to be freed. Ends the test where it cannot be read. */
char *problem_from_file(const char *path);

/* The text of a problem, to be freed. */
char *problem_from_shape(const struct problem_shape *shape);

/* Segments of one compute time, each making a tensor for the one after the next: all is kept, or
 * rests on NVMe. */
struct problem_chain {
  int segments;
  double compute_seconds;
  double bytes; /* of a tensor */
  double workset_bytes;
  double device_bytes;
  double rate; /* of all links */
};
char *problem_from_chain(const struct problem_chain *chain);

/* Sizes, times, gaps, flags, links and budgets at random, from small to so tight that it may not
 * fit; `segments` and `tensors` at most. */
struct problem_limits {
  int segments;
  int tensors;
};
char *problem_random(uint64_t seed, struct problem_limits limits);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan/problem/ plans abstract problems: segments, tensors and links as bare numbers, with no
 * program behind them. It reads a problem from text, finds a schedule and a lower bound, and writes
 * the schedule as text.
 *
 * Nouns. A *segment* is a stretch of compute; segments run in order, one at a time. While segment k
 * runs, its *working set* is on the device. A *tensor* lives from the end of segment `start_after`
 * (p) to the start of segment `needed_by` (g); inside p and g its bytes are in their working sets.
 */
#ifndef MEMRUN_PLAN_PROBLEM_PROBLEM_H
#define MEMRUN_PLAN_PROBLEM_PROBLEM_H

#include <stdbool.h>
#include <stdint.h>

#include <memrun/status.h>

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

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The linear program whose dual bounds a step (plan/dual.h), written down once more for a step of
 * given gaps and versions, and solved by a library.
 */
#ifndef MEMRUN_TESTS_DUAL_LP_H
#define MEMRUN_TESTS_DUAL_LP_H

#include "base/base.h"
#include "graph/graph.h"

#define DUAL_TOLLS 6u
#define DUAL_WINDOWS 64u

/* A time between two accesses of a tensor, in ops from the version's first step on, and the write
 * that both come after. */
struct dual_gap {
  uint32_t after, before;
  uint32_t version;
  double bytes;
  bool stale; /* the op that wrote the version runs in it */
};

struct dual_version {
  double bytes;
  bool written;
  uint32_t write_op;
  bool rests;    /* nothing but an update uses it */
  bool made;     /* and other ops made it in the step */
  uint32_t site; /* 1 + the number of the update that wrote it, perhaps on the host; 0: none */
};

/* An update that runs on the device or on the host. */
struct dual_site {
  mr_op_id op;
  bool stays;        /* on the device */
  double made_bytes; /* on the device, for it, but what rests */
  double anew_bytes; /* that it makes and other ops read */
};

struct dual_model {
  bool apart; /* the host is: updates have sites */
  struct dual_site *sites;
  uint32_t site_count;
  double handed_bytes; /* to each that runs on the host */
  uint32_t op_count;
  uint32_t window_count;
  uint32_t window_start[2 * DUAL_WINDOWS + 1]; /* ops, over two steps */
  /* Of a step where a host runs updates: it runs none from the last first use of a weight up to the
   * op that makes the first that an update waits for, each of which begins a window. */
  uint32_t quiet_from, barrier;
  double *need_bytes;                          /* of each op, with every gap kept */
  struct dual_gap *gaps;
  uint32_t gap_count;
  struct dual_version *versions;
  uint32_t version_count;
};

/* What a resource takes: seconds for a byte in and a byte out, for an update on the device, on the
 * host and handed over, for a byte in because an update ran there, and for each other op. */
struct dual_toll {
  double in, out, device, host, handed, after_host, op;
};

static inline void *dual_take(size_t count, size_t size) {
  void *memory = mr_allocate(count, size);
  MR_ASSERT(memory != NULL);
  return memory;
}

/* The window of an op counted over two steps. */
uint32_t dual_window_of(const struct dual_model *model, uint32_t op);

/* The optimum with so much on the device. */
double dual_lp_optimum(const struct dual_model *model, const struct dual_toll *tolls,
                       double device_bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What the links of a problem can do at most, as its bounds see it. */
#ifndef MEMRUN_PLAN_RATES_H
#define MEMRUN_PLAN_RATES_H

#include "plan/plan.h"

/* A drive passes reads and writes at points (bytes read, bytes written in a second): either alone,
 * and both beside each other, as compute waits for the one or the other. What it passes on average
 * is in their convex hull. */
#define MR_DRIVE_POINTS 4u
#define MR_DRIVE_FACES  (MR_DRIVE_POINTS * (MR_DRIVE_POINTS - 1) / 2)

/* Of the hull: the seconds that a byte read and a byte written take at least. */
struct mr_drive_face {
  double read, write;
};

/* Rates of the links that the budgets allow, 0 for others; what ops lose to a byte of NVMe. */
struct mr_rates {
  double read, write, to_device, to_host;
  double all_in, all_out; /* of the links that every byte crosses; 0: there are none */
  struct mr_drive_face faces[MR_DRIVE_FACES];
  uint32_t face_count;
  double host_bytes;
  double host_ops, host_memory; /* of ops on the host; of these and links together, 0: no limit */
  double loss;
};

struct mr_rates mr_rates_under(const struct mr_plan_problem *problem,
                               const uint64_t budget[MR_TIER_COUNT]);

#endif

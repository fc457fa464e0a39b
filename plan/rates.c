/* SPDX-License-Identifier: Apache-2.0 */
/* The rates of links under given budgets, and the faces of what a drive passes. */
#include "plan/rates.h"

#include <math.h>

#include "base/base.h"
#include "plan/drive.h"
#include "plan/host.h"

struct point {
  double read, write;
};

/* The seconds that a face has for each point of the drive are at most 1. */
static double most_seconds(const struct mr_drive_face *face, const struct point *points) {
  double most = 0;
  for (uint32_t i = 0; i < MR_DRIVE_POINTS; i++) {
    most = mr_max_double(most, face->read * points[i].read + face->write * points[i].write);
  }
  return most;
}

/* Adds the line through two points where no other point is beyond it. */
static void add_face(struct mr_rates *rates, const struct point *points, uint32_t i, uint32_t j) {
  const double rounding = 1e-9;
  const struct point *a = &points[i];
  const struct point *b = &points[j];
  double area = a->read * b->write - b->read * a->write;
  if (fabs(area) <= rounding * a->read * b->write) {
    return;
  }
  struct mr_drive_face face = {(b->write - a->write) / area, (a->read - b->read) / area};
  double most = most_seconds(&face, points);
  if (face.read < 0 || face.write < 0 || most > 1 + rounding) {
    return;
  }
  rates->faces[rates->face_count++] = (struct mr_drive_face){face.read / most, face.write / most};
}

static void find_faces(struct mr_rates *rates, const struct mr_plan_problem *problem) {
  struct point points[MR_DRIVE_POINTS] = {[0].read = rates->read,
                                          [MR_DRIVE_POINTS - 1].write = rates->write};
  mr_plan_share_drive(problem, MR_DRIVE_AWAITED_SHARE, &points[1].read, &points[1].write);
  mr_plan_share_drive(problem, 1 - MR_DRIVE_AWAITED_SHARE, &points[2].read, &points[2].write);
  for (uint32_t i = 0; i < MR_DRIVE_POINTS; i++) {
    for (uint32_t j = i + 1; j < MR_DRIVE_POINTS; j++) {
      add_face(rates, points, i, j);
    }
  }
}

/* What ops on the host and links get through together, links at their best and ops at their least
 * counted in. */
static double host_memory_rate(const struct mr_plan_problem *problem,
                               const uint64_t budget[MR_TIER_COUNT]) {
  double most = MR_HOST_LEAST_PACE * problem->host_bytes_per_second;
  for (mr_link link = 0; link < MR_LINK_COUNT; link++) {
    bool nvme = mr_link_is_nvme(link);
    most += nvme && budget[MR_TIER_NVME] == 0 ? 0 : problem->link[link].bytes_per_second;
  }
  double rate = problem->host_memory_bytes_per_second;
  return rate > 0 ? mr_max_double(rate, most) : 0;
}

struct mr_rates mr_rates_under(const struct mr_plan_problem *problem,
                               const uint64_t budget[MR_TIER_COUNT]) {
  struct mr_rates rates = {.host_bytes = (double)budget[MR_TIER_HOST],
                           .host_ops = problem->host_bytes_per_second,
                           .host_memory = host_memory_rate(problem, budget)};
  if (budget[MR_TIER_HOST] > 0) {
    rates.to_device = problem->link[MR_LINK_HOST_TO_DEVICE].bytes_per_second;
    rates.to_host = problem->link[MR_LINK_DEVICE_TO_HOST].bytes_per_second;
  }
  if (budget[MR_TIER_NVME] == 0) {
    rates.all_in = rates.to_device;
    rates.all_out = rates.to_host;
    return rates;
  }
  if (problem->nvme_staged) {
    rates.all_in = problem->link[MR_LINK_HOST_TO_DEVICE].bytes_per_second;
    rates.all_out = problem->link[MR_LINK_DEVICE_TO_HOST].bytes_per_second;
  }
  rates.read = problem->link[MR_LINK_NVME_READ].bytes_per_second;
  rates.write = problem->link[MR_LINK_NVME_WRITE].bytes_per_second;
  rates.loss = mr_plan_loss_beside_nvme(problem);
  find_faces(&rates, problem);
  return rates;
}

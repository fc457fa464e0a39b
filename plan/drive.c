/* SPDX-License-Identifier: Apache-2.0 */
/* What NVMe does to those who share its drive or its way: reads to writes, both to ops, and where
 * it is staged to the host's copies. */
#include "plan/drive.h"

#include "base/base.h"

/* Even the busiest drive leaves ops as much of their speed. */
#define LEAST_PACE 0.25

double mr_plan_move_seconds(const struct mr_plan_problem *problem, mr_link link, uint64_t bytes) {
  const struct mr_link_rate *rate = &problem->link[link];
  double latency_seconds = mr_link_is_nvme(link) ? 0 : rate->latency_seconds;
  return latency_seconds + (double)bytes / rate->bytes_per_second;
}

double mr_plan_pace_beside_nvme(const struct mr_plan_problem *problem, double bytes_per_second) {
  return mr_max_double(1 - problem->nvme_op_seconds_per_byte * bytes_per_second, LEAST_PACE);
}

double mr_plan_loss_beside_nvme(const struct mr_plan_problem *problem) {
  double reads = problem->link[MR_LINK_NVME_READ].bytes_per_second;
  double writes = problem->link[MR_LINK_NVME_WRITE].bytes_per_second;
  double mixed = problem->nvme_mixed_bytes_per_second;
  double fastest =
      mixed > 0 ? mr_max_double(mr_min_double(mixed, reads + writes), mr_max_double(reads, writes))
                : reads + writes;
  return mr_min_double(problem->nvme_op_seconds_per_byte, (1 - LEAST_PACE) / fastest);
}

void mr_plan_share_drive(const struct mr_plan_problem *problem, double read_share, double *read_out,
                         double *write_out) {
  double reads = problem->link[MR_LINK_NVME_READ].bytes_per_second;
  double writes = problem->link[MR_LINK_NVME_WRITE].bytes_per_second;
  double mixed = problem->nvme_mixed_bytes_per_second;
  mixed = mixed > 0 ? mr_min_double(mixed, reads + writes) : reads + writes;
  *write_out = mr_min_double(writes, (1 - read_share) * mixed);
  *read_out = mr_min_double(reads, mixed - *write_out);
  *write_out = mr_min_double(writes, mixed - *read_out);
}

void mr_plan_drive_paces(const struct mr_plan_problem *problem, double read_share,
                         double *read_pace, double *write_pace) {
  mr_plan_share_drive(problem, read_share, read_pace, write_pace);
  *read_pace /= problem->link[MR_LINK_NVME_READ].bytes_per_second;
  *write_pace /= problem->link[MR_LINK_NVME_WRITE].bytes_per_second;
}

void mr_plan_share_link(const struct mr_plan_problem *problem, mr_link copy, bool copies,
                        double *nvme_pace, double *copy_pace) {
  mr_link nvme = copy == MR_LINK_HOST_TO_DEVICE ? MR_LINK_NVME_READ : MR_LINK_NVME_WRITE;
  double rate = problem->link[nvme].bytes_per_second;
  double capacity = problem->link[copy].bytes_per_second;
  if (!problem->nvme_staged) {
    return;
  }
  double moving = mr_min_double(*nvme_pace * rate, copies ? 0.5 * capacity : capacity);
  *nvme_pace = moving / rate;
  *copy_pace = copies ? 1 - moving / capacity : 1;
}

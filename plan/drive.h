/* SPDX-License-Identifier: Apache-2.0 */
/* What a move takes of its link, and who shares links, a drive and the time of ops with it. */
#ifndef MEMRUN_PLAN_DRIVE_H
#define MEMRUN_PLAN_DRIVE_H

#include "plan/plan.h"

/* The link that moves of NVMe cross on their way; MR_LINK_COUNT: none. */
static inline mr_link mr_plan_crossed(const struct mr_plan_problem *problem, mr_link link) {
  if (!problem->nvme_staged || !mr_link_is_nvme(link)) {
    return MR_LINK_COUNT;
  }
  return link == MR_LINK_NVME_READ ? MR_LINK_HOST_TO_DEVICE : MR_LINK_DEVICE_TO_HOST;
}

/* The seconds for which a move of `bytes` takes up its link. NVMe moves overlap, so that their
 * latency holds up nobody but who waits for them. */
double mr_plan_move_seconds(const struct mr_plan_problem *problem, mr_link link, uint64_t bytes);

/* How fast ops run, as a part of their speed alone, while NVMe moves so many bytes a second. */
double mr_plan_pace_beside_nvme(const struct mr_plan_problem *problem, double bytes_per_second);

/* Of the time of ops, what a byte that NVMe moves beside them costs at least, however fast. No byte
 * takes the drive less, so one that moves while none runs costs a step no less either. */
double mr_plan_loss_beside_nvme(const struct mr_plan_problem *problem);

/* Bytes a second of NVMe reads and of writes while both are under way: reads have this share of
 * what the drive does then, and what one cannot use is the other's. */
void mr_plan_share_drive(const struct mr_plan_problem *problem, double read_share, double *read_out,
                         double *write_out);
/* The same as parts of what each does alone. */
void mr_plan_drive_paces(const struct mr_plan_problem *problem, double read_share,
                         double *read_pace, double *write_pace);
/* The parts of their own rates that an NVMe move and a copy the same way have of a link that both
 * cross, where the drive gives the move `*nvme_pace` of its rate; each has half where both could
 * use more. Nothing changes where NVMe is not staged. */
void mr_plan_share_link(const struct mr_plan_problem *problem, mr_link copy, bool copies,
                        double *nvme_pace, double *copy_pace);
/* The share of whoever compute waits for, where it is not even: the store holds the other back. */
#define MR_DRIVE_AWAITED_SHARE 0.75

#endif

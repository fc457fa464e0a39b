/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of a host that is apart, in a sweep. */
#include "plan/host_lane.h"

#include <stdlib.h>

#include "base/base.h"
#include "plan/host.h"

mr_op_id mr_host_lane_maker(const struct mr_draft *draft, const struct mr_draft_gap *gap) {
  mr_op_id last = (gap->earliest_fetch_op - 1) % draft->op_count;
  bool comes = gap->fixed && !gap->dead && !gap->final && !gap->resting;
  return comes && mr_draft_hands_over(draft, last) ? last : MR_NO_OP;
}

mr_status mr_host_lane_init(struct mr_host_lane *lane, const struct mr_draft *draft) {
  MR_ASSERT(draft->op_count > 0);
  *lane = (struct mr_host_lane){.problem = draft->problem, .op_count = draft->op_count};
  lane->ops = mr_allocate(draft->op_count, sizeof *lane->ops);
  lane->before = mr_allocate(draft->op_count + 1ull, sizeof *lane->before);
  lane->makes = mr_allocate(draft->op_count + 1ull, sizeof *lane->makes);
  if (lane->ops == NULL || lane->before == NULL || lane->makes == NULL) {
    return MR_NO_MEMORY;
  }
  for (uint32_t k = 0; k < draft->op_count; k++) {
    if (mr_draft_hands_over(draft, k)) {
      lane->ops[lane->count++] = k;
    }
    lane->before[k + 1] = lane->count;
  }
  for (uint32_t i = 0; i < draft->gap_count && lane->count > 0; i++) {
    mr_op_id maker = mr_host_lane_maker(draft, &draft->gaps[i]);
    if (maker != MR_NO_OP) {
      lane->makes[lane->before[maker] + 1]++;
    }
  }
  for (uint32_t i = 0; i < lane->count; i++) {
    lane->makes[i + 1] += lane->makes[i];
  }
  return MR_OK;
}

void mr_host_lane_fini(struct mr_host_lane *lane) {
  free(lane->ops);
  free(lane->before);
  free(lane->makes);
  *lane = (struct mr_host_lane){0};
}

bool mr_host_lane_is_behind(const struct mr_host_lane *lane) {
  return lane->handed_over - lane->ended >= lane->count;
}

void mr_host_lane_start(struct mr_host_lane *lane, const uint32_t *due) {
  if (lane->busy || lane->ended == lane->handed_over) {
    return;
  }
  uint32_t op = lane->ops[lane->ended % lane->count];
  if (due[op] == 0) {
    lane->busy = true;
    lane->remaining_seconds = mr_host_op_seconds(lane->problem, op);
  }
}

bool mr_host_lane_has_run(const struct mr_host_lane *lane, uint32_t op) {
  uint32_t laps = op / lane->op_count;
  return lane->ended >= laps * lane->count + lane->before[op % lane->op_count + 1];
}

uint32_t mr_host_lane_made(const struct mr_host_lane *lane) {
  uint32_t laps = lane->count > 0 ? lane->ended / lane->count : 0;
  uint32_t rest = lane->count > 0 ? lane->ended % lane->count : 0;
  return laps * lane->makes[lane->count] + lane->makes[rest];
}

void mr_host_lane_pass(struct mr_host_lane *lane, double seconds) {
  if (lane->busy && (lane->remaining_seconds -= seconds) <= MR_INSTANT) {
    lane->busy = false;
    lane->ended++;
  }
}

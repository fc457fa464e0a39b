/* SPDX-License-Identifier: Apache-2.0 */
/* What is to leave does so before its gap opens, where nothing changes it any more: for NVMe, and
 * for the host where that alone is below a device that is apart. There it is what leaves round the
 * end of the step, which has its slot for good; others' slots begin with their gaps. What ops on
 * the host use is left alone: they may change it there. */
#include "plan/draft.h"

bool mr_draft_may_leave_early(const struct mr_draft *draft, const struct mr_draft_gap *gap,
                              uint8_t decision) {
  const struct mr_plan_problem *problem = draft->problem;
  bool host = problem->host_apart && problem->budget_bytes[MR_TIER_NVME] == 0 && gap->wrap;
  return draft->writes_early && gap->changed_op < gap->after_op && !draft->on_host[gap->tensor] &&
         (decision == MR_DECISION_NVME || host);
}

bool mr_draft_leaves_early(const struct mr_draft *draft, uint32_t index) {
  const struct mr_draft_gap *gap = &draft->gaps[index];
  bool early = gap->decision != MR_DECISION_KEEP && gap->written &&
               mr_draft_may_leave_early(draft, gap, gap->decision);
  /* It stays where it was changed up to here: what another stay holds is another copy. */
  for (uint32_t i = index;
       early && i > draft->first_gap[gap->tensor] && draft->gaps[i - 1].after_op >= gap->changed_op;
       i--) {
    early = draft->gaps[i - 1].decision == MR_DECISION_KEEP;
  }
  return early;
}

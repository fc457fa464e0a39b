/* SPDX-License-Identifier: Apache-2.0 */
/* What NVMe is to have leaves before its gap opens, where nothing changes it any more. What ops on
 * the host use is left alone: they may change it there. */
#include "plan/draft.h"

bool mr_draft_may_leave_early(const struct mr_draft *draft, const struct mr_draft_gap *gap) {
  return draft->writes_early && gap->changed_op < gap->after_op && !draft->on_host[gap->tensor];
}

bool mr_draft_leaves_early(const struct mr_draft *draft, uint32_t index) {
  const struct mr_draft_gap *gap = &draft->gaps[index];
  bool early =
      gap->decision == MR_DECISION_NVME && gap->written && mr_draft_may_leave_early(draft, gap);
  /* It stays where it was changed up to here: what another stay holds is another copy. */
  for (uint32_t i = index;
       early && i > draft->first_gap[gap->tensor] && draft->gaps[i - 1].after_op >= gap->changed_op;
       i--) {
    early = draft->gaps[i - 1].decision == MR_DECISION_KEEP;
  }
  return early;
}

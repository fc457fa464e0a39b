/* SPDX-License-Identifier: Apache-2.0 */
/* What a draft takes from the prices of its linear program: what room and links are worth where. */
#include <math.h>

#include "plan/draft.h"
#include "plan/drive.h"

/* Levels of the limit in an octave: budgets of one level have the guide of its lowest. */
#define LEVELS 4u

static uint64_t level_pages(const struct mr_draft *draft, uint32_t level) {
  return (uint64_t)((double)draft->whole_pages * exp2(-(double)level / LEVELS));
}

mr_status mr_draft_find_guide(struct mr_draft *draft) {
  uint32_t level = 1;
  while (level_pages(draft, level) > draft->limit_pages) {
    level++;
  }
  if (draft->guide.room != NULL && draft->guide_level == level) {
    return MR_OK;
  }
  struct mr_plan_problem problem = *draft->problem;
  problem.host_apart = false; /* where ops run is settled */
  problem.budget_bytes[MR_TIER_DEVICE] =
      draft->small_bytes + level_pages(draft, level) * draft->page_bytes;
  mr_guide_fini(&draft->guide);
  draft->guide_level = level;
  return mr_guide_find(&draft->guide, &problem, &draft->liveness, problem.budget_bytes);
}

void mr_draft_follow_guide(struct mr_draft *draft, double strength) {
  for (uint32_t part = 0; part < MR_STEP_PARTS; part++) {
    uint32_t first = mr_draft_part_start(draft, part);
    uint32_t op = (first + mr_draft_part_start(draft, part + 1)) / 2;
    op = op < draft->op_count ? op : draft->op_count - 1;
    for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
      double cost = mr_link_fetches(l) ? draft->guide.in[op] : draft->guide.out[op];
      cost = mr_plan_crossed(draft->problem, l) < MR_LINK_COUNT ? 0 : cost; /* it counts there */
      draft->scarcity[l][part] = strength * cost * draft->problem->link[l].bytes_per_second;
    }
  }
}

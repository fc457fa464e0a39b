/* SPDX-License-Identifier: Apache-2.0 */
/* Which instances have their addresses in common. */
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

static bool has_same_pages(const struct mr_program_plan *plan, uint32_t a, uint32_t b) {
  const struct mr_instance *one = &plan->instances[a];
  const struct mr_instance *other = &plan->instances[b];
  return one->page_count == other->page_count &&
         memcmp(&plan->pages[one->first_page], &plan->pages[other->first_page],
                one->page_count * sizeof *plan->pages) == 0;
}

mr_status mr_program_plan_list_ranges(const struct mr_program_plan *plan, uint32_t *ranges,
                                      uint32_t *count_out) {
  /* Of each page, the first instance of the last range that begins with it; and the one before. */
  uint32_t *last = mr_allocate(plan->device_page_count, sizeof *last);
  uint32_t *before = mr_allocate(plan->instance_count, sizeof *before);
  uint32_t count = 0;
  mr_status status = last == NULL || before == NULL ? MR_NO_MEMORY : MR_OK;
  for (uint32_t p = 0; p < plan->device_page_count && status == MR_OK; p++) {
    last[p] = MR_NO_INSTANCE;
  }
  for (uint32_t i = 0; i < plan->instance_count && status == MR_OK; i++) {
    ranges[i] = MR_NO_RANGE;
    if (plan->instances[i].page_count == 0) continue;
    uint32_t *newest = &last[plan->pages[plan->instances[i].first_page]];
    uint32_t same = *newest;
    while (same != MR_NO_INSTANCE && !has_same_pages(plan, same, i)) {
      same = before[same];
    }
    if (same == MR_NO_INSTANCE) {
      before[i] = *newest;
      *newest = i;
    }
    ranges[i] = same == MR_NO_INSTANCE ? count++ : ranges[same];
  }
  free(last);
  free(before);
  if (status == MR_OK) {
    *count_out = count;
  }
  return status;
}

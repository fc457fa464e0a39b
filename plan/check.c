/* SPDX-License-Identifier: Apache-2.0 */
/* What a problem must be that a plan can be made for. */
#include <math.h>

#include "base/base.h"
#include "plan/page_sizes.h"
#include "plan/stages.h"

static bool is_power_of_two(uint64_t value) {
  return value > 0 && (value & (value - 1)) == 0;
}

mr_status mr_plan_check_problem(const struct mr_plan_problem *problem) {
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    const struct mr_link_rate *rate = &problem->link[l];
    if (!(rate->bytes_per_second > 0) || !(rate->latency_seconds >= 0)) {
      mr_log(MR_LOG_ERROR, "link %u: %g bytes/s and a latency of %g s; the rate must be positive",
             l, rate->bytes_per_second, rate->latency_seconds);
      return MR_INVALID;
    }
  }
  uint64_t page = problem->page_bytes;
  if (page != 0 &&
      (!is_power_of_two(page) || page < MR_LEAST_PAGE_BYTES || page > MR_MOST_PAGE_BYTES)) {
    mr_log(MR_LOG_ERROR, "a page of %llu bytes; it must be a power of two from 4096 to 2097152",
           (unsigned long long)page);
    return MR_INVALID;
  }
  if (problem->extent_unit_bytes == 0 || problem->program->op_count == 0) {
    mr_log(MR_LOG_ERROR, "nothing to plan: %u ops, extents in units of %llu bytes",
           problem->program->op_count, (unsigned long long)problem->extent_unit_bytes);
    return MR_INVALID;
  }
  uint64_t largest = mr_plan_largest_bytes(problem->program);
  uint64_t most = page != 0 ? page : MR_MOST_PAGE_BYTES;
  if (!mr_plan_can_number(largest, most)) {
    mr_log(MR_LOG_ERROR, "a tensor of %llu bytes has more than %d pages of %llu; take larger ones",
           (unsigned long long)largest, INT32_MAX,
           (unsigned long long)mr_plan_host_page_bytes(most));
    return MR_INVALID;
  }
  for (uint32_t k = 0; k < problem->program->op_count; k++) {
    if (!(problem->op_seconds[k] >= 0) || isinf(problem->op_seconds[k])) {
      mr_log(MR_LOG_ERROR, "op %u takes %g s; it must be a number that is not negative", k,
             problem->op_seconds[k]);
      return MR_INVALID;
    }
  }
  return MR_OK;
}

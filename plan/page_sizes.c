/* SPDX-License-Identifier: Apache-2.0 */
/* Which page sizes a program may have. */
#include "plan/page_sizes.h"

#define LEAST_PAGE_NUMBER 64u
#define MOST_HUGE_WASTE   0.15 /* where the device gains more by huge pages than this costs */

uint64_t mr_plan_pages_of(uint64_t bytes, uint64_t page_bytes) {
  return bytes < page_bytes / 2 ? 0 : mr_div_up(bytes, page_bytes);
}

uint64_t mr_plan_largest_bytes(const struct mr_graph *graph) {
  uint64_t bytes = 0;
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    bytes = mr_max_u64(bytes, graph->tensors[t].bytes);
  }
  for (uint32_t k = 0; k < graph->op_count; k++) {
    bytes = mr_max_u64(bytes, graph->ops[k].scratch_bytes);
  }
  return bytes;
}

bool mr_plan_can_number(uint64_t bytes, uint64_t page_bytes) {
  return bytes / mr_plan_host_page_bytes(page_bytes) < INT32_MAX;
}

/* What rounding large tensors to pages would add, as a share of all bytes. */
static double page_waste(const struct mr_graph *graph, uint64_t page_bytes) {
  double bytes = 1;
  double waste = 0;
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    uint64_t size = graph->tensors[t].bytes;
    bytes += (double)size;
    if (size >= page_bytes / 2) {
      waste += (double)(mr_round_up(size, page_bytes) - size);
    }
  }
  return waste / bytes;
}

uint32_t mr_plan_list_pages(const struct mr_plan_problem *problem, struct mr_page_choice *choices) {
  if (problem->page_bytes != 0) {
    choices[0] = (struct mr_page_choice){.page_bytes = problem->page_bytes};
    return 1;
  }
  uint32_t count = 0;
  uint64_t least = MR_LEAST_PAGE_BYTES;
  while (!mr_plan_can_number(mr_plan_largest_bytes(problem->program), least)) {
    least *= 2;
  }
  for (uint64_t page = MR_MOST_PAGE_BYTES; page > least; page /= 2) {
    double waste = page_waste(problem->program, page);
    bool huge = problem->huge_pages && page == MR_MOST_PAGE_BYTES;
    if (waste <= (huge ? MOST_HUGE_WASTE : MR_MOST_PAGE_WASTE)) {
      choices[count++] = (struct mr_page_choice){page, page * LEAST_PAGE_NUMBER,
                                                 .wasteful = waste > MR_MOST_PAGE_WASTE};
    }
  }
  choices[count++] = (struct mr_page_choice){.page_bytes = least};
  return count;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page is the largest power of two from 4 KiB to 2 MiB of which the budget holds at least 64,
 * or everything, and that wastes at most 3 % of the tensors' bytes in rounding: few pages are
 * mapped fast, huge ones (2 MiB) spare the processor's translation caches, and waste is room lost.
 * Where the program does not fit so, smaller pages are tried: those of the smallest budget that
 * would do.
 */
#ifndef MEMRUN_PLAN_PAGE_SIZES_H
#define MEMRUN_PLAN_PAGE_SIZES_H

#include "base/base.h"
#include "plan/plan.h"

#define MR_MOST_PAGE_SIZES 10u
#define MR_MOST_PAGE_WASTE 0.03 /* of the tensors' bytes */

/* A page size and the budget from which on it may be used. */
struct mr_page_choice {
  uint64_t page_bytes;
  uint64_t least_budget_bytes;
  bool wasteful; /* of no use where everything can be kept with smaller ones */
};

/* The pages of a tensor or of scratch; 0: it is small. */
uint64_t mr_plan_pages_of(uint64_t bytes, uint64_t page_bytes);

/* The bytes of the largest tensor or scratch. */
uint64_t mr_plan_largest_bytes(const struct mr_graph *graph);

/* Whether so many bytes have few enough pages, on the host too, for their numbers (plan/runs.h). */
bool mr_plan_can_number(uint64_t bytes, uint64_t page_bytes);

/* Fills in the page sizes that may be used, the largest first; returns how many: at least one that
 * is not wasteful. */
uint32_t mr_plan_list_pages(const struct mr_plan_problem *problem, struct mr_page_choice *choices);

#endif

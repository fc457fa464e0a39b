/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a plan. The page is the largest power of two from 4 KiB to 2 MiB of which the budget holds
 * at least 512 and that wastes at most 3 % of the tensors' bytes in rounding: few pages are mapped
 * fast, huge ones (2 MiB) spare the processor's translation caches, and waste is room lost. Where
 * the program does not fit so, smaller pages are tried. The rule depends on the budget and the
 * program alone, so the smallest budget that would do can be found without trying them all.
 */
#include <math.h>
#include <stdlib.h>

#include "plan/draft.h"

#define LEAST_PAGE_BYTES   (4 * MR_KIB)
#define MOST_PAGE_BYTES    (2 * MR_MIB)
#define LEAST_PAGE_NUMBER  512u
#define MOST_WASTE_PER_TEN 0.03
#define MOST_PAGE_SIZES    10u
#define REPAIR_ROUNDS      6u
#define REPAIR_COST        1.02 /* a repair that slows the step by more is not the last word */
#define COLOURING_PART     96u  /* about 1 % of the pages is kept back for colouring */

static bool is_power_of_two(uint64_t value) {
  return value > 0 && (value & (value - 1)) == 0;
}

static mr_status check_problem(const struct mr_plan_problem *problem) {
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    const struct mr_link_rate *rate = &problem->link[l];
    if (!(rate->bytes_per_second > 0) || !(rate->latency_seconds >= 0)) {
      mr_log(MR_LOG_ERROR, "link %u: %g bytes/s and a latency of %g s; the rate must be positive",
             l, rate->bytes_per_second, rate->latency_seconds);
      return MR_INVALID;
    }
  }
  uint64_t page = problem->page_bytes;
  if (page != 0 && (!is_power_of_two(page) || page < LEAST_PAGE_BYTES || page > MOST_PAGE_BYTES)) {
    mr_log(MR_LOG_ERROR, "a page of %llu bytes; it must be a power of two from 4096 to 2097152",
           (unsigned long long)page);
    return MR_INVALID;
  }
  if (problem->extent_unit_bytes == 0 || problem->program->op_count == 0) {
    mr_log(MR_LOG_ERROR, "nothing to plan: %u ops, extents in units of %llu bytes",
           problem->program->op_count, (unsigned long long)problem->extent_unit_bytes);
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

/* The share of the large tensors' bytes that rounding to pages would add. */
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

/* A page size and the budget from which on it may be used. */
struct page_choice {
  uint64_t page_bytes;
  uint64_t least_budget_bytes;
};

/* The page sizes that may be used, the largest first. */
static uint32_t list_pages(const struct mr_plan_problem *problem, struct page_choice *choices) {
  if (problem->page_bytes != 0) {
    choices[0] = (struct page_choice){problem->page_bytes, 0};
    return 1;
  }
  uint32_t count = 0;
  for (uint64_t page = MOST_PAGE_BYTES; page > LEAST_PAGE_BYTES; page /= 2) {
    if (page_waste(problem->program, page) <= MOST_WASTE_PER_TEN) {
      choices[count++] = (struct page_choice){page, page * LEAST_PAGE_NUMBER};
    }
  }
  choices[count++] = (struct page_choice){LEAST_PAGE_BYTES, 0};
  return count;
}

/* A draft under the draft's limits, lowered where its colouring fits too. */
static mr_status attempt(struct mr_draft *draft, bool repair, uint64_t page_limit,
                         struct mr_program_plan *plan, uint64_t *pages_out) {
  bool fits = false;
  mr_status status = MR_OK;
  if (draft->problem->policy == MR_POLICY_LRU) {
    status = mr_draft_evict_lru(draft, &fits);
  } else if (repair) {
    status = mr_draft_repair(draft, &fits);
  } else {
    mr_draft_reset(draft);
    status = mr_draft_search(draft, &fits);
  }
  *pages_out = UINT64_MAX;
  if (status == MR_OK && fits) {
    status = mr_draft_lower(draft, page_limit, plan, pages_out);
  }
  return status;
}

/* Tightens the limit by what colouring is short of and repairs, a few times. *seconds_out: the time
 * before any repair; INFINITY where nothing fits. */
static mr_status make_round(struct mr_draft *draft, uint64_t page_limit,
                            struct mr_program_plan *plan, bool *fits_out, double *seconds_out) {
  *fits_out = false;
  for (uint32_t round = 0; round < REPAIR_ROUNDS; round++) {
    uint64_t pages = 0;
    mr_status status = attempt(draft, round > 0, page_limit, plan, &pages);
    if (round == 0) {
      *seconds_out = pages == UINT64_MAX ? INFINITY : draft->seconds;
    }
    if (status != MR_OK || pages <= page_limit) {
      *fits_out = status == MR_OK;
      return status;
    }
    if (pages == UINT64_MAX) break;
    draft->limit_pages -= mr_min_u64(pages - page_limit, draft->limit_pages);
  }
  return MR_OK;
}

/* Gives up stays that go round the end of the step; colouring then needs what is in use. */
static mr_status make_line(struct mr_draft *draft, uint64_t page_limit,
                           struct mr_program_plan *plan, bool *fits_out) {
  uint64_t pages = 0;
  draft->limit_pages = page_limit;
  draft->line_only = true;
  mr_status status = attempt(draft, false, page_limit, plan, &pages);
  draft->line_only = false;
  *fits_out = pages <= page_limit;
  MR_ASSERT(status != MR_OK || *fits_out || pages == UINT64_MAX || draft->problem->contiguous);
  return status;
}

/*
 * Decides and lowers under a limit in pages. Stays that go round the end of the step can make
 * colouring need a few pages more than are ever in use; so a little is kept back, and what is
 * missing still is taken off the limit and the draft repaired. Where that does not help, or costs
 * much, a plan without such stays is made, and the faster is taken.
 */
static mr_status make_once(struct mr_draft *draft, uint64_t page_limit,
                           struct mr_program_plan *plan, bool *fits_out) {
  double first_seconds = INFINITY;
  mr_draft_reset(draft);
  bool all_kept = mr_draft_peak(draft) <= page_limit;
  draft->limit_pages = all_kept ? page_limit : page_limit - page_limit / COLOURING_PART;
  mr_status status = make_round(draft, page_limit, plan, fits_out, &first_seconds);
  double round_seconds = draft->seconds;
  if (status != MR_OK || (*fits_out && round_seconds <= first_seconds * REPAIR_COST)) {
    return status;
  }
  struct mr_program_plan line = {.program = plan->program};
  bool line_fits = false;
  status = make_line(draft, page_limit, &line, &line_fits);
  if (line_fits && (!*fits_out || draft->seconds < round_seconds)) {
    mr_plan_clear(plan);
    *plan = line;
    *fits_out = true;
  } else {
    mr_plan_clear(&line);
  }
  return status;
}

/* A plan that was found without search is not lost by searching: what is said to fit fits. */
static mr_status make_within(struct mr_draft *draft, uint64_t page_limit,
                             struct mr_program_plan *plan, bool *fits_out) {
  mr_status status = make_once(draft, page_limit, plan, fits_out);
  if (status == MR_OK && !*fits_out && draft->search_rounds > 0) {
    uint32_t rounds = draft->search_rounds;
    draft->search_rounds = 0;
    status = make_once(draft, page_limit, plan, fits_out);
    draft->search_rounds = rounds;
  }
  return status;
}

/* The pages in use with every gap evicted that can be: no plan needs fewer. */
static uint64_t least_pages(struct mr_draft *draft) {
  const uint64_t *budget = draft->problem->budget_bytes;
  mr_draft_reset(draft);
  if (budget[MR_TIER_HOST] == 0 && budget[MR_TIER_NVME] == 0) {
    return mr_draft_peak(draft);
  }
  uint64_t host = draft->host_limit_pages;
  uint64_t nvme = draft->nvme_limit_units;
  draft->host_limit_pages = UINT64_MAX;
  draft->nvme_limit_units = UINT64_MAX;
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    if (mr_draft_can_evict(draft, &draft->gaps[i]) &&
        !mr_draft_decide(draft, i, MR_DECISION_HOST)) {
      (void)mr_draft_decide(draft, i, MR_DECISION_NVME); /* banned from both, it stays */
    }
  }
  uint64_t peak = mr_draft_peak(draft);
  mr_draft_reset(draft);
  draft->host_limit_pages = host;
  draft->nvme_limit_units = nvme;
  return peak;
}

/* Plans with one page size under the problem's budgets; *least_bytes_out: no device budget below it
 * would do. */
static mr_status try_page(const struct mr_plan_problem *problem, uint64_t page_bytes,
                          struct mr_program_plan *plan, bool *fits_out, uint64_t *least_bytes_out) {
  struct mr_draft draft;
  *fits_out = false;
  mr_status status = mr_draft_init(&draft, problem, page_bytes);
  if (status != MR_OK) {
    return status;
  }
  uint64_t footprint = draft.small_bytes + mr_draft_peak(&draft) * page_bytes;
  uint64_t least = least_pages(&draft);
  *least_bytes_out = draft.small_bytes + least * page_bytes;
  if (*least_bytes_out <= problem->budget_bytes[MR_TIER_DEVICE]) {
    status = make_within(&draft, draft.limit_pages, plan, fits_out);
  }
  plan->page_bytes = page_bytes;
  plan->small_bytes = draft.small_bytes;
  plan->footprint_bytes = footprint;
  mr_draft_fini(&draft);
  return status;
}

/* A page size, the budget from which on it is used, and that from which on a larger one is. */
struct page_range {
  uint64_t page_bytes;
  uint64_t from_bytes;
  uint64_t to_bytes; /* UINT64_MAX: none is larger */
};

/* The smallest device budget of the range with which planning succeeds, by halving, since lower
 * tiers may be what is short; UINT64_MAX: none. */
static mr_status smallest_in(const struct mr_plan_problem *problem, const struct page_range *range,
                             uint64_t *bytes_out) {
  struct mr_program_plan plan = {.program = problem->program};
  struct mr_draft draft;
  mr_status status = mr_draft_init(&draft, problem, range->page_bytes);
  if (status != MR_OK) {
    return status;
  }
  draft.search_rounds = 0;
  uint64_t low = mr_div_up(range->from_bytes - draft.small_bytes, range->page_bytes);
  uint64_t high = mr_max_u64(low, mr_draft_peak(&draft));
  uint64_t most = (range->to_bytes - 1 - draft.small_bytes) / range->page_bytes;
  uint64_t middle = mr_min_u64(high, most);
  bool found = false;
  while (status == MR_OK && low <= middle) {
    bool fits = false;
    status = make_within(&draft, middle, &plan, &fits);
    mr_plan_clear(&plan);
    if (!found && !fits) break; /* the most of the range is not enough */
    found = true;
    if (fits) {
      high = middle;
    } else {
      low = middle + 1;
    }
    if (low == high) break;
    middle = low + (high - low) / 2;
  }
  uint64_t bytes = draft.small_bytes + high * range->page_bytes;
  *bytes_out = found ? mr_max_u64(bytes, range->from_bytes) : UINT64_MAX;
  mr_draft_fini(&draft);
  return status;
}

/* For each page size, largest first, from which budget on it is used: see make(). */
static mr_status list_ranges(const struct mr_plan_problem *problem,
                             const struct page_choice *choices, uint32_t choice_count,
                             struct page_range *ranges) {
  uint64_t to = UINT64_MAX;
  for (uint32_t i = 0; i < choice_count; i++) {
    struct mr_draft draft;
    mr_status status = mr_draft_init(&draft, problem, choices[i].page_bytes);
    if (status != MR_OK) {
      return status;
    }
    uint64_t least = draft.small_bytes + least_pages(&draft) * choices[i].page_bytes;
    uint64_t from = mr_max_u64(least, choices[i].least_budget_bytes);
    ranges[i] = (struct page_range){choices[i].page_bytes, from, to};
    to = mr_min_u64(to, from);
    mr_draft_fini(&draft);
  }
  return MR_OK;
}

static void name_largest_op(const struct mr_graph *graph, struct mr_program_plan *plan) {
  for (uint32_t k = 0; k < graph->op_count; k++) {
    uint64_t bytes = mr_op_working_bytes(graph, k, 1);
    if (bytes > plan->largest_op_bytes) {
      plan->largest_op = k;
      plan->largest_op_bytes = bytes;
    }
  }
}

/* Says of a problem that does not fit what would do, and which tier is short. */
static mr_status refuse(const struct mr_plan_problem *problem, const struct page_choice *choices,
                        uint32_t choice_count, struct mr_program_plan *plan) {
  const uint64_t *budget = problem->budget_bytes;
  struct page_range ranges[MOST_PAGE_SIZES];
  mr_status status = list_ranges(problem, choices, choice_count, ranges);
  uint64_t least = UINT64_MAX;
  uint64_t smallest = UINT64_MAX;
  for (uint32_t i = choice_count; i-- > 0 && status == MR_OK && smallest == UINT64_MAX;) {
    least = mr_min_u64(least, ranges[i].from_bytes);
    if (ranges[i].from_bytes < ranges[i].to_bytes) {
      status = smallest_in(problem, &ranges[i], &smallest);
    }
  }
  plan->smallest_device_bytes = smallest;
  plan->failed_tier = MR_TIER_DEVICE;
  if (least <= budget[MR_TIER_DEVICE]) {
    plan->failed_tier = budget[MR_TIER_NVME] > 0 ? MR_TIER_NVME : MR_TIER_HOST;
  }
  return status;
}

/* The largest pages are used with which the budget is not below what the device needs at least;
 * smaller ones would not help where a lower tier is short. */
mr_status mr_plan_make_placed(const struct mr_plan_problem *problem, struct mr_program_plan *plan) {
  struct page_choice choices[MOST_PAGE_SIZES];
  uint32_t choice_count = list_pages(problem, choices);
  uint64_t device = problem->budget_bytes[MR_TIER_DEVICE];
  for (uint32_t i = 0; i < choice_count; i++) {
    if (device < choices[i].least_budget_bytes) continue;
    uint64_t least = 0;
    bool fits = false;
    mr_status status = try_page(problem, choices[i].page_bytes, plan, &fits, &least);
    if (status != MR_OK) {
      return status;
    }
    plan->fits = fits;
    if (least <= device) break;
  }
  name_largest_op(problem->program, plan);
  if (!plan->fits) {
    return refuse(problem, choices, choice_count, plan);
  }
  mr_status status = mr_plan_add_waits(plan);
  return status == MR_OK ? mr_program_plan_simulate(problem, plan) : status;
}

mr_status mr_program_plan_make(const struct mr_plan_problem *problem,
                               struct mr_program_plan **plan_out) {
  mr_status status = check_problem(problem);
  if (status != MR_OK) {
    return status;
  }
  struct mr_program_plan *plan = mr_allocate(1, sizeof *plan);
  if (plan == NULL) {
    return MR_NO_MEMORY;
  }
  plan->program = problem->program;
  status = mr_plan_place(problem, plan);
  if (status == MR_OK) {
    status = mr_program_plan_bound(problem, &plan->bound_seconds);
  }
  if (status != MR_OK) {
    mr_program_plan_destroy(plan);
    return status;
  }
  *plan_out = plan;
  return MR_OK;
}

void mr_program_plan_destroy(struct mr_program_plan *plan) {
  if (plan != NULL) {
    mr_plan_clear(plan);
    free(plan);
  }
}

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
#include <string.h>

#include "plan/bound.h"
#include "plan/draft.h"
#include "plan/ladder.h"

#define LEAST_PAGE_BYTES  (4 * MR_KIB)
#define MOST_PAGE_BYTES   (2 * MR_MIB)
#define LEAST_PAGE_NUMBER 64u
#define MOST_WASTE        0.03
#define MOST_HUGE_WASTE   0.15 /* where the device gains more by huge pages than this costs */
#define MOST_PAGE_SIZES   10u

#define ROUNDING          1e-9 /* relative, of sums of seconds */

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
  bool wasteful; /* of no use where everything can be kept with smaller ones */
};

/* The page sizes that may be used, the largest first. */
static uint32_t list_pages(const struct mr_plan_problem *problem, struct page_choice *choices) {
  if (problem->page_bytes != 0) {
    choices[0] = (struct page_choice){.page_bytes = problem->page_bytes};
    return 1;
  }
  uint32_t count = 0;
  for (uint64_t page = MOST_PAGE_BYTES; page > LEAST_PAGE_BYTES; page /= 2) {
    double waste = page_waste(problem->program, page);
    bool huge = problem->huge_pages && page == MOST_PAGE_BYTES;
    if (waste <= (huge ? MOST_HUGE_WASTE : MOST_WASTE)) {
      choices[count++] =
          (struct page_choice){page, page * LEAST_PAGE_NUMBER, .wasteful = waste > MOST_WASTE};
    }
  }
  choices[count++] = (struct page_choice){.page_bytes = LEAST_PAGE_BYTES};
  return count;
}

/* The problem at hand, and what is kept from one point of the ladder to the next. */
struct maker {
  const struct mr_plan_problem *problem;
  struct mr_plan_problem point; /* the problem under the budgets being planned */
  struct page_choice choices[MOST_PAGE_SIZES];
  uint32_t choice_count;
  struct mr_draft drafts[MOST_PAGE_SIZES]; /* one for each page size that was wanted */
  bool drafted[MOST_PAGE_SIZES];
  uint64_t footprint_bytes[MOST_PAGE_SIZES];
  uint64_t least_bytes[MOST_PAGE_SIZES]; /* no device budget below it would do */
  uint32_t footprint_choice;             /* the largest that are not wasteful */
  uint32_t smallest_choice;              /* of pages, for the smallest budget that would do */
  struct mr_bound bound;                 /* of no cuts before it is asked for */
  struct mr_program_plan *plan;          /* the best so far, where it fits */
};

/* The pages in use with every gap evicted that can be: no plan needs fewer. */
static uint64_t least_pages(struct mr_draft *draft) {
  const uint64_t *budget = draft->problem->budget_bytes;
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
  draft->nvme_limit_units = nvme;
  return peak;
}

/* The draft of a page size. */
static mr_status draft_of(struct maker *maker, uint32_t choice, struct mr_draft **draft_out) {
  struct mr_draft *draft = &maker->drafts[choice];
  uint64_t page_bytes = maker->choices[choice].page_bytes;
  if (!maker->drafted[choice]) {
    mr_status status = mr_draft_init(draft, &maker->point, page_bytes);
    if (status != MR_OK) {
      return status;
    }
    MR_ASSERT(draft->problem == &maker->point);
    maker->drafted[choice] = true;
    maker->footprint_bytes[choice] = draft->small_bytes + mr_draft_peak(draft) * page_bytes;
    maker->least_bytes[choice] = draft->small_bytes + least_pages(draft) * page_bytes;
  }
  *draft_out = draft;
  return MR_OK;
}

/* The largest pages are used with which the budget is not below what the device needs at least;
 * smaller ones would not help where a lower tier is short. choice_count: none will do. */
static mr_status choose_pages(struct maker *maker, uint64_t device_bytes, uint32_t *choice_out) {
  for (uint32_t i = 0; i < maker->choice_count; i++) {
    struct mr_draft *draft = NULL;
    if (device_bytes < maker->choices[i].least_budget_bytes) continue;
    mr_status status = draft_of(maker, i, &draft);
    if (status != MR_OK) {
      return status;
    }
    if (maker->least_bytes[i] <= device_bytes) {
      *choice_out = i;
      return MR_OK;
    }
  }
  *choice_out = maker->choice_count;
  return MR_OK;
}

/* Plans with one page size for a device budget; the other budgets are the point's. */
static mr_status plan_with(struct maker *maker, uint32_t choice, uint64_t device_bytes,
                           enum mr_draft_effort effort, struct mr_program_plan *plan) {
  struct mr_draft *draft = NULL;
  maker->point.budget_bytes[MR_TIER_DEVICE] = device_bytes;
  mr_status status = draft_of(maker, choice, &draft);
  if (status == MR_OK) {
    mr_draft_set_limits(draft);
    status = mr_draft_make(draft, effort, plan, &plan->fits);
  }
  plan->page_bytes = maker->choices[choice].page_bytes;
  plan->small_bytes = maker->drafts[choice].small_bytes;
  return status;
}

/* Plays the plan on the problem's machine and keeps it where it is the fastest so far. */
static mr_status judge(struct maker *maker, struct mr_program_plan *plan) {
  mr_status status = plan->fits ? mr_plan_add_waits(plan) : MR_OK;
  if (status == MR_OK) {
    status = mr_program_plan_simulate(maker->problem, plan);
  }
  bool best = plan->fits && (!maker->plan->fits || plan->step_seconds < maker->plan->step_seconds);
  if (status != MR_OK || !best) {
    mr_plan_clear(plan);
    return status;
  }
  mr_plan_clear(maker->plan);
  *maker->plan = *plan;
  return MR_OK;
}

/* Plans for a device budget; *fits_out: it would do. */
static mr_status try_budget(struct maker *maker, uint64_t device_bytes, enum mr_draft_effort effort,
                            bool *fits_out) {
  struct mr_program_plan plan = {.program = maker->problem->program};
  uint32_t choice = 0;
  mr_status status = choose_pages(maker, device_bytes, &choice);
  *fits_out = false;
  if (status != MR_OK || choice == maker->choice_count) {
    return status;
  }
  status = plan_with(maker, choice, device_bytes, effort, &plan);
  *fits_out = status == MR_OK && plan.fits;
  if (status != MR_OK) {
    mr_plan_clear(&plan);
    return status;
  }
  return judge(maker, &plan);
}

/* Where everything can be kept nothing moves, with whatever page size that is. */
static mr_status try_keeping(struct maker *maker) {
  uint64_t device_bytes = maker->problem->budget_bytes[MR_TIER_DEVICE];
  for (uint32_t i = 0; i < maker->choice_count && !maker->plan->fits; i++) {
    struct mr_draft *draft = NULL;
    const struct page_choice *pages = &maker->choices[i];
    if (pages->wasteful || device_bytes < pages->least_budget_bytes) continue;
    mr_status status = draft_of(maker, i, &draft);
    if (status != MR_OK) {
      return status;
    }
    /* Smaller pages waste less, but no more than larger ones may. */
    if ((double)device_bytes < (1 - MOST_WASTE) * (double)maker->footprint_bytes[i]) break;
    if (device_bytes < maker->footprint_bytes[i]) continue;
    struct mr_program_plan plan = {.program = maker->problem->program};
    status = plan_with(maker, i, device_bytes, MR_EFFORT_FIRST, &plan);
    status = status == MR_OK ? judge(maker, &plan) : status;
    if (status != MR_OK) {
      return status;
    }
  }
  return MR_OK;
}

static mr_status bound_at(struct maker *maker, uint64_t device_bytes, double *seconds_out) {
  uint64_t budget_bytes[MR_TIER_COUNT];
  mr_status status = MR_OK;
  if (maker->bound.cut_count == 0) {
    const struct mr_draft *draft = &maker->drafts[maker->footprint_choice];
    status = mr_bound_init(&maker->bound, &maker->point, &draft->liveness);
  }
  if (status != MR_OK) {
    return status;
  }
  memcpy(budget_bytes, maker->point.budget_bytes, sizeof budget_bytes);
  budget_bytes[MR_TIER_DEVICE] = device_bytes;
  return mr_bound_seconds(&maker->bound, budget_bytes, seconds_out);
}

/* Whether no plan for so much memory would be of use, or better than the best. */
static mr_status is_hopeless(struct maker *maker, uint64_t device_bytes, bool *hopeless_out) {
  const struct mr_program_plan *best = maker->plan;
  double useful_seconds = maker->problem->useful_seconds;
  bool must_be_useful = useful_seconds > 0 && !isinf(useful_seconds);
  double bound_seconds = 0;
  mr_status status = MR_OK;
  if (must_be_useful || best->fits) {
    status = bound_at(maker, device_bytes, &bound_seconds);
  }
  *hopeless_out = (must_be_useful && bound_seconds >= useful_seconds) ||
                  (best->fits && bound_seconds >= best->step_seconds * (1 - ROUNDING));
  return status;
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

/* A page size, the budget from which on it is used, and that from which on a larger one is. */
struct page_range {
  uint64_t from_bytes;
  uint64_t to_bytes; /* UINT64_MAX: none is larger */
};

/* For each page size, largest first, from which budget on it is used: see choose_pages(). */
static mr_status list_ranges(struct maker *maker, struct page_range *ranges) {
  uint64_t to = UINT64_MAX;
  for (uint32_t i = 0; i < maker->choice_count; i++) {
    struct mr_draft *draft = NULL;
    mr_status status = draft_of(maker, i, &draft);
    if (status != MR_OK) {
      return status;
    }
    uint64_t from = mr_max_u64(maker->least_bytes[i], maker->choices[i].least_budget_bytes);
    ranges[i] = (struct page_range){from, to};
    to = mr_min_u64(to, from);
  }
  return MR_OK;
}

static mr_status fits_in(struct maker *maker, uint32_t choice, uint64_t pages, bool *fits_out) {
  struct mr_program_plan plan = {.program = maker->problem->program};
  uint64_t bytes = maker->drafts[choice].small_bytes + pages * maker->choices[choice].page_bytes;
  mr_status status = plan_with(maker, choice, bytes, MR_EFFORT_FIT, &plan);
  *fits_out = status == MR_OK && plan.fits;
  mr_plan_clear(&plan);
  return status;
}

/* The smallest device budget of the range with which planning succeeds; UINT64_MAX: none. What the
 * device needs at least nearly always does; where a lower tier is short, it is found by halving. */
static mr_status smallest_in(struct maker *maker, uint32_t choice, const struct page_range *range,
                             uint64_t *bytes_out) {
  uint64_t page_bytes = maker->choices[choice].page_bytes;
  uint64_t small_bytes = maker->drafts[choice].small_bytes;
  uint64_t low = mr_div_up(range->from_bytes - small_bytes, page_bytes);
  uint64_t whole = (maker->footprint_bytes[choice] - small_bytes) / page_bytes;
  uint64_t high =
      mr_min_u64(mr_max_u64(low, whole), (range->to_bytes - 1 - small_bytes) / page_bytes);
  bool fits = false;
  mr_status status = fits_in(maker, choice, low, &fits);
  if (status == MR_OK && fits) {
    high = low;
  } else if (status == MR_OK) {
    status = fits_in(maker, choice, high, &fits);
  }
  *bytes_out = UINT64_MAX;
  if (status != MR_OK || !fits) {
    return status;
  }
  while (status == MR_OK && low < high) {
    uint64_t middle = low + (high - low) / 2;
    status = fits_in(maker, choice, middle, &fits);
    low = fits ? low : middle + 1;
    high = fits ? middle : high;
  }
  *bytes_out = mr_max_u64(small_bytes + high * page_bytes, range->from_bytes);
  return status;
}

/* The smallest device budget with which planning succeeds; UINT64_MAX: none. *least_out: no budget
 * below it leaves an op its room. */
static mr_status find_smallest(struct maker *maker, uint64_t *smallest_out, uint64_t *least_out) {
  struct page_range ranges[MOST_PAGE_SIZES];
  mr_status status = list_ranges(maker, ranges);
  *least_out = UINT64_MAX;
  *smallest_out = UINT64_MAX;
  for (uint32_t i = maker->choice_count;
       i-- > 0 && status == MR_OK && *smallest_out == UINT64_MAX;) {
    *least_out = mr_min_u64(*least_out, ranges[i].from_bytes);
    if (ranges[i].from_bytes < ranges[i].to_bytes) {
      status = smallest_in(maker, i, &ranges[i], smallest_out);
      maker->smallest_choice = i;
    }
  }
  return status;
}

/* The foot of the ladder: the smallest budget that would do, where the problem has as much. */
static mr_status try_smallest(struct maker *maker) {
  uint64_t smallest = 0;
  uint64_t least = 0;
  bool fits = false;
  mr_status status = find_smallest(maker, &smallest, &least);
  if (status != MR_OK || smallest > maker->problem->budget_bytes[MR_TIER_DEVICE]) {
    return status;
  }
  return try_budget(maker, smallest, MR_EFFORT_SEARCH, &fits);
}

/* Down the ladder from the highest rung that the budget holds, as long as a lower one could still
 * be better: see plan.h. */
static mr_status climb_down(struct maker *maker) {
  const struct mr_plan_problem *problem = maker->problem;
  uint64_t device_bytes = mr_min_u64(problem->budget_bytes[MR_TIER_DEVICE], UINT64_MAX - 1) + 1;
  uint64_t footprint_bytes = maker->footprint_bytes[maker->footprint_choice];
  uint32_t last = problem->search_from + problem->search_rounds;
  for (uint32_t rung = 0; rung < last; rung++) {
    bool hopeless = false;
    device_bytes = mr_ladder_below(footprint_bytes, device_bytes);
    if (device_bytes == 0) {
      return MR_OK;
    }
    if (rung < problem->search_from) continue;
    mr_status status = is_hopeless(maker, device_bytes, &hopeless);
    if (status != MR_OK || hopeless) {
      return status;
    }
    bool fits = false;
    status = try_budget(maker, device_bytes, MR_EFFORT_SEARCH, &fits);
    if (status != MR_OK) {
      return status;
    }
    if (!fits) {
      return isinf(problem->useful_seconds) ? MR_OK : try_smallest(maker);
    }
  }
  return MR_OK;
}

/* Says of a problem that does not fit what would do, and which tier is short. */
static mr_status refuse(struct maker *maker) {
  const uint64_t *budget = maker->problem->budget_bytes;
  struct mr_program_plan *plan = maker->plan;
  uint64_t least = 0;
  mr_status status = find_smallest(maker, &plan->smallest_device_bytes, &least);
  plan->page_bytes = maker->choices[maker->smallest_choice].page_bytes;
  plan->small_bytes = maker->drafts[maker->smallest_choice].small_bytes;
  plan->failed_tier = MR_TIER_DEVICE;
  if (least <= budget[MR_TIER_DEVICE]) {
    plan->failed_tier = budget[MR_TIER_NVME] > 0 ? MR_TIER_NVME : MR_TIER_HOST;
  }
  return status;
}

uint64_t mr_program_plan_moved_bytes(const struct mr_program_plan *plan) {
  uint64_t bytes = 0;
  for (uint32_t link = 0; link < MR_LINK_COUNT; link++) {
    bytes += plan->moved_bytes[link];
  }
  return bytes;
}

static bool moves_nothing(const struct mr_program_plan *plan) {
  return plan->fits && mr_program_plan_moved_bytes(plan) == 0;
}

static mr_status make(struct maker *maker) {
  const struct mr_plan_problem *problem = maker->problem;
  uint64_t device_bytes = problem->budget_bytes[MR_TIER_DEVICE];
  struct mr_draft *draft = NULL;
  bool useless = false;
  mr_status status = draft_of(maker, maker->footprint_choice, &draft);
  if (status == MR_OK) {
    status = is_hopeless(maker, device_bytes, &useless);
  }
  bool searched = problem->policy == MR_POLICY_SEARCHED && problem->search_rounds > 0;
  if (status == MR_OK && !useless) {
    status = try_keeping(maker);
  }
  if (status == MR_OK && !useless && searched && !moves_nothing(maker->plan)) {
    status = climb_down(maker);
  }
  bool fits = maker->plan->fits;
  useless = useless || (!fits && (problem->search_from > 0 || isinf(problem->useful_seconds)));
  if (status == MR_OK && !useless && !fits) {
    status = try_budget(maker, device_bytes, searched ? MR_EFFORT_SEARCH : MR_EFFORT_FIRST, &fits);
  }
  if (status == MR_OK && !useless && !fits) {
    status = refuse(maker);
  }
  maker->plan->useless = useless;
  maker->plan->footprint_bytes = maker->footprint_bytes[maker->footprint_choice];
  name_largest_op(problem->program, maker->plan);
  return status;
}

mr_status mr_plan_make_placed(const struct mr_plan_problem *problem, struct mr_program_plan *plan) {
  struct maker maker = {.problem = problem, .point = *problem, .plan = plan};
  maker.point.bound_any_recompute = false;
  maker.choice_count = list_pages(problem, maker.choices);
  maker.footprint_choice = maker.choices[0].wasteful ? 1 : 0; /* there is always a smaller one */
  mr_status status = make(&maker);
  mr_bound_fini(&maker.bound);
  for (uint32_t i = 0; i < maker.choice_count; i++) {
    if (maker.drafted[i]) {
      mr_draft_fini(&maker.drafts[i]);
    }
  }
  return status;
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
  status = mr_plan_for_machines(problem, plan);
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

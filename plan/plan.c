/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a plan: with the largest pages that will do (plan/page_sizes.h), down the ladder
 * (plan/plan.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/ladder.h"
#include "plan/maker.h"
#include "plan/stages.h"

static void maker_init(struct mr_maker *maker, const struct mr_plan_problem *problem,
                       struct mr_program_plan *plan) {
  *maker = (struct mr_maker){.problem = problem, .point = *problem, .plan = plan};
  maker->choice_count = mr_plan_list_pages(problem, maker->choices);
  maker->footprint_choice = maker->choices[0].wasteful ? 1 : 0; /* there is always a smaller one */
}

static void maker_fini(struct mr_maker *maker) {
  mr_bound_fini(&maker->bound);
  for (uint32_t i = 0; i < maker->choice_count; i++) {
    if (maker->drafted[i]) {
      mr_draft_fini(&maker->drafts[i]);
    }
  }
}

/* The draft of a page size. */
mr_status mr_maker_draft(struct mr_maker *maker, uint32_t choice, struct mr_draft **draft_out) {
  struct mr_draft *draft = &maker->drafts[choice];
  uint64_t page_bytes = maker->choices[choice].page_bytes;
  if (!maker->drafted[choice]) {
    mr_status status = mr_draft_init(draft, &maker->point, page_bytes);
    if (status != MR_OK) {
      return status;
    }
    MR_ASSERT(draft->problem == &maker->point);
    maker->drafted[choice] = true;
    uint64_t least = 0;
    status = mr_draft_least_pages(draft, &least);
    if (status != MR_OK) {
      return status;
    }
    uint64_t whole = mr_draft_peak(draft) * page_bytes;
    uint64_t map_bytes = mr_draft_map_bytes(draft);
    maker->footprint_bytes[choice] = draft->small_bytes + mr_round_up(whole, map_bytes);
    maker->least_bytes[choice] = draft->small_bytes + mr_round_up(least * page_bytes, map_bytes);
  }
  *draft_out = draft;
  return MR_OK;
}

/* The largest pages are used with which the budget is not below what the device needs at least.
 * choice_count: none will do. */
static mr_status choose_pages(struct mr_maker *maker, uint64_t device_bytes, uint32_t *choice_out) {
  for (uint32_t i = 0; i < maker->choice_count; i++) {
    struct mr_draft *draft = NULL;
    if (device_bytes < maker->choices[i].least_budget_bytes) continue;
    mr_status status = mr_maker_draft(maker, i, &draft);
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
mr_status mr_maker_plan(struct mr_maker *maker, uint32_t choice, uint64_t device_bytes,
                        enum mr_draft_effort effort, struct mr_program_plan *plan) {
  struct mr_draft *draft = NULL;
  maker->point.budget_bytes[MR_TIER_DEVICE] = device_bytes;
  mr_status status = mr_maker_draft(maker, choice, &draft);
  if (status == MR_OK) {
    mr_draft_set_limits(draft);
    status = mr_draft_make(draft, effort, plan, &plan->fits);
  }
  plan->page_bytes = maker->choices[choice].page_bytes;
  plan->small_bytes = maker->drafts[choice].small_bytes;
  return status;
}

/* Plays the plan on the problem's machine. */
static mr_status play(const struct mr_maker *maker, struct mr_program_plan *plan) {
  mr_status status = plan->fits ? mr_plan_add_waits(plan) : MR_OK;
  return status == MR_OK ? mr_program_plan_share_drive(maker->problem, plan) : status;
}

/* Keeps the plan where it is the fastest so far, else ends it. */
static void judge(struct mr_maker *maker, struct mr_program_plan *plan) {
  if (plan->fits && (!maker->plan->fits || plan->step_seconds < maker->plan->step_seconds)) {
    mr_plan_clear(maker->plan);
    *maker->plan = *plan;
  } else {
    mr_plan_clear(plan);
  }
}

/* Plans with one page size, and keeps the plan where it is the fastest so far. */
static mr_status try_pages(struct mr_maker *maker, uint32_t choice, uint64_t device_bytes,
                           enum mr_draft_effort effort) {
  struct mr_program_plan plan = {.program = maker->problem->program};
  mr_status status = mr_maker_plan(maker, choice, device_bytes, effort, &plan);
  if (status == MR_OK) {
    status = play(maker, &plan);
  }
  if (status == MR_OK) {
    judge(maker, &plan);
  } else {
    mr_plan_clear(&plan);
  }
  return status;
}

/* Plans for a device budget, into a plan that holds its program alone. */
static mr_status plan_budget(struct mr_maker *maker, uint64_t device_bytes,
                             enum mr_draft_effort effort, struct mr_program_plan *plan) {
  uint32_t choice = 0;
  mr_status status = choose_pages(maker, device_bytes, &choice);
  if (status != MR_OK || choice == maker->choice_count) {
    return status;
  }
  status = mr_maker_plan(maker, choice, device_bytes, effort, plan);
  return status == MR_OK ? play(maker, plan) : status;
}

/* The same, and keeps the plan where it is the fastest so far. */
static mr_status try_budget(struct mr_maker *maker, uint64_t device_bytes,
                            enum mr_draft_effort effort) {
  uint32_t choice = 0;
  mr_status status = choose_pages(maker, device_bytes, &choice);
  bool any = status == MR_OK && choice < maker->choice_count;
  return any ? try_pages(maker, choice, device_bytes, effort) : status;
}

/* Where everything can be kept nothing moves, with whatever page size that is. */
static mr_status try_keeping(struct mr_maker *maker) {
  uint64_t device_bytes = maker->problem->budget_bytes[MR_TIER_DEVICE];
  for (uint32_t i = 0; i < maker->choice_count && !maker->plan->fits; i++) {
    struct mr_draft *draft = NULL;
    const struct mr_page_choice *pages = &maker->choices[i];
    if (pages->wasteful) continue;
    mr_status status = mr_maker_draft(maker, i, &draft);
    if (status != MR_OK) {
      return status;
    }
    /* Smaller pages waste less, but no more than larger ones may. */
    if ((double)device_bytes < (1 - MR_MOST_PAGE_WASTE) * (double)maker->footprint_bytes[i]) break;
    if (device_bytes < maker->footprint_bytes[i]) continue;
    status = try_pages(maker, i, device_bytes, MR_EFFORT_FIRST);
    if (status != MR_OK) {
      return status;
    }
  }
  return MR_OK;
}

mr_status mr_maker_open_bound(struct mr_maker *maker) {
  const struct mr_draft *draft = &maker->drafts[maker->footprint_choice];
  bool opened = maker->bound.cut_count > 0;
  return opened ? MR_OK : mr_bound_init(&maker->bound, &maker->point, &draft->liveness, false);
}

/* A plan that takes so long is of no use, or no better than the best. */
static double hopeless_seconds(const struct mr_maker *maker) {
  const struct mr_program_plan *best = maker->plan;
  double better_seconds = best->fits ? best->step_seconds * (1 - MR_ROUNDING) : INFINITY;
  return fmin(mr_bound_enough(maker->problem), better_seconds);
}

/* What no plan is faster than, as far as it tells whether any could be of use. */
static mr_status bound_at(struct mr_maker *maker, uint64_t device_bytes, double *seconds_out) {
  uint64_t budget_bytes[MR_TIER_COUNT];
  mr_status status = mr_maker_open_bound(maker);
  if (status != MR_OK) {
    return status;
  }
  memcpy(budget_bytes, maker->point.budget_bytes, sizeof budget_bytes);
  budget_bytes[MR_TIER_DEVICE] = device_bytes;
  return mr_bound_seconds(&maker->bound, budget_bytes, hopeless_seconds(maker), seconds_out);
}

/* Whether more must be somewhere at once than all tiers have room for: false before. */
static mr_status find_want(struct mr_maker *maker, bool *wants_out) {
  const struct mr_plan_problem *problem = maker->problem;
  if (maker->footprint_bytes[maker->footprint_choice] <= problem->budget_bytes[MR_TIER_DEVICE]) {
    return MR_OK;
  }
  mr_status status = mr_maker_open_bound(maker);
  *wants_out = status == MR_OK && mr_bound_least_bytes(&maker->bound) > mr_plan_room_bytes(problem);
  return status;
}

void mr_plan_name_largest_op(struct mr_program_plan *plan) {
  for (uint32_t k = 0; k < plan->program->op_count; k++) {
    uint64_t bytes = mr_op_working_bytes(plan->program, k, 1);
    if (bytes > plan->largest_op_bytes) {
      plan->largest_op = k;
      plan->largest_op_bytes = bytes;
    }
  }
}

/* The foot of the ladder: the smallest budget that would do, where the problem has as much. It was
 * found with the least effort, by which it does where more wants more of a lower tier. */
static mr_status try_smallest(struct mr_maker *maker, enum mr_draft_effort effort) {
  const struct mr_smallest *smallest = &maker->smallest;
  mr_status status = mr_maker_find_smallest(maker);
  bool enough = smallest->bytes != UINT64_MAX &&
                smallest->bytes <= maker->problem->budget_bytes[MR_TIER_DEVICE];
  if (status == MR_OK && enough) {
    status = try_pages(maker, smallest->choice, smallest->bytes, effort);
  }
  if (status == MR_OK && enough && !maker->plan->fits) {
    status = try_pages(maker, smallest->choice, smallest->bytes, MR_EFFORT_FIT);
  }
  return status;
}

/* A rung of the ladder, and the maker that plans it: its drafts are of one thread at a time. */
struct rung {
  struct mr_maker *maker;
  uint64_t device_bytes;
  double bound_seconds; /* 0: not found, as there was nothing to compare it with */
  struct mr_program_plan plan;
  mr_status status; /* one that was planned in vain failed in vain */
};

#define RUNGS_AT_ONCE 2u

/* Where on the ladder a maker is. */
struct descent {
  struct mr_maker *maker;
  struct mr_maker *beside; /* of the same problem, for a rung that is planned ahead */
  uint64_t device_bytes;   /* the next rung is the highest below it ... */
  uint32_t number;         /* ... and has this number, from the highest that the budget holds */
  bool ended;              /* no rung is left that could be better */
  struct rung rungs[RUNGS_AT_ONCE];
};

/* Whether a rung is hopeless by its bound, which is found once there is a plan to beat: that may be
 * after the rung was planned ahead. */
static mr_status judge_bound(struct mr_maker *maker, struct rung *rung, bool *hopeless_out) {
  mr_status status = MR_OK;
  if (!isinf(hopeless_seconds(maker)) && rung->bound_seconds == 0) {
    status = bound_at(maker, rung->device_bytes, &rung->bound_seconds);
  }
  *hopeless_out = rung->bound_seconds >= hopeless_seconds(maker);
  return status;
}

/* The next rung, unless the descent has ended. */
static mr_status find_rung(struct descent *descent, struct rung *rung) {
  struct mr_maker *maker = descent->maker;
  const struct mr_plan_problem *problem = maker->problem;
  uint64_t footprint_bytes = maker->footprint_bytes[maker->footprint_choice];
  bool tried_before = true;
  while (tried_before && !descent->ended) {
    bool whole = problem->whole_budget && descent->number == 0;
    descent->device_bytes = whole ? problem->budget_bytes[MR_TIER_DEVICE]
                                  : mr_ladder_below(footprint_bytes, descent->device_bytes);
    descent->ended = descent->device_bytes == 0 ||
                     descent->number == problem->search_from + problem->search_rounds;
    tried_before = descent->number++ < problem->search_from;
  }
  if (descent->ended) {
    return MR_OK;
  }
  *rung = (struct rung){.device_bytes = descent->device_bytes, .plan = {problem->program}};
  return judge_bound(maker, rung, &descent->ended);
}

static mr_status plan_rung(void *context, uint32_t index) {
  struct rung *rung = &((struct descent *)context)->rungs[index];
  rung->status = plan_budget(rung->maker, rung->device_bytes, MR_EFFORT_SEARCH, &rung->plan);
  return MR_OK;
}

/* Plans the next rung, and where a thread is to spare the one behind it, before it is known whether
 * that is wanted. */
static mr_status plan_rungs(struct descent *descent, uint32_t *count_out) {
  struct mr_crew *crew = descent->maker->problem->crew;
  uint32_t most = mr_crew_has_spare(crew) ? RUNGS_AT_ONCE : 1;
  mr_status status = MR_OK;
  *count_out = 0;
  while (status == MR_OK && *count_out < most) {
    struct rung *rung = &descent->rungs[*count_out];
    status = find_rung(descent, rung);
    if (descent->ended) break;
    rung->maker = *count_out == 0 ? descent->maker : descent->beside;
    ++*count_out;
  }
  return status == MR_OK ? mr_crew_run(crew, *count_out, plan_rung, descent) : status;
}

/* Looks at what was planned in the order of the rungs, as far as rungs are wanted. */
static mr_status judge_rungs(struct descent *descent, uint32_t count) {
  struct mr_maker *maker = descent->maker;
  for (uint32_t i = 0; i < count; i++) {
    struct rung *rung = &descent->rungs[i];
    bool fits = rung->plan.fits;
    bool hopeless = false;
    mr_status status = judge_bound(maker, rung, &hopeless);
    if (status != MR_OK || hopeless) {
      descent->ended = true;
      return status;
    }
    if (rung->status != MR_OK) {
      return rung->status;
    }
    judge(maker, &rung->plan);
    rung->plan = (struct mr_program_plan){0};
    if (!fits) {
      descent->ended = true;
      return isinf(maker->problem->useful_seconds) ? MR_OK : try_smallest(maker, MR_EFFORT_SEARCH);
    }
  }
  return MR_OK;
}

/* Down the ladder from the highest rung that the budget holds, as long as a lower one could still
 * be better: see plan.h. */
static mr_status climb_down(struct mr_maker *maker) {
  uint64_t budget_bytes = maker->problem->budget_bytes[MR_TIER_DEVICE];
  struct mr_maker beside;
  maker_init(&beside, maker->problem, NULL);
  struct descent descent = {.maker = maker,
                            .beside = &beside,
                            .device_bytes = mr_min_u64(budget_bytes, UINT64_MAX - 1) + 1};
  mr_status status = MR_OK;
  while (status == MR_OK && !descent.ended) {
    uint32_t count = 0;
    status = plan_rungs(&descent, &count);
    if (status == MR_OK) {
      status = judge_rungs(&descent, count);
    }
    for (uint32_t i = 0; i < count; i++) {
      mr_plan_clear(&descent.rungs[i].plan);
    }
  }
  maker_fini(&beside);
  return status;
}

/* Says of a problem that does not fit what would do, and which tier is short. */
static mr_status refuse(struct mr_maker *maker) {
  const uint64_t *budget = maker->problem->budget_bytes;
  struct mr_program_plan *plan = maker->plan;
  const struct mr_smallest *smallest = &maker->smallest;
  mr_status status = mr_maker_find_smallest(maker);
  plan->smallest_device_bytes = smallest->bytes;
  plan->smallest_host_bytes = smallest->host_bytes;
  plan->smallest_nvme_bytes = smallest->nvme_bytes;
  plan->page_bytes = maker->choices[smallest->choice].page_bytes;
  plan->small_bytes = maker->drafts[smallest->choice].small_bytes;
  plan->failed_tier = MR_TIER_DEVICE;
  if (smallest->least_bytes <= budget[MR_TIER_DEVICE]) {
    plan->failed_tier = budget[MR_TIER_NVME] > 0 ? MR_TIER_NVME : MR_TIER_HOST;
  }
  return status;
}

/* Where no plan is made, the pages that one would have. */
static mr_status name_pages(struct mr_maker *maker) {
  uint32_t choice = 0;
  mr_status status = choose_pages(maker, maker->problem->budget_bytes[MR_TIER_DEVICE], &choice);
  choice = choice < maker->choice_count ? choice : maker->choice_count - 1;
  maker->plan->page_bytes = maker->choices[choice].page_bytes;
  return status;
}

uint64_t mr_program_plan_moved_bytes(const struct mr_program_plan *plan) {
  uint64_t bytes = 0;
  for (uint32_t link = 0; link < MR_LINK_COUNT; link++) {
    bytes += plan->moved_bytes[link];
  }
  return bytes;
}

bool mr_program_plan_moves_nothing(const struct mr_program_plan *plan) {
  return plan->fits && mr_program_plan_moved_bytes(plan) == 0;
}

/* Everything that may lead to a plan of use, and where there is none, what would do. */
static mr_status try_all(struct mr_maker *maker, bool *useless_out) {
  const struct mr_plan_problem *problem = maker->problem;
  uint64_t device_bytes = problem->budget_bytes[MR_TIER_DEVICE];
  bool searched = problem->policy == MR_POLICY_SEARCHED && problem->search_rounds > 0;
  enum mr_draft_effort effort = searched ? MR_EFFORT_SEARCH : MR_EFFORT_FIRST;
  bool any = isinf(problem->useful_seconds); /* any that fits will do: what would is not asked */
  mr_status status = try_keeping(maker);
  if (status == MR_OK && searched && !mr_program_plan_moves_nothing(maker->plan)) {
    status = climb_down(maker);
  }
  bool fits = maker->plan->fits;
  bool useless = !fits && (problem->search_from > 0 || (any && searched));
  if (status == MR_OK && !useless && !fits) {
    status = try_budget(maker, device_bytes, effort);
    fits = maker->plan->fits;
  }
  useless = useless || (!fits && any);
  if (status == MR_OK && !useless && !fits) {
    status = try_smallest(maker, effort);
  }
  if (status == MR_OK && !useless && !maker->plan->fits) {
    status = refuse(maker);
  }
  *useless_out = useless;
  return status;
}

static mr_status make(struct mr_maker *maker) {
  const struct mr_plan_problem *problem = maker->problem;
  struct mr_program_plan *plan = maker->plan;
  struct mr_draft *draft = NULL;
  double bound_seconds = 0;
  bool useless = problem->footprint_alone;
  bool wants_room = false;
  mr_status status = mr_maker_draft(maker, maker->footprint_choice, &draft);
  if (status == MR_OK && !useless && mr_plan_must_be_useful(problem)) {
    status = bound_at(maker, problem->budget_bytes[MR_TIER_DEVICE], &bound_seconds);
    useless = bound_seconds >= hopeless_seconds(maker);
  }
  if (status == MR_OK && !useless && problem->terse) {
    status = find_want(maker, &wants_room);
  }
  if (status == MR_OK && !useless && !wants_room) {
    status = try_all(maker, &useless);
  }
  if (status == MR_OK && (wants_room || problem->footprint_alone)) {
    status = name_pages(maker);
  }
  plan->smallest_device_bytes = wants_room ? UINT64_MAX : plan->smallest_device_bytes;
  plan->useless = useless;
  plan->footprint_bytes = maker->footprint_bytes[maker->footprint_choice];
  mr_plan_name_largest_op(plan);
  return status;
}

mr_status mr_plan_make_placed(const struct mr_plan_problem *problem, struct mr_program_plan *plan) {
  struct mr_maker maker;
  maker_init(&maker, problem, plan);
  mr_status status = make(&maker);
  maker_fini(&maker);
  return status;
}

mr_status mr_program_plan_make(const struct mr_plan_problem *problem,
                               struct mr_program_plan **plan_out) {
  mr_status status = mr_plan_check_problem(problem);
  if (status != MR_OK) {
    return status;
  }
  struct mr_program_plan *plan = mr_allocate(1, sizeof *plan);
  if (plan == NULL) {
    return MR_NO_MEMORY;
  }
  plan->program = problem->program;
  status = mr_plan_for_machines(problem, plan);
  if (status != MR_OK) {
    mr_program_plan_destroy(plan);
    return status;
  }
  *plan_out = plan;
  return MR_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Candidates against each other, and the plans of the best. */
#include "runtime/finalists.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* Plans without search tell about which candidates are good, within some per cent: of a dozen, the
 * one that is best with search takes 1 % less time on average than that of three, and up to 3 %. So
 * many are searched as have so many ops together, and fewer where the program is long, or where ops
 * run on a host beside the device, since each is then planned in a dozen ways. Planning takes up to
 * a second; for the largest preset beside such a host two and a half. */
#define SEARCHED_OPS        9000u
#define SEARCHED_OPS_BESIDE 2000u
#define LONG_OPS            1500u
#define LONG_SEARCHED       2u
#define FEW_FINALISTS       3u /* in these two cases */
/* The best of them go down so many budgets of the ladder, by their ops: a few, long programs none.
 * Short ones are planned for many machines on the way (plan/machines.c), and go down further. */
#define DOWN_FINALISTS   3u
#define BUDGET_OPS       2200u
#define SHORT_BUDGET_OPS 6000u
#define MAX_BUDGETS      32u
_Static_assert(SHORT_BUDGET_OPS / MR_MACHINE_OPS >= MR_MACHINE_ROUNDS &&
                   MAX_BUDGETS >= MR_MACHINE_ROUNDS,
               "short programs are planned for many machines");

/* Whether ops may run on a host beside the device. */
static bool host_runs(const struct mr_plan_problem *problem) {
  return problem->host_apart && problem->host_bytes_per_second > 0 &&
         problem->budget_bytes[MR_TIER_HOST] > 0;
}

void mr_finalists_init(struct mr_finalists *finalists, struct mr_plan *plan, bool brief) {
  uint32_t ops = plan->graph->op_count;
  bool beside = host_runs(&plan->problem);
  uint32_t searched = (beside ? SEARCHED_OPS_BESIDE : SEARCHED_OPS) / ops;
  bool is_long = ops > LONG_OPS;
  uint32_t limit = is_long ? LONG_SEARCHED : MR_FINALISTS;
  searched = searched < limit ? searched : limit;
  *finalists = (struct mr_finalists){.plan = plan,
                                     .brief = brief,
                                     .most = beside || is_long ? FEW_FINALISTS : MR_FINALISTS,
                                     .searched = brief || searched == 0 ? 1 : searched};
}

void mr_candidate_fini(struct mr_candidate *candidate) {
  mr_program_plan_destroy(candidate->layout);
  mr_graph_destroy(candidate->rewritten);
  free(candidate->op_seconds);
  *candidate = (struct mr_candidate){0};
}

/* The pages that a plan takes, or those of the smallest budget where it does not fit; 0: no budget
 * would do. */
static uint64_t page_count(const struct mr_program_plan *layout) {
  uint64_t smallest = layout->smallest_device_bytes;
  if (layout->fits) {
    return layout->device_page_count;
  }
  return smallest == UINT64_MAX ? 0 : smallest / layout->page_bytes;
}

/* Budgets of the ladder to be tried: so many from the one numbered `from` down. */
struct ladder {
  uint32_t from;
  uint32_t budgets;
  const bool *on_host; /* NULL: the planner chooses */
};

/* Plans with pages large enough for the device to map one by one, also where nothing fits: the
 * smallest budget is one that a plan can be made for. */
static mr_status make_layout(const struct mr_finalists *finalists,
                             const struct mr_candidate *candidate, const struct ladder *ladder,
                             struct mr_program_plan **layout_out) {
  struct mr_plan_problem problem = finalists->plan->problem;
  const struct mr_program_plan *best = finalists->best[0].layout;
  problem.program = candidate->program;
  problem.op_seconds = candidate->op_seconds;
  problem.on_host = ladder->on_host;
  problem.search_from = ladder->from;
  problem.search_rounds = problem.policy == MR_POLICY_SEARCHED ? ladder->budgets : 0;
  problem.useful_seconds = best != NULL && best->fits ? best->step_seconds : 0;
  problem.page_bytes = finalists->page_bytes;
  for (;;) {
    struct mr_program_plan *layout = NULL;
    mr_status status = mr_program_plan_make(&problem, &layout);
    if (status != MR_OK) {
      return status;
    }
    if (layout->useless || page_count(layout) <= finalists->max_page_count ||
        layout->page_bytes >= MR_DEVICE_HUGE_PAGE_BYTES) {
      *layout_out = layout;
      return MR_OK;
    }
    problem.page_bytes = 2 * layout->page_bytes;
    mr_program_plan_destroy(layout);
  }
}

mr_status mr_finalists_plan(const struct mr_finalists *finalists, struct mr_candidate *candidate) {
  return make_layout(finalists, candidate, &(struct ladder){0}, &candidate->layout);
}

static bool better(const struct mr_program_plan *a, const struct mr_program_plan *b) {
  if (a->fits != b->fits) {
    return a->fits;
  }
  if (!a->fits) {
    return a->smallest_device_bytes < b->smallest_device_bytes;
  }
  return a->step_seconds < b->step_seconds ||
         (a->step_seconds == b->step_seconds &&
          mr_program_plan_moved_bytes(a) < mr_program_plan_moved_bytes(b));
}

void mr_finalists_add(struct mr_finalists *finalists, struct mr_candidate *candidate) {
  uint32_t place = finalists->count;
  while (place > 0 && better(candidate->layout, finalists->best[place - 1].layout)) {
    place--;
  }
  bool full = finalists->count == finalists->most;
  uint32_t last = finalists->most - (full && finalists->best[finalists->most - 1].stays ? 2 : 1);
  if (candidate->layout->useless || (full && place > last)) {
    mr_candidate_fini(candidate);
    return;
  }
  if (full) {
    mr_candidate_fini(&finalists->best[last]);
    finalists->count--;
    memmove(&finalists->best[last], &finalists->best[last + 1],
            (finalists->count - last) * sizeof *candidate);
  }
  memmove(&finalists->best[place + 1], &finalists->best[place],
          (finalists->count - place) * sizeof *candidate);
  finalists->best[place] = *candidate;
  finalists->count++;
}

/* Takes a finalist down the ladder, with ops on the host as they are in its plan. */
static mr_status go_down(const struct mr_finalists *finalists, const struct mr_candidate *candidate,
                         uint32_t budgets, struct mr_program_plan **layout_out) {
  const struct mr_program_plan *layout = candidate->layout;
  bool *on_host = mr_allocate(candidate->program->tensor_count, sizeof *on_host);
  if (on_host == NULL) {
    return MR_NO_MEMORY;
  }
  for (uint32_t i = 0; i < layout->instance_count; i++) {
    if (layout->instances[i].on_host) {
      on_host[layout->instances[i].tensor] = true;
    }
  }
  mr_status status =
      make_layout(finalists, candidate,
                  &(struct ladder){.from = 1, .budgets = budgets, .on_host = on_host}, layout_out);
  free(on_host);
  return status;
}

/* Takes a finalist's new layout where it is better. */
static void take_layout(struct mr_candidate *candidate, struct mr_program_plan *layout) {
  if (layout->useless || !better(layout, candidate->layout)) {
    mr_program_plan_destroy(layout);
    return;
  }
  mr_program_plan_destroy(candidate->layout);
  candidate->layout = layout;
}

/* The first so many in order, the best first; equals stay in theirs. */
static void sort(struct mr_finalists *finalists, uint32_t count) {
  for (uint32_t i = 1; i < count; i++) {
    struct mr_candidate candidate = finalists->best[i];
    uint32_t at = i;
    for (; at > 0 && better(candidate.layout, finalists->best[at - 1].layout); at--) {
      finalists->best[at] = finalists->best[at - 1];
    }
    finalists->best[at] = candidate;
  }
}

bool mr_finalists_settled(const struct mr_finalists *finalists) {
  const struct mr_candidate *best = &finalists->best[0];
  bool any_will_do = finalists->plan->problem.policy == MR_POLICY_FIRST;
  bool nothing_to_gain = best->program->op_count == finalists->plan->graph->op_count &&
                         mr_program_plan_moved_bytes(best->layout) == 0;
  return best->layout->fits && (any_will_do || nothing_to_gain);
}

/* A turn of the finalists: with search, then down the ladder. */
struct turn {
  const struct mr_finalists *finalists;
  uint32_t budgets; /* of the ladder below the highest; 0: that one, with search */
  struct mr_program_plan *layouts[MR_FINALISTS];
};

static mr_status plan_finalist(void *context, uint32_t index) {
  struct turn *turn = context;
  const struct mr_candidate *candidate = &turn->finalists->best[index];
  if (!candidate->layout->fits) {
    return MR_OK;
  }
  return turn->budgets == 0
             ? make_layout(turn->finalists, candidate, &(struct ladder){.budgets = 1},
                           &turn->layouts[index])
             : go_down(turn->finalists, candidate, turn->budgets, &turn->layouts[index]);
}

/* Plans the first finalists side by side; the best is the first then. */
static mr_status take_turn(struct mr_finalists *finalists, uint32_t count, uint32_t budgets) {
  struct turn turn = {.finalists = finalists, .budgets = budgets};
  if (mr_finalists_settled(finalists)) {
    return MR_OK;
  }
  mr_status status = mr_crew_run(finalists->plan->problem.crew, count, plan_finalist, &turn);
  for (uint32_t i = 0; i < count; i++) {
    if (status == MR_OK && turn.layouts[i] != NULL) {
      take_layout(&finalists->best[i], turn.layouts[i]);
    } else {
      mr_program_plan_destroy(turn.layouts[i]);
    }
  }
  sort(finalists, count);
  return status;
}

uint32_t mr_finalists_affordable(const struct mr_finalists *finalists, uint64_t ops) {
  const struct mr_plan_problem *problem = &finalists->plan->problem;
  bool twice = host_runs(problem) && problem->budget_bytes[MR_TIER_NVME] > 0;
  return (uint32_t)(ops / finalists->plan->graph->op_count / (twice ? 2 : 1));
}

/* Budgets of the ladder below the highest. */
static uint32_t budgets_below(const struct mr_finalists *finalists) {
  uint32_t ops = finalists->plan->graph->op_count;
  if (finalists->brief || ops > LONG_OPS) {
    return 0;
  }
  uint32_t budgets =
      mr_finalists_affordable(finalists, ops > MR_MACHINE_OPS ? BUDGET_OPS : SHORT_BUDGET_OPS);
  return budgets < MAX_BUDGETS ? budgets : MAX_BUDGETS;
}

mr_status mr_finalists_search(struct mr_finalists *finalists) {
  uint32_t count = finalists->count;
  uint32_t searched = count < finalists->searched ? count : finalists->searched;
  uint32_t down = searched < DOWN_FINALISTS ? searched : DOWN_FINALISTS;
  uint32_t budgets = budgets_below(finalists);
  mr_status status = take_turn(finalists, searched, 0);
  return status == MR_OK && budgets > 0 ? take_turn(finalists, down, budgets) : status;
}

void mr_finalists_drop(struct mr_finalists *finalists) {
  while (finalists->count > 0) {
    mr_candidate_fini(&finalists->best[--finalists->count]);
  }
}

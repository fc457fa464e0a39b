/* SPDX-License-Identifier: Apache-2.0 */
/* Candidates against each other, and the plans of the best. */
#include "runtime/finalists.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* Programs of more ops search one finalist alone, at the whole budget; others go down so many
 * budgets of the ladder, by their ops, so that planning the largest preset takes about a second. */
#define FINALIST_OPS 1500u
#define MAX_BUDGETS  32u
#define BUDGET_OPS   6000u

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
  bool full = finalists->count == MR_FINALISTS;
  uint32_t last = MR_FINALISTS - (full && finalists->best[MR_FINALISTS - 1].stays ? 2 : 1);
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

/* Takes a finalist's new layout where it is better, and the finalist to the front where it is the
 * best then. */
static void take_layout(struct mr_finalists *finalists, uint32_t finalist,
                        struct mr_program_plan *layout) {
  struct mr_candidate *candidate = &finalists->best[finalist];
  if (layout->useless || !better(layout, candidate->layout)) {
    mr_program_plan_destroy(layout);
    return;
  }
  mr_program_plan_destroy(candidate->layout);
  candidate->layout = layout;
  if (better(layout, finalists->best[0].layout)) {
    struct mr_candidate best = *candidate;
    *candidate = finalists->best[0];
    finalists->best[0] = best;
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
      take_layout(finalists, i, turn.layouts[i]);
    } else {
      mr_program_plan_destroy(turn.layouts[i]);
    }
  }
  return status;
}

uint32_t mr_finalists_affordable(const struct mr_finalists *finalists, uint64_t ops) {
  const struct mr_plan_problem *problem = &finalists->plan->problem;
  bool host_runs = problem->host_apart && problem->host_bytes_per_second > 0 &&
                   problem->budget_bytes[MR_TIER_HOST] > 0;
  bool twice = host_runs && problem->budget_bytes[MR_TIER_NVME] > 0;
  return (uint32_t)(ops / finalists->plan->graph->op_count / (twice ? 2 : 1));
}

mr_status mr_finalists_search(struct mr_finalists *finalists) {
  bool brief = finalists->brief;
  bool is_long = finalists->plan->graph->op_count > FINALIST_OPS;
  uint32_t affordable = mr_finalists_affordable(finalists, BUDGET_OPS);
  uint32_t budgets = is_long || brief ? 0 : affordable < MAX_BUDGETS ? affordable : MAX_BUDGETS;
  uint32_t count = is_long || brief ? 1 : finalists->count;
  mr_status status = take_turn(finalists, count, 0);
  return status == MR_OK && budgets > 0 ? take_turn(finalists, count, budgets) : status;
}

void mr_finalists_drop(struct mr_finalists *finalists) {
  while (finalists->count > 0) {
    mr_candidate_fini(&finalists->best[--finalists->count]);
  }
}

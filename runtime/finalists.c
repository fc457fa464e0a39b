/* SPDX-License-Identifier: Apache-2.0 */
/* Candidates against each other, and the plans of the best. */
#include "runtime/finalists.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "runtime/amend.h"
#include "runtime/effort.h"
#include "runtime/vary.h"

/* Of the time of ops: moves of pages that take no more are not worth another search. */
#define FEW_MOVES 5e-4
/* Of the time that no plan can beat: one that takes no longer is not worth looking beyond. */
#define GOOD_ENOUGH 2e-4
#define MAX_BUDGETS 1000u /* of the ladder: all there are */
_Static_assert(MAX_BUDGETS >= MR_MACHINE_ROUNDS, "small programs go down all of it");

/* Beside a host so many finalists are planned with updates in the next step as have so many ops
 * together: where there is no NVMe none of the longest, of which one candidate is searched. A plan
 * without search tells too little of it: what came 0.4 % ahead was 20 % behind with search. */
#define DEFERRED_OPS 6000u
/* So many aims are tried as have so many ops together. */
#define AIM_OPS 1200u
#define PLACED  3u /* finalists at most */
#define WHOLE   2u /* the same; of a large program one */
#define AMENDED 3u /* the same */

/*
 * What a plan is made for in place of the problem at hand, on which it is then judged: a lower
 * budget of the ladder, slower or faster links. Searches miss some per cent here and there, and
 * what one misses is often found for a machine that is almost the same: so plans of small programs
 * are half as often slower with more to work with. The first of the list find most. Copies at half
 * their rate are among the three that one affords beside a device and NVMe: without them one of 4
 * layers was 11 % slower with copies twice as fast.
 */
struct aim {
  uint32_t from;      /* budgets of the ladder, from the highest, that are passed over */
  uint32_t budgets;   /* that are tried from there; 0: one, without search */
  double copy, drive; /* times the rates of the host's links, and of NVMe */
};
static const struct aim aims[] = {
    {1, 1, 1, 1},     {0, 1, 0.5, 1},   {0, 1, 1, 2}, {0, 1, 0.8, 1},   {2, 1, 1, 1},
    {0, 1, 1, 0.8},   {3, 1, 1, 1},     {4, 1, 1, 1}, {0, 1, 2, 1},     {0, 1, 1, 0.5},
    {0, 1, 0.125, 1}, {0, 1, 1, 8},     {0, 1, 8, 1}, {0, 1, 1, 0.125}, {0, 1, 0.125, 8},
    {0, 1, 8, 8},     {0, 1, 8, 0.125},
};

bool mr_finalists_host_runs(const struct mr_finalists *finalists) {
  const struct mr_plan_problem *problem = &finalists->plan->problem;
  return problem->host_apart && problem->host_bytes_per_second > 0 &&
         problem->budget_bytes[MR_TIER_HOST] > 0;
}

static enum mr_program_size size_of(const struct mr_finalists *finalists) {
  return mr_program_size_of(finalists->plan->graph->op_count);
}

static bool is_small(const struct mr_finalists *finalists) {
  return size_of(finalists) == MR_PROGRAM_SMALL;
}

static bool is_large(const struct mr_finalists *finalists) {
  return size_of(finalists) == MR_PROGRAM_LARGE;
}

static const struct mr_effort *effort_of(const struct mr_finalists *finalists) {
  bool torn = finalists->torn;
  if (mr_finalists_host_runs(finalists)) {
    return mr_effort_of(size_of(finalists),
                        torn ? MR_PROGRAM_BESIDE_ABOVE_NVME : MR_PROGRAM_BESIDE_HOST);
  }
  bool apart = finalists->plan->problem.host_apart;
  return mr_effort_of(size_of(finalists), !apart ? MR_PROGRAM_PROCESSOR
                                          : torn ? MR_PROGRAM_ABOVE_BOTH
                                                 : MR_PROGRAM_ALONE);
}

void mr_finalists_init(struct mr_finalists *finalists, struct mr_plan *plan) {
  *finalists = (struct mr_finalists){.plan = plan};
  finalists->most = effort_of(finalists)->finalists;
  MR_ASSERT(finalists->most <= MR_FINALISTS);
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

bool mr_finalists_can_map(const struct mr_finalists *finalists,
                          const struct mr_program_plan *layout) {
  return page_count(layout) <= finalists->max_page_count ||
         layout->page_bytes >= MR_DEVICE_HUGE_PAGE_BYTES;
}

/* Whether the aim is the machine at hand. */
static bool is_at_hand(const struct aim *aim) {
  return aim->copy == 1 && aim->drive == 1;
}

static void set_links(struct mr_plan_problem *problem, const struct aim *aim) {
  for (mr_link l = 0; l < MR_LINK_COUNT; l++) {
    problem->link[l].bytes_per_second *= mr_link_is_nvme(l) ? aim->drive : aim->copy;
  }
  problem->nvme_mixed_bytes_per_second *= aim->drive;
}

/* Plans with pages large enough for the device to map one by one, also where nothing fits: the
 * smallest budget is one that a plan can be made for. on_host: NULL: the planner chooses. */
static mr_status make_layout(const struct mr_finalists *finalists,
                             const struct mr_candidate *candidate, const struct aim *aim,
                             const bool *on_host, struct mr_program_plan **layout_out) {
  struct mr_plan_problem problem = finalists->plan->problem;
  const struct mr_program_plan *best = finalists->best[0].layout;
  problem.program = candidate->program;
  problem.op_seconds = candidate->op_seconds;
  problem.on_host = on_host;
  problem.search_from = aim->from;
  problem.search_rounds = problem.policy == MR_POLICY_SEARCHED ? aim->budgets : 0;
  problem.whole_budget = finalists->whole;
  problem.useful_seconds = best != NULL && best->fits ? best->step_seconds : 0;
  problem.page_bytes = finalists->page_bytes;
  problem.terse = !finalists->telling;
  struct mr_plan_problem at_hand = problem;
  if (!is_at_hand(aim)) {
    set_links(&problem, aim);
    problem.useful_seconds = INFINITY; /* what is of use here need not be there */
  }
  for (;;) {
    struct mr_program_plan *layout = NULL;
    mr_status status = mr_program_plan_make(&problem, &layout);
    if (status == MR_OK && layout->fits && !is_at_hand(aim)) {
      status = mr_program_plan_share_drive(&at_hand, layout);
    }
    if (status != MR_OK) {
      mr_program_plan_destroy(layout);
      return status;
    }
    if (layout->useless || mr_finalists_can_map(finalists, layout)) {
      *layout_out = layout;
      return MR_OK;
    }
    problem.page_bytes = 2 * layout->page_bytes;
    mr_program_plan_destroy(layout);
  }
}

mr_status mr_finalists_plan(const struct mr_finalists *finalists, struct mr_candidate *candidate,
                            const bool *on_host) {
  const struct aim unsearched = {.copy = 1, .drive = 1};
  return make_layout(finalists, candidate, &unsearched, on_host, &candidate->layout);
}

bool mr_candidate_is_better(const struct mr_program_plan *a, const struct mr_program_plan *b) {
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
  while (place > 0 &&
         mr_candidate_is_better(candidate->layout, finalists->best[place - 1].layout)) {
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

void mr_candidate_list_on_host(const struct mr_candidate *candidate, bool *on_host) {
  const struct mr_program_plan *layout = candidate->layout;
  for (uint32_t i = 0; i < layout->instance_count; i++) {
    if (layout->instances[i].on_host) {
      on_host[layout->instances[i].tensor] = true;
    }
  }
}

/* Whether updates stay in their step, for the host to run them, while others are deferred. */
static bool has_staying(const struct mr_candidate *candidate) {
  return candidate->program->staying_count > 0;
}

/* The first of the finalists of which some updates stay, or of those of which none do. */
static bool is_first_of_kind(const struct mr_finalists *finalists,
                             const struct mr_candidate *candidate) {
  const struct mr_candidate *first = finalists->best;
  while (first < candidate && has_staying(first) != has_staying(candidate)) {
    first++;
  }
  return first == candidate;
}

/* Whether search chooses anew which ops run on the host, not the plan without search: beside a
 * device that is apart, in large programs once, and in small programs for all. Where the processor
 * computes both mostly choose alike, and searching one choice, not three, takes a third: it is left
 * to the best few. So it is beside a host where updates stay for it to run, or where there is NVMe
 * too: the best of either kind are asked. A host without room leaves nothing to choose. */
static bool places_anew(const struct mr_finalists *finalists, const struct mr_candidate *candidate,
                        const struct aim *aim) {
  bool again = finalists->whole && finalists->turned;
  bool at_hand = aim->from == 0 && is_at_hand(aim) && !again;
  bool apart = finalists->plan->problem.host_apart;
  if (finalists->plan->problem.budget_bytes[MR_TIER_HOST] == 0) {
    return true;
  }
  if (is_small(finalists)) {
    return at_hand;
  }
  bool costly = has_staying(candidate) || finalists->plan->problem.budget_bytes[MR_TIER_NVME] > 0;
  if (mr_finalists_host_runs(finalists) && costly && !is_first_of_kind(finalists, candidate)) {
    return false;
  }
  return at_hand && (apart ? !(is_large(finalists) && finalists->turned) : finalists->placing);
}

/* Plans a finalist for another aim. */
static mr_status aim_at(const struct mr_finalists *finalists, const struct mr_candidate *candidate,
                        const struct aim *aim, struct mr_program_plan **layout_out) {
  if (places_anew(finalists, candidate, aim)) {
    return make_layout(finalists, candidate, aim, NULL, layout_out);
  }
  bool *on_host = mr_allocate(candidate->program->tensor_count, sizeof *on_host);
  if (on_host == NULL) {
    return MR_NO_MEMORY;
  }
  mr_candidate_list_on_host(candidate, on_host);
  mr_status status = make_layout(finalists, candidate, aim, on_host, layout_out);
  free(on_host);
  return status;
}

/* Takes a finalist's new layout where it is better. */
static void take_layout(struct mr_candidate *candidate, struct mr_program_plan *layout,
                        bool whole) {
  if (layout->useless || !mr_candidate_is_better(layout, candidate->layout)) {
    mr_program_plan_destroy(layout);
    return;
  }
  mr_program_plan_destroy(candidate->layout);
  candidate->layout = layout;
  candidate->whole = whole;
}

/* The first so many in order, the best first; equals stay in theirs. */
static void sort(struct mr_finalists *finalists, uint32_t count) {
  for (uint32_t i = 1; i < count; i++) {
    struct mr_candidate candidate = finalists->best[i];
    uint32_t at = i;
    for (; at > 0 && mr_candidate_is_better(candidate.layout, finalists->best[at - 1].layout);
         at--) {
      finalists->best[at] = finalists->best[at - 1];
    }
    finalists->best[at] = candidate;
  }
}

/* What moves of pages take of a step. */
static double bind_seconds(const struct mr_finalists *finalists,
                           const struct mr_program_plan *layout) {
  uint64_t moves = 0;
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    for (uint32_t i = 0; i < layout->instruction_count[q]; i++) {
      moves += layout->instructions[q][i].bind_moves;
    }
  }
  return (double)moves * finalists->plan->problem.bind_seconds_per_move;
}

/* Whether no plan can be better than this one of the program, but for what it moves: the device
 * does nothing but what it must, all the time, and moves some pages in next to none. Beside a host
 * that is apart it could do less. */
static bool is_unbeatable(const struct mr_finalists *finalists, const struct mr_graph *program,
                          const struct mr_program_plan *layout) {
  double move_seconds = bind_seconds(finalists, layout);
  double least_seconds = layout->compute_seconds * (1 + MR_ROUNDING) + move_seconds;
  bool never_waits = layout->step_seconds <= least_seconds && !mr_finalists_host_runs(finalists);
  return layout->fits && program->op_count == finalists->plan->graph->op_count &&
         move_seconds <= FEW_MOVES * layout->compute_seconds &&
         (mr_program_plan_moved_bytes(layout) == 0 || never_waits);
}

bool mr_finalists_settled(const struct mr_finalists *finalists) {
  const struct mr_candidate *best = &finalists->best[0];
  bool any_will_do = finalists->plan->problem.policy == MR_POLICY_FIRST;
  double good_seconds = finalists->least_seconds * (1 + GOOD_ENOUGH);
  return best->layout->fits && (any_will_do || best->layout->step_seconds <= good_seconds ||
                                is_unbeatable(finalists, best->program, best->layout));
}

/* A turn of the finalists. */
struct turn {
  const struct mr_finalists *finalists;
  const struct aim *aim;
  struct mr_program_plan *layouts[MR_FINALISTS];
  _Atomic uint32_t last; /* the first of them whose plan is unbeatable, as far as is known */
};

/* Those behind an unbeatable one are left out, or were planned in vain: which of the two depends on
 * the threads, but no plan does. */
static mr_status plan_finalist(void *context, uint32_t index) {
  struct turn *turn = context;
  const struct mr_candidate *candidate = &turn->finalists->best[index];
  struct mr_program_plan **layout = &turn->layouts[index];
  uint32_t last = atomic_load(&turn->last);
  if (!candidate->layout->fits || index > last) {
    return MR_OK;
  }
  mr_status status = aim_at(turn->finalists, candidate, turn->aim, layout);
  if (status == MR_OK && !(*layout)->useless &&
      is_unbeatable(turn->finalists, candidate->program, *layout)) {
    while (index < last && !atomic_compare_exchange_weak(&turn->last, &last, index)) {
    }
  }
  return status;
}

/* Plans the first finalists side by side; the best is the first then. */
static mr_status take_turn(struct mr_finalists *finalists, uint32_t count, const struct aim *aim) {
  struct turn turn = {.finalists = finalists, .aim = aim, .last = count};
  if (mr_finalists_settled(finalists)) {
    return MR_OK;
  }
  mr_status status = mr_crew_run(finalists->plan->problem.crew, count, plan_finalist, &turn);
  uint32_t last = atomic_load(&turn.last);
  for (uint32_t i = 0; i < count; i++) {
    if (status == MR_OK && turn.layouts[i] != NULL && i <= last) {
      take_layout(&finalists->best[i], turn.layouts[i], finalists->whole);
    } else {
      mr_program_plan_destroy(turn.layouts[i]);
    }
  }
  sort(finalists, count);
  return status;
}

uint32_t mr_finalists_affordable(const struct mr_finalists *finalists, uint64_t ops) {
  uint64_t nvme_bytes = finalists->plan->problem.budget_bytes[MR_TIER_NVME];
  bool twice = mr_finalists_host_runs(finalists) && nvme_bytes > 0;
  return (uint32_t)(ops / finalists->plan->graph->op_count / (twice ? 2 : 1));
}

uint32_t mr_finalists_deferred(const struct mr_finalists *finalists) {
  bool drives = finalists->plan->problem.budget_bytes[MR_TIER_NVME] > 0;
  uint32_t affordable = mr_finalists_affordable(finalists, DEFERRED_OPS);
  uint32_t most = (uint32_t)mr_max_u64(affordable, drives ? 1 : 0);
  bool all = !mr_finalists_host_runs(finalists) || most > finalists->count;
  return all ? finalists->count : most;
}

/* A program alone goes down the ladder. */
static mr_status go_down(struct mr_finalists *finalists) {
  uint32_t budgets = mr_finalists_affordable(finalists, effort_of(finalists)->budget_ops);
  struct aim lower = {1, budgets < MAX_BUDGETS ? budgets : MAX_BUDGETS, 1, 1};
  return budgets > 0 ? take_turn(finalists, 1, &lower) : MR_OK;
}

/* Whether the links whose rates the aim changes are there. */
static bool is_another(const struct mr_finalists *finalists, const struct aim *aim) {
  const struct mr_plan_problem *problem = &finalists->plan->problem;
  bool drives = problem->budget_bytes[MR_TIER_NVME] > 0;
  bool copies = problem->budget_bytes[MR_TIER_HOST] > 0 || (drives && problem->nvme_staged);
  return (aim->copy == 1 || copies) && (aim->drive == 1 || drives);
}

static mr_status try_aims(struct mr_finalists *finalists, uint32_t searched) {
  uint32_t most = effort_of(finalists)->aimed;
  uint32_t count = searched < most ? searched : most;
  uint32_t left = count > 0 ? mr_finalists_affordable(finalists, AIM_OPS) : 0;
  mr_status status = MR_OK;
  for (uint32_t i = 0; i < MR_COUNT_OF(aims) && left > 0 && status == MR_OK; i++) {
    if (!is_another(finalists, &aims[i])) continue;
    status = take_turn(finalists, count, &aims[i]);
    left--;
  }
  return status;
}

/* Beside a host, where some of the best one's updates stay, the best finalist of which none do, or
 * the other way round; NULL: there is none. With NVMe too it won in no job of bench/plan.c. */
static struct mr_candidate *find_counterpart(struct mr_finalists *finalists) {
  bool staying = has_staying(&finalists->best[0]);
  bool drives = finalists->plan->problem.budget_bytes[MR_TIER_NVME] > 0;
  struct mr_candidate *found = NULL;
  for (uint32_t i = 1; i < finalists->count && found == NULL; i++) {
    found = has_staying(&finalists->best[i]) != staying ? &finalists->best[i] : NULL;
  }
  return mr_finalists_host_runs(finalists) && !drives ? found : NULL;
}

static mr_status amend_one(const struct mr_finalists *finalists, struct mr_candidate *candidate,
                           uint32_t *plans_left) {
  bool may = candidate->layout->fits && !mr_finalists_settled(finalists);
  return may ? mr_amend(finalists, candidate, plans_left) : MR_OK;
}

static mr_status vary_best(struct mr_finalists *finalists) {
  struct mr_candidate *best = &finalists->best[0];
  uint32_t work = mr_finalists_affordable(finalists, effort_of(finalists)->vary_ops);
  bool brief = finalists->plan->graph->op_count <= MR_LONG_OPS;
  bool may = brief && best->layout->fits && !mr_finalists_settled(finalists);
  return may ? mr_vary(finalists, best, work / (finalists->halved ? 2 : 1)) : MR_OK;
}

/* Changes the best finalists in single decisions, and varies what is best then. Deferring some
 * updates, or none, is no such decision: so the best of the other kind has half as many plans for
 * itself. */
static mr_status amend(struct mr_finalists *finalists) {
  uint32_t count = finalists->count < AMENDED ? finalists->count : AMENDED;
  uint32_t plans_left = mr_finalists_affordable(finalists, effort_of(finalists)->amend_ops);
  plans_left /= finalists->halved ? 2 : 1;
  uint32_t half = plans_left / 2;
  struct mr_candidate *counterpart = find_counterpart(finalists);
  mr_status status = MR_OK;
  for (uint32_t i = 0; i < count && status == MR_OK; i++) {
    if (&finalists->best[i] != counterpart) {
      status = amend_one(finalists, &finalists->best[i], &plans_left);
    }
  }
  if (status == MR_OK && counterpart != NULL) {
    status = amend_one(finalists, counterpart, &half);
  }
  sort(finalists, finalists->count);
  finalists->amended = true;
  return status == MR_OK ? vary_best(finalists) : status;
}

/* Has the best of them choose which ops run on the host, where none has yet. */
static mr_status place_best(struct mr_finalists *finalists, uint32_t searched,
                            const struct aim *at_hand) {
  uint64_t room = finalists->plan->problem.budget_bytes[MR_TIER_HOST];
  uint32_t count = mr_finalists_affordable(finalists, effort_of(finalists)->placed_ops);
  count = count < PLACED ? count : PLACED;
  if (room == 0 || count == 0) {
    return MR_OK;
  }
  finalists->placing = true;
  mr_status status = take_turn(finalists, searched < count ? searched : count, at_hand);
  finalists->placing = false;
  return status;
}

/*
 * The ladder makes more memory never worse where a program is alone. It leaves up to 2 % of a
 * budget unused, which may be a tenth of what a device is short of: with NVMe beside a GPU steps
 * get up to 5 % shorter with all of it, 0.4 % on average where budgets lie right below a rung. So
 * candidates that compete are planned for the whole budget, too: the best of them, or, where a host
 * runs ops beside the device or the program is very long, so that each plan takes its time, all of
 * them, in place of the rung.
 */
static bool is_whole_at_once(const struct mr_finalists *finalists) {
  bool costly = finalists->plan->graph->op_count > MR_LONG_OPS || mr_finalists_host_runs(finalists);
  return costly && !is_small(finalists);
}

static mr_status try_whole(struct mr_finalists *finalists, uint32_t searched,
                           const struct aim *at_hand) {
  if (is_small(finalists) || finalists->whole) {
    return MR_OK;
  }
  uint32_t most = is_large(finalists) ? 1 : WHOLE;
  finalists->whole = true;
  mr_status status = take_turn(finalists, searched < most ? searched : most, at_hand);
  finalists->whole = false;
  return status;
}

/* How many of the finalists, the best first. Two are searched side by side, however long the
 * program is, in hardly more time than one: of 450 layers with NVMe alone beside a GPU steps get up
 * to 5.5 % shorter by the second. Beside a host the ways to plan one are made side by side. With
 * NVMe, where the host would do, the best are searched again: others gained in none of 180 jobs. */
static uint32_t searched_of(const struct mr_finalists *finalists) {
  const struct mr_effort *effort = effort_of(finalists);
  uint32_t least = mr_finalists_host_runs(finalists) ? 1 : 2;
  uint32_t affordable = effort->searched_ops / finalists->plan->graph->op_count;
  uint64_t most = mr_min_u64(affordable, effort->searched);
  bool again = finalists->amended && !is_small(finalists);
  return (uint32_t)mr_min_u64(finalists->count, again ? least : mr_max_u64(most, least));
}

mr_status mr_finalists_search(struct mr_finalists *finalists) {
  static const struct aim at_hand = {0, 1, 1, 1};
  finalists->whole = is_whole_at_once(finalists);
  uint32_t searched = searched_of(finalists);
  mr_status status = take_turn(finalists, searched, &at_hand);
  finalists->turned = true;
  if (status == MR_OK) {
    status = place_best(finalists, searched, &at_hand);
  }
  if (status == MR_OK) {
    status = try_whole(finalists, searched, &at_hand);
  }
  if (status != MR_OK) {
    return status;
  }
  if (finalists->count == 1) {
    return go_down(finalists);
  }
  status = try_aims(finalists, searched);
  return status == MR_OK && !finalists->amended ? amend(finalists) : status;
}

void mr_finalists_drop(struct mr_finalists *finalists) {
  while (finalists->count > 0) {
    mr_candidate_fini(&finalists->best[--finalists->count]);
  }
  finalists->turned = false;
  finalists->amended = false;
  finalists->whole = false;
}

struct mr_candidate mr_finalists_take_best(struct mr_finalists *finalists) {
  struct mr_candidate best = finalists->best[0];
  finalists->best[0] = (struct mr_candidate){0};
  mr_finalists_drop(finalists);
  return best;
}

void mr_finalists_exchange_best(struct mr_finalists *finalists, struct mr_candidate *other) {
  struct mr_candidate *best = &finalists->best[0];
  if (mr_candidate_is_better(other->layout, best->layout)) {
    struct mr_candidate worse = *best;
    *best = *other;
    *other = worse;
  }
}

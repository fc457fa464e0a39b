/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which ops a host that is apart runs. It computes beside the device, and an op there has all its
 * tensors there. So the choice is how many of the updates that can, and which: those with the most
 * slack, from when what they read is there to the next use of what they make; or some from
 * everywhere, so that links and device have as much to do in all of the step; or, where the host is
 * crowded, the smallest, which leave little of it unused: forecasts there get 0.2 to 0.5 % shorter
 * on average for it, up to 17 %. Of either kind it is all that the host has room for, a half of
 * what one with room for all would run, then more or less than the best of these, by plans without
 * search, which rank shares as plans with it do; the best of each kind are planned with it. Shares
 * are parts of what a host with room for all would run, so that a larger host is looked at for the
 * same ones, and a few more.
 * Then the other ops that can, beside the best of these: an embedding, whose table is where its
 * update left it, sends the rows that it looked up in place of the table. Since two compute at once
 * there, that may be faster also where the device holds everything.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/page_sizes.h"
#include "plan/place.h"
#include "plan/updates.h"

#define PARTS         32u /* of a share of all */
#define FEW_PARTS     8u  /* the least difference without search; */
#define CROWDED_PARTS 2u  /* with search where the host is crowded: */
#define CROWDED_ROOM  0.5 /* it has room for less than this part of the updates; */
#define LONG_LAST     4u  /* and in long programs, where it is not */
#define MOST_SHARES   4u  /* that are planned with search */
/* What looks longer without search by no more than such a part is searched for, too: none of the
 * updates on the host beside the best shares, ops that are no updates beside the best plan. Of 135
 * jobs none was longer by what is left out so. */
#define NONE_MARGIN   0.15
#define OTHERS_MARGIN 0.02

/* Which of the updates the host runs: those with the most slack, or others. */
enum pick { PICK_SLACK, PICK_OTHERS, PICK_COUNT };

struct group {
  struct mr_update_group updates;
  double bytes;   /* that they pass */
  uint32_t slack; /* in ops, round the end of the step */
};

/* Some parts of them. */
struct share {
  bool *ops; /* for each op: the host would run it */
  bool tried;
  const struct share *same; /* one of which the host would run the same, tried before; or NULL */
  double seconds;           /* INFINITY: of no use */
};

struct shares {
  struct mr_placement *placement;
  const struct mr_graph *graph;
  struct group *groups[PICK_COUNT]; /* the most slack first; in the order of their ops, or the
                                       smallest first where the host is crowded */
  uint32_t group_count;
  double bytes;  /* that all updates pass */
  bool *ops;     /* those of all shares */
  double room;   /* the part of the updates that the host has room for */
  double whole;  /* what shares are parts of: all that a host with room for it runs of them, halved
                    while that is no less than the room; so hosts of any size are looked at for the
                    same shares */
  uint32_t most; /* parts: the host has room for no more */
  bool crowded;  /* see CROWDED_ROOM */
  struct share of[PICK_COUNT][PARTS + 1];
};

/* Ops from one to another, round the end of the step. */
static uint32_t ops_between(const struct mr_graph *graph, mr_op_id from, mr_op_id to) {
  return to - from + (to < from ? graph->op_count : 0);
}

/* For each access, the last of the same tensor up to it that makes what the tensor holds, round the
 * end of the step; the number of accesses: none does. What updates make counts for none. */
static uint32_t *list_makers(const struct shares *s) {
  const struct mr_liveness *liveness = &s->placement->liveness;
  uint32_t all = liveness->first[liveness->tensor_count];
  uint32_t *makers = mr_allocate(all, sizeof *makers);
  for (uint32_t t = 0; t < liveness->tensor_count && makers != NULL; t++) {
    uint32_t maker = all;
    uint32_t count = liveness->first[t + 1] - liveness->first[t];
    for (uint32_t i = 0; i < 2 * count; i++) { /* two steps */
      uint32_t a = liveness->first[t] + i % count;
      const struct mr_access *access = &liveness->accesses[a];
      maker = access->writes && !mr_is_update(s->graph, access->op) ? a : maker;
      makers[a] = maker;
    }
  }
  return makers;
}

/* The access to a tensor by an op that uses it. */
static uint32_t access_by(const struct mr_liveness *liveness, mr_tensor_id t, mr_op_id op) {
  uint32_t low = liveness->first[t];
  uint32_t high = liveness->first[t + 1];
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    bool before = liveness->accesses[middle].op < op;
    low = before ? middle + 1 : low;
    high = before ? high : middle;
  }
  return low;
}

/* Ops from the last that makes what an update reads to the update. */
static uint32_t ops_since_ready(const struct shares *s, const uint32_t *makers, mr_op_id update) {
  const struct mr_graph *graph = s->graph;
  const struct mr_liveness *liveness = &s->placement->liveness;
  uint32_t least = graph->op_count;
  for (uint32_t i = 0; i < graph->ops[update].input_count; i++) {
    uint32_t maker = makers[access_by(liveness, graph->ops[update].inputs[i], update)];
    bool made = maker < liveness->first[liveness->tensor_count];
    uint32_t ago = made ? ops_between(graph, liveness->accesses[maker].op, update) : least;
    least = ago < least ? ago : least;
  }
  return least;
}

/* Ops from an update to the next that uses what it makes, but updates. */
static uint32_t ops_to_use(const struct shares *s, mr_op_id update) {
  const struct mr_graph *graph = s->graph;
  const struct mr_liveness *liveness = &s->placement->liveness;
  uint32_t least = graph->op_count;
  for (uint32_t i = 0; i < graph->ops[update].output_count; i++) {
    mr_tensor_id t = graph->ops[update].outputs[i];
    for (uint32_t a = liveness->first[t]; a < liveness->first[t + 1]; a++) {
      mr_op_id use = liveness->accesses[a].op;
      uint32_t ahead = ops_between(graph, update, use);
      least = !mr_is_update(graph, use) && ahead < least ? ahead : least;
    }
  }
  return least;
}

static int compare_slack(const void *left, const void *right) {
  const struct group *a = left;
  const struct group *b = right;
  if (a->slack != b->slack) {
    return a->slack < b->slack ? 1 : -1;
  }
  return (a->updates.from < b->updates.from) - (a->updates.from > b->updates.from);
}

static int compare_size(const void *left, const void *right) {
  const struct group *a = left;
  const struct group *b = right;
  if (a->bytes != b->bytes) {
    return a->bytes > b->bytes ? 1 : -1;
  }
  return compare_slack(left, right);
}

/* The updates in their order, and by their slack. */
static mr_status list_groups(struct shares *s) {
  const struct mr_graph *graph = s->graph;
  struct mr_update_group *updates = NULL;
  mr_status status = mr_updates_find(graph, &updates, &s->group_count);
  if (status != MR_OK) {
    return status;
  }
  struct group *in_order = mr_allocate(s->group_count, sizeof *in_order);
  struct group *by_slack = mr_allocate(s->group_count, sizeof *by_slack);
  uint32_t *makers = list_makers(s);
  s->groups[PICK_OTHERS] = in_order;
  s->groups[PICK_SLACK] = by_slack;
  for (uint32_t i = 0; i < s->group_count && in_order != NULL && makers != NULL; i++) {
    mr_op_id first = updates[i].from;
    in_order[i] = (struct group){.updates = updates[i],
                                 .slack = ops_since_ready(s, makers, first) + ops_to_use(s, first)};
    for (mr_op_id k = first; k < updates[i].to; k++) {
      in_order[i].bytes += (double)graph->ops[k].memory_bytes;
    }
    s->bytes += in_order[i].bytes;
  }
  free(updates);
  bool listed = makers != NULL;
  free(makers);
  if (in_order == NULL || by_slack == NULL || !listed) {
    return MR_NO_MEMORY;
  }
  memcpy(by_slack, in_order, s->group_count * sizeof *by_slack);
  qsort(by_slack, s->group_count, sizeof *by_slack, compare_slack);
  return MR_OK;
}

/* The tensors of such a part of the updates, by their bytes; a tensor that others of them use too
 * is of no harm. */
static void want_part(const struct shares *s, struct mr_trial *trial, enum pick pick, double part) {
  double before = 0;
  double owed = 0; /* up to here, less what was taken */
  memset(trial->on_host, 0, s->graph->tensor_count * sizeof *trial->on_host);
  for (uint32_t i = 0; i < s->group_count; i++) {
    const struct group *group = &s->groups[pick][i];
    double half = group->bytes / 2;
    owed += group->bytes * part;
    bool spread = pick == PICK_OTHERS && !s->crowded;
    bool wanted = spread ? owed >= half : before + half <= s->bytes * part;
    before += group->bytes;
    if (!wanted) continue;
    owed -= group->bytes;
    for (mr_op_id k = group->updates.from; k < group->updates.to; k++) {
      mr_want_on_host(s->graph, k, trial->on_host);
    }
  }
}

static void want_share(const struct shares *s, struct mr_trial *trial, enum pick pick,
                       uint32_t parts) {
  want_part(s, trial, pick, fmin(s->whole * parts / PARTS, s->room));
}

/* Which ops a host with such a budget would run of what the trial wants, as far as it has room. */
static mr_status find_ops_in(const struct shares *s, const struct mr_trial *trial,
                             uint64_t host_bytes, bool *ops) {
  struct mr_plan_problem problem = s->placement->problem;
  uint64_t planned_bytes = s->placement->best->page_bytes;
  uint64_t page_bytes = planned_bytes > 0 ? planned_bytes : problem.page_bytes;
  problem.on_host = trial->on_host;
  problem.budget_bytes[MR_TIER_HOST] = host_bytes;
  return mr_find_on_host(&problem, page_bytes > 0 ? page_bytes : MR_MOST_PAGE_BYTES, NULL, ops);
}

static mr_status find_ops(const struct shares *s, const struct mr_trial *trial, bool *ops) {
  return find_ops_in(s, trial, s->placement->problem.budget_bytes[MR_TIER_HOST], ops);
}

static double seconds_of(const struct share *share) {
  double seconds = share->same != NULL ? share->same->seconds : share->seconds;
  return share->tried ? seconds : INFINITY;
}

/* The share tried before of which the host would run the same; NULL: none. */
static const struct share *find_same(const struct shares *s, const struct share *share) {
  const struct share *found = NULL;
  for (uint32_t i = 0; i < PICK_COUNT * (PARTS + 1) && found == NULL; i++) {
    const struct share *other = &s->of[i / (PARTS + 1)][i % (PARTS + 1)];
    bool first = other != share && other->tried && other->same == NULL;
    bool equal = first && memcmp(other->ops, share->ops, s->graph->op_count * sizeof(bool)) == 0;
    found = equal ? other : NULL;
  }
  return found;
}

/* The share before the one in the middle, itself, or the one after it, in steps of so many parts.
 * Of all that the host has room for the one before is at least half a step away. */
static uint32_t step_from(const struct shares *s, uint32_t middle, uint32_t by, uint32_t turn) {
  uint32_t half = (by + 1) / 2;
  uint32_t before = middle < half ? 0 : (middle - half) / by * by;
  uint32_t after = (middle / by + 1) * by;
  uint32_t parts = turn == 0 ? before : turn == 1 ? middle : after;
  return parts < s->most ? parts : s->most;
}

/* Shares that are planned side by side. */
struct round {
  struct shares *shares;
  struct share *tried[MR_TRIALS];
  uint32_t count;
};

/* Adds none of the updates. */
static void add_none(struct round *round) {
  struct share *none = &round->shares->of[PICK_SLACK][0];
  struct mr_trial *trial = &round->shares->placement->trials[round->count];
  trial->none = true;
  trial->wanted = true;
  none->tried = true;
  round->tried[round->count++] = none;
}

/* Adds a share unless it was tried. */
static mr_status add_share(struct round *round, enum pick pick, uint32_t parts) {
  struct shares *s = round->shares;
  struct share *share = &s->of[pick][parts];
  if (parts == 0 || share->tried) {
    return MR_OK;
  }
  MR_ASSERT(round->count < MR_TRIALS);
  struct mr_trial *trial = &s->placement->trials[round->count];
  want_share(s, trial, pick, parts);
  mr_status status = find_ops(s, trial, share->ops);
  share->same = find_same(s, share);
  share->tried = true;
  trial->wanted = share->same == NULL;
  round->tried[round->count++] = share;
  return status;
}

/* Adds the shares that differ by so many parts from those in the middle, and these; where plans are
 * not searched for, of the one kind alone. */
static mr_status add_around(struct round *round, const uint32_t middle[PICK_COUNT], uint32_t by) {
  bool both = round->shares->placement->problem.search_rounds > 0;
  mr_status status = MR_OK;
  for (uint32_t i = 0; status == MR_OK && i < 3 * PICK_COUNT; i++) {
    enum pick pick = i % PICK_COUNT;
    if (pick == PICK_SLACK || both) {
      status = add_share(round, pick, step_from(round->shares, middle[pick], by, i / PICK_COUNT));
    }
  }
  return status;
}

/* Plans for them, and takes the plans in the order in which they were added. */
static mr_status try_round(struct round *round) {
  struct mr_placement *p = round->shares->placement;
  mr_status status = mr_crew_run(p->problem.crew, round->count, mr_placement_plan, p);
  for (uint32_t i = 0; i < round->count; i++) {
    struct mr_trial *trial = &p->trials[i];
    if (status == MR_OK && trial->wanted) {
      round->tried[i]->seconds = mr_placement_take(p, trial);
    }
    trial->none = false;
  }
  return status;
}

static void find_best(const struct shares *s, uint32_t best[PICK_COUNT]) {
  for (uint32_t pick = 0; pick < PICK_COUNT; pick++) {
    for (uint32_t parts = 1; parts <= PARTS; parts++) {
      bool better = seconds_of(&s->of[pick][parts]) < seconds_of(&s->of[pick][best[pick]]);
      best[pick] = better ? parts : best[pick];
    }
  }
}

/* Has the trial want the best share of the kind that no trial had before, nor one next to it, which
 * plans with search seldom tell apart; none may be left. */
static void want_best(struct shares *s, enum pick pick, struct mr_trial *trial) {
  uint32_t best = 0;
  for (uint32_t parts = 1; parts <= PARTS; parts++) {
    const struct share *share = &s->of[pick][parts];
    bool left = share->tried && share->same == NULL;
    best = left && (best == 0 || share->seconds < s->of[pick][best].seconds) ? parts : best;
  }
  trial->wanted = best > 0;
  if (best > 0) {
    want_share(s, trial, pick, best);
    for (uint32_t parts = best - 1; parts <= best + 1 && parts <= PARTS; parts++) {
      s->of[pick][parts].tried = false;
    }
  }
}

/* Whether none of the updates looks as good as the best share that was looked at, if any was. */
static bool none_is_near(const struct shares *s) {
  double seconds = seconds_of(&s->of[PICK_SLACK][0]);
  double least = INFINITY;
  for (uint32_t i = 1; i < PICK_COUNT * (PARTS + 1); i++) {
    const struct share *share = &s->of[i / (PARTS + 1)][i % (PARTS + 1)];
    least = share->same == NULL ? fmin(least, seconds_of(share)) : least;
  }
  return !isinf(seconds) && seconds <= least * (1 + NONE_MARGIN);
}

/* Plans for so many trials with search, and for `none` of the updates unless the best plan is one
 * of that. */
static mr_status try_trials(struct shares *s, uint32_t count, bool none) {
  struct mr_placement *p = s->placement;
  struct mr_trial *last = &p->trials[count];
  last->none = none && !p->best->fits;
  last->wanted = last->none;
  mr_status status = mr_crew_run(p->problem.crew, count + 1, mr_placement_plan, p);
  for (uint32_t i = 0; status == MR_OK && i <= count; i++) {
    if (p->trials[i].wanted) {
      (void)mr_placement_take(p, &p->trials[i]);
    }
  }
  last->none = false;
  return status;
}

/* Plans for the best shares of each kind with search: for one of each in a long program and where
 * the host is crowded. */
static mr_status try_best(struct shares *s) {
  bool few = mr_placement_is_long(s->placement) || s->crowded;
  uint32_t count = few ? PICK_COUNT : MOST_SHARES;
  bool near = none_is_near(s);
  for (uint32_t i = 0; i < count; i++) {
    want_best(s, i % PICK_COUNT, &s->placement->trials[i]);
  }
  return try_trials(s, count, near);
}

/* Plans for all that the host has room for, for a half of it and for `none`, with search and no
 * look before. */
static mr_status try_two(struct shares *s, bool none) {
  for (uint32_t i = 0; i < 2; i++) {
    want_share(s, &s->placement->trials[i], PICK_SLACK, i == 0 ? s->most : PARTS / 2);
    s->placement->trials[i].wanted = true;
  }
  return try_trials(s, 2, none);
}

/* Looks at shares without search, more and more alike, and at `none` beside the first. Where plans
 * are not searched for, the one below the most is one of the first: it is wanted whatever they are.
 */
static mr_status try_shares(struct shares *s, bool none) {
  struct mr_placement *p = s->placement;
  bool searches = p->problem.search_rounds > 0;
  bool is_long = mr_placement_is_long(p);
  uint32_t best[PICK_COUNT] = {s->most, s->most};
  uint32_t first = is_long && s->crowded ? PARTS : PARTS / 2;
  uint32_t last = is_long ? first : FEW_PARTS;
  if (searches) {
    last = is_long ? LONG_LAST : s->crowded ? CROWDED_PARTS : 1;
  }
  mr_status status = MR_OK;
  p->briefly = searches;
  for (uint32_t by = first; status == MR_OK && by >= last; by /= 2) {
    struct round round = {.shares = s};
    if (by == first && none) {
      add_none(&round);
    }
    status = add_around(&round, best, by);
    if (status == MR_OK && by == first && by > last && !searches) {
      status = add_share(&round, PICK_SLACK, step_from(s, s->most, by / 2, 0));
    }
    if (status == MR_OK) {
      status = try_round(&round);
    }
    find_best(s, best);
  }
  p->briefly = false;
  return status;
}

/* Has the first trial want on the host what the best plan has there, and those of the other ops
 * that can, and the second what the best plan has; false: the host would run the same. */
static mr_status want_others(struct shares *s, bool *any_out) {
  struct mr_placement *p = s->placement;
  bool *ops[2] = {s->of[0][0].ops, s->of[0][1].ops}; /* of shares that nobody asks for any more */
  mr_status status = MR_OK;
  for (uint32_t i = 0; i < 2; i++) {
    memcpy(p->trials[i].on_host, p->chosen, s->graph->tensor_count * sizeof *p->chosen);
    p->trials[i].wanted = true;
  }
  for (mr_op_id k = 0; k < s->graph->op_count; k++) {
    if (mr_op_is_host_capable(s->graph, k) && !mr_is_update(s->graph, k)) {
      mr_want_on_host(s->graph, k, p->trials[0].on_host);
    }
  }
  for (uint32_t i = 0; i < 2 && status == MR_OK; i++) {
    status = find_ops(s, &p->trials[i], ops[i]);
  }
  *any_out = status == MR_OK && memcmp(ops[0], ops[1], s->graph->op_count * sizeof **ops) != 0;
  return status;
}

/* Plans with those of the other ops there too, where that looks as good; where it looks longer, by
 * the recipe of the best plan. Of 18 searches that was enough for the 7 that looked longer; of the
 * others 5 found a shorter step, up to 5 %. */
static mr_status try_others(struct shares *s) {
  struct mr_placement *p = s->placement;
  bool any = false;
  mr_status status = want_others(s, &any);
  if (status != MR_OK || !any) {
    return status;
  }
  p->briefly = true;
  status = mr_crew_run(p->problem.crew, 2, mr_placement_plan, p);
  p->briefly = false;
  if (status != MR_OK) {
    return status;
  }
  double with = mr_placement_take(p, &p->trials[0]);
  double without = mr_placement_take(p, &p->trials[1]);
  if (with > without * (1 + OTHERS_MARGIN)) {
    return MR_OK;
  }
  const struct mr_recipe recipe = p->best->recipe;
  p->problem.recipe = with > without && recipe.seconds > 0 ? &recipe : NULL;
  status = mr_placement_try(p);
  p->problem.recipe = NULL;
  return status;
}

/* The part of the updates that a host with such a budget runs where all are wanted there. */
static mr_status measure_part(struct shares *s, uint64_t host_bytes, double *part_out) {
  bool *runs = s->of[PICK_SLACK][PARTS].ops; /* written anew when it is tried */
  double bytes = 0;
  mr_status status = find_ops_in(s, &s->placement->trials[0], host_bytes, runs);
  for (uint32_t i = 0; i < s->group_count; i++) {
    const struct group *group = &s->groups[PICK_OTHERS][i];
    bytes += runs[group->updates.from] ? group->bytes : 0;
  }
  *part_out = s->bytes > 0 ? bytes / s->bytes : 1;
  return status;
}

static mr_status measure_room(struct shares *s) {
  want_part(s, &s->placement->trials[0], PICK_SLACK, 1);
  mr_status status = measure_part(s, s->placement->problem.budget_bytes[MR_TIER_HOST], &s->room);
  if (status == MR_OK) {
    status = measure_part(s, UINT64_MAX, &s->whole);
  }
  while (s->room > 0 && s->room <= s->whole / 2) {
    s->whole /= 2;
  }
  s->most = s->room > 0 ? (uint32_t)ceil(s->room / s->whole * PARTS) : 0;
  s->most = s->most < PARTS ? s->most : PARTS;
  s->crowded = s->room < CROWDED_ROOM;
  if (s->crowded) {
    qsort(s->groups[PICK_OTHERS], s->group_count, sizeof(struct group), compare_size);
  }
  return status;
}

/* No share is tried but that of none of the updates, where the best plan is for it. */
static mr_status shares_init(struct shares *s, struct mr_placement *p) {
  uint64_t op_count = p->problem.program->op_count;
  *s = (struct shares){.placement = p, .graph = p->problem.program};
  s->ops = mr_allocate(PICK_COUNT * (PARTS + 1ull) * op_count, sizeof *s->ops);
  mr_status status = list_groups(s);
  if (s->ops == NULL || status != MR_OK) {
    return MR_NO_MEMORY;
  }
  for (uint32_t i = 0; i < PICK_COUNT * (PARTS + 1); i++) {
    s->of[i / (PARTS + 1)][i % (PARTS + 1)].ops = s->ops + i * op_count;
  }
  struct share *none = &s->of[PICK_SLACK][0];
  none->tried = p->best->fits;
  none->seconds = p->best->fits && !p->best->useless ? p->best->step_seconds : INFINITY;
  return measure_room(s);
}

/* Which shares are tried depends on what others of the rung take, not on the best so far: see
 * plan/plan.h. Without search few will do, and the updates; in a long program, where a host is
 * crowded, all that it has room for. */
mr_status mr_placement_improve_apart(struct mr_placement *p, bool none) {
  struct shares shares;
  bool searches = p->problem.search_rounds > 0;
  bool is_long = mr_placement_is_long(p);
  mr_status status = shares_init(&shares, p);
  if (status == MR_OK && searches && is_long && shares.crowded) {
    status = try_two(&shares, none);
  } else if (status == MR_OK) {
    status = try_shares(&shares, none);
    if (status == MR_OK && searches) {
      status = try_best(&shares);
    }
  }
  if (status == MR_OK && searches && !is_long) {
    status = try_others(&shares);
  }
  free(shares.groups[PICK_SLACK]);
  free(shares.groups[PICK_OTHERS]);
  free(shares.ops);
  return status;
}

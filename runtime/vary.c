/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where rules have found what they can, chance finds more: one op that runs again for its layer
 * alone, some of many moves alike, a step in how scarce links are held to be. Each variant is
 * chosen and swept by the recipe of the best plan, in place of a search of thirty sweeps, and made
 * a plan only where that sweep is hardly longer: so hundreds are tried in the time of a dozen
 * plans. Ops that no longer run again gain most: of 2,817 such variants one in ten made a step
 * shorter, of 15,000 others one in a hundred.
 */
#include "runtime/vary.h"

#include <stdlib.h>

#include "base/base.h"
#include "runtime/planning.h"
#include "runtime/variants.h"

#define SEED          1u
#define PLAN_WORK     4u /* of making a plan of what was swept */
#define IDLE_PART     3u /* of the work: so much without a gain ends it */
#define AT_ONCE       MR_VARIANTS
#define MOST_CHANGES  4u /* moves, or groups of updates, that one variant changes */
#define SCARCITY_STEP 0.2
#define MOST_DRAWS    32u /* until there is something to vary */

enum kind { KIND_CLONE, KIND_MOVES, KIND_SITES, KIND_SPARE, KIND_SCARCITY };

/* As often as they are worth it. */
static const uint8_t kinds[] = {KIND_CLONE,    KIND_CLONE,    KIND_CLONE, KIND_CLONE,   KIND_CLONE,
                                KIND_CLONE,    KIND_MOVES,    KIND_MOVES, KIND_SITES,   KIND_SPARE,
                                KIND_SCARCITY, KIND_SCARCITY, KIND_SITES, KIND_SCARCITY};

struct varier {
  struct mr_variants variants;
  struct mr_random random;
  uint32_t *moved; /* gaps of the best plan in which tensors of the client's graph leave */
  uint32_t moved_count;
};

static uint32_t below(struct varier *v, uint32_t bound) {
  return (uint32_t)mr_random_below(&v->random, bound);
}

static mr_status read_best(struct varier *v) {
  const struct mr_program_plan *layout = v->variants.best->layout;
  free(v->moved);
  v->moved_count = 0;
  v->moved = mr_allocate(layout->gap_count, sizeof *v->moved);
  if (v->moved == NULL) {
    return MR_NO_MEMORY;
  }
  for (uint32_t i = 0; i < layout->gap_count; i++) {
    uint8_t decision = layout->gaps[i].decision;
    bool moves = decision == MR_DECISION_HOST || decision == MR_DECISION_NVME;
    if (moves && layout->gaps[i].tensor < mr_variants_graph(&v->variants)->tensor_count) {
      v->moved[v->moved_count++] = i;
    }
  }
  return mr_variants_read(&v->variants);
}

/* Whether there is anything of the kind to vary. */
static bool can_vary(const struct varier *v, enum kind kind) {
  const struct mr_plan *plan = v->variants.finalists->plan;
  const struct mr_plan_problem *problem = &plan->problem;
  switch (kind) {
  case KIND_CLONE:
    return plan->settings.recompute != MR_RECOMPUTE_FULL &&
           v->variants.best->program->op_count > mr_variants_graph(&v->variants)->op_count;
  case KIND_MOVES:
    return v->moved_count > 0;
  case KIND_SITES:
    return problem->budget_bytes[MR_TIER_HOST] > 0 && problem->host_bytes_per_second > 0 &&
           v->variants.group_count > 0;
  default:
    return true;
  }
}

/* One of the ops that run again does so no more. */
static mr_status drop_clone(struct varier *v, struct mr_variant *variant) {
  const struct mr_graph *program = v->variants.best->program;
  mr_op_id *again = mr_allocate(program->op_count, sizeof *again);
  if (again == NULL) {
    return MR_NO_MEMORY;
  }
  uint32_t count = mr_planning_list_again(program, NULL, again);
  again[below(v, count)] = again[count - 1];
  variant->candidate = (struct mr_candidate){0};
  variant->again = again;
  variant->again_count = count - 1;
  return MR_OK;
}

/* Bans some of the moves of the best plan. */
static void ban_moves(struct varier *v, struct mr_variant *variant) {
  uint32_t most = mr_variants_graph(&v->variants)->tensor_count;
  uint32_t count = 1 + below(v, most < MOST_CHANGES ? most : MOST_CHANGES);
  for (uint32_t i = 0; i < count; i++) {
    uint32_t moved = v->moved[below(v, v->moved_count)];
    const struct mr_gap *gap = &v->variants.best->layout->gaps[moved];
    variant->bans[variant->ban_count++] = (struct mr_plan_ban){gap->tensor, gap->decision};
  }
}

/* Has some updates run where they do not. */
static void move_sites(struct varier *v, struct mr_variant *variant) {
  uint32_t count = 1 + below(v, MOST_CHANGES);
  for (uint32_t i = 0; i < count; i++) {
    uint32_t group = below(v, v->variants.group_count);
    bool there = mr_variants_runs_there(&v->variants, group);
    mr_variants_set_site(&v->variants, group, !there, variant->on_host);
  }
}

static void vary_scarcity(struct varier *v, struct mr_recipe *recipe) {
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    for (uint32_t i = 0; i < MR_STEP_PARTS; i++) {
      double *scarcity = &recipe->scarcity[l][i];
      *scarcity *= 1 + SCARCITY_STEP * (2 * mr_random_unit(&v->random) - 1);
      *scarcity += SCARCITY_STEP * mr_random_unit(&v->random);
    }
  }
}

static mr_status vary(struct varier *v, enum kind kind, struct mr_variant *variant) {
  struct mr_search_trial *trial = &variant->recipe.trial;
  switch (kind) {
  case KIND_CLONE:
    return drop_clone(v, variant);
  case KIND_MOVES:
    ban_moves(v, variant);
    return MR_OK;
  case KIND_SITES:
    move_sites(v, variant);
    return MR_OK;
  case KIND_SPARE:
    trial->spare += below(v, 2) == 0 ? 1 : MR_MOST_SPARE;
    trial->spare %= MR_MOST_SPARE + 1;
    return MR_OK;
  case KIND_SCARCITY:
    vary_scarcity(v, &variant->recipe);
    return MR_OK;
  }
  return MR_OK;
}

/* Draws one more variant. */
static mr_status draw(struct varier *v, enum kind kind) {
  struct mr_candidate program = mr_variants_program(&v->variants);
  struct mr_variant *variant = NULL;
  mr_status status = mr_variants_add(&v->variants, &program, &variant);
  if (status != MR_OK) {
    return status;
  }
  variant->follows = true;
  variant->recipe = v->variants.best->layout->recipe;
  return vary(v, kind, variant);
}

static mr_status draw_all(struct varier *v) {
  mr_status status = MR_OK;
  for (uint32_t i = 0; i < MOST_DRAWS && v->variants.count < AT_ONCE && status == MR_OK; i++) {
    enum kind kind = kinds[below(v, MR_COUNT_OF(kinds))];
    status = can_vary(v, kind) ? draw(v, kind) : MR_OK;
  }
  return status;
}

mr_status mr_vary(const struct mr_finalists *finalists, struct mr_candidate *candidate,
                  uint32_t work) {
  struct varier v = {0};
  uint32_t done = 0;
  uint32_t gained_at = 0;
  if (work == 0 || !(candidate->layout->recipe.seconds > 0)) {
    return MR_OK; /* without a recipe where nothing was searched */
  }
  mr_random_init(&v.random, SEED);
  mr_variants_init(&v.variants, finalists, candidate);
  mr_status status = read_best(&v);
  while (status == MR_OK && done < work && done - gained_at <= work / IDLE_PART) {
    uint32_t made = 0;
    bool taken = false;
    status = draw_all(&v);
    uint32_t count = v.variants.count;
    if (status != MR_OK || count == 0) break;
    double before = candidate->layout->step_seconds;
    status = mr_variants_try(&v.variants, &made, &taken);
    done += count + PLAN_WORK * made;
    if (candidate->layout->step_seconds < before * (1 - MR_VARIANTS_GAIN)) {
      gained_at = done;
    }
    if (status == MR_OK && taken) {
      status = read_best(&v);
    }
  }
  mr_variants_fini(&v.variants);
  free(v.moved);
  return status;
}

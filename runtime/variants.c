/* SPDX-License-Identifier: Apache-2.0 */
/* Variants of a finalist's plan. */
#include "runtime/variants.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "runtime/planning.h"

static void variant_fini(const struct mr_variants *v, struct mr_variant *variant) {
  if (variant->candidate.program == v->best->program) {
    variant->candidate.rewritten = NULL;
    variant->candidate.op_seconds = NULL;
  }
  mr_candidate_fini(&variant->candidate);
  free(variant->on_host);
  free(variant->bans);
  free(variant->again);
  *variant = (struct mr_variant){0};
}

static void forget(struct mr_variants *v) {
  free(v->on_host);
  free(v->runs_on_host);
  free(v->groups);
  v->on_host = NULL;
  v->runs_on_host = NULL;
  v->groups = NULL;
}

void mr_variants_init(struct mr_variants *variants, const struct mr_finalists *finalists,
                      struct mr_candidate *best) {
  *variants = (struct mr_variants){.finalists = finalists, .best = best};
}

void mr_variants_fini(struct mr_variants *variants) {
  for (uint32_t i = 0; i < variants->count; i++) {
    variant_fini(variants, &variants->at[i]);
  }
  forget(variants);
  free(variants->bans);
  *variants = (struct mr_variants){0};
}

const struct mr_graph *mr_variants_graph(const struct mr_variants *variants) {
  return variants->finalists->plan->graph;
}

mr_tensor_id mr_variants_made(const struct mr_variants *variants, uint32_t group) {
  return variants->best->program->ops[variants->groups[group].from].outputs[0];
}

bool mr_variants_runs_there(const struct mr_variants *variants, uint32_t group) {
  return variants->runs_on_host[variants->groups[group].from];
}

/* Small tensors are in an arena of their own: where their updates run is of no weight. */
static void leave_out_small(struct mr_variants *v) {
  const struct mr_program_plan *layout = v->best->layout;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < v->group_count; i++) {
    mr_tensor_id made = mr_variants_made(v, i);
    bool small = false;
    for (uint32_t j = 0; j < layout->instance_count && !small; j++) {
      small = layout->instances[j].tensor == made && layout->instances[j].small;
    }
    v->groups[kept] = v->groups[i];
    kept += small ? 0 : 1;
  }
  v->group_count = kept;
}

mr_status mr_variants_read(struct mr_variants *variants) {
  const struct mr_program_plan *layout = variants->best->layout;
  const struct mr_graph *program = variants->best->program;
  forget(variants);
  mr_status status = mr_updates_find(program, &variants->groups, &variants->group_count);
  variants->on_host = mr_allocate(program->tensor_count, sizeof *variants->on_host);
  variants->runs_on_host = mr_allocate(program->op_count, sizeof *variants->runs_on_host);
  if (status != MR_OK || variants->on_host == NULL || variants->runs_on_host == NULL) {
    return MR_NO_MEMORY;
  }
  leave_out_small(variants);
  mr_candidate_list_on_host(variants->best, variants->on_host);
  for (uint32_t i = 0; i < layout->instruction_count[MR_QUEUE_HOST]; i++) {
    variants->runs_on_host[layout->instructions[MR_QUEUE_HOST][i].op] = true;
  }
  return MR_OK;
}

struct mr_candidate mr_variants_program(const struct mr_variants *variants) {
  return (struct mr_candidate){.program = variants->best->program,
                               .rewritten = variants->best->rewritten,
                               .op_seconds = variants->best->op_seconds};
}

mr_status mr_variants_rewrite(const struct mr_variants *variants, const mr_op_id *again,
                              uint32_t count, struct mr_candidate *candidate) {
  const struct mr_graph *program = variants->best->program;
  struct mr_deferral deferral = {.staying = program->staying_count};
  for (mr_op_id k = 0; k < program->op_count; k++) {
    deferral.deferred = deferral.deferred || program->ops[k].deferred;
  }
  *candidate = (struct mr_candidate){0};
  mr_status status = mr_planning_rewrite(variants->finalists->plan, again, count, &deferral,
                                         &candidate->rewritten);
  candidate->program =
      candidate->rewritten != NULL ? candidate->rewritten : mr_variants_graph(variants);
  return status;
}

mr_status mr_variants_add(struct mr_variants *variants, const struct mr_candidate *candidate,
                          struct mr_variant **variant_out) {
  uint32_t tensor_count = mr_variants_graph(variants)->tensor_count;
  struct mr_variant *variant = &variants->at[variants->count];
  MR_ASSERT(variants->count < MR_VARIANTS);
  *variant = (struct mr_variant){.candidate = *candidate, .ban_count = variants->ban_count};
  variant->on_host = mr_allocate(candidate->program->tensor_count, sizeof *variant->on_host);
  variant->bans = mr_allocate(variants->ban_count + (uint64_t)tensor_count, sizeof *variant->bans);
  if (variant->on_host == NULL || variant->bans == NULL) {
    variant_fini(variants, variant);
    return MR_NO_MEMORY;
  }
  memcpy(variant->on_host, variants->on_host, tensor_count * sizeof *variant->on_host);
  if (variants->ban_count > 0) {
    memcpy(variant->bans, variants->bans, variants->ban_count * sizeof *variant->bans);
  }
  variants->count++;
  *variant_out = variant;
  return MR_OK;
}

void mr_variants_take_back(struct mr_variants *variants) {
  variant_fini(variants, &variants->at[--variants->count]);
}

void mr_variants_set_site(const struct mr_variants *variants, uint32_t group, bool host,
                          bool *on_host) {
  const struct mr_graph *program = variants->best->program;
  for (mr_op_id k = variants->groups[group].from; k < variants->groups[group].to; k++) {
    for (uint32_t i = 0; i < program->ops[k].output_count && !host; i++) {
      on_host[program->ops[k].outputs[i]] = false;
    }
    if (host) {
      mr_want_on_host(program, k, on_host);
    }
  }
}

/* Makes the program of a variant. The client's tensors have the same numbers in every program. */
static mr_status make_program(const struct mr_variants *v, struct mr_variant *variant) {
  uint64_t tensor_count = mr_variants_graph(v)->tensor_count;
  mr_status status =
      mr_variants_rewrite(v, variant->again, variant->again_count, &variant->candidate);
  if (status != MR_OK) {
    return status;
  }
  bool *on_host = mr_allocate(variant->candidate.program->tensor_count, sizeof *on_host);
  if (on_host == NULL) {
    return MR_NO_MEMORY;
  }
  memcpy(on_host, variant->on_host, tensor_count * sizeof *on_host);
  free(variant->on_host);
  variant->on_host = on_host;
  return MR_OK;
}

/* No plan is made where there is no such program. */
static mr_status plan_variant(void *context, uint32_t index) {
  struct mr_variants *v = context;
  struct mr_variant *variant = &v->at[index];
  struct mr_candidate *candidate = &variant->candidate;
  struct mr_plan_problem problem = v->finalists->plan->problem;
  mr_status status = variant->again != NULL ? make_program(v, variant) : MR_OK;
  if (status != MR_OK) {
    return status == MR_INVALID ? MR_OK : status;
  }
  if (candidate->op_seconds == NULL) {
    status = mr_planning_estimate(v->finalists->plan, candidate->program, &candidate->op_seconds);
  }
  if (status != MR_OK) {
    return status;
  }
  problem.program = candidate->program;
  problem.op_seconds = candidate->op_seconds;
  problem.on_host = variant->on_host;
  problem.bans = variant->bans;
  problem.ban_count = variant->ban_count;
  problem.page_bytes = v->best->layout->page_bytes;
  problem.search_from = 0;
  problem.search_rounds = 1;
  problem.whole_budget = v->best->whole;
  problem.useful_seconds = INFINITY;
  problem.recipe = variant->follows ? &variant->recipe : NULL;
  return mr_program_plan_make(&problem, &candidate->layout);
}

/* The variant's plan is the best from now on. */
static void take(struct mr_variants *v, struct mr_variant *variant) {
  struct mr_candidate *best = v->best;
  bool same = variant->candidate.program == best->program;
  free(v->bans);
  v->bans = variant->bans;
  v->ban_count = variant->ban_count;
  variant->bans = NULL;
  mr_program_plan_destroy(best->layout);
  best->layout = variant->candidate.layout;
  variant->candidate.layout = NULL;
  if (!same) {
    struct mr_candidate before = *best;
    *best = (struct mr_candidate){.program = variant->candidate.program,
                                  .rewritten = variant->candidate.rewritten,
                                  .op_seconds = variant->candidate.op_seconds,
                                  .layout = before.layout,
                                  .stays = before.stays,
                                  .whole = before.whole};
    mr_graph_destroy(before.rewritten);
    free(before.op_seconds);
  }
}

mr_status mr_variants_try(struct mr_variants *variants, uint32_t *made_out, bool *taken_out) {
  struct mr_variant *winner = NULL;
  mr_status status =
      mr_crew_run(variants->finalists->plan->problem.crew, variants->count, plan_variant, variants);
  *made_out = 0;
  for (uint32_t i = 0; i < variants->count && status == MR_OK; i++) {
    const struct mr_program_plan *layout = variants->at[i].candidate.layout;
    const struct mr_program_plan *best =
        winner == NULL ? variants->best->layout : winner->candidate.layout;
    if (layout == NULL || layout->useless) continue;
    ++*made_out;
    if (mr_finalists_can_map(variants->finalists, layout) && mr_candidate_is_better(layout, best)) {
      winner = &variants->at[i];
    }
  }
  *taken_out = winner != NULL;
  for (uint32_t i = 0; i < variants->count; i++) {
    if (&variants->at[i] != winner) {
      variant_fini(variants, &variants->at[i]);
    }
  }
  if (winner != NULL) {
    take(variants, winner);
    variant_fini(variants, winner);
  }
  variants->count = 0;
  return status;
}

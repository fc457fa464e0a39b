/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Beside a device that is apart, what a search decides by rule for all tensors together is often
 * better decided otherwise for a few of them: a loss that is not computed again, a slice of a table
 * whose update stays on the device. So the plan is made again with one thing changed: without
 * clones that are among its costliest decisions; without such moves of gradients to NVMe; with one
 * update on the host or not, where of two neighbours in the program one is; with all updates of
 * tensors alike there, or none; without other costly moves to NVMe; with clones that make tensors
 * alike in place of costly moves; and without those to the host. In this order they gain most for a
 * plan: in 3971 trials for models of 12 to 48 layers 0.8 % without clones, then 0.3, 0.18, 0.09 and
 * 0.05 %, and as good as nothing with the last two, which some short programs need. A change that
 * makes the step shorter stays, the others are tried with it, and what was tried before is tried
 * once more when nothing else is left. Steps of jobs beside a host get up to 8 % shorter, those
 * beside NVMe alone up to 9 %.
 */
#include "runtime/amend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/explain.h"
#include "plan/updates.h"
#include "runtime/planning.h"

/* Changes that are tried side by side, however many threads there are: the best of them stays. */
#define AT_ONCE        2u
#define MOST_DECISIONS 10u

enum change_kind {
  CHANGE_CLONES, /* ops that ran again do not */
  CHANGE_AGAIN,  /* more ops do */
  CHANGE_SITE,
  CHANGE_ALL_THERE,
  CHANGE_NONE_THERE,
  CHANGE_MOVES,
};

/* Tensors are the client's graph's: the first of those alike, or what an update makes. */
struct change {
  enum change_kind kind;
  mr_tensor_id tensor;
  uint8_t decision; /* of moves */
};

/* The program, what of it is on the host, and what may not move where. */
struct variant {
  struct mr_candidate candidate; /* its program and seconds are the present one's, but of clones */
  bool *on_host;
  struct mr_plan_ban *bans;
  uint32_t ban_count;
};

struct amender {
  const struct mr_finalists *finalists;
  struct mr_candidate *best;
  struct mr_plan_ban *bans; /* that the best plan was made under */
  uint32_t ban_count;
  struct mr_decision costly[MOST_DECISIONS]; /* of the best plan */
  uint32_t costly_count;
  bool *on_host; /* in it: for each tensor, and op */
  bool *runs_on_host;
  bool *used_there; /* for each tensor that the best plan has there: ops there use it */
  bool *used_then;  /* and of those that a change has there */
  struct mr_update_group *groups; /* of the best plan's program */
  uint32_t group_count;
  struct change *tried;
  uint32_t tried_count;
  uint32_t tried_capacity;
  struct variant variants[AT_ONCE];
  uint32_t count;
};

static const struct mr_graph *client_graph(const struct amender *a) {
  return a->finalists->plan->graph;
}

static bool are_alike(const struct amender *a, mr_tensor_id one, mr_tensor_id other) {
  const struct mr_tensor *tensors = client_graph(a)->tensors;
  return mr_explain_alike(&tensors[one], &tensors[other]);
}

static void variant_fini(const struct amender *a, struct variant *variant) {
  if (variant->candidate.program == a->best->program) {
    variant->candidate.rewritten = NULL;
    variant->candidate.op_seconds = NULL;
  }
  mr_candidate_fini(&variant->candidate);
  free(variant->on_host);
  free(variant->bans);
  *variant = (struct variant){0};
}

/* ---- The plan as it is ---- */

static mr_tensor_id made_by(const struct amender *a, uint32_t group) {
  return a->best->program->ops[a->groups[group].from].outputs[0];
}

static bool runs_there(const struct amender *a, uint32_t group) {
  return a->runs_on_host[a->groups[group].from];
}

static void forget_state(struct amender *a) {
  free(a->on_host);
  free(a->runs_on_host);
  free(a->used_there);
  free(a->used_then);
  free(a->groups);
  a->on_host = NULL;
  a->runs_on_host = NULL;
  a->used_there = NULL;
  a->used_then = NULL;
  a->groups = NULL;
}

/* Small tensors are in an arena of their own: where their updates run is of no weight. */
static void leave_out_small(struct amender *a) {
  const struct mr_program_plan *layout = a->best->layout;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < a->group_count; i++) {
    mr_tensor_id made = made_by(a, i);
    bool small = false;
    for (uint32_t j = 0; j < layout->instance_count && !small; j++) {
      small = layout->instances[j].tensor == made && layout->instances[j].small;
    }
    a->groups[kept] = a->groups[i];
    kept += small ? 0 : 1;
  }
  a->group_count = kept;
}

static struct mr_plan_problem best_problem(const struct amender *a) {
  struct mr_plan_problem problem = a->finalists->plan->problem;
  problem.program = a->best->program;
  problem.op_seconds = a->best->op_seconds;
  return problem;
}

/* Which tensors would be used on the host, if these were to be there. */
static mr_status find_used(const struct amender *a, const bool *on_host, bool *used) {
  struct mr_plan_problem problem = best_problem(a);
  problem.on_host = on_host;
  return mr_find_on_host(&problem, a->best->layout->page_bytes, used, NULL);
}

static mr_status list_costly(struct amender *a) {
  struct mr_plan_problem problem = best_problem(a);
  return mr_explain_decisions(&problem, a->best->layout, MOST_DECISIONS, a->costly,
                              &a->costly_count);
}

/* The costliest decisions of the best plan; what runs on the host in it, and what could. */
static mr_status read_state(struct amender *a) {
  const struct mr_program_plan *layout = a->best->layout;
  const struct mr_graph *program = a->best->program;
  forget_state(a);
  mr_status status = mr_updates_find(program, &a->groups, &a->group_count);
  a->on_host = mr_allocate(program->tensor_count, sizeof *a->on_host);
  a->runs_on_host = mr_allocate(program->op_count, sizeof *a->runs_on_host);
  a->used_there = mr_allocate(program->tensor_count, sizeof *a->used_there);
  a->used_then = mr_allocate(program->tensor_count, sizeof *a->used_then);
  if (status != MR_OK || a->on_host == NULL || a->runs_on_host == NULL || a->used_there == NULL ||
      a->used_then == NULL) {
    return MR_NO_MEMORY;
  }
  leave_out_small(a);
  mr_candidate_list_on_host(a->best, a->on_host);
  for (uint32_t i = 0; i < layout->instruction_count[MR_QUEUE_HOST]; i++) {
    a->runs_on_host[layout->instructions[MR_QUEUE_HOST][i].op] = true;
  }
  return list_costly(a);
}

/* ---- Changes ---- */

/* True where the change was tried; else it is from now on. */
static mr_status was_tried(struct amender *a, const struct change *change, bool *tried_out) {
  *tried_out = false;
  for (uint32_t i = 0; i < a->tried_count && !*tried_out; i++) {
    const struct change *tried = &a->tried[i];
    bool same = change->kind == CHANGE_SITE ? tried->tensor == change->tensor
                                            : are_alike(a, tried->tensor, change->tensor);
    *tried_out = same && tried->kind == change->kind && tried->decision == change->decision;
  }
  if (*tried_out) {
    return MR_OK;
  }
  mr_status status = mr_array_reserve((void **)&a->tried, &a->tried_capacity, a->tried_count + 1ull,
                                      sizeof *a->tried);
  if (status == MR_OK) {
    a->tried[a->tried_count++] = *change;
  }
  return status;
}

/* The program without clones that make tensors alike, or with them. MR_INVALID: there is none. */
static mr_status change_clones(const struct amender *a, const struct change *change,
                               struct mr_candidate *candidate) {
  const struct mr_graph *program = a->best->program;
  const struct mr_graph *graph = client_graph(a);
  const struct mr_tensor *alike = &graph->tensors[change->tensor];
  bool more = change->kind == CHANGE_AGAIN;
  mr_op_id *again = mr_allocate((uint64_t)program->op_count + graph->tensor_count, sizeof *again);
  candidate->rewritten = NULL;
  if (again == NULL) {
    return MR_NO_MEMORY;
  }
  struct mr_deferral deferral = {.staying = program->staying_count};
  for (mr_op_id k = 0; k < program->op_count; k++) {
    deferral.deferred = deferral.deferred || program->ops[k].deferred;
  }
  uint32_t count = mr_planning_list_again(program, more ? NULL : alike, again);
  if (more) {
    count += mr_planning_list_makers(graph, alike, again + count);
  }
  mr_status status =
      mr_planning_rewrite(a->finalists->plan, again, count, &deferral, &candidate->rewritten);
  free(again);
  candidate->program = candidate->rewritten != NULL ? candidate->rewritten : graph;
  candidate->op_seconds = NULL;
  bool changed = !more || candidate->program->op_count > program->op_count;
  return status == MR_OK && !changed ? MR_INVALID : status;
}

/* Tensors of the client's graph alone: they have the same numbers in every program. */
static void ban_moves(const struct amender *a, const struct change *change,
                      struct variant *variant) {
  for (mr_tensor_id t = 0; t < client_graph(a)->tensor_count; t++) {
    if (are_alike(a, t, change->tensor)) {
      variant->bans[variant->ban_count++] = (struct mr_plan_ban){t, change->decision};
    }
  }
}

static void set_site(const struct amender *a, uint32_t group, bool host, bool *on_host) {
  const struct mr_graph *program = a->best->program;
  for (mr_op_id k = a->groups[group].from; k < a->groups[group].to; k++) {
    for (uint32_t i = 0; i < program->ops[k].output_count && !host; i++) {
      on_host[program->ops[k].outputs[i]] = false;
    }
    if (host) {
      mr_want_on_host(program, k, on_host);
    }
  }
}

/* *changed_out: false where the host has no room for more: ops there would use the same tensors. */
static mr_status set_sites(const struct amender *a, const struct change *change, bool *on_host,
                           bool *changed_out) {
  bool one = change->kind == CHANGE_SITE;
  for (uint32_t i = 0; i < a->group_count; i++) {
    mr_tensor_id made = made_by(a, i);
    if (one ? made == change->tensor : are_alike(a, made, change->tensor)) {
      set_site(a, i, one ? !runs_there(a, i) : change->kind == CHANGE_ALL_THERE, on_host);
    }
  }
  uint64_t bytes = a->best->program->tensor_count * sizeof(bool);
  mr_status status = find_used(a, on_host, a->used_then);
  *changed_out = memcmp(a->used_then, a->used_there, bytes) != 0;
  return status;
}

/* Adds the best plan's problem with a change to those that are planned next, unless that was tried
 * before or the turn is full. */
static mr_status add(struct amender *a, const struct change *change) {
  struct variant variant = {.candidate = {.program = a->best->program,
                                          .rewritten = a->best->rewritten,
                                          .op_seconds = a->best->op_seconds},
                            .ban_count = a->ban_count};
  uint32_t tensor_count = client_graph(a)->tensor_count;
  bool tried = true;
  mr_status status = a->count < AT_ONCE ? was_tried(a, change, &tried) : MR_OK;
  if (status != MR_OK || tried) {
    return status;
  }
  if (change->kind == CHANGE_CLONES || change->kind == CHANGE_AGAIN) {
    status = change_clones(a, change, &variant.candidate);
  }
  if (status == MR_OK) {
    variant.on_host = mr_allocate(variant.candidate.program->tensor_count, sizeof(bool));
    variant.bans = mr_allocate(a->ban_count + (uint64_t)tensor_count, sizeof *variant.bans);
    status = variant.on_host == NULL || variant.bans == NULL ? MR_NO_MEMORY : MR_OK;
  }
  if (status != MR_OK) {
    variant_fini(a, &variant);
    return status == MR_INVALID ? MR_OK : status; /* there is no such program */
  }
  memcpy(variant.on_host, a->on_host, tensor_count * sizeof(bool));
  if (a->ban_count > 0) {
    memcpy(variant.bans, a->bans, a->ban_count * sizeof *variant.bans);
  }
  bool changed = true;
  if (change->kind == CHANGE_MOVES) {
    ban_moves(a, change, &variant);
  } else if (change->kind != CHANGE_CLONES && change->kind != CHANGE_AGAIN) {
    status = set_sites(a, change, variant.on_host, &changed);
  }
  if (status != MR_OK || !changed) {
    variant_fini(a, &variant);
    return status;
  }
  a->variants[a->count++] = variant;
  return MR_OK;
}

/* Of tensors alike, the group that makes the next in the program; group_count: there is none. */
static uint32_t next_alike(const struct amender *a, uint32_t group) {
  uint32_t next = group + 1;
  while (next < a->group_count && !are_alike(a, made_by(a, next), made_by(a, group))) {
    next++;
  }
  return next;
}

/* One update there or not, where of two neighbours one is; or all updates of tensors alike. */
static mr_status add_sites(struct amender *a, bool single) {
  mr_status status = MR_OK;
  for (uint32_t i = 0; i < a->group_count && status == MR_OK; i++) {
    uint32_t next = next_alike(a, i);
    bool border = next < a->group_count && runs_there(a, next) != runs_there(a, i);
    enum change_kind all = runs_there(a, i) ? CHANGE_NONE_THERE : CHANGE_ALL_THERE;
    if (!single) {
      status = add(a, &(struct change){all, made_by(a, i), 0});
    } else if (border) {
      status = add(a, &(struct change){CHANGE_SITE, made_by(a, i), 0});
      status =
          status == MR_OK ? add(a, &(struct change){CHANGE_SITE, made_by(a, next), 0}) : status;
    }
  }
  return status;
}

/* What is undone of the costliest decisions. */
struct undoing {
  enum change_kind kind;
  uint8_t moves;  /* of CHANGE_MOVES: those that were decided so, */
  bool gradients; /* of gradients alone */
};

/* What is not to move may be made again where it is an activation. */
static bool undoes(const struct amender *a, const struct undoing *undoing,
                   const struct mr_decision *decision) {
  if (decision->tensor >= client_graph(a)->tensor_count) {
    return false;
  }
  bool again = decision->decision == MR_DECISION_AGAIN;
  mr_role role = client_graph(a)->tensors[decision->tensor].role;
  switch (undoing->kind) {
  case CHANGE_CLONES:
    return again;
  case CHANGE_AGAIN:
    return !again && role == MR_ACTIVATION;
  default:
    return decision->decision == undoing->moves && (!undoing->gradients || role == MR_GRADIENT);
  }
}

static mr_status add_undoing(struct amender *a, const struct undoing *undoing) {
  mr_status status = MR_OK;
  for (uint32_t i = 0; i < a->costly_count && status == MR_OK; i++) {
    const struct mr_decision *costly = &a->costly[i];
    if (undoes(a, undoing, costly)) {
      status = add(a, &(struct change){undoing->kind, costly->tensor, undoing->moves});
    }
  }
  return status;
}

/* Collects the next changes that were not tried, as many as go side by side: kinds that gain most
 * for a plan come first. */
static mr_status collect(struct amender *a) {
  const struct mr_plan *plan = a->finalists->plan;
  bool host =
      plan->problem.budget_bytes[MR_TIER_HOST] > 0 && plan->problem.host_bytes_per_second > 0;
  const struct undoing gradients = {CHANGE_MOVES, MR_DECISION_NVME, true};
  const struct undoing drive = {CHANGE_MOVES, MR_DECISION_NVME, false};
  const struct undoing copies = {CHANGE_MOVES, MR_DECISION_HOST, false};
  mr_status status = read_state(a);
  if (status == MR_OK && plan->settings.recompute != MR_RECOMPUTE_FULL) {
    status = add_undoing(a, &(struct undoing){.kind = CHANGE_CLONES});
  }
  status = status == MR_OK ? add_undoing(a, &gradients) : status;
  if (status == MR_OK && host) {
    status = find_used(a, a->on_host, a->used_there);
  }
  for (uint32_t i = 0; i < 2 && host && status == MR_OK; i++) {
    status = add_sites(a, i == 0);
  }
  status = status == MR_OK ? add_undoing(a, &drive) : status;
  if (status == MR_OK && plan->settings.recompute == MR_RECOMPUTE_AUTO) {
    status = add_undoing(a, &(struct undoing){.kind = CHANGE_AGAIN});
  }
  return status == MR_OK ? add_undoing(a, &copies) : status;
}

/* ---- Plans ---- */

static mr_status plan_variant(void *context, uint32_t index) {
  struct amender *a = context;
  struct variant *variant = &a->variants[index];
  struct mr_candidate *candidate = &variant->candidate;
  struct mr_plan_problem problem = a->finalists->plan->problem;
  mr_status status = MR_OK;
  if (candidate->op_seconds == NULL) {
    status = mr_planning_estimate(a->finalists->plan, candidate->program, &candidate->op_seconds);
  }
  if (status != MR_OK) {
    return status;
  }
  problem.program = candidate->program;
  problem.op_seconds = candidate->op_seconds;
  problem.on_host = variant->on_host;
  problem.bans = variant->bans;
  problem.ban_count = variant->ban_count;
  problem.page_bytes = a->best->layout->page_bytes;
  problem.search_from = 0;
  problem.search_rounds = 1;
  problem.whole_budget = a->best->whole;
  problem.useful_seconds = INFINITY;
  return mr_program_plan_make(&problem, &candidate->layout);
}

/* The variant's plan is the best from now on. */
static void take(struct amender *a, struct variant *variant) {
  struct mr_candidate *best = a->best;
  bool same = variant->candidate.program == best->program;
  free(a->bans);
  a->bans = variant->bans;
  a->ban_count = variant->ban_count;
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

/* Plans what was collected and takes the best of it where it is better than the best plan. */
static mr_status try_collected(struct amender *a, bool *taken_out) {
  struct variant *winner = NULL;
  mr_status status = mr_crew_run(a->finalists->plan->problem.crew, a->count, plan_variant, a);
  for (uint32_t i = 0; i < a->count && status == MR_OK; i++) {
    const struct mr_program_plan *layout = a->variants[i].candidate.layout;
    const struct mr_program_plan *best =
        winner == NULL ? a->best->layout : winner->candidate.layout;
    if (!layout->useless && mr_finalists_can_map(a->finalists, layout) &&
        mr_candidate_is_better(layout, best)) {
      winner = &a->variants[i];
    }
  }
  *taken_out = winner != NULL;
  for (uint32_t i = 0; i < a->count; i++) {
    if (&a->variants[i] != winner) {
      variant_fini(a, &a->variants[i]);
    }
  }
  if (winner != NULL) {
    take(a, winner);
    variant_fini(a, winner);
  }
  a->count = 0;
  return status;
}

mr_status mr_amend(const struct mr_finalists *finalists, struct mr_candidate *candidate,
                   uint32_t *plans_left) {
  struct amender amender = {.finalists = finalists, .best = candidate};
  bool gained = false; /* since what was tried was forgotten */
  mr_status status = MR_OK;
  while (*plans_left > 0 && status == MR_OK) {
    bool taken = false;
    status = collect(&amender);
    *plans_left -= amender.count < *plans_left ? amender.count : *plans_left;
    if (status == MR_OK && amender.count == 0) {
      if (!gained) break;
      amender.tried_count = 0;
      gained = false;
      continue;
    }
    status = status == MR_OK ? try_collected(&amender, &taken) : status;
    gained = gained || taken;
  }
  for (uint32_t i = 0; i < amender.count; i++) {
    variant_fini(&amender, &amender.variants[i]);
  }
  forget_state(&amender);
  free(amender.tried);
  free(amender.bans);
  return status;
}

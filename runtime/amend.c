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

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/explain.h"
#include "runtime/planning.h"
#include "runtime/variants.h"

#define MOST_DECISIONS 10u
#define AT_ONCE        2u
#define IDLE_PART      2u /* of the plans: without a gain others have the rest */

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

struct amender {
  struct mr_variants variants;
  struct mr_decision costly[MOST_DECISIONS]; /* of the best plan */
  uint32_t costly_count;
  bool *used_there; /* for each tensor that the best plan has on the host: ops there use it */
  bool *used_then;  /* and of those that a change has there */
  struct change *tried;
  uint32_t tried_count;
  uint32_t tried_capacity;
};

static const struct mr_graph *client_graph(const struct amender *a) {
  return mr_variants_graph(&a->variants);
}

static bool are_alike(const struct amender *a, mr_tensor_id one, mr_tensor_id other) {
  const struct mr_tensor *tensors = client_graph(a)->tensors;
  return mr_explain_alike(&tensors[one], &tensors[other]);
}

static struct mr_plan_problem best_problem(const struct amender *a) {
  struct mr_plan_problem problem = a->variants.finalists->plan->problem;
  problem.program = a->variants.best->program;
  problem.op_seconds = a->variants.best->op_seconds;
  return problem;
}

/* Which tensors would be used on the host, if these were to be there. */
static mr_status find_used(const struct amender *a, const bool *on_host, bool *used) {
  struct mr_plan_problem problem = best_problem(a);
  problem.on_host = on_host;
  return mr_find_on_host(&problem, a->variants.best->layout->page_bytes, used, NULL);
}

/* Reads the best plan, its costliest decisions, and what of it ops on the host use there. */
static mr_status read_best(struct amender *a, bool host) {
  mr_status status = mr_variants_read(&a->variants);
  uint32_t tensor_count = a->variants.best->program->tensor_count;
  free(a->used_there);
  free(a->used_then);
  a->used_there = mr_allocate(tensor_count, sizeof *a->used_there);
  a->used_then = mr_allocate(tensor_count, sizeof *a->used_then);
  if (status == MR_OK && (a->used_there == NULL || a->used_then == NULL)) {
    status = MR_NO_MEMORY;
  }
  if (status == MR_OK) {
    struct mr_plan_problem problem = best_problem(a);
    status = mr_explain_decisions(&problem, a->variants.best->layout, MOST_DECISIONS, a->costly,
                                  &a->costly_count);
  }
  return status == MR_OK && host ? find_used(a, a->variants.on_host, a->used_there) : status;
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
  const struct mr_graph *program = a->variants.best->program;
  const struct mr_graph *graph = client_graph(a);
  const struct mr_tensor *alike = &graph->tensors[change->tensor];
  bool more = change->kind == CHANGE_AGAIN;
  mr_op_id *again = mr_allocate((uint64_t)program->op_count + graph->tensor_count, sizeof *again);
  if (again == NULL) {
    return MR_NO_MEMORY;
  }
  uint32_t count = mr_planning_list_again(program, more ? NULL : alike, again);
  if (more) {
    count += mr_planning_list_makers(graph, alike, again + count);
  }
  mr_status status = mr_variants_rewrite(&a->variants, again, count, candidate);
  free(again);
  bool changed = !more || (status == MR_OK && candidate->program->op_count > program->op_count);
  if (status == MR_OK && !changed) {
    mr_candidate_fini(candidate);
    return MR_INVALID;
  }
  return status;
}

/* Tensors of the client's graph alone: they have the same numbers in every program. */
static void ban_moves(const struct amender *a, const struct change *change,
                      struct mr_variant *variant) {
  for (mr_tensor_id t = 0; t < client_graph(a)->tensor_count; t++) {
    if (are_alike(a, t, change->tensor)) {
      variant->bans[variant->ban_count++] = (struct mr_plan_ban){t, change->decision};
    }
  }
}

/* *changed_out: false where the host has no room for more: ops there would use the same tensors. */
static mr_status set_sites(const struct amender *a, const struct change *change, bool *on_host,
                           bool *changed_out) {
  bool one = change->kind == CHANGE_SITE;
  for (uint32_t i = 0; i < a->variants.group_count; i++) {
    mr_tensor_id made = mr_variants_made(&a->variants, i);
    if (one ? made == change->tensor : are_alike(a, made, change->tensor)) {
      mr_variants_set_site(&a->variants, i,
                           one ? !mr_variants_runs_there(&a->variants, i)
                               : change->kind == CHANGE_ALL_THERE,
                           on_host);
    }
  }
  uint64_t bytes = a->variants.best->program->tensor_count * sizeof(bool);
  mr_status status = find_used(a, on_host, a->used_then);
  *changed_out = memcmp(a->used_then, a->used_there, bytes) != 0;
  return status;
}

/* Adds the best plan's problem with a change to those that are planned next, unless that was tried
 * before or the turn is full. */
static mr_status add(struct amender *a, const struct change *change) {
  struct mr_variants *v = &a->variants;
  struct mr_candidate program = mr_variants_program(v);
  struct mr_variant *variant = NULL;
  bool clones = change->kind == CHANGE_CLONES || change->kind == CHANGE_AGAIN;
  bool changed = true;
  bool tried = true;
  mr_status status = v->count < AT_ONCE ? was_tried(a, change, &tried) : MR_OK;
  if (status != MR_OK || tried) {
    return status;
  }
  if (clones) {
    status = change_clones(a, change, &program);
  }
  if (status != MR_OK) {
    return status == MR_INVALID ? MR_OK : status; /* there is no such program */
  }
  status = mr_variants_add(v, &program, &variant);
  if (status != MR_OK) {
    return status;
  }
  if (change->kind == CHANGE_MOVES) {
    ban_moves(a, change, variant);
  } else if (!clones) {
    status = set_sites(a, change, variant->on_host, &changed);
  }
  if (!changed) {
    mr_variants_take_back(v);
  }
  return status;
}

/* Of tensors alike, the group that makes the next in the program; group_count: there is none. */
static uint32_t next_alike(const struct amender *a, uint32_t group) {
  uint32_t next = group + 1;
  while (next < a->variants.group_count && !are_alike(a, mr_variants_made(&a->variants, next),
                                                      mr_variants_made(&a->variants, group))) {
    next++;
  }
  return next;
}

/* One update there or not, where of two neighbours one is; or all updates of tensors alike. */
static mr_status add_sites(struct amender *a, bool single) {
  mr_status status = MR_OK;
  for (uint32_t i = 0; i < a->variants.group_count && status == MR_OK; i++) {
    uint32_t next = next_alike(a, i);
    bool border = next < a->variants.group_count && mr_variants_runs_there(&a->variants, next) !=
                                                        mr_variants_runs_there(&a->variants, i);
    enum change_kind all =
        mr_variants_runs_there(&a->variants, i) ? CHANGE_NONE_THERE : CHANGE_ALL_THERE;
    if (!single) {
      status = add(a, &(struct change){all, mr_variants_made(&a->variants, i), 0});
    } else if (border) {
      status = add(a, &(struct change){CHANGE_SITE, mr_variants_made(&a->variants, i), 0});
      status = status == MR_OK
                   ? add(a, &(struct change){CHANGE_SITE, mr_variants_made(&a->variants, next), 0})
                   : status;
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
  const struct mr_plan *plan = a->variants.finalists->plan;
  bool host =
      plan->problem.budget_bytes[MR_TIER_HOST] > 0 && plan->problem.host_bytes_per_second > 0;
  const struct undoing gradients = {CHANGE_MOVES, MR_DECISION_NVME, true};
  const struct undoing drive = {CHANGE_MOVES, MR_DECISION_NVME, false};
  const struct undoing copies = {CHANGE_MOVES, MR_DECISION_HOST, false};
  mr_status status = read_best(a, host);
  if (status == MR_OK && plan->settings.recompute != MR_RECOMPUTE_FULL) {
    status = add_undoing(a, &(struct undoing){.kind = CHANGE_CLONES});
  }
  status = status == MR_OK ? add_undoing(a, &gradients) : status;
  for (uint32_t i = 0; i < 2 && host && status == MR_OK; i++) {
    status = add_sites(a, i == 0);
  }
  status = status == MR_OK ? add_undoing(a, &drive) : status;
  if (status == MR_OK && plan->settings.recompute == MR_RECOMPUTE_AUTO) {
    status = add_undoing(a, &(struct undoing){.kind = CHANGE_AGAIN});
  }
  return status == MR_OK ? add_undoing(a, &copies) : status;
}

mr_status mr_amend(const struct mr_finalists *finalists, struct mr_candidate *candidate,
                   uint32_t *plans_left) {
  struct amender amender = {0};
  bool gained = false; /* since what was tried was forgotten */
  mr_status status = MR_OK;
  const uint32_t idle = *plans_left / IDLE_PART;
  uint32_t left_at_gain = *plans_left;
  mr_variants_init(&amender.variants, finalists, candidate);
  while (*plans_left > 0 && left_at_gain - *plans_left <= idle && status == MR_OK) {
    uint32_t made = 0;
    bool taken = false;
    double before = candidate->layout->step_seconds;
    status = collect(&amender);
    uint32_t count = amender.variants.count;
    *plans_left -= count < *plans_left ? count : *plans_left;
    if (status == MR_OK && count == 0) {
      if (!gained) break;
      amender.tried_count = 0;
      gained = false;
      continue;
    }
    status = status == MR_OK ? mr_variants_try(&amender.variants, &made, &taken) : status;
    gained = gained || taken;
    if (candidate->layout->step_seconds < before * (1 - MR_VARIANTS_GAIN)) {
      left_at_gain = *plans_left;
    }
  }
  mr_variants_fini(&amender.variants);
  free(amender.used_there);
  free(amender.used_then);
  free(amender.tried);
  return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which tensors ops on the host use there. What persists may be used on the host anywhere in the
 * step; what lives inside one step (a gradient) only by its last ops, so that it leaves the device
 * once and never comes back; what is carried into the next step not at all. Tensors that no op on
 * the device uses are served first: they need no moves at all. The host keeps a place for each, so
 * what it has no room for stays as it was.
 */
#include <stdlib.h>

#include "plan/draft.h"

static bool runs_on_host(const struct mr_graph *graph, mr_op_id op) {
  return (graph->ops[op].flags & MR_OP_HOST_CAPABLE) != 0;
}

enum mr_host_use mr_host_use_of(const struct mr_graph *graph, const struct mr_liveness *liveness,
                                mr_tensor_id tensor) {
  const struct mr_access *accesses = liveness->accesses;
  uint32_t end = liveness->first[tensor + 1];
  uint32_t first = liveness->first[tensor];
  mr_role role = graph->tensors[tensor].role;
  uint32_t on_host = 0;
  bool ends_there = true;
  for (uint32_t i = first; i < end; i++) {
    bool host = runs_on_host(graph, accesses[i].op);
    ends_there = ends_there && (host || on_host == 0);
    on_host += host;
  }
  if (on_host == 0 || role == MR_INPUT || graph->tensors[tensor].carried) {
    return MR_HOST_USE_NONE;
  }
  if (mr_role_is_persistent(role)) {
    return on_host == end - first ? MR_HOST_USE_ALL : MR_HOST_USE_SOME;
  }
  return ends_there && on_host < end - first ? MR_HOST_USE_SOME : MR_HOST_USE_NONE;
}

/* Whether the tensor may not go to the host at all. */
static bool is_barred(const struct mr_plan_problem *problem, mr_tensor_id tensor) {
  for (uint32_t i = 0; i < problem->ban_count; i++) {
    if (problem->bans[i].tensor == tensor && problem->bans[i].decision == MR_DECISION_HOST) {
      return true;
    }
  }
  return false;
}

/* Takes the tensors of one kind of use that are wanted on the host while it has room. */
static void place_use(struct mr_draft *draft, enum mr_host_use use, uint64_t *room_pages) {
  for (uint32_t t = 0; t < draft->program->tensor_count; t++) {
    uint64_t pages = draft->pages[t];
    if (!draft->problem->on_host[t] || pages == 0 || pages > *room_pages ||
        mr_host_use_of(draft->program, &draft->liveness, t) != use ||
        is_barred(draft->problem, t)) {
      continue;
    }
    draft->on_host[t] = true;
    *room_pages -= pages;
  }
}

mr_status mr_liveness_split(struct mr_liveness *liveness, const struct mr_graph *graph,
                            const bool *on_host, struct mr_liveness *host_out) {
  uint32_t total = liveness->first[graph->tensor_count];
  struct mr_liveness host = {mr_allocate(total, sizeof *host.accesses),
                             mr_allocate(graph->tensor_count + 1ull, sizeof *host.first),
                             graph->tensor_count};
  if (host.accesses == NULL || host.first == NULL) {
    mr_liveness_fini(&host);
    return MR_NO_MEMORY;
  }
  uint32_t next = 0;
  uint32_t kept = 0;
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    for (; next < liveness->first[t + 1]; next++) {
      struct mr_access access = liveness->accesses[next];
      if (on_host[t] && runs_on_host(graph, access.op)) {
        host.accesses[next - kept] = access;
      } else {
        liveness->accesses[kept++] = access;
      }
    }
    liveness->first[t + 1] = kept;
    host.first[t + 1] = next - kept;
  }
  *host_out = host;
  return MR_OK;
}

mr_status mr_draft_place(struct mr_draft *draft) {
  draft->on_host = mr_allocate(draft->program->tensor_count, sizeof *draft->on_host);
  if (draft->on_host == NULL) {
    return MR_NO_MEMORY;
  }
  if (draft->problem->on_host != NULL) {
    uint64_t room_pages = draft->host_limit_pages;
    place_use(draft, MR_HOST_USE_ALL, &room_pages);
    place_use(draft, MR_HOST_USE_SOME, &room_pages);
  }
  return mr_liveness_split(&draft->liveness, draft->program, draft->on_host, &draft->host_liveness);
}

/* Of which of a tensor's accesses a bound knows that they need the device. */
enum need { NEED_ALL, NEED_DEVICE_OPS, NEED_NONE };

static enum need need_of(const struct mr_graph *graph, const struct mr_liveness *liveness,
                         mr_tensor_id t) {
  enum need need = NEED_ALL;
  if (mr_host_use_of(graph, liveness, t) == MR_HOST_USE_NONE) {
    return need;
  }
  for (uint32_t i = liveness->first[t]; i < liveness->first[t + 1] && need != NEED_NONE; i++) {
    const struct mr_access *access = &liveness->accesses[i];
    if (runs_on_host(graph, access->op)) {
      need = access->reads ? NEED_DEVICE_OPS : NEED_NONE;
    }
  }
  return need;
}

mr_status mr_host_liveness_needed(const struct mr_plan_problem *problem,
                                  struct mr_liveness *liveness_out) {
  const struct mr_graph *graph = problem->program;
  struct mr_liveness liveness;
  mr_status status = mr_liveness_init(&liveness, graph);
  if (status != MR_OK) {
    return status;
  }
  enum need *needs = mr_allocate(graph->tensor_count, sizeof *needs);
  if (needs == NULL) {
    mr_liveness_fini(&liveness);
    return MR_NO_MEMORY;
  }
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    bool may = problem->budget_bytes[MR_TIER_HOST] > 0;
    needs[t] = may ? need_of(graph, &liveness, t) : NEED_ALL;
  }
  uint32_t next = 0;
  uint32_t kept = 0;
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    for (; next < liveness.first[t + 1]; next++) {
      struct mr_access access = liveness.accesses[next];
      bool needed =
          needs[t] == NEED_ALL || (needs[t] == NEED_DEVICE_OPS && !runs_on_host(graph, access.op));
      if (needed) {
        liveness.accesses[kept++] = access;
      }
    }
    liveness.first[t + 1] = kept;
  }
  free(needs);
  *liveness_out = liveness;
  return MR_OK;
}

uint32_t mr_plan_count_host_ops(const struct mr_program_plan *plan) {
  uint32_t count = 0;
  for (uint32_t k = 0; k < plan->program->op_count; k++) {
    bool on_host = false;
    for (uint32_t i = plan->first_operand[k]; i < plan->first_operand[k + 1]; i++) {
      uint32_t operand = plan->operands[i];
      on_host = on_host || (operand != MR_NO_INSTANCE && plan->instances[operand].on_host);
    }
    count += on_host;
  }
  return count;
}

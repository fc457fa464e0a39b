/* SPDX-License-Identifier: Apache-2.0 */
/* How long tensors live, on the device and on the host, the gaps between their uses, and the pages
 * that all of them take at least. */
#include <stdlib.h>

#include "plan/draft.h"

mr_op_id mr_draft_last_on_host(const struct mr_draft *draft, mr_tensor_id t, mr_op_id before) {
  const struct mr_liveness *host = &draft->host_liveness;
  mr_op_id last = MR_NO_OP;
  for (uint32_t i = host->first[t]; i < host->first[t + 1]; i++) {
    last = host->accesses[i].op < before ? host->accesses[i].op : last;
  }
  return last;
}

/* The first op on the host that uses the tensor after op `after`; MR_NO_OP: none. */
static mr_op_id first_on_host(const struct mr_draft *draft, mr_tensor_id t, mr_op_id after) {
  const struct mr_liveness *host = &draft->host_liveness;
  uint32_t i = host->first[t];
  while (i < host->first[t + 1] && host->accesses[i].op <= after) {
    i++;
  }
  return i < host->first[t + 1] ? host->accesses[i].op : MR_NO_OP;
}

/* Of a tensor that lives inside one step: the last op on the host before the device has it, where
 * such ops make it; MR_NO_OP: the device does. */
static mr_op_id maker_below(const struct mr_draft *draft, mr_tensor_id t) {
  return mr_draft_last_on_host(draft, t, draft->liveness.accesses[draft->liveness.first[t]].op);
}

/* The op from which on a tensor that lives inside one step is on the device: its first access, or
 * what follows its last use on the host before that. */
static uint32_t life_start(const struct mr_draft *draft, mr_tensor_id t) {
  mr_op_id made = maker_below(draft, t);
  return made == MR_NO_OP ? draft->liveness.accesses[draft->liveness.first[t]].op : made + 1;
}

/* The op after which a tensor that lives inside one step leaves the device for good: its last
 * access, or where its next use on the host must find it gone, the op before that. */
static uint32_t life_end(const struct mr_draft *draft, mr_tensor_id t) {
  mr_op_id last = draft->liveness.accesses[draft->liveness.first[t + 1] - 1].op;
  mr_op_id taken = first_on_host(draft, t, last);
  return taken == MR_NO_OP ? last : taken - 1;
}

uint32_t mr_draft_birth(const struct mr_draft *draft, mr_tensor_id t) {
  const struct mr_tensor *tensor = &draft->program->tensors[t];
  const struct mr_access *accesses = &draft->liveness.accesses[draft->liveness.first[t]];
  uint32_t count = draft->liveness.first[t + 1] - draft->liveness.first[t];
  uint32_t birth = 0;
  bool round = mr_tensor_goes_round(tensor);
  bool born = tensor->carried || (tensor->role == MR_DERIVED && !draft->on_host[t]);
  if (tensor->role == MR_INPUT || (round && !born) ||
      (draft->on_host[t] && maker_below(draft, t) != MR_NO_OP)) {
    return UINT32_MAX;
  }
  while (round && birth < count && accesses[birth].reads) {
    birth++;
  }
  return birth < count && (birth > 0 || !round) ? birth : UINT32_MAX;
}

void mr_draft_measure_kept(struct mr_draft *draft) {
  const struct mr_graph *graph = draft->program;
  uint32_t n = draft->op_count;
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    uint32_t first = draft->liveness.first[t];
    uint32_t last = draft->liveness.first[t + 1];
    const struct mr_tensor *tensor = &graph->tensors[t];
    if (tensor->role == MR_INPUT || mr_tensor_goes_round(tensor)) {
      mr_books_add(&draft->kept_usage, 0, n, (int64_t)draft->pages[t]);
    } else if (first < last) {
      mr_books_add(&draft->kept_usage, life_start(draft, t), life_end(draft, t) + 1,
                   (int64_t)draft->pages[t]);
    }
  }
  for (uint32_t k = 0; k < n; k++) {
    mr_books_add(&draft->kept_usage, k, k + 1, (int64_t)draft->pages[graph->tensor_count + k]);
  }
}

/* Appends one gap, with the uses on the host inside it. */
static void add_gap(struct mr_draft *draft, struct mr_draft_gap gap) {
  const struct mr_liveness *host = &draft->host_liveness;
  gap.latest_release_op = gap.before_op;
  gap.earliest_fetch_op = gap.after_op + 1;
  gap.fixed = gap.dead || (draft->on_host[gap.tensor] && (gap.wrap || gap.final || gap.made_below));
  for (uint32_t turn = 0; turn <= draft->op_count; turn += draft->op_count) {
    for (uint32_t i = host->first[gap.tensor]; i < host->first[gap.tensor + 1]; i++) {
      uint32_t op = host->accesses[i].op + turn;
      if (op <= gap.after_op || op >= gap.before_op) continue;
      gap.latest_release_op = op < gap.latest_release_op ? op : gap.latest_release_op;
      gap.earliest_fetch_op = op + 1;
      gap.host_writes = gap.host_writes || host->accesses[i].writes;
      gap.fixed = true;
    }
  }
  draft->gaps[draft->gap_count++] = gap;
}

/* Before the first access of what ops on the host make: the gap that it comes to the device in. */
static void add_made_below(struct mr_draft *draft, mr_tensor_id t) {
  const struct mr_access *accesses = &draft->liveness.accesses[draft->liveness.first[t]];
  mr_op_id made = maker_below(draft, t);
  if (made != MR_NO_OP) {
    add_gap(draft, (struct mr_draft_gap){.tensor = t,
                                         .after_op = made,
                                         .before_op = accesses[0].op,
                                         .after_writes = true,
                                         .made_below = true});
  }
}

/* After the last access of what ops on the host use last: the gap that it leaves the device in. */
static void add_final(struct mr_draft *draft, mr_tensor_id t) {
  const struct mr_access *last = &draft->liveness.accesses[draft->liveness.first[t + 1] - 1];
  if (first_on_host(draft, t, last->op) != MR_NO_OP) {
    add_gap(draft, (struct mr_draft_gap){.tensor = t,
                                         .after_op = last->op,
                                         .before_op = life_end(draft, t) + 1,
                                         .next_life_op = life_start(draft, t) + draft->op_count,
                                         .after_writes = last->writes,
                                         .final = true});
  }
}

/* Appends the gaps of one tensor. A persistent tensor that no op on the device touches has one gap
 * over the whole step. */
static void add_gaps(struct mr_draft *draft, mr_tensor_id t) {
  const struct mr_access *accesses = draft->liveness.accesses;
  uint32_t first = draft->liveness.first[t];
  uint32_t last = draft->liveness.first[t + 1];
  uint32_t n = draft->op_count;
  const struct mr_tensor *tensor = &draft->program->tensors[t];
  if (draft->pages[t] == 0 || tensor->role == MR_INPUT) {
    return;
  }
  uint32_t birth = mr_tensor_goes_round(tensor) ? mr_draft_birth(draft, t) : UINT32_MAX;
  mr_op_id changed = MR_NO_OP;
  if (draft->on_host[t] && !mr_tensor_goes_round(tensor)) {
    add_made_below(draft, t);
  }
  for (uint32_t i = first; i + 1 < last; i++) {
    bool dead = i + 1 - first == birth;
    changed = accesses[i].writes ? accesses[i].op : changed;
    add_gap(draft, (struct mr_draft_gap){.tensor = t,
                                         .after_op = accesses[i].op,
                                         .before_op = accesses[i + 1].op,
                                         .changed_op = changed,
                                         .after_writes = accesses[i].writes,
                                         .dead = dead});
  }
  if (!mr_tensor_goes_round(tensor)) {
    if (draft->on_host[t]) {
      add_final(draft, t);
    }
    return;
  }
  struct mr_draft_gap wrap = {.tensor = t, .wrap = true, .resting = first == last};
  wrap.after_op = first < last ? accesses[last - 1].op : n - 1;
  wrap.before_op = first < last ? accesses[first].op + n : 2 * n;
  wrap.after_writes = first < last && accesses[last - 1].writes;
  wrap.changed_op = wrap.after_writes ? wrap.after_op : changed;
  add_gap(draft, wrap);
}

mr_status mr_draft_make_gaps(struct mr_draft *draft) {
  uint32_t tensors = draft->program->tensor_count;
  uint64_t most = (uint64_t)draft->liveness.first[tensors] + tensors;
  draft->gaps = mr_allocate(most, sizeof *draft->gaps);
  draft->first_gap = mr_allocate(tensors + 1ull, sizeof *draft->first_gap);
  if (draft->gaps == NULL || draft->first_gap == NULL) {
    return MR_NO_MEMORY;
  }
  for (uint32_t t = 0; t < tensors; t++) {
    draft->first_gap[t] = draft->gap_count;
    add_gaps(draft, t);
  }
  draft->first_gap[tensors] = draft->gap_count;
  for (uint32_t i = 0; i < draft->problem->ban_count; i++) {
    const struct mr_plan_ban *ban = &draft->problem->bans[i];
    for (uint32_t g = draft->first_gap[ban->tensor]; g < draft->first_gap[ban->tensor + 1]; g++) {
      draft->gaps[g].banned |= (uint8_t)(1u << ban->decision);
    }
  }
  return MR_OK;
}

/* Whether the gap may leave for some tier. */
static bool may_leave(const struct mr_draft *draft, const struct mr_draft_gap *gap) {
  const uint32_t all = 1u << MR_DECISION_HOST | 1u << MR_DECISION_NVME;
  return mr_draft_can_evict(draft, gap) && (gap->banned & all) != all;
}

mr_status mr_draft_least_pages(const struct mr_draft *draft, uint64_t *pages_out) {
  const uint64_t *budget = draft->problem->budget_bytes;
  uint32_t n = draft->op_count;
  if (budget[MR_TIER_HOST] == 0 && budget[MR_TIER_NVME] == 0) {
    *pages_out = mr_draft_peak(draft);
    return MR_OK;
  }
  int64_t *fewer = mr_allocate(n, sizeof *fewer); /* at each op than at the one before it */
  if (fewer == NULL) {
    return MR_NO_MEMORY;
  }
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    const struct mr_draft_gap *gap = &draft->gaps[i];
    uint32_t from = (gap->after_op + 1) % n;
    uint32_t to = gap->before_op % n;
    if (!may_leave(draft, gap)) continue;
    fewer[from] += (int64_t)draft->pages[gap->tensor];
    fewer[to] -= (int64_t)draft->pages[gap->tensor];
    fewer[0] += to <= from ? (int64_t)draft->pages[gap->tensor] : 0;
  }
  int64_t gone = 0;
  *pages_out = 0;
  for (uint32_t k = 0; k < n; k++) {
    gone += fewer[k];
    *pages_out = mr_max_u64(*pages_out, mr_books_at(&draft->usage, k) - (uint64_t)gone);
  }
  free(fewer);
  return MR_OK;
}

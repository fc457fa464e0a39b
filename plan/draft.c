/* SPDX-License-Identifier: Apache-2.0 */
/* The decisions about the gaps of a program, and the books of pages that each of them keeps. */
#include "plan/draft.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/drive.h"
#include "plan/host.h"
#include "plan/page_sizes.h"

bool mr_draft_hands_over(const struct mr_draft *draft, mr_op_id op) {
  return draft->problem->host_apart && draft->runs_on_host[op];
}

bool mr_draft_is_beside_host(const struct mr_draft *draft) {
  bool any = false;
  for (mr_op_id k = 0; k < draft->op_count && !any; k++) {
    any = mr_draft_hands_over(draft, k);
  }
  return any;
}

double mr_draft_op_seconds(const struct mr_draft *draft, mr_op_id op) {
  return mr_draft_hands_over(draft, op) ? 0 : draft->problem->op_seconds[op];
}

double mr_draft_handover_seconds(const struct mr_draft *draft, mr_op_id op) {
  uint64_t bytes = mr_host_handover_bytes(draft->program, op, draft->page_bytes);
  return mr_plan_move_seconds(draft->problem, MR_LINK_DEVICE_TO_HOST, bytes);
}

uint32_t mr_draft_last_release(const struct mr_draft *draft, const struct mr_draft_gap *gap) {
  if (!draft->problem->host_apart || !gap->fixed) {
    return (uint32_t)mr_min_u64(gap->fetch_op, gap->latest_release_op);
  }
  return gap->final ? gap->next_life_op : gap->fetch_op;
}

bool mr_draft_has_room(const struct mr_draft *draft, uint32_t from, uint32_t to, uint64_t pages) {
  return mr_books_most(&draft->usage, from, to) + pages <= draft->limit_pages;
}

uint64_t mr_draft_map_bytes(const struct mr_draft *draft) {
  return mr_plan_pages_mapped(draft->problem) * draft->page_bytes;
}

uint64_t mr_draft_peak(const struct mr_draft *draft) {
  return mr_books_peak(&draft->usage);
}

bool mr_draft_can_evict(const struct mr_draft *draft, const struct mr_draft_gap *gap) {
  return gap->before_op > gap->after_op + 1 && draft->pages[gap->tensor] > 0 && !gap->fixed;
}

/* Units in what `taken_bytes` leave of a budget. */
static uint64_t limit_in(uint64_t budget_bytes, uint64_t taken_bytes, uint64_t unit_bytes) {
  return budget_bytes < taken_bytes ? 0 : (budget_bytes - taken_bytes) / unit_bytes;
}

static mr_status allocate(struct mr_draft *draft) {
  const struct mr_graph *graph = draft->program;
  uint64_t places = (uint64_t)graph->tensor_count + graph->op_count;
  draft->pages = mr_allocate(places, sizeof *draft->pages);
  draft->host_pages = mr_allocate(graph->tensor_count, sizeof *draft->host_pages);
  draft->small_offsets = mr_allocate(places, sizeof *draft->small_offsets);
  draft->clock = mr_allocate(draft->op_count + 1ull, sizeof *draft->clock);
  draft->part = mr_allocate(draft->op_count, sizeof *draft->part);
  draft->leaving = mr_allocate(graph->tensor_count, sizeof *draft->leaving);
  draft->move_seconds = mr_allocate(graph->tensor_count, sizeof *draft->move_seconds);
  if (draft->pages == NULL || draft->host_pages == NULL || draft->small_offsets == NULL ||
      draft->clock == NULL || draft->part == NULL || draft->move_seconds == NULL ||
      draft->leaving == NULL) {
    return MR_NO_MEMORY;
  }
  mr_status status = mr_books_init(&draft->kept_usage, draft->op_count);
  if (status == MR_OK) {
    status = mr_books_init(&draft->usage, draft->op_count);
  }
  return status == MR_OK ? mr_books_init(&draft->host_usage, draft->op_count) : status;
}

uint64_t mr_draft_turn_pages(const struct mr_draft *draft) {
  uint64_t pages = 0;
  for (uint32_t i = 0; i < draft->turn_count; i++) {
    pages += draft->turn_pages[i];
  }
  return pages;
}

void mr_draft_set_limits(struct mr_draft *draft) {
  const struct mr_plan_problem *problem = draft->problem;
  const uint64_t *budget = problem->budget_bytes;
  draft->limit_pages = limit_in(budget[MR_TIER_DEVICE], draft->small_bytes, draft->page_bytes);
  draft->limit_pages -= draft->limit_pages % mr_plan_pages_mapped(problem);
  uint64_t turn_bytes = mr_draft_turn_pages(draft) * mr_plan_host_page_bytes(draft->page_bytes);
  draft->host_limit_pages = limit_in(budget[MR_TIER_HOST], draft->handover_bytes + turn_bytes,
                                     mr_plan_host_page_bytes(draft->page_bytes));
  draft->nvme_limit_units = limit_in(budget[MR_TIER_NVME], 0, problem->extent_unit_bytes);
}

/* What ops and moves take, and which part of the step ops are in. */
static void fill_tables(struct mr_draft *draft) {
  for (uint32_t k = 0; k < draft->op_count; k++) {
    draft->clock[k + 1] = draft->clock[k] + mr_draft_op_seconds(draft, k);
    draft->part[k] = (uint8_t)((uint64_t)k * MR_STEP_PARTS / draft->op_count);
  }
  for (uint32_t t = 0; t < draft->program->tensor_count; t++) {
    for (mr_link l = 0; l < MR_LINK_COUNT; l++) {
      draft->move_seconds[t][l] =
          mr_plan_move_seconds(draft->problem, l, draft->program->tensors[t].bytes);
    }
  }
}

mr_status mr_draft_init_places(struct mr_draft *draft, const struct mr_plan_problem *problem,
                               uint64_t page_bytes) {
  const struct mr_graph *graph = problem->program;
  *draft = (struct mr_draft){
      .problem = problem, .program = graph, .op_count = graph->op_count, .page_bytes = page_bytes};
  mr_status status = mr_liveness_init(&draft->liveness, graph);
  if (status == MR_OK) {
    status = allocate(draft);
  }
  if (status == MR_OK) {
    for (uint32_t t = 0; t < graph->tensor_count; t++) {
      uint64_t bytes = graph->tensors[t].bytes;
      draft->pages[t] = mr_plan_pages_of(bytes, page_bytes);
      draft->host_pages[t] =
          draft->pages[t] == 0 ? 0 : mr_div_up(bytes, mr_plan_host_page_bytes(page_bytes));
    }
    for (uint32_t k = 0; k < graph->op_count; k++) {
      draft->pages[graph->tensor_count + k] =
          mr_plan_pages_of(graph->ops[k].scratch_bytes, page_bytes);
    }
    status = mr_draft_place(draft);
  }
  if (status != MR_OK) {
    mr_draft_fini(draft);
  }
  return status;
}

mr_status mr_draft_init(struct mr_draft *draft, const struct mr_plan_problem *problem,
                        uint64_t page_bytes) {
  mr_status status = mr_draft_init_places(draft, problem, page_bytes);
  if (status != MR_OK) {
    return status;
  }
  fill_tables(draft);
  status = mr_draft_make_gaps(draft);
  if (status == MR_OK) {
    status = mr_draft_pack_small(draft);
  }
  if (status != MR_OK) {
    mr_draft_fini(draft);
    return status;
  }
  mr_draft_measure_kept(draft);
  mr_draft_set_limits(draft);
  mr_draft_reset(draft);
  return MR_OK;
}

void mr_draft_fini(struct mr_draft *draft) {
  mr_liveness_fini(&draft->liveness);
  mr_liveness_fini(&draft->host_liveness);
  mr_guide_fini(&draft->guide);
  free(draft->on_host);
  free(draft->runs_on_host);
  free(draft->turn_of);
  free(draft->turn_pages);
  free(draft->pages);
  free(draft->host_pages);
  free(draft->small_offsets);
  mr_books_fini(&draft->kept_usage);
  mr_books_fini(&draft->usage);
  mr_books_fini(&draft->host_usage);
  free(draft->clock);
  free(draft->part);
  free(draft->leaving);
  free(draft->move_seconds);
  free(draft->gaps);
  free(draft->first_gap);
  *draft = (struct mr_draft){0};
}

mr_status mr_draft_saved_init(struct mr_draft_saved *saved, const struct mr_draft *draft) {
  saved->gaps = mr_allocate(draft->gap_count, sizeof *saved->gaps);
  saved->leaving = mr_allocate(draft->program->tensor_count, sizeof *saved->leaving);
  mr_status status = saved->gaps == NULL || saved->leaving == NULL ? MR_NO_MEMORY : MR_OK;
  if (status == MR_OK) {
    status = mr_books_init(&saved->usage, draft->op_count);
  }
  if (status == MR_OK) {
    status = mr_books_init(&saved->host_usage, draft->op_count);
  }
  if (status != MR_OK) {
    mr_draft_saved_fini(saved);
  }
  return status;
}

void mr_draft_saved_fini(struct mr_draft_saved *saved) {
  free(saved->gaps);
  free(saved->leaving);
  mr_books_fini(&saved->usage);
  mr_books_fini(&saved->host_usage);
  *saved = (struct mr_draft_saved){0};
}

void mr_draft_save(const struct mr_draft *draft, struct mr_draft_saved *saved) {
  memcpy(saved->gaps, draft->gaps, draft->gap_count * sizeof *saved->gaps);
  memcpy(saved->leaving, draft->leaving, draft->program->tensor_count * sizeof *saved->leaving);
  mr_books_copy(&saved->usage, &draft->usage);
  mr_books_copy(&saved->host_usage, &draft->host_usage);
  memcpy(saved->link_seconds, draft->link_seconds, sizeof saved->link_seconds);
  memcpy(saved->scarcity, draft->scarcity, sizeof saved->scarcity);
  saved->nvme_units = draft->nvme_units;
  saved->times = draft->times;
}

void mr_draft_restore(struct mr_draft *draft, const struct mr_draft_saved *saved) {
  memcpy(draft->gaps, saved->gaps, draft->gap_count * sizeof *saved->gaps);
  memcpy(draft->leaving, saved->leaving, draft->program->tensor_count * sizeof *saved->leaving);
  mr_books_copy(&draft->usage, &saved->usage);
  mr_books_copy(&draft->host_usage, &saved->host_usage);
  memcpy(draft->link_seconds, saved->link_seconds, sizeof saved->link_seconds);
  memcpy(draft->scarcity, saved->scarcity, sizeof saved->scarcity);
  draft->nvme_units = saved->nvme_units;
  draft->times = saved->times;
}

bool mr_draft_next_slot(const struct mr_draft *draft, mr_tensor_id tensor, uint32_t *cursor,
                        struct mr_draft_slot *slot_out) {
  uint32_t end = draft->first_gap[tensor + 1];
  uint32_t first = *cursor;
  while (first < end && draft->gaps[first].decision != MR_DECISION_HOST) {
    first++;
  }
  if (first == end) {
    return false;
  }
  const struct mr_draft_gap *final = &draft->gaps[end - 1];
  if (draft->turn_of[tensor] != MR_NO_TURN) {
    *slot_out = (struct mr_draft_slot){
        .first_op = draft->liveness.accesses[draft->liveness.first[tensor]].op,
        .last_op = mr_draft_last_on_host(draft, tensor, draft->op_count),
        .first_gap = first,
        .last_gap = end - 1};
    *cursor = end;
    return true;
  }
  if (draft->on_host[tensor] || (final->wrap && final->decision == MR_DECISION_HOST)) {
    *slot_out = (struct mr_draft_slot){.always = true, .first_gap = first, .last_gap = end - 1};
    *cursor = end;
    return true;
  }
  uint32_t last = first;
  for (uint32_t i = first + 1; i < end && !draft->gaps[i].after_writes; i++) {
    if (draft->gaps[i].decision == MR_DECISION_HOST) {
      last = i;
    }
  }
  *slot_out = (struct mr_draft_slot){.first_op = draft->gaps[first].after_op,
                                     .last_op = draft->gaps[last].before_op,
                                     .first_gap = first,
                                     .last_gap = last};
  *cursor = last + 1;
  return true;
}

/*
 * Which evictions need a move out. A copy below is valid from the move that made it to the next
 * write. At the start of a step only the home holds one, or its copy, so that the first step, which
 * starts from these alone, is like any other.
 */
static void mark_written(struct mr_draft *draft, mr_tensor_id tensor) {
  uint32_t end = draft->first_gap[tensor + 1];
  struct mr_draft_gap *final = &draft->gaps[end - 1];
  bool valid[MR_DECISION_NVME + 1] = {false};
  bool from_home[MR_DECISION_NVME + 1] = {false};
  valid[final->decision] = final->wrap;
  from_home[final->decision] = final->wrap;
  final->home_below = false;
  for (uint32_t i = draft->first_gap[tensor]; i < end; i++) {
    struct mr_draft_gap *gap = &draft->gaps[i];
    uint8_t decision = gap->decision;
    if (gap->after_writes) {
      valid[MR_DECISION_HOST] = false;
      valid[MR_DECISION_NVME] = false;
    }
    gap->written = false;
    if (decision == MR_DECISION_KEEP || gap->dead) continue;
    gap->written = !valid[decision] && !gap->made_below;
    from_home[decision] = from_home[decision] && !gap->written;
    if (from_home[decision]) {
      final->home_below = true;
    }
    valid[decision] = true;
    valid[MR_DECISION_NVME] = valid[MR_DECISION_NVME] && !gap->host_writes;
  }
}

/* Adds (or takes away) a move over the link, and over the one that it crosses. */
static void account_move(struct mr_draft *draft, mr_tensor_id tensor, mr_link link, int sign) {
  for (mr_link l = link; l < MR_LINK_COUNT; l = mr_plan_crossed(draft->problem, l)) {
    draft->link_seconds[l] += sign * draft->move_seconds[tensor][l];
  }
}

/* Adds (sign 1) or takes away (sign -1) what the tensor's decisions use of links, host and NVMe. */
static void account(struct mr_draft *draft, mr_tensor_id tensor, int sign) {
  uint64_t bytes = draft->program->tensors[tensor].bytes;
  bool nvme = false;
  for (uint32_t i = draft->first_gap[tensor]; i < draft->first_gap[tensor + 1]; i++) {
    const struct mr_draft_gap *gap = &draft->gaps[i];
    if (gap->decision == MR_DECISION_KEEP || gap->dead) continue;
    bool host = gap->decision == MR_DECISION_HOST;
    nvme = nvme || !host;
    if (gap->resting) continue;
    if (!gap->final) {
      account_move(draft, tensor, host ? MR_LINK_HOST_TO_DEVICE : MR_LINK_NVME_READ, sign);
    }
    if (gap->written) {
      account_move(draft, tensor, host ? MR_LINK_DEVICE_TO_HOST : MR_LINK_NVME_WRITE, sign);
    }
  }
  int64_t pages = sign * (int64_t)draft->host_pages[tensor];
  uint32_t cursor = draft->first_gap[tensor];
  struct mr_draft_slot slot;
  while (draft->turn_of[tensor] == MR_NO_TURN &&
         mr_draft_next_slot(draft, tensor, &cursor, &slot)) {
    uint32_t from = slot.always ? 0 : slot.first_op;
    uint32_t to = slot.always ? draft->op_count : slot.last_op + 1;
    mr_books_add(&draft->host_usage, from, to, pages);
  }
  if (nvme) {
    uint64_t units = mr_div_up(bytes, draft->problem->extent_unit_bytes);
    draft->nvme_units += sign > 0 ? units : 0 - units;
  }
}

bool mr_draft_lower_tiers_fit(const struct mr_draft *draft) {
  return draft->nvme_units <= draft->nvme_limit_units &&
         mr_books_peak(&draft->host_usage) <= draft->host_limit_pages;
}

static void hole_add(struct mr_draft *draft, const struct mr_draft_gap *gap, bool free_pages) {
  if (gap->decision != MR_DECISION_KEEP) {
    int64_t pages = (int64_t)draft->pages[gap->tensor];
    mr_books_add(&draft->usage, gap->release_op, gap->fetch_op, free_pages ? -pages : pages);
  }
}

static void decide(struct mr_draft *draft, struct mr_draft_gap *gap, uint8_t decision) {
  account(draft, gap->tensor, -1);
  hole_add(draft, gap, false);
  draft->leaving[gap->tensor] -= gap->decision != MR_DECISION_KEEP;
  draft->leaving[gap->tensor] += decision != MR_DECISION_KEEP;
  gap->decision = decision;
  gap->release_op = gap->after_op + 1;
  gap->fetch_op = gap->before_op;
  gap->evict_op = gap->after_op;
  gap->fetch_seconds = 0;
  hole_add(draft, gap, true);
  mark_written(draft, gap->tensor);
  account(draft, gap->tensor, 1);
}

bool mr_draft_decide(struct mr_draft *draft, uint32_t index, uint8_t decision) {
  struct mr_draft_gap *gap = &draft->gaps[index];
  if ((gap->banned & 1u << decision) != 0) {
    return false;
  }
  if (gap->fixed) {
    return false;
  }
  MR_ASSERT(gap->decision == MR_DECISION_KEEP);
  decide(draft, gap, decision);
  if (mr_draft_lower_tiers_fit(draft)) {
    return true;
  }
  decide(draft, gap, MR_DECISION_KEEP);
  return false;
}

void mr_draft_revive(struct mr_draft *draft, uint32_t index) {
  decide(draft, &draft->gaps[index], MR_DECISION_KEEP);
}

void mr_draft_keep(struct mr_draft *draft, uint32_t index) {
  if (!draft->gaps[index].fixed) {
    decide(draft, &draft->gaps[index], MR_DECISION_KEEP);
  }
}

bool mr_draft_keep_again(struct mr_draft *draft, uint32_t index) {
  struct mr_draft_gap *gap = &draft->gaps[index];
  const struct mr_draft_gap before = *gap;
  bool fit = mr_draft_lower_tiers_fit(draft);
  mr_draft_keep(draft, index);
  if (!fit || mr_draft_lower_tiers_fit(draft)) {
    return gap->decision == MR_DECISION_KEEP;
  }
  decide(draft, gap, before.decision);
  mr_draft_set_release(draft, index, before.release_op);
  mr_draft_set_fetch(draft, index, before.fetch_op);
  gap->evict_op = before.evict_op;
  gap->fetch_seconds = before.fetch_seconds;
  return false;
}

void mr_draft_reset(struct mr_draft *draft) {
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    draft->gaps[i].decision = MR_DECISION_KEEP;
    draft->gaps[i].written = false;
  }
  mr_books_copy(&draft->usage, &draft->kept_usage);
  mr_books_clear(&draft->host_usage);
  memset(draft->link_seconds, 0, sizeof draft->link_seconds);
  memset(draft->leaving, 0, draft->program->tensor_count * sizeof *draft->leaving);
  draft->nvme_units = 0;
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    if (draft->gaps[i].fixed) {
      decide(draft, &draft->gaps[i], draft->gaps[i].dead ? MR_DRAFT_DEAD : MR_DECISION_HOST);
    }
  }
}

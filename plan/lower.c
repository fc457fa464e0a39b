/* SPDX-License-Identifier: Apache-2.0 */
/* From decisions to places: the stays of each tensor, host slots, extents, homes, page numbers. */
#include "plan/lower.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/colour.h"
#include "plan/stages.h"

/* Of the time of all ops: a move of pages that takes longer is worth some search to do without. */
#define COSTLY_MOVE 1e-3

/* The access that closes a gap on a line, counted from the tensor's first: a gap between two
 * accesses has the number of the one that opens it, unless one comes before them all. */
static uint32_t closing_access(const struct mr_draft *draft, uint32_t gap) {
  uint32_t first = draft->first_gap[draft->gaps[gap].tensor];
  return gap - first + (draft->gaps[first].made_below ? 0 : 1);
}

uint32_t mr_lowering_opening(const struct mr_draft *draft, uint32_t gap) {
  MR_ASSERT(!draft->gaps[gap].made_below);
  return draft->liveness.first[draft->gaps[gap].tensor] + closing_access(draft, gap) - 1;
}

uint32_t mr_lowering_closing(const struct mr_draft *draft, uint32_t gap) {
  uint32_t first = draft->liveness.first[draft->gaps[gap].tensor];
  return draft->gaps[gap].wrap ? first : first + closing_access(draft, gap);
}

/* Adds an instance; last_op is unrolled. */
static uint32_t add_stay(struct mr_lowering *l, struct mr_instance instance,
                         const struct mr_colour_item *item) {
  uint32_t index = l->plan->instance_count++;
  l->items[index] = *item;
  l->items[index].like = UINT32_MAX;
  l->plan->instances[index] = instance;
  return index;
}

static void set_stay(struct mr_lowering *l, mr_tensor_id tensor, uint32_t from, uint32_t to,
                     uint32_t stay) {
  const uint32_t *first = l->draft->liveness.first;
  uint32_t count = first[tensor + 1] - first[tensor];
  for (uint32_t i = from; i <= to; i++) {
    l->stay_of_access[first[tensor] + i % count] = stay;
  }
}

/* A tensor with one stay: small, an input, or never evicted. */
static void add_single_stay(struct mr_lowering *l, mr_tensor_id t) {
  const struct mr_draft *draft = l->draft;
  const struct mr_tensor *tensor = &draft->program->tensors[t];
  uint32_t first = draft->liveness.first[t];
  uint32_t last = draft->liveness.first[t + 1];
  bool always = tensor->role == MR_INPUT || mr_tensor_goes_round(tensor);
  if (!always && first == last) {
    return;
  }
  struct mr_instance instance = {.tensor = t, .bytes = tensor->bytes, .always = always};
  if (!always) {
    instance.first_op = draft->liveness.accesses[first].op;
    instance.last_op = draft->liveness.accesses[last - 1].op;
  }
  instance.small = draft->pages[t] == 0;
  instance.small_offset = instance.small ? draft->small_offsets[t] : 0;
  struct mr_colour_item item = {.first_op = instance.first_op,
                                .last_op = instance.last_op,
                                .always = always,
                                .page_count = (uint32_t)draft->pages[t]};
  uint32_t stay = add_stay(l, instance, &item);
  if (first < last) {
    set_stay(l, t, 0, last - first - 1, stay);
  }
}

/* A stay of a tensor that is evicted somewhere, to the release of the gap `stop`, or NULL; both ops
 * unrolled. The tail of an eviction that crosses the end of the step, or that an op on the host
 * waits for beside the device, keeps its pages in the colouring alone. */
static uint32_t add_long_stay(struct mr_lowering *l, mr_tensor_id t, uint32_t first_op,
                              uint32_t last_op, const struct mr_draft_gap *stop) {
  const struct mr_draft *draft = l->draft;
  uint32_t n = draft->op_count;
  if (first_op >= n) {
    first_op -= n;
    last_op -= n;
  }
  MR_ASSERT(first_op < n && last_op >= first_op && last_op - first_op < n);
  struct mr_instance instance = {.tensor = t, .bytes = draft->program->tensors[t].bytes};
  instance.first_op = first_op;
  instance.last_op = last_op % n;
  if (stop != NULL) {
    uint32_t release_op = (uint32_t)mr_min_u64(stop->release_op, stop->latest_release_op);
    bool crosses = stop->wrap && release_op > n;
    instance.last_op = crosses ? n - 1 : (last_op - (stop->release_op - release_op)) % n;
  }
  struct mr_colour_item item = {
      .first_op = first_op, .last_op = last_op, .page_count = (uint32_t)draft->pages[t]};
  return add_stay(l, instance, &item);
}

/* The first evicted gap of the tensor at or after `gap`; first_gap[t + 1]: none. */
static uint32_t next_evicted(const struct mr_draft *draft, mr_tensor_id t, uint32_t gap) {
  uint32_t end = draft->first_gap[t + 1];
  while (gap < end && draft->gaps[gap].decision == MR_DECISION_KEEP) {
    gap++;
  }
  return gap;
}

/*
 * The stays of a tensor that is evicted somewhere: each goes from the fetch of an evicted gap, or
 * from birth on the device, to the release of the next one, or to the last access. Round the end of
 * the step, the next one may be counted on the next turn.
 */
static void add_stays(struct mr_lowering *l, mr_tensor_id t) {
  const struct mr_draft *draft = l->draft;
  const struct mr_draft_gap *gaps = draft->gaps;
  uint32_t begin = draft->first_gap[t];
  uint32_t end = draft->first_gap[t + 1];
  uint32_t accesses = draft->liveness.first[t + 1] - draft->liveness.first[t];
  uint32_t first = next_evicted(draft, t, begin);
  bool circle = mr_tensor_goes_round(&draft->program->tensors[t]);
  if (gaps[first].resting) {
    return;
  }
  uint32_t before = UINT32_MAX;
  if (!circle && !gaps[first].made_below) {
    uint32_t birth = draft->liveness.accesses[draft->liveness.first[t]].op;
    before = add_long_stay(l, t, birth, gaps[first].release_op - 1, &gaps[first]);
    set_stay(l, t, 0, first - begin, before);
  }
  for (uint32_t gap = first; gap < end && !gaps[gap].final;) {
    uint32_t next = next_evicted(draft, t, gap + 1);
    uint32_t stop = next;
    uint32_t turn = 0;
    uint32_t last_op = 0;
    if (next == end && circle) {
      stop = first;
      turn = draft->op_count;
    }
    if (stop == end) {
      last_op = draft->liveness.accesses[draft->liveness.first[t + 1] - 1].op;
    } else {
      last_op = gaps[stop].release_op - 1 + turn;
    }
    uint32_t stay =
        add_long_stay(l, t, gaps[gap].fetch_op, last_op, stop < end ? &gaps[stop] : NULL);
    uint32_t last =
        stop == end ? accesses - 1 : closing_access(draft, stop) - 1 + (turn > 0 ? accesses : 0);
    set_stay(l, t, closing_access(draft, gap), last, stay);
    if (before != UINT32_MAX && l->items[before].first_op < l->items[stay].first_op) {
      l->items[stay].like = before;
    }
    before = stay;
    gap = next;
  }
}

static void add_scratch(struct mr_lowering *l, uint32_t op) {
  const struct mr_draft *draft = l->draft;
  uint32_t place = draft->program->tensor_count + op;
  uint64_t bytes = draft->program->ops[op].scratch_bytes;
  if (bytes == 0) {
    return;
  }
  struct mr_instance instance = {
      .tensor = MR_NO_TENSOR, .bytes = bytes, .first_op = op, .last_op = op};
  instance.small = draft->pages[place] == 0;
  instance.small_offset = instance.small ? draft->small_offsets[place] : 0;
  struct mr_colour_item item = {
      .first_op = op, .last_op = op, .page_count = (uint32_t)draft->pages[place]};
  (void)add_stay(l, instance, &item);
}

/* The place on the host for the ops that use the tensor there; its slot is known later. */
static uint32_t add_host_stay(struct mr_lowering *l, mr_tensor_id t) {
  struct mr_instance instance = {
      .tensor = t, .bytes = l->draft->program->tensors[t].bytes, .always = true, .on_host = true};
  return add_stay(l, instance, &(struct mr_colour_item){.always = true});
}

static void add_all_stays(struct mr_lowering *l) {
  const struct mr_draft *draft = l->draft;
  for (uint32_t t = 0; t < draft->program->tensor_count; t++) {
    l->host_stay[t] = draft->on_host[t] ? add_host_stay(l, t) : MR_NO_INSTANCE;
    if (next_evicted(draft, t, draft->first_gap[t]) == draft->first_gap[t + 1]) {
      add_single_stay(l, t);
    } else {
      add_stays(l, t);
    }
  }
  for (uint32_t k = 0; k < draft->op_count; k++) {
    add_scratch(l, k);
  }
}

/* Numbers the entries of all items; false where there are too many to count. */
static bool number_entries(struct mr_colour_item *items, uint32_t count, uint32_t *entries_out) {
  uint64_t entries = 0;
  for (uint32_t i = 0; i < count; i++) {
    items[i].first_page = (uint32_t)entries;
    entries += items[i].page_count;
    if (entries > UINT32_MAX) {
      mr_log(MR_LOG_ERROR, "the plan needs more than %u pages; take larger ones", UINT32_MAX);
      return false;
    }
  }
  *entries_out = (uint32_t)entries;
  return true;
}

/* Neighbours need not be moved to be bound. */
static enum mr_colouring colouring_of(const struct mr_draft *draft) {
  double move_seconds = draft->problem->bind_seconds_per_move;
  if (draft->problem->half_pages) {
    return MR_COLOUR_HALVES;
  }
  return move_seconds > COSTLY_MOVE * draft->clock[draft->op_count] ? MR_COLOUR_CLOSEST
         : move_seconds > 0                                         ? MR_COLOUR_NEIGHBOURS
                                                                    : MR_COLOUR_PAGES;
}

static mr_status colour_device(struct mr_lowering *l, uint64_t page_limit, uint64_t *pages_out) {
  struct mr_program_plan *plan = l->plan;
  if (!number_entries(l->items, plan->instance_count, &plan->page_entry_count)) {
    return MR_INVALID;
  }
  plan->pages = mr_allocate(plan->page_entry_count, sizeof *plan->pages);
  if (plan->pages == NULL) {
    return MR_NO_MEMORY;
  }
  for (uint32_t i = 0; i < plan->instance_count; i++) {
    plan->instances[i].first_page = l->items[i].first_page;
    plan->instances[i].page_count = l->items[i].page_count;
  }
  if (l->draft->problem->contiguous) {
    return mr_colour_contiguous(l->items, plan->instance_count, l->draft->op_count, page_limit,
                                plan->pages, pages_out);
  }
  return mr_colour(l->items, plan->instance_count, l->draft->op_count, page_limit,
                   colouring_of(l->draft), plan->pages, pages_out);
}

static void add_slots(struct mr_lowering *l, struct mr_colour_item *items) {
  const struct mr_draft *draft = l->draft;
  struct mr_program_plan *plan = l->plan;
  for (uint32_t t = 0; t < draft->program->tensor_count; t++) {
    uint32_t cursor = draft->first_gap[t];
    struct mr_draft_slot slot;
    while (mr_draft_next_slot(draft, t, &cursor, &slot)) {
      uint32_t index = plan->slot_count++;
      items[index] = (struct mr_colour_item){
          .first_op = slot.first_op,
          .last_op = slot.last_op,
          .always = slot.always,
          .page_count = draft->turn_of[t] == MR_NO_TURN ? (uint32_t)draft->host_pages[t] : 0,
          .like = UINT32_MAX};
      plan->slots[index] = (struct mr_slot){.tensor = t,
                                            .bytes = draft->program->tensors[t].bytes,
                                            .first_op = slot.first_op,
                                            .last_op = slot.last_op,
                                            .always = slot.always};
      for (uint32_t i = slot.first_gap; i <= slot.last_gap; i++) {
        if (draft->gaps[i].decision == MR_DECISION_HOST) {
          l->slot_of_gap[i] = index;
        }
      }
      if (draft->on_host[t]) {
        plan->instances[l->host_stay[t]].slot = index;
      }
    }
  }
}

/* *fits_out: false where slots that go round the end of the step leave the host short. */
static mr_status colour_host(struct mr_lowering *l, bool *fits_out) {
  struct mr_program_plan *plan = l->plan;
  const struct mr_draft *draft = l->draft;
  uint64_t most = (uint64_t)draft->gap_count + draft->turn_count;
  struct mr_colour_item *items = mr_allocate(most, sizeof *items);
  mr_status status = MR_NO_MEMORY;
  if (items == NULL) {
    return status;
  }
  add_slots(l, items);
  uint32_t count = plan->slot_count + draft->turn_count;
  for (uint32_t i = 0; i < draft->turn_count; i++) {
    items[plan->slot_count + i] = (struct mr_colour_item){
        .always = true, .page_count = (uint32_t)draft->turn_pages[i], .like = UINT32_MAX};
  }
  if (!number_entries(items, count, &plan->host_page_entry_count)) {
    status = MR_INVALID;
    goto done;
  }
  plan->host_pages = mr_allocate(plan->host_page_entry_count, sizeof *plan->host_pages);
  if (plan->host_pages == NULL) {
    goto done;
  }
  for (uint32_t i = 0; i < plan->slot_count; i++) {
    uint32_t turn = draft->turn_of[plan->slots[i].tensor];
    const struct mr_colour_item *place =
        turn == MR_NO_TURN ? &items[i] : &items[plan->slot_count + turn];
    plan->slots[i].first_page = place->first_page;
    plan->slots[i].page_count = (uint32_t)draft->host_pages[plan->slots[i].tensor];
  }
  uint64_t limit_pages = draft->host_limit_pages + mr_draft_turn_pages(draft);
  uint64_t pages = 0;
  status = mr_colour(items, count, draft->op_count, limit_pages, MR_COLOUR_PAGES, plan->host_pages,
                     &pages);
  plan->host_page_count = (uint32_t)pages;
  *fits_out = pages <= limit_pages;

done:
  free(items);
  return status;
}

static void add_extents(struct mr_lowering *l) {
  const struct mr_draft *draft = l->draft;
  struct mr_program_plan *plan = l->plan;
  uint64_t unit = draft->problem->extent_unit_bytes;
  for (uint32_t t = 0; t < draft->program->tensor_count; t++) {
    uint64_t bytes = draft->program->tensors[t].bytes;
    uint32_t extent = MR_NO_SLOT;
    for (uint32_t i = draft->first_gap[t]; i < draft->first_gap[t + 1]; i++) {
      if (draft->gaps[i].decision != MR_DECISION_NVME) continue;
      if (extent == MR_NO_SLOT) {
        extent = plan->extent_count++;
        plan->extents[extent] = (struct mr_extent){.tensor = t, .bytes = bytes};
        plan->nvme_bytes += mr_round_up(bytes, unit);
      }
      l->slot_of_gap[i] = extent;
    }
  }
}

static void add_homes(struct mr_lowering *l) {
  const struct mr_draft *draft = l->draft;
  struct mr_program_plan *plan = l->plan;
  for (uint32_t t = 0; t < draft->program->tensor_count; t++) {
    plan->homes[t] = (struct mr_home){MR_TIER_DEVICE, MR_NO_INSTANCE, MR_NO_SLOT, MR_TIER_DEVICE};
  }
  for (uint32_t i = 0; i < plan->instance_count; i++) {
    if (plan->instances[i].always && !plan->instances[i].on_host) {
      plan->homes[plan->instances[i].tensor].instance = i;
    }
  }
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    const struct mr_draft_gap *gap = &draft->gaps[i];
    struct mr_home *home = &plan->homes[gap->tensor];
    if (!gap->wrap || home->instance != MR_NO_INSTANCE) continue;
    bool kept = gap->decision == MR_DECISION_KEEP;
    mr_tier below = gap->decision == MR_DECISION_HOST ? MR_TIER_HOST : MR_TIER_NVME;
    /* The fetch may come before the end of the step; then the next step begins on the device. */
    bool above = kept || (gap->fetch_op < draft->op_count && !gap->resting);
    if (above) {
      home->instance = l->stay_of_access[mr_lowering_closing(draft, i)];
      home->copy = !kept && gap->home_below ? below : MR_TIER_DEVICE;
    } else {
      home->tier = below;
    }
    if (!above || home->copy != MR_TIER_DEVICE) {
      home->slot = l->slot_of_gap[i];
    }
  }
}

static void add_gaps(struct mr_lowering *l) {
  const struct mr_draft *draft = l->draft;
  uint32_t n = draft->op_count;
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    const struct mr_draft_gap *gap = &draft->gaps[i];
    bool kept = gap->decision == MR_DECISION_KEEP;
    if (gap->dead) continue;
    l->plan->gaps[l->plan->gap_count++] =
        (struct mr_gap){.tensor = gap->tensor,
                        .after_op = gap->after_op,
                        .before_op = gap->before_op % n,
                        .release_op = kept ? 0 : gap->release_op % n,
                        .fetch_op = kept ? 0 : gap->fetch_op % n,
                        .decision = gap->decision,
                        .written = gap->written,
                        .final = gap->final};
  }
}

static mr_status allocate(struct mr_lowering *l) {
  const struct mr_draft *draft = l->draft;
  struct mr_program_plan *plan = l->plan;
  uint32_t tensors = draft->program->tensor_count;
  uint64_t stays = (uint64_t)tensors + draft->gap_count + draft->op_count;
  l->items = mr_allocate(stays, sizeof *l->items);
  l->stay_of_access = mr_allocate(draft->liveness.first[tensors], sizeof *l->stay_of_access);
  l->host_stay = mr_allocate(tensors, sizeof *l->host_stay);
  l->slot_of_gap = mr_allocate(draft->gap_count, sizeof *l->slot_of_gap);
  plan->instances = mr_allocate(stays, sizeof *plan->instances);
  plan->slots = mr_allocate(draft->gap_count, sizeof *plan->slots);
  plan->extents = mr_allocate(tensors, sizeof *plan->extents);
  plan->gaps = mr_allocate(draft->gap_count, sizeof *plan->gaps);
  plan->homes = mr_allocate(tensors, sizeof *plan->homes);
  bool failed = l->items == NULL || l->stay_of_access == NULL || l->host_stay == NULL ||
                l->slot_of_gap == NULL || plan->instances == NULL || plan->slots == NULL ||
                plan->extents == NULL || plan->gaps == NULL || plan->homes == NULL;
  return failed ? MR_NO_MEMORY : MR_OK;
}

static mr_status lower(struct mr_lowering *l, uint64_t page_limit, uint64_t *pages_out) {
  MR_ASSERT(mr_draft_lower_tiers_fit(l->draft));
  mr_status status = allocate(l);
  if (status != MR_OK) {
    return status;
  }
  add_all_stays(l);
  status = colour_device(l, page_limit, pages_out);
  if (status != MR_OK || *pages_out > page_limit) {
    return status;
  }
  l->plan->device_page_count = (uint32_t)*pages_out;
  bool host_fits = false;
  status = colour_host(l, &host_fits);
  if (status != MR_OK || !host_fits) {
    *pages_out = UINT64_MAX;
    return status;
  }
  add_extents(l);
  add_homes(l);
  add_gaps(l);
  return mr_lowering_add_instructions(l);
}

mr_status mr_draft_lower(const struct mr_draft *draft, uint64_t page_limit,
                         struct mr_program_plan *plan, uint64_t *pages_out) {
  struct mr_lowering l = {.draft = draft, .plan = plan};
  plan->recipe = draft->recipe;
  mr_status status = lower(&l, page_limit, pages_out);
  free(l.items);
  free(l.stay_of_access);
  free(l.host_stay);
  free(l.slot_of_gap);
  if (status != MR_OK || *pages_out > page_limit) {
    mr_plan_clear(plan);
  }
  return status;
}

void mr_plan_clear(struct mr_program_plan *plan) {
  free(plan->instances);
  free(plan->pages);
  free(plan->host_pages);
  free(plan->slots);
  free(plan->extents);
  free(plan->gaps);
  free(plan->homes);
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    free(plan->instructions[q]);
  }
  free(plan->waits);
  free(plan->births);
  free(plan->operands);
  free(plan->first_operand);
  *plan = (struct mr_program_plan){.program = plan->program};
}

void mr_program_plan_destroy(struct mr_program_plan *plan) {
  if (plan != NULL) {
    mr_plan_clear(plan);
    free(plan);
  }
}

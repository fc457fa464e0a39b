/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run has taken of its tiers, counted where it takes it and never read from the plan: pages
 * that the device has brought somewhere, small tensors that an op has been given, host pages that a
 * copy has filled or an op been given, what ops on the host are handed, extents that a transfer
 * has written, and all that rests in a home. A tier gives nothing back before the plan changes, so
 * these counts are peaks.
 *
 * Of an accelerator others than the run have a part, which grows when libraries load more code or
 * another process comes. That is no count but a measurement of the driver's, made between steps. It
 * is in the budget as far as it was there, or had been shown by the rehearsal (rehearse.c), when
 * the plan was made; for what comes on top, the run makes room with another plan (replan.c).
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/runtime.h"

/* Only the compute queue's thread, or the one thread of a run that does not step. */
static void count_small(struct mr_run *run, uint32_t index) {
  const struct mr_instance *instance = &run->layout->instances[index];
  if (instance->small) {
    run->taken.small_bytes =
        mr_max_u64(run->taken.small_bytes, instance->small_offset + instance->bytes);
  }
}

void mr_taken_count_op(struct mr_run *run, mr_op_id op) {
  const struct mr_program_plan *layout = run->layout;
  for (uint32_t i = layout->first_operand[op]; i < layout->first_operand[op + 1]; i++) {
    uint32_t operand = layout->operands[i];
    if (operand != MR_NO_INSTANCE && layout->instances[operand].on_host) {
      mr_taken_count_slot(run, layout->instances[operand].slot);
    } else if (operand != MR_NO_INSTANCE) {
      count_small(run, operand);
    }
  }
}

/* Copies and ops may count the pages of one slot at once. */
void mr_taken_count_slot(struct mr_run *run, uint32_t slot) {
  const struct mr_slot *room = &run->layout->slots[slot];
  const uint32_t *pages = &run->layout->host_pages[room->first_page];
  _Atomic uint8_t *seen = run->taken.host_page_seen;
  for (uint32_t i = 0; i < room->page_count; i++) {
    if (atomic_load(&seen[pages[i]]) == 0 && atomic_exchange(&seen[pages[i]], 1) == 0) {
      atomic_fetch_add(&run->taken.host_page_count, 1);
    }
  }
}

void mr_taken_count_extent(struct mr_run *run, uint32_t extent) {
  uint8_t *seen = &run->taken.extent_seen[extent];
  if (*seen == 0) {
    *seen = 1;
    uint64_t bytes = mr_round_up(run->layout->extents[extent].bytes, MR_STORE_CHUNK_BYTES);
    atomic_fetch_add(&run->taken.nvme_bytes, bytes);
  }
}

static void count_home(struct mr_run *run, const struct mr_home *home) {
  mr_tier below = home->tier == MR_TIER_DEVICE ? home->copy : home->tier;
  if (below == MR_TIER_HOST) {
    mr_taken_count_slot(run, home->slot);
  } else if (below == MR_TIER_NVME) {
    mr_taken_count_extent(run, home->slot);
  }
  if (home->tier == MR_TIER_DEVICE && home->instance != MR_NO_INSTANCE) {
    count_small(run, home->instance);
  }
}

mr_status mr_taken_init(struct mr_run *run) {
  const struct mr_program_plan *layout = run->layout;
  run->taken.host_page_seen = mr_allocate(layout->host_page_count, 1);
  run->taken.extent_seen = mr_allocate(layout->extent_count, 1);
  if (run->taken.host_page_seen == NULL || run->taken.extent_seen == NULL) {
    return MR_NO_MEMORY;
  }
  for (uint32_t t = 0; t < layout->program->tensor_count; t++) {
    mr_role role = layout->program->tensors[t].role;
    if (role == MR_INPUT || mr_role_is_persistent(role)) {
      count_home(run, &layout->homes[t]);
    }
  }
  return MR_OK;
}

void mr_taken_fini(struct mr_run *run) {
  free(run->taken.host_page_seen);
  free(run->taken.extent_seen);
}

static void raise(_Atomic uint64_t *peak, uint64_t bytes) {
  if (bytes > atomic_load(peak)) {
    atomic_store(peak, bytes);
  }
}

mr_status mr_taken_look(struct mr_run *run) {
  return run->device_ops->outside == NULL
             ? MR_OK
             : run->device_ops->outside(run->device, &run->taken.outside_bytes);
}

uint64_t mr_taken_excess_bytes(const struct mr_run *run) {
  uint64_t budget[MR_TIER_COUNT];
  mr_settings_tell_budgets(&run->plan->settings, budget);
  uint64_t taken_bytes = mr_plan_need_bytes(run->layout, MR_TIER_DEVICE) + run->taken.outside_bytes;
  return taken_bytes > budget[MR_TIER_DEVICE] ? taken_bytes - budget[MR_TIER_DEVICE] : 0;
}

void mr_taken_tell(struct mr_run *run) {
  uint64_t page_bytes = run->layout->page_bytes;
  uint64_t map_bytes = mr_plan_pages_mapped(&run->plan->problem) * page_bytes;
  const uint64_t now_bytes[MR_TIER_COUNT] = {
      mr_round_up(run->taken.small_bytes, map_bytes) +
          run->device_ops->bound_page_count(run->device) * page_bytes,
      atomic_load(&run->taken.host_page_count) * mr_plan_host_page_bytes(page_bytes) +
          run->handover.memory.bytes,
      atomic_load(&run->taken.nvme_bytes),
  };
  uint64_t budget_bytes[MR_TIER_COUNT];
  mr_settings_tell_budgets(&run->plan->settings, budget_bytes);
  for (uint32_t tier = 0; tier < MR_TIER_COUNT; tier++) {
    uint64_t need_bytes = mr_plan_need_bytes(run->layout, tier);
    uint64_t of_device = tier == MR_TIER_DEVICE;
    atomic_store(&run->told_budget_bytes[tier], budget_bytes[tier]);
    MR_ASSERT(now_bytes[tier] <= need_bytes);
    raise(&run->peak_bytes[tier], now_bytes[tier] + of_device * run->taken.outside_bytes);
    raise(&run->planned_peak_bytes[tier],
          need_bytes + of_device * mr_plan_outside_bytes(run->plan));
  }
}

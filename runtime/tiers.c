/* SPDX-License-Identifier: Apache-2.0 */
/* Taking the tiers of a plan, all of them and all at once, and knowing every address before the
 * first step. */
#include <stdlib.h>
#include <string.h>

#include "runtime/runtime.h"

char *mr_host_place(const struct mr_run *run, const struct mr_slot *slot, uint64_t at,
                    uint64_t *together_out) {
  MR_ASSERT(at < slot->bytes);
  uint64_t page_bytes = mr_plan_host_page_bytes(run->layout->page_bytes);
  const uint32_t *pages = &run->layout->host_pages[slot->first_page];
  uint64_t first = at / page_bytes;
  uint64_t next = first + 1;
  while (next < slot->page_count && pages[next] == pages[next - 1] + 1) {
    next++;
  }
  *together_out = mr_min_u64(next * page_bytes, slot->bytes) - at;
  return (char *)run->host.data + pages[first] * page_bytes + at % page_bytes;
}

static mr_status take_device(struct mr_run *run, bool deferred) {
  const struct mr_program_plan *layout = run->layout;
  uint64_t *range_bytes = mr_allocate(layout->instance_count, sizeof *range_bytes);
  const uint32_t **range_pages = mr_allocate(layout->instance_count, sizeof *range_pages);
  uint32_t range_count = 0;
  run->ranges = mr_allocate(layout->instance_count, sizeof *run->ranges);
  bool allocated = range_bytes != NULL && range_pages != NULL && run->ranges != NULL;
  mr_status status =
      allocated ? mr_program_plan_list_ranges(layout, run->ranges, &range_count) : MR_NO_MEMORY;
  for (uint32_t i = 0; status == MR_OK && i < layout->instance_count; i++) {
    const struct mr_instance *instance = &layout->instances[i];
    if (run->ranges[i] != MR_NO_RANGE) {
      range_bytes[run->ranges[i]] = instance->page_count * layout->page_bytes;
      range_pages[run->ranges[i]] = &layout->pages[instance->first_page];
    }
  }
  struct mr_device_config config = {
      .page_bytes = layout->page_bytes,
      .page_count = layout->device_page_count,
      .small_bytes = layout->small_bytes,
      .range_bytes = range_bytes,
      .range_pages = range_pages,
      .range_count = range_count,
      .in_pieces = layout->moved_bytes[MR_LINK_NVME_READ] > 0,
      .deferred = deferred,
      .timeout_seconds = mr_settings_watch_seconds(&run->plan->settings),
  };
  if (status == MR_OK) {
    status = run->device_ops->create(&config, &run->device);
  }
  free(range_bytes);
  free(range_pages);
  return status;
}

static mr_status compute_addresses(struct mr_run *run) {
  const struct mr_program_plan *layout = run->layout;
  const struct mr_graph *program = layout->program;
  uint32_t operand_count = layout->first_operand[program->op_count];
  run->addresses = mr_allocate(layout->instance_count, sizeof *run->addresses);
  run->operands = mr_allocate(operand_count, sizeof *run->operands);
  if (run->addresses == NULL || run->operands == NULL) {
    return MR_NO_MEMORY;
  }
  char *small = run->device_ops->small_address(run->device);
  for (uint32_t i = 0; i < layout->instance_count; i++) {
    const struct mr_instance *instance = &layout->instances[i];
    if (instance->on_host) {
      uint64_t together = 0;
      run->addresses[i] = mr_host_place(run, &layout->slots[instance->slot], 0, &together);
      MR_ASSERT(together == instance->bytes);
    } else {
      uint32_t range = run->ranges[i];
      run->addresses[i] = range == MR_NO_RANGE ? small + instance->small_offset
                                               : run->device_ops->range_address(run->device, range);
    }
  }
  for (uint32_t i = 0; i < operand_count; i++) {
    uint32_t instance = layout->operands[i];
    run->operands[i] = instance == MR_NO_INSTANCE ? NULL : run->addresses[instance];
  }
  for (uint32_t k = 0; k < program->op_count; k++) {
    uint32_t operands = program->ops[k].input_count + program->ops[k].output_count;
    MR_ASSERT(layout->first_operand[k + 1] - layout->first_operand[k] == operands + 1);
  }
  return MR_OK;
}

mr_status mr_tiers_bind(const struct mr_run *run, uint32_t instance) {
  const struct mr_instance *stay = &run->layout->instances[instance];
  uint32_t range = run->ranges[instance];
  return range == MR_NO_RANGE
             ? MR_OK
             : run->device_ops->bind(run->device, range, &run->layout->pages[stay->first_page],
                                     stay->page_count);
}

/* What is on the device between steps must be in its place before the first one. */
static mr_status bind_residents(struct mr_run *run) {
  const struct mr_program_plan *layout = run->layout;
  mr_status status = MR_OK;
  for (uint32_t i = 0; status == MR_OK && i < layout->instance_count; i++) {
    if (layout->instances[i].always) {
      status = mr_tiers_bind(run, i);
    }
  }
  for (uint32_t t = 0; status == MR_OK && t < layout->program->tensor_count; t++) {
    const struct mr_tensor *tensor = &layout->program->tensors[t];
    if ((tensor->role == MR_INPUT || mr_tensor_goes_round(tensor)) &&
        layout->homes[t].tier == MR_TIER_DEVICE && layout->homes[t].instance != MR_NO_INSTANCE) {
      status = mr_tiers_bind(run, layout->homes[t].instance);
    }
  }
  return status;
}

/* The name that lives as long as the run, where there is one. */
static const char *extent_label(const struct mr_run *run, mr_tensor_id tensor) {
  const struct mr_graph *lasting =
      tensor < run->graph->tensor_count ? run->graph : run->layout->program;
  return lasting->tensors[tensor].name;
}

mr_status mr_tiers_take_extent(struct mr_run *run, uint32_t extent) {
  const struct mr_extent *room = &run->layout->extents[extent];
  mr_status status = mr_store_extent_create(run->store, room->bytes,
                                            extent_label(run, room->tensor), &run->extents[extent]);
  if (status == MR_OK) {
    mr_store_extent_zero(run->store, run->extents[extent]);
  }
  return status;
}

static mr_status take_store(struct mr_run *run) {
  const struct mr_settings *settings = &run->plan->settings;
  struct mr_store_options options = {
      .path_count = settings->nvme_count,
      .capacity_bytes = run->layout->nvme_bytes,
      .engine = settings->io_engine,
      .mode = run->plan->nvme.mode,
      .checksums = true,
      .timeout_seconds = settings->io_timeout_seconds,
      .inject = getenv("MEMRUN_INJECT"),
  };
  memcpy(options.paths, settings->nvme, sizeof options.paths);
  memcpy(options.path_weights, run->plan->nvme.path_weights, sizeof options.path_weights);
  mr_status status = mr_store_create(&options, &run->store);
  for (uint32_t i = 0; status == MR_OK && i < run->layout->extent_count; i++) {
    status = mr_tiers_take_extent(run, i);
  }
  return status;
}

static mr_status take_host(struct mr_run *run, bool deferred) {
  uint64_t page_bytes = run->layout->page_bytes;
  uint64_t bytes = run->layout->host_page_count * mr_plan_host_page_bytes(page_bytes);
  /* Huge pages where the device maps those, and pages of the plan are halves. On an H200's host
   * updates got through small ones at 60 % of the rate that they had been timed at in huge ones. */
  uint64_t mapped_bytes = page_bytes * mr_plan_pages_mapped(&run->plan->problem);
  return deferred ? mr_memory_reserve(bytes, mapped_bytes, "host tier", &run->host)
                  : mr_memory_map(bytes, mapped_bytes, "host tier", &run->host);
}

/* Copies of streams reach pinned memory alone. */
static mr_status pin_host(struct mr_run *run) {
  if (run->device_ops->pin == NULL || run->host.bytes == 0) {
    return MR_OK;
  }
  mr_status status =
      run->device_ops->pin(run->device, run->host.data, run->host.bytes, "pinning the host tier");
  run->host_pinned = status == MR_OK;
  return status;
}

mr_status mr_tiers_init(struct mr_run *run, const struct mr_run *before) {
  const struct mr_program_plan *layout = run->layout;
  mr_status status = take_device(run, before != NULL);
  if (status == MR_OK) {
    status = take_host(run, before != NULL);
  }
  if (status == MR_OK && before == NULL) {
    status = pin_host(run);
  }
  if (status == MR_OK) {
    status = compute_addresses(run);
  }
  if (status == MR_OK) {
    status = mr_handover_init(run);
  }
  if (status == MR_OK) {
    status = bind_residents(run);
  }
  if (status == MR_OK) {
    status = mr_taken_init(run);
  }
  if (status != MR_OK || layout->extent_count == 0) {
    return status;
  }
  run->extents = mr_allocate(layout->extent_count, sizeof *run->extents);
  if (run->extents == NULL) {
    return MR_NO_MEMORY;
  }
  status = mr_memory_map(MR_BOUNCE_BYTES, MR_BOUNCE_BYTES, "bounce buffer", &run->bounce);
  bool shared = before != NULL && mr_tiers_share_store(before, layout);
  if (status == MR_OK && !shared) {
    status = take_store(run);
  }
  return status == MR_OK ? mr_rings_init(run) : status;
}

mr_status mr_tiers_complete(struct mr_run *run) {
  mr_status status = mr_memory_populate(run->host.data, run->host.bytes, "host tier");
  if (status == MR_OK) {
    status = pin_host(run);
  }
  return status == MR_OK ? run->device_ops->complete(run->device) : status;
}

void mr_tiers_unpin(struct mr_run *run) {
  if (run->host_pinned) {
    run->device_ops->unpin(run->device, run->host.data);
    run->host_pinned = false;
  }
}

void mr_tiers_fini(struct mr_run *run) {
  bool stuck = !mr_store_destroy(run->store);
  /* Copies of a device that failed may still touch what is pinned. */
  bool settled = run->device_ops->settle == NULL || run->device == NULL ||
                 run->device_ops->settle(run->device);
  mr_rings_fini(run, stuck, settled);
  mr_handover_fini(run, settled);
  mr_tiers_unpin(run);
  if (settled) {
    mr_memory_unmap(&run->host);
  }
  if (stuck) {
    /* What is stuck in the kernel may still touch its memory. */
    run->device_ops->abandon(run->device);
  } else {
    mr_memory_unmap(&run->bounce);
    run->device_ops->destroy(run->device);
  }
  mr_taken_fini(run);
  free(run->extents);
  free(run->ranges);
  free(run->addresses);
  free(run->operands);
}

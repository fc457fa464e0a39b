/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small arena: what is below half a page is packed by offset. Persistent tensors and inputs lie
 * side by side; above them the others are packed over their lives.
 */
#include <stdlib.h>

#include "plan/draft.h"
#include "plan/pack/pack.h"

#define SMALL_ALIGNMENT 64u /* a cache line, and what op callbacks are promised */

struct small_items {
  struct mr_pack_buffer *buffers;
  uint32_t *places; /* of each buffer: index into small_offsets */
  uint32_t count;
};

static void add_item(struct small_items *items, uint32_t place, uint64_t bytes, uint32_t first_op,
                     uint32_t last_op) {
  items->places[items->count] = place;
  items->buffers[items->count++] = (struct mr_pack_buffer){first_op, last_op + 1ull, bytes};
}

/* Lays out what lives all the time and lists the others. Returns the bytes laid out. */
static uint64_t place_lasting(struct mr_draft *draft, struct small_items *items) {
  const struct mr_graph *graph = draft->program;
  uint64_t base = 0;
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    const struct mr_tensor *tensor = &graph->tensors[t];
    uint32_t first = draft->liveness.first[t];
    uint32_t last = draft->liveness.first[t + 1];
    uint64_t bytes = mr_round_up(tensor->bytes, SMALL_ALIGNMENT);
    if (draft->pages[t] > 0) continue;
    if (tensor->role == MR_INPUT || mr_tensor_goes_round(tensor)) {
      draft->small_offsets[t] = base;
      base += bytes;
    } else if (first < last) {
      const struct mr_access *accesses = draft->liveness.accesses;
      add_item(items, t, bytes, accesses[first].op, accesses[last - 1].op);
    }
  }
  for (uint32_t k = 0; k < graph->op_count; k++) {
    uint32_t place = graph->tensor_count + k;
    uint64_t bytes = mr_round_up(graph->ops[k].scratch_bytes, SMALL_ALIGNMENT);
    if (draft->pages[place] == 0 && bytes > 0) {
      add_item(items, place, bytes, k, k);
    }
  }
  return base;
}

mr_status mr_draft_pack_small(struct mr_draft *draft) {
  uint64_t most = (uint64_t)draft->program->tensor_count + draft->op_count;
  struct small_items items = {.buffers = mr_allocate(most, sizeof *items.buffers),
                              .places = mr_allocate(most, sizeof *items.places)};
  uint64_t *offsets = mr_allocate(most, sizeof *offsets);
  mr_status status = MR_NO_MEMORY;
  if (items.buffers == NULL || items.places == NULL || offsets == NULL) {
    goto done;
  }
  uint64_t base = place_lasting(draft, &items);
  struct mr_pack_problem problem = {.buffers = items.buffers,
                                    .buffer_count = items.count,
                                    .base_bytes = base,
                                    .page_bytes = draft->page_bytes};
  struct mr_pack_result result;
  status = mr_pack_solve(&problem, offsets, &result);
  if (status != MR_OK) {
    goto done;
  }
  for (uint32_t i = 0; i < items.count; i++) {
    draft->small_offsets[items.places[i]] = base + offsets[i];
  }
  draft->small_bytes = mr_round_up(base + result.peak_bytes, mr_draft_map_bytes(draft));

done:
  free(items.buffers);
  free(items.places);
  free(offsets);
  return status;
}

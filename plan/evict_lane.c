/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of moves out. */
#include "plan/evict_lane.h"

#include <stdlib.h>

mr_status mr_evict_lane_init(struct mr_evict_lane *lane, mr_link link, uint32_t gap_count) {
  *lane = (struct mr_evict_lane){.link = link, .capacity = gap_count + 1};
  lane->ring = mr_allocate(lane->capacity, sizeof *lane->ring);
  return lane->ring == NULL ? MR_NO_MEMORY : MR_OK;
}

void mr_evict_lane_fini(struct mr_evict_lane *lane) {
  free(lane->ring);
  *lane = (struct mr_evict_lane){0};
}

static struct mr_eviction *at(const struct mr_evict_lane *lane, uint32_t place) {
  uint32_t index = lane->first + place;
  return &lane->ring[index < lane->capacity ? index : index - lane->capacity];
}

void mr_evict_lane_add(struct mr_evict_lane *lane, uint32_t gap, uint64_t due_at) {
  MR_ASSERT(lane->count < lane->capacity);
  *at(lane, lane->count++) = (struct mr_eviction){gap, due_at};
}

uint32_t mr_evict_lane_gap(const struct mr_evict_lane *lane, uint32_t place) {
  MR_ASSERT(place < lane->count);
  return at(lane, place)->gap;
}

void mr_evict_lane_sort(struct mr_evict_lane *lane) {
  uint32_t best = 0;
  if (lane->count == 0 || at(lane, 0)->due_at == MR_EVICT_NOT_DUE) {
    return;
  }
  for (uint32_t i = 1; i < lane->count; i++) {
    best = at(lane, i)->due_at < at(lane, best)->due_at ? i : best;
  }
  struct mr_eviction eviction = *at(lane, best);
  for (; best > 0; best--) {
    *at(lane, best) = *at(lane, best - 1);
  }
  *at(lane, 0) = eviction;
}

void mr_evict_lane_drop(struct mr_evict_lane *lane) {
  MR_ASSERT(lane->count > 0);
  lane->first = lane->first + 1 < lane->capacity ? lane->first + 1 : 0;
  lane->count--;
}

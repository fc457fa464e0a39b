/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extents and places. An extent takes its chunks from the paths in the order of the store's
 * pattern, and within each path as few spans as there are; where a path has run out, it takes what
 * is free anywhere, so an extent fits exactly where its chunks do. The tables are as long as the
 * capacity could ever need, but only touched pages of them take memory.
 */
#include <stdlib.h>

#include "offload/private.h"

mr_status mr_extent_tables_create(struct mr_store *store) {
  store->places = mr_allocate(store->place_count, sizeof *store->places);
  store->segments = mr_allocate(store->place_count, sizeof *store->segments);
  store->extents = mr_allocate(store->place_count, sizeof *store->extents);
  store->free_segment = MR_NO_INDEX;
  store->free_extent = MR_NO_INDEX;
  for (uint32_t i = 0; i < store->lane_count; i++) {
    struct mr_lane *lane = &store->lanes[i];
    uint32_t span_limit = (uint32_t)(lane->chunk_count / 2 + 1);
    mr_status status = mr_arena_init(&lane->arena, lane->chunk_count, span_limit);
    if (status != MR_OK) {
      return status;
    }
  }
  bool whole = store->places != NULL && store->segments != NULL && store->extents != NULL;
  return whole ? MR_OK : MR_NO_MEMORY;
}

void mr_extent_tables_destroy(struct mr_store *store) {
  for (uint32_t i = 0; i < store->lane_count; i++) {
    mr_arena_fini(&store->lanes[i].arena);
  }
  free(store->places);
  free(store->segments);
  free(store->extents);
}

uint32_t mr_place_lane(const struct mr_store *store, uint32_t place) {
  uint32_t lane = 0;
  while (lane + 1 < store->lane_count && place >= store->lanes[lane + 1].first_place) {
    lane++;
  }
  return lane;
}

uint32_t mr_extent_chunk_bytes(const struct mr_extent *extent, uint64_t chunk) {
  return (uint32_t)mr_min_u64(MR_STORE_CHUNK_BYTES, extent->bytes - chunk * MR_STORE_CHUNK_BYTES);
}

/* How many of the first `count` entries of the pattern name the lane. */
static uint32_t pattern_count(const struct mr_store *store, uint32_t count, uint32_t lane) {
  uint32_t found = 0;
  for (uint32_t i = 0; i < count; i++) {
    found += store->pattern[i] == lane ? 1 : 0;
  }
  return found;
}

/* The chain that holds the chunk, and how far along. */
static uint32_t find_chain(const struct mr_store *store, const struct mr_extent *extent,
                           uint64_t chunk, uint64_t *index_out) {
  if (extent->linear || store->lane_count == 1) {
    *index_out = chunk;
    return 0;
  }
  uint32_t length = store->pattern_length;
  uint64_t position = extent->phase + chunk;
  uint32_t lane = store->pattern[position % length];
  *index_out = position / length * pattern_count(store, length, lane) +
               pattern_count(store, (uint32_t)(position % length), lane) -
               pattern_count(store, extent->phase, lane);
  return lane;
}

uint32_t mr_extent_place(const struct mr_store *store, uint32_t extent, uint64_t chunk) {
  const struct mr_extent *owner = &store->extents[extent];
  uint64_t index = 0;
  uint32_t chain = find_chain(store, owner, chunk, &index);
  uint32_t segment = owner->segments[chain];
  MR_ASSERT(segment != MR_NO_INDEX);
  while (index >= store->segments[segment].count) {
    index -= store->segments[segment].count;
    segment = store->segments[segment].next;
    MR_ASSERT(segment != MR_NO_INDEX);
  }
  return store->segments[segment].first + (uint32_t)index;
}

static uint32_t take_segment(struct mr_store *store) {
  uint32_t segment = store->free_segment;
  if (segment != MR_NO_INDEX) {
    store->free_segment = store->segments[segment].next;
    return segment;
  }
  MR_ASSERT(store->segments_used < store->place_count);
  return store->segments_used++;
}

/* Takes up to `count` chunks of the lane and hangs them at the end of the chain; how many. */
static uint64_t extend_chain(struct mr_store *store, uint32_t *chain, uint32_t lane,
                             uint64_t count) {
  uint32_t *end = chain;
  while (*end != MR_NO_INDEX) {
    end = &store->segments[*end].next;
  }
  uint64_t taken = 0;
  struct mr_span span;
  while (taken < count &&
         mr_arena_allocate_some(&store->lanes[lane].arena, count - taken, &span) == MR_OK) {
    uint32_t segment = take_segment(store);
    store->segments[segment] =
        (struct mr_segment){.first = store->lanes[lane].first_place + (uint32_t)span.first,
                            .count = (uint32_t)span.count,
                            .next = MR_NO_INDEX};
    for (uint32_t i = 0; i < span.count; i++) {
      store->places[store->segments[segment].first + i] = (struct mr_place){0};
    }
    *end = segment;
    end = &store->segments[segment].next;
    taken += span.count;
  }
  return taken;
}

/* How many of the extent's chunks the pattern puts on the lane. */
static uint64_t lane_share(const struct mr_store *store, const struct mr_extent *extent,
                           uint64_t chunks, uint32_t lane) {
  uint32_t length = store->pattern_length;
  uint64_t end = extent->phase + chunks;
  return end / length * pattern_count(store, length, lane) +
         pattern_count(store, (uint32_t)(end % length), lane) -
         pattern_count(store, extent->phase, lane);
}

static void place_extent(struct mr_store *store, struct mr_extent *extent, uint64_t chunks) {
  for (uint32_t i = 0; i < store->lane_count; i++) {
    uint64_t share = lane_share(store, extent, chunks, i);
    extent->linear = extent->linear || share > store->lanes[i].arena.free_count;
  }
  uint64_t taken = 0;
  for (uint32_t i = 0; i < store->lane_count; i++) {
    uint64_t share = extent->linear ? chunks - taken : lane_share(store, extent, chunks, i);
    taken += extend_chain(store, &extent->segments[extent->linear ? 0 : i], i, share);
  }
  MR_ASSERT(taken == chunks);
  store->next_phase = (uint32_t)((extent->phase + chunks) % store->pattern_length);
}

mr_status mr_store_extent_create(struct mr_store *store, uint64_t bytes, const char *label,
                                 uint32_t *extent_out) {
  uint64_t chunks = mr_div_up(bytes, MR_STORE_CHUNK_BYTES);
  uint64_t free_chunks = 0;
  for (uint32_t i = 0; i < store->lane_count; i++) {
    free_chunks += store->lanes[i].arena.free_count;
  }
  if (bytes == 0) {
    mr_log(MR_LOG_ERROR, "tensor %s: an extent of 0 bytes was asked for", label);
    return MR_INVALID;
  }
  if (chunks > free_chunks) {
    struct mr_size_text asked;
    struct mr_size_text left;
    mr_log(MR_LOG_ERROR, "tensor %s needs %s on NVMe and %s of the capacity are left", label,
           mr_size_format(chunks * MR_STORE_CHUNK_BYTES, &asked),
           mr_size_format(free_chunks * MR_STORE_CHUNK_BYTES, &left));
    return MR_NO_SPACE;
  }
  uint32_t id = store->free_extent;
  if (id != MR_NO_INDEX) {
    store->free_extent = store->extents[id].segments[0];
  } else {
    MR_ASSERT(store->extents_used < store->place_count);
    id = store->extents_used++;
  }
  struct mr_extent *extent = &store->extents[id];
  *extent = (struct mr_extent){.bytes = bytes,
                               .label = label,
                               .generation = extent->generation + 1,
                               .phase = store->next_phase,
                               .live = true};
  for (uint32_t i = 0; i < MR_MAX_NVME_PATHS; i++) {
    extent->segments[i] = MR_NO_INDEX;
  }
  place_extent(store, extent, chunks);
  *extent_out = id;
  return MR_OK;
}

void mr_store_extent_destroy(struct mr_store *store, uint32_t extent) {
  MR_ASSERT(extent < store->extents_used && store->extents[extent].live);
  struct mr_extent *freed = &store->extents[extent];
  for (uint32_t i = 0; i < MR_MAX_NVME_PATHS; i++) {
    while (freed->segments[i] != MR_NO_INDEX) {
      uint32_t segment = freed->segments[i];
      struct mr_segment *span = &store->segments[segment];
      struct mr_lane *lane = &store->lanes[mr_place_lane(store, span->first)];
      mr_arena_release(&lane->arena, span->first - lane->first_place, span->count);
      freed->segments[i] = span->next;
      span->next = store->free_segment;
      store->free_segment = segment;
    }
  }
  freed->live = false;
  freed->segments[0] = store->free_extent;
  store->free_extent = extent;
}

void mr_store_extent_zero(struct mr_store *store, uint32_t extent) {
  MR_ASSERT(extent < store->extents_used && store->extents[extent].live);
  for (uint32_t i = 0; i < MR_MAX_NVME_PATHS; i++) {
    uint32_t segment = store->extents[extent].segments[i];
    while (segment != MR_NO_INDEX) {
      for (uint32_t j = 0; j < store->segments[segment].count; j++) {
        store->places[store->segments[segment].first + j].state = MR_PLACE_ZERO;
      }
      segment = store->segments[segment].next;
    }
  }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Time and bytes of NVMe by what was under way together. */
#include "runtime/traffic.h"

#include <string.h>

#include "base/base.h"

/* The chunks that the store keeps with the drive: what is beyond waits in the store. */
#define DEEP_BYTES (16 * MR_STORE_CHUNK_BYTES)

void mr_traffic_init(struct mr_traffic *traffic) {
  *traffic = (struct mr_traffic){0};
  pthread_mutex_init(&traffic->lock, NULL);
}

void mr_traffic_fini(struct mr_traffic *traffic) {
  pthread_mutex_destroy(&traffic->lock);
}

static uint32_t kind_of(const struct mr_traffic *traffic) {
  uint64_t reads = traffic->flight_bytes[false];
  uint64_t writes = traffic->flight_bytes[true];
  return (reads > 0 ? MR_TRAFFIC_READS : 0) | (writes > 0 ? MR_TRAFFIC_WRITES : 0) |
         (reads + writes >= DEEP_BYTES ? MR_TRAFFIC_DEEP : 0);
}

/* With the lock held: counts up to now. */
static void settle(struct mr_traffic *traffic) {
  uint64_t now_ns = mr_clock_ns();
  uint64_t moved_bytes = mr_store_moved_bytes(traffic->store);
  uint32_t kind = kind_of(traffic);
  traffic->sums.seconds[kind] += (double)(now_ns - traffic->since_ns) * 1e-9;
  traffic->sums.bytes[kind] += moved_bytes - traffic->moved_bytes;
  traffic->since_ns = now_ns;
  traffic->moved_bytes = moved_bytes;
}

void mr_traffic_watch(struct mr_traffic *traffic, const struct mr_store *store) {
  pthread_mutex_lock(&traffic->lock);
  traffic->store = store;
  memset(traffic->flight_bytes, 0, sizeof traffic->flight_bytes);
  traffic->since_ns = mr_clock_ns();
  traffic->moved_bytes = mr_store_moved_bytes(traffic->store);
  pthread_mutex_unlock(&traffic->lock);
}

void mr_traffic_begin(struct mr_traffic *traffic, bool write, uint64_t bytes) {
  pthread_mutex_lock(&traffic->lock);
  settle(traffic);
  traffic->flight_bytes[write] += bytes;
  pthread_mutex_unlock(&traffic->lock);
}

void mr_traffic_end(struct mr_traffic *traffic, bool write, uint64_t bytes) {
  pthread_mutex_lock(&traffic->lock);
  settle(traffic);
  MR_ASSERT(traffic->flight_bytes[write] >= bytes);
  traffic->flight_bytes[write] -= bytes;
  pthread_mutex_unlock(&traffic->lock);
}

void mr_traffic_take(struct mr_traffic *traffic, struct mr_traffic_sums *sums_out) {
  pthread_mutex_lock(&traffic->lock);
  settle(traffic);
  *sums_out = traffic->sums;
  traffic->sums = (struct mr_traffic_sums){0};
  pthread_mutex_unlock(&traffic->lock);
}

void mr_traffic_add(struct mr_traffic_sums *to, const struct mr_traffic_sums *from) {
  for (uint32_t kind = 0; kind < MR_TRAFFIC_KINDS; kind++) {
    to->seconds[kind] += from->seconds[kind];
    to->bytes[kind] += from->bytes[kind];
  }
}

double mr_traffic_busy_seconds(const struct mr_traffic_sums *sums) {
  double seconds = 0;
  for (uint32_t kind = 0; kind < MR_TRAFFIC_KINDS; kind++) {
    seconds += (kind & MR_TRAFFIC_BOTH) != 0 ? sums->seconds[kind] : 0;
  }
  return seconds;
}

double mr_traffic_rate(const struct mr_traffic_sums *sums, uint32_t what, bool deep,
                       uint64_t least_bytes) {
  uint32_t kind = what | MR_TRAFFIC_DEEP;
  double seconds = sums->seconds[kind] + (deep ? 0 : sums->seconds[what]);
  uint64_t bytes = sums->bytes[kind] + (deep ? 0 : sums->bytes[what]);
  return bytes >= least_bytes && seconds > 0 ? (double)bytes / seconds : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traffic is what NVMe reads and writes did at the same time: for how long only one of them was
 * under way, or both, and what passed meanwhile. A link that is busy beside the other is slower
 * than alone, so bytes over busy time would mix the two up. Where enough is under way to keep the
 * drive at work, time counts as *deep*; what passes in such time is a rate of the drive, and not of
 * who waits for it.
 */
#ifndef MEMRUN_RUNTIME_TRAFFIC_H
#define MEMRUN_RUNTIME_TRAFFIC_H

#include <pthread.h>
#include <stdint.h>

#include "offload/store.h"

/* Bits of what is under way. */
#define MR_TRAFFIC_READS  1u
#define MR_TRAFFIC_WRITES 2u
#define MR_TRAFFIC_BOTH   3u
#define MR_TRAFFIC_DEEP   4u
#define MR_TRAFFIC_KINDS  8u

/* Time and bytes of each kind, a combination of the bits. */
struct mr_traffic_sums {
  double seconds[MR_TRAFFIC_KINDS];
  uint64_t bytes[MR_TRAFFIC_KINDS];
};

struct mr_traffic {
  pthread_mutex_t lock;
  const struct mr_store *store; /* NULL: there is none */
  uint64_t flight_bytes[2];     /* of reads, of writes */
  uint64_t since_ns;
  uint64_t moved_bytes; /* of the store, then */
  struct mr_traffic_sums sums;
};

void mr_traffic_init(struct mr_traffic *traffic);
void mr_traffic_fini(struct mr_traffic *traffic);

/* Another store, with nothing under way; NULL: none. What was counted stays. */
void mr_traffic_watch(struct mr_traffic *traffic, const struct mr_store *store);

/* A transfer is handed to the store; it is over. Any thread. */
void mr_traffic_begin(struct mr_traffic *traffic, bool write, uint64_t bytes);
void mr_traffic_end(struct mr_traffic *traffic, bool write, uint64_t bytes);

/* What was counted since the last call. */
void mr_traffic_take(struct mr_traffic *traffic, struct mr_traffic_sums *sums_out);

void mr_traffic_add(struct mr_traffic_sums *to, const struct mr_traffic_sums *from);

/* Seconds in which anything was under way. */
double mr_traffic_busy_seconds(const struct mr_traffic_sums *sums);

/* Bytes a second while just `what` (reads, writes or both) was under way, or, `deep`, enough of it
 * to keep the drive at work; 0 where less than `least_bytes` passed then. */
double mr_traffic_rate(const struct mr_traffic_sums *sums, uint32_t what, bool deep,
                       uint64_t least_bytes);

#endif

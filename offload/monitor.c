/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The monitor's thread ends what no lane can: requests that were refused at the door, requests in
 * the queues of closed lanes, and everything once a transfer is stuck. It sleeps otherwise and
 * looks at the ages of transfers a few times within the time limit.
 */
#include <time.h>

#include "offload/private.h"

#define LOOKS_PER_LIMIT   16u
#define LATE_PART         4u
#define LONGEST_SLEEP_NS  500000000ull
#define SHORTEST_SLEEP_NS 2000000ull
#define NANOSECONDS_PER_S 1000000000ull

void mr_monitor_reject(struct mr_store *store, struct mr_store_request *request, mr_status status) {
  atomic_store(&request->status, (int)status);
  atomic_store(&request->pending_chunks, 1);
  pthread_mutex_lock(&store->monitor_lock);
  mr_queue_push(&store->rejects, request, 0);
  store->monitor_kicked = true;
  pthread_cond_signal(&store->monitor_wake);
  pthread_mutex_unlock(&store->monitor_lock);
}

void mr_monitor_kick(struct mr_store *store) {
  pthread_mutex_lock(&store->monitor_lock);
  store->monitor_kicked = true;
  pthread_cond_signal(&store->monitor_wake);
  pthread_mutex_unlock(&store->monitor_lock);
}

static void end_rejects(struct mr_store *store) {
  for (;;) {
    pthread_mutex_lock(&store->monitor_lock);
    struct mr_store_request *request = mr_queue_pop(&store->rejects, 0);
    pthread_mutex_unlock(&store->monitor_lock);
    if (request == NULL) {
      return;
    }
    mr_request_finish(request, 1, MR_OK);
  }
}

/* Ends what is queued at a closed lane. */
static void end_queued(struct mr_lane *lane) {
  for (;;) {
    struct mr_store_request *request = NULL;
    pthread_mutex_lock(&lane->lock);
    mr_status status = lane->closed;
    for (uint32_t i = 0; status != MR_OK && i < MR_IO_CLASS_COUNT && request == NULL; i++) {
      request = mr_queue_pop(&lane->queues[i], lane->index);
    }
    pthread_mutex_unlock(&lane->lock);
    if (request == NULL) {
      return;
    }
    uint64_t chunk = request->parts[lane->index].chunk;
    uint64_t left = mr_request_chunks_left(lane->store, request, chunk, lane->index);
    mr_request_finish(request, left, status);
  }
}

/* Closes the lane and ends the chunks that its engine holds. */
static void give_up_lane(struct mr_lane *lane) {
  struct mr_store_request *late[MR_STORE_SLOTS];
  uint32_t count = 0;
  pthread_mutex_lock(&lane->lock);
  lane->closed = lane->closed == MR_OK ? MR_TIMEOUT : lane->closed;
  for (uint32_t i = 0; i < lane->slot_count; i++) {
    struct mr_slot *slot = &lane->slots[i];
    if (slot->issued_ns != 0 && slot->request != NULL) {
      late[count++] = slot->request;
      slot->request = NULL;
      slot->issued_ns = 0;
    }
  }
  pthread_mutex_unlock(&lane->lock);
  for (uint32_t i = 0; i < count; i++) {
    mr_request_finish(late[i], 1, MR_TIMEOUT);
  }
}

/* The oldest transfer of the lane that is older than the limit, logged; false where none is.
 * `awake`: before that the process was stopped. */
static bool find_stuck(struct mr_lane *lane, uint64_t awake_ns) {
  const struct mr_store *store = lane->store;
  pthread_mutex_lock(&lane->lock);
  uint64_t now = mr_clock_ns(); /* not before any slot's time that is seen here */
  const struct mr_slot *stuck = NULL;
  for (uint32_t i = 0; i < lane->slot_count; i++) {
    const struct mr_slot *slot = &lane->slots[i];
    uint64_t since_ns = mr_max_u64(slot->issued_ns, awake_ns);
    bool late = slot->issued_ns != 0 && now > since_ns && now - since_ns > store->timeout_ns;
    if (late && (stuck == NULL || slot->issued_ns < stuck->issued_ns)) {
      stuck = slot;
    }
  }
  if (stuck != NULL) {
    uint64_t offset = (uint64_t)(stuck->place - lane->first_place) * MR_STORE_CHUNK_BYTES;
    mr_log(MR_LOG_ERROR,
           "nvme %s: %s %u bytes at offset %llu (tensor %s, chunk %llu) has not finished after "
           "%.1f s; the limit is %.1f s",
           lane->path, stuck->write ? "writing" : "reading", stuck->bytes,
           (unsigned long long)offset, store->extents[stuck->extent].label,
           (unsigned long long)stuck->chunk, (double)(now - stuck->issued_ns) * 1e-9,
           (double)store->timeout_ns * 1e-9);
  }
  pthread_mutex_unlock(&lane->lock);
  return stuck != NULL;
}

static void check_deadlines(struct mr_store *store, uint64_t awake_ns) {
  bool stuck = false;
  for (uint32_t i = 0; i < store->lane_count && !stuck; i++) {
    stuck = find_stuck(&store->lanes[i], awake_ns);
  }
  if (!stuck) {
    return;
  }
  atomic_store(&store->failed, true);
  for (uint32_t i = 0; i < store->lane_count; i++) {
    give_up_lane(&store->lanes[i]);
  }
}

/* Sleeps until a kick or the next look; false once the monitor is to end and nothing came. */
static bool sleep_until_next(struct mr_store *store) {
  uint64_t pause_ns = store->timeout_ns / LOOKS_PER_LIMIT;
  pause_ns = mr_max_u64(mr_min_u64(pause_ns, LONGEST_SLEEP_NS), SHORTEST_SLEEP_NS);
  uint64_t until_ns = mr_clock_ns() + pause_ns;
  struct timespec until = {.tv_sec = (time_t)(until_ns / NANOSECONDS_PER_S),
                           .tv_nsec = (long)(until_ns % NANOSECONDS_PER_S)};
  pthread_mutex_lock(&store->monitor_lock);
  if (!store->monitor_kicked && !store->monitor_stopping) {
    pthread_cond_timedwait(&store->monitor_wake, &store->monitor_lock, &until);
  }
  bool more = store->monitor_kicked || !store->monitor_stopping;
  store->monitor_kicked = false;
  pthread_mutex_unlock(&store->monitor_lock);
  return more;
}

void *mr_monitor_run(void *context) {
  struct mr_store *store = context;
  uint64_t looked_ns = mr_clock_ns();
  uint64_t awake_ns = 0;
  do {
    end_rejects(store);
    uint64_t now_ns = mr_clock_ns();
    /* A look that comes so late says that the process was stopped, not that transfers are stuck. */
    awake_ns = now_ns - looked_ns > store->timeout_ns / LATE_PART ? now_ns : awake_ns;
    looked_ns = now_ns;
    check_deadlines(store, awake_ns);
    for (uint32_t i = 0; i < store->lane_count; i++) {
      end_queued(&store->lanes[i]);
    }
  } while (sleep_until_next(store));
  return NULL;
}

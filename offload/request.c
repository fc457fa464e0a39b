/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: what may be asked, how one joins the queues of the lanes, how one ends. */
#include "offload/private.h"

void mr_queue_push(struct mr_store_queue *queue, struct mr_store_request *request, uint32_t lane) {
  request->parts[lane].next = NULL;
  if (queue->head == NULL) {
    queue->head = request;
  } else {
    queue->tail->parts[lane].next = request;
  }
  queue->tail = request;
}

struct mr_store_request *mr_queue_pop(struct mr_store_queue *queue, uint32_t lane) {
  struct mr_store_request *request = queue->head;
  if (request != NULL) {
    queue->head = request->parts[lane].next;
    if (queue->head == NULL) {
      queue->tail = NULL;
    }
  }
  return request;
}

/* Takes the request out of the middle; false where it is not there. */
static bool queue_remove(struct mr_store_queue *queue, const struct mr_store_request *request,
                         uint32_t lane) {
  struct mr_store_request *before = NULL;
  struct mr_store_request *at = queue->head;
  while (at != NULL && at != request) {
    before = at;
    at = at->parts[lane].next;
  }
  if (at == NULL) {
    return false;
  }
  if (before == NULL) {
    queue->head = at->parts[lane].next;
  } else {
    before->parts[lane].next = at->parts[lane].next;
  }
  if (queue->tail == at) {
    queue->tail = before;
  }
  return true;
}

void mr_request_finish(struct mr_store_request *request, uint64_t chunks, mr_status status) {
  if (status == MR_TIMEOUT) {
    atomic_store(&request->status, (int)status); /* its memory is not the caller's again */
  } else if (status != MR_OK) {
    int expected = MR_OK;
    atomic_compare_exchange_strong(&request->status, &expected, (int)status);
  }
  uint64_t before = atomic_fetch_sub(&request->pending_chunks, chunks);
  MR_ASSERT(before >= chunks);
  if (before == chunks) {
    request->done(request, (mr_status)atomic_load(&request->status));
  }
}

static uint32_t chunk_lane(const struct mr_store *store, const struct mr_store_request *request,
                           uint64_t chunk) {
  const struct mr_extent *extent = &store->extents[request->extent];
  chunk += request->offset_bytes / MR_STORE_CHUNK_BYTES;
  if (!extent->linear) {
    return store->pattern[(extent->phase + chunk) % store->pattern_length];
  }
  return mr_place_lane(store, mr_extent_place(store, request->extent, chunk));
}

uint64_t mr_request_next_chunk(const struct mr_store *store, const struct mr_store_request *request,
                               uint64_t chunk, uint32_t lane) {
  if (store->lane_count > 1) {
    while (chunk < request->chunk_count && chunk_lane(store, request, chunk) != lane) {
      chunk++;
    }
  }
  return chunk;
}

uint64_t mr_request_chunks_left(const struct mr_store *store,
                                const struct mr_store_request *request, uint64_t chunk,
                                uint32_t lane) {
  uint64_t left = 0;
  while (chunk < request->chunk_count) {
    left++;
    chunk = mr_request_next_chunk(store, request, chunk + 1, lane);
  }
  return left;
}

/* Says what is wrong with the request, MR_OK where nothing is. */
static mr_status check(const struct mr_store *store, const struct mr_store_request *request) {
  if (request->extent >= store->extents_used || !store->extents[request->extent].live) {
    mr_log(MR_LOG_ERROR, "store request: there is no extent %u", request->extent);
    return MR_INVALID;
  }
  const struct mr_extent *extent = &store->extents[request->extent];
  uint64_t end = 0;
  if (request->offset_bytes % MR_STORE_CHUNK_BYTES != 0 ||
      !mr_add_u64(request->offset_bytes, request->bytes, &end) || end > extent->bytes ||
      (end != extent->bytes && request->bytes % MR_STORE_CHUNK_BYTES != 0)) {
    mr_log(MR_LOG_ERROR,
           "tensor %s: a transfer of %llu bytes at %llu is not whole chunks of its %llu bytes",
           extent->label, (unsigned long long)request->bytes,
           (unsigned long long)request->offset_bytes, (unsigned long long)extent->bytes);
    return MR_INVALID;
  }
  if (!request->pool_only && (request->data == NULL || (uintptr_t)request->data % 64 != 0)) {
    mr_log(MR_LOG_ERROR, "tensor %s: transfers need memory at a multiple of 64 bytes, not %p",
           extent->label, request->data);
    return MR_INVALID;
  }
  if ((uint32_t)request->io_class >= MR_IO_CLASS_COUNT) {
    mr_log(MR_LOG_ERROR, "tensor %s: there is no input-output class %d", extent->label,
           (int)request->io_class);
    return MR_INVALID;
  }
  return MR_OK;
}

/* Puts the request into the lane's queue; where the lane is closed, the monitor ends it. */
static void enqueue(struct mr_lane *lane, struct mr_store_request *request, mr_io_class io_class,
                    uint64_t first_chunk) {
  struct mr_store *store = lane->store;
  pthread_mutex_lock(&lane->lock);
  request->parts[lane->index].chunk = first_chunk;
  mr_queue_push(&lane->queues[io_class], request, lane->index);
  bool closed = lane->closed != MR_OK;
  mr_lane_wake(lane);
  pthread_mutex_unlock(&lane->lock);
  if (closed) {
    mr_monitor_kick(store);
  }
}

static void submit(struct mr_store *store, struct mr_store_request *request) {
  MR_ASSERT(request->done != NULL);
  mr_status status = check(store, request);
  if (status == MR_OK && atomic_load(&store->failed)) {
    status = MR_TIMEOUT;
  }
  if (status == MR_OK && atomic_load(&store->stopping)) {
    status = MR_INTERRUPTED;
  }
  if (status != MR_OK || request->bytes == 0) {
    mr_monitor_reject(store, request, status);
    return;
  }
  request->chunk_count = mr_div_up(request->bytes, MR_STORE_CHUNK_BYTES);
  atomic_store(&request->status, MR_OK);
  atomic_store(&request->pending_chunks, request->chunk_count);
  /* Once its last lane has it, the request may end and go away. */
  mr_io_class io_class = request->io_class;
  uint64_t chunk_count = request->chunk_count;
  uint64_t first[MR_MAX_NVME_PATHS] = {0};
  for (uint32_t i = 0; i < store->lane_count; i++) {
    first[i] = mr_request_next_chunk(store, request, 0, i);
  }
  for (uint32_t i = 0; i < store->lane_count; i++) {
    if (first[i] < chunk_count) {
      enqueue(&store->lanes[i], request, io_class, first[i]);
    }
  }
}

void mr_store_submit(struct mr_store *store, struct mr_store_request *request) {
  request->pool_only = false;
  submit(store, request);
}

void mr_store_submit_pool(struct mr_store *store, struct mr_store_request *request) {
  request->pool_only = true;
  submit(store, request);
}

void mr_store_promote(struct mr_store *store, struct mr_store_request *request) {
  for (uint32_t i = 0; i < store->lane_count; i++) {
    struct mr_lane *lane = &store->lanes[i];
    pthread_mutex_lock(&lane->lock);
    if (queue_remove(&lane->queues[MR_IO_PREFETCH], request, i) ||
        queue_remove(&lane->queues[MR_IO_WRITE_BACK], request, i)) {
      mr_queue_push(&lane->queues[MR_IO_DEMAND], request, i);
      mr_lane_wake(lane);
    }
    pthread_mutex_unlock(&lane->lock);
  }
}

struct waiter {
  struct mr_store *store;
  mr_status status;
  bool finished;
};

static void transfer_done(struct mr_store_request *request, mr_status status) {
  struct waiter *waiter = request->context;
  struct mr_store *store = waiter->store;
  pthread_mutex_lock(&store->transfer_lock);
  waiter->status = status;
  waiter->finished = true;
  pthread_cond_broadcast(&store->transfer_done);
  pthread_mutex_unlock(&store->transfer_lock);
}

mr_status mr_store_transfer(struct mr_store *store, struct mr_store_request *request) {
  struct waiter waiter = {.store = store};
  request->done = transfer_done;
  request->context = &waiter;
  mr_store_submit(store, request);
  pthread_mutex_lock(&store->transfer_lock);
  while (!waiter.finished) {
    pthread_cond_wait(&store->transfer_done, &store->transfer_lock);
  }
  pthread_mutex_unlock(&store->transfer_lock);
  return waiter.status;
}

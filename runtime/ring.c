/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVMe where the store cannot reach the device: each NVMe queue has a ring of pinned buffers, and a
 * transfer goes through it piece by piece, so that the file and the device's link work at the same
 * time on different pieces, also of different transfers. Pieces go round in their order.
 *
 *   read    claimed by the queue's thread, filled by the store (settled), copied to the device
 *           by the pump thread (freed)
 *   write   claimed and copied from the device by the queue's thread, handed to the store by the
 *           pump, written (settled and freed)
 */
#include <stdlib.h>

#include "runtime/runtime.h"

struct piece {
  struct mr_store_request request;
  struct mr_ring *ring;
  struct mr_transfer *transfer;
  struct mr_work work;
  char *device;
  bool last;      /* of its transfer */
  bool submitted; /* the store has it; with the queue's lock */
  bool arrived;   /* the store is through with it, but with one before it not; the same */
};

struct mr_ring {
  struct mr_queue *queue;
  struct mr_stream *stream; /* a mark for each piece */
  struct mr_memory memory;
  bool pinned;
  bool write;
  struct piece pieces[MR_RING_PIECES];
  /* Prefixes of all pieces that ever were. */
  struct mr_counter claimed;
  struct mr_counter settled;
  struct mr_counter freed;
};

/* ---- The store's side ---- */

static void settle(struct mr_ring *ring) {
  uint32_t settled = mr_counter_load(&ring->settled);
  for (;;) {
    struct piece *piece = &ring->pieces[settled % MR_RING_PIECES];
    if (!piece->arrived) {
      break;
    }
    piece->arrived = false;
    settled++;
    if (ring->write && piece->last) {
      mr_transfer_finish(ring->queue, piece->transfer);
    }
  }
  mr_counter_set(&ring->settled, settled);
  if (ring->write) {
    mr_counter_set(&ring->freed, settled);
  }
}

static void piece_done(struct mr_store_request *request, mr_status status) {
  struct piece *piece = request->context;
  struct mr_queue *queue = piece->ring->queue;
  if (status != MR_OK) {
    mr_run_fail(queue->run, status);
    return;
  }
  pthread_mutex_lock(&queue->lock);
  piece->submitted = false;
  piece->arrived = true;
  settle(piece->ring);
  pthread_mutex_unlock(&queue->lock);
}

/* With the queue's lock held. */
static void submit(struct piece *piece) {
  if (piece->transfer->promoted) {
    piece->request.io_class = MR_IO_DEMAND;
  }
  piece->submitted = true;
  mr_store_submit(piece->ring->queue->run->store, &piece->request);
}

void mr_ring_promote(struct mr_ring *ring, const struct mr_transfer *transfer) {
  for (uint32_t i = 0; i < MR_RING_PIECES; i++) {
    struct piece *piece = &ring->pieces[i];
    if (piece->submitted && piece->transfer == transfer) {
      mr_store_promote(ring->queue->run->store, &piece->request);
    }
  }
}

/* ---- The queue's thread ---- */

static mr_status copy_out(const struct piece *piece, uint32_t mark) {
  const struct mr_ring *ring = piece->ring;
  const struct mr_stream_ops *streams = ring->queue->run->device_ops->streams;
  mr_status status = streams->begin(ring->stream, mark, &piece->work, false);
  if (status == MR_OK) {
    status =
        streams->copy_out(ring->stream, piece->request.data, piece->device, piece->request.bytes);
  }
  return status == MR_OK ? streams->end(ring->stream) : status;
}

/* Waits for room and starts a piece; false where the run stopped. */
static bool claim(struct mr_ring *ring, const struct piece *wanted) {
  struct mr_run *run = ring->queue->run;
  uint32_t claimed = mr_counter_load(&ring->claimed);
  uint32_t at = claimed % MR_RING_PIECES;
  if (!mr_counter_wait(&ring->freed, claimed + 1 - MR_RING_PIECES, &run->stop, UINT64_MAX)) {
    return false;
  }
  struct piece *piece = &ring->pieces[at];
  char *data = (char *)ring->memory.data + at * MR_RING_PIECE_BYTES;
  mr_status status = MR_OK;
  pthread_mutex_lock(&ring->queue->lock);
  *piece = *wanted;
  piece->request.data = data;
  piece->request.context = piece;
  if (!ring->write) {
    submit(piece);
  }
  pthread_mutex_unlock(&ring->queue->lock);
  if (ring->write) {
    status = copy_out(piece, at);
  }
  if (status != MR_OK) {
    mr_stream_fail(run, status);
    return false;
  }
  mr_counter_add(&ring->claimed, 1);
  return true;
}

static void begin(struct mr_queue *queue, struct mr_transfer *transfer, uint64_t bytes) {
  pthread_mutex_lock(&queue->lock);
  bool demand = (int32_t)(queue->demand_until - queue->issued) > 0;
  *transfer = (struct mr_transfer){.queue = queue, .promoted = demand};
  mr_transfer_begin(queue, transfer, bytes);
  pthread_mutex_unlock(&queue->lock);
}

bool mr_ring_issue(struct mr_queue *queue, struct mr_transfer *transfer, uint32_t index) {
  struct mr_run *run = queue->run;
  struct mr_ring *ring = queue->ring;
  const struct mr_instruction *instruction = &queue->instructions[index];
  uint64_t bytes = run->layout->instances[instruction->instance].bytes;
  /* The record's last use must be over. */
  uint32_t former = queue->issued + 1 - queue->count;
  if (!mr_counter_wait(&queue->done, former, &run->stop, UINT64_MAX)) {
    return false;
  }
  if (ring->write) {
    mr_taken_count_extent(run, instruction->slot);
  }
  begin(queue, transfer, bytes);
  bool going = true;
  for (uint64_t at = 0; going && at < bytes; at += MR_RING_PIECE_BYTES) {
    uint64_t length = mr_min_u64(MR_RING_PIECE_BYTES, bytes - at);
    const struct piece piece = {
        .request = {.extent = run->extents[instruction->slot],
                    .write = ring->write,
                    .io_class = ring->write ? MR_IO_WRITE_BACK : MR_IO_PREFETCH,
                    .offset_bytes = at,
                    .bytes = length,
                    .done = piece_done},
        .ring = ring,
        .transfer = transfer,
        .work = mr_instruction_work(run, instruction),
        .device = (char *)run->addresses[instruction->instance] + at,
        .last = at + length == bytes,
    };
    going = claim(ring, &piece);
  }
  return going;
}

/* ---- The pump ---- */

static mr_status copy_in(const struct piece *piece, uint32_t mark) {
  const struct mr_ring *ring = piece->ring;
  const struct mr_stream_ops *streams = ring->queue->run->device_ops->streams;
  mr_status status = streams->begin(ring->stream, mark, &piece->work, false);
  if (status == MR_OK) {
    status =
        streams->copy_in(ring->stream, piece->device, piece->request.data, piece->request.bytes);
  }
  return status == MR_OK ? streams->end(ring->stream) : status;
}

static mr_status wait_for(const struct mr_ring *ring, uint32_t position) {
  double seconds = 0;
  return ring->queue->run->device_ops->streams->wait(ring->stream, position % MR_RING_PIECES,
                                                     &seconds);
}

/* Copies every piece that has settled before it waits for the oldest copy. */
static mr_status pump_reads(struct mr_ring *ring) {
  struct mr_queue *queue = ring->queue;
  uint32_t copied = 0;
  for (uint32_t freed = 0;; freed++) {
    if (!mr_counter_wait(&ring->settled, freed + 1, &queue->run->stop, UINT64_MAX)) {
      return MR_OK;
    }
    mr_status status = MR_OK;
    uint32_t settled = mr_counter_load(&ring->settled);
    for (; status == MR_OK && copied != settled; copied++) {
      status = copy_in(&ring->pieces[copied % MR_RING_PIECES], copied % MR_RING_PIECES);
    }
    if (status == MR_OK) {
      status = wait_for(ring, freed);
    }
    if (status != MR_OK) {
      return status;
    }
    const struct piece *piece = &ring->pieces[freed % MR_RING_PIECES];
    if (piece->last) {
      pthread_mutex_lock(&queue->lock);
      mr_transfer_finish(queue, piece->transfer);
      pthread_mutex_unlock(&queue->lock);
    }
    mr_counter_add(&ring->freed, 1);
  }
}

static mr_status pump_writes(struct mr_ring *ring) {
  struct mr_queue *queue = ring->queue;
  for (uint32_t position = 0;; position++) {
    if (!mr_counter_wait(&ring->claimed, position + 1, &queue->run->stop, UINT64_MAX)) {
      return MR_OK;
    }
    mr_status status = wait_for(ring, position);
    if (status != MR_OK) {
      return status;
    }
    pthread_mutex_lock(&queue->lock);
    submit(&ring->pieces[position % MR_RING_PIECES]);
    pthread_mutex_unlock(&queue->lock);
  }
}

static void *pump_main(void *argument) {
  struct mr_ring *ring = argument;
  struct mr_run *run = ring->queue->run;
  mr_status status = run->device_ops->enter(run->device);
  if (status == MR_OK) {
    status = ring->write ? pump_writes(ring) : pump_reads(ring);
  }
  if (status != MR_OK) {
    mr_stream_fail(run, status);
  }
  mr_counter_add(&run->ended, 1);
  return NULL;
}

/* ---- Beginning and end ---- */

static mr_status ring_init(struct mr_queue *queue) {
  struct mr_run *run = queue->run;
  struct mr_ring *ring = mr_allocate(1, sizeof *ring);
  if (ring == NULL) {
    return MR_NO_MEMORY;
  }
  ring->queue = queue;
  ring->write = queue->index == MR_QUEUE_OF(MR_LINK_NVME_WRITE);
  queue->ring = ring;
  mr_status status = mr_memory_map(MR_RING_BYTES, MR_DEVICE_HUGE_PAGE_BYTES,
                                   "ring of an NVMe queue", &ring->memory);
  if (status == MR_OK) {
    status = run->device_ops->pin(run->device, ring->memory.data, ring->memory.bytes,
                                  "ring of an NVMe queue");
    ring->pinned = status == MR_OK;
  }
  if (status == MR_OK) {
    status = run->device_ops->streams->create(run->device, MR_RING_PIECES, &ring->stream);
  }
  return status;
}

mr_status mr_rings_init(struct mr_run *run) {
  mr_status status = MR_OK;
  for (uint32_t link = MR_LINK_NVME_READ; link <= MR_LINK_NVME_WRITE; link++) {
    struct mr_queue *queue = &run->queues[MR_QUEUE_OF(link)];
    if (run->device_ops->streams != NULL && queue->count != 0 && status == MR_OK) {
      status = ring_init(queue);
    }
  }
  return status;
}

void mr_rings_fini(struct mr_run *run, bool store_is_stuck, bool device_is_settled) {
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    struct mr_ring *ring = run->queues[q].ring;
    if (ring == NULL) {
      continue;
    }
    if (ring->stream != NULL) {
      run->device_ops->streams->destroy(ring->stream);
    }
    if (ring->pinned && !store_is_stuck) {
      run->device_ops->unpin(run->device, ring->memory.data);
    }
    if (!store_is_stuck && device_is_settled) {
      mr_memory_unmap(&ring->memory);
    }
    if (!store_is_stuck) {
      /* The store's thread that told of the last transfer has the lock until it is through. */
      pthread_mutex_lock(&run->queues[q].lock);
      pthread_mutex_unlock(&run->queues[q].lock);
      free(ring);
    }
    run->queues[q].ring = NULL;
  }
}

mr_status mr_rings_start(struct mr_run *run) {
  mr_status status = MR_OK;
  for (uint32_t q = 0; status == MR_OK && q < MR_QUEUE_COUNT; q++) {
    struct mr_ring *ring = run->queues[q].ring;
    if (ring == NULL) {
      continue;
    }
    mr_counter_init(&ring->claimed, 0);
    mr_counter_init(&ring->settled, 0);
    mr_counter_init(&ring->freed, 0);
    status = mr_queue_thread(ring->queue, pump_main, ring);
  }
  return status;
}

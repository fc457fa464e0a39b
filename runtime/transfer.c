/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NVMe queues: instructions become requests of the store, many in flight; the queue's counter
 * follows the finished prefix. Completions come on the store's threads. A request's record is used
 * again in the next step, so its last use must have finished before; the bound on bytes in flight
 * keeps a request from growing old in the store's own queue.
 */
#include <string.h>

#include "runtime/runtime.h"

/* Several times what the store keeps on the device at once, and 0.6 s on a slow disk. */
#define MAX_IN_FLIGHT_BYTES (64ull << 20)

static uint64_t transfer_bytes(const struct mr_transfer *transfer) {
  return transfer->request.bytes;
}

/* With the lock held: everything finished in order becomes visible. */
static void advance(struct mr_queue *queue) {
  while (queue->finished != queue->issued && queue->transfers[queue->finished_index].finished) {
    queue->finished++;
    queue->finished_index =
        queue->finished_index + 1 == queue->count ? 0 : queue->finished_index + 1;
  }
  mr_counter_set(&queue->done, queue->finished);
}

void mr_transfer_finish(struct mr_queue *queue, struct mr_transfer *transfer) {
  struct mr_run *run = queue->run;
  uint64_t now_ns = mr_clock_ns();
  transfer->finished = true;
  queue->in_flight_bytes -= transfer_bytes(transfer);
  mr_traffic_end(&run->traffic, transfer->request.write, transfer_bytes(transfer));
  if (queue->in_flight_bytes == 0) {
    atomic_fetch_add(&queue->busy_ns, now_ns - queue->busy_since_ns);
  }
  atomic_fetch_add(&queue->moved_bytes, transfer_bytes(transfer));
  uint32_t index = (uint32_t)(transfer - queue->transfers);
  mr_tensor_id tensor = run->layout->instances[queue->instructions[index].instance].tensor;
  /* One row shows one thing at a time: what overlaps begins where the one before ended. */
  uint64_t start_ns = mr_max_u64(transfer->start_ns, queue->traced_until_ns);
  mr_trace_add(run->trace, queue->index, run->layout->program->tensors[tensor].name,
               transfer_bytes(transfer), start_ns, now_ns);
  queue->traced_until_ns = now_ns;
  advance(queue);
}

static void transfer_done(struct mr_store_request *request, mr_status status) {
  struct mr_transfer *transfer = request->context;
  struct mr_queue *queue = transfer->queue;
  if (status != MR_OK) {
    mr_run_fail(queue->run, status);
    return;
  }
  pthread_mutex_lock(&queue->lock);
  mr_transfer_finish(queue, transfer);
  pthread_mutex_unlock(&queue->lock);
}

void mr_transfer_begin(struct mr_queue *queue, struct mr_transfer *transfer, uint64_t bytes) {
  transfer->request.bytes = bytes;
  transfer->start_ns = mr_clock_ns();
  transfer->finished = false;
  if (queue->in_flight_bytes == 0) {
    queue->busy_since_ns = transfer->start_ns;
  }
  queue->in_flight_bytes += transfer_bytes(transfer);
  mr_traffic_begin(&queue->run->traffic, transfer->request.write, transfer_bytes(transfer));
  queue->issued++;
}

/* Waits until there is room in flight, and until the record's last use is over. */
static bool wait_for_room(struct mr_queue *queue, uint64_t bytes) {
  for (;;) {
    pthread_mutex_lock(&queue->lock);
    uint32_t pending = queue->issued - queue->finished;
    uint64_t in_flight = queue->in_flight_bytes;
    uint32_t target = queue->finished + 1;
    pthread_mutex_unlock(&queue->lock);
    bool room = in_flight == 0 || in_flight + bytes <= MAX_IN_FLIGHT_BYTES;
    if (room && pending < queue->count) {
      return true;
    }
    if (!mr_counter_wait(&queue->done, target, &queue->run->stop, UINT64_MAX) &&
        atomic_load(&queue->run->stop)) {
      return false;
    }
  }
}

void mr_transfer_pass(struct mr_queue *queue, uint32_t index) {
  pthread_mutex_lock(&queue->lock);
  queue->transfers[index] = (struct mr_transfer){.queue = queue, .finished = true};
  queue->issued++;
  advance(queue);
  pthread_mutex_unlock(&queue->lock);
}

bool mr_transfer_issue(struct mr_queue *queue, uint32_t index, uint64_t step) {
  struct mr_run *run = queue->run;
  const struct mr_instruction *instruction = &queue->instructions[index];
  struct mr_transfer *transfer = &queue->transfers[index];
  bool write = queue->index == MR_QUEUE_OF(MR_LINK_NVME_WRITE);
  uint64_t bytes = run->layout->instances[instruction->instance].bytes;
  if (queue->ring != NULL) {
    return mr_ring_issue(queue, transfer, index);
  }
  if (!wait_for_room(queue, bytes)) {
    return false;
  }
  MR_ASSERT(queue->issued == (uint32_t)step * queue->count + index);
  *transfer = (struct mr_transfer){
      .queue = queue,
      .request = {.extent = run->extents[instruction->slot],
                  .write = write,
                  .io_class = write ? MR_IO_WRITE_BACK : MR_IO_PREFETCH,
                  .bytes = bytes,
                  .data = run->addresses[instruction->instance],
                  .done = transfer_done,
                  .context = transfer},
  };
  if (write) {
    mr_taken_count_extent(run, instruction->slot);
  }
  pthread_mutex_lock(&queue->lock);
  if ((int32_t)(queue->demand_until - queue->issued) > 0) {
    transfer->request.io_class = MR_IO_DEMAND;
    transfer->promoted = true;
  }
  mr_transfer_begin(queue, transfer, bytes);
  mr_store_submit(run->store, &transfer->request);
  pthread_mutex_unlock(&queue->lock);
  return true;
}

static void promote(struct mr_queue *queue, struct mr_transfer *transfer) {
  if (queue->ring != NULL) {
    mr_ring_promote(queue->ring, transfer);
  } else {
    mr_store_promote(queue->run->store, &transfer->request);
  }
}

void mr_transfer_promote(struct mr_queue *queue, uint32_t target) {
  pthread_mutex_lock(&queue->lock);
  if ((int32_t)(target - queue->demand_until) > 0) {
    queue->demand_until = target;
  }
  uint32_t issued = (int32_t)(target - queue->issued) < 0 ? target : queue->issued;
  uint32_t index = queue->finished_index;
  for (uint32_t i = queue->finished; (int32_t)(issued - i) > 0; i++) {
    struct mr_transfer *transfer = &queue->transfers[index];
    index = index + 1 == queue->count ? 0 : index + 1;
    if (!transfer->finished && !transfer->promoted) {
      transfer->promoted = true;
      promote(queue, transfer);
    }
  }
  pthread_mutex_unlock(&queue->lock);
}

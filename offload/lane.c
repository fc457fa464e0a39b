/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread of one path: picks chunks by class and budget, feeds the engine, and works on what
 * comes back. Between two pieces of long work (copying a chunk in or out) it asks the engine again,
 * so the disk's queue stays full while it copies.
 */
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "offload/private.h"

/* The shortest slice that the kernel grants: a few chunks' work. */
#define SLICE_NS 100000ull
/* For this long after a demand read the next one is expected, and others hold back. */
#define DEMAND_WINDOW_NS 20000000ull
/* Writes in flight meanwhile: 3 MiB keep most of the write rate (bench/nvme.sh measures it) and
 * are half a millisecond that a read may have to wait on a disk of 6 GB/s. */
#define DEMAND_WRITES 6u
/* A write-back that has seen so many others issued before it goes next. */
#define WRITE_PATIENCE 8u

void mr_lane_wake(struct mr_lane *lane) {
  if (lane->asleep) {
    lane->asleep = false;
    lane->engine_table->wake(lane->engine);
  }
}

static uint32_t inflight_total(const struct mr_lane *lane) {
  return lane->inflight[MR_IO_DEMAND] + lane->inflight[MR_IO_PREFETCH] +
         lane->inflight[MR_IO_WRITE_BACK];
}

static bool wants(const struct mr_lane *lane, mr_io_class io_class) {
  return lane->queues[io_class].head != NULL || lane->inflight[io_class] > 0;
}

/* Chunks that the engine has. */
static uint32_t engine_count(const struct mr_lane *lane) {
  return inflight_total(lane) - lane->settling_count - lane->prepared_count;
}

static bool demand_comes(const struct mr_lane *lane) {
  return wants(lane, MR_IO_DEMAND) ||
         (lane->last_demand_ns != 0 && mr_clock_ns() - lane->last_demand_ns < DEMAND_WINDOW_NS);
}

static bool write_back_waits(const struct mr_lane *lane) {
  return lane->queues[MR_IO_WRITE_BACK].head != NULL || lane->prepared_count > 0;
}

/* How many chunks of the class may be in flight now. */
static uint32_t class_limit(const struct mr_lane *lane, mr_io_class io_class, bool demand) {
  uint32_t shared = lane->slot_count - MR_STORE_SLOTS_KEPT;
  if (io_class == MR_IO_DEMAND) {
    return lane->slot_count;
  }
  if (demand) {
    return io_class == MR_IO_PREFETCH ? shared / 2 : DEMAND_WRITES;
  }
  mr_io_class other = io_class == MR_IO_PREFETCH ? MR_IO_WRITE_BACK : MR_IO_PREFETCH;
  return wants(lane, other) ? shared / 2 : shared;
}

/* The class to start a chunk from next; MR_IO_CLASS_COUNT where none may be started. */
static mr_io_class choose_class(const struct mr_lane *lane) {
  if (lane->closed != MR_OK || lane->free_count == 0) {
    return MR_IO_CLASS_COUNT;
  }
  if (lane->passed_writes >= WRITE_PATIENCE && lane->prepared_count == 0 &&
      lane->queues[MR_IO_WRITE_BACK].head != NULL) {
    return MR_IO_WRITE_BACK;
  }
  bool demand = demand_comes(lane);
  uint32_t others = lane->inflight[MR_IO_PREFETCH] + lane->inflight[MR_IO_WRITE_BACK];
  bool full = engine_count(lane) >= lane->depth;
  for (mr_io_class i = MR_IO_DEMAND; i < MR_IO_CLASS_COUNT; i++) {
    const struct mr_store_request *next = lane->queues[i].head;
    if (next == NULL || lane->inflight[i] >= class_limit(lane, i, demand)) {
      continue;
    }
    bool may_begin = !full || next->write; /* a write is prepared first */
    if (i == MR_IO_DEMAND || (may_begin && others < lane->slot_count - MR_STORE_SLOTS_KEPT)) {
      return i;
    }
  }
  return MR_IO_CLASS_COUNT;
}

/* Whether the next prepared write may leave: to the engine, or because the lane is closed. */
static bool may_write(const struct mr_lane *lane) {
  if (lane->prepared_count == 0) {
    return false;
  }
  mr_io_class io_class = lane->slots[lane->prepared[0]].io_class;
  if (io_class == MR_IO_DEMAND || lane->passed_writes >= WRITE_PATIENCE || lane->closed != MR_OK) {
    return true;
  }
  uint32_t written = lane->inflight[io_class];
  for (uint32_t i = 0; i < lane->prepared_count; i++) {
    written -= lane->slots[lane->prepared[i]].io_class == io_class ? 1 : 0;
  }
  return engine_count(lane) < lane->depth &&
         written < class_limit(lane, io_class, demand_comes(lane));
}

/* The engine gets a chunk of the class next. Called with the lock. */
static void count_issue(struct mr_lane *lane, mr_io_class io_class) {
  if (io_class == MR_IO_DEMAND) {
    lane->last_demand_ns = mr_clock_ns();
  }
  if (io_class == MR_IO_WRITE_BACK || !write_back_waits(lane)) {
    lane->passed_writes = 0;
  } else {
    lane->passed_writes++;
  }
}

/* Takes the next prepared write where it is its turn: reads of its class and of more urgent ones go
 * first. MR_NO_INDEX where it is not. */
static uint32_t take_prepared(struct mr_lane *lane) {
  if (!may_write(lane)) {
    return MR_NO_INDEX;
  }
  uint32_t index = lane->prepared[0];
  mr_io_class next = choose_class(lane);
  const struct mr_store_request *head = next == MR_IO_CLASS_COUNT ? NULL : lane->queues[next].head;
  bool read_first = head != NULL && !head->write && next <= lane->slots[index].io_class;
  if (read_first && lane->passed_writes < WRITE_PATIENCE) {
    return MR_NO_INDEX;
  }
  lane->prepared_count--;
  memmove(lane->prepared, lane->prepared + 1, lane->prepared_count * sizeof lane->prepared[0]);
  count_issue(lane, lane->slots[index].io_class);
  return index;
}

static void fill_slot(struct mr_lane *lane, struct mr_slot *slot, mr_io_class io_class,
                      struct mr_store_request *request, uint64_t chunk) {
  const struct mr_store *store = lane->store;
  uint64_t extent_chunk = request->offset_bytes / MR_STORE_CHUNK_BYTES + chunk;
  *slot = (struct mr_slot){
      .request = request,
      .io_class = io_class,
      .write = request->write,
      .pool_only = request->pool_only,
      .extent = request->extent,
      .chunk = extent_chunk,
      .place = mr_extent_place(store, request->extent, extent_chunk),
      .bytes = mr_extent_chunk_bytes(&store->extents[request->extent], extent_chunk),
      .data = request->pool_only ? NULL : (uint8_t *)request->data + chunk * MR_STORE_CHUNK_BYTES,
      .pool = slot->pool,
  };
  MR_ASSERT(mr_place_lane(store, slot->place) == lane->index);
}

/*
 * Takes the next chunk into a free slot: its index, or MR_NO_INDEX where none may be issued. What
 * is left of a request that has failed is dropped on the way. Called and returns with the lock.
 */
static uint32_t pick(struct mr_lane *lane) {
  for (;;) {
    mr_io_class io_class = choose_class(lane);
    if (io_class == MR_IO_CLASS_COUNT) {
      return MR_NO_INDEX;
    }
    struct mr_store_queue *queue = &lane->queues[io_class];
    struct mr_store_request *request = queue->head;
    uint64_t chunk = request->parts[lane->index].chunk;
    if (atomic_load(&request->status) != MR_OK) {
      mr_queue_pop(queue, lane->index);
      uint64_t left = mr_request_chunks_left(lane->store, request, chunk, lane->index);
      pthread_mutex_unlock(&lane->lock);
      mr_request_finish(request, left, MR_OK);
      pthread_mutex_lock(&lane->lock);
      continue;
    }
    uint64_t next = mr_request_next_chunk(lane->store, request, chunk + 1, lane->index);
    request->parts[lane->index].chunk = next;
    if (next == request->chunk_count) {
      mr_queue_pop(queue, lane->index);
    }
    uint32_t index = lane->free_slots[--lane->free_count];
    fill_slot(lane, &lane->slots[index], io_class, request, chunk);
    lane->inflight[io_class]++;
    if (!request->write) {
      count_issue(lane, io_class);
    }
    return index;
  }
}

/* Starts a picked chunk; true where that was long work. */
static bool start_chunk(struct mr_lane *lane, uint32_t index) {
  const struct mr_slot *slot = &lane->slots[index];
  bool long_work = slot->write && !slot->pool_only;
  mr_slot_start(lane, index);
  return long_work;
}

/* A prepared write leaves: to the engine, or where the lane is closed, to its end. */
static void send_prepared(struct mr_lane *lane, uint32_t index, mr_status closed) {
  if (closed != MR_OK) {
    mr_slot_drop(lane, index, closed);
    return;
  }
  mr_slot_write(lane, index);
}

/* Feeds the engine with reads and prepared writes until no more may be, or prepares one write; true
 * where it may go on. */
static bool issue_some(struct mr_lane *lane) {
  for (;;) {
    pthread_mutex_lock(&lane->lock);
    lane->asleep = false;
    mr_status closed = lane->closed;
    uint32_t prepared = take_prepared(lane);
    uint32_t picked = prepared == MR_NO_INDEX ? pick(lane) : MR_NO_INDEX;
    pthread_mutex_unlock(&lane->lock);
    if (prepared != MR_NO_INDEX) {
      send_prepared(lane, prepared, closed);
    } else if (picked == MR_NO_INDEX) {
      return false;
    } else if (start_chunk(lane, picked)) {
      return true;
    }
  }
}

/* Whether to wait for a result or a wake; *finished_out where there is nothing left to do ever. */
static bool may_sleep(struct mr_lane *lane, bool *finished_out) {
  pthread_mutex_lock(&lane->lock);
  bool idle = choose_class(lane) == MR_IO_CLASS_COUNT && !may_write(lane);
  *finished_out = idle && lane->stopping && inflight_total(lane) == 0;
  lane->asleep = idle && !*finished_out;
  pthread_mutex_unlock(&lane->lock);
  return idle;
}

static void serve(struct mr_lane *lane) {
  struct mr_engine_result results[MR_STORE_SLOTS];
  bool finished = false;
  while (!finished) {
    bool busy = issue_some(lane);
    if (lane->settling_count > 0) {
      mr_slot_settle(lane);
      busy = true;
    }
    bool sleep = !busy && may_sleep(lane, &finished);
    if (finished) {
      break;
    }
    uint32_t count = lane->engine_table->reap(lane->engine, results, MR_STORE_SLOTS, sleep);
    for (uint32_t i = 0; i < count; i++) {
      mr_slot_complete(lane, &results[i]);
    }
  }
}

/* Creates the engine that was asked for, or the threads where the kernel refuses io_uring. */
static mr_status start_engine(struct mr_lane *lane) {
  struct mr_store *store = lane->store;
  struct mr_engine_config config = {.fd = lane->fd,
                                    .path = lane->path,
                                    .pool = lane->pool,
                                    .pool_bytes = lane->pool_bytes,
                                    .slot_count = lane->slot_count};
  int reason = 0;
#ifdef MEMRUN_HAVE_URING
  if (store->engine != MR_IO_PREAD) {
    lane->engine_table = &mr_engine_uring;
    mr_status status = mr_engine_uring.create(&config, &lane->engine, &reason);
    if (status != MR_UNSUPPORTED) {
      return status;
    }
  }
  const char *why = strerror(reason);
#else
  const char *why = "this build is without liburing";
#endif
  if (store->engine == MR_IO_URING) {
    mr_log(MR_LOG_ERROR, "nvme %s: io_uring was asked for and is refused: %s", lane->path, why);
    return MR_UNSUPPORTED;
  }
  if (store->engine == MR_IO_AUTO) {
    mr_log_once(MR_LOG_WARN, "io_uring is refused (%s); using threads for nvme", why);
    store->engine = MR_IO_PREAD; /* for the lanes that start later */
  }
  lane->engine_table = &mr_engine_pread;
  return mr_engine_pread.create(&config, &lane->engine, &reason);
}

/* The kernel's struct sched_attr, which the C library does not declare. */
struct scheduling {
  uint32_t size_bytes;
  uint32_t policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime_ns; /* under the normal policy: the slice */
  uint64_t deadline_ns;
  uint64_t period_ns;
};

/*
 * Asks for short slices, which from Linux 6.12 on makes a thread that was woken run soon beside
 * threads that compute, for the same share of the processor. Earlier kernels take no notice, and
 * where it is refused nothing is lost but that.
 */
static void ask_for_short_slices(void) {
  struct scheduling scheduling = {.size_bytes = sizeof scheduling,
                                  .nice = getpriority(PRIO_PROCESS, 0),
                                  .runtime_ns = SLICE_NS};
  (void)syscall(SYS_sched_setattr, 0, &scheduling, 0);
}

void *mr_lane_run(void *context) {
  struct mr_lane *lane = context;
  ask_for_short_slices();
  mr_status status = start_engine(lane);
  pthread_mutex_lock(&lane->lock);
  lane->start_status = status;
  lane->ready = true;
  pthread_cond_broadcast(&lane->changed);
  pthread_mutex_unlock(&lane->lock);
  if (status == MR_OK) {
    serve(lane);
    lane->engine_table->destroy(lane->engine);
  }
  pthread_mutex_lock(&lane->lock);
  lane->exited = true;
  pthread_cond_broadcast(&lane->changed);
  pthread_mutex_unlock(&lane->lock);
  return NULL;
}

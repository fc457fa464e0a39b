/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this room share: the store, its lanes, slots and tables. See offload.h. */
#ifndef MEMRUN_OFFLOAD_PRIVATE_H
#define MEMRUN_OFFLOAD_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/allocator.h"
#include "base/base.h"
#include "offload/engine.h"
#include "offload/store.h"

/* Direct I/O in multiples of this works on every disk whose kernel reports its alignment. */
#define MR_STORE_ALIGN 4096u
/* Chunks with the disk at a time. Measured on a virtual disk, four reach its rate, and from 32 on
 * it falls by a fifth because the pool leaves the caches: so as many as fio takes, and the pool no
 * larger than it must be. What the pool holds beyond them is copied and summed meanwhile, writes
 * before their turn: such a disk gives chunks back in bursts of up to fourteen, and with no write
 * prepared it had its sixteen in half of the time. Of a small pool's eight six were best: writes
 * ran at 0.99 of fio's rate, with all eight at the disk at 0.95, with four at 0.91. */
#define MR_STORE_DEPTH       16u
#define MR_STORE_DEPTH_SMALL 6u
/* Chunks on their way: with the disk, or being copied and summed meanwhile. Four are for demand
 * reads alone; the smaller number is 6 MiB, which the usual RLIMIT_MEMLOCK of 8 MiB allows. */
#define MR_STORE_SLOTS       24u
#define MR_STORE_SLOTS_SMALL 12u
#define MR_STORE_SLOTS_KEPT  4u
#define MR_STORE_FAULTS      8u
#define MR_STORE_PATTERN     256u
#define MR_NO_INDEX          UINT32_MAX

typedef enum mr_fault {
  MR_FAULT_NONE = 0,
  MR_FAULT_EIO,
  MR_FAULT_ENOSPC,
  MR_FAULT_SHORT,
  MR_FAULT_FLIP,
  MR_FAULT_HANG,
} mr_fault;

struct mr_fault_rule {
  bool write;
  mr_fault fault;
  uint64_t nth;
};

struct mr_fault_plan {
  struct mr_fault_rule rules[MR_STORE_FAULTS];
  uint32_t rule_count;
  _Atomic uint64_t transfers[2]; /* read, write */
};

typedef enum mr_place_state {
  MR_PLACE_EMPTY = 0, /* never written, or a write failed or is on its way */
  MR_PLACE_ZERO = 1,
  MR_PLACE_VALID = 2,
} mr_place_state;

struct mr_place {
  uint32_t crc;
  uint32_t state; /* mr_place_state */
};

/* Places in a row of one path, and the extent's next ones. */
struct mr_segment {
  uint32_t first;
  uint32_t count;
  uint32_t next; /* index of a segment; MR_NO_INDEX ends the chain */
};

struct mr_extent {
  uint64_t bytes;
  const char *label;
  uint32_t generation;
  uint32_t phase; /* where in the pattern of paths its first chunk falls */
  bool live;
  bool linear; /* one chain over all paths, because the pattern could not be kept */
  uint32_t segments[MR_MAX_NVME_PATHS];
};

struct mr_slot {
  /* The request whose chunk this is, and when the engine first got it or, for a write, when it was
   * prepared (0: neither yet, or it has come back); under the lane's lock. The monitor takes the
   * request from a slot that is late. */
  struct mr_store_request *request;
  uint64_t issued_ns;

  uint64_t begun_ns; /* what issued_ns was first */
  mr_io_class io_class;
  bool write;
  bool staged;
  bool pool_only;
  bool retried; /* a failed or mismatching read was begun again */
  bool flipped; /* the caller's memory has a bit that must be turned back */
  mr_fault fault;
  uint32_t extent;
  uint64_t chunk;
  uint32_t place;
  uint32_t bytes;    /* of the chunk */
  uint32_t io_bytes; /* the same, rounded up for direct I/O */
  uint32_t moved_bytes;
  uint32_t tries; /* results in a row that moved nothing */
  uint32_t crc;
  uint8_t *data; /* the caller's */
  uint8_t *pool; /* the slot's buffer */
};

/* What a lane's copies into its pool cost, in processor time for a chunk. */
struct mr_copier {
  uint64_t through_ns; /* through the caches */
  uint64_t past_ns;    /* past them */
  uint32_t past_left;  /* chunks that will go past them */
  uint32_t turn;
};

struct mr_store_queue {
  struct mr_store_request *head;
  struct mr_store_request *tail;
};

struct mr_lane {
  struct mr_store *store;
  uint32_t index;
  char *path;
  int fd;
  bool direct_io;
  uint64_t chunk_count; /* of the file */
  uint32_t first_place;
  struct mr_arena arena;

  pthread_t thread;
  bool thread_started;
  const struct mr_engine_table *engine_table;
  struct mr_engine *engine;
  uint8_t *pool;
  uint64_t pool_bytes;

  pthread_mutex_t lock; /* guards the fields below, and what mr_slot says */
  struct mr_store_queue queues[MR_IO_CLASS_COUNT];
  bool asleep;
  bool stopping;
  mr_status closed; /* what queued requests get from the monitor; MR_OK: open */
  bool ready;       /* the thread has started, with start_status */
  bool exited;
  mr_status start_status;
  pthread_cond_t changed; /* ready or exited */

  /* The lane's thread alone; inflight is also under the lock where the monitor reads slots. */
  struct mr_slot slots[MR_STORE_SLOTS];
  uint32_t slot_count;
  uint32_t depth; /* slots that the engine may have, demand reads aside */
  uint32_t free_slots[MR_STORE_SLOTS];
  uint32_t free_count;
  uint32_t settling[MR_STORE_SLOTS]; /* reads that have come back, oldest first */
  uint32_t settling_count;
  uint32_t prepared[MR_STORE_SLOTS]; /* writes copied and summed; the next one first */
  uint32_t prepared_count;
  uint32_t inflight[MR_IO_CLASS_COUNT];
  struct mr_copier copier;
  uint32_t passed_writes; /* others issued since a write-back began to wait */
  uint64_t last_demand_ns;
};

struct mr_store {
  struct mr_lane lanes[MR_MAX_NVME_PATHS];
  uint32_t lane_count;
  mr_io_engine engine; /* MR_IO_PREAD once io_uring was refused */
  bool checksums;
  _Atomic int mode; /* mr_store_mode, once it is chosen */
  uint64_t timeout_ns;
  struct mr_fault_plan faults;

  /* Chunk k of an extent lies on path pattern[(phase + k) % pattern_length]. */
  uint32_t pattern_length;
  uint8_t pattern[MR_STORE_PATTERN];

  struct mr_place *places;
  uint64_t place_count;
  struct mr_segment *segments;
  uint32_t free_segment; /* chain of unused ones below segments_used */
  uint32_t segments_used;
  struct mr_extent *extents;
  uint32_t free_extent; /* chain through segments[0] */
  uint32_t extents_used;
  uint32_t next_phase;

  pthread_t monitor;
  bool monitor_started;
  pthread_mutex_t monitor_lock;
  pthread_cond_t monitor_wake;
  struct mr_store_queue rejects; /* status already set; linked by parts[0] */
  bool monitor_kicked;
  bool monitor_stopping;

  pthread_mutex_t transfer_lock;
  pthread_cond_t transfer_done;

  _Atomic bool stopping;
  _Atomic bool failed; /* an input or output is stuck */
  _Atomic bool error_logged;
  _Atomic uint64_t read_bytes;
  _Atomic uint64_t written_bytes;
  _Atomic uint64_t retries;
  _Atomic uint64_t crc_failures;
};

/* checksum.c: CRC32C of a chunk; the copying ones take it on the way. */
uint32_t mr_chunk_seed(uint32_t extent, uint32_t generation, uint64_t chunk);
uint32_t mr_chunk_crc(uint8_t *data, uint32_t bytes, uint32_t seed);
/* Without a seed no checksum is taken. `data` and `pool` are 64-byte aligned. */
uint32_t mr_chunk_copy_in(struct mr_copier *copier, uint8_t *pool, uint8_t *data, uint32_t bytes,
                          const uint32_t *seed);
uint32_t mr_chunk_copy_out(uint8_t *data, uint8_t *pool, uint32_t bytes, uint32_t seed);
/* The same without a checksum. */
void mr_chunk_move_out(uint8_t *data, const uint8_t *pool, uint32_t bytes);

/* fault.c */
MR_CHECK_RESULT mr_status mr_fault_parse(const char *text, struct mr_fault_plan *plan_out);
/* What the transfer that is issued now meets. */
mr_fault mr_fault_next(struct mr_fault_plan *plan, bool write);

/* file.c: opens and reserves the file of a lane (path, chunk_count set). */
MR_CHECK_RESULT mr_status mr_file_open(struct mr_lane *lane);
/* What each path can hold now, in whole chunks, all of them together; `tells`: a line says which
 * share a file system that has less than they want. MR_IO. */
MR_CHECK_RESULT mr_status mr_file_rooms(const struct mr_nvme_path *paths, uint32_t count,
                                        bool tells, uint64_t *room_bytes);

/* extent.c */
MR_CHECK_RESULT mr_status mr_extent_tables_create(struct mr_store *store);
void mr_extent_tables_destroy(struct mr_store *store);
uint32_t mr_extent_place(const struct mr_store *store, uint32_t extent, uint64_t chunk);
uint32_t mr_place_lane(const struct mr_store *store, uint32_t place);
/* The bytes of a chunk: less than MR_STORE_CHUNK_BYTES at the extent's end alone. */
uint32_t mr_extent_chunk_bytes(const struct mr_extent *extent, uint64_t chunk);

/* request.c */
/* Counts `chunks` of the request as ended, the first bad status as its own; the last calls done. */
void mr_request_finish(struct mr_store_request *request, uint64_t chunks, mr_status status);
/* The first chunk of the request from `chunk` on that lies on the lane; chunk_count where none. */
uint64_t mr_request_next_chunk(const struct mr_store *store, const struct mr_store_request *request,
                               uint64_t chunk, uint32_t lane);
/* How many chunks of the request from `chunk` on lie on the lane. */
uint64_t mr_request_chunks_left(const struct mr_store *store,
                                const struct mr_store_request *request, uint64_t chunk,
                                uint32_t lane);
void mr_queue_push(struct mr_store_queue *queue, struct mr_store_request *request, uint32_t lane);
struct mr_store_request *mr_queue_pop(struct mr_store_queue *queue, uint32_t lane);

/* lane.c */
void *mr_lane_run(void *context);
/* Wakes the lane's thread where it sleeps; the caller holds the lane's lock. */
void mr_lane_wake(struct mr_lane *lane);

/* slot.c: one chunk on its way. */
/* Hands a read to the engine; copies and sums a write, which is then among the prepared ones. */
void mr_slot_start(struct mr_lane *lane, uint32_t index);
/* Hands a prepared write to the engine. */
void mr_slot_write(struct mr_lane *lane, uint32_t index);
/* Ends a prepared write that the engine shall not have. */
void mr_slot_drop(struct mr_lane *lane, uint32_t index, mr_status status);
/* Looks at a result: goes on, begins again, queues for settling or ends the chunk. */
void mr_slot_complete(struct mr_lane *lane, const struct mr_engine_result *result);
/* Copies out and checks the read that came back first among the most urgent. */
void mr_slot_settle(struct mr_lane *lane);

/* Whether the mode sends that direction through the pool. */
static inline bool mr_store_mode_stages(mr_store_mode mode, bool write) {
  return mode == MR_STORE_STAGED || mode == (write ? MR_STORE_READ_DIRECT : MR_STORE_WRITE_DIRECT);
}

/* monitor.c */
void *mr_monitor_run(void *context);
/* Ends a request that is in no queue; the monitor calls its `done`. */
void mr_monitor_reject(struct mr_store *store, struct mr_store_request *request, mr_status status);
/* Makes the monitor look at the closed lanes' queues. */
void mr_monitor_kick(struct mr_store *store);

/* probe.c: moves at most `bytes` through extents of its own and sets the store's mode. */
MR_CHECK_RESULT mr_status mr_store_measure(struct mr_store *store,
                                           const struct mr_store_options *options, uint64_t bytes,
                                           struct mr_store_rates *rates_out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NVMe store keeps tensors' bytes on files and gives them back unchanged or says why not.
 *
 * Nouns. A *path* is a directory on a file system; the store holds one unlinked file there,
 * reserved whole before the first write, so a killed process leaves nothing and two stores on one
 * path never meet. An *extent* is room for one tensor: chunks of chunk_bytes, spread over the paths
 * by weighted round robin. A *request* moves a range of an extent to or from memory. An *engine*
 * (uring, pread) is a table of functions that moves chunks; one thread and one ring for each path.
 * The *pool* is a small registered hugepage buffer through which chunks are staged where the probe
 * found that faster for their direction than going to the caller's memory directly.
 *
 * Invariants. A chunk's CRC32C, seeded with its place, is kept in memory when it is written and
 * checked when it comes back: a mismatch is read once more and is then an error, never silence.
 * Every result is looked at; a short transfer goes on from where it stopped. Demand reads go before
 * prefetches, prefetches before write-back; writes always keep a share, so they cannot starve. A
 * request older than the time limit fails the store with file, offset, label and age.
 *
 * Threads. Extents are made and freed by one thread between requests. Requests are submitted from
 * any thread; `done` runs on an engine thread, must not block and may submit. No order holds
 * between requests: who reads what another request writes waits for its `done`.
 */
#ifndef MEMRUN_OFFLOAD_STORE_H
#define MEMRUN_OFFLOAD_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <memrun/run.h>
#include <memrun/status.h>

struct mr_store;

#define MR_STORE_CHUNK_BYTES (512ull << 10)

typedef enum mr_io_class {
  MR_IO_DEMAND = 0,
  MR_IO_PREFETCH = 1,
  MR_IO_WRITE_BACK = 2,
  MR_IO_CLASS_COUNT = 3,
} mr_io_class;

/* Each direction goes through the pool (staged), or between the file and the caller's memory where
 * that is aligned (direct): it spares a copy, but the disk's side then reaches into memory that no
 * cache holds. */
typedef enum mr_store_mode {
  MR_STORE_PROBE = 0, /* measure, and take the faster for each direction */
  MR_STORE_STAGED = 1,
  MR_STORE_DIRECT = 2,
  MR_STORE_READ_DIRECT = 3,  /* writes are staged */
  MR_STORE_WRITE_DIRECT = 4, /* reads are staged */
} mr_store_mode;

/*
 * A fault to inject, for tests: the nth (from 1) transfer of a chunk in that direction gets it, in
 * the order in which transfers are issued, repeated ones included. Spelled "read:eio:7",
 * "write:enospc:3", "read:short:1", "read:flip:2", "write:flip:2", "read:hang:4" (0 as n: every
 * one). A read that fails or mismatches once is read again, so that "read:eio:7" is mended and
 * "read:eio:7,read:eio:8" (with one transfer at a time) or "read:eio:0" is not.
 */
struct mr_store_options {
  struct mr_nvme_path paths[MR_MAX_NVME_PATHS];
  uint32_t path_count;
  uint64_t capacity_bytes; /* of all extents; reserved on the files at creation */
  mr_io_engine engine;
  mr_store_mode mode;
  bool checksums;         /* off for benchmarks only */
  double timeout_seconds; /* > 0 */
  const char *inject;     /* NULL: none; several (at most 8) are separated by commas */
  /* Relative speeds of the paths, from mr_store_probe; all 0: equal. A path gets chunks by it. */
  double path_weights[MR_MAX_NVME_PATHS];
};

/*
 * Opens the files, picks the engine, reserves the space and starts the threads. One log line for
 * each fall-back (no io_uring, no O_DIRECT), once in a process. MR_IO names path and errno;
 * MR_NO_SPACE names path, asked and free bytes; MR_INVALID; MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_store_create(const struct mr_store_options *options,
                                          struct mr_store **store_out);

/*
 * Waits for what is in flight, then frees everything; requests that were not started end with
 * MR_INTERRUPTED, and so does what a `done` submits meanwhile. Where an input or output is stuck
 * past the time limit, its thread and memory are left behind and one line says so; false then: the
 * memory of its request, too, must stay mapped until the process ends. NULL is allowed.
 */
bool mr_store_destroy(struct mr_store *store);

/*
 * Makes room for `bytes` (rounded up to chunks). MR_NO_SPACE where the capacity is used up. `label`
 * (a tensor's name) outlives the extent. An extent that was never written reads as MR_INVALID.
 */
MR_CHECK_RESULT mr_status mr_store_extent_create(struct mr_store *store, uint64_t bytes,
                                                 const char *label, uint32_t *extent_out);
void mr_store_extent_destroy(struct mr_store *store, uint32_t extent);

/* The whole extent reads as zeros, without input or output, until it is written. */
void mr_store_extent_zero(struct mr_store *store, uint32_t extent);

/*
 * How many bytes the paths can hold now: for each the lower of its limit and what is free there
 * less a reserve (a twentieth, at most 1 GiB), in whole chunks; those on one file system share what
 * it has. In each a file without a name is made, and closed. MR_IO names a path that cannot be
 * used.
 */
MR_CHECK_RESULT mr_status mr_store_available(const struct mr_nvme_path *paths, uint32_t path_count,
                                             uint64_t *bytes_out);

struct mr_store_request;
typedef void (*mr_store_done)(struct mr_store_request *request, mr_status status);

/* One path's view of a request: its place in that path's queue and the next chunk to issue. */
struct mr_store_part {
  struct mr_store_request *next;
  uint64_t chunk;
};

/*
 * The caller's memory, until `done`. Fields below `context` belong to the store. A range may be any
 * chunks of an extent: writing some leaves the others as they are. After MR_TIMEOUT the kernel may
 * still touch `data`, so it must stay mapped until the process ends.
 */
struct mr_store_request {
  uint32_t extent;
  bool write;
  mr_io_class io_class;
  uint64_t offset_bytes; /* a multiple of MR_STORE_CHUNK_BYTES */
  uint64_t bytes;        /* any length; a tail shorter than a chunk must be the extent's end */
  void *data;            /* 64-byte aligned at least; direct where 4096-byte aligned */
  mr_store_done done;
  void *context;
  bool pool_only; /* see mr_store_submit_pool */
  uint64_t chunk_count;
  _Atomic uint64_t pending_chunks;
  _Atomic int status;
  struct mr_store_part parts[MR_MAX_NVME_PATHS];
};

/*
 * Queues the request; does not block and does not allocate. Every outcome, also MR_INVALID for a
 * bad range, alignment or a chunk that was never written, comes through `done`.
 */
void mr_store_submit(struct mr_store *store, struct mr_store_request *request);

/*
 * For measuring: moves the range between the file and the store's own pool, without `data` and
 * checksums. What is written so reads as MR_INVALID otherwise.
 */
void mr_store_submit_pool(struct mr_store *store, struct mr_store_request *request);

/* For measuring: changes the mode, not to MR_STORE_PROBE, while no request is under way. */
void mr_store_set_mode(struct mr_store *store, mr_store_mode mode);

/* Gives what is still queued of a request (a prefetch, or a write that a demand read waits for) the
 * class MR_IO_DEMAND. The request may be finishing meanwhile; its memory must be valid. */
void mr_store_promote(struct mr_store *store, struct mr_store_request *request);

/* Submits and waits; uses `done` and `context`. Not from a `done`. */
MR_CHECK_RESULT mr_status mr_store_transfer(struct mr_store *store,
                                            struct mr_store_request *request);

/* Figures since creation. */
struct mr_store_stats {
  uint64_t read_bytes;
  uint64_t written_bytes;
  uint64_t retries;      /* short transfers and re-reads */
  uint64_t crc_failures; /* mismatches, also those that a re-read mended */
  uint64_t reserved_bytes;
  bool uring;
  bool direct_io; /* O_DIRECT on every path */
};
void mr_store_get_stats(const struct mr_store *store, struct mr_store_stats *stats_out);
/* Read and written since creation; 0 without a store. Any thread. */
uint64_t mr_store_moved_bytes(const struct mr_store *store);

/* What a path can do in its faster mode, measured with `bytes` of throw-away data at most. */
struct mr_store_rates {
  double read_bytes_per_second;
  double write_bytes_per_second;
  double mixed_bytes_per_second; /* both directions together, summed */
  mr_store_mode mode;
  double path_weights[MR_MAX_NVME_PATHS]; /* relative speeds, for mr_store_options */
  /* Left alone by the store's own probe: what a byte costs a team of threads that computes
   * meanwhile (0: nothing, or not known), whether a run has shown that, and what a request takes
   * beyond its bytes. */
  double op_seconds_per_byte;
  bool cost_learned;
  double latency_seconds;
};
MR_CHECK_RESULT mr_status mr_store_probe(const struct mr_store_options *options, uint64_t bytes,
                                         struct mr_store_rates *rates_out);

#endif

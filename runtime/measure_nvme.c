/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NVMe and ops take from each other, measured once for each set of paths: a team computes
 * while the store reads, writes or does both as fast as it can. Who moves bytes needs processors
 * for checksums and copies, memory and caches; on a virtual disk, its other end may need the same
 * processors. So ops lose some seconds by each byte. And what a request takes beyond its bytes,
 * threads that wake each other up included: it is what an op waits that waits for one alone.
 * Measured on a virtual disk and two cores: 0.03 to 0.1 s to a GB, 80 to 190 us.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/profile.h"
#include "runtime/runtime.h"

/* Under way at once in each direction: as much as the store has with the drive. */
#define PIECES        4u
#define PIECE_BYTES   (2ull << 20)
#define SPAN_BYTES    (PIECES * PIECE_BYTES)
#define HUGE_PAGE     (2ull << 20)

#define ROUNDS        10u
#define ROUND_SECONDS 0.025 /* long against a chunk's 0.3 ms and a turn's 1 ms */

#define LONE_REQUESTS 15u

/* A turn of the team: blocks that stay in the second cache, worked over as ops do theirs. Blocks
 * from beyond it lose half as much again, and bounds by them were above steps that were measured.
 */
#define TURN_TASKS  32u
#define BLOCK_REALS 16384u
#define BLOCK_LAPS  12u

enum { READS = 0, WRITES, BOTH, KINDS };

struct contest {
  struct mr_store *store;
  struct mr_team *team;
  float *blocks; /* one for each thread */
  struct mr_store_request requests[2][PIECES];
  _Atomic bool stop;
  _Atomic uint32_t under_way;
  _Atomic int status;
  double cost[KINDS * ROUNDS];
};

static void work_task(void *context, uint32_t task, uint32_t thread) {
  (void)task;
  struct contest *contest = context;
  float *block = contest->blocks + (size_t)thread * BLOCK_REALS;
  for (uint32_t lap = 0; lap < BLOCK_LAPS; lap++) {
    for (uint32_t i = 0; i < BLOCK_REALS; i++) {
      block[i] = block[i] * 0.999f + 0.5f;
    }
  }
}

/* Turns of the team for a round; how many, and what they took together. */
static uint32_t take_turns(struct contest *contest, double *seconds_out) {
  double start = mr_clock_seconds();
  uint32_t turns = 0;
  do {
    mr_team_run(contest->team, TURN_TASKS, work_task, contest);
    turns++;
    *seconds_out = mr_clock_seconds() - start;
  } while (*seconds_out < ROUND_SECONDS);
  return turns;
}

/* A piece has been moved: once more, until the round is over. */
static void piece_done(struct mr_store_request *request, mr_status status) {
  struct contest *contest = request->context;
  if (status != MR_OK) {
    atomic_store(&contest->status, (int)status);
  }
  if (status == MR_OK && !atomic_load(&contest->stop)) {
    mr_store_submit(contest->store, request);
  } else {
    atomic_fetch_sub(&contest->under_way, 1);
  }
}

static void start_direction(struct contest *contest, bool write) {
  for (uint32_t i = 0; i < PIECES; i++) {
    atomic_fetch_add(&contest->under_way, 1);
    mr_store_submit(contest->store, &contest->requests[write][i]);
  }
}

static mr_status stop_all(struct contest *contest) {
  atomic_store(&contest->stop, true);
  while (atomic_load(&contest->under_way) > 0) {
    struct timespec pause = {.tv_nsec = 20000};
    nanosleep(&pause, NULL);
  }
  atomic_store(&contest->stop, false);
  return (mr_status)atomic_load(&contest->status);
}

/* The team alone, then beside one kind of traffic: what each byte cost it. */
static mr_status run_kind(struct contest *contest, int kind, double *cost_out) {
  double seconds = 0;
  uint32_t turns = take_turns(contest, &seconds);
  double turn_seconds = seconds / turns;
  if (kind != WRITES) {
    start_direction(contest, false);
  }
  if (kind != READS) {
    start_direction(contest, true);
  }
  uint64_t before_bytes = mr_store_moved_bytes(contest->store);
  turns = take_turns(contest, &seconds);
  uint64_t bytes = mr_store_moved_bytes(contest->store) - before_bytes;
  *cost_out = bytes == 0 ? 0 : (seconds - turns * turn_seconds) / (double)bytes;
  return stop_all(contest);
}

/* The first turns warm threads and caches up. */
static mr_status run_rounds(struct contest *contest) {
  double seconds = 0;
  mr_status status = MR_OK;
  (void)take_turns(contest, &seconds);
  for (uint32_t round = 0; round < ROUNDS && status == MR_OK; round++) {
    for (int kind = READS; kind < KINDS && status == MR_OK; kind++) {
      status = run_kind(contest, kind, &contest->cost[(uint32_t)kind * ROUNDS + round]);
    }
  }
  return status;
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a;
  double y = *(const double *)b;
  return (x > y) - (x < y);
}

/* An extent for each direction, written once, and the requests that move its pieces. */
static mr_status prepare(struct contest *contest, uint8_t *memory) {
  mr_status status = MR_OK;
  for (uint32_t write = 0; write < 2 && status == MR_OK; write++) {
    uint32_t extent = 0;
    status = mr_store_extent_create(contest->store, SPAN_BYTES, "measuring", &extent);
    for (uint32_t i = 0; i < PIECES && status == MR_OK; i++) {
      struct mr_store_request *request = &contest->requests[write][i];
      *request = (struct mr_store_request){
          .extent = extent,
          .write = true,
          .io_class = write ? MR_IO_WRITE_BACK : MR_IO_PREFETCH,
          .offset_bytes = i * PIECE_BYTES,
          .bytes = PIECE_BYTES,
          .data = memory + write * SPAN_BYTES + i * PIECE_BYTES,
      };
      status = mr_store_transfer(contest->store, request);
      request->write = write;
      request->done = piece_done;
      request->context = contest;
    }
  }
  return status;
}

static double median(double *values, uint32_t count) {
  qsort(values, count, sizeof *values, compare_doubles);
  return values[count / 2];
}

/* Reads of a chunk, each when the one before is over, while nobody computes: the drive is quick to
 * take a write, and ops wait for reads. */
static mr_status read_alone(struct contest *contest, double bytes_per_second, double *latency_out) {
  double seconds[LONE_REQUESTS];
  mr_status status = MR_OK;
  for (uint32_t i = 0; i < LONE_REQUESTS && status == MR_OK; i++) {
    struct mr_store_request request = contest->requests[0][i % PIECES];
    request.io_class = MR_IO_DEMAND;
    request.bytes = MR_STORE_CHUNK_BYTES;
    double start = mr_clock_seconds();
    status = mr_store_transfer(contest->store, &request);
    seconds[i] = mr_clock_seconds() - start;
  }
  if (status == MR_OK) {
    double passing = (double)MR_STORE_CHUNK_BYTES / bytes_per_second;
    *latency_out = fmin(fmax(median(seconds, LONE_REQUESTS) - passing, 0), 1);
  }
  return status;
}

/* Costs are the median over rounds and kinds: a run has all of them. */
static mr_status contend(struct contest *contest, uint8_t *memory, struct mr_store_rates *rates) {
  double latency_seconds = 0;
  mr_status status = prepare(contest, memory);
  if (status == MR_OK) {
    status = read_alone(contest, rates->read_bytes_per_second, &latency_seconds);
  }
  if (status == MR_OK) {
    status = run_rounds(contest);
  }
  if (status == MR_OK) {
    double cost = median(contest->cost, MR_COUNT_OF(contest->cost));
    rates->op_seconds_per_byte = fmin(fmax(cost, 0), 1);
    rates->latency_seconds = latency_seconds;
    mr_log(MR_LOG_DEBUG, "nvme probe: ops lose %.3f s to a GB; a lone read takes %.0f us more",
           1e9 * rates->op_seconds_per_byte, 1e6 * latency_seconds);
  }
  return status;
}

mr_status mr_profile_measure_nvme(const struct mr_store_options *options, uint32_t threads,
                                  struct mr_store_rates *rates) {
  struct mr_store_options asked = *options;
  struct mr_memory memory = {0};
  struct contest *contest = mr_allocate(1, sizeof *contest);
  float *blocks = mr_allocate((uint64_t)threads * BLOCK_REALS, sizeof *blocks);
  mr_status status = contest == NULL || blocks == NULL ? MR_NO_MEMORY : MR_OK;
  if (status == MR_OK) {
    contest->blocks = blocks;
    status = mr_memory_map(2 * SPAN_BYTES, HUGE_PAGE, "measuring nvme", &memory);
  }
  if (status == MR_OK) {
    status = mr_team_create(threads, &contest->team);
  }
  asked.capacity_bytes = 2 * SPAN_BYTES;
  asked.mode = rates->mode;
  memcpy(asked.path_weights, rates->path_weights, sizeof asked.path_weights);
  if (status == MR_OK) {
    status = mr_store_create(&asked, &contest->store);
  }
  if (status == MR_OK) {
    status = contend(contest, memory.data, rates);
  }
  bool whole = contest == NULL || mr_store_destroy(contest->store);
  if (contest != NULL) {
    mr_team_destroy(contest->team);
  }
  if (whole) {
    mr_memory_unmap(&memory);
  }
  free(blocks);
  free(contest);
  return status;
}

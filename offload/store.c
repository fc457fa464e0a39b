/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store as a whole: how the capacity is shared among the paths, in which order everything is
 * started and ended, and the figures.
 */
#include "offload/store.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "offload/private.h"

#define HUGE_PAGE_BYTES (2ull << 20)
/* More chunks than this are not numbered: 2 PiB. */
#define PLACES_MAX (1ull << 31)
/* The finest ratio between two paths in the pattern. */
#define PATTERN_FINENESS (MR_STORE_PATTERN / MR_MAX_NVME_PATHS)
/* How long destroy waits for a stuck transfer once the store has failed, or less by the limit. */
#define STUCK_GRACE_NS 1000000000ull
/* What mr_store_create may move to find the faster mode, and the capacity below which that says
 * nothing. */
#define CREATE_PROBE_BYTES      (256ull << 20)
#define CREATE_PROBE_SPAN_LEAST (8ull << 20)

static mr_status check_options(const struct mr_store_options *options) {
  if (options->path_count == 0 || options->path_count > MR_MAX_NVME_PATHS) {
    mr_log(MR_LOG_ERROR, "the nvme store takes 1 to %u paths, not %u", MR_MAX_NVME_PATHS,
           options->path_count);
    return MR_INVALID;
  }
  if (options->capacity_bytes == 0 ||
      options->capacity_bytes / MR_STORE_CHUNK_BYTES >= PLACES_MAX - MR_MAX_NVME_PATHS) {
    mr_log(MR_LOG_ERROR, "the nvme store cannot have a capacity of %llu bytes",
           (unsigned long long)options->capacity_bytes);
    return MR_INVALID;
  }
  if (!(options->timeout_seconds > 0) || options->timeout_seconds > 1e9) {
    mr_log(MR_LOG_ERROR, "the nvme store's time limit must be above 0 s and at most 1e9 s, not %g",
           options->timeout_seconds);
    return MR_INVALID;
  }
  for (uint32_t i = 0; i < options->path_count; i++) {
    if (options->paths[i].path == NULL || !(options->path_weights[i] >= 0)) {
      mr_log(MR_LOG_ERROR, "nvme path %u has no name or a negative weight", i);
      return MR_INVALID;
    }
  }
  return MR_OK;
}

static double path_weight(const struct mr_store_options *options, uint32_t path) {
  double sum = 0;
  for (uint32_t i = 0; i < options->path_count; i++) {
    sum += options->path_weights[i];
  }
  return sum > 0 ? options->path_weights[path] : 1;
}

/* Gives `left` chunks to the paths by weight, as far as each has room; every round but the last
 * fills a path. There is room for all of them. */
static void share_chunks(const struct mr_store_options *options, const uint64_t *room,
                         uint64_t left, uint64_t *shares) {
  while (left > 0) {
    double weights = 0;
    for (uint32_t i = 0; i < options->path_count; i++) {
      weights += shares[i] < room[i] ? path_weight(options, i) : 0;
    }
    uint64_t round = left;
    for (uint32_t i = 0; i < options->path_count; i++) {
      /* Where only paths of weight 0 have room left, they take what they can. */
      double part = weights > 0 ? path_weight(options, i) / weights : 1;
      uint64_t wanted = part > 0 ? (uint64_t)((double)round * part) + 1 : 0;
      uint64_t given = mr_min_u64(mr_min_u64(wanted, room[i] - shares[i]), left);
      shares[i] += given;
      left -= given;
    }
  }
}

/* Makes a lane for each path that gets a share of the capacity. */
static mr_status share_capacity(struct mr_store *store, const struct mr_store_options *options) {
  uint64_t chunks = mr_div_up(options->capacity_bytes, MR_STORE_CHUNK_BYTES);
  uint64_t room[MR_MAX_NVME_PATHS];
  uint64_t shares[MR_MAX_NVME_PATHS] = {0};
  uint64_t total_room = 0;
  mr_status status = mr_file_rooms(options->paths, options->path_count, false, room);
  if (status != MR_OK) {
    return status;
  }
  for (uint32_t i = 0; i < options->path_count; i++) {
    room[i] /= MR_STORE_CHUNK_BYTES;
    total_room += room[i];
  }
  if (chunks > total_room) {
    struct mr_size_text asked;
    struct mr_size_text usable;
    mr_log(MR_LOG_ERROR,
           "nvme %s%s: %s are asked for and %s can be used: free space or give another path",
           options->paths[0].path, options->path_count > 1 ? " and others" : "",
           mr_size_format(options->capacity_bytes, &asked),
           mr_size_format(total_room * MR_STORE_CHUNK_BYTES, &usable));
    return MR_NO_SPACE;
  }
  share_chunks(options, room, chunks, shares);
  for (uint32_t i = 0; i < options->path_count; i++) {
    if (shares[i] > 0) {
      struct mr_lane *lane = &store->lanes[store->lane_count++];
      lane->chunk_count = shares[i];
      lane->path = mr_string_copy(options->paths[i].path);
      if (lane->path == NULL) {
        return MR_NO_MEMORY;
      }
    }
  }
  return MR_OK;
}

/* Spreads the lanes over the pattern in proportion to their chunks: at each position the lane that
 * is furthest behind its share. */
static void make_pattern(struct mr_store *store) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < store->lane_count; i++) {
    most = mr_max_u64(most, store->lanes[i].chunk_count);
  }
  uint64_t weights[MR_MAX_NVME_PATHS];
  uint64_t total = 0;
  bool equal = true;
  for (uint32_t i = 0; i < store->lane_count; i++) {
    weights[i] = mr_div_up(store->lanes[i].chunk_count * PATTERN_FINENESS, most);
    equal = equal && weights[i] == PATTERN_FINENESS;
    total += weights[i];
  }
  store->pattern_length = equal ? store->lane_count : (uint32_t)total;
  uint64_t placed[MR_MAX_NVME_PATHS] = {0};
  for (uint32_t k = 0; k < store->pattern_length; k++) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < store->lane_count; i++) {
      /* (placed + 1) / weight, the smallest first. */
      if ((placed[i] + 1) * weights[best] < (placed[best] + 1) * weights[i]) {
        best = i;
      }
    }
    placed[best]++;
    store->pattern[k] = (uint8_t)best;
  }
}

static uint32_t choose_slot_count(const struct mr_store *store) {
  struct rlimit limit = {0};
  bool roomy = geteuid() == 0 || (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
                                  limit.rlim_cur / 2 >= MR_STORE_SLOTS * MR_STORE_CHUNK_BYTES);
  return roomy && store->lane_count <= 2 ? MR_STORE_SLOTS : MR_STORE_SLOTS_SMALL;
}

/* Maps the pool at a huge page's edge and touches it. */
static mr_status create_pool(struct mr_lane *lane) {
  lane->pool_bytes = lane->slot_count * MR_STORE_CHUNK_BYTES;
  uint64_t asked = lane->pool_bytes + HUGE_PAGE_BYTES;
  uint8_t *mapped =
      mmap(NULL, asked, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    mr_log(MR_LOG_ERROR, "nvme %s: no memory for a pool of %llu bytes", lane->path,
           (unsigned long long)lane->pool_bytes);
    return MR_NO_MEMORY;
  }
  uint64_t front = mr_round_up((uintptr_t)mapped, HUGE_PAGE_BYTES) - (uintptr_t)mapped;
  uint64_t back = asked - front - lane->pool_bytes;
  lane->pool = mapped + front;
  if (front > 0) {
    munmap(mapped, front);
  }
  if (back > 0) {
    munmap(lane->pool + lane->pool_bytes, back);
  }
  madvise(lane->pool, lane->pool_bytes, MADV_HUGEPAGE);
  memset(lane->pool, 0, lane->pool_bytes);
  for (uint32_t i = 0; i < lane->slot_count; i++) {
    lane->slots[i].pool = lane->pool + i * MR_STORE_CHUNK_BYTES;
    lane->free_slots[i] = lane->slot_count - 1 - i;
  }
  lane->free_count = lane->slot_count;
  return MR_OK;
}

/* Starts a thread that leaves every signal to the process's other threads: a handler must not run
 * where a disk is being fed, and what is interrupted would only be begun again. */
static int start_thread(pthread_t *thread, void *(*run)(void *), void *context) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(thread, NULL, run, context);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return error;
}

static mr_status start_lane(struct mr_lane *lane) {
  int error = start_thread(&lane->thread, mr_lane_run, lane);
  if (error != 0) {
    mr_log(MR_LOG_ERROR, "nvme %s: no thread: %s", lane->path, strerror(error));
    return MR_NO_MEMORY;
  }
  lane->thread_started = true;
  pthread_mutex_lock(&lane->lock);
  while (!lane->ready) {
    pthread_cond_wait(&lane->changed, &lane->lock);
  }
  mr_status status = lane->start_status;
  pthread_mutex_unlock(&lane->lock);
  return status;
}

static mr_status create_lanes(struct mr_store *store) {
  uint64_t first_place = 0;
  uint32_t slot_count = choose_slot_count(store);
  for (uint32_t i = 0; i < store->lane_count; i++) {
    struct mr_lane *lane = &store->lanes[i];
    lane->slot_count = slot_count;
    lane->depth = slot_count == MR_STORE_SLOTS ? MR_STORE_DEPTH : MR_STORE_DEPTH_SMALL;
    lane->first_place = (uint32_t)first_place;
    first_place += lane->chunk_count;
    mr_status status = mr_file_open(lane);
    if (status == MR_OK) {
      status = create_pool(lane);
    }
    if (status != MR_OK) {
      return status;
    }
  }
  store->place_count = first_place;
  mr_status status = mr_extent_tables_create(store);
  for (uint32_t i = 0; i < store->lane_count && status == MR_OK; i++) {
    status = start_lane(&store->lanes[i]);
  }
  return status;
}

static mr_status start_monitor(struct mr_store *store) {
  int error = start_thread(&store->monitor, mr_monitor_run, store);
  if (error != 0) {
    mr_log(MR_LOG_ERROR, "nvme store: no thread: %s", strerror(error));
    return MR_NO_MEMORY;
  }
  store->monitor_started = true;
  return MR_OK;
}

static void init_locks(struct mr_store *store) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_mutex_init(&store->monitor_lock, NULL);
  pthread_cond_init(&store->monitor_wake, &monotonic);
  pthread_mutex_init(&store->transfer_lock, NULL);
  pthread_cond_init(&store->transfer_done, NULL);
  for (uint32_t i = 0; i < MR_MAX_NVME_PATHS; i++) {
    pthread_mutex_init(&store->lanes[i].lock, NULL);
    pthread_cond_init(&store->lanes[i].changed, &monotonic);
    store->lanes[i].fd = -1;
    store->lanes[i].index = i;
    store->lanes[i].store = store;
  }
  pthread_condattr_destroy(&monotonic);
}

void mr_store_set_mode(struct mr_store *store, mr_store_mode mode) {
  MR_ASSERT(mode != MR_STORE_PROBE);
  atomic_store(&store->mode, mode);
}

static void choose_mode(struct mr_store *store, const struct mr_store_options *options) {
  mr_store_set_mode(store, options->mode == MR_STORE_PROBE ? MR_STORE_STAGED : options->mode);
  uint64_t least = CREATE_PROBE_SPAN_LEAST;
  if (options->mode != MR_STORE_PROBE || options->capacity_bytes < least ||
      store->faults.rule_count > 0) {
    return; /* a probe would take the faults that others are meant to meet */
  }
  struct mr_store_rates rates;
  if (mr_store_measure(store, options, CREATE_PROBE_BYTES, &rates) == MR_OK) {
    mr_store_set_mode(store, rates.mode);
  }
  atomic_store(&store->read_bytes, 0);
  atomic_store(&store->written_bytes, 0);
}

mr_status mr_store_create(const struct mr_store_options *options, struct mr_store **store_out) {
  mr_status status = check_options(options);
  if (status != MR_OK) {
    return status;
  }
  struct mr_store *store = mr_allocate(1, sizeof *store);
  if (store == NULL) {
    return MR_NO_MEMORY;
  }
  init_locks(store);
  store->engine = options->engine;
  store->checksums = options->checksums;
  store->timeout_ns = (uint64_t)(options->timeout_seconds * 1e9);
  status = mr_fault_parse(options->inject, &store->faults);
  if (status == MR_OK) {
    status = share_capacity(store, options);
  }
  if (status == MR_OK) {
    make_pattern(store);
    status = create_lanes(store);
  }
  if (status == MR_OK) {
    status = start_monitor(store);
  }
  if (status != MR_OK) {
    mr_store_destroy(store);
    return status;
  }
  choose_mode(store, options);
  *store_out = store;
  return MR_OK;
}

static void close_lane(struct mr_lane *lane) {
  pthread_mutex_lock(&lane->lock);
  lane->stopping = true;
  lane->closed = lane->closed == MR_OK ? MR_INTERRUPTED : lane->closed;
  mr_lane_wake(lane);
  pthread_mutex_unlock(&lane->lock);
}

/* Waits for the lane's thread; false where it is stuck. */
static bool join_lane(struct mr_lane *lane) {
  uint64_t failed_ns = 0;
  uint64_t grace_ns = mr_min_u64(STUCK_GRACE_NS, lane->store->timeout_ns);
  pthread_mutex_lock(&lane->lock);
  while (!lane->exited) {
    uint64_t now = mr_clock_ns();
    if (failed_ns == 0 && atomic_load(&lane->store->failed)) {
      failed_ns = now;
    }
    if (failed_ns != 0 && now - failed_ns > grace_ns) {
      break;
    }
    uint64_t until_ns = now + 20000000ull;
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000ull),
                             .tv_nsec = (long)(until_ns % 1000000000ull)};
    pthread_cond_timedwait(&lane->changed, &lane->lock, &until);
  }
  bool exited = lane->exited;
  pthread_mutex_unlock(&lane->lock);
  if (exited) {
    pthread_join(lane->thread, NULL);
  } else {
    pthread_detach(lane->thread);
    mr_log(MR_LOG_WARN,
           "nvme %s: a transfer is still stuck; its thread and %llu bytes of memory stay until the "
           "process ends",
           lane->path, (unsigned long long)lane->pool_bytes);
  }
  return exited;
}

static void stop_monitor(struct mr_store *store) {
  if (store->monitor_started) {
    pthread_mutex_lock(&store->monitor_lock);
    store->monitor_stopping = true;
    pthread_cond_signal(&store->monitor_wake);
    pthread_mutex_unlock(&store->monitor_lock);
    pthread_join(store->monitor, NULL);
  }
}

static void free_store(struct mr_store *store) {
  mr_extent_tables_destroy(store);
  for (uint32_t i = 0; i < MR_MAX_NVME_PATHS; i++) {
    struct mr_lane *lane = &store->lanes[i];
    if (lane->fd >= 0) {
      close(lane->fd);
    }
    if (lane->pool != NULL) {
      munmap(lane->pool, lane->pool_bytes);
    }
    free(lane->path);
    pthread_cond_destroy(&lane->changed);
    pthread_mutex_destroy(&lane->lock);
  }
  pthread_cond_destroy(&store->transfer_done);
  pthread_mutex_destroy(&store->transfer_lock);
  pthread_cond_destroy(&store->monitor_wake);
  pthread_mutex_destroy(&store->monitor_lock);
  free(store);
}

bool mr_store_destroy(struct mr_store *store) {
  if (store == NULL) {
    return true;
  }
  atomic_store(&store->stopping, true);
  for (uint32_t i = 0; i < store->lane_count; i++) {
    close_lane(&store->lanes[i]);
  }
  mr_monitor_kick(store);
  bool whole = true;
  for (uint32_t i = 0; i < store->lane_count; i++) {
    if (store->lanes[i].thread_started) {
      whole = join_lane(&store->lanes[i]) && whole;
    }
  }
  stop_monitor(store);
  if (whole) {
    free_store(store);
  }
  return whole;
}

uint64_t mr_store_moved_bytes(const struct mr_store *store) {
  return store == NULL ? 0 : atomic_load(&store->read_bytes) + atomic_load(&store->written_bytes);
}

void mr_store_get_stats(const struct mr_store *store, struct mr_store_stats *stats_out) {
  bool direct_io = true;
  for (uint32_t i = 0; i < store->lane_count; i++) {
    direct_io = direct_io && store->lanes[i].direct_io;
  }
  *stats_out = (struct mr_store_stats){
      .read_bytes = atomic_load(&store->read_bytes),
      .written_bytes = atomic_load(&store->written_bytes),
      .retries = atomic_load(&store->retries),
      .crc_failures = atomic_load(&store->crc_failures),
      .reserved_bytes = store->place_count * MR_STORE_CHUNK_BYTES,
      .uring = store->lanes[0].engine_table != &mr_engine_pread,
      .direct_io = direct_io,
  };
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a store's paths can do, measured on the store itself: reads and writes in each mode,
 * interleaved so that a disturbance meets both, then both together in the modes chosen. The better
 * mode of a direction is the one with the smaller sum of time on the link and time taken from the
 * processors, because these compute meanwhile.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "offload/private.h"

/* Long against the few hundred microseconds in which the queue fills and empties; short enough that
 * two such pieces of memory do not matter. */
#define SPAN_MOST_BYTES  (16ull << 20)
#define SPAN_LEAST_BYTES (2ull << 20)
#define ROUNDS_MOST      31u
/* Spans written first, because a file's blocks are slower at their first write. */
#define WARM_SPANS 2u
/* Spans that one round moves: read and write in two modes, both together once. */
#define ROUND_SPANS 6u
#define LEAST_BYTES ((WARM_SPANS + ROUND_SPANS) * SPAN_LEAST_BYTES)
/* Of the store that is measured on. */
#define ROOM_BYTES (2 * SPAN_MOST_BYTES)
#define HUGE_PAGE  (2ull << 20)

enum { READ, WRITE, MIXED };
#define MODES 2 /* staged, direct */
/* What a second of a processor weighs against one of a transfer. Ops hide about two thirds of a
 * transfer and nothing of what it takes of the processors, which costs steps more than twice what
 * is seen here, where nothing else runs: with staged writes they took 0.04 s more to a GB. On two
 * cores writes are direct by this; with half of it one probe in ten chose otherwise. */
#define CPU_WEIGHT 8

struct measure {
  struct mr_store *store;
  uint64_t span_bytes;
  uint8_t *memory; /* two spans */
  uint32_t extents[2];
  uint32_t rounds;
  double seconds[MODES][MIXED][ROUNDS_MOST];
  double cpu_seconds[MODES][MIXED]; /* of all rounds */
};

static double cpu_clock_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a;
  double y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *values, uint32_t count) {
  qsort(values, count, sizeof *values, compare_doubles);
  return values[count / 2];
}

struct pair {
  _Atomic uint32_t left;
  _Atomic int status;
};

static void pair_done(struct mr_store_request *request, mr_status status) {
  struct pair *pair = request->context;
  if (status != MR_OK) {
    atomic_store(&pair->status, (int)status);
  }
  atomic_fetch_sub(&pair->left, 1);
}

/* Moves a span in, a span out or both; how long that took. */
static mr_status run_kind(const struct measure *measure, int kind, double *seconds_out) {
  struct pair pair = {.left = 0};
  struct mr_store_request in = {.extent = measure->extents[0],
                                .io_class = MR_IO_PREFETCH,
                                .bytes = measure->span_bytes,
                                .data = measure->memory,
                                .done = pair_done,
                                .context = &pair};
  struct mr_store_request out = {.extent = measure->extents[1],
                                 .write = true,
                                 .io_class = MR_IO_WRITE_BACK,
                                 .bytes = measure->span_bytes,
                                 .data = measure->memory + measure->span_bytes,
                                 .done = pair_done,
                                 .context = &pair};
  double start = mr_clock_seconds();
  if (kind == MIXED) {
    in.context = &pair;
    atomic_store(&pair.left, 1);
    mr_store_submit(measure->store, &in);
  }
  mr_status status = mr_store_transfer(measure->store, kind == READ ? &in : &out);
  while (atomic_load(&pair.left) > 0) {
    struct timespec pause = {.tv_nsec = 20000};
    nanosleep(&pause, NULL);
  }
  *seconds_out = mr_clock_seconds() - start;
  mr_status beside = (mr_status)atomic_load(&pair.status);
  return status == MR_OK || beside == MR_TIMEOUT ? beside : status;
}

/* Each direction in each mode, in turns. */
static mr_status run_directions(struct measure *measure, const bool *modes) {
  static const mr_store_mode mode_of[MODES] = {MR_STORE_STAGED, MR_STORE_DIRECT};
  for (uint32_t i = 0; i < measure->rounds; i++) {
    for (int mode = 0; mode < MODES; mode++) {
      mr_store_set_mode(measure->store, mode_of[mode]);
      for (int kind = READ; kind < MIXED && modes[mode]; kind++) {
        double cpu_start = cpu_clock_seconds();
        mr_status status = run_kind(measure, kind, &measure->seconds[mode][kind][i]);
        if (status != MR_OK) {
          return status;
        }
        measure->cpu_seconds[mode][kind] += cpu_clock_seconds() - cpu_start;
      }
    }
  }
  return MR_OK;
}

/* Both directions together, in the mode that was chosen. */
static mr_status run_mixed(struct measure *measure, struct mr_store_rates *rates) {
  double seconds[ROUNDS_MOST];
  mr_store_set_mode(measure->store, rates->mode);
  for (uint32_t i = 0; i < measure->rounds; i++) {
    mr_status status = run_kind(measure, MIXED, &seconds[i]);
    if (status != MR_OK) {
      return status;
    }
  }
  rates->mixed_bytes_per_second =
      2 * (double)measure->span_bytes / median(seconds, measure->rounds);
  return MR_OK;
}

static mr_status warm_up(struct measure *measure) {
  for (uint32_t i = 0; i < 2; i++) {
    struct mr_store_request request = {.extent = measure->extents[i],
                                       .write = true,
                                       .io_class = MR_IO_WRITE_BACK,
                                       .bytes = measure->span_bytes,
                                       .data = measure->memory};
    mr_status status = mr_store_transfer(measure->store, &request);
    if (status != MR_OK) {
      return status;
    }
  }
  return MR_OK;
}

/* The better mode of a direction; its rate goes to *rate_out. */
static int choose_mode(struct measure *measure, int kind, const bool *modes, double *rate_out) {
  double span = (double)measure->span_bytes;
  double best_cost = 0;
  int best = 0;
  for (int mode = 0; mode < MODES; mode++) {
    if (!modes[mode]) {
      continue;
    }
    double seconds = median(measure->seconds[mode][kind], measure->rounds);
    double cpu_seconds = measure->cpu_seconds[mode][kind] / measure->rounds;
    double cost = seconds + CPU_WEIGHT * cpu_seconds / (double)sysconf(_SC_NPROCESSORS_ONLN);
    mr_log(MR_LOG_DEBUG, "nvme probe: %s %s %.2f GB/s, %.3f CPU s/GB",
           kind == READ ? "reads" : "writes", mode == 0 ? "staged" : "direct",
           span / seconds * 1e-9, cpu_seconds * 1e9 / span);
    if (best_cost == 0 || cost < best_cost) {
      best_cost = cost;
      best = mode;
      *rate_out = span / seconds;
    }
  }
  return best;
}

static void sum_up(struct measure *measure, const bool *modes, struct mr_store_rates *rates_out) {
  static const mr_store_mode mode_of[MODES][MODES] = {
      {MR_STORE_STAGED, MR_STORE_WRITE_DIRECT},
      {MR_STORE_READ_DIRECT, MR_STORE_DIRECT},
  };
  int read = choose_mode(measure, READ, modes, &rates_out->read_bytes_per_second);
  int write = choose_mode(measure, WRITE, modes, &rates_out->write_bytes_per_second);
  rates_out->mode = mode_of[read][write];
}

static mr_status measure_spans(struct measure *measure, uint64_t bytes,
                               const struct mr_store_options *options,
                               struct mr_store_rates *rates_out) {
  bool modes[MODES] = {options->mode != MR_STORE_DIRECT, options->mode != MR_STORE_STAGED};
  uint64_t warm_bytes = measure->span_bytes * WARM_SPANS;
  uint64_t rounds =
      bytes > warm_bytes ? (bytes - warm_bytes) / (measure->span_bytes * ROUND_SPANS) : 0;
  measure->rounds = (uint32_t)mr_max_u64(1, mr_min_u64(rounds, ROUNDS_MOST));
  mr_status status = warm_up(measure);
  if (status == MR_OK) {
    status = run_directions(measure, modes);
  }
  if (status == MR_OK) {
    sum_up(measure, modes, rates_out);
    status = run_mixed(measure, rates_out);
  }
  return status;
}

static mr_status map_memory(struct measure *measure) {
  uint64_t bytes = 2 * measure->span_bytes;
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    mr_log(MR_LOG_ERROR, "nvme probe: no memory for %llu bytes", (unsigned long long)bytes);
    return MR_NO_MEMORY;
  }
  madvise(memory, bytes, MADV_HUGEPAGE);
  memset(memory, 1, bytes);
  measure->memory = memory;
  return MR_OK;
}

mr_status mr_store_measure(struct mr_store *store, const struct mr_store_options *options,
                           uint64_t bytes, struct mr_store_rates *rates_out) {
  uint64_t span = mr_min_u64(bytes / (WARM_SPANS + ROUND_SPANS), options->capacity_bytes / 2);
  span = mr_min_u64(span, SPAN_MOST_BYTES) / HUGE_PAGE * HUGE_PAGE;
  if (span < SPAN_LEAST_BYTES) {
    mr_log(MR_LOG_ERROR, "nvme probe: %llu bytes are too few to measure with",
           (unsigned long long)bytes);
    return MR_INVALID;
  }
  struct measure *measure = mr_allocate(1, sizeof *measure);
  if (measure == NULL) {
    return MR_NO_MEMORY;
  }
  measure->store = store;
  measure->span_bytes = span;
  mr_status status = map_memory(measure);
  if (status != MR_OK) {
    goto fail_measure;
  }
  status = mr_store_extent_create(store, span, "probe in", &measure->extents[0]);
  if (status != MR_OK) {
    goto fail_memory;
  }
  status = mr_store_extent_create(store, span, "probe out", &measure->extents[1]);
  if (status != MR_OK) {
    goto fail_extent;
  }
  status = measure_spans(measure, bytes, options, rates_out);
  mr_store_extent_destroy(store, measure->extents[1]);
fail_extent:
  mr_store_extent_destroy(store, measure->extents[0]);
fail_memory:
  /* After a time-out the kernel may still write there. */
  if (status != MR_TIMEOUT) {
    munmap(measure->memory, 2 * span);
  }
fail_measure:
  free(measure);
  return status;
}

static mr_status probe_paths(const struct mr_store_options *options, uint64_t bytes,
                             struct mr_store_rates *rates_out) {
  struct mr_store_options asked = *options;
  asked.capacity_bytes = ROOM_BYTES;
  asked.mode = MR_STORE_STAGED; /* no probe at creation */
  struct mr_store *store = NULL;
  mr_status status = mr_store_create(&asked, &store);
  if (status == MR_OK) {
    asked.mode = options->mode;
    status = mr_store_measure(store, &asked, bytes, rates_out);
  }
  mr_store_destroy(store);
  return status;
}

/* What each path does by itself, with so many bytes each. One without the room for it is taken to
 * do what the others do on average: it may have more another time. */
static mr_status weigh_paths(const struct mr_store_options *options, uint64_t path_bytes,
                             double *weights) {
  double sum = 0;
  uint32_t measured = 0;
  for (uint32_t i = 0; i < options->path_count; i++) {
    struct mr_store_options alone = *options;
    struct mr_store_rates rates = {0};
    uint64_t room_bytes = 0;
    alone.path_count = 1;
    alone.paths[0] = options->paths[i];
    memset(alone.path_weights, 0, sizeof alone.path_weights);
    mr_status status = mr_file_rooms(alone.paths, 1, false, &room_bytes);
    if (status == MR_OK && room_bytes >= ROOM_BYTES) {
      status = probe_paths(&alone, path_bytes, &rates);
      measured++;
    }
    if (status != MR_OK) {
      return status;
    }
    weights[i] = rates.mixed_bytes_per_second;
    sum += weights[i];
  }
  for (uint32_t i = 0; i < options->path_count; i++) {
    weights[i] = weights[i] == 0 && measured > 0 ? sum / measured : weights[i];
  }
  return MR_OK;
}

mr_status mr_store_probe(const struct mr_store_options *options, uint64_t bytes,
                         struct mr_store_rates *rates_out) {
  struct mr_store_rates rates = {0};
  uint64_t path_bytes = bytes / 2 / mr_max_u64(1, options->path_count);
  bool each = options->path_count > 1 && path_bytes >= LEAST_BYTES;
  mr_status status = each ? weigh_paths(options, path_bytes, rates.path_weights) : MR_OK;
  if (status == MR_OK) {
    struct mr_store_options together = *options;
    memcpy(together.path_weights, rates.path_weights, sizeof rates.path_weights);
    status = probe_paths(&together, each ? bytes / 2 : bytes, &rates);
  }
  if (status == MR_OK) {
    *rates_out = rates;
  }
  return status;
}

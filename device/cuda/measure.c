/* SPDX-License-Identifier: Apache-2.0 */
/* What the accelerator is, and how fast its link and its memory are. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "device/cuda/device.h"

/* Large enough that starting a copy does not show, small beside any device's memory. */
#define BUFFER_BYTES (64ull << 20)
#define ROUNDS       5u
#define FILLS        16u /* of a round, so that waiting for them does not show either */

enum way { WAY_OUT, WAY_IN, WAY_BOTH, WAY_COUNT };

/* One buffer and one stream for each direction. */
struct bench {
  struct mr_cuda cuda;
  mr_cu_address device[2];
  void *pinned[2];
  struct mr_memory pageable[2];
  mr_cu_stream streams[2];
};

static mr_status refuse(struct mr_cuda *cuda, mr_cu_result result, const char *call) {
  return mr_cuda_failed(cuda, result, call, "measuring the device, buffers of %llu bytes",
                        (unsigned long long)BUFFER_BYTES);
}

static mr_status open_buffers(struct bench *bench, uint32_t i) {
  struct mr_cuda *cuda = &bench->cuda;
  mr_cu_result result = cuda->memory_allocate(&bench->device[i], BUFFER_BYTES);
  if (result != MR_CU_SUCCESS) {
    return refuse(cuda, result, "cuMemAlloc");
  }
  result = cuda->host_allocate(&bench->pinned[i], BUFFER_BYTES, MR_CU_HOST_PORTABLE);
  if (result != MR_CU_SUCCESS) {
    bench->pinned[i] = NULL;
    return refuse(cuda, result, "cuMemHostAlloc");
  }
  result = cuda->stream_create(&bench->streams[i], MR_CU_STREAM_NON_BLOCKING, 0);
  if (result != MR_CU_SUCCESS) {
    bench->streams[i] = NULL;
    return refuse(cuda, result, "cuStreamCreateWithPriority");
  }
  return MR_OK;
}

/* Opens the device and all but pageable memory; undone by bench_fini, also after a failure. */
static mr_status bench_init(struct bench *bench) {
  struct mr_cuda_reason reason = {""};
  *bench = (struct bench){0};
  mr_status status = mr_cuda_open(&bench->cuda, &reason);
  if (status != MR_OK) {
    mr_log(MR_LOG_ERROR, "device cuda: %s", reason.text);
  }
  for (uint32_t i = 0; status == MR_OK && i < 2; i++) {
    status = open_buffers(bench, i);
  }
  return status;
}

static void bench_fini(struct bench *bench) {
  struct mr_cuda *cuda = &bench->cuda;
  for (uint32_t i = 0; i < 2; i++) {
    mr_memory_unmap(&bench->pageable[i]);
    if (bench->streams[i] != NULL) {
      mr_cuda_told(cuda, cuda->stream_destroy(bench->streams[i]), "cuStreamDestroy");
    }
    if (bench->pinned[i] != NULL) {
      mr_cuda_told(cuda, cuda->host_free(bench->pinned[i]), "cuMemFreeHost");
    }
    if (bench->device[i] != 0) {
      mr_cuda_told(cuda, cuda->memory_free(bench->device[i]), "cuMemFree");
    }
  }
  mr_cuda_close(&bench->cuda);
}

static mr_status wait_for(struct bench *bench, uint32_t i) {
  mr_cu_result result = bench->cuda.stream_synchronize(bench->streams[i]);
  return result == MR_CU_SUCCESS ? MR_OK : refuse(&bench->cuda, result, "cuStreamSynchronize");
}

/* One copy out (0) or in (1), from the call to its end. */
static mr_status copy(struct bench *bench, uint32_t i, void *host) {
  struct mr_cuda *cuda = &bench->cuda;
  mr_cu_stream stream = bench->streams[i];
  mr_cu_result result = i == WAY_OUT
                            ? cuda->copy_out_async(host, bench->device[i], BUFFER_BYTES, stream)
                            : cuda->copy_in_async(bench->device[i], host, BUFFER_BYTES, stream);
  return result == MR_CU_SUCCESS ? wait_for(bench, i) : refuse(cuda, result, "cuMemcpyAsync");
}

/* A copy that begins when another thread's does: a call may last as long as its copy of pageable
 * memory. */
struct lane {
  struct bench *bench;
  enum way way;
  void *host;
  pthread_barrier_t *start;
  double begin, end; /* seconds */
  mr_status status;
};

static void *copy_beside(void *argument) {
  struct lane *lane = argument;
  lane->status = mr_cuda_enter(&lane->bench->cuda);
  (void)pthread_barrier_wait(lane->start);
  lane->begin = mr_clock_seconds();
  if (lane->status == MR_OK) {
    lane->status = copy(lane->bench, lane->way, lane->host);
  }
  lane->end = mr_clock_seconds();
  return NULL;
}

/* From the first beginning to the last end. */
static mr_status time_both(struct bench *bench, void *const host[2], double *seconds_out) {
  pthread_barrier_t start;
  pthread_t thread;
  struct lane out = {.bench = bench, .way = WAY_OUT, .host = host[WAY_OUT], .start = &start};
  struct lane in = {.bench = bench, .way = WAY_IN, .host = host[WAY_IN], .start = &start};
  if (pthread_barrier_init(&start, NULL, 2) != 0) {
    return MR_NO_MEMORY;
  }
  int failed = pthread_create(&thread, NULL, copy_beside, &in);
  if (failed != 0) {
    (void)pthread_barrier_destroy(&start);
    mr_log(MR_LOG_ERROR, "measuring the device: no second thread: %s", strerror(failed));
    return MR_NO_MEMORY;
  }
  (void)copy_beside(&out);
  (void)pthread_join(thread, NULL);
  (void)pthread_barrier_destroy(&start);
  *seconds_out = fmax(out.end, in.end) - fmin(out.begin, in.begin);
  return out.status == MR_OK ? in.status : out.status;
}

static mr_status time_one(struct bench *bench, enum way way, void *host, double *seconds_out) {
  double start = mr_clock_seconds();
  mr_status status = copy(bench, way, host);
  *seconds_out = mr_clock_seconds() - start;
  return status;
}

/* The best of some rounds. */
static mr_status copy_rates(struct bench *bench, void *const host[2],
                            struct mr_accelerator_rates *rates_out) {
  double best[WAY_COUNT] = {0};
  mr_status status = MR_OK;
  for (uint32_t way = 0; way < WAY_COUNT; way++) {
    double bytes = (double)BUFFER_BYTES * (way == WAY_BOTH ? 2 : 1);
    for (uint32_t r = 0; status == MR_OK && r < ROUNDS; r++) {
      double seconds = 0;
      status = way == WAY_BOTH ? time_both(bench, host, &seconds)
                               : time_one(bench, way, host[way], &seconds);
      best[way] = fmax(best[way], bytes / fmax(seconds, 1e-9));
    }
  }
  *rates_out = (struct mr_accelerator_rates){best[WAY_OUT], best[WAY_IN], best[WAY_BOTH]};
  return status;
}

/* Filling writes each byte once, and reading is as fast. */
static mr_status memory_rate(struct bench *bench, double *rate_out) {
  double best = 0;
  mr_status status = MR_OK;
  for (uint32_t r = 0; status == MR_OK && r < ROUNDS; r++) {
    double start = mr_clock_seconds();
    mr_cu_result result = MR_CU_SUCCESS;
    for (uint32_t i = 0; result == MR_CU_SUCCESS && i < FILLS; i++) {
      result = bench->cuda.fill_async(bench->device[i % 2], 0, BUFFER_BYTES, bench->streams[0]);
    }
    status = result == MR_CU_SUCCESS ? wait_for(bench, 0)
                                     : refuse(&bench->cuda, result, "cuMemsetD8Async");
    double bytes = (double)FILLS * BUFFER_BYTES;
    best = fmax(best, bytes / fmax(mr_clock_seconds() - start, 1e-9));
  }
  *rate_out = best;
  return status;
}

mr_status mr_cuda_measure(struct mr_accelerator_rates *pinned_out,
                          struct mr_accelerator_rates *pageable_out,
                          double *memory_bytes_per_second_out) {
  struct bench bench;
  mr_status status = bench_init(&bench);
  if (status == MR_OK) {
    status = copy_rates(&bench, bench.pinned, pinned_out);
  }
  for (uint32_t i = 0; status == MR_OK && i < 2; i++) {
    status = mr_memory_map(BUFFER_BYTES, MR_DEVICE_HUGE_PAGE_BYTES, "measuring the device",
                           &bench.pageable[i]);
  }
  if (status == MR_OK) {
    void *const pageable[2] = {bench.pageable[0].data, bench.pageable[1].data};
    status = copy_rates(&bench, pageable, pageable_out);
  }
  if (status == MR_OK) {
    status = memory_rate(&bench, memory_bytes_per_second_out);
  }
  bench_fini(&bench);
  return status;
}

/* Copies one way until it is told to stop, or fails. */
struct carrier {
  struct bench *bench;
  enum way way;
  pthread_t thread;
  bool started;
  _Atomic bool stop;
  _Atomic uint32_t copies; /* that are over; a first one says that it is under way */
  mr_status status;        /* once the thread has ended */
};

static void *carry(void *argument) {
  struct carrier *carrier = argument;
  struct bench *bench = carrier->bench;
  carrier->status = mr_cuda_enter(&bench->cuda);
  while (carrier->status == MR_OK && !atomic_load(&carrier->stop)) {
    carrier->status = copy(bench, carrier->way, bench->pinned[carrier->way]);
    atomic_fetch_add(&carrier->copies, 1);
  }
  atomic_fetch_add(&carrier->copies, 1);
  return NULL;
}

static mr_status start_carrier(struct carrier *carrier) {
  int failed = pthread_create(&carrier->thread, NULL, carry, carrier);
  if (failed != 0) {
    mr_log(MR_LOG_ERROR, "measuring the device: no thread to copy: %s", strerror(failed));
    return MR_NO_MEMORY;
  }
  carrier->started = true;
  while (atomic_load(&carrier->copies) == 0) {
    (void)sched_yield();
  }
  return MR_OK;
}

static mr_status stop_carrier(struct carrier *carrier) {
  atomic_store(&carrier->stop, true);
  if (carrier->started) {
    (void)pthread_join(carrier->thread, NULL);
  }
  return carrier->status;
}

static mr_status run_beside(struct bench *bench, mr_status (*work)(void *context), void *context,
                            double *bytes_per_second_out) {
  struct carrier carriers[2] = {{.bench = bench, .way = WAY_OUT}, {.bench = bench, .way = WAY_IN}};
  mr_status status = start_carrier(&carriers[WAY_OUT]);
  if (status == MR_OK) {
    status = start_carrier(&carriers[WAY_IN]);
  }
  uint32_t copies = atomic_load(&carriers[WAY_OUT].copies) + atomic_load(&carriers[WAY_IN].copies);
  double start = mr_clock_seconds();
  if (status == MR_OK) {
    status = work(context);
  }
  double seconds = mr_clock_seconds() - start;
  copies = atomic_load(&carriers[WAY_OUT].copies) + atomic_load(&carriers[WAY_IN].copies) - copies;
  *bytes_per_second_out = (double)copies * BUFFER_BYTES / fmax(seconds, 1e-9);
  for (uint32_t i = 0; i < 2; i++) {
    mr_status stopped = stop_carrier(&carriers[i]);
    status = status == MR_OK ? stopped : status;
  }
  return status;
}

mr_status mr_cuda_measure_beside(mr_status (*work)(void *context), void *context,
                                 double *bytes_per_second_out) {
  struct bench bench;
  mr_status status = bench_init(&bench);
  if (status == MR_OK) {
    status = run_beside(&bench, work, context, bytes_per_second_out);
  }
  bench_fini(&bench);
  return status;
}

static mr_status ask(struct mr_cuda *cuda, struct mr_accelerator *accelerator,
                     struct mr_cuda_reason *reason_out) {
  enum { MAJOR, MINOR, PROCESSORS, CLOCK, COUNT };
  static const int attributes[COUNT] = {MR_CU_DEVICE_MAJOR, MR_CU_DEVICE_MINOR,
                                        MR_CU_DEVICE_MULTIPROCESSORS, MR_CU_DEVICE_CLOCK_KHZ};
  int values[COUNT] = {0};
  int version = 0;
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  const char *call = "cuDriverGetVersion";
  mr_cu_result result = cuda->driver_version(&version);
  if (result == MR_CU_SUCCESS) {
    call = "cuDeviceGetName";
    result = cuda->device_name(accelerator->name, sizeof accelerator->name, cuda->device);
  }
  for (uint32_t i = 0; result == MR_CU_SUCCESS && i < COUNT; i++) {
    call = "cuDeviceGetAttribute";
    result = cuda->device_attribute(&values[i], attributes[i], cuda->device);
  }
  if (result == MR_CU_SUCCESS) {
    call = "cuMemGetInfo";
    result = cuda->memory_info(&free_bytes, &total_bytes);
  }
  if (result != MR_CU_SUCCESS) {
    return mr_cuda_refused(cuda, result, call, reason_out);
  }
  accelerator->name[sizeof accelerator->name - 1] = '\0';
  accelerator->driver_version = (uint32_t)version;
  accelerator->capability = (uint32_t)(10 * values[MAJOR] + values[MINOR]);
  accelerator->processors = (uint32_t)values[PROCESSORS];
  accelerator->clock_hz = 1e3 * values[CLOCK];
  accelerator->memory_bytes = total_bytes;
  accelerator->free_bytes = free_bytes;
  return MR_OK;
}

mr_status mr_cuda_describe(struct mr_accelerator *accelerator_out, char *why, size_t why_bytes) {
  struct mr_cuda cuda;
  struct mr_cuda_reason reason = {""};
  struct mr_accelerator accelerator = {.name = ""};
  mr_status status = mr_cuda_open(&cuda, &reason);
  if (status == MR_OK) {
    status = ask(&cuda, &accelerator, &reason);
    mr_cuda_close(&cuda);
  }
  if (status != MR_OK) {
    snprintf(why, why_bytes, "%s", reason.text);
    return status;
  }
  *accelerator_out = accelerator;
  return MR_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_cuda_copy [rounds] [MiB]: copies between host and device as runs make them (device pages
 * mapped one by one, host memory pinned in place, events round each copy) beside a plain loop of
 * copies between memory that the driver gave whole, out, in and both at once, in turns. Exits with
 * 77 where there is no device.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "bench/bench.h"
#include "device/cuda/driver.h"
#include "device/device.h"

#define PIECE_BYTES (8 * MR_MIB) /* as large as many tensors are */
#define MOST_MIB    8192u
#define NO_DEVICE   77

enum lane { LANE_OUT, LANE_IN, LANE_COUNT };

/* What a run uses. */
struct ours {
  struct mr_device *device;
  struct mr_memory host[LANE_COUNT];
  struct mr_stream *streams[LANE_COUNT];
};

struct plain {
  struct mr_cuda cuda;
  mr_cu_address device[LANE_COUNT];
  void *host[LANE_COUNT];
  mr_cu_stream streams[LANE_COUNT];
};

struct copies {
  uint64_t bytes; /* in each direction */
  uint32_t pieces;
  struct ours ours;
  struct plain plain;
};

static const struct way {
  const char *name;
  bool used[LANE_COUNT];
} ways[] = {{"device to host", {true, false}},
            {"host to device", {false, true}},
            {"both at once", {true, true}}};

static void expect(mr_status status) {
  if (status != MR_OK) exit(mr_status_exit(status));
}

static void expect_result(struct plain *plain, mr_cu_result result, const char *call) {
  if (result != MR_CU_SUCCESS) {
    expect(mr_cuda_failed(&plain->cuda, result, call, "the plain loop"));
  }
}

/* One range for each lane, and the pages in an order that leaves no two neighbours together, as
 * plans may have them. */
static void open_ours(struct copies *copies) {
  struct ours *ours = &copies->ours;
  struct mr_device_caps caps;
  mr_device_cuda.query(&caps);
  uint32_t count = (uint32_t)(copies->bytes / caps.map_bytes);
  uint32_t *pages = calloc(LANE_COUNT * (size_t)count, sizeof *pages);
  if (pages == NULL) expect(MR_NO_MEMORY);
  for (uint32_t i = 0; i < LANE_COUNT * count; i++) {
    pages[i] = i % 2 * count + i / 2;
  }
  const uint32_t *const range_pages[LANE_COUNT] = {pages, pages + count};
  const uint64_t range_bytes[LANE_COUNT] = {copies->bytes, copies->bytes};
  const struct mr_device_config config = {.page_bytes = caps.map_bytes,
                                          .page_count = LANE_COUNT * count,
                                          .range_bytes = range_bytes,
                                          .range_count = LANE_COUNT,
                                          .range_pages = range_pages};
  expect(mr_device_cuda.create(&config, &ours->device));
  free(pages);
  for (int lane = 0; lane < LANE_COUNT; lane++) {
    expect(mr_memory_map(copies->bytes, MR_DEVICE_HUGE_PAGE_BYTES, "copies", &ours->host[lane]));
    expect(mr_device_cuda.pin(ours->device, ours->host[lane].data, copies->bytes, "copies"));
    expect(mr_device_cuda.streams->create(ours->device, copies->pieces, &ours->streams[lane]));
  }
}

static void open_plain(struct copies *copies) {
  struct plain *plain = &copies->plain;
  struct mr_cuda *cuda = &plain->cuda;
  struct mr_cuda_reason reason;
  expect(mr_cuda_open(cuda, &reason));
  for (int lane = 0; lane < LANE_COUNT; lane++) {
    expect_result(plain, cuda->memory_allocate(&plain->device[lane], copies->bytes), "cuMemAlloc");
    expect_result(plain, cuda->host_allocate(&plain->host[lane], copies->bytes, 0),
                  "cuMemHostAlloc");
    expect_result(plain, cuda->stream_create(&plain->streams[lane], MR_CU_STREAM_NON_BLOCKING, 0),
                  "cuStreamCreateWithPriority");
  }
}

static void close_both(struct copies *copies) {
  struct ours *ours = &copies->ours;
  struct plain *plain = &copies->plain;
  for (int lane = 0; lane < LANE_COUNT; lane++) {
    (void)plain->cuda.stream_destroy(plain->streams[lane]);
    (void)plain->cuda.host_free(plain->host[lane]);
    (void)plain->cuda.memory_free(plain->device[lane]);
    mr_device_cuda.streams->destroy(ours->streams[lane]);
    mr_device_cuda.unpin(ours->device, ours->host[lane].data);
    mr_memory_unmap(&ours->host[lane]);
  }
  mr_cuda_close(&plain->cuda);
  mr_device_cuda.destroy(ours->device);
}

static void enqueue_ours(struct ours *ours, int lane, uint32_t piece) {
  const struct mr_work work = {"a", "piece", PIECE_BYTES};
  const struct mr_stream_ops *streams = mr_device_cuda.streams;
  struct mr_stream *stream = ours->streams[lane];
  uint64_t at = piece * PIECE_BYTES;
  char *host = (char *)ours->host[lane].data + at;
  char *device = (char *)mr_device_cuda.range_address(ours->device, (uint32_t)lane) + at;
  expect(streams->begin(stream, piece, &work, false));
  if (lane == LANE_OUT) {
    expect(streams->copy_out(stream, host, device, PIECE_BYTES));
  } else {
    expect(streams->copy_in(stream, device, host, PIECE_BYTES));
  }
  expect(streams->end(stream));
}

static void enqueue_plain(struct plain *plain, int lane, uint32_t piece) {
  struct mr_cuda *cuda = &plain->cuda;
  uint64_t at = piece * PIECE_BYTES;
  mr_cu_address device = plain->device[lane] + at;
  char *host = (char *)plain->host[lane] + at;
  if (lane == LANE_OUT) {
    expect_result(plain, cuda->copy_out_async(host, device, PIECE_BYTES, plain->streams[lane]),
                  "cuMemcpyDtoHAsync");
  } else {
    expect_result(plain, cuda->copy_in_async(device, host, PIECE_BYTES, plain->streams[lane]),
                  "cuMemcpyHtoDAsync");
  }
}

static void finish_ours(struct copies *copies, int lane) {
  double seconds = 0;
  for (uint32_t piece = 0; piece < copies->pieces; piece++) {
    expect(mr_device_cuda.streams->wait(copies->ours.streams[lane], piece, &seconds));
  }
}

/* Bytes per second of all directions together. */
static double time_way(struct copies *copies, const struct way *way, bool ours) {
  double bytes = 0;
  double start = mr_clock_seconds();
  for (uint32_t piece = 0; piece < copies->pieces; piece++) {
    for (int lane = 0; lane < LANE_COUNT; lane++) {
      if (!way->used[lane]) continue;
      if (ours) {
        enqueue_ours(&copies->ours, lane, piece);
      } else {
        enqueue_plain(&copies->plain, lane, piece);
      }
      bytes += PIECE_BYTES;
    }
  }
  for (int lane = 0; lane < LANE_COUNT; lane++) {
    if (!way->used[lane]) continue;
    if (ours) {
      finish_ours(copies, lane);
    } else {
      expect_result(&copies->plain,
                    copies->plain.cuda.stream_synchronize(copies->plain.streams[lane]),
                    "cuStreamSynchronize");
    }
  }
  return bytes / (mr_clock_seconds() - start);
}

static void compare(struct copies *copies, const struct way *way, uint32_t rounds) {
  double ours[BENCH_MAX_ROUNDS];
  double plain[BENCH_MAX_ROUNDS];
  double ratio[BENCH_MAX_ROUNDS];
  (void)time_way(copies, way, true);
  (void)time_way(copies, way, false);
  for (uint32_t i = 0; i < rounds; i++) {
    bool first = i % 2 == 0;
    double one = time_way(copies, way, first);
    double other = time_way(copies, way, !first);
    ours[i] = first ? one : other;
    plain[i] = first ? other : one;
    ratio[i] = ours[i] / plain[i];
  }
  double rate = bench_median(ours, rounds);
  double plain_rate = bench_median(plain, rounds);
  double median = bench_median(ratio, rounds);
  printf("%-16s %8.2f %8.2f %8.3f %8.3f %8.3f\n", way->name, rate / 1e9, plain_rate / 1e9, median,
         ratio[0], ratio[rounds - 1]);
}

int main(int argc, char **argv) {
  uint32_t rounds = bench_argument(argc, argv, 1, 21, BENCH_MAX_ROUNDS);
  uint32_t mib = bench_argument(argc, argv, 2, 1024, MOST_MIB);
  struct mr_accelerator accelerator;
  char why[256];
  if (mr_cuda_describe(&accelerator, why, sizeof why) != MR_OK) {
    fprintf(stderr, "bench_cuda_copy: %s\n", why);
    return NO_DEVICE;
  }
  struct copies copies = {.pieces = (uint32_t)mr_div_up(mib * MR_MIB, PIECE_BYTES)};
  copies.bytes = copies.pieces * PIECE_BYTES;
  open_ours(&copies);
  open_plain(&copies);
  bench_print_head(argc, argv);
  printf("# device: %s, driver for CUDA %u.%u\n", accelerator.name,
         accelerator.driver_version / 1000, accelerator.driver_version % 1000 / 10);
  printf("%u rounds in turns, %llu MiB each way in pieces of %llu\n", rounds,
         (unsigned long long)(copies.bytes / MR_MIB), (unsigned long long)(PIECE_BYTES / MR_MIB));
  printf("%-16s %8s %8s %8s %8s %8s\n", "GB/s", "memrun", "plain", "ratio", "least", "most");
  for (size_t i = 0; i < MR_COUNT_OF(ways); i++) {
    compare(&copies, &ways[i], rounds);
  }
  close_both(&copies);
  return 0;
}

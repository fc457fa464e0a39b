/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the cuda device share: the device, and its table of streams. */
#ifndef MEMRUN_DEVICE_CUDA_DEVICE_H
#define MEMRUN_DEVICE_CUDA_DEVICE_H

#include "device/cuda/driver.h"
#include "device/device.h"

/*
 * One reservation holds, side by side, the small arena and every range; place i of it, a page long,
 * is mapped onto the page places[i]. The pages of the small arena come behind those of the ranges.
 */
struct mr_device {
  struct mr_cuda cuda;
  uint64_t page_bytes;
  uint32_t page_count;  /* of the ranges */
  uint32_t small_count; /* pages of the small arena */
  mr_cu_memory *pages;  /* page_count + small_count */
  uint32_t taken_count; /* of pages */
  uint64_t *range_places;
  uint32_t range_count;
  uint64_t place_count;
  uint64_t mapped_count;  /* of places */
  mr_cu_address reserved; /* 0: nothing */
  mr_cu_stream access;    /* for reads and writes between steps */
};

extern const struct mr_stream_ops mr_cuda_streams;

#endif

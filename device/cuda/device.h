/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the cuda device share: the device, and its table of streams. */
#ifndef MEMRUN_DEVICE_CUDA_DEVICE_H
#define MEMRUN_DEVICE_CUDA_DEVICE_H

#include "device/cuda/driver.h"
#include "device/device.h"

#define MR_CUDA_MOST_PINS 8u /* the host tier, two rings, what ops on the host are handed */
struct mr_cuda_pin {
  char *data;
  uint64_t bytes;
  uint64_t piece_bytes; /* of one registration; the last may have fewer */
};

/*
 * One reservation holds, side by side, the small arena and every range; place i of it, a page long,
 * is mapped onto the page page_at[i]. A page here is what is mapped at once, `parts` of the plan's.
 * The pages of the small arena come behind those of the ranges.
 * All pages are there from the start; on a deferred device, each from when it is written first.
 */
struct mr_device {
  struct mr_cuda cuda;
  uint64_t page_bytes;
  uint32_t parts;       /* 1, or 2 where the plan's pages are halves */
  uint32_t page_count;  /* of the ranges */
  uint32_t small_count; /* pages of the small arena */
  mr_cu_memory *pages;  /* page_count + small_count */
  bool *taken;          /* for each page: it is there */
  uint32_t bound_count; /* of the ranges' pages that have ever been there */
  uint32_t taken_count; /* of all pages, that are there */
  uint64_t *range_places;
  bool *range_upper; /* for each range: it begins with an upper half */
  bool *dropped;     /* for each page of the plan */
  uint32_t range_count;
  uint64_t place_count;
  uint32_t *page_at;      /* for each place */
  bool *mapped;           /* for each place */
  uint64_t *first_place;  /* for each page, and one more: where its own begin in places_of */
  uint64_t *places_of;    /* all places, by page */
  mr_cu_address reserved; /* 0: nothing */
  mr_cu_stream access;    /* for reads and writes between steps */
  struct mr_cuda_pin pins[MR_CUDA_MOST_PINS];
  uint32_t pin_count;     /* changes while nothing is copied */
  double timeout_seconds; /* 0: none */
  double mark_seconds;    /* that a timed mark shows of no work; below 0: not measured yet */
  bool hangs;             /* the driver is left alone */
};

/* Waits until a query of the driver (an event's, or of the stream `access`: NULL) gives something
 * other than that work goes on, and logs what fails. MR_TIMEOUT: the device hangs from now on. */
MR_CHECK_RESULT mr_status mr_cuda_await(struct mr_device *device, mr_cu_event event,
                                        const struct mr_work *work);

/* The ops `pin`, with a registration for each piece, and `unpin`; and copies of host memory, pinned
 * or not, by as many calls as it needs: the result of the first that fails. */
MR_CHECK_RESULT mr_status mr_cuda_pin(struct mr_device *device, void *data, uint64_t bytes,
                                      uint64_t piece_bytes, const char *what);
void mr_cuda_unpin(struct mr_device *device, void *data);
mr_cu_result mr_cuda_copy_out(struct mr_device *device, void *to, const void *from, uint64_t bytes,
                              mr_cu_stream stream);
mr_cu_result mr_cuda_copy_in(struct mr_device *device, void *to, const void *from, uint64_t bytes,
                             mr_cu_stream stream);

extern const struct mr_stream_ops mr_cuda_streams;

/* The books of pages and places, for a device whose counts of pages are set; undone by fini, also
 * after a failure. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_cuda_places_init(struct mr_device *device,
                                              const struct mr_device_config *config);
void mr_cuda_places_fini(struct mr_device *device);

/* Takes one page, and maps one place onto its page, which is there. MR_NO_MEMORY, MR_INVALID,
 * MR_IO. */
MR_CHECK_RESULT mr_status mr_cuda_page_take(struct mr_device *device, uint32_t page);
MR_CHECK_RESULT mr_status mr_cuda_place_map(struct mr_device *device, uint64_t place);
/* Lets the device read and write places that are mapped. */
MR_CHECK_RESULT mr_status mr_cuda_places_open(struct mr_device *device, uint64_t first,
                                              uint64_t count);
/* Sees to it that a page is there, at all of its places and zeroed; the same errors. */
MR_CHECK_RESULT mr_status mr_cuda_page_need(struct mr_device *device, uint32_t page);
/* Unmaps a page that is there everywhere and gives it back. */
void mr_cuda_page_drop(struct mr_device *device, uint32_t page);
/* Fills places with zeros, behind what the device's stream has to do. */
MR_CHECK_RESULT mr_status mr_cuda_places_zero(struct mr_device *device, uint64_t first,
                                              uint64_t count);
struct mr_cu_allocation mr_cuda_page_allocation(const struct mr_cuda *cuda);
/* Tells of a call that fails where nothing can be done about it. */
void mr_cuda_told(struct mr_cuda *cuda, mr_cu_result result, const char *call);

#endif

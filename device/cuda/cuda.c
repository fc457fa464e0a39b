/* SPDX-License-Identifier: Apache-2.0 */
/* The cuda device: physical pages, and one reservation of addresses that is mapped onto them once.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "device/cuda/device.h"

/* What the driver maps at once. */
#define PAGE_BYTES MR_DEVICE_HUGE_PAGE_BYTES
/* Of host memory that is pinned by one call. */
#define PIN_BYTES (64 * MR_GIB)

static void cuda_query(struct mr_device_caps *caps_out) {
  *caps_out = (struct mr_device_caps){.name = "cuda",
                                      .max_page_count = UINT32_MAX,
                                      .map_bytes = PAGE_BYTES,
                                      .huge_pages = true,
                                      .deferred = true};
}

static mr_status check_granularity(struct mr_device *device) {
  struct mr_cuda *cuda = &device->cuda;
  struct mr_cu_allocation allocation = mr_cuda_page_allocation(cuda);
  size_t bytes = 0;
  mr_cu_result result = cuda->granularity(&bytes, &allocation, MR_CU_GRANULARITY_MINIMUM);
  if (result != MR_CU_SUCCESS) {
    return mr_cuda_failed(cuda, result, "cuMemGetAllocationGranularity", "device memory");
  }
  if (bytes == 0 || device->page_bytes % bytes != 0) {
    mr_log(MR_LOG_ERROR, "cuda: the device maps pages of %zu bytes, and plans are for %llu", bytes,
           (unsigned long long)device->page_bytes);
    return MR_UNSUPPORTED;
  }
  return MR_OK;
}

/* Addresses for every place. */
static mr_status reserve(struct mr_device *device) {
  uint64_t bytes = device->place_count * device->page_bytes;
  if (bytes == 0) {
    return MR_OK;
  }
  mr_cu_result result =
      device->cuda.address_reserve(&device->reserved, bytes, device->page_bytes, 0, 0);
  if (result == MR_CU_SUCCESS) {
    return MR_OK;
  }
  device->reserved = 0;
  return mr_cuda_failed(&device->cuda, result, "cuMemAddressReserve", "%u instances, %llu bytes",
                        device->range_count, (unsigned long long)bytes);
}

/* All pages, everywhere; access is granted once for all places. */
static mr_status map_all(struct mr_device *device) {
  mr_status status = MR_OK;
  for (uint32_t page = 0; status == MR_OK && page < device->page_count + device->small_count;
       page++) {
    status = mr_cuda_page_take(device, page);
  }
  for (uint64_t place = 0; status == MR_OK && place < device->place_count; place++) {
    status = mr_cuda_place_map(device, place);
  }
  return status == MR_OK && device->place_count > 0
             ? mr_cuda_places_open(device, 0, device->place_count)
             : status;
}

/* Waits for what was done between steps. */
static mr_status synchronize(struct mr_device *device, const char *kind, const char *name,
                             uint64_t bytes) {
  const struct mr_work work = {kind, name, bytes};
  return mr_cuda_await(device, NULL, &work);
}

static mr_status await_zeros(struct mr_device *device) {
  return synchronize(device, "zeroing", "device memory", device->taken_count * device->page_bytes);
}

/* Every page is zeroed once, at the first of its places. */
static mr_status zero_pages(struct mr_device *device) {
  bool *seen = mr_allocate(device->page_count, sizeof *seen);
  if (seen == NULL) {
    return MR_NO_MEMORY;
  }
  mr_status status =
      device->small_count == 0 ? MR_OK : mr_cuda_places_zero(device, 0, device->small_count);
  for (uint32_t r = 0; r < device->range_count; r++) {
    uint64_t first = device->range_places[r];
    uint64_t count = device->range_places[r + 1] - first;
    uint64_t fresh = 0;
    for (uint64_t i = 0; status == MR_OK && i < count; i += fresh == 0 ? 1 : fresh) {
      fresh = 0;
      while (i + fresh < count && !seen[device->page_at[first + i + fresh]]) {
        seen[device->page_at[first + i + fresh++]] = true;
      }
      status = fresh == 0 ? MR_OK : mr_cuda_places_zero(device, first + i, fresh);
    }
  }
  free(seen);
  return status == MR_OK ? await_zeros(device) : status;
}

static void give_back(struct mr_device *device) {
  struct mr_cuda *cuda = &device->cuda;
  mr_cuda_told(cuda, cuda->context_set(cuda->context), "cuCtxSetCurrent");
  mr_cuda_told(cuda, cuda->context_synchronize(), "cuCtxSynchronize");
  if (device->access != NULL) {
    mr_cuda_told(cuda, cuda->stream_destroy(device->access), "cuStreamDestroy");
  }
  for (uint32_t page = 0; page < device->page_count + device->small_count; page++) {
    mr_cuda_page_drop(device, page);
  }
  if (device->reserved != 0) {
    uint64_t bytes = device->place_count * device->page_bytes;
    mr_cuda_told(cuda, cuda->address_free(device->reserved, bytes), "cuMemAddressFree");
  }
}

static void cuda_abandon(struct mr_device *device) {
  if (device == NULL) {
    return;
  }
  mr_cuda_places_fini(device);
  free(device);
}

static void cuda_destroy(struct mr_device *device) {
  if (device == NULL) {
    return;
  }
  if (device->cuda.context != NULL && !device->hangs) {
    give_back(device);
    mr_cuda_close(&device->cuda);
  }
  cuda_abandon(device);
}

static mr_status open_device(struct mr_device *device) {
  struct mr_cuda_reason reason = {""};
  mr_status status = mr_cuda_open(&device->cuda, &reason);
  if (status != MR_OK) {
    mr_log(MR_LOG_ERROR, "device cuda: %s", reason.text);
    return status;
  }
  mr_cu_result result = device->cuda.stream_create(&device->access, MR_CU_STREAM_NON_BLOCKING, 0);
  if (result != MR_CU_SUCCESS) {
    device->access = NULL;
    return mr_cuda_failed(&device->cuda, result, "cuStreamCreateWithPriority", "the device");
  }
  return check_granularity(device);
}

static mr_status cuda_create(const struct mr_device_config *config, struct mr_device **device_out) {
  struct mr_device *device = mr_allocate(1, sizeof *device);
  if (device == NULL) {
    return MR_NO_MEMORY;
  }
  uint32_t parts = config->page_bytes < PAGE_BYTES ? 2 : 1;
  uint64_t page_bytes = parts * config->page_bytes;
  *device = (struct mr_device){
      .page_bytes = page_bytes,
      .parts = parts,
      .page_count = (uint32_t)mr_div_up(config->page_count, parts),
      .small_count = (uint32_t)mr_div_up(config->small_bytes, page_bytes),
      .range_count = config->range_count,
      .timeout_seconds = config->timeout_seconds,
      .mark_seconds = -1,
  };
  mr_status status = mr_cuda_places_init(device, config);
  if (status == MR_OK) {
    status = open_device(device);
  }
  if (status == MR_OK) {
    status = reserve(device);
  }
  if (status == MR_OK && !config->deferred) {
    status = map_all(device);
  }
  if (status == MR_OK && !config->deferred) {
    status = zero_pages(device);
  }
  if (status != MR_OK) {
    cuda_destroy(device);
    return status;
  }
  *device_out = device;
  return MR_OK;
}

/* A device address as clients see it: a pointer that the processor must not follow. */
static void *pointer_of(mr_cu_address address) {
  return (void *)(uintptr_t)address;
}

static void *cuda_range_address(const struct mr_device *device, uint32_t range) {
  MR_ASSERT(range < device->range_count);
  uint64_t before = device->range_upper[range] ? device->page_bytes / 2 : 0;
  return pointer_of(device->reserved + device->range_places[range] * device->page_bytes + before);
}

static void *cuda_small_address(const struct mr_device *device) {
  return pointer_of(device->reserved);
}

static mr_status cuda_bind(struct mr_device *device, uint32_t range, const uint32_t *pages,
                           uint32_t count) {
  (void)pages;
  MR_ASSERT(range < device->range_count &&
            (device->range_places[range + 1] - device->range_places[range]) * device->parts >=
                count);
  return MR_OK;
}

static mr_status cuda_complete(struct mr_device *device) {
  mr_status status = mr_cuda_enter(&device->cuda);
  uint32_t page_count = device->page_count + device->small_count;
  for (uint32_t page = 0; status == MR_OK && page < page_count; page++) {
    status = mr_cuda_page_need(device, page);
  }
  return status == MR_OK ? await_zeros(device) : status;
}

/* A page goes when all its parts are given back. */
static void cuda_drop(struct mr_device *device, uint32_t page) {
  MR_ASSERT(page / device->parts < device->page_count);
  uint32_t first = page - page % device->parts;
  device->dropped[page] = true;
  if (device->dropped[first] && device->dropped[first + device->parts - 1] &&
      mr_cuda_enter(&device->cuda) == MR_OK) {
    mr_cuda_page_drop(device, first / device->parts);
  }
}

static uint32_t cuda_bound_page_count(const struct mr_device *device) {
  return device->bound_count * device->parts;
}

static mr_status cuda_enter(struct mr_device *device) {
  return mr_cuda_enter(&device->cuda);
}

/* Copies of a stream of their own: what the default stream copies from pageable memory may still be
 * under way when the call returns. */
static mr_status cuda_read(struct mr_device *device, void *to, const void *from, uint64_t bytes,
                           const char *what) {
  mr_status status = mr_cuda_enter(&device->cuda);
  if (status != MR_OK) {
    return status;
  }
  mr_cu_result result = mr_cuda_copy_out(device, to, from, bytes, device->access);
  return result == MR_CU_SUCCESS
             ? synchronize(device, "reading", what, bytes)
             : mr_cuda_failed(&device->cuda, result, "cuMemcpyDtoHAsync", "reading %s, %llu bytes",
                              what, (unsigned long long)bytes);
}

/* The pages of a deferred device that bytes go to. */
static mr_status need_pages(struct mr_device *device, const void *to, uint64_t bytes) {
  uint64_t offset = (mr_cu_address)(uintptr_t)to - device->reserved;
  uint64_t end = mr_div_up(offset + bytes, device->page_bytes);
  mr_status status = MR_OK;
  for (uint64_t place = offset / device->page_bytes; status == MR_OK && place < end; place++) {
    status = mr_cuda_page_need(device, device->page_at[place]);
  }
  return status;
}

static mr_status cuda_write(struct mr_device *device, void *to, const void *from, uint64_t bytes,
                            const char *what) {
  mr_status status = mr_cuda_enter(&device->cuda);
  if (status != MR_OK) {
    return status;
  }
  status = need_pages(device, to, bytes);
  if (status != MR_OK) {
    return status;
  }
  mr_cu_result result = mr_cuda_copy_in(device, to, from, bytes, device->access);
  return result == MR_CU_SUCCESS
             ? synchronize(device, "writing", what, bytes)
             : mr_cuda_failed(&device->cuda, result, "cuMemcpyHtoDAsync", "writing %s, %llu bytes",
                              what, (unsigned long long)bytes);
}

static mr_status cuda_pin(struct mr_device *device, void *data, uint64_t bytes, const char *what) {
  return mr_cuda_pin(device, data, bytes, PIN_BYTES, what);
}

static mr_status cuda_outside(struct mr_device *device, uint64_t *bytes_out) {
  mr_status status = mr_cuda_enter(&device->cuda);
  if (status != MR_OK) {
    return status;
  }
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  mr_cu_result result = device->cuda.memory_info(&free_bytes, &total_bytes);
  if (result != MR_CU_SUCCESS) {
    return mr_cuda_failed(&device->cuda, result, "cuMemGetInfo", "what is in use on the device");
  }
  uint64_t own_bytes = device->taken_count * device->page_bytes;
  *bytes_out = total_bytes - free_bytes - mr_min_u64(own_bytes, total_bytes - free_bytes);
  return MR_OK;
}

/* Enters for a question whose failure is an answer. */
static mr_cu_result enter_to_ask(struct mr_cuda *cuda) {
  mr_cu_result result = cuda->context_set(cuda->context);
  mr_cuda_told(cuda, result, "cuCtxSetCurrent");
  return result;
}

/* A thread that could not enter asks too: without a context every question fails. */
static bool cuda_faulty(struct mr_device *device) {
  struct mr_cuda *cuda = &device->cuda;
  mr_cu_result result = enter_to_ask(cuda);
  if (result == MR_CU_SUCCESS) {
    result = cuda->stream_query(device->access);
  }
  return result != MR_CU_SUCCESS && result != MR_CU_NOT_READY && result != MR_CU_OUT_OF_MEMORY;
}

static bool cuda_settle(struct mr_device *device) {
  struct mr_cuda *cuda = &device->cuda;
  if (device->hangs) {
    return false;
  }
  mr_cu_result result = enter_to_ask(cuda);
  if (result == MR_CU_SUCCESS) {
    result = cuda->context_synchronize();
    mr_cuda_told(cuda, result, "cuCtxSynchronize");
  }
  return result == MR_CU_SUCCESS;
}

const struct mr_device_ops mr_device_cuda = {
    .name = "cuda",
    .backend = MR_BACKEND_CUDA,
    .streams = &mr_cuda_streams,
    .query = cuda_query,
    .create = cuda_create,
    .destroy = cuda_destroy,
    .abandon = cuda_abandon,
    .range_address = cuda_range_address,
    .small_address = cuda_small_address,
    .bind = cuda_bind,
    .complete = cuda_complete,
    .drop = cuda_drop,
    .read = cuda_read,
    .write = cuda_write,
    .enter = cuda_enter,
    .pin = cuda_pin,
    .unpin = mr_cuda_unpin,
    .outside = cuda_outside,
    .faulty = cuda_faulty,
    .settle = cuda_settle,
    .bound_page_count = cuda_bound_page_count,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* The cuda device: physical pages, and one reservation of addresses that is mapped onto them once.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "device/cuda/device.h"

/* What the driver maps at once; plans have such pages. */
#define PAGE_BYTES MR_DEVICE_HUGE_PAGE_BYTES

static void cuda_query(struct mr_device_caps *caps_out) {
  *caps_out = (struct mr_device_caps){
      .name = "cuda", .max_page_count = UINT32_MAX, .page_bytes = PAGE_BYTES, .huge_pages = true};
}

static struct mr_cu_allocation allocation_of(struct mr_cuda *cuda) {
  return (struct mr_cu_allocation){.type = MR_CU_ALLOCATION_PINNED,
                                   .location = {MR_CU_LOCATION_DEVICE, cuda->device}};
}

static mr_status check_granularity(struct mr_device *device) {
  struct mr_cuda *cuda = &device->cuda;
  struct mr_cu_allocation allocation = allocation_of(cuda);
  size_t bytes = 0;
  mr_cu_result result = cuda->granularity(&bytes, &allocation, MR_CU_GRANULARITY_MINIMUM);
  if (result != MR_CU_SUCCESS) {
    return mr_cuda_failed(cuda, result, "cuMemGetAllocationGranularity", "device memory");
  }
  if (bytes == 0 || device->page_bytes % bytes != 0) {
    mr_log(MR_LOG_ERROR, "cuda: the device maps pages of %zu bytes, and plans have pages of %llu",
           bytes, (unsigned long long)device->page_bytes);
    return MR_UNSUPPORTED;
  }
  return MR_OK;
}

static mr_status take_pages(struct mr_device *device) {
  struct mr_cuda *cuda = &device->cuda;
  struct mr_cu_allocation allocation = allocation_of(cuda);
  uint32_t count = device->page_count + device->small_count;
  for (; device->taken_count < count; device->taken_count++) {
    mr_cu_result result = cuda->memory_create(&device->pages[device->taken_count],
                                              device->page_bytes, &allocation, 0);
    if (result != MR_CU_SUCCESS) {
      return mr_cuda_failed(cuda, result, "cuMemCreate",
                            "device memory, page %u of %u, %llu bytes each", device->taken_count,
                            count, (unsigned long long)device->page_bytes);
    }
  }
  return MR_OK;
}

/* Maps the next place onto a page. */
static mr_status map_page(struct mr_device *device, uint32_t page) {
  struct mr_cuda *cuda = &device->cuda;
  MR_ASSERT(page < device->taken_count);
  mr_cu_address address = device->reserved + device->mapped_count * device->page_bytes;
  mr_cu_result result = cuda->memory_map(address, device->page_bytes, 0, device->pages[page], 0);
  if (result != MR_CU_SUCCESS) {
    return mr_cuda_failed(cuda, result, "cuMemMap", "place %llu of %llu, page %u",
                          (unsigned long long)device->mapped_count,
                          (unsigned long long)device->place_count, page);
  }
  device->mapped_count++;
  return MR_OK;
}

static mr_status map_places(struct mr_device *device, const struct mr_device_config *config) {
  mr_status status = MR_OK;
  for (uint32_t i = 0; status == MR_OK && i < device->small_count; i++) {
    status = map_page(device, device->page_count + i);
  }
  for (uint32_t r = 0; r < device->range_count; r++) {
    uint64_t count = device->range_places[r + 1] - device->range_places[r];
    for (uint64_t i = 0; status == MR_OK && i < count; i++) {
      status = map_page(device, config->range_pages[r][i]);
    }
  }
  return status;
}

/* Addresses for every place, mapped, and readable and writable from the device. */
static mr_status map_all(struct mr_device *device, const struct mr_device_config *config) {
  struct mr_cuda *cuda = &device->cuda;
  uint64_t bytes = device->place_count * device->page_bytes;
  if (bytes == 0) {
    return MR_OK;
  }
  mr_cu_result result = cuda->address_reserve(&device->reserved, bytes, device->page_bytes, 0, 0);
  if (result != MR_CU_SUCCESS) {
    device->reserved = 0;
    return mr_cuda_failed(cuda, result, "cuMemAddressReserve", "%u instances, %llu bytes",
                          device->range_count, (unsigned long long)bytes);
  }
  mr_status status = map_places(device, config);
  if (status != MR_OK) {
    return status;
  }
  const struct mr_cu_access access = {{MR_CU_LOCATION_DEVICE, cuda->device},
                                      MR_CU_ACCESS_READ_WRITE};
  result = cuda->memory_access(device->reserved, bytes, &access, 1);
  return result == MR_CU_SUCCESS
             ? MR_OK
             : mr_cuda_failed(cuda, result, "cuMemSetAccess", "%u instances, %llu bytes",
                              device->range_count, (unsigned long long)bytes);
}

static mr_status zero(struct mr_device *device, uint64_t place, uint64_t count) {
  struct mr_cuda *cuda = &device->cuda;
  uint64_t bytes = count * device->page_bytes;
  mr_cu_result result =
      cuda->fill_async(device->reserved + place * device->page_bytes, 0, bytes, device->access);
  return result == MR_CU_SUCCESS ? MR_OK
                                 : mr_cuda_failed(cuda, result, "cuMemsetD8Async",
                                                  "zeroing %llu bytes", (unsigned long long)bytes);
}

static mr_status synchronize(struct mr_device *device, const char *what) {
  mr_cu_result result = device->cuda.stream_synchronize(device->access);
  return result == MR_CU_SUCCESS
             ? MR_OK
             : mr_cuda_failed(&device->cuda, result, "cuStreamSynchronize", "%s", what);
}

/* Every page is zeroed once, at the first of its places. */
static mr_status zero_pages(struct mr_device *device, const struct mr_device_config *config) {
  bool *seen = mr_allocate(device->page_count, sizeof *seen);
  if (seen == NULL) {
    return MR_NO_MEMORY;
  }
  mr_status status = device->small_count == 0 ? MR_OK : zero(device, 0, device->small_count);
  for (uint32_t r = 0; r < device->range_count; r++) {
    uint64_t first = device->range_places[r];
    uint64_t count = device->range_places[r + 1] - first;
    uint64_t fresh = 0;
    for (uint64_t i = 0; status == MR_OK && i < count; i += fresh == 0 ? 1 : fresh) {
      fresh = 0;
      while (i + fresh < count && !seen[config->range_pages[r][i + fresh]]) {
        seen[config->range_pages[r][i + fresh++]] = true;
      }
      status = fresh == 0 ? MR_OK : zero(device, first + i, fresh);
    }
  }
  free(seen);
  return status == MR_OK ? synchronize(device, "zeroing device memory") : status;
}

static void told(struct mr_cuda *cuda, mr_cu_result result, const char *call) {
  const char *name = NULL;
  if (result != MR_CU_SUCCESS) {
    (void)cuda->error_name(result, &name);
    mr_log(MR_LOG_DEBUG, "cuda: %s at the end: %s", call, name == NULL ? "unknown result" : name);
  }
}

static void give_back(struct mr_device *device) {
  struct mr_cuda *cuda = &device->cuda;
  told(cuda, cuda->context_set(cuda->context), "cuCtxSetCurrent");
  told(cuda, cuda->context_synchronize(), "cuCtxSynchronize");
  if (device->access != NULL) {
    told(cuda, cuda->stream_destroy(device->access), "cuStreamDestroy");
  }
  for (uint64_t i = 0; i < device->mapped_count; i++) {
    mr_cu_address address = device->reserved + i * device->page_bytes;
    told(cuda, cuda->memory_unmap(address, device->page_bytes), "cuMemUnmap");
  }
  if (device->reserved != 0) {
    uint64_t bytes = device->place_count * device->page_bytes;
    told(cuda, cuda->address_free(device->reserved, bytes), "cuMemAddressFree");
  }
  for (uint32_t i = 0; i < device->taken_count; i++) {
    told(cuda, cuda->memory_release(device->pages[i]), "cuMemRelease");
  }
}

static void cuda_abandon(struct mr_device *device) {
  if (device == NULL) {
    return;
  }
  free(device->pages);
  free(device->range_places);
  free(device);
}

static void cuda_destroy(struct mr_device *device) {
  if (device == NULL) {
    return;
  }
  if (device->cuda.context != NULL) {
    give_back(device);
  }
  mr_cuda_close(&device->cuda);
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

static void count_places(struct mr_device *device, const struct mr_device_config *config) {
  device->range_places[0] = device->small_count;
  for (uint32_t r = 0; r < config->range_count; r++) {
    uint64_t count = mr_div_up(config->range_bytes[r], config->page_bytes);
    MR_ASSERT(count == 0 || config->range_pages != NULL);
    device->range_places[r + 1] = device->range_places[r] + count;
  }
  device->place_count = device->range_places[config->range_count];
}

static mr_status cuda_create(const struct mr_device_config *config, struct mr_device **device_out) {
  MR_ASSERT(!config->deferred);
  struct mr_device *device = mr_allocate(1, sizeof *device);
  if (device == NULL) {
    return MR_NO_MEMORY;
  }
  *device = (struct mr_device){
      .page_bytes = config->page_bytes,
      .page_count = config->page_count,
      .small_count = (uint32_t)mr_div_up(config->small_bytes, config->page_bytes),
      .range_count = config->range_count,
  };
  device->pages = mr_allocate(device->page_count + device->small_count, sizeof *device->pages);
  device->range_places = mr_allocate(config->range_count + 1ull, sizeof *device->range_places);
  mr_status status = MR_NO_MEMORY;
  if (device->pages != NULL && device->range_places != NULL) {
    count_places(device, config);
    status = open_device(device);
  }
  if (status == MR_OK) {
    status = take_pages(device);
  }
  if (status == MR_OK) {
    status = map_all(device, config);
  }
  if (status == MR_OK) {
    status = zero_pages(device, config);
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
  return pointer_of(device->reserved + device->range_places[range] * device->page_bytes);
}

static void *cuda_small_address(const struct mr_device *device) {
  return pointer_of(device->reserved);
}

static mr_status cuda_bind(struct mr_device *device, uint32_t range, const uint32_t *pages,
                           uint32_t count) {
  (void)pages;
  MR_ASSERT(range < device->range_count &&
            device->range_places[range + 1] - device->range_places[range] >= count);
  return MR_OK;
}

static mr_status cuda_complete(struct mr_device *device) {
  (void)device;
  return MR_OK;
}

static void cuda_drop(struct mr_device *device, uint32_t page) {
  (void)device;
  MR_ASSERT(page < device->page_count);
}

static uint32_t cuda_bound_page_count(const struct mr_device *device) {
  return device->page_count;
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
  mr_cu_result result =
      device->cuda.copy_out_async(to, (mr_cu_address)(uintptr_t)from, bytes, device->access);
  return result == MR_CU_SUCCESS
             ? synchronize(device, what)
             : mr_cuda_failed(&device->cuda, result, "cuMemcpyDtoHAsync", "reading %s, %llu bytes",
                              what, (unsigned long long)bytes);
}

static mr_status cuda_write(struct mr_device *device, void *to, const void *from, uint64_t bytes,
                            const char *what) {
  mr_status status = mr_cuda_enter(&device->cuda);
  if (status != MR_OK) {
    return status;
  }
  mr_cu_result result =
      device->cuda.copy_in_async((mr_cu_address)(uintptr_t)to, from, bytes, device->access);
  return result == MR_CU_SUCCESS
             ? synchronize(device, what)
             : mr_cuda_failed(&device->cuda, result, "cuMemcpyHtoDAsync", "writing %s, %llu bytes",
                              what, (unsigned long long)bytes);
}

static mr_status cuda_pin(struct mr_device *device, void *data, uint64_t bytes, const char *what) {
  mr_status status = mr_cuda_enter(&device->cuda);
  if (status != MR_OK) {
    return status;
  }
  mr_cu_result result = device->cuda.host_register(data, bytes, MR_CU_HOST_PORTABLE);
  return result == MR_CU_SUCCESS
             ? MR_OK
             : mr_cuda_failed(&device->cuda, result, "cuMemHostRegister", "%s, %llu bytes", what,
                              (unsigned long long)bytes);
}

static void cuda_unpin(struct mr_device *device, void *data) {
  struct mr_cuda *cuda = &device->cuda;
  told(cuda, cuda->context_set(cuda->context), "cuCtxSetCurrent");
  told(cuda, cuda->host_unregister(data), "cuMemHostUnregister");
}

static bool cuda_settle(struct mr_device *device) {
  struct mr_cuda *cuda = &device->cuda;
  return cuda->context_set(cuda->context) == MR_CU_SUCCESS &&
         cuda->context_synchronize() == MR_CU_SUCCESS;
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
    .unpin = cuda_unpin,
    .settle = cuda_settle,
    .bound_page_count = cuda_bound_page_count,
};

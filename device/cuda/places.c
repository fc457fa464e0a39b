/* SPDX-License-Identifier: Apache-2.0 */
/* The physical pages of a cuda device, and the places at which each of them is mapped. */
#include <stdlib.h>

#include "base/base.h"
#include "device/cuda/device.h"

/* Pages of the plan that a range has. */
static uint64_t plan_pages(const struct mr_device_config *config, uint32_t range) {
  return mr_div_up(config->range_bytes[range], config->page_bytes);
}

static void count_places(struct mr_device *device, const struct mr_device_config *config) {
  device->range_places[0] = device->small_count;
  for (uint32_t r = 0; r < config->range_count; r++) {
    uint64_t count = plan_pages(config, r);
    MR_ASSERT(count == 0 || config->range_pages != NULL);
    device->range_upper[r] = count > 0 && config->range_pages[r][0] % device->parts != 0;
    device->range_places[r + 1] =
        device->range_places[r] + mr_div_up(count + device->range_upper[r], device->parts);
  }
  device->place_count = device->range_places[config->range_count];
}

/* Pages of the plan that are the same page here have neighbouring addresses. */
static mr_status list_pages(struct mr_device *device, const struct mr_device_config *config) {
  for (uint32_t i = 0; i < device->small_count; i++) {
    device->page_at[i] = device->page_count + i;
  }
  for (uint32_t r = 0; r < device->range_count; r++) {
    uint64_t count = plan_pages(config, r);
    for (uint64_t i = 0; i < count; i++) {
      uint64_t at = i + device->range_upper[r];
      uint64_t place = device->range_places[r] + at / device->parts;
      uint32_t number = config->range_pages[r][i];
      uint32_t page = number / device->parts;
      bool begins = i == 0 || at % device->parts == 0;
      MR_ASSERT(page < device->page_count);
      if (number % device->parts != at % device->parts ||
          (!begins && device->page_at[place] != page)) {
        mr_log(MR_LOG_ERROR, "cuda: page %llu of range %u is %u, which cannot be mapped there",
               (unsigned long long)i, r, number);
        return MR_INVALID;
      }
      device->page_at[place] = page;
    }
  }
  return MR_OK;
}

/* The places by page: a counting sort. */
static void list_places(struct mr_device *device) {
  uint32_t pages = device->page_count + device->small_count;
  for (uint64_t place = 0; place < device->place_count; place++) {
    device->first_place[device->page_at[place]]++;
  }
  for (uint32_t page = 0; page < pages; page++) {
    device->first_place[page + 1] += device->first_place[page];
  }
  for (uint64_t place = device->place_count; place-- > 0;) {
    device->places_of[--device->first_place[device->page_at[place]]] = place;
  }
}

mr_status mr_cuda_places_init(struct mr_device *device, const struct mr_device_config *config) {
  uint64_t pages = (uint64_t)device->page_count + device->small_count;
  device->pages = mr_allocate(pages, sizeof *device->pages);
  device->taken = mr_allocate(pages, sizeof *device->taken);
  device->first_place = mr_allocate(pages + 1, sizeof *device->first_place);
  device->range_places = mr_allocate(config->range_count + 1ull, sizeof *device->range_places);
  device->range_upper = mr_allocate(config->range_count, sizeof *device->range_upper);
  device->dropped = mr_allocate((uint64_t)device->page_count * device->parts, 1);
  if (device->pages == NULL || device->taken == NULL || device->first_place == NULL ||
      device->range_places == NULL || device->range_upper == NULL || device->dropped == NULL) {
    return MR_NO_MEMORY;
  }
  count_places(device, config);
  device->page_at = mr_allocate(device->place_count, sizeof *device->page_at);
  device->places_of = mr_allocate(device->place_count, sizeof *device->places_of);
  device->mapped = mr_allocate(device->place_count, sizeof *device->mapped);
  if (device->page_at == NULL || device->places_of == NULL || device->mapped == NULL) {
    return MR_NO_MEMORY;
  }
  mr_status status = list_pages(device, config);
  if (status == MR_OK) {
    list_places(device);
  }
  return status;
}

void mr_cuda_places_fini(struct mr_device *device) {
  free(device->pages);
  free(device->taken);
  free(device->first_place);
  free(device->range_places);
  free(device->range_upper);
  free(device->dropped);
  free(device->page_at);
  free(device->places_of);
  free(device->mapped);
}

void mr_cuda_told(struct mr_cuda *cuda, mr_cu_result result, const char *call) {
  const char *name = NULL;
  if (result != MR_CU_SUCCESS) {
    (void)cuda->error_name(result, &name);
    mr_log(MR_LOG_DEBUG, "cuda: %s at the end: %s", call, name == NULL ? "unknown result" : name);
  }
}

struct mr_cu_allocation mr_cuda_page_allocation(const struct mr_cuda *cuda) {
  return (struct mr_cu_allocation){.type = MR_CU_ALLOCATION_PINNED,
                                   .location = {MR_CU_LOCATION_DEVICE, cuda->device}};
}

static mr_cu_address address_of(const struct mr_device *device, uint64_t place) {
  return device->reserved + place * device->page_bytes;
}

mr_status mr_cuda_page_take(struct mr_device *device, uint32_t page) {
  struct mr_cuda *cuda = &device->cuda;
  struct mr_cu_allocation allocation = mr_cuda_page_allocation(cuda);
  mr_cu_result result =
      cuda->memory_create(&device->pages[page], device->page_bytes, &allocation, 0);
  if (result != MR_CU_SUCCESS) {
    return mr_cuda_failed(
        cuda, result, "cuMemCreate", "device memory, page %u of %u, %llu bytes each", page,
        device->page_count + device->small_count, (unsigned long long)device->page_bytes);
  }
  device->taken[page] = true;
  device->taken_count++;
  device->bound_count += page < device->page_count;
  return MR_OK;
}

mr_status mr_cuda_place_map(struct mr_device *device, uint64_t place) {
  struct mr_cuda *cuda = &device->cuda;
  uint32_t page = device->page_at[place];
  MR_ASSERT(device->taken[page]);
  mr_cu_result result =
      cuda->memory_map(address_of(device, place), device->page_bytes, 0, device->pages[page], 0);
  if (result != MR_CU_SUCCESS) {
    return mr_cuda_failed(cuda, result, "cuMemMap", "place %llu of %llu, page %u",
                          (unsigned long long)place, (unsigned long long)device->place_count, page);
  }
  device->mapped[place] = true;
  return MR_OK;
}

mr_status mr_cuda_places_open(struct mr_device *device, uint64_t first, uint64_t count) {
  struct mr_cuda *cuda = &device->cuda;
  const struct mr_cu_access access = {{MR_CU_LOCATION_DEVICE, cuda->device},
                                      MR_CU_ACCESS_READ_WRITE};
  uint64_t bytes = count * device->page_bytes;
  mr_cu_result result = cuda->memory_access(address_of(device, first), bytes, &access, 1);
  return result == MR_CU_SUCCESS
             ? MR_OK
             : mr_cuda_failed(cuda, result, "cuMemSetAccess", "%u instances, %llu bytes",
                              device->range_count, (unsigned long long)bytes);
}

mr_status mr_cuda_places_zero(struct mr_device *device, uint64_t first, uint64_t count) {
  struct mr_cuda *cuda = &device->cuda;
  uint64_t bytes = count * device->page_bytes;
  mr_cu_result result = cuda->fill_async(address_of(device, first), 0, bytes, device->access);
  return result == MR_CU_SUCCESS ? MR_OK
                                 : mr_cuda_failed(cuda, result, "cuMemsetD8Async",
                                                  "zeroing %llu bytes", (unsigned long long)bytes);
}

mr_status mr_cuda_page_need(struct mr_device *device, uint32_t page) {
  if (device->taken[page]) {
    return MR_OK;
  }
  uint64_t first = device->first_place[page];
  uint64_t end = device->first_place[page + 1];
  mr_status status = mr_cuda_page_take(device, page);
  for (uint64_t i = first; status == MR_OK && i < end; i++) {
    status = mr_cuda_place_map(device, device->places_of[i]);
    if (status == MR_OK) {
      status = mr_cuda_places_open(device, device->places_of[i], 1);
    }
  }
  return status == MR_OK && first < end ? mr_cuda_places_zero(device, device->places_of[first], 1)
                                        : status;
}

void mr_cuda_page_drop(struct mr_device *device, uint32_t page) {
  struct mr_cuda *cuda = &device->cuda;
  for (uint64_t i = device->first_place[page]; i < device->first_place[page + 1]; i++) {
    uint64_t place = device->places_of[i];
    if (device->mapped[place]) {
      mr_cuda_told(cuda, cuda->memory_unmap(address_of(device, place), device->page_bytes),
                   "cuMemUnmap");
      device->mapped[place] = false;
    }
  }
  if (device->taken[page]) {
    mr_cuda_told(cuda, cuda->memory_release(device->pages[page]), "cuMemRelease");
    device->taken[page] = false;
    device->taken_count--;
  }
}

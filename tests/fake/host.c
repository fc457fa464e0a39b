/* SPDX-License-Identifier: Apache-2.0 */
/* Pinned host memory of the fake driver: the ranges that copies read and write in their own time.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/fake/state.h"

#define MAX_RANGES 4096u
#define MAX_FLAGS  15u

struct range {
  char *data;
  uint64_t bytes;
  bool ours; /* of cuMemHostAlloc */
};

static struct {
  pthread_mutex_t lock;
  struct range ranges[MAX_RANGES];
  uint32_t count;
  uint64_t bytes; /* of all */
} pinned = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool overlaps(const struct range *range, const char *data, uint64_t bytes) {
  return data < range->data + range->bytes && range->data < data + bytes;
}

enum fake_host fake_host_kind(const void *data, uint64_t bytes) {
  const char *begin = data;
  enum fake_host kind = FAKE_PAGEABLE;
  pthread_mutex_lock(&pinned.lock);
  for (uint32_t i = 0; i < pinned.count; i++) {
    const struct range *range = &pinned.ranges[i];
    if (overlaps(range, begin, bytes)) {
      bool inside = begin >= range->data && begin + bytes <= range->data + range->bytes;
      kind = inside ? FAKE_PINNED : FAKE_STRADDLES;
    }
  }
  pthread_mutex_unlock(&pinned.lock);
  return kind;
}

uint32_t fake_host_count(void) {
  pthread_mutex_lock(&pinned.lock);
  uint32_t count = pinned.count;
  pthread_mutex_unlock(&pinned.lock);
  return count;
}

/* What the device has for the page tables by which it reaches so many bytes: an H200 takes 2 MiB at
 * once, for 1 GiB. */
static uint64_t table_bytes(uint64_t bytes) {
  return (bytes / 512 + FAKE_PAGE_BYTES - 1) / FAKE_PAGE_BYTES * FAKE_PAGE_BYTES;
}

/* From now on so many bytes are pinned; false where the device has no room for that. With the lock
 * held. */
static bool pin(uint64_t bytes) {
  uint64_t before = table_bytes(pinned.bytes);
  uint64_t after = table_bytes(bytes);
  if (after > before && !fake_memory_take(after - before)) {
    return false;
  }
  fake_memory_give(after < before ? before - after : 0);
  pinned.bytes = bytes;
  return true;
}

/* Adds a range that overlaps no other. */
static mr_cu_result add(char *data, uint64_t bytes, bool ours) {
  mr_cu_result result = FAKE_SUCCESS;
  pthread_mutex_lock(&pinned.lock);
  for (uint32_t i = 0; i < pinned.count; i++) {
    if (overlaps(&pinned.ranges[i], data, bytes)) {
      result = FAKE_ALREADY_REGISTERED;
    }
  }
  if (result == FAKE_SUCCESS && (pinned.count == MAX_RANGES || !pin(pinned.bytes + bytes))) {
    result = FAKE_OUT_OF_MEMORY;
  }
  if (result == FAKE_SUCCESS) {
    pinned.ranges[pinned.count++] = (struct range){data, bytes, ours};
  }
  pthread_mutex_unlock(&pinned.lock);
  return result;
}

/* Takes the range that begins there off the list; its bytes, 0 where there is none such. */
static uint64_t take(const void *data, bool ours) {
  uint64_t bytes = 0;
  pthread_mutex_lock(&pinned.lock);
  for (uint32_t i = 0; i < pinned.count && bytes == 0; i++) {
    if (pinned.ranges[i].data == data && pinned.ranges[i].ours == ours) {
      bytes = pinned.ranges[i].bytes;
      pinned.ranges[i] = pinned.ranges[--pinned.count];
      (void)pin(pinned.bytes - bytes);
    }
  }
  pthread_mutex_unlock(&pinned.lock);
  return bytes;
}

void fake_host_clear(void) {
  pthread_mutex_lock(&pinned.lock);
  for (uint32_t i = 0; i < pinned.count; i++) {
    if (pinned.ranges[i].ours) {
      munmap(pinned.ranges[i].data, pinned.ranges[i].bytes);
    }
  }
  pinned.count = 0;
  (void)pin(0);
  pthread_mutex_unlock(&pinned.lock);
}

/* Whether every page of the range is there. */
static bool is_mapped(const char *data, uint64_t bytes) {
  const uint64_t page_bytes = 4096;
  uintptr_t begin = (uintptr_t)data / page_bytes * page_bytes;
  uint64_t pages = ((uintptr_t)data + bytes - begin + page_bytes - 1) / page_bytes;
  unsigned char *there = malloc(pages);
  bool mapped =
      there != NULL && mincore((void *)begin, pages * page_bytes, there) == 0; /* ENOMEM: a hole */
  free(there);
  return mapped;
}

mr_cu_result cuMemHostAlloc(void **data, size_t bytes, unsigned flags) {
  mr_cu_result result = fake_enter(FAKE_cuMemHostAlloc);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  if (data == NULL || bytes == 0 || flags > MAX_FLAGS) {
    return FAKE_INVALID_VALUE;
  }
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return FAKE_OUT_OF_MEMORY;
  }
  memset(memory, FAKE_POISON, bytes);
  result = add(memory, bytes, true);
  if (result != FAKE_SUCCESS) {
    munmap(memory, bytes);
    return result;
  }
  *data = memory;
  return FAKE_SUCCESS;
}

mr_cu_result cuMemFreeHost(void *data) {
  mr_cu_result told = fake_enter(FAKE_cuMemFreeHost);
  uint64_t bytes = take(data, true);
  if (bytes == 0) {
    return fake_first(told, FAKE_INVALID_VALUE);
  }
  munmap(data, bytes);
  return told;
}

mr_cu_result cuMemHostRegister_v2(void *data, size_t bytes, unsigned flags) {
  mr_cu_result result = fake_enter(FAKE_cuMemHostRegister_v2);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  if (data == NULL || bytes == 0 || flags > MAX_FLAGS || !is_mapped(data, bytes)) {
    return FAKE_INVALID_VALUE;
  }
  return add(data, bytes, false);
}

mr_cu_result cuMemHostUnregister(void *data) {
  mr_cu_result told = fake_enter(FAKE_cuMemHostUnregister);
  return fake_first(told, take(data, false) == 0 ? FAKE_NOT_REGISTERED : FAKE_SUCCESS);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* cuMemAlloc of the fake driver: each allocation is a mapping of its own with an inaccessible page
 * behind it, and counts in whole pages of physical memory. */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/fake/state.h"

#define MAX_ALLOCATIONS 4096u
#define GUARD_BYTES     4096u

struct allocation {
  char *data;
  uint64_t bytes;
};

static struct {
  pthread_mutex_t lock;
  struct allocation at[MAX_ALLOCATIONS];
  uint32_t count;
} allocations = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t counted_bytes(uint64_t bytes) {
  return mr_round_up(bytes, FAKE_PAGE_BYTES);
}

static uint64_t mapped_bytes(uint64_t bytes) {
  return mr_round_up(bytes, GUARD_BYTES) + GUARD_BYTES;
}

bool fake_allocation_holds(mr_cu_address address, uint64_t bytes) {
  bool holds = false;
  pthread_mutex_lock(&allocations.lock);
  for (uint32_t i = 0; i < allocations.count && !holds; i++) {
    uint64_t first = (uintptr_t)allocations.at[i].data;
    uint64_t size = allocations.at[i].bytes;
    holds = address >= first && address - first <= size && bytes <= size - (address - first);
  }
  pthread_mutex_unlock(&allocations.lock);
  return holds;
}

uint32_t fake_allocation_count(void) {
  pthread_mutex_lock(&allocations.lock);
  uint32_t count = allocations.count;
  pthread_mutex_unlock(&allocations.lock);
  return count;
}

static void give_back(struct allocation allocation) {
  munmap(allocation.data, mapped_bytes(allocation.bytes));
  fake_memory_give(counted_bytes(allocation.bytes));
}

void fake_allocation_clear(void) {
  pthread_mutex_lock(&allocations.lock);
  while (allocations.count != 0) {
    give_back(allocations.at[--allocations.count]);
  }
  pthread_mutex_unlock(&allocations.lock);
}

static char *map_filled(uint64_t bytes) {
  char *data =
      mmap(NULL, mapped_bytes(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return NULL;
  }
  uint64_t usable = mapped_bytes(bytes) - GUARD_BYTES;
  memset(data, FAKE_POISON, usable);
  int failed = mprotect(data + usable, GUARD_BYTES, PROT_NONE);
  MR_ASSERT(failed == 0);
  return data;
}

mr_cu_result cuMemAlloc_v2(mr_cu_address *address, size_t bytes) {
  mr_cu_result result = fake_enter(FAKE_cuMemAlloc_v2);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  if (address == NULL || bytes == 0) {
    return FAKE_INVALID_VALUE;
  }
  if (!fake_memory_take(counted_bytes(bytes))) {
    return FAKE_OUT_OF_MEMORY;
  }
  struct allocation made = {map_filled(bytes), bytes};
  pthread_mutex_lock(&allocations.lock);
  bool added = made.data != NULL && allocations.count < MAX_ALLOCATIONS;
  if (added) {
    allocations.at[allocations.count++] = made;
  }
  pthread_mutex_unlock(&allocations.lock);
  MR_ASSERT(added);
  *address = (uintptr_t)made.data;
  return FAKE_SUCCESS;
}

mr_cu_result cuMemFree_v2(mr_cu_address address) {
  mr_cu_result told = fake_enter(FAKE_cuMemFree_v2);
  if (address == 0) {
    return told;
  }
  mr_cu_result result = FAKE_INVALID_VALUE;
  pthread_mutex_lock(&allocations.lock);
  for (uint32_t i = 0; i < allocations.count; i++) {
    if ((uintptr_t)allocations.at[i].data == address) {
      give_back(allocations.at[i]);
      allocations.at[i] = allocations.at[--allocations.count];
      result = FAKE_SUCCESS;
      break;
    }
  }
  pthread_mutex_unlock(&allocations.lock);
  return fake_first(told, result);
}

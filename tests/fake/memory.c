/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory of the fake driver. Physical memory is a range of one memfd that only grows (its
 * holes are given back to the kernel); a reservation is a range of inaccessible addresses; mapping
 * puts physical memory over a part of a reservation, and access makes it readable.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fake/state.h"

#define MAX_RANGES 65536u

struct physical {
  uint64_t offset; /* in the memfd */
  uint64_t bytes;
  uint32_t references; /* the handle's, and one for each mapping */
};

struct range {
  uint64_t address;
  uint64_t bytes;
  struct physical *physical; /* of mappings */
  int access;                /* of mappings: as cuMemSetAccess has it, 0: none */
};

struct ranges {
  struct range at[MAX_RANGES];
  uint32_t count;
};

static struct {
  pthread_mutex_t lock;
  int file; /* -1: not opened yet */
  uint64_t end_offset;
  uint64_t used_bytes;
  uint64_t until_end_bytes; /* of them */
  uint32_t physical_count;
  struct ranges reservations;
  struct ranges mappings;
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER, .file = -1};

static bool is_whole(uint64_t bytes) {
  return bytes % FAKE_PAGE_BYTES == 0;
}

bool fake_memory_take(uint64_t bytes) {
  pthread_mutex_lock(&memory.lock);
  bool fits = bytes <= fake_memory_bytes() && memory.used_bytes <= fake_memory_bytes() - bytes;
  if (fits) {
    memory.used_bytes += bytes;
  }
  pthread_mutex_unlock(&memory.lock);
  return fits;
}

void fake_memory_give(uint64_t bytes) {
  pthread_mutex_lock(&memory.lock);
  memory.used_bytes -= bytes;
  pthread_mutex_unlock(&memory.lock);
}

bool fake_library_take(void) {
  return fake_memory_take_until_end(fake_lazy_bytes());
}

bool fake_memory_take_until_end(uint64_t bytes) {
  bool fits = fake_memory_take(bytes);
  pthread_mutex_lock(&memory.lock);
  memory.until_end_bytes += fits ? bytes : 0;
  pthread_mutex_unlock(&memory.lock);
  return fits;
}

void fake_memory_clear(void) {
  pthread_mutex_lock(&memory.lock);
  memory.used_bytes -= memory.until_end_bytes;
  memory.until_end_bytes = 0;
  pthread_mutex_unlock(&memory.lock);
}

void fake_memory_count(struct fake_live *live_out) {
  pthread_mutex_lock(&memory.lock);
  live_out->memories = memory.physical_count;
  live_out->mappings = memory.mappings.count;
  live_out->reservations = memory.reservations.count;
  live_out->device_bytes = memory.used_bytes;
  pthread_mutex_unlock(&memory.lock);
}

/* The range that holds the address; NULL where none does. */
static struct range *find(struct ranges *ranges, uint64_t address) {
  for (uint32_t i = 0; i < ranges->count; i++) {
    struct range *range = &ranges->at[i];
    if (address >= range->address && address - range->address < range->bytes) {
      return range;
    }
  }
  return NULL;
}

static bool add(struct ranges *ranges, struct range range) {
  if (ranges->count == MAX_RANGES) {
    return false;
  }
  ranges->at[ranges->count++] = range;
  return true;
}

static void drop(struct ranges *ranges, struct range *range) {
  *range = ranges->at[--ranges->count];
}

/* Whether mappings, each as a whole, make up the range without a gap. */
static bool is_made_of_mappings(uint64_t address, uint64_t bytes) {
  uint64_t end = address + bytes;
  while (address < end) {
    const struct range *mapping = find(&memory.mappings, address);
    if (mapping == NULL || mapping->address != address || mapping->bytes > end - address) {
      return false;
    }
    address += mapping->bytes;
  }
  return bytes != 0;
}

static bool mappings_accessible(uint64_t address, uint64_t bytes, int access) {
  uint64_t end = address + bytes;
  while (address < end) {
    const struct range *mapping = find(&memory.mappings, address);
    if (mapping == NULL || (mapping->access & access) != access) {
      return false;
    }
    address = mapping->address + mapping->bytes;
  }
  return true;
}

bool fake_memory_accessible(mr_cu_address address, uint64_t bytes, bool writes) {
  if (fake_allocation_holds(address, bytes)) {
    return true;
  }
  pthread_mutex_lock(&memory.lock);
  bool accessible = mappings_accessible(address, bytes, writes ? MR_CU_ACCESS_READ_WRITE : 1);
  pthread_mutex_unlock(&memory.lock);
  return accessible;
}

/* The file's next bytes, where new memory lies, full of poison. Under the lock. */
static uint64_t grow_file(uint64_t bytes) {
  if (memory.file < 0) {
    memory.file = memfd_create("fake-device", MFD_CLOEXEC);
  }
  uint64_t offset = memory.end_offset;
  bool grown = memory.file >= 0 && ftruncate(memory.file, (off_t)(offset + bytes)) == 0;
  void *seen =
      grown ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.file, (off_t)offset)
            : MAP_FAILED;
  MR_ASSERT(seen != MAP_FAILED);
  memset(seen, FAKE_POISON, bytes);
  munmap(seen, bytes);
  memory.end_offset += bytes;
  return offset;
}

/* The bytes are counted already. */
static struct physical *physical_create(uint64_t bytes) {
  struct physical *physical = calloc(1, sizeof *physical);
  MR_ASSERT(physical != NULL);
  pthread_mutex_lock(&memory.lock);
  *physical = (struct physical){.offset = grow_file(bytes), .bytes = bytes, .references = 1};
  memory.physical_count++;
  pthread_mutex_unlock(&memory.lock);
  return physical;
}

/* Under the lock. */
static void physical_release(struct physical *physical) {
  if (--physical->references != 0) {
    return;
  }
  (void)fallocate(memory.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)physical->offset,
                  (off_t)physical->bytes);
  memory.used_bytes -= physical->bytes;
  memory.physical_count--;
  free(physical);
}

/* The handle's reference. */
static void physical_drop(struct physical *physical) {
  pthread_mutex_lock(&memory.lock);
  physical_release(physical);
  pthread_mutex_unlock(&memory.lock);
}

/* Takes the address range back to inaccessible addresses. */
static void cover(uint64_t address, uint64_t bytes) {
  void *covered = mmap((void *)(uintptr_t)address, bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  MR_ASSERT(covered != MAP_FAILED);
}

static bool is_device(struct mr_cu_location location) {
  return location.type == MR_CU_LOCATION_DEVICE && location.id == 0;
}

mr_cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
  mr_cu_result result = fake_enter(FAKE_cuMemGetInfo_v2);
  if (result == FAKE_SUCCESS) {
    struct fake_live live;
    fake_memory_count(&live);
    *total_bytes = fake_memory_bytes();
    *free_bytes = fake_memory_bytes() - live.device_bytes;
  }
  return result;
}

mr_cu_result cuMemGetAllocationGranularity(size_t *bytes, const struct mr_cu_allocation *allocation,
                                           int option) {
  mr_cu_result result = fake_enter(FAKE_cuMemGetAllocationGranularity);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  if (bytes == NULL || allocation == NULL || option < 0 || option > 1 ||
      allocation->type != MR_CU_ALLOCATION_PINNED || !is_device(allocation->location)) {
    return FAKE_INVALID_VALUE;
  }
  *bytes = FAKE_PAGE_BYTES;
  return FAKE_SUCCESS;
}

static bool is_plain(const struct mr_cu_allocation *allocation) {
  return allocation != NULL && allocation->type == MR_CU_ALLOCATION_PINNED &&
         allocation->handle_types == 0 && allocation->win32 == NULL;
}

mr_cu_result cuMemCreate(mr_cu_memory *created, size_t bytes,
                         const struct mr_cu_allocation *allocation, unsigned long long flags) {
  mr_cu_result result = fake_enter(FAKE_cuMemCreate);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  if (created == NULL || bytes == 0 || !is_whole(bytes) || !is_plain(allocation) || flags != 0) {
    return FAKE_INVALID_VALUE;
  }
  if (!is_device(allocation->location)) {
    return FAKE_INVALID_DEVICE;
  }
  if (!fake_memory_take(bytes)) {
    return FAKE_OUT_OF_MEMORY;
  }
  struct physical *physical = physical_create(bytes);
  *created = fake_handle_add(FAKE_MEMORY, physical);
  if (*created == 0) {
    physical_drop(physical);
  }
  return *created == 0 ? FAKE_OUT_OF_MEMORY : FAKE_SUCCESS;
}

mr_cu_result cuMemRelease(mr_cu_memory released) {
  mr_cu_result told = fake_enter(FAKE_cuMemRelease);
  struct physical *physical = fake_handle_remove(FAKE_MEMORY, released);
  if (physical == NULL) {
    return fake_first(told, FAKE_INVALID_VALUE);
  }
  physical_drop(physical);
  return told;
}

/* Inaccessible addresses, of which the first is a multiple of `alignment`; 0 on failure. */
static uint64_t reserve(uint64_t bytes, uint64_t alignment) {
  char *all =
      mmap(NULL, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) {
    return 0;
  }
  uint64_t before = mr_round_up((uintptr_t)all, alignment) - (uintptr_t)all;
  if (before != 0) {
    munmap(all, before);
  }
  munmap(all + before + bytes, alignment - before);
  return (uintptr_t)all + before;
}

mr_cu_result cuMemAddressReserve(mr_cu_address *address, size_t bytes, size_t alignment,
                                 mr_cu_address wanted, unsigned long long flags) {
  (void)wanted; /* a hint */
  mr_cu_result result = fake_enter(FAKE_cuMemAddressReserve);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  if (address == NULL || bytes == 0 || !is_whole(bytes) || (alignment & (alignment - 1)) != 0 ||
      flags != 0) {
    return FAKE_INVALID_VALUE;
  }
  uint64_t reserved = reserve(bytes, mr_max_u64(alignment, FAKE_PAGE_BYTES));
  pthread_mutex_lock(&memory.lock);
  bool added = reserved != 0 && add(&memory.reservations, (struct range){reserved, bytes, NULL, 0});
  pthread_mutex_unlock(&memory.lock);
  *address = reserved;
  return added ? FAKE_SUCCESS : FAKE_OUT_OF_MEMORY;
}

/* Whether a mapping lies anywhere in the range. */
static bool is_mapped_anywhere(uint64_t address, uint64_t bytes) {
  for (uint32_t i = 0; i < memory.mappings.count; i++) {
    const struct range *mapping = &memory.mappings.at[i];
    if (mapping->address < address + bytes && address < mapping->address + mapping->bytes) {
      return true;
    }
  }
  return false;
}

mr_cu_result cuMemAddressFree(mr_cu_address address, size_t bytes) {
  mr_cu_result told = fake_enter(FAKE_cuMemAddressFree);
  mr_cu_result result = FAKE_INVALID_VALUE;
  pthread_mutex_lock(&memory.lock);
  struct range *reservation = find(&memory.reservations, address);
  if (reservation != NULL && reservation->address == address && reservation->bytes == bytes &&
      !is_mapped_anywhere(address, bytes)) {
    drop(&memory.reservations, reservation);
    munmap((void *)(uintptr_t)address, bytes);
    result = FAKE_SUCCESS;
  }
  pthread_mutex_unlock(&memory.lock);
  return fake_first(told, result);
}

/* Under the lock. */
static mr_cu_result map(uint64_t address, uint64_t bytes, struct physical *physical) {
  const struct range *reservation = find(&memory.reservations, address);
  if (reservation == NULL || bytes > reservation->address + reservation->bytes - address ||
      bytes > physical->bytes || is_mapped_anywhere(address, bytes)) {
    return FAKE_INVALID_VALUE;
  }
  if (mmap((void *)(uintptr_t)address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memory.file,
           (off_t)physical->offset) == MAP_FAILED) {
    return FAKE_OUT_OF_MEMORY;
  }
  if (!add(&memory.mappings, (struct range){address, bytes, physical, 0})) {
    cover(address, bytes);
    return FAKE_OUT_OF_MEMORY;
  }
  physical->references++;
  return FAKE_SUCCESS;
}

mr_cu_result cuMemMap(mr_cu_address address, size_t bytes, size_t offset, mr_cu_memory mapped,
                      unsigned long long flags) {
  mr_cu_result result = fake_enter(FAKE_cuMemMap);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  struct physical *physical = fake_handle_find(FAKE_MEMORY, mapped);
  if (physical == NULL || bytes == 0 || !is_whole(bytes) || !is_whole(address) || offset != 0 ||
      flags != 0) {
    return FAKE_INVALID_VALUE;
  }
  pthread_mutex_lock(&memory.lock);
  result = map(address, bytes, physical);
  pthread_mutex_unlock(&memory.lock);
  return result;
}

mr_cu_result cuMemUnmap(mr_cu_address address, size_t bytes) {
  mr_cu_result told = fake_enter(FAKE_cuMemUnmap);
  mr_cu_result result = FAKE_INVALID_VALUE;
  pthread_mutex_lock(&memory.lock);
  if (is_made_of_mappings(address, bytes)) {
    cover(address, bytes);
    for (uint64_t end = address + bytes; address < end;) {
      struct range *mapping = find(&memory.mappings, address);
      MR_ASSERT(mapping != NULL);
      address += mapping->bytes;
      physical_release(mapping->physical);
      drop(&memory.mappings, mapping);
    }
    result = FAKE_SUCCESS;
  }
  pthread_mutex_unlock(&memory.lock);
  return fake_first(told, result);
}

/* Under the lock; the range is made of mappings. */
static mr_cu_result set_access(uint64_t address, uint64_t bytes, int access) {
  int protection = access == 0                         ? PROT_NONE
                   : access == MR_CU_ACCESS_READ_WRITE ? PROT_READ | PROT_WRITE
                                                       : PROT_READ;
  if (mprotect((void *)(uintptr_t)address, bytes, protection) != 0) {
    return FAKE_OUT_OF_MEMORY;
  }
  for (uint64_t end = address + bytes; address < end;) {
    struct range *mapping = find(&memory.mappings, address);
    MR_ASSERT(mapping != NULL);
    mapping->access = access;
    address += mapping->bytes;
  }
  return FAKE_SUCCESS;
}

mr_cu_result cuMemSetAccess(mr_cu_address address, size_t bytes, const struct mr_cu_access *access,
                            size_t count) {
  mr_cu_result result = fake_enter(FAKE_cuMemSetAccess);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  if (access == NULL || count != 1 || access->flags < 0 || access->flags == 2 ||
      access->flags > MR_CU_ACCESS_READ_WRITE) {
    return FAKE_INVALID_VALUE;
  }
  if (!is_device(access->location)) {
    return FAKE_INVALID_DEVICE;
  }
  pthread_mutex_lock(&memory.lock);
  result = is_made_of_mappings(address, bytes) ? set_access(address, bytes, access->flags)
                                               : FAKE_INVALID_VALUE;
  pthread_mutex_unlock(&memory.lock);
  return result;
}

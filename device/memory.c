/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is present from the start: a budget is a promise about resident pages, so none may
 * appear later. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"
#include "device/device.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* What kernels before 5.14 need; a page that cannot be had kills the process there, which is why
 * the other way goes first. Writing back what was read keeps what a page holds. */
static void touch(volatile char *data, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i += 4096) {
    char held = data[i];
    data[i] = held;
  }
}

mr_status mr_memory_populate(void *data, uint64_t bytes, const char *what) {
  if (bytes == 0 || madvise(data, bytes, MADV_POPULATE_WRITE) == 0) {
    return MR_OK;
  }
  if (errno == EINVAL || errno == ENOSYS) {
    touch(data, bytes);
    return MR_OK;
  }
  struct mr_size_text size;
  mr_log(MR_LOG_ERROR, "%s: %s could not be taken: %s", what, mr_size_format(bytes, &size),
         strerror(errno));
  return MR_NO_MEMORY;
}

mr_status mr_memory_reserve(uint64_t bytes, uint64_t alignment_bytes, const char *what,
                            struct mr_memory *memory_out) {
  if (bytes == 0) {
    *memory_out = (struct mr_memory){0};
    return MR_OK;
  }
  uint64_t size = mr_round_up(bytes, 4096);
  uint64_t mapping_bytes = size + alignment_bytes;
  char *mapping = mmap(NULL, mapping_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    struct mr_size_text text;
    mr_log(MR_LOG_ERROR, "%s: no addresses for %s: %s; ulimit -v may limit them", what,
           mr_size_format(bytes, &text), strerror(errno));
    return MR_NO_MEMORY;
  }
  uint64_t excess = (uintptr_t)mapping % alignment_bytes;
  char *data = excess == 0 ? mapping : mapping + (alignment_bytes - excess);
  /* Advice alone: where it is refused the memory is merely slower. */
  int advice = alignment_bytes % MR_DEVICE_HUGE_PAGE_BYTES == 0 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;
  (void)madvise(data, size, advice);
  *memory_out = (struct mr_memory){data, bytes, mapping, mapping_bytes};
  return MR_OK;
}

mr_status mr_memory_map(uint64_t bytes, uint64_t alignment_bytes, const char *what,
                        struct mr_memory *memory_out) {
  struct mr_memory memory;
  mr_status status = mr_memory_reserve(bytes, alignment_bytes, what, &memory);
  if (status != MR_OK) {
    return status;
  }
  status = mr_memory_populate(memory.data, mr_round_up(bytes, 4096), what);
  if (status != MR_OK) {
    mr_memory_unmap(&memory);
    return status;
  }
  *memory_out = memory;
  return MR_OK;
}

void mr_memory_unmap(struct mr_memory *memory) {
  if (memory->mapping != NULL) {
    munmap(memory->mapping, memory->mapping_bytes);
  }
  *memory = (struct mr_memory){0};
}

void mr_memory_drop(void *data, uint64_t bytes) {
  /* Where it fails the pages stay until their mapping goes: more memory for a while, nothing lost.
   */
  (void)madvise(data, bytes, MADV_DONTNEED);
}

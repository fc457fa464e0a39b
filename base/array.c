/* SPDX-License-Identifier: Apache-2.0 */
/* Growing arrays and the two allocations that everything else uses. */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

mr_status mr_array_reserve(void **data, uint32_t *capacity, uint64_t needed, size_t element_bytes) {
  MR_ASSERT(element_bytes > 0);
  if (needed <= *capacity) {
    return MR_OK;
  }
  uint64_t grown = mr_max_u64(needed, mr_max_u64(16, 2ull * *capacity));
  grown = mr_min_u64(grown, UINT32_MAX);
  uint64_t bytes = 0;
  void *old = NULL;
  void *moved = NULL;
  /* The caller's pointer has its own type, so it is read and written as bytes. */
  memcpy(&old, data, sizeof old);
  if (needed <= grown && mr_mul_u64(grown, element_bytes, &bytes)) {
    moved = realloc(old, bytes);
  }
  if (moved == NULL) {
    mr_log_no_memory("out of memory: an array of %llu elements of %zu bytes",
                     (unsigned long long)needed, element_bytes);
    return MR_NO_MEMORY;
  }
  mr_log_memory_found();
  memcpy(data, &moved, sizeof moved);
  *capacity = (uint32_t)grown;
  return MR_OK;
}

void *mr_allocate(uint64_t count, size_t bytes) {
  void *memory = calloc(count == 0 ? 1 : count, bytes == 0 ? 1 : bytes);
  if (memory == NULL) {
    mr_log_no_memory("out of memory: %llu x %zu bytes", (unsigned long long)count, bytes);
  } else {
    mr_log_memory_found();
  }
  return memory;
}

char *mr_string_copy(const char *text) {
  char *copy = strdup(text);
  if (copy == NULL) {
    mr_log_no_memory("out of memory: a string of %zu bytes", strlen(text) + 1);
  } else {
    mr_log_memory_found();
  }
  return copy;
}

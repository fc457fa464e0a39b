/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies and fills of the fake driver. Pinned host memory is read and written when the stream comes
 * to the copy. Pageable memory is staged: read while the call lasts (the bytes may still be on
 * their way to the device when it returns), written before it returns.
 */
#include <string.h>

#include "tests/fake/state.h"

struct copy {
  void *to;
  const void *from; /* NULL: what follows */
  uint64_t bytes;
  _Alignas(16) unsigned char staged[];
};

struct fill {
  void *to;
  uint64_t bytes;
  unsigned char value;
};

static void run_copy(void *payload) {
  const struct copy *copy = payload;
  memcpy(copy->to, copy->from == NULL ? copy->staged : copy->from, copy->bytes);
}

static void run_fill(void *payload) {
  const struct fill *fill = payload;
  memset(fill->to, fill->value, fill->bytes);
}

static uint32_t push_copy(struct fake_stream *stream, void *to, const void *from, uint64_t bytes,
                          bool staged) {
  struct fake_item *item =
      fake_item_create(run_copy, sizeof(struct copy) + (staged ? bytes : 0), true);
  struct copy *copy = (void *)item->payload;
  copy->to = to;
  copy->from = staged ? NULL : from;
  copy->bytes = bytes;
  if (staged) {
    memcpy(copy->staged, from, bytes);
  }
  return fake_stream_push(stream, item);
}

static void *pointer(mr_cu_address address) {
  return (void *)(uintptr_t)address;
}

/* Host to device on the stream; waits for pinned memory where the call is `synchronous`. */
static mr_cu_result copy_in(mr_cu_address to, const void *from, uint64_t bytes, mr_cu_stream handle,
                            bool synchronous) {
  struct fake_stream *stream = fake_stream_find(handle);
  if (stream == NULL) {
    return FAKE_INVALID_HANDLE;
  }
  if (bytes == 0) {
    return FAKE_SUCCESS;
  }
  enum fake_host kind = fake_host_kind(from, bytes);
  if (from == NULL || kind == FAKE_STRADDLES || !fake_memory_accessible(to, bytes, true)) {
    return FAKE_INVALID_VALUE;
  }
  uint32_t position = push_copy(stream, pointer(to), from, bytes, kind == FAKE_PAGEABLE);
  if (synchronous && kind == FAKE_PINNED) {
    fake_stream_wait(stream, position);
    return fake_sticky();
  }
  return FAKE_SUCCESS;
}

/* Device to host on the stream; waits for pageable memory, and where the call is `synchronous`. */
static mr_cu_result copy_out(void *to, mr_cu_address from, uint64_t bytes, mr_cu_stream handle,
                             bool synchronous) {
  struct fake_stream *stream = fake_stream_find(handle);
  if (stream == NULL) {
    return FAKE_INVALID_HANDLE;
  }
  if (bytes == 0) {
    return FAKE_SUCCESS;
  }
  enum fake_host kind = fake_host_kind(to, bytes);
  if (to == NULL || kind == FAKE_STRADDLES || !fake_memory_accessible(from, bytes, false)) {
    return FAKE_INVALID_VALUE;
  }
  uint32_t position = push_copy(stream, to, pointer(from), bytes, false);
  if (synchronous || kind == FAKE_PAGEABLE) {
    fake_stream_wait(stream, position);
    return fake_sticky();
  }
  return FAKE_SUCCESS;
}

mr_cu_result cuMemcpyHtoDAsync_v2(mr_cu_address to, const void *from, size_t bytes,
                                  mr_cu_stream stream) {
  mr_cu_result result = fake_enter(FAKE_cuMemcpyHtoDAsync_v2);
  return result == FAKE_SUCCESS ? copy_in(to, from, bytes, stream, false) : result;
}

mr_cu_result cuMemcpyHtoD_v2(mr_cu_address to, const void *from, size_t bytes) {
  mr_cu_result result = fake_enter(FAKE_cuMemcpyHtoD_v2);
  return result == FAKE_SUCCESS ? copy_in(to, from, bytes, NULL, true) : result;
}

mr_cu_result cuMemcpyDtoHAsync_v2(void *to, mr_cu_address from, size_t bytes, mr_cu_stream stream) {
  mr_cu_result result = fake_enter(FAKE_cuMemcpyDtoHAsync_v2);
  return result == FAKE_SUCCESS ? copy_out(to, from, bytes, stream, false) : result;
}

mr_cu_result cuMemcpyDtoH_v2(void *to, mr_cu_address from, size_t bytes) {
  mr_cu_result result = fake_enter(FAKE_cuMemcpyDtoH_v2);
  return result == FAKE_SUCCESS ? copy_out(to, from, bytes, NULL, true) : result;
}

mr_cu_result cuMemsetD8Async(mr_cu_address to, unsigned char value, size_t bytes,
                             mr_cu_stream stream) {
  mr_cu_result result = fake_enter(FAKE_cuMemsetD8Async);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  struct fake_stream *found = fake_stream_find(stream);
  if (found == NULL) {
    return FAKE_INVALID_HANDLE;
  }
  if (bytes == 0) {
    return FAKE_SUCCESS;
  }
  if (!fake_memory_accessible(to, bytes, true)) {
    return FAKE_INVALID_VALUE;
  }
  struct fake_item *item = fake_item_create(run_fill, sizeof(struct fill), true);
  *(struct fill *)(void *)item->payload = (struct fill){pointer(to), bytes, value};
  fake_stream_push(found, item);
  return FAKE_SUCCESS;
}

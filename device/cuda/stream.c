/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of the cuda device, and marks: two events around a piece of work. */
#include <stdlib.h>

#include "base/base.h"
#include "device/cuda/device.h"

struct mark {
  mr_cu_event begin;
  mr_cu_event end;
};

struct mr_stream {
  struct mr_device *device;
  mr_cu_stream handle;
  struct mark *marks;
  uint32_t mark_count;
};

static void stream_destroy(struct mr_stream *stream) {
  if (stream == NULL) {
    return;
  }
  /* After a fault of the device these fail as well, and the fault has been told. */
  struct mr_cuda *cuda = &stream->device->cuda;
  (void)cuda->context_set(cuda->context);
  for (uint32_t i = 0; stream->marks != NULL && i < stream->mark_count; i++) {
    if (stream->marks[i].begin != NULL) {
      (void)cuda->event_destroy(stream->marks[i].begin);
    }
    if (stream->marks[i].end != NULL) {
      (void)cuda->event_destroy(stream->marks[i].end);
    }
  }
  if (stream->handle != NULL) {
    (void)cuda->stream_destroy(stream->handle);
  }
  free(stream->marks);
  free(stream);
}

static mr_status create_event(struct mr_cuda *cuda, uint32_t mark, mr_cu_event *event_out) {
  mr_cu_event event = NULL;
  mr_cu_result result = cuda->event_create(&event, MR_CU_EVENT_BLOCKING_SYNC);
  if (result != MR_CU_SUCCESS) {
    return mr_cuda_failed(cuda, result, "cuEventCreate", "mark %u of a queue", mark);
  }
  *event_out = event;
  return MR_OK;
}

static mr_status fill(struct mr_stream *stream) {
  struct mr_cuda *cuda = &stream->device->cuda;
  mr_status status = mr_cuda_enter(cuda);
  if (status != MR_OK) {
    return status;
  }
  mr_cu_stream handle = NULL;
  mr_cu_result result = cuda->stream_create(&handle, MR_CU_STREAM_NON_BLOCKING, 0);
  if (result != MR_CU_SUCCESS) {
    return mr_cuda_failed(cuda, result, "cuStreamCreateWithPriority", "a queue");
  }
  stream->handle = handle;
  for (uint32_t i = 0; status == MR_OK && i < stream->mark_count; i++) {
    status = create_event(cuda, i, &stream->marks[i].begin);
    if (status == MR_OK) {
      status = create_event(cuda, i, &stream->marks[i].end);
    }
  }
  return status;
}

static mr_status stream_create(struct mr_device *device, uint32_t mark_count,
                               struct mr_stream **stream_out) {
  struct mr_stream *stream = mr_allocate(1, sizeof *stream);
  if (stream == NULL) {
    return MR_NO_MEMORY;
  }
  stream->device = device;
  stream->mark_count = mark_count;
  stream->marks = mr_allocate(mark_count, sizeof *stream->marks);
  mr_status status = stream->marks == NULL ? MR_NO_MEMORY : fill(stream);
  if (status != MR_OK) {
    stream_destroy(stream);
    return status;
  }
  *stream_out = stream;
  return MR_OK;
}

static void *stream_handle(const struct mr_stream *stream) {
  return stream->handle;
}

static mr_status record(struct mr_stream *stream, mr_cu_event event, const char *what) {
  struct mr_cuda *cuda = &stream->device->cuda;
  mr_cu_result result = cuda->event_record(event, stream->handle);
  return result == MR_CU_SUCCESS ? MR_OK
                                 : mr_cuda_failed(cuda, result, "cuEventRecord", "%s", what);
}

static mr_status stream_begin(struct mr_stream *stream, uint32_t mark, const char *what) {
  MR_ASSERT(mark < stream->mark_count);
  return record(stream, stream->marks[mark].begin, what);
}

static mr_status stream_end(struct mr_stream *stream, uint32_t mark, const char *what) {
  MR_ASSERT(mark < stream->mark_count);
  return record(stream, stream->marks[mark].end, what);
}

static mr_status stream_follow(struct mr_stream *stream, const struct mr_stream *other,
                               uint32_t mark, const char *what) {
  MR_ASSERT(mark < other->mark_count);
  struct mr_cuda *cuda = &stream->device->cuda;
  mr_cu_result result = cuda->stream_wait(stream->handle, other->marks[mark].end, 0);
  return result == MR_CU_SUCCESS ? MR_OK
                                 : mr_cuda_failed(cuda, result, "cuStreamWaitEvent", "%s", what);
}

static mr_status stream_copy_out(struct mr_stream *stream, void *to, const void *from,
                                 uint64_t bytes, const char *what) {
  struct mr_cuda *cuda = &stream->device->cuda;
  mr_cu_result result =
      cuda->copy_out_async(to, (mr_cu_address)(uintptr_t)from, bytes, stream->handle);
  return result == MR_CU_SUCCESS
             ? MR_OK
             : mr_cuda_failed(cuda, result, "cuMemcpyDtoHAsync", "%s, %llu bytes", what,
                              (unsigned long long)bytes);
}

static mr_status stream_copy_in(struct mr_stream *stream, void *to, const void *from,
                                uint64_t bytes, const char *what) {
  struct mr_cuda *cuda = &stream->device->cuda;
  mr_cu_result result =
      cuda->copy_in_async((mr_cu_address)(uintptr_t)to, from, bytes, stream->handle);
  return result == MR_CU_SUCCESS
             ? MR_OK
             : mr_cuda_failed(cuda, result, "cuMemcpyHtoDAsync", "%s, %llu bytes", what,
                              (unsigned long long)bytes);
}

static mr_status stream_clear(struct mr_stream *stream, void *to, uint64_t bytes,
                              const char *what) {
  struct mr_cuda *cuda = &stream->device->cuda;
  mr_cu_result result = cuda->fill_async((mr_cu_address)(uintptr_t)to, 0, bytes, stream->handle);
  return result == MR_CU_SUCCESS ? MR_OK
                                 : mr_cuda_failed(cuda, result, "cuMemsetD8Async", "%s, %llu bytes",
                                                  what, (unsigned long long)bytes);
}

static mr_status stream_wait(struct mr_stream *stream, uint32_t mark, const char *what,
                             double *seconds_out) {
  MR_ASSERT(mark < stream->mark_count);
  struct mr_cuda *cuda = &stream->device->cuda;
  const struct mark *pair = &stream->marks[mark];
  mr_cu_result result = cuda->event_synchronize(pair->end);
  if (result != MR_CU_SUCCESS) {
    return mr_cuda_failed(cuda, result, "cuEventSynchronize", "%s", what);
  }
  float milliseconds = 0;
  result = cuda->event_elapsed(&milliseconds, pair->begin, pair->end);
  if (result != MR_CU_SUCCESS) {
    return mr_cuda_failed(cuda, result, "cuEventElapsedTime", "%s", what);
  }
  *seconds_out = (double)milliseconds * 1e-3;
  return MR_OK;
}

const struct mr_stream_ops mr_cuda_streams = {
    .create = stream_create,
    .destroy = stream_destroy,
    .handle = stream_handle,
    .begin = stream_begin,
    .end = stream_end,
    .follow = stream_follow,
    .copy_out = stream_copy_out,
    .copy_in = stream_copy_in,
    .clear = stream_clear,
    .wait = stream_wait,
};

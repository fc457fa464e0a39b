/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of the cuda device, and marks: two events around a piece of work. */
#include <stdlib.h>
#include <time.h>

#include "base/base.h"
#include "device/cuda/device.h"

struct mark {
  mr_cu_event begin;
  mr_cu_event end;
  struct mr_work work;
};

struct mr_stream {
  struct mr_device *device;
  mr_cu_stream handle;
  struct mark *marks;
  uint32_t mark_count;
  struct mark *open; /* begun last */
};

static mr_status work_failed(struct mr_cuda *cuda, mr_cu_result result, const char *call,
                             const struct mr_work *work) {
  return mr_cuda_failed(cuda, result, call, "%s %s, %llu bytes", work->kind, work->name,
                        (unsigned long long)work->bytes);
}

static void give_back(struct mr_stream *stream) {
  struct mr_cuda *cuda = &stream->device->cuda;
  mr_cuda_told(cuda, cuda->context_set(cuda->context), "cuCtxSetCurrent");
  for (uint32_t i = 0; stream->marks != NULL && i < stream->mark_count; i++) {
    if (stream->marks[i].begin != NULL) {
      mr_cuda_told(cuda, cuda->event_destroy(stream->marks[i].begin), "cuEventDestroy");
    }
    if (stream->marks[i].end != NULL) {
      mr_cuda_told(cuda, cuda->event_destroy(stream->marks[i].end), "cuEventDestroy");
    }
  }
  if (stream->handle != NULL) {
    mr_cuda_told(cuda, cuda->stream_destroy(stream->handle), "cuStreamDestroy");
  }
}

static void stream_destroy(struct mr_stream *stream) {
  if (stream == NULL) {
    return;
  }
  if (!stream->device->hangs) {
    give_back(stream);
  }
  free(stream->marks);
  free(stream);
}

/* Nobody sleeps until work begins, so that its event need not interrupt a processor. */
static mr_status create_event(struct mr_cuda *cuda, uint32_t mark, bool awaited,
                              mr_cu_event *event_out) {
  mr_cu_event event = NULL;
  mr_cu_result result = cuda->event_create(&event, awaited ? MR_CU_EVENT_BLOCKING_SYNC : 0);
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
    status = create_event(cuda, i, false, &stream->marks[i].begin);
    if (status == MR_OK) {
      status = create_event(cuda, i, true, &stream->marks[i].end);
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

static mr_status record(struct mr_stream *stream, mr_cu_event event) {
  struct mr_cuda *cuda = &stream->device->cuda;
  mr_cu_result result = cuda->event_record(event, stream->handle);
  return result == MR_CU_SUCCESS ? MR_OK
                                 : work_failed(cuda, result, "cuEventRecord", &stream->open->work);
}

static mr_status stream_begin(struct mr_stream *stream, uint32_t mark, const struct mr_work *work) {
  MR_ASSERT(mark < stream->mark_count);
  stream->open = &stream->marks[mark];
  stream->open->work = *work;
  return record(stream, stream->open->begin);
}

static mr_status stream_end(struct mr_stream *stream) {
  MR_ASSERT(stream->open != NULL);
  return record(stream, stream->open->end);
}

static mr_status stream_follow(struct mr_stream *stream, const struct mr_stream *other,
                               uint32_t mark, const struct mr_work *work) {
  MR_ASSERT(mark < other->mark_count);
  struct mr_cuda *cuda = &stream->device->cuda;
  mr_cu_result result = cuda->stream_wait(stream->handle, other->marks[mark].end, 0);
  return result == MR_CU_SUCCESS ? MR_OK : work_failed(cuda, result, "cuStreamWaitEvent", work);
}

/* What a call that moves a part of the open mark's bytes gave. */
static mr_status moved(struct mr_stream *stream, mr_cu_result result, const char *call,
                       uint64_t bytes) {
  const struct mr_work *work = &stream->open->work;
  return result == MR_CU_SUCCESS
             ? MR_OK
             : mr_cuda_failed(&stream->device->cuda, result, call, "%s %s, %llu of %llu bytes",
                              work->kind, work->name, (unsigned long long)bytes,
                              (unsigned long long)work->bytes);
}

static mr_status stream_copy_out(struct mr_stream *stream, void *to, const void *from,
                                 uint64_t bytes) {
  mr_cu_result result = mr_cuda_copy_out(stream->device, to, from, bytes, stream->handle);
  return moved(stream, result, "cuMemcpyDtoHAsync", bytes);
}

static mr_status stream_copy_in(struct mr_stream *stream, void *to, const void *from,
                                uint64_t bytes) {
  mr_cu_result result = mr_cuda_copy_in(stream->device, to, from, bytes, stream->handle);
  return moved(stream, result, "cuMemcpyHtoDAsync", bytes);
}

static mr_status stream_clear(struct mr_stream *stream, void *to, uint64_t bytes) {
  struct mr_cuda *cuda = &stream->device->cuda;
  mr_cu_result result = cuda->fill_async((mr_cu_address)(uintptr_t)to, 0, bytes, stream->handle);
  return moved(stream, result, "cuMemsetD8Async", bytes);
}

/* The driver's own waits know no deadline, so it is asked again and again: at once at first, then
 * after naps, which are short beside what somebody waits for so long. */
#define EAGER_SECONDS 50e-6
#define NAP_NS        50000

mr_status mr_cuda_await(struct mr_device *device, mr_cu_event event, const struct mr_work *work) {
  struct mr_cuda *cuda = &device->cuda;
  const struct timespec nap = {.tv_nsec = NAP_NS};
  double start = mr_clock_seconds();
  for (;;) {
    mr_cu_result result =
        event != NULL ? cuda->event_query(event) : cuda->stream_query(device->access);
    if (result != MR_CU_NOT_READY) {
      const char *call = event != NULL ? "cuEventQuery" : "cuStreamQuery";
      return result == MR_CU_SUCCESS ? MR_OK : work_failed(cuda, result, call, work);
    }
    double age = mr_clock_seconds() - start;
    if (device->timeout_seconds > 0 && age > device->timeout_seconds) {
      mr_log(MR_LOG_ERROR,
             "cuda: the device hangs: %s %s, %llu bytes, has not ended for %.1f s (time limit %.1f "
             "s); raise --io-timeout if it may take so long",
             work->kind, work->name, (unsigned long long)work->bytes, age, device->timeout_seconds);
      device->hangs = true;
      return MR_TIMEOUT;
    }
    if (age > EAGER_SECONDS) {
      (void)nanosleep(&nap, NULL);
    }
  }
}

static bool stream_has_begun(struct mr_stream *stream, uint32_t mark) {
  MR_ASSERT(mark < stream->mark_count);
  struct mr_cuda *cuda = &stream->device->cuda;
  return cuda->event_query(stream->marks[mark].begin) == MR_CU_SUCCESS;
}

/* What the work of a mark that is over took. */
static mr_status take_time(struct mr_stream *stream, uint32_t mark, double *seconds_out) {
  struct mr_cuda *cuda = &stream->device->cuda;
  const struct mark *pair = &stream->marks[mark];
  float milliseconds = 0;
  mr_cu_result result = cuda->event_elapsed(&milliseconds, pair->begin, pair->end);
  if (result != MR_CU_SUCCESS) {
    return work_failed(cuda, result, "cuEventElapsedTime", &pair->work);
  }
  *seconds_out = (double)milliseconds * 1e-3;
  return MR_OK;
}

static mr_status stream_wait(struct mr_stream *stream, uint32_t mark, double *seconds_out) {
  MR_ASSERT(mark < stream->mark_count);
  struct mr_cuda *cuda = &stream->device->cuda;
  mr_cu_result result = cuda->event_synchronize(stream->marks[mark].end);
  if (result != MR_CU_SUCCESS) {
    return work_failed(cuda, result, "cuEventSynchronize", &stream->marks[mark].work);
  }
  return take_time(stream, mark, seconds_out);
}

static mr_status stream_wait_in_time(struct mr_stream *stream, uint32_t mark, double *seconds_out) {
  MR_ASSERT(mark < stream->mark_count);
  const struct mark *pair = &stream->marks[mark];
  mr_status status = mr_cuda_await(stream->device, pair->end, &pair->work);
  return status == MR_OK ? take_time(stream, mark, seconds_out) : status;
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
    .wait_in_time = stream_wait_in_time,
    .has_begun = stream_has_begun,
};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of the cuda device, and marks: events around a piece of work. On an H200 a pair of timed
 * events holds the stream up for 4 us, one that a thread sleeps for 2.5, and one that is neither
 * not at all. So those that others wait for are neither, and a timed mark has two more.
 */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "base/base.h"
#include "device/cuda/device.h"

enum { BEGIN, END, TIMED_BEGIN, TIMED_END, EVENT_COUNT };

struct mark {
  mr_cu_event events[EVENT_COUNT];
  struct mr_work work;
  bool timed;
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
    for (uint32_t k = 0; k < EVENT_COUNT; k++) {
      if (stream->marks[i].events[k] != NULL) {
        mr_cuda_told(cuda, cuda->event_destroy(stream->marks[i].events[k]), "cuEventDestroy");
      }
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

static mr_status create_events(struct mr_cuda *cuda, struct mark *mark, uint32_t index) {
  static const unsigned flags[EVENT_COUNT] = {
      [BEGIN] = MR_CU_EVENT_DISABLE_TIMING, [END] = MR_CU_EVENT_DISABLE_TIMING};
  for (uint32_t k = 0; k < EVENT_COUNT; k++) {
    mr_cu_event event = NULL;
    mr_cu_result result = cuda->event_create(&event, flags[k]);
    if (result != MR_CU_SUCCESS) {
      return mr_cuda_failed(cuda, result, "cuEventCreate", "mark %u of a queue", index);
    }
    mark->events[k] = event;
  }
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
    status = create_events(cuda, &stream->marks[i], i);
  }
  return status;
}

static void *stream_handle(const struct mr_stream *stream) {
  return stream->handle;
}

static mr_status record(struct mr_stream *stream, uint32_t event) {
  struct mr_cuda *cuda = &stream->device->cuda;
  mr_cu_result result = cuda->event_record(stream->open->events[event], stream->handle);
  return result == MR_CU_SUCCESS ? MR_OK
                                 : work_failed(cuda, result, "cuEventRecord", &stream->open->work);
}

static mr_status stream_begin(struct mr_stream *stream, uint32_t mark, const struct mr_work *work,
                              bool timed) {
  MR_ASSERT(mark < stream->mark_count);
  stream->open = &stream->marks[mark];
  stream->open->work = *work;
  stream->open->timed = timed;
  mr_status status = record(stream, BEGIN);
  return status == MR_OK && timed ? record(stream, TIMED_BEGIN) : status;
}

static mr_status stream_end(struct mr_stream *stream) {
  MR_ASSERT(stream->open != NULL);
  mr_status status = stream->open->timed ? record(stream, TIMED_END) : MR_OK;
  return status == MR_OK ? record(stream, END) : status;
}

static mr_status stream_follow(struct mr_stream *stream, const struct mr_stream *other,
                               uint32_t mark, const struct mr_work *work) {
  MR_ASSERT(mark < other->mark_count);
  struct mr_cuda *cuda = &stream->device->cuda;
  mr_cu_result result = cuda->stream_wait(stream->handle, other->marks[mark].events[END], 0);
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

/* The driver's own waits know no deadline, and where they sleep, an H200's stream stops for the
 * interrupt and the thread is 80 us late. So the driver is asked again and again: at once for as
 * long as the caller is eager, then after naps, which are short beside what was waited for so far.
 */
#define EAGER_SECONDS    50e-6
#define NAP_SECONDS      20e-6
#define MOST_NAP_SECONDS 1e-3
#define NAP_SHARE        (1.0 / 16)

static void nap(double age) {
  double seconds = fmin(fmax(NAP_SHARE * age, NAP_SECONDS), MOST_NAP_SECONDS);
  (void)nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL);
}

/* Until an event, or with NULL the stream `access`, is over or fails, or for so long;
 * MR_CU_NOT_READY then, and how long that was. */
static mr_cu_result ask_until_over(struct mr_device *device, mr_cu_event event,
                                   double eager_seconds, double limit_seconds, double *age_out) {
  struct mr_cuda *cuda = &device->cuda;
  double start = mr_clock_seconds();
  for (;;) {
    /* The clock comes first: a process that is stopped behind it asks once more. */
    *age_out = mr_clock_seconds() - start;
    mr_cu_result result =
        event != NULL ? cuda->event_query(event) : cuda->stream_query(device->access);
    if (result != MR_CU_NOT_READY || *age_out > limit_seconds) {
      return result;
    }
    if (*age_out >= eager_seconds) {
      nap(*age_out);
    }
  }
}

mr_status mr_cuda_await(struct mr_device *device, mr_cu_event event, const struct mr_work *work) {
  double limit_seconds = device->timeout_seconds > 0 ? device->timeout_seconds : INFINITY;
  double age = 0;
  mr_cu_result result = ask_until_over(device, event, EAGER_SECONDS, limit_seconds, &age);
  if (result == MR_CU_NOT_READY) {
    mr_log(MR_LOG_ERROR,
           "cuda: the device hangs: %s %s, %llu bytes, has not ended for %.1f s (time limit %.1f "
           "s); raise --io-timeout if it may take so long",
           work->kind, work->name, (unsigned long long)work->bytes, age, device->timeout_seconds);
    device->hangs = true;
    return MR_TIMEOUT;
  }
  const char *call = event != NULL ? "cuEventQuery" : "cuStreamQuery";
  return result == MR_CU_SUCCESS ? MR_OK : work_failed(&device->cuda, result, call, work);
}

static bool stream_has_begun(struct mr_stream *stream, uint32_t mark) {
  MR_ASSERT(mark < stream->mark_count);
  struct mr_cuda *cuda = &stream->device->cuda;
  return cuda->event_query(stream->marks[mark].events[BEGIN]) == MR_CU_SUCCESS;
}

/* What the work of a mark that is over took; below 0 where it is not timed. */
static mr_status take_time(struct mr_stream *stream, uint32_t mark, double *seconds_out) {
  struct mr_cuda *cuda = &stream->device->cuda;
  const struct mark *over = &stream->marks[mark];
  *seconds_out = -1;
  if (!over->timed) {
    return MR_OK;
  }
  float milliseconds = 0;
  mr_cu_result result =
      cuda->event_elapsed(&milliseconds, over->events[TIMED_BEGIN], over->events[TIMED_END]);
  if (result != MR_CU_SUCCESS) {
    return work_failed(cuda, result, "cuEventElapsedTime", &over->work);
  }
  *seconds_out = fmax((double)milliseconds * 1e-3 - fmax(stream->device->mark_seconds, 0), 0);
  return MR_OK;
}

static mr_status stream_wait(struct mr_stream *stream, uint32_t mark, double *seconds_out) {
  MR_ASSERT(mark < stream->mark_count);
  const struct mark *awaited = &stream->marks[mark];
  double age = 0;
  mr_cu_result result = ask_until_over(stream->device, awaited->events[END], 0, INFINITY, &age);
  if (result != MR_CU_SUCCESS) {
    return work_failed(&stream->device->cuda, result, "cuEventQuery", &awaited->work);
  }
  return take_time(stream, mark, seconds_out);
}

static mr_status stream_wait_in_time(struct mr_stream *stream, uint32_t mark, double *seconds_out) {
  MR_ASSERT(mark < stream->mark_count);
  const struct mark *awaited = &stream->marks[mark];
  mr_status status = mr_cuda_await(stream->device, awaited->events[END], &awaited->work);
  return status == MR_OK ? take_time(stream, mark, seconds_out) : status;
}

#define MEASURED_MARKS 16u

/* What a timed mark with nothing in it shows, 1.3 us on an H200: the least of some, since the
 * stream may have to wait until it is given the end. */
static mr_status measure_mark(struct mr_stream *stream) {
  static const struct mr_work work = {"mark", "of nothing", 0};
  double least = INFINITY;
  mr_status status = MR_OK;
  for (uint32_t i = 0; status == MR_OK && i < MEASURED_MARKS; i++) {
    double seconds = 0;
    status = stream_begin(stream, 0, &work, true);
    if (status == MR_OK) {
      status = stream_end(stream);
    }
    if (status == MR_OK) {
      status = stream_wait_in_time(stream, 0, &seconds);
    }
    least = fmin(least, seconds);
  }
  stream->device->mark_seconds = least;
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
  if (status == MR_OK && mark_count > 0 && device->mark_seconds < 0) {
    status = measure_mark(stream);
  }
  if (status != MR_OK) {
    stream_destroy(stream);
    return status;
  }
  *stream_out = stream;
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
    .wait_in_time = stream_wait_in_time,
    .has_begun = stream_has_begun,
};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of the fake driver. Recording leaves a *mark* in the stream: a position and, once the
 * stream has come to it, a time. An event is the mark of its last record; who waits for it takes
 * that mark, so a later record changes nothing for him, and an event that was never recorded is
 * complete.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tests/fake/state.h"

#define FLAG_DISABLE_TIMING 2u
#define MAX_FLAGS           3u

/* One reference is the event's, one the item's. */
struct mark {
  struct fake_stream *stream;
  uint32_t position;
  _Atomic uint64_t time_ns;
  _Atomic uint32_t references;
};

struct event {
  pthread_mutex_t lock;
  struct mark *mark; /* NULL: never recorded */
  bool timed;
};

static void mark_release(struct mark *mark) {
  if (mark != NULL && atomic_fetch_sub(&mark->references, 1) == 1) {
    free(mark);
  }
}

static void run_mark(void *payload) {
  struct mark *mark = *(struct mark **)payload;
  atomic_store_explicit(&mark->time_ns, mr_clock_ns(), memory_order_relaxed);
  mark_release(mark);
}

static struct event *event_of(mr_cu_event handle) {
  return fake_handle_find(FAKE_EVENT, (uintptr_t)handle);
}

static void event_destroy(void *object) {
  struct event *event = object;
  mark_release(event->mark);
  pthread_mutex_destroy(&event->lock);
  free(event);
}

void fake_event_clear(void) {
  fake_handle_clear(FAKE_EVENT, event_destroy);
}

/* Where the event's stream has to come to; false where it was never recorded. */
static bool event_position(struct event *event, struct fake_stream **stream_out,
                           uint32_t *position_out) {
  pthread_mutex_lock(&event->lock);
  bool recorded = event->mark != NULL;
  if (recorded) {
    *stream_out = event->mark->stream;
    *position_out = event->mark->position;
  }
  pthread_mutex_unlock(&event->lock);
  return recorded;
}

/* 0 where the stream has not come to the mark, or nothing was recorded. */
static uint64_t event_time_ns(struct event *event) {
  pthread_mutex_lock(&event->lock);
  uint64_t time_ns = 0;
  if (event->mark != NULL && fake_stream_reached(event->mark->stream, event->mark->position)) {
    time_ns = atomic_load_explicit(&event->mark->time_ns, memory_order_relaxed);
  }
  pthread_mutex_unlock(&event->lock);
  return time_ns;
}

mr_cu_result cuEventCreate(mr_cu_event *event, unsigned flags) {
  mr_cu_result result = fake_enter(FAKE_cuEventCreate);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  if (event == NULL || flags > MAX_FLAGS) {
    return FAKE_INVALID_VALUE;
  }
  struct event *made = calloc(1, sizeof *made);
  uint64_t handle = made == NULL ? 0 : fake_handle_add(FAKE_EVENT, made);
  if (handle == 0) {
    free(made);
    return FAKE_OUT_OF_MEMORY;
  }
  pthread_mutex_init(&made->lock, NULL);
  made->timed = (flags & FLAG_DISABLE_TIMING) == 0;
  *event = (mr_cu_event)(uintptr_t)handle;
  return FAKE_SUCCESS;
}

mr_cu_result cuEventDestroy_v2(mr_cu_event event) {
  mr_cu_result told = fake_enter(FAKE_cuEventDestroy_v2);
  struct event *found = fake_handle_remove(FAKE_EVENT, (uintptr_t)event);
  if (found == NULL) {
    return fake_first(told, FAKE_INVALID_HANDLE);
  }
  event_destroy(found);
  return told;
}

mr_cu_result cuEventRecord(mr_cu_event event, mr_cu_stream stream) {
  mr_cu_result result = fake_enter(FAKE_cuEventRecord);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  struct event *found = event_of(event);
  struct fake_stream *on = fake_stream_find(stream);
  if (found == NULL || on == NULL) {
    return FAKE_INVALID_HANDLE;
  }
  struct mark *mark = calloc(1, sizeof *mark);
  MR_ASSERT(mark != NULL);
  mark->stream = on;
  atomic_init(&mark->references, 2);
  struct fake_item *item = fake_item_create(run_mark, sizeof mark, false);
  *(struct mark **)(void *)item->payload = mark;
  pthread_mutex_lock(&found->lock);
  mark_release(found->mark);
  mark->position = fake_stream_push(on, item);
  found->mark = mark;
  pthread_mutex_unlock(&found->lock);
  return FAKE_SUCCESS;
}

mr_cu_result cuStreamWaitEvent(mr_cu_stream stream, mr_cu_event event, unsigned flags) {
  mr_cu_result result = fake_enter(FAKE_cuStreamWaitEvent);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  struct event *found = event_of(event);
  struct fake_stream *waiting = fake_stream_find(stream);
  if (found == NULL || waiting == NULL) {
    return FAKE_INVALID_HANDLE;
  }
  if (flags != 0) {
    return FAKE_INVALID_VALUE;
  }
  struct fake_stream *awaited = NULL;
  uint32_t position = 0;
  if (event_position(found, &awaited, &position) && awaited != waiting) {
    fake_stream_push_wait(waiting, awaited, position);
  }
  return FAKE_SUCCESS;
}

mr_cu_result cuEventQuery(mr_cu_event event) {
  mr_cu_result result = fake_enter(FAKE_cuEventQuery);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  struct event *found = event_of(event);
  if (found == NULL) {
    return FAKE_INVALID_HANDLE;
  }
  struct fake_stream *stream = NULL;
  uint32_t position = 0;
  if (event_position(found, &stream, &position) && !fake_stream_reached(stream, position)) {
    return FAKE_NOT_READY;
  }
  return fake_sticky();
}

mr_cu_result cuEventElapsedTime(float *milliseconds, mr_cu_event from, mr_cu_event to) {
  mr_cu_result result = fake_enter(FAKE_cuEventElapsedTime);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  struct event *start = event_of(from);
  struct event *end = event_of(to);
  struct fake_stream *stream = NULL;
  uint32_t position = 0;
  if (start == NULL || end == NULL || !start->timed || !end->timed ||
      !event_position(start, &stream, &position) || !event_position(end, &stream, &position)) {
    return FAKE_INVALID_HANDLE;
  }
  uint64_t start_ns = event_time_ns(start);
  uint64_t end_ns = event_time_ns(end);
  if (start_ns == 0 || end_ns == 0) {
    return FAKE_NOT_READY;
  }
  *milliseconds = (float)((double)(int64_t)(end_ns - start_ns) * 1e-6);
  return FAKE_SUCCESS;
}

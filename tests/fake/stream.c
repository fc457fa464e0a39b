/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of the fake driver: a thread each, that carries out items in the order in which they were
 * pushed. A *position* is how many items of a stream are done when an item is; whoever waits for an
 * item waits for its stream's position.
 *
 * The null stream is the legacy one: what it gets waits for all that blocking streams (not made
 * with MR_CU_STREAM_NON_BLOCKING) have got, and what they get afterwards waits for it.
 *
 * A destroyed stream ends when its work is done; its thread is joined when the context goes. A
 * device that hangs keeps its context, and nobody joins any of its threads.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/fake/gate.h"
#include "tests/fake/state.h"

/* While a context lives: some hundred runs. */
#define MAX_STREAMS 4096u
/* Seeds of streams, from one seed to the next. */
#define SEED_STRIDE 1024u
/* Room in the queue is looked for so often, so that pushing does not order the pushing thread
 * behind the stream more than it must. */
#define ROOM_ITEMS (FAKE_QUEUE_ITEMS / 4)

struct fake_stream {
  pthread_t thread;
  pthread_mutex_t lock; /* of those who push */
  struct fake_item *items[FAKE_QUEUE_ITEMS];
  struct fake_gate pushed;
  struct fake_gate finished;
  uint32_t count; /* pushed so far */
  bool blocking;
  bool ended;
  uint32_t slowness; /* 0: prompt */
  struct mr_random random;
};

static struct {
  pthread_mutex_t lock;
  struct fake_stream *streams[MAX_STREAMS]; /* [0] is the null stream, once it was used */
  uint32_t count;
  bool hung;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Held shared by work. A device that breaks takes its work with it: nobody is told of it while some
 * goes on. */
static pthread_rwlock_t working = PTHREAD_RWLOCK_INITIALIZER;

struct fake_item *fake_item_create(void (*run)(void *payload), uint64_t payload_bytes, bool work) {
  struct fake_item *item = malloc(sizeof *item + payload_bytes);
  MR_ASSERT(item != NULL);
  item->run = run;
  item->work = work;
  return item;
}

static void sleep_ns(uint64_t ns) {
  struct timespec time = {.tv_sec = (time_t)(ns / 1000000000ull),
                          .tv_nsec = (long)(ns % 1000000000ull)};
  nanosleep(&time, NULL);
}

/* Half of the items come at once, most others a little later, some much later. */
static void dawdle(struct fake_stream *stream) {
  if (stream->slowness == 0) {
    return;
  }
  uint64_t turn = mr_random_below(&stream->random, 32);
  if (turn < 10) {
    sleep_ns(mr_random_below(&stream->random, 20000) * stream->slowness);
  } else if (turn < 16) {
    sleep_ns(mr_random_below(&stream->random, 400000) * stream->slowness);
  }
}

/* Never returns, nor does any thread of the device end in order any more. */
static _Noreturn void hang(void) {
  pthread_mutex_lock(&all.lock);
  for (uint32_t i = 0; i <= all.count && !all.hung; i++) {
    if (all.streams[i] != NULL) {
      pthread_detach(all.streams[i]->thread);
    }
  }
  all.hung = true;
  pthread_mutex_unlock(&all.lock);
  while (true) {
    (void)pause();
  }
}

static void run_item(struct fake_item *item) {
  if (!item->work) {
    item->run(item->payload);
    return;
  }
  pthread_rwlock_rdlock(&working);
  enum fake_item_fate fate = fake_enter_item();
  if (fate == FAKE_ITEM_RUNS) {
    item->run(item->payload);
  }
  pthread_rwlock_unlock(&working);
  if (fate == FAKE_ITEM_HANGS) {
    hang();
  }
}

void fake_stream_wait_work(void) {
  pthread_rwlock_wrlock(&working);
  pthread_rwlock_unlock(&working);
}

static void *stream_main(void *argument) {
  struct fake_stream *stream = argument;
  for (uint32_t position = 1;; position++) {
    fake_gate_wait(&stream->pushed, position);
    struct fake_item *item = stream->items[(position - 1) % FAKE_QUEUE_ITEMS];
    bool last = item->run == NULL;
    if (!last) {
      dawdle(stream);
      run_item(item);
    }
    free(item);
    fake_gate_set(&stream->finished, position);
    if (last) {
      return NULL;
    }
  }
}

static uint32_t push(struct fake_stream *stream, struct fake_item *item) {
  pthread_mutex_lock(&stream->lock);
  if (stream->count % ROOM_ITEMS == 0 && stream->count >= FAKE_QUEUE_ITEMS) {
    fake_gate_wait(&stream->finished, stream->count + ROOM_ITEMS - FAKE_QUEUE_ITEMS);
  }
  stream->items[stream->count % FAKE_QUEUE_ITEMS] = item;
  uint32_t position = ++stream->count;
  fake_gate_set(&stream->pushed, position);
  pthread_mutex_unlock(&stream->lock);
  return position;
}

static uint32_t pushed_count(struct fake_stream *stream) {
  pthread_mutex_lock(&stream->lock);
  uint32_t count = stream->count;
  pthread_mutex_unlock(&stream->lock);
  return count;
}

struct wait {
  struct fake_stream *awaited;
  uint32_t position;
};

static void run_wait(void *payload) {
  struct wait *wait = payload;
  fake_gate_wait(&wait->awaited->finished, wait->position);
}

void fake_stream_push_wait(struct fake_stream *stream, struct fake_stream *awaited,
                           uint32_t position) {
  struct fake_item *item = fake_item_create(run_wait, sizeof(struct wait), false);
  *(struct wait *)(void *)item->payload = (struct wait){awaited, position};
  push(stream, item);
}

/* The seed decides how late the stream is: one in three is prompt. Under the lock of all. */
static struct fake_stream *stream_create(uint32_t index, bool blocking) {
  static const uint32_t slowness[] = {0, 1, 4};
  struct fake_stream *stream = calloc(1, sizeof *stream);
  if (stream == NULL) {
    return NULL;
  }
  pthread_mutex_init(&stream->lock, NULL);
  stream->blocking = blocking;
  mr_random_init(&stream->random, fake_seed() * SEED_STRIDE + index);
  if (fake_seed() != 0) {
    stream->slowness = slowness[mr_random_below(&stream->random, MR_COUNT_OF(slowness))];
  }
  if (pthread_create(&stream->thread, NULL, stream_main, stream) != 0) {
    free(stream);
    return NULL;
  }
  if (all.hung) {
    pthread_detach(stream->thread);
  }
  return stream;
}

static struct fake_stream *null_stream(void) {
  pthread_mutex_lock(&all.lock);
  if (all.streams[0] == NULL) {
    all.streams[0] = stream_create(0, false);
    MR_ASSERT(all.streams[0] != NULL);
  }
  struct fake_stream *stream = all.streams[0];
  pthread_mutex_unlock(&all.lock);
  return stream;
}

struct fake_stream *fake_stream_find(mr_cu_stream handle) {
  return handle == NULL ? null_stream() : fake_handle_find(FAKE_STREAM, (uintptr_t)handle);
}

/* What the null stream and the blocking streams owe each other. */
static void order_with_null(struct fake_stream *stream) {
  pthread_mutex_lock(&all.lock);
  struct fake_stream *null = all.streams[0];
  if (stream == null) {
    for (uint32_t i = 1; i <= all.count; i++) {
      if (all.streams[i]->blocking) {
        fake_stream_push_wait(null, all.streams[i], pushed_count(all.streams[i]));
      }
    }
  } else if (stream->blocking && null != NULL) {
    fake_stream_push_wait(stream, null, pushed_count(null));
  }
  pthread_mutex_unlock(&all.lock);
}

uint32_t fake_stream_push(struct fake_stream *stream, struct fake_item *item) {
  order_with_null(stream);
  return push(stream, item);
}

int fake_stream_run(void *stream, void (*run)(void *payload), const void *payload,
                    uint64_t payload_bytes) {
  struct fake_stream *on = fake_stream_find(stream);
  mr_cu_result result = fake_first(fake_context_check(), fake_sticky());
  if (result != FAKE_SUCCESS || on == NULL) {
    return fake_first(result, FAKE_INVALID_HANDLE);
  }
  struct fake_item *item = fake_item_create(run, payload_bytes, true);
  memcpy(item->payload, payload, payload_bytes);
  fake_stream_push(on, item);
  return FAKE_SUCCESS;
}

void fake_stream_wait(struct fake_stream *stream, uint32_t position) {
  fake_gate_wait(&stream->finished, position);
}

bool fake_stream_reached(struct fake_stream *stream, uint32_t position) {
  return fake_gate_reached(&stream->finished, position);
}

void fake_stream_wait_all(void) {
  pthread_mutex_lock(&all.lock);
  for (uint32_t i = 0; i <= all.count; i++) {
    if (all.streams[i] != NULL) {
      fake_gate_wait(&all.streams[i]->finished, pushed_count(all.streams[i]));
    }
  }
  pthread_mutex_unlock(&all.lock);
}

static void stream_end(void *object) {
  struct fake_stream *stream = object;
  if (!stream->ended) {
    stream->ended = true;
    push(stream, fake_item_create(NULL, 0, false));
  }
}

void fake_stream_clear(void) {
  fake_handle_clear(FAKE_STREAM, stream_end);
  pthread_mutex_lock(&all.lock);
  if (all.streams[0] != NULL) {
    stream_end(all.streams[0]);
  }
  for (uint32_t i = 0; i <= all.count; i++) {
    struct fake_stream *stream = all.streams[i];
    if (stream != NULL) {
      MR_ASSERT(!all.hung);
      pthread_join(stream->thread, NULL);
    }
  }
  /* Only now: a stream may have waited for another. */
  for (uint32_t i = 0; i <= all.count; i++) {
    free(all.streams[i]);
    all.streams[i] = NULL;
  }
  all.count = 0;
  pthread_mutex_unlock(&all.lock);
}

mr_cu_result cuStreamCreateWithPriority(mr_cu_stream *stream, unsigned flags, int priority) {
  (void)priority; /* any number is one; it is clamped */
  mr_cu_result result = fake_enter(FAKE_cuStreamCreateWithPriority);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  if (stream == NULL || flags > MR_CU_STREAM_NON_BLOCKING) {
    return FAKE_INVALID_VALUE;
  }
  result = FAKE_OUT_OF_MEMORY;
  pthread_mutex_lock(&all.lock);
  if (all.count + 1 < MAX_STREAMS) {
    struct fake_stream *made =
        stream_create(all.count + 1, (flags & MR_CU_STREAM_NON_BLOCKING) == 0);
    if (made != NULL) {
      all.streams[++all.count] = made;
      *stream = (mr_cu_stream)(uintptr_t)fake_handle_add(FAKE_STREAM, made);
      result = FAKE_SUCCESS;
    }
  }
  pthread_mutex_unlock(&all.lock);
  return result;
}

mr_cu_result cuStreamDestroy_v2(mr_cu_stream stream) {
  mr_cu_result told = fake_enter(FAKE_cuStreamDestroy_v2);
  struct fake_stream *found = fake_handle_remove(FAKE_STREAM, (uintptr_t)stream);
  if (found == NULL) {
    return fake_first(told, FAKE_INVALID_HANDLE);
  }
  stream_end(found);
  return told;
}

mr_cu_result cuStreamSynchronize(mr_cu_stream stream) {
  mr_cu_result result = fake_enter(FAKE_cuStreamSynchronize);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  struct fake_stream *found = fake_stream_find(stream);
  if (found == NULL) {
    return FAKE_INVALID_HANDLE;
  }
  fake_gate_wait(&found->finished, pushed_count(found));
  return fake_sticky();
}

mr_cu_result cuStreamQuery(mr_cu_stream stream) {
  mr_cu_result result = fake_enter(FAKE_cuStreamQuery);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  struct fake_stream *found = fake_stream_find(stream);
  if (found == NULL) {
    return FAKE_INVALID_HANDLE;
  }
  return fake_gate_reached(&found->finished, pushed_count(found)) ? fake_sticky() : FAKE_NOT_READY;
}

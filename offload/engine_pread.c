/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine on threads, for where io_uring is refused: eight workers that each wait in pread or
 * pwrite. Transfers go round in one bounded ring and their results in another.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "offload/private.h"

/* Eight reach what the disk can do with 512 KiB transfers; four do not. */
#define WORKERS 8u

struct mr_engine {
  int fd;
  pthread_mutex_t lock;
  pthread_cond_t work;   /* for workers */
  pthread_cond_t answer; /* for the lane */
  struct mr_engine_io waiting[MR_STORE_SLOTS];
  uint32_t waiting_first, waiting_count;
  struct mr_engine_result finished[MR_STORE_SLOTS];
  uint32_t finished_first, finished_count;
  bool woken;
  bool stopping;
  pthread_t workers[WORKERS];
  uint32_t worker_count;
};

static int32_t move(int fd, const struct mr_engine_io *io) {
  ssize_t moved = io->write ? pwrite(fd, io->buffer, io->bytes, (off_t)io->offset_bytes)
                            : pread(fd, io->buffer, io->bytes, (off_t)io->offset_bytes);
  return moved < 0 ? -errno : (int32_t)moved;
}

static void *work(void *context) {
  struct mr_engine *engine = context;
  pthread_mutex_lock(&engine->lock);
  for (;;) {
    while (engine->waiting_count == 0 && !engine->stopping) {
      pthread_cond_wait(&engine->work, &engine->lock);
    }
    if (engine->waiting_count == 0) {
      break;
    }
    struct mr_engine_io io = engine->waiting[engine->waiting_first];
    engine->waiting_first = (engine->waiting_first + 1) % MR_STORE_SLOTS;
    engine->waiting_count--;
    pthread_mutex_unlock(&engine->lock);
    int32_t result = move(engine->fd, &io);
    pthread_mutex_lock(&engine->lock);
    MR_ASSERT(engine->finished_count < MR_STORE_SLOTS);
    uint32_t end = (engine->finished_first + engine->finished_count) % MR_STORE_SLOTS;
    engine->finished[end] = (struct mr_engine_result){.slot = io.slot, .result = result};
    engine->finished_count++;
    pthread_cond_signal(&engine->answer);
  }
  pthread_mutex_unlock(&engine->lock);
  return NULL;
}

static void pread_destroy(struct mr_engine *engine) {
  pthread_mutex_lock(&engine->lock);
  engine->stopping = true;
  pthread_cond_broadcast(&engine->work);
  pthread_mutex_unlock(&engine->lock);
  for (uint32_t i = 0; i < engine->worker_count; i++) {
    pthread_join(engine->workers[i], NULL);
  }
  pthread_cond_destroy(&engine->answer);
  pthread_cond_destroy(&engine->work);
  pthread_mutex_destroy(&engine->lock);
  free(engine);
}

static mr_status pread_create(const struct mr_engine_config *config, struct mr_engine **engine_out,
                              int *reason_out) {
  (void)reason_out;
  MR_ASSERT(config->slot_count <= MR_STORE_SLOTS);
  struct mr_engine *engine = mr_allocate(1, sizeof *engine);
  if (engine == NULL) {
    return MR_NO_MEMORY;
  }
  engine->fd = config->fd;
  pthread_mutex_init(&engine->lock, NULL);
  pthread_cond_init(&engine->work, NULL);
  pthread_cond_init(&engine->answer, NULL);
  for (uint32_t i = 0; i < WORKERS; i++) {
    int error = pthread_create(&engine->workers[i], NULL, work, engine);
    if (error != 0) {
      mr_log(MR_LOG_ERROR, "nvme %s: no thread for input and output: %s", config->path,
             strerror(error));
      pread_destroy(engine);
      return MR_NO_MEMORY;
    }
    engine->worker_count++;
  }
  *engine_out = engine;
  return MR_OK;
}

static void pread_submit(struct mr_engine *engine, const struct mr_engine_io *io) {
  pthread_mutex_lock(&engine->lock);
  MR_ASSERT(engine->waiting_count < MR_STORE_SLOTS);
  uint32_t end = (engine->waiting_first + engine->waiting_count) % MR_STORE_SLOTS;
  engine->waiting[end] = *io;
  engine->waiting_count++;
  pthread_cond_signal(&engine->work);
  pthread_mutex_unlock(&engine->lock);
}

static uint32_t pread_reap(struct mr_engine *engine, struct mr_engine_result *results,
                           uint32_t limit, bool wait) {
  pthread_mutex_lock(&engine->lock);
  while (wait && engine->finished_count == 0 && !engine->woken) {
    pthread_cond_wait(&engine->answer, &engine->lock);
  }
  engine->woken = false;
  uint32_t count = 0;
  while (count < limit && engine->finished_count > 0) {
    results[count++] = engine->finished[engine->finished_first];
    engine->finished_first = (engine->finished_first + 1) % MR_STORE_SLOTS;
    engine->finished_count--;
  }
  pthread_mutex_unlock(&engine->lock);
  return count;
}

static void pread_wake(struct mr_engine *engine) {
  pthread_mutex_lock(&engine->lock);
  engine->woken = true;
  pthread_cond_signal(&engine->answer);
  pthread_mutex_unlock(&engine->lock);
}

const struct mr_engine_table mr_engine_pread = {
    .name = "pread",
    .create = pread_create,
    .submit = pread_submit,
    .reap = pread_reap,
    .wake = pread_wake,
    .destroy = pread_destroy,
};

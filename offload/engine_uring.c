/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine on io_uring: one ring, made and used by one thread, with the pool registered. The
 * file is not: the kernel takes a ring apart some time after it is closed, and would hold the space
 * of a registered file till then. Each transfer is submitted at once, because disks with few queue
 * slots idle while a batch is gathered. Wakes come through an eventfd that the ring itself reads,
 * so that the thread waits in one place.
 */
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "offload/private.h"

/* Slots, the eventfd's read and room to spare, so that a submission entry is always free. */
#define RING_ENTRIES 64u
#define WAKE_TOKEN   UINT64_MAX

struct mr_engine {
  struct io_uring ring;
  const char *path;
  int event_fd;
  uint64_t event_value;
  bool pool_registered;
  int fd;
};

/* The fewer interruptions first; older kernels refuse what they do not know. */
static int init_ring(struct mr_engine *engine) {
  static const unsigned flag_sets[] = {
      IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CLAMP,
      IORING_SETUP_COOP_TASKRUN | IORING_SETUP_CLAMP,
      0,
  };
  int result = -EINVAL;
  for (uint32_t i = 0; i < MR_COUNT_OF(flag_sets) && result == -EINVAL; i++) {
    struct io_uring_params params = {.flags = flag_sets[i]};
    result = io_uring_queue_init_params(RING_ENTRIES, &engine->ring, &params);
  }
  return result;
}

static struct io_uring_sqe *next_entry(struct mr_engine *engine) {
  struct io_uring_sqe *entry = io_uring_get_sqe(&engine->ring);
  if (entry == NULL) {
    /* The kernel has not taken what was handed over: hand it over again. */
    io_uring_submit(&engine->ring);
    entry = io_uring_get_sqe(&engine->ring);
  }
  MR_ASSERT(entry != NULL);
  return entry;
}

static void arm_wake(struct mr_engine *engine) {
  struct io_uring_sqe *entry = next_entry(engine);
  io_uring_prep_read(entry, engine->event_fd, &engine->event_value, sizeof engine->event_value, 0);
  io_uring_sqe_set_data64(entry, WAKE_TOKEN);
}

static void register_pool(struct mr_engine *engine, const struct mr_engine_config *config) {
  struct iovec pool = {.iov_base = config->pool, .iov_len = config->pool_bytes};
  int result = io_uring_register_buffers(&engine->ring, &pool, 1);
  engine->pool_registered = result == 0;
  if (result != 0) {
    mr_log(MR_LOG_INFO, "nvme %s: the pool of %llu bytes is not registered (%s); see ulimit -l",
           config->path, (unsigned long long)config->pool_bytes, strerror(-result));
  }
}

static mr_status uring_create(const struct mr_engine_config *config, struct mr_engine **engine_out,
                              int *reason_out) {
  MR_ASSERT(config->slot_count < RING_ENTRIES);
  struct mr_engine *engine = mr_allocate(1, sizeof *engine);
  if (engine == NULL) {
    return MR_NO_MEMORY;
  }
  mr_status status = MR_UNSUPPORTED;
  engine->path = config->path;
  engine->fd = config->fd;
  int result = init_ring(engine);
  if (result != 0) {
    *reason_out = -result;
    goto fail_engine;
  }
  engine->event_fd = eventfd(0, EFD_CLOEXEC);
  if (engine->event_fd < 0) {
    *reason_out = errno;
    goto fail_ring;
  }
  register_pool(engine, config);
  arm_wake(engine);
  io_uring_submit(&engine->ring);
  *engine_out = engine;
  return MR_OK;

fail_ring:
  io_uring_queue_exit(&engine->ring);
fail_engine:
  free(engine);
  return status;
}

static void uring_submit(struct mr_engine *engine, const struct mr_engine_io *io) {
  struct io_uring_sqe *entry = next_entry(engine);
  int fd = engine->fd;
  bool fixed = io->in_pool && engine->pool_registered;
  if (io->write && fixed) {
    io_uring_prep_write_fixed(entry, fd, io->buffer, io->bytes, io->offset_bytes, 0);
  } else if (io->write) {
    io_uring_prep_write(entry, fd, io->buffer, io->bytes, io->offset_bytes);
  } else if (fixed) {
    io_uring_prep_read_fixed(entry, fd, io->buffer, io->bytes, io->offset_bytes, 0);
  } else {
    io_uring_prep_read(entry, fd, io->buffer, io->bytes, io->offset_bytes);
  }
  io_uring_sqe_set_data64(entry, io->slot);
  /* What the kernel does not take now stays in the ring and goes with the next call. */
  io_uring_submit(&engine->ring);
}

static uint32_t uring_reap(struct mr_engine *engine, struct mr_engine_result *results,
                           uint32_t limit, bool wait) {
  if (wait) {
    io_uring_submit_and_wait(&engine->ring, 1);
  } else {
    io_uring_submit_and_get_events(&engine->ring);
  }
  uint32_t count = 0;
  bool woken = false;
  struct io_uring_cqe *completion = NULL;
  while (count < limit && io_uring_peek_cqe(&engine->ring, &completion) == 0) {
    uint64_t token = io_uring_cqe_get_data64(completion);
    if (token == WAKE_TOKEN) {
      woken = true;
    } else {
      results[count++] =
          (struct mr_engine_result){.slot = (uint32_t)token, .result = completion->res};
    }
    io_uring_cqe_seen(&engine->ring, completion);
  }
  if (woken) {
    arm_wake(engine); /* submitted by the next reap at the latest, before it sleeps */
  }
  return count;
}

static void uring_wake(struct mr_engine *engine) {
  uint64_t one = 1;
  ssize_t written = 0;
  do {
    written = write(engine->event_fd, &one, sizeof one);
  } while (written < 0 && errno == EINTR);
}

static void uring_destroy(struct mr_engine *engine) {
  if (engine->pool_registered) { /* else its locked memory counts until the ring is taken apart */
    io_uring_unregister_buffers(&engine->ring);
  }
  io_uring_queue_exit(&engine->ring);
  close(engine->event_fd);
  free(engine);
}

const struct mr_engine_table mr_engine_uring = {
    .name = "uring",
    .create = uring_create,
    .submit = uring_submit,
    .reap = uring_reap,
    .wake = uring_wake,
    .destroy = uring_destroy,
};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine moves bytes between one file and memory. Its lane's thread creates it, submits to it,
 * reaps from it and destroys it; only `wake` may be called by others. An engine reports what the
 * kernel said and judges nothing.
 */
#ifndef MEMRUN_OFFLOAD_ENGINE_H
#define MEMRUN_OFFLOAD_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include <memrun/status.h>

struct mr_engine_config {
  int fd;
  const char *path; /* for log lines; outlives the engine */
  void *pool;
  uint64_t pool_bytes;
  uint32_t slot_count; /* transfers in flight at most */
};

struct mr_engine_io {
  bool write;
  bool in_pool; /* `buffer` lies in the pool */
  uint32_t slot;
  uint32_t bytes;
  void *buffer;
  uint64_t offset_bytes;
};

struct mr_engine_result {
  uint32_t slot;
  int32_t result; /* bytes moved, or -errno */
};

struct mr_engine;

struct mr_engine_table {
  const char *name;
  /* MR_UNSUPPORTED (the reason in *reason_out as an errno, nothing logged) where the kernel refuses
   * this kind of engine. */
  mr_status (*create)(const struct mr_engine_config *config, struct mr_engine **engine_out,
                      int *reason_out);
  void (*submit)(struct mr_engine *engine, const struct mr_engine_io *io);
  /* Returns how many results were written; where `wait`, blocks until there is one or a wake. */
  uint32_t (*reap)(struct mr_engine *engine, struct mr_engine_result *results, uint32_t limit,
                   bool wait);
  void (*wake)(struct mr_engine *engine);
  void (*destroy)(struct mr_engine *engine); /* nothing is in flight */
};

extern const struct mr_engine_table mr_engine_pread;
#ifdef MEMRUN_HAVE_URING
extern const struct mr_engine_table mr_engine_uring;
#endif

#endif

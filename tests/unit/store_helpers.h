/* SPDX-License-Identifier: Apache-2.0 */
/* What the store's tests share: directories to throw away, patterns, and requests that are waited
 * for. */
#ifndef MEMRUN_TESTS_UNIT_STORE_HELPERS_H
#define MEMRUN_TESTS_UNIT_STORE_HELPERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "offload/offload.h"
#include "offload/private.h"

#define CHUNK MR_STORE_CHUNK_BYTES

/* Counts error lines, so that a test can see that a fault is said once. */
static struct {
  _Atomic uint32_t errors;
  _Atomic uint32_t warnings;
  char last_error[1024];
} test_log;

static inline void test_log_sink(void *context, mr_log_level level, const char *line) {
  (void)context;
  if (level == MR_LOG_ERROR) {
    atomic_fetch_add(&test_log.errors, 1);
    snprintf(test_log.last_error, sizeof test_log.last_error, "%s", line);
  } else if (level == MR_LOG_WARN) {
    atomic_fetch_add(&test_log.warnings, 1);
  }
}

static inline void test_log_start(void) {
  mr_log_configure(test_log_sink, NULL, MR_LOG_WARN);
}

static inline void test_log_reset(void) {
  atomic_store(&test_log.errors, 0);
  atomic_store(&test_log.warnings, 0);
  test_log.last_error[0] = '\0';
}

#define TEST_DIRECTORIES 3u
static char test_directories[TEST_DIRECTORIES][64];

static inline int test_directories_make(void **state) {
  (void)state;
  for (uint32_t i = 0; i < TEST_DIRECTORIES; i++) {
    snprintf(test_directories[i], sizeof test_directories[i], "store-test-XXXXXX");
    if (mkdtemp(test_directories[i]) == NULL) {
      return -1;
    }
  }
  return 0;
}

/* Fails where a store has left something behind. */
static inline int test_directories_remove(void **state) {
  (void)state;
  int result = 0;
  for (uint32_t i = 0; i < TEST_DIRECTORIES; i++) {
    result |= rmdir(test_directories[i]);
  }
  return result;
}

static inline struct mr_store_options test_options(uint32_t path_count, uint64_t chunks) {
  struct mr_store_options options = {.path_count = path_count,
                                     .capacity_bytes = chunks * CHUNK,
                                     .engine = MR_IO_PREAD,
                                     .mode = MR_STORE_STAGED,
                                     .checksums = true,
                                     .timeout_seconds = 30};
  for (uint32_t i = 0; i < path_count; i++) {
    options.paths[i] = (struct mr_nvme_path){test_directories[i], MR_BUDGET_AUTO};
  }
  return options;
}

/* The engines that this machine lets us use. */
static inline uint32_t test_engines(mr_io_engine engines_out[2]) {
  uint32_t count = 0;
  engines_out[count++] = MR_IO_PREAD;
#ifdef MEMRUN_HAVE_URING
  struct mr_store_options options = test_options(1, 1);
  options.engine = MR_IO_URING;
  struct mr_store *store = NULL;
  if (mr_store_create(&options, &store) == MR_OK) {
    engines_out[count++] = MR_IO_URING;
    mr_store_destroy(store);
  } else {
    print_message("io_uring is refused here; testing the threads alone\n");
  }
#endif
  return count;
}

static inline uint8_t *test_memory(uint64_t bytes) {
  void *memory = NULL;
  assert_int_equal(posix_memalign(&memory, 4096, mr_round_up(bytes, 4096)), 0);
  return memory;
}

/* Bytes that depend on the place and the version, so that any mistaken chunk is seen. */
static inline void test_fill(uint8_t *data, uint64_t bytes, uint64_t offset, uint64_t version) {
  struct mr_random random;
  uint64_t words = bytes / 8;
  mr_random_init(&random, version * 0x100000001ull + offset);
  for (uint64_t i = 0; i < words; i++) {
    uint64_t value = (i % 64 == 0) ? mr_random_u64(&random) : random.state[0] + i;
    memcpy(data + 8 * i, &value, 8);
  }
  memset(data + 8 * words, (int)(version & 0xff), bytes % 8);
}

static inline mr_status test_move(struct mr_store *store, uint32_t extent, bool write,
                                  uint64_t offset, uint64_t bytes, void *data) {
  struct mr_store_request request = {.extent = extent,
                                     .write = write,
                                     .io_class = write ? MR_IO_WRITE_BACK : MR_IO_DEMAND,
                                     .offset_bytes = offset,
                                     .bytes = bytes,
                                     .data = data};
  return mr_store_transfer(store, &request);
}

#endif

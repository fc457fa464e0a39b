/* SPDX-License-Identifier: Apache-2.0 */
/* What the system does with a process that has a store: stops it for a while, and gives back what
 * it had. In memory, where no transfer is late by itself. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/unit/store_helpers.h"

#define PLACE  "/dev/shm"
#define CHUNKS 64u
#define STOPS  4u
#define ROUNDS 10u

static mr_io_engine engines[2];
static uint32_t engine_count;

static uint64_t free_bytes(void) {
  struct statfs status;
  assert_int_equal(statfs(PLACE, &status), 0);
  return (uint64_t)status.f_bavail * (uint64_t)status.f_bsize;
}

static void need_room(uint64_t bytes) {
  if (access(PLACE, W_OK) != 0 || free_bytes() < bytes) {
    print_message("no %s with room for %llu bytes\n", PLACE, (unsigned long long)bytes);
    skip();
  }
}

static struct mr_store_options options_in_memory(mr_io_engine engine, uint64_t chunks) {
  struct mr_store_options options = test_options(1, chunks);
  options.paths[0] = (struct mr_nvme_path){PLACE, MR_BUDGET_AUTO};
  options.engine = engine;
  return options;
}

static void nap(double seconds) {
  struct timespec pause = {.tv_sec = (time_t)seconds,
                           .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
  nanosleep(&pause, NULL);
}

/* Writes until it is told to end; the status of a write that fails. */
static int keep_writing(mr_io_engine engine, const _Atomic bool *end) {
  struct mr_store_options options = options_in_memory(engine, CHUNKS);
  struct mr_store *store = NULL;
  uint32_t extent = 0;
  uint8_t *data = test_memory(CHUNKS * CHUNK);
  options.timeout_seconds = 1;
  test_fill(data, CHUNKS * CHUNK, 0, 7);
  mr_status status = mr_store_create(&options, &store);
  if (status == MR_OK) {
    status = mr_store_extent_create(store, CHUNKS * CHUNK, "h.7.weight", &extent);
  }
  while (status == MR_OK && !atomic_load(end)) {
    status = test_move(store, extent, true, 0, CHUNKS * CHUNK, data);
  }
  mr_store_destroy(store);
  free(data);
  return (int)status;
}

/* The clock goes on while a process is stopped, and its transfers do too: none of them is stuck. */
static void test_stopped(void **state) {
  (void)state;
  need_room(4 * CHUNKS * CHUNK);
  for (uint32_t i = 0; i < engine_count; i++) {
    void *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    _Atomic bool *end = shared;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      _exit(keep_writing(engines[i], end));
    }
    for (uint32_t j = 0; j < STOPS; j++) {
      nap(0.3);
      kill(child, SIGSTOP);
      nap(1.4);
      kill(child, SIGCONT);
    }
    nap(0.1);
    atomic_store(end, true);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), MR_OK);
    munmap(shared, 4096);
  }
}

/* What a store had is there for the next one as soon as it is destroyed. */
static void test_space_at_once(void **state) {
  (void)state;
  uint64_t bytes = 4 * CHUNKS * CHUNK;
  need_room(2 * bytes);
  uint8_t *data = test_memory(CHUNK);
  test_fill(data, CHUNK, 0, 8);
  for (uint32_t i = 0; i < engine_count; i++) {
    for (uint32_t round = 0; round < ROUNDS; round++) {
      struct mr_store_options options = options_in_memory(engines[i], 4 * CHUNKS);
      struct mr_store *store = NULL;
      uint32_t extent = 0;
      uint64_t before = free_bytes();
      assert_int_equal(mr_store_create(&options, &store), MR_OK);
      assert_true(free_bytes() <= before - bytes / 2);
      assert_int_equal(mr_store_extent_create(store, CHUNK, "h.8.weight", &extent), MR_OK);
      assert_int_equal(test_move(store, extent, true, 0, CHUNK, data), MR_OK);
      assert_true(mr_store_destroy(store));
      assert_true(free_bytes() >= before - bytes / 2); /* others may take a little */
    }
  }
  free(data);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_stopped),
      cmocka_unit_test(test_space_at_once),
  };
  if (test_directories_make(NULL) != 0) {
    return 1;
  }
  test_log_start();
  engine_count = test_engines(engines);
  int failed = cmocka_run_group_tests_name("store_system", tests, NULL, NULL);
  return failed + (test_directories_remove(NULL) != 0 ? 1 : 0);
}

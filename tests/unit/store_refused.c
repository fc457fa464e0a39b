/* SPDX-License-Identifier: Apache-2.0 */
/* What systems refuse: io_uring (as containers do), locked memory, direct I/O, space. Each in a
 * process of its own, because the refusals cannot be taken back. Exit status 77 skips. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/unit/store_helpers.h"

#define SKIP 77
#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                              \
      return 1;                                                                                    \
    }                                                                                              \
  } while (0)

/* Runs `body` in a child; skips where it says so. */
static void in_child(int (*body)(void)) {
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    _exit(body());
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  if (WEXITSTATUS(status) == SKIP) {
    skip();
  }
  assert_int_equal(WEXITSTATUS(status), 0);
}

static int refuse_uring(uint32_t error) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {.len = (unsigned short)MR_COUNT_OF(filter), .filter = filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    return SKIP;
  }
  return 0;
}

/* Writes and reads an extent of `chunks` and compares. */
static int move_about(struct mr_store *store, uint32_t chunks) {
  uint8_t *data = NULL;
  uint8_t *back = NULL;
  uint32_t extent = 0;
  CHECK(posix_memalign((void **)&data, 4096, chunks * CHUNK) == 0);
  CHECK(posix_memalign((void **)&back, 4096, chunks * CHUNK) == 0);
  test_fill(data, chunks * CHUNK, 0, 5);
  CHECK(mr_store_extent_create(store, chunks * CHUNK, "moved", &extent) == MR_OK);
  CHECK(test_move(store, extent, true, 0, chunks * CHUNK, data) == MR_OK);
  CHECK(test_move(store, extent, false, 0, chunks * CHUNK, back) == MR_OK);
  CHECK(memcmp(data, back, chunks * CHUNK) == 0);
  mr_store_extent_destroy(store, extent);
  free(data);
  free(back);
  return 0;
}

static int run_without_uring(uint32_t error) {
  int refused = refuse_uring(error);
  if (refused != 0) {
    return refused;
  }
  struct mr_store_options options = test_options(TEST_DIRECTORIES, 40);
  struct mr_store *store = NULL;
  options.engine = MR_IO_URING;
  test_log_reset();
  CHECK(mr_store_create(&options, &store) == MR_UNSUPPORTED);
  CHECK(test_log.errors == 1);
  test_log_reset();
  options.engine = MR_IO_AUTO;
  CHECK(mr_store_create(&options, &store) == MR_OK);
  CHECK(test_log.warnings == 1 && test_log.errors == 0); /* once, not for each path */
  struct mr_store_stats stats;
  mr_store_get_stats(store, &stats);
  CHECK(!stats.uring);
  int result = move_about(store, 40);
  mr_store_destroy(store);
  return result;
}

static int run_eperm(void) {
  return run_without_uring(EPERM);
}

static int run_enosys(void) {
  return run_without_uring(ENOSYS);
}

static void test_uring_refused(void **state) {
  (void)state;
  in_child(run_eperm);
  in_child(run_enosys);
}

/* Without privileges and with little memory to lock the pool is smaller or not registered. */
static int run_little_memlock(void) {
  struct rlimit limit = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
  CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
  for (uint32_t i = 0; i < TEST_DIRECTORIES; i++) {
    CHECK(chmod(test_directories[i], 0777) == 0);
  }
  CHECK(geteuid() != 0 || setuid(65534) == 0);
  struct mr_store_options options = test_options(1, 40);
  struct mr_store *store = NULL;
  options.engine = MR_IO_AUTO;
  mr_status status = mr_store_create(&options, &store);
  if (status == MR_IO) {
    return SKIP; /* the build folder is closed to others */
  }
  CHECK(status == MR_OK);
  CHECK(store->lanes[0].slot_count == MR_STORE_SLOTS_SMALL);
  int result = move_about(store, 40);
  mr_store_destroy(store);
  return result;
}

static void test_little_memlock(void **state) {
  (void)state;
  in_child(run_little_memlock);
}

static int run_tmpfs(void) {
  struct statfs system;
  if (statfs("/dev/shm", &system) != 0 || access("/dev/shm", W_OK) != 0) {
    return SKIP;
  }
  struct mr_store_options options = test_options(1, 20);
  options.paths[0].path = "/dev/shm";
  options.engine = MR_IO_AUTO;
  options.mode = MR_STORE_DIRECT;
  struct mr_store *store = NULL;
  test_log_reset();
  CHECK(mr_store_create(&options, &store) == MR_OK);
  CHECK(test_log.errors == 0 && test_log.warnings >= 1);
  struct mr_store_stats stats;
  mr_store_get_stats(store, &stats);
  CHECK(!stats.direct_io);
  int result = move_about(store, 20);
  mr_store_destroy(store);
  return result;
}

static void test_buffered_where_direct_is_refused(void **state) {
  (void)state;
  in_child(run_tmpfs);
}

/* A small file system of our own; SKIP where that is not allowed. */
static int mount_small(void) {
  if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
      mount("none", test_directories[0], "tmpfs", 0, "size=16m") != 0) {
    return SKIP;
  }
  return 0;
}

static uint64_t free_bytes(void) {
  struct statfs system = {0};
  return statfs(test_directories[0], &system) == 0
             ? (uint64_t)system.f_bavail * (uint64_t)system.f_bsize
             : UINT64_MAX;
}

static int run_full(void) {
  int refused = mount_small();
  if (refused != 0) {
    return refused;
  }
  uint64_t before = free_bytes();
  struct mr_store *store = NULL;
  struct mr_store_options options = test_options(1, 64); /* 32 MiB */
  test_log_reset();
  CHECK(mr_store_create(&options, &store) == MR_NO_SPACE);
  CHECK(test_log.errors == 1);
  CHECK(strstr(test_log.last_error, test_directories[0]) != NULL);
  CHECK(free_bytes() == before);
  /* Two paths on one file system, each thinking that it has the space to itself. */
  options = test_options(2, 40);
  options.paths[1].path = test_directories[0];
  test_log_reset();
  CHECK(mr_store_create(&options, &store) == MR_NO_SPACE);
  CHECK(test_log.errors == 1);
  CHECK(free_bytes() == before);
  return 0;
}

/* Someone takes the reserved space away: the write that finds out says so. */
static int run_filled_behind(void) {
  int refused = mount_small();
  if (refused != 0) {
    return refused;
  }
  struct mr_store *store = NULL;
  struct mr_store_options options = test_options(1, 20);
  CHECK(mr_store_create(&options, &store) == MR_OK);
  CHECK(fallocate(store->lanes[0].fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 20 * CHUNK) ==
        0);
  char name[128];
  snprintf(name, sizeof name, "%s/filler", test_directories[0]);
  int filler = open(name, O_RDWR | O_CREAT, 0600);
  CHECK(filler >= 0);
  CHECK(posix_fallocate(filler, 0, (off_t)(free_bytes() - 2 * CHUNK)) == 0);
  uint8_t *data = NULL;
  uint32_t extent = 0;
  CHECK(posix_memalign((void **)&data, 4096, 20 * CHUNK) == 0);
  memset(data, 1, 20 * CHUNK);
  CHECK(mr_store_extent_create(store, 20 * CHUNK, "too late", &extent) == MR_OK);
  test_log_reset();
  CHECK(test_move(store, extent, true, 0, 20 * CHUNK, data) == MR_NO_SPACE);
  CHECK(test_log.errors == 1);
  CHECK(strstr(test_log.last_error, "too late") != NULL);
  mr_store_destroy(store);
  free(data);
  close(filler);
  return 0;
}

static void test_no_space(void **state) {
  (void)state;
  in_child(run_full);
  in_child(run_filled_behind);
}

static int run_file_size_limit(void) {
  struct rlimit limit = {.rlim_cur = 4 * CHUNK, .rlim_max = 4 * CHUNK};
  signal(SIGXFSZ, SIG_IGN);
  CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  struct mr_store *store = NULL;
  struct mr_store_options options = test_options(1, 8);
  test_log_reset();
  CHECK(mr_store_create(&options, &store) == MR_NO_SPACE);
  CHECK(test_log.errors == 1);
  return 0;
}

static void test_file_size_limit(void **state) {
  (void)state;
  in_child(run_file_size_limit);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_uring_refused),
      cmocka_unit_test(test_little_memlock),
      cmocka_unit_test(test_buffered_where_direct_is_refused),
      cmocka_unit_test(test_no_space),
      cmocka_unit_test(test_file_size_limit),
  };
  test_log_start();
  if (test_directories_make(NULL) != 0) {
    return 1;
  }
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  return failed + (test_directories_remove(NULL) != 0 ? 1 : 0);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* device/: pages keep their contents wherever they are bound, and the process never grows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "device/device.h"

/* Sanitizers keep memory of their own for every page. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* As kernels before 6.17 it refuses to move what is more than a mapping, when it has unmapped where
 * that was to go; the tests say when, whether it does so before, and whether another thread maps a
 * page there at once. */
static size_t most_remapped_bytes = SIZE_MAX;
static bool place_is_left;
static bool hole_is_taken;
static char *taken;

static void take_page(char *address) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
  taken = mmap(address, 4096, PROT_READ | PROT_WRITE, flags, -1, 0);
  assert_ptr_equal(taken, address);
  taken[0] = 42;
}

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): libc's are reserved */
void *mremap(void *from, size_t bytes, size_t new_bytes, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  void *to = va_arg(arguments, void *);
  va_end(arguments);
  if (bytes > most_remapped_bytes) {
    if (!place_is_left) {
      assert_int_equal(munmap(to, bytes), 0);
    }
    if (hole_is_taken) {
      take_page((char *)to + 4096);
    }
    errno = EFAULT;
    return MAP_FAILED;
  }
  long address = syscall(SYS_mremap, from, bytes, new_bytes, flags, to);
  return (void *)address; /* NOLINT(performance-no-int-to-ptr) */
}

#define RANGES      24u
#define RANGE_PAGES 4u

static uint64_t resident_bytes(void) {
  unsigned long long total = 0;
  unsigned long long resident = 0;
  FILE *file = fopen("/proc/self/statm", "re");
  assert_non_null(file);
  assert_int_equal(fscanf(file, "%llu %llu", &total, &resident), 2);
  fclose(file);
  return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

struct world {
  struct mr_device *device;
  uint64_t page_bytes;
  uint32_t page_count;
  uint32_t pages[RANGES][RANGE_PAGES];
  uint32_t counts[RANGES];
  uint64_t stamps[64]; /* what the test last wrote into each page */
};

static void world_init(struct world *world, uint64_t page_bytes, uint32_t page_count, bool at_home,
                       struct mr_random *random) {
  uint64_t range_bytes[RANGES];
  const uint32_t *range_pages[RANGES];
  *world = (struct world){.page_bytes = page_bytes, .page_count = page_count};
  for (uint32_t r = 0; r < RANGES; r++) {
    world->counts[r] = 1 + (uint32_t)mr_random_below(random, RANGE_PAGES);
    range_bytes[r] = world->counts[r] * page_bytes - mr_random_below(random, 100);
    uint32_t first = (uint32_t)mr_random_below(random, page_count);
    uint32_t stride = mr_random_below(random, 2) == 0 ? 1 : 5;
    for (uint32_t i = 0; i < world->counts[r]; i++) {
      world->pages[r][i] = (first + i * stride) % page_count;
    }
    range_pages[r] = world->pages[r];
  }
  struct mr_device_config config = {.page_bytes = page_bytes,
                                    .page_count = page_count,
                                    .small_bytes = 65536,
                                    .range_bytes = range_bytes,
                                    .range_pages = at_home ? range_pages : NULL,
                                    .range_count = RANGES};
  assert_int_equal(mr_device_cpu.create(&config, &world->device), MR_OK);
}

static char *page_of(struct world *world, uint32_t range, uint32_t index) {
  return (char *)mr_device_cpu.range_address(world->device, range) + index * world->page_bytes;
}

static void bind_and_check(struct world *world, uint32_t range, uint64_t stamp) {
  assert_int_equal(
      mr_device_cpu.bind(world->device, range, world->pages[range], world->counts[range]), MR_OK);
  for (uint32_t i = 0; i < world->counts[range]; i++) {
    uint32_t page = world->pages[range][i];
    uint64_t *words = (uint64_t *)(void *)page_of(world, range, i);
    uint64_t last = world->page_bytes / sizeof *words - 1;
    assert_int_equal(words[0], world->stamps[page]);
    assert_int_equal(words[last], world->stamps[page]);
    world->stamps[page] = stamp + i;
    words[0] = words[last] = stamp + i;
  }
}

/* Pages that have a stamp have been bound. */
static uint32_t stamped_page_count(const struct world *world, uint32_t page_count) {
  uint32_t count = 0;
  for (uint32_t page = 0; page < page_count; page++) {
    count += world->stamps[page] != 0;
  }
  return count;
}

static void contents_move_with_pages(uint64_t page_bytes, uint32_t page_count, bool at_home) {
  struct mr_random random;
  mr_random_init(&random, 20260101 + page_bytes);
  struct world world;
  world_init(&world, page_bytes, page_count, at_home, &random);
  uint64_t before = resident_bytes();
  for (uint64_t k = 0; k < 2000; k++) {
    bind_and_check(&world, (uint32_t)mr_random_below(&random, RANGES), 1000 * (k + 1));
    assert_int_equal(mr_device_cpu.bound_page_count(world.device),
                     stamped_page_count(&world, page_count));
  }
#if !SANITIZED
  uint64_t after = resident_bytes();
  assert_true(after < before + MR_MIB);
#else
  (void)before;
#endif
  mr_device_cpu.destroy(world.device);
}

static void small_pages_keep_contents(void **state) {
  (void)state;
  contents_move_with_pages(4096, 37, false);
  contents_move_with_pages(4096, 37, true);
  contents_move_with_pages(65536, 64, false);
  contents_move_with_pages(65536, 64, true);
}

static void huge_pages_keep_contents(void **state) {
  (void)state;
  contents_move_with_pages(MR_DEVICE_HUGE_PAGE_BYTES, 30, false);
  contents_move_with_pages(MR_DEVICE_HUGE_PAGE_BYTES, 30, true);
}

static void memory_is_resident_at_once(void **state) {
  (void)state;
#if SANITIZED
  skip();
#endif
  uint64_t before = resident_bytes();
  uint64_t range_bytes = 64 * MR_MIB;
  struct mr_device_config config = {.page_bytes = MR_DEVICE_HUGE_PAGE_BYTES,
                                    .page_count = 32,
                                    .small_bytes = 3 * MR_MIB,
                                    .range_bytes = &range_bytes,
                                    .range_count = 1};
  struct mr_device *device = NULL;
  assert_int_equal(mr_device_cpu.create(&config, &device), MR_OK);
  uint64_t grown = resident_bytes() - before;
  assert_true(grown >= 66 * MR_MIB && grown <= 68 * MR_MIB);
  const char *small = mr_device_cpu.small_address(device);
  for (uint32_t i = 0; i < 3 * MR_MIB; i += 4096) {
    assert_int_equal(small[i], 0);
  }
  mr_device_cpu.destroy(device);
  assert_true(resident_bytes() < before + MR_MIB);
}

/* A child that touches it ends by SIGSEGV. */
static bool faults(volatile char *address) {
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    signal(SIGSEGV, SIG_DFL);
    address[0] = 1;
    _exit(0);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

/* A range whose page was taken faults; it must not read zeros and grow. */
static void a_stale_access_faults(void **state) {
  (void)state;
  uint64_t range_bytes[2] = {4096, 4096};
  struct mr_device_config config = {
      .page_bytes = 4096, .page_count = 1, .range_bytes = range_bytes, .range_count = 2};
  struct mr_device *device = NULL;
  assert_int_equal(mr_device_cpu.create(&config, &device), MR_OK);
  uint32_t page = 0;
  assert_int_equal(mr_device_cpu.bind(device, 0, &page, 1), MR_OK);
  volatile char *first = mr_device_cpu.range_address(device, 0);
  first[0] = 42;
  assert_int_equal(mr_device_cpu.bind(device, 1, &page, 1), MR_OK);
  volatile char *second = mr_device_cpu.range_address(device, 1);
  assert_int_equal(second[0], 42);
  assert_true(faults(first));
  assert_false(faults(second));
  mr_device_cpu.destroy(device);
}

static void ignore_line(void *context, mr_log_level level, const char *line) {
  (void)context;
  (void)level;
  (void)line;
}

/* What another thread maps where pages are to go, while the kernel refuses to move them in one
 * call, stays there. */
static void a_hole_that_is_taken_is_left(void **state) {
  (void)state;
  static const uint32_t shuffled[] = {2, 3, 0, 1};
  const uint32_t *pages = shuffled;
  const uint64_t bytes = 4 * 4096;
  struct mr_device_config config = {.page_bytes = 4096,
                                    .page_count = 4,
                                    .range_bytes = &bytes,
                                    .range_pages = &pages,
                                    .range_count = 1};
  struct mr_device *device = NULL;
  assert_int_equal(mr_device_cpu.create(&config, &device), MR_OK);
  mr_log_configure(ignore_line, NULL, MR_LOG_ERROR);
  most_remapped_bytes = 4096;
  hole_is_taken = true;
  assert_int_equal(mr_device_cpu.bind(device, 0, shuffled, 4), MR_NO_MEMORY);
  hole_is_taken = false;
  most_remapped_bytes = SIZE_MAX;
  mr_log_configure(NULL, NULL, MR_LOG_WARN);
  assert_int_equal(taken[0], 42);
  mr_device_cpu.destroy(device);
}

/* Pages that follow one another are a range where they are; what had them elsewhere gives them
 * back, one by one where the kernel will have it so. */
static void check_neighbours(void) {
  enum { ALL, MIDDLE, SHUFFLED, COUNT };
  static const uint32_t all[] = {0, 1, 2, 3};
  static const uint32_t middle[] = {1, 2};
  static const uint32_t shuffled[] = {2, 3, 0, 1};
  static const uint32_t *const pages[COUNT] = {all, middle, shuffled};
  static const uint64_t bytes[COUNT] = {4 * 4096, 2 * 4096 - 7, 4 * 4096};
  struct mr_device_config config = {.page_bytes = 4096,
                                    .page_count = 4,
                                    .range_bytes = bytes,
                                    .range_pages = pages,
                                    .range_count = COUNT};
  struct mr_device *device = NULL;
  assert_int_equal(mr_device_cpu.create(&config, &device), MR_OK);
  char *home = mr_device_cpu.range_address(device, ALL);
  char *away = mr_device_cpu.range_address(device, SHUFFLED);
  assert_ptr_equal(mr_device_cpu.range_address(device, MIDDLE), home + 4096);
  assert_int_equal(mr_device_cpu.bind(device, MIDDLE, middle, 2), MR_OK);
  assert_int_equal(mr_device_cpu.bound_page_count(device), 2);
  assert_int_equal(mr_device_cpu.bind(device, ALL, all, 4), MR_OK);
  assert_int_equal(mr_device_cpu.bound_page_count(device), 4);
  for (char p = 0; p < 4; p++) {
    home[p * 4096] = p;
  }
  most_remapped_bytes = 4096;
  assert_int_equal(mr_device_cpu.bind(device, SHUFFLED, shuffled, 4), MR_OK);
  most_remapped_bytes = SIZE_MAX;
  assert_true(faults(home + 4096));
  for (uint32_t i = 0; i < 4; i++) {
    assert_int_equal(away[i * 4096], shuffled[i]);
  }
  assert_int_equal(mr_device_cpu.bind(device, ALL, all, 4), MR_OK);
  assert_true(faults(away));
  for (uint32_t p = 0; p < 4; p++) {
    assert_int_equal(home[p * 4096], p);
  }
  mr_device_cpu.destroy(device);
}

static void neighbours_lie_at_home(void **state) {
  (void)state;
  for (int left = 0; left < 2; left++) {
    place_is_left = left > 0;
    check_neighbours();
  }
  place_is_left = false;
}

static void too_many_pages_are_refused(void **state) {
  (void)state;
  struct mr_device_caps caps;
  mr_device_cpu.query(&caps);
  struct mr_device_config config = {.page_bytes = 4096,
                                    .page_count = (uint32_t)caps.max_page_count + 1};
  struct mr_device *device = NULL;
  assert_int_equal(mr_device_cpu.create(&config, &device), MR_UNSUPPORTED);
  assert_null(device);
  config = (struct mr_device_config){
      .page_bytes = 2 * MR_MIB, .page_count = 1u << 14, .small_bytes = 1ull << 60};
  assert_int_equal(mr_device_cpu.create(&config, &device), MR_NO_MEMORY);
}

static void copies_any_length(void **state) {
  (void)state;
  struct mr_memory from;
  struct mr_memory to;
  assert_int_equal(mr_memory_map(8192, 4096, "test", &from), MR_OK);
  assert_int_equal(mr_memory_map(8192, 4096, "test", &to), MR_OK);
  for (uint32_t i = 0; i < 8192; i++) {
    ((unsigned char *)from.data)[i] = (unsigned char)(i * 31 + i / 256);
  }
  for (uint32_t bytes = 0; bytes < 8192; bytes += bytes < 200 ? 1 : 97) {
    memset(to.data, 0, 8192);
    mr_device_cpu.copy(to.data, from.data, bytes);
    assert_memory_equal(to.data, from.data, bytes);
    assert_int_equal(((char *)to.data)[bytes], 0);
  }
  mr_memory_unmap(&from);
  mr_memory_unmap(&to);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_is_resident_at_once), cmocka_unit_test(small_pages_keep_contents),
      cmocka_unit_test(huge_pages_keep_contents),   cmocka_unit_test(a_stale_access_faults),
      cmocka_unit_test(neighbours_lie_at_home),     cmocka_unit_test(a_hole_that_is_taken_is_left),
      cmocka_unit_test(too_many_pages_are_refused), cmocka_unit_test(copies_any_length),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

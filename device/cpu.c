/* SPDX-License-Identifier: Apache-2.0 */
/* The cpu device: pages of ordinary memory that are moved to the addresses of whoever owns them. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "base/base.h"
#include "device/device.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

/* Mappings of the process that are not ours: libraries, stacks, the heap. */
#define FOREIGN_MAPPINGS     4096u
#define DEFAULT_MAX_MAPPINGS 65530u

struct page {
  char *address;
  uint64_t move; /* pages of one move, side by side, are one mapping of the kernel's; 0: at home,
                    where all are one */
  bool bound;
};

struct range {
  char *address; /* NULL: it needs none */
  uint32_t page_count;
};

struct mr_device {
  uint64_t page_bytes;
  struct page *pages;
  uint32_t page_count;
  struct range *ranges;
  uint32_t range_count;
  void *reservation; /* of those that do not lie in the pool */
  uint64_t reservation_bytes;
  struct mr_memory pool; /* page p is at home p pages from its start */
  struct mr_memory small;
  _Atomic uint64_t moves;
  _Atomic uint32_t bound_page_count;
};

static uint64_t read_max_mappings(void) {
  unsigned long long limit = DEFAULT_MAX_MAPPINGS;
  FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
  if (file != NULL) {
    if (fscanf(file, "%llu", &limit) != 1) {
      limit = DEFAULT_MAX_MAPPINGS;
    }
    fclose(file);
  }
  return limit;
}

static bool huge_pages_enabled(void) {
  char text[64] = "";
  FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
  if (file != NULL) {
    if (fgets(text, sizeof text, file) == NULL) {
      text[0] = '\0';
    }
    fclose(file);
  }
  return strstr(text, "[always]") != NULL || strstr(text, "[madvise]") != NULL;
}

static void cpu_query(struct mr_device_caps *caps_out) {
  uint64_t mappings = read_max_mappings();
  /* A page and the gap beside it. */
  uint64_t pages = mappings > 2ull * FOREIGN_MAPPINGS ? (mappings - FOREIGN_MAPPINGS) / 2 : 1;
  *caps_out = (struct mr_device_caps){
      .name = "cpu", .max_page_count = pages, .huge_pages = huge_pages_enabled(), .deferred = true};
}

static char *home_of(const struct mr_device *device, uint32_t page) {
  return (char *)device->pool.data + page * device->page_bytes;
}

/* Whether the pages of a range follow one another: then their homes are its addresses. */
static bool is_at_home(const struct mr_device_config *config, uint32_t range) {
  uint64_t count = mr_div_up(config->range_bytes[range], config->page_bytes);
  bool together = config->range_pages != NULL && count > 0;
  for (uint64_t i = 1; together && i < count; i++) {
    together = config->range_pages[range][i] == config->range_pages[range][0] + i;
  }
  return together;
}

/* Addresses for the ranges that do not lie at home. */
static mr_status reserve(struct mr_device *device, const struct mr_device_config *config) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < config->range_count; i++) {
    bytes += is_at_home(config, i) ? 0 : mr_round_up(config->range_bytes[i], config->page_bytes);
  }
  if (bytes == 0) {
    return MR_OK;
  }
  device->reservation_bytes = bytes + device->page_bytes;
  device->reservation = mmap(NULL, device->reservation_bytes, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (device->reservation == MAP_FAILED) {
    struct mr_size_text text;
    mr_log(MR_LOG_ERROR, "device: no addresses for %s of instances: %s; ulimit -v may limit them",
           mr_size_format(bytes, &text), strerror(errno));
    device->reservation = NULL;
    return MR_NO_MEMORY;
  }
  return MR_OK;
}

static void place_ranges(struct mr_device *device, const struct mr_device_config *config) {
  uint64_t excess = (uintptr_t)device->reservation % device->page_bytes;
  char *next = device->reservation;
  next += excess == 0 ? 0 : device->page_bytes - excess;
  for (uint32_t i = 0; i < config->range_count; i++) {
    uint64_t count = mr_div_up(config->range_bytes[i], config->page_bytes);
    struct range *range = &device->ranges[i];
    range->page_count = (uint32_t)count;
    if (is_at_home(config, i)) {
      range->address = home_of(device, config->range_pages[i][0]);
    } else if (count > 0) {
      range->address = next;
      next += count * config->page_bytes;
    }
  }
}

static void cpu_abandon(struct mr_device *device) {
  if (device == NULL) {
    return;
  }
  free(device->pages);
  free(device->ranges);
  free(device);
}

static void cpu_destroy(struct mr_device *device) {
  if (device == NULL) {
    return;
  }
  if (device->reservation != NULL) {
    munmap(device->reservation, device->reservation_bytes);
  }
  mr_memory_unmap(&device->pool);
  mr_memory_unmap(&device->small);
  cpu_abandon(device);
}

/* Pieces of a huge page stay whole in memory wherever they are moved to; but of memory that comes
 * as it is first written no more may come than the page. */
static uint64_t pool_alignment_bytes(const struct mr_device_config *config) {
  bool in_pieces = config->in_pieces && !config->deferred;
  return in_pieces ? MR_DEVICE_HUGE_PAGE_BYTES : config->page_bytes;
}

static mr_status fill(struct mr_device *device, const struct mr_device_config *config) {
  mr_status (*map)(uint64_t, uint64_t, const char *, struct mr_memory *) =
      config->deferred ? mr_memory_reserve : mr_memory_map;
  mr_status status = reserve(device, config);
  if (status == MR_OK) {
    status =
        map(config->small_bytes, MR_DEVICE_HUGE_PAGE_BYTES, "device small arena", &device->small);
  }
  if (status == MR_OK) {
    status = map(config->page_count * config->page_bytes, pool_alignment_bytes(config),
                 "device memory", &device->pool);
  }
  for (uint32_t i = 0; status == MR_OK && i < config->page_count; i++) {
    device->pages[i].address = home_of(device, i);
  }
  if (status == MR_OK) {
    place_ranges(device, config);
  }
  return status;
}

static mr_status cpu_create(const struct mr_device_config *config, struct mr_device **device_out) {
  MR_ASSERT(config->page_bytes >= 4096 && (config->page_bytes & (config->page_bytes - 1)) == 0);
  struct mr_device_caps caps;
  cpu_query(&caps);
  if (config->page_count > caps.max_page_count) {
    mr_log(MR_LOG_ERROR,
           "device: %u pages of %llu bytes are more mappings than vm.max_map_count allows (%llu "
           "pages); raise it or use larger pages",
           config->page_count, (unsigned long long)config->page_bytes,
           (unsigned long long)caps.max_page_count);
    return MR_UNSUPPORTED;
  }
  struct mr_device *device = mr_allocate(1, sizeof *device);
  if (device == NULL) {
    return MR_NO_MEMORY;
  }
  device->page_bytes = config->page_bytes;
  device->page_count = config->page_count;
  device->range_count = config->range_count;
  device->pages = mr_allocate(config->page_count, sizeof *device->pages);
  device->ranges = mr_allocate(config->range_count, sizeof *device->ranges);
  mr_status status = MR_NO_MEMORY;
  if (device->pages != NULL && device->ranges != NULL) {
    status = fill(device, config);
  }
  if (status != MR_OK) {
    cpu_destroy(device);
    return status;
  }
  *device_out = device;
  return MR_OK;
}

static void *cpu_range_address(const struct mr_device *device, uint32_t range) {
  MR_ASSERT(range < device->range_count);
  return device->ranges[range].address;
}

static void *cpu_small_address(const struct mr_device *device) {
  return device->small.data;
}

static mr_status move_failed(const char *what, uint64_t bytes) {
  int error = errno;
  mr_log(MR_LOG_ERROR, "device: %s of %llu bytes: %s%s", what, (unsigned long long)bytes,
         strerror(error), error == ENOMEM ? " (see vm.max_map_count)" : "");
  return MR_NO_MEMORY;
}

/* A place that has no pages becomes inaccessible; at once where the kernel kept it mapped. */
static mr_status cover(char *place, uint64_t bytes, int flag) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flag;
  if (mmap(place, bytes, PROT_NONE, flags, -1, 0) != place) {
    return move_failed("covering a place", bytes);
  }
  return MR_OK;
}

/* Returns whether it did, else errno says why not. *cover_flag: how the place left is covered. */
static bool remap(char *from, char *to, uint64_t bytes, int *cover_flag) {
  int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
  *cover_flag = MAP_FIXED;
  if (mremap(from, bytes, bytes, flags | MREMAP_DONTUNMAP, to) == to) {
    return true;
  }
  /* Kernels before 5.7: another thread's mmap could take the hole between the two calls; then the
   * cover is refused and the run ends, rather than destroying a foreign mapping. */
  *cover_flag = MAP_FIXED_NOREPLACE;
  return errno == EINVAL && mremap(from, bytes, bytes, flags, to) == to;
}

/* Moves pages that lie side by side. Those that came home one by one are one mapping there where
 * the kernel joined theirs; where it did not, kernels before 6.17 refuse to move them in one call,
 * and have unmapped where they were to go by then. Unless one left that alone, it is covered again
 * before pages go there one by one: what another thread mapped in the hole must end the run, rather
 * than be destroyed. */
static mr_status move(char *from, char *to, uint64_t bytes, uint64_t page_bytes) {
  int flag = 0;
  if (remap(from, to, bytes, &flag)) {
    return cover(from, bytes, flag);
  }
  if (errno != EFAULT || bytes == page_bytes) {
    return move_failed("moving pages", bytes);
  }
  bool whole = msync(to, bytes, MS_ASYNC) == 0; /* says whether all of it is mapped */
  mr_status status = whole ? MR_OK : cover(to, bytes, MAP_FIXED_NOREPLACE);
  for (uint64_t at = 0; at < bytes && status == MR_OK; at += page_bytes) {
    bool moved = remap(from + at, to + at, page_bytes, &flag);
    status = moved ? cover(from + at, page_bytes, flag) : move_failed("moving a page", page_bytes);
  }
  return status;
}

static void count_bound(struct mr_device *device, struct page *page) {
  if (!page->bound) {
    page->bound = true;
    atomic_fetch_add(&device->bound_page_count, 1);
  }
}

static mr_status cpu_bind(struct mr_device *device, uint32_t range, const uint32_t *pages,
                          uint32_t count) {
  uint64_t page_bytes = device->page_bytes;
  char *base = cpu_range_address(device, range);
  MR_ASSERT(count <= device->ranges[range].page_count);
  uint32_t run = 1;
  for (uint32_t i = 0; i < count; i += run) {
    MR_ASSERT(pages[i] < device->page_count);
    struct page *first = &device->pages[pages[i]];
    char *from = first->address;
    uint64_t last_move = first->move;
    run = 1;
    if (from == base + i * page_bytes) {
      count_bound(device, first);
      continue;
    }
    while (i + run < count && device->pages[pages[i + run]].address == from + run * page_bytes &&
           device->pages[pages[i + run]].move == last_move) {
      run++;
    }
    mr_status status = move(from, base + i * page_bytes, run * page_bytes, page_bytes);
    if (status != MR_OK) {
      return status;
    }
    uint64_t this_move = atomic_fetch_add(&device->moves, 1) + 1;
    for (uint32_t k = 0; k < run; k++) {
      struct page *page = &device->pages[pages[i + k]];
      count_bound(device, page);
      page->address = base + (i + k) * page_bytes;
      page->move = page->address == home_of(device, pages[i + k]) ? 0 : this_move;
    }
  }
  return MR_OK;
}

static mr_status cpu_complete(struct mr_device *device) {
  mr_status status = mr_memory_populate(device->small.data, mr_round_up(device->small.bytes, 4096),
                                        "device small arena");
  for (uint32_t i = 0; status == MR_OK && i < device->page_count; i++) {
    status = mr_memory_populate(device->pages[i].address, device->page_bytes, "device memory");
  }
  return status;
}

static void cpu_drop(struct mr_device *device, uint32_t page) {
  MR_ASSERT(page < device->page_count);
  mr_memory_drop(device->pages[page].address, device->page_bytes);
}

static uint32_t cpu_bound_page_count(const struct mr_device *device) {
  return atomic_load(&device->bound_page_count);
}

static void cpu_copy(void *to, const void *from, uint64_t bytes) {
#if defined(__SSE2__)
  __m128i *target = to;
  const __m128i *source = from;
  uint64_t blocks = (uintptr_t)to % 16 == 0 && (uintptr_t)from % 16 == 0 ? bytes / 64 : 0;
  for (uint64_t i = 0; i < blocks; i++, target += 4, source += 4) {
    __m128i a = _mm_load_si128(source);
    __m128i b = _mm_load_si128(source + 1);
    __m128i c = _mm_load_si128(source + 2);
    __m128i d = _mm_load_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  _mm_sfence();
  memcpy(target, source, bytes - blocks * 64);
#else
  memcpy(to, from, bytes);
#endif
}

static mr_status cpu_transfer(struct mr_device *device, void *to, const void *from, uint64_t bytes,
                              const char *what) {
  (void)device;
  (void)what;
  memcpy(to, from, bytes);
  return MR_OK;
}

const struct mr_device_ops mr_device_cpu = {
    .name = "cpu",
    .backend = MR_BACKEND_CPU,
    .query = cpu_query,
    .create = cpu_create,
    .destroy = cpu_destroy,
    .abandon = cpu_abandon,
    .range_address = cpu_range_address,
    .small_address = cpu_small_address,
    .bind = cpu_bind,
    .complete = cpu_complete,
    .drop = cpu_drop,
    .copy = cpu_copy,
    .read = cpu_transfer,
    .write = cpu_transfer,
    .bound_page_count = cpu_bound_page_count,
};

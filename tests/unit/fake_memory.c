/* SPDX-License-Identifier: Apache-2.0 */
/* The fake driver's memory: one page at several addresses, faults where nothing is, the order in
 * which things are given back, limits, and which host memory is read when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "unit/fake_rig.h"

#define PAGE FAKE_PAGE_BYTES

static const struct mr_cu_allocation kind = {.type = MR_CU_ALLOCATION_PINNED,
                                             .location = {MR_CU_LOCATION_DEVICE, 0}};
static const struct mr_cu_access read_write = {{MR_CU_LOCATION_DEVICE, 0}, MR_CU_ACCESS_READ_WRITE};
static const struct mr_cu_access read_only = {{MR_CU_LOCATION_DEVICE, 0}, 1};
static const struct mr_cu_access no_access = {{MR_CU_LOCATION_DEVICE, 0}, 0};

static volatile uint32_t *word_at(mr_cu_address address) {
  return (volatile uint32_t *)(uintptr_t)address;
}

static void one_page_is_seen_at_two_addresses(void **state) {
  (void)state;
  mr_cu_memory pages[2];
  mr_cu_address range = 0;
  assert_int_equal(cuMemCreate(&pages[0], PAGE, &kind, 0), 0);
  assert_int_equal(cuMemCreate(&pages[1], PAGE, &kind, 0), 0);
  assert_int_equal(cuMemAddressReserve(&range, 4 * PAGE, 0, 0, 0), 0);
  assert_int_equal(range % PAGE, 0);
  const uint32_t order[] = {0, 1, 1, 0};
  for (uint32_t i = 0; i < 4; i++) {
    assert_int_equal(cuMemMap(range + i * PAGE, PAGE, 0, pages[order[i]], 0), 0);
  }
  assert_int_equal(cuMemSetAccess(range, 4 * PAGE, &read_write, 1), 0);
  assert_int_equal(*word_at(range), UINT32_MAX); /* poison */
  *word_at(range + 4) = 17;
  *word_at(range + PAGE + 4) = 18;
  assert_int_equal(*word_at(range + 3 * PAGE + 4), 17);
  assert_int_equal(*word_at(range + 2 * PAGE + 4), 18);

  /* What is unmapped and mapped again elsewhere keeps its contents. */
  assert_int_equal(cuMemUnmap(range, 2 * PAGE), 0);
  assert_int_equal(cuMemMap(range, PAGE, 0, pages[1], 0), 0);
  assert_int_equal(cuMemSetAccess(range, PAGE, &read_write, 1), 0);
  assert_int_equal(*word_at(range + 4), 18);
  assert_int_equal(cuMemUnmap(range, PAGE), 0);
  assert_int_equal(cuMemUnmap(range + 2 * PAGE, 2 * PAGE), 0);
  assert_int_equal(cuMemAddressFree(range, 4 * PAGE), 0);
  assert_int_equal(cuMemRelease(pages[0]), 0);
  assert_int_equal(cuMemRelease(pages[1]), 0);
}

enum { READ_RESERVED, READ_MAPPED, WRITE_READ_ONLY, READ_UNMAPPED, READ_BEYOND, FAULT_COUNT };

/* Touches what it must not touch; comes back only where no fault is raised. */
static int touch(uint64_t what) {
  mr_cu_memory page = 0;
  mr_cu_address range = 0;
  bool made = cuMemCreate(&page, PAGE, &kind, 0) == 0 &&
              cuMemAddressReserve(&range, 2 * PAGE, 0, 0, 0) == 0;
  if (made && what == READ_BEYOND) {
    made = cuMemAlloc_v2(&range, 4096) == 0;
    range += 4096;
  } else if (made && what != READ_RESERVED) {
    made = cuMemMap(range, PAGE, 0, page, 0) == 0;
  }
  if (made && (what == WRITE_READ_ONLY || what == READ_UNMAPPED)) {
    made = cuMemSetAccess(range, PAGE, &read_only, 1) == 0 && *word_at(range) == UINT32_MAX;
  }
  if (made && what == READ_UNMAPPED) {
    made = cuMemUnmap(range, PAGE) == 0;
  }
  if (!made) {
    return 2;
  }
  if (what == WRITE_READ_ONLY) {
    *word_at(range) = 1;
  }
  return *word_at(range) == 0 ? 3 : 4;
}

static void what_is_not_there_faults(void **state) {
  (void)state;
  for (uint64_t what = 0; what < FAULT_COUNT; what++) {
    int status = rig_child(touch, what);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSEGV);
  }
}

static void memory_is_given_back_in_order(void **state) {
  (void)state;
  struct fake_live before;
  struct fake_live live;
  fake_live_count(&before);
  mr_cu_memory page = 0;
  mr_cu_address range = 0;
  assert_int_equal(cuMemCreate(&page, PAGE, &kind, 0), 0);
  assert_int_equal(cuMemAddressReserve(&range, 2 * PAGE, 4 * PAGE, 0, 0), 0);
  assert_int_equal(range % (4 * PAGE), 0);
  assert_int_equal(cuMemMap(range, PAGE, 0, page, 0), 0);
  assert_int_equal(cuMemAddressFree(range, 2 * PAGE), MR_CU_INVALID_VALUE);
  assert_int_equal(cuMemRelease(page), 0);
  assert_int_equal(cuMemRelease(page), MR_CU_INVALID_VALUE);
  assert_int_equal(cuMemMap(range + PAGE, PAGE, 0, page, 0), MR_CU_INVALID_VALUE);

  /* The mapping holds the memory. */
  fake_live_count(&live);
  assert_int_equal(live.device_bytes, before.device_bytes + PAGE);
  assert_int_equal(cuMemSetAccess(range, PAGE, &read_write, 1), 0);
  *word_at(range) = 1;
  assert_int_equal(cuMemUnmap(range, PAGE), 0);
  fake_live_count(&live);
  assert_int_equal(live.device_bytes, before.device_bytes);
  assert_int_equal(cuMemUnmap(range, PAGE), MR_CU_INVALID_VALUE);
  assert_int_equal(cuMemAddressFree(range, PAGE), MR_CU_INVALID_VALUE);
  assert_int_equal(cuMemAddressFree(range, 2 * PAGE), 0);
  assert_int_equal(cuMemAddressFree(range, 2 * PAGE), MR_CU_INVALID_VALUE);
}

static void arguments_of_pages_are_looked_at(void **state) {
  (void)state;
  mr_cu_memory pages = 0;
  mr_cu_address range = 0;
  size_t granularity = 0;
  struct mr_cu_allocation elsewhere = kind;
  elsewhere.location.id = 1;
  assert_int_equal(cuMemGetAllocationGranularity(&granularity, &kind, 0), 0);
  assert_int_equal(granularity, PAGE);
  assert_int_equal(cuMemCreate(&pages, PAGE / 2, &kind, 0), MR_CU_INVALID_VALUE);
  assert_int_equal(cuMemCreate(&pages, 0, &kind, 0), MR_CU_INVALID_VALUE);
  assert_int_equal(cuMemCreate(&pages, PAGE, &elsewhere, 0), 101);
  assert_int_equal(cuMemAddressReserve(&range, PAGE + 4096, 0, 0, 0), MR_CU_INVALID_VALUE);
  assert_int_equal(cuMemAddressReserve(&range, PAGE, 3, 0, 0), MR_CU_INVALID_VALUE);

  assert_int_equal(cuMemCreate(&pages, 2 * PAGE, &kind, 0), 0);
  assert_int_equal(cuMemAddressReserve(&range, 3 * PAGE, 0, 0, 0), 0);
  assert_int_equal(cuMemMap(range + 4096, PAGE, 0, pages, 0), MR_CU_INVALID_VALUE);
  assert_int_equal(cuMemMap(range, 2 * PAGE, PAGE, pages, 0), MR_CU_INVALID_VALUE);
  assert_int_equal(cuMemMap(range, 3 * PAGE, 0, pages, 0), MR_CU_INVALID_VALUE);
  assert_int_equal(cuMemMap(range + 2 * PAGE, 2 * PAGE, 0, pages, 0), MR_CU_INVALID_VALUE);
  assert_int_equal(cuMemMap(range, 2 * PAGE, 0, pages, 0), 0);
  assert_int_equal(cuMemMap(range + PAGE, PAGE, 0, pages, 0), MR_CU_INVALID_VALUE);
  assert_int_equal(cuMemSetAccess(range, 3 * PAGE, &read_write, 1), MR_CU_INVALID_VALUE);
  assert_int_equal(cuMemSetAccess(range, PAGE, &read_write, 1), MR_CU_INVALID_VALUE);
  assert_int_equal(cuMemUnmap(range, PAGE), MR_CU_INVALID_VALUE);
  assert_int_equal(cuMemUnmap(range, 2 * PAGE), 0);
  assert_int_equal(cuMemAddressFree(range, 3 * PAGE), 0);
  assert_int_equal(cuMemRelease(pages), 0);
}

static void copies_look_at_both_ends(void **state) {
  (void)state;
  char bytes[64] = {0};
  mr_cu_address page = rig_page();
  assert_int_equal(cuMemcpyHtoD_v2(page + PAGE - 64, bytes, 64), 0);
  assert_int_equal(cuMemcpyHtoD_v2(page + PAGE - 63, bytes, 64), MR_CU_INVALID_VALUE);
  assert_int_equal(cuMemcpyDtoH_v2(bytes, page + PAGE, 1), MR_CU_INVALID_VALUE);
  assert_int_equal(cuMemcpyDtoH_v2(NULL, page, 1), MR_CU_INVALID_VALUE);
  assert_int_equal(cuMemsetD8Async(page, 0, PAGE + 1, rig.first), MR_CU_INVALID_VALUE);
  assert_int_equal(cuCtxSynchronize(), 0);
  assert_int_equal(cuMemSetAccess(page, PAGE, &read_only, 1), 0);
  assert_int_equal(cuMemcpyHtoD_v2(page, bytes, 64), MR_CU_INVALID_VALUE);
  assert_int_equal(cuMemcpyDtoH_v2(bytes, page, 64), 0);
  assert_int_equal(cuMemSetAccess(page, PAGE, &no_access, 1), 0);
  assert_int_equal(cuMemcpyDtoH_v2(bytes, page, 64), MR_CU_INVALID_VALUE);
  rig_page_free(page);

  mr_cu_address small = 0;
  assert_int_equal(cuMemAlloc_v2(&small, 100), 0);
  assert_int_equal(cuMemcpyHtoD_v2(small + 36, bytes, 64), 0);
  assert_int_equal(cuMemcpyHtoD_v2(small + 37, bytes, 64), MR_CU_INVALID_VALUE);
  assert_int_equal(cuCtxSynchronize(), 0);
  assert_int_equal(cuMemFree_v2(small), 0);
  assert_int_equal(cuMemFree_v2(small), MR_CU_INVALID_VALUE);
}

static void memory_is_limited(void **state) {
  (void)state;
  rig_fini();
  rig_set("MEMRUN_FAKE_MEMORY", "33554432");
  rig_init();
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  const size_t free_at_first = (32ull << 20) - FAKE_CONTEXT_BYTES - FAKE_MODULE_BYTES;
  assert_int_equal(cuMemGetInfo_v2(&free_bytes, &total_bytes), 0);
  assert_int_equal(total_bytes, 32ull << 20);
  assert_int_equal(free_bytes, free_at_first);
  assert_int_equal(cuDeviceTotalMem_v2(&total_bytes, 0), 0);
  assert_int_equal(total_bytes, 32ull << 20);

  mr_cu_memory pages = 0;
  mr_cu_memory more = 0;
  mr_cu_address small = 0;
  assert_int_equal(cuMemCreate(&pages, free_at_first - PAGE, &kind, 0), 0);
  assert_int_equal(cuMemCreate(&more, 2 * PAGE, &kind, 0), MR_CU_OUT_OF_MEMORY);
  assert_int_equal(cuMemAlloc_v2(&small, 1), 0);
  assert_int_equal(cuMemGetInfo_v2(&free_bytes, &total_bytes), 0);
  assert_int_equal(free_bytes, 0);
  mr_cu_module module = NULL;
  assert_int_equal(cuModuleLoadData(&module, "image"), MR_CU_OUT_OF_MEMORY);
  assert_int_equal(cuMemFree_v2(small), 0);
  assert_int_equal(cuMemRelease(pages), 0);
  assert_int_equal(cuMemGetInfo_v2(&free_bytes, &total_bytes), 0);
  assert_int_equal(free_bytes, free_at_first);

  rig_fini();
  rig_set("MEMRUN_FAKE_MEMORY", "1048576");
  fake_settings_read();
  mr_cu_context context = NULL;
  assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), MR_CU_OUT_OF_MEMORY);
  rig_set("MEMRUN_FAKE_MEMORY", NULL);
  rig_init();
}

static void pinned_ranges_are_known(void **state) {
  (void)state;
  char *host = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(host, MAP_FAILED);
  assert_int_equal(cuMemHostRegister_v2(host, 8192, 0), 0);
  assert_int_equal(cuMemHostRegister_v2(host + 4096, 8192, 0), 712);
  assert_int_equal(cuMemHostUnregister(host + 4096), 713);
  assert_int_equal(munmap(host + 12288, 4096), 0);
  assert_int_equal(cuMemHostRegister_v2(host + 8192, 8192, 0), MR_CU_INVALID_VALUE);
  mr_cu_address page = rig_page();
  /* Half pinned, half not. */
  assert_int_equal(cuMemcpyHtoDAsync_v2(page, host + 4096, 8192, rig.first), MR_CU_INVALID_VALUE);
  assert_int_equal(cuMemcpyHtoDAsync_v2(page, host, 8192, rig.first), 0);
  assert_int_equal(cuStreamSynchronize(rig.first), 0);
  assert_int_equal(cuMemHostUnregister(host), 0);
  assert_int_equal(cuMemHostUnregister(host), 713);

  void *pinned = NULL;
  assert_int_equal(cuMemHostAlloc(&pinned, 4096, MR_CU_HOST_PORTABLE), 0);
  assert_int_equal(*(unsigned char *)pinned, FAKE_POISON);
  assert_int_equal(cuMemHostUnregister(pinned), 713);
  assert_int_equal(cuMemFreeHost(pinned), 0);
  assert_int_equal(cuMemFreeHost(pinned), MR_CU_INVALID_VALUE);
  rig_page_free(page);
  assert_int_equal(munmap(host, 12288), 0);
}

/* A stream that is held has its copies of pinned memory still to do, and none of pageable memory
 * left to read. */
static void pinned_memory_is_read_late_and_pageable_at_once(void **state) {
  (void)state;
  uint32_t pageable[16] = {1};
  uint32_t *pinned = NULL;
  _Atomic uint32_t open = 0;
  assert_int_equal(cuMemHostAlloc((void **)&pinned, sizeof pageable, 0), 0);
  memset(pinned, 0, sizeof pageable);
  pinned[0] = 1;
  mr_cu_address page = rig_page();
  mr_cu_address other = page + sizeof pageable;
  assert_int_equal(rig_launch(rig.hold, rig.first, &(struct fake_hold){&open}), 0);
  assert_int_equal(cuMemcpyHtoDAsync_v2(page, pageable, sizeof pageable, rig.first), 0);
  assert_int_equal(cuMemcpyHtoDAsync_v2(other, pinned, sizeof pageable, rig.first), 0);
  assert_int_equal(cuStreamQuery(rig.first), MR_CU_NOT_READY);
  pageable[0] = 2;
  pinned[0] = 2;
  open = 1;
  assert_int_equal(cuStreamSynchronize(rig.first), 0);
  assert_int_equal(*word_at(page), 1);
  assert_int_equal(*word_at(other), 2);
  assert_int_equal(cuMemFreeHost(pinned), 0);
  rig_page_free(page);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      rig_test(one_page_is_seen_at_two_addresses),
      rig_test(what_is_not_there_faults),
      rig_test(memory_is_given_back_in_order),
      rig_test(arguments_of_pages_are_looked_at),
      rig_test(copies_look_at_both_ends),
      rig_test(memory_is_limited),
      rig_test(pinned_ranges_are_known),
      rig_test(pinned_memory_is_read_late_and_pageable_at_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/: a step allocates nothing, in no thread. The allocator of the process is counted by
 * putting our own in front of glibc's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "unit/runtime_world.h"

#if !defined(__GLIBC__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

/* Sanitizers have an allocator of their own. */
int main(void) {
  return 77;
}

#else

static _Atomic uint64_t allocations;

/* glibc's own names for its allocator, and its headers' reserved parameter names. */
/* NOLINTBEGIN(bugprone-reserved-identifier,readability-inconsistent-declaration-parameter-name) */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *data, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes) {
  atomic_fetch_add(&allocations, 1);
  return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
  atomic_fetch_add(&allocations, 1);
  return __libc_calloc(count, bytes);
}

void *realloc(void *data, size_t bytes) {
  atomic_fetch_add(&allocations, 1);
  return __libc_realloc(data, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
  atomic_fetch_add(&allocations, 1);
  return __libc_memalign(alignment, bytes);
}

/* NOLINTEND(bugprone-reserved-identifier,readability-inconsistent-declaration-parameter-name) */

static void steps_allocate_nothing(mr_offload offload, uint64_t host_bytes, const char *trace) {
  static const struct world_shape shape = {4, 300 * 1000};
  struct world world;
  struct mr_options options;
  struct mr_plan *plan = NULL;
  struct mr_plan_summary summary;
  world_init(&world, shape);
  world_options(&options, 4096, host_bytes, offload);
  options.trace_path = trace;
  options.replan = MR_REPLAN_NEVER; /* planning again is no part of a step */
  assert_int_equal(mr_plan_create(world.graph, &options, &plan), MR_OK);
  mr_plan_summarize(plan, &summary);
  mr_plan_destroy(plan);
  options.device_bytes = summary.smallest_device_bytes;
  struct mr_run *run = NULL;
  assert_int_equal(mr_run_create(world.graph, &options, &run), MR_OK);
  assert_int_equal(world_load(&world, run), MR_OK);
  for (uint64_t step = 1; step <= 6; step++) {
    struct mr_step_report report = {.size_bytes = sizeof report};
    uint64_t before = atomic_load(&allocations);
    assert_int_equal(world_step(&world, run, step, MR_STEP_TRAIN, &report), MR_OK);
    assert_int_equal(atomic_load(&allocations) - before, 0);
  }
  mr_run_destroy(run);
  world_fini(&world);
  (void)unlink(options.profile_path);
}

static void quiet_on_the_device(void **unused) {
  (void)unused;
  steps_allocate_nothing(MR_OFFLOAD_NONE, 0, NULL);
}

static void quiet_with_host(void **unused) {
  (void)unused;
  steps_allocate_nothing(MR_OFFLOAD_HOST, 64 * MR_MIB, NULL);
}

static void quiet_with_nvme_and_trace(void **unused) {
  (void)unused;
  steps_allocate_nothing(MR_OFFLOAD_NVME, 0, NULL);
  steps_allocate_nothing(MR_OFFLOAD_NVME, 0, "/tmp/memrun-test-trace.json.tmp");
  (void)unlink("/tmp/memrun-test-trace.json.tmp");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(quiet_on_the_device),
      cmocka_unit_test(quiet_with_host),
      cmocka_unit_test(quiet_with_nvme_and_trace),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A context, streams and pages for tests of the fake driver. */
#include "unit/fake_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct rig rig;

void rig_init(void) {
  fake_settings_read();
  assert_int_equal(cuInit(0), 0);
  assert_int_equal(cuDevicePrimaryCtxRetain(&rig.context, 0), 0);
  assert_int_equal(cuCtxSetCurrent(rig.context), 0);
  assert_int_equal(cuModuleLoadData(&rig.module, "image"), 0);
  assert_int_equal(cuModuleGetFunction(&rig.fill, rig.module, "fake_fill"), 0);
  assert_int_equal(cuModuleGetFunction(&rig.add, rig.module, "fake_add"), 0);
  assert_int_equal(cuModuleGetFunction(&rig.move, rig.module, "fake_move"), 0);
  assert_int_equal(cuModuleGetFunction(&rig.hold, rig.module, "fake_hold"), 0);
  assert_int_equal(cuStreamCreateWithPriority(&rig.first, MR_CU_STREAM_NON_BLOCKING, 0), 0);
  assert_int_equal(cuStreamCreateWithPriority(&rig.second, MR_CU_STREAM_NON_BLOCKING, 0), 0);
}

void rig_fini(void) {
  assert_int_equal(cuCtxSetCurrent(NULL), 0);
  assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), 0);
  struct fake_live live;
  static const struct fake_live nothing;
  fake_live_count(&live);
  assert_memory_equal(&live, &nothing, sizeof live);
}

int rig_set_up(void **state) {
  (void)state;
  rig_init();
  return 0;
}

int rig_tear_down(void **state) {
  (void)state;
  rig_fini();
  return 0;
}

mr_cu_address rig_page(void) {
  const struct mr_cu_allocation kind = {.type = MR_CU_ALLOCATION_PINNED,
                                        .location = {MR_CU_LOCATION_DEVICE, 0}};
  const struct mr_cu_access access = {{MR_CU_LOCATION_DEVICE, 0}, MR_CU_ACCESS_READ_WRITE};
  mr_cu_memory memory = 0;
  mr_cu_address page = 0;
  assert_int_equal(cuMemCreate(&memory, FAKE_PAGE_BYTES, &kind, 0), 0);
  assert_int_equal(cuMemAddressReserve(&page, FAKE_PAGE_BYTES, 0, 0, 0), 0);
  assert_int_equal(cuMemMap(page, FAKE_PAGE_BYTES, 0, memory, 0), 0);
  assert_int_equal(cuMemSetAccess(page, FAKE_PAGE_BYTES, &access, 1), 0);
  assert_int_equal(cuMemRelease(memory), 0);
  return page;
}

void rig_page_free(mr_cu_address page) {
  assert_int_equal(cuMemUnmap(page, FAKE_PAGE_BYTES), 0);
  assert_int_equal(cuMemAddressFree(page, FAKE_PAGE_BYTES), 0);
}

mr_cu_result rig_launch(mr_cu_function function, mr_cu_stream stream, const void *argument) {
  return cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, &argument, NULL);
}

void rig_set(const char *name, const char *value) {
  assert_int_equal(value == NULL ? unsetenv(name) : setenv(name, value, 1), 0);
}

void rig_seed(uint64_t seed) {
  char text[24];
  snprintf(text, sizeof text, "%llu", (unsigned long long)seed);
  rig_set("MEMRUN_FAKE_SEED", text);
}

int rig_child(int (*run)(uint64_t number), uint64_t number) {
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    /* A sanitizer's own words about what the child was told to do wrong. */
    (void)signal(SIGSEGV, SIG_DFL);
    if (freopen("/dev/null", "w", stderr) == NULL) {
      _exit(127);
    }
    exit(run(number));
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  return status;
}

bool rig_under_thread_sanitizer(void) {
  const char *sanitizer = getenv("MEMRUN_SANITIZE");
  return sanitizer != NULL && strcmp(sanitizer, "thread") == 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The fake driver: a wait that is missing shows as wrong data, events mean what they mean, faults
 * come where they are asked for, and what is wrong is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "unit/fake_rig.h"

#define WORDS 4096u
#define SEEDS 24u
/* So many of them under the thread sanitizer, which is slow. */
#define SANITIZED_SEEDS 4u
#define LEAST_SHOWN     3u
/* How the thread sanitizer ends a process in which it saw a race. */
#define RACE_STATUS 66

static uint32_t *words_at(mr_cu_address address) {
  return (uint32_t *)(uintptr_t)address;
}

/* One stream fills a page, another moves it on; 0 where the moved words are right. */
static int fill_and_move(uint64_t seed, bool waits) {
  rig_seed(seed);
  rig_init();
  mr_cu_address from = rig_page();
  mr_cu_address to = rig_page();
  mr_cu_event filled = NULL;
  assert_int_equal(cuEventCreate(&filled, 0), 0);
  const struct fake_fill fill = {words_at(from), WORDS, 5};
  const struct fake_move move = {words_at(to), words_at(from), WORDS};
  assert_int_equal(rig_launch(rig.fill, rig.first, &fill), 0);
  assert_int_equal(cuEventRecord(filled, rig.first), 0);
  if (waits) {
    assert_int_equal(cuStreamWaitEvent(rig.second, filled, 0), 0);
  }
  assert_int_equal(rig_launch(rig.move, rig.second, &move), 0);
  assert_int_equal(cuCtxSynchronize(), 0);
  int wrong = 0;
  for (uint32_t i = 0; i < WORDS; i++) {
    wrong |= words_at(to)[i] != i + 5;
  }
  rig_page_free(from);
  rig_page_free(to);
  rig_fini();
  return wrong;
}

static int fill_and_move_unwaited(uint64_t seed) {
  return fill_and_move(seed, false);
}

static uint64_t seed_count(void) {
  return rig_under_thread_sanitizer() ? SANITIZED_SEEDS : SEEDS;
}

static void a_wait_that_is_there_is_kept(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < seed_count(); seed++) {
    assert_int_equal(fill_and_move(seed, true), 0);
  }
}

/* What misses a wait shows under some seeds: as wrong data; under the thread sanitizer as the race
 * itself, unless a lock between the two happened to order them. */
static void assert_shows(int (*run)(uint64_t seed), const char *what) {
  int wrong = rig_under_thread_sanitizer() ? RACE_STATUS : 1;
  uint32_t shown = 0;
  uint32_t seed = 0;
  while (shown < LEAST_SHOWN && seed < SEEDS) {
    int status = rig_child(run, ++seed);
    assert_true(WIFEXITED(status));
    shown += WEXITSTATUS(status) == wrong;
  }
  print_message("%s showed under %u of %u seeds\n", what, shown, seed);
  assert_int_equal(shown, LEAST_SHOWN);
}

static void a_missing_wait_shows(void **state) {
  (void)state;
  assert_shows(fill_and_move_unwaited, "a missing wait");
}

/* A thread that asks until an event is over comes after it. */
static void await_event(mr_cu_event event) {
  mr_cu_result result = MR_CU_NOT_READY;
  while (result == MR_CU_NOT_READY) {
    result = cuEventQuery(event);
  }
  assert_int_equal(result, 0);
}

/* A buffer of pinned memory is filled again for a second copy; 0 where both arrived. */
static int reuse_buffer(uint64_t seed, bool waits) {
  rig_seed(seed);
  rig_init();
  mr_cu_address page = rig_page();
  uint32_t *buffer = NULL;
  mr_cu_event copied = NULL;
  assert_int_equal(cuEventCreate(&copied, 0), 0);
  assert_int_equal(cuMemHostAlloc((void **)&buffer, WORDS * sizeof *buffer, 0), 0);
  for (uint32_t turn = 0; turn < 2; turn++) {
    if (waits) {
      await_event(copied);
    }
    for (uint32_t i = 0; i < WORDS; i++) {
      buffer[i] = turn + i;
    }
    assert_int_equal(cuMemcpyHtoDAsync_v2(page + turn * WORDS * sizeof *buffer, buffer,
                                          WORDS * sizeof *buffer, rig.first),
                     0);
    assert_int_equal(cuEventRecord(copied, rig.first), 0);
  }
  assert_int_equal(cuCtxSynchronize(), 0);
  int wrong = 0;
  for (uint32_t i = 0; i < WORDS; i++) {
    wrong |= words_at(page)[i] != i || words_at(page)[WORDS + i] != 1 + i;
  }
  assert_int_equal(cuMemFreeHost(buffer), 0);
  rig_page_free(page);
  rig_fini();
  return wrong;
}

static int reuse_buffer_at_once(uint64_t seed) {
  return reuse_buffer(seed, false);
}

static void a_buffer_that_is_used_again_too_soon_shows(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= seed_count(); seed++) {
    assert_int_equal(reuse_buffer(seed, true), 0);
  }
  assert_shows(reuse_buffer_at_once, "a buffer used too soon");
}

static void an_event_is_its_last_record(void **state) {
  (void)state;
  _Atomic uint32_t open[2] = {0, 0};
  mr_cu_event event = NULL;
  assert_int_equal(cuEventCreate(&event, 0), 0);
  assert_int_equal(cuEventQuery(event), 0);
  assert_int_equal(cuStreamWaitEvent(rig.second, event, 0), 0);
  assert_int_equal(cuStreamSynchronize(rig.second), 0);

  assert_int_equal(rig_launch(rig.hold, rig.first, &(struct fake_hold){&open[0]}), 0);
  assert_int_equal(cuEventRecord(event, rig.first), 0);
  assert_int_equal(cuEventQuery(event), MR_CU_NOT_READY);
  assert_int_equal(cuStreamWaitEvent(rig.second, event, 0), 0);
  assert_int_equal(cuStreamQuery(rig.second), MR_CU_NOT_READY);
  assert_int_equal(rig_launch(rig.hold, rig.first, &(struct fake_hold){&open[1]}), 0);
  assert_int_equal(cuEventRecord(event, rig.first), 0);

  /* The second stream waits for the first record alone. */
  open[0] = 1;
  assert_int_equal(cuStreamSynchronize(rig.second), 0);
  assert_int_equal(cuEventQuery(event), MR_CU_NOT_READY);

  /* An event may go while somebody waits for it. */
  assert_int_equal(cuStreamWaitEvent(rig.second, event, 0), 0);
  assert_int_equal(cuEventDestroy_v2(event), 0);
  assert_int_equal(cuStreamQuery(rig.second), MR_CU_NOT_READY);
  open[1] = 1;
  assert_int_equal(cuStreamSynchronize(rig.second), 0);
  assert_int_equal(cuStreamQuery(rig.second), 0);
}

static void events_tell_time(void **state) {
  (void)state;
  _Atomic uint32_t open = 0;
  mr_cu_event start = NULL;
  mr_cu_event end = NULL;
  mr_cu_event untimed = NULL;
  float milliseconds = 0;
  assert_int_equal(cuEventCreate(&start, 0), 0);
  assert_int_equal(cuEventCreate(&end, 0), 0);
  assert_int_equal(cuEventCreate(&untimed, MR_CU_EVENT_DISABLE_TIMING), 0);
  assert_int_equal(cuEventRecord(start, rig.first), 0);
  assert_int_equal(cuEventElapsedTime(&milliseconds, start, end), 400);
  assert_int_equal(rig_launch(rig.hold, rig.first, &(struct fake_hold){&open}), 0);
  assert_int_equal(cuEventRecord(end, rig.first), 0);
  assert_int_equal(cuEventRecord(untimed, rig.first), 0);
  assert_int_equal(cuEventElapsedTime(&milliseconds, start, end), MR_CU_NOT_READY);
  open = 1;
  await_event(untimed);
  assert_int_equal(cuEventElapsedTime(&milliseconds, start, end), 0);
  assert_true(milliseconds > 0);
  assert_int_equal(cuEventElapsedTime(&milliseconds, end, start), 0);
  assert_true(milliseconds < 0);
  assert_int_equal(cuEventElapsedTime(&milliseconds, start, untimed), 400);
}

/* The null stream waits for blocking streams, and they for it; the others go their own way. */
static void the_null_stream_knows_blocking_streams_alone(void **state) {
  (void)state;
  _Atomic uint32_t open = 0;
  uint32_t *pinned = NULL;
  mr_cu_stream blocking = NULL;
  mr_cu_address page = rig_page();
  assert_int_equal(cuMemHostAlloc((void **)&pinned, sizeof *pinned, 0), 0);
  *pinned = 1;
  assert_int_equal(cuStreamCreateWithPriority(&blocking, 0, -1), 0);
  assert_int_equal(rig_launch(rig.hold, rig.first, &(struct fake_hold){&open}), 0);
  assert_int_equal(cuMemcpyHtoD_v2(page, pinned, sizeof *pinned), 0);
  assert_int_equal(*words_at(page), 1);
  assert_int_equal(cuStreamQuery(rig.first), MR_CU_NOT_READY);

  assert_int_equal(rig_launch(rig.hold, blocking, &(struct fake_hold){&open}), 0);
  assert_int_equal(cuMemsetD8Async(page, 2, 4, NULL), 0);
  assert_int_equal(cuMemsetD8Async(page, 3, 4, blocking), 0);
  assert_int_equal(cuStreamQuery(NULL), MR_CU_NOT_READY);
  open = 1;
  assert_int_equal(cuStreamSynchronize(blocking), 0);
  assert_int_equal(cuStreamQuery(NULL), 0);
  assert_int_equal(*words_at(page), 0x03030303);
  assert_int_equal(cuCtxSynchronize(), 0);
  assert_int_equal(cuMemFreeHost(pinned), 0);
  rig_page_free(page);
}

static void a_full_queue_makes_the_caller_wait(void **state) {
  (void)state;
  mr_cu_address page = rig_page();
  const struct fake_fill fill = {words_at(page), 16, 0};
  const struct fake_add add = {words_at(page) + 16, words_at(page), 16};
  assert_int_equal(cuMemsetD8Async(page, 0, 128, rig.first), 0);
  assert_int_equal(rig_launch(rig.fill, rig.first, &fill), 0);
  for (uint32_t i = 0; i < 5 * FAKE_QUEUE_ITEMS; i++) {
    assert_int_equal(rig_launch(rig.add, rig.first, &add), 0);
  }
  assert_int_equal(cuStreamSynchronize(rig.first), 0);
  assert_int_equal(words_at(page)[16 + 3], 3 * 5 * FAKE_QUEUE_ITEMS);
  rig_page_free(page);
}

static void faults_come_where_they_are_asked_for(void **state) {
  (void)state;
  rig_fini();
  rig_set("MEMRUN_FAKE_FAIL", "cuEventCreate:2:2,cuStreamDestroy_v2:1:999");
  rig_init();
  mr_cu_event event = NULL;
  assert_int_equal(cuEventCreate(&event, 0), 0);
  assert_int_equal(cuEventCreate(&event, 0), 2);
  assert_int_equal(cuEventCreate(&event, 0), 0);
  assert_int_equal(fake_call_count("cuEventCreate"), 3);
  /* What gives back does so even if it fails. */
  struct fake_live live;
  assert_int_equal(cuStreamDestroy_v2(rig.first), 999);
  fake_live_count(&live);
  assert_int_equal(live.streams, 1);
  rig_fini();

  rig_set("MEMRUN_FAKE_FAIL", "*:3:2");
  fake_settings_read();
  int count = 0;
  assert_int_equal(cuInit(0), 0);
  assert_int_equal(cuDeviceGetCount(&count), 0);
  assert_int_equal(cuDeviceGetCount(&count), 2);
  assert_int_equal(cuDeviceGetCount(&count), 0);
  rig_set("MEMRUN_FAKE_FAIL", NULL);
  rig_init();
}

static void a_broken_device_stays_broken(void **state) {
  (void)state;
  rig_fini();
  rig_set("MEMRUN_FAKE_FAIL", "device:2:700");
  rig_init();
  mr_cu_address page = rig_page();
  const struct fake_fill fill = {words_at(page), 16, 7};
  const struct fake_fill again = {words_at(page), 16, 8};
  mr_cu_event event = NULL;
  assert_int_equal(cuEventCreate(&event, 0), 0);
  assert_int_equal(rig_launch(rig.fill, rig.first, &fill), 0);
  assert_int_equal(cuStreamSynchronize(rig.first), 0);
  assert_int_equal(words_at(page)[0], 7);
  assert_int_equal(rig_launch(rig.fill, rig.first, &again), 0);
  assert_int_equal(cuStreamSynchronize(rig.first), 700);
  assert_int_equal(words_at(page)[0], 7);
  assert_int_equal(rig_launch(rig.fill, rig.first, &again), 700);
  assert_int_equal(cuEventQuery(event), 700);
  assert_int_equal(cuCtxSynchronize(), 700);
  assert_int_equal(cuEventDestroy_v2(event), 700);
  assert_int_equal(cuMemUnmap(page, FAKE_PAGE_BYTES), 700);
  assert_int_equal(cuMemAddressFree(page, FAKE_PAGE_BYTES), 700);
  const char *name = NULL;
  assert_int_equal(cuGetErrorName(700, &name), 0);
  assert_string_equal(name, "CUDA_ERROR_ILLEGAL_ADDRESS");
  rig_fini();
  mr_cu_context context = NULL;
  assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), 700);
  rig_set("MEMRUN_FAKE_FAIL", NULL);
  rig_init();
}

static void a_context_is_needed_and_ends(void **state) {
  (void)state;
  mr_cu_event event = NULL;
  mr_cu_context current = NULL;
  assert_int_equal(cuEventCreate(&event, 0), 0);
  assert_int_equal(cuCtxSetCurrent((mr_cu_context)(uintptr_t)12345), 201);
  assert_int_equal(cuCtxGetCurrent(&current), 0);
  assert_ptr_equal(current, rig.context);
  assert_int_equal(cuCtxSetCurrent(NULL), 0);
  assert_int_equal(cuEventRecord(event, rig.first), 201);
  assert_int_equal(cuStreamSynchronize(rig.first), 201);
  assert_int_equal(cuCtxSetCurrent(rig.context), 0);

  /* Counted; its objects and its handle end with it. */
  mr_cu_stream old_stream = rig.first;
  mr_cu_context old_context = rig.context;
  assert_int_equal(cuDevicePrimaryCtxRetain(&current, 0), 0);
  assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), 0);
  assert_int_equal(cuEventRecord(event, rig.first), 0);
  assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), 0);
  assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), 201);
  assert_int_equal(cuCtxSynchronize(), 709);
  assert_int_equal(cuCtxSetCurrent(old_context), 201);
  rig_init();
  assert_int_equal(cuEventRecord(event, rig.first), 400);
  assert_int_equal(cuStreamSynchronize(old_stream), 400);
}

static void objects_that_are_gone_are_refused(void **state) {
  (void)state;
  mr_cu_event event = NULL;
  mr_cu_function function = NULL;
  assert_int_equal(cuEventCreate(&event, 0), 0);
  assert_int_equal(cuEventCreate(&event, 64), MR_CU_INVALID_VALUE);
  assert_int_equal(cuEventDestroy_v2(event), 0);
  assert_int_equal(cuEventDestroy_v2(event), 400);
  assert_int_equal(cuEventRecord(event, rig.first), 400);
  assert_int_equal(cuStreamWaitEvent(rig.first, event, 0), 400);
  assert_int_equal(cuStreamWaitEvent(rig.first, NULL, 0), 400);
  assert_int_equal(cuStreamDestroy_v2(rig.second), 0);
  assert_int_equal(cuStreamDestroy_v2(rig.second), 400);
  assert_int_equal(cuStreamSynchronize(rig.second), 400);
  assert_int_equal(cuModuleGetFunction(&function, rig.module, "fake_nothing"), MR_CU_NOT_FOUND);
  assert_int_equal(cuModuleLoadData(&rig.module, ""), 200);
  assert_int_equal(cuModuleUnload(rig.module), 0);
  assert_int_equal(cuModuleGetFunction(&function, rig.module, "fake_fill"), 400);
  assert_int_equal(rig_launch(rig.fill, rig.first, &(struct fake_fill){NULL, 0, 0}), 400);
}

static mr_cu_result launch_shape(const unsigned grid[3], const unsigned block[3],
                                 unsigned shared_bytes) {
  const struct fake_fill fill = {NULL, 0, 0};
  const void *parameters[] = {&fill};
  return cuLaunchKernel(rig.fill, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                        shared_bytes, rig.first, parameters, NULL);
}

static void launches_are_looked_at(void **state) {
  (void)state;
  static const unsigned one[3] = {1, 1, 1};
  assert_int_equal(launch_shape(one, one, 0), 0);
  assert_int_equal(launch_shape((unsigned[]){0, 1, 1}, one, 0), MR_CU_INVALID_VALUE);
  assert_int_equal(launch_shape((unsigned[]){1, 65536, 1}, one, 0), MR_CU_INVALID_VALUE);
  assert_int_equal(launch_shape(one, (unsigned[]){1025, 1, 1}, 0), MR_CU_INVALID_VALUE);
  assert_int_equal(launch_shape(one, (unsigned[]){32, 33, 1}, 0), MR_CU_INVALID_VALUE);
  assert_int_equal(launch_shape(one, (unsigned[]){32, 32, 1}, 0), 0);
  assert_int_equal(rig_launch(rig.fill, rig.first, NULL), MR_CU_INVALID_VALUE);
  int shared = 0;
  assert_int_equal(launch_shape(one, one, FAKE_SHARED_BYTES), 0);
  assert_int_equal(launch_shape(one, one, FAKE_SHARED_BYTES + 1), MR_CU_INVALID_VALUE);
  assert_int_equal(cuFuncSetAttribute(rig.fill, 8, FAKE_MAX_SHARED + 1), MR_CU_INVALID_VALUE);
  assert_int_equal(cuFuncSetAttribute(rig.fill, 8, FAKE_MAX_SHARED), 0);
  assert_int_equal(cuFuncGetAttribute(&shared, 8, rig.fill), 0);
  assert_int_equal(shared, FAKE_MAX_SHARED);
  assert_int_equal(launch_shape(one, one, FAKE_MAX_SHARED), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_wait_that_is_there_is_kept),
      cmocka_unit_test(a_missing_wait_shows),
      cmocka_unit_test(a_buffer_that_is_used_again_too_soon_shows),
      rig_test(an_event_is_its_last_record),
      rig_test(events_tell_time),
      rig_test(the_null_stream_knows_blocking_streams_alone),
      rig_test(a_full_queue_makes_the_caller_wait),
      rig_test(faults_come_where_they_are_asked_for),
      rig_test(a_broken_device_stays_broken),
      rig_test(a_context_is_needed_and_ends),
      rig_test(objects_that_are_gone_are_refused),
      rig_test(launches_are_looked_at),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

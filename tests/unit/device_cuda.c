/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device/cuda through its table, on whatever driver there is: pages under several addresses, copies
 * of streams that follow each other's marks, memory that is refused and memory that comes back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "device/cuda/device.h"
#include "tests/unit/device_found.h"

#define PAGE_COUNT  6u
#define RANGE_COUNT 3u

static const struct mr_device_ops *const ops = &mr_device_cuda;

/* Three ranges on six pages: all of them, the upper half again, and one that ends within a page. */
struct rig {
  uint64_t page_bytes;
  uint64_t range_bytes[RANGE_COUNT];
  struct mr_device *device;
};

static const uint32_t all_pages[PAGE_COUNT] = {0, 1, 2, 3, 4, 5};
static const uint32_t *const range_pages[RANGE_COUNT] = {all_pages, all_pages + 3, all_pages + 1};

static void rig_init(struct rig *rig) {
  struct mr_device_caps caps;
  ops->query(&caps);
  assert_true(caps.map_bytes > 0);
  uint64_t page = caps.map_bytes;
  *rig = (struct rig){.page_bytes = page, .range_bytes = {6 * page, 3 * page, page + 12}};
  const struct mr_device_config config = {.page_bytes = page,
                                          .page_count = PAGE_COUNT,
                                          .small_bytes = 4096,
                                          .range_bytes = rig->range_bytes,
                                          .range_count = RANGE_COUNT,
                                          .range_pages = range_pages};
  assert_int_equal(ops->create(&config, &rig->device), MR_OK);
}

static unsigned char *at(const struct rig *rig, uint32_t range, uint64_t offset) {
  return (unsigned char *)ops->range_address(rig->device, range) + offset;
}

static unsigned char *filled(uint64_t bytes, uint64_t seed) {
  struct mr_random random;
  mr_random_init(&random, seed);
  uint64_t words = mr_div_up(bytes, sizeof(uint64_t));
  uint64_t *data = malloc(words * sizeof *data);
  assert_non_null(data);
  for (uint64_t i = 0; i < words; i++) {
    data[i] = mr_random_u64(&random);
  }
  return (unsigned char *)data;
}

static void assert_holds(const struct rig *rig, const unsigned char *address, const void *expected,
                         uint64_t bytes) {
  void *data = malloc(bytes);
  assert_non_null(data);
  assert_int_equal(ops->read(rig->device, data, address, bytes, "a range"), MR_OK);
  assert_memory_equal(data, expected, bytes);
  free(data);
}

static void memory_begins_as_zeros(void **state) {
  (void)state;
  struct rig rig;
  rig_init(&rig);
  unsigned char *zeros = calloc(1, rig.range_bytes[0]);
  assert_non_null(zeros);
  assert_holds(&rig, at(&rig, 0, 0), zeros, rig.range_bytes[0]);
  assert_holds(&rig, ops->small_address(rig.device), zeros, 4096);
  free(zeros);
  ops->destroy(rig.device);
}

static void ranges_share_pages(void **state) {
  (void)state;
  struct rig rig;
  rig_init(&rig);
  uint64_t page = rig.page_bytes;
  unsigned char *data = filled(6 * page, 1);
  unsigned char *odd = filled(page + 12, 2);
  assert_int_equal(ops->write(rig.device, at(&rig, 0, 0), data, 6 * page, "range 0"), MR_OK);
  assert_holds(&rig, at(&rig, 1, 0), data + 3 * page, 3 * page);
  assert_holds(&rig, at(&rig, 2, 0), data + page, page + 12);
  assert_int_equal(ops->write(rig.device, at(&rig, 2, 0), odd, page + 12, "range 2"), MR_OK);
  memcpy(data + page, odd, page + 12);
  assert_holds(&rig, at(&rig, 0, 0), data, 6 * page);
  free(odd);
  free(data);
  ops->destroy(rig.device);
}

/* Ranges of three halves of pages: one ends with the lower half of the second page, one begins with
 * its upper half, one has the third page before the lower half. */
static mr_status create_halves(const uint32_t *third, struct rig *rig) {
  static const uint32_t ends_below[] = {0, 1, 2};
  static const uint32_t begins_above[] = {3, 4, 5};
  const uint32_t *const pages[RANGE_COUNT] = {ends_below, begins_above, third};
  struct mr_device_caps caps;
  ops->query(&caps);
  uint64_t half = caps.map_bytes / 2;
  *rig = (struct rig){.page_bytes = half, .range_bytes = {3 * half, 3 * half, 3 * half}};
  const struct mr_device_config config = {.page_bytes = half,
                                          .page_count = PAGE_COUNT,
                                          .small_bytes = 4096,
                                          .range_bytes = rig->range_bytes,
                                          .range_count = RANGE_COUNT,
                                          .range_pages = pages};
  return ops->create(&config, &rig->device);
}

static void halves_of_a_page_are_of_two_ranges(void **state) {
  (void)state;
  static const uint32_t third[] = {4, 5, 2};
  struct rig rig;
  assert_int_equal(create_halves(third, &rig), MR_OK);
  uint64_t half = rig.page_bytes;
  assert_int_equal(ops->bound_page_count(rig.device), PAGE_COUNT);
  unsigned char *below = filled(3 * half, 4);
  unsigned char *above = filled(3 * half, 5);
  assert_int_equal(ops->write(rig.device, at(&rig, 0, 0), below, 3 * half, "range 0"), MR_OK);
  assert_int_equal(ops->write(rig.device, at(&rig, 1, 0), above, 3 * half, "range 1"), MR_OK);
  assert_holds(&rig, at(&rig, 0, 0), below, 3 * half);
  assert_holds(&rig, at(&rig, 1, 0), above, 3 * half);
  assert_holds(&rig, at(&rig, 2, 0), above + half, 2 * half);
  assert_holds(&rig, at(&rig, 2, 2 * half), below + 2 * half, half);
  ops->drop(rig.device, 2);
  assert_holds(&rig, at(&rig, 1, 0), above, 3 * half); /* the page is still there */
  free(below);
  free(above);
  ops->destroy(rig.device);
}

static void halves_that_lie_apart_are_refused(void **state) {
  (void)state;
  static const uint32_t third[] = {0, 2, 3};
  struct rig rig;
  assert_int_equal(create_halves(third, &rig), MR_INVALID);
}

/* One stream brings a block to the device, another takes it out from other addresses, in turns. */
static void follow_marks(uint64_t pin_bytes) {
  const struct mr_work work = {"tensor", "of a test", 0};
  struct rig rig;
  struct mr_stream *in = NULL;
  struct mr_stream *out = NULL;
  struct mr_memory host;
  rig_init(&rig);
  uint64_t bytes = 3 * rig.page_bytes;
  assert_int_equal(mr_memory_map(2 * bytes, MR_DEVICE_HUGE_PAGE_BYTES, "a test", &host), MR_OK);
  unsigned char *from = host.data;
  unsigned char *to = from + bytes;
  assert_int_equal(mr_cuda_pin(rig.device, host.data, host.bytes, pin_bytes, "a test"), MR_OK);
  assert_int_equal(ops->streams->create(rig.device, 1, &in), MR_OK);
  assert_int_equal(ops->streams->create(rig.device, 1, &out), MR_OK);
  for (uint64_t turn = 0; turn < 20; turn++) {
    unsigned char *data = filled(bytes, 100 + turn);
    double seconds[2] = {0};
    memcpy(from, data, bytes);
    assert_int_equal(ops->streams->begin(in, 0, &work, true), MR_OK);
    assert_int_equal(ops->streams->copy_in(in, at(&rig, 1, 0), from, bytes), MR_OK);
    assert_int_equal(ops->streams->end(in), MR_OK);
    assert_int_equal(ops->streams->follow(out, in, 0, &work), MR_OK);
    assert_int_equal(ops->streams->begin(out, 0, &work, false), MR_OK);
    assert_int_equal(ops->streams->copy_out(out, to, at(&rig, 0, 3 * rig.page_bytes), bytes),
                     MR_OK);
    assert_int_equal(ops->streams->end(out), MR_OK);
    assert_int_equal(ops->streams->wait(out, 0, &seconds[0]), MR_OK);
    assert_int_equal(ops->streams->wait(in, 0, &seconds[1]), MR_OK);
    assert_memory_equal(to, data, bytes);
    assert_true(seconds[0] < 0 && seconds[1] > 0 && seconds[1] < 60);
    free(data);
  }
  assert_true(ops->settle(rig.device));
  ops->streams->destroy(out);
  ops->streams->destroy(in);
  ops->unpin(rig.device, host.data);
  mr_memory_unmap(&host);
  ops->destroy(rig.device);
}

static void streams_follow_marks(void **state) {
  (void)state;
  follow_marks(64 * MR_GIB);
}

/* Copies in both directions go over the places where two registrations meet. */
static void memory_is_pinned_in_pieces(void **state) {
  (void)state;
  follow_marks(2 * MR_DEVICE_HUGE_PAGE_BYTES);
  follow_marks(5 * MR_DEVICE_HUGE_PAGE_BYTES);
  follow_marks(MR_DEVICE_HUGE_PAGE_BYTES / 4);
}

static void memory_comes_back(void **state) {
  (void)state;
  struct rig rig;
  for (int turn = 0; turn < 3; turn++) {
    rig_init(&rig);
    uint64_t during = device_used_bytes();
    ops->destroy(rig.device);
    assert_true(device_used_bytes() + PAGE_COUNT * rig.page_bytes <= during);
  }
}

static void more_than_there_is_is_refused(void **state) {
  (void)state;
  struct mr_device_caps caps;
  struct mr_accelerator accelerator;
  char why[256];
  ops->query(&caps);
  assert_int_equal(mr_cuda_describe(&accelerator, why, sizeof why), MR_OK);
  uint64_t before = device_used_bytes();
  const struct mr_device_config config = {
      .page_bytes = caps.map_bytes,
      .page_count = (uint32_t)(accelerator.memory_bytes / caps.map_bytes) + 1};
  struct mr_device *device = NULL;
  device_found_expect_errors(true);
  assert_int_equal(ops->create(&config, &device), MR_NO_MEMORY);
  device_found_expect_errors(false);
  assert_null(device);
  assert_true(device_used_bytes() <= before);
}

struct question {
  struct mr_device *device;
  bool faulty;
};

static void *ask(void *argument) {
  struct question *question = argument;
  question->faulty = ops->faulty(question->device);
  return NULL;
}

/* A thread that failed to enter is no sign of a fault. */
static void any_thread_may_ask_for_faults(void **state) {
  (void)state;
  struct rig rig;
  pthread_t thread;
  rig_init(&rig);
  struct question question = {.device = rig.device, .faulty = true};
  assert_int_equal(pthread_create(&thread, NULL, ask, &question), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_false(question.faulty);
  assert_false(ops->faulty(rig.device));
  ops->destroy(rig.device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_begins_as_zeros),
      cmocka_unit_test(ranges_share_pages),
      cmocka_unit_test(halves_of_a_page_are_of_two_ranges),
      cmocka_unit_test(halves_that_lie_apart_are_refused),
      cmocka_unit_test(streams_follow_marks),
      cmocka_unit_test(memory_is_pinned_in_pieces),
      cmocka_unit_test(memory_comes_back),
      cmocka_unit_test(more_than_there_is_is_refused),
      cmocka_unit_test(any_thread_may_ask_for_faults),
  };
  return device_found() ? cmocka_run_group_tests(tests, NULL, NULL) : DEVICE_NOT_FOUND;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The team: every task runs once, claims ascend, results survive foreign load, and denormals are
 * flushed in every thread while the caller's own mode comes back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include <memrun/team.h>

#include "base/base.h"

#define MAX_TASKS 2000u

struct tally {
  _Atomic uint32_t runs[MAX_TASKS];
  _Atomic uint32_t order;
  uint32_t position[MAX_TASKS];
  uint32_t threads;
  _Atomic uint32_t bad_threads;
};

static void tally_task(void *context, uint32_t task, uint32_t thread) {
  struct tally *tally = context;
  tally->position[task] = atomic_fetch_add(&tally->order, 1);
  atomic_fetch_add(&tally->runs[task], 1);
  if (thread >= tally->threads) {
    atomic_fetch_add(&tally->bad_threads, 1);
  }
}

static void runs_every_task_once(void **state) {
  (void)state;
  static const uint32_t threads[] = {1, 2, 3, 8};
  static struct tally tally;
  for (size_t i = 0; i < MR_COUNT_OF(threads); i++) {
    struct mr_team *team = NULL;
    assert_int_equal(mr_team_create(threads[i], &team), MR_OK);
    assert_int_equal(mr_team_thread_count(team), threads[i]);
    struct mr_random random;
    mr_random_init(&random, 7 + i);
    for (uint32_t round = 0; round < 2000; round++) {
      uint32_t count = (uint32_t)mr_random_below(&random, round % 100 == 0 ? MAX_TASKS : 12);
      memset(&tally, 0, sizeof tally);
      tally.threads = threads[i];
      mr_team_run(team, count, tally_task, &tally);
      for (uint32_t task = 0; task < MAX_TASKS; task++) {
        assert_int_equal(tally.runs[task], task < count);
        assert_true(threads[i] > 1 || task >= count || tally.position[task] == task);
      }
      assert_int_equal(tally.bad_threads, 0);
    }
    mr_team_destroy(team);
  }
}

static void refuses_bad_counts(void **state) {
  (void)state;
  struct mr_team *team = NULL;
  assert_int_equal(mr_team_create(0, &team), MR_INVALID);
  assert_int_equal(mr_team_create(1025, &team), MR_INVALID);
  assert_null(team);
  mr_team_destroy(NULL);
}

struct denormal_probe {
  volatile float smallest;
  _Atomic uint32_t nonzero;
  _Atomic uint32_t started;
  uint32_t threads;
};

/* Holds each thread until all have come, so that every thread of the team takes one task. */
static void denormal_task(void *context, uint32_t task, uint32_t thread) {
  struct denormal_probe *probe = context;
  (void)task;
  (void)thread;
  atomic_fetch_add(&probe->started, 1);
  while (atomic_load(&probe->started) < probe->threads) {
    sched_yield();
  }
  volatile float half = probe->smallest * 0.5f;
  if (half != 0.0f) {
    atomic_fetch_add(&probe->nonzero, 1);
  }
}

static void flushes_denormals(void **state) {
  (void)state;
  struct mr_team *team = NULL;
  assert_int_equal(mr_team_create(3, &team), MR_OK);
  struct denormal_probe probe = {.smallest = 1.17549435e-38f, .threads = 3};
  mr_team_run(team, 3, denormal_task, &probe);
#if defined(__x86_64__) || defined(__aarch64__)
  assert_int_equal(probe.nonzero, 0);
#endif
  volatile float half = probe.smallest * 0.5f;
  assert_true(half != 0.0f);
  mr_team_destroy(team);
}

static _Atomic bool foreign_stop;

static void *foreign_main(void *argument) {
  (void)argument;
  while (!atomic_load(&foreign_stop)) {
  }
  return NULL;
}

static void sum_task(void *context, uint32_t task, uint32_t thread) {
  double *sums = context;
  (void)thread;
  double sum = 0;
  for (uint32_t i = 1; i < 2000; i++) {
    sum += 1.0 / (i + task);
  }
  sums[task] = sum;
}

static void same_results_beside_busy_threads(void **state) {
  (void)state;
  static double expected[64], sums[64];
  struct mr_team *team = NULL;
  assert_int_equal(mr_team_create(2, &team), MR_OK);
  mr_team_run(team, 64, sum_task, expected);
  pthread_t foreign[2];
  atomic_store(&foreign_stop, false);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(pthread_create(&foreign[i], NULL, foreign_main, NULL), 0);
  }
  for (int round = 0; round < 200; round++) {
    memset(sums, 0, sizeof sums);
    mr_team_run(team, 64, sum_task, sums);
    assert_memory_equal(sums, expected, sizeof sums);
  }
  atomic_store(&foreign_stop, true);
  for (int i = 0; i < 2; i++) {
    pthread_join(foreign[i], NULL);
  }
  mr_team_destroy(team);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(runs_every_task_once),
      cmocka_unit_test(refuses_bad_counts),
      cmocka_unit_test(flushes_denormals),
      cmocka_unit_test(same_results_beside_busy_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

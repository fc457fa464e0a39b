/* SPDX-License-Identifier: Apache-2.0 */
/* The crew: every task once, tasks of tasks, the first failure, and no thread to be had. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/crew.h"

#define TASKS 24u
#define PARTS 5u

static _Atomic bool no_threads;

/* The linker chose these names. NOLINTBEGIN(bugprone-reserved-identifier) */
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *argument);
/* NOLINTEND(bugprone-reserved-identifier) */

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *argument) {
  return atomic_load(&no_threads) ? EAGAIN
                                  : __real_pthread_create(thread, attributes, start, argument);
}

struct job {
  struct mr_crew *crew;
  _Atomic uint32_t done[TASKS][PARTS];
  _Atomic uint32_t running;
  _Atomic uint32_t most_running;
  uint32_t fails_from;
};

struct part {
  struct job *job;
  uint32_t task;
};

static mr_status do_part(void *context, uint32_t index) {
  const struct part *part = context;
  atomic_fetch_add(&part->job->done[part->task][index], 1);
  return MR_OK;
}

static mr_status do_parts(void *context, uint32_t task) {
  struct part part = {.job = context, .task = task};
  return mr_crew_run(part.job->crew, PARTS, do_part, &part);
}

/* Long enough for others to be begun meanwhile. */
static mr_status do_task(void *context, uint32_t task) {
  struct job *job = context;
  uint32_t running = atomic_fetch_add(&job->running, 1) + 1;
  uint32_t most = atomic_load(&job->most_running);
  while (running > most && !atomic_compare_exchange_weak(&job->most_running, &most, running)) {
  }
  usleep(2000);
  atomic_fetch_add(&job->done[task][0], 1);
  atomic_fetch_sub(&job->running, 1);
  if (task < job->fails_from) {
    return MR_OK;
  }
  return task == job->fails_from ? MR_INVALID : MR_NO_MEMORY;
}

static void every_task_is_done_once(void **state) {
  (void)state;
  static const uint32_t threads[] = {1, 2, MR_CREW_THREADS};
  for (uint32_t i = 0; i < MR_COUNT_OF(threads); i++) {
    struct mr_crew crew;
    struct job job = {.crew = &crew, .fails_from = TASKS};
    mr_crew_init(&crew, threads[i]);
    assert_true(mr_crew_has_spare(&crew) == (threads[i] > 1));
    assert_int_equal(mr_crew_run(&crew, TASKS, do_task, &job), MR_OK);
    for (uint32_t task = 0; task < TASKS; task++) {
      assert_int_equal(job.done[task][0], 1);
    }
    assert_true(job.most_running <= threads[i]);
    assert_true(threads[i] == 1 || job.most_running > 1);
    assert_int_equal(crew.spare, threads[i] - 1);
  }
}

static void tasks_hand_out_tasks(void **state) {
  (void)state;
  struct mr_crew crew;
  for (uint32_t threads = 0; threads <= MR_CREW_THREADS; threads++) {
    struct job job = {.crew = threads == 0 ? NULL : &crew};
    mr_crew_init(&crew, threads);
    assert_int_equal(mr_crew_run(job.crew, TASKS, do_parts, &job), MR_OK);
    for (uint32_t task = 0; task < TASKS; task++) {
      for (uint32_t part = 0; part < PARTS; part++) {
        assert_int_equal(job.done[task][part], 1);
      }
    }
    assert_int_equal(crew.spare, threads < 2 ? 0 : threads - 1);
  }
  assert_false(mr_crew_has_spare(NULL));
}

static void the_first_failure_is_told(void **state) {
  (void)state;
  for (uint32_t threads = 1; threads <= MR_CREW_THREADS; threads++) {
    struct mr_crew crew;
    struct job job = {.crew = &crew, .fails_from = 3};
    mr_crew_init(&crew, threads);
    assert_int_equal(mr_crew_run(&crew, TASKS, do_task, &job), MR_INVALID);
    for (uint32_t task = 0; task <= job.fails_from; task++) {
      assert_int_equal(job.done[task][0], 1);
    }
    assert_true(threads > 1 || job.done[job.fails_from + 1][0] == 0);
  }
}

static void without_threads_the_caller_does_all(void **state) {
  (void)state;
  struct mr_crew crew;
  struct job job = {.crew = &crew, .fails_from = TASKS};
  mr_crew_init(&crew, 4);
  atomic_store(&no_threads, true);
  assert_int_equal(mr_crew_run(&crew, TASKS, do_task, &job), MR_OK);
  atomic_store(&no_threads, false);
  assert_int_equal(job.most_running, 1);
  assert_int_equal(job.done[TASKS - 1][0], 1);
  assert_int_equal(crew.spare, 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_task_is_done_once),
      cmocka_unit_test(tasks_hand_out_tasks),
      cmocka_unit_test(the_first_failure_is_told),
      cmocka_unit_test(without_threads_the_caller_does_all),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

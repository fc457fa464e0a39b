/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fork and join. The caller works too and, where tasks are left, starts a helper before each of its
 * own; whoever finds no task left gives its place to others of the crew, the caller while it waits
 * for its helpers as well.
 */
#include "base/crew.h"

#include <pthread.h>
#include <signal.h>

#include "base/base.h"

struct crew_run {
  struct mr_crew *crew;
  mr_crew_task *task;
  void *context;
  uint32_t task_count;
  pthread_mutex_t lock; /* of what follows */
  uint32_t next;
  uint32_t failed; /* the first task that did; task_count: none */
  mr_status status;
};

void mr_crew_init(struct mr_crew *crew, uint32_t thread_count) {
  uint64_t threads = mr_min_u64(mr_max_u64(thread_count, 1), MR_CREW_THREADS);
  atomic_init(&crew->spare, (int32_t)threads - 1);
}

bool mr_crew_has_spare(const struct mr_crew *crew) {
  return crew != NULL && atomic_load(&crew->spare) > 0;
}

static bool take_spare(struct mr_crew *crew) {
  int32_t spare = crew == NULL ? 0 : atomic_load(&crew->spare);
  while (spare > 0 && !atomic_compare_exchange_weak(&crew->spare, &spare, spare - 1)) {
  }
  return spare > 0;
}

/* Takes the next task; *left_out: how many are behind it. False: none is to be begun. */
static bool claim(struct crew_run *run, uint32_t *task_out, uint32_t *left_out) {
  pthread_mutex_lock(&run->lock);
  bool any = run->next < run->task_count && run->failed == run->task_count;
  if (any) {
    *task_out = run->next++;
    *left_out = run->task_count - run->next;
  }
  pthread_mutex_unlock(&run->lock);
  return any;
}

static void do_task(struct crew_run *run, uint32_t task) {
  mr_status status = run->task(run->context, task);
  if (status == MR_OK) {
    return;
  }
  pthread_mutex_lock(&run->lock);
  if (task < run->failed) {
    run->failed = task;
    run->status = status;
  }
  pthread_mutex_unlock(&run->lock);
}

static void *help(void *argument) {
  struct crew_run *run = argument;
  uint32_t task = 0;
  uint32_t left = 0;
  while (claim(run, &task, &left)) {
    do_task(run, task);
  }
  atomic_fetch_add(&run->crew->spare, 1);
  return NULL;
}

/* False where no thread is to spare, or none can be started. */
static bool start_helper(struct crew_run *run, pthread_t *helper_out) {
  if (!take_spare(run->crew)) {
    return false;
  }
  /* Signals belong to the program's own threads. */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(helper_out, NULL, help, run);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (error != 0) {
    atomic_fetch_add(&run->crew->spare, 1);
  }
  return error == 0;
}

/* Does tasks until none is left, with helpers beside; returns how many were started. */
static uint32_t work(struct crew_run *run, pthread_t *helpers) {
  uint32_t count = 0;
  uint32_t task = 0;
  uint32_t left = 0;
  while (claim(run, &task, &left)) {
    while (count < MR_CREW_THREADS && count < left && start_helper(run, &helpers[count])) {
      count++;
    }
    do_task(run, task);
  }
  return count;
}

mr_status mr_crew_run(struct mr_crew *crew, uint32_t task_count, mr_crew_task *task,
                      void *context) {
  struct crew_run run = {.crew = crew,
                         .task = task,
                         .context = context,
                         .task_count = task_count,
                         .failed = task_count};
  pthread_t helpers[MR_CREW_THREADS];
  pthread_mutex_init(&run.lock, NULL);
  uint32_t count = work(&run, helpers);
  if (count > 0) {
    atomic_fetch_add(&crew->spare, 1);
    for (uint32_t i = 0; i < count; i++) {
      pthread_join(helpers[i], NULL);
    }
    atomic_fetch_sub(&crew->spare, 1);
  }
  pthread_mutex_destroy(&run.lock);
  return run.status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A crew is a number of threads that a piece of work may take up. Tasks that do not depend on each
 * other go side by side as far as threads are to spare, else one after another; a task may hand
 * tasks of its own to the same crew. Threads are started when there is something to do and end when
 * there is not: tasks take milliseconds and more. Where none can be started the caller does all.
 *
 * What tasks do must not depend on who runs them, when, or how many there are beside them; then
 * neither does what comes of it.
 */
#ifndef MEMRUN_BASE_CREW_H
#define MEMRUN_BASE_CREW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <memrun/status.h>

/* More threads than this are not taken up: each task holds memory of its own. */
#define MR_CREW_THREADS 8u

struct mr_crew {
  _Atomic int32_t spare; /* threads that may be started; below 0 while one that lent its place has
                            taken it back */
};

/* A crew of so many threads, the caller included: at least 1, at most MR_CREW_THREADS. */
void mr_crew_init(struct mr_crew *crew, uint32_t thread_count);

/* Whether a thread is to spare now: for those who begin early what may prove to be in vain. False
 * for no crew (NULL). */
bool mr_crew_has_spare(const struct mr_crew *crew);

/* Does one task; `task` < task_count. */
typedef mr_status mr_crew_task(void *context, uint32_t task);

/*
 * Does task(context, i) for every i below task_count and returns when all are done; tasks are begun
 * in ascending order. The first task that fails is the one whose status is returned; those behind
 * it may not have been begun. Without a crew (NULL) the caller does them in order. Blocks; any
 * thread, tasks included.
 */
MR_CHECK_RESULT mr_status mr_crew_run(struct mr_crew *crew, uint32_t task_count, mr_crew_task *task,
                                      void *context);

#endif

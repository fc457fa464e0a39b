/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A team is the set of threads that runs one op on the cpu device. Work is claimed dynamically,
 * task by task, so a busy foreign process slows a step by its share only; what a task computes must
 * not depend on who runs it or when, so results do not depend on timing. Each thread flushes
 * denormals to zero.
 */
#ifndef MEMRUN_TEAM_H
#define MEMRUN_TEAM_H

#include <stdint.h>

#include <memrun/status.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_team;

/* Runs one task; `task` < task_count, `thread` < mr_team_thread_count(). Must not call mr_team_run.
 */
typedef void (*mr_team_task)(void *context, uint32_t task, uint32_t thread);

/*
 * Creates a team of `thread_count` threads (1 to 1024), the caller of mr_team_run being the first
 * of them. The caller owns the team and destroys it with no run in progress. Errors: MR_INVALID,
 * MR_NO_MEMORY.
 */
MR_API MR_CHECK_RESULT mr_status mr_team_create(uint32_t thread_count, struct mr_team **team_out);
MR_API void mr_team_destroy(struct mr_team *team);

/* The number of threads, the caller included. Any thread. */
MR_API uint32_t mr_team_thread_count(const struct mr_team *team);

/*
 * Runs task(context, i, thread) for every i below task_count and returns when all have finished.
 * Blocks. One caller at a time. Task 0 is claimed first; claims are in ascending order.
 */
MR_API void mr_team_run(struct mr_team *team, uint32_t task_count, mr_team_task task,
                        void *context);

#ifdef __cplusplus
}
#endif
#endif

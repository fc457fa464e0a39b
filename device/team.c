/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A team claims tasks through one 64-bit word: the number of the run in the high half, the next
 * task in the low half. A run is opened by storing (run, 0) after its fields are written and closed
 * by storing (run, closed) before they may change: who sees a field of a later run sees that too.
 * So a thread that was descheduled in between fails its compare-and-swap instead of taking a task
 * of another run. The caller waits for tasks, never for threads: one that sleeps through a whole
 * run delays nobody.
 */
#include <memrun/team.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/counter.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define MAX_THREADS 1024u
#define CLOSED      UINT32_MAX

struct team_worker {
  struct mr_team *team;
  pthread_t handle;
  uint32_t thread;
};

struct mr_team {
  uint32_t thread_count;
  _Atomic bool stop;
  /* The run in progress; atomics because a late thread may read them while they change. */
  _Atomic(mr_team_task) task;
  _Atomic(void *) context;
  _Atomic uint32_t task_count;
  _Alignas(64) _Atomic uint64_t claim;
  _Alignas(64) struct mr_counter opened;   /* runs opened so far; workers wait for the next */
  _Alignas(64) struct mr_counter finished; /* tasks finished so far, modulo 2^32 */
  struct team_worker workers[];            /* thread_count - 1 */
};

#if defined(__x86_64__)
#define FLUSH_TO_ZERO_AND_DENORMALS_ARE_ZERO 0x8040u
static uint64_t denormals_flush(void) {
  unsigned before = _mm_getcsr();
  _mm_setcsr(before | FLUSH_TO_ZERO_AND_DENORMALS_ARE_ZERO);
  return before;
}
static void denormals_restore(uint64_t before) {
  _mm_setcsr((unsigned)before);
}
#elif defined(__aarch64__)
#define FLUSH_TO_ZERO (1ull << 24)
static uint64_t denormals_flush(void) {
  uint64_t before = 0;
  __asm__ volatile("mrs %0, fpcr" : "=r"(before));
  __asm__ volatile("msr fpcr, %0" ::"r"(before | FLUSH_TO_ZERO));
  return before;
}
static void denormals_restore(uint64_t before) {
  __asm__ volatile("msr fpcr, %0" ::"r"(before));
}
#else
static uint64_t denormals_flush(void) {
  return 0;
}
static void denormals_restore(uint64_t before) {
  (void)before;
}
#endif

static uint64_t claim_word(uint32_t run, uint32_t next) {
  /* It misreads atomics. NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult) */
  return (uint64_t)run << 32 | next;
}

/* Runs tasks of run `run` on this thread until none is left. */
static void team_work(struct mr_team *team, uint32_t run, uint32_t thread) {
  for (;;) {
    uint64_t seen = atomic_load_explicit(&team->claim, memory_order_acquire);
    uint32_t next = (uint32_t)seen;
    if ((uint32_t)(seen >> 32) != run || next == CLOSED) return;
    mr_team_task task = atomic_load_explicit(&team->task, memory_order_acquire);
    void *context = atomic_load_explicit(&team->context, memory_order_acquire);
    if (next >= atomic_load_explicit(&team->task_count, memory_order_acquire)) return;
    if (!atomic_compare_exchange_strong(&team->claim, &seen, claim_word(run, next + 1))) continue;
    task(context, next, thread);
    mr_counter_add(&team->finished, 1);
  }
}

static void *worker_main(void *argument) {
  struct team_worker *worker = argument;
  struct mr_team *team = worker->team;
  denormals_flush();
  uint32_t run = 0;
  while (!atomic_load(&team->stop)) {
    mr_counter_wait(&team->opened, run + 1, &team->stop, UINT64_MAX);
    run = mr_counter_load(&team->opened);
    team_work(team, run, worker->thread);
  }
  return NULL;
}

static void team_stop(struct mr_team *team, uint32_t worker_count) {
  atomic_store(&team->stop, true);
  mr_counter_wake(&team->opened);
  for (uint32_t i = 0; i < worker_count; i++) {
    pthread_join(team->workers[i].handle, NULL);
  }
  free(team);
}

mr_status mr_team_create(uint32_t thread_count, struct mr_team **team_out) {
  if (thread_count == 0 || thread_count > MAX_THREADS) {
    mr_log(MR_LOG_ERROR, "a team of %u threads was asked for; use 1 to %u", thread_count,
           MAX_THREADS);
    return MR_INVALID;
  }
  uint32_t worker_count = thread_count - 1;
  size_t bytes = sizeof(struct mr_team) + worker_count * sizeof(struct team_worker);
  struct mr_team *team = aligned_alloc(64, mr_round_up(bytes, 64));
  if (team == NULL) {
    mr_log(MR_LOG_ERROR, "no memory for a team of %u threads (%zu bytes)", thread_count, bytes);
    return MR_NO_MEMORY;
  }
  memset(team, 0, bytes);
  team->thread_count = thread_count;
  atomic_init(&team->claim, claim_word(0, CLOSED));
  mr_counter_init(&team->opened, 0);
  mr_counter_init(&team->finished, 0);

  /* Signals belong to the program's own threads: the workers are born with all of them blocked. */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  uint32_t started = 0;
  int error = 0;
  while (started < worker_count && error == 0) {
    struct team_worker *worker = &team->workers[started];
    *worker = (struct team_worker){.team = team, .thread = started + 1};
    error = pthread_create(&worker->handle, NULL, worker_main, worker);
    started += error == 0;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (error != 0) {
    mr_log(MR_LOG_ERROR, "thread %u of a team of %u could not be started: %s; use fewer threads",
           started + 1, thread_count, strerror(error));
    team_stop(team, started);
    return MR_NO_MEMORY;
  }
  *team_out = team;
  return MR_OK;
}

void mr_team_destroy(struct mr_team *team) {
  if (team != NULL) {
    team_stop(team, team->thread_count - 1);
  }
}

uint32_t mr_team_thread_count(const struct mr_team *team) {
  return team->thread_count;
}

void mr_team_run(struct mr_team *team, uint32_t task_count, mr_team_task task, void *context) {
  MR_ASSERT(task_count < CLOSED);
  uint64_t mode = denormals_flush();
  if (team->thread_count == 1 || task_count <= 1) {
    for (uint32_t i = 0; i < task_count; i++) {
      task(context, i, 0);
    }
  } else {
    uint32_t run = mr_counter_load(&team->opened) + 1;
    uint32_t goal = mr_counter_load(&team->finished) + task_count;
    atomic_store_explicit(&team->task, task, memory_order_release);
    atomic_store_explicit(&team->context, context, memory_order_release);
    atomic_store_explicit(&team->task_count, task_count, memory_order_release);
    atomic_store(&team->claim, claim_word(run, 0));
    mr_counter_set(&team->opened, run);
    team_work(team, run, 0);
    bool done = mr_counter_wait(&team->finished, goal, NULL, UINT64_MAX);
    MR_ASSERT(done);
    atomic_store(&team->claim, claim_word(run, CLOSED));
  }
  denormals_restore(mode);
}

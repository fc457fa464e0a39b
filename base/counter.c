/* SPDX-License-Identifier: Apache-2.0 */
/* Counters on futex words: spin briefly, because most waits are short, then sleep, because
 * processors are shared. */
#include "base/counter.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

/* About 10 microseconds: longer than a hand-over between running threads, far shorter than a time
 * slice. */
#define SPIN_ROUNDS 200u

static void futex_wake_all(_Atomic uint32_t *word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t timeout_ns) {
  struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / 1000000000ull),
                             .tv_nsec = (long)(timeout_ns % 1000000000ull)};
  struct timespec *limit = timeout_ns == UINT64_MAX ? NULL : &timeout;
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, limit, NULL, 0);
}

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static bool reached(uint32_t seen, uint32_t value) {
  return (int32_t)(seen - value) >= 0;
}

void mr_counter_init(struct mr_counter *counter, uint32_t value) {
  atomic_init(&counter->value, value);
  atomic_init(&counter->sleepers, 0);
}

uint32_t mr_counter_load(const struct mr_counter *counter) {
  return atomic_load_explicit(&counter->value, memory_order_acquire);
}

void mr_counter_set(struct mr_counter *counter, uint32_t value) {
  MR_ASSERT(reached(value, atomic_load_explicit(&counter->value, memory_order_relaxed)));
  atomic_store(&counter->value, value);
  mr_counter_wake(counter);
}

uint32_t mr_counter_add(struct mr_counter *counter, uint32_t amount) {
  uint32_t value = atomic_fetch_add(&counter->value, amount) + amount;
  mr_counter_wake(counter);
  return value;
}

void mr_counter_wake(struct mr_counter *counter) {
  if (atomic_load(&counter->sleepers) != 0) {
    futex_wake_all(&counter->value);
  }
}

/* A sleeper looks again at least this often, so that a stop word set without a wake is seen too. */
#define LONGEST_SLEEP_NS 50000000ull

bool mr_counter_wait(struct mr_counter *counter, uint32_t value, const _Atomic bool *stop,
                     uint64_t timeout_ns) {
  for (uint32_t i = 0; i < SPIN_ROUNDS; i++) {
    if (reached(mr_counter_load(counter), value)) {
      return true;
    }
    relax();
  }
  uint64_t start_ns = mr_clock_ns();
  for (;;) {
    atomic_fetch_add(&counter->sleepers, 1);
    uint32_t seen = atomic_load(&counter->value);
    bool done = reached(seen, value);
    bool stopped = stop != NULL && atomic_load(stop);
    uint64_t waited_ns = mr_clock_ns() - start_ns;
    if (!done && !stopped && waited_ns < timeout_ns) {
      uint64_t left_ns = timeout_ns == UINT64_MAX ? UINT64_MAX : timeout_ns - waited_ns;
      futex_wait(&counter->value, seen, mr_min_u64(left_ns, LONGEST_SLEEP_NS));
    }
    atomic_fetch_sub(&counter->sleepers, 1);
    if (done || stopped || waited_ns >= timeout_ns) {
      return done;
    }
  }
}

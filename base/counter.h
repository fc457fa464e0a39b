/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A counter only grows. One thread advances it at a time, any thread may wait for it; the word is a
 * futex, so a wait is a short spin and then a sleep in the kernel. Advancing releases, waiting
 * acquires: what was written before an advance is visible after the wait.
 */
#ifndef MEMRUN_BASE_COUNTER_H
#define MEMRUN_BASE_COUNTER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct mr_counter {
  _Atomic uint32_t value;
  _Atomic uint32_t sleepers;
};

void mr_counter_init(struct mr_counter *counter, uint32_t value);
uint32_t mr_counter_load(const struct mr_counter *counter);

/* Sets the counter to `value`, which is not behind its present one, and wakes whoever waits. */
void mr_counter_set(struct mr_counter *counter, uint32_t value);

/* Adds `amount` and returns the new value; several threads may add. */
uint32_t mr_counter_add(struct mr_counter *counter, uint32_t amount);

/* Wakes every waiter so that it looks again at whatever its `stop` word says. */
void mr_counter_wake(struct mr_counter *counter);

/*
 * Waits until the counter has reached `value` (modulo 2^32, within half the range), *stop is true
 * (stop may be NULL), or timeout_ns has passed (UINT64_MAX: never). True where the value was
 * reached.
 */
bool mr_counter_wait(struct mr_counter *counter, uint32_t value, const _Atomic bool *stop,
                     uint64_t timeout_ns);

#endif

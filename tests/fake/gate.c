/* SPDX-License-Identifier: Apache-2.0 */
/* Gates on futex words. */
#include "tests/fake/gate.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool reached(uint32_t seen, uint32_t value) {
  return (int32_t)(seen - value) >= 0;
}

bool fake_gate_reached(struct fake_gate *gate, uint32_t value) {
  return reached(atomic_load_explicit(&gate->value, memory_order_acquire), value);
}

void fake_gate_wait(struct fake_gate *gate, uint32_t value) {
  for (;;) {
    uint32_t seen = atomic_load_explicit(&gate->value, memory_order_acquire);
    if (reached(seen, value)) {
      return;
    }
    syscall(SYS_futex, &gate->value, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
  }
}

void fake_gate_set(struct fake_gate *gate, uint32_t value) {
  atomic_store_explicit(&gate->value, value, memory_order_release);
  syscall(SYS_futex, &gate->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

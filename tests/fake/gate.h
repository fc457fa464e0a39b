/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A number that one thread at a time moves on and others wait for. Unlike base/counter.h it keeps
 * no count of sleepers: moving on releases and waiting acquires, and nothing flows the other way,
 * so the thread sanitizer sees the order that a program asked for and no other.
 */
#ifndef MEMRUN_TESTS_FAKE_GATE_H
#define MEMRUN_TESTS_FAKE_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct fake_gate {
  _Atomic uint32_t value;
};

/* Whether the gate stands at `value` or beyond it, modulo 2^32. */
bool fake_gate_reached(struct fake_gate *gate, uint32_t value);
void fake_gate_wait(struct fake_gate *gate, uint32_t value);
void fake_gate_set(struct fake_gate *gate, uint32_t value);

#endif

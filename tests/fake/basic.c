/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels with which the fake driver itself is tested. */
#include <stdatomic.h>
#include <unistd.h>

#include "tests/fake/state.h"

static void run_fill(const uint32_t grid[3], const uint32_t block[3], const void *argument) {
  (void)grid;
  (void)block;
  const struct fake_fill *a = argument;
  for (uint64_t i = 0; i < a->count; i++) {
    a->to[i] = a->value + (uint32_t)i;
  }
}

static void run_add(const uint32_t grid[3], const uint32_t block[3], const void *argument) {
  (void)grid;
  (void)block;
  const struct fake_add *a = argument;
  for (uint64_t i = 0; i < a->count; i++) {
    a->to[i] += a->from[i];
  }
}

static void run_move(const uint32_t grid[3], const uint32_t block[3], const void *argument) {
  (void)grid;
  (void)block;
  const struct fake_move *a = argument;
  for (uint64_t i = 0; i < a->count; i++) {
    a->to[i] = a->from[i];
  }
}

static void run_hold(const uint32_t grid[3], const uint32_t block[3], const void *argument) {
  (void)grid;
  (void)block;
  const struct fake_hold *a = argument;
  while (atomic_load(a->open) == 0) {
    usleep(100);
  }
}

static const struct fake_kernel kernels[] = {
    {"fake_fill", sizeof(struct fake_fill), run_fill},
    {"fake_add", sizeof(struct fake_add), run_add},
    {"fake_move", sizeof(struct fake_move), run_move},
    {"fake_hold", sizeof(struct fake_hold), run_hold},
};
const struct fake_kernel_table fake_basic_kernels = {kernels, MR_COUNT_OF(kernels)};

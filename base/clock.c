/* SPDX-License-Identifier: Apache-2.0 */
/* The monotonic clock. */
#include "base/base.h"

#include <time.h>

uint64_t mr_clock_ns(void) {
  struct timespec now;
  int failed = clock_gettime(CLOCK_MONOTONIC, &now);
  MR_ASSERT(failed == 0);
  return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

double mr_clock_seconds(void) {
  return (double)mr_clock_ns() * 1e-9;
}

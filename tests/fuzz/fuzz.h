/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fuzz target is a function with libFuzzer's signature and a few seeds. fuzz.c is the main that
 * runs it without any fuzzer: seeded random mutations of the seeds, each input right before a page
 * that must not be touched, for a bounded time.
 */
#ifndef MEMRUN_TESTS_FUZZ_H
#define MEMRUN_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct fuzz_seed {
  const void *data;
  size_t bytes;
};

/* Seed `index` of the target; false where there are no more. */
_Bool fuzz_seed_at(uint32_t index, struct fuzz_seed *seed_out);

/* What must hold for any input. */
#define FUZZ_REQUIRE(condition)                                                                    \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);               \
      abort();                                                                                     \
    }                                                                                              \
  } while (0)

#endif

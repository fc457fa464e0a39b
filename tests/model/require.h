/* SPDX-License-Identifier: Apache-2.0 */
/* For programs that try random problems: what must hold, or the seed and the problem are shown. */
#ifndef MEMRUN_TESTS_REQUIRE_H
#define MEMRUN_TESTS_REQUIRE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends the program with 1 where the condition does not hold. The caller has `uint64_t seed` and
 * `const char *text`, the problem. */
#define REQUIRE(condition)                                                                         \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "%s:%d: does not hold: %s\nseed %llu:\n%s", __FILE__, __LINE__, #condition,  \
              (unsigned long long)seed, text);                                                     \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

#endif

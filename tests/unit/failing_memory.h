/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The n-th allocation fails, for every n. The linker hands a test's calls of calloc, realloc and
 * strdup to failing_memory.c (memrun_failing_memory() in tests/CMakeLists.txt).
 */
#ifndef MEMRUN_TESTS_FAILING_MEMORY_H
#define MEMRUN_TESTS_FAILING_MEMORY_H

#include <stdint.h>

#include "base/base.h"

/*
 * Calls run(context) with its first allocation failing, then with its second, and so on until it
 * gets through without a failure. Each failure must come back as MR_NO_MEMORY after one line of
 * error, and the call that got through as MR_OK. Returns how many allocations failed; no line is
 * shown.
 */
uint32_t failing_memory_each(mr_status (*run)(void *context), void *context);

#endif

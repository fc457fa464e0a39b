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
 * Calls run(context), and has each of its allocations fail: in a child process, which goes on from
 * there while this one gets the memory. Each failure must come back as MR_NO_MEMORY after one line
 * of error, and the call that got through as MR_OK, as must a call that follows a failure, for all
 * of the first failures and a part of the others. Returns how many allocations failed; no line is
 * shown. Under a sanitizer, which looks for leaks when a process ends, every failure is followed by
 * a call, in one process. run() has no threads.
 */
uint32_t failing_memory_each(mr_status (*run)(void *context), void *context);

#endif

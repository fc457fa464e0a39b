/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA driver over host memory: libcuda.so.1 for machines without one. It has the functions that
 * device/cuda/driver.h lists, with the semantics that memrun depends on, and where the real driver
 * leaves a freedom it takes the one that hurts a careless user most.
 *
 * Memory. A device address is an address of this process. Physical memory is a range of one memfd,
 * mapped wherever cuMemMap says, so one page may be seen at several addresses; what is not mapped,
 * or has no access yet, faults. New memory, the device's and pinned, is full of FAKE_POISON (a NaN
 * in every floating-point type). What is taken counts against MEMRUN_FAKE_MEMORY; the primary
 * context and each module take FAKE_CONTEXT_BYTES and FAKE_MODULE_BYTES of it. Libraries take more
 * when they are used: each kernel of a module at its first launch, and each algorithm of cuBLASLt
 * at its first product, MEMRUN_FAKE_LAZY bytes (0). And somebody else takes BYTES with the n-th
 * launch (from 1) where MEMRUN_FAKE_LATE is "N:BYTES". All that goes with the context.
 *
 * Time. A stream is a thread that carries out its items in order; nothing but an event, a wait of
 * the host or the null stream orders two streams, for the thread sanitizer too. Under a seed
 * (MEMRUN_FAKE_SEED, not 0) each stream has a pace of its own and dawdles at random before items,
 * so that what was forgotten to be waited for is late in one seed or another. Copies of pageable
 * memory are staged while the call lasts; those of pinned memory read and write it whenever the
 * stream comes to them. Unmapping and freeing wait for nobody.
 *
 * Faults. MEMRUN_FAKE_FAIL is a list "NAME:N:RESULT,...": the n-th call (from 1) of that function
 * gives that result. NAME is an exported name, "*" for all of them together, or "device" for the
 * n-th item that any stream carries out, whose result may also be "hang": it never ends, no more
 * does its stream, and the process, should it exit rather than _exit, waits for it. Results of a
 * device that has gone wrong (700 and its like) are sticky: every later call of a function that
 * uses the device gives them too, and streams drop what they have left. A function that gives
 * something back does so even where it fails.
 *
 * Kernels are C functions, found by name in the tables of kernels.c, and run on the stream's
 * thread.
 *
 * MEMRUN_FAKE_VERSION is the version of CUDA that the driver says it supports.
 *
 * MEMRUN_FAKE_REPORT=FILE: at exit, "calls NAME N" for each function that was called and "live KIND
 * N" for each kind of object that is still there.
 *
 * Settings are read when the library is loaded and by fake_settings_read.
 */
#ifndef MEMRUN_TESTS_FAKE_FAKE_H
#define MEMRUN_TESTS_FAKE_FAKE_H

#include <stdbool.h>
#include <stdint.h>

#define FAKE_API             __attribute__((visibility("default")))

#define FAKE_POISON          0xffu
#define FAKE_PAGE_BYTES      (2ull << 20) /* the granularity of physical memory */
#define FAKE_DEFAULT_MEMORY  (1ull << 30)
#define FAKE_DEFAULT_VERSION 13000u
#define FAKE_CONTEXT_BYTES   (16ull << 20)
#define FAKE_MODULE_BYTES    (2ull << 20)
#define FAKE_SHARED_BYTES    (48u << 10)  /* of a block, without asking */
#define FAKE_MAX_SHARED      (227u << 10) /* of a block, after cuFuncSetAttribute */
#define FAKE_QUEUE_ITEMS     1024u        /* of a stream; a call waits when there are as many */

/* A kernel: all of its grid at once. */
typedef void (*fake_kernel_run)(const uint32_t grid[3], const uint32_t block[3],
                                const void *argument);
struct fake_kernel {
  const char *name;
  uint32_t argument_bytes; /* of the one struct that it takes by value */
  fake_kernel_run run;
};
struct fake_kernel_table {
  const struct fake_kernel *kernels;
  uint32_t count;
};

/* The kernels of the tests of the driver itself, over `count` 32-bit words. */
extern const struct fake_kernel_table fake_basic_kernels;
struct fake_fill { /* "fake_fill": to[i] = value + i */
  uint32_t *to;
  uint64_t count;
  uint32_t value;
};
struct fake_add { /* "fake_add": to[i] += from[i] */
  uint32_t *to;
  const uint32_t *from;
  uint64_t count;
};
struct fake_move { /* "fake_move": to[i] = from[i] */
  uint32_t *to;
  const uint32_t *from;
  uint64_t count;
};
struct fake_hold { /* "fake_hold": ends when *open is not 0 */
  const _Atomic uint32_t *open;
};

/* Those of the job of tests of runtime/ (tests/unit/world_ops.h). */
extern const struct fake_kernel_table fake_world_kernels;

/* The trainer's, where a C++ compiler can build their sources (FAKE_TRAIN_KERNELS). */
extern const struct fake_kernel_table fake_train_kernels;

/* What is still there, for tests of leaks. */
struct fake_live {
  uint32_t contexts; /* times that the primary context is retained */
  uint32_t memories; /* physical: not released, or still mapped */
  uint32_t mappings;
  uint32_t reservations;
  uint32_t allocations; /* of cuMemAlloc */
  uint32_t pinned;      /* ranges of host memory */
  uint32_t streams;
  uint32_t events;
  uint32_t modules;
  uint64_t device_bytes;
};
FAKE_API void fake_live_count(struct fake_live *live_out);

/* How often that function was called since the settings were read; "*": all functions; "device":
 * items carried out. */
FAKE_API uint64_t fake_call_count(const char *name);

/* Others take `bytes` of the device with the launch that is the `launches`-th from now, as
 * MEMRUN_FAKE_LATE has them do. */
FAKE_API void fake_take_late(uint64_t launches, uint64_t bytes);

/* The next item that any stream carries out never ends. */
FAKE_API void fake_hang(void);

/* For libraries on top of the driver: whether the calling thread has the context; work for a
 * stream, which gets a copy of the payload: 0, or the driver's result. */
FAKE_API bool fake_has_context(void);
FAKE_API int fake_stream_run(void *stream, void (*run)(void *payload), const void *payload,
                             uint64_t payload_bytes);

/* Takes what a library takes when it first does something, until the context goes; false where that
 * is not there. */
FAKE_API bool fake_library_take(void);

/* Waits for all streams, reads the settings again, and forgets counts and a sticky error. No call
 * may be going on. */
FAKE_API void fake_settings_read(void);

#endif

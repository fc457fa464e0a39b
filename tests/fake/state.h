/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the fake driver share. Each keeps its own state behind its own lock; the order
 * of locks is context, streams, handles, allocations, memory, and a stream's thread takes none of
 * them.
 */
#ifndef MEMRUN_TESTS_FAKE_STATE_H
#define MEMRUN_TESTS_FAKE_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "device/cuda/driver.h"
#include "tests/fake/fake.h"

/* The results that the fake gives of itself, as in cuda.h. */
enum {
  FAKE_SUCCESS = 0,
  FAKE_INVALID_VALUE = 1,
  FAKE_OUT_OF_MEMORY = 2,
  FAKE_NOT_INITIALIZED = 3,
  FAKE_INVALID_DEVICE = 101,
  FAKE_INVALID_IMAGE = 200,
  FAKE_INVALID_CONTEXT = 201,
  FAKE_INVALID_HANDLE = 400,
  FAKE_NOT_FOUND = 500,
  FAKE_NOT_READY = 600,
  FAKE_CONTEXT_IS_DESTROYED = 709,
  FAKE_ALREADY_REGISTERED = 712,
  FAKE_NOT_REGISTERED = 713,
};

/* The exported functions: their prototypes, and a number for each. */
#define FAKE_PROTOTYPE(field, name, parameters) FAKE_API mr_cu_result name parameters;
MR_CUDA_FUNCTIONS(FAKE_PROTOTYPE)
#undef FAKE_PROTOTYPE
enum fake_call {
#define FAKE_CALL(field, name, parameters) FAKE_##name,
  MR_CUDA_FUNCTIONS(FAKE_CALL)
#undef FAKE_CALL
      FAKE_CALL_COUNT
};

/* settings.c: what the environment asks for, counts, injected faults. */

/* Every exported function begins with it: counts the call and says whether it may go on: the
 * injected result, no driver, no context, or the sticky error. */
mr_cu_result fake_enter(enum fake_call call);
/* The same for an item of a stream, which is to be carried out, dropped, or never to end. */
enum fake_item_fate { FAKE_ITEM_RUNS, FAKE_ITEM_DROPPED, FAKE_ITEM_HANGS };
enum fake_item_fate fake_enter_item(void);
mr_cu_result fake_sticky(void);
uint64_t fake_seed(void);
uint64_t fake_memory_bytes(void);
int fake_version(void);
uint64_t fake_lazy_bytes(void);
/* What somebody else takes with the n-th launch. */
uint64_t fake_late_bytes(uint64_t launch);
void fake_initialize(void);

static inline mr_cu_result fake_first(mr_cu_result first, mr_cu_result second) {
  return first != FAKE_SUCCESS ? first : second;
}

/* handles.c: handles are numbers that never come again. */

enum fake_kind {
  FAKE_CONTEXT,
  FAKE_STREAM,
  FAKE_EVENT,
  FAKE_MEMORY,
  FAKE_MODULE,
  FAKE_FUNCTION,
  FAKE_KIND_COUNT
};

uint64_t fake_handle_add(enum fake_kind kind, void *object); /* 0: there are too many */
void *fake_handle_find(enum fake_kind kind, uint64_t handle);
void *fake_handle_remove(enum fake_kind kind, uint64_t handle);
/* Removes all of the kind and gives each to `destroy`. */
void fake_handle_clear(enum fake_kind kind, void (*destroy)(void *object));
uint32_t fake_handle_count(enum fake_kind kind);

/* context.c: the one device and its primary context. */

/* FAKE_SUCCESS where the calling thread has the living context. */
mr_cu_result fake_context_check(void);
uint32_t fake_context_retained(void);

/* memory.c: the device's memory. */

/* Counts bytes against the limit; false where they do not fit. */
bool fake_memory_take(uint64_t bytes);
void fake_memory_give(uint64_t bytes);
/* The same for bytes that go with the context. */
bool fake_memory_take_until_end(uint64_t bytes);
void fake_memory_clear(void);
/* Whether all of the range is mapped and may be accessed. */
bool fake_memory_accessible(mr_cu_address address, uint64_t bytes, bool writes);
void fake_memory_count(struct fake_live *live_out);
/* allocation.c: cuMemAlloc's, in the same addresses. */
bool fake_allocation_holds(mr_cu_address address, uint64_t bytes);
void fake_allocation_clear(void);
uint32_t fake_allocation_count(void);

/* host.c: pinned host memory. */

enum fake_host { FAKE_PINNED, FAKE_PAGEABLE, FAKE_STRADDLES };
enum fake_host fake_host_kind(const void *data, uint64_t bytes);
void fake_host_clear(void);
uint32_t fake_host_count(void);

/* stream.c */

struct fake_stream;

/* An item of a stream: `run` gets the payload on the stream's thread. Work is what a broken device
 * drops, unlike waits and marks. */
struct fake_item {
  void (*run)(void *payload);
  bool work;
  _Alignas(16) unsigned char payload[];
};
struct fake_item *fake_item_create(void (*run)(void *payload), uint64_t payload_bytes, bool work);

/* The stream of a handle, NULL being the null stream; NULL where there is none such. */
struct fake_stream *fake_stream_find(mr_cu_stream handle);
/* Hands the item to the stream; the position that the stream reaches when it is done. */
uint32_t fake_stream_push(struct fake_stream *stream, struct fake_item *item);
void fake_stream_push_wait(struct fake_stream *stream, struct fake_stream *awaited,
                           uint32_t position);
/* The host waits for a position; asks whether it is reached. */
void fake_stream_wait(struct fake_stream *stream, uint32_t position);
bool fake_stream_reached(struct fake_stream *stream, uint32_t position);
/* Waits for everything that all streams have been given. */
void fake_stream_wait_all(void);
/* Waits until no stream is at work; for a device that is broken, whose streams begin no other. */
void fake_stream_wait_work(void);
/* Ends every stream, with its work done, and forgets them. */
void fake_stream_clear(void);

/* event.c */
void fake_event_clear(void);

/* module.c */
void fake_module_clear(void);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What the environment asks of the fake driver, how often its functions were called, and which call
 * is to fail. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fake/state.h"

#define MAX_FAULTS 8u
/* The result of an item that never ends. */
#define HANGS (-1)

/* What a call may fail for before it looks at its arguments. */
enum need {
  NEEDS_CONTEXT = 0, /* the driver, the calling thread's context, a device without a fault */
  NEEDS_DEVICE,      /* the driver, a device without a fault */
  NEEDS_DRIVER,      /* cuInit has been called */
  NEEDS_NOTHING,
};

/* Counted beside the functions. */
enum { COUNT_DEVICE = FAKE_CALL_COUNT, COUNT_ALL, COUNT_COUNT };

struct fault {
  uint32_t counted;
  uint64_t n;
  mr_cu_result result;
};

static const char *const names[COUNT_COUNT] = {
#define CALL_NAME(field, name, parameters) [FAKE_##name] = #name,
    MR_CUDA_FUNCTIONS(CALL_NAME)
#undef CALL_NAME
        [COUNT_DEVICE] = "device",
    [COUNT_ALL] = "*",
};

static const uint8_t needs[FAKE_CALL_COUNT] = {
    [FAKE_cuInit] = NEEDS_NOTHING,
    [FAKE_cuDriverGetVersion] = NEEDS_NOTHING,
    [FAKE_cuGetErrorName] = NEEDS_NOTHING,
    [FAKE_cuGetErrorString] = NEEDS_NOTHING,
    [FAKE_cuDeviceGetCount] = NEEDS_DRIVER,
    [FAKE_cuDeviceGet] = NEEDS_DRIVER,
    [FAKE_cuDeviceGetName] = NEEDS_DRIVER,
    [FAKE_cuDeviceGetAttribute] = NEEDS_DRIVER,
    [FAKE_cuDeviceTotalMem_v2] = NEEDS_DRIVER,
    [FAKE_cuDevicePrimaryCtxRetain] = NEEDS_DEVICE,
    [FAKE_cuDevicePrimaryCtxRelease_v2] = NEEDS_DRIVER,
    [FAKE_cuCtxSetCurrent] = NEEDS_DRIVER,
    [FAKE_cuCtxGetCurrent] = NEEDS_DRIVER,
    [FAKE_cuMemGetAllocationGranularity] = NEEDS_DRIVER,
    [FAKE_cuMemCreate] = NEEDS_DEVICE,
    [FAKE_cuMemRelease] = NEEDS_DEVICE,
    [FAKE_cuMemAddressReserve] = NEEDS_DEVICE,
    [FAKE_cuMemAddressFree] = NEEDS_DEVICE,
    [FAKE_cuMemMap] = NEEDS_DEVICE,
    [FAKE_cuMemUnmap] = NEEDS_DEVICE,
    [FAKE_cuMemSetAccess] = NEEDS_DEVICE,
    [FAKE_cuEventQuery] = NEEDS_DEVICE,
};

static struct {
  uint64_t seed;
  uint64_t memory_bytes;
  uint64_t lazy_bytes;
  uint64_t version;
  _Atomic uint64_t late_launch;
  _Atomic uint64_t late_bytes;
  struct fault faults[MAX_FAULTS];
  uint32_t fault_count;
} settings;

/* Relaxed everywhere: counting must not order threads that nothing else orders. */
static _Atomic uint64_t counts[COUNT_COUNT];
static _Atomic int sticky;
static _Atomic bool initialized;
static _Atomic bool hang;

static _Noreturn void refuse(const char *name, const char *value) {
  fprintf(stderr, "fake driver: %s=%s is not understood\n", name, value);
  abort();
}

static uint64_t read_number(const char *name, uint64_t otherwise) {
  const char *text = getenv(name);
  if (text == NULL || *text == '\0') {
    return otherwise;
  }
  char *end = NULL;
  uint64_t value = strtoull(text, &end, 10);
  if (*end != '\0') {
    refuse(name, text);
  }
  return value;
}

/* The number of a name that is `length` long; COUNT_COUNT where there is none. */
static uint32_t counted_of(const char *name, size_t length) {
  uint32_t counted = 0;
  while (counted < COUNT_COUNT &&
         (strlen(names[counted]) != length || strncmp(names[counted], name, length) != 0)) {
    counted++;
  }
  return counted;
}

/* "N:BYTES" */
static void read_late(void) {
  const char *text = getenv("MEMRUN_FAKE_LATE");
  char *end = NULL;
  settings.late_launch = 0;
  if (text == NULL) {
    return;
  }
  settings.late_launch = strtoull(text, &end, 10);
  if (*end != ':') {
    refuse("MEMRUN_FAKE_LATE", text);
  }
  settings.late_bytes = strtoull(end + 1, &end, 10);
  if (*end != '\0' || settings.late_launch == 0) {
    refuse("MEMRUN_FAKE_LATE", text);
  }
}

static void read_faults(void) {
  const char *text = getenv("MEMRUN_FAKE_FAIL");
  settings.fault_count = 0;
  for (const char *at = text; at != NULL && *at != '\0';) {
    size_t length = strcspn(at, ":");
    char *end = NULL;
    struct fault fault = {.counted = counted_of(at, length)};
    if (fault.counted == COUNT_COUNT || at[length] != ':' || settings.fault_count == MAX_FAULTS) {
      refuse("MEMRUN_FAKE_FAIL", text);
    }
    fault.n = strtoull(at + length + 1, &end, 10);
    if (*end != ':') {
      refuse("MEMRUN_FAKE_FAIL", text);
    }
    bool hangs = fault.counted == COUNT_DEVICE && strncmp(end + 1, "hang", 4) == 0;
    fault.result = hangs ? HANGS : (mr_cu_result)strtol(end + 1, &end, 10);
    end += hangs ? 5 : 0;
    if (fault.n == 0 || (fault.result <= 0 && !hangs) || (*end != ',' && *end != '\0')) {
      refuse("MEMRUN_FAKE_FAIL", text);
    }
    settings.faults[settings.fault_count++] = fault;
    at = *end == ',' ? end + 1 : end;
  }
}

__attribute__((constructor)) static void load(void) {
  fake_settings_read();
}

void fake_settings_read(void) {
  fake_stream_wait_all(); /* what a broken device still holds would go on when that is forgotten */
  settings.seed = read_number("MEMRUN_FAKE_SEED", 0);
  settings.memory_bytes = read_number("MEMRUN_FAKE_MEMORY", FAKE_DEFAULT_MEMORY);
  settings.lazy_bytes = read_number("MEMRUN_FAKE_LAZY", 0);
  settings.version = read_number("MEMRUN_FAKE_VERSION", FAKE_DEFAULT_VERSION);
  read_late();
  read_faults();
  for (uint32_t i = 0; i < COUNT_COUNT; i++) {
    atomic_store_explicit(&counts[i], 0, memory_order_relaxed);
  }
  atomic_store_explicit(&sticky, FAKE_SUCCESS, memory_order_relaxed);
}

uint64_t fake_seed(void) {
  return settings.seed;
}

int fake_version(void) {
  return (int)settings.version;
}

uint64_t fake_memory_bytes(void) {
  return settings.memory_bytes;
}

uint64_t fake_lazy_bytes(void) {
  return settings.lazy_bytes;
}

void fake_take_late(uint64_t launches, uint64_t bytes) {
  atomic_store(&settings.late_bytes, bytes);
  atomic_store(&settings.late_launch, fake_call_count("cuLaunchKernel") + launches);
}

void fake_hang(void) {
  atomic_store_explicit(&hang, true, memory_order_relaxed);
}

uint64_t fake_late_bytes(uint64_t launch) {
  return launch == settings.late_launch ? settings.late_bytes : 0;
}

void fake_initialize(void) {
  atomic_store_explicit(&initialized, true, memory_order_relaxed);
}

uint64_t fake_call_count(const char *name) {
  uint32_t counted = counted_of(name, strlen(name));
  if (counted == COUNT_COUNT) {
    refuse("a name of a count", name);
  }
  return atomic_load_explicit(&counts[counted], memory_order_relaxed);
}

/* After these the device is gone for the process: memory that is broken, a kernel that went
 * astray. */
static bool is_sticky(mr_cu_result result) {
  return result == 214 || result == 700 || result == 702 || result == 710 ||
         (result >= 714 && result <= 719);
}

/* Counts one more; the result that is injected here. */
static mr_cu_result count(uint32_t counted) {
  uint64_t n = atomic_fetch_add_explicit(&counts[counted], 1, memory_order_relaxed) + 1;
  for (uint32_t i = 0; i < settings.fault_count; i++) {
    const struct fault *fault = &settings.faults[i];
    if (fault->counted == counted && fault->n == n) {
      if (is_sticky(fault->result)) {
        atomic_store_explicit(&sticky, fault->result, memory_order_relaxed);
      }
      return fault->result;
    }
  }
  return FAKE_SUCCESS;
}

mr_cu_result fake_sticky(void) {
  return atomic_load_explicit(&sticky, memory_order_relaxed);
}

mr_cu_result fake_enter(enum fake_call call) {
  mr_cu_result injected = fake_first(count(call), count(COUNT_ALL));
  if (fake_sticky() != FAKE_SUCCESS) {
    fake_stream_wait_work();
  }
  if (injected != FAKE_SUCCESS) {
    return injected;
  }
  if (needs[call] <= NEEDS_DRIVER && !atomic_load_explicit(&initialized, memory_order_relaxed)) {
    return FAKE_NOT_INITIALIZED;
  }
  mr_cu_result result = needs[call] == NEEDS_CONTEXT ? fake_context_check() : FAKE_SUCCESS;
  if (result == FAKE_SUCCESS && needs[call] <= NEEDS_DEVICE) {
    result = fake_sticky();
  }
  return result;
}

enum fake_item_fate fake_enter_item(void) {
  mr_cu_result injected = count(COUNT_DEVICE);
  if (injected == HANGS || atomic_exchange_explicit(&hang, false, memory_order_relaxed)) {
    return FAKE_ITEM_HANGS;
  }
  bool runs = injected == FAKE_SUCCESS && fake_sticky() == FAKE_SUCCESS;
  return runs ? FAKE_ITEM_RUNS : FAKE_ITEM_DROPPED;
}

void fake_live_count(struct fake_live *live_out) {
  *live_out = (struct fake_live){
      .contexts = fake_context_retained(),
      .allocations = fake_allocation_count(),
      .pinned = fake_host_count(),
      .streams = fake_handle_count(FAKE_STREAM),
      .events = fake_handle_count(FAKE_EVENT),
      .modules = fake_handle_count(FAKE_MODULE),
  };
  fake_memory_count(live_out);
}

static void write_report(FILE *file) {
  for (uint32_t i = 0; i < COUNT_COUNT; i++) {
    uint64_t n = atomic_load_explicit(&counts[i], memory_order_relaxed);
    if (n != 0) {
      fprintf(file, "calls %s %llu\n", names[i], (unsigned long long)n);
    }
  }
  struct fake_live live;
  fake_live_count(&live);
  const struct {
    const char *kind;
    uint64_t count;
  } rows[] = {
      {"contexts", live.contexts},       {"memories", live.memories},
      {"mappings", live.mappings},       {"reservations", live.reservations},
      {"allocations", live.allocations}, {"pinned", live.pinned},
      {"streams", live.streams},         {"events", live.events},
      {"modules", live.modules},
  };
  for (size_t i = 0; i < MR_COUNT_OF(rows); i++) {
    if (rows[i].count != 0) {
      fprintf(file, "live %s %llu\n", rows[i].kind, (unsigned long long)rows[i].count);
    }
  }
}

/* The driver may wait for a device when a process exits, so here it does. */
__attribute__((destructor)) static void report(void) {
  fake_stream_wait_all();
  const char *path = getenv("MEMRUN_FAKE_REPORT");
  FILE *file = path == NULL ? NULL : fopen(path, "we");
  if (file != NULL) {
    write_report(file);
    fclose(file);
  }
}

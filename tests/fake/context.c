/* SPDX-License-Identifier: Apache-2.0 */
/* The fake driver's one device, and its primary context: counted, and everything that was made in
 * it goes when the last user lets go. */
#include <pthread.h>
#include <stdio.h>

#include "tests/fake/state.h"

/* The device, as cuDeviceGetAttribute numbers it. */
static const struct {
  int attribute;
  int value;
} attributes[] = {
    {1, 1024}, /* threads of a block */
    {2, 1024}, /* and each of its sides */
    {3, 1024},
    {4, 64},
    {5, 2147483647}, /* sides of a grid */
    {6, 65535},
    {7, 65535},
    {8, (int)FAKE_SHARED_BYTES},
    {9, 65536},    /* constant memory */
    {10, 32},      /* threads of a warp */
    {12, 65536},   /* registers of a block */
    {13, 1980000}, /* clock, kHz */
    {15, 1},       /* copies beside kernels */
    {16, 4},       /* multiprocessors */
    {17, 0},       /* no time limit of kernels */
    {18, 0},       /* not integrated */
    {19, 1},       /* maps host memory */
    {20, 0},       /* default compute mode */
    {31, 1},       /* concurrent kernels */
    {32, 1},       /* ECC */
    {33, 1},       /* PCI bus, device, domain */
    {34, 0},
    {36, 3201000},  /* memory clock, kHz */
    {37, 6144},     /* memory bus, bits */
    {38, 52428800}, /* second-level cache */
    {39, 2048},     /* threads of a multiprocessor */
    {40, 3},        /* copy engines */
    {41, 1},        /* unified addresses */
    {50, 0},
    {75, 9}, /* compute capability */
    {76, 0},
    {78, 1},      /* stream priorities */
    {81, 233472}, /* shared memory of a multiprocessor */
    {82, 65536},  /* registers of a multiprocessor */
    {83, 1},      /* managed memory */
    {91, 1},      /* host pointers of registered memory are device pointers */
    {95, 1},      /* cooperative launch */
    {97, (int)FAKE_MAX_SHARED},
    {99, 1},   /* cuMemHostRegister */
    {102, 1},  /* virtual memory management */
    {106, 32}, /* blocks of a multiprocessor */
    {115, 1},  /* memory pools */
};

static struct {
  pthread_mutex_t lock;
  uint64_t handle; /* 0: there is none */
  uint32_t retained;
} primary = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local uint64_t current; /* handle */

mr_cu_result fake_context_check(void) {
  if (current == 0) {
    return FAKE_INVALID_CONTEXT;
  }
  bool alive = fake_handle_find(FAKE_CONTEXT, current) != NULL;
  return alive ? FAKE_SUCCESS : FAKE_CONTEXT_IS_DESTROYED;
}

bool fake_has_context(void) {
  return fake_context_check() == FAKE_SUCCESS;
}

uint32_t fake_context_retained(void) {
  pthread_mutex_lock(&primary.lock);
  uint32_t retained = primary.retained;
  pthread_mutex_unlock(&primary.lock);
  return retained;
}

mr_cu_result cuInit(unsigned flags) {
  mr_cu_result result = fake_enter(FAKE_cuInit);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  if (flags != 0) {
    return FAKE_INVALID_VALUE;
  }
  fake_initialize();
  return FAKE_SUCCESS;
}

mr_cu_result cuDriverGetVersion(int *version) {
  mr_cu_result result = fake_enter(FAKE_cuDriverGetVersion);
  if (result == FAKE_SUCCESS) {
    *version = fake_version();
  }
  return result;
}

mr_cu_result cuDeviceGetCount(int *count) {
  mr_cu_result result = fake_enter(FAKE_cuDeviceGetCount);
  if (result == FAKE_SUCCESS) {
    *count = 1;
  }
  return result;
}

mr_cu_result cuDeviceGet(mr_cu_device *device, int ordinal) {
  mr_cu_result result = fake_enter(FAKE_cuDeviceGet);
  if (result == FAKE_SUCCESS && ordinal != 0) {
    result = FAKE_INVALID_DEVICE;
  }
  if (result == FAKE_SUCCESS) {
    *device = 0;
  }
  return result;
}

/* The checks of the functions that ask about a device. */
static mr_cu_result enter_device(enum fake_call call, mr_cu_device device) {
  return fake_first(fake_enter(call), device == 0 ? FAKE_SUCCESS : FAKE_INVALID_DEVICE);
}

mr_cu_result cuDeviceGetName(char *name, int bytes, mr_cu_device device) {
  mr_cu_result result = enter_device(FAKE_cuDeviceGetName, device);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  if (name == NULL || bytes <= 0) {
    return FAKE_INVALID_VALUE;
  }
  snprintf(name, (size_t)bytes, "Fake GPU");
  return FAKE_SUCCESS;
}

mr_cu_result cuDeviceGetAttribute(int *value, int attribute, mr_cu_device device) {
  mr_cu_result result = enter_device(FAKE_cuDeviceGetAttribute, device);
  for (size_t i = 0; result == FAKE_SUCCESS && i < MR_COUNT_OF(attributes); i++) {
    if (attributes[i].attribute == attribute) {
      *value = attributes[i].value;
      return FAKE_SUCCESS;
    }
  }
  return fake_first(result, FAKE_INVALID_VALUE);
}

mr_cu_result cuDeviceTotalMem_v2(size_t *bytes, mr_cu_device device) {
  mr_cu_result result = enter_device(FAKE_cuDeviceTotalMem_v2, device);
  if (result == FAKE_SUCCESS) {
    *bytes = fake_memory_bytes();
  }
  return result;
}

mr_cu_result cuDevicePrimaryCtxRetain(mr_cu_context *context, mr_cu_device device) {
  mr_cu_result result = enter_device(FAKE_cuDevicePrimaryCtxRetain, device);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  pthread_mutex_lock(&primary.lock);
  if (primary.retained == 0 && !fake_memory_take(FAKE_CONTEXT_BYTES)) {
    result = FAKE_OUT_OF_MEMORY;
  } else {
    if (primary.retained++ == 0) {
      primary.handle = fake_handle_add(FAKE_CONTEXT, &primary);
    }
    *context = (mr_cu_context)(uintptr_t)primary.handle;
  }
  pthread_mutex_unlock(&primary.lock);
  return result;
}

mr_cu_result cuDevicePrimaryCtxRelease_v2(mr_cu_device device) {
  mr_cu_result told = enter_device(FAKE_cuDevicePrimaryCtxRelease_v2, device);
  pthread_mutex_lock(&primary.lock);
  if (primary.retained == 0) {
    told = fake_first(told, FAKE_INVALID_CONTEXT);
  } else if (--primary.retained == 0) {
    fake_stream_clear();
    fake_event_clear();
    fake_module_clear();
    fake_allocation_clear();
    fake_memory_clear();
    fake_host_clear();
    (void)fake_handle_remove(FAKE_CONTEXT, primary.handle);
    fake_memory_give(FAKE_CONTEXT_BYTES);
  }
  pthread_mutex_unlock(&primary.lock);
  return told;
}

mr_cu_result cuCtxSetCurrent(mr_cu_context context) {
  mr_cu_result result = fake_enter(FAKE_cuCtxSetCurrent);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  if (context != NULL && fake_handle_find(FAKE_CONTEXT, (uintptr_t)context) == NULL) {
    return FAKE_INVALID_CONTEXT;
  }
  current = (uintptr_t)context;
  return FAKE_SUCCESS;
}

mr_cu_result cuCtxGetCurrent(mr_cu_context *context) {
  mr_cu_result result = fake_enter(FAKE_cuCtxGetCurrent);
  if (result == FAKE_SUCCESS) {
    *context = (mr_cu_context)(uintptr_t)current;
  }
  return result;
}

mr_cu_result cuCtxSynchronize(void) {
  mr_cu_result result = fake_enter(FAKE_cuCtxSynchronize);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  fake_stream_wait_all();
  return fake_sticky();
}

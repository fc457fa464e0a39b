/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the driver and its device, and telling what a call that failed was for. */
#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define DEFAULT_DRIVER "libcuda.so.1"

/* The result that was logged last of those that come again and again: what a fault of the device
 * does to its context, every user of that sees. Nobody's failure returns before the first is told.
 */
static mr_cu_result told;
static pthread_mutex_t telling = PTHREAD_MUTEX_INITIALIZER;

__attribute__((format(printf, 2, 3))) static mr_status refuse(struct mr_cuda_reason *reason,
                                                              const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason->text, sizeof reason->text, format, arguments);
  va_end(arguments);
  return MR_UNSUPPORTED;
}

static mr_status load(struct mr_cuda *cuda, struct mr_cuda_reason *reason) {
  const char *given = getenv("MEMRUN_CUDA_DRIVER");
  const char *file = given != NULL && given[0] != '\0' ? given : DEFAULT_DRIVER;
  void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) {
    return refuse(reason, "no NVIDIA driver was found: %s", dlerror());
  }
  /* POSIX gives functions through dlsym's object pointer; memcpy converts without a cast. */
#define FIND(field, name, parameters)                                                              \
  {                                                                                                \
    void *symbol = dlsym(handle, #name);                                                           \
    if (symbol == NULL) {                                                                          \
      return refuse(reason, "the NVIDIA driver in %s is too old: it has no " #name, file);         \
    }                                                                                              \
    memcpy(&cuda->field, &symbol, sizeof symbol);                                                  \
  }
  MR_CUDA_FUNCTIONS(FIND)
#undef FIND
  return MR_OK;
}

static const char *result_name(struct mr_cuda *cuda, mr_cu_result result) {
  const char *name = NULL;
  return cuda->error_name(result, &name) == MR_CU_SUCCESS && name != NULL ? name : "unknown result";
}

static const char *result_text(struct mr_cuda *cuda, mr_cu_result result) {
  const char *text = NULL;
  return cuda->error_text(result, &text) == MR_CU_SUCCESS && text != NULL ? text : "no explanation";
}

mr_status mr_cuda_refused(struct mr_cuda *cuda, mr_cu_result result, const char *call,
                          struct mr_cuda_reason *reason_out) {
  return refuse(reason_out, "the NVIDIA driver is not usable: %s: %s (%s)", call,
                result_name(cuda, result), result_text(cuda, result));
}

/* The first device that the driver shows (CUDA_VISIBLE_DEVICES says which). */
static mr_status choose_device(struct mr_cuda *cuda, struct mr_cuda_reason *reason) {
  int count = 0;
  int virtual_memory = 0;
  const char *call = "cuInit";
  mr_cu_result result = cuda->init(0);
  if (result == MR_CU_SUCCESS) {
    call = "cuDeviceGetCount";
    result = cuda->device_count(&count);
  }
  if (result == MR_CU_NO_DEVICE || (result == MR_CU_SUCCESS && count == 0)) {
    return refuse(reason, "the NVIDIA driver shows no device");
  }
  if (result != MR_CU_SUCCESS) {
    return mr_cuda_refused(cuda, result, call, reason);
  }
  call = "cuDeviceGet";
  result = cuda->device_get(&cuda->device, 0);
  if (result == MR_CU_SUCCESS) {
    call = "cuDeviceGetAttribute";
    result = cuda->device_attribute(&virtual_memory, MR_CU_DEVICE_VIRTUAL_MEMORY, cuda->device);
  }
  if (result != MR_CU_SUCCESS) {
    return mr_cuda_refused(cuda, result, call, reason);
  }
  if (virtual_memory == 0) {
    return refuse(reason, "the NVIDIA device cannot map memory page by page");
  }
  return MR_OK;
}

mr_status mr_cuda_open(struct mr_cuda *cuda, struct mr_cuda_reason *reason_out) {
  *cuda = (struct mr_cuda){0};
  mr_status status = load(cuda, reason_out);
  if (status == MR_OK) {
    status = choose_device(cuda, reason_out);
  }
  if (status != MR_OK) {
    return status;
  }
  mr_cu_result result = cuda->context_retain(&cuda->context, cuda->device);
  if (result != MR_CU_SUCCESS) {
    cuda->context = NULL;
    return mr_cuda_refused(cuda, result, "cuDevicePrimaryCtxRetain", reason_out);
  }
  result = cuda->context_set(cuda->context);
  if (result != MR_CU_SUCCESS) {
    mr_cuda_close(cuda);
    return mr_cuda_refused(cuda, result, "cuCtxSetCurrent", reason_out);
  }
  pthread_mutex_lock(&telling);
  told = MR_CU_SUCCESS;
  pthread_mutex_unlock(&telling);
  return MR_OK;
}

void mr_cuda_close(struct mr_cuda *cuda) {
  if (cuda->context == NULL) {
    return;
  }
  cuda->context = NULL;
  mr_cu_result result = cuda->context_release(cuda->device);
  if (result != MR_CU_SUCCESS) {
    mr_log(MR_LOG_DEBUG, "cuda: cuDevicePrimaryCtxRelease: %s", result_name(cuda, result));
  }
}

mr_status mr_cuda_enter(struct mr_cuda *cuda) {
  mr_cu_result result = cuda->context_set(cuda->context);
  return result == MR_CU_SUCCESS
             ? MR_OK
             : mr_cuda_failed(cuda, result, "cuCtxSetCurrent", "a thread of the run");
}

static mr_status status_of(mr_cu_result result) {
  switch (result) {
  case MR_CU_OUT_OF_MEMORY:
    return MR_NO_MEMORY;
  case MR_CU_INVALID_VALUE:
  case MR_CU_NOT_FOUND:
    return MR_INVALID;
  case MR_CU_STUB_LIBRARY:
  case MR_CU_NO_DEVICE:
  case MR_CU_NO_BINARY:
  case MR_CU_INVALID_PTX:
  case MR_CU_UNSUPPORTED_PTX:
  case MR_CU_NOT_SUPPORTED:
    return MR_UNSUPPORTED;
  default:
    return MR_IO;
  }
}

mr_status mr_cuda_failed(struct mr_cuda *cuda, mr_cu_result result, const char *call,
                         const char *format, ...) {
  MR_ASSERT(result != MR_CU_SUCCESS);
  char purpose[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(purpose, sizeof purpose, format, arguments);
  va_end(arguments);
  /* What a device that is gone gives comes again and again; other refusals are each one's own. */
  bool lasts = status_of(result) == MR_IO;
  pthread_mutex_lock(&telling);
  bool again = lasts && told == result;
  told = lasts ? result : told;
  mr_log(again ? MR_LOG_DEBUG : MR_LOG_ERROR, "cuda: %s for %s: %s (%s)", call, purpose,
         result_name(cuda, result), result_text(cuda, result));
  pthread_mutex_unlock(&telling);
  return status_of(result);
}

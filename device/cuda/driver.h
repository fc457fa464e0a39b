/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of NVIDIA's driver interface that memrun uses, declared here as its documentation has
 * it, so that no header of NVIDIA's is needed to build and no library to start: the functions are
 * found with dlopen when somebody asks for the device. MEMRUN_CUDA_DRIVER names another file than
 * libcuda.so.1.
 *
 * Each user opens the driver for itself: the library is loaded once for the process, the device's
 * primary context counts its users, and so no state of ours is shared but the fault told last. A
 * thread makes the context its own with mr_cuda_enter before other calls.
 *
 * Every result is looked at. mr_cuda_failed logs the one line that names the call and what it was
 * for, and turns the result into a status. After a fault on the device (an illegal address, say)
 * every call fails with the same result, and only the first is told at the level of errors.
 */
#ifndef MEMRUN_DEVICE_CUDA_DRIVER_H
#define MEMRUN_DEVICE_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include <memrun/status.h>

/* Results, as in cuda.h. */
enum {
  MR_CU_SUCCESS = 0,
  MR_CU_INVALID_VALUE = 1,
  MR_CU_OUT_OF_MEMORY = 2,
  MR_CU_STUB_LIBRARY = 34,
  MR_CU_NO_DEVICE = 100,
  MR_CU_NO_BINARY = 209,
  MR_CU_INVALID_PTX = 218,
  MR_CU_UNSUPPORTED_PTX = 222,
  MR_CU_NOT_FOUND = 500,
  MR_CU_NOT_READY = 600,
  MR_CU_NOT_SUPPORTED = 801,
};

/* Attributes and flags, as in cuda.h. */
enum {
  MR_CU_DEVICE_CLOCK_KHZ = 13,
  MR_CU_DEVICE_MULTIPROCESSORS = 16,
  MR_CU_DEVICE_MAJOR = 75,
  MR_CU_DEVICE_MINOR = 76,
  MR_CU_DEVICE_VIRTUAL_MEMORY = 102,
  MR_CU_FUNCTION_MAX_DYNAMIC_SHARED = 8,
  MR_CU_STREAM_NON_BLOCKING = 1,
  MR_CU_EVENT_DISABLE_TIMING = 2,
  MR_CU_HOST_PORTABLE = 1,
  MR_CU_ALLOCATION_PINNED = 1,
  MR_CU_LOCATION_DEVICE = 1,
  MR_CU_ACCESS_READ_WRITE = 3,
  MR_CU_GRANULARITY_MINIMUM = 0,
};

typedef int mr_cu_result;
typedef int mr_cu_device;
typedef uint64_t mr_cu_address;
typedef unsigned long long mr_cu_memory; /* physical memory, before it is mapped */
typedef struct CUctx_st *mr_cu_context;
typedef struct CUstream_st *mr_cu_stream;
typedef struct CUevent_st *mr_cu_event;
typedef struct CUmod_st *mr_cu_module;
typedef struct CUfunc_st *mr_cu_function;

struct mr_cu_location {
  int type;
  int id;
};

/* CUmemAllocationProp. */
struct mr_cu_allocation {
  int type;
  int handle_types;
  struct mr_cu_location location;
  void *win32;
  unsigned char compression;
  unsigned char rdma;
  unsigned short usage;
  unsigned char reserved[4];
};

/* CUmemAccessDesc. */
struct mr_cu_access {
  struct mr_cu_location location;
  int flags;
};

_Static_assert(sizeof(struct mr_cu_allocation) == 32 && sizeof(struct mr_cu_access) == 12,
               "the layouts of the driver's ABI");

/* X(field, exported name, parameters) */
#define MR_CUDA_FUNCTIONS(X)                                                                       \
  X(init, cuInit, (unsigned flags))                                                                \
  X(driver_version, cuDriverGetVersion, (int *version))                                            \
  X(error_name, cuGetErrorName, (mr_cu_result result, const char **name))                          \
  X(error_text, cuGetErrorString, (mr_cu_result result, const char **text))                        \
  X(device_count, cuDeviceGetCount, (int *count))                                                  \
  X(device_get, cuDeviceGet, (mr_cu_device * device, int ordinal))                                 \
  X(device_name, cuDeviceGetName, (char *name, int bytes, mr_cu_device device))                    \
  X(device_attribute, cuDeviceGetAttribute, (int *value, int attribute, mr_cu_device device))      \
  X(device_total, cuDeviceTotalMem_v2, (size_t * bytes, mr_cu_device device))                      \
  X(context_retain, cuDevicePrimaryCtxRetain, (mr_cu_context * context, mr_cu_device device))      \
  X(context_release, cuDevicePrimaryCtxRelease_v2, (mr_cu_device device))                          \
  X(context_set, cuCtxSetCurrent, (mr_cu_context context))                                         \
  X(context_get, cuCtxGetCurrent, (mr_cu_context * context))                                       \
  X(context_synchronize, cuCtxSynchronize, (void))                                                 \
  X(memory_info, cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes))                     \
  X(granularity, cuMemGetAllocationGranularity,                                                    \
    (size_t * bytes, const struct mr_cu_allocation *allocation, int option))                       \
  X(memory_create, cuMemCreate,                                                                    \
    (mr_cu_memory * memory, size_t bytes, const struct mr_cu_allocation *allocation,               \
     unsigned long long flags))                                                                    \
  X(memory_release, cuMemRelease, (mr_cu_memory memory))                                           \
  X(address_reserve, cuMemAddressReserve,                                                          \
    (mr_cu_address * address, size_t bytes, size_t alignment, mr_cu_address wanted,                \
     unsigned long long flags))                                                                    \
  X(address_free, cuMemAddressFree, (mr_cu_address address, size_t bytes))                         \
  X(memory_map, cuMemMap,                                                                          \
    (mr_cu_address address, size_t bytes, size_t offset, mr_cu_memory memory,                      \
     unsigned long long flags))                                                                    \
  X(memory_unmap, cuMemUnmap, (mr_cu_address address, size_t bytes))                               \
  X(memory_access, cuMemSetAccess,                                                                 \
    (mr_cu_address address, size_t bytes, const struct mr_cu_access *access, size_t count))        \
  X(memory_allocate, cuMemAlloc_v2, (mr_cu_address * address, size_t bytes))                       \
  X(memory_free, cuMemFree_v2, (mr_cu_address address))                                            \
  X(host_allocate, cuMemHostAlloc, (void **data, size_t bytes, unsigned flags))                    \
  X(host_free, cuMemFreeHost, (void *data))                                                        \
  X(host_register, cuMemHostRegister_v2, (void *data, size_t bytes, unsigned flags))               \
  X(host_unregister, cuMemHostUnregister, (void *data))                                            \
  X(copy_in, cuMemcpyHtoD_v2, (mr_cu_address to, const void *from, size_t bytes))                  \
  X(copy_out, cuMemcpyDtoH_v2, (void *to, mr_cu_address from, size_t bytes))                       \
  X(copy_in_async, cuMemcpyHtoDAsync_v2,                                                           \
    (mr_cu_address to, const void *from, size_t bytes, mr_cu_stream stream))                       \
  X(copy_out_async, cuMemcpyDtoHAsync_v2,                                                          \
    (void *to, mr_cu_address from, size_t bytes, mr_cu_stream stream))                             \
  X(fill_async, cuMemsetD8Async,                                                                   \
    (mr_cu_address to, unsigned char value, size_t bytes, mr_cu_stream stream))                    \
  X(stream_create, cuStreamCreateWithPriority,                                                     \
    (mr_cu_stream * stream, unsigned flags, int priority))                                         \
  X(stream_destroy, cuStreamDestroy_v2, (mr_cu_stream stream))                                     \
  X(stream_synchronize, cuStreamSynchronize, (mr_cu_stream stream))                                \
  X(stream_query, cuStreamQuery, (mr_cu_stream stream))                                            \
  X(stream_wait, cuStreamWaitEvent, (mr_cu_stream stream, mr_cu_event event, unsigned flags))      \
  X(event_create, cuEventCreate, (mr_cu_event * event, unsigned flags))                            \
  X(event_destroy, cuEventDestroy_v2, (mr_cu_event event))                                         \
  X(event_record, cuEventRecord, (mr_cu_event event, mr_cu_stream stream))                         \
  X(event_query, cuEventQuery, (mr_cu_event event))                                                \
  X(event_elapsed, cuEventElapsedTime, (float *milliseconds, mr_cu_event from, mr_cu_event to))    \
  X(module_load, cuModuleLoadData, (mr_cu_module * module, const void *image))                     \
  X(module_unload, cuModuleUnload, (mr_cu_module module))                                          \
  X(module_function, cuModuleGetFunction,                                                          \
    (mr_cu_function * function, mr_cu_module module, const char *name))                            \
  X(function_set, cuFuncSetAttribute, (mr_cu_function function, int attribute, int value))         \
  X(function_get, cuFuncGetAttribute, (int *value, int attribute, mr_cu_function function))        \
  X(launch, cuLaunchKernel,                                                                        \
    (mr_cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, mr_cu_stream stream,               \
     const void *const *parameters, void **extra))

/* The driver, one device, and its primary context. */
struct mr_cuda {
#define MR_CUDA_FIELD(field, name, parameters) mr_cu_result(*field) parameters;
  MR_CUDA_FUNCTIONS(MR_CUDA_FIELD)
#undef MR_CUDA_FIELD
  mr_cu_device device;
  mr_cu_context context;
};

/* Why there is no device, in one line. */
struct mr_cuda_reason {
  char text[256];
};

/*
 * Finds the driver and its first device, and makes its context the calling thread's.
 * MR_UNSUPPORTED: there is none that can be used, and why; nothing is logged. Closed with
 * mr_cuda_close; the library itself stays loaded.
 */
MR_CHECK_RESULT mr_status mr_cuda_open(struct mr_cuda *cuda, struct mr_cuda_reason *reason_out);
void mr_cuda_close(struct mr_cuda *cuda);

/* Why a call that failed makes the device unusable; MR_UNSUPPORTED. */
mr_status mr_cuda_refused(struct mr_cuda *cuda, mr_cu_result result, const char *call,
                          struct mr_cuda_reason *reason_out);

/* Makes the context the calling thread's. */
MR_CHECK_RESULT mr_status mr_cuda_enter(struct mr_cuda *cuda);

/* The status of a failed call: one line with the call, the driver's name and words for the result,
 * and what the call was for. Never MR_OK. Any thread. */
MR_CHECK_RESULT mr_status mr_cuda_failed(struct mr_cuda *cuda, mr_cu_result result,
                                         const char *call, const char *format, ...) MR_PRINTF(4, 5);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The names of results, and words for them. */
#include "tests/fake/state.h"

static const struct {
  mr_cu_result result;
  const char *name;
  const char *text;
} rows[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "an argument is out of range"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "no memory is left"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "cuInit has not been called"},
    {100, "CUDA_ERROR_NO_DEVICE", "no device was found"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "there is no such device"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "the image holds no kernels"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "the thread has no context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "the image has no code for the device"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "memory is broken"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "there is no such object"},
    {500, "CUDA_ERROR_NOT_FOUND", "there is nothing of that name"},
    {600, "CUDA_ERROR_NOT_READY", "work is still going on"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an access to memory that is not there"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "a block asks for too much"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "a kernel took too long"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "the thread's context is gone"},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "the memory is pinned already"},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "the memory is not pinned"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "a kernel failed"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "not supported"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static const char *find(mr_cu_result result, bool text) {
  for (size_t i = 0; i < MR_COUNT_OF(rows); i++) {
    if (rows[i].result == result) {
      return text ? rows[i].text : rows[i].name;
    }
  }
  return NULL;
}

mr_cu_result cuGetErrorName(mr_cu_result result, const char **name) {
  mr_cu_result entered = fake_enter(FAKE_cuGetErrorName);
  *name = entered == FAKE_SUCCESS ? find(result, false) : NULL;
  return *name == NULL ? fake_first(entered, FAKE_INVALID_VALUE) : FAKE_SUCCESS;
}

mr_cu_result cuGetErrorString(mr_cu_result result, const char **text) {
  mr_cu_result entered = fake_enter(FAKE_cuGetErrorString);
  *text = entered == FAKE_SUCCESS ? find(result, true) : NULL;
  return *text == NULL ? fake_first(entered, FAKE_INVALID_VALUE) : FAKE_SUCCESS;
}

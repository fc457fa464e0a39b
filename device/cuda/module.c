/* SPDX-License-Identifier: Apache-2.0 */
/* A client's compiled kernels: loading, looking up, launching. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memrun/cuda.h>

#include "base/base.h"
#include "device/cuda/driver.h"

/* A kernel gets so much dynamic shared memory without asking. */
#define PLAIN_SHARED_BYTES (48u << 10)

struct mr_cuda_function {
  struct mr_cuda_module *module;
  struct mr_cuda_function *next; /* of the module's */
  char *name;
  mr_cu_function handle;
  uint32_t shared_bytes; /* that it may ask for */
};

struct mr_cuda_module {
  struct mr_cuda cuda;
  char *name;
  mr_cu_module handle;
  struct mr_cuda_function *functions;
};

mr_status mr_cuda_available(char *why, size_t why_bytes) {
  struct mr_cuda cuda;
  struct mr_cuda_reason reason = {""};
  mr_status status = mr_cuda_open(&cuda, &reason);
  if (status != MR_OK) {
    snprintf(why, why_bytes, "%s", reason.text);
    return status;
  }
  mr_cuda_close(&cuda);
  return MR_OK;
}

static mr_status open_driver(struct mr_cuda_module *module) {
  struct mr_cuda_reason reason = {""};
  mr_status status = mr_cuda_open(&module->cuda, &reason);
  if (status != MR_OK) {
    mr_log(MR_LOG_ERROR, "kernels %s: %s", module->name, reason.text);
  }
  return status;
}

mr_status mr_cuda_module_load(const void *image, size_t image_bytes, const char *name,
                              struct mr_cuda_module **module_out) {
  if (image == NULL || image_bytes == 0) {
    mr_log(MR_LOG_ERROR, "kernels %s: the image is empty", name);
    return MR_INVALID;
  }
  struct mr_cuda_module *module = mr_allocate(1, sizeof *module);
  if (module == NULL) {
    return MR_NO_MEMORY;
  }
  module->name = mr_string_copy(name);
  mr_status status = module->name == NULL ? MR_NO_MEMORY : open_driver(module);
  if (status == MR_OK) {
    mr_cu_result result = module->cuda.module_load(&module->handle, image);
    if (result != MR_CU_SUCCESS) {
      module->handle = NULL;
      status = mr_cuda_failed(&module->cuda, result, "cuModuleLoadData", "kernels %s, %zu bytes",
                              name, image_bytes);
    }
  }
  if (status != MR_OK) {
    mr_cuda_module_unload(module);
    return status;
  }
  *module_out = module;
  return MR_OK;
}

void mr_cuda_module_unload(struct mr_cuda_module *module) {
  if (module == NULL) {
    return;
  }
  while (module->functions != NULL) {
    struct mr_cuda_function *function = module->functions;
    module->functions = function->next;
    free(function->name);
    free(function);
  }
  /* After a fault on the device nothing can be unloaded, and the fault has been told. */
  if (module->handle != NULL && mr_cuda_enter(&module->cuda) == MR_OK &&
      module->cuda.module_unload(module->handle) != MR_CU_SUCCESS) {
    mr_log(MR_LOG_DEBUG, "kernels %s: not unloaded", module->name);
  }
  mr_cuda_close(&module->cuda);
  free(module->name);
  free(module);
}

mr_status mr_cuda_module_function(struct mr_cuda_module *module, const char *name,
                                  struct mr_cuda_function **function_out) {
  for (struct mr_cuda_function *known = module->functions; known != NULL; known = known->next) {
    if (strcmp(known->name, name) == 0) {
      *function_out = known;
      return MR_OK;
    }
  }
  mr_status status = mr_cuda_enter(&module->cuda);
  if (status != MR_OK) {
    return status;
  }
  mr_cu_function handle = NULL;
  mr_cu_result result = module->cuda.module_function(&handle, module->handle, name);
  if (result != MR_CU_SUCCESS) {
    return mr_cuda_failed(&module->cuda, result, "cuModuleGetFunction", "kernel %s of %s", name,
                          module->name);
  }
  struct mr_cuda_function *function = mr_allocate(1, sizeof *function);
  if (function == NULL) {
    return MR_NO_MEMORY;
  }
  *function = (struct mr_cuda_function){.module = module,
                                        .next = module->functions,
                                        .name = mr_string_copy(name),
                                        .handle = handle,
                                        .shared_bytes = PLAIN_SHARED_BYTES};
  if (function->name == NULL) {
    free(function);
    return MR_NO_MEMORY;
  }
  module->functions = function;
  *function_out = function;
  return MR_OK;
}

uint32_t mr_cuda_module_driver_version(const struct mr_cuda_module *module) {
  int version = 0;
  mr_cu_result result = module->cuda.driver_version(&version);
  return result == MR_CU_SUCCESS && version > 0 ? (uint32_t)version : 0;
}

static mr_status allow_shared(struct mr_cuda_function *function, uint32_t bytes, const char *op) {
  struct mr_cuda *cuda = &function->module->cuda;
  mr_cu_result result =
      cuda->function_set(function->handle, MR_CU_FUNCTION_MAX_DYNAMIC_SHARED, (int)bytes);
  if (result != MR_CU_SUCCESS) {
    return mr_cuda_failed(cuda, result, "cuFuncSetAttribute",
                          "op %s, kernel %s, %u bytes of shared memory", op, function->name, bytes);
  }
  function->shared_bytes = bytes;
  return MR_OK;
}

mr_status mr_cuda_function_launch(struct mr_cuda_function *function, const struct mr_op_call *call,
                                  const struct mr_cuda_launch *launch, const void *arguments) {
  const char *op = call->name == NULL ? "of none" : call->name;
  if (launch->shared_bytes > function->shared_bytes) {
    mr_status status = allow_shared(function, launch->shared_bytes, op);
    if (status != MR_OK) {
      return status;
    }
  }
  struct mr_cuda *cuda = &function->module->cuda;
  const uint32_t *grid = launch->grid;
  const uint32_t *block = launch->block;
  const void *const parameters[] = {arguments};
  mr_cu_result result =
      cuda->launch(function->handle, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                   launch->shared_bytes, call->stream, parameters, NULL);
  if (result != MR_CU_SUCCESS) {
    return mr_cuda_failed(
        cuda, result, "cuLaunchKernel",
        "op %s, kernel %s, %u x %u x %u blocks of %u x %u x %u threads, %u bytes of shared memory",
        op, function->name, grid[0], grid[1], grid[2], block[0], block[1], block[2],
        launch->shared_bytes);
  }
  return MR_OK;
}

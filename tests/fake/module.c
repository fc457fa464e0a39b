/* SPDX-License-Identifier: Apache-2.0 */
/* Modules of the fake driver. Any image is one; its kernels are those of the tables, whatever it
 * says. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fake/state.h"

#define MAX_BLOCK_THREADS      1024u
#define MAX_BLOCK_Z            64u
#define MAX_GRID_YZ            65535u

#define ATTRIBUTE_MAX_THREADS  0
#define ATTRIBUTE_SHARED_BYTES 1
#define ATTRIBUTE_LOCAL_BYTES  3
#define ATTRIBUTE_REGISTERS    4
#define REGISTERS_A_THREAD     32

static const struct fake_kernel_table *const tables[] = {
    &fake_basic_kernels,
    &fake_world_kernels,
#ifdef FAKE_TRAIN_KERNELS
    &fake_train_kernels,
#endif
};

/* Functions of a module that was unloaded are found to be so, and go with the context. */
struct function {
  const struct fake_kernel *kernel;
  uint64_t module;               /* handle */
  _Atomic uint32_t shared_bytes; /* of a block, at most */
  _Atomic bool loaded;           /* it was launched before */
};

struct launch {
  fake_kernel_run run;
  uint32_t grid[3];
  uint32_t block[3];
  _Alignas(16) unsigned char argument[];
};

static const struct fake_kernel *find_kernel(const char *name) {
  for (size_t t = 0; t < MR_COUNT_OF(tables); t++) {
    for (uint32_t k = 0; k < tables[t]->count; k++) {
      if (strcmp(tables[t]->kernels[k].name, name) == 0) {
        return &tables[t]->kernels[k];
      }
    }
  }
  return NULL;
}

static void module_unload(void *object) {
  free(object);
  fake_memory_give(FAKE_MODULE_BYTES);
}

void fake_module_clear(void) {
  fake_handle_clear(FAKE_FUNCTION, free);
  fake_handle_clear(FAKE_MODULE, module_unload);
}

static struct function *function_of(mr_cu_function handle) {
  struct function *function = fake_handle_find(FAKE_FUNCTION, (uintptr_t)handle);
  bool loaded = function != NULL && fake_handle_find(FAKE_MODULE, function->module) != NULL;
  return loaded ? function : NULL;
}

mr_cu_result cuModuleLoadData(mr_cu_module *module, const void *image) {
  mr_cu_result result = fake_enter(FAKE_cuModuleLoadData);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  if (module == NULL || image == NULL) {
    return FAKE_INVALID_VALUE;
  }
  if (*(const char *)image == '\0') {
    return FAKE_INVALID_IMAGE;
  }
  if (!fake_memory_take(FAKE_MODULE_BYTES)) {
    return FAKE_OUT_OF_MEMORY;
  }
  void *made = malloc(1); /* nothing but an identity */
  uint64_t handle = made == NULL ? 0 : fake_handle_add(FAKE_MODULE, made);
  if (handle == 0) {
    module_unload(made);
    return FAKE_OUT_OF_MEMORY;
  }
  *module = (mr_cu_module)(uintptr_t)handle;
  return FAKE_SUCCESS;
}

mr_cu_result cuModuleUnload(mr_cu_module module) {
  mr_cu_result told = fake_enter(FAKE_cuModuleUnload);
  void *found = fake_handle_remove(FAKE_MODULE, (uintptr_t)module);
  if (found == NULL) {
    return fake_first(told, FAKE_INVALID_HANDLE);
  }
  module_unload(found);
  return told;
}

mr_cu_result cuModuleGetFunction(mr_cu_function *function, mr_cu_module module, const char *name) {
  mr_cu_result result = fake_enter(FAKE_cuModuleGetFunction);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  if (fake_handle_find(FAKE_MODULE, (uintptr_t)module) == NULL) {
    return FAKE_INVALID_HANDLE;
  }
  if (function == NULL || name == NULL) {
    return FAKE_INVALID_VALUE;
  }
  const struct fake_kernel *kernel = find_kernel(name);
  if (kernel == NULL) {
    return FAKE_NOT_FOUND;
  }
  struct function *made = calloc(1, sizeof *made);
  MR_ASSERT(made != NULL);
  made->kernel = kernel;
  made->module = (uintptr_t)module;
  atomic_init(&made->shared_bytes, FAKE_SHARED_BYTES);
  *function = (mr_cu_function)(uintptr_t)fake_handle_add(FAKE_FUNCTION, made);
  return FAKE_SUCCESS;
}

mr_cu_result cuFuncSetAttribute(mr_cu_function function, int attribute, int value) {
  mr_cu_result result = fake_enter(FAKE_cuFuncSetAttribute);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  struct function *found = function_of(function);
  if (found == NULL) {
    return FAKE_INVALID_HANDLE;
  }
  if (attribute != MR_CU_FUNCTION_MAX_DYNAMIC_SHARED || value < 0 ||
      (uint32_t)value > FAKE_MAX_SHARED) {
    return FAKE_INVALID_VALUE;
  }
  atomic_store(&found->shared_bytes, (uint32_t)value);
  return FAKE_SUCCESS;
}

mr_cu_result cuFuncGetAttribute(int *value, int attribute, mr_cu_function function) {
  mr_cu_result result = fake_enter(FAKE_cuFuncGetAttribute);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  struct function *found = function_of(function);
  if (found == NULL) {
    return FAKE_INVALID_HANDLE;
  }
  switch (attribute) {
  case ATTRIBUTE_MAX_THREADS:
    *value = (int)MAX_BLOCK_THREADS;
    return FAKE_SUCCESS;
  case ATTRIBUTE_SHARED_BYTES:
  case ATTRIBUTE_LOCAL_BYTES:
    *value = 0;
    return FAKE_SUCCESS;
  case ATTRIBUTE_REGISTERS:
    *value = REGISTERS_A_THREAD;
    return FAKE_SUCCESS;
  case MR_CU_FUNCTION_MAX_DYNAMIC_SHARED:
    *value = (int)atomic_load(&found->shared_bytes);
    return FAKE_SUCCESS;
  default:
    return FAKE_INVALID_VALUE;
  }
}

static void run_launch(void *payload) {
  const struct launch *launch = payload;
  launch->run(launch->grid, launch->block, launch->argument);
}

static bool is_shape(const uint32_t grid[3], const uint32_t block[3]) {
  bool some = true;
  for (int i = 0; i < 3; i++) {
    some = some && grid[i] != 0 && block[i] != 0;
  }
  uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
  return some && grid[0] <= INT32_MAX && grid[1] <= MAX_GRID_YZ && grid[2] <= MAX_GRID_YZ &&
         block[0] <= MAX_BLOCK_THREADS && block[1] <= MAX_BLOCK_THREADS &&
         block[2] <= MAX_BLOCK_Z && threads <= MAX_BLOCK_THREADS;
}

/* A kernel's code is loaded when it is first launched; and others take memory when they like. */
static mr_cu_result take_memory(struct function *function) {
  uint64_t late_bytes = fake_late_bytes(fake_call_count("cuLaunchKernel"));
  if (!fake_memory_take_until_end(late_bytes)) {
    return FAKE_OUT_OF_MEMORY;
  }
  bool loaded = atomic_exchange(&function->loaded, true);
  return loaded || fake_library_take() ? FAKE_SUCCESS : FAKE_OUT_OF_MEMORY;
}

/* NOLINTNEXTLINE(readability-function-size): the parameters are the driver's */
mr_cu_result cuLaunchKernel(mr_cu_function function, unsigned grid_x, unsigned grid_y,
                            unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                            unsigned shared_bytes, mr_cu_stream stream,
                            const void *const *parameters, void **extra) {
  mr_cu_result result = fake_enter(FAKE_cuLaunchKernel);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  const struct launch shape = {.grid = {grid_x, grid_y, grid_z},
                               .block = {block_x, block_y, block_z}};
  struct function *found = function_of(function);
  struct fake_stream *on = fake_stream_find(stream);
  if (found == NULL || on == NULL) {
    return FAKE_INVALID_HANDLE;
  }
  const struct fake_kernel *kernel = found->kernel;
  if (!is_shape(shape.grid, shape.block) || shared_bytes > atomic_load(&found->shared_bytes) ||
      kernel->argument_bytes == 0 || parameters == NULL || parameters[0] == NULL || extra != NULL) {
    return FAKE_INVALID_VALUE;
  }
  result = take_memory(found);
  if (result != FAKE_SUCCESS) {
    return result;
  }
  struct fake_item *item =
      fake_item_create(run_launch, sizeof shape + kernel->argument_bytes, true);
  struct launch *launch = (void *)item->payload;
  *launch = shape;
  launch->run = kernel->run;
  memcpy(launch->argument, parameters[0], kernel->argument_bytes);
  fake_stream_push(on, item);
  return FAKE_SUCCESS;
}

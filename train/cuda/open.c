/* SPDX-License-Identifier: Apache-2.0 */
/* Opening the kernels and cuBLASLt, and the queue of an op's call. */
#include "train/cuda/open.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memrun/cuda.h>

#include "train/cuda/cublaslt.h"
#include "train/cuda/image.h"

#define MOST_IMAGE_BYTES (256u << 20)

/* Fixed for the process, as the matrix library of the cpu is: callbacks get plain values alone. */
static struct mr_cuda_module *module;
static struct cublaslt *products;
static uint32_t users;

/* The bytes of the file with a 0 behind them, to be freed. */
static mr_status read_image(const char *path, unsigned char **image_out, size_t *bytes_out) {
  FILE *file = fopen(path, "re");
  long bytes = 0;
  if (file == NULL || fseek(file, 0, SEEK_END) != 0 || (bytes = ftell(file)) < 0) {
    mr_log(MR_LOG_ERROR, "MEMRUN_CUDA_KERNELS: %s: %s", path, strerror(errno));
    if (file != NULL) (void)fclose(file);
    return MR_INVALID;
  }
  rewind(file);
  mr_status status = MR_OK;
  unsigned char *image = bytes > MOST_IMAGE_BYTES ? NULL : calloc(1, (size_t)bytes + 1);
  if (image == NULL && bytes <= MOST_IMAGE_BYTES) {
    mr_log(MR_LOG_ERROR, "out of host memory: %ld bytes for the kernels in %s", bytes, path);
    status = MR_NO_MEMORY;
  } else if (image == NULL || fread(image, 1, (size_t)bytes, file) != (size_t)bytes) {
    mr_log(MR_LOG_ERROR, "MEMRUN_CUDA_KERNELS: %s: %ld bytes could not be read", path, bytes);
    status = MR_INVALID;
  }
  (void)fclose(file);
  if (status != MR_OK) {
    free(image);
    return status;
  }
  *image_out = image;
  *bytes_out = (size_t)bytes;
  return MR_OK;
}

static mr_status load_file(const char *path) {
  unsigned char *image = NULL;
  size_t bytes = 0;
  mr_status status = read_image(path, &image, &bytes);
  if (status == MR_OK) {
    status = mr_cuda_module_load(image, bytes, path, &module);
    free(image);
  }
  return status;
}

static mr_status load_image(void) {
  const char *path = getenv("MEMRUN_CUDA_KERNELS");
  if (path != NULL && path[0] != '\0') {
    return load_file(path);
  }
  size_t bytes = 0;
  const void *image = cuda_image(&bytes);
  if (image == NULL) {
    mr_log(MR_LOG_ERROR,
           "this build of memrun has no CUDA kernels; build it where nvcc is installed");
    return MR_UNSUPPORTED;
  }
  return mr_cuda_module_load(image, bytes, "memrun", &module);
}

mr_status cuda_kernels_open(void) {
  mr_status status = MR_OK;
  if (users == 0) {
    status = load_image();
  }
  if (users == 0 && status == MR_OK) {
    status = cublaslt_open(mr_cuda_module_driver_version(module), &products);
  }
  users++;
  if (status != MR_OK) {
    cuda_kernels_close();
  }
  return status;
}

void cuda_kernels_close(void) {
  if (--users > 0) {
    return;
  }
  cublaslt_close(products);
  products = NULL;
  mr_cuda_module_unload(module);
  module = NULL;
}

static mr_status launch(void *context, const struct cuda_launch *launch) {
  const struct mr_op_call *call = context;
  struct mr_cuda_function *function = NULL;
  mr_status status = mr_cuda_module_function(module, launch->kernel, &function);
  if (status != MR_OK) {
    return status;
  }
  struct mr_cuda_launch shape = {.shared_bytes = launch->shared_bytes};
  memcpy(shape.grid, launch->grid, sizeof shape.grid);
  memcpy(shape.block, launch->block, sizeof shape.block);
  return mr_cuda_function_launch(function, call, &shape, launch->arguments);
}

static mr_status multiply(void *context, const struct cuda_product *product) {
  const struct mr_op_call *call = context;
  return cublaslt_multiply(products, product, call);
}

struct cuda_queue cuda_call_queue(const struct mr_op_call *call) {
  return (struct cuda_queue){
      .launch = launch, .multiply = multiply, .context = (void *)(uintptr_t)call};
}

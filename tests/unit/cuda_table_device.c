/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of the CUDA ops carried out by a device, each call to its end, so that a fault has the
 * name of its kernel. Buffers are pinned host memory, which the device reaches at its address. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/driver.h"
#include "tests/unit/cuda_table.h"
#include "tests/unit/device_found.h"
#include "tests/unit/kernels_trial.h"
#include "train/cuda/image.h"
#include "train/cuda/open.h"

static struct mr_cuda cuda;
static mr_cu_stream stream;

static void *take_pinned(uint64_t bytes) {
  void *data = NULL;
  return cuda.host_allocate(&data, bytes, MR_CU_HOST_PORTABLE) == MR_CU_SUCCESS ? data : NULL;
}

static void give_pinned(void *data) {
  assert_int_equal(cuda.host_free(data), MR_CU_SUCCESS);
}

static mr_status finish(const char *what, mr_status status) {
  if (status != MR_OK) {
    return status;
  }
  mr_cu_result result = cuda.stream_synchronize(stream);
  return result == MR_CU_SUCCESS ? MR_OK
                                 : mr_cuda_failed(&cuda, result, "cuStreamSynchronize", "%s", what);
}

static mr_status launch_there(void *context, const struct cuda_launch *launch) {
  (void)context;
  const struct mr_op_call call = {.stream = stream};
  const struct cuda_queue queue = cuda_call_queue(&call);
  return finish(launch->kernel, queue.launch(queue.context, launch));
}

static mr_status multiply_there(void *context, const struct cuda_product *product) {
  (void)context;
  const struct mr_op_call call = {.stream = stream};
  const struct cuda_queue queue = cuda_call_queue(&call);
  return finish("a product", queue.multiply(queue.context, product));
}

static const struct cuda_queue there = {.launch = launch_there, .multiply = multiply_there};

bool cuda_table_by_cublaslt(void) {
  return getenv("MEMRUN_CUDA_DRIVER") == NULL; /* else the fake one's */
}

const struct cuda_queue *cuda_table_queue(void) {
  return &there;
}

void cuda_table_seed(uint64_t seed) {
  (void)seed; /* a device has an order of its own */
}

bool cuda_table_open(void) {
  struct mr_cuda_reason reason;
  size_t image_bytes = 0;
  if (!device_found()) {
    return false;
  }
  if (cuda_image(&image_bytes) == NULL && getenv("MEMRUN_CUDA_KERNELS") == NULL) {
    device_is_missing("this build has no CUDA kernels");
    return false;
  }
  assert_int_equal(cuda_kernels_open(), MR_OK);
  assert_int_equal(mr_cuda_open(&cuda, &reason), MR_OK);
  assert_int_equal(cuda.stream_create(&stream, MR_CU_STREAM_NON_BLOCKING, 0), MR_CU_SUCCESS);
  trial_memory = (struct trial_memory){.take = take_pinned, .give = give_pinned};
  return true;
}

void cuda_table_close(void) {
  (void)cuda.stream_destroy(stream);
  cuda_kernels_close();
  mr_cuda_close(&cuda);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The back-ends by number. */
#include "device/device.h"

const struct mr_device_ops *mr_device_find(mr_backend backend) {
  switch (backend) {
  case MR_BACKEND_CPU:
    return &mr_device_cpu;
  case MR_BACKEND_CUDA:
    return &mr_device_cuda;
  default:
    return NULL;
  }
}

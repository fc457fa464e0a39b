/* SPDX-License-Identifier: Apache-2.0 */
/* The compiled kernels that the program carries. */
#ifndef MEMRUN_TRAIN_CUDA_IMAGE_H
#define MEMRUN_TRAIN_CUDA_IMAGE_H

#include <stddef.h>

/* NULL, and no bytes, in a build without nvcc. */
const void *cuda_image(size_t *bytes_out);

#endif

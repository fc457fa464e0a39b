/* SPDX-License-Identifier: Apache-2.0 */
/* The image of the kernels, included as bytes: CUDA_IMAGE_FILE is what nvcc made. */
#include "train/cuda/image.h"

#include <stdint.h>

#ifdef CUDA_IMAGE_FILE
__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        "cuda_image_begin:\n"
        ".incbin \"" CUDA_IMAGE_FILE "\"\n"
        "cuda_image_end:\n"
        ".byte 0\n" /* ends PTX */
        ".popsection\n");
extern const unsigned char cuda_image_begin[] __attribute__((visibility("hidden")));
extern const unsigned char cuda_image_end[] __attribute__((visibility("hidden")));

const void *cuda_image(size_t *bytes_out) {
  *bytes_out = (uintptr_t)cuda_image_end - (uintptr_t)cuda_image_begin;
  return cuda_image_begin;
}
#else
const void *cuda_image(size_t *bytes_out) {
  *bytes_out = 0;
  return NULL;
}
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels for the cuda device. A client that writes callbacks for MR_BACKEND_CUDA loads its
 * compiled kernels as a module, looks functions up by name, and launches them from its callbacks on
 * the stream of the call. NVIDIA's driver is found when the first of these functions is called; no
 * header or library of NVIDIA's is needed to build or to start.
 */
#ifndef MEMRUN_CUDA_H
#define MEMRUN_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include <memrun/graph.h>
#include <memrun/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether there is a device that runs can use. MR_UNSUPPORTED: `why` (at most why_bytes with its
 * end) says in one line why not; nothing is logged. Any thread. */
MR_API MR_CHECK_RESULT mr_status mr_cuda_available(char *why, size_t why_bytes);

struct mr_cuda_module;
struct mr_cuda_function;

/*
 * Loads an image (a fatbin, a cubin, or PTX that ends with a 0 byte) for the life of the module;
 * `name` is for messages. The image is borrowed during the call, the name is copied. The module is
 * the caller's, who unloads it after every run that launches from it. MR_UNSUPPORTED: there is no
 * device, or the image holds nothing for it; MR_INVALID: an empty image; MR_NO_MEMORY. One thread.
 */
MR_API MR_CHECK_RESULT mr_status mr_cuda_module_load(const void *image, size_t image_bytes,
                                                     const char *name,
                                                     struct mr_cuda_module **module_out);
MR_API void mr_cuda_module_unload(struct mr_cuda_module *module);

/*
 * The function of that name, which belongs to the module; asked again, the same pointer.
 * MR_INVALID: the module has none; MR_NO_MEMORY. One thread at a time for a module.
 */
MR_API MR_CHECK_RESULT mr_status mr_cuda_module_function(struct mr_cuda_module *module,
                                                         const char *name,
                                                         struct mr_cuda_function **function_out);

/* The version of CUDA that the driver supports, 1000 * major + 10 * minor, for a module's users who
 * load NVIDIA's libraries; 0 where it does not tell. Any thread. */
MR_API uint32_t mr_cuda_module_driver_version(const struct mr_cuda_module *module);

struct mr_cuda_launch {
  uint32_t grid[3];      /* blocks */
  uint32_t block[3];     /* threads of a block */
  uint32_t shared_bytes; /* dynamic shared memory of a block */
};

/*
 * Enqueues a kernel on the stream of `call` and returns; to be called from the op's callback. The
 * kernel takes one argument, a struct by value, which is copied from `arguments`. Whatever limit
 * the driver sets to dynamic shared memory is raised once. The statuses are those of the driver's
 * refusal, logged with the kernel's name and sizes; what the kernel does wrong later ends the run.
 */
MR_API MR_CHECK_RESULT mr_status mr_cuda_function_launch(struct mr_cuda_function *function,
                                                         const struct mr_op_call *call,
                                                         const struct mr_cuda_launch *launch,
                                                         const void *arguments);

#ifdef __cplusplus
}
#endif
#endif

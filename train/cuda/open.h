/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels and cuBLASLt, which all users in a process share, and the queue that enqueues on the
 * stream of an op's call.
 */
#ifndef MEMRUN_TRAIN_CUDA_OPEN_H
#define MEMRUN_TRAIN_CUDA_OPEN_H

#include "train/cuda/cuda.h"

/*
 * Loads the image that the program carries, or the file that MEMRUN_CUDA_KERNELS names, and
 * cuBLASLt. MR_UNSUPPORTED: this build has no kernels, there is no device, or no cuBLASLt; logged
 * in one line. To be opened before a graph for the CUDA device is built. One thread.
 */
MR_CHECK_RESULT mr_status cuda_kernels_open(void);
/* For each time they were opened, after the user's runs; the last one unloads. */
void cuda_kernels_close(void);

/* The queue of a call, which must outlast it. The kernels must be open. */
struct cuda_queue cuda_call_queue(const struct mr_op_call *call);

#endif

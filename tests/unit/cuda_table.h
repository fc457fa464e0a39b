/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ops of the CUDA device as a table of kernels like those of the cpu, so that one set of trials
 * serves all of them. cuda_table_processor.c carries them out on the processor, cuda_table_device.c
 * on a device, from memory that it shares with the processor.
 */
#ifndef MEMRUN_TESTS_UNIT_CUDA_TABLE_H
#define MEMRUN_TESTS_UNIT_CUDA_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "train/cuda/cuda.h"
#include "train/kernels/kernels.h"

/* Before anything else; trials' buffers are taken after it. False, and why on standard output:
 * there is no device. */
bool cuda_table_open(void);
void cuda_table_close(void);

/* The order of threads and blocks in what runs from now on, on the processor. */
void cuda_table_seed(uint64_t seed);

/* Whether products are NVIDIA's own cuBLASLt's. */
bool cuda_table_by_cublaslt(void);

/* The queue that carries out at once what is enqueued. */
const struct cuda_queue *cuda_table_queue(void);

const struct kernel_table *cuda_table(void);

#endif

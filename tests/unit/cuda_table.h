/* SPDX-License-Identifier: Apache-2.0 */
/* The ops of the CUDA device as a table of kernels like those of the cpu, carried out on the
 * processor, so that one set of trials serves all three. */
#ifndef MEMRUN_TESTS_UNIT_CUDA_TABLE_H
#define MEMRUN_TESTS_UNIT_CUDA_TABLE_H

#include <stdint.h>

#include "train/cuda/cuda.h"
#include "train/kernels/kernels.h"

/* The order of threads and blocks in what runs from now on. */
void cuda_table_seed(uint64_t seed);

/* The queue that carries out at once what is enqueued. */
const struct cuda_queue *cuda_table_queue(void);

/* One table at a time: the type holds until the next call. */
const struct kernel_table *cuda_table(enum cuda_type elements);

#endif

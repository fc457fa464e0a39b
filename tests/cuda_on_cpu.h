/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trainer's CUDA kernels on the processor: the same sources, compiled by the C++ compiler of
 * the machine, with every thread of a block a fiber.
 *
 * A fiber runs until it meets a barrier or a collective of its warp; who goes next is drawn from
 * the seed, and so are the warps that sleep meanwhile and the order of blocks. A missing barrier,
 * or a result that depends on the order of threads or blocks, therefore shows as other bits under
 * another seed. A barrier that part of a block never reaches, a collective whose lanes do not all
 * come, and a write past the dynamic shared memory that was asked for are reported. Dynamic shared
 * memory starts as NaN in every block. What goes on beside a thread, copies to shared memory, ends
 * at once or when it is waited for, also by the seed.
 */
#ifndef MEMRUN_TESTS_CUDA_ON_CPU_H
#define MEMRUN_TESTS_CUDA_ON_CPU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_on_cpu_launch {
  const char *kernel;
  uint32_t grid[3], block[3], shared_bytes;
  const void *arguments;
  size_t arguments_bytes;
  uint64_t seed;
};

/* Barriers of the sources that launches came to since this was asked last: bit i is barrier i. */
uint64_t cuda_on_cpu_barriers_met(void);
/* Where it stands: "file:line". */
const char *cuda_on_cpu_barrier_name(unsigned barrier);
/* From now on this barrier is a step weaker: one of a block holds up the threads of each warp
 * alone, one of a warp nobody. CUDA_ON_CPU_ALL_BARRIERS: none is. */
#define CUDA_ON_CPU_ALL_BARRIERS (~0u)
void cuda_on_cpu_weaken(unsigned barrier);

/* Runs the kernel to its end. NULL, or what was wrong with the launch or the kernel. */
const char *cuda_on_cpu_run(const struct cuda_on_cpu_launch *launch);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What updates take for 0, wherever they run. Threads of the host compute without denormal numbers,
 * whose arithmetic is slow, and devices with them. Where gradients, moments and parameters are 0 or
 * no smaller than this, going in and coming out, no operation of an update has such a number for an
 * operand, and none makes one that is kept: so both give the same bits. A moment of 2^-63 moves a
 * parameter by 1e-11 of the learning rate where the usual 1e-8 is added to the root below it.
 */
#ifndef MEMRUN_TRAIN_KERNELS_ADAMW_H
#define MEMRUN_TRAIN_KERNELS_ADAMW_H

#define ADAMW_LEAST        0x1p-63f  /* its square, 2^-126, is not denormal */
#define ADAMW_LEAST_SQUARE 0x1p-120f /* of second moments; with beta2 from 1/64 on */

#endif

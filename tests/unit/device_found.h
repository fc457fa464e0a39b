/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests that run on the CUDA device of the machine as well as on the fake driver, which they do
 * not link: the device is the one of the driver that MEMRUN_CUDA_DRIVER names, or the machine's.
 */
#ifndef MEMRUN_TESTS_UNIT_DEVICE_FOUND_H
#define MEMRUN_TESTS_UNIT_DEVICE_FOUND_H

#include <stdbool.h>
#include <stdint.h>

#define DEVICE_NOT_FOUND 77 /* what such a test exits with */

/* False, and why on standard output, where there is no device that can be used. */
bool device_found(void);

/* Says that the test skips; where MEMRUN_REQUIRE_DEVICE is set it fails instead. */
void device_is_missing(const char *why);

/* Bytes of the device's memory that anybody has, contexts included. */
uint64_t device_used_bytes(void);

/* Keeps the lines of errors that a test makes; without it they are printed. At the end there must
 * be one at least, and each must name a call of the driver with its result. */
void device_found_expect_errors(bool expected);

#endif

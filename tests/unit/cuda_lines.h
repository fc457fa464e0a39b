/* SPDX-License-Identifier: Apache-2.0 */
/* The error lines of a run on a cuda device that fails. */
#ifndef MEMRUN_TESTS_UNIT_CUDA_LINES_H
#define MEMRUN_TESTS_UNIT_CUDA_LINES_H

#include <stdbool.h>
#include <stdint.h>

struct cuda_lines {
  char text[2048]; /* each with its newline */
  uint32_t count;
};

/* Keeps them from now on in place of printing them; false: no longer. */
void cuda_lines_keep(bool keep);
void cuda_lines_forget(void);
/* Those since they were forgotten last. No run may be going on. */
const struct cuda_lines *cuda_lines_kept(void);
/* Whether each line names a function of the driver, and then the driver's result. */
bool cuda_lines_name_calls(const char *result);

#endif

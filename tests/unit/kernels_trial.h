/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trial runs one op of a kernel table on a shape and data drawn from a seed: two trials of one
 * seed differ only in the table and in the addresses of their buffers. Each buffer is followed by
 * guard bytes, scratch is exactly as large as the op asked for and starts as NaN.
 */
#ifndef MEMRUN_TESTS_UNIT_KERNELS_TRIAL_H
#define MEMRUN_TESTS_UNIT_KERNELS_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "train/kernels/kernels.h"

#define TRIAL_BUFFERS 24

/* Where buffers lie, aligned to 64 bytes; ordinary memory unless a test says otherwise. */
struct trial_memory {
  void *(*take)(uint64_t bytes);
  void (*give)(void *data);
};
extern struct trial_memory trial_memory;

struct trial_buffer {
  unsigned char *allocation, *data;
  uint64_t bytes;
  const char *output; /* its name, or NULL for inputs and scratch */
  mr_dtype dtype;
  double slack; /* what each value may be off by however small it is, as its terms cancel */
  double
      product_slack; /* more by cuBLASLt, some of whose algorithms round a product to bf16 before
                      * they add to it (seen on an H200, at 16 x 16 by 64 and 303 x 448 by 283) */
};

struct trial {
  const struct kernel_table *table;
  struct mr_team *team;
  uint64_t lines;   /* of 64 bytes that buffers are moved by */
  bool large;       /* shapes of several tiles and tasks */
  bool rounded;     /* data are drawn as bf16 holds them */
  bool scattered;   /* what updates get is of every size, down to denormal numbers */
  bool eights;      /* heads have up to 128 columns, in whole eights */
  bool by_cublaslt; /* products are its own */
  double mean;      /* of what is drawn */
  mr_dtype dtype;   /* of the elements, in which the op is run */
  struct mr_random random;
  struct trial_buffer buffers[TRIAL_BUFFERS];
  uint32_t buffer_count;
};

struct trial_op {
  const char *name;
  void (*run)(struct trial *trial);
  double tolerance; /* of the largest error relative to the root mean square of an output */
};

extern const struct trial_op trial_ops[];
extern const uint32_t trial_op_count;

/* MEMRUN_SEED, else the time: tests print it. */
uint64_t trial_first_seed(void);

/* Draws, runs `op` and checks the status and the guards; trial_fini frees the buffers. */
void trial_run(struct trial *trial, const struct trial_op *op, uint64_t seed);
void trial_fini(struct trial *trial);

/* How many values a buffer holds, and one of them, whatever its type. */
uint64_t trial_value_count(const struct trial_buffer *buffer);
double trial_value_at(const struct trial_buffer *buffer, uint64_t i);

/* Checks every output of `got` against that of `wanted`, which ran `op` on the same seed, in bf16
 * or from the same data in fp32. Returns the largest error as a part of what is allowed. */
double trial_check_errors(const struct trial *got, const struct trial *wanted,
                          const struct trial_op *op, uint64_t seed);

/* The first output in which two trials of one op and seed left other bits; NULL: none. */
const char *trial_difference(const struct trial *a, const struct trial *b);
/* That there is none. */
void trial_assert_same_bits(const struct trial *a, const struct trial *b, const char *name,
                            uint64_t seed);

#endif

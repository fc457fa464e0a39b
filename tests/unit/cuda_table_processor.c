/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of the CUDA ops carried out on the processor, kernels in an order that a seed draws. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "tests/cuda_on_cpu.h"
#include "tests/cuda_on_cpu/cuda_bf16.h"
#include "tests/unit/cuda_table.h"

typedef __nv_bfloat16 bf16;

static uint64_t launch_seed;

void cuda_table_seed(uint64_t seed) {
  launch_seed = seed;
}

static mr_status launch_here(void *context, const struct cuda_launch *launch) {
  (void)context;
  struct cuda_on_cpu_launch run = {.kernel = launch->kernel,
                                   .shared_bytes = launch->shared_bytes,
                                   .arguments = launch->arguments,
                                   .arguments_bytes = launch->arguments_bytes,
                                   .seed = launch_seed++};
  memcpy(run.grid, launch->grid, sizeof run.grid);
  memcpy(run.block, launch->block, sizeof run.block);
  const char *fault = cuda_on_cpu_run(&run);
  if (fault != NULL) {
    fail_msg("%s: %s", launch->kernel, fault);
  }
  return MR_OK;
}

static double element(const void *matrix, enum cuda_type of, uint64_t i) {
  return (double)(of == CUDA_F32 ? ((const float *)matrix)[i]
                                 : __bfloat162float(((const bf16 *)matrix)[i]));
}

static void set_element(void *matrix, enum cuda_type of, uint64_t i, double value) {
  if (of == CUDA_F32) {
    ((float *)matrix)[i] = (float)value;
  } else {
    ((bf16 *)matrix)[i] = __float2bfloat16_rn((float)value);
  }
}

static double product_at(const struct cuda_product *p, uint64_t row, uint64_t column) {
  uint64_t a_stride = p->a_stride != 0 ? p->a_stride : p->a_transposed ? p->rows : p->inner;
  double sum = 0;
  for (uint64_t i = 0; i < p->inner; i++) {
    sum +=
        element(p->a, p->type, p->a_transposed ? i * a_stride + row : row * a_stride + i) *
        element(p->b, p->type, p->b_transposed ? column * p->inner + i : i * p->columns + column);
  }
  return sum;
}

static mr_status multiply_here(void *context, const struct cuda_product *p) {
  (void)context;
  assert_non_null(p->workspace);
  memset(p->workspace, 0xff, p->workspace_bytes);
  enum cuda_type out_type = p->out_f32 ? CUDA_F32 : p->type;
  uint64_t out_stride = p->out_stride != 0 ? p->out_stride : p->columns;
  for (uint64_t row = 0; row < p->rows; row++) {
    for (uint64_t column = 0; column < p->columns; column++) {
      uint64_t at = row * out_stride + column;
      double sum = product_at(p, row, column);
      sum += p->bias != NULL ? element(p->bias, p->type, column) : 0;
      sum += p->added != NULL ? element(p->added, out_type, at) : 0;
      set_element(p->out, out_type, at, sum);
    }
  }
  return MR_OK;
}

static const struct cuda_queue here = {.launch = launch_here, .multiply = multiply_here};

bool cuda_table_by_cublaslt(void) {
  return false;
}

const struct cuda_queue *cuda_table_queue(void) {
  return &here;
}

bool cuda_table_open(void) {
  return true;
}

void cuda_table_close(void) {
}

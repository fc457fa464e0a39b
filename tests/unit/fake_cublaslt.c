/* SPDX-License-Identifier: Apache-2.0 */
/* The fake cuBLASLt: products of all transpositions, types and epilogues against plain sums, on the
 * stream's time, and what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "base/base.h"
#include "tests/fake/cublaslt.h"
#include "unit/fake_rig.h"

#define M      5u
#define N      7u
#define K      6u
#define STRIDE 9u
#define CELLS  96u /* of a matrix, in elements */

struct shape {
  int32_t transposed[2];
  bool bf16, out_f32, biased, added;
};

struct objects {
  void *handle, *operation, *a, *b, *d, *preference;
  struct fake_lt_heuristic chosen;
};

static mr_cu_address page;

static int set_up(void **state) {
  (void)state;
  rig_init();
  page = rig_page();
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  assert_int_equal(cuCtxSynchronize(), 0);
  rig_page_free(page);
  rig_fini();
  return 0;
}

/* Matrices and the rest lie one after another on the page. */
static void *place(uint32_t which) {
  return (char *)(uintptr_t)page + which * 4096u;
}

static float read_cell(const void *data, bool bf16, uint32_t at) {
  if (!bf16) {
    return ((const float *)data)[at];
  }
  uint32_t bits = (uint32_t)((const uint16_t *)data)[at] << 16;
  float value = 0;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Small whole numbers, which bf16 and sums hold exactly. */
static void fill_cells(void *data, bool bf16, uint32_t salt) {
  for (uint32_t i = 0; i < CELLS; i++) {
    float value = (float)((i * 7 + salt) % 5) - 2;
    if (bf16) {
      uint32_t bits = 0;
      memcpy(&bits, &value, sizeof bits);
      ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
    } else {
      ((float *)data)[i] = value;
    }
  }
}

static void set_attribute(void *operation, int32_t attribute, const void *value, size_t bytes) {
  assert_int_equal(cublasLtMatmulDescSetAttribute(operation, attribute, value, bytes), 0);
}

static void open_objects(struct objects *o, const struct shape *shape) {
  const int32_t type = shape->bf16 ? FAKE_LT_BF16 : FAKE_LT_F32;
  const int32_t d_type = shape->out_f32 ? FAKE_LT_F32 : type;
  const uint32_t epilogue = shape->biased ? FAKE_LT_EPILOGUE_BIAS : FAKE_LT_EPILOGUE_NONE;
  const uint64_t workspace_bytes = 1024;
  const uint32_t reductions = FAKE_LT_REDUCTION_COMPUTE_TYPE;
  const void *bias = place(4);
  int32_t found = 0;
  assert_int_equal(cublasLtCreate(&o->handle), 0);
  assert_int_equal(cublasLtMatmulDescCreate(&o->operation, FAKE_LT_COMPUTE_F32, FAKE_LT_F32), 0);
  for (int32_t i = 0; i < 2; i++) {
    set_attribute(o->operation, FAKE_LT_DESC_TRANSA + i, &shape->transposed[i], sizeof(int32_t));
  }
  set_attribute(o->operation, FAKE_LT_DESC_EPILOGUE, &epilogue, sizeof epilogue);
  set_attribute(o->operation, FAKE_LT_DESC_BIAS, &bias, sizeof bias);
  const bool *t = (const bool[]){shape->transposed[0] != 0, shape->transposed[1] != 0};
  assert_int_equal(cublasLtMatrixLayoutCreate(&o->a, type, t[0] ? K : M, t[0] ? M : K, STRIDE), 0);
  assert_int_equal(cublasLtMatrixLayoutCreate(&o->b, type, t[1] ? N : K, t[1] ? K : N, STRIDE), 0);
  assert_int_equal(cublasLtMatrixLayoutCreate(&o->d, d_type, M, N, STRIDE), 0);
  assert_int_equal(cublasLtMatmulPreferenceCreate(&o->preference), 0);
  assert_int_equal(cublasLtMatmulPreferenceSetAttribute(o->preference, FAKE_LT_PREFER_WORKSPACE,
                                                        &workspace_bytes, sizeof workspace_bytes),
                   0);
  assert_int_equal(cublasLtMatmulAlgoGetHeuristic(o->handle, o->operation, o->a, o->b, o->d, o->d,
                                                  o->preference, 1, &o->chosen, &found),
                   FAKE_LT_NOT_SUPPORTED); /* sums may be rounded on the way */
  assert_int_equal(cublasLtMatmulPreferenceSetAttribute(o->preference, FAKE_LT_PREFER_REDUCTIONS,
                                                        &reductions, sizeof reductions),
                   0);
  assert_int_equal(cublasLtMatmulAlgoGetHeuristic(o->handle, o->operation, o->a, o->b, o->d, o->d,
                                                  o->preference, 1, &o->chosen, &found),
                   0);
  assert_int_equal(found, 1);
}

static void close_objects(struct objects *o) {
  assert_int_equal(cublasLtMatmulPreferenceDestroy(o->preference), 0);
  assert_int_equal(cublasLtMatrixLayoutDestroy(o->d), 0);
  assert_int_equal(cublasLtMatrixLayoutDestroy(o->b), 0);
  assert_int_equal(cublasLtMatrixLayoutDestroy(o->a), 0);
  assert_int_equal(cublasLtMatmulDescDestroy(o->operation), 0);
  assert_int_equal(cublasLtDestroy(o->handle), 0);
}

static int32_t multiply(const struct objects *o, const void *a, float beta) {
  const float alpha = 1;
  return cublasLtMatmul(o->handle, o->operation, &alpha, a, o->a, place(1), o->b, &beta, place(2),
                        o->d, place(3), o->d, &o->chosen.algorithm, place(5), 1024, rig.first);
}

static float expected(const struct shape *shape, uint32_t i, uint32_t j) {
  bool out_bf16 = shape->bf16 && !shape->out_f32;
  float sum = 0;
  for (uint32_t l = 0; l < K; l++) {
    uint32_t a = shape->transposed[0] != 0 ? i * STRIDE + l : l * STRIDE + i;
    uint32_t b = shape->transposed[1] != 0 ? l * STRIDE + j : j * STRIDE + l;
    sum += read_cell(place(0), shape->bf16, a) * read_cell(place(1), shape->bf16, b);
  }
  sum += shape->added ? read_cell(place(2), out_bf16, j * STRIDE + i) : 0;
  return sum + (shape->biased ? read_cell(place(4), out_bf16, i) : 0);
}

static void products_are_right(void **state) {
  (void)state;
  for (uint32_t bits = 0; bits < 64; bits++) {
    const struct shape shape = {.transposed = {bits & 1, bits >> 1 & 1},
                                .bf16 = (bits & 4) != 0,
                                .out_f32 = (bits & 8) != 0,
                                .biased = (bits & 16) != 0,
                                .added = (bits & 32) != 0};
    bool out_bf16 = shape.bf16 && !shape.out_f32;
    struct objects o;
    for (uint32_t p = 0; p < 5; p++) {
      fill_cells(place(p), p < 2 ? shape.bf16 : out_bf16, p);
    }
    open_objects(&o, &shape);
    assert_int_equal(multiply(&o, place(0), shape.added ? 1 : 0), 0);
    assert_int_equal(cuStreamSynchronize(rig.first), 0);
    for (uint32_t j = 0; j < N; j++) {
      for (uint32_t i = 0; i < M; i++) {
        float value = read_cell(place(3), out_bf16, j * STRIDE + i);
        assert_true(value == expected(&shape, i, j));
      }
    }
    /* The workspace is the library's, whole. */
    assert_int_equal(*(const unsigned char *)place(5), FAKE_POISON);
    assert_int_equal(((const unsigned char *)place(5))[1023], FAKE_POISON);
    close_objects(&o);
  }
}

static void products_run_on_the_stream(void **state) {
  (void)state;
  const struct shape shape = {.out_f32 = true};
  _Atomic uint32_t open = 0;
  struct objects o;
  fill_cells(place(0), false, 0);
  fill_cells(place(1), false, 1);
  memset(place(3), 0, 4096);
  open_objects(&o, &shape);
  assert_int_equal(rig_launch(rig.hold, rig.first, &(struct fake_hold){&open}), 0);
  assert_int_equal(multiply(&o, place(0), 0), 0);
  assert_int_equal(cuStreamQuery(rig.first), MR_CU_NOT_READY);
  float *data = place(0);
  data[0] = 100; /* read when the stream comes to it */
  open = 1;
  assert_int_equal(cuStreamSynchronize(rig.first), 0);
  assert_true(read_cell(place(3), false, 0) == expected(&shape, 0, 0));
  close_objects(&o);
}

static void what_does_not_fit_is_refused(void **state) {
  (void)state;
  const struct shape shape = {.out_f32 = true};
  const struct shape other = {.transposed = {1, 0}, .out_f32 = true};
  struct objects o;
  struct objects transposed;
  void *layout = NULL;
  const uint32_t wrong_size = 1;
  open_objects(&o, &shape);
  open_objects(&transposed, &other);
  /* An algorithm of another product; operands that are not where it was promised. */
  transposed.chosen = o.chosen;
  assert_int_equal(multiply(&transposed, place(0), 0), FAKE_LT_NOT_SUPPORTED);
  assert_int_equal(multiply(&o, (char *)place(0) + 4, 0), FAKE_LT_NOT_SUPPORTED);
  assert_int_equal(multiply(&o, NULL, 0), FAKE_LT_NOT_SUPPORTED);
  assert_int_equal(cublasLtMatmulDescSetAttribute(o.operation, FAKE_LT_DESC_BIAS, &wrong_size,
                                                  sizeof wrong_size),
                   FAKE_LT_INVALID_VALUE);
  assert_int_equal(cublasLtMatrixLayoutCreate(&layout, FAKE_LT_F32, M, N, M - 1),
                   FAKE_LT_INVALID_VALUE);
  assert_int_equal(cuCtxSetCurrent(NULL), 0);
  assert_int_equal(multiply(&o, place(0), 0), FAKE_LT_EXECUTION_FAILED);
  assert_int_equal(cublasLtCreate(&layout), FAKE_LT_NOT_INITIALIZED);
  assert_int_equal(cuCtxSetCurrent(rig.context), 0);
  close_objects(&transposed);
  close_objects(&o);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(products_are_right, set_up, tear_down),
      cmocka_unit_test_setup_teardown(products_run_on_the_stream, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_does_not_fit_is_refused, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuBLASLt over the fake driver: libcublasLt for machines without one, with the functions that the
 * trainer uses, declared here as the library's documentation has them. Products run on the streams
 * of the fake driver, in a fixed order, summed in fp32.
 *
 * It is strict where the library's behaviour is undefined or a caller's mistake is likely: an
 * algorithm carries out only the product that it was chosen for, at the alignments that were
 * promised; the workspace is overwritten as a whole; and products must be held to sums in fp32,
 * where the library left to itself may add parts of one in the type of the output.
 */
#ifndef MEMRUN_TESTS_FAKE_CUBLASLT_H
#define MEMRUN_TESTS_FAKE_CUBLASLT_H

#include <stddef.h>
#include <stdint.h>

/* cublasStatus_t */
enum {
  FAKE_LT_SUCCESS = 0,
  FAKE_LT_NOT_INITIALIZED = 1,
  FAKE_LT_ALLOC_FAILED = 3,
  FAKE_LT_INVALID_VALUE = 7,
  FAKE_LT_EXECUTION_FAILED = 13,
  FAKE_LT_NOT_SUPPORTED = 15,
};

/* cudaDataType, cublasComputeType_t and attributes, as far as they are taken. */
enum {
  FAKE_LT_F32 = 0,
  FAKE_LT_BF16 = 14,
  FAKE_LT_COMPUTE_F32 = 68,
  FAKE_LT_DESC_TRANSA = 3,   /* int32_t: 0 or 1 */
  FAKE_LT_DESC_TRANSB = 4,   /* int32_t: 0 or 1 */
  FAKE_LT_DESC_EPILOGUE = 7, /* uint32_t: 1 none, 4 bias */
  FAKE_LT_DESC_BIAS = 8,     /* const void *: one element of D's type for each row of D */
  FAKE_LT_EPILOGUE_NONE = 1,
  FAKE_LT_EPILOGUE_BIAS = 4,
  FAKE_LT_PREFER_WORKSPACE = 1,   /* uint64_t */
  FAKE_LT_PREFER_REDUCTIONS = 3,  /* uint32_t: a mask, 2: in the type of the computation */
  FAKE_LT_PREFER_ALIGNMENT_A = 5, /* uint32_t; B, C and D follow */
  FAKE_LT_REDUCTION_COMPUTE_TYPE = 2,
  FAKE_LT_REDUCTIONS = 7,
};

/* cublasLtMatmulAlgo_t and cublasLtMatmulHeuristicResult_t */
struct fake_lt_algorithm {
  uint64_t data[8];
};
struct fake_lt_heuristic {
  struct fake_lt_algorithm algorithm;
  size_t workspace_bytes;
  int32_t state;
  float waves;
  int32_t reserved[4];
};

#define FAKE_LT_API __attribute__((visibility("default")))

FAKE_LT_API int32_t cublasLtCreate(void **handle);
FAKE_LT_API int32_t cublasLtDestroy(void *handle);
FAKE_LT_API int32_t cublasLtMatmulDescCreate(void **operation, int32_t compute_type,
                                             int32_t scale_type);
FAKE_LT_API int32_t cublasLtMatmulDescDestroy(void *operation);
FAKE_LT_API int32_t cublasLtMatmulDescSetAttribute(void *operation, int32_t attribute,
                                                   const void *value, size_t value_bytes);
FAKE_LT_API int32_t cublasLtMatrixLayoutCreate(void **layout, int32_t type, uint64_t rows,
                                               uint64_t columns, int64_t stride);
FAKE_LT_API int32_t cublasLtMatrixLayoutDestroy(void *layout);
FAKE_LT_API int32_t cublasLtMatmulPreferenceCreate(void **preference);
FAKE_LT_API int32_t cublasLtMatmulPreferenceDestroy(void *preference);
FAKE_LT_API int32_t cublasLtMatmulPreferenceSetAttribute(void *preference, int32_t attribute,
                                                         const void *value, size_t value_bytes);
FAKE_LT_API int32_t cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b,
                                                   void *c, void *d, void *preference,
                                                   int32_t wanted,
                                                   struct fake_lt_heuristic *results,
                                                   int32_t *found);
/* D = alpha op(A) op(B) + beta C, then the epilogue; alpha and beta are floats of the host. */
FAKE_LT_API int32_t cublasLtMatmul(void *handle, void *operation, const void *alpha, const void *a,
                                   void *a_layout, const void *b, void *b_layout, const void *beta,
                                   const void *c, void *c_layout, void *d, void *d_layout,
                                   const struct fake_lt_algorithm *algorithm, void *workspace,
                                   size_t workspace_bytes, void *stream);

#endif

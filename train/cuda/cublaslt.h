/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products by cuBLASLt, found with dlopen when the kernels are opened: libcublasLt.so.13 or
 * .12, that of the driver's major version first, or the file that MEMRUN_CUBLASLT names. The part
 * of its interface that is used is declared here as its documentation has it, so that no header of
 * NVIDIA's is needed to build.
 *
 * cuBLASLt thinks in columns: a row-major matrix is its own transpose there, so out^T = op(b)^T .
 * op(a)^T is asked for, with b first; then the bias over our columns is the one over its rows that
 * an epilogue adds, and what is added is C with beta = 1.
 *
 * Products are computed and summed in fp32, without TF32, whatever the elements are; where blocks
 * share a sum, its parts are fp32 too, and a result of bf16 is rounded once. Which of the
 * library's algorithms carries out a product is asked once for its shape, from what the shape alone
 * says (types, strides, transposition, alignment, workspace), never measured: the same library on
 * the same device gives the same bits in every run.
 */
#ifndef MEMRUN_TRAIN_CUDA_CUBLASLT_H
#define MEMRUN_TRAIN_CUDA_CUBLASLT_H

#include "train/cuda/cuda.h"

typedef int32_t cublaslt_result; /* cublasStatus_t; 0: success */

/* cublasLtMatmulAlgo_t and cublasLtMatmulHeuristicResult_t */
struct cublaslt_algorithm {
  uint64_t data[8];
};
struct cublaslt_heuristic {
  struct cublaslt_algorithm algorithm;
  size_t workspace_bytes;
  cublaslt_result state;
  float waves;
  int32_t reserved[4];
};

/* Values of the library's enumerations. */
enum {
  CUBLASLT_TYPE_F32 = 0,   /* CUDA_R_32F */
  CUBLASLT_TYPE_BF16 = 14, /* CUDA_R_16BF */
  CUBLASLT_COMPUTE_F32 = 68,
  CUBLASLT_TRANSPOSE = 1,     /* CUBLAS_OP_T */
  CUBLASLT_DESC_TRANSA = 3,   /* int32_t */
  CUBLASLT_DESC_TRANSB = 4,   /* int32_t */
  CUBLASLT_DESC_EPILOGUE = 7, /* uint32_t */
  CUBLASLT_DESC_BIAS = 8,     /* const void *, over the rows of D */
  CUBLASLT_EPILOGUE_BIAS = 4,
  CUBLASLT_PREFER_WORKSPACE = 1,   /* uint64_t, most bytes */
  CUBLASLT_PREFER_REDUCTIONS = 3,  /* uint32_t, a mask of ways to add the sums of blocks */
  CUBLASLT_PREFER_ALIGNMENT_A = 5, /* uint32_t, least bytes; B, C and D follow */
  CUBLASLT_REDUCTION_COMPUTE_TYPE = 2,
};

/* Where a workspace begins: a multiple of so many bytes. */
#define CUBLASLT_WORKSPACE_ALIGNMENT 256u

/* The functions: field, exported name, parameters. Handles are opaque pointers. */
#define CUBLASLT_FUNCTIONS(X)                                                                      \
  X(create, cublasLtCreate, (void **handle))                                                       \
  X(destroy, cublasLtDestroy, (void *handle))                                                      \
  X(operation_create, cublasLtMatmulDescCreate,                                                    \
    (void **operation, int32_t compute_type, int32_t scale_type))                                  \
  X(operation_destroy, cublasLtMatmulDescDestroy, (void *operation))                               \
  X(operation_set, cublasLtMatmulDescSetAttribute,                                                 \
    (void *operation, int32_t attribute, const void *value, size_t value_bytes))                   \
  X(layout_create, cublasLtMatrixLayoutCreate,                                                     \
    (void **layout, int32_t type, uint64_t rows, uint64_t columns, int64_t stride))                \
  X(layout_destroy, cublasLtMatrixLayoutDestroy, (void *layout))                                   \
  X(preference_create, cublasLtMatmulPreferenceCreate, (void **preference))                        \
  X(preference_destroy, cublasLtMatmulPreferenceDestroy, (void *preference))                       \
  X(preference_set, cublasLtMatmulPreferenceSetAttribute,                                          \
    (void *preference, int32_t attribute, const void *value, size_t value_bytes))                  \
  X(heuristic, cublasLtMatmulAlgoGetHeuristic,                                                     \
    (void *handle, void *operation, void *a, void *b, void *c, void *d, void *preference,          \
     int32_t wanted, struct cublaslt_heuristic *results, int32_t *found))                          \
  X(multiply, cublasLtMatmul,                                                                      \
    (void *handle, void *operation, const void *alpha, const void *a, void *a_layout,              \
     const void *b, void *b_layout, const void *beta, const void *c, void *c_layout, void *d,      \
     void *d_layout, const struct cublaslt_algorithm *algorithm, void *workspace,                  \
     size_t workspace_bytes, void *stream))

struct cublaslt;

/* `driver_version` as mr_cuda_module_driver_version has it. MR_UNSUPPORTED: no library was found,
 * or it is too old; logged. */
MR_CHECK_RESULT mr_status cublaslt_open(uint32_t driver_version, struct cublaslt **cublaslt_out);
void cublaslt_close(struct cublaslt *cublaslt);

/* Enqueues a product of an op on its stream. One thread at a time, whose context is the device's.
 */
MR_CHECK_RESULT mr_status cublaslt_multiply(struct cublaslt *cublaslt,
                                            const struct cuda_product *product,
                                            const struct mr_op_call *call);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt: the library, and the products whose algorithms it was asked for. */
#include "train/cuda/cublaslt.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Products of different shapes; a GPT has about twenty. Of more the oldest is prepared anew. */
#define MOST_PREPARED 256u

#define NOT_SUPPORTED 15 /* CUBLAS_STATUS_NOT_SUPPORTED */

/* All that decides how a product is carried out. */
struct shape {
  uint64_t rows, columns, inner, a_stride, out_stride, workspace_bytes;
  enum cuda_type type;
  bool a_transposed, b_transposed, out_f32, biased;
};

struct prepared {
  struct shape shape;
  void *operation, *a, *b, *out; /* a and b in our order */
  struct cublaslt_algorithm algorithm;
};

struct cublaslt {
#define DECLARE(field, name, parameters) cublaslt_result(*field) parameters;
  CUBLASLT_FUNCTIONS(DECLARE)
#undef DECLARE
  const char *op; /* whose product is carried out */
  void *handle;   /* made at the first product, on a thread that has the device's context */
  struct prepared prepared[MOST_PREPARED];
  uint64_t prepared_count; /* in all; the next takes the place of the oldest */
};

static mr_status find_functions(struct cublaslt *lt, void *library, const char *file) {
  /* POSIX gives functions through dlsym's object pointer; memcpy converts without a cast. */
#define FIND(field, name, parameters)                                                              \
  {                                                                                                \
    void *symbol = dlsym(library, #name);                                                          \
    if (symbol == NULL) {                                                                          \
      mr_log(MR_LOG_ERROR, "%s has no " #name "; memrun needs cuBLAS 12 or later", file);          \
      return MR_UNSUPPORTED;                                                                       \
    }                                                                                              \
    memcpy(&lt->field, &symbol, sizeof symbol);                                                    \
  }
  CUBLASLT_FUNCTIONS(FIND)
#undef FIND
  return MR_OK;
}

static void *open_library(uint32_t driver_version, const char **file_out) {
  static const char *const files[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
  const char *given = getenv("MEMRUN_CUBLASLT");
  if (given != NULL && given[0] != '\0') {
    *file_out = given;
    return dlopen(given, RTLD_NOW | RTLD_LOCAL);
  }
  /* A library of a later major version does not work on an older driver. */
  bool older = driver_version != 0 && driver_version < 13000;
  void *library = NULL;
  for (size_t i = 0; library == NULL && i < sizeof files / sizeof files[0]; i++) {
    *file_out = files[older ? 1 - i : i];
    library = dlopen(*file_out, RTLD_NOW | RTLD_LOCAL);
  }
  return library;
}

mr_status cublaslt_open(uint32_t driver_version, struct cublaslt **cublaslt_out) {
  const char *file = NULL;
  void *library = open_library(driver_version, &file);
  if (library == NULL) {
    mr_log(MR_LOG_ERROR,
           "cuBLASLt was not found (%s); install NVIDIA's cuBLAS 12 or 13, or name the file in "
           "MEMRUN_CUBLASLT",
           dlerror());
    return MR_UNSUPPORTED;
  }
  mr_log(MR_LOG_DEBUG, "cuBLASLt: %s", file);
  struct cublaslt *lt = calloc(1, sizeof *lt);
  if (lt == NULL) {
    mr_log(MR_LOG_ERROR, "out of host memory: %zu bytes for cuBLASLt", sizeof *lt);
    return MR_NO_MEMORY;
  }
  mr_status status = find_functions(lt, library, file);
  if (status != MR_OK) {
    free(lt);
    return status;
  }
  *cublaslt_out = lt;
  return MR_OK;
}

static void release(struct cublaslt *lt, struct prepared *p) {
  if (p->operation != NULL) (void)lt->operation_destroy(p->operation);
  if (p->a != NULL) (void)lt->layout_destroy(p->a);
  if (p->b != NULL) (void)lt->layout_destroy(p->b);
  if (p->out != NULL) (void)lt->layout_destroy(p->out);
}

void cublaslt_close(struct cublaslt *lt) {
  if (lt == NULL) {
    return;
  }
  for (uint32_t i = 0; i < MOST_PREPARED; i++) {
    release(lt, &lt->prepared[i]);
  }
  if (lt->handle != NULL) (void)lt->destroy(lt->handle);
  free(lt);
}

static mr_status failed(const struct cublaslt *lt, cublaslt_result result, const char *call,
                        const struct shape *shape) {
  mr_log(MR_LOG_ERROR,
         "cuBLASLt: op %s: %s of a product of %llu x %llu by %llu failed with status %d",
         lt->op == NULL ? "of none" : lt->op, call, (unsigned long long)shape->rows,
         (unsigned long long)shape->columns, (unsigned long long)shape->inner, (int)result);
  return result == 3 /* CUBLAS_STATUS_ALLOC_FAILED */ ? MR_NO_MEMORY : MR_IO;
}

static int32_t type_of(enum cuda_type type) {
  return type == CUDA_F32 ? CUBLASLT_TYPE_F32 : CUBLASLT_TYPE_BF16;
}

/* The layout of a matrix stored row major as (rows, columns), which cuBLASLt sees transposed. */
static cublaslt_result make_layout(struct cublaslt *lt, void **layout, enum cuda_type type,
                                   const uint64_t shape[2], uint64_t stride) {
  return lt->layout_create(layout, type_of(type), shape[1], shape[0], (int64_t)stride);
}

static cublaslt_result make_layouts(struct cublaslt *lt, struct prepared *p) {
  const struct shape *s = &p->shape;
  const uint64_t a[2] = {s->a_transposed ? s->inner : s->rows,
                         s->a_transposed ? s->rows : s->inner};
  const uint64_t b[2] = {s->b_transposed ? s->columns : s->inner,
                         s->b_transposed ? s->inner : s->columns};
  const uint64_t out[2] = {s->rows, s->columns};
  cublaslt_result result = make_layout(lt, &p->a, s->type, a, s->a_stride);
  if (result == 0) {
    result = make_layout(lt, &p->b, s->type, b, b[1]);
  }
  if (result == 0) {
    result = make_layout(lt, &p->out, s->out_f32 ? CUDA_F32 : s->type, out, s->out_stride);
  }
  return result;
}

/* Its A is our b and its B our a. */
static cublaslt_result make_operation(struct cublaslt *lt, struct prepared *p) {
  const int32_t transpose = CUBLASLT_TRANSPOSE;
  const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
  cublaslt_result result =
      lt->operation_create(&p->operation, CUBLASLT_COMPUTE_F32, CUBLASLT_TYPE_F32);
  if (result == 0 && p->shape.b_transposed) {
    result = lt->operation_set(p->operation, CUBLASLT_DESC_TRANSA, &transpose, sizeof transpose);
  }
  if (result == 0 && p->shape.a_transposed) {
    result = lt->operation_set(p->operation, CUBLASLT_DESC_TRANSB, &transpose, sizeof transpose);
  }
  if (result == 0 && p->shape.biased) {
    result = lt->operation_set(p->operation, CUBLASLT_DESC_EPILOGUE, &epilogue, sizeof epilogue);
  }
  return result;
}

/* The alignment of every row of a matrix whose rows are so many bytes apart: tensors begin at 64
 * bytes, and blocks of rows of them anywhere among the rows. */
static uint32_t row_alignment(uint64_t stride_bytes) {
  uint32_t alignment = 16;
  while (stride_bytes % alignment != 0) {
    alignment /= 2;
  }
  return alignment;
}

static cublaslt_result ask(struct cublaslt *lt, struct prepared *p, void *preference) {
  const struct shape *s = &p->shape;
  uint64_t bytes = s->type == CUDA_F32 ? 4 : 2, out_bytes = s->out_f32 ? 4 : bytes;
  uint64_t b_stride = s->b_transposed ? s->inner : s->columns;
  uint32_t out_alignment = row_alignment(s->out_stride * out_bytes);
  const uint32_t reductions = CUBLASLT_REDUCTION_COMPUTE_TYPE;
  const uint32_t alignments[4] = {row_alignment(b_stride * bytes),
                                  row_alignment(s->a_stride * bytes), out_alignment, out_alignment};
  cublaslt_result result = lt->preference_set(preference, CUBLASLT_PREFER_WORKSPACE,
                                              &s->workspace_bytes, sizeof s->workspace_bytes);
  if (result == 0) {
    result =
        lt->preference_set(preference, CUBLASLT_PREFER_REDUCTIONS, &reductions, sizeof reductions);
  }
  for (int32_t i = 0; result == 0 && i < 4; i++) {
    result = lt->preference_set(preference, CUBLASLT_PREFER_ALIGNMENT_A + i, &alignments[i],
                                sizeof alignments[i]);
  }
  struct cublaslt_heuristic answer = {.state = 0};
  int32_t found = 0;
  if (result == 0) {
    result = lt->heuristic(lt->handle, p->operation, p->b, p->a, p->out, p->out, preference, 1,
                           &answer, &found);
  }
  p->algorithm = answer.algorithm;
  if (result == 0 && found == 0) {
    return NOT_SUPPORTED;
  }
  return result != 0 ? result : answer.state;
}

static mr_status prepare(struct cublaslt *lt, struct prepared *p) {
  void *preference = NULL;
  cublaslt_result result = make_layouts(lt, p);
  const char *call = "describing";
  if (result == 0) {
    result = make_operation(lt, p);
  }
  if (result == 0) {
    result = lt->preference_create(&preference);
  }
  if (result == 0) {
    call = "the choice of an algorithm";
    result = ask(lt, p, preference);
  }
  if (preference != NULL) (void)lt->preference_destroy(preference);
  return result == 0 ? MR_OK : failed(lt, result, call, &p->shape);
}

static struct shape shape_of(const struct cuda_product *product) {
  struct shape shape;
  memset(&shape, 0, sizeof shape); /* shapes are compared byte by byte */
  shape.rows = product->rows;
  shape.columns = product->columns;
  shape.inner = product->inner;
  shape.a_stride = product->a_stride != 0  ? product->a_stride
                   : product->a_transposed ? product->rows
                                           : product->inner;
  shape.out_stride = product->out_stride != 0 ? product->out_stride : product->columns;
  shape.workspace_bytes = product->workspace_bytes < CUDA_WORKSPACE_SLACK_BYTES
                              ? 0
                              : product->workspace_bytes - CUDA_WORKSPACE_SLACK_BYTES;
  shape.type = product->type;
  shape.a_transposed = product->a_transposed;
  shape.b_transposed = product->b_transposed;
  shape.out_f32 = product->out_f32;
  shape.biased = product->bias != NULL;
  return shape;
}

/* The product of that shape, prepared now where it is new. */
static mr_status find_prepared(struct cublaslt *lt, const struct shape *shape,
                               struct prepared **prepared_out) {
  for (uint64_t i = 0; i < lt->prepared_count && i < MOST_PREPARED; i++) {
    if (memcmp(&lt->prepared[i].shape, shape, sizeof *shape) == 0) {
      *prepared_out = &lt->prepared[i];
      return MR_OK;
    }
  }
  struct prepared *p = &lt->prepared[lt->prepared_count % MOST_PREPARED];
  release(lt, p);
  *p = (struct prepared){.shape = *shape};
  mr_status status = prepare(lt, p);
  if (status != MR_OK) {
    release(lt, p);
    *p = (struct prepared){0};
    return status;
  }
  lt->prepared_count++;
  *prepared_out = p;
  return MR_OK;
}

/* Of what it is lent cuBLASLt has the part that begins where it wants a workspace to begin. */
static void *aligned_workspace(const struct cuda_product *product) {
  uint64_t over = (uintptr_t)product->workspace % CUBLASLT_WORKSPACE_ALIGNMENT;
  return (char *)product->workspace + (over == 0 ? 0 : CUBLASLT_WORKSPACE_ALIGNMENT - over);
}

mr_status cublaslt_multiply(struct cublaslt *lt, const struct cuda_product *product,
                            const struct mr_op_call *call) {
  struct shape shape = shape_of(product);
  lt->op = call->name;
  if (lt->handle == NULL) {
    cublaslt_result created = lt->create(&lt->handle);
    if (created != 0) {
      lt->handle = NULL;
      return failed(lt, created, "the handle", &shape);
    }
  }
  struct prepared *p = NULL;
  mr_status status = find_prepared(lt, &shape, &p);
  if (status != MR_OK) {
    return status;
  }
  cublaslt_result result = 0;
  if (shape.biased) {
    result =
        lt->operation_set(p->operation, CUBLASLT_DESC_BIAS, &product->bias, sizeof product->bias);
  }
  const float alpha = 1, beta = product->added != NULL ? 1 : 0;
  const void *added = product->added != NULL ? product->added : product->out;
  if (result == 0) {
    result = lt->multiply(lt->handle, p->operation, &alpha, product->b, p->b, product->a, p->a,
                          &beta, added, p->out, product->out, p->out, &p->algorithm,
                          aligned_workspace(product), shape.workspace_bytes, call->stream);
  }
  return result == 0 ? MR_OK : failed(lt, result, "a launch", &shape);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The fake cuBLASLt: descriptions, the choice of an algorithm, and products on a stream. */
#include "tests/fake/cublaslt.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tests/fake/fake.h"

#define ALGORITHM_MAGIC 0x6d72666b6c740001ull
/* Of the least use that a product makes of a workspace. */
#define WORKSPACE_BYTES 256u
#define LEAST_ALIGNMENT 2u
#define MAX_LOADED      256u

/* The algorithms whose code is loaded. */
struct handle {
  uint64_t loaded[MAX_LOADED]; /* fingerprints */
  uint32_t loaded_count;
};

struct operation {
  int32_t transposed[2]; /* A, B */
  uint32_t epilogue;
  const void *bias;
};

struct layout {
  int32_t type;
  uint64_t rows, columns;
  uint64_t stride; /* elements from column to column */
};

struct preference {
  uint64_t workspace_bytes;
  uint32_t reductions;    /* that are allowed */
  uint32_t alignments[4]; /* A, B, C, D */
};

/* Everything that a product is, as the stream carries it out; A is (m, k), B is (k, n). */
struct product {
  struct operation operation;
  struct layout a, b, c, d;
  const void *a_data, *b_data, *c_data;
  void *d_data;
  float alpha, beta;
  uint64_t m, n, k;
  void *workspace;
  uint64_t workspace_bytes;
};

static uint64_t type_bytes(int32_t type) {
  return type == FAKE_LT_F32 ? 4 : 2;
}

/* ---- Arithmetic ---- */

static float load(const void *data, int32_t type, uint64_t at) {
  if (type == FAKE_LT_F32) {
    return ((const float *)data)[at];
  }
  uint32_t bits = (uint32_t)((const uint16_t *)data)[at] << 16;
  float value = 0;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void store(void *data, int32_t type, uint64_t at, float value) {
  if (type == FAKE_LT_F32) {
    ((float *)data)[at] = value;
    return;
  }
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof bits);
  /* To the nearest, ties to even; a NaN stays one. */
  uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
  ((uint16_t *)data)[at] = (uint16_t)((value != value ? bits | 1u << 22 : rounded) >> 16);
}

/* op(matrix) column by column, each `rows` long. */
static float *gather(const void *data, const struct layout *layout, bool transposed, uint64_t rows,
                     uint64_t columns) {
  float *values = malloc(rows * columns * sizeof *values);
  MR_ASSERT(values != NULL);
  for (uint64_t j = 0; j < columns; j++) {
    for (uint64_t i = 0; i < rows; i++) {
      uint64_t at = transposed ? i * layout->stride + j : j * layout->stride + i;
      values[j * rows + i] = load(data, layout->type, at);
    }
  }
  return values;
}

static void run_column(const struct product *p, const float *a, const float *b, float *sums,
                       uint64_t j) {
  memset(sums, 0, p->m * sizeof *sums);
  for (uint64_t l = 0; l < p->k; l++) {
    for (uint64_t i = 0; i < p->m; i++) {
      sums[i] += a[l * p->m + i] * b[l];
    }
  }
  for (uint64_t i = 0; i < p->m; i++) {
    float value = p->alpha * sums[i];
    if (p->beta != 0) {
      value += p->beta * load(p->c_data, p->c.type, j * p->c.stride + i);
    }
    if (p->operation.epilogue == FAKE_LT_EPILOGUE_BIAS) {
      value += load(p->operation.bias, p->d.type, i);
    }
    store(p->d_data, p->d.type, j * p->d.stride + i, value);
  }
}

static void run_product(void *payload) {
  const struct product *p = payload;
  if (p->workspace_bytes != 0) {
    memset(p->workspace, FAKE_POISON, p->workspace_bytes);
  }
  float *a = gather(p->a_data, &p->a, p->operation.transposed[0] != 0, p->m, p->k);
  float *b = gather(p->b_data, &p->b, p->operation.transposed[1] != 0, p->k, p->n);
  float *sums = malloc(p->m * sizeof *sums);
  MR_ASSERT(sums != NULL);
  for (uint64_t j = 0; j < p->n; j++) {
    run_column(p, a, b + j * p->k, sums, j);
  }
  free(sums);
  free(b);
  free(a);
}

/* ---- Descriptions ---- */

/* A new object of that size behind *out. */
static int32_t create(void **out, size_t bytes) {
  if (out == NULL) {
    return FAKE_LT_INVALID_VALUE;
  }
  *out = calloc(1, bytes);
  MR_ASSERT(*out != NULL);
  return FAKE_LT_SUCCESS;
}

static int32_t destroy(void *object) {
  free(object);
  return object == NULL ? FAKE_LT_INVALID_VALUE : FAKE_LT_SUCCESS;
}

/* Copies an attribute of exactly that size. */
static int32_t set(void *field, size_t field_bytes, const void *value, size_t value_bytes) {
  if (value == NULL || value_bytes != field_bytes) {
    return FAKE_LT_INVALID_VALUE;
  }
  memcpy(field, value, value_bytes);
  return FAKE_LT_SUCCESS;
}

int32_t cublasLtCreate(void **handle) {
  return fake_has_context() ? create(handle, sizeof(struct handle)) : FAKE_LT_NOT_INITIALIZED;
}

int32_t cublasLtDestroy(void *handle) {
  return destroy(handle);
}

int32_t cublasLtMatmulDescCreate(void **operation, int32_t compute_type, int32_t scale_type) {
  if (compute_type != FAKE_LT_COMPUTE_F32 || scale_type != FAKE_LT_F32) {
    return FAKE_LT_NOT_SUPPORTED;
  }
  int32_t status = create(operation, sizeof(struct operation));
  if (status == FAKE_LT_SUCCESS) {
    ((struct operation *)*operation)->epilogue = FAKE_LT_EPILOGUE_NONE;
  }
  return status;
}

int32_t cublasLtMatmulDescDestroy(void *operation) {
  return destroy(operation);
}

int32_t cublasLtMatmulDescSetAttribute(void *operation, int32_t attribute, const void *value,
                                       size_t value_bytes) {
  struct operation *set_in = operation;
  if (set_in == NULL) {
    return FAKE_LT_INVALID_VALUE;
  }
  switch (attribute) {
  case FAKE_LT_DESC_TRANSA:
  case FAKE_LT_DESC_TRANSB:
    return set(&set_in->transposed[attribute - FAKE_LT_DESC_TRANSA], sizeof(int32_t), value,
               value_bytes);
  case FAKE_LT_DESC_EPILOGUE:
    return set(&set_in->epilogue, sizeof set_in->epilogue, value, value_bytes);
  case FAKE_LT_DESC_BIAS:
    return set(&set_in->bias, sizeof set_in->bias, value, value_bytes);
  default:
    return FAKE_LT_INVALID_VALUE;
  }
}

int32_t cublasLtMatrixLayoutCreate(void **layout, int32_t type, uint64_t rows, uint64_t columns,
                                   int64_t stride) {
  bool known = type == FAKE_LT_F32 || type == FAKE_LT_BF16;
  if (!known || rows == 0 || columns == 0 || stride < 0 || (uint64_t)stride < rows) {
    return FAKE_LT_INVALID_VALUE;
  }
  int32_t status = create(layout, sizeof(struct layout));
  if (status == FAKE_LT_SUCCESS) {
    *(struct layout *)*layout = (struct layout){type, rows, columns, (uint64_t)stride};
  }
  return status;
}

int32_t cublasLtMatrixLayoutDestroy(void *layout) {
  return destroy(layout);
}

int32_t cublasLtMatmulPreferenceCreate(void **preference) {
  int32_t status = create(preference, sizeof(struct preference));
  if (status == FAKE_LT_SUCCESS) {
    /* What the library takes for granted unless told. */
    *(struct preference *)*preference =
        (struct preference){.reductions = FAKE_LT_REDUCTIONS, .alignments = {256, 256, 256, 256}};
  }
  return status;
}

int32_t cublasLtMatmulPreferenceDestroy(void *preference) {
  return destroy(preference);
}

int32_t cublasLtMatmulPreferenceSetAttribute(void *preference, int32_t attribute, const void *value,
                                             size_t value_bytes) {
  struct preference *set_in = preference;
  if (set_in == NULL) {
    return FAKE_LT_INVALID_VALUE;
  }
  if (attribute == FAKE_LT_PREFER_WORKSPACE) {
    return set(&set_in->workspace_bytes, sizeof set_in->workspace_bytes, value, value_bytes);
  }
  if (attribute == FAKE_LT_PREFER_REDUCTIONS) {
    return set(&set_in->reductions, sizeof set_in->reductions, value, value_bytes);
  }
  if (attribute >= FAKE_LT_PREFER_ALIGNMENT_A && attribute < FAKE_LT_PREFER_ALIGNMENT_A + 4) {
    return set(&set_in->alignments[attribute - FAKE_LT_PREFER_ALIGNMENT_A], sizeof(uint32_t), value,
               value_bytes);
  }
  return FAKE_LT_INVALID_VALUE;
}

/* ---- Products ---- */

/* Sizes that go together, and types: A and B alike; C as D; D fp32 or as A. */
static bool describe(const struct operation *operation, const struct layout *const layouts[4],
                     struct product *product) {
  const struct layout *a = layouts[0];
  const struct layout *b = layouts[1];
  const struct layout *c = layouts[2];
  const struct layout *d = layouts[3];
  if (operation == NULL || a == NULL || b == NULL || c == NULL || d == NULL) {
    return false;
  }
  bool a_transposed = operation->transposed[0] != 0;
  bool b_transposed = operation->transposed[1] != 0;
  *product = (struct product){.operation = *operation, .a = *a, .b = *b, .c = *c, .d = *d};
  product->m = a_transposed ? a->columns : a->rows;
  product->k = a_transposed ? a->rows : a->columns;
  product->n = b_transposed ? b->rows : b->columns;
  uint64_t b_inner = b_transposed ? b->columns : b->rows;
  bool known =
      operation->epilogue == FAKE_LT_EPILOGUE_NONE || operation->epilogue == FAKE_LT_EPILOGUE_BIAS;
  return known && b_inner == product->k && d->rows == product->m && d->columns == product->n &&
         c->rows == d->rows && c->columns == d->columns && a->type == b->type &&
         c->type == d->type && (d->type == a->type || d->type == FAKE_LT_F32);
}

/* One number for all that an algorithm was chosen for (FNV-1a). */
static uint64_t fingerprint(const struct product *p) {
  const uint64_t words[] = {p->m,
                            p->n,
                            p->k,
                            p->a.stride,
                            p->b.stride,
                            p->c.stride,
                            p->d.stride,
                            (uint64_t)p->a.type,
                            (uint64_t)p->d.type,
                            (uint64_t)p->operation.transposed[0],
                            (uint64_t)p->operation.transposed[1],
                            p->operation.epilogue};
  uint64_t hash = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < MR_COUNT_OF(words); i++) {
    hash = (hash ^ words[i]) * 0x100000001b3ull;
  }
  return hash;
}

/* NOLINTNEXTLINE(readability-function-size): the parameters are the library's */
int32_t cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c,
                                       void *d, void *preference, int32_t wanted,
                                       struct fake_lt_heuristic *results, int32_t *found) {
  const struct layout *const layouts[4] = {a, b, c, d};
  const struct preference *preferred = preference;
  struct product product;
  if (handle == NULL || preferred == NULL || wanted < 1 || results == NULL || found == NULL) {
    return FAKE_LT_INVALID_VALUE;
  }
  if (!describe(operation, layouts, &product)) {
    return FAKE_LT_INVALID_VALUE;
  }
  if ((preferred->reductions & ~(uint32_t)FAKE_LT_REDUCTION_COMPUTE_TYPE) != 0) {
    return FAKE_LT_NOT_SUPPORTED;
  }
  *results = (struct fake_lt_heuristic){
      .algorithm = {{ALGORITHM_MAGIC, fingerprint(&product)}},
      .workspace_bytes = preferred->workspace_bytes < WORKSPACE_BYTES ? 0 : WORKSPACE_BYTES};
  for (uint32_t i = 0; i < MR_COUNT_OF(preferred->alignments); i++) {
    results->algorithm.data[2 + i] = preferred->alignments[i];
  }
  results->algorithm.data[6] = results->workspace_bytes;
  *found = 1;
  return FAKE_LT_SUCCESS;
}

/* Whether the algorithm was chosen for this, and everything lies where it was promised. */
static bool fits(const struct product *p, const struct fake_lt_algorithm *algorithm) {
  if (algorithm == NULL || algorithm->data[0] != ALGORITHM_MAGIC ||
      algorithm->data[1] != fingerprint(p) || algorithm->data[6] > p->workspace_bytes) {
    return false;
  }
  const void *const data[4] = {p->a_data, p->b_data, p->c_data, p->d_data};
  for (uint32_t i = 0; i < MR_COUNT_OF(data); i++) {
    uint64_t alignment = mr_max_u64(algorithm->data[2 + i], LEAST_ALIGNMENT);
    if (data[i] == NULL || (uintptr_t)data[i] % alignment != 0) {
      return false;
    }
  }
  bool biased = p->operation.epilogue == FAKE_LT_EPILOGUE_BIAS;
  return !biased ||
         (p->operation.bias != NULL && (uintptr_t)p->operation.bias % type_bytes(p->d.type) == 0);
}

/* False where the algorithm's code finds no room on the device. */
static bool load_code(struct handle *handle, uint64_t algorithm) {
  for (uint32_t i = 0; i < handle->loaded_count; i++) {
    if (handle->loaded[i] == algorithm) {
      return true;
    }
  }
  MR_ASSERT(handle->loaded_count < MAX_LOADED);
  bool taken = fake_library_take();
  if (taken) {
    handle->loaded[handle->loaded_count++] = algorithm;
  }
  return taken;
}

/* NOLINTNEXTLINE(readability-function-size): the parameters are the library's */
int32_t cublasLtMatmul(void *handle, void *operation, const void *alpha, const void *a,
                       void *a_layout, const void *b, void *b_layout, const void *beta,
                       const void *c, void *c_layout, void *d, void *d_layout,
                       const struct fake_lt_algorithm *algorithm, void *workspace,
                       size_t workspace_bytes, void *stream) {
  const struct layout *const layouts[4] = {a_layout, b_layout, c_layout, d_layout};
  struct product product;
  if (handle == NULL || alpha == NULL || beta == NULL || !describe(operation, layouts, &product) ||
      (workspace == NULL && workspace_bytes != 0) || (uintptr_t)workspace % 256 != 0) {
    return FAKE_LT_INVALID_VALUE;
  }
  product.a_data = a;
  product.b_data = b;
  product.c_data = c;
  product.d_data = d;
  memcpy(&product.alpha, alpha, sizeof product.alpha);
  memcpy(&product.beta, beta, sizeof product.beta);
  product.workspace = workspace;
  product.workspace_bytes = workspace_bytes;
  if (!fits(&product, algorithm)) {
    return FAKE_LT_NOT_SUPPORTED;
  }
  if (!load_code(handle, algorithm->data[1])) {
    return FAKE_LT_ALLOC_FAILED;
  }
  return fake_stream_run(stream, run_product, &product, sizeof product) == 0
             ? FAKE_LT_SUCCESS
             : FAKE_LT_EXECUTION_FAILED;
}

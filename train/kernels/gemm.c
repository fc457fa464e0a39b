/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds dnnl_sgemm (oneDNN) or cblas_sgemm (OpenBLAS) with dlopen and calls it on one thread. Both
 * are read at run time, so the program has no build or start dependency on either.
 *
 * Products of bf16 are oneDNN's dnnl_gemm_bf16bf16f32: exported by every release from 1.0 on beside
 * dnnl_sgemm and called alike, though no header declares it. Per tile it costs no more than a call,
 * while a matmul primitive would have to be made and kept for each shape and stride.
 */
#include "train/kernels/gemm.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "train/kernels/bf16.h"
#include "train/kernels/kernels.h"

typedef int dnnl_sgemm_function(char transa, char transb, int64_t m, int64_t n, int64_t k,
                                float alpha, const float *a, int64_t lda, const float *b,
                                int64_t ldb, float beta, float *c, int64_t ldc);
typedef int dnnl_bf16_function(char transa, char transb, int64_t m, int64_t n, int64_t k,
                               float alpha, const uint16_t *a, int64_t lda, const uint16_t *b,
                               int64_t ldb, float beta, float *c, int64_t ldc);
typedef void cblas_sgemm_function(int order, int transa, int transb, int m, int n, int k,
                                  float alpha, const float *a, int lda, const float *b, int ldb,
                                  float beta, float *c, int ldc);

/* The head of dnnl_version_t, the same in every release. */
struct dnnl_version {
  int major, minor, patch;
};

/* The library of this process: set once by kernel_gemm_open, before threads use it. */
static struct {
  char name[64];
  dnnl_sgemm_function *dnnl;
  dnnl_bf16_function *dnnl_bf16; /* NULL: this release has none */
  int (*omp_get_max_threads)(void);
  void (*omp_set_num_threads)(int);
  cblas_sgemm_function *cblas;
} library;

/* POSIX gives functions through dlsym's object pointer; memcpy converts without a cast. */
static bool find_function(void *handle, const char *name, void *function_out, size_t bytes) {
  void *symbol = dlsym(handle, name);
  memcpy(function_out, &symbol, bytes);
  return symbol != NULL;
}

#define FIND(handle, name, variable) find_function(handle, name, &(variable), sizeof(variable))

static bool open_dnnl(void) {
  static const char *const files[] = {"libdnnl.so.2", "libdnnl.so.3"};
  for (unsigned i = 0; i < sizeof files / sizeof files[0]; i++) {
    void *handle = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) continue;
    const struct dnnl_version *(*version)(void) = NULL;
    /* Without OpenMP's own switch the library could not be kept to one thread a tile. */
    if (FIND(handle, "dnnl_sgemm", library.dnnl) && FIND(handle, "dnnl_version", version) &&
        FIND(handle, "omp_get_max_threads", library.omp_get_max_threads) &&
        FIND(handle, "omp_set_num_threads", library.omp_set_num_threads)) {
      FIND(handle, "dnnl_gemm_bf16bf16f32", library.dnnl_bf16);
      const struct dnnl_version *v = version();
      snprintf(library.name, sizeof library.name, "dnnl %d.%d.%d", v->major, v->minor, v->patch);
      return true;
    }
    library.dnnl = NULL;
    dlclose(handle);
  }
  return false;
}

/* The OpenBLAS core type for this processor's features; NULL leaves the choice to the library. */
static const char *openblas_core(void) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512cd")) {
    return "SkylakeX";
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
  return NULL;
}

/* OpenBLAS maps this much for every product that runs at a time, of which it uses little, and asks
 * for ever where a limit of addresses or of memory that may be written leaves no room for it. */
#define OPENBLAS_BUFFER_BYTES (128ull << 20)
#define LIBRARY_BYTES         (64ull << 20) /* it itself */

static bool has_room(uint64_t bytes) {
  void *room =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return room != MAP_FAILED && munmap(room, bytes) == 0;
}

static mr_status refuse_openblas(uint32_t threads) {
  mr_log(MR_LOG_ERROR,
         "no addresses for OpenBLAS, which takes 128 MiB of them for each of %u threads: raise "
         "ulimit -v and -d, use fewer --threads, or install libdnnl2",
         threads);
  return MR_NO_MEMORY;
}

/* Takes the buffers of so many threads now: what is reserved later would leave them no room. */
static bool take_buffers(void *handle, uint32_t threads) {
  void *(*allocate)(int) = NULL;
  void (*release)(void *) = NULL;
  if (!FIND(handle, "blas_memory_alloc", allocate) || !FIND(handle, "blas_memory_free", release)) {
    return true;
  }
  void **buffers = calloc(threads, sizeof *buffers);
  uint32_t count = 0;
  while (buffers != NULL && count < threads && has_room(OPENBLAS_BUFFER_BYTES)) {
    buffers[count++] = allocate(0);
  }
  for (uint32_t i = 0; i < count; i++) {
    release(buffers[i]);
  }
  free(buffers);
  return count == threads;
}

/* MR_UNSUPPORTED: it is not here. */
static mr_status open_openblas(uint32_t threads) {
  if (!has_room(LIBRARY_BYTES + threads * OPENBLAS_BUFFER_BYTES)) {
    return refuse_openblas(threads);
  }
  /* The library reads both while it loads; 0.3.21 takes newer processors for Prescott, and its own
   * threads would only wait beside ours. A core type that the user has set stands. */
  const char *core = openblas_core();
  if (core != NULL) setenv("OPENBLAS_CORETYPE", core, 0);
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  void *handle = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) return MR_UNSUPPORTED;
  char *(*corename)(void) = NULL, *(*config)(void) = NULL;
  void (*set_threads)(int) = NULL;
  if (!FIND(handle, "cblas_sgemm", library.cblas) ||
      !FIND(handle, "openblas_get_corename", corename) ||
      !FIND(handle, "openblas_get_config", config) ||
      !FIND(handle, "openblas_set_num_threads", set_threads)) {
    library.cblas = NULL;
    dlclose(handle);
    return MR_UNSUPPORTED;
  }
  set_threads(1);
  if (!take_buffers(handle, threads)) {
    library.cblas = NULL;
    return refuse_openblas(threads);
  }
  char product[32] = "OpenBLAS", version[16] = "?";
  sscanf(config(), "%31s %15s", product, version);
  snprintf(library.name, sizeof library.name, "openblas %s %s", version, corename());
  const char *wanted = getenv("OPENBLAS_CORETYPE");
  if (wanted != NULL && strcasecmp(wanted, corename()) != 0) {
    mr_log(MR_LOG_WARN, "openblas runs its %s kernels, not %s as told: expect lower speed",
           corename(), wanted);
  }
  return MR_OK;
}

mr_status kernel_gemm_open(const char *choice, uint32_t threads) {
  bool automatic = strcmp(choice, "auto") == 0;
  bool dnnl = automatic || strcmp(choice, "dnnl") == 0;
  bool openblas = automatic || strcmp(choice, "openblas") == 0;
  if (!dnnl && !openblas) {
    mr_log(MR_LOG_ERROR, "unknown matrix library '%s': use auto, dnnl or openblas", choice);
    return MR_INVALID;
  }
  if (library.name[0] != '\0') {
    bool same = automatic || strncmp(library.name, choice, strlen(choice)) == 0;
    if (!same) {
      mr_log(MR_LOG_ERROR, "this process already uses %s; %s can be chosen in a new one",
             library.name, choice);
    }
    return same ? MR_OK : MR_INVALID;
  }
  /* oneDNN before OpenBLAS: faster at the tiles of every shape in bench/results/compute.txt. */
  if (dnnl && open_dnnl()) return MR_OK;
  mr_status status = openblas ? open_openblas(threads) : MR_UNSUPPORTED;
  if (status != MR_UNSUPPORTED) return status;
  mr_log(MR_LOG_ERROR,
         "no matrix library was found (tried%s%s): install libdnnl2 or "
         "libopenblas0-pthread",
         dnnl ? " libdnnl.so.2 libdnnl.so.3" : "", openblas ? " libopenblas.so.0" : "");
  return MR_UNSUPPORTED;
}

/* A product of one element: oneDNN declines bf16 where the processor lacks what it builds on. */
static bool multiplies_bf16(void) {
  uint16_t two = bf16_round(2);
  float four = 0;
  struct gemm product = {.a = &two,
                         .b = &two,
                         .c = &four,
                         .dtype = MR_BF16,
                         .rows = 1,
                         .columns = 1,
                         .inner = 1,
                         .a_stride = 1,
                         .b_stride = 1,
                         .c_stride = 1};
  return library.dnnl_bf16 != NULL && gemm_run(&product) && four > 3.0f;
}

mr_status kernel_gemm_check(mr_dtype dtype) {
  if (dtype != MR_BF16) return MR_OK;
  if (!multiplies_bf16()) {
    mr_log(
        MR_LOG_ERROR,
        "%s cannot multiply bf16 here: that takes oneDNN (libdnnl2, --gemm dnnl) and a processor "
        "with AVX-512 (avx512bw, avx512vl, avx512dq); use --dtype f32",
        library.name);
    return MR_UNSUPPORTED;
  }
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx512bf16")) {
    mr_log(MR_LOG_WARN, "this processor has no AVX512_BF16: products of bf16 are made with more "
                        "instructions and are no faster than those of f32");
  }
#endif
  return MR_OK;
}

const char *kernel_gemm_name(void) {
  return library.name[0] == '\0' ? NULL : library.name;
}

mr_status gemm_ready(void) {
  if (library.name[0] != '\0') return MR_OK;
  mr_log(MR_LOG_ERROR, "a fast kernel ran before kernel_gemm_open chose a matrix library");
  return MR_INVALID;
}

/* oneDNN's status: 0 is success. */
static int run_dnnl(const struct gemm *g, float beta) {
  char a = g->a_transposed ? 'T' : 'N', b = g->b_transposed ? 'T' : 'N';
  int64_t rows = (int64_t)g->rows, columns = (int64_t)g->columns, inner = (int64_t)g->inner;
  int64_t a_stride = (int64_t)g->a_stride, b_stride = (int64_t)g->b_stride;
  if (g->dtype == MR_BF16) {
    return library.dnnl_bf16(a, b, rows, columns, inner, 1.0f, g->a, a_stride, g->b, b_stride, beta,
                             g->c, (int64_t)g->c_stride);
  }
  return library.dnnl(a, b, rows, columns, inner, 1.0f, g->a, a_stride, g->b, b_stride, beta, g->c,
                      (int64_t)g->c_stride);
}

bool gemm_run(const struct gemm *g) {
  float beta = g->accumulate ? 1.0f : 0.0f;
  if (library.dnnl != NULL) {
    /* OpenMP's thread count belongs to the calling thread: set for this call, then given back. */
    int threads = library.omp_get_max_threads();
    if (threads != 1) library.omp_set_num_threads(1);
    int status = run_dnnl(g, beta);
    if (threads != 1) library.omp_set_num_threads(threads);
    return status == 0;
  }
  enum { ROW_MAJOR = 101, AS_STORED = 111, TRANSPOSED = 112 };
  library.cblas(ROW_MAJOR, g->a_transposed ? TRANSPOSED : AS_STORED,
                g->b_transposed ? TRANSPOSED : AS_STORED, (int)g->rows, (int)g->columns,
                (int)g->inner, 1.0f, g->a, (int)g->a_stride, g->b, (int)g->b_stride, beta, g->c,
                (int)g->c_stride);
  return true;
}

static uint64_t at_most(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

struct gemm gemm_part(const struct gemm *g, uint64_t row, uint64_t column, uint64_t rows,
                      uint64_t columns) {
  struct gemm part = *g;
  part.rows = at_most(rows, g->rows - row);
  part.columns = at_most(columns, g->columns - column);
  part.a = element_at(g->a, g->dtype, g->a_transposed ? row : row * g->a_stride);
  part.b = element_at(g->b, g->dtype, g->b_transposed ? column * g->b_stride : column);
  part.c = g->c == NULL ? NULL : g->c + row * g->c_stride + column;
  return part;
}

static double larger(double a, double b) {
  return a > b ? a : b;
}

static uint64_t divide_up(uint64_t a, uint64_t b) {
  return (a + b - 1) / b;
}

/*
 * Work of a tile relative to its multiplications: the library packs rows x inner of a and inner x
 * columns of b for each tile, which costs what 20 more rows and 20 more columns would (fitted to
 * bench/results/compute.txt).
 */
#define PACKING 20.0

struct gemm_tiling gemm_tile(uint64_t rows, uint64_t columns, uint32_t threads) {
  /* Multiples of 48 columns, the width of the libraries' AVX-512 kernels. */
  static const uint16_t tile_rows[] = {64, 96, 128, 192, 256, 384, 512, 768, 1024};
  static const uint16_t tile_columns[] = {48, 96, 192, 384, 768};
  struct gemm_tiling best = {0};
  double best_time = 0;
  for (unsigned i = 0; i < sizeof tile_rows / sizeof tile_rows[0]; i++) {
    for (unsigned j = 0; j < sizeof tile_columns / sizeof tile_columns[0]; j++) {
      uint64_t height = at_most(tile_rows[i], rows), width = at_most(tile_columns[j], columns);
      uint64_t down = divide_up(rows, height), across = divide_up(columns, width);
      double total = (double)rows * (double)columns + PACKING * (double)(rows * across) +
                     PACKING * (double)(columns * down);
      double tile = ((double)height + PACKING) * ((double)width + PACKING);
      uint64_t rounds = divide_up(down * across, threads);
      /* Whole tiles on the busiest thread, and one more now and then where others compute too. */
      double time =
          larger(total / threads, tile * (double)rounds) + tile * (threads - 1) / threads / 4;
      if (best.count == 0 || time < best_time) {
        best_time = time;
        best = (struct gemm_tiling){height, width, across, (uint32_t)(down * across)};
      }
    }
  }
  return best;
}

uint64_t gemm_tile_row(const struct gemm_tiling *t, uint32_t index) {
  return index / t->across * t->tile_rows;
}

uint64_t gemm_tile_column(const struct gemm_tiling *t, uint32_t index) {
  return index % t->across * t->tile_columns;
}

struct gemm gemm_tile_at(const struct gemm *g, const struct gemm_tiling *t, uint32_t index) {
  return gemm_part(g, gemm_tile_row(t, index), gemm_tile_column(t, index), t->tile_rows,
                   t->tile_columns);
}

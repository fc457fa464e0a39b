/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products by a library found at run time, on the calling thread alone: the kernels cut
 * their products into tiles (gemm_tiling), the team's threads claim them, and whatever follows a
 * product is done while its tile is in the cache. Tiles of the sizes chosen here run at 0.95 to
 * 0.98 of one product of the whole (bench/results/compute.txt); in exchange no second set of
 * threads spins beside ours, and a busy foreign process costs its share alone.
 */
#ifndef MEMRUN_TRAIN_KERNELS_GEMM_H
#define MEMRUN_TRAIN_KERNELS_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include <memrun/memrun.h>

/* c (rows, columns) = op(a) (rows, inner) . op(b) (inner, columns) (+ c where accumulate), row
 * major; op transposes where asked, so a transposed a is stored as (inner, rows). Sums are fp32. */
struct gemm {
  const void *a, *b; /* of `dtype`: MR_F32 or MR_BF16 */
  float *c;          /* or NULL, where each part is given its place later */
  mr_dtype dtype;
  uint64_t rows, columns, inner;
  uint64_t a_stride, b_stride, c_stride; /* elements from row to row as stored */
  bool a_transposed, b_transposed, accumulate;
};

/* Computes it on this thread; bf16 only after kernel_gemm_check said so. False where the library
 * failed (out of memory). */
bool gemm_run(const struct gemm *gemm);

/* The part of `gemm` that makes c[row.., column..] of at most `rows` x `columns`. */
struct gemm gemm_part(const struct gemm *gemm, uint64_t row, uint64_t column, uint64_t rows,
                      uint64_t columns);

/* MR_OK where a library is open, else MR_INVALID, logged. */
MR_CHECK_RESULT mr_status gemm_ready(void);

/* How a product's result is cut: tiles in row-major order of tiles. */
struct gemm_tiling {
  uint64_t tile_rows, tile_columns;
  uint64_t across; /* tiles in a row of tiles */
  uint32_t count;
};

/* The tiling of a (rows, columns) result that is expected to finish first on `threads` threads. */
struct gemm_tiling gemm_tile(uint64_t rows, uint64_t columns, uint32_t threads);

/* The row and column of the result at which tile number `index` begins. */
uint64_t gemm_tile_row(const struct gemm_tiling *tiling, uint32_t index);
uint64_t gemm_tile_column(const struct gemm_tiling *tiling, uint32_t index);

/* Tile number `index` of the product. */
struct gemm gemm_tile_at(const struct gemm *gemm, const struct gemm_tiling *tiling, uint32_t index);

#endif

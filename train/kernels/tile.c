/* SPDX-License-Identifier: Apache-2.0 */
/* Products whose results are elements, tile by tile. */
#include "train/kernels/bf16.h"
#include "train/kernels/fast.h"

static uint64_t tile_floats(const struct gemm_tiling *tiling) {
  return fast_round_up(tiling->tile_rows * tiling->tile_columns, 16);
}

uint64_t fast_product_scratch_bytes(uint64_t rows, uint64_t columns, mr_dtype dtype,
                                    uint32_t threads) {
  if (dtype == MR_F32) return 0;
  struct gemm_tiling tiling = gemm_tile(rows, columns, threads);
  return threads * tile_floats(&tiling) * sizeof(float);
}

void fast_product_init(struct fast_product *product, void *result, void *scratch,
                       uint32_t threads) {
  struct gemm *gemm = &product->gemm;
  product->vector = vector_best(gemm->dtype);
  product->tiling = gemm_tile(gemm->rows, gemm->columns, threads);
  product->result = result;
  product->scratch = scratch;
  gemm->c = gemm->dtype == MR_F32 ? result : NULL;
}

struct fast_tile fast_tile_at(const struct fast_product *product, uint32_t index, uint32_t thread) {
  struct fast_tile tile = {
      .gemm = gemm_tile_at(&product->gemm, &product->tiling, index),
      .row = gemm_tile_row(&product->tiling, index),
      .column = gemm_tile_column(&product->tiling, index),
  };
  if (product->gemm.dtype != MR_F32) {
    tile.gemm.c = product->scratch + thread * tile_floats(&product->tiling);
    tile.gemm.c_stride = tile.gemm.columns;
  }
  return tile;
}

uint64_t fast_tile_place(const struct fast_product *product, const struct fast_tile *tile,
                         uint64_t row) {
  return (tile->row + row) * product->gemm.c_stride + tile->column;
}

void fast_tile_load(const struct fast_product *product, const struct fast_tile *tile,
                    const void *source) {
  mr_dtype dtype = product->gemm.dtype;
  if (dtype == MR_F32 && source == product->result) return;
  for (uint64_t r = 0; r < tile->gemm.rows; r++) {
    product->vector->widen(fast_tile_row(tile, r),
                           element_at(source, dtype, fast_tile_place(product, tile, r)),
                           tile->gemm.columns);
  }
}

void fast_tile_store(const struct fast_product *product, const struct fast_tile *tile) {
  mr_dtype dtype = product->gemm.dtype;
  if (dtype == MR_F32) return;
  for (uint64_t r = 0; r < tile->gemm.rows; r++) {
    product->vector->round(element_place(product->result, dtype, fast_tile_place(product, tile, r)),
                           fast_tile_row(tile, r), tile->gemm.columns);
  }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* How the vocabulary is cut. */
#include "train/vocabulary.h"

#include "train/common.h"

/* The optimizer's: moments of a slice are one tensor each. Small beside the budgets that are
 * wanted, large enough for products to run at full speed. */
#define SLICE_BYTES (16ull << 20)
/* A slice begins at a cache line of a row of logits. */
#define WORD_UNIT 16u

/* Logits of a block: those of 1024 rows of GPT-2 and some. With as many rows, the products of a
 * slice outweigh its way from NVMe. */
#define BLOCK_BYTES (256ull << 20)
#define ROW_UNIT    32u

static uint64_t divide_up(uint64_t a, uint64_t b) {
  return (a + b - 1) / b;
}

uint64_t vocabulary_slice_words(uint64_t words, uint64_t width) {
  uint64_t slices = divide_up(words * width * sizeof(float), SLICE_BYTES);
  slices = train_min_u64(slices, VOCABULARY_MOST_SLICES);
  return slices == 1 ? words : divide_up(divide_up(words, slices), WORD_UNIT) * WORD_UNIT;
}

uint64_t vocabulary_block_rows(uint64_t words, uint64_t rows) {
  uint64_t most = BLOCK_BYTES / (words * sizeof(float)) / ROW_UNIT * ROW_UNIT;
  most = most < ROW_UNIT ? ROW_UNIT : most;
  uint64_t blocks = divide_up(rows, most);
  return train_min_u64(rows, divide_up(divide_up(rows, blocks), ROW_UNIT) * ROW_UNIT);
}

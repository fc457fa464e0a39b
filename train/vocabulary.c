/* SPDX-License-Identifier: Apache-2.0 */
/* How the vocabulary is cut. */
#include "train/vocabulary.h"

#include "train/common.h"

/* Small beside the budgets that are wanted, since an update has four slices on the device and those
 * of the next come meanwhile; large enough for products to run at full speed, and few enough for a
 * device to launch 7 ops for each. With NVMe on two cores, under a half to an eighth of their
 * memory, steps of gpt2 and 12x512 are forecast 0.5 and 2.0 % shorter than with equal slices of up
 * to 16 MiB; with 8 MiB they are no shorter, and a GPU takes 1 % more where all fits. */
#define SLICE_BYTES (12ull << 20)
/* What memory is mapped in: a slice takes whole pages, so that rounding adds next to nothing. */
#define PAGE_BYTES (2ull << 20)
/* A slice begins at a cache line of a row of logits. */
#define WORD_UNIT 16u

/* Logits of a block: those of 1024 rows of GPT-2 and some, of twice as many in bf16. With as many
 * rows, the products of a slice outweigh its way from NVMe. On an H200 steps of gpt2 in bf16 with
 * 32 sequences of 1024 tokens take 78.6 ms with half as many rows, 70.3 ms with these and 68.4 ms
 * with twice as many. */
#define BLOCK_BYTES (256ull << 20)
#define ROW_UNIT    32u

static uint64_t divide_up(uint64_t a, uint64_t b) {
  return (a + b - 1) / b;
}

uint64_t vocabulary_slice_words(uint64_t words, uint64_t width) {
  uint64_t word_bytes = width * sizeof(float);
  uint64_t slices = divide_up(words * word_bytes, SLICE_BYTES);
  slices = train_min_u64(slices, VOCABULARY_MOST_SLICES);
  uint64_t pages = divide_up(divide_up(words * word_bytes, slices), PAGE_BYTES);
  uint64_t slice_words = slices > 1 ? 0 : words;
  for (; slice_words * slices < words; pages++) {
    slice_words = pages * PAGE_BYTES / word_bytes / WORD_UNIT * WORD_UNIT;
  }
  return train_min_u64(words, slice_words);
}

uint64_t vocabulary_block_rows(uint64_t words, uint64_t rows, uint64_t logit_bytes) {
  uint64_t most = BLOCK_BYTES / (words * logit_bytes) / ROW_UNIT * ROW_UNIT;
  most = most < ROW_UNIT ? ROW_UNIT : most;
  uint64_t blocks = divide_up(rows, most);
  return train_min_u64(rows, divide_up(divide_up(rows, blocks), ROW_UNIT) * ROW_UNIT);
}

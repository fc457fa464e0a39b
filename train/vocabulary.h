/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the vocabulary is cut, so that a language model's largest tensors need not be on the device
 * as a whole. By the shape of the job alone: results never depend on budgets.
 *
 * Nouns. A *slice* is some consecutive words: rows of the token embedding, of its gradient and of
 * its moments, each slice of each a tensor that memrun moves on its own. A *block* is some
 * consecutive rows of the head's input, one row for each token of the micro-step.
 *
 * The order of the head's loops. A row's softmax needs its logits of all slices, and each slice's
 * gradient needs the softmax, so the slices are gone through twice:
 *
 *   for each block:
 *     for each slice, upwards:    logits = x . slice^T, and their sums
 *     loss
 *     for each slice, downwards:  logits become gradients; slice's gradient += ; dx +=
 *
 * The logits of a block are kept in between. The other ways to do it, by what they cost with W
 * bytes of embedding, on gpt2 with 1024 rows (W = 147 MiB, logits 196 MiB, 1.1 s of products) on
 * two cores at 220 GFLOP/s beside NVMe at 3 GB/s, where each GiB moved costs 0.26 s of processor:
 *
 * - All logits in one block: under pressure the embedding comes in twice, the gradient leaves once
 *   and logits that find no room make one round: 3 W and at most 2 * 196 MiB, 0.2 s.
 * - Blocks of 256 rows: 48 MiB of logits, but with little room every block brings embedding and
 *   gradient past again: up to 4 * 4 W = 2.3 GiB, 0.6 s.
 * - All logits made again for the second pass: nothing kept, a third more products, 0.37 s, at
 *   every budget. Each slice's are a block that may be recomputed, so plans do it where it pays.
 *
 * Nor does one block need more memory where there is enough: gradients of slices come into being as
 * logits are used up, so the head's peak is the larger of the two. Blocks only bound the logits of
 * large batches. The second pass runs downwards so that what the first touched last is used first.
 */
#ifndef MEMRUN_TRAIN_VOCABULARY_H
#define MEMRUN_TRAIN_VOCABULARY_H

#include <stdint.h>

/* Slices of one vocabulary at most: the loss reads sums of all of them, as operands of one op. */
#define VOCABULARY_MOST_SLICES 48u

/* Words of each slice but the last, which may have fewer: as many as whole pages hold. A slice is
 * one of the optimizer's pieces, where VOCABULARY_MOST_SLICES allows. */
uint64_t vocabulary_slice_words(uint64_t words, uint64_t width);

/* Rows of each block but the last, of logits of so many bytes each. */
uint64_t vocabulary_block_rows(uint64_t words, uint64_t rows, uint64_t logit_bytes);

#endif

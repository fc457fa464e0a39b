/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data are windows: batch x seq consecutive tokens with the targets one further. Windows have
 * numbers, and any window can be read at once, so the position in the data is one number and
 * resuming costs nothing.
 *
 * A *file* is read as bytes (any text; a token is a byte) or, where it begins with the magic of
 * llm.c's .bin format, as 16-bit GPT-2 tokens. Window w of an epoch begins at token w * batch *
 * seq; an epoch has (tokens - 1) / (batch * seq) windows, as llm.c's loader counts them. Shuffling
 * permutes the windows of each epoch by the seed. Each window is read from the file when it is
 * wanted.
 *
 * Without a file, the *Markov source* draws rows from a chain of order 1 over the vocabulary: a
 * seeded sparse table of transitions. A row begins with a state of the stationary distribution, so
 * the expected loss of the best possible model is the chain's entropy rate, which is computed from
 * that distribution.
 */
#ifndef MEMRUN_TRAIN_DATA_H
#define MEMRUN_TRAIN_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include <memrun/memrun.h>

struct data_options {
  const char *path; /* NULL: the Markov source */
  uint32_t vocab, batch, seq;
  uint64_t seed;
  bool shuffle;
  uint64_t windows; /* that the job will read; their tokens are checked when the data is opened */
};

struct data_source;

/* MR_IO, MR_CORRUPT, MR_NO_MEMORY; MR_INVALID: too few tokens for a window, tokens beyond the
 * vocabulary. */
MR_CHECK_RESULT mr_status data_open(const struct data_options *options,
                                    struct data_source **source_out);
void data_close(struct data_source *source);

/* tokens[batch * seq] and targets[batch * seq] of window `window`, counted over all epochs. */
MR_CHECK_RESULT mr_status data_read(struct data_source *source, uint64_t window, int32_t *tokens,
                                    int32_t *targets);

/* The number of the i-th window for evaluation: for the Markov source rows that no training step
 * reads, for a file its first windows. */
uint64_t data_evaluation_window(const struct data_source *source, uint64_t i);

/* The least expected loss in nats for each token; negative where it is not known. */
double data_loss_floor(const struct data_source *source);

/* The tokens of a file, and whether each is a byte of it; 0 and false for the Markov source. */
uint64_t data_token_count(const struct data_source *source);
bool data_is_bytes(const struct data_source *source);
/* CRC32C of the tokens of a file as it was when it was opened, of a large one of 1 MiB from all
 * over it; 0 for the Markov source. */
uint32_t data_crc(const struct data_source *source);

/* The kind of file from its first bytes. */
#define DATA_HEADER_BYTES 1024u
struct data_header {
  uint32_t token_bytes; /* 1 or 2 */
  uint64_t token_count;
  uint64_t offset; /* of the first token */
};
/*
 * `bytes` is the smaller of file_bytes and DATA_HEADER_BYTES; any bytes are safe. MR_CORRUPT: the
 * magic is there but the count does not agree with the size; MR_UNSUPPORTED: another version of the
 * format.
 */
MR_CHECK_RESULT mr_status data_parse_header(const char *path, const void *data, uint64_t bytes,
                                            uint64_t file_bytes, struct data_header *header_out);

/* The image of `index` under a seeded permutation of 0..count-1. Pure. */
uint64_t data_permute(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t index);

/* The two kinds of source, for data.c. */
struct data_file;
mr_status data_file_open(const struct data_options *options, struct data_file **file_out);
void data_file_close(struct data_file *file);
mr_status data_file_read(struct data_file *file, uint64_t window, int32_t *tokens,
                         int32_t *targets);
bool data_file_is_bytes(const struct data_file *file);
uint32_t data_file_crc(const struct data_file *file);
uint64_t data_file_token_count(const struct data_file *file);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* One door to both kinds of data. */
#include "train/data.h"

#include <stdlib.h>

#include "train/common.h"
#include "train/markov.h"

/* The stream of the seed that the chain and its rows are drawn from, and the first window of
 * evaluation: more windows than any training reads. */
#define MARKOV_STREAM           0x6d61726b6f76ull
#define FIRST_EVALUATION_WINDOW (1ull << 40)

struct data_source {
  struct data_options options;
  struct data_file *file; /* NULL: the Markov source */
  struct markov markov;
  int32_t *row; /* of the Markov source, seq + 1 tokens */
};

static mr_status open_markov(struct data_source *source) {
  source->row = train_allocate(source->options.seq + 1ull, sizeof *source->row);
  if (source->row == NULL) {
    return MR_NO_MEMORY;
  }
  return markov_init(&source->markov, source->options.vocab,
                     train_random(source->options.seed, MARKOV_STREAM, 0));
}

mr_status data_open(const struct data_options *options, struct data_source **source_out) {
  TRAIN_ASSERT(options->vocab > 0 && options->batch > 0 && options->seq > 0);
  struct data_source *source = train_allocate(1, sizeof *source);
  if (source == NULL) {
    return MR_NO_MEMORY;
  }
  source->options = *options;
  source->options.path = NULL;
  mr_status status =
      options->path != NULL ? data_file_open(options, &source->file) : open_markov(source);
  if (status != MR_OK) {
    data_close(source);
    return status;
  }
  *source_out = source;
  return MR_OK;
}

void data_close(struct data_source *source) {
  if (source == NULL) {
    return;
  }
  data_file_close(source->file);
  markov_fini(&source->markov);
  free(source->row);
  free(source);
}

mr_status data_read(struct data_source *source, uint64_t window, int32_t *tokens,
                    int32_t *targets) {
  if (source->file != NULL) {
    return data_file_read(source->file, window, tokens, targets);
  }
  uint32_t seq = source->options.seq;
  for (uint32_t i = 0; i < source->options.batch; i++) {
    markov_row(&source->markov, window * source->options.batch + i, seq + 1, source->row);
    for (uint32_t t = 0; t < seq; t++) {
      tokens[(uint64_t)i * seq + t] = source->row[t];
      targets[(uint64_t)i * seq + t] = source->row[t + 1];
    }
  }
  return MR_OK;
}

uint64_t data_evaluation_window(const struct data_source *source, uint64_t i) {
  return source->file != NULL ? i : FIRST_EVALUATION_WINDOW + i;
}

double data_loss_floor(const struct data_source *source) {
  return source->file != NULL ? -1.0 : source->markov.entropy_rate;
}

bool data_is_bytes(const struct data_source *source) {
  return source->file != NULL && data_file_is_bytes(source->file);
}

uint32_t data_crc(const struct data_source *source) {
  return source->file != NULL ? data_file_crc(source->file) : 0;
}

uint64_t data_token_count(const struct data_source *source) {
  return source->file != NULL ? data_file_token_count(source->file) : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of tokens from a file of bytes or of llm.c's .bin format. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/common.h"
#include "train/data.h"

/* llm.c, dev/data/data_common.py: 256 little-endian 32-bit words, then 16-bit tokens. */
#define BIN_MAGIC    20240520u
#define BIN_VERSION  1u
#define BYTE_VALUES  256u
#define SHUFFLE_SALT 0x73687566666c65ull
/* A file of no more than so many pieces is summed up whole, of a larger one so many. */
#define SUM_PIECES      256u
#define SUM_PIECE_BYTES 4096u

struct data_file {
  int fd;
  char *path;
  struct data_header header;
  struct data_options options; /* path is the copy above */
  uint64_t window_tokens;      /* batch * seq */
  uint64_t window_count;       /* of an epoch */
  uint32_t crc;                /* data_crc */
  unsigned char *buffer;       /* TRAIN_PIECE_BYTES, or a window with its last target */
};

static uint32_t little_endian(const unsigned char *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

mr_status data_parse_header(const char *path, const void *data, uint64_t bytes, uint64_t file_bytes,
                            struct data_header *header_out) {
  const unsigned char *at = data;
  if (bytes < 4 || little_endian(at) != BIN_MAGIC) {
    *header_out = (struct data_header){.token_bytes = 1, .token_count = file_bytes};
    return MR_OK;
  }
  if (bytes < DATA_HEADER_BYTES) {
    mr_log(MR_LOG_ERROR, "%s has the magic of llm.c's format, but ends at byte %llu of its header",
           path, (unsigned long long)bytes);
    return MR_CORRUPT;
  }
  if (little_endian(at + 4) != BIN_VERSION) {
    mr_log(MR_LOG_ERROR, "%s is version %u of llm.c's format; this reads version %u", path,
           little_endian(at + 4), BIN_VERSION);
    return MR_UNSUPPORTED;
  }
  uint64_t count = little_endian(at + 8);
  if (file_bytes != DATA_HEADER_BYTES + 2 * count) {
    mr_log(MR_LOG_ERROR, "%s has %llu bytes; the %llu tokens of its header need %llu", path,
           (unsigned long long)file_bytes, (unsigned long long)count,
           (unsigned long long)(DATA_HEADER_BYTES + 2 * count));
    return MR_CORRUPT;
  }
  *header_out =
      (struct data_header){.token_bytes = 2, .token_count = count, .offset = DATA_HEADER_BYTES};
  return MR_OK;
}

static uint64_t token_limit(const struct data_file *file) {
  return file->header.token_bytes == 1 ? BYTE_VALUES : BYTE_VALUES * BYTE_VALUES;
}

static int32_t token_at(const struct data_file *file, uint64_t index) {
  const unsigned char *at = file->buffer;
  return file->header.token_bytes == 1 ? at[index] : at[2 * index] | at[2 * index + 1] << 8;
}

/* Reads tokens [first, first + count) into the buffer and checks that the vocabulary has them. */
static mr_status load_tokens(struct data_file *file, uint64_t first, uint64_t count) {
  uint64_t bytes = file->header.token_bytes;
  mr_status status = train_read_at(file->fd, file->path, file->header.offset + first * bytes,
                                   file->buffer, count * bytes);
  if (status != MR_OK || file->options.vocab >= token_limit(file)) {
    return status;
  }
  for (uint64_t i = 0; i < count; i++) {
    uint32_t token = (uint32_t)token_at(file, i);
    if (token >= file->options.vocab) {
      mr_log(MR_LOG_ERROR, "%s: token %llu is %u, beyond the vocabulary of %u words; use --vocab",
             file->path, (unsigned long long)(first + i), token, file->options.vocab);
      return MR_INVALID;
    }
  }
  return MR_OK;
}

/* Looks at every token that the job will read, so that none of them can end it half way. */
static mr_status check_tokens(struct data_file *file) {
  if (file->options.vocab >= token_limit(file)) {
    return MR_OK;
  }
  uint64_t windows = train_min_u64(file->options.windows, file->window_count);
  if (file->options.shuffle) {
    windows = file->window_count;
  }
  uint64_t tokens = windows * file->window_tokens + 1;
  uint64_t piece = TRAIN_PIECE_BYTES / file->header.token_bytes;
  mr_status status = MR_OK;
  for (uint64_t at = 0; status == MR_OK && at < tokens; at += piece) {
    status = load_tokens(file, at, train_min_u64(piece, tokens - at));
  }
  return status;
}

static bool is_named_bin(const char *path) {
  size_t length = strlen(path);
  return length >= 4 && strcmp(path + length - 4, ".bin") == 0;
}

static mr_status read_header(struct data_file *file) {
  struct stat about;
  if (fstat(file->fd, &about) != 0 || !S_ISREG(about.st_mode)) {
    mr_log(MR_LOG_ERROR, "%s is not a file", file->path);
    return MR_INVALID;
  }
  uint64_t file_bytes = (uint64_t)about.st_size;
  unsigned char head[DATA_HEADER_BYTES];
  uint64_t bytes = train_min_u64(file_bytes, sizeof head);
  mr_status status = train_read_at(file->fd, file->path, 0, head, bytes);
  if (status == MR_OK) {
    status = data_parse_header(file->path, head, bytes, file_bytes, &file->header);
  }
  if (status == MR_OK && file->header.token_bytes == 1 && is_named_bin(file->path)) {
    mr_log(MR_LOG_ERROR,
           "%s does not begin with %u, as files of GPT-2 tokens by llm.c (.bin) do; under another "
           "name it is read as bytes",
           file->path, BIN_MAGIC);
    status = MR_INVALID;
  }
  return status;
}

/* Sums up pieces all over the tokens: enough to tell files apart, in no time that counts. */
static mr_status sum_up(struct data_file *file) {
  uint64_t bytes = file->header.token_count * file->header.token_bytes;
  uint64_t piece = SUM_PIECE_BYTES;
  uint64_t pieces = SUM_PIECES;
  if (bytes <= piece * pieces) {
    piece = bytes;
    pieces = 1;
  }
  mr_status status = MR_OK;
  for (uint64_t i = 0; status == MR_OK && i < pieces; i++) {
    uint64_t at = i == 0 ? 0 : (bytes - piece) / (pieces - 1) * i;
    status = train_read_at(file->fd, file->path, file->header.offset + at, file->buffer, piece);
    file->crc = status == MR_OK ? train_crc32c(file->crc, file->buffer, piece) : 0;
  }
  return status;
}

static mr_status prepare(struct data_file *file) {
  mr_status status = read_header(file);
  if (status != MR_OK) {
    return status;
  }
  if (file->header.token_bytes == 1 && file->options.vocab < BYTE_VALUES) {
    mr_log(MR_LOG_ERROR, "%s is read as bytes, which need --vocab %u or more, not %u", file->path,
           BYTE_VALUES, file->options.vocab);
    return MR_INVALID;
  }
  uint64_t count = file->header.token_count;
  file->window_count = count == 0 ? 0 : (count - 1) / file->window_tokens;
  if (file->window_count == 0) {
    mr_log(MR_LOG_ERROR,
           "%s has %llu tokens; one step reads %llu (batch x seq + 1): use a smaller --batch or "
           "--seq",
           file->path, (unsigned long long)count, (unsigned long long)(file->window_tokens + 1));
    return MR_INVALID;
  }
  uint64_t window_bytes = (file->window_tokens + 1) * file->header.token_bytes;
  bool large = window_bytes > TRAIN_PIECE_BYTES;
  file->buffer = train_allocate(large ? window_bytes : TRAIN_PIECE_BYTES, 1);
  status = file->buffer == NULL ? MR_NO_MEMORY : check_tokens(file);
  return status == MR_OK ? sum_up(file) : status;
}

mr_status data_file_open(const struct data_options *options, struct data_file **file_out) {
  struct data_file *file = train_allocate(1, sizeof *file);
  if (file == NULL) {
    return MR_NO_MEMORY;
  }
  file->fd = -1;
  file->options = *options;
  file->window_tokens = (uint64_t)options->batch * options->seq;
  mr_status status = train_string_copy(options->path, &file->path);
  if (status == MR_OK) {
    file->options.path = file->path;
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC);
    if (file->fd < 0) {
      mr_log(MR_LOG_ERROR, "cannot open %s: %s", file->path, strerror(errno));
      status = MR_IO;
    }
  }
  if (status == MR_OK) {
    status = prepare(file);
  }
  if (status != MR_OK) {
    data_file_close(file);
    return status;
  }
  *file_out = file;
  return MR_OK;
}

void data_file_close(struct data_file *file) {
  if (file == NULL) {
    return;
  }
  if (file->fd >= 0) {
    close(file->fd);
  }
  free(file->buffer);
  free(file->path);
  free(file);
}

mr_status data_file_read(struct data_file *file, uint64_t window, int32_t *tokens,
                         int32_t *targets) {
  uint64_t epoch = window / file->window_count;
  uint64_t place = window % file->window_count;
  if (file->options.shuffle) {
    place = data_permute(file->options.seed, epoch, file->window_count, place);
  }
  mr_status status = load_tokens(file, place * file->window_tokens, file->window_tokens + 1);
  for (uint64_t i = 0; status == MR_OK && i < file->window_tokens; i++) {
    tokens[i] = token_at(file, i);
    targets[i] = token_at(file, i + 1);
  }
  return status;
}

bool data_file_is_bytes(const struct data_file *file) {
  return file->header.token_bytes == 1;
}

uint32_t data_file_crc(const struct data_file *file) {
  return file->crc;
}

uint64_t data_file_token_count(const struct data_file *file) {
  return file->header.token_count;
}

/*
 * A Feistel network of four rounds over the smallest even number of bits that covers `count`,
 * walked until it lands inside (Black and Rogaway 2002): a permutation without a table.
 */
uint64_t data_permute(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t index) {
  TRAIN_ASSERT(index < count);
  uint32_t half_bits = 1;
  while (half_bits < 32 && (1ull << (2 * half_bits)) < count) {
    half_bits++;
  }
  uint64_t mask = (1ull << half_bits) - 1;
  uint64_t key = train_random(seed, SHUFFLE_SALT, epoch);
  do {
    uint64_t left = index >> half_bits;
    uint64_t right = index & mask;
    for (uint32_t round = 0; round < 4; round++) {
      uint64_t mixed = left ^ (train_random(key, round, right) & mask);
      left = right;
      right = mixed;
    }
    index = left << half_bits | right;
  } while (index >= count);
  return index;
}

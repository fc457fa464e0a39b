/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of train/ share: allocation that reports, an assert that stays on in release,
 * random numbers by counter (so that any element of any tensor and any token of any window can be
 * drawn without the ones before it), paths and CRC32C.
 */
#ifndef MEMRUN_TRAIN_COMMON_H
#define MEMRUN_TRAIN_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <memrun/memrun.h>

/* What is read, written, checked or drawn at once: host memory that the trainer needs beside the
 * budgets stays this small. */
#define TRAIN_PIECE_BYTES (4ull << 20)
#define TRAIN_PATH_BYTES  4096u
#define TRAIN_NAME_BYTES  192u

_Noreturn void train_assert_failed(const char *condition, const char *file, int line);
#define TRAIN_ASSERT(condition)                                                                    \
  ((condition) ? (void)0 : train_assert_failed(#condition, __FILE__, __LINE__))

/* calloc that logs what was asked for; NULL only on failure. */
void *train_allocate(uint64_t count, size_t bytes);

/* A copy of `text` (NULL stays NULL) in *copy_out. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status train_string_copy(const char *text, char **copy_out);

static inline uint64_t train_min_u64(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

/* 64 random bits for (seed, stream, index): a counter-based generator, two rounds of SplitMix64's
 * finalizer (Steele, Lea and Flood 2014) over the three words. */
uint64_t train_random(uint64_t seed, uint64_t stream, uint64_t index);

/* The same as a number in [0, 1). */
double train_random_unit(uint64_t seed, uint64_t stream, uint64_t index);

/* out[i] = the normal number of index first + i with deviation `scale`; `first` is even. */
void train_random_normal(uint64_t seed, uint64_t stream, uint64_t first, uint64_t count,
                         double scale, float *out);

/* CRC32C of bytes so far; starts at 0. */
uint32_t train_crc32c(uint32_t crc, const void *data, uint64_t bytes);

/* "<directory>/<name>" into path[TRAIN_PATH_BYTES]. MR_INVALID where it is too long. */
MR_CHECK_RESULT mr_status train_path(char *path, const char *directory, const char *name);

/* The status for the errno of a failed write: MR_NO_SPACE for a full disk or quota, else MR_IO. */
mr_status train_write_status(int error);

/* What is written has another name until it is whole: TRAIN_UNFINISHED and the process. */
#define TRAIN_UNFINISHED ".tmp-"
/* Whether `rest`, the end of a name, is such, of a process that ended meanwhile or of this one. */
bool train_is_left_behind(const char *rest);

/* read/write of all `bytes` at `offset`. They log the path, the offset and the cause; a file that
 * ends early gives MR_CORRUPT. */
MR_CHECK_RESULT mr_status train_read_at(int fd, const char *path, uint64_t offset, void *data,
                                        uint64_t bytes);
MR_CHECK_RESULT mr_status train_write_at(int fd, const char *path, uint64_t offset,
                                         const void *data, uint64_t bytes);

#endif

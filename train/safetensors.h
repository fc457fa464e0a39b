/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files in the safetensors format (huggingface.co/docs/safetensors): 8 bytes with the length of a
 * JSON header, the header, then the tensors' bytes without gaps. Headers are checked whole before
 * any of it is believed: lengths, dtypes, shapes, offsets that lie inside, touch and never overlap.
 */
#ifndef MEMRUN_TRAIN_SAFETENSORS_H
#define MEMRUN_TRAIN_SAFETENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include <memrun/memrun.h>

#define SAFETENSORS_MOST_RANK    8u
#define SAFETENSORS_LENGTH_BYTES 8u
/* A header entry takes about 150 bytes: this is room for 100,000 tensors. */
#define SAFETENSORS_MOST_HEADER_BYTES (16ull << 20)

enum safetensors_dtype {
  SAFETENSORS_F32,
  SAFETENSORS_F16,
  SAFETENSORS_BF16,
  SAFETENSORS_OTHER, /* known, but not of use here */
};

struct safetensors_entry {
  char *name;
  enum safetensors_dtype dtype;
  uint32_t rank;
  uint64_t shape[SAFETENSORS_MOST_RANK];
  uint64_t count;      /* elements */
  uint64_t begin, end; /* bytes of the file */
};

struct safetensors {
  struct safetensors_entry *entries; /* by their place in the file */
  uint32_t entry_count;
};

/*
 * Reads the header in the `bytes` first bytes of a file of `file_bytes` bytes; `bytes` covers the
 * whole header. Any bytes are safe. `path` names the file in messages. MR_CORRUPT with the first
 * fault, MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status safetensors_parse_header(const char *path, const void *data,
                                                   uint64_t bytes, uint64_t file_bytes,
                                                   struct safetensors *header_out);
void safetensors_fini(struct safetensors *header);

/* The entry of that name; NULL where there is none. */
const struct safetensors_entry *safetensors_find(const struct safetensors *header,
                                                 const char *name);

/* A file open for reading. */
struct safetensors_file {
  int fd;
  char *path;
  struct safetensors header;
};

/* MR_IO, MR_CORRUPT, MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status safetensors_open(const char *path, struct safetensors_file *file_out);
void safetensors_close(struct safetensors_file *file);

/* out[0..count) = the entry's elements from `first` on, as floats. The dtype is not
 * SAFETENSORS_OTHER. `count` is at most SAFETENSORS_MOST_COUNT. */
#define SAFETENSORS_MOST_COUNT (1ull << 20)
MR_CHECK_RESULT mr_status safetensors_read(const struct safetensors_file *file,
                                           const struct safetensors_entry *entry, uint64_t first,
                                           uint64_t count, float *out);

/* A file being written: tensors of floats one after another, in the order of the header. */
struct safetensors_writer {
  int fd;
  const char *path; /* borrowed */
  uint64_t offset;
  uint64_t end; /* where the header says that the file ends */
  uint32_t crc; /* CRC32C of all bytes so far */
};

struct safetensors_tensor {
  const char *name;
  uint32_t rank;
  uint64_t shape[SAFETENSORS_MOST_RANK];
};

/* Creates `path` (which must not exist) and writes the header. MR_IO, MR_NO_SPACE, MR_NO_MEMORY;
 * nothing stays open then. */
MR_CHECK_RESULT mr_status safetensors_create(const char *path,
                                             const struct safetensors_tensor *tensors,
                                             uint32_t tensor_count,
                                             struct safetensors_writer *writer_out);
MR_CHECK_RESULT mr_status safetensors_append(struct safetensors_writer *writer, const float *data,
                                             uint64_t count);

/* Syncs and closes a file whose tensors are all written; closes it in any case. */
MR_CHECK_RESULT mr_status safetensors_finish(struct safetensors_writer *writer);
/* Closes a file that will not be finished. */
void safetensors_abandon(struct safetensors_writer *writer);

#endif

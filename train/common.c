/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation, counter-based random numbers, paths, whole reads and writes. */
#include "train/common.h"

#include <errno.h>
#include <isa-l/crc.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CRC_MOST_BYTES (1ull << 30) /* ISA-L takes an int */

void train_assert_failed(const char *condition, const char *file, int line) {
  mr_log(MR_LOG_ERROR, "%s:%d: broken promise: %s", file, line, condition);
  abort();
}

void *train_allocate(uint64_t count, size_t bytes) {
  void *data = calloc(count == 0 ? 1 : count, bytes);
  if (data == NULL) {
    mr_log(MR_LOG_ERROR, "out of host memory: asked for %llu times %zu bytes",
           (unsigned long long)count, bytes);
  }
  return data;
}

mr_status train_string_copy(const char *text, char **copy_out) {
  if (text == NULL) {
    *copy_out = NULL;
    return MR_OK;
  }
  size_t bytes = strlen(text) + 1;
  char *copy = train_allocate(bytes, 1);
  if (copy == NULL) {
    return MR_NO_MEMORY;
  }
  memcpy(copy, text, bytes);
  *copy_out = copy;
  return MR_OK;
}

static uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

uint64_t train_random(uint64_t seed, uint64_t stream, uint64_t index) {
  uint64_t key = mix(seed + 0x9e3779b97f4a7c15ull * (stream + 1));
  return mix(mix(key + 0x9e3779b97f4a7c15ull * (index + 1)) ^ key);
}

double train_random_unit(uint64_t seed, uint64_t stream, uint64_t index) {
  return (double)(train_random(seed, stream, index) >> 11) * 0x1.0p-53;
}

/* Box and Muller 1958: two uniform numbers from the halves of one draw give two normal ones. */
void train_random_normal(uint64_t seed, uint64_t stream, uint64_t first, uint64_t count,
                         double scale, float *out) {
  TRAIN_ASSERT(first % 2 == 0);
  for (uint64_t i = 0; i < count; i += 2) {
    uint64_t bits = train_random(seed, stream, (first + i) / 2);
    double radius = scale * sqrt(-2.0 * log(((double)(bits >> 32) + 0.5) * 0x1.0p-32));
    double angle = 6.283185307179586 * (double)(bits & 0xffffffffu) * 0x1.0p-32;
    out[i] = (float)(radius * cos(angle));
    if (i + 1 < count) {
      out[i + 1] = (float)(radius * sin(angle));
    }
  }
}

uint32_t train_crc32c(uint32_t crc, const void *data, uint64_t bytes) {
  union {
    const void *read_only;
    unsigned char *bytes; /* ISA-L's prototype lacks the const */
  } at = {data};
  crc = ~crc;
  while (bytes > 0) {
    uint64_t piece = train_min_u64(bytes, CRC_MOST_BYTES);
    crc = crc32_iscsi(at.bytes, (int)piece, crc);
    at.bytes += piece;
    bytes -= piece;
  }
  return ~crc;
}

mr_status train_path(char *path, const char *directory, const char *name) {
  int length = snprintf(path, TRAIN_PATH_BYTES, "%s/%s", directory, name);
  if (length < 0 || (unsigned)length >= TRAIN_PATH_BYTES) {
    mr_log(MR_LOG_ERROR, "the path of %s is longer than %u bytes", name, TRAIN_PATH_BYTES - 1);
    return MR_INVALID;
  }
  return MR_OK;
}

bool train_is_left_behind(const char *rest) {
  if (strncmp(rest, TRAIN_UNFINISHED, sizeof TRAIN_UNFINISHED - 1) != 0) {
    return false;
  }
  pid_t owner = (pid_t)strtol(rest + sizeof TRAIN_UNFINISHED - 1, NULL, 10);
  return owner == getpid() || (owner > 0 && kill(owner, 0) != 0 && errno == ESRCH);
}

mr_status train_write_status(int error) {
  return error == ENOSPC || error == EDQUOT ? MR_NO_SPACE : MR_IO;
}

mr_status train_read_at(int fd, const char *path, uint64_t offset, void *data, uint64_t bytes) {
  char *at = data;
  while (bytes > 0) {
    ssize_t got = pread(fd, at, bytes, (off_t)offset);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      mr_log(MR_LOG_ERROR, "cannot read %s at %llu: %s", path, (unsigned long long)offset,
             strerror(errno));
      return MR_IO;
    }
    if (got == 0) {
      mr_log(MR_LOG_ERROR, "%s ends at byte %llu, %llu bytes too early", path,
             (unsigned long long)offset, (unsigned long long)bytes);
      return MR_CORRUPT;
    }
    at += got;
    offset += (uint64_t)got;
    bytes -= (uint64_t)got;
  }
  return MR_OK;
}

mr_status train_write_at(int fd, const char *path, uint64_t offset, const void *data,
                         uint64_t bytes) {
  const char *at = data;
  while (bytes > 0) {
    ssize_t put = pwrite(fd, at, bytes, (off_t)offset);
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put <= 0) {
      int error = put == 0 ? EIO : errno;
      mr_log(MR_LOG_ERROR, "cannot write %s at %llu: %s", path, (unsigned long long)offset,
             strerror(error));
      return train_write_status(error);
    }
    at += put;
    offset += (uint64_t)put;
    bytes -= (uint64_t)put;
  }
  return MR_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing safetensors files in pieces. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/common.h"
#include "train/json.h"
#include "train/safetensors.h"

static mr_status read_header(int fd, const char *path, struct safetensors *header_out) {
  struct stat about;
  if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
    mr_log(MR_LOG_ERROR, "%s is not a file", path);
    return MR_INVALID;
  }
  uint64_t file_bytes = (uint64_t)about.st_size;
  unsigned char length[SAFETENSORS_LENGTH_BYTES];
  mr_status status = train_read_at(fd, path, 0, length, sizeof length);
  if (status != MR_OK) {
    return status;
  }
  uint64_t header_bytes = 0;
  for (uint32_t i = 0; i < sizeof length; i++) {
    header_bytes |= (uint64_t)length[i] << (8 * i);
  }
  header_bytes = train_min_u64(header_bytes, SAFETENSORS_MOST_HEADER_BYTES);
  uint64_t bytes = train_min_u64(header_bytes + sizeof length, file_bytes);
  void *data = train_allocate(bytes, 1);
  if (data == NULL) {
    return MR_NO_MEMORY;
  }
  status = train_read_at(fd, path, 0, data, bytes);
  if (status == MR_OK) {
    status = safetensors_parse_header(path, data, bytes, file_bytes, header_out);
  }
  free(data);
  return status;
}

mr_status safetensors_open(const char *path, struct safetensors_file *file_out) {
  struct safetensors_file file = {.fd = open(path, O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) {
    mr_log(MR_LOG_ERROR, "cannot open %s: %s", path, strerror(errno));
    return MR_IO;
  }
  mr_status status = train_string_copy(path, &file.path);
  if (status == MR_OK) {
    status = read_header(file.fd, path, &file.header);
  }
  if (status != MR_OK) {
    close(file.fd);
    free(file.path);
    return status;
  }
  *file_out = file;
  return MR_OK;
}

void safetensors_close(struct safetensors_file *file) {
  safetensors_fini(&file->header);
  close(file->fd);
  free(file->path);
  file->path = NULL;
  file->fd = -1;
}

static float from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* IEEE 754 binary16. */
static float from_half(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
  uint32_t exponent = (half >> 10) & 0x1fu;
  uint32_t fraction = half & 0x3ffu;
  if (exponent == 0x1f) {
    return from_bits(sign | 0x7f800000u | fraction << 13);
  }
  if (exponent == 0) { /* zero or subnormal: the fraction counts in 2^-24 */
    float value = (float)fraction * 0x1.0p-24f;
    return sign != 0 ? -value : value;
  }
  return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

mr_status safetensors_read(const struct safetensors_file *file,
                           const struct safetensors_entry *entry, uint64_t first, uint64_t count,
                           float *out) {
  TRAIN_ASSERT(entry->dtype != SAFETENSORS_OTHER && count <= SAFETENSORS_MOST_COUNT);
  TRAIN_ASSERT(first <= entry->count && count <= entry->count - first);
  uint64_t element = entry->dtype == SAFETENSORS_F32 ? sizeof(float) : sizeof(uint16_t);
  /* Halves are read into the upper half of the output and widened from its front, so each is read
   * before its place is written. */
  char *target = (char *)out + count * (sizeof(float) - element);
  mr_status status =
      train_read_at(file->fd, file->path, entry->begin + first * element, target, count * element);
  if (status != MR_OK || entry->dtype == SAFETENSORS_F32) {
    return status;
  }
  for (uint64_t i = 0; i < count; i++) {
    uint16_t half;
    memcpy(&half, target + i * sizeof half, sizeof half);
    out[i] = entry->dtype == SAFETENSORS_F16 ? from_half(half) : from_bits((uint32_t)half << 16);
  }
  return MR_OK;
}

static json_t *tensor_json(const struct safetensors_tensor *tensor, uint64_t *offset) {
  uint64_t bytes = sizeof(float);
  json_t *shape = json_array();
  bool made = shape != NULL;
  for (uint32_t i = 0; i < tensor->rank; i++) {
    bytes *= tensor->shape[i];
    made = made && json_array_append_new(shape, json_integer((json_int_t)tensor->shape[i])) == 0;
  }
  json_t *entry = json_pack("{s:s, s:o, s:[I,I]}", "dtype", "F32", "shape", shape, "data_offsets",
                            (json_int_t)*offset, (json_int_t)(*offset + bytes));
  *offset += bytes;
  if (!made) {
    json_decref(entry);
    return NULL;
  }
  return entry;
}

/* The header as JSON; NULL where memory ran out. */
static char *header_json(const struct safetensors_tensor *tensors, uint32_t tensor_count,
                         uint64_t *data_bytes_out) {
  uint64_t offset = 0;
  json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
  bool made = root != NULL;
  for (uint32_t i = 0; made && i < tensor_count; i++) {
    made = json_object_set_new(root, tensors[i].name, tensor_json(&tensors[i], &offset)) == 0;
  }
  *data_bytes_out = offset;
  if (!made) {
    json_decref(root);
    return NULL;
  }
  return json_write(root, JSON_COMPACT);
}

static mr_status append_bytes(struct safetensors_writer *writer, const void *data, uint64_t bytes) {
  mr_status status = train_write_at(writer->fd, writer->path, writer->offset, data, bytes);
  if (status == MR_OK) {
    writer->crc = train_crc32c(writer->crc, data, bytes);
    writer->offset += bytes;
  }
  return status;
}

static mr_status write_header(struct safetensors_writer *writer, const char *json,
                              uint64_t data_bytes) {
  uint64_t json_bytes = strlen(json);
  uint64_t length = (json_bytes + 7) / 8 * 8; /* the tensors begin at a multiple of 8 */
  unsigned char length_bytes[SAFETENSORS_LENGTH_BYTES];
  for (uint32_t i = 0; i < sizeof length_bytes; i++) {
    length_bytes[i] = (unsigned char)(length >> (8 * i));
  }
  mr_status status = append_bytes(writer, length_bytes, sizeof length_bytes);
  if (status == MR_OK) {
    status = append_bytes(writer, json, json_bytes);
  }
  if (status == MR_OK) {
    status = append_bytes(writer, "        ", length - json_bytes);
  }
  writer->end = writer->offset + data_bytes;
  return status;
}

mr_status safetensors_create(const char *path, const struct safetensors_tensor *tensors,
                             uint32_t tensor_count, struct safetensors_writer *writer_out) {
  uint64_t data_bytes = 0;
  char *json = header_json(tensors, tensor_count, &data_bytes);
  if (json == NULL) {
    mr_log(MR_LOG_ERROR, "out of host memory: the header of %s", path);
    return MR_NO_MEMORY;
  }
  struct safetensors_writer writer = {.path = path};
  writer.fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (writer.fd < 0) {
    int error = errno;
    mr_log(MR_LOG_ERROR, "cannot create %s: %s", path, strerror(error));
    free(json);
    return train_write_status(error);
  }
  mr_status status = write_header(&writer, json, data_bytes);
  free(json);
  if (status != MR_OK) {
    close(writer.fd);
    return status;
  }
  *writer_out = writer;
  return MR_OK;
}

mr_status safetensors_append(struct safetensors_writer *writer, const float *data, uint64_t count) {
  TRAIN_ASSERT(count * sizeof *data <= writer->end - writer->offset);
  return append_bytes(writer, data, count * sizeof *data);
}

mr_status safetensors_finish(struct safetensors_writer *writer) {
  TRAIN_ASSERT(writer->offset == writer->end);
  int error = fsync(writer->fd) != 0 ? errno : 0;
  if (close(writer->fd) != 0 && error == 0) {
    error = errno;
  }
  writer->fd = -1;
  if (error != 0) {
    mr_log(MR_LOG_ERROR, "cannot sync %s: %s", writer->path, strerror(error));
    return train_write_status(error);
  }
  return MR_OK;
}

void safetensors_abandon(struct safetensors_writer *writer) {
  if (writer->fd >= 0) {
    close(writer->fd);
    writer->fd = -1;
  }
}

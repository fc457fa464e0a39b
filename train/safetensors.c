/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of safetensors files, from any bytes. */
#include "train/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "train/common.h"
#include "train/json.h"

static const struct dtype {
  const char *name;
  enum safetensors_dtype dtype;
  uint32_t bytes;
} dtypes[] = {
    {"F32", SAFETENSORS_F32, 4},       {"F16", SAFETENSORS_F16, 2},
    {"BF16", SAFETENSORS_BF16, 2},     {"F64", SAFETENSORS_OTHER, 8},
    {"I64", SAFETENSORS_OTHER, 8},     {"I32", SAFETENSORS_OTHER, 4},
    {"I16", SAFETENSORS_OTHER, 2},     {"I8", SAFETENSORS_OTHER, 1},
    {"U64", SAFETENSORS_OTHER, 8},     {"U32", SAFETENSORS_OTHER, 4},
    {"U16", SAFETENSORS_OTHER, 2},     {"U8", SAFETENSORS_OTHER, 1},
    {"BOOL", SAFETENSORS_OTHER, 1},    {"F8_E4M3", SAFETENSORS_OTHER, 1},
    {"F8_E5M2", SAFETENSORS_OTHER, 1},
};

static const struct dtype *find_dtype(const json_t *value) {
  const char *name = json_string_value(value);
  for (size_t i = 0; name != NULL && i < sizeof dtypes / sizeof dtypes[0]; i++) {
    if (strcmp(dtypes[i].name, name) == 0) {
      return &dtypes[i];
    }
  }
  return NULL;
}

static mr_status corrupt(const char *path, const char *name, const char *fault) {
  mr_log(MR_LOG_ERROR, "%s is not a whole safetensors file: %.100s%s%s", path, name,
         name[0] == '\0' ? "" : ": ", fault);
  return MR_CORRUPT;
}

/* A number that is no less than 0. */
static bool whole_number(const json_t *value, uint64_t *number_out) {
  if (!json_is_integer(value) || json_integer_value(value) < 0) {
    return false;
  }
  *number_out = (uint64_t)json_integer_value(value);
  return true;
}

static bool parse_shape(const json_t *shape, struct safetensors_entry *entry) {
  if (!json_is_array(shape) || json_array_size(shape) > SAFETENSORS_MOST_RANK) {
    return false;
  }
  entry->rank = (uint32_t)json_array_size(shape);
  entry->count = 1;
  for (uint32_t i = 0; i < entry->rank; i++) {
    if (!whole_number(json_array_get(shape, i), &entry->shape[i]) ||
        __builtin_mul_overflow(entry->count, entry->shape[i], &entry->count)) {
      return false;
    }
  }
  return true;
}

/* `data_begin` and `data_end` are the bytes of the file that hold tensors. */
static const char *parse_entry(const json_t *value, uint64_t data_begin, uint64_t data_end,
                               struct safetensors_entry *entry) {
  const struct dtype *dtype = find_dtype(json_object_get(value, "dtype"));
  if (dtype == NULL) {
    return "no known dtype";
  }
  entry->dtype = dtype->dtype;
  if (!parse_shape(json_object_get(value, "shape"), entry)) {
    return "no sensible shape";
  }
  const json_t *offsets = json_object_get(value, "data_offsets");
  if (json_array_size(offsets) != 2 || !whole_number(json_array_get(offsets, 0), &entry->begin) ||
      !whole_number(json_array_get(offsets, 1), &entry->end)) {
    return "no sensible data_offsets";
  }
  if (entry->begin > entry->end || entry->end > data_end - data_begin) {
    return "its bytes lie outside the file";
  }
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(entry->count, (uint64_t)dtype->bytes, &bytes) ||
      bytes != entry->end - entry->begin) {
    return "its shape and its bytes do not agree";
  }
  entry->begin += data_begin;
  entry->end += data_begin;
  return NULL;
}

static int by_place(const void *a, const void *b) {
  const struct safetensors_entry *left = a;
  const struct safetensors_entry *right = b;
  if (left->begin != right->begin) {
    return left->begin < right->begin ? -1 : 1;
  }
  if (left->end != right->end) {
    return left->end < right->end ? -1 : 1;
  }
  return strcmp(left->name, right->name);
}

/* Tensors fill the file from the header's end to the file's, each byte once. */
static mr_status check_places(const char *path, struct safetensors *header, uint64_t data_begin,
                              uint64_t data_end) {
  qsort(header->entries, header->entry_count, sizeof *header->entries, by_place);
  uint64_t at = data_begin;
  for (uint32_t i = 0; i < header->entry_count; i++) {
    const struct safetensors_entry *entry = &header->entries[i];
    if (entry->begin != at) {
      return corrupt(path, entry->name, "its bytes leave a gap or overlap another tensor's");
    }
    at = entry->end;
  }
  if (at != data_end) {
    mr_log(MR_LOG_ERROR,
           "%s is not a whole safetensors file: it has %llu bytes, its header says "
           "%llu",
           path, (unsigned long long)data_end, (unsigned long long)at);
    return MR_CORRUPT;
  }
  return MR_OK;
}

static mr_status parse_entries(const char *path, json_t *root, uint64_t data_begin,
                               uint64_t data_end, struct safetensors *header) {
  const char *name = NULL;
  json_t *value = NULL;
  json_object_foreach(root, name, value) {
    if (strcmp(name, "__metadata__") == 0) {
      continue;
    }
    struct safetensors_entry entry = {.name = NULL};
    const char *fault = parse_entry(value, data_begin, data_end, &entry);
    if (fault != NULL) {
      return corrupt(path, name, fault);
    }
    mr_status status = train_string_copy(name, &entry.name);
    if (status != MR_OK) {
      return status;
    }
    header->entries[header->entry_count++] = entry;
  }
  return check_places(path, header, data_begin, data_end);
}

mr_status safetensors_parse_header(const char *path, const void *data, uint64_t bytes,
                                   uint64_t file_bytes, struct safetensors *header_out) {
  const unsigned char *at = data;
  if (bytes < SAFETENSORS_LENGTH_BYTES || file_bytes < bytes) {
    return corrupt(path, "", "it is too short for a header");
  }
  uint64_t length = 0;
  for (uint32_t i = 0; i < SAFETENSORS_LENGTH_BYTES; i++) {
    length |= (uint64_t)at[i] << (8 * i);
  }
  if (length > SAFETENSORS_MOST_HEADER_BYTES || length > bytes - SAFETENSORS_LENGTH_BYTES) {
    return corrupt(path, "", "the length of its header makes no sense");
  }
  json_t *root = NULL;
  mr_status status = json_read(path, at + SAFETENSORS_LENGTH_BYTES, length, &root);
  if (status == MR_NO_MEMORY) {
    return status;
  }
  if (status != MR_OK) {
    return corrupt(path, "", "its header is not a JSON object");
  }
  struct safetensors header = {.entry_count = 0};
  header.entries = train_allocate(json_object_size(root), sizeof *header.entries);
  status = header.entries == NULL
               ? MR_NO_MEMORY
               : parse_entries(path, root, SAFETENSORS_LENGTH_BYTES + length, file_bytes, &header);
  json_decref(root);
  if (status != MR_OK) {
    safetensors_fini(&header);
    return status;
  }
  *header_out = header;
  return MR_OK;
}

void safetensors_fini(struct safetensors *header) {
  for (uint32_t i = 0; i < header->entry_count; i++) {
    free(header->entries[i].name);
  }
  free(header->entries);
  header->entries = NULL;
  header->entry_count = 0;
}

const struct safetensors_entry *safetensors_find(const struct safetensors *header,
                                                 const char *name) {
  for (uint32_t i = 0; i < header->entry_count; i++) {
    if (strcmp(header->entries[i].name, name) == 0) {
      return &header->entries[i];
    }
  }
  return NULL;
}

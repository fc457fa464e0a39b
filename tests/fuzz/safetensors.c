/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of safetensors files. */
#include "train/safetensors.h"

#include <string.h>

#include "fuzz/fuzz.h"

#define TENSOR(name, dtype, shape, from, to)                                                       \
  "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]" \
  "}"

/* Each is the JSON of a header; the length goes before it and the data behind it. */
static const char *const headers[] = {
    "{}",
    "{" TENSOR("a", "F32", "[2,3]", 0, 24) "}",
    "{\"__metadata__\":{\"format\":\"pt\"}," TENSOR("a", "F32", "[2]", 0, 8) "," TENSOR(
        "b", "BF16", "[1,2]", 8, 12) "," TENSOR("c", "F16", "[]", 12,
                                                14) "," TENSOR("d", "I64", "[0]", 14, 14) "}",
    "{" TENSOR("transformer.wte.weight", "F32", "[4,2]", 8,
               40) "," TENSOR("transformer.wpe.weight", "F32", "[2,1]", 0, 8) "}      ",
};
static const size_t data_bytes[] = {0, 24, 14, 40};

_Bool fuzz_seed_at(uint32_t index, struct fuzz_seed *seed_out) {
  static uint8_t files[4][1024];
  if (index >= sizeof headers / sizeof headers[0]) {
    return 0;
  }
  size_t length = strlen(headers[index]);
  memset(files[index], 0, sizeof files[index]);
  files[index][0] = (uint8_t)length;
  files[index][1] = (uint8_t)(length >> 8);
  memcpy(files[index] + SAFETENSORS_LENGTH_BYTES, headers[index], length);
  *seed_out =
      (struct fuzz_seed){files[index], SAFETENSORS_LENGTH_BYTES + length + data_bytes[index]};
  return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct safetensors header;
  if (safetensors_parse_header("input", data, bytes, bytes, &header) != MR_OK) {
    return 0;
  }
  uint64_t at = header.entry_count == 0 ? bytes : header.entries[0].begin;
  for (uint32_t i = 0; i < header.entry_count; i++) {
    const struct safetensors_entry *entry = &header.entries[i];
    FUZZ_REQUIRE(entry->begin == at && entry->end >= at && entry->end <= bytes);
    FUZZ_REQUIRE(entry->rank <= SAFETENSORS_MOST_RANK);
    FUZZ_REQUIRE(entry->dtype != SAFETENSORS_F32 || entry->count * 4 == entry->end - entry->begin);
    FUZZ_REQUIRE(safetensors_find(&header, entry->name) != NULL);
    at = entry->end;
  }
  FUZZ_REQUIRE(at == bytes);
  safetensors_fini(&header);
  return 0;
}

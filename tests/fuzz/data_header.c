/* SPDX-License-Identifier: Apache-2.0 */
/* The header of llm.c's data files. The input is the file; its last bytes may be missing from what
 * the parser sees, as only the header is read. */
#include <string.h>

#include "fuzz/fuzz.h"
#include "train/data.h"

_Bool fuzz_seed_at(uint32_t index, struct fuzz_seed *seed_out) {
  static uint8_t file[DATA_HEADER_BYTES + 20];
  static const char text[] = "any text is data as well";
  if (index == 0) {
    *seed_out = (struct fuzz_seed){text, strlen(text)};
    return 1;
  }
  uint32_t words[3] = {20240520, 1, 10};
  memcpy(file, words, sizeof words);
  *seed_out = (struct fuzz_seed){file, sizeof file};
  return index == 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  size_t seen = bytes < DATA_HEADER_BYTES ? bytes : DATA_HEADER_BYTES;
  struct data_header header;
  if (data_parse_header("input", data, seen, bytes, &header) == MR_OK) {
    FUZZ_REQUIRE(header.token_bytes == 1 || header.token_bytes == 2);
    FUZZ_REQUIRE(header.offset + header.token_count * header.token_bytes == bytes);
  }
  return 0;
}

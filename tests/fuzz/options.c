/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and command lines. The input is words that a newline ends; each is read as a size too. */
#include "tools/options.h"

#include <string.h>

#include "base/base.h"
#include "fuzz/fuzz.h"

#define MOST_WORDS 64u
#define MOST_TEXT  8192u

static const char *const lines[] = {
    "train\n--offload\nnvme\n--device-mem\n1.5GiB\n--nvme\n/tmp:64M\n--nvme=/var:2G\n",
    "-v\nplan\n--layers=4\n--heads\n2\n--width\n128\n--vocab\n256\n--seq\n64\n--batch\n2\n",
    "verify\n--betas\n0.9,0.95\n--lr\n1e-3\n--clip=0\n--json\n--recompute\nfull\n--steps\n3\n",
    "1KiB\n2.25G\n99999999T\n3 MB\n1e9\n",
};

_Bool fuzz_seed_at(uint32_t index, struct fuzz_seed *seed_out) {
  if (index >= MR_COUNT_OF(lines)) {
    return 0;
  }
  *seed_out = (struct fuzz_seed){lines[index], strlen(lines[index])};
  return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static char text[MOST_TEXT + 1];
  static char program[] = "memrun";
  char *words[MOST_WORDS + 2] = {program};
  int count = 1;
  bytes = mr_min_u64(bytes, MOST_TEXT);
  memcpy(text, data, bytes);
  text[bytes] = '\0';
  char *rest = NULL;
  for (char *word = strtok_r(text, "\n", &rest); word != NULL && count <= (int)MOST_WORDS;
       word = strtok_r(NULL, "\n", &rest)) {
    uint64_t size = 0;
    if (mr_size_parse(word, &size) == MR_OK) {
      FUZZ_REQUIRE(size <= 1ull << 62);
    }
    words[count++] = word;
  }
  struct cli cli;
  options_defaults(&cli);
  mr_status status = options_parse(&cli, count, words);
  FUZZ_REQUIRE(status == MR_OK || status == MR_INVALID || status == MR_NO_MEMORY);
  options_free(&cli);
  return 0;
}

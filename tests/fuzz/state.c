/* SPDX-License-Identifier: Apache-2.0 */
/* The state.json of a checkpoint. The sum on its first line is made to agree, so that the fields
 * behind it are reached. */
#include "train/state.h"

#include <string.h>

#include "fuzz/fuzz.h"

#define FIRST_LINE_BYTES 22u

_Bool fuzz_seed_at(uint32_t index, struct fuzz_seed *seed_out) {
  static char *text;
  uint32_t model[3] = {1, 2, 3};
  uint32_t optimizer[6] = {4, 5, 6, 7, 8, 9};
  struct checkpoint_state state = {.step = 100,
                                   .window = 200,
                                   .identity = {.layers = 2, .seed = UINT64_MAX},
                                   .settings = {.lr = 6e-4},
                                   .files = {{1000, 0xdeadbeef}, {2000, 1}, {300, 0}},
                                   .tensor_crcs = {model, optimizer},
                                   .tensor_counts = {3, 6}};
  if (text == NULL) {
    FUZZ_REQUIRE(state_format(&state, &text) == MR_OK);
  }
  *seed_out = (struct fuzz_seed){text, strlen(text)};
  return index == 0;
}

static void parse(const char *text, size_t bytes) {
  struct checkpoint_state *state = NULL;
  const char *fault = NULL;
  if (state_parse(text, bytes, &state, &fault) != MR_OK) {
    FUZZ_REQUIRE(fault != NULL);
    return;
  }
  char *again = NULL;
  FUZZ_REQUIRE(state->tensor_counts[BUNDLE_MODEL] > 0);
  FUZZ_REQUIRE(state_format(state, &again) == MR_OK);
  free(again);
  state_destroy(state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  parse((const char *)data, bytes);
  if (bytes >= FIRST_LINE_BYTES) {
    char *text = malloc(bytes);
    FUZZ_REQUIRE(text != NULL);
    char line[FIRST_LINE_BYTES + 1];
    uint32_t crc = train_crc32c(0, data + FIRST_LINE_BYTES, bytes - FIRST_LINE_BYTES);
    memcpy(text, data, bytes);
    snprintf(line, sizeof line, "{\"crc32c\":\"%08x\",\n", crc);
    memcpy(text, line, FIRST_LINE_BYTES);
    parse(text, bytes);
    free(text);
  }
  return 0;
}

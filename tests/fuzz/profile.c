/* SPDX-License-Identifier: Apache-2.0 */
/* The profile file: what is accepted can be printed and read again. */
#include "runtime/profile.h"

#include <string.h>

#include "fuzz/fuzz.h"

_Bool fuzz_seed_at(uint32_t index, struct fuzz_seed *seed_out) {
  static char *text;
  static struct mr_profile profile;
  if (text == NULL) {
    profile.copy_bytes_per_second[0] = 1e10;
    profile.copy_bytes_per_second[1] = 2e10;
    profile.flops_per_second = 3e11;
    profile.bytes_per_second = 2e10;
    profile.rate_count = 1;
    profile.path_count = 1;
    snprintf(profile.machine, sizeof profile.machine, "a machine");
    profile.rates[0] = (struct mr_op_rate){"linear.forward", 1, 240, 3e-12};
    snprintf(profile.paths[0].devices, sizeof profile.paths[0].devices, "uring 254:0");
    FUZZ_REQUIRE(mr_profile_print(&profile, &text) == MR_OK);
  }
  *seed_out = (struct fuzz_seed){text, strlen(text)};
  return index == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static struct mr_profile profile;
  if (mr_profile_parse((const char *)data, bytes, &profile) == MR_OK) {
    char *text = NULL;
    FUZZ_REQUIRE(profile.rate_count <= MR_PROFILE_MAX_RATES);
    FUZZ_REQUIRE(profile.path_count <= MR_PROFILE_MAX_PATHS);
    FUZZ_REQUIRE(mr_profile_print(&profile, &text) == MR_OK);
    FUZZ_REQUIRE(mr_profile_parse(text, strlen(text), &profile) == MR_OK);
    free(text);
  }
  return 0;
}

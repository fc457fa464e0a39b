/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of buffers: whatever is read can be packed, or its sizes are told to be too large. */
#include <string.h>

#include "base/base.h"
#include "fuzz/fuzz.h"
#include "plan/pack/pack.h"

#define MOST_TRIES 200u

static const char *const seeds[] = {
    "id,lower,upper,size\na,0,4,8\nb,3,6,8\nc,4,6,8\n",
    "id,lower,upper,size\r\n\r\n0,995328,1000448,656384\r\n1,779264,828416,183296",
};

_Bool fuzz_seed_at(uint32_t index, struct fuzz_seed *seed_out) {
  if (index >= MR_COUNT_OF(seeds)) {
    return 0;
  }
  *seed_out = (struct fuzz_seed){seeds[index], strlen(seeds[index])};
  return 1;
}

static void check_packing(const struct mr_pack_table *table) {
  struct mr_pack_problem problem = {
      .buffers = table->buffers, .buffer_count = table->count, .search_tries = MOST_TRIES};
  struct mr_pack_result result;
  uint64_t peak = 0;
  uint64_t *offsets = calloc(table->count + 1ull, sizeof *offsets);
  FUZZ_REQUIRE(offsets != NULL);
  if (mr_pack_solve(&problem, offsets, &result) == MR_OK) {
    problem.capacity_bytes = result.bound_bytes;
    FUZZ_REQUIRE(mr_pack_solve(&problem, offsets, &result) == MR_OK);
    FUZZ_REQUIRE(mr_pack_valid(&problem, offsets, &peak) && peak == result.peak_bytes);
  }
  free(offsets);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct mr_pack_table table = {0};
  char *text = malloc(bytes + 1);
  FUZZ_REQUIRE(text != NULL);
  memcpy(text, data, bytes);
  FILE *file = bytes > 0 ? fmemopen(text, bytes, "r") : NULL;
  if (file != NULL) {
    if (mr_pack_table_read(&table, file, "fuzz") == MR_OK) {
      check_packing(&table);
    }
    mr_pack_table_fini(&table);
    fclose(file);
  }
  free(text);
  return 0;
}

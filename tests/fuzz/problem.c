/* SPDX-License-Identifier: Apache-2.0 */
/* Planning problems: whatever is read can be planned, or is told to be too large. */
#include <string.h>

#include "base/base.h"
#include "fuzz/fuzz.h"
#include "plan/problem/problem.h"

/* What is larger takes longer than it tells. */
#define MOST_SEGMENTS 16
#define MOST_TENSORS  3

static const char *const seeds[] = {
    "2 1 10 10 1 1 1 1\n1 1\n4 4\n3 0 1 1e9 0 0 0\n",
    "3 3 10 5 1 2 1 2\n1 3 1\n5 9 5\n10 0 2 0.5 0 0 0\n2 -1 2 1e9 1 0 0\n3 1 -1 1e9 0 1 1\n",
};

_Bool fuzz_seed_at(uint32_t index, struct fuzz_seed *seed_out) {
  if (index >= MR_COUNT_OF(seeds)) {
    return 0;
  }
  *seed_out = (struct fuzz_seed){seeds[index], strlen(seeds[index])};
  return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct mr_problem *problem = NULL;
  struct mr_problem_schedule *schedule = NULL;
  if (mr_problem_parse((const char *)data, bytes, "fuzz", &problem) != MR_OK) {
    return 0;
  }
  if (problem->segment_count <= MOST_SEGMENTS && problem->tensor_count <= MOST_TENSORS) {
    FUZZ_REQUIRE(mr_problem_plan(problem, NULL, &schedule) == MR_OK);
    if (schedule->fits) {
      char *text = NULL;
      FUZZ_REQUIRE(schedule->bound_seconds <= schedule->seconds * (1 + 1e-9));
      FUZZ_REQUIRE(mr_problem_schedule_print(schedule, &text) == MR_OK);
      free(text);
    } else {
      FUZZ_REQUIRE(schedule->smallest_device_bytes >= problem->device_bytes);
    }
  }
  mr_problem_schedule_destroy(schedule);
  mr_problem_destroy(problem);
  return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/ on the cuda device: streams that are late in a hundred ways give the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>

#include "base/base.h"
#include "unit/cuda_job.h"

#define STEPS 2u

static const struct world_shape shape = {3, 270 * 1000 + 7};

static void run_seeds(struct cuda_job_tiers tiers, uint64_t first, uint64_t count) {
  struct cuda_job job;
  cuda_job_init(&job, shape, STEPS, tiers);
  if (getenv("MEMRUN_SANITIZE") != NULL) {
    count /= 10;
  }
  for (uint64_t seed = first; seed < first + count; seed++) {
    bool right = false;
    cuda_job_set(seed, NULL);
    mr_status status = cuda_job_run(&job, &right);
    if (status != MR_OK || !right) {
      fail_msg("seed %llu: status %d, %s", (unsigned long long)seed, (int)status,
               right ? "right" : "wrong bits");
    }
  }
  cuda_job_fini(&job);
}

static void through_the_host(void **state) {
  (void)state;
  run_seeds((struct cuda_job_tiers){.host_bytes = 256 * MR_MIB}, 1, 80);
}

static void through_nvme(void **state) {
  (void)state;
  run_seeds((struct cuda_job_tiers){.host_bytes = 4 * MR_MIB, .nvme_bytes = 128 * MR_MIB}, 101, 20);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(through_the_host),
      cmocka_unit_test(through_nvme),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

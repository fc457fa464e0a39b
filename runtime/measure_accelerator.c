/* SPDX-License-Identifier: Apache-2.0 */
/* What an accelerator does, for a profile: its link and memory as measured, its arithmetic from
 * what it is. That stands in where ops of a kind could not be timed. */
#include <math.h>

#include "runtime/profile.h"
#include "runtime/runtime.h"

/* Of bf16 with dense matrices, for a multiprocessor and clock, by generation (the vendor's
 * architecture papers: A100 312 TFLOP/s at 1.41 GHz on 108, H100 SXM 989 at 1.83 on 132, B200 2250
 * at 1.85 on 148). */
static double flops_per_clock(uint32_t capability) {
  if (capability >= 100) {
    return 8192;
  }
  return capability >= 90 ? 4096 : 2048;
}

/* What a matrix product of a training step reaches of it. */
#define KERNEL_SHARE 0.5
/* Where the driver does not tell the clock. */
#define DEFAULT_CLOCK_HZ 1.4e9
#define LEAST_SECONDS    1e-9

mr_status mr_profile_measure_accelerator(const struct mr_settings *settings,
                                         struct mr_profile *profile) {
  const struct mr_accelerator *accelerator = &settings->accelerator;
  struct mr_accelerator_rates pinned = {0};
  struct mr_accelerator_rates pageable = {0};
  double memory_rate = 0;
  mr_status status = mr_cuda_measure(&pinned, &pageable, &memory_rate);
  if (status != MR_OK) {
    return status;
  }
  double clock_hz = accelerator->clock_hz > 0 ? accelerator->clock_hz : DEFAULT_CLOCK_HZ;
  double processors = fmax(accelerator->processors, 1);
  /* Plans that copy much copy both ways at once, and a link has less for each way then. */
  double shared = pinned.both_bytes_per_second / 2;
  profile->copy_bytes_per_second[0] = fmin(pinned.out_bytes_per_second, shared);
  profile->copy_bytes_per_second[1] = fmin(pinned.in_bytes_per_second, shared);
  profile->bytes_per_second = memory_rate;
  profile->flops_per_second =
      KERNEL_SHARE * processors * clock_hz * flops_per_clock(accelerator->capability);
  /* Pages are mapped once, and copies have engines of their own. */
  profile->bind_seconds_per_move = LEAST_SECONDS;
  profile->pace_beside_copy = 1;
  return mr_profile_measure_memory(settings->threads, &profile->host_bytes_per_second);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptions of machines: what is accepted has rates above 0 and memory to plan for. */
#include "runtime/machine_file.h"

#include <math.h>
#include <string.h>

#include "fuzz/fuzz.h"

_Bool fuzz_seed_at(uint32_t index, struct fuzz_seed *seed_out) {
  static const char *const seeds[] = {
      "name = m\ndevice_memory = 1 GiB\nhost_memory = 2 GiB\nnvme = 1 TB\ncompute = 1 TFLOP/s\n"
      "memory_bandwidth = 10 GB/s\nop_overhead = 5 us\ndevice_to_host = 5 GB/s, 10 us\n"
      "host_to_device = 6 GB/s\nnvme_read = 3 GB/s, 80 us\nnvme_write = 2 GB/s\n"
      "nvme_mixed = 3 GB/s\nrate linear.forward = 800 GFLOP/s\n",
      "# a machine\n name=m # so\n\n\tcompute\t=\t1e3 FLOP/s\n",
  };
  if (index >= sizeof seeds / sizeof seeds[0]) {
    return 0;
  }
  *seed_out = (struct fuzz_seed){seeds[index], strlen(seeds[index])};
  return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static struct mr_machine machine;
  if (mr_machine_parse("text", (const char *)data, bytes, &machine) != MR_OK) {
    return 0;
  }
  FUZZ_REQUIRE(machine.tier_bytes[MR_TIER_DEVICE] > 0);
  FUZZ_REQUIRE(machine.rate_count <= MR_MACHINE_MAX_RATES);
  for (uint32_t link = 0; link < MR_LINK_COUNT; link++) {
    FUZZ_REQUIRE(machine.link[link].bytes_per_second > 0);
    FUZZ_REQUIRE(machine.link[link].latency_seconds >= 0);
  }
  struct mr_op op = {.kind = "linear.forward", .flops = 1e9, .memory_bytes = 1000000};
  double seconds = mr_machine_op_seconds(&machine, &op);
  FUZZ_REQUIRE(isfinite(seconds) && seconds >= 0);
  return 0;
}

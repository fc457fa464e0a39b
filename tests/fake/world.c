/* SPDX-License-Identifier: Apache-2.0 */
/* The ops of the job of tests of runtime/ as kernels of the fake driver. */
#include "tests/fake/state.h"
#include "tests/unit/world_ops.h"

static void run(enum world_kind kind, const struct world_args *args) {
  world_kernels[kind].run(args, 0, args->elements);
}

#define KERNEL(name, kind)                                                                         \
  static void name(const uint32_t grid[3], const uint32_t block[3], const void *argument) {        \
    (void)grid;                                                                                    \
    (void)block;                                                                                   \
    run(kind, argument);                                                                           \
  }
KERNEL(forward, WORLD_FORWARD)
KERNEL(squash, WORLD_SQUASH)
KERNEL(loss, WORLD_LOSS)
KERNEL(backward, WORLD_BACKWARD)
KERNEL(update, WORLD_UPDATE)
KERNEL(rate, WORLD_RATE)
KERNEL(rated_update, WORLD_RATED_UPDATE)
#undef KERNEL

static const struct fake_kernel kernels[] = {
    {"world_forward", sizeof(struct world_args), forward},
    {"world_squash", sizeof(struct world_args), squash},
    {"world_loss", sizeof(struct world_args), loss},
    {"world_backward", sizeof(struct world_args), backward},
    {"world_update", sizeof(struct world_args), update},
    {"world_rate", sizeof(struct world_args), rate},
    {"world_rated_update", sizeof(struct world_args), rated_update},
};
const struct fake_kernel_table fake_world_kernels = {kernels, MR_COUNT_OF(kernels)};

/* SPDX-License-Identifier: Apache-2.0 */
/* Two sequences of budgets, merged: parts of the footprint, and the footprint less parts of it. */
#include "plan/ladder.h"

#include <math.h>

#include "base/base.h"

/* Rungs in an octave of the budget, which are 2 % apart, and in an octave of what the budget is
 * short of, while that is no more than half of the footprint. */
#define BUDGET_RUNGS 32u
#define SHORT_RUNGS  16u
#define LEAST_SHORT  96u /* the last rung of these: 1/64 of the footprint */
/* Budgets that people write as parts of the footprint lie just above a rung, rounded down or not.
 */
#define RUNG_MARGIN 0.999

static uint64_t part_rung(uint64_t footprint_bytes, uint32_t index) {
  return (uint64_t)((double)footprint_bytes * RUNG_MARGIN * exp2(-(double)index / BUDGET_RUNGS));
}

static uint64_t short_rung(uint64_t footprint_bytes, uint32_t index) {
  return (uint64_t)((double)footprint_bytes * RUNG_MARGIN *
                    (1 - exp2(-(double)index / SHORT_RUNGS)));
}

uint64_t mr_ladder_below(uint64_t footprint_bytes, uint64_t bytes) {
  MR_ASSERT(bytes > 0);
  uint64_t highest = part_rung(footprint_bytes, 0);
  for (uint32_t i = 1; highest >= bytes; i++) {
    highest = part_rung(footprint_bytes, i);
  }
  for (uint32_t i = SHORT_RUNGS; i <= LEAST_SHORT; i++) {
    uint64_t rung = short_rung(footprint_bytes, i);
    highest = rung < bytes ? mr_max_u64(highest, rung) : highest;
  }
  return highest;
}

uint32_t mr_ladder_number(uint64_t footprint_bytes, uint64_t rung_bytes) {
  uint32_t number = 0;
  while (part_rung(footprint_bytes, number) > rung_bytes) {
    number++;
  }
  for (uint32_t i = SHORT_RUNGS; i <= LEAST_SHORT; i++) {
    number += short_rung(footprint_bytes, i) > rung_bytes;
  }
  return number;
}

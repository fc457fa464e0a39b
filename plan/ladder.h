/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rungs of the ladder: budgets for which plans are made (plan/plan.h says why). They depend on
 * the footprint of the program alone.
 */
#ifndef MEMRUN_PLAN_LADDER_H
#define MEMRUN_PLAN_LADDER_H

#include <stdint.h>

/* The highest rung below so many bytes, which are not 0; 0: there is none. */
uint64_t mr_ladder_below(uint64_t footprint_bytes, uint64_t bytes);

/* How many rungs are higher than this one. */
uint32_t mr_ladder_number(uint64_t footprint_bytes, uint64_t rung_bytes);

#endif

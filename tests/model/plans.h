/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of the verifier do with plans: copy them so that they can be spoiled, and judge the
 * order of their accesses in another way than the verifier does: by the set of all instructions
 * that have surely finished before each one, and every pair of accesses to a page, host page or
 * extent.
 */
#ifndef MEMRUN_TESTS_MODEL_PLANS_H
#define MEMRUN_TESTS_MODEL_PLANS_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/plan.h"

/* A deep copy, freed by plan_copy_free. */
struct mr_program_plan *plan_copy(const struct mr_program_plan *plan);
void plan_copy_free(struct mr_program_plan *plan);

/* True where every two conflicting accesses of two steps are ordered; true for plans that hang,
 * too.
 */
bool plan_is_ordered(const struct mr_program_plan *plan);

/* Counts of what a series of mutations led to. */
struct mutation_counts {
  uint32_t tried;
  uint32_t caught;
  uint32_t harmless; /* accepted, and proven harmless */
};

/*
 * Deletes and shortens each wait in turn, and spoils everything else that a plan consists of, each
 * in turn or by draws from `seed`. Every mutant is either refused by the verifier or harmless for a
 * reason that the test knows; anything else fails the test.
 */
void plan_mutate(const struct mr_plan_problem *problem, const struct mr_program_plan *plan,
                 uint64_t seed, struct mutation_counts *waits, struct mutation_counts *others);

#endif

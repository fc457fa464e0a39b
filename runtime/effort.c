/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans without search tell about which candidates are good, within some per cent: of a dozen, the
 * one that is best with search takes 1 % less time on average than that of three, and up to 3 %. So
 * many are searched as have so many ops together, and fewer where the program is large, or where
 * ops run on a host beside the device, since each is then planned in a dozen ways.
 *
 * Small programs have time for other aims, without which those of two layers are slower with more
 * to work with three times as often; larger ones gain nothing by them. Where the processor computes
 * a usual program, a dozen candidates compete: changes of single decisions gain 0.04 % there, so
 * that few are made; the host's ops are chosen by plans without search, and without the few that
 * choose anew plans are slower with more to work with by two or three times as much. Where what a
 * device that runs all ops has no room for takes both tiers, fewer candidates are searched; there,
 * and where the host runs ops above NVMe, half as many changes of single decisions do as well.
 * Beside a device plans are varied, but of the largest: steps get 0.2 % shorter, up to 3.6 %.
 */
#include "runtime/effort.h"

#include "base/base.h"
#include "plan/plan.h"

#define LARGE_OPS        1500u /* more are large; MR_MACHINE_OPS at most are small */
#define SMALL_BUDGET_OPS 6000u
#define VARY_OPS         100000u
_Static_assert(SMALL_BUDGET_OPS / MR_MACHINE_OPS >= MR_MACHINE_ROUNDS,
               "small programs are planned for many machines (plan/machines.c)");

static const struct mr_effort small = {.finalists = 12,
                                       .searched = 12,
                                       .searched_ops = 9000,
                                       .aimed = 5,
                                       .amend_ops = 8000,
                                       .budget_ops = SMALL_BUDGET_OPS};
static const struct mr_effort small_beside_host = {.finalists = 12,
                                                   .searched = 12,
                                                   .searched_ops = 1350,
                                                   .aimed = 5,
                                                   .amend_ops = 8000,
                                                   .budget_ops = SMALL_BUDGET_OPS};
static const struct mr_effort usual_processor = {.finalists = 12,
                                                 .searched = 12,
                                                 .searched_ops = 9000,
                                                 .placed_ops = 2000,
                                                 .amend_ops = 2300,
                                                 .budget_ops = 2200};
static const struct mr_effort usual_alone = {.finalists = 12,
                                             .searched = 12,
                                             .searched_ops = 7500,
                                             .amend_ops = 7000,
                                             .vary_ops = VARY_OPS,
                                             .budget_ops = 2200};
static const struct mr_effort usual_above_both = {.finalists = 12,
                                                  .searched = 12,
                                                  .searched_ops = 3000,
                                                  .amend_ops = 4000,
                                                  .vary_ops = VARY_OPS,
                                                  .budget_ops = 2200};
static const struct mr_effort usual_beside_host = {.finalists = 4,
                                                   .searched = 4,
                                                   .searched_ops = 2000,
                                                   .amend_ops = 8000,
                                                   .vary_ops = VARY_OPS,
                                                   .budget_ops = 2200};
static const struct mr_effort usual_beside_above_nvme = {.finalists = 4,
                                                         .searched = 4,
                                                         .searched_ops = 2000,
                                                         .amend_ops = 4000,
                                                         .vary_ops = VARY_OPS,
                                                         .budget_ops = 2200};
static const struct mr_effort large_processor = {
    .finalists = 4, .searched = 3, .searched_ops = 9000, .amend_ops = 8000};
static const struct mr_effort large = {
    .finalists = 4, .searched = 3, .searched_ops = 9000, .amend_ops = 8000, .vary_ops = VARY_OPS};
static const struct mr_effort large_beside_host = {
    .finalists = 4, .searched = 3, .searched_ops = 2000, .amend_ops = 8000, .vary_ops = VARY_OPS};

static const struct mr_effort *const efforts[MR_PROGRAM_SIZES][MR_PROGRAM_SITES] = {
    [MR_PROGRAM_SMALL] = {[MR_PROGRAM_PROCESSOR] = &small,
                          [MR_PROGRAM_ALONE] = &small,
                          [MR_PROGRAM_ABOVE_BOTH] = &small,
                          [MR_PROGRAM_BESIDE_HOST] = &small_beside_host,
                          [MR_PROGRAM_BESIDE_ABOVE_NVME] = &small_beside_host},
    [MR_PROGRAM_USUAL] = {[MR_PROGRAM_PROCESSOR] = &usual_processor,
                          [MR_PROGRAM_ALONE] = &usual_alone,
                          [MR_PROGRAM_ABOVE_BOTH] = &usual_above_both,
                          [MR_PROGRAM_BESIDE_HOST] = &usual_beside_host,
                          [MR_PROGRAM_BESIDE_ABOVE_NVME] = &usual_beside_above_nvme},
    [MR_PROGRAM_LARGE] = {[MR_PROGRAM_PROCESSOR] = &large_processor,
                          [MR_PROGRAM_ALONE] = &large,
                          [MR_PROGRAM_ABOVE_BOTH] = &large,
                          [MR_PROGRAM_BESIDE_HOST] = &large_beside_host,
                          [MR_PROGRAM_BESIDE_ABOVE_NVME] = &large_beside_host},
};

enum mr_program_size mr_program_size_of(uint32_t op_count) {
  return op_count <= MR_MACHINE_OPS ? MR_PROGRAM_SMALL
         : op_count <= LARGE_OPS    ? MR_PROGRAM_USUAL
                                    : MR_PROGRAM_LARGE;
}

const struct mr_effort *mr_effort_of(enum mr_program_size size, enum mr_program_site site) {
  return efforts[size][site];
}

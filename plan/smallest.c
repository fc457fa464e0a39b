/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest device budget that would do. */
#include "plan/maker.h"

#include "base/base.h"
#include "plan/stages.h"

/* A smallest budget is looked for with so many pages of one size at most: a process maps about as
 * many (vm.max_map_count). */
#define MOST_FIT_PAGES 65536u
/* From the footprint up larger ones are tried: 1/64, 1/32, 1/16 and 1/8 larger than the one before.
 */
#define FIRST_RAISE 6u
#define LAST_RAISE  3u
/* Somewhat smaller ones are from 1/4096 to 1/32 smaller. */
#define LAST_LOOK  12u
#define FIRST_LOOK 5u
#define MOST_LOOKS 24u

/* Whether so many pages will do, and of what fits last, what it takes below. */
static mr_status fits_in(struct mr_maker *maker, uint32_t choice, uint64_t pages, bool *fits_out) {
  struct mr_program_plan plan = {.program = maker->problem->program};
  uint64_t bytes = maker->drafts[choice].small_bytes + pages * maker->choices[choice].page_bytes;
  mr_status status = mr_maker_plan(maker, choice, bytes, MR_EFFORT_FIT, &plan);
  *fits_out = status == MR_OK && plan.fits;
  if (*fits_out) {
    maker->smallest.host_bytes = mr_program_plan_host_bytes(&plan);
    maker->smallest.nvme_bytes = plan.nvme_bytes;
  }
  mr_plan_clear(&plan);
  return status;
}

/* Finds pages that will do, from *pages up; *fits_out: false where `most` are not enough. Stays
 * that go round the end of the step, as those of derived tensors do that are dead before their
 * update, may need a few more than are ever in use, even with all kept that may be. */
static mr_status find_enough(struct mr_maker *maker, uint32_t choice, uint64_t most,
                             uint64_t *pages, bool *fits_out) {
  mr_status status = fits_in(maker, choice, *pages, fits_out);
  for (uint32_t raise = FIRST_RAISE;
       raise >= LAST_RAISE && status == MR_OK && !*fits_out && *pages < most; raise--) {
    *pages = mr_min_u64(*pages + mr_max_u64(*pages >> raise, 1), most);
    status = fits_in(maker, choice, *pages, fits_out);
  }
  return status;
}

/* The smallest device budget with pages of one size with which planning succeeds: below the one
 * that is known, or none. What the device needs at least nearly always does; where a lower tier is
 * short, it is found by halving. */
static mr_status lower_smallest(struct mr_maker *maker, uint32_t choice, uint64_t from_bytes) {
  struct mr_smallest *smallest = &maker->smallest;
  uint64_t page_bytes = maker->choices[choice].page_bytes;
  uint64_t small_bytes = maker->drafts[choice].small_bytes;
  uint64_t low = mr_div_up(from_bytes - small_bytes, page_bytes);
  uint64_t whole = (maker->footprint_bytes[choice] - small_bytes) / page_bytes;
  uint64_t most =
      mr_min_u64(mr_max_u64(low, MOST_FIT_PAGES), (smallest->bytes - 1 - small_bytes) / page_bytes);
  uint64_t high = mr_min_u64(mr_max_u64(low, whole), most);
  bool fits = false;
  if (high < low) {
    return MR_OK;
  }
  mr_status status = fits_in(maker, choice, low, &fits);
  if (status == MR_OK && fits) {
    high = low;
  } else if (status == MR_OK) {
    status = find_enough(maker, choice, most, &high, &fits);
  }
  if (status != MR_OK || !fits) {
    return status;
  }
  while (status == MR_OK && low < high) {
    uint64_t middle = low + (high - low) / 2;
    status = fits_in(maker, choice, middle, &fits);
    low = fits ? low : middle + 1;
    high = fits ? middle : high;
  }
  smallest->bytes = mr_max_u64(small_bytes + high * page_bytes, from_bytes);
  smallest->choice = choice;
  return status;
}

/* Where a lower tier is short, what fits a budget need not fit one that is a little larger: so
 * somewhat smaller ones are tried, from that found by halving down. */
static mr_status look_below(struct mr_maker *maker) {
  struct mr_smallest *smallest = &maker->smallest;
  const uint64_t page_bytes = maker->choices[smallest->choice].page_bytes;
  const uint64_t small_bytes = maker->drafts[smallest->choice].small_bytes;
  const uint64_t least_bytes = mr_max_u64(smallest->least_bytes, smallest->short_bytes);
  uint32_t left = MOST_LOOKS;
  mr_status status = MR_OK;
  for (uint32_t halvings = LAST_LOOK; halvings >= FIRST_LOOK && left > 0 && status == MR_OK;
       halvings--, left--) {
    uint64_t pages = (smallest->bytes - (smallest->bytes >> halvings) - small_bytes) / page_bytes;
    uint64_t bytes = small_bytes + pages * page_bytes;
    bool fits = false;
    if (bytes < least_bytes || bytes == smallest->bytes) continue;
    status = fits_in(maker, smallest->choice, pages, &fits);
    if (status == MR_OK && fits) {
      smallest->bytes = bytes;
      halvings = LAST_LOOK + 1;
    }
  }
  return status;
}

/* What must be somewhere at once and has no room in the tiers below the device. */
static mr_status find_short(struct mr_maker *maker, uint64_t *bytes_out) {
  const uint64_t *budget_bytes = maker->problem->budget_bytes;
  double room = (double)budget_bytes[MR_TIER_HOST] + (double)budget_bytes[MR_TIER_NVME];
  mr_status status = mr_maker_open_bound(maker);
  double bytes = status == MR_OK ? mr_bound_least_bytes(&maker->bound) - room : 0;
  *bytes_out = bytes > 0 ? (uint64_t)bytes : 0;
  return status;
}

/* The smallest device budget with which planning succeeds; of a terse problem none that is larger
 * than its own. With smaller pages less is lost to rounding, but they are many. */
mr_status mr_maker_find_smallest(struct mr_maker *maker) {
  const struct mr_plan_problem *problem = maker->problem;
  struct mr_smallest *smallest = &maker->smallest;
  uint64_t budget_bytes = problem->budget_bytes[MR_TIER_DEVICE];
  uint64_t none = problem->terse && budget_bytes < UINT64_MAX ? budget_bytes + 1 : UINT64_MAX;
  mr_status status = MR_OK;
  if (smallest->known) {
    return MR_OK;
  }
  *smallest = (struct mr_smallest){
      .known = true, .bytes = none, .least_bytes = UINT64_MAX, .choice = maker->choice_count - 1};
  status = find_short(maker, &smallest->short_bytes);
  for (uint32_t i = maker->choice_count; i-- > 0 && status == MR_OK;) {
    struct mr_draft *draft = NULL;
    status = mr_maker_draft(maker, i, &draft);
    uint64_t from = mr_max_u64(maker->least_bytes[i], maker->choices[i].least_budget_bytes);
    smallest->least_bytes = mr_min_u64(smallest->least_bytes, from);
    from = mr_max_u64(from, smallest->short_bytes);
    if (status == MR_OK && from < smallest->bytes) {
      status = lower_smallest(maker, i, from);
    }
  }
  if (smallest->bytes == none) {
    smallest->bytes = UINT64_MAX;
    return status;
  }
  return status == MR_OK ? look_below(maker) : status;
}

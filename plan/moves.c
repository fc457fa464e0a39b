/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often binding moves pages. A device that maps pages moves neighbours that were moved together
 * in one call, and a call costs what it costs whatever it moves (device/device.h), so the time of a
 * birth follows from the runs of its pages. Pages that follow one another are bound at home, where
 * they mostly are. Waits fix the order in which instances own a page, so runs do not depend on
 * timing: the births of a step are walked in the order of its ops, twice, for a step begins with
 * pages where the one before left them.
 */
#include <stdlib.h>

#include "base/base.h"
#include "plan/stages.h"

#define WALKS   2u

#define AT_HOME UINT32_MAX

/* An address: so many pages from the start of a range, or of where the device began with them. */
struct place {
  uint32_t range;
  uint32_t index;
};

struct page {
  struct place place;
  uint32_t move; /* that brought it there; 0: it is at home */
};

struct mover {
  struct mr_program_plan *plan;
  uint32_t *ranges; /* of each instance */
  struct page *pages;
  uint32_t moves;
  uint32_t done[MR_QUEUE_COUNT]; /* instructions walked in this step */
};

static bool is_at(const struct page *page, struct place start, uint32_t index) {
  return page->place.range == start.range && page->place.index == start.index + index;
}

/* How many pages from entry `first` of the instance on follow one another where they are now. */
static uint32_t run_length(const struct mover *mover, const struct mr_instance *instance,
                           uint32_t first) {
  const uint32_t *pages = &mover->plan->pages[instance->first_page];
  const struct page *start = &mover->pages[pages[first]];
  uint32_t length = 1;
  while (first + length < instance->page_count) {
    const struct page *next = &mover->pages[pages[first + length]];
    if (!is_at(next, start->place, length) || next->move != start->move) {
      break;
    }
    length++;
  }
  return length;
}

/* Where an instance with pages is bound. */
static struct place place_of(const struct mover *mover, uint32_t stay) {
  const struct mr_instance *instance = &mover->plan->instances[stay];
  const uint32_t *pages = &mover->plan->pages[instance->first_page];
  for (uint32_t i = 1; i < instance->page_count; i++) {
    if (pages[i] != pages[0] + i) {
      return (struct place){mover->ranges[stay], 0};
    }
  }
  return (struct place){AT_HOME, pages[0]};
}

static uint32_t bind(struct mover *mover, uint32_t stay) {
  const struct mr_instance *instance = &mover->plan->instances[stay];
  const uint32_t *pages = &mover->plan->pages[instance->first_page];
  uint32_t moves = 0;
  uint32_t length = 1;
  if (instance->page_count == 0) {
    return 0;
  }
  const struct place start = place_of(mover, stay);
  const bool home = start.range == AT_HOME;
  for (uint32_t i = 0; i < instance->page_count; i += length) {
    length = 1;
    if (is_at(&mover->pages[pages[i]], start, i)) {
      continue;
    }
    length = run_length(mover, instance, i);
    moves++;
    mover->moves += home ? 0 : 1;
    for (uint32_t k = i; k < i + length; k++) {
      const struct place place = {start.range, start.index + k};
      mover->pages[pages[k]] = (struct page){place, home ? 0 : mover->moves};
    }
  }
  return moves;
}

static void walk_instruction(struct mover *mover, struct mr_instruction *instruction) {
  instruction->bind_moves = 0;
  for (uint32_t i = 0; i < instruction->birth_count; i++) {
    instruction->bind_moves += bind(mover, mover->plan->births[instruction->first_birth + i]);
  }
}

/* The instructions of a queue that hang on op k. */
static void walk_queue(struct mover *mover, uint32_t queue, uint32_t k) {
  struct mr_program_plan *plan = mover->plan;
  while (mover->done[queue] < plan->instruction_count[queue]) {
    struct mr_instruction *instruction = &plan->instructions[queue][mover->done[queue]];
    if (instruction->op != k) {
      break;
    }
    walk_instruction(mover, instruction);
    mover->done[queue]++;
  }
}

static void walk_step(struct mover *mover) {
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    mover->done[q] = 0;
  }
  for (uint32_t k = 0; k < mover->plan->instruction_count[MR_QUEUE_COMPUTE]; k++) {
    walk_queue(mover, MR_QUEUE_OF(MR_LINK_HOST_TO_DEVICE), k);
    walk_queue(mover, MR_QUEUE_OF(MR_LINK_NVME_READ), k);
    walk_queue(mover, MR_QUEUE_COMPUTE, k);
  }
}

mr_status mr_plan_count_moves(struct mr_program_plan *plan) {
  struct mover mover = {.plan = plan};
  uint32_t range_count = 0;
  mover.pages = mr_allocate(plan->device_page_count, sizeof *mover.pages);
  mover.ranges = mr_allocate(plan->instance_count, sizeof *mover.ranges);
  mr_status status = mover.pages == NULL || mover.ranges == NULL ? MR_NO_MEMORY : MR_OK;
  if (status == MR_OK) {
    status = mr_program_plan_list_ranges(plan, mover.ranges, &range_count);
  }
  for (uint32_t p = 0; p < plan->device_page_count && status == MR_OK; p++) {
    mover.pages[p].place = (struct place){AT_HOME, p};
  }
  for (uint32_t walk = 0; walk < WALKS && status == MR_OK; walk++) {
    walk_step(&mover);
  }
  free(mover.pages);
  free(mover.ranges);
  return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often binding moves pages. A device that maps pages moves neighbours that were moved together
 * in one call, and a call costs what it costs whatever it moves (device/device.h), so the time of a
 * birth follows from the runs of its pages. Waits fix the order in which instances own a page, so
 * runs do not depend on timing: the births of a step are walked in the order of its ops, twice, for
 * a step begins with pages where the one before left them.
 */
#include <stdlib.h>

#include "plan/draft.h"

#define WALKS 2u

/* Where a page is: what instance's, and how far from its start. */
struct place {
  uint32_t instance; /* MR_NO_INSTANCE: where the device began with it */
  uint32_t index;
  uint32_t move; /* that brought it there */
};

struct mover {
  struct mr_program_plan *plan;
  struct place *places; /* of each device page */
  uint32_t moves;
  uint32_t done[MR_QUEUE_COUNT]; /* instructions walked in this step */
};

/* How many pages from entry `first` of the instance on follow one another where they are now. */
static uint32_t run_length(const struct mover *mover, const struct mr_instance *instance,
                           uint32_t first) {
  const uint32_t *pages = &mover->plan->pages[instance->first_page];
  const struct place *start = &mover->places[pages[first]];
  uint32_t length = 1;
  while (first + length < instance->page_count) {
    const struct place *next = &mover->places[pages[first + length]];
    if (next->instance != start->instance || next->index != start->index + length ||
        next->move != start->move) {
      break;
    }
    length++;
  }
  return length;
}

static uint32_t bind(struct mover *mover, uint32_t stay) {
  const struct mr_instance *instance = &mover->plan->instances[stay];
  const uint32_t *pages = &mover->plan->pages[instance->first_page];
  uint32_t moves = 0;
  uint32_t length = 1;
  for (uint32_t i = 0; i < instance->page_count; i += length) {
    const struct place *place = &mover->places[pages[i]];
    length = 1;
    if (place->instance == stay && place->index == i) {
      continue;
    }
    length = run_length(mover, instance, i);
    moves++;
    mover->moves++;
    for (uint32_t k = i; k < i + length; k++) {
      mover->places[pages[k]] = (struct place){stay, k, mover->moves};
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
  mover.places = mr_allocate(plan->device_page_count, sizeof *mover.places);
  if (mover.places == NULL) {
    return MR_NO_MEMORY;
  }
  for (uint32_t p = 0; p < plan->device_page_count; p++) {
    mover.places[p] = (struct place){MR_NO_INSTANCE, p, 0};
  }
  for (uint32_t walk = 0; walk < WALKS; walk++) {
    walk_step(&mover);
  }
  free(mover.places);
  return MR_OK;
}

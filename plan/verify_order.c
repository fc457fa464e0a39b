/* SPDX-License-Identifier: Apache-2.0 */
/* The verifier's clocks: one run of the queues, and what each instruction surely comes after. */
#include "plan/verify.h"

struct mr_verify_actor mr_verify_actor_make(const struct mr_verifier *v, uint32_t step,
                                            struct mr_verify_turn turn) {
  uint32_t number = v->queue_base[turn.queue] + turn.index;
  return (struct mr_verify_actor){
      .step = step,
      .queue = turn.queue,
      .index = turn.index,
      .count = step * v->plan->instruction_count[turn.queue] + turn.index + 1,
      .instruction = &v->plan->instructions[turn.queue][turn.index],
      .clock = v->clocks[(size_t)(step % MR_VERIFY_STEPS) * v->order_count + number],
  };
}

static bool turn_is_ready(const struct mr_verifier *v, struct mr_verify_turn turn,
                          const uint32_t *finished) {
  const struct mr_instruction *instruction = &v->plan->instructions[turn.queue][turn.index];
  for (uint32_t i = 0; i < instruction->wait_count; i++) {
    const struct mr_wait *wait = &v->plan->waits[instruction->first_wait + i];
    if (!wait->previous_step && finished[wait->queue] < wait->count) {
      return false;
    }
  }
  return true;
}

/*
 * Finds an order that the waits allow. Waits for the step before cannot block for ever where a step
 * by itself comes to its end, so one step proves that no step hangs.
 */
static mr_status order_find(struct mr_verifier *v) {
  uint32_t finished[MR_QUEUE_COUNT] = {0};
  uint32_t placed = 0;
  bool moved = true;
  while (moved) {
    moved = false;
    for (uint32_t queue = 0; queue < MR_QUEUE_COUNT; queue++) {
      struct mr_verify_turn turn = {queue, finished[queue]};
      while (turn.index < v->plan->instruction_count[queue] && turn_is_ready(v, turn, finished)) {
        v->order[placed++] = turn;
        finished[queue] = ++turn.index;
        moved = true;
      }
    }
  }
  if (placed == v->order_count) {
    return MR_OK;
  }
  uint32_t stuck = 0;
  while (finished[stuck] == v->plan->instruction_count[stuck]) {
    stuck++;
  }
  struct mr_verify_actor actor =
      mr_verify_actor_make(v, 0, (struct mr_verify_turn){stuck, finished[stuck]});
  return mr_verify_actor_fault(
      v, &actor, "it waits for ever: the queues have finished %u %u %u %u %u %u", finished[0],
      finished[1], finished[2], finished[3], finished[4], finished[5]);
}

static void clock_join(uint32_t *clock, const uint32_t *other) {
  for (uint32_t queue = 0; queue < MR_QUEUE_COUNT; queue++) {
    clock[queue] = clock[queue] > other[queue] ? clock[queue] : other[queue];
  }
}

/* Joins what is known once `queue` has finished `count` instructions of `step`. */
static void clock_join_finished(const struct mr_verifier *v, uint32_t *clock, uint32_t step,
                                struct mr_verify_turn turn) {
  uint32_t number = v->queue_base[turn.queue] + turn.index;
  uint32_t count = step * v->plan->instruction_count[turn.queue] + turn.index + 1;
  clock_join(clock, v->clocks[(size_t)step * v->order_count + number]);
  clock[turn.queue] = clock[turn.queue] > count ? clock[turn.queue] : count;
}

/* What has surely finished when the instruction starts. Its predecessor on an NVMe queue has
 * started by then, and need not have finished. */
static void clock_make(struct mr_verifier *v, uint32_t step, struct mr_verify_turn turn) {
  const struct mr_instruction *instruction = &v->plan->instructions[turn.queue][turn.index];
  uint32_t number = v->queue_base[turn.queue] + turn.index;
  uint32_t *clock = v->clocks[(size_t)step * v->order_count + number];
  if (turn.index > 0 || step > 0) {
    uint32_t before_step = turn.index > 0 ? step : step - 1;
    uint32_t before = turn.index > 0 ? turn.index - 1 : v->plan->instruction_count[turn.queue] - 1;
    if (mr_verify_is_nvme(turn.queue)) {
      uint32_t started = v->queue_base[turn.queue] + before;
      clock_join(clock, v->clocks[(size_t)before_step * v->order_count + started]);
    } else {
      clock_join_finished(v, clock, before_step, (struct mr_verify_turn){turn.queue, before});
    }
  }
  for (uint32_t i = 0; i < instruction->wait_count; i++) {
    const struct mr_wait *wait = &v->plan->waits[instruction->first_wait + i];
    if (wait->count > 0 && (step > 0 || !wait->previous_step)) {
      clock_join_finished(v, clock, wait->previous_step ? step - 1 : step,
                          (struct mr_verify_turn){wait->queue, wait->count - 1});
    }
  }
}

mr_status mr_verify_order(struct mr_verifier *v) {
  mr_status status = order_find(v);
  if (status != MR_OK) {
    return status;
  }
  for (uint32_t step = 0; step < MR_VERIFY_STEPS; step++) {
    for (uint32_t i = 0; i < v->order_count; i++) {
      clock_make(v, step, v->order[i]);
    }
  }
  return MR_OK;
}

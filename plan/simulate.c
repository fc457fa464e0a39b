/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plays a finished plan: every queue runs its instructions in order, each starts when its waits are
 * over, steps follow one another without a pause. NVMe reads and writes slow each other down where
 * the drive shares its rate, and copies where NVMe is staged; ops on a host apart have of its
 * memory what moves leave. An NVMe move is finished a latency after its bytes have passed, while
 * the next ones pass. The steady state is measured after the first steps.
 */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "plan/drive.h"
#include "plan/host.h"
#include "plan/stages.h"

#define STEPS      5u
#define FIRST_STEP 2u /* the first measured; those before fill the queues */

struct player {
  const struct mr_plan_problem *problem;
  struct mr_program_plan *plan;
  uint32_t started[MR_QUEUE_COUNT];
  uint32_t passed[MR_QUEUE_COUNT]; /* no longer take up their queue */
  uint32_t finished[MR_QUEUE_COUNT];
  double *due_seconds[MR_QUEUE_COUNT]; /* when what has passed is finished */
  double remaining_seconds[MR_QUEUE_COUNT];
  double now_seconds;
  double start_seconds[STEPS]; /* of the first op of each step */
  bool contended; /* NVMe read and wrote at once, and compute waited for one of the two */
};

static double bind_seconds(const struct player *player, const struct mr_instruction *instruction) {
  return instruction->bind_moves * player->problem->bind_seconds_per_move;
}

/* For how long it takes up its queue. */
static double instruction_seconds(const struct player *player, uint32_t queue,
                                  const struct mr_instruction *instruction) {
  double bind = mr_queue_is_nvme(queue) ? 0 : bind_seconds(player, instruction);
  if (queue == MR_QUEUE_HOST) {
    return mr_host_op_seconds(player->problem, instruction->op);
  }
  if (instruction->handed_over) {
    return bind +
           mr_plan_move_seconds(player->problem, MR_LINK_DEVICE_TO_HOST,
                                mr_host_handover_bytes(player->plan->program, instruction->op,
                                                       player->plan->page_bytes));
  }
  if (queue == MR_QUEUE_COMPUTE) {
    return bind + player->problem->op_seconds[instruction->op];
  }
  return bind + mr_plan_move_seconds(player->problem, (mr_link)(queue - MR_QUEUE_OF(0)),
                                     player->plan->instances[instruction->instance].bytes);
}

static bool is_over(const struct player *player, const struct mr_wait *wait, uint32_t step) {
  if (wait->previous_step && step == 0) {
    return true;
  }
  uint32_t turn = wait->previous_step ? step - 1 : step;
  return player->finished[wait->queue] >=
         turn * player->plan->instruction_count[wait->queue] + wait->count;
}

static bool can_start(const struct player *player, uint32_t queue) {
  const struct mr_program_plan *plan = player->plan;
  uint32_t count = plan->instruction_count[queue];
  uint32_t next = player->started[queue];
  if (next > player->passed[queue] || next == STEPS * count) {
    return false;
  }
  uint32_t step = next / count;
  /* The links start on a step when compute does, never before. */
  if (queue != MR_QUEUE_COMPUTE &&
      player->finished[MR_QUEUE_COMPUTE] < step * plan->instruction_count[MR_QUEUE_COMPUTE]) {
    return false;
  }
  const struct mr_instruction *instruction = &plan->instructions[queue][next % count];
  for (uint32_t i = 0; i < instruction->wait_count; i++) {
    const struct mr_wait *wait = &plan->waits[instruction->first_wait + i];
    if (!is_over(player, wait, step)) {
      return false;
    }
  }
  return true;
}

static bool start_what_can(struct player *player) {
  bool any = false;
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    if (!can_start(player, q)) continue;
    uint32_t count = player->plan->instruction_count[q];
    uint32_t next = player->started[q]++;
    struct mr_instruction *instruction = &player->plan->instructions[q][next % count];
    player->remaining_seconds[q] = instruction_seconds(player, q, instruction);
    any = true;
    if (q == MR_QUEUE_COMPUTE && next % count == 0) {
      player->start_seconds[next / count] = player->now_seconds;
    }
    if (next / count == FIRST_STEP) {
      instruction->start_seconds = player->now_seconds;
    }
  }
  return any;
}

static bool busy(const struct player *player, uint32_t queue) {
  return player->started[queue] > player->passed[queue];
}

/* Bytes a second that a link moves now. */
static double moving_bytes_per_second(const struct player *player, mr_link link,
                                      const double *paces) {
  uint32_t queue = MR_QUEUE_OF(link);
  return busy(player, queue) ? paces[queue] * player->problem->link[link].bytes_per_second : 0;
}

/* The same of all links. */
static double all_moving_bytes_per_second(const struct player *player, const double *paces) {
  double moving = 0;
  for (mr_link link = 0; link < MR_LINK_COUNT; link++) {
    moving += moving_bytes_per_second(player, link, paces);
  }
  return moving;
}

/* Ops share processors and memory with whoever moves bytes. The links' paces are known. */
static double compute_pace(const struct player *player, const double *paces) {
  const struct mr_plan_problem *problem = player->problem;
  double moving = moving_bytes_per_second(player, MR_LINK_NVME_READ, paces) +
                  moving_bytes_per_second(player, MR_LINK_NVME_WRITE, paces);
  double pace = mr_plan_pace_beside_nvme(problem, moving);
  if (problem->pace_beside_copy > 0 && (busy(player, MR_QUEUE_OF(MR_LINK_DEVICE_TO_HOST)) ||
                                        busy(player, MR_QUEUE_OF(MR_LINK_HOST_TO_DEVICE)))) {
    pace *= mr_min_double(problem->pace_beside_copy, 1);
  }
  return pace;
}

/* The queue that compute waits for; MR_QUEUE_COUNT: none, an op runs. */
static uint32_t awaited_queue(const struct player *player) {
  const struct mr_program_plan *plan = player->plan;
  uint32_t count = plan->instruction_count[MR_QUEUE_COMPUTE];
  uint32_t next = player->started[MR_QUEUE_COMPUTE];
  if (busy(player, MR_QUEUE_COMPUTE) || next == STEPS * count) {
    return MR_QUEUE_COUNT;
  }
  const struct mr_instruction *op = &plan->instructions[MR_QUEUE_COMPUTE][next % count];
  for (uint32_t i = 0; i < op->wait_count; i++) {
    const struct mr_wait *wait = &plan->waits[op->first_wait + i];
    if (!is_over(player, wait, next / count)) {
      return wait->queue;
    }
  }
  return MR_QUEUE_COUNT;
}

/* What reads have of a shared drive: half of it, or more or less where compute waits for one of the
 * two and the plan favours that. */
static double read_share(struct player *player) {
  uint32_t awaited = awaited_queue(player);
  bool reads = awaited == MR_QUEUE_OF(MR_LINK_NVME_READ);
  bool writes = awaited == MR_QUEUE_OF(MR_LINK_NVME_WRITE);
  player->contended = player->contended || reads || writes;
  if (player->plan->even_drive || !(reads || writes)) {
    return 0.5;
  }
  return reads ? MR_DRIVE_AWAITED_SHARE : 1 - MR_DRIVE_AWAITED_SHARE;
}

/* The parts of their own rates at which queues work now. */
static void find_paces(struct player *player, double *paces) {
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    paces[q] = 1;
  }
  uint32_t read = MR_QUEUE_OF(MR_LINK_NVME_READ);
  uint32_t write = MR_QUEUE_OF(MR_LINK_NVME_WRITE);
  if (player->problem->nvme_mixed_bytes_per_second > 0 && busy(player, read) &&
      busy(player, write)) {
    mr_plan_drive_paces(player->problem, read_share(player), &paces[read], &paces[write]);
  }
  for (mr_link copy = MR_LINK_DEVICE_TO_HOST; copy <= MR_LINK_HOST_TO_DEVICE; copy++) {
    uint32_t nvme = copy == MR_LINK_HOST_TO_DEVICE ? read : write;
    if (busy(player, nvme)) {
      mr_plan_share_link(player->problem, copy, busy(player, MR_QUEUE_OF(copy)), &paces[nvme],
                         &paces[MR_QUEUE_OF(copy)]);
    }
  }
  paces[MR_QUEUE_COMPUTE] = compute_pace(player, paces);
  if (busy(player, MR_QUEUE_HOST)) {
    paces[MR_QUEUE_HOST] =
        mr_host_pace_beside_moves(player->problem, all_moving_bytes_per_second(player, paces));
  }
}

/* How long after its bytes have passed the move that passes is finished: what goes before its bytes
 * counts here too, for it goes on while the bytes of others pass. */
static double delay_seconds(const struct player *player, uint32_t queue) {
  if (!mr_queue_is_nvme(queue)) {
    return 0;
  }
  const struct mr_program_plan *plan = player->plan;
  uint32_t index = player->passed[queue] % plan->instruction_count[queue];
  return bind_seconds(player, &plan->instructions[queue][index]) +
         player->problem->link[queue - MR_QUEUE_OF(0)].latency_seconds;
}

/* Seconds until something passes or is finished; INFINITY: nothing is under way. */
static double next_event(const struct player *player, const double *paces) {
  double pass = INFINITY;
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    if (busy(player, q)) {
      pass = mr_min_double(pass, player->remaining_seconds[q] / paces[q]);
    }
    if (player->passed[q] > player->finished[q]) {
      double due = player->due_seconds[q][player->finished[q]] - player->now_seconds;
      pass = mr_min_double(pass, mr_max_double(due, 0));
    }
  }
  return pass;
}

static void finish_what_is_due(struct player *player, uint32_t queue) {
  const double *due_seconds = player->due_seconds[queue];
  while (player->finished[queue] < player->passed[queue] &&
         due_seconds[player->finished[queue]] <= player->now_seconds + MR_INSTANT) {
    uint32_t count = player->plan->instruction_count[queue];
    uint32_t index = player->finished[queue]++;
    if (index / count == FIRST_STEP) {
      player->plan->instructions[queue][index % count].end_seconds = player->now_seconds;
    }
  }
}

/* Lets time pass until something changes; false where nothing is under way. */
static bool advance(struct player *player) {
  double paces[MR_QUEUE_COUNT];
  find_paces(player, paces);
  double pass = next_event(player, paces);
  if (pass == INFINITY) {
    return false;
  }
  player->now_seconds += pass;
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    if (busy(player, q) && (player->remaining_seconds[q] -= pass * paces[q]) <= MR_INSTANT) {
      player->due_seconds[q][player->passed[q]] = player->now_seconds + delay_seconds(player, q);
      player->passed[q]++;
    }
    finish_what_is_due(player, q);
  }
  return true;
}

static void play(struct player *player) {
  bool going = true;
  while (going) {
    while (start_what_can(player)) {
    }
    going = advance(player);
  }
}

/* What the moves of each link take alone. */
static void sum_links(const struct mr_plan_problem *problem, struct mr_program_plan *plan) {
  for (mr_link l = 0; l < MR_LINK_COUNT; l++) {
    uint32_t queue = MR_QUEUE_OF(l);
    plan->link_seconds[l] = 0;
    for (uint32_t i = 0; i < plan->instruction_count[queue]; i++) {
      uint32_t instance = plan->instructions[queue][i].instance;
      plan->link_seconds[l] += mr_plan_move_seconds(problem, l, plan->instances[instance].bytes);
    }
  }
}

/* *contended_out: how the drive is shared makes a difference. */
static mr_status simulate(const struct mr_plan_problem *problem, struct mr_program_plan *plan,
                          bool *contended_out) {
  *contended_out = false;
  if (!plan->fits) {
    return MR_OK;
  }
  struct player player = {.problem = problem, .plan = plan};
  mr_status status = mr_plan_count_moves(plan);
  if (status != MR_OK) {
    return status;
  }
  status = MR_NO_MEMORY;
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    player.due_seconds[q] =
        mr_allocate((uint64_t)STEPS * plan->instruction_count[q], sizeof *player.due_seconds[q]);
    if (player.due_seconds[q] == NULL) {
      goto done;
    }
  }
  play(&player);
  sum_links(problem, plan);
  status = MR_OK;
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    MR_ASSERT(player.finished[q] == STEPS * plan->instruction_count[q]);
    for (uint32_t i = 0; i < plan->instruction_count[q]; i++) {
      plan->instructions[q][i].start_seconds -= player.start_seconds[FIRST_STEP];
      plan->instructions[q][i].end_seconds -= player.start_seconds[FIRST_STEP];
    }
  }
  plan->step_seconds = (player.start_seconds[STEPS - 1] - player.start_seconds[FIRST_STEP]) /
                       (double)(STEPS - 1 - FIRST_STEP);
  *contended_out = player.contended;

done:
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    free(player.due_seconds[q]);
  }
  return status;
}

mr_status mr_program_plan_simulate(const struct mr_plan_problem *problem,
                                   struct mr_program_plan *plan) {
  bool contended = false;
  return simulate(problem, plan, &contended);
}

mr_status mr_program_plan_share_drive(const struct mr_plan_problem *problem,
                                      struct mr_program_plan *plan) {
  bool contended = false;
  plan->even_drive = true;
  mr_status status = simulate(problem, plan, &contended);
  double even_seconds = plan->step_seconds;
  plan->even_drive = false;
  if (status == MR_OK && contended) {
    status = simulate(problem, plan, &contended);
  }
  if (status == MR_OK && plan->step_seconds > even_seconds) { /* in one plan of 80 */
    plan->even_drive = true;
    status = simulate(problem, plan, &contended);
  }
  return status;
}

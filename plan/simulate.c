/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plays a finished plan: every queue runs its instructions in order, each starts when its waits are
 * over, steps follow one another without a pause. NVMe reads and writes slow each other down where
 * the drive shares its rate. The last but one step is taken for the steady state.
 */
#include <math.h>
#include <stdlib.h>

#include "plan/draft.h"

#define STEPS      5u
#define FIRST_STEP 2u /* the first measured; those before fill the queues */
#define ROUNDING   1e-12

struct player {
  const struct mr_plan_problem *problem;
  struct mr_program_plan *plan;
  uint32_t started[MR_QUEUE_COUNT];
  uint32_t finished[MR_QUEUE_COUNT];
  double remaining_seconds[MR_QUEUE_COUNT];
  double now_seconds;
  double start_seconds[STEPS]; /* of the first op of each step */
};

static double instruction_seconds(const struct player *player, uint32_t queue,
                                  const struct mr_instruction *instruction) {
  if (queue == MR_QUEUE_COMPUTE) {
    return player->problem->op_seconds[instruction->op];
  }
  return mr_draft_move_seconds(player->problem, (mr_link)(queue - MR_QUEUE_OF(0)),
                               player->plan->instances[instruction->instance].bytes);
}

static bool can_start(const struct player *player, uint32_t queue) {
  const struct mr_program_plan *plan = player->plan;
  uint32_t count = plan->instruction_count[queue];
  uint32_t next = player->started[queue];
  if (next > player->finished[queue] || next == STEPS * count) {
    return false;
  }
  uint32_t step = next / count;
  const struct mr_instruction *instruction = &plan->instructions[queue][next % count];
  for (uint32_t i = 0; i < instruction->wait_count; i++) {
    const struct mr_wait *wait = &plan->waits[instruction->first_wait + i];
    if (wait->previous_step && step == 0) continue;
    uint32_t turn = wait->previous_step ? step - 1 : step;
    if (player->finished[wait->queue] < turn * plan->instruction_count[wait->queue] + wait->count) {
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
  return player->started[queue] > player->finished[queue];
}

/* The part of its own rate at which a queue works now. */
static double pace(const struct player *player, uint32_t queue) {
  uint32_t read = MR_QUEUE_OF(MR_LINK_NVME_READ);
  uint32_t write = MR_QUEUE_OF(MR_LINK_NVME_WRITE);
  double mixed = player->problem->nvme_mixed_bytes_per_second;
  if ((queue != read && queue != write) || mixed <= 0 || !busy(player, read) ||
      !busy(player, write)) {
    return 1.0;
  }
  double both = player->problem->link[MR_LINK_NVME_READ].bytes_per_second +
                player->problem->link[MR_LINK_NVME_WRITE].bytes_per_second;
  return mixed < both ? mixed / both : 1.0;
}

/* Lets time pass until something is finished; false where nothing is under way. */
static bool advance(struct player *player) {
  double pass = INFINITY;
  double paces[MR_QUEUE_COUNT];
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    paces[q] = pace(player, q);
    if (busy(player, q)) {
      pass = fmin(pass, player->remaining_seconds[q] / paces[q]);
    }
  }
  if (pass == INFINITY) {
    return false;
  }
  player->now_seconds += pass;
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    if (!busy(player, q)) continue;
    player->remaining_seconds[q] -= pass * paces[q];
    if (player->remaining_seconds[q] <= ROUNDING) {
      uint32_t count = player->plan->instruction_count[q];
      if (player->finished[q] / count == FIRST_STEP) {
        player->plan->instructions[q][player->finished[q] % count].end_seconds =
            player->now_seconds;
      }
      player->finished[q]++;
    }
  }
  return true;
}

mr_status mr_program_plan_simulate(const struct mr_plan_problem *problem,
                                   struct mr_program_plan *plan) {
  if (!plan->fits) {
    return MR_OK;
  }
  struct player player = {.problem = problem, .plan = plan};
  bool going = true;
  while (going) {
    while (start_what_can(&player)) {
    }
    going = advance(&player);
  }
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    MR_ASSERT(player.finished[q] == STEPS * plan->instruction_count[q]);
    for (uint32_t i = 0; i < plan->instruction_count[q]; i++) {
      plan->instructions[q][i].start_seconds -= player.start_seconds[FIRST_STEP];
      plan->instructions[q][i].end_seconds -= player.start_seconds[FIRST_STEP];
    }
  }
  plan->step_seconds = (player.start_seconds[STEPS - 1] - player.start_seconds[FIRST_STEP]) /
                       (double)(STEPS - 1 - FIRST_STEP);
  return MR_OK;
}

/* What lives at each op were everything kept: bytes that must be on the device or below it. Inner
 * is the part of tensors that no op writes. */
struct crowd {
  double *bytes; /* op_count + 1: differences, then sums */
  double *constant;
};

static void add_life(double *bytes, uint32_t first, uint32_t last, uint64_t amount) {
  bytes[first] += (double)amount;
  bytes[last + 1] -= (double)amount;
}

static void measure_crowd(const struct mr_graph *graph, const struct mr_liveness *liveness,
                          struct crowd *crowd) {
  uint32_t n = graph->op_count;
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    uint32_t first = liveness->first[t];
    uint32_t last = liveness->first[t + 1];
    if (first == last) continue;
    const struct mr_access *accesses = liveness->accesses;
    mr_role role = graph->tensors[t].role;
    bool whole = role == MR_INPUT || mr_role_is_persistent(role);
    bool written = false;
    for (uint32_t i = first; i < last; i++) {
      written = written || accesses[i].writes;
    }
    uint32_t from = whole ? 0 : accesses[first].op;
    uint32_t to = whole ? n - 1 : accesses[last - 1].op;
    add_life(crowd->bytes, from, to, graph->tensors[t].bytes);
    if (!written) {
      add_life(crowd->constant, from, to, graph->tensors[t].bytes);
    }
  }
  for (uint32_t k = 0; k < n; k++) {
    add_life(crowd->bytes, k, k, graph->ops[k].scratch_bytes);
  }
  for (uint32_t k = 0; k < n; k++) {
    crowd->bytes[k + 1] += crowd->bytes[k];
    crowd->constant[k + 1] += crowd->constant[k];
  }
}

static double link_rate(const struct mr_plan_problem *problem, mr_link link) {
  bool nvme = link == MR_LINK_NVME_READ || link == MR_LINK_NVME_WRITE;
  bool there = problem->budget_bytes[nvme ? MR_TIER_NVME : MR_TIER_HOST] > 0;
  return there ? problem->link[link].bytes_per_second : 0;
}

/*
 * The bytes that live at an op and exceed the device are below it at that moment, so in each step
 * they come in once; those that are written in a step also go out once. What exceeds the host too
 * comes from NVMe. At best all links work all the time.
 */
static double bound_at(const struct mr_plan_problem *problem, double bytes, double constant) {
  double in = bytes - (double)problem->budget_bytes[MR_TIER_DEVICE];
  double out = in - constant;
  double deep = in - (double)problem->budget_bytes[MR_TIER_HOST];
  double read = link_rate(problem, MR_LINK_NVME_READ);
  double write = link_rate(problem, MR_LINK_NVME_WRITE);
  double to_device = link_rate(problem, MR_LINK_HOST_TO_DEVICE);
  double to_host = link_rate(problem, MR_LINK_DEVICE_TO_HOST);
  double mixed = problem->nvme_mixed_bytes_per_second;
  double bound = 0;
  if (in > 0 && read + to_device > 0) {
    bound = in / (read + to_device);
  }
  if (out > 0 && write + to_host > 0) {
    bound = fmax(bound, out / (write + to_host));
  }
  if (deep > 0 && read > 0) {
    bound = fmax(bound, deep / read);
  }
  double shared = mixed > 0 ? fmax(fmin(mixed, read + write), fmax(read, write)) : read + write;
  if (in > 0 && out > 0 && shared + to_device + to_host > 0) {
    bound = fmax(bound, (in + out) / (shared + to_device + to_host));
  }
  return bound;
}

mr_status mr_plan_bound(const struct mr_plan_problem *problem, const struct mr_liveness *liveness,
                        double *seconds_out) {
  const struct mr_graph *graph = problem->program;
  struct crowd crowd = {mr_allocate(graph->op_count + 1ull, sizeof *crowd.bytes),
                        mr_allocate(graph->op_count + 1ull, sizeof *crowd.constant)};
  if (crowd.bytes == NULL || crowd.constant == NULL) {
    free(crowd.bytes);
    free(crowd.constant);
    return MR_NO_MEMORY;
  }
  measure_crowd(graph, liveness, &crowd);
  double bound = 0;
  for (uint32_t k = 0; k < graph->op_count; k++) {
    bound += problem->op_seconds[k];
  }
  for (uint32_t k = 0; k < graph->op_count; k++) {
    bound = fmax(bound, bound_at(problem, crowd.bytes[k], crowd.constant[k]));
  }
  free(crowd.bytes);
  free(crowd.constant);
  *seconds_out = bound;
  return MR_OK;
}

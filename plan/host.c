/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which ops run on the host, and which tensors they use there. What persists may be used on the
 * host anywhere in the step; what lives inside one step only by its first ops, so that it comes to
 * the device once (an embedding's rows), and by its last, so that it leaves the device once (a
 * gradient); what is carried into the next step not at all.
 *
 * Where the processor reads the device's memory, the choice is among tensors, and those that no op
 * on the device uses are served first: they need no moves at all. Where it does not, the choice is
 * among ops: one that runs on the host has all its paged operands there. What lasts keeps its place
 * there. What the device makes for such an op in each step, a gradient, has its place for itself
 * where the host has room; else gradients of a size take turns in a few places, and the copy of the
 * next waits until the op that used up the one before is over. What the host has no room for stays
 * as it was.
 */
#include "plan/host.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/draft.h"
#include "plan/page_sizes.h"

bool mr_host_may_run(const struct mr_plan_problem *problem) {
  return problem->budget_bytes[MR_TIER_HOST] > 0 &&
         (!problem->host_apart || problem->host_bytes_per_second > 0);
}

double mr_host_op_seconds(const struct mr_plan_problem *problem, mr_op_id op) {
  return (double)problem->program->ops[op].memory_bytes / problem->host_bytes_per_second;
}

double mr_host_pace_beside_moves(const struct mr_plan_problem *problem, double bytes_per_second) {
  double all = problem->host_memory_bytes_per_second;
  double pace = all > 0 ? (all - bytes_per_second) / problem->host_bytes_per_second : 1;
  return mr_min_double(mr_max_double(pace, MR_HOST_LEAST_PACE), 1);
}

double mr_host_least_seconds(const struct mr_plan_problem *problem, mr_op_id op) {
  bool elsewhere = problem->host_apart && mr_host_may_run(problem) &&
                   mr_op_is_host_capable(problem->program, op);
  return elsewhere ? 0 : problem->op_seconds[op];
}

enum mr_host_use mr_host_use_of(const struct mr_graph *graph, const struct mr_liveness *liveness,
                                const bool *runs_on_host, mr_tensor_id tensor) {
  const struct mr_access *accesses = liveness->accesses;
  uint32_t end = liveness->first[tensor + 1];
  uint32_t first = liveness->first[tensor];
  const struct mr_tensor *used = &graph->tensors[tensor];
  uint32_t on_host = 0;
  uint32_t device_turns = 0; /* times that the device takes the tensor up */
  bool host_before = true;
  for (uint32_t i = first; i < end; i++) {
    mr_op_id op = accesses[i].op;
    bool host = runs_on_host == NULL ? mr_op_is_host_capable(graph, op) : runs_on_host[op];
    device_turns += !host && host_before;
    host_before = host;
    on_host += host;
  }
  if (on_host == 0 || used->role == MR_INPUT || used->carried) {
    return MR_HOST_USE_NONE;
  }
  if (mr_tensor_goes_round(used)) {
    return on_host == end - first ? MR_HOST_USE_ALL : MR_HOST_USE_SOME;
  }
  return device_turns == 1 ? MR_HOST_USE_SOME : MR_HOST_USE_NONE;
}

/* Whether the tensor may be used on the host at all. */
static bool is_wanted(const struct mr_plan_problem *problem, mr_tensor_id tensor) {
  for (uint32_t i = 0; i < problem->ban_count; i++) {
    if (problem->bans[i].tensor == tensor && problem->bans[i].decision == MR_DECISION_HOST) {
      return false;
    }
  }
  return problem->on_host[tensor];
}

/* ---- Memory that the processor reads: tensors ---- */

/* Takes the tensors of one kind of use that are wanted on the host while it has room. */
static void place_use(struct mr_draft *draft, enum mr_host_use use, uint64_t *room_pages) {
  for (uint32_t t = 0; t < draft->program->tensor_count; t++) {
    uint64_t pages = draft->host_pages[t];
    if (pages == 0 || pages > *room_pages || !is_wanted(draft->problem, t) ||
        mr_host_use_of(draft->program, &draft->liveness, NULL, t) != use) {
      continue;
    }
    draft->on_host[t] = true;
    *room_pages -= pages;
  }
}

static void place_tensors(struct mr_draft *draft) {
  uint64_t room_pages =
      draft->problem->budget_bytes[MR_TIER_HOST] / mr_plan_host_page_bytes(draft->page_bytes);
  place_use(draft, MR_HOST_USE_ALL, &room_pages);
  place_use(draft, MR_HOST_USE_SOME, &room_pages);
  for (mr_op_id k = 0; k < draft->op_count; k++) {
    draft->runs_on_host[k] = mr_op_is_host_capable(draft->program, k);
  }
}

/* ---- A host that is apart: ops ---- */

/* The operands of an op: inputs, then outputs. */
static uint32_t operand_count(const struct mr_op *op) {
  return op->input_count + op->output_count;
}

static mr_tensor_id operand_of(const struct mr_op *op, uint32_t operand) {
  return operand < op->input_count ? op->inputs[operand] : op->outputs[operand - op->input_count];
}

uint64_t mr_host_handover_bytes(const struct mr_graph *graph, mr_op_id id, uint64_t page_bytes) {
  const struct mr_op *op = &graph->ops[id];
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < op->input_count; i++) {
    uint64_t size = graph->tensors[op->inputs[i]].bytes;
    bytes += mr_plan_pages_of(size, page_bytes) == 0 ? mr_round_up(size, MR_HANDOVER_ALIGNMENT) : 0;
  }
  return bytes;
}

bool mr_host_can_take(const struct mr_graph *graph, mr_op_id id, uint64_t page_bytes) {
  const struct mr_op *op = &graph->ops[id];
  bool can =
      mr_op_is_host_capable(graph, id) && op->scratch_bytes == 0 && op->run[MR_BACKEND_CPU] != NULL;
  for (uint32_t i = 0; can && i < op->output_count; i++) {
    can = mr_plan_pages_of(graph->tensors[op->outputs[i]].bytes, page_bytes) > 0;
  }
  return can && mr_host_handover_bytes(graph, id, page_bytes) <= MR_HANDOVER_BYTES;
}

/* Whether the queue of the host could run the op, were its operands used as they must. */
static bool can_be_handed_over(const struct mr_draft *draft, mr_op_id id) {
  const struct mr_op *op = &draft->program->ops[id];
  bool can = mr_host_can_take(draft->program, id, draft->page_bytes);
  for (uint32_t i = 0; can && i < operand_count(op); i++) {
    mr_tensor_id t = operand_of(op, i);
    can = draft->pages[t] == 0 || is_wanted(draft->problem, t);
  }
  return can;
}

static bool operands_are_well_used(const struct mr_draft *draft, mr_op_id id) {
  const struct mr_op *op = &draft->program->ops[id];
  bool well = true;
  for (uint32_t i = 0; well && i < operand_count(op); i++) {
    mr_tensor_id t = operand_of(op, i);
    well = draft->pages[t] == 0 || mr_host_use_of(draft->program, &draft->liveness,
                                                  draft->runs_on_host, t) != MR_HOST_USE_NONE;
  }
  return well;
}

/* Leaves ops to the device until every tensor is used on the host as it may be: one op fewer there
 * changes how its tensors are used. */
static void leave_ill_used(struct mr_draft *draft) {
  bool changed = true;
  while (changed) {
    changed = false;
    for (mr_op_id k = 0; k < draft->op_count; k++) {
      if (draft->runs_on_host[k] && !operands_are_well_used(draft, k)) {
        draft->runs_on_host[k] = false;
        changed = true;
      }
    }
  }
}

/* What the device makes for ops on the host has places of its own there in this part of what host
 * and device have beside all that lasts: in more it crowds out what has to rest there. Beyond it
 * tensors take turns in the places that there are, of which each finds two that hold it: ops use
 * the one while the other is filled. With four of each size, which no others took, less could rest
 * and run on a crowded host: plans of models of 12 to 24 layers whose updates do not wait for a
 * norm were 0.6 % longer on average, up to 23 %. */
#define MADE_PART   0.45
#define LEAST_TURNS 2u
#define TURNED_PART 0.9 /* of what they could without them, that ops get through at least */
#define MOST_TURNS  256u

/* A place that tensors take in turns. */
struct turn {
  uint64_t pages;
  mr_op_id last_op; /* that uses what is there */
};

/* What ops on the host take of it: the pages of their operands, and what they are handed. */
struct host_share {
  uint64_t pages;
  uint64_t handover_bytes;
  uint64_t made_pages; /* of these, of what the device makes for such ops */
  uint64_t made_limit; /* more of which take turns */
  bool in_turns;
  struct turn turns[MOST_TURNS];
  uint32_t turn_count;
};

/* Whether the device makes the tensor in each step and ops on the host use it last: it is in its
 * place there from the op that makes it at the earliest to the last that uses it. */
static bool is_made_for_host(const struct mr_draft *draft, mr_tensor_id t) {
  const struct mr_liveness *liveness = &draft->liveness;
  const struct mr_tensor *tensor = &draft->program->tensors[t];
  uint32_t first = liveness->first[t];
  uint32_t end = liveness->first[t + 1];
  return first < end && tensor->role != MR_INPUT && !mr_tensor_goes_round(tensor) &&
         !draft->runs_on_host[liveness->accesses[first].op] &&
         draft->runs_on_host[liveness->accesses[end - 1].op];
}

/* Gives a tensor a place: one of its own while there is room for more, then the one that was left
 * first of those that hold it. False: there is none. */
static bool take_turn(struct mr_draft *draft, mr_tensor_id t, struct host_share *use) {
  const struct mr_liveness *liveness = &draft->liveness;
  mr_op_id first_op = liveness->accesses[liveness->first[t]].op;
  uint64_t pages = draft->host_pages[t];
  uint32_t places = 0;
  uint32_t found = MOST_TURNS;
  for (uint32_t i = 0; i < use->turn_count; i++) {
    const struct turn *turn = &use->turns[i];
    if (turn->pages < pages) continue;
    bool left = turn->last_op < first_op;
    bool before = found == MOST_TURNS || turn->last_op < use->turns[found].last_op;
    found = left && before ? i : found;
    places++;
  }
  bool more = places < LEAST_TURNS || use->made_pages + pages <= use->made_limit;
  if (more && use->turn_count < MOST_TURNS) {
    found = use->turn_count++;
    use->turns[found].pages = pages;
    use->made_pages += pages;
    use->pages += pages;
  }
  if (found == MOST_TURNS) {
    return false;
  }
  use->turns[found].last_op = liveness->accesses[liveness->first[t + 1] - 1].op;
  draft->turn_of[t] = found;
  return true;
}

static bool has_room(const struct mr_draft *draft, const struct host_share *use) {
  uint64_t bytes = use->pages * mr_plan_host_page_bytes(draft->page_bytes);
  return bytes + mr_round_up(use->handover_bytes, MR_HANDOVER_UNIT) <=
         draft->problem->budget_bytes[MR_TIER_HOST];
}

/* Gives the op's operands places; false, and none, where there is no room for all. */
static bool take_places(struct mr_draft *draft, mr_op_id id, struct host_share *use) {
  const struct mr_op *op = &draft->program->ops[id];
  mr_tensor_id taken[2 * MR_MAX_OPERANDS];
  uint32_t taken_count = 0;
  bool room = true;
  struct host_share more = *use;
  more.handover_bytes += mr_host_handover_bytes(draft->program, id, draft->page_bytes);
  for (uint32_t i = 0; i < operand_count(op); i++) {
    mr_tensor_id t = operand_of(op, i);
    if (draft->pages[t] > 0 && !draft->on_host[t]) {
      draft->on_host[t] = true;
      taken[taken_count++] = t;
      bool made = is_made_for_host(draft, t);
      if (made && more.in_turns) {
        room = room && take_turn(draft, t, &more);
      } else {
        more.pages += draft->host_pages[t];
        more.made_pages += made ? draft->host_pages[t] : 0;
      }
    }
  }
  room = room && has_room(draft, &more);
  *use = room ? more : *use;
  while (!room && taken_count > 0) {
    draft->on_host[taken[--taken_count]] = false;
    draft->turn_of[taken[taken_count]] = MR_NO_TURN;
  }
  return room;
}

/* Host pages beside those of what the ops that are wanted there use and the device does not make;
 * on_host serves as a list of what was counted. */
static uint64_t room_for_made(struct mr_draft *draft, const bool *wanted) {
  struct host_share all = {0};
  uint64_t page_bytes = mr_plan_host_page_bytes(draft->page_bytes);
  memset(draft->on_host, 0, draft->program->tensor_count * sizeof *draft->on_host);
  memcpy(draft->runs_on_host, wanted, draft->op_count * sizeof *wanted);
  for (mr_op_id k = 0; k < draft->op_count; k++) {
    const struct mr_op *op = &draft->program->ops[k];
    for (uint32_t i = 0; wanted[k] && i < operand_count(op); i++) {
      mr_tensor_id t = operand_of(op, i);
      bool counts = !draft->on_host[t] && !is_made_for_host(draft, t);
      all.pages += counts ? draft->host_pages[t] : 0;
      draft->on_host[t] = true;
    }
    all.handover_bytes +=
        wanted[k] ? mr_host_handover_bytes(draft->program, k, draft->page_bytes) : 0;
  }
  uint64_t bytes = all.pages * page_bytes + mr_round_up(all.handover_bytes, MR_HANDOVER_UNIT);
  uint64_t budget = draft->problem->budget_bytes[MR_TIER_HOST];
  return bytes < budget ? (budget - bytes) / page_bytes : 0;
}

/* Takes places for the ops that are wanted on the host, each where there is room, and for none
 * else. Returns the bytes that those which have places get through. */
static double take_all(struct mr_draft *draft, const bool *wanted, struct host_share *use) {
  uint32_t tensor_count = draft->program->tensor_count;
  double bytes = 0;
  memset(draft->on_host, 0, tensor_count * sizeof *draft->on_host);
  memset(draft->turn_of, 0xff, tensor_count * sizeof *draft->turn_of);
  memcpy(draft->runs_on_host, wanted, draft->op_count * sizeof *wanted);
  for (mr_op_id k = 0; k < draft->op_count; k++) {
    draft->runs_on_host[k] = wanted[k] && take_places(draft, k, use);
    bytes += draft->runs_on_host[k] ? (double)draft->program->ops[k].memory_bytes : 0;
  }
  return bytes;
}

/* The same without turns where there is room for that, or where turns make none: of gradients that
 * wait for the norm of all of them each has a place of its own. Turns make copies wait for ops on
 * the host. */
static mr_status take_best(struct mr_draft *draft, struct host_share *use) {
  const struct host_share alone = *use;
  bool *wanted = mr_allocate(draft->op_count, sizeof *wanted);
  double all = 0;
  if (wanted == NULL) {
    return MR_NO_MEMORY;
  }
  memcpy(wanted, draft->runs_on_host, draft->op_count * sizeof *wanted);
  for (mr_op_id k = 0; k < draft->op_count; k++) {
    all += wanted[k] ? (double)draft->program->ops[k].memory_bytes : 0;
  }
  double bytes = take_all(draft, wanted, use);
  if (bytes < all || use->made_pages > use->made_limit) {
    struct host_share turned = {.made_limit = use->made_limit, .in_turns = true};
    *use = turned;
    double most = take_all(draft, wanted, use);
    if (most < all) {
      turned.made_limit = mr_min_u64(turned.made_limit, room_for_made(draft, wanted));
      *use = turned;
      most = take_all(draft, wanted, use);
    }
    if (most < TURNED_PART * bytes) {
      *use = alone;
      (void)take_all(draft, wanted, use);
    }
  }
  free(wanted);
  draft->turn_count = use->turn_count;
  draft->turn_pages = mr_allocate(use->turn_count, sizeof *draft->turn_pages);
  for (uint32_t i = 0; draft->turn_pages != NULL && i < use->turn_count; i++) {
    draft->turn_pages[i] = use->turns[i].pages;
  }
  return draft->turn_pages == NULL ? MR_NO_MEMORY : MR_OK;
}

/* Pages of the host. */
static uint64_t made_limit(const struct mr_draft *draft) {
  const uint64_t *budget = draft->problem->budget_bytes;
  double page_bytes = (double)mr_plan_host_page_bytes(draft->page_bytes);
  double pages = ((double)budget[MR_TIER_HOST] + (double)budget[MR_TIER_DEVICE]) / page_bytes;
  for (uint32_t t = 0; t < draft->program->tensor_count; t++) {
    pages -= mr_tensor_goes_round(&draft->program->tensors[t]) ? (double)draft->host_pages[t] : 0;
  }
  return pages < 0 ? 0 : pages * MADE_PART < 1e15 ? (uint64_t)(pages * MADE_PART) : UINT64_MAX;
}

static mr_status place_ops(struct mr_draft *draft) {
  struct host_share use = {.made_limit = made_limit(draft)};
  for (mr_op_id k = 0; k < draft->op_count; k++) {
    draft->runs_on_host[k] = can_be_handed_over(draft, k);
  }
  leave_ill_used(draft);
  mr_status status = take_best(draft, &use);
  if (status != MR_OK) {
    return status;
  }
  leave_ill_used(draft);
  for (uint32_t t = 0; t < draft->program->tensor_count; t++) {
    draft->on_host[t] = draft->on_host[t] &&
                        mr_host_use_of(draft->program, &draft->liveness, draft->runs_on_host, t) !=
                            MR_HOST_USE_NONE;
    draft->turn_of[t] =
        draft->on_host[t] && is_made_for_host(draft, t) ? draft->turn_of[t] : MR_NO_TURN;
  }
  for (mr_op_id k = 0; k < draft->op_count; k++) {
    draft->handover_bytes +=
        draft->runs_on_host[k] ? mr_host_handover_bytes(draft->program, k, draft->page_bytes) : 0;
  }
  draft->handover_bytes = mr_round_up(draft->handover_bytes, MR_HANDOVER_UNIT);
  return MR_OK;
}

/* ---- Both ---- */

/* Takes the accesses on the host out of the liveness. */
static mr_status split_liveness(struct mr_draft *draft) {
  struct mr_liveness *liveness = &draft->liveness;
  uint32_t tensor_count = draft->program->tensor_count;
  uint32_t total = liveness->first[tensor_count];
  struct mr_liveness host = {mr_allocate(total, sizeof *host.accesses),
                             mr_allocate(tensor_count + 1ull, sizeof *host.first), tensor_count};
  if (host.accesses == NULL || host.first == NULL) {
    mr_liveness_fini(&host);
    return MR_NO_MEMORY;
  }
  uint32_t next = 0;
  uint32_t kept = 0;
  for (uint32_t t = 0; t < tensor_count; t++) {
    for (; next < liveness->first[t + 1]; next++) {
      struct mr_access access = liveness->accesses[next];
      if (draft->on_host[t] && draft->runs_on_host[access.op]) {
        host.accesses[next - kept] = access;
      } else {
        liveness->accesses[kept++] = access;
      }
    }
    liveness->first[t + 1] = kept;
    host.first[t + 1] = next - kept;
  }
  draft->host_liveness = host;
  return MR_OK;
}

mr_status mr_draft_place(struct mr_draft *draft) {
  const struct mr_plan_problem *problem = draft->problem;
  draft->on_host = mr_allocate(draft->program->tensor_count, sizeof *draft->on_host);
  draft->runs_on_host = mr_allocate(draft->op_count, sizeof *draft->runs_on_host);
  draft->turn_of = mr_allocate(draft->program->tensor_count, sizeof *draft->turn_of);
  if (draft->on_host == NULL || draft->runs_on_host == NULL || draft->turn_of == NULL) {
    return MR_NO_MEMORY;
  }
  memset(draft->turn_of, 0xff, draft->program->tensor_count * sizeof *draft->turn_of);
  mr_status status = MR_OK;
  if (problem->on_host != NULL && mr_host_may_run(problem)) {
    if (problem->host_apart) {
      status = place_ops(draft);
    } else {
      place_tensors(draft);
    }
  }
  return status == MR_OK ? split_liveness(draft) : status;
}

/* Whether a bound knows that all accesses of a tensor need the device. Of a host that is apart any
 * op that may run there may make use, and leave the others to the device. */
static bool needs_device(const struct mr_plan_problem *problem, const struct mr_liveness *liveness,
                         mr_tensor_id t) {
  const struct mr_tensor *tensor = &problem->program->tensors[t];
  if (!mr_host_may_run(problem)) {
    return true;
  }
  return problem->host_apart
             ? tensor->role == MR_INPUT || tensor->carried
             : mr_host_use_of(problem->program, liveness, NULL, t) == MR_HOST_USE_NONE;
}

/* Keeps the accesses of a tensor, `count` of them, that are not by an op that the host may run, at
 * `kept`, which may overlap them from below; returns how many. Who is the first to access it after
 * such an op has written all of it reads nothing that the device had before. `round`: behind the
 * last access comes the first. */
static uint32_t keep_device_ops(const struct mr_graph *graph, const struct mr_access *accesses,
                                uint32_t count, bool round, struct mr_access *kept) {
  uint32_t kept_count = 0;
  bool replaced = false;
  for (uint32_t i = 0; i < count && round; i++) {
    bool hosted = mr_op_is_host_capable(graph, accesses[i].op);
    replaced = hosted && (replaced || !accesses[i].reads);
  }
  for (uint32_t i = 0; i < count; i++) {
    struct mr_access access = accesses[i];
    if (mr_op_is_host_capable(graph, access.op)) {
      replaced = replaced || !access.reads;
    } else {
      access.reads = access.reads && !replaced;
      replaced = false;
      kept[kept_count++] = access;
    }
  }
  return kept_count;
}

mr_status mr_host_liveness_needed(const struct mr_plan_problem *problem,
                                  struct mr_liveness *liveness_out) {
  const struct mr_graph *graph = problem->program;
  struct mr_liveness liveness;
  mr_status status = mr_liveness_init(&liveness, graph);
  if (status != MR_OK) {
    return status;
  }
  bool *needs = mr_allocate(graph->tensor_count, sizeof *needs);
  if (needs == NULL) {
    mr_liveness_fini(&liveness);
    return MR_NO_MEMORY;
  }
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    needs[t] = needs_device(problem, &liveness, t);
  }
  uint32_t begin = 0;
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    uint32_t count = liveness.first[t + 1] - begin;
    const struct mr_access *accesses = &liveness.accesses[begin];
    struct mr_access *kept = &liveness.accesses[liveness.first[t]];
    bool round = mr_tensor_goes_round(&graph->tensors[t]);
    begin += count;
    if (needs[t]) {
      memmove(kept, accesses, count * sizeof *kept);
    } else {
      count = keep_device_ops(graph, accesses, count, round, kept);
    }
    liveness.first[t + 1] = liveness.first[t] + count;
  }
  free(needs);
  *liveness_out = liveness;
  return MR_OK;
}

uint64_t mr_program_plan_handover_bytes(const struct mr_program_plan *plan) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < plan->instruction_count[MR_QUEUE_HOST]; i++) {
    bytes += mr_host_handover_bytes(plan->program, plan->instructions[MR_QUEUE_HOST][i].op,
                                    plan->page_bytes);
  }
  return mr_round_up(bytes, MR_HANDOVER_UNIT);
}

uint64_t mr_program_plan_host_bytes(const struct mr_program_plan *plan) {
  return plan->host_page_count * mr_plan_host_page_bytes(plan->page_bytes) +
         mr_program_plan_handover_bytes(plan);
}

uint32_t mr_plan_count_host_ops(const struct mr_program_plan *plan) {
  uint32_t count = 0;
  for (uint32_t k = 0; k < plan->program->op_count; k++) {
    bool on_host = false;
    for (uint32_t i = plan->first_operand[k]; i < plan->first_operand[k + 1]; i++) {
      uint32_t operand = plan->operands[i];
      on_host = on_host || (operand != MR_NO_INSTANCE && plan->instances[operand].on_host);
    }
    count += on_host;
  }
  return count;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The queues of a plan: every op and every move in the total order, births and operands. */
#include <stdlib.h>

#include "base/base.h"
#include "plan/host.h"
#include "plan/lower.h"

/*
 * A move to be sorted into its queue: by the op it hangs on, then by how soon it is wanted. But a
 * host that is apart makes last what is wanted first: fetches behind one that waits for it would
 * wait too. Beside it they go as the sweep began them; a step takes up to 15 % less.
 */
struct move {
  uint32_t op;
  uint32_t distance;
  uint32_t gap;
  double seconds; /* 0: it goes by distance */
};

static int by_order(const void *left, const void *right) {
  const struct move *a = left;
  const struct move *b = right;
  if (a->op != b->op) {
    return a->op < b->op ? -1 : 1;
  }
  if (a->seconds != b->seconds) {
    return a->seconds < b->seconds ? -1 : 1;
  }
  if (a->distance != b->distance) {
    return a->distance < b->distance ? -1 : 1;
  }
  return a->gap < b->gap ? -1 : a->gap > b->gap;
}

/* The moves of one link, sorted; returns how many. */
static uint32_t list_moves(const struct mr_draft *draft, mr_link link, struct move *moves) {
  bool fetch = mr_link_fetches(link);
  uint8_t decision = mr_link_is_nvme(link) ? MR_DECISION_NVME : MR_DECISION_HOST;
  bool swept = link == MR_LINK_HOST_TO_DEVICE && mr_draft_is_beside_host(draft);
  uint32_t n = draft->op_count;
  uint32_t count = 0;
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    const struct mr_draft_gap *gap = &draft->gaps[i];
    if (gap->decision != decision || gap->resting || (fetch ? gap->final : !gap->written)) continue;
    moves[count++] = fetch ? (struct move){gap->fetch_op % n, gap->before_op - gap->fetch_op, i,
                                           swept ? gap->fetch_seconds : 0}
                           : (struct move){gap->evict_op, gap->release_op - gap->evict_op, i, 0};
  }
  qsort(moves, count, sizeof *moves, by_order);
  return count;
}

static mr_status add_link(struct mr_lowering *l, mr_link link, struct move *moves) {
  const struct mr_draft *draft = l->draft;
  struct mr_program_plan *plan = l->plan;
  uint32_t queue = MR_QUEUE_OF(link);
  bool fetch = mr_link_fetches(link);
  uint32_t count = list_moves(draft, link, moves);
  plan->instructions[queue] = mr_allocate(count, sizeof **plan->instructions);
  if (plan->instructions[queue] == NULL) {
    return MR_NO_MEMORY;
  }
  plan->instruction_count[queue] = count;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t gap = moves[i].gap;
    uint32_t access = fetch ? mr_lowering_closing(draft, gap) : mr_lowering_opening(draft, gap);
    struct mr_instruction *move = &plan->instructions[queue][i];
    *move = (struct mr_instruction){.op = moves[i].op, .slot = l->slot_of_gap[gap]};
    move->after_op = draft->problem->policy == MR_POLICY_LRU ||
                     (!fetch && draft->gaps[gap].yielded &&
                      draft->gaps[gap].evict_op > draft->gaps[gap].after_op);
    move->needed_by = (moves[i].op + moves[i].distance) % draft->op_count;
    move->instance = l->stay_of_access[access];
    move->first_birth = plan->birth_count;
    if (fetch) {
      plan->births[plan->birth_count++] = move->instance;
      move->birth_count = 1;
    }
    plan->moved_bytes[link] += plan->instances[move->instance].bytes;
  }
  return MR_OK;
}

/* Instances that no move brings, by the op that is the first to touch them. */
static void add_born(struct mr_lowering *l, struct mr_instruction *run, uint32_t stay) {
  const struct mr_instance *instance = &l->plan->instances[stay];
  if (!instance->small && !instance->always && instance->first_op == run->op) {
    l->plan->births[l->plan->birth_count++] = stay;
    run->birth_count++;
  }
}

/* The instance of one operand; the cursors follow each tensor's accesses on the device. */
static uint32_t operand_at(const struct mr_lowering *l, uint32_t op_id, mr_tensor_id t,
                           uint32_t *cursor) {
  const struct mr_liveness *liveness = &l->draft->liveness;
  if (l->host_stay[t] != MR_NO_INSTANCE && l->draft->runs_on_host[op_id]) {
    return l->host_stay[t];
  }
  while (liveness->accesses[liveness->first[t] + cursor[t]].op < op_id) {
    cursor[t]++;
  }
  return l->stay_of_access[liveness->first[t] + cursor[t]];
}

static void add_run(struct mr_lowering *l, uint32_t op_id, uint32_t *cursor, uint32_t scratch) {
  const struct mr_draft *draft = l->draft;
  struct mr_program_plan *plan = l->plan;
  const struct mr_op *op = &draft->program->ops[op_id];
  struct mr_instruction *run = &plan->instructions[MR_QUEUE_COMPUTE][op_id];
  uint32_t *operands = &plan->operands[plan->first_operand[op_id]];
  *run = (struct mr_instruction){.op = op_id,
                                 .needed_by = op_id,
                                 .instance = MR_NO_INSTANCE,
                                 .slot = MR_NO_SLOT,
                                 .first_birth = plan->birth_count};
  run->handed_over = draft->problem->host_apart && draft->runs_on_host[op_id];
  for (uint32_t i = 0; i < op->input_count + op->output_count; i++) {
    bool input = i < op->input_count;
    mr_tensor_id t = input ? op->inputs[i] : op->outputs[i - op->input_count];
    operands[i] = operand_at(l, op_id, t, cursor);
    if (!input && cursor[t] == mr_draft_birth(draft, t)) {
      add_born(l, run, operands[i]);
    }
  }
  operands[op->input_count + op->output_count] = scratch;
  if (scratch != MR_NO_INSTANCE) {
    add_born(l, run, scratch);
  }
}

static mr_status add_compute(struct mr_lowering *l) {
  const struct mr_graph *graph = l->draft->program;
  struct mr_program_plan *plan = l->plan;
  uint32_t *cursor = mr_allocate(graph->tensor_count, sizeof *cursor);
  if (cursor == NULL) {
    return MR_NO_MEMORY;
  }
  uint32_t scratches = 0;
  for (uint32_t k = 0; k < graph->op_count; k++) {
    scratches += graph->ops[k].scratch_bytes > 0;
  }
  uint32_t scratch = plan->instance_count - scratches;
  for (uint32_t k = 0; k < graph->op_count; k++) {
    bool has = graph->ops[k].scratch_bytes > 0;
    add_run(l, k, cursor, has ? scratch : MR_NO_INSTANCE);
    scratch += has;
    plan->compute_seconds += mr_draft_op_seconds(l->draft, k);
  }
  free(cursor);
  plan->host_op_count = mr_plan_count_host_ops(plan);
  return MR_OK;
}

/* The queue of the host: the ops that compute hands over. */
static mr_status add_host_queue(struct mr_lowering *l) {
  struct mr_program_plan *plan = l->plan;
  const struct mr_instruction *compute = plan->instructions[MR_QUEUE_COMPUTE];
  uint32_t count = 0;
  for (mr_op_id k = 0; k < l->draft->op_count; k++) {
    count += compute[k].handed_over;
  }
  struct mr_instruction *queue = mr_allocate(count, sizeof *queue);
  if (queue == NULL) {
    return MR_NO_MEMORY;
  }
  plan->instructions[MR_QUEUE_HOST] = queue;
  for (mr_op_id k = 0; k < l->draft->op_count; k++) {
    if (!compute[k].handed_over) continue;
    queue[plan->instruction_count[MR_QUEUE_HOST]++] = (struct mr_instruction){
        .op = k, .needed_by = k, .instance = MR_NO_INSTANCE, .slot = MR_NO_SLOT};
    plan->host_seconds += mr_host_op_seconds(l->draft->problem, k);
  }
  return MR_OK;
}

mr_status mr_lowering_add_instructions(struct mr_lowering *l) {
  const struct mr_graph *graph = l->draft->program;
  struct mr_program_plan *plan = l->plan;
  uint32_t n = graph->op_count;
  plan->first_operand = mr_allocate(n + 1ull, sizeof *plan->first_operand);
  plan->instructions[MR_QUEUE_COMPUTE] = mr_allocate(n, sizeof **plan->instructions);
  plan->births = mr_allocate(plan->instance_count, sizeof *plan->births);
  struct move *moves = mr_allocate(l->draft->gap_count, sizeof *moves);
  mr_status status = MR_NO_MEMORY;
  if (plan->first_operand == NULL || plan->instructions[MR_QUEUE_COMPUTE] == NULL ||
      plan->births == NULL || moves == NULL) {
    goto done;
  }
  plan->instruction_count[MR_QUEUE_COMPUTE] = n;
  for (uint32_t k = 0; k < n; k++) {
    plan->first_operand[k + 1] =
        plan->first_operand[k] + graph->ops[k].input_count + graph->ops[k].output_count + 1;
  }
  plan->operands = mr_allocate(plan->first_operand[n], sizeof *plan->operands);
  if (plan->operands == NULL) {
    goto done;
  }
  status = add_compute(l);
  status = status == MR_OK ? add_host_queue(l) : status;
  for (mr_link link = 0; link < MR_LINK_COUNT && status == MR_OK; link++) {
    status = add_link(l, link, moves);
  }

done:
  free(moves);
  return status;
}

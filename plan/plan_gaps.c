/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gaps of a finished plan, told from its moves: for plans that no draft is behind. A stay that
 * a link brings closes one gap, that before its first access; every other gap is kept. Uses on the
 * host lie inside gaps, before the first one or after the last one.
 */
#include <stdlib.h>

#include "base/base.h"
#include "plan/plan_file.h"

struct teller {
  struct mr_program_plan *plan;
  struct mr_liveness liveness;
  uint8_t
      *fetched;  /* for each instance: the decision whose link brings it; MR_DECISION_KEEP: none */
  bool *written; /* for each instance: a link takes it out */
  uint32_t *stays; /* for each access: its instance */
  /* For each tensor: the last op that uses it on the host before the device has it, and the first
   * that does after; MR_NO_OP. */
  uint32_t *made_below;
  uint32_t *taken_below;
};

static void mark_moves(struct teller *t) {
  const struct mr_program_plan *plan = t->plan;
  for (mr_link link = 0; link < MR_LINK_COUNT; link++) {
    uint32_t queue = MR_QUEUE_OF(link);
    for (uint32_t i = 0; i < plan->instruction_count[queue]; i++) {
      uint32_t stay = plan->instructions[queue][i].instance;
      if (link == MR_LINK_HOST_TO_DEVICE) {
        t->fetched[stay] = MR_DECISION_HOST;
      } else if (link == MR_LINK_NVME_READ) {
        t->fetched[stay] = MR_DECISION_NVME;
      } else {
        t->written[stay] = true;
      }
    }
  }
}

/* The operand that an op has of a tensor. */
static uint32_t operand_of(const struct mr_program_plan *plan, mr_op_id op_id,
                           mr_tensor_id tensor) {
  const struct mr_op *op = &plan->program->ops[op_id];
  uint32_t at = 0;
  while ((at < op->input_count ? op->inputs[at] : op->outputs[at - op->input_count]) != tensor) {
    at++;
  }
  return plan->operands[plan->first_operand[op_id] + at];
}

/* Each access finds its op's operand; an op that reads and writes a tensor has one access. Those on
 * the host leave the list. */
static void mark_stays(struct teller *t) {
  const struct mr_program_plan *plan = t->plan;
  uint32_t *first = t->liveness.first;
  uint32_t next = 0;
  uint32_t kept = 0;
  for (uint32_t tensor = 0; tensor < plan->program->tensor_count; tensor++) {
    t->made_below[tensor] = MR_NO_OP;
    t->taken_below[tensor] = MR_NO_OP;
    for (; next < first[tensor + 1]; next++) {
      struct mr_access access = t->liveness.accesses[next];
      uint32_t stay = operand_of(plan, access.op, tensor);
      if (!plan->instances[stay].on_host) {
        t->liveness.accesses[kept] = access;
        t->stays[kept++] = stay;
      } else if (kept == first[tensor]) {
        t->made_below[tensor] = access.op;
      } else if (t->taken_below[tensor] == MR_NO_OP) {
        t->taken_below[tensor] = access.op;
      }
    }
    first[tensor + 1] = kept;
  }
}

/* True where the access at op `closing` is the first of its stay, seen from the access before it at
 * op `opening` of stay `before`. */
static bool begins_stay(const struct teller *t, uint32_t stay, uint32_t before, uint32_t opening,
                        uint32_t closing) {
  uint32_t n = t->plan->program->op_count;
  uint32_t from = t->plan->instances[stay].first_op;
  return before != stay || (opening + n - from) % n >= (closing + n - from) % n;
}

static void add_gap(struct teller *t, uint32_t opening, uint32_t closing, mr_tensor_id tensor) {
  struct mr_program_plan *plan = t->plan;
  const struct mr_access *accesses = t->liveness.accesses;
  uint32_t n = plan->program->op_count;
  uint32_t stay = t->stays[closing];
  uint32_t before = t->stays[opening];
  struct mr_gap gap = {
      .tensor = tensor, .after_op = accesses[opening].op, .before_op = accesses[closing].op};
  if (t->fetched[stay] != MR_DECISION_KEEP &&
      begins_stay(t, stay, before, gap.after_op, gap.before_op)) {
    gap.decision = t->fetched[stay];
    gap.release_op = (plan->instances[before].last_op + 1) % n;
    gap.fetch_op = plan->instances[stay].first_op;
    gap.written = t->written[before];
  }
  plan->gaps[plan->gap_count++] = gap;
}

/* What does not last is made on the host by its first ops: it comes to the device after them. */
static void add_made_below(struct teller *t, uint32_t first, mr_tensor_id tensor) {
  struct mr_program_plan *plan = t->plan;
  uint32_t made = t->made_below[tensor];
  plan->gaps[plan->gap_count++] = (struct mr_gap){
      .tensor = tensor,
      .after_op = made,
      .before_op = t->liveness.accesses[first].op,
      .release_op = (made + 1) % plan->program->op_count,
      .fetch_op = plan->instances[t->stays[first]].first_op,
      .decision = MR_DECISION_HOST,
  };
}

/* What does not last is used on the host by its last ops: it left the device before them. */
static void add_final(struct teller *t, uint32_t last, mr_tensor_id tensor) {
  struct mr_program_plan *plan = t->plan;
  const struct mr_instance *stay = &plan->instances[t->stays[last]];
  plan->gaps[plan->gap_count++] = (struct mr_gap){
      .tensor = tensor,
      .after_op = t->liveness.accesses[last].op,
      .before_op = t->taken_below[tensor],
      .release_op = (stay->last_op + 1) % plan->program->op_count,
      .fetch_op = t->taken_below[tensor],
      .decision = MR_DECISION_HOST,
      .written = t->written[t->stays[last]],
      .final = true,
  };
}

/* A persistent tensor that no op on the device touches rests somewhere all the time. */
static void add_resting(struct teller *t, mr_tensor_id tensor) {
  static const uint8_t decisions[MR_TIER_COUNT] = {MR_DECISION_KEEP, MR_DECISION_HOST,
                                                   MR_DECISION_NVME};
  struct mr_program_plan *plan = t->plan;
  plan->gaps[plan->gap_count++] = (struct mr_gap){
      .tensor = tensor,
      .after_op = plan->program->op_count - 1,
      .decision = decisions[plan->homes[tensor].tier],
  };
}

/* Small tensors and inputs have no gaps. */
static bool has_gaps(const struct teller *t, mr_tensor_id tensor) {
  const struct mr_program_plan *plan = t->plan;
  uint32_t first = t->liveness.first[tensor];
  if (plan->program->tensors[tensor].role == MR_INPUT) {
    return false;
  }
  if (first < t->liveness.first[tensor + 1]) {
    return !plan->instances[t->stays[first]].small;
  }
  if (!mr_tensor_goes_round(&plan->program->tensors[tensor])) {
    return false;
  }
  const struct mr_home *home = &plan->homes[tensor];
  return home->tier != MR_TIER_DEVICE || !plan->instances[home->instance].small;
}

/* No gap leads to the birth of a carried tensor, or of a derived one on the device: nobody wants
 * what it held before. */
static bool leads_to_birth(const struct teller *t, mr_tensor_id tensor, uint32_t opening) {
  const struct mr_access *accesses = t->liveness.accesses;
  bool born_before = false;
  for (uint32_t i = t->liveness.first[tensor]; i <= opening; i++) {
    born_before = born_before || !accesses[i].reads;
  }
  const struct mr_tensor *born = &t->plan->program->tensors[tensor];
  bool below = t->made_below[tensor] != MR_NO_OP || t->taken_below[tensor] != MR_NO_OP;
  bool derived = born->role == MR_DERIVED && mr_tensor_goes_round(born) && !below;
  return (born->carried || derived) && !accesses[opening + 1].reads && !born_before;
}

static void tell_gaps(struct teller *t) {
  const struct mr_graph *program = t->plan->program;
  for (uint32_t tensor = 0; tensor < program->tensor_count; tensor++) {
    uint32_t first = t->liveness.first[tensor];
    uint32_t end = t->liveness.first[tensor + 1];
    if (!has_gaps(t, tensor)) continue;
    bool round = mr_tensor_goes_round(&program->tensors[tensor]);
    if (!round && t->made_below[tensor] != MR_NO_OP) {
      add_made_below(t, first, tensor);
    }
    for (uint32_t i = first; i + 1 < end; i++) {
      if (!leads_to_birth(t, tensor, i)) {
        add_gap(t, i, i + 1, tensor);
      }
    }
    if (!round) {
      if (t->taken_below[tensor] != MR_NO_OP) {
        add_final(t, end - 1, tensor);
      }
    } else if (first == end) {
      add_resting(t, tensor);
    } else {
      add_gap(t, end - 1, first, tensor);
    }
  }
}

mr_status mr_plan_derive_gaps(struct mr_program_plan *plan) {
  struct teller t = {.plan = plan};
  mr_status status = mr_liveness_init(&t.liveness, plan->program);
  if (status != MR_OK) {
    return status;
  }
  uint32_t tensors = plan->program->tensor_count;
  uint64_t most = (uint64_t)t.liveness.first[tensors] + tensors;
  t.fetched = mr_allocate(plan->instance_count, sizeof *t.fetched);
  t.written = mr_allocate(plan->instance_count, sizeof *t.written);
  t.stays = mr_allocate(t.liveness.first[tensors], sizeof *t.stays);
  t.made_below = mr_allocate(tensors, sizeof *t.made_below);
  t.taken_below = mr_allocate(tensors, sizeof *t.taken_below);
  free(plan->gaps);
  plan->gap_count = 0;
  plan->gaps = mr_allocate(most, sizeof *plan->gaps);
  status = MR_NO_MEMORY;
  if (t.fetched != NULL && t.written != NULL && t.stays != NULL && t.made_below != NULL &&
      t.taken_below != NULL && plan->gaps != NULL) {
    mark_moves(&t);
    mark_stays(&t);
    tell_gaps(&t);
    status = MR_OK;
  }
  free(t.fetched);
  free(t.written);
  free(t.stays);
  free(t.made_below);
  free(t.taken_below);
  mr_liveness_fini(&t.liveness);
  return status;
}

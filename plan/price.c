/* SPDX-License-Identifier: Apache-2.0 */
/* What the moves of a tensor cost while gaps are chosen. */
#include "plan/draft.h"

#include "plan/drive.h"

/* A tensor of more gaps, one that many ops use in turn, is looked at in parts. */
#define MANY_GAPS 32u

/* A sum of prices. */
struct bill {
  const struct mr_draft *draft;
  const double *price; /* of each link */
  double sum;
};

/* Adds a move of the tensor over the link, beside op `op`, and over the one that it crosses. */
static void add_move(struct bill *bill, mr_tensor_id tensor, mr_link link, uint32_t op) {
  const struct mr_draft *draft = bill->draft;
  for (mr_link l = link; l < MR_LINK_COUNT; l = mr_plan_crossed(draft->problem, l)) {
    double scarcity = draft->scarcity[l][mr_draft_part(draft, op)];
    bill->sum += bill->price[l] * (1 + scarcity) * draft->move_seconds[tensor][l];
  }
}

/* The op beside which a gap's bytes leave: of those where they can, the one where it costs less. */
static uint32_t leaves_beside(const struct mr_draft *draft, const struct mr_draft_gap *gap,
                              uint8_t decision) {
  bool host = decision == MR_DECISION_HOST;
  const double *scarcity = draft->scarcity[host ? MR_LINK_DEVICE_TO_HOST : MR_LINK_NVME_WRITE];
  bool early = mr_draft_may_leave_early(draft, gap, decision) &&
               scarcity[mr_draft_part(draft, gap->changed_op)] <
                   scarcity[mr_draft_part(draft, gap->after_op)];
  return early ? gap->changed_op : gap->after_op;
}

/* Adds the moves of a gap, were it decided so; `valid`: there is a copy below. */
static void add_gap(struct bill *bill, const struct mr_draft_gap *gap, uint8_t decision,
                    bool valid) {
  bool host = decision == MR_DECISION_HOST;
  if (!gap->final) {
    add_move(bill, gap->tensor, host ? MR_LINK_HOST_TO_DEVICE : MR_LINK_NVME_READ, gap->before_op);
  }
  if (!valid && !gap->made_below) {
    add_move(bill, gap->tensor, host ? MR_LINK_DEVICE_TO_HOST : MR_LINK_NVME_WRITE,
             leaves_beside(bill->draft, gap, decision));
  }
}

/* Adds the moves of the tensor's gaps [from, to), with the gap decided so; the first of them is the
 * tensor's first, or after a write. */
static void add_gaps(struct bill *bill, uint32_t from, uint32_t to, uint32_t index,
                     uint8_t decision) {
  const struct mr_draft *draft = bill->draft;
  uint32_t last = draft->first_gap[draft->gaps[index].tensor + 1] - 1;
  uint8_t home = last == index ? decision : draft->gaps[last].decision;
  bool valid[MR_DECISION_NVME + 1] = {false};
  valid[home] = draft->gaps[last].wrap;
  for (uint32_t i = from; i < to; i++) {
    const struct mr_draft_gap *gap = &draft->gaps[i];
    uint8_t chosen = i == index ? decision : gap->decision;
    if (gap->after_writes) {
      valid[MR_DECISION_HOST] = false;
      valid[MR_DECISION_NVME] = false;
    }
    if (chosen == MR_DECISION_KEEP || gap->resting || gap->dead) continue;
    add_gap(bill, gap, chosen, valid[chosen]);
    valid[chosen] = true;
    valid[MR_DECISION_NVME] = valid[MR_DECISION_NVME] && !gap->host_writes;
  }
}

/* Where the next write after a gap's first op is: behind that no copy below it is of use. */
static uint32_t next_write(const struct mr_draft *draft, uint32_t index) {
  uint32_t end = draft->first_gap[draft->gaps[index].tensor + 1];
  uint32_t to = index + 1;
  while (to < end && !draft->gaps[to].after_writes) {
    to++;
  }
  return to;
}

/* The gap after the last write before a gap, or the tensor's first. */
static uint32_t last_write(const struct mr_draft *draft, uint32_t index) {
  uint32_t first = draft->first_gap[draft->gaps[index].tensor];
  uint32_t from = index;
  while (from > first && !draft->gaps[from].after_writes) {
    from--;
  }
  return from;
}

/* Adds all moves of the tensor with the gap decided so; where it has many gaps, those that depend
 * on it alone: up to the writes on both sides, and where it is the way round the end of the step,
 * up to the first write too. */
static void add_tensor(struct bill *bill, uint32_t index, uint8_t decision) {
  const struct mr_draft *draft = bill->draft;
  mr_tensor_id tensor = draft->gaps[index].tensor;
  uint32_t first = draft->first_gap[tensor];
  uint32_t end = draft->first_gap[tensor + 1];
  if (!mr_draft_has_many_gaps(draft, tensor)) {
    add_gaps(bill, first, end, index, decision);
    return;
  }
  uint32_t from = last_write(draft, index);
  if (index + 1 == end && from > first) {
    add_gaps(bill, first, next_write(draft, first), index, decision);
  }
  add_gaps(bill, from, next_write(draft, index), index, decision);
}

bool mr_draft_has_many_gaps(const struct mr_draft *draft, mr_tensor_id tensor) {
  return draft->first_gap[tensor + 1] - draft->first_gap[tensor] > MANY_GAPS;
}

uint32_t mr_draft_list_priced(const struct mr_draft *draft, uint32_t index,
                              struct mr_gap_range ranges[MR_PRICED_RANGES]) {
  const struct mr_draft_gap *gaps = draft->gaps;
  uint8_t decision = gaps[index].decision;
  uint32_t first = draft->first_gap[gaps[index].tensor];
  uint32_t end = draft->first_gap[gaps[index].tensor + 1];
  uint32_t count = 0;
  if (!mr_draft_has_many_gaps(draft, gaps[index].tensor)) {
    ranges[count++] = (struct mr_gap_range){first, end};
    return count;
  }
  uint32_t least = last_write(draft, index);
  uint32_t most = next_write(draft, index);
  struct mr_gap_range beside = {index, index + 1};
  bool met = false;
  while (beside.from > least && !met) {
    met = gaps[--beside.from].decision == decision;
  }
  met = false;
  while (beside.to < most && !met) {
    met = gaps[beside.to++].decision == decision;
  }
  ranges[count++] = beside;
  if (least == first && beside.to < end) {
    ranges[count++] = (struct mr_gap_range){end - 1, end};
  }
  if (index + 1 == end && least > first) {
    ranges[count++] = (struct mr_gap_range){first, next_write(draft, first)};
  }
  return count;
}

/* Whether a tensor that rests below between steps, and leaves in its last gap alone, has a copy
 * there all the time: nobody writes it. */
static bool stays_valid(const struct mr_draft *draft, uint32_t index) {
  mr_tensor_id tensor = draft->gaps[index].tensor;
  bool valid = index + 1 == draft->first_gap[tensor + 1] && draft->gaps[index].wrap;
  for (uint32_t i = draft->first_gap[tensor]; valid && i <= index; i++) {
    valid = !draft->gaps[i].after_writes;
  }
  return valid;
}

double mr_draft_tensor_price(const struct mr_draft *draft, uint32_t index, uint8_t decision,
                             const double *price) {
  const struct mr_draft_gap *gap = &draft->gaps[index];
  struct bill bill = {.draft = draft, .price = price};
  if (draft->leaving[gap->tensor] > 0) {
    add_tensor(&bill, index, decision);
  } else if (decision != MR_DECISION_KEEP && !gap->resting && !gap->dead) {
    add_gap(&bill, gap, decision, stays_valid(draft, index));
  }
  return bill.sum;
}

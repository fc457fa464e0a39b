/* SPDX-License-Identifier: Apache-2.0 */
/* What the moves of a tensor cost while gaps are chosen. */
#include "plan/draft.h"

/* A sum of prices. */
struct bill {
  const struct mr_draft *draft;
  const double *price; /* of each link */
  double sum;
};

/* Adds a move of the tensor over the link, beside op `op`, and over the one that it crosses. */
static void add_move(struct bill *bill, mr_tensor_id tensor, mr_link link, uint32_t op) {
  const struct mr_draft *draft = bill->draft;
  for (mr_link l = link; l < MR_LINK_COUNT; l = mr_draft_crossed(draft->problem, l)) {
    double scarcity = draft->scarcity[l][mr_draft_part(draft, op)];
    bill->sum += bill->price[l] * (1 + scarcity) * draft->move_seconds[tensor][l];
  }
}

/* Adds the moves of a gap, were it decided so; `valid`: there is a copy below. */
static void add_gap(struct bill *bill, const struct mr_draft_gap *gap, uint8_t decision,
                    bool valid) {
  bool host = decision == MR_DECISION_HOST;
  if (!gap->final) {
    add_move(bill, gap->tensor, host ? MR_LINK_HOST_TO_DEVICE : MR_LINK_NVME_READ, gap->before_op);
  }
  if (!valid && !gap->made_below) {
    add_move(bill, gap->tensor, host ? MR_LINK_DEVICE_TO_HOST : MR_LINK_NVME_WRITE, gap->after_op);
  }
}

/* Adds all moves of the tensor with the gap decided so. */
static void add_tensor(struct bill *bill, uint32_t index, uint8_t decision) {
  const struct mr_draft *draft = bill->draft;
  mr_tensor_id tensor = draft->gaps[index].tensor;
  uint32_t end = draft->first_gap[tensor + 1];
  uint8_t home = end - 1 == index ? decision : draft->gaps[end - 1].decision;
  bool valid[MR_DECISION_NVME + 1] = {false};
  valid[home] = draft->gaps[end - 1].wrap;
  for (uint32_t i = draft->first_gap[tensor]; i < end; i++) {
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

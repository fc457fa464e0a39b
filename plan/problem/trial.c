/* SPDX-License-Identifier: Apache-2.0 */
/* Trials: decisions that can be taken back, and the moves that propose them. */
#include "plan/problem/search.h"

/* Tensors that a repair lets go before it gives up. */
#define MAX_REPAIRS 64
/* Tensors that grow looks at. */
#define GROW_REACH 48
/* Draws for a tensor with a wanted decision. */
#define MAX_DRAWS 64
/* Two tensors that swap are at most so far apart in their class, half of the times. */
#define SWAP_REACH 16
/* The longest run of a class that one move takes along. */
#define MAX_RUN 64

void mr_problem_trial_change(struct mr_problem_trial *trial, int32_t tensor, uint8_t decision) {
  struct mr_problem_draft *draft = trial->search->draft;
  if (draft->decisions[tensor] != decision && trial->change_count < MR_PROBLEM_MAX_CHANGES) {
    trial->changes[trial->change_count++] =
        (struct mr_problem_change){tensor, draft->decisions[tensor]};
    mr_problem_draft_set(draft, tensor, decision);
  }
}

void mr_problem_trial_undo(struct mr_problem_trial *trial) {
  while (trial->change_count > 0) {
    const struct mr_problem_change *change = &trial->changes[--trial->change_count];
    mr_problem_draft_set(trial->search->draft, change->tensor, change->old);
  }
}

int32_t mr_problem_trial_pick(struct mr_problem_trial *trial, int32_t count) {
  return (int32_t)mr_random_below(&trial->random, (uint64_t)count);
}

bool mr_problem_trial_allows(const struct mr_problem_trial *trial, int32_t tensor,
                             uint8_t decision) {
  const struct mr_problem_tensor *t = &trial->search->problem->tensors[tensor];
  switch (decision) {
  case MR_PROBLEM_RECOMPUTE:
    return t->recompute_seconds < MR_PROBLEM_NO_RECOMPUTE;
  case MR_PROBLEM_NVME:
    return trial->search->may_use_nvme && !t->clean;
  default:
    return true;
  }
}

/* Lets a tensor go: to `tier`, or, one time in three, to be made again. */
static void let_go(struct mr_problem_trial *trial, int32_t tensor, uint8_t tier) {
  bool again = mr_problem_trial_allows(trial, tensor, MR_PROBLEM_RECOMPUTE) &&
               mr_problem_trial_pick(trial, 3) == 0;
  mr_problem_trial_change(trial, tensor, again ? MR_PROBLEM_RECOMPUTE : tier);
}

/* A kept tensor whose leaving would relieve a point: of the longest gap, or, one time in four, from
 * a random place on. -1: none. */
static int32_t find_kept_across(struct mr_problem_trial *trial, int32_t point) {
  const struct mr_problem_search *search = trial->search;
  int32_t count = search->choice_count;
  int32_t at =
      mr_problem_trial_pick(trial, 4) == 0 ? mr_problem_trial_pick(trial, count) : count - 1;
  for (int32_t i = 0; i < count; i++, at = at == 0 ? count - 1 : at - 1) {
    int32_t tensor = search->by_gap[at];
    const struct mr_problem_tensor *t = &search->problem->tensors[tensor];
    if (search->draft->decisions[tensor] == MR_PROBLEM_KEEP && mr_point_before(t->p + 1) <= point &&
        point <= mr_point_after(t->g)) {
      return tensor;
    }
  }
  return -1;
}

/* A tensor that rests on the host across a boundary, from a random place on; -1: none. */
static int32_t find_on_host_across(struct mr_problem_trial *trial, int32_t boundary) {
  const struct mr_problem_search *search = trial->search;
  int32_t count = search->choice_count;
  int32_t at = mr_problem_trial_pick(trial, count);
  for (int32_t i = 0; i < count; i++, at = at == 0 ? count - 1 : at - 1) {
    int32_t tensor = search->by_gap[at];
    const struct mr_problem_tensor *t = &search->problem->tensors[tensor];
    if (search->draft->decisions[tensor] == MR_PROBLEM_HOST && !t->clean && t->p < boundary &&
        boundary <= t->g) {
      return tensor;
    }
  }
  return -1;
}

bool mr_problem_trial_repair(struct mr_problem_trial *trial) {
  const struct mr_problem_draft *draft = trial->search->draft;
  for (int i = 0; i < MAX_REPAIRS; i++) {
    int32_t point = mr_problem_draft_overload(draft);
    if (point >= 0) {
      int32_t tensor = find_kept_across(trial, point);
      if (tensor < 0) {
        return false;
      }
      let_go(trial, tensor, MR_PROBLEM_HOST);
      continue;
    }
    int32_t boundary = mr_problem_draft_host_overload(draft);
    if (boundary < 0) {
      return true;
    }
    int32_t tensor = find_on_host_across(trial, boundary);
    if (tensor < 0) {
      return false;
    }
    let_go(trial, tensor, MR_PROBLEM_NVME);
  }
  return false;
}

void mr_problem_trial_grow(struct mr_problem_trial *trial) {
  const struct mr_problem_search *search = trial->search;
  int32_t count = search->choice_count;
  int32_t at = mr_problem_trial_pick(trial, count);
  for (int32_t i = 0; i < GROW_REACH; i++, at = at + 1 == count ? 0 : at + 1) {
    int32_t tensor = search->by_gap[at];
    if (search->draft->decisions[tensor] != MR_PROBLEM_KEEP &&
        mr_problem_draft_can_keep(search->draft, tensor)) {
      mr_problem_trial_change(trial, tensor, MR_PROBLEM_KEEP);
      return;
    }
  }
}

/* One tensor, another decision. */
static void move_one(struct mr_problem_trial *trial) {
  const struct mr_problem_search *search = trial->search;
  int32_t tensor = search->by_class[mr_problem_trial_pick(trial, search->choice_count)];
  for (int i = 0; i < MAX_DRAWS; i++) {
    uint8_t decision = (uint8_t)mr_problem_trial_pick(trial, MR_PROBLEM_RECOMPUTE + 1);
    if (decision != search->draft->decisions[tensor] &&
        mr_problem_trial_allows(trial, tensor, decision)) {
      mr_problem_trial_change(trial, tensor, decision);
      return;
    }
  }
}

static bool alike(const struct mr_problem_search *search, int32_t a, int32_t b) {
  const struct mr_problem_tensor *x = &search->problem->tensors[a];
  const struct mr_problem_tensor *y = &search->problem->tensors[b];
  return x->bytes == y->bytes && x->recompute_seconds == y->recompute_seconds;
}

/* Gives `decision` to up to `length` tensors of one class, from by_class[at] on in steps of
 * `step`. */
static void spread(struct mr_problem_trial *trial, int32_t at, int32_t step, int32_t length,
                   uint8_t decision) {
  const struct mr_problem_search *search = trial->search;
  int32_t first = search->by_class[at];
  for (int32_t i = 0; i < length && at >= 0 && at < search->choice_count; i++, at += step) {
    int32_t tensor = search->by_class[at];
    if (!alike(search, tensor, first)) {
      return;
    }
    if (mr_problem_trial_allows(trial, tensor, decision)) {
      mr_problem_trial_change(trial, tensor, decision);
    }
  }
}

/* Moves the edge between two decisions along a class by a random length. */
static void shift_edge(struct mr_problem_trial *trial) {
  const struct mr_problem_search *search = trial->search;
  int32_t count = search->choice_count;
  int32_t length = 1;
  while (length < MAX_RUN && mr_problem_trial_pick(trial, 2) == 0) {
    length *= 2;
  }
  int32_t at = mr_problem_trial_pick(trial, count);
  for (int32_t i = 0; i < count; i++, at = at + 1 == count ? 0 : at + 1) {
    if (at + 1 == count || !alike(search, search->by_class[at], search->by_class[at + 1])) {
      continue;
    }
    uint8_t left = search->draft->decisions[search->by_class[at]];
    uint8_t right = search->draft->decisions[search->by_class[at + 1]];
    if (left != right) {
      if (mr_problem_trial_pick(trial, 2) == 0) {
        spread(trial, at, -1, length, right);
      } else {
        spread(trial, at + 1, 1, length, left);
      }
      return;
    }
  }
}

static void swap(struct mr_problem_trial *trial, int32_t a, int32_t b) {
  uint8_t of_a = trial->search->draft->decisions[a];
  uint8_t of_b = trial->search->draft->decisions[b];
  if (mr_problem_trial_allows(trial, a, of_b) && mr_problem_trial_allows(trial, b, of_a)) {
    mr_problem_trial_change(trial, a, of_b);
    mr_problem_trial_change(trial, b, of_a);
  }
}

/* Two tensors, near each other in their class or anywhere, swap their decisions. */
static void swap_two(struct mr_problem_trial *trial) {
  const struct mr_problem_search *search = trial->search;
  int32_t count = search->choice_count;
  int32_t first = mr_problem_trial_pick(trial, count);
  int32_t second = first + 1 + mr_problem_trial_pick(trial, SWAP_REACH);
  if (second >= count || mr_problem_trial_pick(trial, 2) == 0) {
    second = mr_problem_trial_pick(trial, count);
  }
  swap(trial, search->by_class[first], search->by_class[second]);
}

/* A random place of by_price in [low, high) whose tensor is, or is not, recomputed. */
static int32_t draw_price(struct mr_problem_trial *trial, int32_t low, int32_t high, bool again) {
  const struct mr_problem_search *search = trial->search;
  int32_t at = low;
  for (int i = 0; i < MAX_DRAWS; i++) {
    at = low + mr_problem_trial_pick(trial, high - low);
    if ((search->draft->decisions[search->by_price[at]] == MR_PROBLEM_RECOMPUTE) == again) {
      break;
    }
  }
  return at;
}

/* A tensor that is recomputed and one whose byte is cheaper swap their decisions. */
static void swap_for_cheaper(struct mr_problem_trial *trial) {
  const struct mr_problem_search *search = trial->search;
  if (search->price_count >= 2) {
    int32_t dear = draw_price(trial, 1, search->price_count, true);
    int32_t cheap = draw_price(trial, 0, dear, false);
    swap(trial, search->by_price[dear], search->by_price[cheap]);
  }
}

void mr_problem_trial_move(struct mr_problem_trial *trial) {
  switch (mr_problem_trial_pick(trial, 6)) {
  case 0:
    move_one(trial);
    break;
  case 1:
    shift_edge(trial);
    break;
  case 2:
    shift_edge(trial);
    shift_edge(trial);
    break;
  case 3:
    swap_two(trial);
    break;
  default:
    swap_for_cheaper(trial);
    break;
  }
}

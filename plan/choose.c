/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which gaps leave the device. The ops where more is in use than the limit are a multiset to be
 * covered; a gap covers those inside its hole with its pages, for the price of its moves. The
 * greedy rule for covering (most covered for the price, again and again) is at most a logarithm
 * worse than the best choice and in practice close to it (V. Chvatal, A greedy heuristic for the
 * set-covering problem, 1979). Prices of links rise with their load, so that the work spreads.
 */
#include <stdlib.h>
#include <string.h>

#include "plan/draft.h"

/* How much dearer a second of an op standing still is than a second of a link at work. */
#define STALL_PRICE 10.0
/* Prices are looked at again when a link's load has grown by this part of the compute time, and of
 * itself. */
#define PRICE_STEP 0.2
/* A move costs something even where its link has nothing else to do. */
#define LEAST_COST 1e-9

struct offer {
  double cost[MR_DECISION_NVME + 1]; /* of each decision; negative: cannot be had */
  bool full[MR_DECISION_NVME + 1];   /* its tier had no room, and only gets fuller */
};

struct chooser {
  struct mr_draft *draft;
  struct offer *offers; /* for each gap */
  uint32_t *crowded;    /* op_count + 1: crowded ops before each op */
  double *excess;       /* op_count + 1: pages over the limit before each op */
  double priced_load[MR_LINK_COUNT];
  double price[MR_LINK_COUNT];
  uint32_t *order; /* gaps that may have an offer; later those that may be kept again */
  uint32_t order_count;
};

static double compute_seconds(const struct mr_draft *draft) {
  return draft->clock[draft->op_count] + LEAST_COST;
}

/* The share of the compute time that a link is at work; NVMe reads and writes may share one. */
static double link_load(const struct mr_draft *draft, uint32_t link) {
  double seconds = draft->link_seconds[link];
  double mixed = draft->problem->nvme_mixed_bytes_per_second;
  if (mixed > 0 && (link == MR_LINK_NVME_READ || link == MR_LINK_NVME_WRITE)) {
    const struct mr_link_rate *rates = draft->problem->link;
    double bytes = 0;
    for (uint32_t l = MR_LINK_NVME_READ; l <= MR_LINK_NVME_WRITE; l++) {
      bytes += draft->link_seconds[l] * rates[l].bytes_per_second;
    }
    seconds = seconds > bytes / mixed ? seconds : bytes / mixed;
  }
  return seconds / compute_seconds(draft);
}

/* The price of a second of each link: little while it has time to spare, steep near its limit. */
static void set_prices(struct chooser *chooser) {
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    double load = link_load(chooser->draft, l);
    double square = load * load;
    chooser->priced_load[l] = load;
    chooser->price[l] = 1.0 + 8.0 * square * square;
  }
}

/* Compute seconds between the two ops of a gap. */
static double idle_seconds(const struct mr_draft *draft, const struct mr_draft_gap *gap) {
  uint32_t n = draft->op_count;
  double turn = gap->before_op / n * draft->clock[n];
  return turn + draft->clock[gap->before_op % n] - draft->clock[gap->after_op + 1];
}

/* What evicting a kept gap would cost. */
static double decision_cost(const struct chooser *chooser, uint32_t index, uint8_t decision) {
  const struct mr_draft *draft = chooser->draft;
  const struct mr_draft_gap *gap = &draft->gaps[index];
  if (gap->resting) {
    return LEAST_COST;
  }
  double cost = mr_draft_tensor_price(draft, index, decision, chooser->price) -
                mr_draft_tensor_price(draft, index, MR_DECISION_KEEP, chooser->price);
  uint64_t bytes = draft->program->tensors[gap->tensor].bytes;
  bool host = decision == MR_DECISION_HOST;
  double move = mr_draft_move_seconds(draft->problem,
                                      host ? MR_LINK_HOST_TO_DEVICE : MR_LINK_NVME_READ, bytes);
  if (gap->after_writes) {
    move += mr_draft_move_seconds(draft->problem,
                                  host ? MR_LINK_DEVICE_TO_HOST : MR_LINK_NVME_WRITE, bytes);
  }
  double stall = move - idle_seconds(draft, gap);
  return (cost > 0 ? cost : 0) + (stall > 0 ? STALL_PRICE * stall : 0) + LEAST_COST;
}

static void price_gap(struct chooser *chooser, uint32_t index) {
  const struct mr_plan_problem *problem = chooser->draft->problem;
  struct offer *offer = &chooser->offers[index];
  offer->cost[MR_DECISION_HOST] = -1.0;
  offer->cost[MR_DECISION_NVME] = -1.0;
  const struct mr_draft_gap *gap = &chooser->draft->gaps[index];
  if (gap->decision != MR_DECISION_KEEP || gap->locked ||
      !mr_draft_can_evict(chooser->draft, gap)) {
    return;
  }
  if (problem->budget_bytes[MR_TIER_HOST] > 0 && !offer->full[MR_DECISION_HOST]) {
    offer->cost[MR_DECISION_HOST] = decision_cost(chooser, index, MR_DECISION_HOST);
  }
  if (problem->budget_bytes[MR_TIER_NVME] > 0 && !offer->full[MR_DECISION_NVME]) {
    offer->cost[MR_DECISION_NVME] = decision_cost(chooser, index, MR_DECISION_NVME);
  }
}

static void price_tensor(struct chooser *chooser, mr_tensor_id tensor) {
  const uint32_t *first = chooser->draft->first_gap;
  for (uint32_t i = first[tensor]; i < first[tensor + 1]; i++) {
    price_gap(chooser, i);
  }
}

static void price_all(struct chooser *chooser) {
  set_prices(chooser);
  chooser->order_count = chooser->draft->gap_count;
  for (uint32_t i = 0; i < chooser->draft->gap_count; i++) {
    chooser->order[i] = i;
    price_gap(chooser, i);
  }
}

/* Sums the crowded ops; false where there are none. */
static bool measure_crowd(struct chooser *chooser) {
  const struct mr_draft *draft = chooser->draft;
  for (uint32_t k = 0; k < draft->op_count; k++) {
    bool over = draft->usage[k] > draft->limit_pages;
    chooser->crowded[k + 1] = chooser->crowded[k] + over;
    chooser->excess[k + 1] =
        chooser->excess[k] + (over ? (double)(draft->usage[k] - draft->limit_pages) : 0);
  }
  return chooser->crowded[draft->op_count] > 0;
}

/* How much of the excess the widest hole of a gap takes away: its pages at each crowded op, at most
 * all of it. */
static double relief(const struct chooser *chooser, const struct mr_draft_gap *gap) {
  uint32_t n = chooser->draft->op_count;
  uint32_t from = gap->after_op + 1;
  uint32_t to = gap->before_op;
  uint32_t turn = to > n ? chooser->crowded[n] : 0;
  double turn_excess = to > n ? chooser->excess[n] : 0;
  uint32_t stop = to > n ? to - n : to;
  uint32_t ops = turn + chooser->crowded[stop] - chooser->crowded[from];
  double excess = turn_excess + chooser->excess[stop] - chooser->excess[from];
  double most = (double)ops * (double)chooser->draft->pages[gap->tensor];
  return most < excess ? most : excess;
}

/* The gap and decision with the most relief for its cost; false where none relieves anything.
 * Gaps without an offer leave the list: they get none again before all are priced anew. */
static bool best_offer(struct chooser *chooser, uint32_t *gap_out, uint8_t *decision_out) {
  const struct mr_draft *draft = chooser->draft;
  double best = 0;
  uint32_t count = 0;
  for (uint32_t i = 0; i < chooser->order_count; i++) {
    uint32_t gap = chooser->order[i];
    const struct offer *offer = &chooser->offers[gap];
    double host = offer->cost[MR_DECISION_HOST];
    double nvme = offer->cost[MR_DECISION_NVME];
    if (host < 0 && nvme < 0) continue;
    chooser->order[count++] = gap;
    bool take_host = host >= 0 && (nvme < 0 || host <= nvme);
    double cost = take_host ? host : nvme;
    double gain = relief(chooser, &draft->gaps[gap]);
    if (gain > best * cost) {
      best = gain / cost;
      *gap_out = gap;
      *decision_out = take_host ? MR_DECISION_HOST : MR_DECISION_NVME;
    }
  }
  chooser->order_count = count;
  return best > 0;
}

/* False where the host has no room for the gap's own time; so that deciding is not tried in vain.
 */
static bool host_may_hold(const struct mr_draft *draft, uint32_t index) {
  const struct mr_draft_gap *gap = &draft->gaps[index];
  const struct mr_draft_gap *last = &draft->gaps[draft->first_gap[gap->tensor + 1] - 1];
  if (last->wrap && last->decision == MR_DECISION_HOST) {
    return true;
  }
  uint32_t from = gap->wrap ? 0 : gap->after_op;
  uint32_t to = gap->wrap ? draft->op_count : gap->before_op;
  for (uint32_t k = from; k < to; k++) {
    if (draft->host_usage[k] + draft->pages[gap->tensor] > draft->host_limit_pages) {
      return false;
    }
  }
  return true;
}

/* Takes back every offer of the host that no longer holds. */
static void withdraw_host(struct chooser *chooser) {
  for (uint32_t i = 0; i < chooser->order_count; i++) {
    uint32_t gap = chooser->order[i];
    struct offer *offer = &chooser->offers[gap];
    if (offer->cost[MR_DECISION_HOST] >= 0 && !host_may_hold(chooser->draft, gap)) {
      offer->full[MR_DECISION_HOST] = true;
      offer->cost[MR_DECISION_HOST] = -1.0;
    }
  }
}

/* On a line alone, a tensor that ever leaves also leaves round the end of the step. */
static bool close_circle(struct mr_draft *draft, mr_tensor_id tensor, uint8_t decision) {
  uint32_t last = draft->first_gap[tensor + 1] - 1;
  if (!draft->line_only || !draft->gaps[last].wrap ||
      draft->gaps[last].decision != MR_DECISION_KEEP) {
    return true;
  }
  return mr_draft_decide(draft, last, decision);
}

static bool prices_moved(const struct chooser *chooser) {
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    double load = link_load(chooser->draft, l);
    if (load > chooser->priced_load[l] * (1 + PRICE_STEP) + PRICE_STEP) {
      return true;
    }
  }
  return false;
}

static void evict_until_fits(struct chooser *chooser) {
  struct mr_draft *draft = chooser->draft;
  mr_draft_widen(draft);
  price_all(chooser);
  while (measure_crowd(chooser)) {
    uint32_t gap = 0;
    uint8_t decision = MR_DECISION_KEEP;
    if (!best_offer(chooser, &gap, &decision)) {
      return;
    }
    bool may = decision != MR_DECISION_HOST || host_may_hold(draft, gap);
    if (!may || !mr_draft_decide(draft, gap, decision)) {
      chooser->offers[gap].full[decision] = true;
      chooser->offers[gap].cost[decision] = -1.0;
      withdraw_host(chooser);
      continue;
    }
    mr_tensor_id tensor = draft->gaps[gap].tensor;
    if (!close_circle(draft, tensor, decision) && !close_circle(draft, tensor, MR_DECISION_NVME)) {
      mr_draft_keep(draft, gap);
      chooser->offers[gap].cost[decision] = -1.0;
      continue;
    }
    if (prices_moved(chooser)) {
      price_all(chooser);
    } else {
      price_tensor(chooser, tensor);
    }
  }
}

/* True where another gap of the tensor is evicted, so that on a line alone its way round the end
 * must stay so. */
static bool closes_circle(const struct mr_draft *draft, uint32_t index) {
  const struct mr_draft_gap *gap = &draft->gaps[index];
  if (!draft->line_only || !gap->wrap) {
    return false;
  }
  for (uint32_t i = draft->first_gap[gap->tensor]; i < index; i++) {
    if (draft->gaps[i].decision != MR_DECISION_KEEP) {
      return true;
    }
  }
  return false;
}

/* Keeps again what the device has room for after all, in order. */
static void keep_spare(struct chooser *chooser) {
  struct mr_draft *draft = chooser->draft;
  uint32_t count = 0;
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    const struct mr_draft_gap *gap = &draft->gaps[i];
    if (gap->decision != MR_DECISION_KEEP && !gap->locked) {
      chooser->order[count++] = i;
    }
  }
  for (uint32_t i = 0; i < count; i++) {
    uint32_t index = chooser->order[i];
    const struct mr_draft_gap *gap = &draft->gaps[index];
    if (closes_circle(draft, index) ||
        !mr_draft_has_room(draft, gap->release_op, gap->fetch_op, draft->pages[gap->tensor])) {
      continue;
    }
    double evicted = mr_draft_tensor_price(draft, index, gap->decision, chooser->price);
    double kept = mr_draft_tensor_price(draft, index, MR_DECISION_KEEP, chooser->price);
    if (kept <= evicted) {
      mr_draft_keep(draft, index);
    }
  }
}

mr_status mr_draft_choose(struct mr_draft *draft, uint64_t spare_pages, bool *fits_out) {
  uint64_t limit = draft->limit_pages;
  struct chooser chooser = {.draft = draft};
  mr_status status = MR_NO_MEMORY;
  chooser.offers = mr_allocate(draft->gap_count, sizeof *chooser.offers);
  chooser.crowded = mr_allocate(draft->op_count + 1ull, sizeof *chooser.crowded);
  chooser.excess = mr_allocate(draft->op_count + 1ull, sizeof *chooser.excess);
  chooser.order = mr_allocate(draft->gap_count, sizeof *chooser.order);
  if (chooser.offers != NULL && chooser.crowded != NULL && chooser.excess != NULL &&
      chooser.order != NULL) {
    draft->limit_pages = spare_pages < limit ? limit - spare_pages : 0;
    evict_until_fits(&chooser);
    keep_spare(&chooser);
    draft->limit_pages = limit;
    *fits_out = mr_draft_peak(draft) <= limit;
    status = MR_OK;
  }
  free(chooser.offers);
  free(chooser.crowded);
  free(chooser.excess);
  free(chooser.order);
  return status;
}

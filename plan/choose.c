/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which gaps leave the device. The ops where more is in use than the limit are a multiset to be
 * covered; a gap covers those inside its hole with its pages, for the price of its moves. The
 * greedy rule for covering (most covered for the price, again and again) is at most a logarithm
 * worse than the best choice and in practice close to it (V. Chvatal, A greedy heuristic for the
 * set-covering problem, 1979). Prices of links rise with their load, so that the work spreads.
 */
#include <math.h>
#include <stdlib.h>

#include "plan/crowd.h"
#include "plan/draft.h"

/* How much dearer a second of an op standing still is than a second of a link at work. */
#define STALL_PRICE 10.0
/* Prices are looked at again when a link's load has grown by this part of the compute time, and of
 * itself. */
#define PRICE_STEP 0.2
/* A move costs something even where its link has nothing else to do. */
#define LEAST_COST 1e-9

/* What crowded room is worth where the guide sees none short, as a part of what it is worth on
 * average. */
#define LEAST_ROOM 0.02

/* An offer that was valued before others were taken is still taken where it is this close to the
 * next: gaps of like layers tie, and ties need not be told apart exactly. Plans are no worse for it
 * than with 0.01, and are made in half the time. */
#define TIE 0.08

/* The highest bits of the product are spread evenly (D. E. Knuth, The Art of Computer Programming,
 * volume 3, 6.4). */
#define SPREAD 2654435761u

/* What a gap offers: relief of the crowd for each second of cost, the more the better. There are
 * many: they are small. */
struct offer {
  double worth;
  uint32_t gap;
  uint32_t stamp; /* of the gap when the offer was valued; an older one is void */
};

/* What it is made of: the same until the gap is stamped anew, or its tier is full. */
struct terms {
  double cost;
  uint8_t decision;
};

struct chooser {
  struct mr_draft *draft;
  struct mr_crowd crowd;
  struct offer *heap; /* the best offer first */
  uint32_t heap_count;
  uint32_t heap_capacity;
  uint32_t *stamps;                   /* of each gap */
  struct terms *terms;                /* of what each gap offers, where it does */
  bool (*full)[MR_DECISION_NVME + 1]; /* of each gap: its tier had no room, and only gets fuller */
  double *relief; /* of each gap, when it was last measured: no more since; negative: never */
  double priced_load[MR_LINK_COUNT];
  double price[MR_LINK_COUNT];
};

static double compute_seconds(const struct mr_draft *draft) {
  return draft->clock[draft->op_count] + LEAST_COST;
}

/* The share of the compute time that a link is at work; NVMe reads and writes may share one. */
static double link_load(const struct mr_draft *draft, uint32_t link) {
  double seconds = draft->link_seconds[link];
  double mixed = draft->problem->nvme_mixed_bytes_per_second;
  if (mixed > 0 && mr_link_is_nvme(link)) {
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

/* Compute seconds between the two ops of a gap that is not resting. */
static double idle_seconds(const struct mr_draft *draft, const struct mr_draft_gap *gap) {
  uint32_t n = draft->op_count;
  bool round = gap->before_op >= n;
  double turn = round ? draft->clock[n] : 0;
  return turn + draft->clock[gap->before_op - (round ? n : 0)] - draft->clock[gap->after_op + 1];
}

/* What evicting a kept gap would cost; kept_price is what its tensor costs now. */
static double decision_cost(const struct chooser *chooser, uint32_t index, uint8_t decision,
                            double kept_price) {
  const struct mr_draft *draft = chooser->draft;
  const struct mr_draft_gap *gap = &draft->gaps[index];
  if (gap->resting) {
    return LEAST_COST;
  }
  double cost = mr_draft_tensor_price(draft, index, decision, chooser->price) - kept_price;
  const double *seconds = draft->move_seconds[gap->tensor];
  bool host = decision == MR_DECISION_HOST;
  double move = seconds[host ? MR_LINK_HOST_TO_DEVICE : MR_LINK_NVME_READ];
  if (gap->after_writes) {
    move += seconds[host ? MR_LINK_DEVICE_TO_HOST : MR_LINK_NVME_WRITE];
  }
  double stall = move - idle_seconds(draft, gap);
  return (cost > 0 ? cost : 0) + (stall > 0 ? STALL_PRICE * stall : 0) + LEAST_COST;
}

/* How much of the excess the widest hole of a gap takes away: its pages at each crowded op, at most
 * all of it; where the draft is guided, by what room is worth there. */
static double relief(const struct chooser *chooser, const struct mr_draft_gap *gap) {
  const struct mr_draft *draft = chooser->draft;
  struct mr_crowd_sum sum = mr_crowd_sum(&chooser->crowd, gap->after_op + 1, gap->before_op);
  double most = (double)sum.ops * (double)draft->pages[gap->tensor];
  double pages = mr_min_double(most, (double)sum.pages);
  if (!draft->is_guided || !(pages > 0)) {
    return pages;
  }
  double room = draft->guide.room[gap->before_op] - draft->guide.room[gap->after_op + 1];
  return pages * (LEAST_ROOM + room / (double)sum.ops);
}

/* Values what a gap has to offer by the relief that was measured last; worth 0: nothing.
 * *kept_price: of its tensor as decided; filled in where it is below 0. */
static struct offer price_gap(const struct chooser *chooser, uint32_t index, double *kept_price) {
  const struct mr_draft *draft = chooser->draft;
  const struct mr_draft_gap *gap = &draft->gaps[index];
  struct offer offer = {.gap = index, .stamp = chooser->stamps[index]};
  double gain = chooser->relief[index];
  if (gap->decision != MR_DECISION_KEEP || !(gain > 0)) {
    return offer;
  }
  static const uint8_t decisions[] = {MR_DECISION_HOST, MR_DECISION_NVME};
  if (*kept_price < 0) {
    *kept_price = mr_draft_tensor_price(draft, index, MR_DECISION_KEEP, chooser->price);
  }
  for (uint32_t i = 0; i < MR_COUNT_OF(decisions); i++) {
    uint8_t decision = decisions[i];
    mr_tier tier = decision == MR_DECISION_HOST ? MR_TIER_HOST : MR_TIER_NVME;
    if (draft->problem->budget_bytes[tier] == 0 || chooser->full[index][decision]) continue;
    double cost = decision_cost(chooser, index, decision, *kept_price);
    double worth = gain / cost;
    if (worth > offer.worth) {
      offer.worth = worth;
      chooser->terms[index] = (struct terms){cost, decision};
    }
  }
  return offer;
}

/* Whether the tensor is one of those gradients that do not leave: of all eighths as many. */
static bool is_held(const struct mr_draft *draft, mr_tensor_id tensor) {
  bool is_gradient = draft->program->tensors[tensor].role == MR_GRADIENT;
  return is_gradient && (tensor * SPREAD) >> 29 < draft->held_gradients;
}

/* Values what a gap has to offer now. */
static struct offer value_gap(struct chooser *chooser, uint32_t index, double *kept_price) {
  const struct mr_draft_gap *gap = &chooser->draft->gaps[index];
  bool can = gap->decision == MR_DECISION_KEEP && !is_held(chooser->draft, gap->tensor) &&
             mr_draft_can_evict(chooser->draft, gap);
  chooser->relief[index] = can ? relief(chooser, gap) : 0;
  return price_gap(chooser, index, kept_price);
}

/* Without branches, as in plan/books.c. */
static bool before(const struct offer *a, const struct offer *b) {
  return (a->worth > b->worth) | ((a->worth == b->worth) & (a->gap < b->gap));
}

static void sift_down(struct chooser *chooser, uint32_t at) {
  struct offer *heap = chooser->heap;
  struct offer moved = heap[at];
  for (;;) {
    uint32_t child = 2 * at + 1;
    if (child >= chooser->heap_count) break;
    if (child + 1 < chooser->heap_count) {
      child += before(&heap[child + 1], &heap[child]);
    }
    if (!before(&heap[child], &moved)) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = moved;
}

static mr_status push(struct chooser *chooser, const struct offer *offer) {
  mr_status status = mr_array_reserve((void **)&chooser->heap, &chooser->heap_capacity,
                                      chooser->heap_count + 1ull, sizeof *chooser->heap);
  if (status != MR_OK) {
    return status;
  }
  uint32_t at = chooser->heap_count++;
  for (; at > 0 && before(offer, &chooser->heap[(at - 1) / 2]); at = (at - 1) / 2) {
    chooser->heap[at] = chooser->heap[(at - 1) / 2];
  }
  chooser->heap[at] = *offer;
  return MR_OK;
}

static void pop(struct chooser *chooser) {
  chooser->heap[0] = chooser->heap[--chooser->heap_count];
  if (chooser->heap_count > 0) {
    sift_down(chooser, 0);
  }
}

/* Values all gaps under the present prices. Relief only goes down while gaps leave: measured once,
 * it is measured again where an offer comes first. */
static void value_all(struct chooser *chooser) {
  const struct mr_draft_gap *gaps = chooser->draft->gaps;
  set_prices(chooser);
  chooser->heap_count = 0;
  double kept_price = -1;
  for (uint32_t i = 0; i < chooser->draft->gap_count; i++) {
    bool begins = i == 0 || gaps[i].tensor != gaps[i - 1].tensor;
    bool alone = begins || mr_draft_has_many_gaps(chooser->draft, gaps[i].tensor);
    kept_price = alone ? -1 : kept_price;
    if (chooser->relief[i] == 0) continue;
    struct offer offer = chooser->relief[i] < 0 ? value_gap(chooser, i, &kept_price)
                                                : price_gap(chooser, i, &kept_price);
    if (offer.worth > 0) {
      chooser->heap[chooser->heap_count++] = offer;
    }
  }
  for (uint32_t i = chooser->heap_count / 2; i-- > 0;) {
    sift_down(chooser, i);
  }
}

/* Values the gaps [from, to) of one tensor anew. */
static mr_status value_gaps(struct chooser *chooser, uint32_t from, uint32_t to) {
  const struct mr_draft *draft = chooser->draft;
  bool alone = mr_draft_has_many_gaps(draft, draft->gaps[from].tensor);
  double kept_price = -1;
  for (uint32_t i = from; i < to; i++) {
    chooser->stamps[i]++;
    kept_price = alone ? -1 : kept_price;
    struct offer offer = value_gap(chooser, i, &kept_price);
    mr_status status = offer.worth > 0 ? push(chooser, &offer) : MR_OK;
    if (status != MR_OK) {
      return status;
    }
  }
  return MR_OK;
}

/* Values the gaps anew whose prices depend on one that was decided. */
static mr_status value_beside(struct chooser *chooser, uint32_t index) {
  struct mr_gap_range ranges[MR_PRICED_RANGES];
  uint32_t count = mr_draft_list_priced(chooser->draft, index, ranges);
  mr_status status = MR_OK;
  for (uint32_t i = 0; i < count && status == MR_OK; i++) {
    status = value_gaps(chooser, ranges[i].from, ranges[i].to);
  }
  return status;
}

/* What an offer is worth now: its gap may relieve less. */
static struct offer value_again(struct chooser *chooser, const struct offer *offer) {
  struct offer again = *offer;
  double kept_price = -1;
  const struct terms *terms = &chooser->terms[offer->gap];
  if (chooser->full[offer->gap][terms->decision]) {
    return value_gap(chooser, offer->gap, &kept_price);
  }
  double gain = relief(chooser, &chooser->draft->gaps[offer->gap]);
  chooser->relief[offer->gap] = gain;
  again.worth = gain / terms->cost;
  return again;
}

/*
 * The best offer. Worth only goes down while gaps are evicted under fixed prices, so one that is
 * worth as much now as the next was when it was valued is the best. False: none relieves anything.
 */
static bool best_offer(struct chooser *chooser, struct offer *offer_out) {
  while (chooser->heap_count > 0) {
    struct offer offer = chooser->heap[0];
    bool is_void = offer.stamp != chooser->stamps[offer.gap];
    if (!is_void) {
      offer = value_again(chooser, &offer);
    }
    if (is_void || !(offer.worth > 0)) {
      pop(chooser);
      continue;
    }
    chooser->heap[0] = offer;
    sift_down(chooser, 0);
    if (offer.worth >= chooser->heap[0].worth * (1 - TIE)) {
      *offer_out = offer;
      return true;
    }
  }
  return false;
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
  return mr_books_most(&draft->host_usage, from, to) + draft->host_pages[gap->tensor] <=
         draft->host_limit_pages;
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

/* Round the end of the step on NVMe, else on the host. */
static bool close_below(struct mr_draft *draft, mr_tensor_id tensor) {
  return close_circle(draft, tensor, MR_DECISION_NVME) ||
         close_circle(draft, tensor, MR_DECISION_HOST);
}

bool mr_draft_close_dead(struct mr_draft *draft,
                         bool (*close)(struct mr_draft *draft, mr_tensor_id tensor)) {
  bool closed = true;
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    mr_tensor_id tensor = draft->gaps[i].tensor;
    if (!draft->gaps[i].dead || close(draft, tensor)) continue;
    if (draft->program->tensors[tensor].carried) {
      closed = false;
    } else {
      mr_draft_revive(draft, i);
    }
  }
  return closed;
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

static void take_hole(struct chooser *chooser, uint32_t index) {
  const struct mr_draft_gap *gap = &chooser->draft->gaps[index];
  mr_crowd_take(&chooser->crowd, gap->release_op, gap->fetch_op,
                chooser->draft->pages[gap->tensor]);
}

bool mr_draft_evict(struct mr_draft *draft, uint32_t index, uint8_t decision) {
  mr_tensor_id tensor = draft->gaps[index].tensor;
  bool may = decision != MR_DECISION_HOST || host_may_hold(draft, index);
  if (!may || !mr_draft_decide(draft, index, decision)) {
    return false;
  }
  if (!close_circle(draft, tensor, decision) && !close_circle(draft, tensor, MR_DECISION_NVME)) {
    mr_draft_keep(draft, index);
    return false;
  }
  return true;
}

static mr_status evict_until_fits(struct chooser *chooser) {
  struct mr_draft *draft = chooser->draft;
  mr_status status = MR_OK;
  mr_draft_widen(draft);
  mr_crowd_measure(&chooser->crowd, &draft->usage, draft->limit_pages);
  value_all(chooser);
  struct offer offer;
  while (status == MR_OK && chooser->crowd.crowded_ops > 0 && best_offer(chooser, &offer)) {
    uint32_t last = draft->first_gap[draft->gaps[offer.gap].tensor + 1] - 1;
    bool kept_last = draft->gaps[last].decision == MR_DECISION_KEEP;
    uint8_t decision = chooser->terms[offer.gap].decision;
    if (!mr_draft_evict(draft, offer.gap, decision)) {
      chooser->full[offer.gap][decision] = true;
      continue;
    }
    bool closed = last != offer.gap && kept_last && draft->gaps[last].decision != MR_DECISION_KEEP;
    take_hole(chooser, offer.gap);
    if (closed) {
      take_hole(chooser, last);
    }
    if (prices_moved(chooser)) {
      value_all(chooser);
      continue;
    }
    status = value_beside(chooser, offer.gap);
    if (status == MR_OK && closed) {
      status = value_beside(chooser, last);
    }
  }
  return status;
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
static void keep_spare(const struct chooser *chooser) {
  struct mr_draft *draft = chooser->draft;
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    const struct mr_draft_gap *gap = &draft->gaps[i];
    if (gap->decision == MR_DECISION_KEEP || closes_circle(draft, i) ||
        !mr_draft_has_room(draft, gap->release_op, gap->fetch_op, draft->pages[gap->tensor])) {
      continue;
    }
    double evicted = mr_draft_tensor_price(draft, i, gap->decision, chooser->price);
    double kept = mr_draft_tensor_price(draft, i, MR_DECISION_KEEP, chooser->price);
    if (kept <= evicted) {
      (void)mr_draft_keep_again(draft, i);
    }
  }
}

/* A gap that may stay after all, and the seconds of moves that this saves for its pages and the
 * ops of its hole. */
struct stay {
  double worth;
  uint32_t gap;
};

static int compare_stays(const void *left, const void *right) {
  const struct stay *a = left;
  const struct stay *b = right;
  if (a->worth != b->worth) {
    return a->worth < b->worth ? 1 : -1;
  }
  return (a->gap > b->gap) - (a->gap < b->gap);
}

/* Lists the gaps that would save moves if they stayed, the best first. */
static uint32_t list_stays(const struct mr_draft *draft, struct stay *stays) {
  static const double prices[MR_LINK_COUNT] = {1, 1, 1, 1};
  uint32_t count = 0;
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    const struct mr_draft_gap *gap = &draft->gaps[i];
    bool may = gap->decision != MR_DECISION_KEEP && !gap->fixed && !gap->resting;
    if (!may || gap->fetch_op <= gap->release_op || closes_circle(draft, i)) continue;
    double saved = mr_draft_tensor_price(draft, i, gap->decision, prices) -
                   mr_draft_tensor_price(draft, i, MR_DECISION_KEEP, prices);
    double room = (double)(gap->fetch_op - gap->release_op) * (double)draft->pages[gap->tensor];
    if (saved > 0) {
      stays[count++] = (struct stay){saved / room, i};
    }
  }
  qsort(stays, count, sizeof *stays, compare_stays);
  return count;
}

mr_status mr_draft_refill(struct mr_draft *draft, uint32_t *kept_out) {
  struct stay *stays = mr_allocate(draft->gap_count, sizeof *stays);
  *kept_out = 0;
  if (stays == NULL) {
    return MR_NO_MEMORY;
  }
  uint32_t count = list_stays(draft, stays);
  for (uint32_t i = 0; i < count; i++) {
    const struct mr_draft_gap *gap = &draft->gaps[stays[i].gap];
    if (mr_draft_has_room(draft, gap->release_op, gap->fetch_op, draft->pages[gap->tensor])) {
      *kept_out += mr_draft_keep_again(draft, stays[i].gap);
    }
  }
  free(stays);
  return MR_OK;
}

static void chooser_fini(struct chooser *chooser) {
  mr_crowd_fini(&chooser->crowd);
  free(chooser->heap);
  free(chooser->stamps);
  free(chooser->full);
  free(chooser->terms);
  free(chooser->relief);
}

static mr_status chooser_init(struct chooser *chooser, struct mr_draft *draft) {
  *chooser = (struct chooser){.draft = draft};
  chooser->stamps = mr_allocate(draft->gap_count, sizeof *chooser->stamps);
  chooser->full = mr_allocate(draft->gap_count, sizeof *chooser->full);
  mr_status status = mr_array_reserve((void **)&chooser->heap, &chooser->heap_capacity,
                                      draft->gap_count + 1ull, sizeof *chooser->heap);
  if (status == MR_OK) {
    status = mr_crowd_init(&chooser->crowd, draft->op_count);
  }
  chooser->terms = mr_allocate(draft->gap_count, sizeof *chooser->terms);
  chooser->relief = mr_allocate(draft->gap_count, sizeof *chooser->relief);
  if (status != MR_OK || chooser->stamps == NULL || chooser->full == NULL ||
      chooser->terms == NULL || chooser->relief == NULL) {
    chooser_fini(chooser);
    return MR_NO_MEMORY;
  }
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    chooser->relief[i] = -1;
  }
  return MR_OK;
}

mr_status mr_draft_choose(struct mr_draft *draft, uint64_t spare_pages, bool *fits_out) {
  uint64_t limit = draft->limit_pages;
  struct chooser chooser;
  mr_status status = chooser_init(&chooser, draft);
  if (status != MR_OK) {
    return status;
  }
  draft->limit_pages = spare_pages < limit ? limit - spare_pages : 0;
  bool closed = mr_draft_close_dead(draft, close_below);
  status = evict_until_fits(&chooser);
  keep_spare(&chooser);
  draft->limit_pages = limit;
  *fits_out = closed && mr_draft_peak(draft) <= limit && mr_draft_lower_tiers_fit(draft);
  chooser_fini(&chooser);
  return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Seeds: for each of many sets of tensors to recompute, the rest is decided greedily. */
#include <math.h>

#include "plan/problem/search.h"

/* Points of each level of the sweep over how much is recomputed, and how many levels. */
#define SWEEP_POINTS 16
#define ROUGH_LEVELS 2
#define FINE_LEVELS  2
/* Of problems with more tensors a simulation takes longer: fewer points, and but for the first
 * level with one patience alone. */
#define LARGE_TENSORS 12000
#define LARGE_POINTS  10

/* How the rest is decided. */
struct style {
  bool clean_last; /* clean tensors, which leave for nothing, are kept after all others */
  bool spread;     /* of one price, tensors all over the segments are recomputed first */
};
static const struct style styles[MR_PROBLEM_STYLES] = {
    {false, false}, {true, false}, {false, true}, {true, true}};

/* A sweep over how many tensors are recomputed. */
struct sweep {
  struct style style;
  int32_t low, high; /* counts between which the next level looks */
  double seconds;    /* the best so far */
};

/* The points on which keeping a tensor weighs, and sending it away does not. */
static int32_t first_inner_point(const struct mr_problem_tensor *t) {
  return t->clean ? mr_point_after(t->p + 1) : mr_point_before(t->p + 1);
}

static int32_t last_inner_point(const struct mr_problem_tensor *t) {
  return mr_point_after(t->g);
}

bool mr_problem_draft_can_keep(const struct mr_problem_draft *draft, int32_t tensor) {
  const struct mr_problem_tensor *t = &draft->problem->tensors[tensor];
  bool nowhere = draft->decisions[tensor] == MR_PROBLEM_RECOMPUTE;
  int32_t first = nowhere ? mr_point_after(t->p + 1) : first_inner_point(t);
  int32_t last = nowhere ? mr_point_before(t->g) : last_inner_point(t);
  for (int32_t point = first; point <= last; point++) {
    if (draft->load[point] + t->bytes > draft->index->limit[point]) {
      return false;
    }
  }
  return true;
}

/* Keeps one that leaves, where there is room. */
static void keep_if_it_fits(struct mr_problem_search *search, int32_t tensor) {
  const struct mr_problem_tensor *t = &search->problem->tensors[tensor];
  int32_t first = first_inner_point(t);
  int32_t last = last_inner_point(t);
  if (search->draft->decisions[tensor] == MR_PROBLEM_HOST &&
      mr_problem_tree_most(&search->tree, first, last) + t->bytes <= 0) {
    search->draft->decisions[tensor] = MR_PROBLEM_KEEP;
    mr_problem_tree_add(&search->tree, first, last, t->bytes);
  }
}

/* Of what leaves, the shortest gaps are kept as far as there is room. */
static void keep_what_fits(struct mr_problem_search *search, bool clean_last) {
  struct mr_problem_draft *draft = search->draft;
  int32_t point_count = 3 * (search->problem->segment_count + 1);
  for (int32_t point = 0; point < point_count; point++) {
    search->excess[point] = draft->load[point] - search->index->limit[point];
  }
  mr_problem_tree_fill(&search->tree, search->excess, point_count);
  for (int turn = 0; turn <= clean_last; turn++) {
    for (int32_t i = 0; i < search->choice_count; i++) {
      int32_t tensor = search->by_gap[i];
      if (!clean_last || search->problem->tensors[tensor].clean == (turn == 1)) {
        keep_if_it_fits(search, tensor);
      }
    }
  }
  mr_problem_draft_rebuild(draft);
}

/* What the host cannot hold goes to NVMe, the longest gaps first. */
static void spill_to_nvme(struct mr_problem_search *search) {
  struct mr_problem_draft *draft = search->draft;
  double limit = mr_problem_limit(search->problem->host_bytes);
  if (mr_problem_draft_host_overload(draft) < 0) {
    return;
  }
  mr_problem_tree_fill(&search->tree, draft->host_load, search->problem->segment_count + 1);
  for (int32_t i = search->choice_count - 1; i >= 0; i--) {
    int32_t tensor = search->by_gap[i];
    const struct mr_problem_tensor *t = &search->problem->tensors[tensor];
    if (draft->decisions[tensor] == MR_PROBLEM_HOST && !t->clean &&
        mr_problem_tree_most(&search->tree, t->p + 1, t->g) > limit) {
      draft->decisions[tensor] = MR_PROBLEM_NVME;
      mr_problem_tree_add(&search->tree, t->p + 1, t->g, -t->bytes);
    }
  }
  mr_problem_draft_rebuild(draft);
}

/* The time of the draft as it is. */
static double try_as_it_is(struct mr_problem_search *search, double cutoff) {
  double seconds = mr_problem_simulate(search->simulation, search->draft, cutoff, NULL);
  if (seconds < search->best_seconds) {
    search->best_seconds = seconds;
    mr_problem_draft_copy(search->best, search->draft);
  }
  return seconds;
}

/* The time of the draft with either patience: which one helps hangs on how finely tensors are cut
 * as much as on what was decided. */
static double try_patience(struct mr_problem_search *search, double cutoff) {
  double least = INFINITY;
  for (int turn = 0; turn < 2; turn++) {
    search->draft->knobs.patient = !search->draft->knobs.patient;
    least = mr_min_double(least, try_as_it_is(search, cutoff));
  }
  return least;
}

void mr_problem_search_try_draft(struct mr_problem_search *search) {
  if (mr_problem_draft_overload(search->draft) < 0 &&
      mr_problem_draft_host_overload(search->draft) < 0) {
    try_patience(search, search->best_seconds);
  }
}

/* `either`: with either patience, else with the one that is best so far. */
static double try_seed(struct mr_problem_search *search, const struct style *style,
                       int32_t recompute_count, bool either) {
  struct mr_problem_draft *draft = search->draft;
  const int32_t *order = style->spread ? search->by_price_spread : search->by_price;
  for (int32_t i = 0; i < search->choice_count; i++) {
    draft->decisions[search->by_gap[i]] = MR_PROBLEM_HOST;
  }
  for (int32_t i = 0; i < recompute_count; i++) {
    draft->decisions[order[i]] = MR_PROBLEM_RECOMPUTE;
  }
  mr_problem_draft_rebuild(draft);
  keep_what_fits(search, style->clean_last);
  spill_to_nvme(search);
  if (mr_problem_draft_overload(draft) >= 0) {
    return INFINITY;
  }
  if (either || search->best_seconds == INFINITY) {
    return try_patience(search, INFINITY);
  }
  draft->knobs.patient = search->best->knobs.patient;
  return try_as_it_is(search, INFINITY);
}

/* Everything is recomputed or on NVMe but for what is needed as soon as it is made; of that, clean
 * tensors too are dropped where `clean_too`. */
static void let_all_go(struct mr_problem_draft *draft, bool clean_too) {
  const struct mr_problem *problem = draft->problem;
  for (int32_t v = 0; v < problem->tensor_count; v++) {
    const struct mr_problem_tensor *t = &problem->tensors[v];
    if (!draft->index->free_choice[v]) {
      continue;
    }
    bool stays = t->g == t->p + 1;
    enum mr_problem_decision decision = stays ? MR_PROBLEM_KEEP : MR_PROBLEM_NVME;
    decision = t->clean && (clean_too || !stays) ? MR_PROBLEM_HOST : decision;
    bool again = t->recompute_seconds < MR_PROBLEM_NO_RECOMPUTE;
    draft->decisions[v] = (uint8_t)(again ? MR_PROBLEM_RECOMPUTE : decision);
  }
  mr_problem_draft_rebuild(draft);
}

void mr_problem_search_let_all_go(struct mr_problem_search *search) {
  for (int clean_too = 1; clean_too >= 0; clean_too--) {
    let_all_go(search->draft, clean_too == 1);
    mr_problem_search_try_draft(search);
  }
}

static bool is_large(const struct mr_problem_search *search) {
  return search->problem->tensor_count > LARGE_TENSORS;
}

/* Narrows a sweep by one level. */
static void sweep(struct mr_problem_search *search, struct sweep *sweep, bool either) {
  int32_t low = sweep->low;
  int32_t high = sweep->high;
  int32_t step = (high - low) / (is_large(search) ? LARGE_POINTS : SWEEP_POINTS) + 1;
  int32_t best = low;
  double best_seconds = INFINITY;
  for (int32_t count = low; count <= high; count += step) {
    double seconds = try_seed(search, &sweep->style, count, either);
    if (seconds <= best_seconds) {
      best = count;
      best_seconds = seconds;
    }
  }
  best_seconds = mr_min_double(best_seconds, try_seed(search, &sweep->style, high, either));
  sweep->low = best - step > low ? best - step : low;
  sweep->high = best + step < high ? best + step : high;
  sweep->seconds = mr_min_double(sweep->seconds, best_seconds);
}

/* Two rough sweeps; of a style that is like another none. */
static struct sweep sweep_roughly(struct mr_problem_search *search, const struct style *style) {
  struct sweep turn = {*style, 0, search->price_count, INFINITY};
  bool alike = (style->clean_last && !search->has_clean) || (style->spread && !search->has_ties);
  for (int level = 0; level < ROUGH_LEVELS && !alike; level++) {
    sweep(search, &turn, level == 0 || !is_large(search));
  }
  return turn;
}

static void sweep_finely(struct mr_problem_search *search, struct sweep *best) {
  for (int level = 0; level < FINE_LEVELS; level++) {
    sweep(search, best, !is_large(search));
  }
}

void mr_problem_search_seed_in_style(struct mr_problem_search *search, int style) {
  struct sweep turn = sweep_roughly(search, &styles[style]);
  if (turn.seconds < INFINITY) {
    sweep_finely(search, &turn);
  }
}

void mr_problem_search_seed(struct mr_problem_search *search) {
  struct sweep best = sweep_roughly(search, &styles[0]);
  for (int style = 1; style < MR_PROBLEM_STYLES; style++) {
    struct sweep turn = sweep_roughly(search, &styles[style]);
    best = turn.seconds < best.seconds ? turn : best;
  }
  sweep_finely(search, &best);
  if (search->best_seconds == INFINITY) {
    mr_problem_search_let_all_go(search);
  }
}

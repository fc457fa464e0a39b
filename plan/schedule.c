/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When pages are given up and claimed. A forward sweep plays the queues: ops run in order, an
 * eviction starts when its link is free, a fetch starts as soon as its data is below, its link is
 * free and memory has room for it from the present op to the op that reads it. Whatever is in
 * flight at the start of an op holds its pages through that op where there is room, else the op
 * stands still until the move is over. Because all holes start as wide as they can be and are only
 * narrowed where the books have room, every state of the sweep is a valid plan.
 */
#include <stdlib.h>

#include "plan/draft.h"

/* How many fetches of a link are looked at for one that can start. */
#define FETCH_WINDOW 24u

struct fetch_lane {
  mr_link link;
  uint32_t *gaps; /* in the order of the ops that read them */
  uint32_t count;
  uint64_t head; /* unrolled: lap * count + index */
  uint32_t *started_laps;
  uint64_t active; /* unrolled index */
  double remaining_seconds;
  bool busy;
};

struct evict_lane {
  mr_link link;
  uint32_t *ring; /* gaps, first in, first out; the first is on its way where busy */
  uint32_t capacity;
  uint32_t first;
  uint32_t count;
  double remaining_seconds;
  bool busy;
};

struct sweep {
  struct mr_draft *draft;
  uint32_t n;
  double lookahead_seconds;
  double *blame_seconds;
  struct fetch_lane fetch[2];
  struct evict_lane evict[2];
  uint32_t *opens;        /* gaps by the op that opens them */
  uint32_t *first_opens;  /* op_count + 1 */
  uint64_t *opened_at;    /* for each gap: the unrolled op that opened it last */
  bool *leaving;          /* for each gap: its move out is not over */
  bool *open;             /* for each gap: opened, and its fetch has not started */
  uint32_t *last_release; /* for each gap: the ends of its hole on the lap before */
  uint32_t *last_fetch;
  uint32_t *needed;  /* for each op: fetches it waits for */
  uint32_t *arrived; /* for each op: fetches of this lap that are over */
  uint64_t op;       /* unrolled: running or next */
  bool running;
  bool crowded; /* the next op waits for pages of evictions */
  double op_remaining_seconds;
  double now_seconds;
  double lap_start_seconds[2];
};

static double clock_at(const struct sweep *sweep, uint64_t op) {
  const double *clock = sweep->draft->clock;
  return (double)(op / sweep->n) * clock[sweep->n] + clock[op % sweep->n];
}

static bool moves(const struct mr_draft_gap *gap) {
  return gap->decision != MR_DECISION_KEEP && !gap->resting;
}

static bool comes_back(const struct mr_draft_gap *gap) {
  return moves(gap) && !gap->final;
}

static void index_opens(struct sweep *sweep) {
  const struct mr_draft *draft = sweep->draft;
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    sweep->first_opens[draft->gaps[i].after_op + 1] += moves(&draft->gaps[i]);
  }
  for (uint32_t k = 0; k < sweep->n; k++) {
    sweep->first_opens[k + 1] += sweep->first_opens[k];
  }
  uint32_t total = sweep->first_opens[sweep->n];
  for (uint32_t i = draft->gap_count; i-- > 0;) {
    if (moves(&draft->gaps[i])) {
      sweep->opens[--sweep->first_opens[draft->gaps[i].after_op + 1]] = i;
    }
  }
  /* Each entry k + 1 has gone down to the start of op k: move them back by one. */
  for (uint32_t k = 0; k < sweep->n; k++) {
    sweep->first_opens[k] = sweep->first_opens[k + 1];
  }
  sweep->first_opens[sweep->n] = total;
}

/* Counts fetches into each lane in the order of the ops that need them: a counting sort. */
static void index_fetches(struct sweep *sweep, uint32_t *starts) {
  const struct mr_draft *draft = sweep->draft;
  for (uint32_t lane = 0; lane < 2; lane++) {
    uint8_t decision = lane == 0 ? MR_DECISION_HOST : MR_DECISION_NVME;
    for (uint32_t k = 0; k <= sweep->n; k++) {
      starts[k] = 0;
    }
    for (uint32_t i = 0; i < draft->gap_count; i++) {
      const struct mr_draft_gap *gap = &draft->gaps[i];
      starts[gap->before_op % sweep->n + 1] += comes_back(gap) && gap->decision == decision;
    }
    for (uint32_t k = 0; k < sweep->n; k++) {
      sweep->needed[k] += starts[k + 1];
      starts[k + 1] += starts[k];
    }
    sweep->fetch[lane].count = starts[sweep->n];
    for (uint32_t i = 0; i < draft->gap_count; i++) {
      const struct mr_draft_gap *gap = &draft->gaps[i];
      if (comes_back(gap) && gap->decision == decision) {
        sweep->fetch[lane].gaps[starts[gap->before_op % sweep->n]++] = i;
      }
    }
  }
}

static void sweep_fini(struct sweep *sweep) {
  for (uint32_t lane = 0; lane < 2; lane++) {
    free(sweep->fetch[lane].gaps);
    free(sweep->fetch[lane].started_laps);
    free(sweep->evict[lane].ring);
  }
  free(sweep->opens);
  free(sweep->first_opens);
  free(sweep->opened_at);
  free(sweep->leaving);
  free(sweep->open);
  free(sweep->last_release);
  free(sweep->last_fetch);
  free(sweep->needed);
  free(sweep->arrived);
}

static mr_status sweep_init(struct sweep *sweep, struct mr_draft *draft) {
  uint32_t gaps = draft->gap_count;
  bool failed = false;
  MR_ASSERT(draft->op_count > 0);
  *sweep = (struct sweep){.draft = draft, .n = draft->op_count};
  for (uint32_t lane = 0; lane < 2; lane++) {
    sweep->fetch[lane].link = lane == 0 ? MR_LINK_HOST_TO_DEVICE : MR_LINK_NVME_READ;
    sweep->evict[lane].link = lane == 0 ? MR_LINK_DEVICE_TO_HOST : MR_LINK_NVME_WRITE;
    sweep->fetch[lane].gaps = mr_allocate(gaps, sizeof(uint32_t));
    sweep->fetch[lane].started_laps = mr_allocate(gaps, sizeof(uint32_t));
    sweep->evict[lane].ring = mr_allocate(gaps + 1ull, sizeof(uint32_t));
    sweep->evict[lane].capacity = gaps + 1;
    failed = failed || sweep->fetch[lane].gaps == NULL || sweep->fetch[lane].started_laps == NULL ||
             sweep->evict[lane].ring == NULL;
  }
  sweep->opens = mr_allocate(gaps, sizeof *sweep->opens);
  sweep->first_opens = mr_allocate(sweep->n + 1ull, sizeof *sweep->first_opens);
  sweep->opened_at = mr_allocate(gaps, sizeof *sweep->opened_at);
  sweep->leaving = mr_allocate(gaps, sizeof *sweep->leaving);
  sweep->open = mr_allocate(gaps, sizeof *sweep->open);
  sweep->last_release = mr_allocate(gaps, sizeof *sweep->last_release);
  sweep->last_fetch = mr_allocate(gaps, sizeof *sweep->last_fetch);
  failed =
      failed || sweep->open == NULL || sweep->last_release == NULL || sweep->last_fetch == NULL;
  sweep->needed = mr_allocate(sweep->n, sizeof *sweep->needed);
  sweep->arrived = mr_allocate(sweep->n + 1ull, sizeof *sweep->arrived);
  if (failed || sweep->opens == NULL || sweep->first_opens == NULL || sweep->opened_at == NULL ||
      sweep->leaving == NULL || sweep->needed == NULL || sweep->arrived == NULL) {
    sweep_fini(sweep);
    return MR_NO_MEMORY;
  }
  index_opens(sweep);
  index_fetches(sweep, sweep->arrived);
  for (uint32_t k = 0; k < sweep->n; k++) {
    sweep->arrived[k] = 0;
  }
  return MR_OK;
}

static void blame(struct sweep *sweep, uint32_t gap, double seconds) {
  if (sweep->blame_seconds != NULL) {
    sweep->blame_seconds[gap] += seconds;
  }
}

/* The op, unrolled as sweep->op is, from which on others may have an evicted gap's pages. */
static uint64_t release_at(const struct sweep *sweep, uint32_t gap) {
  const struct mr_draft_gap *g = &sweep->draft->gaps[gap];
  return sweep->opened_at[gap] + (g->release_op - g->after_op);
}

/* Lets a tail of an eviction last through the next op; false where there is no room. */
static bool extend_tail(struct sweep *sweep, uint32_t index) {
  struct mr_draft *draft = sweep->draft;
  struct mr_draft_gap *gap = &draft->gaps[index];
  uint32_t release = gap->after_op + (uint32_t)(sweep->op + 1 - sweep->opened_at[index]);
  if (release > gap->latest_release_op) {
    return false;
  }
  if (draft->line_only && gap->wrap && release > sweep->n) {
    return true; /* the hazards of its pages hold back whoever takes them */
  }
  if (release > gap->fetch_op ||
      !mr_draft_has_room(draft, gap->release_op, release, draft->pages[gap->tensor])) {
    return false;
  }
  mr_draft_set_release(draft, index, release);
  return true;
}

/* The gap whose eviction the next op has to wait for, from the back of the lane so that as few as
 * possible are waited for; UINT32_MAX: none. */
static uint32_t blocking_eviction(struct sweep *sweep, const struct evict_lane *lane, bool extend) {
  for (uint32_t i = lane->count; i-- > 0;) {
    uint32_t gap = lane->ring[(lane->first + i) % lane->capacity];
    if (release_at(sweep, gap) <= sweep->op && !(extend && extend_tail(sweep, gap))) {
      return gap;
    }
  }
  return UINT32_MAX;
}

static bool try_op(struct sweep *sweep) {
  uint32_t k = (uint32_t)(sweep->op % sweep->n);
  bool here = sweep->arrived[k] == sweep->needed[k];
  sweep->crowded = false;
  for (uint32_t lane = 0; lane < 2; lane++) {
    if (blocking_eviction(sweep, &sweep->evict[lane], here) != UINT32_MAX) {
      sweep->crowded = true;
    }
  }
  if (!here || sweep->crowded) {
    return false;
  }
  if (k == 0) {
    sweep->lap_start_seconds[0] = sweep->lap_start_seconds[1];
    sweep->lap_start_seconds[1] = sweep->now_seconds;
  }
  sweep->arrived[k] = 0;
  sweep->running = true;
  sweep->op_remaining_seconds = sweep->draft->problem->op_seconds[k];
  return true;
}

/* Opens the gaps behind the op that has just run. */
static void finish_op(struct sweep *sweep) {
  struct mr_draft *draft = sweep->draft;
  uint32_t k = (uint32_t)(sweep->op % sweep->n);
  for (uint32_t i = sweep->first_opens[k]; i < sweep->first_opens[k + 1]; i++) {
    uint32_t gap = sweep->opens[i];
    struct mr_draft_gap *g = &draft->gaps[gap];
    sweep->last_release[gap] = g->release_op;
    sweep->last_fetch[gap] = g->fetch_op;
    sweep->open[gap] = true;
    mr_draft_set_fetch(draft, gap, g->before_op);
    mr_draft_set_release(draft, gap, g->after_op + 1);
    sweep->opened_at[gap] = sweep->op;
    if (g->written) {
      struct evict_lane *lane = &sweep->evict[g->decision == MR_DECISION_NVME];
      MR_ASSERT(lane->count < lane->capacity);
      lane->ring[(lane->first + lane->count++) % lane->capacity] = gap;
      sweep->leaving[gap] = true;
    }
  }
  sweep->op++;
  sweep->running = false;
}

/* Claims pages for a fetch from `from` on; false where it cannot start now. */
static bool claim(struct sweep *sweep, uint32_t index, uint64_t needed_at, uint64_t from) {
  struct mr_draft *draft = sweep->draft;
  struct mr_draft_gap *gap = &draft->gaps[index];
  uint64_t ahead = needed_at - from;
  if (needed_at < from || ahead > gap->before_op - gap->release_op) {
    return false;
  }
  uint32_t fetch = gap->before_op - (uint32_t)ahead;
  bool stays_below = gap->wrap && (draft->line_only || gap->home_below);
  if (fetch > gap->fetch_op || fetch < gap->earliest_fetch_op ||
      (stays_below && fetch < sweep->n) ||
      !mr_draft_has_room(draft, fetch, gap->fetch_op, draft->pages[gap->tensor])) {
    return false;
  }
  mr_draft_set_fetch(draft, index, fetch);
  return true;
}

/* Whether the fetch can start at this moment; if so its pages are its own from here on. */
static bool try_claim(struct sweep *sweep, uint32_t gap, uint64_t needed_at) {
  const struct mr_draft_gap *g = &sweep->draft->gaps[gap];
  uint64_t span = g->before_op - g->after_op;
  bool opened = needed_at < span || sweep->op > needed_at - span;
  if (!opened || sweep->leaving[gap]) {
    return false;
  }
  if (sweep->running) {
    return claim(sweep, gap, needed_at, sweep->op);
  }
  if (sweep->op > 0 && claim(sweep, gap, needed_at, sweep->op - 1)) {
    return true;
  }
  return !sweep->crowded && claim(sweep, gap, needed_at, sweep->op);
}

static bool try_fetch(struct sweep *sweep, struct fetch_lane *lane) {
  if (lane->busy || lane->count == 0) {
    return false;
  }
  double horizon = clock_at(sweep, sweep->op) + sweep->lookahead_seconds;
  while (lane->started_laps[lane->head % lane->count] > lane->head / lane->count) {
    lane->head++;
  }
  uint32_t seen = 0;
  for (uint64_t u = lane->head; u < lane->head + lane->count && seen < FETCH_WINDOW; u++) {
    uint32_t item = (uint32_t)(u % lane->count);
    uint32_t lap = (uint32_t)(u / lane->count);
    if (lane->started_laps[item] > lap) continue;
    uint32_t gap = lane->gaps[item];
    uint64_t needed_at = (uint64_t)lap * sweep->n + sweep->draft->gaps[gap].before_op % sweep->n;
    seen++;
    if (needed_at > sweep->op + 1 && clock_at(sweep, needed_at) > horizon) {
      return false;
    }
    if (try_claim(sweep, gap, needed_at)) {
      sweep->open[gap] = false;
      lane->started_laps[item] = lap + 1;
      lane->active = u;
      lane->busy = true;
      lane->remaining_seconds = mr_draft_move_seconds(
          sweep->draft->problem, lane->link,
          sweep->draft->program->tensors[sweep->draft->gaps[gap].tensor].bytes);
      return true;
    }
  }
  return false;
}

static void try_evict(struct sweep *sweep, struct evict_lane *lane) {
  if (!lane->busy && lane->count > 0) {
    mr_tensor_id tensor = sweep->draft->gaps[lane->ring[lane->first]].tensor;
    lane->busy = true;
    lane->remaining_seconds = mr_draft_move_seconds(sweep->draft->problem, lane->link,
                                                    sweep->draft->program->tensors[tensor].bytes);
  }
}

/* How fast NVMe moves go while reads and writes share the drive. */
static double nvme_pace(const struct sweep *sweep) {
  const struct mr_plan_problem *problem = sweep->draft->problem;
  double mixed = problem->nvme_mixed_bytes_per_second;
  if (mixed <= 0 || !sweep->fetch[1].busy || !sweep->evict[1].busy) {
    return 1.0;
  }
  double both = problem->link[MR_LINK_NVME_READ].bytes_per_second +
                problem->link[MR_LINK_NVME_WRITE].bytes_per_second;
  return mixed < both ? mixed / both : 1.0;
}

static void blame_stall(struct sweep *sweep, double seconds) {
  uint64_t op = sweep->op;
  for (uint32_t i = 0; i < 2; i++) {
    const struct evict_lane *evict = &sweep->evict[i];
    if (sweep->crowded && evict->busy) {
      blame(sweep, evict->ring[evict->first], seconds);
    }
    const struct fetch_lane *fetch = &sweep->fetch[i];
    if (fetch->busy && sweep->arrived[op % sweep->n] < sweep->needed[op % sweep->n]) {
      blame(sweep, fetch->gaps[fetch->active % fetch->count], seconds);
    }
  }
}

/* Lets time pass until the first thing in flight is over. */
static void advance(struct sweep *sweep) {
  double pace = nvme_pace(sweep);
  double pass = sweep->running ? sweep->op_remaining_seconds : -1.0;
  for (uint32_t i = 0; i < 2; i++) {
    double speed = i == 0 ? 1.0 : pace;
    double fetch = sweep->fetch[i].remaining_seconds / speed;
    double evict = sweep->evict[i].remaining_seconds / speed;
    pass = sweep->fetch[i].busy && (pass < 0 || fetch < pass) ? fetch : pass;
    pass = sweep->evict[i].busy && (pass < 0 || evict < pass) ? evict : pass;
  }
  MR_ASSERT(pass >= 0);
  sweep->now_seconds += pass;
  if (!sweep->running) {
    blame_stall(sweep, pass);
  }
  for (uint32_t i = 0; i < 2; i++) {
    double speed = i == 0 ? 1.0 : pace;
    struct fetch_lane *fetch = &sweep->fetch[i];
    struct evict_lane *evict = &sweep->evict[i];
    if (fetch->busy && (fetch->remaining_seconds -= pass * speed) <= 1e-12) {
      fetch->busy = false;
      uint32_t gap = fetch->gaps[fetch->active % fetch->count];
      sweep->arrived[sweep->draft->gaps[gap].before_op % sweep->n]++;
    }
    if (evict->busy && (evict->remaining_seconds -= pass * speed) <= 1e-12) {
      evict->busy = false;
      sweep->leaving[evict->ring[evict->first]] = false;
      evict->first = (evict->first + 1) % evict->capacity;
      evict->count--;
    }
  }
  if (sweep->running && (sweep->op_remaining_seconds -= pass) <= 1e-12) {
    finish_op(sweep);
  }
}

/*
 * The sweep stops between two steps, where some gaps are open: how far their holes will be narrowed
 * is not known yet, so they are narrowed as they were on the lap before.
 */
static void settle(struct sweep *sweep) {
  struct mr_draft *draft = sweep->draft;
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    struct mr_draft_gap *gap = &draft->gaps[i];
    if (!sweep->open[i]) continue;
    uint64_t pages = draft->pages[gap->tensor];
    uint32_t release = gap->release_op;
    while (release < sweep->last_release[i] && release < gap->fetch_op &&
           mr_draft_has_room(draft, release, release + 1, pages)) {
      release++;
    }
    mr_draft_set_release(draft, i, release);
    uint32_t fetch = gap->fetch_op;
    while (fetch > sweep->last_fetch[i] && fetch > gap->release_op &&
           mr_draft_has_room(draft, fetch - 1, fetch, pages)) {
      fetch--;
    }
    mr_draft_set_fetch(draft, i, fetch);
  }
}

mr_status mr_draft_schedule(struct mr_draft *draft, uint32_t laps, double lookahead_seconds,
                            double *blame_seconds, double *seconds_out) {
  struct sweep sweep;
  mr_draft_widen(draft);
  mr_status status = sweep_init(&sweep, draft);
  if (status != MR_OK) {
    return status;
  }
  sweep.lookahead_seconds = lookahead_seconds;
  sweep.blame_seconds = blame_seconds;
  uint64_t stop = (uint64_t)laps * sweep.n;
  for (;;) {
    bool started = !sweep.running && try_op(&sweep);
    if (started && sweep.op == stop) break;
    for (uint32_t lane = 0; lane < 2; lane++) {
      try_evict(&sweep, &sweep.evict[lane]);
      (void)try_fetch(&sweep, &sweep.fetch[lane]);
    }
    advance(&sweep);
  }
  settle(&sweep);
  draft->seconds = sweep.lap_start_seconds[1] - sweep.lap_start_seconds[0];
  *seconds_out = draft->seconds;
  sweep_fini(&sweep);
  return MR_OK;
}

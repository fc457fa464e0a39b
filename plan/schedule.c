/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When pages are given up and claimed. A forward sweep plays the queues: ops run in order, an
 * eviction starts when its link is free, behind the op that opens its gap or, of what is written
 * early, behind the one that changed it last; a fetch starts as soon as its data is below, its link
 * is free and memory has room for it from the present op to the op that reads it. Whatever is in
 * flight at the start of an op holds its pages through that op where there is room, else the op
 * stands still until the move is over. A host that is apart runs its ops beside the device. Because
 * all holes start as wide as they can be and are only narrowed where the books have room, every
 * state of the sweep is a valid plan.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/draft.h"
#include "plan/drive.h"
#include "plan/evict_lane.h"
#include "plan/gap_index.h"
#include "plan/host.h"
#include "plan/host_lane.h"

/* How many fetches of a link are looked at for one that can start. */
#define FETCH_WINDOW 6u

struct fetch_lane {
  mr_link link;
  struct mr_gap_index index; /* by the op that reads them */
  uint32_t count;
  uint32_t head;     /* in the index, the first that has not started, */
  uint32_t head_lap; /* and its lap */
  uint32_t *started_laps;
  uint32_t active; /* where busy */
  double remaining_seconds;
  bool busy;
};

struct sweep {
  struct mr_draft *draft;
  uint32_t n;
  double lookahead_seconds;
  struct fetch_lane fetch[2];
  struct mr_evict_lane evict[2];
  struct mr_host_lane host;
  uint32_t made_fetches;       /* begun, of what the host makes */
  struct mr_gap_index opens;   /* by the op that opens them */
  struct mr_gap_index changes; /* those that leave early, by the op that changes them last */
  uint64_t *opened_at;         /* for each gap: the unrolled op that opened it last */
  uint64_t *added_at;          /* and that behind which its move out was added to its lane */
  bool *leaving;               /* for each gap: its move out is not over */
  bool *tailed;                /* for each gap: its pages are among the tail_pages of its lane */
  bool *open;                  /* for each gap: opened, and its fetch has not started */
  uint32_t *last_release;      /* for each gap: the ends of its hole on the lap before */
  uint32_t *last_fetch;
  uint32_t *last_evict;
  uint32_t *due;     /* for each op: moves out that must be over before it runs */
  uint32_t *reborn;  /* for each op: those of tensors whose life begins there in the next step */
  uint32_t *needed;  /* for each op: fetches it waits for */
  uint32_t *arrived; /* for each op: fetches of this lap that are over */
  uint64_t op;       /* unrolled: running or next; the same within its lap, */
  uint32_t k;
  uint32_t lap;      /* and that */
  uint64_t last_lap; /* its first op, unrolled */
  bool running;
  bool crowded; /* the next op waits for pages of evictions */
  double op_remaining_seconds;
  double now_seconds;
  double lap_start_seconds[2]; /* of the last two that began */
};

static bool moves(const struct mr_draft_gap *gap) {
  return gap->decision != MR_DECISION_KEEP && !gap->resting && !gap->dead;
}

static bool comes_back(const struct mr_draft_gap *gap) {
  return moves(gap) && !gap->final;
}

static mr_op_id opened_by(const struct mr_draft *draft, uint32_t gap) {
  return moves(&draft->gaps[gap]) ? draft->gaps[gap].after_op : MR_NO_OP;
}

static mr_op_id changed_by(const struct mr_draft *draft, uint32_t gap) {
  return mr_draft_leaves_early(draft, gap) ? draft->gaps[gap].changed_op : MR_NO_OP;
}

static mr_op_id fetched_for(const struct mr_draft *draft, uint32_t index, uint8_t decision) {
  const struct mr_draft_gap *gap = &draft->gaps[index];
  bool fetched = comes_back(gap) && gap->decision == decision;
  return fetched ? mr_op_in_turn(gap->before_op, draft->op_count) : MR_NO_OP;
}

static mr_op_id fetched_from_host_for(const struct mr_draft *draft, uint32_t gap) {
  return fetched_for(draft, gap, MR_DECISION_HOST);
}

static mr_op_id fetched_from_nvme_for(const struct mr_draft *draft, uint32_t gap) {
  return fetched_for(draft, gap, MR_DECISION_NVME);
}

static void sweep_fini(struct sweep *sweep) {
  mr_host_lane_fini(&sweep->host);
  for (uint32_t lane = 0; lane < 2; lane++) {
    mr_gap_index_fini(&sweep->fetch[lane].index);
    free(sweep->fetch[lane].started_laps);
    mr_evict_lane_fini(&sweep->evict[lane]);
  }
  mr_gap_index_fini(&sweep->opens);
  mr_gap_index_fini(&sweep->changes);
  free(sweep->opened_at);
  free(sweep->added_at);
  free(sweep->leaving);
  free(sweep->tailed);
  free(sweep->open);
  free(sweep->last_release);
  free(sweep->last_fetch);
  free(sweep->last_evict);
  free(sweep->due);
  free(sweep->reborn);
  free(sweep->needed);
  free(sweep->arrived);
}

static mr_status sweep_init(struct sweep *sweep, struct mr_draft *draft) {
  uint32_t gaps = draft->gap_count;
  MR_ASSERT(draft->op_count > 0);
  *sweep = (struct sweep){.draft = draft, .n = draft->op_count};
  bool failed = mr_host_lane_init(&sweep->host, draft) != MR_OK;
  failed = mr_gap_index_init(&sweep->opens, draft, opened_by) != MR_OK || failed;
  failed = mr_gap_index_init(&sweep->changes, draft, changed_by) != MR_OK || failed;
  for (uint32_t lane = 0; lane < 2; lane++) {
    sweep->fetch[lane].link = lane == 0 ? MR_LINK_HOST_TO_DEVICE : MR_LINK_NVME_READ;
    mr_link out = lane == 0 ? MR_LINK_DEVICE_TO_HOST : MR_LINK_NVME_WRITE;
    failed = mr_evict_lane_init(&sweep->evict[lane], out, gaps) != MR_OK || failed;
    mr_gap_op op_of = lane == 0 ? fetched_from_host_for : fetched_from_nvme_for;
    failed = mr_gap_index_init(&sweep->fetch[lane].index, draft, op_of) != MR_OK || failed;
    sweep->fetch[lane].started_laps = mr_allocate(gaps, sizeof(uint32_t));
    failed = failed || sweep->fetch[lane].started_laps == NULL;
  }
  sweep->opened_at = mr_allocate(gaps, sizeof *sweep->opened_at);
  sweep->added_at = mr_allocate(gaps, sizeof *sweep->added_at);
  sweep->leaving = mr_allocate(gaps, sizeof *sweep->leaving);
  sweep->tailed = mr_allocate(gaps, sizeof *sweep->tailed);
  sweep->open = mr_allocate(gaps, sizeof *sweep->open);
  sweep->last_release = mr_allocate(gaps, sizeof *sweep->last_release);
  sweep->last_fetch = mr_allocate(gaps, sizeof *sweep->last_fetch);
  sweep->last_evict = mr_allocate(gaps, sizeof *sweep->last_evict);
  failed = failed || sweep->open == NULL || sweep->last_release == NULL ||
           sweep->last_fetch == NULL || sweep->last_evict == NULL;
  sweep->due = mr_allocate(sweep->n, sizeof *sweep->due);
  sweep->reborn = mr_allocate(sweep->n, sizeof *sweep->reborn);
  sweep->needed = mr_allocate(sweep->n, sizeof *sweep->needed);
  sweep->arrived = mr_allocate(sweep->n, sizeof *sweep->arrived);
  if (failed || sweep->opened_at == NULL || sweep->added_at == NULL || sweep->due == NULL ||
      sweep->reborn == NULL || sweep->leaving == NULL || sweep->tailed == NULL ||
      sweep->needed == NULL || sweep->arrived == NULL) {
    sweep_fini(sweep);
    return MR_NO_MEMORY;
  }
  for (uint32_t lane = 0; lane < 2; lane++) {
    const uint32_t *first = sweep->fetch[lane].index.first;
    for (uint32_t k = 0; k < sweep->n; k++) {
      sweep->needed[k] += first[k + 1] - first[k];
    }
    sweep->fetch[lane].count = first[sweep->n];
  }
  return MR_OK;
}

/* Pages of tensors on their way out, which the next op must leave alone. */
static uint64_t tail_pages(const struct sweep *sweep) {
  return sweep->evict[0].tail_pages + sweep->evict[1].tail_pages;
}

/* The move out of a gap is over, or its pages are no longer held back for it: whoever runs from now
 * on may have them. The books have counted them up to here. */
static void end_tail(struct sweep *sweep, struct mr_evict_lane *lane, uint32_t index) {
  struct mr_draft_gap *gap = &sweep->draft->gaps[index];
  if (!sweep->tailed[index]) {
    return;
  }
  uint64_t end = sweep->op + (sweep->running ? 1 : 0);
  sweep->tailed[index] = false;
  lane->tail_pages -= sweep->draft->pages[gap->tensor];
  gap->release_op = gap->after_op + (uint32_t)(end - sweep->opened_at[index]);
}

/* On a line alone no stay goes round the end of the step: the hazards of its pages hold back
 * whoever takes them. */
static void end_tails_of_step(struct sweep *sweep) {
  for (uint32_t i = 0; i < 2; i++) {
    struct mr_evict_lane *lane = &sweep->evict[i];
    for (uint32_t j = 0; j < lane->count; j++) {
      uint32_t gap = mr_evict_lane_gap(lane, j);
      if (sweep->draft->gaps[gap].wrap || sweep->draft->gaps[gap].final) {
        end_tail(sweep, lane, gap);
      }
    }
  }
}

/* Whether the next op has to stand still for others: for what it wants below, for its place on the
 * host or what still leaves, of the step before, or for pages. */
static bool is_crowded(const struct sweep *sweep, uint32_t op) {
  const struct mr_draft *draft = sweep->draft;
  bool handed_over = mr_draft_hands_over(draft, op);
  return (handed_over ? mr_host_lane_is_behind(&sweep->host) : sweep->due[op] > 0) ||
         !mr_draft_has_room(draft, op, op + 1, tail_pages(sweep)) ||
         (sweep->host.count > 0 && sweep->reborn[op] > 0);
}

static bool try_op(struct sweep *sweep) {
  struct mr_draft *draft = sweep->draft;
  uint32_t k = sweep->k;
  if (k == 0 && draft->line_only) {
    end_tails_of_step(sweep);
  }
  sweep->crowded = is_crowded(sweep, k);
  if (sweep->arrived[k] < sweep->needed[k] || sweep->crowded) {
    return false;
  }
  if (k == 0) {
    sweep->lap_start_seconds[0] = sweep->lap_start_seconds[1];
    sweep->lap_start_seconds[1] = sweep->now_seconds;
  }
  mr_books_add(&draft->usage, k, k + 1, (int64_t)tail_pages(sweep));
  sweep->arrived[k] = 0;
  sweep->running = true;
  sweep->op_remaining_seconds = mr_draft_hands_over(draft, k) ? mr_draft_handover_seconds(draft, k)
                                                              : mr_draft_op_seconds(draft, k);
  return true;
}

/* Hands a gap's move out to its lane. */
static void add_evict(struct sweep *sweep, uint32_t gap, uint64_t due_at) {
  const struct mr_draft_gap *g = &sweep->draft->gaps[gap];
  mr_evict_lane_add(&sweep->evict[g->decision == MR_DECISION_NVME], gap, due_at);
  sweep->leaving[gap] = true;
  sweep->added_at[gap] = sweep->op;
}

/* Opens the gaps behind the op that has just run. */
static void finish_op(struct sweep *sweep) {
  struct mr_draft *draft = sweep->draft;
  uint32_t k = sweep->k;
  for (uint32_t i = sweep->opens.first[k]; i < sweep->opens.first[k + 1]; i++) {
    uint32_t gap = sweep->opens.gaps[i];
    struct mr_draft_gap *g = &draft->gaps[gap];
    sweep->last_release[gap] = g->release_op;
    sweep->last_fetch[gap] = g->fetch_op;
    sweep->last_evict[gap] = g->evict_op;
    sweep->open[gap] = true;
    mr_draft_set_release(draft, gap, g->after_op + 1);
    mr_draft_set_fetch(draft, gap, g->before_op);
    sweep->opened_at[gap] = sweep->op;
    if (g->written && !mr_draft_leaves_early(draft, gap)) {
      bool due = g->fixed && sweep->host.count > 0;
      g->evict_op = g->after_op;
      add_evict(sweep, gap, due ? sweep->op + g->latest_release_op - k : MR_EVICT_NOT_DUE);
      sweep->due[mr_op_in_turn(g->latest_release_op, sweep->n)] += g->fixed;
      sweep->reborn[mr_op_in_turn(g->next_life_op, sweep->n)] += g->final;
    }
    if (sweep->leaving[gap]) {
      sweep->evict[g->decision == MR_DECISION_NVME].tail_pages += draft->pages[g->tensor];
      sweep->tailed[gap] = true;
    }
  }
  for (uint32_t i = sweep->changes.first[k]; i < sweep->changes.first[k + 1]; i++) {
    add_evict(sweep, sweep->changes.gaps[i], MR_EVICT_NOT_DUE);
  }
  sweep->host.handed_over += mr_draft_hands_over(draft, k);
  sweep->op++;
  sweep->k = k + 1 < sweep->n ? k + 1 : 0;
  sweep->lap += sweep->k == 0;
  sweep->running = false;
}

/* The time since the lap began, or will, that an op, unrolled, is in. */
static double seconds_in_lap_of(const struct sweep *sweep, uint64_t op) {
  double lap_seconds = sweep->lap_start_seconds[1] - sweep->lap_start_seconds[0];
  bool has_begun = sweep->running || sweep->k > 0;
  double laps = (double)sweep->lap + has_begun - 1 - (double)(op / sweep->n);
  return sweep->now_seconds - sweep->lap_start_seconds[1] + laps * lap_seconds;
}

/* Of a fetch that brings what an op on the host makes in this sweep: that op, unrolled; MR_NO_OP:
 * none does. */
static mr_op_id maker_of(const struct sweep *sweep, const struct mr_draft_gap *gap,
                         uint64_t needed_at) {
  uint32_t ago = gap->before_op - (gap->earliest_fetch_op - 1);
  bool on_host = sweep->host.count > 0 && mr_host_lane_maker(sweep->draft, gap) != MR_NO_OP;
  return on_host && needed_at >= ago ? (uint32_t)(needed_at - ago) : MR_NO_OP;
}

/* Whether pages could be claimed for a fetch from `from` on; *fetch_out: its op, unrolled. */
static bool may_claim(const struct sweep *sweep, uint32_t index, uint64_t needed_at, uint64_t from,
                      uint32_t *fetch_out) {
  const struct mr_draft *draft = sweep->draft;
  const struct mr_draft_gap *gap = &draft->gaps[index];
  uint64_t ahead = needed_at - from;
  if (needed_at < from || ahead > gap->before_op - gap->release_op) {
    return false;
  }
  uint32_t fetch = gap->before_op - (uint32_t)ahead;
  bool stays_below = gap->wrap && draft->line_only;
  if (fetch > gap->fetch_op || fetch < gap->earliest_fetch_op ||
      (stays_below && fetch < sweep->n) ||
      !mr_draft_has_room(draft, fetch, gap->fetch_op, draft->pages[gap->tensor])) {
    return false;
  }
  *fetch_out = fetch;
  return true;
}

/* Whether the fetch could start at this moment. */
static bool may_fetch(const struct sweep *sweep, uint32_t gap, uint64_t needed_at,
                      uint32_t *fetch_out) {
  const struct mr_draft_gap *g = &sweep->draft->gaps[gap];
  uint64_t span = g->before_op - g->after_op;
  bool opened = needed_at < span || sweep->op > needed_at - span;
  if (!opened || sweep->leaving[gap]) {
    return false;
  }
  if (sweep->running) {
    return may_claim(sweep, gap, needed_at, sweep->op, fetch_out);
  }
  if (sweep->op > 0 && may_claim(sweep, gap, needed_at, sweep->op - 1, fetch_out)) {
    return true;
  }
  return !sweep->crowded && may_claim(sweep, gap, needed_at, sweep->op, fetch_out);
}

enum wish { WISH_NONE, WISH_WAITS, WISH_GRANTED };

/* A fetch that could start now. */
struct grant {
  uint32_t item;
  uint32_t lap;
  uint32_t fetch_op;
};

/* The first fetch of the lane that could start; whether there is none to be had soon, or none that
 * may start. */
static enum wish find_fetch(const struct sweep *sweep, const struct fetch_lane *lane,
                            struct grant *grant_out) {
  const double *clock = sweep->draft->clock;
  double horizon = sweep->lap * clock[sweep->n] + clock[sweep->k] + sweep->lookahead_seconds;
  uint32_t next = lane->head;
  uint32_t lap = lane->head_lap;
  uint32_t seen = 0;
  /* The host makes last what is wanted first: what it has made may lie behind what it has not. */
  bool more_made =
      lane == &sweep->fetch[0] && mr_host_lane_made(&sweep->host) > sweep->made_fetches;
  for (uint32_t i = 0; i < lane->count && seen < FETCH_WINDOW; i++) {
    uint32_t item = next;
    uint32_t turn = lap;
    next = item + 1 < lane->count ? item + 1 : 0;
    lap += next == 0;
    if (lane->started_laps[item] > turn) continue;
    uint32_t gap = lane->index.gaps[item];
    uint32_t k = mr_op_in_turn(sweep->draft->gaps[gap].before_op, sweep->n);
    uint64_t needed_at = (uint64_t)turn * sweep->n + k;
    if (needed_at > sweep->op + 1 && turn * clock[sweep->n] + clock[k] > horizon) break;
    mr_op_id maker = maker_of(sweep, &sweep->draft->gaps[gap], needed_at);
    bool made = maker == MR_NO_OP || mr_host_lane_has_run(&sweep->host, maker);
    seen += made || !more_made;
    if (!made) continue;
    grant_out->item = item;
    grant_out->lap = turn;
    if (may_fetch(sweep, gap, needed_at, &grant_out->fetch_op)) {
      return WISH_GRANTED;
    }
  }
  return seen > 0 ? WISH_WAITS : WISH_NONE;
}

static void try_fetch(struct sweep *sweep, struct fetch_lane *lane) {
  struct grant grant;
  if (lane->busy || lane->count == 0) {
    return;
  }
  while (lane->started_laps[lane->head] > lane->head_lap) {
    lane->head = lane->head + 1 < lane->count ? lane->head + 1 : 0;
    lane->head_lap += lane->head == 0;
  }
  if (find_fetch(sweep, lane, &grant) != WISH_GRANTED) {
    return;
  }
  uint32_t gap = lane->index.gaps[grant.item];
  struct mr_draft_gap *g = &sweep->draft->gaps[gap];
  uint64_t needed_at = (uint64_t)grant.lap * sweep->n + mr_op_in_turn(g->before_op, sweep->n);
  g->fetch_seconds = seconds_in_lap_of(sweep, needed_at - (g->before_op - grant.fetch_op));
  sweep->made_fetches += maker_of(sweep, g, needed_at) != MR_NO_OP;
  mr_draft_set_fetch(sweep->draft, gap, grant.fetch_op);
  sweep->open[gap] = false;
  lane->started_laps[grant.item] = grant.lap + 1;
  lane->active = grant.item;
  lane->busy = true;
  lane->remaining_seconds =
      mr_plan_move_seconds(sweep->draft->problem, lane->link,
                           sweep->draft->program->tensors[sweep->draft->gaps[gap].tensor].bytes);
}

/* Whether a write had better leave a shared drive to the read that goes on: nobody wants its pages
 * yet, nor will soon. */
static bool yields(const struct sweep *sweep, const struct mr_evict_lane *lane) {
  const struct mr_draft *draft = sweep->draft;
  const struct fetch_lane *reads = &sweep->fetch[1];
  struct grant grant;
  if (draft->yield_pages == 0 || lane->link != MR_LINK_NVME_WRITE || !reads->busy) {
    return false;
  }
  uint32_t k = sweep->k;
  uint64_t tail = sweep->running ? 0 : tail_pages(sweep); /* a running op's books have it */
  return mr_draft_has_room(draft, k, k + 1, tail + draft->yield_pages) &&
         find_fetch(sweep, reads, &grant) != WISH_WAITS;
}

static void try_evict(struct sweep *sweep, struct mr_evict_lane *lane) {
  if (lane->busy || lane->count == 0) {
    return;
  }
  if (yields(sweep, lane)) {
    lane->yielded = true;
    return;
  }
  mr_evict_lane_sort(lane);
  uint32_t gap = mr_evict_lane_gap(lane, 0);
  struct mr_draft_gap *g = &sweep->draft->gaps[gap];
  uint64_t put_off = sweep->op - 1 - sweep->added_at[gap];
  uint64_t latest = mr_min_u64(g->latest_release_op, sweep->n);
  uint32_t added = mr_draft_leaves_early(sweep->draft, gap) ? g->changed_op : g->after_op;
  g->evict_op = (uint32_t)mr_min_u64(added + put_off, latest - 1);
  g->yielded = lane->yielded;
  lane->yielded = false;
  lane->busy = true;
  lane->remaining_seconds = mr_plan_move_seconds(sweep->draft->problem, lane->link,
                                                 sweep->draft->program->tensors[g->tensor].bytes);
}

/* How fast whoever is under way goes, as a part of its own rate. */
struct paces {
  double fetch[2], evict[2], op, host;
};

/* Bytes a second that copies (0) or NVMe (1) move now, both ways. */
static double moving_bytes_per_second(const struct sweep *sweep, const struct paces *paces,
                                      uint32_t i) {
  const struct mr_link_rate *links = sweep->draft->problem->link;
  const struct fetch_lane *in = &sweep->fetch[i];
  const struct mr_evict_lane *out = &sweep->evict[i];
  return (in->busy ? paces->fetch[i] * links[in->link].bytes_per_second : 0) +
         (out->busy ? paces->evict[i] * links[out->link].bytes_per_second : 0);
}

static struct paces find_paces(const struct sweep *sweep) {
  const struct mr_plan_problem *problem = sweep->draft->problem;
  struct paces paces = {{1, 1}, {1, 1}, 1, 1};
  double reads = problem->link[MR_LINK_NVME_READ].bytes_per_second;
  double writes = problem->link[MR_LINK_NVME_WRITE].bytes_per_second;
  double mixed = problem->nvme_mixed_bytes_per_second;
  if (mixed > 0 && mixed < reads + writes && sweep->fetch[1].busy && sweep->evict[1].busy) {
    paces.fetch[1] = paces.evict[1] = mixed / (reads + writes);
    if (sweep->draft->writes_early) { /* there are as many as reads */
      mr_plan_drive_paces(problem, 0.5, &paces.fetch[1], &paces.evict[1]);
    }
  }
  if (sweep->fetch[1].busy) {
    mr_plan_share_link(problem, MR_LINK_HOST_TO_DEVICE, sweep->fetch[0].busy, &paces.fetch[1],
                       &paces.fetch[0]);
  }
  if (sweep->evict[1].busy) {
    mr_plan_share_link(problem, MR_LINK_DEVICE_TO_HOST, sweep->evict[0].busy, &paces.evict[1],
                       &paces.evict[0]);
  }
  double moving = moving_bytes_per_second(sweep, &paces, 1);
  paces.op = mr_plan_pace_beside_nvme(problem, moving);
  if (sweep->host.busy) {
    moving += moving_bytes_per_second(sweep, &paces, 0);
    paces.host = mr_host_pace_beside_moves(problem, moving);
  }
  return paces;
}

/* Notes what goes on for so long: on the last lap, by parts of the step. */
static void note_work(const struct sweep *sweep, double seconds) {
  struct mr_draft *draft = sweep->draft;
  if (sweep->op < sweep->last_lap) {
    return;
  }
  uint32_t part = mr_draft_part(draft, sweep->k);
  draft->times.part[part] += seconds;
  for (uint32_t i = 0; i < 2; i++) {
    draft->times.busy[sweep->fetch[i].link][part] += sweep->fetch[i].busy ? seconds : 0;
    draft->times.busy[sweep->evict[i].link][part] += sweep->evict[i].busy ? seconds : 0;
  }
}

/* Lets time pass until the first thing in flight is over. */
static void advance(struct sweep *sweep) {
  struct paces paces = find_paces(sweep);
  double pass = sweep->running ? sweep->op_remaining_seconds / paces.op : -1.0;
  for (uint32_t i = 0; i < 2; i++) {
    double fetch = sweep->fetch[i].remaining_seconds / paces.fetch[i];
    double evict = sweep->evict[i].remaining_seconds / paces.evict[i];
    pass = sweep->fetch[i].busy && (pass < 0 || fetch < pass) ? fetch : pass;
    pass = sweep->evict[i].busy && (pass < 0 || evict < pass) ? evict : pass;
  }
  double host = sweep->host.remaining_seconds / paces.host;
  pass = sweep->host.busy && (pass < 0 || host < pass) ? host : pass;
  MR_ASSERT(pass >= 0);
  sweep->now_seconds += pass;
  note_work(sweep, pass);
  for (uint32_t i = 0; i < 2; i++) {
    struct fetch_lane *fetch = &sweep->fetch[i];
    struct mr_evict_lane *evict = &sweep->evict[i];
    if (fetch->busy && (fetch->remaining_seconds -= pass * paces.fetch[i]) <= MR_INSTANT) {
      fetch->busy = false;
      uint32_t gap = fetch->index.gaps[fetch->active];
      sweep->arrived[mr_op_in_turn(sweep->draft->gaps[gap].before_op, sweep->n)]++;
    }
    if (evict->busy && (evict->remaining_seconds -= pass * paces.evict[i]) <= MR_INSTANT) {
      evict->busy = false;
      uint32_t gone = mr_evict_lane_gap(evict, 0);
      const struct mr_draft_gap *gap = &sweep->draft->gaps[gone];
      end_tail(sweep, evict, gone);
      sweep->leaving[gone] = false;
      sweep->due[mr_op_in_turn(gap->latest_release_op, sweep->n)] -= gap->fixed;
      sweep->reborn[mr_op_in_turn(gap->next_life_op, sweep->n)] -= gap->final;
      mr_evict_lane_drop(evict);
    }
  }
  mr_host_lane_pass(&sweep->host, pass * paces.host);
  if (sweep->running && (sweep->op_remaining_seconds -= pass * paces.op) <= MR_INSTANT) {
    finish_op(sweep);
  }
}

/* How much further the end of a hole may go. */
static uint32_t distance(uint64_t from, uint64_t to) {
  return to > from ? (uint32_t)(to - from) : 0;
}

/*
 * The sweep stops between two steps, where some gaps are open: how far their holes will be narrowed
 * is not known yet, so they are narrowed as they were on the lap before.
 */
static void settle(struct sweep *sweep) {
  struct mr_draft *draft = sweep->draft;
  for (uint32_t i = 0; i < 2; i++) {
    struct mr_evict_lane *lane = &sweep->evict[i];
    for (uint32_t j = 0; j < lane->count; j++) {
      end_tail(sweep, lane, mr_evict_lane_gap(lane, j));
    }
  }
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    struct mr_draft_gap *gap = &draft->gaps[i];
    if (!sweep->open[i]) continue;
    uint64_t pages = draft->pages[gap->tensor];
    MR_ASSERT(pages <= draft->limit_pages);
    uint64_t most_pages = draft->limit_pages - pages;
    uint32_t release = gap->release_op;
    uint64_t latest = mr_min_u64(sweep->last_release[i], mr_draft_last_release(draft, gap));
    release += mr_books_run(&draft->usage, release, false, distance(release, latest), most_pages);
    mr_draft_set_release(draft, i, release);
    uint32_t evict = gap->evict_op == gap->after_op ? sweep->last_evict[i] : gap->evict_op;
    gap->evict_op = (uint32_t)mr_min_u64(evict, release - 1ull);
    uint32_t fetch = gap->fetch_op;
    uint64_t earliest = mr_max_u64(sweep->last_fetch[i], gap->release_op);
    fetch -= mr_books_run(&draft->usage, fetch, true, distance(earliest, fetch), most_pages);
    mr_draft_set_fetch(draft, i, fetch);
  }
}

mr_status mr_draft_schedule(struct mr_draft *draft, uint32_t laps, double lookahead_seconds) {
  struct sweep sweep;
  mr_draft_widen(draft);
  mr_status status = sweep_init(&sweep, draft);
  if (status != MR_OK) {
    return status;
  }
  sweep.lookahead_seconds = lookahead_seconds;
  uint64_t stop = (uint64_t)laps * sweep.n;
  sweep.last_lap = stop - sweep.n;
  draft->times = (struct mr_draft_times){0};
  for (;;) {
    bool started = !sweep.running && try_op(&sweep);
    if (started && sweep.op == stop) break;
    for (uint32_t lane = 0; lane < 2; lane++) {
      try_fetch(&sweep, &sweep.fetch[lane]);
      try_evict(&sweep, &sweep.evict[lane]);
    }
    mr_host_lane_start(&sweep.host, sweep.due);
    advance(&sweep);
  }
  settle(&sweep);
  draft->times.seconds = sweep.lap_start_seconds[1] - sweep.lap_start_seconds[0];
  sweep_fini(&sweep);
  return MR_OK;
}

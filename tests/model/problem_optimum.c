/* SPDX-License-Identifier: Apache-2.0 */
/* Exhaustive search over the schedules of tiny planning problems. */
#include "model/problem_optimum.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"

/* Two events of a segment, and four moves of a tensor. */
#define MAX_EVENTS (2 * OPTIMUM_SEGMENTS + 4 * OPTIMUM_TENSORS)
/* What is not better by this part is not better. */
#define SAME    1e-9
#define NOT_YET (-1.0)

enum event_kind { START, END, END_AND_START, MOVE };

struct event {
  enum event_kind kind;
  int link;
  int tensor;
};

/* Bytes that a move gives back when it ends. */
struct release {
  double time;
  double bytes;
};

struct state {
  double now; /* of the last event */
  double last_end;
  double device_bytes; /* without what `device` gives back */
  double host_bytes;
  struct release device[OPTIMUM_TENSORS];
  struct release host[OPTIMUM_TENSORS];
  int device_count;
  int host_count;
  int segment; /* next, or running */
  bool running;
  double done; /* of the running one */
  double end[OPTIMUM_SEGMENTS];
  double link_free[MR_PROBLEM_LINK_COUNT];
  double moved[OPTIMUM_TENSORS][MR_PROBLEM_LINK_COUNT]; /* end of each move, or NOT_YET */
  int tried; /* candidate events of this state that were taken up */
};

struct search {
  const struct mr_problem *problem;
  int decisions[OPTIMUM_TENSORS];
  double best;
  uint64_t nodes;
  struct state stack[MAX_EVENTS + 1];
};

static bool leaves(const struct search *s, int v) {
  const struct mr_problem_tensor *t = &s->problem->tensors[v];
  bool sent = s->decisions[v] == MR_PROBLEM_HOST || s->decisions[v] == MR_PROBLEM_NVME;
  return t->end || (sent && !t->start && !t->clean);
}

static bool returns(const struct search *s, int v) {
  const struct mr_problem_tensor *t = &s->problem->tensors[v];
  bool sent = s->decisions[v] == MR_PROBLEM_HOST || s->decisions[v] == MR_PROBLEM_NVME;
  return !t->end && (t->start || sent);
}

static bool makes_move(const struct search *s, int v, int link) {
  switch (link) {
  case MR_PROBLEM_OUT:
    return leaves(s, v);
  case MR_PROBLEM_IN:
    return returns(s, v);
  default:
    return leaves(s, v) && returns(s, v) && s->decisions[v] == MR_PROBLEM_NVME;
  }
}

static bool rests_on_host(const struct search *s, int v) {
  return leaves(s, v) && returns(s, v) && s->decisions[v] == MR_PROBLEM_HOST;
}

/* Bytes that appear when segment k ends; k = -1: that are there from the start. */
static double born_bytes(const struct search *s, int k) {
  double bytes = 0;
  for (int v = 0; v < s->problem->tensor_count; v++) {
    const struct mr_problem_tensor *t = &s->problem->tensors[v];
    bool there = t->end || (!t->start &&
                            (leaves(s, v) || (s->decisions[v] == MR_PROBLEM_KEEP && t->p < t->g)));
    bytes += t->p == k && there ? t->bytes : 0;
  }
  return bytes;
}

/* Bytes that go into the working set of segment k. */
static double used_bytes(const struct search *s, int k) {
  double bytes = 0;
  for (int v = 0; v < s->problem->tensor_count; v++) {
    const struct mr_problem_tensor *t = &s->problem->tensors[v];
    bool there = !t->end && (returns(s, v) || (s->decisions[v] == MR_PROBLEM_KEEP && t->p < t->g));
    bytes += t->g == k && there ? t->bytes : 0;
  }
  return bytes;
}

static double segment_seconds(const struct search *s, int k) {
  double seconds = s->problem->compute_seconds[k];
  for (int v = 0; v < s->problem->tensor_count; v++) {
    const struct mr_problem_tensor *t = &s->problem->tensors[v];
    seconds += t->g == k && s->decisions[v] == MR_PROBLEM_RECOMPUTE ? t->recompute_seconds : 0;
  }
  return seconds;
}

/* The first moment from `from` on at which `bytes` more fit; INFINITY: never. */
static double when_it_fits(double level, const struct release *releases, int count, double from,
                           double bytes, double limit) {
  double earliest = INFINITY;
  for (int i = -1; i < count; i++) {
    double time = i < 0 ? from : fmax(from, releases[i].time);
    double then = level + bytes;
    for (int j = 0; j < count; j++) {
      then -= releases[j].time <= time ? releases[j].bytes : 0;
    }
    if (then <= limit * (1 + SAME) && time < earliest) {
      earliest = time;
    }
  }
  return earliest;
}

/* When everything that segment k needs has come in; INFINITY: something has not started to. */
static double arrival(const struct search *s, const struct state *state, int k) {
  double time = 0;
  for (int v = 0; v < s->problem->tensor_count; v++) {
    if (s->problem->tensors[v].g == k && returns(s, v)) {
      double moved = state->moved[v][MR_PROBLEM_IN];
      time = moved == NOT_YET ? INFINITY : fmax(time, moved);
    }
  }
  return time;
}

/* From when on a move of a tensor may start, its link and bytes aside; INFINITY: not yet. */
static double ready(const struct search *s, const struct state *state, int v, int link) {
  const struct mr_problem_tensor *t = &s->problem->tensors[v];
  double born = t->p < 0 ? 0 : t->p < state->segment ? state->end[t->p] : INFINITY;
  int previous = link == MR_PROBLEM_WRITE             ? MR_PROBLEM_OUT
                 : link == MR_PROBLEM_READ            ? MR_PROBLEM_WRITE
                 : s->decisions[v] == MR_PROBLEM_NVME ? MR_PROBLEM_READ
                                                      : MR_PROBLEM_OUT;
  if (link == MR_PROBLEM_OUT) {
    return born;
  }
  if (t->start) {
    return 0;
  }
  if (t->clean) {
    return born;
  }
  return state->moved[v][previous] == NOT_YET ? INFINITY : state->moved[v][previous];
}

static bool place_move(const struct search *s, struct state *state, int v, int link) {
  const struct mr_problem_tensor *t = &s->problem->tensors[v];
  double time = fmax(fmax(state->now, state->link_free[link]), ready(s, state, v, link));
  if (time == INFINITY) {
    return false;
  }
  bool host = rests_on_host(s, v);
  if (link == MR_PROBLEM_OUT && host) {
    time = when_it_fits(state->host_bytes, state->host, state->host_count, time, t->bytes,
                        s->problem->host_bytes);
  } else if (link == MR_PROBLEM_IN) {
    time = when_it_fits(state->device_bytes, state->device, state->device_count, time, t->bytes,
                        s->problem->device_bytes);
  }
  if (time == INFINITY) {
    return false;
  }
  double end = time + t->bytes / s->problem->link_bytes_per_second[link];
  state->now = time;
  state->link_free[link] = end;
  state->moved[v][link] = end;
  state->last_end = fmax(state->last_end, end);
  if (link == MR_PROBLEM_OUT) {
    state->device[state->device_count++] = (struct release){end, t->bytes};
    state->host_bytes += host ? t->bytes : 0;
  } else if (link == MR_PROBLEM_IN) {
    state->device_bytes += t->bytes;
    if (host) {
      state->host[state->host_count++] = (struct release){end, t->bytes};
    }
  }
  return true;
}

static bool has_moved_all(const struct search *s, const struct state *state) {
  for (int v = 0; v < s->problem->tensor_count; v++) {
    for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
      if (makes_move(s, v, link) && state->moved[v][link] == NOT_YET) {
        return false;
      }
    }
  }
  return true;
}

static bool place_segment(const struct search *s, struct state *state, enum event_kind kind) {
  const struct mr_problem *problem = s->problem;
  bool ends = kind != START;
  bool starts = kind != END;
  int next = state->running ? state->segment + 1 : state->segment;
  if (ends != state->running || (starts && next >= problem->segment_count)) {
    return false;
  }
  double time = state->now;
  double bytes = 0;
  if (ends) {
    time = fmax(time, state->done);
    bytes += born_bytes(s, state->segment) - problem->workset_bytes[state->segment];
  }
  if (starts) {
    time = fmax(time, arrival(s, state, next));
    bytes += problem->workset_bytes[next] - used_bytes(s, next);
  }
  if (time == INFINITY) {
    return false;
  }
  /* What the last segment makes need not fit where the schedule ends with it. */
  bool finishes = next == problem->segment_count && has_moved_all(s, state);
  double finish = finishes ? fmax(time, state->last_end) : INFINITY;
  time = fmin(finish, when_it_fits(state->device_bytes, state->device, state->device_count, time,
                                   bytes, problem->device_bytes));
  if (time == INFINITY) {
    return false;
  }
  state->now = time;
  state->device_bytes += bytes;
  if (ends) {
    state->end[state->segment] = time;
    state->last_end = fmax(state->last_end, time);
  }
  state->segment = next;
  state->running = starts;
  state->done = starts ? time + segment_seconds(s, next) : state->done;
  return true;
}

/* Candidate `index` of a state; false: there are no more. */
static bool candidate(const struct search *s, int index, struct event *event_out) {
  if (index < 3) {
    *event_out = (struct event){(enum event_kind)(index), 0, 0};
    return true;
  }
  index -= 3;
  *event_out = (struct event){MOVE, index % MR_PROBLEM_LINK_COUNT, index / MR_PROBLEM_LINK_COUNT};
  return event_out->tensor < s->problem->tensor_count;
}

static bool place(const struct search *s, struct state *state, const struct event *event) {
  if (event->kind != MOVE) {
    return place_segment(s, state, event->kind);
  }
  return makes_move(s, event->tensor, event->link) &&
         state->moved[event->tensor][event->link] == NOT_YET &&
         place_move(s, state, event->tensor, event->link);
}

/* A time that no completion of a state can beat. */
static double floor_seconds(const struct search *s, const struct state *state) {
  double seconds = state->running ? fmax(state->now, state->done) : state->now;
  for (int k = state->segment + state->running; k < s->problem->segment_count; k++) {
    seconds += segment_seconds(s, k);
  }
  for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
    double busy = 0;
    for (int v = 0; v < s->problem->tensor_count; v++) {
      if (makes_move(s, v, link) && state->moved[v][link] == NOT_YET) {
        busy += s->problem->tensors[v].bytes / s->problem->link_bytes_per_second[link];
      }
    }
    if (busy > 0) {
      seconds = fmax(seconds, fmax(state->now, state->link_free[link]) + busy);
    }
  }
  return fmax(seconds, state->last_end);
}

static bool is_whole(const struct search *s, const struct state *state) {
  return state->segment == s->problem->segment_count && has_moved_all(s, state);
}

/* False where what is there from the start does not fit. */
static bool begin(struct search *s, struct state *state) {
  *state = (struct state){.device_bytes = born_bytes(s, -1)};
  for (int v = 0; v < s->problem->tensor_count; v++) {
    for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
      state->moved[v][link] = NOT_YET;
    }
  }
  double limit = s->problem->device_bytes * (1 + SAME);
  if (state->device_bytes > limit && !(place_segment(s, state, START) && state->now == 0)) {
    return false;
  }
  return state->device_bytes <= limit;
}

/* All orders under the present decisions. */
static void try_orders(struct search *s) {
  int depth = 0;
  if (!begin(s, &s->stack[0])) {
    return;
  }
  while (depth >= 0) {
    struct state *state = &s->stack[depth];
    struct event event;
    if (!candidate(s, state->tried++, &event)) {
      depth--;
      continue;
    }
    struct state *next = &s->stack[depth + 1];
    *next = *state;
    if (!place(s, next, &event)) {
      continue;
    }
    s->nodes++;
    double floor = floor_seconds(s, next);
    if (floor >= s->best * (1 - SAME)) {
      continue;
    }
    if (is_whole(s, next)) {
      s->best = floor;
      continue;
    }
    next->tried = 0;
    depth++;
  }
}

static bool allowed(const struct mr_problem_tensor *t, int decision) {
  if (t->start || t->end || t->p >= t->g) {
    return decision == MR_PROBLEM_KEEP;
  }
  switch (decision) {
  case MR_PROBLEM_NVME:
    return !t->clean;
  case MR_PROBLEM_RECOMPUTE:
    return t->recompute_seconds < MR_PROBLEM_NO_RECOMPUTE;
  default:
    return true;
  }
}

struct optimum problem_optimum(const struct mr_problem *problem, double below) {
  MR_ASSERT(problem->segment_count <= OPTIMUM_SEGMENTS);
  MR_ASSERT(problem->tensor_count <= OPTIMUM_TENSORS);
  struct search s = {.problem = problem, .best = below};
  int combinations = 1;
  for (int v = 0; v < problem->tensor_count; v++) {
    combinations *= 4;
  }
  for (int i = 0; i < combinations; i++) {
    bool all_allowed = true;
    int rest = i;
    for (int v = 0; v < problem->tensor_count; v++, rest /= 4) {
      s.decisions[v] = rest % 4;
      all_allowed = all_allowed && allowed(&problem->tensors[v], rest % 4);
    }
    if (all_allowed) {
      try_orders(&s);
    }
  }
  return (struct optimum){s.best < below ? s.best : INFINITY, s.nodes};
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulation of a draft: compute and four links, from event to event. Everything that a
 * schedule promises is checked here at the moment at which it happens: bytes on the device and on
 * the host, one tensor at a time on a link, nothing before it is there.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/problem/draft.h"
#include "plan/problem/ranks.h"

#define NOBODY (-1)
/* So many segments that a fetch looks over count as an event; that is more than they cost, so that
 * searches of long problems end in time. */
#define SEGMENTS_PER_EVENT 8
/* What sums of seconds may be off by, as a part of them. */
#define ROUNDING 1e-9

/*
 * What lies at each point: the load of the draft, and what was fetched ahead. A fetch looks over
 * all points until its need, which may be far ahead, so what they have in common is known for a
 * block of points at once.
 */
struct room {
  int32_t point_count;
  int32_t block_bits;  /* a block has 2^this points, about as many as there are blocks */
  double *load;        /* without what was added to the whole block; -INFINITY: fetches ahead need
                          leave no room there */
  double *block_most;  /* of the loads of a block */
  double *block_added; /* to the whole of it */
};

struct mr_problem_simulation {
  const struct mr_problem *problem;
  const struct mr_problem_draft *draft; /* of the present call */
  struct mr_problem_schedule *schedule; /* NULL: times are not wanted */
  double device_limit;
  double host_limit;
  uint64_t events;

  double now;
  double last_end;     /* of anything that happened */
  double device_bytes; /* in use */
  double host_bytes;
  int32_t segment; /* that runs, or is next */
  bool running;    /* false: the segment has not started */
  double segment_start;
  double segment_done; /* when its time is over; it may have to wait for room to end */
  int32_t moving[MR_PROBLEM_LINK_COUNT]; /* tensor, or NOBODY */
  double move_start[MR_PROBLEM_LINK_COUNT];
  double move_end[MR_PROBLEM_LINK_COUNT];
  double left[MR_PROBLEM_LINK_COUNT]; /* seconds at least of the moves that have not started */

  struct room room;
  int32_t *missing;  /* for each boundary: tensors that have yet to come in */
  double *remaining; /* for each boundary: compute from there on */
  int32_t *outs;     /* a queue: waiting are outs[first_out .. out_count) */
  int32_t first_out;
  int32_t out_count;
  struct mr_ranks writes; /* what waits for a link, as places in by_need */
  struct mr_ranks reads;
  struct mr_ranks ins;
  int32_t blocked_rank;  /* this fetch must wait until ... */
  int32_t blocked_point; /* ... this point is over */
};

static void room_fini(struct room *room) {
  free(room->load);
  free(room->block_most);
  free(room->block_added);
}

static mr_status room_init(struct room *room, int32_t point_count) {
  room->point_count = point_count;
  while ((1 << 2 * room->block_bits) < point_count) {
    room->block_bits++;
  }
  uint64_t block_count = ((uint64_t)point_count >> room->block_bits) + 1;
  room->load = mr_allocate((uint64_t)point_count, sizeof *room->load);
  room->block_most = mr_allocate(block_count, sizeof *room->block_most);
  room->block_added = mr_allocate(block_count, sizeof *room->block_added);
  bool complete = room->load != NULL && room->block_most != NULL && room->block_added != NULL;
  return complete ? MR_OK : MR_NO_MEMORY; /* the caller destroys what there is */
}

/* Finds the most of each block, of loads to which nothing was added yet. */
static void room_fill(struct room *room) {
  int32_t point = 0;
  for (int32_t block = 0; point < room->point_count; block++) {
    int32_t end = (block + 1) << room->block_bits;
    double most = -INFINITY;
    for (end = end < room->point_count ? end : room->point_count; point < end; point++) {
      most = mr_max_double(most, room->load[point]);
    }
    room->block_most[block] = most;
    room->block_added[block] = 0;
  }
}

static bool room_is_full(const struct room *room, int32_t point, double limit) {
  return room->load[point] + room->block_added[point >> room->block_bits] > limit;
}

/* The last point of first .. last whose load is above a limit; -1: none. */
static int32_t room_last_full(const struct room *room, int32_t first, int32_t last, double limit) {
  for (int32_t point = last; point >= first;) {
    int32_t block = point >> room->block_bits;
    int32_t block_first = block << room->block_bits;
    if (room->block_most[block] + room->block_added[block] > limit) {
      for (int32_t end = block_first > first ? block_first : first; point >= end; point--) {
        if (room_is_full(room, point, limit)) {
          return point;
        }
      }
    }
    point = block_first - 1;
  }
  return -1;
}

/* Adds bytes to the loads of first .. last. */
static void room_add(struct room *room, int32_t first, int32_t last, double bytes) {
  for (int32_t point = first; point <= last;) {
    int32_t block = point >> room->block_bits;
    int32_t next_block = (block + 1) << room->block_bits;
    if (point == block << room->block_bits && next_block - 1 <= last) {
      room->block_added[block] += bytes;
      point = next_block;
      continue;
    }
    double most = room->block_most[block];
    for (; point < next_block && point <= last; point++) {
      room->load[point] += bytes;
      most = mr_max_double(most, room->load[point]);
    }
    room->block_most[block] = most;
  }
}

static void push_need(struct mr_problem_simulation *s, struct mr_ranks *ranks, int32_t tensor) {
  mr_ranks_add(ranks, s->draft->index->need_rank[tensor]);
}

static bool rests_on_host(const struct mr_problem_simulation *s, int32_t tensor) {
  const struct mr_problem_tensor *t = &s->problem->tensors[tensor];
  return s->draft->decisions[tensor] == MR_PROBLEM_HOST && !t->start && !t->end && !t->clean;
}

/* For how long a move takes up its link. */
static double move_seconds(const struct mr_problem_simulation *s, enum mr_problem_link link,
                           double bytes) {
  return bytes / s->problem->link_bytes_per_second[link] * (1 + s->draft->knobs.lag[link]);
}

static void start_move(struct mr_problem_simulation *s, enum mr_problem_link link, int32_t tensor) {
  double seconds = move_seconds(s, link, s->problem->tensors[tensor].bytes);
  s->moving[link] = tensor;
  s->move_start[link] = s->now;
  s->move_end[link] = s->now + seconds;
  s->left[link] -= seconds;
  s->events++;
}

/* Adds up what is to be moved, as birth() and finish_move() hand it on. */
static void count_moves(struct mr_problem_simulation *s) {
  double bytes[MR_PROBLEM_LINK_COUNT] = {0};
  for (int32_t v = 0; v < s->problem->tensor_count; v++) {
    const struct mr_problem_tensor *t = &s->problem->tensors[v];
    uint8_t decision = s->draft->decisions[v];
    bool leaves = decision == MR_PROBLEM_HOST || decision == MR_PROBLEM_NVME;
    bool out = t->end || (leaves && !t->start && !t->clean);
    bool below = out && !t->end && !rests_on_host(s, v);
    bytes[MR_PROBLEM_OUT] += out ? t->bytes : 0;
    bytes[MR_PROBLEM_WRITE] += below ? t->bytes : 0;
    bytes[MR_PROBLEM_READ] += below ? t->bytes : 0;
    bytes[MR_PROBLEM_IN] += !t->end && (t->start || leaves) ? t->bytes : 0;
  }
  for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
    s->left[link] = move_seconds(s, (enum mr_problem_link)link, bytes[link]) * (1 - ROUNDING);
  }
}

/* What segment boundary - 1 made, or what was there from the start, begins to leave. */
static void birth(struct mr_problem_simulation *s, int32_t boundary) {
  const struct mr_problem_index *index = s->draft->index;
  s->device_bytes += s->draft->birth_bytes[boundary];
  for (int32_t i = index->first_birth[boundary]; i < index->first_birth[boundary + 1]; i++) {
    int32_t tensor = index->by_birth[i];
    const struct mr_problem_tensor *t = &s->problem->tensors[tensor];
    uint8_t decision = s->draft->decisions[tensor];
    bool leaves = decision == MR_PROBLEM_HOST || decision == MR_PROBLEM_NVME;
    if (t->end || (leaves && !t->start && !t->clean)) {
      s->outs[s->out_count++] = tensor;
    } else if (leaves && t->clean && !t->start) {
      push_need(s, &s->ins, tensor);
    }
  }
}

static void start_segment(struct mr_problem_simulation *s) {
  int32_t k = s->segment;
  s->running = true;
  s->segment_start = s->now;
  s->segment_done = s->now + s->problem->compute_seconds[k] + s->draft->recompute_seconds[k];
  s->device_bytes += s->problem->workset_bytes[k] - s->draft->need_bytes[k];
  s->events++;
}

static void end_segment(struct mr_problem_simulation *s) {
  int32_t k = s->segment;
  if (s->schedule != NULL) {
    s->schedule->segments[k] = (struct mr_problem_span){s->segment_start, s->now};
  }
  s->last_end = s->now;
  s->device_bytes -= s->problem->workset_bytes[k];
  birth(s, k + 1);
  s->running = false;
  s->segment = k + 1;
}

/* Bytes in use once the next segment runs, where the present one ends just before. */
static double bytes_after_start(const struct mr_problem_simulation *s, int32_t next) {
  double bytes = s->device_bytes - s->draft->need_bytes[next] + s->problem->workset_bytes[next];
  if (s->running) {
    bytes += s->draft->birth_bytes[next] - s->problem->workset_bytes[next - 1];
  }
  return bytes;
}

/* Whether nothing moves or waits to. */
static bool is_idle(const struct mr_problem_simulation *s) {
  bool idle = s->first_out == s->out_count && mr_ranks_are_empty(&s->writes) &&
              mr_ranks_are_empty(&s->reads) && mr_ranks_are_empty(&s->ins);
  for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
    idle = idle && s->moving[link] == NOBODY;
  }
  return idle;
}

/* Whether the schedule would end with the segment that runs, the last: what that makes takes no
 * room then, because no time passes. */
static bool would_finish(const struct mr_problem_simulation *s) {
  const struct mr_problem_index *index = s->draft->index;
  int32_t count = s->problem->segment_count;
  bool finishes = s->segment + 1 == count && is_idle(s);
  for (int32_t i = index->first_birth[count]; finishes && i < index->first_birth[count + 1]; i++) {
    finishes = !s->problem->tensors[index->by_birth[i]].end &&
               s->draft->decisions[index->by_birth[i]] == MR_PROBLEM_KEEP;
  }
  return finishes;
}

/* Ends and starts segments for as long as the present moment allows. */
static void advance_compute(struct mr_problem_simulation *s) {
  int32_t count = s->problem->segment_count;
  for (;;) {
    if (s->running && s->now < s->segment_done) {
      return;
    }
    int32_t next = s->running ? s->segment + 1 : s->segment;
    bool can_start =
        next < count && s->missing[next] == 0 && bytes_after_start(s, next) <= s->device_limit;
    if (s->running) {
      double bytes_after_end =
          s->device_bytes + s->draft->birth_bytes[next] - s->problem->workset_bytes[next - 1];
      /* A pause in which what is needed next cannot all lie there would never end. */
      bool may_pause = s->draft->load[mr_point_before(next)] <= s->device_limit;
      if (!can_start && (bytes_after_end > s->device_limit || !may_pause) && !would_finish(s)) {
        return;
      }
      end_segment(s);
    }
    if (!can_start) {
      return;
    }
    start_segment(s);
  }
}

static void start_out(struct mr_problem_simulation *s) {
  if (s->moving[MR_PROBLEM_OUT] != NOBODY) {
    return;
  }
  for (int32_t i = s->first_out; i < s->out_count; i++) {
    int32_t tensor = s->outs[i];
    double host_bytes = rests_on_host(s, tensor) ? s->problem->tensors[tensor].bytes : 0;
    if (host_bytes > 0 && s->host_bytes + host_bytes > s->host_limit) {
      continue; /* others may pass while the host is full */
    }
    memmove(&s->outs[s->first_out + 1], &s->outs[s->first_out],
            (size_t)(i - s->first_out) * sizeof *s->outs);
    s->first_out++;
    s->host_bytes += host_bytes;
    start_move(s, MR_PROBLEM_OUT, tensor);
    return;
  }
}

static void start_first(struct mr_problem_simulation *s, enum mr_problem_link link,
                        struct mr_ranks *ranks) {
  if (s->moving[link] == NOBODY && !mr_ranks_are_empty(ranks)) {
    start_move(s, link, s->draft->index->by_need[mr_ranks_take_least(ranks)]);
  }
}

/* Whether a boundary is passed without a pause, so that all that is fetched for it is there while
 * the segment before it runs: begin() has reserved the room. */
static bool is_reserved(const struct mr_problem_simulation *s, int32_t boundary) {
  return s->room.load[mr_point_after(boundary)] == -INFINITY;
}

/* The points at which a fetch must leave room: from now until the tensor is needed, but for what is
 * reserved. */
static int32_t first_point(const struct mr_problem_simulation *s) {
  return s->running ? mr_point_during(s->segment) : mr_point_before(s->segment);
}
static int32_t last_point(const struct mr_problem_simulation *s, int32_t need) {
  return is_reserved(s, need) ? mr_point_during(need - 1) - 1 : mr_point_after(need);
}

/* Whether a fetch leaves room at every point from now until the tensor is needed. */
static bool fits_until_needed(struct mr_problem_simulation *s, int32_t rank, double bytes,
                              int32_t need) {
  int32_t first = first_point(s);
  if (s->blocked_rank == rank && s->blocked_point >= first) {
    return false;
  }
  s->events += (uint64_t)(need - s->segment) / SEGMENTS_PER_EVENT;
  int32_t reserved = mr_point_during(need - 1);
  bool full = is_reserved(s, need) && reserved >= first &&
              room_is_full(&s->room, reserved, s->device_limit);
  int32_t point =
      full ? reserved
           : room_last_full(&s->room, first, last_point(s, need), s->device_limit - bytes);
  if (point >= 0) {
    s->blocked_rank = rank;
    s->blocked_point = point;
  }
  return point < 0;
}

static void start_in(struct mr_problem_simulation *s) {
  if (s->moving[MR_PROBLEM_IN] != NOBODY || mr_ranks_are_empty(&s->ins)) {
    return;
  }
  int32_t rank = mr_ranks_least(&s->ins);
  int32_t tensor = s->draft->index->by_need[rank];
  int32_t need = s->problem->tensors[tensor].g;
  double bytes = s->problem->tensors[tensor].bytes;
  int32_t next = s->running ? s->segment + 1 : s->segment;
  double room = s->device_limit - s->device_bytes;
  if (need > next && s->draft->knobs.patient && next < s->problem->segment_count) {
    room = mr_min_double(room, s->device_limit - bytes_after_start(s, next));
  }
  if (bytes > room || need - next > s->draft->knobs.lookahead ||
      !fits_until_needed(s, rank, bytes, need)) {
    return;
  }
  room_add(&s->room, first_point(s), last_point(s, need), bytes);
  mr_ranks_take_least(&s->ins);
  s->device_bytes += bytes;
  start_move(s, MR_PROBLEM_IN, tensor);
}

static void finish_move(struct mr_problem_simulation *s, enum mr_problem_link link) {
  int32_t tensor = s->moving[link];
  const struct mr_problem_tensor *t = &s->problem->tensors[tensor];
  s->moving[link] = NOBODY;
  s->last_end = s->now;
  if (s->schedule != NULL) {
    s->schedule->moves[link][tensor] = (struct mr_problem_span){s->move_start[link], s->now};
  }
  switch (link) {
  case MR_PROBLEM_OUT:
    s->device_bytes -= t->bytes;
    if (!t->end) {
      push_need(s, rests_on_host(s, tensor) ? &s->ins : &s->writes, tensor);
    }
    break;
  case MR_PROBLEM_WRITE:
    push_need(s, &s->reads, tensor);
    break;
  case MR_PROBLEM_READ:
    push_need(s, &s->ins, tensor);
    break;
  default:
    s->host_bytes -= rests_on_host(s, tensor) ? t->bytes : 0;
    s->missing[t->g]--;
    break;
  }
}

/* The next moment at which something ends; INFINITY: nothing is under way. */
static double next_event(const struct mr_problem_simulation *s) {
  double next = s->running && s->segment_done > s->now ? s->segment_done : INFINITY;
  for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
    if (s->moving[link] != NOBODY && s->move_end[link] < next) {
      next = s->move_end[link];
    }
  }
  return next;
}

/* No schedule that goes on from here ends sooner. */
static double least_end(const struct mr_problem_simulation *s) {
  double least = s->running ? mr_max_double(s->segment_done, s->now) + s->remaining[s->segment + 1]
                            : s->now + s->remaining[s->segment];
  for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
    double free_from = s->moving[link] == NOBODY ? s->now : s->move_end[link];
    least = mr_max_double(least, free_from + s->left[link]);
  }
  return least;
}

/* What lies on the device as a segment starts just when the one before has ended, whose tensors
 * that leave are all there yet; -INFINITY where there is no segment more. */
static double bytes_at_start(const struct mr_problem_simulation *s, int32_t k) {
  if (k == s->problem->segment_count) {
    return -INFINITY;
  }
  double kept_bytes = s->draft->need_bytes[k] - s->draft->fetch_bytes[k];
  return s->draft->load[mr_point_after(k)] - kept_bytes + s->problem->workset_bytes[k];
}

/* A boundary at which the draft itself leaves no room for a pause is passed without one, for which
 * what is fetched for it has room reserved beside the segment before, and what is fetched for later
 * leaves room for what is there then; at others a fetch ahead must not take the room of the pause.
 * Otherwise everybody may come to wait for everybody else. */
static void fill_room(struct mr_problem_simulation *s) {
  const double *load = s->draft->load;
  memcpy(s->room.load, load, (size_t)s->room.point_count * sizeof *load);
  for (int32_t boundary = 0; boundary <= s->problem->segment_count; boundary++) {
    int32_t after = mr_point_after(boundary);
    int32_t before = mr_point_before(boundary);
    if (mr_max_double(load[after], load[before]) > s->device_limit) {
      s->room.load[after] = -INFINITY;
      s->room.load[before] = bytes_at_start(s, boundary);
      if (boundary > 0) {
        s->room.load[mr_point_during(boundary - 1)] += s->draft->fetch_bytes[boundary];
      }
    }
  }
  room_fill(&s->room);
}

static void begin(struct mr_problem_simulation *s) {
  int32_t count = s->problem->segment_count;
  size_t boundary_count = (size_t)count + 1;
  s->now = 0;
  s->last_end = 0;
  s->device_bytes = 0;
  s->host_bytes = 0;
  s->segment = 0;
  s->running = false;
  s->first_out = 0;
  s->out_count = 0;
  mr_ranks_clear(&s->writes);
  mr_ranks_clear(&s->reads);
  mr_ranks_clear(&s->ins);
  s->blocked_rank = NOBODY;
  for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
    s->moving[link] = NOBODY;
  }
  fill_room(s);
  count_moves(s);
  memcpy(s->missing, s->draft->fetch_count, boundary_count * sizeof *s->missing);
  s->remaining[count] = 0;
  for (int32_t k = count - 1; k >= 0; k--) {
    s->remaining[k] =
        s->remaining[k + 1] + s->problem->compute_seconds[k] + s->draft->recompute_seconds[k];
  }
  for (int32_t v = 0; v < s->problem->tensor_count; v++) {
    if (s->problem->tensors[v].start && !s->problem->tensors[v].end) {
      push_need(s, &s->ins, v);
    }
  }
  birth(s, 0);
}

double mr_problem_simulate(struct mr_problem_simulation *s, const struct mr_problem_draft *draft,
                           double cutoff, struct mr_problem_schedule *schedule) {
  s->draft = draft;
  s->schedule = schedule;
  begin(s);
  for (;;) {
    advance_compute(s);
    if (s->device_bytes > s->device_limit && s->segment < s->problem->segment_count) {
      return INFINITY; /* what is there from the start does not fit */
    }
    start_out(s);
    start_first(s, MR_PROBLEM_WRITE, &s->writes);
    start_first(s, MR_PROBLEM_READ, &s->reads);
    start_in(s);
    double next = next_event(s);
    if (next == INFINITY || least_end(s) > cutoff) {
      break;
    }
    s->now = next;
    for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
      if (s->moving[link] != NOBODY && s->move_end[link] <= s->now) {
        finish_move(s, (enum mr_problem_link)link);
      }
    }
  }
  bool whole = s->segment == s->problem->segment_count && is_idle(s);
  return whole && s->last_end <= cutoff ? s->last_end : INFINITY;
}

uint64_t mr_problem_simulation_events(const struct mr_problem_simulation *simulation) {
  return simulation->events;
}

void mr_problem_simulation_destroy(struct mr_problem_simulation *simulation) {
  if (simulation == NULL) {
    return;
  }
  room_fini(&simulation->room);
  free(simulation->missing);
  free(simulation->remaining);
  free(simulation->outs);
  mr_ranks_fini(&simulation->writes);
  mr_ranks_fini(&simulation->reads);
  mr_ranks_fini(&simulation->ins);
  free(simulation);
}

mr_status mr_problem_simulation_create(const struct mr_problem *problem,
                                       struct mr_problem_simulation **simulation_out) {
  uint64_t n = (uint64_t)problem->tensor_count;
  uint64_t boundary_count = (uint64_t)problem->segment_count + 1;
  struct mr_problem_simulation *s = mr_allocate(1, sizeof *s);
  if (s == NULL) {
    return MR_NO_MEMORY;
  }
  s->problem = problem;
  s->device_limit = mr_problem_limit(problem->device_bytes);
  s->host_limit = mr_problem_limit(problem->host_bytes);
  mr_status status = room_init(&s->room, (int32_t)(3 * boundary_count));
  s->missing = mr_allocate(boundary_count, sizeof *s->missing);
  s->remaining = mr_allocate(boundary_count, sizeof *s->remaining);
  s->outs = mr_allocate(n, sizeof *s->outs);
  bool complete = s->missing != NULL && s->remaining != NULL && s->outs != NULL;
  struct mr_ranks *queues[] = {&s->writes, &s->reads, &s->ins};
  for (size_t i = 0; i < MR_COUNT_OF(queues) && status == MR_OK; i++) {
    status = mr_ranks_init(queues[i], problem->tensor_count);
  }
  if (status != MR_OK || !complete) {
    mr_problem_simulation_destroy(s);
    return MR_NO_MEMORY;
  }
  *simulation_out = s;
  return MR_OK;
}

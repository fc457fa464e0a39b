/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What spans choose under prices of room and tolls of windows; plan/dual_hosted.c: what ops do.
 *
 * A byte of a written version goes out in some window, once, and may leave from then on; in each of
 * its spans it comes back in some window, and room is free for it from the one to the other. The
 * best of all pairs of windows is found from the back: what coming back in a window or later costs
 * at least, for each window. What a clone makes again leaves at once and is made in some window.
 */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "plan/dual_choice.h"

/* What coming back costs, from the last window to the first; what being made again does. */
static void look_ahead(struct mr_dual *t, struct mr_stay *stay) {
  const struct mr_dual_rows *rows = &t->rows;
  double *ahead = &t->ahead[stay->ahead];
  double *back = &t->back[stay->ahead];
  double *again = &t->again[stay->ahead];
  double least = INFINITY;
  stay->remade = INFINITY;
  for (uint32_t v = stay->to + 1; v-- > stay->from;) {
    double till = v < stay->to ? rows->till[v] : t->before[stay->end];
    double cost = t->movable ? rows->in[v] - till : INFINITY;
    least = mr_min_double(least, cost);
    ahead[v - stay->from] = least;
    back[v - stay->from] = cost;
    if (stay->remake >= 0) {
      again[v - stay->from] = rows->ops[v] * stay->remake - till + t->before[stay->begin];
      stay->remade = mr_min_double(stay->remade, again[v - stay->from]);
    }
  }
}

/* What leaving for a tier below costs at least; INFINITY: it is over before. */
static double moved_cost(const struct mr_dual *t, const struct mr_stay *stay,
                         const struct mr_dual_start *start) {
  return start->window > stay->to
             ? INFINITY
             : t->ahead[stay->ahead + start->window - stay->from] + t->before[start->op];
}

/* Of bytes that are not below: they may be made again alone. */
static const struct mr_dual_start never = {.window = UINT32_MAX};

/* Bytes that leave a stay, by the windows, from its first on, in which they come back or are made
 * again. */
struct leaving {
  double in[2 * MR_DUAL_WINDOWS], again[2 * MR_DUAL_WINDOWS];
};

/* The parts of windows [from, count) that cost so much more than `costs`, and their sum. */
static double favour_all(const double *costs, uint32_t from, uint32_t count, double more,
                         double width, double *parts) {
  double each = 1 / width;
  double sum = 0;
  for (uint32_t v = from; v < count; v++) {
    double nearness = mr_max_double(1 - (costs[v] + more) * each, 0);
    parts[v] = nearness * nearness;
    sum += parts[v];
  }
  return sum;
}

static void add_parts(double *sums, double times, const double *parts, uint32_t from,
                      uint32_t count) {
  for (uint32_t v = from; v < count; v++) {
    sums[v] += times * parts[v];
  }
}

/* Lets so many bytes leave a stay as far as it pays. */
static void leave(struct mr_dual *t, const struct mr_stay *stay, const struct mr_dual_start *start,
                  double bytes, double width, struct leaving *leaving) {
  double back_parts[2 * MR_DUAL_WINDOWS];
  double again_parts[2 * MR_DUAL_WINDOWS];
  double moved = moved_cost(t, stay, start);
  double least = mr_min_double(moved, stay->remade);
  if (least >= width || !(bytes > 0)) {
    return;
  }
  least = mr_min_double(least, 0);
  uint32_t count = stay->to - stay->from + 1;
  uint32_t first = moved < width ? start->window - stay->from : count;
  uint32_t first_again = stay->remade < width ? 0 : count;
  double more = moved < width ? t->before[start->op] - least : 0;
  double back = favour_all(&t->back[stay->ahead], first, count, more, width, back_parts);
  double again = favour_all(&t->again[stay->ahead], first_again, count, -least, width, again_parts);
  double each = bytes / (mr_dual_favour(-least, width) + back + again);
  add_parts(leaving->in, each, back_parts, first, count);
  add_parts(leaving->again, each, again_parts, first_again, count);
  if (first < count) {
    t->freed[start->op] += each * back;
  }
  t->freed[stay->begin] += each * again;
}

/* What left a stay is back in its windows, or made again there. */
static void come_back(struct mr_dual *t, const struct mr_stay *stay,
                      const struct leaving *leaving) {
  for (uint32_t v = stay->from; v <= stay->to; v++) {
    double in = leaving->in[v - stay->from];
    double again = leaving->again[v - stay->from];
    uint32_t end = t->window_start[v + 1];
    struct mr_toll *used = mr_dual_used_in(t, v);
    used->in += in;
    used->ops += again * stay->remake;
    t->freed[end < stay->end ? end : stay->end] -= in + again;
  }
}

static void leaving_init(struct leaving *leaving, const struct mr_stay *stay) {
  uint64_t bytes = (stay->to - stay->from + 1ull) * sizeof *leaving->in;
  memset(leaving->in, 0, bytes);
  memset(leaving->again, 0, bytes);
}

static double stay_cost(double moved, const struct mr_stay *stay) {
  return mr_min_double(mr_min_double(moved, stay->remade), 0);
}

/* Adds what a stay costs at least when its version goes out in each of the windows [from, last]. */
static void add_stay_costs(const struct mr_dual *t, const struct mr_stay *stay, uint32_t from,
                           uint32_t last, double *costs) {
  const double *ahead = &t->ahead[stay->ahead];
  const double early = stay_cost(ahead[0] + t->before[stay->begin], stay);
  const double late = stay_cost(INFINITY, stay);
  uint32_t u = from;
  for (; u < stay->from; u++) {
    costs[u] += early;
  }
  for (; u <= stay->to; u++) {
    double gone = u == stay->from ? t->before[mr_dual_start_of(t, stay, u).op] : t->rows.gone[u];
    costs[u] += stay_cost(ahead[u - stay->from] + gone, stay);
  }
  for (; u <= last; u++) {
    costs[u] += late;
  }
}

/* So much of a version goes out in each of the windows [from, last], and the rest in none. */
static void settle(struct mr_dual *t, const struct mr_stay *stay, uint32_t from, uint32_t last,
                   const double *out_bytes, double rest_bytes, double width) {
  const struct mr_dual_start begin = {stay->begin, stay->from};
  struct leaving leaving;
  double early_bytes = 0;
  leaving_init(&leaving, stay);
  uint32_t u = from;
  for (; u < stay->from; u++) {
    early_bytes += out_bytes[u];
  }
  for (; u <= stay->to; u++) {
    const struct mr_dual_start start = mr_dual_start_of(t, stay, u);
    leave(t, stay, &start, out_bytes[u], width, &leaving);
  }
  for (; u <= last; u++) {
    rest_bytes += out_bytes[u];
  }
  leave(t, stay, &begin, early_bytes, width, &leaving);
  leave(t, stay, &never, rest_bytes, width, &leaving);
  come_back(t, stay, &leaving);
}

/* What is not written is below already. */
static double choose_constant(struct mr_dual *t, const struct mr_version *version, double width) {
  double cost = 0;
  for (uint32_t i = version->first; i < version->end; i++) {
    const struct mr_stay *stay = &t->stays[i];
    const struct mr_dual_start start = {stay->begin, stay->from};
    struct leaving leaving;
    cost += stay_cost(moved_cost(t, stay, &start), stay);
    leaving_init(&leaving, stay);
    leave(t, stay, &start, version->bytes, width, &leaving);
    come_back(t, stay, &leaving);
  }
  return version->bytes * cost;
}

static double choose_written(struct mr_dual *t, const struct mr_version *version, double width) {
  double costs[2 * MR_DUAL_WINDOWS];
  double within = 0;
  uint32_t first = version->write_window;
  uint32_t last = 0;
  for (uint32_t i = version->first; i < version->end; i++) {
    within += stay_cost(INFINITY, &t->stays[i]);
    last = t->stays[i].to > last ? t->stays[i].to : last;
  }
  for (uint32_t u = first; u <= last; u++) {
    costs[u] = t->movable ? t->rows.out[u] : INFINITY;
  }
  for (uint32_t i = version->first; i < version->end; i++) {
    add_stay_costs(t, &t->stays[i], first, last, costs);
  }
  double least = within;
  for (uint32_t u = first; u <= last; u++) {
    least = mr_min_double(least, costs[u]);
  }
  double rest_part = mr_dual_favour(within - least, width);
  double sum = rest_part;
  for (uint32_t u = first; u <= last; u++) {
    costs[u] = mr_dual_favour(costs[u] - least, width);
    sum += costs[u];
  }
  for (uint32_t u = first; u <= last; u++) {
    costs[u] *= version->bytes / sum;
    mr_dual_used_in(t, u)->out += costs[u];
  }
  for (uint32_t i = version->first; i < version->end; i++) {
    settle(t, &t->stays[i], first, last, costs, version->bytes * rest_part / sum, width);
  }
  return version->bytes * least;
}

static void begin(struct mr_dual *t) {
  for (uint32_t k = 0; k < 2 * t->op_count; k++) {
    t->before[k + 1] = t->before[k] + t->price[k < t->op_count ? k : k - t->op_count];
  }
  for (uint32_t w = 0; w < t->window_count; w++) {
    t->used[w] = (struct mr_toll){.ops = t->ops_seconds[w]};
  }
  for (uint32_t v = 0; v < 2 * t->window_count; v++) {
    const struct mr_toll *toll = mr_dual_toll_in(t, v);
    t->rows.in[v] = toll->in;
    t->rows.out[v] = toll->out;
    t->rows.ops[v] = toll->ops;
    t->rows.gone[v] = t->before[t->window_start[v] + 1];
    t->rows.till[v] = t->before[t->window_start[v + 1]];
  }
  memset(t->freed, 0, (2ull * t->op_count + 1) * sizeof *t->freed);
}

/* The room that is short at each op, less what is free there in either of two steps. */
static void add_excess(struct mr_dual *t) {
  double freed[2] = {0};
  for (uint32_t k = 0; k < t->op_count; k++) {
    freed[1] += t->freed[k];
  }
  for (uint32_t k = 0; k < t->op_count; k++) {
    freed[0] += t->freed[k];
    freed[1] += t->freed[t->op_count + k];
    t->excess[k] = t->short_bytes[k] - freed[0] - freed[1];
  }
}

double mr_dual_choose(struct mr_dual *t, double width) {
  double value = 0;
  begin(t);
  for (uint32_t v = 0; v < t->version_count; v++) {
    const struct mr_version *version = &t->versions[v];
    for (uint32_t i = version->first; i < version->end && version->hosted == 0; i++) {
      look_ahead(t, &t->stays[i]);
    }
    if (version->hosted == 0 && version->first < version->end) {
      value +=
          version->written ? choose_written(t, version, width) : choose_constant(t, version, width);
    }
  }
  if (t->hosted.count > 0) {
    value += mr_dual_choose_hosted(t, width);
  }
  for (uint32_t w = 0; w < t->window_count; w++) {
    value += t->toll[w].ops * t->ops_seconds[w];
  }
  add_excess(t);
  for (uint32_t k = 0; k < t->op_count; k++) {
    value += t->price[k] * t->short_bytes[k];
  }
  return value;
}

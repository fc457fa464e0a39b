/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What spans and ops choose under prices of room and tolls of windows.
 *
 * A byte of a written version goes out in some window, once, and may leave from then on; in each of
 * its spans it comes back in some window, and room is free for it from the one to the other. The
 * best of all pairs of windows is found from the back: what coming back in a window or later costs
 * at least, for each window. What a clone makes again leaves at once and is made in some window.
 */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "plan/dual_model.h"

double mr_toll_on(const struct mr_toll *toll, const struct mr_toll *amounts) {
  return toll->in * amounts->in + toll->out * amounts->out + toll->ops * amounts->ops +
         toll->host_ops * amounts->host_ops + toll->awaited * amounts->awaited +
         toll->host_in * amounts->host_in + toll->host_out * amounts->host_out +
         toll->fixed * amounts->fixed;
}

void mr_toll_add(struct mr_toll *sum, double times, const struct mr_toll *toll) {
  sum->in += times * toll->in;
  sum->out += times * toll->out;
  sum->ops += times * toll->ops;
  sum->host_ops += times * toll->host_ops;
  sum->awaited += times * toll->awaited;
  sum->host_in += times * toll->host_in;
  sum->host_out += times * toll->host_out;
  sum->fixed += times * toll->fixed;
}

/* The part that a choice has, before it is set against those of the others: 1 of the best, 0 from
 * `width` above it on. */
static double favour(double above, double width) {
  double nearness = width > 0 ? 1 - above / width : above <= 0;
  return nearness > 0 ? nearness * nearness : 0;
}

/* The part of a choice that costs so much where the other costs nothing. */
static double part_of(double cost, double width) {
  double least = mr_min_double(cost, 0);
  double part = favour(cost - least, width);
  return part / (part + favour(-least, width));
}

static const struct mr_toll *toll_in(const struct mr_dual *t, uint32_t window) {
  return &t->toll[window < t->window_count ? window : window - t->window_count];
}

static struct mr_toll *used_in(struct mr_dual *t, uint32_t window) {
  return &t->used[window < t->window_count ? window : window - t->window_count];
}

/* The ops before the end of a window, or of the stay. */
static double price_till(const struct mr_dual *t, const struct mr_stay *stay, uint32_t window) {
  uint32_t end = t->window_start[window + 1];
  return t->before[stay->end < end ? stay->end : end];
}

/* Room that so many bytes give up at ops of a stay, counted over two steps. */
static void free_room(struct mr_dual *t, double bytes, uint32_t begin, uint32_t end) {
  uint32_t n = t->op_count;
  uint32_t turn = begin >= n ? n : 0;
  begin -= turn;
  end -= turn;
  if (begin >= end) {
    return;
  }
  t->excess[begin] -= bytes;
  if (end > n) {
    t->excess[0] -= bytes;
  }
  if (end != n) {
    t->excess[end % n] += bytes;
  }
}

/* What coming back costs, from the last window to the first; what being made again does. */
static void look_ahead(struct mr_dual *t, struct mr_stay *stay) {
  double *ahead = &t->ahead[stay->ahead];
  double least = INFINITY;
  double again = INFINITY;
  for (uint32_t v = stay->to + 1; v-- > stay->from;) {
    double till = price_till(t, stay, v);
    least = mr_min_double(least, t->movable ? toll_in(t, v)->in - till : INFINITY);
    again = mr_min_double(again, toll_in(t, v)->ops * stay->remake - till);
    ahead[v - stay->from] = least;
  }
  stay->remade = stay->remake >= 0 ? again + t->before[stay->begin] : INFINITY;
}

/* The first op that a byte may be gone at, and the first window that it may come back in, where its
 * version went out in the given window. */
struct start {
  uint32_t op, window;
};

static struct start start_of(const struct mr_dual *t, const struct mr_stay *stay,
                             uint32_t out_window) {
  uint32_t op = t->window_start[out_window] + 1;
  return (struct start){op > stay->begin ? op : stay->begin,
                        out_window > stay->from ? out_window : stay->from};
}

/* What leaving for a tier below costs at least; INFINITY: it is over before. */
static double moved_cost(const struct mr_dual *t, const struct mr_stay *stay,
                         const struct start *start) {
  return start->window > stay->to
             ? INFINITY
             : t->ahead[stay->ahead + start->window - stay->from] + t->before[start->op];
}

/* One way for bytes of a stay to leave: over a link or to be made again, back in a window. */
struct way {
  uint32_t window;
  bool moved;
  double part;
};

/* Adds a way unless it costs too much more than the least. Returns its part. */
static double add_way(struct way *ways, uint32_t *count, const struct way *way, double above,
                      double width) {
  double part = favour(above, width);
  if (part > 0) {
    ways[*count] = *way;
    ways[(*count)++].part = part;
  }
  return part;
}

/* Of bytes that are not below: they may be made again alone. */
static const struct start never = {.window = UINT32_MAX};

/* Lets so many bytes leave a stay as far as it pays. */
static void settle_stay(struct mr_dual *t, const struct mr_stay *stay, const struct start *start,
                        double bytes, double width) {
  struct way ways[4 * MR_DUAL_WINDOWS];
  uint32_t count = 0;
  double moved = moved_cost(t, stay, start);
  double least = mr_min_double(moved, stay->remade);
  if (least >= width) {
    return;
  }
  least = mr_min_double(least, 0);
  double sum = favour(-least, width);
  for (uint32_t v = moved < width ? start->window : stay->to + 1; v <= stay->to; v++) {
    double cost = toll_in(t, v)->in - price_till(t, stay, v) + t->before[start->op];
    sum += add_way(ways, &count, &(struct way){v, true, 0}, cost - least, width);
  }
  for (uint32_t v = stay->remade < width ? stay->from : stay->to + 1; v <= stay->to; v++) {
    double cost =
        toll_in(t, v)->ops * stay->remake - price_till(t, stay, v) + t->before[stay->begin];
    sum += add_way(ways, &count, &(struct way){v, false, 0}, cost - least, width);
  }
  for (uint32_t i = 0; i < count; i++) {
    uint32_t end = t->window_start[ways[i].window + 1];
    double part = bytes * ways[i].part / sum;
    struct mr_toll *used = used_in(t, ways[i].window);
    used->in += ways[i].moved ? part : 0;
    used->ops += ways[i].moved ? 0 : part * stay->remake;
    free_room(t, part, ways[i].moved ? start->op : stay->begin, end < stay->end ? end : stay->end);
  }
}

/* What the stays of a version cost at least when it goes out in a window. */
static double cost_from(const struct mr_dual *t, const struct mr_version *version,
                        uint32_t out_window) {
  double cost = 0;
  for (uint32_t i = version->first; i < version->end; i++) {
    const struct mr_stay *stay = &t->stays[i];
    const struct start start = start_of(t, stay, out_window);
    double leaving = mr_min_double(moved_cost(t, stay, &start), stay->remade);
    cost += mr_min_double(leaving, 0);
  }
  return cost;
}

static void settle_from(struct mr_dual *t, const struct mr_version *version, uint32_t out_window,
                        double bytes, double width) {
  for (uint32_t i = version->first; i < version->end; i++) {
    const struct start start = start_of(t, &t->stays[i], out_window);
    settle_stay(t, &t->stays[i], &start, bytes, width);
  }
}

/* What is not written is below already. */
static double choose_constant(struct mr_dual *t, const struct mr_version *version, double width) {
  double cost = 0;
  for (uint32_t i = version->first; i < version->end; i++) {
    const struct mr_stay *stay = &t->stays[i];
    const struct start start = {stay->begin, stay->from};
    cost += mr_min_double(mr_min_double(moved_cost(t, stay, &start), stay->remade), 0);
    settle_stay(t, stay, &start, version->bytes, width);
  }
  return version->bytes * cost;
}

static double choose_written(struct mr_dual *t, const struct mr_version *version, double width) {
  double costs[2 * MR_DUAL_WINDOWS];
  double within = 0;
  uint32_t last = 0;
  for (uint32_t i = version->first; i < version->end; i++) {
    within += mr_min_double(t->stays[i].remade, 0);
    last = t->stays[i].to > last ? t->stays[i].to : last;
  }
  double least = within;
  for (uint32_t u = version->write_window; u <= last; u++) {
    costs[u] = t->movable ? toll_in(t, u)->out + cost_from(t, version, u) : INFINITY;
    least = mr_min_double(least, costs[u]);
  }
  double stay_part = favour(within - least, width);
  double sum = stay_part;
  for (uint32_t u = version->write_window; u <= last; u++) {
    costs[u] = favour(costs[u] - least, width);
    sum += costs[u];
  }
  for (uint32_t u = version->write_window; u <= last; u++) {
    double bytes = version->bytes * costs[u] / sum;
    if (bytes > 0) {
      used_in(t, u)->out += bytes;
      settle_from(t, version, u, bytes, width);
    }
  }
  for (uint32_t i = version->first; i < version->end && stay_part > 0; i++) {
    settle_stay(t, &t->stays[i], &never, version->bytes * stay_part / sum, width);
  }
  return version->bytes * least;
}

/* ---- What hangs on where an op runs: there is one window then ---- */

static double leave_cost(const struct mr_dual *t, const struct mr_stay *stay) {
  return t->movable ? t->toll[0].in - (t->before[stay->end] - t->before[stay->begin]) : INFINITY;
}

/* Adds a version to what its op costs at either site. */
static void weigh_hosted(struct mr_dual *t, const struct mr_version *version) {
  struct mr_site *site = &t->sites[version->hosted - 1];
  double device = t->toll[0].out;
  double host = version->rests ? -t->toll[0].in : t->toll[0].host_in;
  for (uint32_t i = version->first; i < version->end; i++) {
    double leave = leave_cost(t, &t->stays[i]);
    device += mr_min_double(leave, 0);
    host += i == version->stale ? leave : mr_min_double(leave, 0);
  }
  site->device += version->bytes * mr_min_double(device, 0);
  site->host += version->bytes * host;
  site->bytes += version->bytes;
}

static void settle_hosted(struct mr_dual *t, const struct mr_version *version, double width) {
  double host = t->sites[version->hosted - 1].part;
  double device = t->toll[0].out;
  for (uint32_t i = version->first; i < version->end; i++) {
    device += mr_min_double(leave_cost(t, &t->stays[i]), 0);
  }
  double out = (1 - host) * part_of(device, width);
  t->used[0].out += out * version->bytes;
  for (uint32_t i = version->first; i < version->end; i++) {
    const struct mr_stay *stay = &t->stays[i];
    bool stale = i == version->stale;
    double part = part_of(leave_cost(t, stay), width);
    double replaced = stale ? host : 0;
    double left = (out + (stale ? 0 : host)) * part;
    double back = version->bytes * (version->rests ? 0 : replaced);
    t->used[0].in += version->bytes * left + back;
    t->used[0].host_in += back;
    free_room(t, version->bytes * (left + replaced), stay->begin, stay->end);
  }
}

/* What the ops themselves take at their sites. Where no host is left to run them it is not known
 * that the device must. */
static void open_sites(struct mr_dual *t) {
  for (uint32_t i = 0; i < t->hosted.count; i++) {
    const struct mr_hosted_op *op = &t->hosted.ops[i];
    double awaited = op->awaited ? 1 : 0;
    t->sites[i] = (struct mr_site){0};
    if (t->may_host) {
      t->sites[i] = (struct mr_site){
          .device = t->toll[0].ops * op->device_seconds,
          .host = (t->toll[0].host_ops + awaited * t->toll[0].awaited) * op->host_seconds +
                  (t->toll[0].out + t->toll[0].host_out) * op->made_bytes,
          .bytes = op->made_bytes};
    }
  }
}

/* The cheaper site of each op. */
static double choose_sites(struct mr_dual *t, double width) {
  double cost = 0;
  for (uint32_t i = 0; i < t->hosted.count; i++) {
    const struct mr_hosted_op *op = &t->hosted.ops[i];
    struct mr_site *site = &t->sites[i];
    double more = site->host - site->device;
    cost += site->device;
    if (t->may_host) {
      cost += mr_min_double(more, 0);
      site->part = part_of(more, width * site->bytes);
      mr_toll_add(&t->used[0], 1 - site->part, &(struct mr_toll){.ops = op->device_seconds});
      mr_toll_add(&t->used[0], site->part,
                  &(struct mr_toll){.host_ops = op->host_seconds,
                                    .awaited = op->awaited ? op->host_seconds : 0,
                                    .out = op->made_bytes,
                                    .host_out = op->made_bytes});
    }
  }
  return cost;
}

/* ---- All of them ---- */

static void begin(struct mr_dual *t) {
  for (uint32_t k = 0; k < 2 * t->op_count; k++) {
    t->before[k + 1] = t->before[k] + t->price[k < t->op_count ? k : k - t->op_count];
  }
  for (uint32_t w = 0; w < t->window_count; w++) {
    t->used[w] = (struct mr_toll){.ops = t->ops_seconds[w], .fixed = 1};
  }
  memset(t->excess, 0, t->op_count * sizeof *t->excess);
  open_sites(t);
}

double mr_dual_choose(struct mr_dual *t, double width) {
  double value = 0;
  double left = 0;
  begin(t);
  for (uint32_t v = 0; v < t->version_count; v++) {
    const struct mr_version *version = &t->versions[v];
    for (uint32_t i = version->first; i < version->end && version->hosted == 0; i++) {
      look_ahead(t, &t->stays[i]);
    }
    if (version->hosted > 0) {
      weigh_hosted(t, version);
    } else if (version->first < version->end) {
      value +=
          version->written ? choose_written(t, version, width) : choose_constant(t, version, width);
    }
  }
  value += choose_sites(t, width);
  for (uint32_t v = 0; v < t->version_count; v++) {
    if (t->versions[v].hosted > 0) {
      settle_hosted(t, &t->versions[v], width);
    }
  }
  for (uint32_t w = 0; w < t->window_count; w++) {
    value += t->toll[w].ops * t->ops_seconds[w] + t->toll[w].fixed;
  }
  for (uint32_t k = 0; k < t->op_count; k++) {
    left += t->excess[k];
    t->excess[k] = left + t->short_bytes[k];
    value += t->price[k] * t->short_bytes[k];
  }
  return value;
}

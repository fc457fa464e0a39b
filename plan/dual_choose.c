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

/* The part that a choice has, before it is set against those of the others: 1 of the best, 0 from
 * `width` above it on. */
static double favour(double above, double width) {
  if (above >= width) { /* nearly all are: they are not worth a division */
    return above <= 0;
  }
  double nearness = width > 0 ? 1 - above / width : above <= 0;
  return nearness * nearness;
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
    t->excess[end < n ? end : end - n] += bytes;
  }
}

/* What coming back costs, from the last window to the first; what being made again does. */
static void look_ahead(struct mr_dual *t, struct mr_stay *stay) {
  double *ahead = &t->ahead[stay->ahead];
  double *back = &t->back[stay->ahead];
  double least = INFINITY;
  double again = INFINITY;
  for (uint32_t v = stay->to + 1; v-- > stay->from;) {
    double till = price_till(t, stay, v);
    double cost = t->movable ? toll_in(t, v)->in - till : INFINITY;
    least = mr_min_double(least, cost);
    again = mr_min_double(again, toll_in(t, v)->ops * stay->remake - till);
    ahead[v - stay->from] = least;
    back[v - stay->from] = cost;
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
    double cost = t->back[stay->ahead + v - stay->from] + t->before[start->op];
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
    if (costs[u] > 0) {
      double bytes = version->bytes * costs[u] / sum;
      used_in(t, u)->out += bytes;
      settle_from(t, version, u, bytes, width);
    }
  }
  for (uint32_t i = version->first; i < version->end && stay_part > 0; i++) {
    settle_stay(t, &t->stays[i], &never, version->bytes * stay_part / sum, width);
  }
  return version->bytes * least;
}

/* ---- What hangs on where an op runs ---- */

/* In which window something passes: what that costs in each that it may pass in, INFINITY in
 * others; then the part of it that each has. */
struct choice {
  uint32_t from, to; /* windows, unrolled */
  double least;
  double costs[2 * MR_DUAL_WINDOWS];
};

static void set_cost(struct choice *choice, uint32_t window, double cost) {
  choice->costs[window] = cost;
  choice->least = mr_min_double(choice->least, cost);
}

/* From costs to parts; none where nothing may pass. */
static void spread(struct choice *choice, double width) {
  double sum = 0;
  for (uint32_t v = choice->from; v <= choice->to; v++) {
    choice->costs[v] = favour(choice->costs[v] - choice->least, width);
    sum += choice->costs[v];
  }
  for (uint32_t v = choice->from; v <= choice->to; v++) {
    choice->costs[v] = sum > 0 ? choice->costs[v] / sum : 0;
  }
}

/* Adds so much of an amount, in the windows of a choice that was spread. */
static void use(struct mr_dual *t, const struct choice *choice, double times,
                const struct mr_toll *amount) {
  for (uint32_t v = choice->from; v <= choice->to; v++) {
    if (choice->costs[v] > 0) {
      mr_toll_add(used_in(t, v), times * choice->costs[v], amount);
    }
  }
}

/* What does not depend on the tensor: a byte that goes out, of what was made for an op too; one
 * that comes back for an op that it rests for, or comes in that an awaited one wrote on the host; a
 * second of an op at either site, that is awaited or not. */
struct choices {
  struct choice out, made_out, rest_in, anew_in;
  struct choice here[2], there[2];
};

static const struct mr_toll byte_in = {.in = 1};
static const struct mr_toll byte_out = {.out = 1};
static const struct mr_toll byte_in_anew = {.in = 1, .host_in = 1};
static const struct mr_toll byte_made_out = {.out = 1, .host_out = 1};
static const struct mr_toll second_here = {.ops = 1};
static const struct mr_toll second_there = {.host_ops = 1};

/* Any window of the step; not the quiet ones for what an awaited op does. */
static struct choice choose_anywhere(const struct mr_dual *t, const struct mr_toll *amount,
                                     bool awaited) {
  struct choice choice = {.to = t->window_count - 1, .least = INFINITY};
  for (uint32_t w = 0; w < t->window_count; w++) {
    set_cost(&choice, w, awaited && t->quiet[w] ? INFINITY : mr_toll_on(&t->toll[w], amount));
  }
  return choice;
}

static bool is_before_barrier(const struct mr_dual *t, uint32_t window) {
  return t->quiet[window] && t->window_start[window + 1] <= t->hosted.barrier;
}

/* What rests for an op is wanted behind the barrier, in whichever window that runs the op: so what
 * comes in before takes room beside the barrier too. */
static struct choice choose_rest_in(const struct mr_dual *t) {
  struct choice choice = {.to = t->window_count - 1, .least = INFINITY};
  for (uint32_t w = 0; w < t->window_count; w++) {
    double beside = is_before_barrier(t, w) ? t->price[t->hosted.barrier] : 0;
    set_cost(&choice, w, t->movable ? t->toll[w].in + beside : INFINITY);
  }
  return choice;
}

static void choose_all(const struct mr_dual *t, struct choices *choices) {
  choices->out = choose_anywhere(t, &byte_out, false);
  choices->made_out = choose_anywhere(t, &byte_made_out, false);
  choices->rest_in = choose_rest_in(t);
  choices->anew_in = choose_anywhere(t, &byte_in_anew, true);
  for (int awaited = 0; awaited < 2; awaited++) {
    choices->here[awaited] = choose_anywhere(t, &second_here, awaited == 1);
    choices->there[awaited] = choose_anywhere(t, &second_there, awaited == 1);
  }
}

/* Seconds of ops are as near to each other as bytes out are. */
static void spread_all(struct choices *choices, double width) {
  double bytes = choices->out.least;
  spread(&choices->rest_in, width);
  spread(&choices->made_out, width);
  spread(&choices->anew_in, width);
  for (int awaited = 0; awaited < 2; awaited++) {
    spread(&choices->here[awaited], width * choices->here[awaited].least / bytes);
    spread(&choices->there[awaited], width * choices->there[awaited].least / bytes);
  }
  spread(&choices->out, width);
}

static double room_of(const struct mr_dual *t, const struct mr_stay *stay) {
  return t->before[stay->end] - t->before[stay->begin];
}

/* Says of a choice, unless it is NULL, whose costs are known. */
static double close_choice(struct choice *choice, uint32_t from, uint32_t to, double least) {
  if (choice != NULL) {
    choice->from = from;
    choice->to = to;
    choice->least = least;
  }
  return least;
}

/* What a byte of a stay costs at least that comes back, less the room up to then: as it was, or as
 * the writer, where there is one, wrote it on the host. choice: filled unless NULL. */
static double weigh_back(const struct mr_dual *t, const struct mr_stay *stay,
                         const struct mr_hosted_op *writer, struct choice *choice) {
  double anew = writer == NULL ? 0 : 1;
  double least = INFINITY;
  for (uint32_t v = stay->from; v <= stay->to; v++) {
    const struct mr_toll *toll = toll_in(t, v);
    bool quiet = t->quiet[v < t->window_count ? v : v - t->window_count];
    bool allowed = writer == NULL ? t->movable : !(writer->awaited && quiet);
    double cost = toll->in + anew * toll->host_in + t->before[stay->begin];
    cost = allowed ? cost - price_till(t, stay, v) : INFINITY;
    least = mr_min_double(least, cost);
    if (choice != NULL) {
      choice->costs[v] = cost;
    }
  }
  MR_ASSERT(writer == NULL || least < INFINITY);
  return close_choice(choice, stay->from, stay->to, least);
}

/* What leaving a stay costs at least. */
static double leave_cost(const struct mr_dual *t, const struct choices *choices,
                         const struct mr_version *version, const struct mr_stay *stay) {
  return version->rests ? choices->rest_in.least - room_of(t, stay)
                        : weigh_back(t, stay, NULL, NULL);
}

/* The first op of a stay at which bytes may be gone that go out in a window; its end: none. */
static uint32_t gone_at(const struct mr_dual *t, const struct mr_stay *stay, uint32_t window) {
  uint32_t op = start_of(t, stay, window).op;
  return window > stay->to || op > stay->end ? stay->end : op;
}

/* What a byte that was made for an op costs at least that goes out, with the room up to then.
 * choice: filled unless NULL. */
static double weigh_made_out(const struct mr_dual *t, const struct mr_version *version,
                             const struct mr_toll *amount, struct choice *choice) {
  const struct mr_stay *stay = &t->stays[version->first];
  uint32_t last = version->write_window + t->window_count - 1;
  double least = INFINITY;
  for (uint32_t v = version->write_window; v <= last; v++) {
    double room = t->before[gone_at(t, stay, v)] - t->before[stay->begin];
    double cost = mr_toll_on(toll_in(t, v), amount) + room;
    least = mr_min_double(least, cost);
    if (choice != NULL) {
      choice->costs[v] = cost;
    }
  }
  return close_choice(choice, version->write_window, last, least);
}

/* What a byte of a version costs at least that goes out for the sake of room. */
static double out_cost(const struct mr_dual *t, const struct choices *choices,
                       const struct mr_version *version) {
  return version->made ? weigh_made_out(t, version, &byte_out, NULL) : choices->out.least;
}

static const struct mr_hosted_op *op_of(const struct mr_dual *t, const struct mr_version *version) {
  return &t->hosted.ops[version->hosted - 1];
}

/* Adds a version to what its op costs at either site. */
static void weigh_hosted(struct mr_dual *t, const struct choices *choices,
                         const struct mr_version *version) {
  struct mr_site *site = &t->sites[version->hosted - 1];
  double device = out_cost(t, choices, version);
  double host = version->made ? weigh_made_out(t, version, &byte_made_out, NULL) : 0;
  for (uint32_t i = version->first; i < version->end; i++) {
    const struct mr_stay *stay = &t->stays[i];
    double leave = mr_min_double(leave_cost(t, choices, version, stay), 0);
    device += leave;
    if (i != version->stale) {
      host += leave;
    } else if (version->rests) {
      host -= room_of(t, stay);
    } else {
      host += weigh_back(t, stay, op_of(t, version), NULL);
    }
  }
  site->device += version->bytes * mr_min_double(device, 0);
  site->host += version->bytes * host;
  site->bytes += version->bytes;
}

/* Bytes that leave a stay between uses on the device and come back as was chosen. */
static void settle_back(struct mr_dual *t, const struct mr_stay *stay, struct choice *choice,
                        const struct mr_toll *amount, double bytes, double width) {
  spread(choice, width);
  use(t, choice, bytes, amount);
  for (uint32_t v = choice->from; v <= choice->to; v++) {
    uint32_t end = t->window_start[v + 1];
    free_room(t, bytes * choice->costs[v], stay->begin, end < stay->end ? end : stay->end);
  }
}

/* Bytes that rest for an op: those that leave and come back, and those whose op is on the host. */
static void settle_rest(struct mr_dual *t, const struct choices *choices,
                        const struct mr_stay *stay, double moved, double hosted) {
  uint32_t barrier = t->hosted.barrier + (t->hosted.barrier < stay->begin ? t->op_count : 0);
  use(t, &choices->rest_in, moved, &byte_in);
  free_room(t, moved + hosted, stay->begin, stay->end);
  for (uint32_t w = 0; w < t->window_count && barrier < stay->end; w++) {
    if (is_before_barrier(t, w)) {
      free_room(t, -moved * choices->rest_in.costs[w], barrier, barrier + 1);
    }
  }
}

/* So many bytes that were made for an op go out. */
static void settle_made_out(struct mr_dual *t, const struct mr_version *version,
                            const struct mr_toll *amount, double bytes, double width) {
  const struct mr_stay *stay = &t->stays[version->first];
  struct choice out;
  (void)weigh_made_out(t, version, amount, &out);
  spread(&out, width);
  use(t, &out, bytes, amount);
  for (uint32_t v = out.from; v <= out.to; v++) {
    free_room(t, -bytes * out.costs[v], stay->begin, gone_at(t, stay, v));
  }
}

static void settle_hosted(struct mr_dual *t, const struct choices *choices,
                          const struct mr_version *version, double width) {
  double host = t->sites[version->hosted - 1].part;
  double device = out_cost(t, choices, version);
  for (uint32_t i = version->first; i < version->end; i++) {
    device += mr_min_double(leave_cost(t, choices, version, &t->stays[i]), 0);
  }
  double out = (1 - host) * part_of(device, width);
  if (version->made) {
    settle_made_out(t, version, &byte_out, version->bytes * out, width);
    settle_made_out(t, version, &byte_made_out, version->bytes * host, width);
  } else {
    use(t, &choices->out, out * version->bytes, &byte_out);
  }
  for (uint32_t i = version->first; i < version->end; i++) {
    const struct mr_stay *stay = &t->stays[i];
    double replaced = i == version->stale ? host : 0;
    double leave = leave_cost(t, choices, version, stay);
    double left = (out + host - replaced) * part_of(leave, width);
    if (version->rests) {
      settle_rest(t, choices, stay, version->bytes * left, version->bytes * replaced);
      continue;
    }
    if (left > 0) {
      struct choice back;
      (void)weigh_back(t, stay, NULL, &back);
      settle_back(t, stay, &back, &byte_in, version->bytes * left, width);
    }
    if (replaced > 0) {
      struct choice back;
      (void)weigh_back(t, stay, op_of(t, version), &back);
      settle_back(t, stay, &back, &byte_in_anew, version->bytes * replaced, width);
    }
  }
}

/* What an op takes of the device there. Where no host is left to run those that can leave it is not
 * known that the device must. */
static double seconds_here(const struct mr_dual *t, const struct mr_hosted_op *op) {
  return t->may_host || !op->can_leave ? op->device_seconds : 0;
}

static bool may_leave(const struct mr_dual *t, const struct mr_hosted_op *op) {
  return t->may_host && op->can_leave;
}

/* What the ops themselves take at their sites. */
static void open_sites(struct mr_dual *t, const struct choices *choices) {
  for (uint32_t i = 0; i < t->hosted.count; i++) {
    const struct mr_hosted_op *op = &t->hosted.ops[i];
    double here = choices->here[op->awaited].least;
    double there = choices->there[op->awaited].least;
    t->sites[i] = (struct mr_site){.device = here * seconds_here(t, op),
                                   .bytes = op->made_bytes + op->anew_bytes};
    if (may_leave(t, op)) {
      t->sites[i].host = here * op->handover_seconds + there * op->host_seconds +
                         choices->made_out.least * op->made_bytes +
                         choices->anew_in.least * op->anew_bytes;
    }
  }
}

/* The cheaper site of each op: what that costs over all. */
static double choose_sites(struct mr_dual *t, double width) {
  double cost = 0;
  for (uint32_t i = 0; i < t->hosted.count; i++) {
    struct mr_site *site = &t->sites[i];
    double more = site->host - site->device;
    cost += site->device;
    if (may_leave(t, &t->hosted.ops[i])) {
      cost += mr_min_double(more, 0);
      site->part = part_of(more, width * site->bytes);
    }
  }
  return cost;
}

static void settle_sites(struct mr_dual *t, const struct choices *choices) {
  for (uint32_t i = 0; i < t->hosted.count; i++) {
    const struct mr_hosted_op *op = &t->hosted.ops[i];
    double host = t->sites[i].part;
    double here = (1 - host) * seconds_here(t, op) + host * op->handover_seconds;
    use(t, &choices->here[op->awaited], here, &second_here);
    use(t, &choices->there[op->awaited], host * op->host_seconds, &second_there);
    use(t, &choices->made_out, host * op->made_bytes, &byte_made_out);
    use(t, &choices->anew_in, host * op->anew_bytes, &byte_in_anew);
  }
}

/* ---- All of them ---- */

static void begin(struct mr_dual *t) {
  for (uint32_t k = 0; k < 2 * t->op_count; k++) {
    t->before[k + 1] = t->before[k] + t->price[k < t->op_count ? k : k - t->op_count];
  }
  for (uint32_t w = 0; w < t->window_count; w++) {
    t->used[w] = (struct mr_toll){.ops = t->ops_seconds[w]};
  }
  memset(t->excess, 0, t->op_count * sizeof *t->excess);
}

double mr_dual_choose(struct mr_dual *t, double width) {
  double value = 0;
  double left = 0;
  struct choices choices = {0};
  begin(t);
  if (t->hosted.count > 0) {
    choose_all(t, &choices);
    open_sites(t, &choices);
  }
  for (uint32_t v = 0; v < t->version_count; v++) {
    const struct mr_version *version = &t->versions[v];
    for (uint32_t i = version->first; i < version->end && version->hosted == 0; i++) {
      look_ahead(t, &t->stays[i]);
    }
    if (version->hosted > 0) {
      weigh_hosted(t, &choices, version);
    } else if (version->first < version->end) {
      value +=
          version->written ? choose_written(t, version, width) : choose_constant(t, version, width);
    }
  }
  if (t->hosted.count > 0) {
    value += choose_sites(t, width);
    spread_all(&choices, width);
    settle_sites(t, &choices);
  }
  for (uint32_t v = 0; v < t->version_count; v++) {
    if (t->versions[v].hosted > 0) {
      settle_hosted(t, &choices, &t->versions[v], width);
    }
  }
  for (uint32_t w = 0; w < t->window_count; w++) {
    value += t->toll[w].ops * t->ops_seconds[w];
  }
  for (uint32_t k = 0; k < t->op_count; k++) {
    left += t->excess[k];
    t->excess[k] = left + t->short_bytes[k];
    value += t->price[k] * t->short_bytes[k];
  }
  return value;
}

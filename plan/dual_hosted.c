/* SPDX-License-Identifier: Apache-2.0 */
/* What hangs on where an op runs, on the device or on a host apart: plan/hosted.h. */
#include <math.h>

#include "base/base.h"
#include "plan/dual_choice.h"

/* Room that so many bytes give up at ops of a stay, counted over two steps. */
static void free_room(struct mr_dual *t, double bytes, uint32_t begin, uint32_t end) {
  if (begin < end) {
    t->freed[begin] += bytes;
    t->freed[end] -= bytes;
  }
}

/* The part of a choice that costs so much where the other costs nothing. */
static double part_of(double cost, double width) {
  double least = mr_min_double(cost, 0);
  double part = mr_dual_favour(cost - least, width);
  return part / (part + mr_dual_favour(-least, width));
}

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
    choice->costs[v] = mr_dual_favour(choice->costs[v] - choice->least, width);
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
      mr_toll_add(mr_dual_used_in(t, v), times * choice->costs[v], amount);
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
    const struct mr_toll *toll = mr_dual_toll_in(t, v);
    bool quiet = t->quiet[v < t->window_count ? v : v - t->window_count];
    bool allowed = writer == NULL ? t->movable : !(writer->awaited && quiet);
    double cost = toll->in + anew * toll->host_in + t->before[stay->begin];
    cost = allowed ? cost - mr_dual_price_till(t, stay, v) : INFINITY;
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
  uint32_t op = mr_dual_start_of(t, stay, window).op;
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
    double cost = mr_toll_on(mr_dual_toll_in(t, v), amount) + room;
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

double mr_dual_choose_hosted(struct mr_dual *t, double width) {
  struct choices choices = {0};
  choose_all(t, &choices);
  open_sites(t, &choices);
  for (uint32_t v = 0; v < t->version_count; v++) {
    if (t->versions[v].hosted > 0) {
      weigh_hosted(t, &choices, &t->versions[v]);
    }
  }
  double cost = choose_sites(t, width);
  spread_all(&choices, width);
  settle_sites(t, &choices);
  for (uint32_t v = 0; v < t->version_count; v++) {
    if (t->versions[v].hosted > 0) {
      settle_hosted(t, &choices, &t->versions[v], width);
    }
  }
  return cost;
}

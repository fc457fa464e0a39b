/* SPDX-License-Identifier: Apache-2.0 */
/* The ascent to the prices of room and the weights of resources that give the highest bound. */
#include "plan/traffic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/draft.h"
#include "plan/rates.h"
#include "plan/spans.h"

/* The ascent: rounds, and the first and the last of what its step and the width of its smoothing
 * are, as parts of the price of a byte. So many rounds come within 1 % of the optimum, 0.1 % where
 * one resource binds. */
#define ROUNDS       300u
#define FIRST_STEP   0.1
#define LAST_STEP    0.002
#define FIRST_WIDTH  0.5
#define LAST_WIDTH   0.01
#define FIRST_SHIFT  0.2 /* of a weight, as a part of it */
#define LAST_SHIFT   0.01
#define CHECK_ROUNDS 10u /* the bound is taken after so many */
/* The cost, in seconds for a byte, of what cannot be done: still a number when nothing of it is
 * taken. */
#define NEVER 1e100
/* Of the running means of the slope and of its square (D. Kingma and J. Ba, Adam, 2015). */
#define SLOPE_DECAY  0.9
#define SQUARE_DECAY 0.99

/* What a resource takes: seconds for a byte in, a byte out, and a second of ops. */
struct toll {
  double in, out, ops;
};

#define MOST_TOLLS (MR_DRIVE_FACES + 1)

/* Spans of one tensor between whose accesses it is not written: it goes out once for all. */
struct version {
  uint32_t first, end; /* in the order of versions */
  bool written;
};

/* The running means of a slope and of its square. */
struct slope {
  double mean, square;
};

/* Where a span's bytes may leave: its costs less the price of the room that it gives up, when its
 * version has gone out and when it has not. */
struct leave {
  double moved, remade;
};

struct traffic {
  uint32_t op_count;
  struct mr_spans spans;
  uint32_t *order; /* of spans: by version */
  struct version *versions;
  uint32_t version_count;
  double *remake;      /* for each span: seconds of ops that make a byte of it; NEVER: none do */
  double *short_bytes; /* for each op: what is over the budget when everything stays */
  double ops_seconds;
  bool movable; /* there is a tier below */
  struct toll tolls[MOST_TOLLS];
  double weights[MOST_TOLLS];
  uint32_t toll_count;
  double *price;        /* of a byte of room at each op */
  double *before;       /* sums of prices over two steps, before each op */
  double *excess;       /* the room that is short at each op under what spans choose */
  struct leave *leaves; /* of spans, in the order of versions */
  struct slope *slopes;
  struct slope weight_slopes[MOST_TOLLS];
  double in_bytes, out_bytes, again_seconds; /* by the smoothed choice of spans */
};

static void traffic_fini(struct traffic *t) {
  mr_spans_fini(&t->spans);
  free(t->order);
  free(t->versions);
  free(t->remake);
  free(t->short_bytes);
  free(t->price);
  free(t->before);
  free(t->excess);
  free(t->leaves);
  free(t->slopes);
}

static mr_status allocate(struct traffic *t) {
  uint32_t n = t->op_count;
  t->order = mr_allocate(t->spans.count, sizeof *t->order);
  t->versions = mr_allocate(t->spans.count, sizeof *t->versions);
  t->remake = mr_allocate(t->spans.count, sizeof *t->remake);
  t->short_bytes = mr_allocate(n, sizeof *t->short_bytes);
  t->price = mr_allocate(n, sizeof *t->price);
  t->before = mr_allocate(2ull * n + 1, sizeof *t->before);
  t->excess = mr_allocate(n, sizeof *t->excess);
  t->leaves = mr_allocate(t->spans.count, sizeof *t->leaves);
  t->slopes = mr_allocate(n, sizeof *t->slopes);
  bool failed = t->order == NULL || t->versions == NULL || t->remake == NULL ||
                t->short_bytes == NULL || t->price == NULL || t->before == NULL ||
                t->excess == NULL || t->leaves == NULL || t->slopes == NULL;
  return failed ? MR_NO_MEMORY : MR_OK;
}

/* Of spans of one tensor: whether it is the same write that both come after. */
static bool same_version(const struct traffic *t, uint32_t a, uint32_t b) {
  int64_t apart = t->spans.items[a].last_write - t->spans.items[b].last_write;
  return apart == 0 || apart == t->op_count || apart == -(int64_t)t->op_count;
}

/* The spans of a tensor before its first write come after the last one of the step before. */
static void add_versions(struct traffic *t, uint32_t begin, uint32_t end) {
  uint32_t split = begin + 1;
  while (split < end && same_version(t, split, begin)) {
    split++;
  }
  uint32_t at = begin;
  for (uint32_t i = split; i < end; i++) {
    t->order[at++] = i;
  }
  for (uint32_t i = begin; i < split; i++) {
    t->order[at++] = i;
  }
  for (uint32_t i = begin; i < end; i++) {
    if (i == begin || !same_version(t, t->order[i], t->order[i - 1])) {
      t->versions[t->version_count++] = (struct version){i, i, t->spans.items[t->order[i]].written};
    }
    t->versions[t->version_count - 1].end = i + 1;
  }
}

static void find_versions(struct traffic *t) {
  uint32_t begin = 0;
  while (begin < t->spans.count) {
    uint32_t end = begin + 1;
    while (end < t->spans.count && t->spans.items[end].tensor == t->spans.items[begin].tensor) {
      end++;
    }
    add_versions(t, begin, end);
    begin = end;
  }
}

/* One run of an op makes all its outputs anew, each of which ends one span: so each byte of them
 * has its part of the op's time. `bytes` is of each op, 0. */
static void find_remakes(struct traffic *t, const struct mr_plan_problem *problem, double *bytes) {
  for (uint32_t i = 0; i < t->spans.count; i++) {
    const struct mr_span *span = &t->spans.items[i];
    bool first = i == 0 || t->spans.items[i - 1].tensor != span->tensor ||
                 t->spans.items[i - 1].maker != span->maker;
    if (span->maker != MR_NO_OP && first) {
      bytes[span->maker] += span->bytes;
    }
  }
  for (uint32_t i = 0; i < t->spans.count; i++) {
    mr_op_id maker = t->spans.items[i].maker;
    t->remake[i] = maker == MR_NO_OP ? NEVER : mr_host_least_seconds(problem, maker) / bytes[maker];
  }
}

/* What all spans take beyond the budget. */
static void measure_short(struct traffic *t, double device_bytes, const double *held_bytes) {
  double spanned = 0;
  for (uint32_t i = 0; i < t->spans.count; i++) {
    mr_span_spread(&t->spans.items[i], t->op_count, t->spans.items[i].bytes, t->short_bytes);
  }
  for (uint32_t k = 0; k < t->op_count; k++) {
    spanned += t->short_bytes[k];
    t->short_bytes[k] = spanned + held_bytes[k] - device_bytes;
  }
}

static bool all_fits(const struct traffic *t) {
  for (uint32_t k = 0; k < t->op_count; k++) {
    if (t->short_bytes[k] > 0) {
      return false;
    }
  }
  return true;
}

/* The resources: ops with what they lose to moves, and the faces of the links below. */
static void list_tolls(struct traffic *t, const struct mr_rates *rates) {
  bool drive_alone = rates->to_device == 0;
  double loss = drive_alone ? rates->loss : 0;
  t->tolls[t->toll_count++] = (struct toll){loss, loss, 1};
  for (uint32_t i = 0; i < rates->face_count; i++) {
    const struct mr_drive_face *face = &rates->faces[i];
    /* In a second the host's links take so many seconds of the drive off it. */
    double beside = 1 + face->read * rates->to_device + face->write * rates->to_host;
    t->tolls[t->toll_count++] = (struct toll){face->read / beside, face->write / beside, 0};
  }
  if (rates->read == 0 && rates->to_device > 0) {
    t->tolls[t->toll_count++] = (struct toll){1 / rates->to_device, 0, 0};
    t->tolls[t->toll_count++] = (struct toll){0, 1 / rates->to_host, 0};
  }
  t->movable = t->toll_count > 1;
  for (uint32_t i = 0; i < t->toll_count; i++) {
    t->weights[i] = 1.0 / t->toll_count;
  }
}

static mr_status traffic_init(struct traffic *t, const struct mr_plan_problem *problem,
                              const struct mr_liveness *liveness, const uint64_t *budget_bytes) {
  const struct mr_rates rates = mr_rates_under(problem, budget_bytes);
  *t = (struct traffic){.op_count = problem->program->op_count};
  double *scratch = mr_allocate(t->op_count, sizeof *scratch);
  mr_status status = scratch == NULL ? MR_NO_MEMORY : mr_spans_find(&t->spans, problem, liveness);
  if (status == MR_OK) {
    status = allocate(t);
  }
  if (status == MR_OK) {
    for (uint32_t k = 0; k < t->op_count; k++) {
      t->ops_seconds += mr_host_least_seconds(problem, k);
    }
    find_versions(t);
    find_remakes(t, problem, scratch);
    mr_spans_measure_held(problem->program, liveness, scratch);
    measure_short(t, (double)budget_bytes[MR_TIER_DEVICE], scratch);
    list_tolls(t, &rates);
  }
  free(scratch);
  return status;
}

/* The least of nothing and `cost`, rounded off over a width; how much of it is taken. */
static double soften(double cost, double width, double *part_out) {
  double part = mr_min_double(mr_max_double(0.5 - cost / width, 0), 1);
  *part_out = part;
  return part * cost + 0.5 * width * part * (part - 1);
}

/* What the weighted tolls take. */
static struct toll toll_of(const struct traffic *t) {
  struct toll toll = {0};
  for (uint32_t i = 0; i < t->toll_count; i++) {
    toll.in += t->weights[i] * t->tolls[i].in;
    toll.out += t->weights[i] * t->tolls[i].out;
    toll.ops += t->weights[i] * t->tolls[i].ops;
  }
  return toll;
}

static void sum_prices(struct traffic *t) {
  for (uint32_t k = 0; k < 2 * t->op_count; k++) {
    t->before[k + 1] = t->before[k] + t->price[k < t->op_count ? k : k - t->op_count];
  }
}

static struct leave leave_of(const struct traffic *t, const struct toll *toll, uint32_t index) {
  const struct mr_span *span = &t->spans.items[index];
  double room = t->before[span->before_op] - t->before[span->after_op + 1];
  bool can_remake = t->remake[index] < NEVER;
  return (struct leave){.moved = t->movable ? toll->in - room : NEVER,
                        .remade = can_remake ? toll->ops * t->remake[index] - room : NEVER};
}

/* The bound that the prices and weights give. */
static double value_of(const struct traffic *t, const struct toll *toll) {
  double value = toll->ops * t->ops_seconds;
  for (uint32_t k = 0; k < t->op_count; k++) {
    value += t->price[k] * t->short_bytes[k];
  }
  for (uint32_t v = 0; v < t->version_count; v++) {
    const struct version *version = &t->versions[v];
    double within = 0;
    double out = version->written ? toll->out : 0;
    for (uint32_t i = version->first; i < version->end; i++) {
      struct leave leave = leave_of(t, toll, t->order[i]);
      within += mr_min_double(leave.remade, 0);
      out += mr_min_double(mr_min_double(leave.moved, leave.remade), 0);
    }
    value += t->spans.items[t->order[version->first]].bytes * mr_min_double(within, out);
  }
  return value;
}

/* Lets a span of a version of which a part goes out leave as far as it pays. */
static void settle_span(struct traffic *t, uint32_t index, const struct leave *leave, double width,
                        double gone) {
  const struct mr_span *span = &t->spans.items[index];
  bool moves = leave->moved < leave->remade;
  double within = 0;
  double out = 0;
  (void)soften(leave->remade, width, &within);
  (void)soften(moves ? leave->moved : leave->remade, width, &out);
  double moved = moves ? gone * out * span->bytes : 0;
  double remade = ((1 - gone) * within + (moves ? 0 : gone * out)) * span->bytes;
  t->in_bytes += moved;
  t->again_seconds += remade > 0 ? remade * t->remake[index] : 0;
  if (moved + remade > 0) {
    mr_span_spread(span, t->op_count, -(moved + remade), t->excess);
  }
}

/* Lets the spans of a version leave as far as it pays, smoothed. */
static void settle_version(struct traffic *t, const struct toll *toll,
                           const struct version *version, double width) {
  double part = 0;
  double within = 0;
  double out = version->written ? toll->out : 0;
  for (uint32_t i = version->first; i < version->end; i++) {
    struct leave leave = leave_of(t, toll, t->order[i]);
    t->leaves[i] = leave;
    within += soften(leave.remade, width, &part);
    out += soften(mr_min_double(leave.moved, leave.remade), width, &part);
  }
  (void)soften(out - within, width, &part);
  t->out_bytes += version->written ? part * t->spans.items[t->order[version->first]].bytes : 0;
  for (uint32_t i = version->first; i < version->end; i++) {
    settle_span(t, t->order[i], &t->leaves[i], width, part);
  }
}

/* What spans choose under the prices. The slope of the bound is the room that is still short at
 * each op. */
static void choose(struct traffic *t, const struct toll *toll, double width) {
  t->in_bytes = 0;
  t->out_bytes = 0;
  t->again_seconds = 0;
  memset(t->excess, 0, t->op_count * sizeof *t->excess);
  for (uint32_t v = 0; v < t->version_count; v++) {
    settle_version(t, toll, &t->versions[v], width);
  }
  double left = 0;
  for (uint32_t k = 0; k < t->op_count; k++) {
    left += t->excess[k];
    t->excess[k] = left + t->short_bytes[k];
  }
}

/* How far to go along a slope whose running means have `now` added, as a part of a step. `begun`:
 * what the means have of all that they would have after many rounds. */
static double climb_by(struct slope *slope, double now, const struct slope *begun) {
  slope->mean = SLOPE_DECAY * slope->mean + (1 - SLOPE_DECAY) * now;
  slope->square = SQUARE_DECAY * slope->square + (1 - SQUARE_DECAY) * now * now;
  double scale = sqrt(slope->square / begun->square);
  return scale > 0 ? slope->mean / begun->mean / scale : 0;
}

static void raise_prices(struct traffic *t, const struct slope *begun, double step) {
  for (uint32_t k = 0; k < t->op_count; k++) {
    double rise = climb_by(&t->slopes[k], t->excess[k], begun);
    t->price[k] = mr_max_double(t->price[k] + step * rise, 0);
  }
}

/* More weight for resources that take longer than the mean under what spans choose. */
static void shift_weights(struct traffic *t, const struct slope *begun, double step) {
  double seconds[MOST_TOLLS] = {0};
  double mean = 0;
  double sum = 0;
  for (uint32_t i = 0; i < t->toll_count; i++) {
    const struct toll *toll = &t->tolls[i];
    seconds[i] = toll->ops * (t->ops_seconds + t->again_seconds) + toll->in * t->in_bytes +
                 toll->out * t->out_bytes;
    mean += t->weights[i] * seconds[i];
  }
  for (uint32_t i = 0; i < t->toll_count; i++) {
    double rise = climb_by(&t->weight_slopes[i], t->weights[i] * (seconds[i] - mean), begun);
    t->weights[i] *= exp(step * rise);
    sum += t->weights[i];
  }
  for (uint32_t i = 0; i < t->toll_count; i++) {
    t->weights[i] /= sum;
  }
}

/* What a byte costs about, which steps and widths are measured by. */
static double usual_price(const struct traffic *t, const struct toll *toll) {
  double most = 0;
  for (uint32_t i = 0; i < t->spans.count && !t->movable; i++) {
    most = t->remake[i] < NEVER ? mr_max_double(most, toll->ops * t->remake[i]) : most;
  }
  return t->movable ? (toll->in + toll->out) / 2 : most;
}

/* Prices are worth what bytes cost. */
static void scale_prices(struct traffic *t, double factor) {
  for (uint32_t k = 0; k < t->op_count; k++) {
    t->price[k] *= factor;
  }
}

static double climb(struct traffic *t) {
  struct toll toll = toll_of(t);
  double usual = usual_price(t, &toll);
  double best = 0;
  if (!(usual > 0)) {
    return 0; /* there is nothing to pay with */
  }
  for (uint32_t k = 0; k < t->op_count; k++) {
    t->price[k] = t->short_bytes[k] > 0 ? 2 * usual / t->op_count : 0;
  }
  for (uint32_t round = 0; round < ROUNDS; round++) {
    double done = (double)round / ROUNDS;
    struct slope begun = {1 - pow(SLOPE_DECAY, round + 1.0), 1 - pow(SQUARE_DECAY, round + 1.0)};
    sum_prices(t);
    if (round % CHECK_ROUNDS == CHECK_ROUNDS - 1) {
      best = mr_max_double(best, value_of(t, &toll));
    }
    choose(t, &toll, usual * FIRST_WIDTH * pow(LAST_WIDTH / FIRST_WIDTH, done));
    raise_prices(t, &begun, usual * FIRST_STEP * pow(LAST_STEP / FIRST_STEP, done));
    shift_weights(t, &begun, FIRST_SHIFT * pow(LAST_SHIFT / FIRST_SHIFT, done));
    toll = toll_of(t);
    double before = usual;
    usual = usual_price(t, &toll);
    scale_prices(t, usual / before);
  }
  return best;
}

mr_status mr_traffic_seconds(const struct mr_plan_problem *problem,
                             const struct mr_liveness *liveness,
                             const uint64_t budget_bytes[MR_TIER_COUNT], double *seconds_out) {
  struct traffic t;
  mr_status status = traffic_init(&t, problem, liveness, budget_bytes);
  if (status == MR_OK) {
    *seconds_out = all_fits(&t) ? t.ops_seconds : mr_max_double(climb(&t), t.ops_seconds);
  }
  traffic_fini(&t);
  return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The ascent to the prices of room and the weights of resources that give the highest bound. */
#include "plan/dual.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/bound.h"
#include "plan/drive.h"
#include "plan/dual_model.h"
#include "plan/host.h"

/* The ascent: rounds and windows, for a bound and for a guide, and the first and the last of what
 * its step and the width of its choices are, as parts of the price of a byte. More windows than
 * eight guide no better. For a bound one does beside the windows of plan/windows.c, unless ops lose
 * time to what NVMe moves, or NVMe is beside a device that is apart: those know how long a window
 * waits for a drive or how much its ops lose, but not both at once, nor what recompute must pay;
 * nor what a host apart runs. */
#define ROUNDS         300u
#define FEW_ROUNDS_OPS 10000u /* of more, in fewer rounds: bounds are up to 3 % lower */
#define FEW_ROUNDS     150u
#define GUIDE_ROUNDS   60u
#define GUIDE_WINDOWS  8u
/* Windows at first, and the rounds before which those beside a change are halved (halve_windows):
 * the first, and how many lie between. 21 jobs on a processor beside NVMe have bounds 0.8 % higher
 * on average, up to 2.1 %, than with 16 windows throughout, where 64 give 0.6 %; 45 beside a GPU
 * 0.4 %, up to 7.5 %, than with one. Where a host apart may run ops there are fewer, which stay:
 * with more, prices are not found in so many rounds. */
#define WINDOWS        14u
#define HOSTED_WINDOWS 6u
#define HALVINGS       6u
#define FIRST_HALF     30u
#define NEXT_HALF      20u
/* From this round on a climb is given up that will not come to what is known: of 20 jobs none had
 * more to gain than the square of the part of the rounds that was left, and a little at the end.
 * So is one that would gain less than such a part, if it went on as since two looks before, when
 * windows are halved no more: bounds of 105 jobs are 0.002 % lower on average, 0.08 % at worst. */
#define FIRST_VAIN  60u
#define LAST_GAIN   0.01
#define LOOK_ROUNDS 30u
#define LOOKS       2u
#define LEAST_GAIN  2e-4
#define FIRST_STEP  0.1 /* of what a byte costs; less for more ops, which share the price */
#define STEP_OPS    1000u
#define LAST_STEP   0.004
#define FIRST_WIDTH 1.0
#define LAST_WIDTH  0.01
#define FIRST_SHIFT 0.2 /* of a weight, as a part of it */
#define LAST_SHIFT  0.01
/* Of the running means of the slope and of its square (D. Kingma and J. Ba, Adam, 2015). */
#define SLOPE_DECAY  0.9
#define SQUARE_DECAY 0.95
#define ROUNDING     1e-12 /* of shares of a step */

/* The running means of a slope and of its square. */
struct slope {
  double mean, square;
};

struct ascent {
  struct mr_dual model;
  double weights[MR_DUAL_WINDOWS][MR_DUAL_TOLLS]; /* of resources; 1 in each window */
  struct slope *slopes;
  struct slope weight_slopes[MR_DUAL_WINDOWS][MR_DUAL_TOLLS];
};

/* What the ops [begin, end) are of the step that `all` is: the mean of their parts of its ops,
 * those of the device, and of their seconds. */
struct extent {
  uint32_t ops;
  double seconds;
};

static struct extent extent_of(const struct mr_plan_problem *problem, uint32_t begin,
                               uint32_t end) {
  struct extent extent = {0};
  for (uint32_t k = begin; k < end; k++) {
    double seconds = mr_host_least_seconds(problem, k);
    extent.ops += seconds > 0;
    extent.seconds += seconds;
  }
  return extent;
}

static double part_of(const struct extent *extent, const struct extent *all) {
  return all->ops > 0 ? ((double)extent->ops / all->ops + extent->seconds / all->seconds) / 2 : 0;
}

/* Adds where so many windows begin that share the ops [begin, end) evenly; fewer where an op has
 * the shares of several. */
static void add_cuts(struct mr_dual_cuts *cuts, const struct mr_plan_problem *problem,
                     uint32_t begin, uint32_t end, uint32_t count) {
  const struct extent all = extent_of(problem, begin, end);
  double passed = 0;
  uint32_t next = 0;
  for (uint32_t k = begin; k < end && next < count; k++) {
    uint32_t before = next;
    while (next < count && passed >= (double)next / count - ROUNDING) {
      next++;
    }
    if (next > before) {
      cuts->ops[cuts->count++] = k;
    }
    const struct extent op = extent_of(problem, k, k + 1);
    passed += part_of(&op, &all);
  }
}

/* About so many windows of the step, each of which is quiet or is not. The barrier has one for
 * itself: what is wanted after it may come back beside it, not before. */
static void cut_step(struct mr_dual_cuts *cuts, const struct mr_plan_problem *problem,
                     const struct mr_hosted *hosted, uint32_t count) {
  uint32_t n = problem->program->op_count;
  bool known = hosted->quiet_from < hosted->barrier;
  const uint32_t ends[] = {0, known ? hosted->quiet_from : 0, known ? hosted->barrier : 0,
                           known ? hosted->barrier + 1 : 0, n};
  const struct extent all = extent_of(problem, 0, n);
  for (uint32_t i = 0; i + 1 < MR_COUNT_OF(ends); i++) {
    const struct extent part = extent_of(problem, ends[i], ends[i + 1]);
    double share = round(count * part_of(&part, &all));
    add_cuts(cuts, problem, ends[i], ends[i + 1], (uint32_t)mr_max_double(share, 1));
  }
}

static bool all_fits(const struct mr_dual *t) {
  for (uint32_t k = 0; k < t->op_count; k++) {
    if (t->short_bytes[k] > 0) {
      return false;
    }
  }
  return true;
}

static void sum_tolls(struct ascent *a) {
  struct mr_dual *t = &a->model;
  for (uint32_t w = 0; w < t->window_count; w++) {
    t->toll[w] = (struct mr_toll){0};
    for (uint32_t i = 0; i < t->toll_count; i++) {
      mr_toll_add(&t->toll[w], a->weights[t->same[w]][i], &t->tolls[i]);
    }
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

static void raise_prices(struct ascent *a, const struct slope *begun, double step) {
  struct mr_dual *t = &a->model;
  for (uint32_t k = 0; k < t->op_count; k++) {
    double rise = climb_by(&a->slopes[k], t->excess[k], begun);
    t->price[k] = mr_max_double(t->price[k] + step * rise, 0);
  }
}

/* More weight for resources that take longer in a window than their mean there. */
static void shift_weights_of(struct ascent *a, uint32_t w, const struct slope *begun, double step) {
  const struct mr_dual *t = &a->model;
  struct mr_toll used = {0};
  double seconds[MR_DUAL_TOLLS] = {0};
  double mean = 0;
  double sum = 0;
  for (uint32_t v = 0; v < t->window_count; v++) {
    mr_toll_add(&used, t->same[v] == w ? 1 : 0, &t->used[v]);
  }
  for (uint32_t i = 0; i < t->toll_count; i++) {
    seconds[i] = mr_toll_on(&t->tolls[i], &used);
    mean += a->weights[w][i] * seconds[i];
  }
  for (uint32_t i = 0; i < t->toll_count; i++) {
    double slope = seconds[i] - mean;
    a->weights[w][i] *= exp(step * climb_by(&a->weight_slopes[w][i], slope, begun));
    sum += a->weights[w][i];
  }
  for (uint32_t i = 0; i < t->toll_count; i++) {
    a->weights[w][i] /= sum;
  }
}

/* The resource that binds a window most. */
static uint32_t binding(const struct ascent *a, uint32_t w) {
  const double *weights = a->weights[a->model.same[w]];
  uint32_t most = 0;
  for (uint32_t i = 1; i < a->model.toll_count; i++) {
    most = weights[i] > weights[most] ? i : most;
  }
  return most;
}

/* Whether another resource binds the window before or behind, round the end of the step. */
static bool is_beside_change(const struct ascent *a, uint32_t w) {
  uint32_t count = a->model.window_count;
  uint32_t bound_by = binding(a, w);
  return binding(a, (w + 1) % count) != bound_by || binding(a, (w + count - 1) % count) != bound_by;
}

/*
 * Halves the windows where the step passes from one resource that binds it to another. A window is
 * as long as what binds it, but where one binds its first part and another the rest, the step is
 * longer than that; elsewhere windows tell no more by being shorter. Prices stay, and weights.
 */
static mr_status halve_windows(struct ascent *a, const struct mr_plan_problem *problem) {
  struct mr_dual *t = &a->model;
  struct mr_dual_cuts cuts = {.count = 0};
  uint32_t parent[MR_DUAL_WINDOWS];
  for (uint32_t w = 0; w < t->window_count; w++) {
    bool room = cuts.count + t->window_count - w < MR_DUAL_WINDOWS;
    uint32_t parts = room && is_beside_change(a, w) ? 2 : 1;
    uint32_t before = cuts.count;
    add_cuts(&cuts, problem, t->window_start[w], t->window_start[w + 1], parts);
    for (uint32_t i = before; i < cuts.count; i++) {
      parent[i] = t->same[w];
    }
  }
  for (uint32_t w = cuts.count; w-- > 0;) {
    memmove(a->weights[w], a->weights[parent[w]], sizeof a->weights[w]);
    memmove(a->weight_slopes[w], a->weight_slopes[parent[w]], sizeof a->weight_slopes[w]);
  }
  return mr_dual_cut(t, problem, &cuts);
}

/* What a byte costs about, which steps and widths are measured by. */
static double usual_price(const struct mr_dual *t) {
  double remake = 0;
  double dearest_ops = 0;
  double moves = 0;
  uint32_t count = t->version_count > 0 ? t->versions[t->version_count - 1].end : 0;
  for (uint32_t i = 0; i < count; i++) {
    remake = mr_max_double(remake, t->stays[i].remake);
  }
  for (uint32_t w = 0; w < t->window_count; w++) {
    dearest_ops = mr_max_double(dearest_ops, t->toll[w].ops);
    moves += (t->toll[w].in + t->toll[w].out) / 2 / t->window_count;
  }
  return t->movable ? moves : dearest_ops * remake;
}

/* Prices are worth what bytes cost. */
static void scale_prices(struct mr_dual *t, double factor) {
  for (uint32_t k = 0; k < t->op_count; k++) {
    t->price[k] *= factor;
  }
}

/* So many rounds, or until the bound is `enough`: the highest. `halves`: windows are halved. */
struct climb {
  uint32_t rounds;
  double enough;
  double known; /* what is not more is of no use */
  bool halves;
  double seconds;
  double reached;      /* by prices alone */
  double looks[LOOKS]; /* the same at the last looks, from the first to the last */
};

static bool is_halved_before(const struct climb *climb, uint32_t round) {
  return climb->halves && round >= FIRST_HALF && (round - FIRST_HALF) % NEXT_HALF == 0 &&
         (round - FIRST_HALF) / NEXT_HALF < HALVINGS;
}

/* Whether the climb will hardly come to what is known, or any further. */
static bool is_vain(struct climb *climb, uint32_t round) {
  double left = 1 - (double)(round + 1) / climb->rounds;
  if (round < FIRST_VAIN || round % LOOK_ROUNDS != 0) {
    return round >= FIRST_VAIN && climb->seconds * (1 + left * left + LAST_GAIN) < climb->known;
  }
  double each = (climb->reached - climb->looks[0]) / (LOOKS * LOOK_ROUNDS);
  bool early = climb->looks[0] == 0;
  bool halves = climb->halves && round < FIRST_HALF + NEXT_HALF * HALVINGS;
  memmove(climb->looks, climb->looks + 1, (LOOKS - 1) * sizeof *climb->looks);
  climb->looks[LOOKS - 1] = climb->reached;
  return !early && !halves &&
         climb->reached + each * left * climb->rounds <= climb->seconds * (1 + LEAST_GAIN);
}

static mr_status climb_up(struct ascent *a, const struct mr_plan_problem *problem,
                          struct climb *climb) {
  struct mr_dual *t = &a->model;
  mr_status status = MR_OK;
  sum_tolls(a);
  double usual = usual_price(t);
  if (!(usual > 0)) {
    return MR_OK; /* there is nothing to pay with */
  }
  for (uint32_t k = 0; k < t->op_count; k++) {
    t->price[k] = t->short_bytes[k] > 0 ? 2 * usual / t->op_count : 0;
  }
  double first_step = FIRST_STEP * mr_min_double(1, (double)STEP_OPS / t->op_count);
  for (uint32_t round = 0; round < climb->rounds; round++) {
    double done = (double)round / climb->rounds;
    struct slope begun = {1 - pow(SLOPE_DECAY, round + 1.0), 1 - pow(SQUARE_DECAY, round + 1.0)};
    double width = usual * FIRST_WIDTH * pow(LAST_WIDTH / FIRST_WIDTH, done);
    climb->reached = mr_max_double(climb->reached, mr_dual_choose(t, width));
    climb->seconds = mr_max_double(climb->seconds, climb->reached);
    bool enough = climb->seconds >= climb->enough || !mr_bound_is_wanted(problem);
    if (enough || is_vain(climb, round)) break;
    raise_prices(a, &begun, usual * first_step * pow(LAST_STEP / FIRST_STEP, done));
    for (uint32_t w = 0; w < t->window_count; w++) {
      shift_weights_of(a, w, &begun, FIRST_SHIFT * pow(LAST_SHIFT / FIRST_SHIFT, done));
    }
    if (is_halved_before(climb, round + 1)) {
      status = halve_windows(a, problem);
      if (status != MR_OK) break;
    }
    sum_tolls(a);
    double before = usual;
    usual = usual_price(t);
    scale_prices(t, usual / before);
  }
  return status;
}

static mr_status ascent_init(struct ascent *a, const struct mr_plan_problem *problem,
                             const struct mr_liveness *liveness,
                             const uint64_t budget_bytes[MR_TIER_COUNT], uint32_t windows) {
  struct mr_dual *t = &a->model;
  *a = (struct ascent){0};
  struct mr_dual_cuts cuts = {.count = 0};
  mr_status status = mr_dual_init(t, problem, liveness, budget_bytes);
  if (status == MR_OK) {
    cut_step(&cuts, problem, &t->hosted, windows);
    status = mr_dual_cut(t, problem, &cuts);
  }
  if (status != MR_OK) {
    return status;
  }
  a->slopes = mr_allocate(t->op_count, sizeof *a->slopes);
  for (uint32_t w = 0; w < t->window_count; w++) {
    for (uint32_t i = 0; i < t->toll_count; i++) {
      a->weights[w][i] = 1.0 / t->toll_count;
    }
  }
  return a->slopes == NULL ? MR_NO_MEMORY : MR_OK;
}

static void ascent_fini(struct ascent *a) {
  mr_dual_fini(&a->model);
  free(a->slopes);
}

/* How many windows a bound begins with: one where more tell nothing, or would take too long. */
static uint32_t first_windows(const struct mr_plan_problem *problem,
                              const uint64_t budget_bytes[MR_TIER_COUNT]) {
  bool drives = budget_bytes[MR_TIER_NVME] > 0;
  bool hosted = problem->host_apart && mr_host_may_run(problem);
  bool loses = drives && (problem->host_apart || mr_plan_loss_beside_nvme(problem) > 0);
  if (problem->program->op_count > MR_LONG_OPS) {
    return 1;
  }
  return hosted ? HOSTED_WINDOWS : loses ? WINDOWS : 1;
}

mr_status mr_dual_seconds(const struct mr_plan_problem *problem, const struct mr_liveness *liveness,
                          const uint64_t budget_bytes[MR_TIER_COUNT], double known_seconds,
                          double *seconds_out) {
  struct ascent a;
  uint32_t windows = first_windows(problem, budget_bytes);
  mr_status status = ascent_init(&a, problem, liveness, budget_bytes, windows);
  if (status == MR_OK) {
    struct climb climb = {.rounds = a.model.op_count > FEW_ROUNDS_OPS ? FEW_ROUNDS : ROUNDS,
                          .enough = mr_bound_enough(problem),
                          .known = known_seconds,
                          .halves = windows > 1 && a.model.hosted.count == 0};
    for (uint32_t w = 0; w < a.model.window_count; w++) {
      climb.seconds += a.model.ops_seconds[w];
    }
    bool easy = all_fits(&a.model) && !a.model.may_host;
    status = easy ? MR_OK : climb_up(&a, problem, &climb);
    *seconds_out = climb.seconds;
  }
  ascent_fini(&a);
  return status;
}

static mr_status guide_init(struct mr_guide *guide, uint32_t op_count) {
  *guide = (struct mr_guide){.room = mr_allocate(2ull * op_count + 1, sizeof *guide->room),
                             .in = mr_allocate(op_count, sizeof *guide->in),
                             .out = mr_allocate(op_count, sizeof *guide->out)};
  return guide->room == NULL || guide->in == NULL || guide->out == NULL ? MR_NO_MEMORY : MR_OK;
}

static void fill_guide(struct mr_guide *guide, const struct mr_dual *t) {
  uint32_t n = t->op_count;
  double sum = 0;
  for (uint32_t k = 0; k < n; k++) {
    sum += t->price[k];
    guide->in[k] = t->toll[t->window_of[k]].in;
    guide->out[k] = t->toll[t->window_of[k]].out;
  }
  for (uint32_t k = 0; k < 2 * n; k++) {
    double price = sum > 0 ? t->price[k % n] * n / sum : 1;
    guide->room[k + 1] = guide->room[k] + price;
  }
}

mr_status mr_guide_find(struct mr_guide *guide, const struct mr_plan_problem *problem,
                        const struct mr_liveness *liveness,
                        const uint64_t budget_bytes[MR_TIER_COUNT]) {
  struct ascent a;
  *guide = (struct mr_guide){0};
  mr_status status = ascent_init(&a, problem, liveness, budget_bytes, GUIDE_WINDOWS);
  if (status == MR_OK) {
    status = climb_up(&a, problem, &(struct climb){.rounds = GUIDE_ROUNDS, .enough = INFINITY});
  }
  if (status == MR_OK) {
    status = guide_init(guide, a.model.op_count);
  }
  if (status == MR_OK) {
    fill_guide(guide, &a.model);
  } else {
    mr_guide_fini(guide);
  }
  ascent_fini(&a);
  return status;
}

void mr_guide_fini(struct mr_guide *guide) {
  free(guide->room);
  free(guide->in);
  free(guide->out);
  *guide = (struct mr_guide){0};
}

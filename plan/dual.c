/* SPDX-License-Identifier: Apache-2.0 */
/* The ascent to the prices of room and the weights of resources that give the highest bound. */
#include "plan/dual.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/bound.h"
#include "plan/draft.h"
#include "plan/dual_model.h"

/* The ascent: rounds and windows, for a bound and for a guide, and the first and the last of what
 * its step and the width of its choices are, as parts of the price of a byte. More windows than
 * eight guide no better. For a bound one does beside the windows of plan/windows.c, unless ops lose
 * time to what NVMe moves: those know how long a window waits for a drive or how much its ops lose,
 * but not both at once, nor what recompute must pay. With 16 the bounds of gpt2 and 12 layers of
 * 512 with half to an eighth of their memory are up to 1.8 % higher, with 64 by 0.3 % more. */
#define ROUNDS        300u
#define LONG_OPS      10000u /* of more, in fewer rounds: bounds are up to 3 % lower */
#define LONG_ROUNDS   150u
#define WINDOWS       1u
#define LOSS_WINDOWS  16u /* but one in a long program */
#define GUIDE_ROUNDS  60u
#define GUIDE_WINDOWS 8u
#define FIRST_STEP    0.1 /* of what a byte costs; less for more ops, which share the price */
#define STEP_OPS      1000u
#define LAST_STEP     0.004
#define FIRST_WIDTH   1.0
#define LAST_WIDTH    0.01
#define FIRST_SHIFT   0.2 /* of a weight, as a part of it */
#define LAST_SHIFT    0.01
/* Of the running means of the slope and of its square (D. Kingma and J. Ba, Adam, 2015). */
#define SLOPE_DECAY  0.9
#define SQUARE_DECAY 0.95

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

/* Ends early where the bound is `enough`. */
static double climb(struct ascent *a, uint32_t rounds, double enough) {
  struct mr_dual *t = &a->model;
  sum_tolls(a);
  double usual = usual_price(t);
  double best = 0;
  if (!(usual > 0)) {
    return 0; /* there is nothing to pay with */
  }
  for (uint32_t k = 0; k < t->op_count; k++) {
    t->price[k] = t->short_bytes[k] > 0 ? 2 * usual / t->op_count : 0;
  }
  double first_step = FIRST_STEP * mr_min_double(1, (double)STEP_OPS / t->op_count);
  for (uint32_t round = 0; round < rounds; round++) {
    double done = (double)round / rounds;
    struct slope begun = {1 - pow(SLOPE_DECAY, round + 1.0), 1 - pow(SQUARE_DECAY, round + 1.0)};
    double width = usual * FIRST_WIDTH * pow(LAST_WIDTH / FIRST_WIDTH, done);
    best = mr_max_double(best, mr_dual_choose(t, width));
    if (best >= enough) break;
    raise_prices(a, &begun, usual * first_step * pow(LAST_STEP / FIRST_STEP, done));
    for (uint32_t w = 0; w < t->window_count; w++) {
      shift_weights_of(a, w, &begun, FIRST_SHIFT * pow(LAST_SHIFT / FIRST_SHIFT, done));
    }
    sum_tolls(a);
    double before = usual;
    usual = usual_price(t);
    scale_prices(t, usual / before);
  }
  return best;
}

static mr_status ascent_init(struct ascent *a, const struct mr_plan_problem *problem,
                             const struct mr_liveness *liveness,
                             const uint64_t budget_bytes[MR_TIER_COUNT], uint32_t windows) {
  struct mr_dual *t = &a->model;
  *a = (struct ascent){0};
  mr_status status = mr_dual_init(t, problem, liveness, budget_bytes, windows);
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

/* The windows of a bound. */
static uint32_t windows_of(const struct mr_plan_problem *problem,
                           const uint64_t budget_bytes[MR_TIER_COUNT]) {
  bool loses = budget_bytes[MR_TIER_NVME] > 0 && mr_plan_loss_beside_nvme(problem) > 0;
  return loses && problem->program->op_count <= MR_LONG_OPS ? LOSS_WINDOWS : WINDOWS;
}

mr_status mr_dual_seconds(const struct mr_plan_problem *problem, const struct mr_liveness *liveness,
                          const uint64_t budget_bytes[MR_TIER_COUNT], double *seconds_out) {
  struct ascent a;
  uint32_t windows = windows_of(problem, budget_bytes);
  mr_status status = ascent_init(&a, problem, liveness, budget_bytes, windows);
  if (status == MR_OK) {
    double ops_seconds = 0;
    for (uint32_t w = 0; w < a.model.window_count; w++) {
      ops_seconds += a.model.ops_seconds[w];
    }
    bool easy = all_fits(&a.model) && !a.model.may_host;
    uint32_t rounds = a.model.op_count > LONG_OPS ? LONG_ROUNDS : ROUNDS;
    double dual = easy ? 0 : climb(&a, rounds, mr_bound_enough(problem));
    *seconds_out = mr_max_double(dual, ops_seconds);
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
    (void)climb(&a, GUIDE_ROUNDS, INFINITY);
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

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The LP bound of tiny planning problems against the best of all schedules: it is never above the
 * optimum, neither by the prices that a solver finds, nor by those prices spoilt, nor by prices
 * drawn at random, which need no solver. problem_lp_model [SEED [ROUNDS]].
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "model/problem_optimum.h"
#include "model/require.h"
#include "plan/problem/lp.h"
#include "unit/problem_families.h"

#define ROUNDS 2000
/* Draws of prices for each problem. */
#define DRAWS 40
/* What is not more by this part is not more: the search takes no better than by a part of 1e-9. */
#define SAME 1e-8
/* Rates are up to 2000 bytes a second: a byte's move takes about so long. */
#define BYTE_SECONDS 1e-3
/* Points for some of the problems: fewer than there could be. */
#define FEW_POINTS 3
/* The mean of the solver's bounds over the optimum is at least this, or the bound says little. */
#define LEAST_RATIO 0.85

struct tally {
  int problems;
  int draws_above_0;
  double best_draw; /* of the optimum: the nearest that prices came to it */
  double solved_ratio;
};

/* Prices of any size, most of them small; `known` are multiplied, 0 stays 0 there. */
static void spoil(double *prices, int32_t count, struct mr_random *random, bool known) {
  for (int32_t i = 0; i < count; i++) {
    double factor = 2 * mr_random_unit(random);
    double sparse = mr_random_below(random, 3) == 0 ? BYTE_SECONDS * factor : 0;
    prices[i] = known ? prices[i] * factor : sparse;
  }
}

static void draw_prices(const struct mr_lp_line *line, struct mr_lp_prices *prices,
                        struct mr_random *random, bool known) {
  for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
    spoil(prices->link[link], line->point_count + 1, random, known);
  }
  spoil(prices->device, line->point_count, random, known);
  spoil(prices->host, line->point_count, random, known);
}

static void check_draws(const struct mr_problem *problem, double optimum, uint64_t seed,
                        const char *text, struct tally *tally) {
  struct mr_random random;
  mr_random_init(&random, seed);
  int32_t most_points = seed % 2 == 0 ? FEW_POINTS : 2 * OPTIMUM_SEGMENTS;
  const struct mr_lp_library *library = mr_lp_library_find();
  struct mr_lp_line *line = NULL;
  struct mr_lp_prices *prices = NULL;
  REQUIRE(mr_lp_line_create(problem, most_points, &line) == MR_OK);
  REQUIRE(mr_lp_prices_create(line, &prices) == MR_OK);
  for (int draw = 0; draw < DRAWS; draw++) {
    bool known = library != NULL && draw % 2 == 0;
    if (known) {
      REQUIRE(mr_lp_flow_solve(line, library, prices) == MR_OK);
    }
    draw_prices(line, prices, &random, known);
    double seconds = INFINITY;
    REQUIRE(mr_lp_bound(line, prices, &seconds) == MR_OK);
    REQUIRE(seconds <= optimum * (1 + SAME));
    tally->draws_above_0 += seconds > 0;
    tally->best_draw = fmax(tally->best_draw, seconds / optimum);
  }
  mr_lp_prices_destroy(prices);
  mr_lp_line_destroy(line);
}

static void check(uint64_t seed, struct tally *tally) {
  char *text =
      problem_random(seed, (struct problem_limits){OPTIMUM_SEGMENTS - 1, OPTIMUM_TENSORS - 1});
  struct mr_problem *problem = NULL;
  struct mr_problem_schedule *schedule = NULL;
  REQUIRE(mr_problem_parse(text, strlen(text), "tiny", &problem) == MR_OK);
  REQUIRE(mr_problem_plan(problem, NULL, &schedule) == MR_OK);
  if (schedule->fits) {
    double optimum = problem_optimum(problem, schedule->seconds * (1 + SAME)).seconds;
    REQUIRE(optimum < INFINITY); /* the schedule is one of all */
    tally->problems++;
    check_draws(problem, optimum, seed, text, tally);
    for (const struct mr_lp_library *library = mr_lp_libraries; library->name != NULL; library++) {
      double seconds = 0;
      if (library->is_here()) {
        REQUIRE(mr_lp_bound_with(problem, library, &seconds) == MR_OK);
        REQUIRE(seconds <= optimum * (1 + SAME));
      }
      tally->solved_ratio += library == mr_lp_library_find() ? seconds / optimum : 0;
    }
  }
  mr_problem_schedule_destroy(schedule);
  mr_problem_destroy(problem);
  free(text);
}

int main(int argc, char **argv) {
  uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  uint64_t rounds = argc > 2 ? strtoull(argv[2], NULL, 10) : ROUNDS;
  struct tally tally = {0};
  for (uint64_t seed = first; seed < first + rounds; seed++) {
    check(seed, &tally);
  }
  const struct mr_lp_library *library = mr_lp_library_find();
  double ratio = tally.solved_ratio / tally.problems;
  printf(
      "seeds %llu to %llu: %d problems, %d of %d draws above 0, the best %.2f %% of an optimum\n",
      (unsigned long long)first, (unsigned long long)(first + rounds - 1), tally.problems,
      tally.draws_above_0, tally.problems * DRAWS, 100 * tally.best_draw);
  if (library == NULL) {
    printf("no library for linear programs: only prices drawn at random were checked\n");
    return 77;
  }
  printf("solved by %s: %.2f %% of the optimum on average\n", library->name, 100 * ratio);
  return ratio >= LEAST_RATIO && tally.draws_above_0 > tally.problems ? 0 : 1;
}

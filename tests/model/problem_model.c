/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounds and schedules of tiny planning problems against the best of all schedules: no bound is
 * above the optimum, no schedule below it, what is refused cannot be done, and most schedules are
 * as good as can be. problem_model [SEED [ROUNDS]].
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "model/problem_optimum.h"
#include "model/require.h"
#include "unit/problem_families.h"
#include "unit/problem_replay.h"

#define ROUNDS 3000
/* What is not more by this part is not more. */
#define SAME 1e-7
/* Of the schedules of tiny problems, where one tensor is a third of all, this part is optimal, and
 * the mean excess over the optimum is below this. */
#define LEAST_OPTIMAL 0.99
#define MOST_EXCESS   0.005

struct tally {
  int planned;
  int refused;
  int optimal;
  double excess;
  double bound_gap;
  uint64_t nodes;
};

static void check(uint64_t seed, struct tally *tally) {
  char *text =
      problem_random(seed, (struct problem_limits){OPTIMUM_SEGMENTS - 1, OPTIMUM_TENSORS - 1});
  struct mr_problem *problem = NULL;
  struct mr_problem_schedule *schedule = NULL;
  REQUIRE(mr_problem_parse(text, strlen(text), "tiny", &problem) == MR_OK);
  REQUIRE(mr_problem_plan(problem, NULL, &schedule) == MR_OK);
  if (!schedule->fits) {
    struct optimum optimum = problem_optimum(problem, INFINITY);
    REQUIRE(optimum.seconds == INFINITY);
    tally->refused++;
    tally->nodes += optimum.nodes;
  } else {
    char *printed = NULL;
    REQUIRE(mr_problem_schedule_print(schedule, &printed) == MR_OK);
    struct problem_verdict verdict;
    problem_replay(text, printed, &verdict);
    free(printed);
    if (!verdict.keeps_rules) {
      fprintf(stderr, "%s\n", verdict.broken_rule);
    }
    REQUIRE(verdict.keeps_rules);
    struct optimum optimum = problem_optimum(problem, schedule->seconds * (1 + SAME));
    REQUIRE(optimum.seconds < INFINITY); /* the schedule is one of all */
    REQUIRE(schedule->bound_seconds <= optimum.seconds * (1 + SAME));
    tally->planned++;
    tally->optimal += schedule->seconds <= optimum.seconds * (1 + SAME);
    tally->excess += schedule->seconds / optimum.seconds - 1;
    tally->bound_gap += 1 - schedule->bound_seconds / optimum.seconds;
    tally->nodes += optimum.nodes;
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
  double optimal = (double)tally.optimal / tally.planned;
  double excess = tally.excess / tally.planned;
  printf("seeds %llu to %llu: %d planned, %.1f %% of them as well as can be, %.3f %% above the "
         "optimum on average, bound %.2f %% below; %d refused; %llu events tried\n",
         (unsigned long long)first, (unsigned long long)(first + rounds - 1), tally.planned,
         100 * optimal, 100 * excess, 100 * tally.bound_gap / tally.planned, tally.refused,
         (unsigned long long)tally.nodes);
  return optimal >= LEAST_OPTIMAL && excess <= MOST_EXCESS && tally.refused > 0 ? 0 : 1;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* plan/problem/lp.h: what the LP bound reaches, by each library that is here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/problem/lp.h"
#include "unit/problem_families.h"

/* Part of a bound that two ways of computing it may differ by. */
#define SAME 1e-7

static struct mr_problem *parse(char *text) {
  struct mr_problem *problem = NULL;
  assert_int_equal(mr_problem_parse(text, strlen(text), "test", &problem), MR_OK);
  free(text);
  return problem;
}

static double cut_seconds(const struct mr_problem *problem) {
  double seconds = 0;
  assert_int_equal(mr_problem_bound_cut(problem, &seconds), MR_OK);
  return seconds;
}

static double lp_seconds(const struct mr_problem *problem, const struct mr_lp_library *library) {
  double seconds = 0;
  assert_int_equal(mr_lp_bound_with(problem, library, &seconds), MR_OK);
  print_message("%s %.9f s\n", library->name, seconds);
  return seconds;
}

/* The best bounds that are known of the two problems, from other solvers. */
static void given_problems_reach_their_best_bounds(void **state) {
  (void)state;
  static const struct {
    const char *path;
    double seconds;
  } given[] = {{PROBLEM_DATA "/i16a.txt", 1.303677}, {PROBLEM_DATA "/s32.txt", 4.667565}};
  for (size_t i = 0; i < MR_COUNT_OF(given); i++) {
    struct mr_problem *problem = parse(problem_from_file(given[i].path));
    for (const struct mr_lp_library *library = mr_lp_libraries; library->name != NULL; library++) {
      if (library->is_here()) {
        assert_true(fabs(lp_seconds(problem, library) - given[i].seconds) <= 1e-5);
      }
    }
    mr_problem_destroy(problem);
  }
}

static const struct {
  struct problem_shape shape;
  double least_gain; /* over the cut bound, a part of it; below 0 where the cut bound may be the
                        higher one, because it counts that a tensor goes to NVMe as a whole */
} shapes[] = {
    {{.name = "links bind",
      .layers = 32,
      .parts = 1,
      .device_bytes = 24e9,
      .host_bytes = 1e12,
      .cost = 1,
      .no_recompute = true},
     -SAME},
    {{.name = "nvme", .layers = 32, .parts = 1, .device_bytes = 24e9, .host_bytes = 1e9, .cost = 1},
     -0.001},
    {{.name = "clean",
      .layers = 32,
      .parts = 1,
      .device_bytes = 24e9,
      .host_bytes = 0,
      .cost = 1,
      .clean = true},
     0.001},
    {{.name = "weights and gradients",
      .layers = 32,
      .parts = 2,
      .device_bytes = 16e9,
      .host_bytes = 60e9,
      .cost = 1.5,
      .weight = 4,
      .gradients = true},
     -SAME},
};

static void it_lies_between_the_cut_bound_and_a_schedule(void **state) {
  (void)state;
  for (size_t i = 0; i < MR_COUNT_OF(shapes); i++) {
    struct mr_problem *problem = parse(problem_from_shape(&shapes[i].shape));
    struct mr_problem_schedule *schedule = NULL;
    assert_int_equal(mr_problem_plan(problem, NULL, &schedule), MR_OK);
    assert_true(schedule->fits);
    double cut = cut_seconds(problem);
    print_message("%s: cut %.9f s, schedule %.9f s\n", shapes[i].shape.name, cut,
                  schedule->seconds);
    for (const struct mr_lp_library *library = mr_lp_libraries; library->name != NULL; library++) {
      if (library->is_here()) {
        double lp = lp_seconds(problem, library);
        assert_true(lp >= cut * (1 + shapes[i].least_gain));
        assert_true(lp <= schedule->seconds);
      }
    }
    mr_problem_schedule_destroy(schedule);
    mr_problem_destroy(problem);
  }
}

/* Fewer points give less, never more; none leaves what compute alone takes. */
static void fewer_points_give_less(void **state) {
  (void)state;
  struct mr_problem *problem = parse(problem_from_file(PROBLEM_DATA "/i16a.txt"));
  struct mr_lp_library library = *mr_lp_library_find();
  double whole = lp_seconds(problem, &library);
  double compute = 0;
  for (int32_t k = 0; k < problem->segment_count; k++) {
    compute += problem->compute_seconds[k];
  }
  for (library.most_points = 0; library.most_points <= 64; library.most_points += 16) {
    double seconds = lp_seconds(problem, &library);
    assert_true(seconds <= whole * (1 + SAME));
    assert_true(seconds >= compute * (1 - SAME));
    assert_true(library.most_points > 0 || seconds <= compute);
  }
  mr_problem_destroy(problem);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(given_problems_reach_their_best_bounds),
      cmocka_unit_test(it_lies_between_the_cut_bound_and_a_schedule),
      cmocka_unit_test(fewer_points_give_less),
  };
  if (mr_lp_library_find() == NULL) {
    printf("no library for linear programs\n");
    return 77;
  }
  return cmocka_run_group_tests(tests, NULL, NULL);
}

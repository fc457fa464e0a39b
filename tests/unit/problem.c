/* SPDX-License-Identifier: Apache-2.0 */
/* plan/problem/: the reader, schedules that a replay accepts, bounds, gaps and budgets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/problem/problem.h"
#include "unit/problem_families.h"
#include "unit/problem_replay.h"

static char last_line[512];

static void keep_line(void *context, mr_log_level level, const char *line) {
  (void)context;
  (void)level;
  snprintf(last_line, sizeof last_line, "%s", line);
}

static struct mr_problem *parse(const char *text) {
  struct mr_problem *problem = NULL;
  assert_int_equal(mr_problem_parse(text, strlen(text), "test", &problem), MR_OK);
  return problem;
}

/* Plans, replays what is printed, and returns the gap in percent; the text is freed. */
static double plan_gap(const char *name, char *text) {
  struct mr_problem *problem = parse(text);
  struct mr_problem_schedule *schedule = NULL;
  assert_int_equal(mr_problem_plan(problem, NULL, &schedule), MR_OK);
  if (!schedule->fits) {
    fail_msg("%s does not fit; %.0f bytes would do", name, schedule->smallest_device_bytes);
  }
  char *printed = NULL;
  assert_int_equal(mr_problem_schedule_print(schedule, &printed), MR_OK);
  struct problem_verdict verdict;
  problem_replay(text, printed, &verdict);
  if (!verdict.keeps_rules) {
    fail_msg("%s: %s", name, verdict.broken_rule);
  }
  assert_true(fabs(verdict.seconds - schedule->seconds) <= 1e-9 * schedule->seconds);
  double gap = 100 * (verdict.seconds / verdict.bound_seconds - 1);
  assert_true(schedule->bound_seconds <= schedule->seconds);
  assert_true(verdict.bound_seconds <= verdict.seconds);
  print_message("%-12s %9.6f s, bound %9.6f s, gap %.3f %%\n", name, verdict.seconds,
                verdict.bound_seconds, gap);
  free(printed);
  mr_problem_schedule_destroy(schedule);
  mr_problem_destroy(problem);
  free(text);
  return gap;
}

/* Each of them as a whole: what it says, and that it says where. */
static void malformed_problems_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *text;
    const char *line;
  } cases[] = {
      {"", "test: line 1, word 1: the file ends where the number of segments should be"},
      {"0 1", "test: line 1, word 1: the number of segments is 0; it must be from 1 to 1000000"},
      {"1.5 1", "test: line 1, word 1: the number of segments is '1.5', which is no whole number"},
      {"1 -1", "test: line 1, word 2: the number of tensors is -1; it must be from 0 to 10000000"},
      {"1 0 x", "test: line 1, word 3: the device budget is 'x', which is no decimal number"},
      {"1 0 nan", "test: line 1, word 3: the device budget is 'nan', which is no decimal number"},
      {"1 0 0x8", "test: line 1, word 3: the device budget is '0x8', which is no decimal number"},
      {"1 0 1e19", "test: line 1, word 3: the device budget is 1e19; it must be from 0 to 1e+18"},
      {"1 0 1 1 0", "test: line 1, word 5: the device-to-host rate is 0; it must be from 1e-06 to "
                    "1e+18"},
      {"1 0 1 1 1 1 1 1\n-1 1",
       "test: line 2, word 1: a compute time is -1; it must be from 0 to 1e+18"},
      {"1 0 1 1 1 1 1 1\n1", "test: line 2, word 2: the file ends where a working set should be"},
      {"1 0 1 1 1 1 1 1\n1\n1\n1",
       "test: line 4, word 1: more numbers than 1 segments and 0 tensors need"},
      {"1 1 1 1 1 1 1 1\n1\n1\n1 1 0 1 0 0 0",
       "test: line 4, word 2: a tensor's p is 1; it must be from -1 to 0"},
      {"1 1 1 1 1 1 1 1\n1\n1\n1 0 2 1 0 0 0",
       "test: line 4, word 3: a tensor's g is 2; it must be from -1 to 1"},
      {"1 1 1 1 1 1 1 1\n1\n1\n1 0 1 1 2 0 0",
       "test: line 4, word 5: a tensor's start is 2; it must be from 0 to 1"},
      {"1000 1000 1 1 1 1 1 1\n", "test: line 1, word 8: 1000 segments and 1000 tensors need 8989 "
                                  "numbers more than the file can have"},
  };
  mr_log_configure(keep_line, NULL, MR_LOG_ERROR);
  for (size_t i = 0; i < MR_COUNT_OF(cases); i++) {
    struct mr_problem *problem = NULL;
    assert_int_equal(mr_problem_parse(cases[i].text, strlen(cases[i].text), "test", &problem),
                     MR_INVALID);
    assert_string_equal(last_line, cases[i].line);
    assert_null(problem);
  }
  mr_log_configure(NULL, NULL, MR_LOG_ERROR);
}

static void what_nobody_needs_is_read_as_needed_at_the_end(void **state) {
  (void)state;
  struct mr_problem *problem = parse("2 1 1 1 1 1 1 1  1 1  0 0  1 0 -1 0.5 0 0 0");
  assert_int_equal(problem->tensors[0].g, 2);
  assert_true(problem->tensors[0].recompute_seconds >= MR_PROBLEM_NO_RECOMPUTE);
  mr_problem_destroy(problem);
}

/* A tensor as large as the device between a first and a third segment, and a second that needs all
 * of the device but a byte: out, the segment, in, one after the other. A byte of it might stay,
 * says the bound, which cuts tensors. */
static void what_cannot_hide_is_waited_for(void **state) {
  (void)state;
  struct mr_problem *problem = parse("3 1 10 10 10 10 1 1  1 3 1  5 9 5  10 0 2 1e9 0 0 0");
  struct mr_problem_schedule *schedule = NULL;
  assert_int_equal(mr_problem_plan(problem, NULL, &schedule), MR_OK);
  assert_true(schedule->fits);
  assert_in_range((uint64_t)(1e6 * schedule->seconds + 0.5), 7000000, 7000000);
  assert_in_range((uint64_t)(1e6 * schedule->bound_seconds + 0.5), 6800000, 6800000);
  assert_int_equal(schedule->decisions[0], MR_PROBLEM_HOST);
  mr_problem_schedule_destroy(schedule);
  mr_problem_destroy(problem);
}

/* Six thirds of a second, one after the other, are a rounding less than six bytes at three a
 * second; the bound must not be above that either. */
static void rounding_is_left_out_of_the_bound(void **state) {
  (void)state;
  struct mr_problem *problem = parse("1 6 6 0 3 3 3 3  0  6"
                                     " 1 -1 0 1e9 1 0 0 1 -1 0 1e9 1 0 0 1 -1 0 1e9 1 0 0"
                                     " 1 -1 0 1e9 1 0 0 1 -1 0 1e9 1 0 0 1 -1 0 1e9 1 0 0");
  struct mr_problem_schedule *schedule = NULL;
  assert_int_equal(mr_problem_plan(problem, NULL, &schedule), MR_OK);
  assert_true(schedule->fits);
  assert_true(schedule->seconds < 2);
  assert_true(schedule->bound_seconds <= schedule->seconds);
  mr_problem_schedule_destroy(schedule);
  mr_problem_destroy(problem);
}

/* Everything fits, and each tensor takes far longer to move than all segments to compute: what the
 * search for a cut's least time leaves open must be a part of that time, not of the moves'. The
 * bound of the third had been 57 s where 10 are enough. */
static void slow_links_leave_the_bound_alone(void **state) {
  (void)state;
  static const struct problem_chain chains[] = {
      {1000, 1e-5, 5e9, 1e7, 1.001e10, 3e9},
      {10000, 0.01, 5e7, 1e7, 1.1e8, 1},
      {1000, 0.01, 5e7, 1e7, 1.1e8, 0.001},
      {1000, 1e-6, 5e9, 1e7, 1.001e10, 25e9},
  };
  for (size_t i = 0; i < MR_COUNT_OF(chains); i++) {
    assert_true(plan_gap("chain", problem_from_chain(&chains[i])) <= 1e-6);
  }
}

/* One tensor fits beside each segment, and two do between segments that follow each other without
 * a pause. Of 2,000 segments 725 tensors were moved, of 35,000 all but a few. */
static void what_fits_without_a_pause_stays(void **state) {
  (void)state;
  static const struct problem_chain chains[] = {
      {2000, 0.01, 5e7, 1e7, 6e7, 25e9},
      {2000, 0.01, 5e7, 1e7, 7e7, 25e9},
      {35000, 0.01, 5e7, 1e7, 6e7, 25e9},
  };
  for (size_t i = 0; i < MR_COUNT_OF(chains); i++) {
    assert_true(plan_gap("no pause", problem_from_chain(&chains[i])) <= 1e-6);
  }
}

static double smallest_of(const char *text) {
  struct mr_problem *problem = parse(text);
  struct mr_problem_schedule *schedule = NULL;
  assert_int_equal(mr_problem_plan(problem, NULL, &schedule), MR_OK);
  double bytes = schedule->fits ? problem->device_bytes : schedule->smallest_device_bytes;
  mr_problem_schedule_destroy(schedule);
  mr_problem_destroy(problem);
  return bytes;
}

/* What the last segment makes lies beside its working set for no time where the schedule ends with
 * it, though it may have to wait for moves; where a gradient leaves after it, for that long. */
static void what_is_made_last_takes_no_room(void **state) {
  (void)state;
  static const char ends[] = "2 2 100 1e6 100 100 100 100  1 1  50 100  100 1 2 1e9 0 0 0"
                             "  40 0 2 1e9 0 1 0";
  static const char goes_on[] = "2 2 100 1e6 100 100 100 100  1 1  50 100  100 1 2 1e9 0 0 0"
                                "  40 1 2 1e9 0 1 0";
  char *text = strdup(ends);
  assert_non_null(text);
  assert_true(plan_gap("made last", text) <= 20 + 1e-6); /* the gradient's move shows */
  assert_float_equal(smallest_of(ends), 100, 1e-6);
  assert_float_equal(smallest_of(goes_on), 140, 1);
}

static void given_problems_are_near_their_bounds(void **state) {
  (void)state;
  assert_true(plan_gap("i16a", problem_from_file(PROBLEM_DATA "/i16a.txt")) <= 0.1);
  assert_true(plan_gap("s32", problem_from_file(PROBLEM_DATA "/s32.txt")) <= 0.1);
}

/* The gaps are to the planner's own bound. Where links and compute bind by turns, what is above 0.2
 * % is mostly the bound's part: a linear program's is nearer. */
static const struct {
  struct problem_shape shape;
  double most_percent;
} shapes[] = {
    {{.name = "nearly",
      .layers = 32,
      .parts = 1,
      .device_bytes = 0.98,
      .host_bytes = 128e9,
      .cost = 1},
     0.1},
    {{.name = "half",
      .layers = 32,
      .parts = 1,
      .device_bytes = 0.5,
      .host_bytes = 128e9,
      .cost = 1},
     0.1},
    {{.name = "tight",
      .layers = 32,
      .parts = 1,
      .device_bytes = 6e9,
      .host_bytes = 128e9,
      .cost = 1},
     0.1},
    {{.name = "nvme", .layers = 32, .parts = 1, .device_bytes = 24e9, .host_bytes = 1e9, .cost = 1},
     0.2},
    {{.name = "nvme alone",
      .layers = 16,
      .parts = 1,
      .device_bytes = 24e9,
      .host_bytes = 0,
      .cost = 1,
      .no_recompute = true},
     0.4},
    {{.name = "links bind",
      .layers = 32,
      .parts = 1,
      .device_bytes = 24e9,
      .host_bytes = 1e12,
      .cost = 1,
      .no_recompute = true},
     0.3},
    {{.name = "asymmetric",
      .layers = 32,
      .parts = 1,
      .device_bytes = 24e9,
      .host_bytes = 40e9,
      .rates = {12e9, 25e9, 6e9, 3e9},
      .cost = 1},
     0.2},
    {{.name = "dear",
      .layers = 32,
      .parts = 1,
      .device_bytes = 24e9,
      .host_bytes = 128e9,
      .cost = 5},
     0.1},
    {{.name = "cheap",
      .layers = 32,
      .parts = 1,
      .device_bytes = 24e9,
      .host_bytes = 128e9,
      .cost = 0.2},
     0.2},
    {{.name = "clean",
      .layers = 32,
      .parts = 1,
      .device_bytes = 24e9,
      .host_bytes = 0,
      .cost = 1,
      .clean = true},
     0.6},
    {{.name = "weights",
      .layers = 80,
      .parts = 1,
      .device_bytes = 40e9,
      .host_bytes = 500e9,
      .cost = 1.5,
      .weight = 4},
     0.5},
    {{.name = "gradients",
      .layers = 80,
      .parts = 1,
      .device_bytes = 40e9,
      .host_bytes = 500e9,
      .cost = 1.5,
      .weight = 4,
      .gradients = true},
     0.8},
    {{.name = "stay, links",
      .layers = 24,
      .parts = 1,
      .device_bytes = 0.3,
      .host_bytes = 1e13,
      .rates = {12e9, 12e9, 3e9, 6e9},
      .cost = 0.5,
      .weight = 8,
      .weights_stay = true,
      .no_recompute = true},
     0.1},
    {{.name = "stay, nvme",
      .layers = 24,
      .parts = 1,
      .device_bytes = 0.5,
      .host_bytes = 0,
      .rates = {12e9, 12e9, 3e9, 6e9},
      .cost = 1,
      .weight = 16,
      .weights_stay = true,
      .no_recompute = true},
     0.1},
    {{.name = "stay, both",
      .layers = 32,
      .parts = 1,
      .device_bytes = 0.3,
      .host_bytes = 1e9,
      .rates = {25e9, 25e9, 3e9, 6e9},
      .cost = 0.5,
      .weight = 4,
      .weights_stay = true,
      .no_recompute = true},
     0.4},
    {{.name = "80 layers",
      .layers = 80,
      .parts = 1,
      .device_bytes = 40e9,
      .host_bytes = 64e9,
      .rates = {25e9, 25e9, 1.5e9, 3e9},
      .cost = 2},
     0.2},
    {{.name = "126 layers",
      .layers = 126,
      .parts = 1,
      .device_bytes = 60e9,
      .host_bytes = 400e9,
      .cost = 3,
      .weight = 8,
      .gradients = true},
     0.3},
    {{.name = "2000",
      .layers = 32,
      .parts = 6,
      .device_bytes = 24e9,
      .host_bytes = 50e9,
      .cost = 1},
     0.2},
    {{.name = "22000",
      .layers = 126,
      .parts = 16,
      .device_bytes = 40e9,
      .host_bytes = 300e9,
      .cost = 1},
     0.4},
    {{.name = "35000",
      .layers = 126,
      .parts = 16,
      .device_bytes = 30e9,
      .host_bytes = 200e9,
      .cost = 1,
      .weight = 1,
      .gradients = true},
     0.8},
    {{.name = "8640",
      .layers = 24,
      .parts = 24,
      .device_bytes = 34e9,
      .host_bytes = 0,
      .cost = 3,
      .weight = 8,
      .weights_stay = true,
      .gradients = true},
     1.4},
    {{.name = "8640, host",
      .layers = 24,
      .parts = 24,
      .device_bytes = 34e9,
      .host_bytes = 20e9,
      .cost = 1.5,
      .weight = 4,
      .weights_stay = true,
      .gradients = true},
     1.2},
    {{.name = "16 steps",
      .layers = 126,
      .parts = 1,
      .steps = 16,
      .device_bytes = 40e9,
      .host_bytes = 300e9,
      .cost = 1},
     0.4},
};

static void families_are_near_their_bounds(void **state) {
  (void)state;
  for (size_t i = 0; i < MR_COUNT_OF(shapes); i++) {
    double gap = plan_gap(shapes[i].shape.name, problem_from_shape(&shapes[i].shape));
    if (gap > shapes[i].most_percent) {
      fail_msg("%s: %.3f %% above its bound, more than %.1f", shapes[i].shape.name, gap,
               shapes[i].most_percent);
    }
  }
}

/* Also by a crew: of the two the first is planned until starts elsewhere have ended where the best
 * was found, the second until all have been tried. */
static void the_same_problem_gives_the_same_schedule(void **state) {
  (void)state;
  char *const texts[] = {problem_from_shape(&shapes[4].shape),
                         problem_random(26, (struct problem_limits){20, 60})};
  for (size_t i = 0; i < MR_COUNT_OF(texts); i++) {
    struct mr_problem *problem = parse(texts[i]);
    char *printed[2] = {NULL, NULL};
    for (int k = 0; k < 2; k++) {
      struct mr_problem_schedule *schedule = NULL;
      struct mr_crew crew;
      mr_crew_init(&crew, 3);
      assert_int_equal(mr_problem_plan(problem, k == 0 ? NULL : &crew, &schedule), MR_OK);
      assert_int_equal(mr_problem_schedule_print(schedule, &printed[k]), MR_OK);
      mr_problem_schedule_destroy(schedule);
    }
    assert_string_equal(printed[0], printed[1]);
    free(printed[0]);
    free(printed[1]);
    mr_problem_destroy(problem);
    free(texts[i]);
  }
}

/* What is said to be enough is enough, and a byte less is not. */
static void the_smallest_budget_is_told(void **state) {
  (void)state;
  int refused = 0;
  for (uint64_t seed = 1; seed <= 300; seed++) {
    char *text = problem_random(seed, (struct problem_limits){8, 12});
    struct mr_problem *problem = parse(text);
    struct mr_problem_schedule *schedule = NULL;
    assert_int_equal(mr_problem_plan(problem, NULL, &schedule), MR_OK);
    if (!schedule->fits) {
      double smallest = schedule->smallest_device_bytes;
      refused++;
      assert_true(smallest > problem->device_bytes);
      for (int less = 0; less < 2; less++) {
        mr_problem_schedule_destroy(schedule);
        problem->device_bytes = smallest - 2 * less;
        assert_int_equal(mr_problem_plan(problem, NULL, &schedule), MR_OK);
        assert_int_equal(schedule->fits, less == 0);
      }
    }
    mr_problem_schedule_destroy(schedule);
    mr_problem_destroy(problem);
    free(text);
  }
  assert_in_range(refused, 20, 280);
}

/* They must pass from one segment to the next without a pause, because what the next one needs does
 * not fit beside what this one makes: all of that has to come in while this one runs, and nothing
 * that has time may take its room, nor the room of what leaves only after the next one's start. */
static void room_is_kept_for_what_has_to_come_in(void **state) {
  (void)state;
  static const char *const texts[] = {
      "5 7 304 1e6 100 1e4 100 1e4  0.005 0.13 0.001 0.05 0.09  10 36 10 44 39"
      "  40 -1 2 1e9 1 0 0  85 -1 3 1e9 0 0 0  95 0 3 1e9 0 0 0  68 0 2 1e9 0 0 0"
      "  47 -1 2 1e9 0 0 0  90 1 2 1e9 0 0 1  61 -1 2 1e9 1 0 0",
      "3 12 798 1e6 1e3 1e4 1e4 300  0.03 0.001 0.007  93 69 79"
      "  91 -1 1 1e9 0 0 0  21 -1 2 1e9 0 0 0  75 -1 1 1e9 0 0 1  68 -1 1 1e9 0 0 0"
      "  61 -1 1 1e9 0 0 1  56 -1 1 1e9 1 0 0  99 -1 1 1e9 1 0 0  18 0 1 1e9 0 0 0"
      "  84 0 1 1e9 0 0 0  62 -1 1 1e9 1 0 0  100 -1 1 1e9 0 0 0  89 -1 1 1e9 0 0 1",
      "4 8 2244907 0 3.5e7 4.6e7 6.8e7 2.7e6  1 1 1 1  0 0 0 0"
      "  581429 1 4 1e9 0 0 0  533562 1 4 1e9 0 0 0  264046 1 4 1e9 0 0 0  129545 1 3 1e9 0 0 0"
      "  91463 1 2 1e9 0 0 0  430566 1 4 1e9 0 0 0  276194 1 4 1e9 0 0 0  58641 -1 3 1e9 0 0 0",
  };
  for (size_t i = 0; i < MR_COUNT_OF(texts); i++) {
    (void)plan_gap("no room", strdup(texts[i]));
  }
}

static double seconds_of(const struct mr_problem *problem) {
  struct mr_problem_schedule *schedule = NULL;
  assert_int_equal(mr_problem_plan(problem, NULL, &schedule), MR_OK);
  double seconds = schedule->fits ? schedule->seconds : INFINITY;
  mr_problem_schedule_destroy(schedule);
  return seconds;
}

/* With a larger device or host, or one faster link, a schedule is no longer. Searches that began in
 * one place alone made it up to 9 % longer for each of the last four seeds. */
static void with_more_a_schedule_is_no_longer(void **state) {
  (void)state;
  static const uint64_t seeds[] = {1, 2, 3, 4, 5, 6, 7, 8, 118, 168, 174, 229};
  uint32_t pairs = 0;
  for (size_t i = 0; i < MR_COUNT_OF(seeds); i++) {
    char *text = problem_random(seeds[i], (struct problem_limits){20, 60});
    struct mr_problem *problem = parse(text);
    double seconds = seconds_of(problem);
    for (int more = 0; more < 3 + MR_PROBLEM_LINK_COUNT && seconds < INFINITY; more++) {
      struct mr_problem trial = *problem;
      trial.device_bytes *= more == 0 ? 1.05 : more == 1 ? 1.2 : 1;
      trial.host_bytes *= more == 2 ? 2 : 1;
      if (more >= 3) {
        trial.link_bytes_per_second[more - 3] *= 1.3;
      }
      double with_more = seconds_of(&trial);
      pairs++;
      if (with_more > seconds * (1 + 1e-9)) {
        fail_msg("seed %llu, more of %d: %.6f s, %.6f s before", (unsigned long long)seeds[i], more,
                 with_more, seconds);
      }
    }
    mr_problem_destroy(problem);
    free(text);
  }
  assert_true(pairs > 50);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(malformed_problems_are_refused),
      cmocka_unit_test(what_nobody_needs_is_read_as_needed_at_the_end),
      cmocka_unit_test(what_cannot_hide_is_waited_for),
      cmocka_unit_test(rounding_is_left_out_of_the_bound),
      cmocka_unit_test(slow_links_leave_the_bound_alone),
      cmocka_unit_test(what_fits_without_a_pause_stays),
      cmocka_unit_test(what_is_made_last_takes_no_room),
      cmocka_unit_test(given_problems_are_near_their_bounds),
      cmocka_unit_test(families_are_near_their_bounds),
      cmocka_unit_test(the_same_problem_gives_the_same_schedule),
      cmocka_unit_test(the_smallest_budget_is_told),
      cmocka_unit_test(room_is_kept_for_what_has_to_come_in),
      cmocka_unit_test(with_more_a_schedule_is_no_longer),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

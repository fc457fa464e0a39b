/* SPDX-License-Identifier: Apache-2.0 */
/* What a run learns: from typical steps, from ops that ran alone, from a drive kept at work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/runtime.h"

#define OPS   2u
#define STEPS 8u

static char kind_first[] = "first";
static char kind_second[] = "second";
static struct mr_op ops[OPS] = {{.kind = kind_first, .memory_bytes = 1000000},
                                {.kind = kind_second, .memory_bytes = 1000000}};
static struct mr_graph graph = {.ops = ops, .op_count = OPS};
static struct mr_program_plan layout = {.program = &graph};
static struct mr_profile profile;
static struct mr_store_rates nvme;
static struct mr_run *run;

static int set_up(void **state) {
  (void)state;
  run = calloc(1, sizeof *run);
  assert_non_null(run);
  run->layout = &layout;
  atomic_store(&run->round, MR_ROUND_TRAIN);
  mr_traffic_init(&run->traffic);
  assert_int_equal(mr_outlook_init(run), MR_OK);
  profile = (struct mr_profile){.copy_bytes_per_second = {1e9, 1e9},
                                .flops_per_second = 1e9,
                                .bytes_per_second = 1e9,
                                .pace_beside_copy = 1,
                                .pace_beside_nvme = 1};
  nvme = (struct mr_store_rates){1e9, 1e9, 1e9, MR_STORE_STAGED, {0}};
  /* A plan's first step counts for nothing. */
  run->step_index = 1;
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  mr_outlook_fini(run);
  mr_traffic_fini(&run->traffic);
  free(run);
  return 0;
}

/* A step of both ops, the second beside a link or not. */
static void record(double first_seconds, double second_seconds, bool crowded,
                   const struct mr_traffic_sums *traffic) {
  struct mr_step_report report = {.seconds = first_seconds + second_seconds,
                                  .compute_busy_seconds = first_seconds + second_seconds};
  run->step_index++;
  mr_outlook_record_op(run, 0, first_seconds, false);
  mr_outlook_record_op(run, 1, second_seconds, crowded);
  if (traffic != NULL) {
    run->traffic.sums = *traffic;
  }
  run->traffic.since_ns = mr_clock_ns();
  mr_outlook_record(run, &report);
}

static void learn(enum mr_lesson_scope scope) {
  assert_int_equal(mr_outlook_learn(run, scope, &profile, &nvme), MR_OK);
}

static bool near(double value, double wanted) {
  return fabs(value - wanted) <= 1e-6 * wanted;
}

static void a_disturbed_step_teaches_nothing(void **state) {
  (void)state;
  for (uint32_t i = 0; i < STEPS; i++) {
    bool disturbed = i == 2 || i == 5;
    record(disturbed ? 0.5 : 0.01, disturbed ? 0.1 : 0.02, false, NULL);
  }
  learn(MR_LESSON_RUN);
  assert_true(near(mr_profile_op_seconds(&profile, &ops[0]), 0.01));
  assert_true(near(mr_profile_op_seconds(&profile, &ops[1]), 0.02));
  assert_true(near(mr_outlook_median_seconds(&run->outlook), 0.03));
}

/* The ring holds the last steps: what was before them is forgotten. */
static void old_steps_are_forgotten(void **state) {
  (void)state;
  for (uint32_t i = 0; i < 2 * MR_LESSON_STEPS; i++) {
    record(i < MR_LESSON_STEPS ? 0.1 : 0.01, 0.02, false, NULL);
  }
  learn(MR_LESSON_RUN);
  assert_true(near(mr_profile_op_seconds(&profile, &ops[0]), 0.01));
}

static void an_op_beside_a_link_teaches_what_the_link_costs(void **state) {
  (void)state;
  record(0.01, 0.02, false, NULL);
  record(0.01, 0.02, false, NULL);
  learn(MR_LESSON_RUN);
  assert_int_equal(mr_outlook_init(run), MR_OK);
  struct mr_traffic_sums traffic = {.seconds = {[MR_TRAFFIC_READS] = 0.025}};
  for (uint32_t i = 0; i < STEPS; i++) {
    record(0.01, 0.025, true, &traffic);
  }
  learn(MR_LESSON_RUN);
  assert_true(near(mr_profile_op_seconds(&profile, &ops[1]), 0.02));
  assert_true(fabs(profile.pace_beside_nvme - 0.8) < 1e-3);
}

static void what_moves_together_is_learned_apart(void **state) {
  (void)state;
  struct mr_traffic_sums traffic = {.seconds = {[MR_TRAFFIC_READS] = 0.1,
                                                [MR_TRAFFIC_WRITES | MR_TRAFFIC_DEEP] = 0.2,
                                                [MR_TRAFFIC_BOTH] = 0.1,
                                                [MR_TRAFFIC_BOTH | MR_TRAFFIC_DEEP] = 0.1},
                                    .bytes = {[MR_TRAFFIC_READS] = 200000000,
                                              [MR_TRAFFIC_WRITES | MR_TRAFFIC_DEEP] = 600000000,
                                              [MR_TRAFFIC_BOTH] = 100000000,
                                              [MR_TRAFFIC_BOTH | MR_TRAFFIC_DEEP] = 500000000}};
  record(0.5, 0.5, false, &traffic);
  learn(MR_LESSON_RUN);
  assert_true(near(nvme.read_bytes_per_second, 2e9));
  assert_true(near(nvme.write_bytes_per_second, 3e9));
  assert_true(near(nvme.mixed_bytes_per_second, 3e9));
}

/* The machine's rates: half the old, half the new, and only of a drive that was kept at work. */
static void the_machine_learns_from_a_busy_drive(void **state) {
  (void)state;
  struct mr_traffic_sums traffic = {
      .seconds = {[MR_TRAFFIC_READS] = 1, [MR_TRAFFIC_WRITES | MR_TRAFFIC_DEEP] = 0.2},
      .bytes = {[MR_TRAFFIC_READS] = 1000000000,
                [MR_TRAFFIC_WRITES | MR_TRAFFIC_DEEP] = 600000000}};
  nvme.read_bytes_per_second = 5e9;
  record(0.5, 0.5, false, &traffic);
  learn(MR_LESSON_MACHINE);
  assert_true(near(nvme.read_bytes_per_second, 5e9));
  assert_true(near(nvme.write_bytes_per_second, 2e9));
}

static void traffic_is_told_apart(void **state) {
  (void)state;
  struct mr_traffic_sums sums;
  mr_traffic_watch(&run->traffic, NULL);
  mr_traffic_begin(&run->traffic, false, 1);
  mr_traffic_begin(&run->traffic, true, 64 << 20);
  mr_traffic_end(&run->traffic, false, 1);
  mr_traffic_end(&run->traffic, true, 64 << 20);
  mr_traffic_take(&run->traffic, &sums);
  assert_true(sums.seconds[MR_TRAFFIC_READS] > 0);
  assert_true(sums.seconds[MR_TRAFFIC_BOTH | MR_TRAFFIC_DEEP] > 0);
  assert_true(sums.seconds[MR_TRAFFIC_WRITES | MR_TRAFFIC_DEEP] > 0);
  assert_true(sums.seconds[MR_TRAFFIC_WRITES] == 0);
  mr_traffic_take(&run->traffic, &sums);
  assert_true(mr_traffic_busy_seconds(&sums) == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_disturbed_step_teaches_nothing, set_up, tear_down),
      cmocka_unit_test_setup_teardown(old_steps_are_forgotten, set_up, tear_down),
      cmocka_unit_test_setup_teardown(an_op_beside_a_link_teaches_what_the_link_costs, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(what_moves_together_is_learned_apart, set_up, tear_down),
      cmocka_unit_test_setup_teardown(the_machine_learns_from_a_busy_drive, set_up, tear_down),
      cmocka_unit_test_setup_teardown(traffic_is_told_apart, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

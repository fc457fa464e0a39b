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

#define OPS       2u
#define STEPS     8u
#define COPY_RATE 2e9 /* that copies show */

static char kind_first[] = "first";
static char kind_second[] = "second";
static struct mr_op ops[OPS] = {{.kind = kind_first, .memory_bytes = 1000000},
                                {.kind = kind_second, .memory_bytes = 1000000}};
static struct mr_graph graph = {.ops = ops, .op_count = OPS};
static struct mr_instruction instructions[OPS];
static struct mr_program_plan layout = {.program = &graph, .instructions = {instructions}};
static struct mr_profile profile;
static struct mr_store_rates nvme;
static struct mr_plan plan;
static struct mr_run *run;

static int set_up(void **state) {
  (void)state;
  run = calloc(1, sizeof *run);
  assert_non_null(run);
  run->layout = &layout;
  run->plan = &plan;
  atomic_store(&run->round, MR_ROUND_TRAIN);
  mr_traffic_init(&run->traffic);
  assert_int_equal(mr_outlook_init(run), MR_OK);
  profile = (struct mr_profile){.copy_bytes_per_second = {1e9, 1e9},
                                .flops_per_second = 1e9,
                                .bytes_per_second = 1e9,
                                .pace_beside_copy = 1};
  nvme = (struct mr_store_rates){
      .read_bytes_per_second = 1e9, .write_bytes_per_second = 1e9, .mixed_bytes_per_second = 1e9};
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

/* What went on beside the second op of a step. */
struct beside {
  uint64_t nvme_bytes;
  double copy_seconds;
  double displaced_seconds; /* of the step, between its ops */
};

/* A step of both ops, the second beside links where one is named. */
static void record(double first_seconds, double second_seconds, struct beside beside,
                   const struct mr_traffic_sums *traffic) {
  double op_seconds = first_seconds + second_seconds;
  struct mr_step_report report = {.seconds = op_seconds + beside.displaced_seconds,
                                  .compute_busy_seconds = op_seconds};
  report.link_busy_seconds[MR_LINK_HOST_TO_DEVICE] = beside.copy_seconds;
  report.moved_bytes[MR_LINK_HOST_TO_DEVICE] = (uint64_t)(beside.copy_seconds * COPY_RATE);
  bool crowded = beside.nvme_bytes > 0 || beside.copy_seconds > 0;
  run->step_index++;
  mr_outlook_record_op(run, 0, &(struct mr_op_sample){.seconds = first_seconds});
  mr_outlook_record_op(run, 1, &(struct mr_op_sample){second_seconds, crowded, beside.nvme_bytes});
  if (traffic != NULL) {
    run->traffic.sums = *traffic;
  }
  run->traffic.since_ns = mr_clock_ns();
  mr_outlook_record(run, &report);
}

static const struct beside nothing;

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
    record(disturbed ? 0.5 : 0.01, disturbed ? 0.1 : 0.02, nothing, NULL);
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
    record(i < MR_LESSON_STEPS ? 0.1 : 0.01, 0.02, nothing, NULL);
  }
  learn(MR_LESSON_RUN);
  assert_true(near(mr_profile_op_seconds(&profile, &ops[0]), 0.01));
}

/* On a device with streams a step times some of its ops. What was timed in none of the typical ones
 * is known from another, here the first, which took longer. */
static void a_step_need_not_time_all(void **state) {
  (void)state;
  double seconds[OPS] = {0};
  for (uint32_t i = 0; i < STEPS; i++) {
    struct mr_step_report report = {.seconds = i == 0 ? 0.05 : 0.03};
    run->step_index++;
    mr_outlook_record_op(run, 0, &(struct mr_op_sample){.seconds = i % 4 == 1 ? 0.01 : 0});
    mr_outlook_record_op(run, 1, &(struct mr_op_sample){.seconds = i == 0 ? 0.02 : 0});
    run->traffic.since_ns = mr_clock_ns();
    mr_outlook_record(run, &report);
  }
  assert_true(near(mr_outlook_typical_seconds(run, seconds), 0.03));
  assert_true(near(seconds[0], 0.01) && near(seconds[1], 0.02));
  learn(MR_LESSON_RUN);
  assert_true(near(mr_profile_op_seconds(&profile, &ops[0]), 0.01));
  assert_true(near(mr_profile_op_seconds(&profile, &ops[1]), 0.02));
}

/* A new forecast is set against the steps under it once there are enough of them. */
static void a_forecast_is_judged_by_some_steps(void **state) {
  (void)state;
  for (uint32_t i = 0; i < STEPS; i++) {
    record(0.01, 0.02, nothing, NULL);
  }
  struct mr_judged_forecast judged = mr_outlook_judge(&run->outlook, 0.04);
  mr_outlook_restart(&run->outlook, &judged);
  for (uint32_t i = 0; i < MR_REVIEW_STEPS - 1; i++) {
    record(0.02, 0.03, nothing, NULL);
    judged = mr_outlook_judge(&run->outlook, 0.045);
    assert_true(near(judged.predicted_seconds, 0.04));
    assert_true(near(judged.median_seconds, 0.03));
    assert_int_equal(judged.step_count, STEPS);
  }
  record(0.02, 0.03, nothing, NULL);
  judged = mr_outlook_judge(&run->outlook, 0.045);
  assert_true(near(judged.predicted_seconds, 0.045));
  assert_true(near(judged.median_seconds, 0.05));
  assert_int_equal(judged.step_count, MR_REVIEW_STEPS);
}

/* One that too few steps followed is left behind. */
static void a_forecast_of_one_step_is_not_kept(void **state) {
  (void)state;
  record(0.01, 0.02, nothing, NULL);
  struct mr_judged_forecast judged = mr_outlook_judge(&run->outlook, 0.04);
  assert_int_equal(judged.step_count, 1);
  mr_outlook_restart(&run->outlook, &judged);
  record(0.02, 0.03, nothing, NULL);
  judged = mr_outlook_judge(&run->outlook, 0.045);
  assert_true(near(judged.predicted_seconds, 0.045));
  assert_int_equal(judged.step_count, 1);
}

/* A spell in which the machine was slower moves neither the forecast that comes of it nor the next
 * ones, as long as most steps were not in it. */
static void a_slow_spell_is_passed_over(void **state) {
  (void)state;
  struct mr_judged_forecast judged = {0};
  for (uint32_t i = 0; i < MR_OUTLOOK_STEPS; i++) {
    bool slow = i >= STEPS && i < 2 * STEPS - 1;
    record(slow ? 0.03 : 0.01, 0.02, nothing, NULL);
    if (i == STEPS || i == 2 * STEPS - 1) {
      judged = mr_outlook_judge(&run->outlook, 0.03);
      mr_outlook_restart(&run->outlook, &judged);
    }
    assert_true(near(mr_outlook_step_seconds(&run->outlook), 0.03));
  }
  /* A machine that stays slower is, in the end. */
  for (uint32_t i = 0; i < MR_OUTLOOK_STEPS / 2; i++) {
    record(0.03, 0.02, nothing, NULL);
    assert_true(near(mr_outlook_step_seconds(&run->outlook), 0.03));
  }
  record(0.03, 0.02, nothing, NULL);
  assert_true(near(mr_outlook_step_seconds(&run->outlook), 0.05));
}

/* The first forecast has nothing before it. */
static void the_first_forecast_is_judged_at_once(void **state) {
  (void)state;
  assert_int_equal(mr_outlook_judge(&run->outlook, 0.04).step_count, 0);
  record(0.01, 0.02, nothing, NULL);
  struct mr_judged_forecast judged = mr_outlook_judge(&run->outlook, 0.04);
  assert_true(near(judged.predicted_seconds, 0.04));
  assert_true(near(judged.median_seconds, 0.03));
  assert_true(near(mr_outlook_step_seconds(&run->outlook), 0.03));
}

/* Steps that differ among themselves contradict a forecast only where their median is further off
 * than such steps leave it by chance; more of them know it better. */
static void a_forecast_stands_until_contradicted(void **state) {
  (void)state;
  assert_true(mr_outlook_error(&run->outlook, 0.03) == 0);
  for (uint32_t i = 0; i < MR_REVIEW_STEPS; i++) {
    record(0.01 + 0.002 * (i % 2), 0.019, nothing, NULL); /* 0.030 give or take 0.001 */
  }
  assert_true(mr_outlook_error(&run->outlook, 0.0307) == 0);
  assert_true(mr_outlook_error(&run->outlook, 0.0293) == 0);
  assert_true(near(mr_outlook_error(&run->outlook, 0.032), 0.002 / 0.032));
  assert_true(near(mr_outlook_error(&run->outlook, 0.028), 0.002 / 0.028));
  for (uint32_t i = 0; i < 3 * MR_REVIEW_STEPS; i++) {
    record(0.01 + 0.002 * (i % 2), 0.019, nothing, NULL);
  }
  assert_true(near(mr_outlook_error(&run->outlook, 0.0307), 0.0007 / 0.0307));
}

/* Both ops run alone, so that their kinds are known. */
static void teach_alone(void) {
  record(0.01, 0.02, nothing, NULL);
  record(0.01, 0.02, nothing, NULL);
  learn(MR_LESSON_RUN);
}

/* A run beside links. */
static void run_beside(double second_seconds, struct beside beside, enum mr_lesson_scope scope) {
  assert_int_equal(mr_outlook_init(run), MR_OK);
  for (uint32_t i = 0; i < STEPS; i++) {
    record(0.01, second_seconds, beside, NULL);
  }
  learn(scope);
  assert_true(near(mr_profile_op_seconds(&profile, &ops[1]), 0.02));
}

static void teach_beside(double second_seconds, struct beside beside) {
  teach_alone();
  run_beside(second_seconds, beside, MR_LESSON_RUN);
}

static void an_op_beside_nvme_teaches_what_a_byte_costs(void **state) {
  (void)state;
  teach_beside(0.025, (struct beside){.nvme_bytes = 50000000});
  assert_true(near(nvme.op_seconds_per_byte, 1e-10));
  assert_true(near(profile.pace_beside_copy, 1));
}

static void an_op_beside_copies_teaches_its_pace(void **state) {
  (void)state;
  teach_beside(0.025, (struct beside){.copy_seconds = 0.02});
  assert_true(near(profile.pace_beside_copy, 0.75));
  assert_true(nvme.op_seconds_per_byte <= 0);
}

/* Who copies took the processor from the thread that starts ops, too. */
static void what_is_displaced_is_a_loss_to_links(void **state) {
  (void)state;
  teach_beside(0.022, (struct beside){.copy_seconds = 0.02, .displaced_seconds = 0.003});
  assert_true(near(profile.pace_beside_copy, 0.75));
  assert_true(near(mr_profile_op_seconds(&profile, &ops[0]), 0.01));
  double op_seconds[OPS];
  assert_true(near(mr_outlook_typical_seconds(run, op_seconds), 0.035));
  assert_true(near(op_seconds[0], 0.01) && near(op_seconds[1], 0.025));
}

/* Without links beside them ops took what they took. */
static void what_nobody_displaced_is_no_loss(void **state) {
  (void)state;
  for (uint32_t i = 0; i < STEPS; i++) {
    record(0.01, 0.02, (struct beside){.displaced_seconds = 0.003}, NULL);
  }
  learn(MR_LESSON_RUN);
  assert_true(near(mr_profile_op_seconds(&profile, &ops[1]), 0.02));
}

/* What was reckoned of links does not count beside what a run shows; that counts half. */
static void the_first_run_beside_links_counts_alone(void **state) {
  (void)state;
  const struct beside copies = {.copy_seconds = 0.02};
  const struct beside drive = {.nvme_bytes = 50000000};
  teach_alone();
  profile.pace_beside_copy = 0.9;
  run_beside(0.025, copies, MR_LESSON_MACHINE);
  assert_true(near(profile.pace_beside_copy, 0.75));
  assert_true(near(profile.copy_bytes_per_second[1], COPY_RATE));
  profile.copy_bytes_per_second[1] = 1e9;
  run_beside(0.029, copies, MR_LESSON_MACHINE);
  assert_true(near(profile.pace_beside_copy, 0.65));
  assert_true(near(profile.copy_bytes_per_second[1], 1.5e9));
  nvme.op_seconds_per_byte = 3e-11;
  run_beside(0.025, drive, MR_LESSON_MACHINE);
  assert_true(near(nvme.op_seconds_per_byte, 1e-10));
  run_beside(0.03, drive, MR_LESSON_MACHINE);
  assert_true(near(nvme.op_seconds_per_byte, 1.5e-10));
}

/* Steps in which ops on a host got through 64 MiB while links moved so many bytes. */
static void teach_host(double seconds, uint64_t moved_bytes) {
  const struct mr_host_work work = {seconds, 64ull << 20, moved_bytes};
  assert_int_equal(mr_outlook_init(run), MR_OK);
  for (uint32_t i = 0; i < STEPS; i++) {
    mr_outlook_record_host(run, &work);
    record(0.01, 0.02, nothing, NULL);
  }
  learn(MR_LESSON_RUN);
}

/* Alone its rate; beside much the rate of its memory, once that holds it up; in between nothing. */
static void a_host_teaches_what_its_memory_shares(void **state) {
  (void)state;
  const double bytes = 64 << 20;
  teach_host(1e-3, 1 << 20);
  assert_true(near(profile.host_bytes_per_second, bytes / 1e-3));
  assert_true(profile.host_memory_bytes_per_second <= 0);
  teach_host(4e-3, 8 << 20);
  assert_true(near(profile.host_bytes_per_second, bytes / 1e-3));
  assert_true(profile.host_memory_bytes_per_second <= 0);
  /* Nor where it kept its speed: nothing is known of a limit. */
  teach_host(1e-3, 32 << 20);
  assert_true(profile.host_memory_bytes_per_second <= 0);
  teach_host(2e-3, 96 << 20);
  assert_true(near(profile.host_bytes_per_second, bytes / 1e-3));
  assert_true(near(profile.host_memory_bytes_per_second, 2.5 * bytes / 2e-3));
  /* As fast as alone beside less: its memory was not all in use. */
  teach_host(1e-3, 16 << 20);
  assert_true(near(profile.host_memory_bytes_per_second, 2.5 * bytes / 2e-3));
  teach_host(1e-3, 64 << 20);
  assert_true(near(profile.host_memory_bytes_per_second, 2 * bytes / 1e-3));
}

/* What is known of copies is theirs, the rest is of NVMe, which should have cost more. */
static void of_two_links_the_dearer_one_learns(void **state) {
  (void)state;
  profile.pace_beside_copy = 0.9;
  nvme.op_seconds_per_byte = 1e-10;
  teach_beside(0.029, (struct beside){.nvme_bytes = 40000000, .copy_seconds = 0.01});
  assert_true(near(nvme.op_seconds_per_byte, 2e-10));
  assert_true(near(profile.pace_beside_copy, 0.9));
}

/* Nothing is known of what they take alone: they teach that, less what is known of the link. */
static void unknown_ops_teach_nothing_of_links(void **state) {
  (void)state;
  nvme.op_seconds_per_byte = 1e-10;
  for (uint32_t i = 0; i < STEPS; i++) {
    record(0.01, 0.025, (struct beside){.nvme_bytes = 50000000}, NULL);
  }
  learn(MR_LESSON_RUN);
  assert_true(near(nvme.op_seconds_per_byte, 1e-10));
  assert_true(near(mr_profile_op_seconds(&profile, &ops[1]), 0.02));
}

/* A rate of a machine that was another one once: the op takes 0.02 s alone, and is known to take so
 * many times that. It never runs without NVMe, and what it teaches is no matter of copies, of which
 * there are none, nor of what NVMe costs. */
static void teach_a_wrong_rate(double times) {
  record(0.01, 0.02 * times, nothing, NULL);
  record(0.01, 0.02 * times, nothing, NULL);
  learn(MR_LESSON_RUN);
  profile.pace_beside_copy = 0.5;
  nvme.op_seconds_per_byte = 1e-10;
  assert_int_equal(mr_outlook_init(run), MR_OK);
  for (uint32_t i = 0; i < STEPS; i++) {
    record(0.01, 0.025, (struct beside){.nvme_bytes = 50000000}, NULL);
  }
  learn(MR_LESSON_RUN);
  assert_true(near(mr_profile_op_seconds(&profile, &ops[1]), 0.02));
  assert_true(near(nvme.op_seconds_per_byte, 1e-10));
  assert_true(near(profile.pace_beside_copy, 0.5));
}

static void what_no_link_can_have_done_is_a_wrong_rate(void **state) {
  (void)state;
  teach_a_wrong_rate(1000);
  assert_int_equal(mr_outlook_init(run), MR_OK);
  teach_a_wrong_rate(0.001);
}

static void what_moves_together_is_learned_apart(void **state) {
  (void)state;
  struct mr_traffic_sums traffic = {0};
  traffic.seconds[MR_TRAFFIC_READS] = 0.1;
  traffic.seconds[MR_TRAFFIC_WRITES | MR_TRAFFIC_DEEP] = 0.2;
  traffic.seconds[MR_TRAFFIC_BOTH] = 0.1;
  traffic.seconds[MR_TRAFFIC_BOTH | MR_TRAFFIC_DEEP] = 0.1;
  traffic.bytes[MR_TRAFFIC_READS] = 200000000;
  traffic.bytes[MR_TRAFFIC_WRITES | MR_TRAFFIC_DEEP] = 600000000;
  traffic.bytes[MR_TRAFFIC_BOTH] = 100000000;
  traffic.bytes[MR_TRAFFIC_BOTH | MR_TRAFFIC_DEEP] = 500000000;
  record(0.5, 0.5, nothing, &traffic);
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
  record(0.5, 0.5, nothing, &traffic);
  learn(MR_LESSON_MACHINE);
  assert_true(near(nvme.read_bytes_per_second, 5e9));
  assert_true(near(nvme.write_bytes_per_second, 2e9));
}

/* A rate that is off by more than machines change was wrong: the run's takes its place. */
static void a_wrong_rate_of_the_machine_goes(void **state) {
  (void)state;
  const struct mr_traffic_sums traffic = {
      .seconds = {[MR_TRAFFIC_READS | MR_TRAFFIC_DEEP] = 1,
                  [MR_TRAFFIC_WRITES | MR_TRAFFIC_DEEP] = 1},
      .bytes = {[MR_TRAFFIC_READS | MR_TRAFFIC_DEEP] = 1000000000,
                [MR_TRAFFIC_WRITES | MR_TRAFFIC_DEEP] = 600000000}};
  nvme.read_bytes_per_second = 1e12;
  nvme.write_bytes_per_second = 6e5;
  record(0.5, 0.5, nothing, &traffic);
  learn(MR_LESSON_MACHINE);
  assert_true(near(nvme.read_bytes_per_second, 1e9));
  assert_true(near(nvme.write_bytes_per_second, 6e8));
}

static void learn_after(double first_seconds, double second_seconds) {
  for (uint32_t i = 0; i < STEPS; i++) {
    record(first_seconds, second_seconds, nothing, NULL);
  }
  learn(MR_LESSON_MACHINE);
  mr_outlook_fini(run);
  assert_int_equal(mr_outlook_init(run), MR_OK);
}

/* A run counts as much as what was known; what was measured on a machine that others had does not
 * count where nobody has it any more. */
static void what_a_busy_machine_taught_is_forgotten(void **state) {
  (void)state;
  learn_after(0.02, 0.04);
  learn_after(0.018, 0.036);
  assert_true(near(mr_profile_op_seconds(&profile, &ops[0]), 0.019));
  assert_true(near(mr_profile_op_seconds(&profile, &ops[1]), 0.038));
  learn_after(0.012, 0.024);
  assert_true(near(mr_profile_op_seconds(&profile, &ops[0]), 0.012));
  assert_true(near(mr_profile_op_seconds(&profile, &ops[1]), 0.024));
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
      cmocka_unit_test_setup_teardown(a_step_need_not_time_all, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_forecast_is_judged_by_some_steps, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_forecast_of_one_step_is_not_kept, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_slow_spell_is_passed_over, set_up, tear_down),
      cmocka_unit_test_setup_teardown(the_first_forecast_is_judged_at_once, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_forecast_stands_until_contradicted, set_up, tear_down),
      cmocka_unit_test_setup_teardown(an_op_beside_nvme_teaches_what_a_byte_costs, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(an_op_beside_copies_teaches_its_pace, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_is_displaced_is_a_loss_to_links, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_nobody_displaced_is_no_loss, set_up, tear_down),
      cmocka_unit_test_setup_teardown(the_first_run_beside_links_counts_alone, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_host_teaches_what_its_memory_shares, set_up, tear_down),
      cmocka_unit_test_setup_teardown(of_two_links_the_dearer_one_learns, set_up, tear_down),
      cmocka_unit_test_setup_teardown(unknown_ops_teach_nothing_of_links, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_no_link_can_have_done_is_a_wrong_rate, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(what_moves_together_is_learned_apart, set_up, tear_down),
      cmocka_unit_test_setup_teardown(the_machine_learns_from_a_busy_drive, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_wrong_rate_of_the_machine_goes, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_a_busy_machine_taught_is_forgotten, set_up, tear_down),
      cmocka_unit_test_setup_teardown(traffic_is_told_apart, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

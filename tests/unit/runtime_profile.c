/* SPDX-License-Identifier: Apache-2.0 */
/* The profile: what was written is read back, what was not is refused, and runs teach it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "runtime/profile.h"
#include "runtime/runtime.h"

static struct mr_profile example;
static struct mr_profile other;

static void fill_example(void) {
  memset(&example, 0, sizeof example);
  snprintf(example.machine, sizeof example.machine, "some processor|2|2");
  example.copy_bytes_per_second[0] = 1e10;
  example.copy_bytes_per_second[1] = 1.5e10;
  example.flops_per_second = 1e11 / 3;
  example.bytes_per_second = 2e10;
  example.bind_seconds_per_move = 2e-6;
  example.pace_beside_copy = 0.75;
  example.copies_learned = true;
  example.host_bytes_per_second = 9e10;
  example.host_memory_bytes_per_second = 1.2e11;
  example.rate_count = 2;
  example.rates[0] = (struct mr_op_rate){"linear.forward", true, 251, 1.0 / 3e11};
  example.rates[1] = (struct mr_op_rate){"adamw", false, 160, 1.0 / 2e10};
  example.path_count = 1;
  snprintf(example.paths[0].devices, sizeof example.paths[0].devices, "engine 0+254:0");
  example.paths[0].rates.read_bytes_per_second = 3e9;
  example.paths[0].rates.write_bytes_per_second = 2e9;
  example.paths[0].rates.mixed_bytes_per_second = 4e9;
  example.paths[0].rates.op_seconds_per_byte = 1.0 / 7e9;
  example.paths[0].rates.cost_learned = true;
  example.paths[0].rates.latency_seconds = 3e-4;
  example.paths[0].rates.mode = MR_STORE_STAGED;
  example.paths[0].rates.path_weights[0] = 1;
}

static void a_profile_survives_its_file(void **state) {
  (void)state;
  fill_example();
  char path[64];
  snprintf(path, sizeof path, "/tmp/memrun-test-%ld/a/profile.json", (long)getpid());
  mr_profile_save(path, &example);
  assert_int_equal(mr_profile_load(path, example.machine, &other), MR_OK);
  assert_memory_equal(&other, &example, sizeof example);
  example.bind_seconds_per_move = 0; /* as one from before it was measured is kept */
  mr_profile_save(path, &example);
  assert_int_equal(mr_profile_load(path, example.machine, &other), MR_OK);
  assert_memory_equal(&other, &example, sizeof example);
  assert_int_equal(mr_profile_load(path, "another|2|2", &other), MR_UNSUPPORTED);
  assert_int_equal(mr_profile_load("/nonexistent", example.machine, &other), MR_IO);
  char command[128];
  snprintf(command, sizeof command, "rm -r /tmp/memrun-test-%ld", (long)getpid());
  assert_int_equal(system(command), 0);
}

/* All but NVMe stays; a file that is not there stays away. */
static void nvme_is_forgotten(void **state) {
  (void)state;
  char path[64];
  snprintf(path, sizeof path, "/tmp/memrun-forget-%d.json", (int)getpid());
  assert_int_equal(mr_profile_forget_nvme(path), MR_OK);
  assert_int_equal(access(path, F_OK), -1);
  mr_profile_save(path, &example);
  assert_int_equal(mr_profile_forget_nvme(path), MR_OK);
  assert_int_equal(mr_profile_load(path, example.machine, &other), MR_OK);
  assert_int_equal(other.path_count, 0);
  assert_int_equal(other.rate_count, example.rate_count);
  assert_true(other.flops_per_second == example.flops_per_second);
  assert_int_equal(unlink(path), 0);
}

/* Ops that are in the file, and those by rates for all kinds; links stay. */
static void ops_are_slowed(void **state) {
  (void)state;
  char path[64];
  snprintf(path, sizeof path, "/tmp/memrun-slow-%d.json", (int)getpid());
  assert_int_equal(mr_profile_slow_ops(path, 2), MR_OK);
  assert_int_equal(access(path, F_OK), -1);
  fill_example();
  mr_profile_save(path, &example);
  assert_int_equal(mr_profile_slow_ops(path, 2), MR_OK);
  assert_int_equal(mr_profile_load(path, example.machine, &other), MR_OK);
  assert_true(example.rate_count > 0);
  for (uint32_t i = 0; i < example.rate_count; i++) {
    assert_true(other.rates[i].seconds_per_unit == 2 * example.rates[i].seconds_per_unit);
  }
  assert_true(other.flops_per_second == example.flops_per_second / 2);
  assert_true(other.bytes_per_second == example.bytes_per_second / 2);
  assert_memory_equal(other.paths, example.paths, sizeof example.paths);
  assert_int_equal(unlink(path), 0);
}

static void bad_texts_are_refused(void **state) {
  (void)state;
  static const char negative_rate[] =
      "{\"memrun_profile\":2,\"machine\":\"m\",\"device_to_host\":-1,\"host_to_device\":1,"
      "\"flops_per_second\":1,\"bytes_per_second\":1,\"ops\":[],\"paths\":[]}";
  static const char half_an_op[] =
      "{\"memrun_profile\":2,\"machine\":\"m\",\"device_to_host\":1,\"host_to_device\":1,"
      "\"flops_per_second\":1,\"bytes_per_second\":1,\"ops\":[{\"kind\":\"k\"}],\"paths\":[]}";
  static const char faster_than_alone[] =
      "{\"memrun_profile\":2,\"machine\":\"m\",\"device_to_host\":1,\"host_to_device\":1,"
      "\"flops_per_second\":1,\"bytes_per_second\":1,\"pace_beside_copy\":1.5,\"ops\":[],\"paths\":"
      "[]}";
  static const char no_rate[] =
      "{\"memrun_profile\":2,\"machine\":\"m\",\"device_to_host\":1,\"host_to_device\":1,"
      "\"flops_per_second\":1e-300,\"bytes_per_second\":1,\"ops\":[],\"paths\":[]}";
  static const char half_learned[] =
      "{\"memrun_profile\":2,\"machine\":\"m\",\"device_to_host\":1,\"host_to_device\":1,"
      "\"flops_per_second\":1,\"bytes_per_second\":1,\"copies_learned\":0.5,\"ops\":[],\"paths\":[]"
      "}";
  static const char *const bad[] = {"{\"memrun_profile\":1}",
                                    "{\"memrun_profile\":2}",
                                    negative_rate,
                                    half_an_op,
                                    faster_than_alone,
                                    half_learned,
                                    no_rate};
  for (size_t i = 0; i < MR_COUNT_OF(bad); i++) {
    assert_int_equal(mr_profile_parse(bad[i], strlen(bad[i]), &other), MR_UNSUPPORTED);
  }
  static const char *const none[] = {
      "", "{", "null", "[]", "{}", "\xff\xfe", "{\"memrun_profile\":\"2\"}", "{\"memrun_plan\":9}"};
  for (size_t i = 0; i < MR_COUNT_OF(none); i++) {
    assert_int_equal(mr_profile_parse(none[i], strlen(none[i]), &other), MR_INVALID);
  }
  static const char good[] =
      "{\"memrun_profile\":2,\"machine\":\"m\",\"device_to_host\":1,\"host_to_device\":1,"
      "\"flops_per_second\":1,\"bytes_per_second\":1,\"ops\":[],\"paths\":[]}";
  assert_int_equal(mr_profile_parse(good, strlen(good), &other), MR_OK);
  assert_true(other.bind_seconds_per_move == 0 && other.pace_beside_copy == 1);
  assert_false(other.copies_learned);
  assert_true(other.host_bytes_per_second == 0 && other.host_memory_bytes_per_second == 0);
}

/* Every text with one byte changed or cut off is read or refused, never believed with a rate that
 * is no rate. */
static void damaged_texts_are_harmless(void **state) {
  (void)state;
  fill_example();
  char *text = NULL;
  assert_int_equal(mr_profile_print(&example, &text), MR_OK);
  size_t bytes = strlen(text);
  struct mr_random random;
  mr_random_init(&random, 7);
  for (uint32_t i = 0; i < 3000; i++) {
    char *copy = mr_string_copy(text);
    assert_non_null(copy);
    copy[mr_random_below(&random, bytes)] = (char)mr_random_u64(&random);
    size_t kept = i % 3 == 0 ? (size_t)mr_random_below(&random, bytes) : bytes;
    if (mr_profile_parse(copy, kept, &other) == MR_OK) {
      assert_true(isfinite(other.flops_per_second) && other.flops_per_second > 0);
      assert_true(other.rate_count <= MR_PROFILE_MAX_RATES);
    }
    free(copy);
  }
  free(text);
}

static void runs_teach(void **state) {
  (void)state;
  fill_example();
  struct mr_op ops[3] = {
      {.kind = (char[]){"linear.forward"}, .flops = 3e9, .memory_bytes = 1000},
      {.kind = (char[]){"new.kind"}, .flops = 0, .memory_bytes = 1 << 20},
      {.kind = (char[]){"never.ran"}, .flops = 0, .memory_bytes = 1 << 20},
  };
  double before = mr_profile_op_seconds(&example, &ops[0]);
  assert_true(fabs(before - 0.01) < 1e-9);
  assert_true(mr_profile_op_seconds(&example, &ops[1]) > 0);
  struct mr_graph graph = {.ops = ops, .op_count = 3};
  double seconds[3] = {0.012, 0.002, 0};
  mr_profile_learn(&example, &graph, seconds, 0.5);
  assert_int_equal(example.rate_count, 3);
  /* Half of what it was, half of what it is now. */
  assert_true(fabs(mr_profile_op_seconds(&example, &ops[0]) - 0.011) < 1e-9);
  assert_true(fabs(mr_profile_op_seconds(&example, &ops[1]) - 0.002) < 1e-9);
}

/* Ten ops of a kind that took 0.01 s each before; now the first so many take `held_up` times as
 * long, and the others `now` times, or are not measured where that is 0. Of one that is expected
 * then so many times what it was. */
static double taught(uint32_t held_up_count, double held_up, double now, double weight) {
  char kind[] = "linear.forward";
  struct mr_op ops[10];
  double seconds[10];
  for (uint32_t i = 0; i < MR_COUNT_OF(ops); i++) {
    ops[i] = (struct mr_op){.kind = kind, .flops = 3e9};
    seconds[i] = 0.01 * (i < held_up_count ? held_up : now);
  }
  struct mr_graph graph = {.ops = ops, .op_count = MR_COUNT_OF(ops)};
  fill_example();
  mr_profile_learn(&example, &graph, seconds, weight);
  return mr_profile_op_seconds(&example, &ops[0]) / 0.01;
}

/* What something else held up teaches little: neither some of many ops, nor the few that a run
 * shows against what earlier ones did. Where most ops are slower the machine is. */
static void what_was_held_up_teaches_little(void **state) {
  (void)state;
  assert_true(fabs(taught(4, 2, 1, 1) - 1.1) < 1e-9);      /* 4 of 10 count as 1.25 */
  assert_true(fabs(taught(4, 2, 1, 0.5) - 1.05) < 1e-9);   /* and half of that */
  assert_true(fabs(taught(10, 2, 1, 0.5) - 1.5) < 1e-9);   /* all are slower */
  assert_true(fabs(taught(1, 2, 0, 0.5) - 1.125) < 1e-9);  /* one alone against what is known */
  assert_true(fabs(taught(1, 2, 0, 1) - 2) < 1e-9);        /* nothing that was known counts */
  assert_true(fabs(taught(1, 0.5, 0, 0.5) - 0.75) < 1e-9); /* nothing is faster by chance */
}

/* What is further off than machines are from themselves was wrong, and is put right by one run,
 * whichever way it was wrong and however few ops show it. */
static void a_wrong_rate_is_put_right_at_once(void **state) {
  (void)state;
  assert_true(fabs(taught(10, 1000, 1, 0.5) - 1000) < 1e-6);
  assert_true(fabs(taught(1, 1000, 0, 0.5) - 1000) < 1e-6);
  assert_true(fabs(taught(10, 0.001, 1, 0.5) - 0.001) < 1e-12);
  assert_true(fabs(taught(1, 0.001, 0, 0.5) - 0.001) < 1e-12);
  assert_true(fabs(taught(1, 1000, 1, 0.5) - 1.0125) < 1e-9); /* one of ten was held up */
}

/* Sizes within a tenth go by one rate, an octave has eight. */
static void sizes_are_told_apart(void **state) {
  (void)state;
  memset(&example, 0, sizeof example);
  struct mr_op ops[3] = {
      {.kind = (char[]){"linear.forward"}, .flops = 1024e6},
      {.kind = (char[]){"linear.forward"}, .flops = 1040e6},
      {.kind = (char[]){"linear.forward"}, .flops = 1200e6},
  };
  struct mr_graph graph = {.ops = ops, .op_count = 3};
  double seconds[3] = {0.01, 0, 0.02};
  mr_profile_learn(&example, &graph, seconds, 0.5);
  assert_int_equal(example.rate_count, 2);
  assert_true(mr_profile_knows(&example, &ops[1]));
  assert_true(fabs(mr_profile_op_seconds(&example, &ops[0]) - 0.01) < 1e-9);
  assert_true(fabs(mr_profile_op_seconds(&example, &ops[1]) - 0.01 * 1040 / 1024) < 1e-9);
  assert_true(fabs(mr_profile_op_seconds(&example, &ops[2]) - 0.02) < 1e-9);
}

/* Where there is no room for more, what was not used for longest goes. */
static void a_full_profile_goes_on_learning(void **state) {
  (void)state;
  memset(&example, 0, sizeof example);
  char kinds[MR_PROFILE_MAX_RATES + 2][16];
  struct mr_op op = {.memory_bytes = 1 << 20};
  struct mr_graph graph = {.ops = &op, .op_count = 1};
  double seconds = 0.01;
  for (uint32_t i = 0; i < MR_COUNT_OF(kinds); i++) {
    snprintf(kinds[i], sizeof kinds[i], "kind %u", i);
    op.kind = kinds[i];
    mr_profile_learn(&example, &graph, &seconds, 1);
    op.kind = kinds[0]; /* used again and again */
    mr_profile_learn(&example, &graph, &seconds, 1);
  }
  assert_int_equal(example.rate_count, MR_PROFILE_MAX_RATES);
  for (uint32_t i = 0; i < MR_COUNT_OF(kinds); i++) {
    op.kind = kinds[i];
    assert_int_equal(mr_profile_knows(&example, &op), i == 0 || i > 2);
  }
}

static void the_machine_is_measured(void **state) {
  (void)state;
  memset(&other, 0, sizeof other);
  assert_int_equal(mr_profile_measure(2, &other), MR_OK);
  assert_true(other.copy_bytes_per_second[0] > 1e7 && other.copy_bytes_per_second[1] > 1e7);
  assert_true(other.bytes_per_second > 1e7 && other.flops_per_second > 1e7);
  assert_true(other.bind_seconds_per_move > 0 && other.bind_seconds_per_move < 1e-3);
  assert_true(other.pace_beside_copy > 0 && other.pace_beside_copy <= 1);
}

/* What is found depends on the machine; a drive of endless speed leaves a read all of its time. */
static void a_drive_is_measured_beside_ops(void **state) {
  (void)state;
  const struct mr_store_options options = {
      .paths = {{.path = "/tmp", .limit_bytes = MR_BUDGET_AUTO}},
      .path_count = 1,
      .checksums = true,
      .timeout_seconds = 30};
  struct mr_store_rates rates = {.read_bytes_per_second = 1e12, .mode = MR_STORE_STAGED};
  assert_int_equal(mr_profile_measure_nvme(&options, 2, &rates), MR_OK);
  assert_true(rates.op_seconds_per_byte >= 0 && rates.op_seconds_per_byte < 1e-7);
  assert_true(rates.latency_seconds > 0 && rates.latency_seconds < 1);
  struct mr_store_options nowhere = options;
  nowhere.paths[0].path = "/nonexistent";
  assert_int_equal(mr_profile_measure_nvme(&nowhere, 2, &rates), MR_IO);
}

static void count_line(void *context, mr_log_level level, const char *line) {
  (void)level;
  (void)line;
  ++*(uint32_t *)context;
}

/* A run whose NVMe folder vanished still teaches the profile at its end, without a word. */
static void a_folder_that_vanished_is_known(void **state) {
  (void)state;
  char folder[] = "/tmp/memrun-test-XXXXXX";
  char file[64];
  assert_non_null(mkdtemp(folder));
  snprintf(file, sizeof file, "%s.json", folder);
  const struct mr_nvme_path nvme = {.path = folder, .limit_bytes = MR_BUDGET_AUTO};
  struct mr_options options;
  mr_options_init(&options);
  options.offload = MR_OFFLOAD_NVME;
  options.nvme = &nvme;
  options.nvme_count = 1;
  options.profile_path = file;
  struct mr_settings settings;
  assert_int_equal(mr_settings_init(&settings, &options, NULL), MR_OK);
  struct mr_profile *profile = NULL;
  struct mr_store_rates rates;
  assert_int_equal(mr_profile_get(&settings, NULL, &profile, &rates), MR_OK);
  assert_int_equal(rmdir(folder), 0);
  uint32_t lines = 0;
  mr_log_configure(count_line, &lines, MR_LOG_ERROR);
  const struct mr_store_rates *kept = mr_profile_nvme(profile);
  mr_log_configure(NULL, NULL, MR_LOG_WARN);
  assert_non_null(kept);
  assert_memory_equal(kept, &rates, sizeof rates);
  assert_int_equal(lines, 0);
  free(profile);
  mr_settings_fini(&settings);
  assert_int_equal(unlink(file), 0);
}

/* A file for each number of threads and each accelerator, named in letters that need no quotes. */
static void each_machine_has_a_file(void **state) {
  (void)state;
  struct mr_settings settings = {.threads = 3};
  char alone[MR_PROFILE_NAME_BYTES];
  char beside[MR_PROFILE_NAME_BYTES];
  mr_profile_name_file(&settings, alone);
  assert_ptr_equal(strstr(alone, "profile-"), alone);
  assert_string_equal(strstr(alone, "-3.json"), "-3.json");
  for (const char *letter = alone; *letter != '\0'; letter++) {
    assert_true(isalnum((unsigned char)*letter) || *letter == '-' || *letter == '.');
  }
  snprintf(settings.accelerator.name, sizeof settings.accelerator.name, "NVIDIA H100 (80GB) ");
  mr_profile_name_file(&settings, beside);
  size_t same = strlen(alone) - strlen(".json");
  assert_memory_equal(beside, alone, same);
  assert_string_equal(beside + same, "-NVIDIA-H100-80GB.json");
  settings.threads = 1;
  mr_profile_name_file(&settings, beside);
  assert_string_not_equal(beside, alone);
}

static void budgets_stay_below_the_machine(void **state) {
  (void)state;
  uint64_t available = mr_budget_available_bytes();
  assert_true(available > 0 && available < 1ull << 50);
  struct mr_options options;
  mr_options_init(&options);
  options.offload = MR_OFFLOAD_HOST;
  struct mr_settings settings;
  assert_int_equal(mr_settings_init(&settings, &options, NULL), MR_OK);
  assert_true(settings.budget_bytes[MR_TIER_HOST] > 0);
  assert_int_equal(settings.budget_bytes[MR_TIER_NVME], 0);
  assert_true(settings.budget_bytes[MR_TIER_DEVICE] > settings.budget_bytes[MR_TIER_HOST]);
  mr_settings_fini(&settings);
  /* Both given, or one of them while the other is left open. */
  for (uint32_t given = 1; given <= 3; given++) {
    options.device_bytes = (given & 1) != 0 ? 1ull << 50 : MR_BUDGET_AUTO;
    options.host_bytes = (given & 2) != 0 ? 1ull << 50 : MR_BUDGET_AUTO;
    assert_int_equal(mr_settings_init(&settings, &options, NULL), MR_OK);
    assert_true(settings.budget_bytes[MR_TIER_DEVICE] < 1ull << 50);
    assert_true(settings.budget_bytes[MR_TIER_HOST] < 1ull << 50);
    mr_settings_fini(&settings);
  }
  options.device_bytes = 123456;
  options.host_bytes = 7;
  options.offload = MR_OFFLOAD_NONE;
  assert_int_equal(mr_settings_init(&settings, &options, NULL), MR_OK);
  assert_int_equal(settings.budget_bytes[MR_TIER_DEVICE], 123456);
  assert_int_equal(settings.budget_bytes[MR_TIER_HOST], 0);
  mr_settings_fini(&settings);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_profile_survives_its_file),
      cmocka_unit_test(nvme_is_forgotten),
      cmocka_unit_test(ops_are_slowed),
      cmocka_unit_test(bad_texts_are_refused),
      cmocka_unit_test(damaged_texts_are_harmless),
      cmocka_unit_test(runs_teach),
      cmocka_unit_test(what_was_held_up_teaches_little),
      cmocka_unit_test(a_wrong_rate_is_put_right_at_once),
      cmocka_unit_test(sizes_are_told_apart),
      cmocka_unit_test(a_full_profile_goes_on_learning),
      cmocka_unit_test(the_machine_is_measured),
      cmocka_unit_test(a_drive_is_measured_beside_ops),
      cmocka_unit_test(a_folder_that_vanished_is_known),
      cmocka_unit_test(each_machine_has_a_file),
      cmocka_unit_test(budgets_stay_below_the_machine),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

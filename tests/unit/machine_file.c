/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptions of machines: what is read, what an op takes there, and how faults are named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "runtime/machine_file.h"

/* A machine without NVMe; lines are added to it. */
#define SMALL                                                                                      \
  "name = m\ndevice_memory = 1 GiB\ncompute = 100 GFLOP/s\nmemory_bandwidth = 10 GB/s\n"           \
  "device_to_host = 5 GB/s\nhost_to_device = 6 GB/s, 2 us\n"

static char last_line[1024];

static void keep_line(void *context, mr_log_level level, const char *line) {
  (void)context;
  (void)level;
  snprintf(last_line, sizeof last_line, "%s", line);
}

static void check_near(double value, double wanted) {
  assert_true(fabs(value - wanted) <= 1e-9 * fabs(wanted));
}

static void the_example_is_read(void **state) {
  (void)state;
  struct mr_machine *machine = NULL;
  assert_true(mr_machine_is_described(H100_PROFILE));
  assert_int_equal(mr_machine_load(H100_PROFILE, &machine), MR_OK);
  assert_string_equal(machine->name, "h100-node");
  assert_int_equal(machine->tier_bytes[MR_TIER_DEVICE], 76 * MR_GIB);
  assert_int_equal(machine->tier_bytes[MR_TIER_HOST], 480 * MR_GIB);
  assert_int_equal(machine->tier_bytes[MR_TIER_NVME], 7000000000000);
  check_near(machine->flops_per_second, 50e12);
  check_near(machine->memory_bytes_per_second, 2.9e12);
  check_near(machine->op_overhead_seconds, 6e-6);
  check_near(machine->link[MR_LINK_DEVICE_TO_HOST].bytes_per_second, 52e9);
  check_near(machine->link[MR_LINK_DEVICE_TO_HOST].latency_seconds, 12e-6);
  check_near(machine->link[MR_LINK_NVME_WRITE].bytes_per_second, 14e9);
  check_near(machine->nvme_mixed_bytes_per_second, 26e9);
  assert_int_equal(machine->rate_count, 8);
  assert_string_equal(machine->rates[1].kind, "attention.backward");
  free(machine);
}

static void an_op_takes_the_longer_of_two_and_a_start(void **state) {
  (void)state;
  static const char text[] = SMALL "op_overhead = 1 ms\nrate slow = 1 GFLOP/s\nrate copy=1 MB/s";
  struct mr_machine machine;
  assert_int_equal(mr_machine_parse("m", text, strlen(text), &machine), MR_OK);
  assert_true(machine.host_bytes_per_second <= 0 && machine.host_memory_bytes_per_second <= 0);
  struct mr_op op = {.kind = "any", .flops = 1e11, .memory_bytes = 1000000000};
  check_near(mr_machine_op_seconds(&machine, &op), 1 + 1e-3);
  op.memory_bytes = 20000000000;
  check_near(mr_machine_op_seconds(&machine, &op), 2 + 1e-3);
  op.kind = "slow";
  check_near(mr_machine_op_seconds(&machine, &op), 100 + 1e-3);
  op.kind = "copy";
  op.memory_bytes = 3000000;
  check_near(mr_machine_op_seconds(&machine, &op), 3 + 1e-3);
}

/* Such a rate is told, and is not used. */
static void rates_of_no_op_are_told(void **state) {
  (void)state;
  static const struct {
    const char *line, *words;
  } cases[] = {
      {"rate multiply = 1 TFLOP/s\n", ""},
      {"rate multiply = 1 TB/s\n", ""},
      {"rate multiply.bf16 = 1 TFLOP/s\n", ""},
      {"rate divide = 1 TFLOP/s\n", ""},
      {"rate mutliply = 1 TFLOP/s\n", "profile m: rate mutliply is not used: the job has no ops"},
      {"rate multiply.fp8 = 1 TFLOP/s\n", "rate multiply.fp8 is not used: the job has no ops"},
      {"rate multi = 1 TFLOP/s\n", "rate multi is not used: the job has no ops"},
      {"rate add = 1 TB/s\n", ""},
      {"rate add = 1 TFLOP/s\n", "rate add is not used: these ops have no FLOPs"},
  };
  struct mr_op ops[] = {{.kind = (char[]){"multiply"}, .flops = 1e11, .memory_bytes = 1000},
                        {.kind = (char[]){"divide.bf16"}, .flops = 1e11, .memory_bytes = 1000},
                        {.kind = (char[]){"add"}, .memory_bytes = 10000000000}};
  const struct mr_graph graph = {.ops = ops, .op_count = MR_COUNT_OF(ops)};
  mr_log_configure(keep_line, NULL, MR_LOG_WARN);
  for (size_t i = 0; i < MR_COUNT_OF(cases); i++) {
    char text[512];
    struct mr_machine machine;
    snprintf(text, sizeof text, "%s%s", SMALL, cases[i].line);
    assert_int_equal(mr_machine_parse("m", text, strlen(text), &machine), MR_OK);
    last_line[0] = '\0';
    mr_machine_check_rates(&machine, "m", &graph);
    assert_int_equal(last_line[0] == '\0', cases[i].words[0] == '\0');
    assert_non_null(strstr(last_line, cases[i].words));
    bool bytes_are_told = strcmp(cases[i].line, "rate add = 1 TB/s\n") == 0;
    check_near(mr_machine_op_seconds(&machine, &ops[2]) - machine.op_overhead_seconds,
               bytes_are_told ? 0.01 : 1);
  }
  mr_log_configure(keep_line, NULL, MR_LOG_ERROR);
}

static void a_byte_order_mark_is_skipped(void **state) {
  (void)state;
  static const char text[] = "\xef\xbb\xbf" SMALL;
  struct mr_machine machine;
  assert_int_equal(mr_machine_parse("m", text, strlen(text), &machine), MR_OK);
  assert_string_equal(machine.name, "m");
  assert_int_equal(mr_machine_parse("m", text, 3, &machine), MR_INVALID);
  assert_non_null(strstr(last_line, "the file ends without name"));
}

static void what_is_left_out_has_a_default(void **state) {
  (void)state;
  struct mr_machine machine;
  assert_int_equal(mr_machine_parse("m", SMALL, strlen(SMALL), &machine), MR_OK);
  assert_int_equal(machine.tier_bytes[MR_TIER_HOST], 0);
  assert_int_equal(machine.tier_bytes[MR_TIER_NVME], 0);
  assert_true(machine.op_overhead_seconds > 0);
  assert_true(machine.link[MR_LINK_DEVICE_TO_HOST].latency_seconds > 0);
  check_near(machine.link[MR_LINK_HOST_TO_DEVICE].latency_seconds, 2e-6);
  assert_true(machine.link[MR_LINK_NVME_READ].bytes_per_second > 0);
  assert_true(machine.nvme_mixed_bytes_per_second <= 0);
}

static void faults_have_a_line_and_a_cause(void **state) {
  (void)state;
  static const struct {
    const char *text, *words;
  } cases[] = {
      {"", "line 0: the file ends without name"},
      {"name = m\n", "line 1: the file ends without device_memory"},
      {"\n# words\nname m\n", "line 3: 'name m': KEY = VALUE is wanted"},
      {"name =\n", "line 1: name: a value is wanted"},
      {"nome = m\n", "line 1: 'nome' is no key"},
      {"name = m\nname = n\n", "line 2: name is given twice"},
      {"device_memory = 80\n", "line 1: device_memory '80': a size"},
      {"device_memory = -80 GiB\n", "a size such as"},
      {"device_memory = 0x10 GiB\n", "a size such as"},
      {"device_memory = 1e30 GiB\n", "a size such as"},
      {"device_memory = 80 GB/s\n", "a size such as"},
      {"device_to_host = 25 GB\n", "device_to_host '25 GB': a rate"},
      {"device_to_host = 0 GB/s\n", "a rate from 1 B/s on"},
      {"device_to_host = 1e-10 GB/s\n", "a rate from 1 B/s on"},
      {"compute = 1e-300 FLOP/s\n", "a rate from 1 FLOP/s on"},
      {"rate linear.forward = 0.5 B/s\n", "a rate from 1 on"},
      {"device_to_host = 25 GB/s, soon\n", "latency 'soon'"},
      {"device_to_host = 25 GB/s, 2 s\n", "latency '2 s': at most 1 s"},
      {"compute = 400 TB/s\n", "compute '400 TB/s': a rate from 1 FLOP/s on such as 400 TFLOP/s"},
      {"op_overhead = 5\n", "op_overhead '5'"},
      {"rate = 5 GB/s\n", "'rate' is no key"},
      {"rate linear.forward = 5 apples\n", "rate linear.forward '5 apples'"},
      {"rate a = 5 GB/s\nrate a = 5 GB/s\n", "line 2: rate a is given twice"},
      {SMALL "nvme = 1 TB\n", "line 7: the file ends without nvme_read"},
      {SMALL "nvme = 1 TB\nnvme_read = 1 GB/s\n", "ends without nvme_write"},
      {"name = m\ndevice_memory = 0 B\ncompute = 1 FLOP/s\nmemory_bandwidth = 1 B/s\n"
       "device_to_host = 1 B/s\nhost_to_device = 1 B/s",
       "device_memory is 0"},
  };
  for (size_t i = 0; i < MR_COUNT_OF(cases); i++) {
    struct mr_machine machine;
    last_line[0] = '\0';
    assert_int_equal(
        mr_machine_parse("some.profile", cases[i].text, strlen(cases[i].text), &machine),
        MR_INVALID);
    assert_non_null(strstr(last_line, "profile some.profile, line "));
    if (strstr(last_line, cases[i].words) == NULL) {
      fail_msg("'%s' is not in '%s'", cases[i].words, last_line);
    }
  }
}

static void long_lines_and_zero_bytes_are_refused(void **state) {
  (void)state;
  char text[512];
  struct mr_machine machine;
  memset(text, 'x', sizeof text);
  assert_int_equal(mr_machine_parse("m", text, sizeof text, &machine), MR_INVALID);
  assert_int_equal(mr_machine_parse("m", "name = m\0\n", 10, &machine), MR_INVALID);
}

static bool is_described(const char *text) {
  char path[] = "/tmp/memrun-profile-XXXXXX";
  int file = mkstemp(path);
  assert_true(file >= 0);
  assert_int_equal(write(file, text, strlen(text)), strlen(text));
  close(file);
  bool described = mr_machine_is_described(path);
  unlink(path);
  return described;
}

static void measured_profiles_are_no_descriptions(void **state) {
  (void)state;
  assert_false(is_described(""));
  assert_false(is_described("{\"memrun_profile\": 1}"));
  assert_false(is_described("\n  {nonsense"));
  assert_false(mr_machine_is_described("/nowhere/profile"));
  assert_true(is_described("# a machine\nname = m\n"));
  assert_true(is_described("\xef\xbb\xbfname = m\n"));
  struct mr_machine *machine = NULL;
  assert_int_equal(mr_machine_load("/nowhere/profile", &machine), MR_IO);
}

int main(void) {
  mr_log_configure(keep_line, NULL, MR_LOG_ERROR);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_example_is_read),
      cmocka_unit_test(an_op_takes_the_longer_of_two_and_a_start),
      cmocka_unit_test(rates_of_no_op_are_told),
      cmocka_unit_test(a_byte_order_mark_is_skipped),
      cmocka_unit_test(what_is_left_out_has_a_default),
      cmocka_unit_test(faults_have_a_line_and_a_cause),
      cmocka_unit_test(long_lines_and_zero_bytes_are_refused),
      cmocka_unit_test(measured_profiles_are_no_descriptions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

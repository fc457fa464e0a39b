/* SPDX-License-Identifier: Apache-2.0 */
/* memrun/cuda.h over the fake driver: kernels of a client run, and whatever the driver refuses is
 * told in one line, gives a status, and leaves nothing behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memrun/memrun.h>

#include "tests/unit/fake_rig.h"

static const char image[] = "image";
static char last_line[512];
static unsigned line_count;

static void keep_line(void *context, mr_log_level level, const char *line) {
  (void)context;
  (void)level;
  snprintf(last_line, sizeof last_line, "%s", line);
  line_count++;
}

static int set_up(void **state) {
  (void)state;
  rig_set("MEMRUN_CUDA_DRIVER", FAKE_DRIVER);
  rig_set("MEMRUN_FAKE_FAIL", NULL);
  fake_settings_read();
  mr_log_configure(keep_line, NULL, MR_LOG_ERROR);
  line_count = 0;
  return 0;
}

static void assert_nothing_is_left(void) {
  static const struct fake_live nothing;
  struct fake_live live;
  fake_live_count(&live);
  assert_memory_equal(&live, &nothing, sizeof live);
}

static int tear_down(void **state) {
  (void)state;
  mr_log_configure(NULL, NULL, MR_LOG_WARN);
  assert_nothing_is_left();
  return 0;
}

static void the_reason_for_no_device_is_one_line(void **state) {
  (void)state;
  char why[256] = "";
  rig_set("MEMRUN_CUDA_DRIVER", "/nowhere/libcuda.so.1");
  assert_int_equal(mr_cuda_available(why, sizeof why), MR_UNSUPPORTED);
  assert_non_null(strstr(why, "/nowhere/libcuda.so.1"));
  rig_set("MEMRUN_CUDA_DRIVER", "libm.so.6");
  assert_int_equal(mr_cuda_available(why, sizeof why), MR_UNSUPPORTED);
  assert_non_null(strstr(why, "cuInit"));

  rig_set("MEMRUN_CUDA_DRIVER", FAKE_DRIVER);
  rig_set("MEMRUN_FAKE_FAIL", "cuInit:1:100");
  fake_settings_read();
  assert_int_equal(mr_cuda_available(why, sizeof why), MR_UNSUPPORTED);
  assert_non_null(strstr(why, "no device"));
  assert_int_equal(mr_cuda_available(why, sizeof why), MR_OK);
  rig_set("MEMRUN_FAKE_FAIL", "cuDevicePrimaryCtxRetain:1:2");
  fake_settings_read();
  assert_int_equal(mr_cuda_available(why, sizeof why), MR_UNSUPPORTED);
  assert_non_null(strstr(why, "CUDA_ERROR_OUT_OF_MEMORY"));
  assert_null(strchr(why, '\n'));
  assert_int_equal(line_count, 0);

  struct mr_cuda_module *module = NULL;
  rig_set("MEMRUN_CUDA_DRIVER", "/nowhere/libcuda.so.1");
  assert_int_equal(mr_cuda_module_load(image, sizeof image, "test", &module), MR_UNSUPPORTED);
  assert_int_equal(line_count, 1);
  assert_non_null(strstr(last_line, "/nowhere/libcuda.so.1"));
}

/* What a client does: a module, two kernels after one another on a stream, some with more shared
 * memory than comes without asking. MR_OK only where all of it was right. */
static mr_status run_client(void) {
  static uint32_t words[64];
  static const struct mr_cuda_launch plain = {{1, 1, 1}, {32, 1, 1}, 0};
  static const struct mr_cuda_launch large = {{2, 1, 1}, {32, 1, 1}, 100000};
  struct mr_cuda_module *module = NULL;
  struct mr_cuda_function *fill = NULL;
  struct mr_cuda_function *add = NULL;
  struct mr_cuda_function *again = NULL;
  mr_cu_stream stream = NULL;
  mr_status status = mr_cuda_module_load(image, sizeof image, "test", &module);
  if (status != MR_OK) {
    return status;
  }
  status = mr_cuda_module_function(module, "fake_fill", &fill);
  if (status == MR_OK) {
    status = mr_cuda_module_function(module, "fake_add", &add);
  }
  if (status == MR_OK && cuStreamCreateWithPriority(&stream, 1, 0) != 0) {
    status = MR_IO;
  }
  const struct mr_op_call call = {.stream = stream};
  if (status == MR_OK) {
    status = mr_cuda_function_launch(fill, &call, &plain, &(struct fake_fill){words, 64, 3});
  }
  for (int i = 0; status == MR_OK && i < 2; i++) {
    const struct fake_add twice = {words + 32, words, 32};
    status = mr_cuda_function_launch(add, &call, &large, &twice);
  }
  if (status == MR_OK) {
    status = mr_cuda_module_function(module, "fake_fill", &again);
  }
  bool right = status == MR_OK && cuStreamSynchronize(stream) == 0 && again == fill &&
               words[31] == 34 && words[33] == 36 + 2 * 4;
  mr_cuda_module_unload(module);
  return status == MR_OK && !right ? MR_IO : status;
}

static void kernels_run_in_order(void **state) {
  (void)state;
  assert_int_equal(run_client(), MR_OK);
  assert_int_equal(line_count, 0);
  assert_int_equal(fake_call_count("device"), 3);
  /* The limit of shared memory is raised once. */
  assert_int_equal(fake_call_count("cuFuncSetAttribute"), 1);
}

static void what_is_not_there_is_named(void **state) {
  (void)state;
  struct mr_cuda_module *module = NULL;
  struct mr_cuda_function *function = NULL;
  assert_int_equal(mr_cuda_module_load(image, 0, "none", &module), MR_INVALID);
  assert_non_null(strstr(last_line, "none"));
  assert_int_equal(mr_cuda_module_load(image, sizeof image, "test", &module), MR_OK);
  assert_int_equal(mr_cuda_module_function(module, "fake_nothing", &function), MR_INVALID);
  assert_non_null(strstr(last_line, "cuModuleGetFunction"));
  assert_non_null(strstr(last_line, "fake_nothing"));
  assert_int_equal(mr_cuda_module_function(module, "fake_fill", &function), MR_OK);
  const struct mr_cuda_launch wide = {{7, 1, 1}, {2048, 1, 1}, 0};
  const struct fake_fill fill = {NULL, 0, 0};
  assert_int_equal(
      mr_cuda_function_launch(function, &(struct mr_op_call){.stream = NULL}, &wide, &fill),
      MR_INVALID);
  assert_non_null(strstr(last_line, "cuLaunchKernel"));
  assert_non_null(strstr(last_line, "fake_fill"));
  assert_non_null(strstr(last_line, "2048"));
  assert_int_equal(line_count, 3);
  mr_cuda_module_unload(module);
}

/* Each call in turn gives each result: a status and a line at most, and nothing is left. */
static void every_call_may_fail(void **state) {
  (void)state;
  static const int results[] = {2, 719, 999};
  assert_int_equal(run_client(), MR_OK);
  uint64_t calls = fake_call_count("*");
  uint64_t refusals = 0;
  assert_true(calls > 10);
  for (size_t r = 0; r < sizeof results / sizeof *results; r++) {
    for (uint64_t n = 1; n <= calls; n++) {
      char fault[32];
      snprintf(fault, sizeof fault, "*:%llu:%d", (unsigned long long)n, results[r]);
      rig_set("MEMRUN_FAKE_FAIL", fault);
      fake_settings_read();
      line_count = 0;
      mr_status status = run_client();
      /* The test's own calls, of which nobody tells, come among them. */
      assert_true(line_count <= 1);
      refusals += status != MR_OK;
      assert_nothing_is_left();
    }
  }
  assert_true(refusals > calls);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(the_reason_for_no_device_is_one_line, set_up, tear_down),
      cmocka_unit_test_setup_teardown(kernels_run_in_order, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_is_not_there_is_named, set_up, tear_down),
      cmocka_unit_test_setup_teardown(every_call_may_fail, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

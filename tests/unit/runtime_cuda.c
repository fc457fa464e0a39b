/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/ on the cuda device, over the fake driver: whatever streams do when, a job gives the same
 * bits under every budget, leaves nothing behind, and ends in order when the device fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "runtime/runtime.h"
#include "tests/fake/fake.h"
#include "unit/device_found.h"
#include "unit/device_job.h"
#include "unit/fake_rig.h"

static const struct world_shape shape = {5, 300 * 1000 + 7};

static void set_number(const char *name, uint64_t value) {
  char text[24];
  snprintf(text, sizeof text, "%llu", (unsigned long long)value);
  assert_int_equal(setenv(name, text, 1), 0);
}

static void job_init(struct device_job *job, uint64_t seed) {
  set_number("MEMRUN_FAKE_SEED", seed);
  fake_settings_read();
  device_job_init(job, shape, NULL);
}

static void job_fini(struct device_job *job) {
  struct fake_live live;
  static const struct fake_live nothing;
  device_job_fini(job);
  assert_int_equal(unsetenv("MEMRUN_FAKE_FAIL"), 0);
  fake_live_count(&live);
  assert_memory_equal(&live, &nothing, sizeof live);
}

static void everything_fits(void **unused) {
  (void)unused;
  struct device_job job;
  job_init(&job, 1);
  struct mr_plan_summary summary = device_job_plan(&job);
  for (int link = 0; link < MR_LINK_COUNT; link++) {
    assert_int_equal(summary.moved_bytes[link], 0);
  }
  device_job_run(&job);
  job_fini(&job);
}

/* Under how many seeds of the streams' timing; a sanitizer takes tens of times as long. */
static uint64_t seed_count(void) {
  return getenv("MEMRUN_SANITIZE") == NULL ? 40 : 2;
}

static void run_seeds(mr_offload offload, uint64_t host_bytes, mr_recompute recompute) {
  for (uint64_t seed = 0; seed < seed_count(); seed++) {
    struct device_job job;
    job_init(&job, seed);
    device_job_offload(&job, offload, host_bytes);
    job.options.recompute = recompute;
    device_job_tighten(&job);
    struct mr_plan_summary summary = device_job_plan(&job);
    bool through_nvme = offload == MR_OFFLOAD_NVME;
    assert_int_equal(summary.moved_bytes[MR_LINK_NVME_READ] > 0, through_nvme);
    assert_true(through_nvme || summary.moved_bytes[MR_LINK_DEVICE_TO_HOST] > 0);
    device_job_run(&job);
    job_fini(&job);
  }
}

static void through_the_host(void **unused) {
  (void)unused;
  run_seeds(MR_OFFLOAD_HOST, 256 * MR_MIB, MR_RECOMPUTE_NONE);
}

static void through_nvme(void **unused) {
  (void)unused;
  run_seeds(MR_OFFLOAD_NVME, 0, MR_RECOMPUTE_NONE);
}

static void through_both_recomputing(void **unused) {
  (void)unused;
  run_seeds(MR_OFFLOAD_NVME, 8 * MR_MIB, MR_RECOMPUTE_FULL);
}

/* Whether the kernel was asked for huge pages at an address. */
static bool is_huge(const void *address) {
  FILE *maps = fopen("/proc/self/smaps", "r");
  assert_non_null(maps);
  char line[512];
  bool inside = false;
  bool huge = false;
  while (fgets(line, sizeof line, maps) != NULL) {
    unsigned long long first = 0;
    unsigned long long end = 0;
    if (sscanf(line, "%llx-%llx ", &first, &end) == 2) {
      inside = (uintptr_t)address >= first && (uintptr_t)address < end;
    }
    huge = huge || (inside && strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " hg") != NULL);
  }
  (void)fclose(maps);
  return huge;
}

/* Its pages in plans are halves of what the device maps; the memory itself has whole ones. */
static void the_host_tier_is_in_huge_pages(void **unused) {
  (void)unused;
  struct device_job job;
  struct mr_run *run = NULL;
  if (access("/sys/kernel/mm/transparent_hugepage", F_OK) != 0) {
    skip();
  }
  job_init(&job, 0);
  device_job_offload(&job, MR_OFFLOAD_HOST, 256 * MR_MIB);
  device_job_tighten(&job);
  assert_int_equal(mr_run_create(job.world.graph, &job.options, &run), MR_OK);
  assert_true(run->host.bytes >= MR_DEVICE_HUGE_PAGE_BYTES);
  assert_int_equal(2 * run->layout->page_bytes, MR_DEVICE_HUGE_PAGE_BYTES);
  assert_true(is_huge(run->host.data));
  mr_run_destroy(run);
  job_fini(&job);
}

/* Deletes the nth wait of a stream for another in the same step; false where there are not so many.
 */
static bool delete_a_wait(struct mr_run *run, uint32_t nth) {
  static const uint32_t queues[] = {MR_QUEUE_COMPUTE, MR_QUEUE_OF(MR_LINK_DEVICE_TO_HOST),
                                    MR_QUEUE_OF(MR_LINK_HOST_TO_DEVICE)};
  const struct mr_program_plan *layout = run->layout;
  for (uint32_t q = 0; q < MR_COUNT_OF(queues); q++) {
    for (uint32_t i = 0; i < layout->instruction_count[queues[q]]; i++) {
      const struct mr_instruction *instruction = &layout->instructions[queues[q]][i];
      for (uint32_t w = 0; w < instruction->wait_count; w++) {
        struct mr_wait *wait = &layout->waits[instruction->first_wait + w];
        if (!wait->previous_step && nth-- == 0) {
          wait->count = 0;
          return true;
        }
      }
    }
  }
  return false;
}

static bool is_right(struct device_job *job, struct mr_run *run, const struct world_state *state) {
  uint64_t bytes = shape.elements * sizeof(uint32_t);
  char *values = malloc(bytes);
  assert_non_null(values);
  bool right = true;
  for (uint32_t l = 0; l < shape.layers; l++) {
    assert_int_equal(mr_run_read(run, job->world.weights[l], 0, values, bytes), MR_OK);
    right = right && memcmp(values, state->weights[l], bytes) == 0;
  }
  free(values);
  return right;
}

/* Three steps without the nth wait; false where the plan has no such wait. */
static bool run_without(uint32_t nth, uint64_t seed, bool *right_out) {
  struct device_job job;
  struct mr_run *run = NULL;
  struct world_state state;
  job_init(&job, seed);
  device_job_offload(&job, MR_OFFLOAD_HOST, 256 * MR_MIB);
  device_job_tighten(&job);
  world_state_init(&state, shape);
  assert_int_equal(mr_run_create(job.world.graph, &job.options, &run), MR_OK);
  bool deleted = delete_a_wait(run, nth);
  assert_int_equal(world_load(&job.world, run), MR_OK);
  for (uint64_t step = 1; step <= 3 && deleted; step++) {
    assert_int_equal(world_step(&job.world, run, step, MR_STEP_TRAIN, NULL), MR_OK);
    world_state_step(&state, shape, step, MR_STEP_TRAIN);
  }
  *right_out = !deleted || is_right(&job, run, &state);
  mr_run_destroy(run);
  world_state_fini(&state, shape);
  job_fini(&job);
  return deleted;
}

/* What the other tests stand on: a missing wait shows as wrong bits. Some waits follow from others,
 * and some copies have what they want in any case. */
static void missing_waits_are_seen(void **unused) {
  (void)unused;
  if (rig_under_thread_sanitizer()) {
    skip(); /* it would report the very races that this makes */
  }
  uint32_t every = getenv("MEMRUN_SANITIZE") == NULL ? 1 : 10;
  uint32_t seen = 0;
  uint32_t tried = 0;
  bool right = true;
  while (run_without(tried * every, 1 + tried, &right)) {
    seen += !right;
    tried++;
  }
  assert_true(tried > 0 && 4 * seen >= tried);
}

/* Runs until something fails; the job ends with a status and in time. */
static mr_status run_with_fault(const char *fault, mr_offload offload) {
  struct device_job job;
  job_init(&job, 0);
  device_job_offload(&job, offload, offload == MR_OFFLOAD_NVME ? 0 : 256 * MR_MIB);
  device_job_tighten(&job);
  (void)device_job_plan(&job); /* the profile is there */
  assert_int_equal(setenv("MEMRUN_FAKE_FAIL", fault, 1), 0);
  fake_settings_read();
  struct mr_run *run = NULL;
  mr_status status = mr_run_create(job.world.graph, &job.options, &run);
  if (status == MR_OK) {
    status = world_load(&job.world, run);
  }
  for (uint64_t step = 1; status == MR_OK && step <= 2; step++) {
    status = world_step(&job.world, run, step, MR_STEP_TRAIN, NULL);
  }
  if (status == MR_OK) {
    status = mr_run_sync(run);
  }
  mr_run_destroy(run);
  job_fini(&job);
  return status;
}

static void faults_end_the_run(void **unused) {
  (void)unused;
  static const struct {
    const char *fault;
    mr_status status;
  } cases[] = {
      {"cuMemCreate:3:2", MR_NO_MEMORY},
      {"cuMemMap:5:1", MR_INVALID},
      {"cuMemSetAccess:1:1", MR_INVALID},
      {"cuMemHostRegister_v2:1:801", MR_UNSUPPORTED},
      {"cuMemHostRegister_v2:2:2", MR_NO_MEMORY},
      {"cuEventCreate:9:2", MR_NO_MEMORY},
      {"cuStreamCreateWithPriority:2:2", MR_NO_MEMORY},
      {"cuEventRecord:90:719", MR_IO},
      {"cuStreamWaitEvent:3:719", MR_IO},
      {"cuLaunchKernel:7:701", MR_IO},
      {"cuMemcpyHtoDAsync_v2:9:719", MR_IO},
      {"cuMemcpyDtoHAsync_v2:2:719", MR_IO},
      {"cuEventQuery:90:719", MR_IO},
      {"device:60:700", MR_IO},
      {"device:200:719", MR_IO},
  };
  for (size_t i = 0; i < MR_COUNT_OF(cases); i++) {
    /* Streams wait for each other where there are copies to the host. */
    mr_offload offload =
        strncmp(cases[i].fault, "cuStreamWaitEvent", 17) == 0 ? MR_OFFLOAD_HOST : MR_OFFLOAD_NVME;
    assert_int_equal(run_with_fault(cases[i].fault, offload), cases[i].status);
  }
}

static char refusal[1024];

static void keep_refusal(void *context, mr_log_level level, const char *line) {
  (void)context;
  (void)level;
  snprintf(refusal, sizeof refusal, "%s", line);
}

/* With what the device has in use already, or a byte less, no plan fits; the smallest budget that
 * is told holds that too, and is enough to the byte. */
static void a_budget_holds_the_context_too(void **unused) {
  (void)unused;
  struct device_job job;
  struct mr_run *run = NULL;
  job_init(&job, 0);
  uint64_t used = device_used_bytes();
  uint64_t smallest = 0;
  char told[64];
  mr_log_configure(keep_refusal, NULL, MR_LOG_ERROR);
  for (uint64_t less = 0; less < 2; less++) {
    job.options.device_bytes = used - less;
    struct mr_plan_summary summary = device_job_plan(&job);
    assert_false(summary.fits);
    assert_int_equal(summary.outside_bytes, used);
    assert_int_equal(summary.budget_bytes[MR_TIER_DEVICE], used - less);
    assert_true(summary.smallest_device_bytes > used);
    assert_int_equal(summary.need_bytes[MR_TIER_DEVICE], summary.smallest_device_bytes);
    smallest = summary.smallest_device_bytes;
    assert_int_equal(mr_run_create(job.world.graph, &job.options, &run), MR_DOES_NOT_FIT);
    snprintf(told, sizeof told, "(--device-mem %llu)", (unsigned long long)smallest);
    assert_non_null(strstr(refusal, told));
  }
  job.options.device_bytes = smallest - 1;
  assert_int_equal(mr_run_create(job.world.graph, &job.options, &run), MR_DOES_NOT_FIT);
  mr_log_configure(NULL, NULL, MR_LOG_WARN);
  job.options.device_bytes = smallest;
  device_job_run(&job);
  job_fini(&job);
}

static void without_a_driver(void **driver) {
  struct world world;
  struct mr_options options;
  struct mr_plan *plan = NULL;
  char why[128] = "";
  world_init(&world, shape);
  world_options(&options, MR_GIB, 0, MR_OFFLOAD_NONE);
  options.device = MR_BACKEND_CUDA;
  assert_int_equal(setenv("MEMRUN_CUDA_DRIVER", "/nonexistent/libcuda.so.1", 1), 0);
  assert_int_equal(mr_cuda_available(why, sizeof why), MR_UNSUPPORTED);
  assert_non_null(strstr(why, "/nonexistent/libcuda.so.1"));
  assert_int_equal(mr_plan_create(world.graph, &options, &plan), MR_UNSUPPORTED);
  options.device = MR_BACKEND_COUNT;
  assert_int_equal(mr_plan_create(world.graph, &options, &plan), MR_INVALID);
  assert_int_equal(setenv("MEMRUN_CUDA_DRIVER", *driver, 1), 0);
  assert_int_equal(mr_cuda_available(why, sizeof why), MR_OK);
  world_fini(&world);
}

int main(void) {
  static char driver[] = FAKE_DRIVER;
  if (setenv("MEMRUN_CUDA_DRIVER", driver, 1) != 0) {
    return 1;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(everything_fits),
      cmocka_unit_test(through_the_host),
      cmocka_unit_test(through_nvme),
      cmocka_unit_test(the_host_tier_is_in_huge_pages),
      cmocka_unit_test(through_both_recomputing),
      cmocka_unit_test(missing_waits_are_seen),
      cmocka_unit_test(faults_end_the_run),
      cmocka_unit_test(a_budget_holds_the_context_too),
      cmocka_unit_test_prestate(without_a_driver, driver),
  };
  return cmocka_run_group_tests_name("runtime_cuda", tests, NULL, device_job_forget);
}

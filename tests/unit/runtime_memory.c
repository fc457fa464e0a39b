/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/: a process keeps to device + host budget + 96 MiB, shown by a memory cgroup of exactly
 * that size around it. Skipped where no cgroup can be made.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "unit/runtime_world.h"

#define OVERHEAD_BYTES (96 * MR_MIB)

static const struct world_shape shape = {8, 1500 * 1000};
static char group[128];
static bool unified;

static bool write_value(const char *file, unsigned long long value) {
  char path[192];
  snprintf(path, sizeof path, "%s/%s", group, file);
  FILE *stream = fopen(path, "we");
  if (stream == NULL) {
    return false;
  }
  bool written = fprintf(stream, "%llu", value) > 0;
  return fclose(stream) == 0 && written;
}

static bool make_group(void) {
  static const char *const roots[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/memory"};
  for (size_t i = 0; i < MR_COUNT_OF(roots); i++) {
    char probe[192];
    unified = i == 0;
    snprintf(group, sizeof group, "%s/memrun-test-%ld", roots[i], (long)getpid());
    snprintf(probe, sizeof probe, "%s/%s", group, unified ? "memory.max" : "memory.limit_in_bytes");
    if (mkdir(group, 0755) != 0) {
      continue;
    }
    if (access(probe, W_OK) == 0) {
      return true;
    }
    rmdir(group);
  }
  return false;
}

/* In the child, inside the group: 0 where the job ran and the process stayed small. */
static int job_in_group(struct mr_options *options, uint64_t limit) {
  struct world world;
  struct mr_run *run = NULL;
  world_init(&world, shape);
  options->trace_path = NULL;
  if (mr_run_create(world.graph, options, &run) != MR_OK || world_load(&world, run) != MR_OK) {
    return 1;
  }
  struct mr_step_report report = {.size_bytes = sizeof report};
  for (uint64_t step = 1; step <= 3; step++) {
    if (world_step(&world, run, step, MR_STEP_TRAIN, &report) != MR_OK) {
      return 2;
    }
  }
  uint64_t allowed = report.budget_bytes[MR_TIER_DEVICE] + report.budget_bytes[MR_TIER_HOST];
  if (allowed > limit - OVERHEAD_BYTES) {
    return 4;
  }
  allowed += OVERHEAD_BYTES;
  if (report.resident_peak_bytes > allowed) {
    fprintf(stderr, "resident %llu, allowed %llu\n", (unsigned long long)report.resident_peak_bytes,
            (unsigned long long)allowed);
    return 3;
  }
  mr_run_destroy(run);
  world_fini(&world);
  return 0;
}

static void run_in_group(struct mr_options *options, uint64_t limit) {
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    bool inside = write_value("cgroup.procs", (unsigned long long)getpid()) &&
                  write_value(unified ? "memory.max" : "memory.limit_in_bytes", limit);
    if (unified) {
      (void)write_value("memory.swap.max", 0);
    }
    _exit(inside ? job_in_group(options, limit) : 9);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

static void jobs_stay_in_their_groups(void **unused) {
  (void)unused;
  struct world world;
  struct mr_options options;
  world_init(&world, shape);
  for (uint32_t mode = 0; mode < 2; mode++) {
    uint64_t host_bytes = mode == 0 ? 160 * MR_MIB : 8 * MR_MIB;
    world_options(&options, 4096, host_bytes, mode == 0 ? MR_OFFLOAD_HOST : MR_OFFLOAD_NVME);
    struct mr_plan *plan = NULL;
    struct mr_plan_summary summary;
    assert_int_equal(mr_plan_create(world.graph, &options, &plan), MR_OK);
    mr_plan_summarize(plan, &summary);
    mr_plan_destroy(plan);
    uint64_t room = summary.footprint_bytes - summary.smallest_device_bytes;
    for (uint32_t i = 0; i < 3; i++) {
      options.device_bytes = summary.smallest_device_bytes + room * i / 3;
      run_in_group(&options, options.device_bytes + options.host_bytes + OVERHEAD_BYTES);
    }
    /* Without budgets the group decides. */
    world_options(&options, MR_BUDGET_AUTO, MR_BUDGET_AUTO, MR_OFFLOAD_NVME);
    run_in_group(&options, summary.footprint_bytes / 2 + OVERHEAD_BYTES);
  }
  (void)unlink(options.profile_path);
  world_fini(&world);
}

int main(void) {
  if (getenv("MEMRUN_SANITIZE") != NULL || !make_group()) {
    return 77;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(jobs_stay_in_their_groups)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  for (int i = 0; i < 50 && rmdir(group) != 0 && errno == EBUSY; i++) {
    usleep(20000);
  }
  return failed;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cuda device that hangs: whatever never ends, a kernel or a copy, in the rehearsal, between the
 * steps or in one, ends the run in time with one line that names it, and ending the run waits for
 * nothing. Each job is a process of its own, because nothing can be done with such a device any
 * more.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/runtime.h"
#include "unit/cuda_job.h"
#include "unit/fake_rig.h"

#define STEPS           3u
#define TIMEOUT_SECONDS 0.4
/* The time limit, and what a busy machine or a sanitizer adds to it. */
#define MOST_SECONDS 40.0
#define PARTS        4u

static const struct world_shape shape = {3, 270 * 1000 + 7};

enum verdict { RIGHT = 0, NO_TIMEOUT, TOO_EARLY, TOO_LATE, OTHER_LINES, WRONG_WORDS, NO_ITEMS };

static struct {
  char last[1024];
  uint32_t count;
} lines;

static void keep_line(void *context, mr_log_level level, const char *line) {
  (void)context;
  (void)level;
  snprintf(lines.last, sizeof lines.last, "%s", line);
  lines.count++;
}

/* The whole job, to its end or to what ends it; and the run's end. */
static mr_status run_all(struct cuda_job *job) {
  struct mr_run *run = NULL;
  uint32_t loss = 0;
  mr_status status = mr_run_create(job->world.graph, &job->options, &run);
  if (status == MR_OK) {
    status = world_load(&job->world, run);
  }
  for (uint64_t step = 1; status == MR_OK && step <= STEPS; step++) {
    status = world_step(&job->world, run, step, MR_STEP_TRAIN, NULL);
  }
  if (status == MR_OK) {
    status = mr_run_read(run, job->world.loss, 0, &loss, sizeof loss);
  }
  bool told = run == NULL || mr_run_status(run) == status;
  mr_run_destroy(run);
  return told ? status : MR_INVALID;
}

/* Some item of a job never ends: the one that is `part` parts of PARTS through it. A plan by other
 * rates, learned meanwhile, has a few items more or less. */
static _Noreturn void hang(struct cuda_job_tiers tiers, uint64_t part) {
  struct cuda_job job;
  char fault[64];
  cuda_job_init(&job, shape, STEPS, tiers);
  job.options.io_timeout_seconds = TIMEOUT_SECONDS;
  cuda_job_set(0, NULL);
  if (run_all(&job) != MR_OK) {
    _exit(NO_ITEMS);
  }
  uint64_t items = fake_call_count("device");
  uint64_t item = 1 + (items - 1) * part / PARTS;
  snprintf(fault, sizeof fault, "device:%llu:hang", (unsigned long long)item);
  cuda_job_set(0, fault);
  mr_log_configure(keep_line, NULL, MR_LOG_ERROR);
  double start = mr_clock_seconds();
  mr_status status = run_all(&job);
  double seconds = mr_clock_seconds() - start;
  enum verdict verdict = RIGHT;
  if (status != MR_TIMEOUT) {
    verdict = NO_TIMEOUT;
  } else if (seconds < 1.5 * TIMEOUT_SECONDS + 2) {
    verdict = TOO_EARLY;
  } else if (seconds > MOST_SECONDS) {
    verdict = TOO_LATE;
  } else if (lines.count != 1) {
    verdict = OTHER_LINES;
  } else if (strstr(lines.last, "time limit") == NULL ||
             (strstr(lines.last, "hangs") == NULL && strstr(lines.last, "nvme") == NULL)) {
    verdict = WRONG_WORDS;
  }
  _exit(verdict);
}

static int hang_through_the_host(uint64_t part) {
  hang((struct cuda_job_tiers){.host_bytes = 256 * MR_MIB}, part);
}

static int hang_through_nvme(uint64_t part) {
  hang((struct cuda_job_tiers){.nvme_bytes = 128 * MR_MIB}, part);
}

/* What is written back behind the last step never ends: the run's end tells. Nothing may be left to
 * write back by then under one timing or another. */
static int hang_behind(uint64_t seed) {
  struct cuda_job job;
  struct mr_run *run = NULL;
  cuda_job_init(&job, shape, STEPS, (struct cuda_job_tiers){.host_bytes = 256 * MR_MIB});
  job.options.io_timeout_seconds = TIMEOUT_SECONDS;
  cuda_job_set(seed, NULL);
  mr_log_configure(keep_line, NULL, MR_LOG_ERROR);
  mr_status status = mr_run_create(job.world.graph, &job.options, &run);
  if (status == MR_OK) {
    status = world_load(&job.world, run);
  }
  for (uint64_t step = 1; status == MR_OK && step <= STEPS; step++) {
    status = world_step(&job.world, run, step, MR_STEP_TRAIN, NULL);
  }
  fake_hang();
  mr_status ended = mr_run_destroy(run);
  enum verdict verdict = NO_ITEMS;
  if (status != MR_OK) {
    verdict = TOO_EARLY;
  } else if (ended != MR_OK) {
    bool told = lines.count == 1 && strstr(lines.last, "hangs") != NULL;
    verdict = ended == MR_TIMEOUT && told ? RIGHT : WRONG_WORDS;
  }
  _exit(verdict);
}

static void behind_the_last_step(void **state) {
  (void)state;
  int verdict = NO_ITEMS;
  for (uint64_t seed = 1; seed <= 40 && verdict == NO_ITEMS; seed++) {
    int status = rig_child(hang_behind, seed);
    assert_true(WIFEXITED(status));
    verdict = WEXITSTATUS(status);
  }
  assert_int_equal(verdict, RIGHT);
}

static void hang_everywhere(int (*job)(uint64_t part)) {
  uint64_t stride = getenv("MEMRUN_SANITIZE") == NULL ? 1 : 4;
  for (uint64_t part = 0; part < PARTS; part += stride) {
    int status = rig_child(job, part);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) != RIGHT) {
      fail_msg("part %llu: verdict %d", (unsigned long long)part, WEXITSTATUS(status));
    }
  }
}

static void through_the_host(void **state) {
  (void)state;
  hang_everywhere(hang_through_the_host);
}

static void through_nvme(void **state) {
  (void)state;
  hang_everywhere(hang_through_nvme);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(through_the_host),
      cmocka_unit_test(through_nvme),
      cmocka_unit_test(behind_the_last_step),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

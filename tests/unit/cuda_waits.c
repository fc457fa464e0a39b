/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits of a plan on the cuda device, taken away one at a time. The verifier must refuse a plan
 * without a wait that matters; run unverified, it must show as wrong bits under some timing, and a
 * wait that the verifier can do without must never show.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/runtime.h"
#include "unit/cuda_job.h"
#include "unit/fake_rig.h"

#define STEPS      2u
#define SEEDS      6u /* tried for a wait before it is taken not to show */
#define MAX_WAITS  512u
#define TRIED_MOST 12u

static const struct world_shape shape = {3, 270 * 1000 + 7};

/* A wait between two streams. */
struct place {
  uint32_t queue, index, wait;
  bool needed; /* the verifier says so */
};

struct census {
  struct place places[MAX_WAITS];
  uint32_t count;
};

static unsigned lines;

static void count_line(void *context, mr_log_level level, const char *line) {
  (void)context;
  (void)level;
  (void)line;
  lines++;
}

static bool is_stream(uint32_t queue) {
  return queue == MR_QUEUE_COMPUTE || queue == MR_QUEUE_OF(MR_LINK_DEVICE_TO_HOST) ||
         queue == MR_QUEUE_OF(MR_LINK_HOST_TO_DEVICE);
}

/* Takes a wait off the plan of a run that has not begun; the plan is ours until then. */
static struct mr_wait take_wait(struct mr_run *run, const struct place *place) {
  struct mr_program_plan *layout = run->plan->layout;
  struct mr_instruction *instruction = &layout->instructions[place->queue][place->index];
  struct mr_wait *waits = &layout->waits[instruction->first_wait];
  struct mr_wait taken = waits[place->wait];
  uint32_t after = --instruction->wait_count - place->wait;
  memmove(&waits[place->wait], &waits[place->wait + 1], after * sizeof *waits);
  return taken;
}

static void put_back(struct mr_run *run, const struct place *place, struct mr_wait taken) {
  struct mr_program_plan *layout = run->plan->layout;
  struct mr_instruction *instruction = &layout->instructions[place->queue][place->index];
  struct mr_wait *waits = &layout->waits[instruction->first_wait];
  uint32_t after = instruction->wait_count++ - place->wait;
  memmove(&waits[place->wait + 1], &waits[place->wait], after * sizeof *waits);
  waits[place->wait] = taken;
}

static void find_waits(const struct mr_program_plan *layout, struct census *census) {
  census->count = 0;
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    for (uint32_t i = 0; is_stream(q) && i < layout->instruction_count[q]; i++) {
      const struct mr_instruction *instruction = &layout->instructions[q][i];
      for (uint32_t w = 0; w < instruction->wait_count; w++) {
        if (is_stream(layout->waits[instruction->first_wait + w].queue)) {
          assert_true(census->count < MAX_WAITS);
          census->places[census->count++] = (struct place){q, i, w, false};
        }
      }
    }
  }
}

/* All runs have the same plan, whatever they teach the profile. */
static void keep_plan(struct cuda_job *job, const char *path) {
  struct mr_plan *plan = NULL;
  assert_int_equal(mr_plan_create(job->world.graph, &job->options, &plan), MR_OK);
  assert_int_equal(mr_plan_save(plan, path), MR_OK);
  mr_plan_destroy(plan);
  job->options.plan_path = path;
}

/* What the verifier says of each. */
static void judge_waits(struct cuda_job *job, struct census *census) {
  struct mr_run *run = NULL;
  assert_int_equal(mr_run_create(job->world.graph, &job->options, &run), MR_OK);
  find_waits(run->layout, census);
  for (uint32_t i = 0; i < census->count; i++) {
    struct mr_wait taken = take_wait(run, &census->places[i]);
    mr_status status = mr_plan_verify(run->plan);
    assert_true(status == MR_OK || status == MR_CORRUPT);
    census->places[i].needed = status == MR_CORRUPT;
    put_back(run, &census->places[i], taken);
  }
  assert_int_equal(mr_plan_verify(run->plan), MR_OK);
  mr_run_destroy(run);
}

/* Whether the bits are wrong without that wait, under one of some seeds. */
static bool shows(struct cuda_job *job, const struct place *place) {
  bool right = true;
  for (uint64_t seed = 1; right && seed <= SEEDS; seed++) {
    struct mr_run *run = NULL;
    cuda_job_set(seed, NULL);
    assert_int_equal(mr_run_create(job->world.graph, &job->options, &run), MR_OK);
    (void)take_wait(run, place);
    assert_int_equal(cuda_job_go_on(job, run, &right), MR_OK);
  }
  return !right;
}

static void a_wait_that_is_missing_is_seen(void **state) {
  (void)state;
  if (rig_under_thread_sanitizer()) {
    skip(); /* it would end the process at the race that is made here */
  }
  static struct census census;
  char plan_path[64];
  snprintf(plan_path, sizeof plan_path, "/tmp/memrun-test-plan-%ld.tmp", (long)getpid());
  struct cuda_job job;
  cuda_job_init(&job, shape, STEPS, (struct cuda_job_tiers){.host_bytes = 256 * MR_MIB});
  mr_log_configure(count_line, NULL, MR_LOG_ERROR);
  keep_plan(&job, plan_path);
  judge_waits(&job, &census);
  mr_log_configure(NULL, NULL, MR_LOG_WARN);
  uint32_t needed = 0;
  for (uint32_t i = 0; i < census.count; i++) {
    needed += census.places[i].needed;
  }
  assert_int_equal(lines, needed);
  assert_true(needed > 5);

  uint32_t stride = (uint32_t)mr_div_up(census.count, TRIED_MOST);
  uint32_t tried = 0;
  uint32_t shown = 0;
  for (uint32_t i = 0; i < census.count; i += stride) {
    bool seen = shows(&job, &census.places[i]);
    assert_true(census.places[i].needed || !seen);
    tried += census.places[i].needed;
    shown += seen;
  }
  print_message("%u waits between streams, %u needed; without one of %u, %u showed wrong bits\n",
                census.count, needed, tried, shown);
  assert_true(shown >= 3);
  cuda_job_fini(&job);
  assert_int_equal(unlink(plan_path), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_wait_that_is_missing_is_seen),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

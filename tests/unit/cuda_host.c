/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops on the host beside the cuda device: a lookup and updates that a plan has there give the bits
 * of those on the device, however late streams and the host are; a wait that is missing shows; and
 * what fails ends the run in order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/planning.h"
#include "unit/cuda_job.h"
#include "unit/fake_rig.h"

#define STEPS       3u
#define SEEDS       25u
#define WAIT_SEEDS  8u /* for each wait that is left out */
#define LATE_NS     3000000u
#define MAX_WAITS   64u
#define MAX_TENSORS 64u
#define SLOW        1e8 /* bytes or operations a second */
#define NO_LIMIT    1e17

static const struct world_shape shape = {3, 270 * 1000 + 7};
static const struct cuda_job_tiers tiers = {.host_bytes = 256 * MR_MIB, .host_updates = true};
static char plan_path[64];
static char profile_path[64];

/* A plan for a slow device beside a host of that rate: the job has a profile of its own. */
static struct mr_plan *plan_beside(struct cuda_job *job, double host_bytes_per_second) {
  struct mr_plan *plan = NULL;
  assert_int_equal(mr_plan_create(job->world.graph, &job->options, &plan), MR_OK);
  struct mr_profile profile = *plan->profile;
  assert_true(profile.host_bytes_per_second > 0 && profile.host_memory_bytes_per_second > 0);
  profile.host_bytes_per_second = host_bytes_per_second;
  profile.host_memory_bytes_per_second = NO_LIMIT;
  profile.bytes_per_second = SLOW;
  profile.copy_bytes_per_second[0] = profile.copy_bytes_per_second[1] = 1e10;
  for (uint32_t i = 0; i < profile.rate_count; i++) {
    profile.rates[i].seconds_per_unit = 1 / SLOW;
  }
  snprintf(profile_path, sizeof profile_path, "/tmp/memrun-test-host-%ld.json.tmp", (long)getpid());
  mr_profile_save(profile_path, &profile);
  job->options.profile_path = profile_path;
  mr_plan_destroy(plan);
  assert_int_equal(mr_plan_create(job->world.graph, &job->options, &plan), MR_OK);
  return plan;
}

/* Keeps the plan for all runs of the job. */
static void keep_plan(struct cuda_job *job, struct mr_plan *plan) {
  snprintf(plan_path, sizeof plan_path, "/tmp/memrun-test-host-%ld.tmp", (long)getpid());
  assert_int_equal(mr_plan_save(plan, plan_path), MR_OK);
  mr_plan_destroy(plan);
  job->options.plan_path = plan_path;
}

/* A job with the lookup and every update on a host as fast as can be. */
static void job_init(struct cuda_job *job) {
  struct mr_plan_summary summary;
  cuda_job_init(job, shape, STEPS, tiers);
  struct mr_plan *plan = plan_beside(job, 1e15);
  mr_plan_summarize(plan, &summary);
  assert_true(summary.fits);
  assert_int_equal(summary.host_op_count, shape.layers + 1);
  assert_int_equal(plan->layout->instruction_count[MR_QUEUE_HOST], shape.layers + 1);
  assert_true(summary.host_seconds > 0 && summary.host_bytes_per_second > 1e14);
  keep_plan(job, plan);
}

/* Where the profile is made for no job, the first job shows what the host does for its ops. */
static void a_job_shows_the_host(void **state) {
  (void)state;
  struct cuda_job job;
  struct mr_plan *plan = NULL;
  struct mr_profile profile;
  char *machine = NULL;
  cuda_job_init(&job, shape, STEPS, tiers);
  char key[MR_PROFILE_KEY_BYTES];
  (void)unlink(job.options.profile_path);
  assert_int_equal(mr_machine_json(&job.options, &machine), MR_OK);
  free(machine);
  assert_int_equal(mr_plan_create(job.world.graph, &job.options, &plan), MR_OK);
  snprintf(key, sizeof key, "%s", plan->profile->machine);
  double rate = plan->profile->host_memory_bytes_per_second;
  assert_true(rate > 0);
  assert_int_equal(mr_profile_load(job.options.profile_path, key, &profile), MR_OK);
  assert_true(profile.host_memory_bytes_per_second > 0.999 * rate);
  assert_true(profile.host_memory_bytes_per_second < 1.001 * rate);
  mr_plan_destroy(plan);
  cuda_job_fini(&job);
}

/* Makes the layout of a program that the plan is to have, whatever job is planned. */
static void plan_program(struct mr_plan *plan, const struct mr_graph *program) {
  struct mr_plan_problem *problem = &plan->problem;
  problem->program = program;
  assert_int_equal(mr_planning_estimate(plan, program, &plan->op_seconds), MR_OK);
  problem->op_seconds = plan->op_seconds;
  assert_int_equal(mr_program_plan_make(problem, &plan->layout), MR_OK);
  assert_true(plan->layout->fits);
  mr_planning_sum_clones(plan);
}

static uint32_t count_copies(const struct mr_graph *graph, const struct mr_program_plan *layout) {
  uint32_t copies = 0;
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    bool lasts = mr_role_is_persistent(graph->tensors[t].role);
    copies += lasts && layout->homes[t].copy == MR_TIER_HOST;
  }
  return copies;
}

/* A job of the shape with all that ops on the host can use wanted there, planned as
 * for other machines. */
static struct mr_plan *plan_all_there(struct cuda_job *job, struct world_shape of,
                                      struct cuda_job_tiers in) {
  bool on_host[MAX_TENSORS];
  cuda_job_init(job, of, STEPS, in);
  struct mr_plan *plan = plan_beside(job, 1e15);
  mr_planning_clear(plan);
  assert_true(job->world.graph->tensor_count <= MAX_TENSORS);
  memset(on_host, 1, sizeof on_host);
  plan->problem.on_host = on_host;
  plan->problem.search_rounds = MR_MACHINE_ROUNDS;
  plan_program(plan, job->world.graph);
  plan->problem.on_host = NULL;
  return plan;
}

/* A job whose weights come back before the step ends, in a plan that other machines would have. */
static void job_init_copies(struct cuda_job *job) {
  struct mr_plan *plan = plan_all_there(job, shape, tiers);
  assert_true(count_copies(job->world.graph, plan->layout) > 0);
  keep_plan(job, plan);
}

/* A job with the lookup and the last update on the host, and the others in the next step. */
static void job_init_both(struct cuda_job *job) {
  bool on_host[MAX_TENSORS];
  cuda_job_init(job, shape, STEPS, tiers);
  job->options.device_bytes *= 2;
  struct mr_plan *plan = plan_beside(job, 1e15);
  mr_planning_clear(plan);
  assert_int_equal(mr_graph_defer(job->world.graph, 1, &plan->rewritten), MR_OK);
  assert_true(plan->rewritten->tensor_count <= MAX_TENSORS);
  memset(on_host, 1, sizeof on_host);
  plan->problem.on_host = on_host;
  plan_program(plan, plan->rewritten);
  plan->problem.on_host = NULL;
  assert_int_equal(plan->deferred_op_count, shape.layers - 1);
  assert_int_equal(plan->layout->instruction_count[MR_QUEUE_HOST], 2);
  keep_plan(job, plan);
}

/* A job with every update on a host that has room for four gradients at once. */
static void job_init_turns(struct cuda_job *job) {
  static const struct world_shape deep = {6, 270 * 1000 + 7};
  const struct cuda_job_tiers tight = {
      .host_bytes = 20 * MR_MIB, .nvme_bytes = 256 * MR_MIB, .host_updates = true};
  struct mr_plan *plan = plan_all_there(job, deep, tight);
  assert_int_equal(plan->layout->instruction_count[MR_QUEUE_HOST], deep.layers + 1);
  uint32_t turns = 0;
  for (uint32_t i = 0; i < plan->layout->slot_count; i++) {
    const struct mr_slot *slot = &plan->layout->slots[i];
    turns += !slot->always && job->world.graph->tensors[slot->tensor].role == MR_GRADIENT;
  }
  assert_true(turns >= deep.layers);
  keep_plan(job, plan);
}

static void job_fini(struct cuda_job *job) {
  cuda_job_fini(job);
  assert_int_equal(unlink(plan_path), 0);
  assert_int_equal(unlink(profile_path), 0);
}

/* Runs the job under many timings. */
static void run_under_seeds(struct cuda_job *job) {
  uint64_t seeds = getenv("MEMRUN_SANITIZE") == NULL ? SEEDS : SEEDS / 8;
  for (uint64_t seed = 1; seed <= seeds; seed++) {
    bool right = false;
    cuda_job_set(seed, NULL);
    world_faults.late_ns = seed % 3 == 0 ? LATE_NS : 0;
    assert_int_equal(cuda_job_run(job, &right), MR_OK);
    if (!right) {
      fail_msg("seed %llu: wrong bits", (unsigned long long)seed);
    }
  }
  world_faults.late_ns = 0;
}

static void any_timing_gives_the_bits_of_the_device(void **state) {
  (void)state;
  struct cuda_job job;
  job_init(&job);
  run_under_seeds(&job);
  job_fini(&job);
}

static void so_do_gradients_that_take_turns(void **state) {
  (void)state;
  struct cuda_job job;
  job_init_turns(&job);
  run_under_seeds(&job);
  job_fini(&job);
}

/* An op that is still to run on the host when its step is over is that step's, whatever comes. */
static void run_late(struct cuda_job *job) {
  struct mr_run *run = NULL;
  struct world_state expected;
  cuda_job_set(0, NULL);
  world_faults.late_ns = 10 * LATE_NS;
  world_state_init(&expected, shape);
  expected.rated = true;
  assert_int_equal(mr_run_create(job->world.graph, &job->options, &run), MR_OK);
  assert_int_equal(world_load(&job->world, run), MR_OK);
  double busy_seconds = 0;
  for (uint64_t step = 1; step <= 6; step++) {
    mr_step_mode mode = step % 2 == 0 ? MR_STEP_EVALUATE : MR_STEP_TRAIN;
    struct mr_step_report report = {.size_bytes = sizeof report};
    assert_int_equal(world_step(&job->world, run, step, mode, &report), MR_OK);
    world_state_step(&expected, shape, step, mode);
    busy_seconds += report.host_busy_seconds;
    assert_true(report.peak_bytes[MR_TIER_HOST] <= report.budget_bytes[MR_TIER_HOST]);
  }
  world_compare(&job->world, run, &expected);
  assert_true(busy_seconds > 2 * shape.layers * 10e-9 * LATE_NS);
  world_faults.late_ns = 0;
  mr_run_destroy(run);
  world_state_fini(&expected, shape);
}

static void so_it_does_beside_updates_of_the_next_step(void **state) {
  (void)state;
  struct cuda_job job;
  job_init_both(&job);
  run_under_seeds(&job);
  run_late(&job);
  job_fini(&job);
}

static void late_updates_are_of_their_step(void **state) {
  (void)state;
  struct cuda_job job;
  job_init(&job);
  run_late(&job);
  job_fini(&job);
}

struct place {
  uint32_t queue, index, wait;
};

/* The waits of the queue of the host, and those for it. */
static uint32_t find_waits(const struct mr_program_plan *layout, struct place *places) {
  uint32_t count = 0;
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    for (uint32_t i = 0; i < layout->instruction_count[q]; i++) {
      const struct mr_instruction *instruction = &layout->instructions[q][i];
      for (uint32_t w = 0; w < instruction->wait_count; w++) {
        uint32_t awaited = layout->waits[instruction->first_wait + w].queue;
        if (q == MR_QUEUE_HOST || awaited == MR_QUEUE_HOST) {
          assert_true(count < MAX_WAITS);
          places[count++] = (struct place){q, i, w};
        }
      }
    }
  }
  return count;
}

/* Makes a wait one for nothing. */
static void drop_wait(struct mr_run *run, const struct place *place) {
  struct mr_program_plan *layout = run->plan->layout;
  struct mr_instruction *instruction = &layout->instructions[place->queue][place->index];
  layout->waits[instruction->first_wait + place->wait].count = 0;
  layout->waits[instruction->first_wait + place->wait].previous_step = false;
}

static unsigned lines;

static void count_line(void *context, mr_log_level level, const char *line) {
  (void)context;
  (void)level;
  (void)line;
  lines++;
}

/* Runs without that wait under some timings; true where the bits are wrong under one. None shows a
 * wait whose work others do too; the verifier knows it all the same. */
static bool shows(struct cuda_job *job, const struct place *place, bool *refused_out) {
  bool right = true;
  for (uint64_t seed = 1; right && seed <= WAIT_SEEDS; seed++) {
    struct mr_run *run = NULL;
    cuda_job_set(seed, NULL);
    world_faults.late_ns = seed % 2 == 0 ? 2 * LATE_NS : 0;
    assert_int_equal(mr_run_create(job->world.graph, &job->options, &run), MR_OK);
    drop_wait(run, place);
    lines = 0;
    mr_log_configure(count_line, NULL, MR_LOG_ERROR);
    *refused_out = mr_plan_verify(run->plan) == MR_CORRUPT;
    mr_log_configure(NULL, NULL, MR_LOG_WARN);
    assert_int_equal(lines, *refused_out);
    assert_int_equal(cuda_job_go_on(job, run, &right), MR_OK);
  }
  world_faults.late_ns = 0;
  return !right;
}

/* Of the waits of the queue of the host, and of those for it. */
static void drop_each(void (*init)(struct cuda_job *job)) {
  struct cuda_job job;
  struct mr_run *run = NULL;
  struct place places[MAX_WAITS];
  init(&job);
  assert_int_equal(mr_run_create(job.world.graph, &job.options, &run), MR_OK);
  uint32_t count = find_waits(run->layout, places);
  mr_run_destroy(run);
  uint32_t refused = 0, shown = 0;
  for (uint32_t i = 0; i < count; i++) {
    bool is_refused = false;
    bool seen = shows(&job, &places[i], &is_refused);
    assert_true(is_refused || !seen);
    refused += is_refused;
    shown += seen;
  }
  print_message("%u waits of the host and for it: %u are needed, without %u bits were wrong\n",
                count, refused, shown);
  uint32_t layers = job.world.shape.layers;
  assert_true(refused >= 2 * layers && shown >= layers);
  job_fini(&job);
}

static void a_wait_that_is_missing_is_seen(void **state) {
  (void)state;
  if (rig_under_thread_sanitizer()) {
    skip(); /* it would end the process at the race that is made here */
  }
  drop_each(job_init);
  drop_each(job_init_turns);
}

static void what_fails_ends_the_run(void **state) {
  (void)state;
  struct cuda_job job;
  bool right = false;
  job_init(&job);
  mr_log_configure(count_line, NULL, MR_LOG_ERROR);
  /* Ops on the host are among the calls; each may be the one that fails. */
  uint64_t calls = world_faults.calls;
  cuda_job_set(0, NULL);
  assert_int_equal(cuda_job_run(&job, &right), MR_OK);
  calls = world_faults.calls - calls;
  for (uint64_t call = 1; call <= calls; call++) {
    world_faults.fail_call = world_faults.calls + call;
    world_faults.status = MR_CORRUPT;
    /* The last ops of the host may run behind the last step, and are told of when bits are read. */
    assert_int_equal(cuda_job_run(&job, &right), MR_CORRUPT);
  }
  world_faults.fail_call = 0;
  static const char *const faults[] = {"cuMemHostRegister_v2:2:2", "cuMemcpyDtoHAsync_v2:1:719",
                                       "cuMemcpyDtoHAsync_v2:4:719"};
  for (size_t i = 0; i < MR_COUNT_OF(faults); i++) {
    cuda_job_set(0, faults[i]);
    lines = 0;
    assert_int_not_equal(cuda_job_run(&job, &right), MR_OK);
    assert_true(lines > 0);
  }
  mr_log_configure(NULL, NULL, MR_LOG_WARN);
  job_fini(&job);
}

/* The one value of the step that all updates read is handed to the first, which gives it to the
 * others; where a round leaves the first out each of the others is handed it. */
static void one_is_handed_what_all_read(void **state) {
  (void)state;
  const uint32_t none = UINT32_MAX;
  struct cuda_job job;
  struct mr_run *run = NULL;
  job_init(&job);
  cuda_job_set(0, NULL);
  assert_int_equal(mr_run_create(job.world.graph, &job.options, &run), MR_OK);
  assert_int_equal(world_load(&job.world, run), MR_OK);
  const struct mr_handover *handover = &run->handover;
  const struct mr_instruction *host = run->layout->instructions[MR_QUEUE_HOST];
  uint32_t count = handover->first_input[run->layout->instruction_count[MR_QUEUE_HOST]];
  assert_int_equal(count, shape.layers);
  for (uint32_t round = 0; round < 2; round++) {
    for (uint32_t i = 0; i < count; i++) {
      memcpy(handover->inputs[i].place, &none, sizeof none);
    }
    mr_step_mode mode = round == 0 ? MR_STEP_TRAIN : MR_STEP_EVALUATE;
    assert_int_equal(world_step(&job.world, run, round + 1, mode, NULL), MR_OK);
    assert_int_equal(mr_run_sync(run), MR_OK);
    uint32_t first = 0, last = 0;
    memcpy(&first, handover->inputs[0].place, sizeof first);
    memcpy(&last, handover->inputs[count - 1].place, sizeof last);
    assert_true(last != none && (round == 0 ? first == last : first == none));
    for (uint32_t i = 0; i < count; i++) {
      assert_int_equal(handover->inputs[i].giver, 0);
      assert_memory_equal(handover->inputs[i].place, i == 0 ? &first : &last, sizeof last);
      mr_op_id op = host[handover->inputs[i].instruction].op;
      job.world.graph->ops[op].flags &= i == 0 ? UINT32_MAX : ~(uint32_t)MR_OP_TRAIN_ONLY;
    }
    assert_ptr_equal(run->layout->program, job.world.graph);
  }
  mr_run_destroy(run);
  job_fini(&job);
}

/* What the host made is back before the step ends and rests in two places; weights that the client
 * writes between two steps reach both. */
static void what_is_written_reaches_the_copy_too(void **state) {
  (void)state;
  struct cuda_job job;
  struct mr_run *run = NULL;
  struct world_state expected;
  job_init_copies(&job);
  for (uint64_t seed = 1; seed <= 4; seed++) {
    cuda_job_set(seed, NULL);
    assert_int_equal(mr_run_create(job.world.graph, &job.options, &run), MR_OK);
    assert_true(count_copies(job.world.graph, run->layout) > 0);
    world_state_init(&expected, shape);
    expected.rated = true;
    for (uint32_t turn = 0; turn < 2; turn++) {
      for (uint32_t l = 0; l < shape.layers; l++) {
        for (uint64_t i = 0; i < shape.elements; i++) {
          expected.weights[l][i] = world_weight(l, i);
        }
      }
      assert_int_equal(world_load(&job.world, run), MR_OK);
      for (uint64_t step = 1; step <= 3; step++) {
        mr_step_mode mode = step == 2 ? MR_STEP_EVALUATE : MR_STEP_TRAIN;
        assert_int_equal(world_step(&job.world, run, step, mode, NULL), MR_OK);
        world_state_step(&expected, shape, step, mode);
      }
      world_compare(&job.world, run, &expected);
    }
    world_state_fini(&expected, shape);
    mr_run_destroy(run);
  }
  job_fini(&job);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_job_shows_the_host),
      cmocka_unit_test(any_timing_gives_the_bits_of_the_device),
      cmocka_unit_test(so_do_gradients_that_take_turns),
      cmocka_unit_test(so_it_does_beside_updates_of_the_next_step),
      cmocka_unit_test(late_updates_are_of_their_step),
      cmocka_unit_test(one_is_handed_what_all_read),
      cmocka_unit_test(what_is_written_reaches_the_copy_too),
      cmocka_unit_test(a_wait_that_is_missing_is_seen),
      cmocka_unit_test(what_fails_ends_the_run),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

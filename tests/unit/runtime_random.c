/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/: random graphs (unit/random_graph.h) under random options, beside a plain computation of
 * the same steps (model/program.h): whatever the budgets, the tiers, the policy, what is recomputed
 * or deferred, and the plans that take over on the way, everything that lasts has the same bits.
 * Budgets are kept, peaks are those of the plan, a refusal names a budget that does, and ops run as
 * often as they should.
 *
 * MEMRUN_TEST_SEED is the first seed, MEMRUN_TEST_ROUNDS how many follow, MEMRUN_TEST_DIRECTORY
 * where the files of the NVMe tier go.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/program.h"
#include "runtime/runtime.h"
#include "unit/random_graph.h"

#define ROUNDS     32u
#define RUNS       2u /* of a graph, of which each begins with what the last one left */
#define MOST_STEPS 5u
#define SLEEP_US   200u

static const char *directory = "/var/tmp";
/* Of runs of one thread with one NVMe path, and of two with two; each has an I/O engine, so that
 * all is measured once. */
static char profile_paths[2][64];
static char plan_path[64];
static char trace_path[64];

static struct tally {
  uint32_t runs, moved, on_host, deferred, recomputed, kept, replans, switches, flushes;
  uint64_t moved_bytes[MR_LINK_COUNT];
} tally;

static struct {
  uint64_t seed; /* of the trial */
  uint32_t count;
  char last[1024];
} errors;

static void keep_error(void *context, mr_log_level level, const char *line) {
  (void)context;
  (void)level;
  errors.count++;
  (void)snprintf(errors.last, sizeof errors.last, "%s", line);
  if (strncmp(line, "internal fault", strlen("internal fault")) == 0) { /* nobody tells it later */
    (void)fprintf(stderr, "seed %llu: %s\n", (unsigned long long)errors.seed, line);
  }
}

/* One graph, its computation and the run beside it. */
struct trial {
  uint64_t seed;
  uint32_t number; /* of the run */
  struct mr_random random;
  struct random_record record;
  struct random_graph drawn;
  struct model_oracle oracle;
  uint8_t *buffer; /* of the largest tensor */
  struct mr_nvme_path paths[2];
  struct mr_options options;
  struct mr_run *run;
  uint64_t step;                     /* in this run */
  uint64_t train_count, other_count; /* its steps */
  uint32_t replan_count;             /* that it made by itself */
  bool trained; /* since the plan took over; so long its peaks may be less than planned */
  bool all_trained;
};

static void fail_trial(const struct trial *t, const char *what, unsigned long long number) {
  const struct mr_options *o = &t->options;
  fail_msg("seed %llu, run %u, step %llu: %s (%llu); device %llu, host %llu, nvme %llu bytes, "
           "offload %d, recompute %d, policy %d, defer %d, replan %d, engine %d; last error: %s",
           (unsigned long long)t->seed, t->number, (unsigned long long)t->step, what, number,
           (unsigned long long)o->device_bytes, (unsigned long long)o->host_bytes,
           (unsigned long long)(o->nvme_count == 0 ? 0 : o->nvme[0].limit_bytes), o->offload,
           o->recompute, o->policy, o->defer, o->replan, o->io_engine, errors.last);
}

static void require(const struct trial *t, bool holds, const char *what) {
  if (!holds) {
    fail_trial(t, what, 0);
  }
}

static void require_ok(const struct trial *t, mr_status status, const char *what) {
  if (status != MR_OK || errors.count > 0) {
    fail_trial(t, what, status);
  }
}

static uint64_t below(struct trial *t, uint64_t bound) {
  return mr_random_below(&t->random, bound);
}

static bool chance(struct trial *t, uint32_t percent) {
  return below(t, 100) < percent;
}

/* ---- Plans ---- */

static struct mr_plan *make_plan(const struct trial *t, const struct mr_options *options,
                                 struct mr_plan_summary *summary_out) {
  struct mr_plan *plan = NULL;
  require_ok(t, mr_plan_create(t->drawn.graph, options, &plan), "planning");
  summary_out->size_bytes = sizeof *summary_out;
  mr_plan_summarize(plan, summary_out);
  return plan;
}

static struct mr_plan_summary summary_of(const struct trial *t, const struct mr_options *options) {
  struct mr_plan_summary summary;
  mr_plan_destroy(make_plan(t, options, &summary));
  return summary;
}

static void check_refusal(struct trial *t, const struct mr_options *options, uint64_t smallest) {
  char named[32];
  struct mr_run *run = NULL;
  (void)snprintf(named, sizeof named, "(--device-mem %llu)", (unsigned long long)smallest);
  mr_status status = mr_run_create(t->drawn.graph, options, &run);
  require(t, status == MR_DOES_NOT_FIT && run == NULL, "a run that does not fit is not refused");
  require(t, errors.count == 1 && strstr(errors.last, named) != NULL,
          "a refusal is not one line with the smallest budget");
  errors.count = 0;
}

#define AMPLE_BYTES (64 * MR_MIB)

/* What fits is certain to fit more only where the other tiers are either not there or large. */
static bool is_short_below(const struct mr_options *options) {
  uint64_t host = options->offload == MR_OFFLOAD_NONE ? 0 : options->host_bytes;
  bool is_short = host > 0 && host < AMPLE_BYTES;
  for (uint32_t i = 0; i < options->nvme_count; i++) {
    uint64_t nvme = options->nvme[i].limit_bytes;
    is_short = is_short || (nvme > 1 && nvme < AMPLE_BYTES);
  }
  return is_short;
}

/* The smallest device budget that does, which is checked to do and to be the smallest. There is
 * one, as all may stay on the device. */
static uint64_t find_smallest(struct trial *t, const struct mr_options *options,
                              uint64_t *footprint_out) {
  struct mr_options small = *options;
  small.device_bytes = 1;
  struct mr_plan_summary summary = summary_of(t, &small);
  uint64_t smallest = summary.smallest_device_bytes;
  *footprint_out = summary.footprint_bytes;
  require(t, !summary.fits, "an op fits into a byte");
  if (chance(t, 50)) {
    check_refusal(t, &small, smallest);
  }
  small.device_bytes = smallest;
  summary = summary_of(t, &small);
  require(t, summary.fits, "the smallest budget does not do");
  require(t, summary.need_bytes[MR_TIER_DEVICE] <= smallest, "more than the smallest budget");
  if (!is_short_below(options) && chance(t, 50)) {
    small.device_bytes = smallest - 1;
    summary = summary_of(t, &small);
    require(t, !summary.fits, "less than the smallest budget does too");
    require(t, summary.smallest_device_bytes == smallest, "two smallest budgets");
  }
  return smallest;
}

static uint64_t draw_device_bytes(struct trial *t, uint64_t smallest, uint64_t footprint) {
  uint64_t enough = mr_max_u64(smallest, footprint);
  uint64_t more = below(t, enough - smallest + 1);
  const uint64_t choices[] = {
      enough,   enough + AMPLE_BYTES, smallest + more, smallest + more, smallest, smallest,
      smallest, smallest + more / 8};
  return choices[below(t, MR_COUNT_OF(choices))];
}

/* Of another tier: nothing, too little for most, or enough. */
static uint64_t draw_bytes(struct trial *t, uint64_t footprint) {
  uint64_t ample = AMPLE_BYTES + 4 * footprint;
  uint64_t some = below(t, footprint);
  uint64_t less = footprint / 4;
  const uint64_t choices[] = {0, 1 + some / 4, less + some, less + some, ample, ample, ample};
  return choices[below(t, MR_COUNT_OF(choices))];
}

/* How memory is to be used, and not how much of it there is. */
static void vary_options(struct trial *t, struct mr_options *options) {
  static const mr_recompute recomputes[] = {MR_RECOMPUTE_AUTO, MR_RECOMPUTE_NONE,
                                            MR_RECOMPUTE_FULL};
  static const mr_policy policies[] = {MR_POLICY_SEARCHED, MR_POLICY_SEARCHED, MR_POLICY_FIRST,
                                       MR_POLICY_LRU};
  static const mr_defer defers[] = {MR_DEFER_AUTO, MR_DEFER_NEVER, MR_DEFER_ALWAYS,
                                    MR_DEFER_ALWAYS};
  options->recompute = recomputes[below(t, MR_COUNT_OF(recomputes))];
  options->policy = policies[below(t, MR_COUNT_OF(policies))];
  options->defer = defers[below(t, MR_COUNT_OF(defers))];
}

/* The options point into the trial, so it stays where it is. */
static void draw_options(struct trial *t) {
  static const mr_offload offloads[] = {MR_OFFLOAD_NONE, MR_OFFLOAD_HOST, MR_OFFLOAD_NVME,
                                        MR_OFFLOAD_NVME, MR_OFFLOAD_NVME, MR_OFFLOAD_AUTO};
  struct mr_options *options = &t->options;
  mr_options_init(options);
  vary_options(t, options);
  options->threads = 1 + (uint32_t)below(t, 2);
  options->io_engine = options->threads == 1 ? MR_IO_PREAD : MR_IO_AUTO;
  options->profile_path = profile_paths[options->threads - 1];
  options->io_timeout_seconds = 20;
  options->trace_path = chance(t, 5) ? trace_path : NULL;
  options->replan = chance(t, 30) ? MR_REPLAN_ALWAYS : MR_REPLAN_NEVER;
  options->offload = MR_OFFLOAD_NONE;
  options->device_bytes = MR_GIB;
  options->host_bytes = 0;
  uint64_t footprint = summary_of(t, options).footprint_bytes;
  options->offload = offloads[below(t, MR_COUNT_OF(offloads))];
  options->host_bytes = draw_bytes(t, footprint);
  for (uint32_t i = 0; i < MR_COUNT_OF(t->paths); i++) {
    t->paths[i] = (struct mr_nvme_path){directory, mr_max_u64(1, draw_bytes(t, footprint))};
  }
  bool nvme =
      options->offload == MR_OFFLOAD_NVME || (options->offload == MR_OFFLOAD_AUTO && chance(t, 50));
  options->nvme = t->paths;
  options->nvme_count = nvme ? options->threads : 0;
}

/* A plan within budgets is one, by the verifier too. */
static void check_plan(const struct trial *t, const struct mr_plan *plan) {
  struct mr_plan_summary summary = {.size_bytes = sizeof summary};
  mr_plan_summarize(plan, &summary);
  require(t, summary.fits, "a budget that is not too small does not do");
  require_ok(t, mr_plan_verify(plan), "the verifier refuses the plan");
  require(t, summary.predicted_seconds >= summary.bound_seconds * (1 - 1e-9),
          "a plan is faster than any can be");
  for (uint32_t tier = 0; tier < MR_TIER_COUNT; tier++) {
    require(t, summary.need_bytes[tier] <= summary.budget_bytes[tier], "more than the budget");
  }
}

/* ---- Steps ---- */

static void write_range(struct trial *t, mr_tensor_id tensor, uint64_t first, uint64_t bytes) {
  require_ok(t, mr_run_write(t->run, tensor, first, t->oracle.memory[tensor] + first, bytes),
             "writing a tensor");
}

/* All of a tensor, in two pieces. */
static void write_whole(struct trial *t, mr_tensor_id tensor) {
  uint64_t bytes = mr_graph_tensor_bytes(t->drawn.graph, tensor);
  uint64_t cut = below(t, bytes + 1);
  write_range(t, tensor, 0, cut);
  write_range(t, tensor, cut, bytes - cut);
}

/* Inputs are new in most steps; now and then the client changes something that lasts. */
static void write_some(struct trial *t) {
  for (mr_tensor_id tensor = 0; tensor < t->drawn.tensor_count; tensor++) {
    bool lasts = random_graph_lasts(&t->drawn, tensor);
    bool open = random_graph_is_open(&t->drawn, tensor);
    uint64_t bytes = mr_graph_tensor_bytes(t->drawn.graph, tensor);
    if (open && chance(t, lasts ? 8 : 75)) {
      uint64_t first = lasts ? below(t, bytes) : 0;
      uint64_t count = lasts ? 1 + below(t, bytes - first) : bytes;
      model_fill(t->seed, mr_random_u64(&t->random), tensor, t->oracle.memory[tensor] + first,
                 count);
      write_range(t, tensor, first, count);
    }
  }
}

static void compare_range(struct trial *t, mr_tensor_id tensor, uint64_t first, uint64_t bytes) {
  const uint8_t *expected = t->oracle.memory[tensor] + first;
  memset(t->buffer, 0xa5, bytes);
  require_ok(t, mr_run_read(t->run, tensor, first, t->buffer, bytes), "reading a tensor");
  if (memcmp(t->buffer, expected, bytes) != 0) {
    fail_trial(t, "a tensor has other bits", tensor);
  }
}

static void compare_all(struct trial *t) {
  for (mr_tensor_id tensor = 0; tensor < t->drawn.tensor_count; tensor++) {
    if (random_graph_is_open(&t->drawn, tensor)) {
      compare_range(t, tensor, 0, mr_graph_tensor_bytes(t->drawn.graph, tensor));
    }
  }
}

/* One of them, so that what others left to do stays so. */
static void compare_one(struct trial *t) {
  mr_tensor_id tensor = (mr_tensor_id)below(t, t->drawn.tensor_count);
  uint64_t bytes = mr_graph_tensor_bytes(t->drawn.graph, tensor);
  if (random_graph_is_open(&t->drawn, tensor)) {
    uint64_t first = below(t, bytes);
    compare_range(t, tensor, first, below(t, bytes - first + 1));
  }
}

static void check_budgets(const struct trial *t, const struct mr_step_report *report) {
  for (uint32_t tier = 0; tier < MR_TIER_COUNT; tier++) {
    require(t, report->peak_bytes[tier] <= report->budget_bytes[tier], "a budget is exceeded");
    require(t, report->peak_bytes[tier] <= report->planned_peak_bytes[tier],
            "a peak is higher than planned");
  }
}

/* Once all that was left to do is done, what was counted is what was planned, to the byte. */
static void sync_and_check_peaks(struct trial *t) {
  struct mr_step_report report = {.size_bytes = sizeof report};
  struct mr_plan_summary summary = {.size_bytes = sizeof summary};
  require_ok(t, mr_run_sync(t->run), "mr_run_sync");
  mr_run_observe(t->run, &report);
  mr_plan_summarize(mr_run_plan(t->run), &summary);
  check_budgets(t, &report);
  for (uint32_t tier = 0; tier < MR_TIER_COUNT; tier++) {
    require(t, summary.need_bytes[tier] <= report.planned_peak_bytes[tier],
            "the peak that was planned is not that of the plan");
    if (t->trained && t->all_trained && t->replan_count == 0) {
      require(t, report.peak_bytes[tier] == report.planned_peak_bytes[tier],
              "a peak is not the planned one");
    }
  }
}

static void take_step(struct trial *t) {
  struct mr_step_report report = {.size_bytes = sizeof report};
  mr_step_mode mode = chance(t, 25) ? MR_STEP_EVALUATE : MR_STEP_TRAIN;
  t->record.mode = mode;
  require_ok(t, mr_run_step(t->run, mode, &report), "a step");
  t->record.counting = false;
  model_oracle_step(&t->oracle, mode);
  t->record.counting = true;
  t->step++;
  t->train_count += mode == MR_STEP_TRAIN;
  t->other_count += mode != MR_STEP_TRAIN;
  t->trained = t->trained || mode == MR_STEP_TRAIN;
  require(t, report.step == t->step, "the steps are counted otherwise");
  check_budgets(t, &report);
  tally.replans += report.replan_count - t->replan_count;
  t->replan_count = report.replan_count;
  tally.flushes += report.flush_seconds > 0;
  for (uint32_t link = 0; link < MR_LINK_COUNT; link++) {
    tally.moved_bytes[link] += report.moved_bytes[link];
  }
}

/* Another plan, for less memory or as much, takes over. */
static void switch_plans(struct trial *t) {
  struct mr_options options = t->options;
  struct mr_plan_summary summary;
  uint64_t footprint = 0;
  vary_options(t, &options);
  options.host_bytes = chance(t, 30) ? below(t, options.host_bytes + 1) : options.host_bytes;
  options.plan_path = NULL;
  t->record.counting = false;
  uint64_t smallest = find_smallest(t, &options, &footprint);
  if (smallest <= options.device_bytes) {
    options.device_bytes =
        smallest + (chance(t, 50) ? below(t, options.device_bytes - smallest + 1) : 0);
    struct mr_plan *plan = make_plan(t, &options, &summary);
    check_plan(t, plan);
    t->record.counting = true; /* of what is done before the plan takes over */
    mr_status status = mr_run_switch(t->run, plan);
    require(t, status == MR_OK || status == MR_NO_SPACE, "no other plan can take over");
    require_ok(t, mr_run_status(t->run), "another plan ends the run");
    if (status == MR_OK) {
      t->all_trained = t->all_trained && t->trained;
      t->trained = false;
      tally.switches++;
    }
    mr_plan_destroy(plan);
  }
  t->record.counting = true;
}

/* What a client may do between two steps. */
static void do_between(struct trial *t) {
  if (chance(t, 40)) {
    compare_one(t);
  }
  if (chance(t, 20)) {
    sync_and_check_peaks(t);
  }
  if (chance(t, 20)) {
    compare_all(t);
  }
  if (t->options.replan == MR_REPLAN_NEVER && chance(t, 15)) {
    switch_plans(t);
  }
}

/* An op that may not be repeated ran once in each step that it is part of, and others at least
 * once. */
static void check_calls(const struct trial *t) {
  for (uint32_t k = 0; k < t->drawn.op_count; k++) {
    bool trains = (t->drawn.flags[k] & MR_OP_TRAIN_ONLY) != 0;
    bool once = (t->drawn.flags[k] & MR_OP_REPEATABLE) == 0;
    uint64_t wanted = t->train_count + (trains ? 0 : t->other_count);
    if (t->record.calls[k] < wanted || (once && t->record.calls[k] > wanted)) {
      fail_trial(t, "an op did not run as often as it should", k);
    }
  }
}

/* ---- Runs ---- */

static void start(struct trial *t) {
  struct mr_plan_summary summary;
  struct mr_plan *plan = make_plan(t, &t->options, &summary);
  check_plan(t, plan);
  if (chance(t, 25)) {
    require_ok(t, mr_plan_save(plan, plan_path), "keeping a plan");
    t->options.plan_path = plan_path;
    tally.kept++;
  }
  mr_plan_destroy(plan);
  require_ok(t, mr_run_create(t->drawn.graph, &t->options, &t->run), "starting a run");
  check_plan(t, mr_run_plan(t->run));
  mr_plan_summarize(mr_run_plan(t->run), &summary);
  tally.runs++;
  for (uint32_t link = 0; link < MR_LINK_COUNT; link++) {
    if (summary.moved_bytes[link] > 0) {
      tally.moved++;
      break;
    }
  }
  tally.on_host += summary.host_op_count > 0;
  tally.deferred += summary.deferred_op_count > 0;
  tally.recomputed += summary.recomputed_op_count > 0;
}

static bool is_zero(const uint8_t *bytes, uint64_t count) {
  return bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0;
}

/* What is zero needs no words: tensors start so. */
static void load_all(struct trial *t) {
  for (mr_tensor_id tensor = 0; tensor < t->drawn.tensor_count; tensor++) {
    uint64_t bytes = mr_graph_tensor_bytes(t->drawn.graph, tensor);
    if (random_graph_is_open(&t->drawn, tensor) && !is_zero(t->oracle.memory[tensor], bytes)) {
      write_whole(t, tensor);
    }
  }
}

/* A run that goes on with what the one before left. */
static void run_once(struct trial *t) {
  uint64_t footprint = 0;
  t->step = t->train_count = t->other_count = 0;
  t->replan_count = 0;
  t->trained = false;
  t->all_trained = true;
  draw_options(t);
  uint64_t smallest = find_smallest(t, &t->options, &footprint);
  t->options.device_bytes = draw_device_bytes(t, smallest, footprint);
  start(t);
  load_all(t);
  memset(t->record.calls, 0, sizeof t->record.calls);
  t->record.counting = true;
  for (uint64_t steps = 2 + below(t, MOST_STEPS - 1); t->step < steps;) {
    write_some(t);
    take_step(t);
    do_between(t);
  }
  sync_and_check_peaks(t);
  check_calls(t);
  compare_all(t);
  require_ok(t, mr_run_destroy(t->run), "the end of the run");
  t->run = NULL;
  t->record.counting = false;
}

static void start_values(struct trial *t) {
  uint64_t largest = 1;
  for (mr_tensor_id tensor = 0; tensor < t->drawn.tensor_count; tensor++) {
    uint64_t bytes = mr_graph_tensor_bytes(t->drawn.graph, tensor);
    largest = mr_max_u64(largest, bytes);
    if (random_graph_is_open(&t->drawn, tensor) && chance(t, 85)) {
      model_fill(t->seed, 0, tensor, t->oracle.memory[tensor], bytes);
    }
  }
  t->buffer = mr_allocate(largest, 1);
  assert_non_null(t->buffer);
}

static void try_seed(uint64_t seed) {
  static struct trial trial;
  trial = (struct trial){.seed = seed};
  errors.seed = seed;
  mr_random_init(&trial.random, seed ^ 0x72756e73ull);
  trial.record.sleep_us = chance(&trial, 50) ? SLEEP_US : 0;
  random_graph_init(&trial.drawn, seed, &trial.record);
  model_oracle_init(&trial.oracle, trial.drawn.graph);
  start_values(&trial);
  for (trial.number = 0; trial.number < RUNS; trial.number++) {
    run_once(&trial);
  }
  free(trial.buffer);
  model_oracle_fini(&trial.oracle);
  random_graph_fini(&trial.drawn);
}

static uint64_t environment_u64(const char *name, uint64_t otherwise) {
  const char *text = getenv(name);
  return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

/* Of this process: open files and threads, each an entry of a folder. */
static uint32_t entries(const char *path) {
  uint32_t count = 0;
  DIR *folder = opendir(path);
  assert_non_null(folder);
  while (readdir(folder) != NULL) {
    count++;
  }
  (void)closedir(folder);
  return count;
}

/* A thread is joined a moment before the system forgets it. */
static void await_threads(uint32_t most) {
  for (uint32_t i = 0; i < 1000 && entries("/proc/self/task") > most; i++) {
    (void)usleep(1000);
  }
  assert_true(entries("/proc/self/task") <= most);
}

static void runs_agree(void **state) {
  (void)state;
  uint64_t first = environment_u64("MEMRUN_TEST_SEED", 1);
  uint64_t rounds = environment_u64("MEMRUN_TEST_ROUNDS", ROUNDS);
  print_message("seeds %llu to %llu\n", (unsigned long long)first,
                (unsigned long long)(first + rounds - 1));
  mr_log_configure(keep_error, NULL, MR_LOG_ERROR);
  uint32_t files = entries("/proc/self/fd");
  uint32_t threads = entries("/proc/self/task") + 1; /* a sanitizer may have one, too */
  for (uint64_t seed = first; seed < first + rounds; seed++) {
    try_seed(seed);
    assert_int_equal(entries("/proc/self/fd"), files);
    await_threads(threads);
  }
  print_message("%u runs: moves in %u, ops on the host in %u, deferred in %u, recomputed in %u; "
                "%u kept plans, %u replans, %u switches, %u flushes\n",
                tally.runs, tally.moved, tally.on_host, tally.deferred, tally.recomputed,
                tally.kept, tally.replans, tally.switches, tally.flushes);
  for (uint32_t link = 0; link < MR_LINK_COUNT; link++) {
    assert_true(rounds < ROUNDS || tally.moved_bytes[link] > 0);
  }
  assert_true(rounds < ROUNDS || (tally.on_host > 0 && tally.deferred > 0 && tally.recomputed > 0));
  assert_true(rounds < ROUNDS || (tally.kept > 0 && tally.replans > 0 && tally.switches > 0));
  assert_true(rounds < ROUNDS || tally.flushes > 0);
}

static int set_up(void **state) {
  (void)state;
  const char *given = getenv("MEMRUN_TEST_DIRECTORY");
  directory = given != NULL ? given : directory;
  for (uint32_t i = 0; i < MR_COUNT_OF(profile_paths); i++) {
    (void)snprintf(profile_paths[i], sizeof profile_paths[i],
                   "/tmp/memrun-test-random-%ld-%u.json.tmp", (long)getpid(), i);
  }
  (void)snprintf(trace_path, sizeof trace_path, "/tmp/memrun-test-random-%ld.trace.tmp",
                 (long)getpid());
  (void)snprintf(plan_path, sizeof plan_path, "/tmp/memrun-test-random-%ld.plan.tmp",
                 (long)getpid());
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  (void)unlink(profile_paths[0]);
  (void)unlink(profile_paths[1]);
  (void)unlink(plan_path);
  (void)unlink(trace_path);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(runs_agree)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}

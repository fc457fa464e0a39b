/* SPDX-License-Identifier: Apache-2.0 */
/* Plans kept in files: they run to the same bits, and belong to their job, machine and budgets. */
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
#include "unit/runtime_world.h"

#define STEPS 4u

static const struct world_shape shape = {6, 200 * 1000 + 7};
static char plan_path[128];
static char last_line[1024];
static uint32_t line_count;

static void keep_line(void *context, mr_log_level level, const char *line) {
  (void)context;
  if (level == MR_LOG_ERROR) {
    snprintf(last_line, sizeof last_line, "%s", line);
    line_count++;
  }
}

/* Budgets under which every tier is used and something is computed again. */
static void tight_options(struct mr_options *options, const struct mr_nvme_path *path) {
  world_options(options, 3 * MR_MIB, 1 * MR_MIB, MR_OFFLOAD_NVME);
  options->recompute = MR_RECOMPUTE_FULL;
  options->nvme = path;
  options->nvme_count = 1;
}

static struct mr_plan *make_plan(const struct world *world, const struct mr_options *options) {
  struct mr_plan *plan = NULL;
  assert_int_equal(mr_plan_create(world->graph, options, &plan), MR_OK);
  return plan;
}

/* The smallest device budget: nothing can be read ahead, and ops wait however slow they are. */
static void fit(const struct world *world, struct mr_options *options) {
  options->device_bytes = 4096;
  struct mr_plan *plan = make_plan(world, options);
  struct mr_plan_summary summary;
  mr_plan_summarize(plan, &summary);
  assert_false(summary.fits);
  mr_plan_destroy(plan);
  options->device_bytes = summary.smallest_device_bytes;
}

static char *json_of(const struct mr_plan *plan) {
  char *json = NULL;
  assert_int_equal(mr_plan_json(plan, &json), MR_OK);
  return json;
}

/* Whether compute had transfers promoted. */
static bool run_to_the_reference(const struct world *world, const struct mr_options *options) {
  struct mr_run *run = NULL;
  struct world_state state;
  world_state_init(&state, world->shape);
  assert_int_equal(mr_run_create(world->graph, options, &run), MR_OK);
  assert_int_equal(world_load(world, run), MR_OK);
  for (uint64_t step = 1; step <= STEPS; step++) {
    assert_int_equal(world_step(world, run, step, MR_STEP_TRAIN, NULL), MR_OK);
    world_state_step(&state, world->shape, step, MR_STEP_TRAIN);
  }
  world_compare(world, run, &state);
  bool promoted = run->queues[MR_QUEUE_OF(MR_LINK_NVME_READ)].demand_until > 0 ||
                  run->queues[MR_QUEUE_OF(MR_LINK_NVME_WRITE)].demand_until > 0;
  mr_run_destroy(run);
  world_state_fini(&state, world->shape);
  return promoted;
}

static void kept_plan_runs_to_the_same_bits(void **state) {
  (void)state;
  struct world world;
  struct mr_options options;
  const struct mr_nvme_path path = {"/var/tmp", 256 * MR_MIB};
  world_init(&world, shape);
  tight_options(&options, &path);
  fit(&world, &options);
  struct mr_plan *plan = make_plan(&world, &options);
  struct mr_plan_summary summary;
  mr_plan_summarize(plan, &summary);
  assert_true(summary.fits && summary.recomputed_op_count > 0);
  assert_true(summary.moved_bytes[MR_LINK_NVME_READ] > 0);
  assert_int_equal(mr_plan_save(plan, plan_path), MR_OK);

  options.plan_path = plan_path;
  struct mr_plan *kept = make_plan(&world, &options);
  char *fresh_json = json_of(plan);
  char *kept_json = json_of(kept);
  assert_string_equal(fresh_json, kept_json);
  free(fresh_json);
  free(kept_json);
  mr_plan_destroy(kept);
  mr_plan_destroy(plan);
  (void)run_to_the_reference(&world, &options);
  world_fini(&world);
}

static void keep_tight_plan(const struct world *world, struct mr_options *options,
                            const struct mr_nvme_path *path) {
  tight_options(options, path);
  fit(world, options);
  struct mr_plan *plan = make_plan(world, options);
  assert_int_equal(mr_plan_save(plan, plan_path), MR_OK);
  mr_plan_destroy(plan);
  options->plan_path = plan_path;
}

/* One line, which names the file and has the words. */
static void check_refused(const struct world *world, const struct mr_options *options,
                          mr_status wanted, const char *words) {
  struct mr_plan *plan = NULL;
  line_count = 0;
  assert_int_equal(mr_plan_create(world->graph, options, &plan), wanted);
  assert_int_equal(line_count, 1);
  assert_non_null(strstr(last_line, plan_path));
  if (strstr(last_line, words) == NULL) {
    fail_msg("'%s' is not in '%s'", words, last_line);
  }
}

static void what_differs_is_named(void **state) {
  (void)state;
  struct world world;
  struct world other;
  struct mr_options options;
  const struct mr_nvme_path path = {"/var/tmp", 256 * MR_MIB};
  world_init(&world, shape);
  keep_tight_plan(&world, &options, &path);

  world_init(&other, (struct world_shape){5, shape.elements});
  check_refused(&other, &options, MR_INVALID, "of another job: it has");
  world_fini(&other);
  world_init(&other, (struct world_shape){shape.layers, shape.elements + 1});
  check_refused(&other, &options, MR_INVALID, "of another job: its tensors have");
  world_fini(&other);

  struct mr_options changed = options;
  changed.threads = options.threads + 1;
  check_refused(&world, &changed, MR_INVALID, "of another machine");
  changed = options;
  changed.device_bytes -= 2 * MR_MIB;
  check_refused(&world, &changed, MR_DOES_NOT_FIT, "of device memory");
  changed = options;
  changed.offload = MR_OFFLOAD_HOST;
  check_refused(&world, &changed, MR_DOES_NOT_FIT, "of NVMe");
  changed = options;
  changed.plan_path = "/nowhere/some.plan";
  struct mr_plan *plan = NULL;
  assert_int_equal(mr_plan_create(world.graph, &changed, &plan), MR_IO);
  world_fini(&world);
}

static void open_budgets_are_those_of_the_file(void **state) {
  (void)state;
  struct world world;
  struct mr_options options;
  const struct mr_nvme_path path = {"/var/tmp", 256 * MR_MIB};
  const struct mr_nvme_path open_path = {"/var/tmp", MR_BUDGET_AUTO};
  world_init(&world, shape);
  keep_tight_plan(&world, &options, &path);
  uint64_t device_bytes = options.device_bytes;
  options.device_bytes = MR_BUDGET_AUTO;
  options.host_bytes = MR_BUDGET_AUTO;
  options.nvme = &open_path;
  struct mr_plan *plan = make_plan(&world, &options);
  struct mr_plan_summary summary;
  mr_plan_summarize(plan, &summary);
  assert_int_equal(summary.budget_bytes[MR_TIER_DEVICE], device_bytes);
  assert_int_equal(summary.budget_bytes[MR_TIER_HOST], MR_MIB);
  assert_int_equal(summary.budget_bytes[MR_TIER_NVME], 256 * MR_MIB);
  mr_plan_destroy(plan);
  world_fini(&world);
}

static char *read_text(size_t *bytes_out) {
  FILE *file = fopen(plan_path, "re");
  assert_non_null(file);
  char *text = mr_allocate(1 << 20, 1);
  *bytes_out = fread(text, 1, 1 << 20, file);
  fclose(file);
  return text;
}

static void write_text(const char *text, size_t bytes) {
  FILE *file = fopen(plan_path, "we");
  assert_non_null(file);
  assert_int_equal(fwrite(text, 1, bytes, file), bytes);
  fclose(file);
}

/* CRC-32C (Castagnoli), bit by bit. */
static uint32_t crc32c(const char *text, size_t bytes) {
  uint32_t crc = UINT32_MAX;
  for (size_t i = 0; i < bytes; i++) {
    crc ^= (uint8_t)text[i];
    for (uint32_t bit = 0; bit < 8; bit++) {
      crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
  }
  return ~crc;
}

/* Writes a text that was changed, with a checksum that is right. */
static void write_sealed(const char *text) {
  static const char key[] = ",\n\"crc32c\":\"";
  char *sealed = NULL;
  const char *seal = strstr(text, key);
  assert_non_null(seal);
  int bytes = (int)(seal - text);
  bytes = asprintf(&sealed, "%.*s%s%08x\"}\n", bytes, text, key, crc32c(text, (size_t)bytes));
  assert_true(bytes > 0);
  write_text(sealed, (size_t)bytes);
  free(sealed);
}

/* A kept plan, whose text is the caller's. */
static char *keep_text(struct world *world, struct mr_options *options,
                       const struct mr_nvme_path *path, size_t *bytes_out) {
  world_init(world, shape);
  keep_tight_plan(world, options, path);
  return read_text(bytes_out);
}

/* Writes the text with another value of its even_drive. */
static void set_even_drive(const char *text, bool even) {
  static const char key[] = "\"even_drive\":";
  const char *value = strstr(text, key);
  char *changed = NULL;
  assert_non_null(value);
  value += strlen(key);
  assert_true(asprintf(&changed, "%.*s%s%s", (int)(value - text), text, even ? "true" : "false",
                       value + strcspn(value, ",")) > 0);
  write_sealed(changed);
  free(changed);
}

static void an_even_drive_favours_nobody(void **state) {
  (void)state;
  struct world world;
  struct mr_options options;
  const struct mr_nvme_path path = {"/var/tmp", 256 * MR_MIB};
  size_t bytes = 0;
  char *text = keep_text(&world, &options, &path, &bytes);
  set_even_drive(text, true);
  assert_false(run_to_the_reference(&world, &options));
  set_even_drive(text, false);
  assert_true(run_to_the_reference(&world, &options));
  free(text);
  world_fini(&world);
}

static void damaged_files_are_refused(void **state) {
  (void)state;
  struct world world;
  struct mr_options options;
  const struct mr_nvme_path path = {"/var/tmp", 256 * MR_MIB};
  size_t bytes = 0;
  char *text = keep_text(&world, &options, &path, &bytes);
  write_text(text, 0);
  check_refused(&world, &options, MR_CORRUPT, "line");
  write_text(text, bytes / 2);
  check_refused(&world, &options, MR_CORRUPT, "line");
  char *again = strstr(text, "\"again\":[");
  assert_non_null(again);
  again += strlen("\"again\":[");
  again[0] = '9'; /* an op that does not exist, or may not run twice */
  again[1] = '9';
  write_sealed(text);
  check_refused(&world, &options, MR_CORRUPT, "again: names an op");
  write_text(text, bytes);
  check_refused(&world, &options, MR_CORRUPT, "checksum");
  free(text);
  world_fini(&world);
}

static void only_plans_that_fit_are_kept(void **state) {
  (void)state;
  struct world world;
  struct mr_options options;
  world_init(&world, shape);
  world_options(&options, 4096, 0, MR_OFFLOAD_NONE);
  struct mr_plan *plan = make_plan(&world, &options);
  line_count = 0;
  assert_int_equal(mr_plan_save(plan, plan_path), MR_DOES_NOT_FIT);
  assert_int_equal(line_count, 1);
  mr_plan_destroy(plan);
  world_options(&options, MR_GIB, 0, MR_OFFLOAD_NONE);
  plan = make_plan(&world, &options);
  assert_int_equal(mr_plan_save(plan, "/nowhere/some.plan"), MR_IO);
  mr_plan_destroy(plan);
  world_fini(&world);
}

static void a_described_machine_is_planned_for_and_not_run_on(void **state) {
  (void)state;
  struct world world;
  struct mr_options options;
  world_init(&world, shape);
  mr_options_init(&options);
  options.profile_path = H100_PROFILE;
  struct mr_plan *plan = make_plan(&world, &options);
  struct mr_plan_summary summary;
  mr_plan_summarize(plan, &summary);
  assert_true(summary.fits);
  assert_int_equal(summary.budget_bytes[MR_TIER_DEVICE], 76 * MR_GIB);
  assert_int_equal(summary.budget_bytes[MR_TIER_NVME], 7000000000000);
  assert_int_equal(mr_plan_save(plan, plan_path), MR_OK);
  mr_plan_destroy(plan);
  struct mr_run *run = NULL;
  line_count = 0;
  assert_int_equal(mr_run_create(world.graph, &options, &run), MR_INVALID);
  assert_int_equal(line_count, 1);
  assert_non_null(strstr(last_line, "h100-node"));
  char *json = NULL;
  assert_int_equal(mr_machine_json(&options, &json), MR_INVALID);

  world_options(&options, MR_GIB, MR_GIB, MR_OFFLOAD_HOST);
  options.plan_path = plan_path;
  check_refused(&world, &options, MR_INVALID, "of another machine: 'h100-node'");
  world_fini(&world);
}

/* Whoever describes this machine, but larger, may give it its name. */
static void a_description_is_not_the_machine_of_its_name(void **state) {
  (void)state;
  struct world world;
  struct mr_options options;
  char line[512];
  char described[160];
  snprintf(described, sizeof described, "%s.described", plan_path);
  world_init(&world, shape);
  world_options(&options, MR_GIB, MR_GIB, MR_OFFLOAD_HOST);
  struct mr_plan *plan = make_plan(&world, &options);
  FILE *from = fopen(H100_PROFILE, "re");
  FILE *to = fopen(described, "we");
  assert_true(from != NULL && to != NULL);
  while (fgets(line, sizeof line, from) != NULL) {
    bool names = strncmp(line, "name ", 5) == 0;
    assert_true(fprintf(to, names ? "name = %s\n" : "%s", names ? mr_plan_machine(plan) : line) >
                0);
  }
  assert_int_equal(fclose(from), 0);
  assert_int_equal(fclose(to), 0);
  mr_plan_destroy(plan);
  struct mr_options elsewhere;
  mr_options_init(&elsewhere);
  elsewhere.profile_path = described;
  plan = make_plan(&world, &elsewhere);
  assert_int_equal(mr_plan_save(plan, plan_path), MR_OK);
  mr_plan_destroy(plan);
  options.plan_path = plan_path;
  check_refused(&world, &options, MR_INVALID, "as a file describes it, not this one itself");
  assert_int_equal(remove(described), 0);
  world_fini(&world);
}

int main(void) {
  snprintf(plan_path, sizeof plan_path, "/var/tmp/memrun-kept-%ld.plan", (long)getpid());
  mr_log_configure(keep_line, NULL, MR_LOG_ERROR);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(kept_plan_runs_to_the_same_bits),
      cmocka_unit_test(what_differs_is_named),
      cmocka_unit_test(open_budgets_are_those_of_the_file),
      cmocka_unit_test(an_even_drive_favours_nobody),
      cmocka_unit_test(damaged_files_are_refused),
      cmocka_unit_test(only_plans_that_fit_are_kept),
      cmocka_unit_test(a_described_machine_is_planned_for_and_not_run_on),
      cmocka_unit_test(a_description_is_not_the_machine_of_its_name),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  (void)unlink(plan_path);
  return failed;
}

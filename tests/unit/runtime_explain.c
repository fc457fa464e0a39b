/* SPDX-License-Identifier: Apache-2.0 */
/* mr_plan_explain: its answers hold when the questions are asked one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "unit/runtime_world.h"

/* A machine whose speeds are known, so that nothing depends on the one that tests. */
static const char *const profile_path = SHED_PROFILE;
static const struct world_shape shape = {6, 200 * 1000 + 7};

static void set_budgets(struct mr_options *options, uint64_t device_bytes) {
  mr_options_init(options);
  options->profile_path = profile_path;
  options->device_bytes = device_bytes;
  options->host_bytes = MR_MIB;
  options->threads = 2;
}

static struct mr_plan *make_plan(const struct world *world, uint64_t device_bytes,
                                 struct mr_plan_summary *summary_out) {
  struct mr_options options;
  struct mr_plan *plan = NULL;
  set_budgets(&options, device_bytes);
  assert_int_equal(mr_plan_create(world->graph, &options, &plan), MR_OK);
  mr_plan_summarize(plan, summary_out);
  return plan;
}

static json_t *explain(const struct mr_plan *plan) {
  char *text = NULL;
  assert_int_equal(mr_plan_explain(plan, &text), MR_OK);
  json_t *root = json_loads(text, 0, NULL);
  free(text);
  assert_non_null(root);
  return root;
}

static double number(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  assert_true(json_is_number(value));
  return json_number_value(value);
}

static uint64_t smallest_budget(const struct world *world) {
  struct mr_plan_summary summary;
  struct mr_plan *plan = make_plan(world, 4096, &summary);
  assert_false(summary.fits);
  mr_plan_destroy(plan);
  return summary.smallest_device_bytes;
}

static void check_tiers(const struct mr_plan_summary *summary, const json_t *root) {
  static const char *const names[MR_TIER_COUNT] = {"device", "host", "nvme"};
  for (uint32_t t = 0; t < MR_TIER_COUNT; t++) {
    const json_t *tier = json_object_get(json_object_get(root, "tiers"), names[t]);
    assert_true(number(tier, "need_bytes") == (double)summary->need_bytes[t]);
    assert_true(number(tier, "budget_bytes") == (double)summary->budget_bytes[t]);
    double sum = 0;
    const char *key = NULL;
    json_t *bytes = NULL;
    json_object_foreach(json_object_get(tier, "holds"), key, bytes) {
      sum += json_number_value(bytes);
    }
    assert_true(sum == (double)summary->need_bytes[t]);
  }
}

static void check_gains(const struct mr_plan_summary *summary, const json_t *gains) {
  const char *key = NULL;
  json_t *gain = NULL;
  json_object_foreach((json_t *)(uintptr_t)gains, key, gain) {
    double seconds = number(gain, "predicted_seconds");
    assert_true(json_is_true(json_object_get(gain, "fits")));
    assert_true(seconds <= summary->predicted_seconds);
    assert_true(fabs(summary->predicted_seconds - seconds - number(gain, "gain_seconds")) < 1e-12);
  }
}

static void a_tight_plan_is_explained(void **state) {
  (void)state;
  struct world world;
  struct mr_plan_summary summary;
  world_init(&world, shape);
  struct mr_plan *plan = make_plan(&world, smallest_budget(&world) + MR_MIB, &summary);
  assert_true(summary.fits);
  json_t *root = explain(plan);
  check_tiers(&summary, root);
  check_gains(&summary, json_object_get(root, "one_more_gib"));
  check_gains(&summary, json_object_get(root, "twice_as_fast"));
  double seconds = 0;
  size_t index = 0;
  json_t *phase = NULL;
  json_array_foreach(json_object_get(root, "phases"), index, phase) {
    seconds += number(phase, "seconds");
  }
  assert_int_equal(index, 3);
  assert_true(fabs(seconds - summary.predicted_seconds) < 1e-9 * seconds);
  assert_true(fabs(number(root, "gap") - (summary.predicted_seconds / summary.bound_seconds - 1)) <
              1e-12);
  double written = number(root, "nvme_written_bytes_a_step");
  assert_true(written == (double)summary.moved_bytes[MR_LINK_NVME_WRITE] && written > 0);
  assert_true(fabs(number(root, "nvme_written_bytes_a_day") -
                   written * 86400 / summary.predicted_seconds) < 1);
  json_decref(root);
  mr_plan_destroy(plan);
  world_fini(&world);
}

/* With a GiB more everything fits on the device; the answer is that plan's time. */
static void more_memory_gains_what_it_gains(void **state) {
  (void)state;
  struct world world;
  struct mr_plan_summary tight;
  struct mr_plan_summary roomy;
  world_init(&world, shape);
  uint64_t budget = smallest_budget(&world);
  struct mr_plan *plan = make_plan(&world, budget, &tight);
  struct mr_plan *more = make_plan(&world, budget + MR_GIB, &roomy);
  assert_true(tight.fits && roomy.fits && roomy.predicted_seconds < tight.predicted_seconds);
  json_t *root = explain(plan);
  const json_t *device = json_object_get(json_object_get(root, "one_more_gib"), "device");
  assert_true(fabs(number(device, "predicted_seconds") - roomy.predicted_seconds) <
              1e-9 * roomy.predicted_seconds);
  json_decref(root);
  root = explain(more);
  assert_int_equal(json_array_size(json_object_get(root, "decisions")), 0);
  json_decref(root);
  mr_plan_destroy(plan);
  mr_plan_destroy(more);
  world_fini(&world);
}

static void the_smallest_budget_is_enough(void **state) {
  (void)state;
  struct world world;
  struct mr_plan_summary summary;
  world_init(&world, shape);
  struct mr_plan *plan = make_plan(&world, 2 * smallest_budget(&world), &summary);
  json_t *root = explain(plan);
  uint64_t least = (uint64_t)number(root, "smallest_device_bytes");
  json_decref(root);
  mr_plan_destroy(plan);
  assert_true(least <= summary.need_bytes[MR_TIER_DEVICE]);
  plan = make_plan(&world, least, &summary);
  assert_true(summary.fits);
  mr_plan_destroy(plan);
  world_fini(&world);
}

static void decisions_have_alternatives(void **state) {
  (void)state;
  struct world world;
  struct mr_plan_summary summary;
  world_init(&world, shape);
  struct mr_options options;
  struct mr_plan *plan = NULL;
  set_budgets(&options, smallest_budget(&world) + 2 * MR_MIB);
  options.recompute = MR_RECOMPUTE_NONE; /* so that activations move */
  assert_int_equal(mr_plan_create(world.graph, &options, &plan), MR_OK);
  mr_plan_summarize(plan, &summary);
  assert_true(summary.fits);
  json_t *root = explain(plan);
  const json_t *decisions = json_object_get(root, "decisions");
  size_t count = json_array_size(decisions);
  assert_true(count > 0 && count <= 10);
  double before = INFINITY;
  uint32_t asked = 0;
  for (size_t i = 0; i < count; i++) {
    const json_t *decision = json_array_get(decisions, i);
    assert_true(number(decision, "seconds") <= before && number(decision, "bytes") > 0);
    before = number(decision, "seconds");
    const json_t *without = json_object_get(decision, "without");
    assert_true(json_is_object(without));
    if (json_is_true(json_object_get(without, "fits"))) {
      assert_true(number(without, "predicted_seconds") >= summary.bound_seconds * (1 - 1e-9));
    }
    asked += json_is_object(json_object_get(decision, "again"));
  }
  assert_true(asked > 0); /* some activation among them could be made again */
  json_decref(root);
  mr_plan_destroy(plan);
  world_fini(&world);
}

static void a_job_that_does_not_fit_is_explained_too(void **state) {
  (void)state;
  struct world world;
  struct mr_plan_summary summary;
  world_init(&world, shape);
  struct mr_plan *plan = make_plan(&world, 4096, &summary);
  json_t *root = explain(plan);
  const json_t *device = json_object_get(json_object_get(root, "one_more_gib"), "device");
  assert_true(json_is_true(json_object_get(device, "fits")));
  assert_true(json_is_null(json_object_get(device, "gain_seconds")));
  assert_true(number(root, "smallest_device_bytes") == (double)summary.smallest_device_bytes);
  assert_null(json_object_get(root, "phases"));
  json_decref(root);
  mr_plan_destroy(plan);
  world_fini(&world);
}

/* The shed once more, with a line about its host or without. */
static json_t *explain_beside_a_host(const char *line, struct mr_plan_summary *summary_out) {
  char path[64];
  char text[2048];
  struct world world;
  struct mr_options options;
  struct mr_plan *plan = NULL;
  snprintf(path, sizeof path, "/tmp/memrun-test-shed-%ld.tmp", (long)getpid());
  FILE *file = fopen(profile_path, "re");
  assert_non_null(file);
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  (void)fclose(file);
  file = fopen(path, "we");
  assert_non_null(file);
  assert_true(fprintf(file, "%s%s", text, line) > 0);
  assert_int_equal(fclose(file), 0);
  world_init_host_updates(&world, (struct world_shape){6, 4 * shape.elements});
  mr_options_init(&options);
  options.profile_path = path;
  options.device_bytes = 36 * MR_MIB;
  options.host_bytes = 256 * MR_MIB;
  options.threads = 2;
  assert_int_equal(mr_plan_create(world.graph, &options, &plan), MR_OK);
  assert_int_equal(mr_plan_verify(plan), MR_OK);
  mr_plan_summarize(plan, summary_out);
  json_t *root = explain(plan);
  mr_plan_destroy(plan);
  world_fini(&world);
  assert_int_equal(remove(path), 0);
  return root;
}

static void a_host_beside_the_device_is_explained(void **state) {
  (void)state;
  struct mr_plan_summary summary;
  json_t *root = explain_beside_a_host("host_memory_bandwidth = 50 GB/s\n"
                                       "host_memory_shared = 90 GB/s\n",
                                       &summary);
  assert_true(summary.fits && summary.host_op_count > 0);
  assert_true(summary.host_bytes_per_second == 50e9 && summary.host_seconds > 0);
  assert_true(number(root, "host_ops") == summary.host_op_count);
  assert_true(number(root, "host_bytes_per_second") == 50e9);
  assert_true(number(root, "host_memory_bytes_per_second") == 90e9);
  assert_true(fabs(number(root, "host_seconds") - summary.host_seconds) < 1e-12);
  double with_seconds = summary.predicted_seconds;
  json_decref(root);
  root = explain_beside_a_host("", &summary);
  assert_true(summary.fits && summary.host_op_count == 0 && summary.host_seconds == 0);
  assert_true(json_is_null(json_object_get(root, "host_bytes_per_second")));
  assert_true(json_is_null(json_object_get(root, "host_memory_bytes_per_second")));
  assert_true(with_seconds < summary.predicted_seconds);
  json_decref(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_tight_plan_is_explained),
      cmocka_unit_test(more_memory_gains_what_it_gains),
      cmocka_unit_test(the_smallest_budget_is_enough),
      cmocka_unit_test(decisions_have_alternatives),
      cmocka_unit_test(a_job_that_does_not_fit_is_explained_too),
      cmocka_unit_test(a_host_beside_the_device_is_explained),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

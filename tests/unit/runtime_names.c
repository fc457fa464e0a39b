/* SPDX-License-Identifier: Apache-2.0 */
/* Names and kinds of any bytes: plans are told as JSON, and profiles kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memrun/memrun.h>

#include "base/base.h"

#define BYTES 4096u

static char profile_path[64];

static mr_status add_one(const struct mr_op_call *call) {
  ++*(unsigned char *)call->outputs[0];
  return MR_OK;
}

/* A parameter and a tensor that is made from it, both written by one op. */
static struct mr_graph *make_graph(const char *name, const char *kind) {
  struct mr_graph *graph = NULL;
  mr_tensor_id tensors[2];
  mr_op_id op = 0;
  assert_int_equal(mr_graph_create(&graph), MR_OK);
  const struct mr_tensor_desc weight = {.size_bytes = sizeof weight,
                                        .name = name,
                                        .role = MR_PARAMETER,
                                        .dtype = MR_U8,
                                        .rank = 1,
                                        .shape = {BYTES}};
  struct mr_tensor_desc copy = weight;
  copy.name = "a copy";
  copy.role = MR_DERIVED;
  assert_int_equal(mr_graph_add_tensor(graph, &weight, &tensors[0]), MR_OK);
  assert_int_equal(mr_graph_add_tensor(graph, &copy, &tensors[1]), MR_OK);
  const struct mr_op_desc desc = {.size_bytes = sizeof desc,
                                  .name = name,
                                  .kind = kind,
                                  .run = {add_one},
                                  .inputs = tensors,
                                  .input_count = 1,
                                  .outputs = tensors,
                                  .output_count = 2,
                                  .block = MR_NO_BLOCK};
  assert_int_equal(mr_graph_add_op(graph, &desc, &op), MR_OK);
  return graph;
}

static struct mr_plan *make_plan(const struct mr_graph *graph) {
  struct mr_plan *plan = NULL;
  struct mr_options options;
  mr_options_init(&options);
  options.device_bytes = 64 * MR_MIB;
  options.offload = MR_OFFLOAD_NONE;
  options.threads = 1;
  options.profile_path = profile_path;
  assert_int_equal(mr_plan_create(graph, &options, &plan), MR_OK);
  return plan;
}

/* Bytes that JSON cannot hold are question marks there, and every role has a name. */
static void plans_of_any_names_are_told(void **state) {
  (void)state;
  struct mr_graph *graph = make_graph("a\xffz\xc3\xa9", "kind");
  struct mr_plan *plan = make_plan(graph);
  char *json = NULL;
  assert_int_equal(mr_plan_json(plan, &json), MR_OK);
  assert_non_null(strstr(json, "\"largest_op\":\"a?z??\""));
  assert_non_null(strstr(json, "{\"name\":\"a?z??\",\"role\":\"parameter\",\"bytes\":4096}"));
  assert_non_null(strstr(json, "{\"name\":\"a copy\",\"role\":\"derived\",\"bytes\":4096}"));
  free(json);
  assert_int_equal(mr_plan_explain(plan, &json), MR_OK);
  assert_non_null(strstr(json, "\"peak_op\":\"a?z??\""));
  free(json);
  mr_plan_destroy(plan);
  mr_graph_destroy(graph);
  assert_int_equal(unlink(profile_path), 0);
}

static void count_line(void *context, mr_log_level level, const char *line) {
  (void)level;
  (void)line;
  ++*(uint32_t *)context;
}

/* A kind that is empty, one that is cut within a letter, and one that is no text. What one plan
 * measures the next finds in the file. */
static void profiles_of_any_kinds_are_kept(void **state) {
  (void)state;
  static const char *const kinds[] = {
      "", "\xff\xfe", "an op of a kind whose name is long enough that it is cut there\xc3\xa9",
      "\xe5\xb1\x82"};
  for (uint32_t i = 0; i < MR_COUNT_OF(kinds); i++) {
    struct mr_graph *graph = make_graph("op", kinds[i]);
    mr_plan_destroy(make_plan(graph));
    assert_int_equal(access(profile_path, F_OK), 0);
    struct mr_plan_summary first, second;
    uint32_t lines = 0;
    mr_log_configure(count_line, &lines, MR_LOG_WARN);
    struct mr_plan *plan = make_plan(graph);
    mr_plan_summarize(plan, &first);
    mr_plan_destroy(plan);
    plan = make_plan(graph);
    mr_plan_summarize(plan, &second);
    mr_plan_destroy(plan);
    mr_log_configure(NULL, NULL, MR_LOG_WARN);
    assert_int_equal(lines, 0);
    assert_true(first.predicted_seconds == second.predicted_seconds);
    mr_graph_destroy(graph);
    assert_int_equal(unlink(profile_path), 0);
  }
}

int main(void) {
  snprintf(profile_path, sizeof profile_path, "/tmp/memrun-names-%d.json", (int)getpid());
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(plans_of_any_names_are_told),
      cmocka_unit_test(profiles_of_any_kinds_are_kept),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

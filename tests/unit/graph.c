/* SPDX-License-Identifier: Apache-2.0 */
/* graph/: what building accepts and refuses, names, copies, accesses, working sets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "graph/graph.h"

#define MANY_TENSORS 5000u

static mr_status no_run(const struct mr_op_call *call) {
  (void)call;
  return MR_OK;
}

static void ignore_line(void *context, mr_log_level level, const char *line) {
  (void)level;
  (void)line;
  ++*(uint32_t *)context;
}

/* Each refusal logs exactly one line. */
static uint32_t lines;

static int quiet(void **state) {
  (void)state;
  lines = 0;
  mr_log_configure(ignore_line, &lines, MR_LOG_INFO);
  return 0;
}

static int loud(void **state) {
  (void)state;
  mr_log_configure(NULL, NULL, MR_LOG_INFO);
  return 0;
}

static struct mr_tensor_desc tensor_desc(const char *name, mr_role role, uint64_t elements) {
  return (struct mr_tensor_desc){.size_bytes = sizeof(struct mr_tensor_desc),
                                 .name = name,
                                 .role = role,
                                 .dtype = MR_F32,
                                 .rank = 1,
                                 .shape = {elements}};
}

static mr_tensor_id tensor(struct mr_graph *graph, const char *name, mr_role role,
                           uint64_t elements) {
  struct mr_tensor_desc desc = tensor_desc(name, role, elements);
  mr_tensor_id id = 0;
  assert_int_equal(mr_graph_add_tensor(graph, &desc, &id), MR_OK);
  return id;
}

static struct mr_op_desc op_desc(const mr_tensor_id *inputs, uint32_t input_count,
                                 const mr_tensor_id *outputs, uint32_t output_count) {
  return (struct mr_op_desc){.size_bytes = sizeof(struct mr_op_desc),
                             .name = "op",
                             .kind = "kind",
                             .run = {no_run},
                             .inputs = inputs,
                             .input_count = input_count,
                             .outputs = outputs,
                             .output_count = output_count,
                             .block = MR_NO_BLOCK};
}

static mr_status op(struct mr_graph *graph, const mr_tensor_id *inputs, uint32_t input_count,
                    const mr_tensor_id *outputs, uint32_t output_count) {
  struct mr_op_desc desc = op_desc(inputs, input_count, outputs, output_count);
  mr_op_id id = 0;
  return mr_graph_add_op(graph, &desc, &id);
}

static struct mr_graph *empty(void) {
  struct mr_graph *graph = NULL;
  assert_int_equal(mr_graph_create(&graph), MR_OK);
  return graph;
}

static void tensors_have_bytes_and_names(void **state) {
  (void)state;
  struct mr_graph *graph = empty();
  mr_tensor_id found = 7;
  assert_int_equal(mr_graph_find(graph, "nothing", &found), MR_INVALID);
  char name[32];
  for (uint32_t i = 0; i < MANY_TENSORS; i++) {
    snprintf(name, sizeof name, "tensor.%u", i);
    assert_int_equal(tensor(graph, name, MR_ACTIVATION, i + 1), i);
  }
  assert_int_equal(mr_graph_tensor_count(graph), MANY_TENSORS);
  for (uint32_t i = 0; i < MANY_TENSORS; i++) {
    snprintf(name, sizeof name, "tensor.%u", i);
    assert_int_equal(mr_graph_find(graph, name, &found), MR_OK);
    assert_int_equal(found, i);
    assert_int_equal(mr_graph_tensor_bytes(graph, i), 4ull * (i + 1));
    assert_string_equal(mr_graph_tensor_name(graph, i), name);
  }
  assert_int_equal(mr_graph_find(graph, "tensor.5000", &found), MR_INVALID);
  assert_int_equal(lines, 0);
  mr_graph_destroy(graph);
  mr_graph_destroy(NULL);
}

static void scalars_and_dtypes(void **state) {
  (void)state;
  static const struct {
    mr_dtype dtype;
    uint64_t bytes;
  } dtypes[] = {{MR_F32, 4}, {MR_BF16, 2}, {MR_F64, 8}, {MR_I32, 4}, {MR_I64, 8}, {MR_U8, 1}};
  struct mr_graph *graph = empty();
  for (size_t i = 0; i < MR_COUNT_OF(dtypes); i++) {
    char name[8];
    snprintf(name, sizeof name, "t%zu", i);
    struct mr_tensor_desc desc = tensor_desc(name, MR_STATE, 1);
    desc.dtype = dtypes[i].dtype;
    desc.rank = 0;
    mr_tensor_id id = 0;
    assert_int_equal(mr_graph_add_tensor(graph, &desc, &id), MR_OK);
    assert_int_equal(mr_graph_tensor_bytes(graph, id), dtypes[i].bytes);
    assert_int_equal(mr_dtype_bytes(dtypes[i].dtype), dtypes[i].bytes);
    assert_int_equal(mr_graph_tensor_role(graph, id), MR_STATE);
  }
  assert_int_equal(mr_dtype_bytes((mr_dtype)99), 0);
  mr_graph_destroy(graph);
}

static void bad_tensors_are_refused(void **state) {
  (void)state;
  struct mr_graph *graph = empty();
  (void)tensor(graph, "taken", MR_STATE, 1);
  struct mr_tensor_desc bad[9];
  for (size_t i = 0; i < MR_COUNT_OF(bad); i++) {
    bad[i] = tensor_desc("new", MR_STATE, 8);
  }
  bad[0].name = "taken";
  bad[1].name = "";
  bad[2].name = NULL;
  bad[3].shape[0] = 0;
  bad[4].shape[0] = UINT64_MAX;
  bad[5].shape[0] = 1ull << 60;
  bad[6].rank = MR_MAX_RANK + 1;
  bad[7].dtype = (mr_dtype)42;
  bad[8].role = (mr_role)-1;
  for (size_t i = 0; i < MR_COUNT_OF(bad); i++) {
    mr_tensor_id id = 77;
    assert_int_equal(mr_graph_add_tensor(graph, &bad[i], &id), MR_INVALID);
    assert_int_equal(id, 77);
    assert_int_equal(lines, i + 1);
  }
  struct mr_tensor_desc old = tensor_desc("new", MR_STATE, 8);
  old.size_bytes = 0;
  mr_tensor_id id = 0;
  assert_int_equal(mr_graph_add_tensor(graph, &old, &id), MR_INVALID);
  assert_int_equal(mr_graph_tensor_count(graph), 1);
  mr_graph_destroy(graph);
}

static void bad_ops_are_refused(void **state) {
  (void)state;
  struct mr_graph *graph = empty();
  mr_tensor_id in = tensor(graph, "in", MR_INPUT, 1);
  mr_tensor_id w = tensor(graph, "w", MR_PARAMETER, 1);
  mr_tensor_id a = tensor(graph, "a", MR_ACTIVATION, 1);
  mr_tensor_id nothing = 12345;
  const mr_tensor_id twice[] = {w, w};
  assert_int_equal(op(graph, &a, 1, &w, 1), MR_INVALID);       /* read before written */
  assert_int_equal(op(graph, &a, 1, &a, 1), MR_INVALID);       /* in place, too */
  assert_int_equal(op(graph, &w, 1, &in, 1), MR_INVALID);      /* writes an input */
  assert_int_equal(op(graph, twice, 2, &a, 1), MR_INVALID);    /* twice among inputs */
  assert_int_equal(op(graph, &w, 1, twice, 2), MR_INVALID);    /* twice among outputs */
  assert_int_equal(op(graph, &nothing, 1, &a, 1), MR_INVALID); /* unknown */
  assert_int_equal(op(graph, &w, 1, &nothing, 1), MR_INVALID);
  assert_int_equal(op(graph, NULL, 0, NULL, 0), MR_INVALID);
  assert_int_equal(lines, 8);
  struct mr_op_desc bad[12];
  for (size_t i = 0; i < MR_COUNT_OF(bad); i++) {
    bad[i] = op_desc(&w, 1, &a, 1);
  }
  bad[0].name = NULL;
  bad[1].kind = NULL;
  bad[2].run[MR_BACKEND_CPU] = NULL;
  bad[3].flops = -1;
  bad[4].scratch_bytes = UINT64_MAX;
  bad[5].input_count = MR_MAX_OPERANDS + 1;
  bad[6].size_bytes = 8;
  bad[7].inputs = NULL;
  bad[8].flops = INFINITY;
  bad[9].flops = 1e31;
  bad[10].attributes_bytes = 4;
  bad[11].flags = 1u << 4;
  for (size_t i = 0; i < MR_COUNT_OF(bad); i++) {
    mr_op_id id = 0;
    assert_int_equal(mr_graph_add_op(graph, &bad[i], &id), MR_INVALID);
    assert_int_equal(lines, 9 + i);
  }
  assert_int_equal(mr_graph_op_count(graph), 0);
  /* None of them marked `a` as written. */
  assert_int_equal(op(graph, &a, 1, &w, 1), MR_INVALID);
  assert_int_equal(op(graph, &w, 1, &a, 1), MR_OK);
  assert_int_equal(op(graph, &a, 1, &w, 1), MR_OK);
  mr_graph_destroy(graph);
}

static void ops_are_copied(void **state) {
  (void)state;
  struct mr_graph *graph = empty();
  mr_tensor_id operands[] = {tensor(graph, "w", MR_PARAMETER, 10),
                             tensor(graph, "a", MR_ACTIVATION, 20)};
  char name[] = "first";
  uint32_t attributes = 42;
  struct mr_op_desc desc = op_desc(&operands[0], 1, &operands[1], 1);
  desc.name = name;
  desc.signature = "a->b";
  desc.attributes = &attributes;
  desc.attributes_bytes = sizeof attributes;
  desc.scratch_bytes = 100;
  desc.block = 3;
  desc.flags = MR_OP_REPEATABLE;
  mr_op_id id = 9;
  assert_int_equal(mr_graph_add_op(graph, &desc, &id), MR_OK);
  assert_int_equal(id, 0);
  name[0] = 'X';
  attributes = 0;
  operands[0] = operands[1] = 0;
  const struct mr_op *made = &graph->ops[0];
  assert_string_equal(made->name, "first");
  assert_string_equal(made->signature, "a->b");
  assert_int_equal(*(const uint32_t *)made->attributes, 42);
  assert_int_equal(made->inputs[0], 0);
  assert_int_equal(made->outputs[0], 1);
  assert_int_equal(made->memory_bytes, 120);
  assert_int_equal(made->clone_of, MR_NO_OP);
  assert_int_equal(mr_op_working_bytes(graph, 0, 1), 220);
  assert_int_equal(mr_op_working_bytes(graph, 0, 64), 64 + 128 + 128);
  mr_graph_destroy(graph);
}

/* w -> a; a w -> w; a -> a: who touches what, and how. */
static struct mr_graph *three_ops(mr_tensor_id *w_out, mr_tensor_id *a_out) {
  struct mr_graph *graph = empty();
  mr_tensor_id w = tensor(graph, "w", MR_PARAMETER, 10);
  mr_tensor_id a = tensor(graph, "a", MR_ACTIVATION, 20);
  const mr_tensor_id both[] = {a, w};
  assert_int_equal(op(graph, &w, 1, &a, 1), MR_OK);
  assert_int_equal(op(graph, both, 2, &w, 1), MR_OK);
  assert_int_equal(op(graph, &a, 1, &a, 1), MR_OK);
  *w_out = w;
  *a_out = a;
  return graph;
}

static void accesses_are_listed(void **state) {
  (void)state;
  mr_tensor_id w = 0;
  mr_tensor_id a = 0;
  struct mr_graph *graph = three_ops(&w, &a);
  struct mr_liveness liveness;
  assert_int_equal(mr_liveness_init(&liveness, graph), MR_OK);
  static const struct mr_access expected_w[] = {{0, true, false}, {1, true, true}};
  static const struct mr_access expected_a[] = {
      {0, false, true}, {1, true, false}, {2, true, true}};
  assert_int_equal(liveness.first[w + 1] - liveness.first[w], MR_COUNT_OF(expected_w));
  assert_int_equal(liveness.first[a + 1] - liveness.first[a], MR_COUNT_OF(expected_a));
  for (size_t i = 0; i < MR_COUNT_OF(expected_w); i++) {
    const struct mr_access *access = &liveness.accesses[liveness.first[w] + i];
    assert_int_equal(access->op, expected_w[i].op);
    assert_int_equal(access->reads, expected_w[i].reads);
    assert_int_equal(access->writes, expected_w[i].writes);
  }
  for (size_t i = 0; i < MR_COUNT_OF(expected_a); i++) {
    const struct mr_access *access = &liveness.accesses[liveness.first[a] + i];
    assert_int_equal(access->op, expected_a[i].op);
    assert_int_equal(access->reads, expected_a[i].reads);
    assert_int_equal(access->writes, expected_a[i].writes);
  }
  /* An in-place operand counts once. */
  assert_int_equal(mr_op_working_bytes(graph, 1, 1), 120);
  assert_int_equal(mr_op_working_bytes(graph, 2, 1), 80);
  mr_liveness_fini(&liveness);
  mr_graph_destroy(graph);
}

static void empty_graphs_have_no_accesses(void **state) {
  (void)state;
  struct mr_graph *graph = empty();
  struct mr_liveness liveness;
  assert_int_equal(mr_liveness_init(&liveness, graph), MR_OK);
  assert_int_equal(liveness.first[0], 0);
  mr_liveness_fini(&liveness);
  mr_graph_destroy(graph);
}

static void copies_take_mapped_ops(void **state) {
  (void)state;
  mr_tensor_id w = 0;
  mr_tensor_id a = 0;
  struct mr_graph *graph = three_ops(&w, &a);
  struct mr_graph *copy = NULL;
  assert_int_equal(mr_graph_copy_tensors(graph, &copy), MR_OK);
  assert_int_equal(mr_graph_tensor_count(copy), 2);
  assert_int_equal(mr_graph_op_count(copy), 0);
  mr_tensor_id fresh = tensor(copy, "a.again", MR_ACTIVATION, 20);
  const mr_tensor_id map[] = {w, fresh};
  /* In the copy nothing has written `a` yet. */
  assert_int_equal(mr_graph_append_op(copy, &graph->ops[1], map, "", MR_NO_OP), MR_INVALID);
  assert_int_equal(mr_graph_append_op(copy, &graph->ops[0], map, ".again", 0), MR_OK);
  assert_int_equal(mr_graph_append_op(copy, &graph->ops[1], map, "", MR_NO_OP), MR_OK);
  assert_string_equal(copy->ops[0].name, "op.again");
  assert_int_equal(copy->ops[0].clone_of, 0);
  assert_int_equal(copy->ops[0].outputs[0], fresh);
  assert_int_equal(copy->ops[0].memory_bytes, graph->ops[0].memory_bytes);
  assert_int_equal(copy->ops[1].inputs[0], fresh);
  assert_int_equal(copy->ops[1].outputs[0], w);
  mr_graph_destroy(copy);
  mr_graph_destroy(graph);
}

#define GRAPH_TEST(name) cmocka_unit_test_setup_teardown(name, quiet, loud)

int main(void) {
  const struct CMUnitTest tests[] = {
      GRAPH_TEST(tensors_have_bytes_and_names),
      GRAPH_TEST(scalars_and_dtypes),
      GRAPH_TEST(bad_tensors_are_refused),
      GRAPH_TEST(bad_ops_are_refused),
      GRAPH_TEST(ops_are_copied),
      GRAPH_TEST(accesses_are_listed),
      GRAPH_TEST(empty_graphs_have_no_accesses),
      GRAPH_TEST(copies_take_mapped_ops),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A stranger's C program: a graph of one op, built through the installed headers. */
#include <memrun/memrun.h>
#include <stdio.h>
#include <string.h>

static mr_status copy(const struct mr_op_call *call) {
  memcpy(call->outputs[0], call->inputs[0], 16);
  return MR_OK;
}

static mr_status build(struct mr_graph *graph) {
  struct mr_tensor_desc desc = {
      .size_bytes = sizeof desc, .name = "x", .role = MR_INPUT, .rank = 1, .shape = {4}};
  mr_tensor_id x = 0;
  mr_tensor_id y = 0;
  mr_op_id op = 0;
  mr_status status = mr_graph_add_tensor(graph, &desc, &x);
  if (status != MR_OK) {
    return status;
  }
  desc.name = "y";
  desc.role = MR_STATE;
  status = mr_graph_add_tensor(graph, &desc, &y);
  if (status != MR_OK) {
    return status;
  }
  struct mr_op_desc op_desc = {.size_bytes = sizeof op_desc,
                               .name = "copy",
                               .kind = "copy",
                               .run = {copy},
                               .inputs = &x,
                               .input_count = 1,
                               .outputs = &y,
                               .output_count = 1,
                               .block = MR_NO_BLOCK};
  return mr_graph_add_op(graph, &op_desc, &op);
}

int main(void) {
  struct mr_graph *graph = NULL;
  mr_status status = mr_graph_create(&graph);
  if (status == MR_OK) {
    status = build(graph);
  }
  if (status == MR_OK && (mr_graph_tensor_count(graph) != 2 || mr_graph_op_count(graph) != 1)) {
    status = MR_MISMATCH;
  }
  mr_graph_destroy(graph);
  printf("C: %s\n", mr_status_message(status));
  return mr_status_exit(status);
}

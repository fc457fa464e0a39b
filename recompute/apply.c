/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pass: walks the program once and puts clones in front of the first backward op that needs
 * what they make. From there on backward ops read the fresh tensors; when a tensor gets its next
 * value, its readers go back to the tensor itself. Ops that run in evaluation never read a fresh
 * tensor, because clones run in training alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "recompute/recompute.h"
#include "recompute/values.h"

/* The suffix of a clone's name and of the tensors that it makes. */
#define SUFFIX         ".again"
#define LONGEST_SUFFIX 32u /* ".again" and a number */

struct rewrite {
  const struct mr_graph *graph;
  struct mr_values values;
  struct mr_graph *program;
  bool *selected;         /* of each op: it runs again */
  bool *cloned;           /* of each op: its clone is in the program */
  mr_tensor_id *original; /* original[t] = t */
  mr_tensor_id *now;      /* of each tensor: where backward ops find its present value */
  mr_op_id *pending;      /* clones to put in at this place */
  uint32_t pending_count;
};

static int op_compare(const void *left, const void *right) {
  mr_op_id a = *(const mr_op_id *)left;
  mr_op_id b = *(const mr_op_id *)right;
  return (a > b) - (a < b);
}

static void pending_add(struct rewrite *r, uint32_t number) {
  const struct mr_value *value = &r->values.values[number];
  if (value->remakable && r->selected[value->producer] && !r->cloned[value->producer]) {
    r->cloned[value->producer] = true;
    r->pending[r->pending_count++] = value->producer;
  }
}

/* A tensor like `tensor` under a name that is not taken. */
static mr_status fresh_tensor(struct mr_graph *program, mr_tensor_id tensor,
                              mr_tensor_id *fresh_out) {
  const struct mr_tensor *like = &program->tensors[tensor];
  size_t name_bytes = strlen(like->name) + LONGEST_SUFFIX;
  char *name = mr_allocate(1, name_bytes);
  if (name == NULL) {
    return MR_NO_MEMORY;
  }
  snprintf(name, name_bytes, "%s" SUFFIX, like->name);
  mr_tensor_id taken = 0;
  for (uint32_t i = 2; mr_graph_find(program, name, &taken) == MR_OK; i++) {
    snprintf(name, name_bytes, "%s" SUFFIX "%u", like->name, i);
  }
  struct mr_tensor_desc desc = {
      .size_bytes = sizeof desc,
      .name = name,
      .role = like->role,
      .dtype = like->dtype,
      .rank = like->rank,
  };
  memcpy(desc.shape, like->shape, sizeof desc.shape);
  mr_status status = mr_graph_add_tensor(program, &desc, fresh_out);
  free(name);
  return status;
}

/*
 * Appends the clone of op k in front of op `place`; its outputs are fresh. What is remakable and
 * still its tensor's value is read there from now on.
 */
static mr_status clone_append(struct rewrite *r, mr_op_id k, mr_op_id place) {
  const struct mr_op *op = &r->graph->ops[k];
  uint32_t first_output = r->values.first_operand[k] + op->input_count;
  mr_tensor_id kept[MR_MAX_OPERANDS];
  mr_status status = MR_OK;
  uint32_t made = 0;
  while (status == MR_OK && made < op->output_count) {
    mr_tensor_id fresh = 0;
    status = fresh_tensor(r->program, op->outputs[made], &fresh);
    if (status == MR_OK) {
      kept[made] = r->now[op->outputs[made]];
      r->now[op->outputs[made++]] = fresh;
    }
  }
  if (status == MR_OK) {
    status = mr_graph_append_op(r->program, op, r->now, SUFFIX, k);
  }
  if (status != MR_OK) {
    return status;
  }
  r->program->ops[r->program->op_count - 1].flags |= MR_OP_TRAIN_ONLY;
  for (uint32_t i = 0; i < op->output_count; i++) {
    const struct mr_value *value = &r->values.values[r->values.operands[first_output + i]];
    if (!value->remakable || r->values.changed_at[first_output + i] < place) {
      r->now[op->outputs[i]] = kept[i];
    }
  }
  return MR_OK;
}

/* Puts in, in program order, every clone that op k needs and that is not there yet. */
static mr_status clones_append(struct rewrite *r, mr_op_id k) {
  const struct mr_op *op = &r->graph->ops[k];
  const struct mr_values *values = &r->values;
  r->pending_count = 0;
  for (uint32_t i = 0; i < op->input_count; i++) {
    pending_add(r, values->operands[values->first_operand[k] + i]);
  }
  for (uint32_t done = 0; done < r->pending_count; done++) {
    mr_op_id clone = r->pending[done];
    for (uint32_t i = 0; i < r->graph->ops[clone].input_count; i++) {
      pending_add(r, values->operands[values->first_operand[clone] + i]);
    }
  }
  qsort(r->pending, r->pending_count, sizeof *r->pending, op_compare);
  mr_status status = MR_OK;
  for (uint32_t i = 0; status == MR_OK && i < r->pending_count; i++) {
    status = clone_append(r, r->pending[i], k);
  }
  return status;
}

static mr_status program_append(struct rewrite *r, mr_op_id k) {
  const struct mr_op *op = &r->graph->ops[k];
  bool train_only = (op->flags & MR_OP_TRAIN_ONLY) != 0;
  mr_status status = train_only ? clones_append(r, k) : MR_OK;
  if (status != MR_OK) {
    return status;
  }
  const uint32_t *operands = &r->values.operands[r->values.first_operand[k]];
  for (uint32_t i = 0; i < op->output_count; i++) {
    if (r->values.values[operands[op->input_count + i]].producer == k) {
      r->now[op->outputs[i]] = op->outputs[i];
    }
  }
  return mr_graph_append_op(r->program, op, train_only ? r->now : r->original, "", op->clone_of);
}

static mr_status rewrite_init(struct rewrite *r, const struct mr_graph *graph) {
  *r = (struct rewrite){.graph = graph};
  mr_status status = mr_values_init(&r->values, graph);
  if (status != MR_OK) {
    return status;
  }
  r->selected = mr_allocate(graph->op_count, sizeof *r->selected);
  r->cloned = mr_allocate(graph->op_count, sizeof *r->cloned);
  r->original = mr_allocate(graph->tensor_count, sizeof *r->original);
  r->now = mr_allocate(graph->tensor_count, sizeof *r->now);
  r->pending = mr_allocate(graph->op_count, sizeof *r->pending);
  if (r->selected == NULL || r->cloned == NULL || r->original == NULL || r->now == NULL ||
      r->pending == NULL) {
    return MR_NO_MEMORY;
  }
  for (mr_tensor_id t = 0; t < graph->tensor_count; t++) {
    r->original[t] = t;
    r->now[t] = t;
  }
  return mr_graph_copy_tensors(graph, &r->program);
}

static void rewrite_fini(struct rewrite *r) {
  mr_values_fini(&r->values);
  free(r->selected);
  free(r->cloned);
  free(r->original);
  free(r->now);
  free(r->pending);
}

/* Writes the program with the selected ops cloned, unless something has failed before, and ends the
 * rewrite. */
static mr_status rewrite_finish(struct rewrite *r, mr_status status,
                                struct mr_graph **program_out) {
  for (mr_op_id k = 0; status == MR_OK && k < r->graph->op_count; k++) {
    status = program_append(r, k);
  }
  if (status == MR_OK) {
    *program_out = r->program;
  } else {
    mr_graph_destroy(r->program);
  }
  rewrite_fini(r);
  return status;
}

mr_status mr_recompute_apply(const struct mr_recompute_menu *menu, const struct mr_graph *graph,
                             const uint32_t *selected, struct mr_graph **program_out) {
  struct rewrite r;
  mr_status status = rewrite_init(&r, graph);
  for (uint32_t i = 0; status == MR_OK && i < menu->block_count; i++) {
    MR_ASSERT(selected[i] < menu->blocks[i].choice_count);
    const struct mr_recompute_choice *choice = &menu->blocks[i].choices[selected[i]];
    for (uint32_t j = 0; j < choice->op_count; j++) {
      MR_ASSERT(choice->ops[j] < graph->op_count && r.values.repeatable[choice->ops[j]]);
      r.selected[choice->ops[j]] = true;
    }
  }
  return rewrite_finish(&r, status, program_out);
}

mr_status mr_recompute_repeat(const struct mr_graph *graph, const mr_op_id *ops, uint32_t op_count,
                              struct mr_graph **program_out) {
  struct rewrite r;
  mr_status status = rewrite_init(&r, graph);
  for (uint32_t i = 0; status == MR_OK && i < op_count; i++) {
    if (ops[i] >= graph->op_count || !r.values.repeatable[ops[i]]) {
      status = MR_INVALID;
    } else {
      r.selected[ops[i]] = true;
    }
  }
  return rewrite_finish(&r, status, program_out);
}

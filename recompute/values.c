/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a program: who makes, reads and changes them, and which can be made again. */
#include "recompute/values.h"

#include <stdlib.h>

#include "base/base.h"

static bool is_train_only(const struct mr_op *op) {
  return (op->flags & MR_OP_TRAIN_ONLY) != 0;
}

bool mr_value_lives_anyway(const struct mr_values *values, uint32_t value) {
  return values->values[value].producer == MR_NO_OP ||
         values->values[value].first_train != MR_NO_OP;
}

/* One op touches a value; `changes` says in place. */
static void value_touch(struct mr_values *v, uint32_t number, mr_op_id k, bool changes) {
  struct mr_value *value = &v->values[number];
  const struct mr_op *op = &v->graph->ops[k];
  if (value->producer == MR_NO_OP) {
    return;
  }
  if (is_train_only(op)) {
    value->first_train = value->first_train == MR_NO_OP ? k : value->first_train;
    return;
  }
  value->border = value->border || op->block != v->graph->ops[value->producer].block;
  value->changed = value->changed || changes;
  value->border = value->border || value->first_train != MR_NO_OP;
}

static void values_number(struct mr_values *v, uint32_t *current) {
  const struct mr_graph *graph = v->graph;
  for (mr_tensor_id t = 0; t < graph->tensor_count; t++) {
    current[t] = MR_NO_VALUE;
    mr_role role = graph->tensors[t].role;
    if (role == MR_INPUT || mr_role_is_persistent(role)) {
      current[t] = v->value_count;
      v->values[v->value_count++] =
          (struct mr_value){.tensor = t, .producer = MR_NO_OP, .first_train = MR_NO_OP};
    }
  }
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    const struct mr_op *op = &graph->ops[k];
    uint32_t *operands = &v->operands[v->first_operand[k]];
    for (uint32_t i = 0; i < op->input_count; i++) {
      operands[i] = current[op->inputs[i]];
      value_touch(v, operands[i], k, false);
    }
    for (uint32_t i = 0; i < op->output_count; i++) {
      mr_tensor_id tensor = op->outputs[i];
      if (mr_op_reads(op, tensor)) {
        value_touch(v, current[tensor], k, true);
      } else {
        current[tensor] = v->value_count;
        v->values[v->value_count++] =
            (struct mr_value){.tensor = tensor, .producer = k, .first_train = MR_NO_OP};
      }
      operands[op->input_count + i] = current[tensor];
    }
  }
}

/* Walks backwards and notes for each operand which later op is the first to write its tensor. */
static void changes_find(struct mr_values *v, mr_op_id *next_write) {
  const struct mr_graph *graph = v->graph;
  for (mr_tensor_id t = 0; t < graph->tensor_count; t++) {
    next_write[t] = graph->op_count;
  }
  for (mr_op_id k = graph->op_count; k-- > 0;) {
    const struct mr_op *op = &graph->ops[k];
    mr_op_id *changed_at = &v->changed_at[v->first_operand[k]];
    for (uint32_t i = 0; i < op->input_count; i++) {
      changed_at[i] = next_write[op->inputs[i]];
    }
    for (uint32_t i = 0; i < op->output_count; i++) {
      changed_at[op->input_count + i] = next_write[op->outputs[i]];
    }
    for (uint32_t i = 0; i < op->output_count; i++) {
      next_write[op->outputs[i]] = k;
    }
  }
}

/* What the op itself says: it repeats, changes nothing in place and writes nothing that lasts. */
static bool op_may_repeat(const struct mr_graph *graph, const struct mr_op *op) {
  if ((op->flags & MR_OP_REPEATABLE) == 0 || is_train_only(op) || op->block == MR_NO_BLOCK) {
    return false;
  }
  for (uint32_t i = 0; i < op->output_count; i++) {
    if (mr_op_reads(op, op->outputs[i]) ||
        mr_role_is_persistent(graph->tensors[op->outputs[i]].role)) {
      return false;
    }
  }
  return true;
}

/*
 * A clone goes right before the first op that needs one of its outputs: the first backward op that
 * touches one of them, or else one of the clones that read them. 0: nobody would need it.
 */
static mr_op_id latest_place(const struct mr_values *v, mr_op_id k, const mr_op_id *value_latest) {
  const struct mr_op *op = &v->graph->ops[k];
  const uint32_t *outputs = &v->operands[v->first_operand[k] + op->input_count];
  mr_op_id backward = MR_NO_OP;
  mr_op_id clones = 0;
  for (uint32_t i = 0; i < op->output_count; i++) {
    const struct mr_value *value = &v->values[outputs[i]];
    if (!value->border && !value->changed) {
      backward = value->first_train < backward ? value->first_train : backward;
      clones = value_latest[outputs[i]] > clones ? value_latest[outputs[i]] : clones;
    }
  }
  return backward != MR_NO_OP ? backward : clones;
}

/*
 * Decides from the last op to the first, so that the clones that could read an op's outputs are
 * known. Before the latest place of a clone no input may have been written, whatever else is
 * chosen.
 */
static void repeatable_find(struct mr_values *v, mr_op_id *value_latest) {
  const struct mr_graph *graph = v->graph;
  for (mr_op_id k = graph->op_count; k-- > 0;) {
    const struct mr_op *op = &graph->ops[k];
    const uint32_t *operands = &v->operands[v->first_operand[k]];
    mr_op_id latest = op_may_repeat(graph, op) ? latest_place(v, k, value_latest) : 0;
    v->repeatable[k] = latest > 0;
    for (uint32_t i = 0; i < op->input_count; i++) {
      bool unchanged = v->changed_at[v->first_operand[k] + i] >= latest;
      v->repeatable[k] = v->repeatable[k] && unchanged;
    }
    if (!v->repeatable[k]) {
      continue;
    }
    for (uint32_t i = 0; i < op->input_count; i++) {
      mr_op_id *input = &value_latest[operands[i]];
      *input = *input > latest ? *input : latest;
    }
    for (uint32_t i = 0; i < op->output_count; i++) {
      struct mr_value *value = &v->values[operands[op->input_count + i]];
      value->remakable = !value->border && !value->changed;
    }
  }
}

mr_status mr_values_init(struct mr_values *values, const struct mr_graph *graph) {
  struct mr_values v = {.graph = graph};
  uint32_t operand_count = 0;
  uint64_t value_limit = graph->tensor_count;
  mr_status status = MR_NO_MEMORY;
  uint32_t *current = mr_allocate(graph->tensor_count, sizeof *current);
  mr_op_id *value_latest = NULL;
  v.first_operand = mr_allocate(graph->op_count + 1ull, sizeof *v.first_operand);
  if (current == NULL || v.first_operand == NULL) {
    goto done;
  }
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    v.first_operand[k] = operand_count;
    operand_count += graph->ops[k].input_count + graph->ops[k].output_count;
    value_limit += graph->ops[k].output_count;
  }
  v.first_operand[graph->op_count] = operand_count;
  v.values = mr_allocate(value_limit, sizeof *v.values);
  v.operands = mr_allocate(operand_count, sizeof *v.operands);
  v.changed_at = mr_allocate(operand_count, sizeof *v.changed_at);
  v.repeatable = mr_allocate(graph->op_count, sizeof *v.repeatable);
  value_latest = mr_allocate(value_limit, sizeof *value_latest);
  if (v.values == NULL || v.operands == NULL || v.changed_at == NULL || v.repeatable == NULL ||
      value_latest == NULL) {
    goto done;
  }
  values_number(&v, current);
  changes_find(&v, current);
  repeatable_find(&v, value_latest);
  *values = v;
  status = MR_OK;

done:
  free(current);
  free(value_latest);
  if (status != MR_OK) {
    mr_values_fini(&v);
  }
  return status;
}

void mr_values_fini(struct mr_values *values) {
  free(values->values);
  free(values->operands);
  free(values->first_operand);
  free(values->changed_at);
  free(values->repeatable);
  *values = (struct mr_values){0};
}

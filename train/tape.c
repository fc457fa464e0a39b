/* SPDX-License-Identifier: Apache-2.0 */
/* Layer calls, and the backward rule of each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/common.h"
#include "train/tape_record.h"

mr_status tape_init(struct tape *tape, const struct op_builder *builder,
                    const struct op_shape *shape, struct tape_parameter *parameters,
                    uint32_t layer_calls) {
  struct tape made = {.builder = *builder,
                      .shape = *shape,
                      .parameters = parameters,
                      .capacity = layer_calls,
                      .block = MR_NO_BLOCK};
  made.values = train_allocate(layer_calls, sizeof *made.values);
  made.records = train_allocate(layer_calls, sizeof *made.records);
  if (made.values == NULL || made.records == NULL) {
    tape_fini(&made);
    return MR_NO_MEMORY;
  }
  *tape = made;
  return MR_OK;
}

void tape_fini(struct tape *tape) {
  free(tape->values);
  free(tape->records);
  tape->values = NULL;
  tape->records = NULL;
}

mr_status tape_status(const struct tape *tape) {
  return tape->status;
}

void tape_begin(struct tape *tape, uint32_t micro_step, uint32_t micro_step_count) {
  tape->micro_step = micro_step;
  tape->micro_step_count = micro_step_count;
  tape->value_count = 0;
  tape->record_count = 0;
  tape_section(tape, MR_NO_BLOCK, "");
}

void tape_section(struct tape *tape, uint32_t block, const char *prefix) {
  tape->block = block;
  if (tape->micro_step_count > 1) {
    snprintf(tape->prefix, sizeof tape->prefix, "micro.%u.%s", tape->micro_step, prefix);
  } else {
    snprintf(tape->prefix, sizeof tape->prefix, "%s", prefix);
  }
}

mr_tensor_id tape_tensor_add(struct tape *tape, const char *name, const char *suffix, mr_role role,
                             uint64_t width) {
  if (tape->status != MR_OK) {
    return 0;
  }
  char full[TRAIN_NAME_BYTES];
  snprintf(full, sizeof full, "%s%s", name, suffix);
  struct mr_tensor_desc desc = {.size_bytes = sizeof desc,
                                .name = full,
                                .role = role,
                                .dtype = width == 0 ? MR_F32 : tape->builder.dtype,
                                .rank = width == 0 ? 2 : 3,
                                .shape = {tape->shape.batch, tape->shape.seq, width}};
  mr_tensor_id id = 0;
  tape->status = mr_graph_add_tensor(tape->builder.graph, &desc, &id);
  return id;
}

tape_value_id tape_value_add(struct tape *tape, mr_tensor_id tensor, mr_tensor_id preactivation) {
  TRAIN_ASSERT(tape->value_count < tape->capacity);
  tape->values[tape->value_count] =
      (struct tape_value){.tensor = tensor, .preactivation = preactivation, .gradient = OP_NONE};
  return tape->value_count++;
}

struct tape_record *tape_record_add(struct tape *tape, enum record_kind kind, const char *name) {
  TRAIN_ASSERT(tape->record_count < tape->capacity);
  struct tape_record *record = &tape->records[tape->record_count++];
  *record = (struct tape_record){.kind = kind, .residual = TAPE_NO_VALUE};
  snprintf(record->name, sizeof record->name, "%s%s", tape->prefix, name);
  return record;
}

void tape_parameters_use(struct tape *tape, const struct tape_record *record) {
  tape->parameters[record->first].uses++;
  if (record->second != TAPE_NO_PARAMETER) {
    tape->parameters[record->second].uses++;
  }
}

const char *tape_op_name(const struct tape_record *record, const char *direction,
                         char buffer[static TRAIN_NAME_BYTES]) {
  snprintf(buffer, TRAIN_NAME_BYTES, "%.160s.%s", record->name, direction);
  return buffer;
}

tape_value_id tape_layernorm(struct tape *tape, const char *name, tape_value_id x,
                             tape_parameter_id first) {
  struct tape_record *record = tape_record_add(tape, RECORD_LAYERNORM, name);
  record->x = x;
  record->first = first;
  record->second = first + 1;
  tape_parameters_use(tape, record);
  mr_tensor_id y = tape_tensor_add(tape, record->name, "", MR_ACTIVATION, tape->shape.width);
  record->extra[0] = tape_tensor_add(tape, record->name, ".mean", MR_ACTIVATION, 0);
  record->extra[1] = tape_tensor_add(tape, record->name, ".rstd", MR_ACTIVATION, 0);
  record->y = tape_value_add(tape, y, OP_NONE);
  struct op_layernorm op = {.x = tape->values[x].tensor,
                            .gamma = tape->parameters[first].working,
                            .beta = tape->parameters[first + 1].working,
                            .y = y,
                            .mean = record->extra[0],
                            .rstd = record->extra[1]};
  char buffer[TRAIN_NAME_BYTES];
  if (tape->status == MR_OK) {
    tape->status = op_add_layernorm(&tape->builder, tape_op_name(record, "forward", buffer),
                                    tape->block, &tape->shape, &op);
  }
  return record->y;
}

tape_value_id tape_linear(struct tape *tape, const char *name, const struct tape_linear *layer) {
  struct tape_record *record = tape_record_add(tape, RECORD_LINEAR, name);
  record->x = layer->x;
  record->residual = layer->residual;
  record->first = layer->first;
  record->second = layer->first + 1;
  record->in = layer->in;
  record->out = layer->out;
  tape_parameters_use(tape, record);
  mr_tensor_id y = tape_tensor_add(tape, record->name, "", MR_ACTIVATION, layer->out);
  record->y = tape_value_add(tape, y, OP_NONE);
  bool residual = layer->residual != TAPE_NO_VALUE;
  struct op_linear op = {.x = tape->values[layer->x].tensor,
                         .w = tape->parameters[layer->first].working,
                         .bias = tape->parameters[layer->first + 1].working,
                         .residual = residual ? tape->values[layer->residual].tensor : OP_NONE,
                         .y = y,
                         .in = layer->in,
                         .out = layer->out};
  char buffer[TRAIN_NAME_BYTES];
  if (tape->status == MR_OK) {
    tape->status = op_add_linear(&tape->builder, tape_op_name(record, "forward", buffer),
                                 tape->block, &tape->shape, &op);
  }
  return record->y;
}

tape_value_id tape_gelu(struct tape *tape, const char *name, tape_value_id x, uint64_t width) {
  struct tape_record *record = tape_record_add(tape, RECORD_GELU, name);
  record->x = x;
  mr_tensor_id preactivation = tape->values[x].tensor;
  mr_tensor_id activated = tape_tensor_add(tape, record->name, "", MR_ACTIVATION, width);
  record->y = tape_value_add(tape, activated, preactivation);
  struct op_gelu op = {.x = preactivation, .activated = activated, .width = width};
  char buffer[TRAIN_NAME_BYTES];
  if (tape->status == MR_OK) {
    tape->status = op_add_gelu(&tape->builder, tape_op_name(record, "forward", buffer), tape->block,
                               &tape->shape, &op);
  }
  return record->y;
}

static mr_tensor_id add_lse(struct tape *tape, const char *name) {
  char full[TRAIN_NAME_BYTES];
  snprintf(full, sizeof full, "%.160s.lse", name);
  struct mr_tensor_desc desc = {
      .size_bytes = sizeof desc,
      .name = full,
      .role = MR_ACTIVATION,
      .dtype = MR_F32,
      .rank = 3,
      .shape = {tape->shape.batch, tape->shape.heads, tape->shape.seq},
  };
  mr_tensor_id id = 0;
  if (tape->status == MR_OK) {
    tape->status = mr_graph_add_tensor(tape->builder.graph, &desc, &id);
  }
  return id;
}

tape_value_id tape_attention(struct tape *tape, const char *name, tape_value_id qkv) {
  struct tape_record *record = tape_record_add(tape, RECORD_ATTENTION, name);
  record->x = qkv;
  mr_tensor_id out = tape_tensor_add(tape, record->name, "", MR_ACTIVATION, tape->shape.width);
  record->extra[0] = add_lse(tape, record->name);
  record->y = tape_value_add(tape, out, OP_NONE);
  struct op_attention op = {.qkv = tape->values[qkv].tensor, .out = out, .lse = record->extra[0]};
  char buffer[TRAIN_NAME_BYTES];
  if (tape->status == MR_OK) {
    tape->status = op_add_attention(&tape->builder, tape_op_name(record, "forward", buffer),
                                    tape->block, &tape->shape, &op);
  }
  return record->y;
}

mr_tensor_id tape_value_gradient(struct tape *tape, tape_value_id id, const char *name,
                                 uint64_t width, bool *accumulate_out) {
  struct tape_value *value = &tape->values[id];
  *accumulate_out = value->gradient != OP_NONE;
  if (value->gradient == OP_NONE) {
    value->gradient = tape_tensor_add(tape, name, ".dx", MR_GRADIENT, width);
  }
  return value->gradient;
}

mr_tensor_id tape_parameter_gradient(struct tape *tape, tape_parameter_id id,
                                     bool *accumulate_out) {
  struct tape_parameter *parameter = &tape->parameters[id];
  *accumulate_out = parameter->gradient_written;
  parameter->gradient_written = true;
  return parameter->gradient;
}

static mr_status layernorm_rule(struct tape *tape, const struct tape_record *record,
                                const char *name) {
  struct op_layernorm_backward op = {.dy = tape->values[record->y].gradient,
                                     .x = tape->values[record->x].tensor,
                                     .gamma = tape->parameters[record->first].working,
                                     .mean = record->extra[0],
                                     .rstd = record->extra[1]};
  bool accumulate_beta = false;
  op.dx = tape_value_gradient(tape, record->x, record->name, tape->shape.width, &op.accumulate_dx);
  op.dgamma = tape_parameter_gradient(tape, record->first, &op.accumulate);
  op.dbeta = tape_parameter_gradient(tape, record->second, &accumulate_beta);
  TRAIN_ASSERT(accumulate_beta == op.accumulate);
  if (tape->status != MR_OK) {
    return tape->status;
  }
  return op_add_layernorm_backward(&tape->builder, name, &tape->shape, &op);
}

static mr_status linear_rule(struct tape *tape, const struct tape_record *record,
                             const char *name) {
  struct tape_value *x = &tape->values[record->x];
  mr_tensor_id dy = tape->values[record->y].gradient;
  struct op_linear_backward op = {.dy = dy,
                                  .x = x->tensor,
                                  .w = tape->parameters[record->first].working,
                                  .preactivation = x->preactivation,
                                  .in = record->in,
                                  .out = record->out};
  bool accumulate_dx = false;
  bool accumulate_bias = false;
  op.dx = tape_value_gradient(tape, record->x, record->name, record->in, &accumulate_dx);
  op.dw = tape_parameter_gradient(tape, record->first, &op.accumulate);
  op.dbias = tape_parameter_gradient(tape, record->second, &accumulate_bias);
  TRAIN_ASSERT(!accumulate_dx && accumulate_bias == op.accumulate);
  if (tape->status != MR_OK) {
    return tape->status;
  }
  if (record->residual != TAPE_NO_VALUE) {
    TRAIN_ASSERT(tape->values[record->residual].gradient == OP_NONE);
    tape->values[record->residual].gradient = dy;
  }
  return op_add_linear_backward(&tape->builder, name, &tape->shape, &op);
}

/* The reader's backward op has multiplied by the derivative, so y's gradient is x's. */
static mr_status gelu_rule(struct tape *tape, const struct tape_record *record, const char *name) {
  (void)name;
  TRAIN_ASSERT(tape->values[record->x].gradient == OP_NONE);
  tape->values[record->x].gradient = tape->values[record->y].gradient;
  return MR_OK;
}

static mr_status attention_rule(struct tape *tape, const struct tape_record *record,
                                const char *name) {
  struct op_attention_backward op = {.dout = tape->values[record->y].gradient,
                                     .qkv = tape->values[record->x].tensor,
                                     .out = tape->values[record->y].tensor,
                                     .lse = record->extra[0]};
  bool accumulate = false;
  op.dqkv = tape_value_gradient(tape, record->x, record->name, 3 * tape->shape.width, &accumulate);
  TRAIN_ASSERT(!accumulate);
  if (tape->status != MR_OK) {
    return tape->status;
  }
  return op_add_attention_backward(&tape->builder, name, &tape->shape, &op);
}

typedef mr_status (*backward_rule)(struct tape *tape, const struct tape_record *record,
                                   const char *name);

static const backward_rule rules[] = {
    [RECORD_EMBED] = tape_embed_rule,    [RECORD_LAYERNORM] = layernorm_rule,
    [RECORD_LINEAR] = linear_rule,       [RECORD_GELU] = gelu_rule,
    [RECORD_ATTENTION] = attention_rule,
};

static mr_status release_parameter(struct tape *tape, tape_parameter_id id, tape_complete complete,
                                   void *context) {
  struct tape_parameter *parameter = &tape->parameters[id];
  TRAIN_ASSERT(parameter->uses > 0);
  parameter->uses--;
  bool last = tape->micro_step + 1 == tape->micro_step_count && parameter->uses == 0;
  return last && complete != NULL ? complete(context, id) : MR_OK;
}

void tape_backward(struct tape *tape, tape_complete complete, void *context) {
  char name[TRAIN_NAME_BYTES];
  for (uint32_t i = tape->record_count; tape->status == MR_OK && i-- > 0;) {
    const struct tape_record *record = &tape->records[i];
    TRAIN_ASSERT(tape->values[record->y].gradient != OP_NONE);
    tape->status = rules[record->kind](tape, record, tape_op_name(record, "backward", name));
    bool trained = record->kind != RECORD_GELU && record->kind != RECORD_ATTENTION;
    if (tape->status == MR_OK && trained) {
      tape->status = release_parameter(tape, record->first, complete, context);
    }
    if (tape->status == MR_OK && trained && record->second != TAPE_NO_PARAMETER) {
      tape->status = release_parameter(tape, record->second, complete, context);
    }
  }
}

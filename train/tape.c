/* SPDX-License-Identifier: Apache-2.0 */
/* Layer calls, and the backward rule of each. */
#include "train/tape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/common.h"

enum record_kind { RECORD_EMBED, RECORD_LAYERNORM, RECORD_LINEAR, RECORD_GELU, RECORD_ATTENTION };

/* What a backward rule needs to know of its forward op. */
struct tape_record {
  enum record_kind kind;
  char name[TRAIN_NAME_BYTES];
  tape_value_id x, y, residual;
  tape_parameter_id first, second;
  mr_tensor_id extra[2]; /* tokens; mean and rstd; lse */
  uint64_t in, out;
};

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

/* Adds a tensor "<prefix><name><suffix>" of the shape (batch, seq, width...); width 0: (batch,
 * seq). */
static mr_tensor_id add_tensor(struct tape *tape, const char *name, const char *suffix,
                               mr_role role, uint64_t width) {
  if (tape->status != MR_OK) {
    return 0;
  }
  char full[TRAIN_NAME_BYTES];
  snprintf(full, sizeof full, "%s%s", name, suffix);
  struct mr_tensor_desc desc = {.size_bytes = sizeof desc,
                                .name = full,
                                .role = role,
                                .dtype = MR_F32,
                                .rank = width == 0 ? 2 : 3,
                                .shape = {tape->shape.batch, tape->shape.seq, width}};
  mr_tensor_id id = 0;
  tape->status = mr_graph_add_tensor(tape->builder.graph, &desc, &id);
  return id;
}

static tape_value_id add_value(struct tape *tape, mr_tensor_id tensor, mr_tensor_id preactivation) {
  TRAIN_ASSERT(tape->value_count < tape->capacity);
  tape->values[tape->value_count] =
      (struct tape_value){.tensor = tensor, .preactivation = preactivation, .gradient = OP_NONE};
  return tape->value_count++;
}

/* A new record named "<prefix><name>". */
static struct tape_record *add_record(struct tape *tape, enum record_kind kind, const char *name) {
  TRAIN_ASSERT(tape->record_count < tape->capacity);
  struct tape_record *record = &tape->records[tape->record_count++];
  *record = (struct tape_record){.kind = kind, .residual = TAPE_NO_VALUE};
  snprintf(record->name, sizeof record->name, "%s%s", tape->prefix, name);
  return record;
}

static void use_parameters(struct tape *tape, const struct tape_record *record) {
  tape->parameters[record->first].uses++;
  tape->parameters[record->second].uses++;
}

static const char *op_name(const struct tape_record *record, const char *direction,
                           char buffer[static TRAIN_NAME_BYTES]) {
  snprintf(buffer, TRAIN_NAME_BYTES, "%.160s.%s", record->name, direction);
  return buffer;
}

tape_value_id tape_embed(struct tape *tape, const char *name, mr_tensor_id tokens,
                         tape_parameter_id wte, tape_parameter_id wpe) {
  struct tape_record *record = add_record(tape, RECORD_EMBED, name);
  record->extra[0] = tokens;
  record->first = wte;
  record->second = wpe;
  use_parameters(tape, record);
  mr_tensor_id x = add_tensor(tape, record->name, "", MR_ACTIVATION, tape->shape.width);
  record->y = add_value(tape, x, OP_NONE);
  struct op_embed op = {.tokens = tokens,
                        .wte = tape->parameters[wte].tensor,
                        .wpe = tape->parameters[wpe].tensor,
                        .x = x};
  char buffer[TRAIN_NAME_BYTES];
  if (tape->status == MR_OK) {
    tape->status = op_add_embed(&tape->builder, op_name(record, "forward", buffer), tape->block,
                                &tape->shape, &op);
  }
  return record->y;
}

tape_value_id tape_layernorm(struct tape *tape, const char *name, tape_value_id x,
                             tape_parameter_id first) {
  struct tape_record *record = add_record(tape, RECORD_LAYERNORM, name);
  record->x = x;
  record->first = first;
  record->second = first + 1;
  use_parameters(tape, record);
  mr_tensor_id y = add_tensor(tape, record->name, "", MR_ACTIVATION, tape->shape.width);
  record->extra[0] = add_tensor(tape, record->name, ".mean", MR_ACTIVATION, 0);
  record->extra[1] = add_tensor(tape, record->name, ".rstd", MR_ACTIVATION, 0);
  record->y = add_value(tape, y, OP_NONE);
  struct op_layernorm op = {.x = tape->values[x].tensor,
                            .gamma = tape->parameters[first].tensor,
                            .beta = tape->parameters[first + 1].tensor,
                            .y = y,
                            .mean = record->extra[0],
                            .rstd = record->extra[1]};
  char buffer[TRAIN_NAME_BYTES];
  if (tape->status == MR_OK) {
    tape->status = op_add_layernorm(&tape->builder, op_name(record, "forward", buffer), tape->block,
                                    &tape->shape, &op);
  }
  return record->y;
}

tape_value_id tape_linear(struct tape *tape, const char *name, const struct tape_linear *layer) {
  struct tape_record *record = add_record(tape, RECORD_LINEAR, name);
  record->x = layer->x;
  record->residual = layer->residual;
  record->first = layer->first;
  record->second = layer->first + 1;
  record->in = layer->in;
  record->out = layer->out;
  use_parameters(tape, record);
  mr_tensor_id y = add_tensor(tape, record->name, "", MR_ACTIVATION, layer->out);
  record->y = add_value(tape, y, OP_NONE);
  bool residual = layer->residual != TAPE_NO_VALUE;
  struct op_linear op = {.x = tape->values[layer->x].tensor,
                         .w = tape->parameters[layer->first].tensor,
                         .bias = tape->parameters[layer->first + 1].tensor,
                         .residual = residual ? tape->values[layer->residual].tensor : OP_NONE,
                         .y = y,
                         .in = layer->in,
                         .out = layer->out};
  char buffer[TRAIN_NAME_BYTES];
  if (tape->status == MR_OK) {
    tape->status = op_add_linear(&tape->builder, op_name(record, "forward", buffer), tape->block,
                                 &tape->shape, &op);
  }
  return record->y;
}

tape_value_id tape_gelu(struct tape *tape, const char *name, tape_value_id x, uint64_t width) {
  struct tape_record *record = add_record(tape, RECORD_GELU, name);
  record->x = x;
  mr_tensor_id preactivation = tape->values[x].tensor;
  mr_tensor_id activated = add_tensor(tape, record->name, "", MR_ACTIVATION, width);
  record->y = add_value(tape, activated, preactivation);
  struct op_gelu op = {.x = preactivation, .activated = activated, .width = width};
  char buffer[TRAIN_NAME_BYTES];
  if (tape->status == MR_OK) {
    tape->status = op_add_gelu(&tape->builder, op_name(record, "forward", buffer), tape->block,
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
  struct tape_record *record = add_record(tape, RECORD_ATTENTION, name);
  record->x = qkv;
  mr_tensor_id out = add_tensor(tape, record->name, "", MR_ACTIVATION, tape->shape.width);
  record->extra[0] = add_lse(tape, record->name);
  record->y = add_value(tape, out, OP_NONE);
  struct op_attention op = {.qkv = tape->values[qkv].tensor, .out = out, .lse = record->extra[0]};
  char buffer[TRAIN_NAME_BYTES];
  if (tape->status == MR_OK) {
    tape->status = op_add_attention(&tape->builder, op_name(record, "forward", buffer), tape->block,
                                    &tape->shape, &op);
  }
  return record->y;
}

/* The gradient of a value, made where no op has written it yet; *accumulate_out: one has. */
static mr_tensor_id value_gradient(struct tape *tape, tape_value_id id, const char *name,
                                   uint64_t width, bool *accumulate_out) {
  struct tape_value *value = &tape->values[id];
  *accumulate_out = value->gradient != OP_NONE;
  if (value->gradient == OP_NONE) {
    value->gradient = add_tensor(tape, name, ".dx", MR_GRADIENT, width);
  }
  return value->gradient;
}

/* The gradient of a parameter; *accumulate_out: an op has written it before. */
static mr_tensor_id parameter_gradient(struct tape *tape, tape_parameter_id id,
                                       bool *accumulate_out) {
  struct tape_parameter *parameter = &tape->parameters[id];
  *accumulate_out = parameter->gradient_written;
  parameter->gradient_written = true;
  return parameter->gradient;
}

void tape_head(struct tape *tape, const char *name, tape_value_id x, tape_parameter_id wte,
               mr_tensor_id targets, mr_tensor_id loss, double scale) {
  char full[TRAIN_NAME_BYTES];
  snprintf(full, sizeof full, "%s%s", tape->prefix, name);
  bool accumulate_dx = false;
  struct op_head op = {.x = tape->values[x].tensor,
                       .wte = tape->parameters[wte].tensor,
                       .targets = targets,
                       .loss = loss,
                       .scale = scale,
                       .accumulate_loss = tape->micro_step > 0};
  op.dx = value_gradient(tape, x, full, tape->shape.width, &accumulate_dx);
  op.dwte = parameter_gradient(tape, wte, &op.accumulate);
  TRAIN_ASSERT(!accumulate_dx);
  if (tape->status == MR_OK) {
    tape->status = op_add_head(&tape->builder, full, &tape->shape, &op);
  }
}

static mr_status embed_rule(struct tape *tape, const struct tape_record *record, const char *name) {
  TRAIN_ASSERT(tape->parameters[record->first].gradient_written);
  struct op_embed_backward op = {.tokens = record->extra[0],
                                 .dx = tape->values[record->y].gradient,
                                 .dwte = tape->parameters[record->first].gradient};
  op.dwpe = parameter_gradient(tape, record->second, &op.accumulate);
  return op_add_embed_backward(&tape->builder, name, &tape->shape, &op);
}

static mr_status layernorm_rule(struct tape *tape, const struct tape_record *record,
                                const char *name) {
  struct op_layernorm_backward op = {.dy = tape->values[record->y].gradient,
                                     .x = tape->values[record->x].tensor,
                                     .gamma = tape->parameters[record->first].tensor,
                                     .mean = record->extra[0],
                                     .rstd = record->extra[1]};
  bool accumulate_beta = false;
  op.dx = value_gradient(tape, record->x, record->name, tape->shape.width, &op.accumulate_dx);
  op.dgamma = parameter_gradient(tape, record->first, &op.accumulate);
  op.dbeta = parameter_gradient(tape, record->second, &accumulate_beta);
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
                                  .w = tape->parameters[record->first].tensor,
                                  .preactivation = x->preactivation,
                                  .in = record->in,
                                  .out = record->out};
  bool accumulate_dx = false;
  bool accumulate_bias = false;
  op.dx = value_gradient(tape, record->x, record->name, record->in, &accumulate_dx);
  op.dw = parameter_gradient(tape, record->first, &op.accumulate);
  op.dbias = parameter_gradient(tape, record->second, &accumulate_bias);
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
  op.dqkv = value_gradient(tape, record->x, record->name, 3 * tape->shape.width, &accumulate);
  TRAIN_ASSERT(!accumulate);
  if (tape->status != MR_OK) {
    return tape->status;
  }
  return op_add_attention_backward(&tape->builder, name, &tape->shape, &op);
}

typedef mr_status (*backward_rule)(struct tape *tape, const struct tape_record *record,
                                   const char *name);

static const backward_rule rules[] = {
    [RECORD_EMBED] = embed_rule, [RECORD_LAYERNORM] = layernorm_rule, [RECORD_LINEAR] = linear_rule,
    [RECORD_GELU] = gelu_rule,   [RECORD_ATTENTION] = attention_rule,
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
    tape->status = rules[record->kind](tape, record, op_name(record, "backward", name));
    bool trained = record->kind != RECORD_GELU && record->kind != RECORD_ATTENTION;
    if (tape->status == MR_OK && trained) {
      tape->status = release_parameter(tape, record->first, complete, context);
    }
    if (tape->status == MR_OK && trained) {
      tape->status = release_parameter(tape, record->second, complete, context);
    }
  }
}

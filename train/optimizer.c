/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW's states, update ops and schedule. */
#include "train/optimizer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "train/common.h"

static mr_status add_moment(struct mr_graph *graph, const char *moment, const char *parameter,
                            uint32_t index, uint64_t count, mr_tensor_id *tensor_out) {
  char name[TRAIN_NAME_BYTES];
  snprintf(name, sizeof name, "optimizer.%s.%.160s.%u", moment, parameter, index);
  struct mr_tensor_desc desc = {.size_bytes = sizeof desc,
                                .name = name,
                                .role = MR_STATE,
                                .dtype = MR_F32,
                                .rank = 1,
                                .shape = {count}};
  return mr_graph_add_tensor(graph, &desc, tensor_out);
}

static mr_status add_vector(struct mr_graph *graph, const char *name, mr_role role, mr_dtype dtype,
                            uint64_t count, mr_tensor_id *tensor_out) {
  struct mr_tensor_desc desc = {.size_bytes = sizeof desc,
                                .name = name,
                                .role = role,
                                .dtype = dtype,
                                .rank = 1,
                                .shape = {count}};
  return mr_graph_add_tensor(graph, &desc, tensor_out);
}

static uint32_t piece_count_of(uint64_t count) {
  return (uint32_t)((count + OPTIMIZER_PIECE_ELEMENTS - 1) / OPTIMIZER_PIECE_ELEMENTS);
}

static mr_status add_pieces(struct optimizer *optimizer, uint32_t part) {
  struct model_part description = model_part_at(optimizer->config, part);
  optimizer->first_piece[part] = optimizer->piece_count;
  uint32_t count = piece_count_of(description.count);
  for (uint32_t i = 0; i < count; i++) {
    struct optimizer_piece piece = {.part = part, .first = i * OPTIMIZER_PIECE_ELEMENTS};
    piece.count = train_min_u64(OPTIMIZER_PIECE_ELEMENTS, description.count - piece.first);
    struct mr_graph *graph = optimizer->builder.graph;
    mr_status status = add_moment(graph, "m", description.name, i, piece.count, &piece.m);
    if (status == MR_OK) {
      status = add_moment(graph, "v", description.name, i, piece.count, &piece.v);
    }
    if (status != MR_OK) {
      return status;
    }
    optimizer->pieces[optimizer->piece_count++] = piece;
  }
  optimizer->first_piece[part + 1] = optimizer->piece_count;
  return MR_OK;
}

static mr_status add_tensors(struct optimizer *optimizer, uint32_t part_count) {
  struct mr_graph *graph = optimizer->builder.graph;
  mr_status status =
      add_vector(graph, "step.scalars", MR_INPUT, MR_F32, OP_SCALAR_COUNT, &optimizer->scalars);
  if (status == MR_OK) {
    status =
        add_vector(graph, "gradient.squares", MR_STATE, MR_F64, part_count, &optimizer->squares);
  }
  if (status == MR_OK) {
    status = add_vector(graph, "gradient.norm", MR_STATE, MR_F64, 1, &optimizer->norm);
  }
  optimizer->scale = OP_NONE;
  optimizer->rates = OP_NONE;
  if (status == MR_OK && optimizer->options.clip > 0) {
    status = add_vector(graph, "gradient.scale", MR_SCRATCH, MR_F32, 1, &optimizer->scale);
  }
  if (status == MR_OK && optimizer->options.clip > 0) {
    status =
        add_vector(graph, "step.rates", MR_SCRATCH, MR_F32, OP_SCALAR_COUNT, &optimizer->rates);
  }
  for (uint32_t i = 0; status == MR_OK && i < part_count; i++) {
    status = add_pieces(optimizer, i);
  }
  return status;
}

mr_status optimizer_init(struct optimizer *optimizer, const struct op_builder *builder,
                         const struct optimizer_options *options, const struct model_config *config,
                         const struct tape_parameter *parts) {
  struct optimizer made = {
      .builder = *builder, .options = *options, .config = config, .parts = parts};
  uint32_t part_count = model_part_count(config);
  uint32_t piece_count = 0;
  for (uint32_t i = 0; i < part_count; i++) {
    piece_count += piece_count_of(model_part_at(config, i).count);
  }
  made.pieces = train_allocate(piece_count, sizeof *made.pieces);
  made.first_piece = train_allocate(part_count + 1ull, sizeof *made.first_piece);
  mr_status status = made.pieces == NULL || made.first_piece == NULL
                         ? MR_NO_MEMORY
                         : add_tensors(&made, part_count);
  if (status != MR_OK) {
    optimizer_fini(&made);
    return status;
  }
  TRAIN_ASSERT(made.piece_count == piece_count);
  *optimizer = made;
  return MR_OK;
}

void optimizer_fini(struct optimizer *optimizer) {
  free(optimizer->pieces);
  free(optimizer->first_piece);
  optimizer->pieces = NULL;
  optimizer->first_piece = NULL;
}

static mr_status update(struct optimizer *optimizer, uint32_t part) {
  struct model_part description = model_part_at(optimizer->config, part);
  const struct optimizer_options *options = &optimizer->options;
  bool clipped = options->clip > 0;
  mr_tensor_id master = optimizer->parts[part].tensor, working = optimizer->parts[part].working;
  mr_status status = MR_OK;
  for (uint32_t i = optimizer->first_piece[part];
       status == MR_OK && i < optimizer->first_piece[part + 1]; i++) {
    const struct optimizer_piece *piece = &optimizer->pieces[i];
    struct op_adamw op = {
        .p = master,
        .working = working == master ? OP_NONE : working,
        .g = optimizer->parts[part].gradient,
        .m = piece->m,
        .v = piece->v,
        .scalars = clipped ? optimizer->rates : optimizer->scalars,
        .scale = optimizer->scale,
        .deferrable = clipped,
        .first = piece->first,
        .count = piece->count,
        .beta1 = (float)options->beta1,
        .beta2 = (float)options->beta2,
        .eps = (float)options->eps,
        .weight_decay = description.rank >= 2 ? (float)options->weight_decay : 0,
    };
    char name[TRAIN_NAME_BYTES];
    snprintf(name, sizeof name, "update.%.160s.%u", description.name,
             i - optimizer->first_piece[part]);
    status = op_add_adamw(&optimizer->builder, name, &op);
  }
  return status;
}

mr_status optimizer_gradient_complete(void *context, tape_parameter_id part) {
  struct optimizer *optimizer = context;
  struct model_part description = model_part_at(optimizer->config, part);
  struct op_sum_squares op = {.g = optimizer->parts[part].gradient,
                              .squares = optimizer->squares,
                              .count = description.count,
                              .index = part};
  char name[TRAIN_NAME_BYTES];
  snprintf(name, sizeof name, "norm.%.160s", description.name);
  mr_status status = op_add_sum_squares(&optimizer->builder, name, &op);
  if (status == MR_OK && !(optimizer->options.clip > 0)) {
    status = update(optimizer, part);
  }
  return status;
}

mr_status optimizer_finish(struct optimizer *optimizer) {
  uint32_t part_count = model_part_count(optimizer->config);
  struct op_norm op = {.squares = optimizer->squares,
                       .norm = optimizer->norm,
                       .scale = optimizer->scale,
                       .count = part_count,
                       .clip = optimizer->options.clip};
  mr_status status = op_add_norm(&optimizer->builder, "norm", &op);
  if (!(optimizer->options.clip > 0)) {
    return status;
  }
  if (status == MR_OK) {
    struct op_rates rates = {.scalars = optimizer->scalars, .rates = optimizer->rates};
    status = op_add_rates(&optimizer->builder, "rates", &rates);
  }
  for (uint32_t i = 0; status == MR_OK && i < part_count; i++) {
    status = update(optimizer, i);
  }
  return status;
}

double optimizer_rate(const struct optimizer_options *options, uint64_t step) {
  uint64_t done = step - 1;
  if (done < options->warmup) {
    return options->lr * (double)(done + 1) / (double)options->warmup;
  }
  if (options->decay_steps == 0) {
    return options->lr;
  }
  if (done >= options->decay_steps) {
    return options->min_lr;
  }
  double progress =
      (double)(done - options->warmup) / (double)(options->decay_steps - options->warmup);
  return options->min_lr +
         0.5 * (1.0 + cos(3.141592653589793 * progress)) * (options->lr - options->min_lr);
}

void optimizer_scalars(const struct optimizer_options *options, uint64_t step,
                       float scalars_out[static OP_SCALAR_COUNT]) {
  scalars_out[OP_SCALAR_LR] = (float)optimizer_rate(options, step);
  /* Of the betas as the moments have them, in single precision: near 1 the difference counts. */
  double beta1 = (double)(float)options->beta1, beta2 = (double)(float)options->beta2;
  scalars_out[OP_SCALAR_CORRECTION1] = (float)(1.0 - pow(beta1, (double)step));
  scalars_out[OP_SCALAR_CORRECTION2] = (float)(1.0 - pow(beta2, (double)step));
}

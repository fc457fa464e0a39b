/* SPDX-License-Identifier: Apache-2.0 */
/* The graph of one optimizer step. */
#include "train/step.h"

#include <stdio.h>
#include <stdlib.h>

#include "train/common.h"

/* The part's tensor, that of its gradient, and where layers do not read fp32 its copy for them. */
static mr_status add_part(struct step *step, uint32_t index) {
  struct model_part part = model_part_at(&step->options.config, index);
  struct tape_parameter *parameter = &step->parts[index];
  struct mr_tensor_desc desc = {.size_bytes = sizeof desc,
                                .name = part.name,
                                .role = MR_PARAMETER,
                                .dtype = MR_F32,
                                .rank = part.rank,
                                .shape = {part.shape[0], part.shape[1]}};
  mr_status status = mr_graph_add_tensor(step->graph, &desc, &parameter->tensor);
  char name[TRAIN_NAME_BYTES];
  snprintf(name, sizeof name, "gradient.%.160s", part.name);
  desc.name = name;
  desc.role = MR_GRADIENT;
  if (status == MR_OK) {
    status = mr_graph_add_tensor(step->graph, &desc, &parameter->gradient);
  }
  parameter->working = parameter->tensor;
  if (status == MR_OK && step->options.dtype != MR_F32) {
    snprintf(name, sizeof name, "working.%.160s", part.name);
    desc.role = MR_DERIVED;
    desc.dtype = step->options.dtype;
    status = mr_graph_add_tensor(step->graph, &desc, &parameter->working);
  }
  return status;
}

static mr_status add_parameters(struct step *step) {
  mr_status status = MR_OK;
  for (uint32_t i = 0; status == MR_OK && i < step->part_count; i++) {
    status = add_part(step, i);
  }
  return status;
}

static mr_status add_inputs(struct step *step) {
  struct mr_tensor_desc loss = {
      .size_bytes = sizeof loss, .name = "loss", .role = MR_STATE, .dtype = MR_F64};
  mr_status status = mr_graph_add_tensor(step->graph, &loss, &step->loss);
  for (uint32_t i = 0; status == MR_OK && i < step->options.grad_accum; i++) {
    char name[TRAIN_NAME_BYTES];
    snprintf(name, sizeof name, "tokens.%u", i);
    struct mr_tensor_desc desc = {.size_bytes = sizeof desc,
                                  .name = name,
                                  .role = MR_INPUT,
                                  .dtype = MR_I32,
                                  .rank = 2,
                                  .shape = {step->options.batch, step->options.seq}};
    status = mr_graph_add_tensor(step->graph, &desc, &step->tokens[i]);
    snprintf(name, sizeof name, "targets.%u", i);
    if (status == MR_OK) {
      status = mr_graph_add_tensor(step->graph, &desc, &step->targets[i]);
    }
  }
  return status;
}

static mr_status add_passes(struct step *step, const struct op_builder *builder) {
  const struct step_options *options = &step->options;
  struct op_shape shape = {.batch = options->batch,
                           .seq = options->seq,
                           .width = options->config.width,
                           .heads = options->config.heads,
                           .vocab = options->config.vocab,
                           .positions = options->config.positions};
  struct tape tape;
  mr_status status =
      tape_init(&tape, builder, &shape, step->parts, model_layer_calls(&options->config));
  if (status != MR_OK) {
    return status;
  }
  double tokens = (double)options->batch * options->seq * options->grad_accum;
  for (uint32_t i = 0; i < options->grad_accum; i++) {
    struct model_inputs inputs = {.tokens = step->tokens[i],
                                  .targets = step->targets[i],
                                  .loss = step->loss,
                                  .loss_scale = 1.0 / tokens,
                                  .block_rows = options->block_rows};
    tape_begin(&tape, i, options->grad_accum);
    model_forward(&options->config, &tape, &inputs);
    tape_backward(&tape, optimizer_gradient_complete, &step->optimizer);
  }
  status = tape_status(&tape);
  tape_fini(&tape);
  return status;
}

static mr_status build(struct step *step) {
  const struct step_options *options = &step->options;
  mr_status status = mr_graph_create(&step->graph);
  if (status != MR_OK) {
    return status;
  }
  struct op_builder builder = {.graph = step->graph,
                               .backend = options->backend,
                               .dtype = options->dtype,
                               .threads = options->threads,
                               .reference = options->reference};
  status = add_parameters(step);
  if (status == MR_OK) {
    status = add_inputs(step);
  }
  if (status == MR_OK) {
    status = optimizer_init(&step->optimizer, &builder, &options->optimizer, &step->options.config,
                            step->parts);
  }
  if (status == MR_OK) {
    status = add_passes(step, &builder);
  }
  return status == MR_OK ? optimizer_finish(&step->optimizer) : status;
}

mr_status step_create(const struct step_options *options, struct step **step_out) {
  TRAIN_ASSERT(options->threads > 0 && options->grad_accum > 0 && options->block_rows > 0);
  struct step *step = train_allocate(1, sizeof *step);
  if (step == NULL) {
    return MR_NO_MEMORY;
  }
  step->options = *options;
  step->part_count = model_part_count(&options->config);
  step->parts = train_allocate(step->part_count, sizeof *step->parts);
  step->tokens = train_allocate(options->grad_accum, sizeof *step->tokens);
  step->targets = train_allocate(options->grad_accum, sizeof *step->targets);
  mr_status status = MR_NO_MEMORY;
  if (step->parts != NULL && step->tokens != NULL && step->targets != NULL) {
    status = build(step);
  }
  if (status != MR_OK) {
    step_destroy(step);
    return status;
  }
  *step_out = step;
  return MR_OK;
}

void step_destroy(struct step *step) {
  if (step == NULL) {
    return;
  }
  optimizer_fini(&step->optimizer);
  mr_graph_destroy(step->graph);
  free(step->parts);
  free(step->tokens);
  free(step->targets);
  free(step);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Programs and machines for the tests of plan/. */
#include "unit/plan_programs.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST_TENSORS 256u

static mr_status no_run(const struct mr_op_call *call) {
  (void)call;
  return MR_OK;
}

mr_tensor_id plan_add_tensor(struct mr_graph *graph, mr_role role, uint64_t bytes) {
  char name[32];
  (void)snprintf(name, sizeof name, "t%u", mr_graph_tensor_count(graph));
  struct mr_tensor_desc desc = {.size_bytes = sizeof desc,
                                .name = name,
                                .role = role,
                                .dtype = MR_U8,
                                .rank = 1,
                                .shape = {bytes}};
  mr_tensor_id tensor = 0;
  MR_ASSERT(mr_graph_add_tensor(graph, &desc, &tensor) == MR_OK);
  return tensor;
}

static uint32_t list_length(const mr_tensor_id *list) {
  uint32_t count = 0;
  while (list[count] != MR_NO_TENSOR) {
    count++;
  }
  return count;
}

mr_op_id plan_add_op(struct mr_graph *graph, const mr_tensor_id *inputs,
                     const mr_tensor_id *outputs, uint64_t scratch_bytes) {
  char name[32];
  (void)snprintf(name, sizeof name, "op%u", mr_graph_op_count(graph));
  struct mr_op_desc desc = {.size_bytes = sizeof desc,
                            .name = name,
                            .kind = "test",
                            .run = {no_run},
                            .inputs = inputs,
                            .input_count = list_length(inputs),
                            .outputs = outputs,
                            .output_count = list_length(outputs),
                            .scratch_bytes = scratch_bytes,
                            .block = MR_NO_BLOCK};
  mr_op_id op = 0;
  MR_ASSERT(mr_graph_add_op(graph, &desc, &op) == MR_OK);
  return op;
}

/* Sizes over four orders of magnitude, so that some are small and some take many pages. */
static uint64_t random_bytes(struct mr_random *random, uint64_t most_bytes) {
  uint64_t most = most_bytes >> mr_random_below(random, 10);
  return 1 + mr_random_below(random, mr_max_u64(most, 1));
}

static bool listed(const mr_tensor_id *list, uint32_t count, mr_tensor_id tensor) {
  for (uint32_t i = 0; i < count; i++) {
    if (list[i] == tensor) {
      return true;
    }
  }
  return false;
}

static void add_random_op(struct mr_graph *graph, struct mr_random *random, bool *readable,
                          uint64_t most_bytes) {
  uint32_t tensors = mr_graph_tensor_count(graph);
  mr_tensor_id inputs[8];
  mr_tensor_id outputs[8];
  uint32_t input_count = 0;
  uint32_t output_count = 0;
  uint64_t reads = mr_random_below(random, 4);
  uint64_t writes = 1 + mr_random_below(random, 2);
  for (uint64_t i = 0; i < reads; i++) {
    mr_tensor_id t = (mr_tensor_id)mr_random_below(random, tensors);
    if (readable[t] && !listed(inputs, input_count, t)) {
      inputs[input_count++] = t;
    }
  }
  for (uint64_t i = 0; i < writes; i++) {
    mr_tensor_id t = (mr_tensor_id)mr_random_below(random, tensors);
    if (input_count > 0 && mr_random_below(random, 3) == 0) {
      t = inputs[mr_random_below(random, input_count)];
    }
    if (mr_graph_tensor_role(graph, t) != MR_INPUT && !listed(outputs, output_count, t)) {
      outputs[output_count++] = t;
      readable[t] = true;
    }
  }
  if (input_count + output_count == 0) {
    inputs[input_count++] = 0;
  }
  inputs[input_count] = MR_NO_TENSOR;
  outputs[output_count] = MR_NO_TENSOR;
  uint64_t scratch = mr_random_below(random, 4) == 0 ? random_bytes(random, most_bytes) : 0;
  mr_op_id op = plan_add_op(graph, inputs, outputs, scratch);
  if (mr_random_below(random, 3) == 0) {
    graph->ops[op].flags |= MR_OP_HOST_CAPABLE;
  }
}

struct mr_graph *plan_random_graph(struct mr_random *random, uint32_t most_ops,
                                   uint64_t most_bytes) {
  struct mr_graph *graph = NULL;
  bool readable[MOST_TENSORS] = {false};
  MR_ASSERT(mr_graph_create(&graph) == MR_OK);
  uint32_t tensors = 2 + (uint32_t)mr_random_below(random, mr_min_u64(most_ops, MOST_TENSORS - 2));
  uint32_t ops = 1 + (uint32_t)mr_random_below(random, most_ops);
  for (uint32_t i = 0; i < tensors; i++) {
    static const mr_role roles[] = {MR_INPUT,      MR_PARAMETER,  MR_STATE,   MR_GRADIENT,
                                    MR_ACTIVATION, MR_ACTIVATION, MR_SCRATCH, MR_PARAMETER};
    mr_role role = i == 0 ? MR_PARAMETER : roles[mr_random_below(random, MR_COUNT_OF(roles))];
    mr_tensor_id t = plan_add_tensor(graph, role, random_bytes(random, most_bytes));
    readable[t] = role == MR_INPUT || role == MR_PARAMETER || role == MR_STATE;
  }
  for (uint32_t i = 0; i < ops; i++) {
    add_random_op(graph, random, readable, most_bytes);
  }
  return graph;
}

/* The tensors of one layer of plan_training_graph. */
struct layer {
  mr_tensor_id weights[16];
  mr_tensor_id working[16]; /* what ops read: these, or what updates copy to */
  mr_tensor_id gradients[16];
  mr_tensor_id states[32];
  mr_tensor_id bias;
  mr_tensor_id activations[16];
};

/* `norm`: that of all gradients; MR_NO_TENSOR: there is none. */
static void add_update(struct mr_graph *graph, const struct layer *layer, uint32_t per_layer,
                       mr_tensor_id norm) {
  for (uint32_t i = 0; i < per_layer; i++) {
    mr_tensor_id m = layer->states[2 * i];
    mr_tensor_id v = layer->states[2 * i + 1];
    mr_tensor_id inputs[] = {layer->weights[i], layer->gradients[i], m, v, norm, MR_NO_TENSOR};
    mr_tensor_id outputs[] = {layer->weights[i], m, v, layer->working[i], MR_NO_TENSOR};
    outputs[3] = layer->working[i] == layer->weights[i] ? MR_NO_TENSOR : layer->working[i];
    mr_op_id op = plan_add_op(graph, inputs, outputs, 0); /* may move graph->ops */
    graph->ops[op].flags |= MR_OP_HOST_CAPABLE;
  }
}

/* Adds what a gradient is to the norm. */
static void add_norm(struct mr_graph *graph, mr_tensor_id gradient, mr_tensor_id norm, bool first) {
  mr_tensor_id inputs[] = {gradient, first ? MR_NO_TENSOR : norm, MR_NO_TENSOR};
  (void)plan_add_op(graph, inputs, (mr_tensor_id[]){norm, MR_NO_TENSOR}, 0);
}

static void add_backward(struct mr_graph *graph, const struct layer *layer, uint32_t per_layer,
                         mr_tensor_id below, mr_tensor_id *flow, mr_tensor_id norm,
                         uint64_t activation_bytes) {
  mr_tensor_id start = *flow;
  for (uint32_t i = per_layer; i-- > 0;) {
    mr_tensor_id next = plan_add_tensor(graph, MR_ACTIVATION, activation_bytes);
    mr_tensor_id made = i == 0 ? below : layer->activations[i - 1];
    mr_tensor_id inputs[] = {*flow, made, layer->working[i], layer->bias, MR_NO_TENSOR};
    mr_tensor_id outputs[] = {next, layer->gradients[i], MR_NO_TENSOR};
    (void)plan_add_op(graph, inputs, outputs, activation_bytes / 2);
    if (norm != MR_NO_TENSOR) {
      bool last_layer = layer->activations[per_layer - 1] == start;
      add_norm(graph, layer->gradients[i], norm, last_layer && *flow == start);
    }
    *flow = next;
  }
}

static struct mr_graph *training_graph(uint32_t layers, uint32_t per_layer, uint64_t weight_bytes,
                                       uint64_t activation_bytes, bool clips, bool copies) {
  struct mr_graph *graph = NULL;
  struct layer *all = mr_allocate(layers, sizeof *all);
  MR_ASSERT(all != NULL && per_layer <= 16 && mr_graph_create(&graph) == MR_OK);
  mr_tensor_id flow = plan_add_tensor(graph, MR_INPUT, activation_bytes);
  mr_tensor_id input = flow;
  for (uint32_t l = 0; l < layers; l++) {
    struct layer *layer = &all[l];
    layer->bias = plan_add_tensor(graph, MR_PARAMETER, 512);
    for (uint32_t i = 0; i < per_layer; i++) {
      uint64_t bytes = weight_bytes * (1 + i % 4);
      layer->weights[i] = plan_add_tensor(graph, MR_PARAMETER, bytes);
      layer->working[i] = copies ? plan_add_tensor(graph, MR_DERIVED, bytes) : layer->weights[i];
      layer->gradients[i] = plan_add_tensor(graph, MR_GRADIENT, bytes);
      layer->states[2 * i] = plan_add_tensor(graph, MR_STATE, bytes);
      layer->states[2 * i + 1] = plan_add_tensor(graph, MR_STATE, bytes);
      layer->activations[i] = plan_add_tensor(graph, MR_ACTIVATION, activation_bytes);
      mr_tensor_id inputs[] = {flow, layer->working[i], layer->bias, MR_NO_TENSOR};
      mr_tensor_id outputs[] = {layer->activations[i], MR_NO_TENSOR};
      (void)plan_add_op(graph, inputs, outputs, 0);
      flow = layer->activations[i];
    }
  }
  mr_tensor_id norm = clips ? plan_add_tensor(graph, MR_ACTIVATION, 64) : MR_NO_TENSOR;
  for (uint32_t l = layers; l-- > 0;) {
    mr_tensor_id below = l == 0 ? input : all[l - 1].activations[per_layer - 1];
    add_backward(graph, &all[l], per_layer, below, &flow, norm, activation_bytes);
  }
  for (uint32_t l = 0; l < layers; l++) {
    add_update(graph, &all[l], per_layer, norm);
  }
  free(all);
  return graph;
}

struct mr_graph *plan_training_graph(uint32_t layers, uint32_t per_layer, uint64_t weight_bytes,
                                     uint64_t activation_bytes) {
  return training_graph(layers, per_layer, weight_bytes, activation_bytes, false, false);
}

struct mr_graph *plan_clipped_graph(uint32_t layers, uint32_t per_layer, uint64_t weight_bytes,
                                    uint64_t activation_bytes) {
  return training_graph(layers, per_layer, weight_bytes, activation_bytes, true, false);
}

struct mr_graph *plan_copies_graph(uint32_t layers, uint32_t per_layer, uint64_t weight_bytes,
                                   uint64_t activation_bytes) {
  return training_graph(layers, per_layer, weight_bytes, activation_bytes, true, true);
}

double *plan_op_seconds(const struct mr_graph *graph, double seconds) {
  uint32_t ops = mr_graph_op_count(graph);
  double *op_seconds = mr_allocate(ops, sizeof *op_seconds);
  MR_ASSERT(op_seconds != NULL);
  for (uint32_t k = 0; k < ops; k++) {
    op_seconds[k] = seconds;
  }
  return op_seconds;
}

struct mr_graph *plan_layers_graph(uint32_t layers, uint64_t memory_bytes) {
  const uint32_t per_layer = 8;
  struct mr_graph *graph = plan_training_graph(layers, per_layer, MR_MIB, 4 * MR_MIB);
  uint32_t forward = layers * per_layer;
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    struct mr_op *op = &graph->ops[k];
    op->memory_bytes = (1 + k % 3) * memory_bytes;
    if (k < forward) {
      op->flags |= MR_OP_REPEATABLE;
      op->block = k / per_layer;
    } else {
      op->flags |= MR_OP_TRAIN_ONLY | (k >= 2 * forward ? MR_OP_DEFERRABLE : 0);
    }
  }
  return graph;
}

void plan_problem_init(struct mr_plan_problem *problem, const struct mr_graph *graph) {
  *problem =
      (struct mr_plan_problem){.program = graph, .page_bytes = 4096, .extent_unit_bytes = 4096};
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    problem->link[l] = (struct mr_link_rate){1e6, 1e-6};
  }
}

struct mr_program_plan *plan_make_proven(const struct mr_plan_problem *problem) {
  struct mr_program_plan *plan = NULL;
  MR_ASSERT(mr_program_plan_make(problem, &plan) == MR_OK);
  if (plan->fits) {
    double bound_seconds = 0;
    MR_ASSERT(mr_program_plan_verify(problem, plan) == MR_OK);
    MR_ASSERT(mr_program_plan_bound(problem, &bound_seconds) == MR_OK);
    MR_ASSERT(plan->step_seconds >= bound_seconds * (1 - 1e-9));
  }
  return plan;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Random programs and their oracle. */
#include "model/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"

#define MOST_LAYERS   16u
#define MOST_LOCALS   64u
#define MOST_READ     5u
#define PARAMETERS    2u /* of a layer */
#define SCRATCH_CHECK 0x5aa5f00du

struct hash_attributes {
  uint32_t id;
  uint32_t sleep_us;
  uint32_t input_count;
  uint32_t output_count;
  uint32_t scratch_words;
  uint32_t input_words[MR_MAX_OPERANDS];
  uint32_t output_words[MR_MAX_OPERANDS];
};

static uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

static void sleep_now_and_then(uint32_t limit_us) {
  uint64_t draw = mix(mr_clock_ns());
  if (limit_us > 0 && draw % 8 == 0) {
    struct timespec pause = {0, (long)(draw / 8 % limit_us) * 1000};
    nanosleep(&pause, NULL);
  }
}

/* Outputs depend on every input word and its place, on the op, and in place on the old word. */
static mr_status hash_run(const struct mr_op_call *call) {
  const struct hash_attributes *a = call->attributes;
  uint64_t sum = a->id;
  for (uint32_t i = 0; i < a->scratch_words; i++) {
    ((uint32_t *)call->scratch)[i] = SCRATCH_CHECK ^ a->id ^ i;
  }
  for (uint32_t i = 0; i < a->input_count; i++) {
    const uint32_t *words = call->inputs[i];
    for (uint32_t j = 0; j < a->input_words[i]; j++) {
      sum = sum * 0x9e3779b97f4a7c15ull + words[j] + 1;
    }
    sum = mix(sum + i);
  }
  sleep_now_and_then(a->sleep_us);
  for (uint32_t i = 0; i < a->output_count; i++) {
    uint32_t *words = call->outputs[i];
    bool in_place = false;
    for (uint32_t j = 0; j < a->input_count; j++) {
      in_place = in_place || call->inputs[j] == call->outputs[i];
    }
    for (uint32_t j = 0; j < a->output_words[i]; j++) {
      uint64_t old = in_place ? words[j] * 31ull : 0;
      words[j] = (uint32_t)((sum + old + j * 0x2545f491ull + i) * 0x9e3779b97f4a7c15ull >> 29);
    }
  }
  sleep_now_and_then(a->sleep_us);
  for (uint32_t i = 0; i < a->scratch_words; i++) {
    if (((const uint32_t *)call->scratch)[i] != (SCRATCH_CHECK ^ a->id ^ i)) {
      mr_log(MR_LOG_ERROR, "op %u: somebody wrote its scratch while it ran", a->id);
      return MR_CORRUPT;
    }
  }
  return MR_OK;
}

/* An update of a range of a parameter and of its copy. */
struct derive_attributes {
  uint32_t first_word, end_word; /* of the parameter, the moment and the copy */
  uint32_t gradient_words, norm_words;
};

/* What a word of a parameter is in its copy. */
static uint32_t derived_of(uint32_t word) {
  return word * 0x9e3779b1u ^ word >> 7;
}

/* Inputs: gradient, norm, parameter, moment, and the copy where an op before it made that; outputs:
 * the last three. */
static mr_status derive_run(const struct mr_op_call *call) {
  const struct derive_attributes *a = call->attributes;
  uint32_t *parameter = call->outputs[0], *moment = call->outputs[1], *copy = call->outputs[2];
  uint32_t sum = 0;
  for (uint32_t j = 0; call->mode == MR_STEP_TRAIN && j < a->gradient_words; j++) {
    sum = sum * 31 + ((const uint32_t *)call->inputs[0])[j];
  }
  for (uint32_t j = 0; call->mode == MR_STEP_TRAIN && j < a->norm_words; j++) {
    sum = sum * 31 + ((const uint32_t *)call->inputs[1])[j];
  }
  for (uint32_t j = a->first_word; j < a->end_word; j++) {
    if (call->mode == MR_STEP_TRAIN) {
      moment[j] = moment[j] * 9 + sum + j;
      parameter[j] -= moment[j];
    }
    copy[j] = derived_of(parameter[j]);
  }
  return MR_OK;
}

/* A program under construction. */
struct maker {
  struct mr_graph *graph;
  struct mr_random random;
  const struct model_options *options;
  uint32_t next_id;
};

struct op_draft {
  const char *name;
  mr_tensor_id inputs[MR_MAX_OPERANDS];
  uint32_t input_count;
  mr_tensor_id outputs[MR_MAX_OPERANDS];
  uint32_t output_count;
  uint32_t flags;
  uint32_t block;
};

static bool chance(struct maker *m, uint32_t percent) {
  return mr_random_below(&m->random, 100) < percent;
}

static mr_tensor_id tensor_add(struct maker *m, mr_role role, const char *format, uint32_t a,
                               uint32_t b, uint32_t c) {
  char name[64];
  snprintf(name, sizeof name, format, a, b, c);
  uint64_t low = 64;
  uint64_t high = m->options->small_bytes;
  if (chance(m, 50)) {
    low = high;
    high = m->options->large_bytes;
  }
  struct mr_tensor_desc desc = {
      .size_bytes = sizeof desc,
      .name = name,
      .role = role,
      .dtype = MR_I32,
      .rank = 1,
      .shape = {(low + mr_random_below(&m->random, high - low + 1)) / 4},
  };
  mr_tensor_id id = 0;
  mr_status status = mr_graph_add_tensor(m->graph, &desc, &id);
  MR_ASSERT(status == MR_OK);
  return id;
}

/* A tensor of another one's size. */
static mr_tensor_id copy_add(struct maker *m, mr_role role, const char *format, uint32_t a,
                             uint32_t b, mr_tensor_id other) {
  char name[64];
  snprintf(name, sizeof name, format, a, b);
  struct mr_tensor_desc desc = {.size_bytes = sizeof desc,
                                .name = name,
                                .role = role,
                                .dtype = MR_I32,
                                .rank = 1,
                                .shape = {m->graph->tensors[other].bytes / 4}};
  mr_tensor_id id = 0;
  mr_status status = mr_graph_add_tensor(m->graph, &desc, &id);
  MR_ASSERT(status == MR_OK);
  return id;
}

static bool among(const mr_tensor_id *ids, uint32_t count, mr_tensor_id id) {
  for (uint32_t i = 0; i < count; i++) {
    if (ids[i] == id) {
      return true;
    }
  }
  return false;
}

static void reads(struct op_draft *op, mr_tensor_id id) {
  if (!among(op->inputs, op->input_count, id) && op->input_count < MR_MAX_OPERANDS) {
    op->inputs[op->input_count++] = id;
  }
}

static void writes(struct op_draft *op, mr_tensor_id id) {
  if (!among(op->outputs, op->output_count, id)) {
    op->outputs[op->output_count++] = id;
  }
}

static void changes(struct op_draft *op, mr_tensor_id id) {
  reads(op, id);
  writes(op, id);
}

static void op_add(struct maker *m, const struct op_draft *op) {
  struct hash_attributes a = {
      .id = m->next_id++,
      .sleep_us = m->options->sleep_us,
      .input_count = op->input_count,
      .output_count = op->output_count,
      .scratch_words = chance(m, 30)
                           ? (uint32_t)mr_random_below(&m->random, m->options->large_bytes / 4) + 1
                           : 0,
  };
  for (uint32_t i = 0; i < op->input_count; i++) {
    a.input_words[i] = (uint32_t)(m->graph->tensors[op->inputs[i]].bytes / 4);
  }
  for (uint32_t i = 0; i < op->output_count; i++) {
    a.output_words[i] = (uint32_t)(m->graph->tensors[op->outputs[i]].bytes / 4);
  }
  /* Most of these must not be moved, or not far: whoever defers has to find that out. */
  bool defers = (op->flags & MR_OP_TRAIN_ONLY) != 0 && a.id % 4 != 0;
  char name[64];
  snprintf(name, sizeof name, "%s.%u", op->name, a.id);
  struct mr_op_desc desc = {
      .size_bytes = sizeof desc,
      .name = name,
      .kind = op->name,
      .run = {hash_run},
      .attributes = &a,
      .attributes_bytes = sizeof a,
      .inputs = op->inputs,
      .input_count = op->input_count,
      .outputs = op->outputs,
      .output_count = op->output_count,
      .scratch_bytes = a.scratch_words * 4ull,
      .flops = (double)(1 + mr_random_below(&m->random, 1000000)),
      .flags = op->flags | (defers ? MR_OP_DEFERRABLE : 0u),
      .block = op->block,
  };
  mr_op_id id = 0;
  mr_status status = mr_graph_add_op(m->graph, &desc, &id);
  MR_ASSERT(status == MR_OK);
}

/* The activations of one layer of one micro-step. */
struct layer {
  mr_tensor_id locals[MOST_LOCALS]; /* locals[0]: what came in */
  uint32_t local_count;
  mr_tensor_id parameters[PARAMETERS];
  mr_tensor_id gradients[PARAMETERS];
  mr_tensor_id moments[PARAMETERS];
  mr_tensor_id copies[PARAMETERS]; /* derived; MR_NO_TENSOR: none */
};

struct model {
  struct layer layers[MOST_LAYERS];
  mr_tensor_id input, loss, norm, head_gradient;
};

/* What layers read of a parameter. */
static mr_tensor_id any_weight(struct maker *m, const struct layer *layer) {
  uint64_t which = mr_random_below(&m->random, PARAMETERS);
  mr_tensor_id copy = layer->copies[which];
  return copy == MR_NO_TENSOR ? layer->parameters[which] : copy;
}

static mr_tensor_id any_local(struct maker *m, const struct layer *layer) {
  return layer->locals[mr_random_below(&m->random, layer->local_count)];
}

/* New tensors in the first micro-step; later ones use the same or new ones. */
static void layer_forward(struct maker *m, struct layer *layer, uint32_t micro, uint32_t l,
                          bool again) {
  uint32_t block = micro * MOST_LAYERS + l;
  for (uint32_t i = 0; i < m->options->layer_ops; i++) {
    struct op_draft op = {.name = "forward", .block = block};
    bool last = i + 1 == m->options->layer_ops;
    op.flags = chance(m, 88) ? MR_OP_REPEATABLE : 0;
    op.flags |= chance(m, 10) ? MR_OP_HOST_CAPABLE : 0;
    uint32_t read = 1 + (uint32_t)mr_random_below(&m->random, MOST_READ);
    for (uint32_t j = 0; j < read; j++) {
      reads(&op, any_local(m, layer));
    }
    reads(&op, layer->locals[layer->local_count - 1]);
    if (chance(m, 60)) {
      reads(&op, any_weight(m, layer));
    }
    if (!last && i > 0 && chance(m, 10)) {
      changes(&op, layer->locals[1 + mr_random_below(&m->random, layer->local_count - 1)]);
    }
    uint32_t made = last ? 1 : 1 + (uint32_t)mr_random_below(&m->random, 2);
    for (uint32_t j = 0; j < made; j++) {
      mr_tensor_id id =
          again ? layer->locals[layer->local_count]
                : tensor_add(m, MR_ACTIVATION, "m%u.l%u.a%u", micro, l, layer->local_count);
      bool known = again && (id == MR_NO_TENSOR || among(op.inputs, op.input_count, id));
      if (known) {
        id = tensor_add(m, MR_ACTIVATION, "m%u.l%u.b%u", micro, l, m->next_id * 4 + j);
      }
      writes(&op, id);
      layer->locals[layer->local_count++] = id;
    }
    op_add(m, &op);
  }
}

/* Something in the middle of the backward pass that evaluation runs as well. */
static void layer_probe(struct maker *m, struct model *model, uint32_t micro, uint32_t l) {
  struct op_draft op = {.name = "probe", .block = micro * MOST_LAYERS + l};
  reads(&op, any_local(m, &model->layers[l]));
  changes(&op, model->loss);
  op_add(m, &op);
}

/* A backward op reads activations, changes the running gradient, and now and then an activation. */
static void layer_backward(struct maker *m, struct model *model, uint32_t micro, uint32_t l) {
  struct layer *layer = &model->layers[l];
  for (uint32_t i = 0; i < m->options->layer_ops; i++) {
    struct op_draft op = {.name = "backward"};
    op.block = chance(m, 50) ? micro * MOST_LAYERS + l : MR_NO_BLOCK;
    op.flags = MR_OP_TRAIN_ONLY | MR_OP_REPEATABLE;
    op.flags |= chance(m, 10) ? MR_OP_HOST_CAPABLE : 0;
    uint32_t read = 1 + (uint32_t)mr_random_below(&m->random, MOST_READ);
    for (uint32_t j = 0; j < read; j++) {
      reads(&op, any_local(m, layer));
    }
    if (chance(m, 30)) {
      reads(&op, any_weight(m, layer));
    }
    changes(&op, model->head_gradient);
    if (chance(m, 15) && layer->local_count > 2) {
      changes(&op, layer->locals[1 + mr_random_below(&m->random, layer->local_count - 2)]);
    } else if (chance(m, 10) && layer->local_count > 2) {
      mr_tensor_id id = layer->locals[1 + mr_random_below(&m->random, layer->local_count - 2)];
      if (!among(op.inputs, op.input_count, id)) {
        writes(&op, id);
      }
    }
    uint32_t which = i % PARAMETERS;
    if (micro == 0 && i < PARAMETERS) {
      writes(&op, layer->gradients[which]);
    } else {
      changes(&op, layer->gradients[i < PARAMETERS ? which : 0]);
    }
    op_add(m, &op);
    if (chance(m, 5)) {
      layer_probe(m, model, micro, l);
    }
  }
}

/* Half of an update, or all of it; the first makes the copy. */
static void derive_add(struct maker *m, const struct layer *layer, uint32_t i, mr_tensor_id norm,
                       const struct derive_attributes *a, bool first) {
  const mr_tensor_id inputs[] = {layer->gradients[i], norm, layer->parameters[i], layer->moments[i],
                                 layer->copies[i]};
  char name[64];
  snprintf(name, sizeof name, "derive.%u", m->next_id++);
  struct mr_op_desc desc = {
      .size_bytes = sizeof desc,
      .name = name,
      .kind = "derive",
      .run = {derive_run},
      .attributes = a,
      .attributes_bytes = sizeof *a,
      .inputs = inputs,
      .input_count = first ? 4 : 5,
      .outputs = inputs + 2,
      .output_count = 3,
      .flags = MR_OP_TRAIN_ONLY | (chance(m, 80) ? MR_OP_HOST_CAPABLE : 0u) |
               (chance(m, 75) ? MR_OP_DEFERRABLE : 0u),
      .block = MR_NO_BLOCK,
  };
  mr_op_id id = 0;
  mr_status status = mr_graph_add_op(m->graph, &desc, &id);
  MR_ASSERT(status == MR_OK);
}

static void derived_update(struct maker *m, const struct layer *layer, uint32_t i,
                           mr_tensor_id norm) {
  const struct mr_tensor *tensors = m->graph->tensors;
  uint32_t words = (uint32_t)(tensors[layer->parameters[i]].bytes / 4);
  uint32_t middle = chance(m, 50) ? words / 2 : words;
  struct derive_attributes a = {
      .end_word = middle,
      .gradient_words = (uint32_t)(tensors[layer->gradients[i]].bytes / 4),
      .norm_words = (uint32_t)(tensors[norm].bytes / 4),
  };
  derive_add(m, layer, i, norm, &a, true);
  a.first_word = middle;
  a.end_word = words;
  if (middle < words) {
    derive_add(m, layer, i, norm, &a, false);
  }
}

static void layer_update(struct maker *m, struct model *model, struct layer *layer) {
  for (uint32_t i = 0; i < PARAMETERS; i++) {
    if (layer->copies[i] != MR_NO_TENSOR) {
      derived_update(m, layer, i, model->norm);
      continue;
    }
    struct op_draft op = {.name = "update", .flags = MR_OP_TRAIN_ONLY, .block = MR_NO_BLOCK};
    op.flags |= chance(m, 80) ? MR_OP_HOST_CAPABLE : 0;
    reads(&op, layer->gradients[i]);
    reads(&op, model->norm);
    changes(&op, layer->parameters[i]);
    changes(&op, layer->moments[i]);
    op_add(m, &op);
  }
}

static void model_tensors(struct maker *m, struct model *model) {
  model->input = tensor_add(m, MR_INPUT, "input", 0, 0, 0);
  model->loss = tensor_add(m, MR_STATE, "loss", 0, 0, 0);
  model->norm = tensor_add(m, MR_STATE, "norm", 0, 0, 0);
  model->head_gradient = tensor_add(m, MR_GRADIENT, "head.gradient", 0, 0, 0);
  for (uint32_t l = 0; l < m->options->layers; l++) {
    for (uint32_t i = 0; i < PARAMETERS; i++) {
      struct layer *layer = &model->layers[l];
      layer->parameters[i] = tensor_add(m, MR_PARAMETER, "l%u.parameter%u", l, i, 0);
      layer->moments[i] = tensor_add(m, MR_STATE, "l%u.moment%u", l, i, 0);
      layer->gradients[i] = tensor_add(m, MR_GRADIENT, "l%u.gradient%u", l, i, 0);
      layer->copies[i] = MR_NO_TENSOR;
      if (m->options->derives && chance(m, 60)) {
        layer->copies[i] = copy_add(m, MR_DERIVED, "l%u.copy%u", l, i, layer->parameters[i]);
        layer->moments[i] = copy_add(m, MR_STATE, "l%u.whole%u", l, i, layer->parameters[i]);
      }
    }
  }
}

static void micro_step(struct maker *m, struct model *model, uint32_t micro, bool share,
                       bool early) {
  mr_tensor_id stream = tensor_add(m, MR_ACTIVATION, "m%u.stream", micro, 0, 0);
  struct op_draft embed = {.name = "embed", .flags = MR_OP_REPEATABLE, .block = MR_NO_BLOCK};
  reads(&embed, model->input);
  writes(&embed, stream);
  op_add(m, &embed);
  for (uint32_t l = 0; l < m->options->layers; l++) {
    struct layer *layer = &model->layers[l];
    bool again = share && micro > 0;
    if (!again) {
      memset(layer->locals, 0xff, sizeof layer->locals);
    }
    layer->local_count = 1;
    layer->locals[0] = stream;
    layer_forward(m, layer, micro, l, again);
    stream = layer->locals[layer->local_count - 1];
  }
  struct op_draft loss = {.name = "loss", .block = MR_NO_BLOCK};
  reads(&loss, stream);
  changes(&loss, model->loss);
  op_add(m, &loss);
  struct op_draft head = {
      .name = "head", .flags = MR_OP_TRAIN_ONLY | MR_OP_REPEATABLE, .block = MR_NO_BLOCK};
  reads(&head, stream);
  writes(&head, model->head_gradient);
  op_add(m, &head);
  for (uint32_t l = m->options->layers; l-- > 0;) {
    layer_backward(m, model, micro, l);
    if (early && micro + 1 == m->options->micro_steps) {
      layer_update(m, model, &model->layers[l]);
    }
  }
}

void model_options_draw(uint64_t seed, struct model_options *options_out) {
  struct mr_random random;
  mr_random_init(&random, seed ^ 0x6f7074696f6e73ull);
  *options_out = (struct model_options){
      .layers = 1 + (uint32_t)mr_random_below(&random, 5),
      .micro_steps = 1 + (uint32_t)mr_random_below(&random, 3),
      .layer_ops = 2 + (uint32_t)mr_random_below(&random, 5),
      .small_bytes = 2048,
      .large_bytes = 2048ull << mr_random_below(&random, 6),
  };
  options_out->derives = mr_random_below(&random, 2) == 0;
}

struct mr_graph *model_program_create(uint64_t seed, const struct model_options *options) {
  struct maker m = {.options = options};
  struct model model = {0};
  mr_random_init(&m.random, seed);
  mr_status status = mr_graph_create(&m.graph);
  MR_ASSERT(status == MR_OK);
  model_tensors(&m, &model);
  bool share = chance(&m, 50);
  bool early = chance(&m, 30);
  for (uint32_t micro = 0; micro < options->micro_steps; micro++) {
    micro_step(&m, &model, micro, share, early);
  }
  /* A persistent tensor that is written whole, in training alone. */
  struct op_draft norm = {.name = "norm", .flags = MR_OP_TRAIN_ONLY, .block = MR_NO_BLOCK};
  for (uint32_t l = 0; l < options->layers; l++) {
    reads(&norm, model.layers[l].gradients[0]);
  }
  writes(&norm, model.norm);
  op_add(&m, &norm);
  for (uint32_t l = 0; !early && l < options->layers; l++) {
    layer_update(&m, &model, &model.layers[l]);
  }
  return m.graph;
}

void model_oracle_init(struct model_oracle *oracle, const struct mr_graph *graph) {
  uint64_t scratch_bytes = 1;
  *oracle = (struct model_oracle){.graph = graph};
  oracle->memory = mr_allocate(graph->tensor_count, sizeof *oracle->memory);
  MR_ASSERT(oracle->memory != NULL);
  for (mr_tensor_id t = 0; t < graph->tensor_count; t++) {
    oracle->memory[t] = mr_allocate(graph->tensors[t].bytes, 1);
    MR_ASSERT(oracle->memory[t] != NULL);
  }
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    scratch_bytes = mr_max_u64(scratch_bytes, graph->ops[k].scratch_bytes);
  }
  oracle->scratch = mr_allocate(scratch_bytes, 1);
  MR_ASSERT(oracle->scratch != NULL);
}

static void oracle_op(struct model_oracle *oracle, mr_op_id k, mr_step_mode mode) {
  const struct mr_op *op = &oracle->graph->ops[k];
  void *inputs[MR_MAX_OPERANDS];
  void *outputs[MR_MAX_OPERANDS];
  for (uint32_t i = 0; i < op->input_count; i++) {
    inputs[i] = oracle->memory[op->inputs[i]];
  }
  for (uint32_t i = 0; i < op->output_count; i++) {
    outputs[i] = oracle->memory[op->outputs[i]];
  }
  struct mr_op_call call = {
      .attributes = op->attributes,
      .inputs = inputs,
      .outputs = outputs,
      .scratch = oracle->scratch,
      .mode = mode,
  };
  mr_status status = op->run[MR_BACKEND_CPU](&call);
  MR_ASSERT(status == MR_OK);
}

void model_oracle_op(struct model_oracle *oracle, mr_op_id k) {
  oracle_op(oracle, k, MR_STEP_TRAIN);
}

/* What the client wrote since the step before may be what others are derived from. */
void model_oracle_step(struct model_oracle *oracle, mr_step_mode mode) {
  for (mr_op_id k = 0; k < oracle->graph->op_count; k++) {
    if (mr_op_restores(oracle->graph, k)) {
      oracle_op(oracle, k, MR_STEP_RESTORE);
    }
  }
  for (mr_op_id k = 0; k < oracle->graph->op_count; k++) {
    if (mode == MR_STEP_TRAIN || (oracle->graph->ops[k].flags & MR_OP_TRAIN_ONLY) == 0) {
      oracle_op(oracle, k, mode);
    }
  }
}

void model_oracle_fini(struct model_oracle *oracle) {
  for (mr_tensor_id t = 0; t < oracle->graph->tensor_count; t++) {
    free(oracle->memory[t]);
  }
  free(oracle->memory);
  free(oracle->scratch);
}

void model_fill(uint64_t seed, uint64_t step, mr_tensor_id tensor, uint8_t *bytes, uint64_t count) {
  struct mr_random random;
  mr_random_init(&random, mix(seed) ^ mix(step * 1000003 + tensor));
  for (uint64_t i = 0; i < count; i++) {
    bytes[i] = (uint8_t)mr_random_u64(&random);
  }
}

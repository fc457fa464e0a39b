/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2: presets, parameters, the forward pass, its config.json. */
#include "train/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "train/common.h"
#include "train/vocabulary.h"

#define MODEL_MOST_LAYERS 4096u
#define MODEL_MOST_WIDTH  65536u
#define MODEL_MOST_ROWS   (1u << 24) /* vocab, positions, batch and seq */
#define HEAD_WIDTH        64u        /* of every published GPT-2 */

/* Parameters before the layers. */
enum { PARAMETER_WTE = 0, PARAMETER_WPE = 1, PARAMETER_FIRST_LAYER = 2 };

static const struct preset {
  const char *name;
  struct model_config config;
} presets[] = {
    {"gpt2", {12, 12, 768, 50257, 1024, 0}},
    {"gpt2-medium", {24, 16, 1024, 50257, 1024, 0}},
    {"gpt2-large", {36, 20, 1280, 50257, 1024, 0}},
    {"gpt2-xl", {48, 25, 1600, 50257, 1024, 0}},
};

/* Small enough to train for 30 steps in under two minutes on two cores while it streams from NVMe.
 */
static const struct model_config default_config = {8, 8, 512, 2048, 0, 0};
enum { DEFAULT_BATCH = 4, DEFAULT_SEQ = 256 };

bool model_is_default(const struct trainer_options *options) {
  return options->preset == NULL && options->layers == 0 && options->heads == 0 &&
         options->width == 0 && options->vocab == 0 && options->positions == 0 &&
         options->batch == 0 && options->seq == 0 && options->init_path == NULL;
}

static mr_status find_preset(const char *name, struct model_config *config_out) {
  if (name == NULL) {
    *config_out = default_config;
    return MR_OK;
  }
  for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
    if (strcasecmp(presets[i].name, name) == 0) {
      *config_out = presets[i].config;
      return MR_OK;
    }
  }
  mr_log(MR_LOG_ERROR,
         "there is no preset '%s'; there are gpt2, gpt2-medium, gpt2-large and gpt2-xl", name);
  return MR_INVALID;
}

static mr_status check_range(const char *what, uint32_t value, uint32_t most) {
  if (value == 0 || value > most) {
    mr_log(MR_LOG_ERROR, "--%s %u is outside 1 to %u", what, value, most);
    return MR_INVALID;
  }
  return MR_OK;
}

static mr_status check_config(const struct model_config *config, uint32_t batch, uint32_t seq) {
  const struct {
    const char *what;
    uint32_t value, most;
  } ranges[] = {
      {"layers", config->layers, MODEL_MOST_LAYERS},
      {"heads", config->heads, MODEL_MOST_WIDTH},
      {"width", config->width, MODEL_MOST_WIDTH},
      {"vocab", config->vocab, MODEL_MOST_ROWS},
      {"positions", config->positions, MODEL_MOST_ROWS},
      {"batch", batch, MODEL_MOST_ROWS},
      {"seq", seq, MODEL_MOST_ROWS},
  };
  for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
    mr_status status = check_range(ranges[i].what, ranges[i].value, ranges[i].most);
    if (status != MR_OK) {
      return status;
    }
  }
  if (config->width % config->heads != 0) {
    mr_log(MR_LOG_ERROR, "--heads %u does not divide --width %u", config->heads, config->width);
    return MR_INVALID;
  }
  if (seq > config->positions) {
    mr_log(MR_LOG_ERROR, "--seq %u is longer than the model's %u positions", seq,
           config->positions);
    return MR_INVALID;
  }
  if ((uint64_t)batch * seq > MODEL_MOST_ROWS) {
    mr_log(MR_LOG_ERROR, "--batch %u times --seq %u is more than %u tokens", batch, seq,
           MODEL_MOST_ROWS);
    return MR_INVALID;
  }
  return MR_OK;
}

static uint32_t or_else(uint32_t given, uint32_t otherwise) {
  return given != 0 ? given : otherwise;
}

mr_status model_resolve(const struct trainer_options *options, struct model_config *config_out,
                        uint32_t *batch_out, uint32_t *seq_out) {
  struct model_config config;
  mr_status status = find_preset(options->preset, &config);
  if (status != MR_OK) {
    return status;
  }
  uint32_t batch = or_else(options->batch, DEFAULT_BATCH);
  uint32_t seq = or_else(options->seq, DEFAULT_SEQ);
  if (options->width != 0 && options->width != config.width) {
    config.width = options->width;
    config.heads = config.width % HEAD_WIDTH == 0 ? config.width / HEAD_WIDTH : config.heads;
  }
  config.layers = or_else(options->layers, config.layers);
  config.heads = or_else(options->heads, config.heads);
  config.vocab = or_else(options->vocab, config.vocab);
  config.positions = or_else(options->positions, or_else(config.positions, seq));
  status = check_config(&config, batch, seq);
  if (status == MR_OK) {
    config.slice_words = vocabulary_slice_words(config.vocab, config.width);
    *config_out = config;
    *batch_out = batch;
    *seq_out = seq;
  }
  return status;
}

uint32_t model_parameter_count(const struct model_config *config) {
  return PARAMETER_FIRST_LAYER + MODEL_PARAMETERS_PER_LAYER * config->layers + 2;
}

static struct model_parameter make_parameter(const char *name, uint32_t rank, uint64_t rows,
                                             uint64_t columns) {
  struct model_parameter parameter = {.rank = rank, .shape = {rows, columns}};
  parameter.count = rank == 1 ? rows : rows * columns;
  snprintf(parameter.name, sizeof parameter.name, "transformer.%s", name);
  return parameter;
}

static struct model_parameter layer_parameter(const struct model_config *config, uint32_t layer,
                                              uint32_t index) {
  static const struct {
    const char *name;
    uint32_t rank;
    uint32_t in, out; /* in widths */
    enum model_init init;
    bool residual;
  } table[MODEL_PARAMETERS_PER_LAYER] = {
      {"ln_1.weight", 1, 1, 0, MODEL_ONE, false},
      {"ln_1.bias", 1, 1, 0, MODEL_ZERO, false},
      {"attn.c_attn.weight", 2, 1, 3, MODEL_NORMAL, false},
      {"attn.c_attn.bias", 1, 3, 0, MODEL_ZERO, false},
      {"attn.c_proj.weight", 2, 1, 1, MODEL_NORMAL, true},
      {"attn.c_proj.bias", 1, 1, 0, MODEL_ZERO, false},
      {"ln_2.weight", 1, 1, 0, MODEL_ONE, false},
      {"ln_2.bias", 1, 1, 0, MODEL_ZERO, false},
      {"mlp.c_fc.weight", 2, 1, 4, MODEL_NORMAL, false},
      {"mlp.c_fc.bias", 1, 4, 0, MODEL_ZERO, false},
      {"mlp.c_proj.weight", 2, 4, 1, MODEL_NORMAL, true},
      {"mlp.c_proj.bias", 1, 1, 0, MODEL_ZERO, false},
  };
  char name[64];
  snprintf(name, sizeof name, "h.%u.%s", layer, table[index].name);
  uint64_t width = config->width;
  struct model_parameter parameter =
      make_parameter(name, table[index].rank, table[index].in * width, table[index].out * width);
  parameter.init = table[index].init;
  parameter.deviation = table[index].residual ? 0.02 / sqrt(2.0 * config->layers) : 0.02;
  return parameter;
}

struct model_parameter model_parameter_at(const struct model_config *config, uint32_t index) {
  uint32_t last = model_parameter_count(config) - 1;
  TRAIN_ASSERT(index <= last);
  struct model_parameter parameter;
  if (index == PARAMETER_WTE || index == PARAMETER_WPE) {
    bool tokens = index == PARAMETER_WTE;
    parameter = make_parameter(tokens ? "wte.weight" : "wpe.weight", 2,
                               tokens ? config->vocab : config->positions, config->width);
    parameter.init = MODEL_NORMAL;
    parameter.deviation = 0.02;
  } else if (index >= last - 1) {
    bool bias = index == last;
    parameter = make_parameter(bias ? "ln_f.bias" : "ln_f.weight", 1, config->width, 0);
    parameter.init = bias ? MODEL_ZERO : MODEL_ONE;
  } else {
    uint32_t in_layers = index - PARAMETER_FIRST_LAYER;
    parameter = layer_parameter(config, in_layers / MODEL_PARAMETERS_PER_LAYER,
                                in_layers % MODEL_PARAMETERS_PER_LAYER);
  }
  return parameter;
}

static uint32_t slice_count(const struct model_config *config) {
  return (uint32_t)((config->vocab + config->slice_words - 1) / config->slice_words);
}

uint32_t model_part_count(const struct model_config *config) {
  return model_parameter_count(config) - 1 + slice_count(config);
}

struct model_part model_part_at(const struct model_config *config, uint32_t index) {
  uint32_t slices = slice_count(config);
  bool slice = index < slices;
  struct model_part part = {.parameter = slice ? PARAMETER_WTE : index + 1 - slices};
  struct model_parameter parameter = model_parameter_at(config, part.parameter);
  snprintf(part.name, sizeof part.name, "%.150s", parameter.name);
  part.rank = parameter.rank;
  part.shape[0] = parameter.shape[0];
  part.shape[1] = parameter.shape[1];
  part.count = parameter.count;
  if (slice && slices > 1) {
    uint64_t word = index * config->slice_words;
    snprintf(part.name, sizeof part.name, "%.150s.%u", parameter.name, index);
    part.shape[0] = train_min_u64(config->slice_words, config->vocab - word);
    part.first = word * config->width;
    part.count = part.shape[0] * config->width;
  }
  return part;
}

uint32_t model_part_of(const struct model_config *config, uint32_t parameter, uint64_t element) {
  if (parameter == PARAMETER_WTE) {
    return (uint32_t)(element / (config->slice_words * config->width));
  }
  return parameter - 1 + slice_count(config);
}

void model_draw(const struct model_config *config, uint64_t seed, uint32_t index, uint64_t first,
                uint64_t count, float *out) {
  struct model_parameter parameter = model_parameter_at(config, index);
  TRAIN_ASSERT(first + count <= parameter.count);
  if (parameter.init == MODEL_NORMAL) {
    train_random_normal(seed, index, first, count, parameter.deviation, out);
    return;
  }
  for (uint64_t i = 0; i < count; i++) {
    out[i] = parameter.init == MODEL_ONE ? 1.0f : 0.0f;
  }
}

uint32_t model_layer_calls(const struct model_config *config) {
  return 8 * config->layers + 1 + slice_count(config);
}

/* x + attention(layernorm(x)), then x + mlp(layernorm(x)). */
static tape_value_id forward_layer(const struct model_config *config, struct tape *tape,
                                   tape_parameter_id first, tape_value_id x) {
  uint64_t width = config->width;
  tape_value_id normed = tape_layernorm(tape, "ln_1", x, first);
  tape_value_id qkv = tape_linear(tape, "attn.c_attn",
                                  &(struct tape_linear){.x = normed,
                                                        .residual = TAPE_NO_VALUE,
                                                        .first = first + 2,
                                                        .in = width,
                                                        .out = 3 * width});
  tape_value_id mixed = tape_attention(tape, "attn", qkv);
  x = tape_linear(tape, "attn.c_proj",
                  &(struct tape_linear){
                      .x = mixed, .residual = x, .first = first + 4, .in = width, .out = width});
  normed = tape_layernorm(tape, "ln_2", x, first + 6);
  tape_value_id hidden = tape_linear(tape, "mlp.c_fc",
                                     &(struct tape_linear){.x = normed,
                                                           .residual = TAPE_NO_VALUE,
                                                           .first = first + 8,
                                                           .in = width,
                                                           .out = 4 * width});
  hidden = tape_gelu(tape, "mlp.act", hidden, 4 * width);
  return tape_linear(
      tape, "mlp.c_proj",
      &(struct tape_linear){
          .x = hidden, .residual = x, .first = first + 10, .in = 4 * width, .out = width});
}

void model_forward(const struct model_config *config, struct tape *tape,
                   const struct model_inputs *inputs) {
  struct tape_slices wte = {
      .first = 0, .count = slice_count(config), .slice_words = config->slice_words};
  tape_section(tape, MR_NO_BLOCK, "");
  tape_value_id x =
      tape_embed(tape, "embed", inputs->tokens, &wte, model_part_of(config, PARAMETER_WPE, 0));
  for (uint32_t layer = 0; layer < config->layers; layer++) {
    char prefix[32];
    snprintf(prefix, sizeof prefix, "h.%u.", layer);
    tape_section(tape, tape->micro_step * config->layers + layer, prefix);
    uint32_t first = PARAMETER_FIRST_LAYER + layer * MODEL_PARAMETERS_PER_LAYER;
    x = forward_layer(config, tape, model_part_of(config, first, 0), x);
  }
  tape_section(tape, MR_NO_BLOCK, "");
  x = tape_layernorm(tape, "ln_f", x, model_part_count(config) - 2);
  tape_head(tape, "head",
            &(struct tape_head){.x = x,
                                .wte = wte,
                                .targets = inputs->targets,
                                .loss = inputs->loss,
                                .scale = inputs->loss_scale,
                                .block_rows = inputs->block_rows,
                                .first_block = tape->micro_step_count * config->layers});
}

char *model_config_json(const struct model_config *config) {
  static const char format[] = "{\n"
                               "  \"activation_function\": \"gelu_new\",\n"
                               "  \"architectures\": [\"GPT2LMHeadModel\"],\n"
                               "  \"attn_pdrop\": 0.0,\n"
                               "  \"bos_token_id\": %u,\n"
                               "  \"embd_pdrop\": 0.0,\n"
                               "  \"eos_token_id\": %u,\n"
                               "  \"initializer_range\": 0.02,\n"
                               "  \"layer_norm_epsilon\": 1e-05,\n"
                               "  \"model_type\": \"gpt2\",\n"
                               "  \"n_ctx\": %u,\n"
                               "  \"n_embd\": %u,\n"
                               "  \"n_head\": %u,\n"
                               "  \"n_layer\": %u,\n"
                               "  \"n_positions\": %u,\n"
                               "  \"resid_pdrop\": 0.0,\n"
                               "  \"tie_word_embeddings\": true,\n"
                               "  \"torch_dtype\": \"float32\",\n"
                               "  \"vocab_size\": %u\n"
                               "}\n";
  char *json = NULL;
  uint32_t end_of_text = config->vocab - 1; /* as in GPT-2's vocabulary, its last word */
  if (asprintf(&json, format, end_of_text, end_of_text, config->positions, config->width,
               config->heads, config->layers, config->positions, config->vocab) < 0) {
    mr_log(MR_LOG_ERROR, "out of host memory: config.json");
    return NULL;
  }
  return json;
}

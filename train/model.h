/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPT-2 as Hugging Face's GPT2LMHeadModel computes it (Radford et al. 2019): learned positions,
 * LayerNorm before each half of a layer, causal self-attention, an MLP with the tanh form of GELU,
 * a head that shares the token embedding. Parameters have the names and layouts of its state_dict.
 */
#ifndef MEMRUN_TRAIN_MODEL_H
#define MEMRUN_TRAIN_MODEL_H

#include "train/common.h"
#include "train/tape.h"
#include "train/train.h"

struct model_config {
  uint32_t layers, heads, width, vocab, positions;
  uint64_t slice_words; /* of the token embedding (vocabulary.h) */
};

/*
 * The model that the options describe, and the batch and sequence that go with it. MR_INVALID: an
 * unknown preset (all are listed), a dimension of 0 or beyond what an index holds, heads that
 * do not divide the width, a sequence that is longer than the positions.
 */
MR_CHECK_RESULT mr_status model_resolve(const struct trainer_options *options,
                                        struct model_config *config_out, uint32_t *batch_out,
                                        uint32_t *seq_out);

/* True where the options name no preset and no dimension. */
bool model_is_default(const struct trainer_options *options);

struct model_parameter {
  char name[TRAIN_NAME_BYTES]; /* "transformer.h.0.attn.c_attn.weight" */
  uint32_t rank;
  uint64_t shape[2];
  uint64_t count;
  enum model_init { MODEL_ZERO, MODEL_ONE, MODEL_NORMAL } init;
  double deviation; /* of MODEL_NORMAL */
};

/*
 * The model in two views. A *parameter* is a tensor of the state_dict, as files have it. A *part*
 * is a parameter as the graph has it, as one tensor: all parameters are one part each, but the
 * token embedding, which is one for each slice of its rows. Parts are in the order of parameters.
 */
#define MODEL_PARAMETERS_PER_LAYER 12u
uint32_t model_parameter_count(const struct model_config *config);

/* Parameter `index` in model order: wte, wpe, the layers, ln_f. Pure. */
struct model_parameter model_parameter_at(const struct model_config *config, uint32_t index);

struct model_part {
  char name[TRAIN_NAME_BYTES]; /* the parameter's; of a slice "transformer.wte.weight.3" */
  uint32_t parameter;
  uint32_t rank;
  uint64_t shape[2];
  uint64_t first, count; /* elements of the parameter */
};

uint32_t model_part_count(const struct model_config *config);
struct model_part model_part_at(const struct model_config *config, uint32_t index);

/* The part that holds element `element` of the parameter. */
uint32_t model_part_of(const struct model_config *config, uint32_t parameter, uint64_t element);

/* out[0..count) = initial values of the parameter from element `first` (even) on, as GPT-2 draws
 * them: normal with deviation 0.02, residual projections scaled by 1/sqrt(2 * layers). */
void model_draw(const struct model_config *config, uint64_t seed, uint32_t index, uint64_t first,
                uint64_t count, float *out);

/* Calls to layers of the tape that one forward pass makes. */
uint32_t model_layer_calls(const struct model_config *config);

struct model_inputs {
  mr_tensor_id tokens, targets, loss;
  double loss_scale;
  uint64_t block_rows; /* of the head (vocabulary.h) */
};

/* The forward pass of one micro-step; the tape's parameters are the model's parts. */
void model_forward(const struct model_config *config, struct tape *tape,
                   const struct model_inputs *inputs);

/* The config.json of the model as Hugging Face's transformers reads it; the caller frees it. NULL:
 * out of memory, logged. */
char *model_config_json(const struct model_config *config);

#endif

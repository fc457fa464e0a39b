/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A full training step against PyTorch's values (tests/data/gpt2_step/make.py), with both kernel
 * tables, with and without gradient accumulation, in fp32 and with layers in bf16; the shape of the
 * graph; the schedule.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"
#include "train/kernels/bf16.h"
#include "train/kernels/kernels.h"
#include "train/safetensors.h"
#include "train/step.h"
#include "train/vocabulary.h"
#include "unit/train_naive.h"

#define STEPS 3u
#define SEQ   16u
#define BATCH 2u
#define MOST  4096u /* elements of the largest tensor */
#define RATE  1e-3
#define VOCAB 61u

/* Of a value, or of the largest value of a tensor. In bf16 each of some ten layers of either pass
 * rounds by 2^-8. */
#define RELATIVE      1e-5
#define RELATIVE_BF16 0.04

#define DATA          MEMRUN_TEST_DATA "/gpt2_step/"

struct expected {
  double loss[STEPS], norm[STEPS];
  int32_t stream[STEPS][BATCH * SEQ + 1];
};

static void read_expected(struct expected *expected) {
  FILE *file = fopen(DATA "expected.txt", "re");
  assert_non_null(file);
  for (uint32_t i = 0; i < STEPS; i++) {
    assert_int_equal(fscanf(file, "%lf %lf", &expected->loss[i], &expected->norm[i]), 2);
  }
  for (uint32_t i = 0; i < STEPS; i++) {
    for (uint32_t j = 0; j < BATCH * SEQ + 1; j++) {
      assert_int_equal(fscanf(file, "%d", &expected->stream[i][j]), 1);
    }
  }
  fclose(file);
}

/* A way to build the step: micro_steps 2: the same batch, one row at a time; cut: the vocabulary in
 * slices and the head in blocks, the last of each smaller than the others. */
struct variant {
  bool reference;
  uint32_t micro_steps;
  double clip;
  bool cut;
  mr_dtype dtype;
};

static struct step *make_step(const struct variant *variant) {
  struct step_options options = {
      .config = {.layers = 2,
                 .heads = 3,
                 .width = 24,
                 .vocab = VOCAB,
                 .positions = SEQ,
                 .slice_words = variant->cut ? 16 : VOCAB},
      .optimizer = {.lr = RATE,
                    .beta1 = 0.9,
                    .beta2 = 0.95,
                    .eps = 1e-5,
                    .weight_decay = 0.1,
                    .clip = variant->clip},
      .batch = BATCH / variant->micro_steps,
      .seq = SEQ,
      .grad_accum = variant->micro_steps,
      .block_rows = variant->cut ? 12 : BATCH * SEQ,
      .dtype = variant->dtype,
      .threads = 2,
      .reference = variant->reference,
  };
  struct step *step = NULL;
  assert_int_equal(step_create(&options, &step), MR_OK);
  return step;
}

/* Where the graph has part `index` of the model: "<prefix><its name>"; NULL where the parameter is
 * not `parameter`. */
static float *find_part(const struct naive *naive, const struct step *step, uint32_t index,
                        const char *prefix, const char *parameter) {
  const struct model_config *config = &step->options.config;
  struct model_part part = model_part_at(config, index);
  char name[256];
  if (strcmp(model_parameter_at(config, part.parameter).name, parameter) != 0) {
    return NULL;
  }
  snprintf(name, sizeof name, "%s%s", prefix, part.name);
  return naive_find(naive, name);
}

static void load_weights(const struct naive *naive, const struct step *step, const char *path) {
  struct safetensors_file file;
  assert_int_equal(safetensors_open(path, &file), MR_OK);
  for (uint32_t i = 0; i < file.header.entry_count; i++) {
    const struct safetensors_entry *entry = &file.header.entries[i];
    uint64_t loaded = 0;
    for (uint32_t j = 0; j < step->part_count; j++) {
      struct model_part part = model_part_at(&step->options.config, j);
      float *to = find_part(naive, step, j, "", entry->name);
      if (to != NULL) {
        assert_int_equal(safetensors_read(&file, entry, part.first, part.count, to), MR_OK);
        loaded += part.count;
      }
    }
    assert_int_equal(loaded, entry->count);
  }
  safetensors_close(&file);
  for (uint32_t i = 0; step->options.dtype == MR_BF16 && i < step->part_count; i++) {
    const float *values = naive->data[step->parts[i].tensor];
    uint16_t *working = naive->data[step->parts[i].working];
    for (uint64_t j = 0; j < model_part_at(&step->options.config, i).count; j++) {
      working[j] = bf16_round(values[j]);
    }
  }
}

/* The parameter's values, or those of its gradient, from all parts. */
static void gather(const struct naive *naive, const struct step *step, const char *prefix,
                   const char *parameter, float values_out[static MOST]) {
  for (uint32_t i = 0; i < step->part_count; i++) {
    struct model_part part = model_part_at(&step->options.config, i);
    const float *from = find_part(naive, step, i, prefix, parameter);
    if (from != NULL) {
      assert_true(part.first + part.count <= MOST);
      memcpy(values_out + part.first, from, part.count * sizeof *from);
    }
  }
}

static double relative_of(const struct step *step) {
  return step->options.dtype == MR_BF16 ? RELATIVE_BF16 : RELATIVE;
}

/* Compares tensors "<prefix><name>" with a file: no difference above relative_of() the largest
 * value, plus `absolute`. */
static void compare(const struct naive *naive, const struct step *step, const char *path,
                    const char *prefix, double absolute) {
  struct safetensors_file file;
  assert_int_equal(safetensors_open(path, &file), MR_OK);
  assert_int_equal(file.header.entry_count, 28);
  for (uint32_t i = 0; i < file.header.entry_count; i++) {
    const struct safetensors_entry *entry = &file.header.entries[i];
    float wanted[MOST];
    float found[MOST];
    memset(found, 0xff, sizeof found); /* NaNs, which no comparison accepts */
    gather(naive, step, prefix, entry->name, found);
    assert_true(entry->count <= MOST);
    assert_int_equal(safetensors_read(&file, entry, 0, entry->count, wanted), MR_OK);
    double largest = 0;
    double difference = 0;
    for (uint64_t j = 0; j < entry->count; j++) {
      largest = fmax(largest, fabs((double)wanted[j]));
      double apart = fabs((double)found[j] - wanted[j]);
      difference = apart > difference || isnan(apart) ? apart : difference;
    }
    if (!(difference <= relative_of(step) * largest + absolute)) {
      fail_msg("%s%s differs by %g; its largest value is %g", prefix, entry->name, difference,
               largest);
    }
  }
  safetensors_close(&file);
}

static void feed(const struct naive *naive, const struct step *step,
                 const struct expected *expected, uint32_t index) {
  uint64_t tokens = (uint64_t)step->options.batch * SEQ;
  for (uint32_t i = 0; i < step->options.grad_accum; i++) {
    const int32_t *stream = expected->stream[index] + i * tokens;
    memcpy(naive->data[step->tokens[i]], stream, tokens * sizeof *stream);
    memcpy(naive->data[step->targets[i]], stream + 1, tokens * sizeof *stream);
  }
  optimizer_scalars(&step->options.optimizer, index + 1, naive->data[step->optimizer.scalars]);
}

static void assert_within(double found, double wanted, double relative) {
  if (!(fabs(found - wanted) <= relative * fabs(wanted))) {
    fail_msg("%.17g is not near %.17g", found, wanted);
  }
}

static void assert_near(double found, double wanted) {
  assert_within(found, wanted, RELATIVE);
}

static void check_steps(const struct variant *variant) {
  struct expected expected;
  read_expected(&expected);
  struct step *step = make_step(variant);
  struct naive naive;
  naive_init(&naive, step->graph, step->options.threads);
  load_weights(&naive, step, DATA "init.safetensors");
  double relative = relative_of(step);
  /* The update of an element whose gradient is lost in rounding may go either way. */
  double update = variant->dtype == MR_BF16 ? 2 * RATE : 1e-6;
  for (uint32_t i = 0; i < STEPS; i++) {
    feed(&naive, step, &expected, i);
    naive_step(&naive, MR_STEP_EVALUATE);
    assert_within(*(double *)naive.data[step->loss], expected.loss[i], relative / 10);
    naive_step(&naive, MR_STEP_TRAIN);
    assert_within(*(double *)naive.data[step->loss], expected.loss[i], relative / 10);
    assert_within(*(double *)naive.data[step->optimizer.norm], expected.norm[i], relative);
    if (i == 0) {
      compare(&naive, step, DATA "grad.safetensors", "gradient.", 1e-8);
      compare(&naive, step, DATA "step1.safetensors", "", update);
    }
  }
  compare(&naive, step, DATA "step3.safetensors", "", STEPS * update);
  naive_fini(&naive);
  step_destroy(step);
}

static void reference_matches_pytorch(void **state) {
  (void)state;
  check_steps(&(struct variant){.reference = true, .micro_steps = 1, .clip = 0.5});
}

static void fast_matches_pytorch(void **state) {
  (void)state;
  check_steps(&(struct variant){.micro_steps = 1, .clip = 0.5});
}

static void accumulated_gradients_match_pytorch(void **state) {
  (void)state;
  check_steps(&(struct variant){.reference = true, .micro_steps = 2, .clip = 0.5});
  check_steps(&(struct variant){.micro_steps = 2, .clip = 0.5});
}

static void cut_vocabulary_matches_pytorch(void **state) {
  (void)state;
  for (uint32_t micro_steps = 1; micro_steps <= 2; micro_steps++) {
    struct variant variant = {
        .reference = true, .micro_steps = micro_steps, .clip = 0.5, .cut = true};
    check_steps(&variant);
    variant.reference = false;
    check_steps(&variant);
  }
}

static void bf16_layers_stay_near_pytorch(void **state) {
  (void)state;
  bool fast = kernel_gemm_check(MR_BF16) == MR_OK;
  for (uint32_t i = 0; i < 8; i++) {
    struct variant variant = {.reference = i % 2 == 0,
                              .micro_steps = 1 + i / 2 % 2,
                              .clip = 0.5,
                              .cut = i / 4 == 1,
                              .dtype = MR_BF16};
    if (fast || variant.reference) check_steps(&variant);
  }
}

/* Layers read the copy, which the update of the whole part sets; nothing but updates touches the
 * parameter itself. */
static void layers_read_bf16_alone(void **state) {
  (void)state;
  struct step *step = make_step(
      &(struct variant){.reference = true, .micro_steps = 2, .clip = 1, .dtype = MR_BF16});
  const struct mr_graph *graph = step->graph;
  for (uint32_t i = 0; i < step->part_count; i++) {
    const struct tape_parameter *part = &step->parts[i];
    assert_int_equal(graph->tensors[part->working].dtype, MR_BF16);
    assert_int_equal(2 * mr_graph_tensor_bytes(graph, part->working),
                     mr_graph_tensor_bytes(graph, part->tensor));
    uint32_t written = 0;
    for (uint32_t k = 0; k < graph->op_count; k++) {
      const struct mr_op *op = &graph->ops[k];
      bool updates = strcmp(op->kind, "adamw") == 0;
      for (uint32_t j = 0; j < op->input_count; j++) {
        assert_true(op->inputs[j] != part->tensor || updates);
        assert_true(op->inputs[j] != part->working || !updates);
      }
      written += updates && op->outputs[op->output_count - 1] == part->working;
    }
    assert_int_equal(written, 1);
  }
  step_destroy(step);
}

/* Without clipping gradients and norm are the same, and updates follow at once. */
static void unclipped_step_has_the_same_gradients(void **state) {
  (void)state;
  struct expected expected;
  read_expected(&expected);
  for (uint32_t i = 0; i < 4; i++) {
    struct step *step =
        make_step(&(struct variant){.reference = true, .micro_steps = 1 + i % 2, .cut = i >= 2});
    struct naive naive;
    naive_init(&naive, step->graph, step->options.threads);
    load_weights(&naive, step, DATA "init.safetensors");
    feed(&naive, step, &expected, 0);
    naive_step(&naive, MR_STEP_TRAIN);
    assert_near(*(double *)naive.data[step->optimizer.norm], expected.norm[0]);
    compare(&naive, step, DATA "grad.safetensors", "gradient.", 1e-8);
    naive_fini(&naive);
    step_destroy(step);
  }
}

static uint32_t last_touch(const struct mr_liveness *liveness, mr_tensor_id tensor) {
  return liveness->accesses[liveness->first[tensor + 1] - 1].op;
}

static uint32_t first_touch(const struct mr_liveness *liveness, mr_tensor_id tensor) {
  return liveness->accesses[liveness->first[tensor]].op;
}

/* With clipping off, the head's gradient aside, no gradient lives when the next layer's is made. */
static void unclipped_gradients_do_not_live_together(void **state) {
  (void)state;
  struct step *step = make_step(&(struct variant){.reference = true, .micro_steps = 1});
  struct mr_liveness liveness;
  assert_int_equal(mr_liveness_init(&liveness, step->graph), MR_OK);
  uint32_t first_layer = model_part_of(&step->options.config, 2, 0);
  for (uint32_t i = 0; i < MODEL_PARAMETERS_PER_LAYER; i++) {
    uint32_t upper =
        last_touch(&liveness, step->parts[first_layer + MODEL_PARAMETERS_PER_LAYER + i].gradient);
    for (uint32_t j = 0; j < MODEL_PARAMETERS_PER_LAYER; j++) {
      assert_true(upper < first_touch(&liveness, step->parts[first_layer + j].gradient));
    }
  }
  mr_liveness_fini(&liveness);
  step_destroy(step);
}

/* No op needs the token embedding, its gradient or all logits at once, and the gradient of a slice
 * is complete and taken before the next slice's is touched. */
static void slices_are_used_one_by_one(void **state) {
  (void)state;
  struct step *step =
      make_step(&(struct variant){.reference = true, .micro_steps = 2, .cut = true});
  const struct mr_graph *graph = step->graph;
  uint32_t slices = model_part_of(&step->options.config, 1, 0);
  assert_int_equal(slices, 4);
  for (uint32_t i = 0; i < graph->op_count; i++) {
    uint32_t touched = 0;
    for (uint32_t j = 0; j < graph->ops[i].input_count; j++) {
      touched += graph->ops[i].inputs[j] < step->parts[slices].tensor &&
                 mr_graph_tensor_role(graph, graph->ops[i].inputs[j]) == MR_PARAMETER;
    }
    assert_true(touched <= 1);
  }
  struct mr_liveness liveness;
  assert_int_equal(mr_liveness_init(&liveness, graph), MR_OK);
  for (uint32_t i = 0; i + 1 < slices; i++) {
    const struct mr_access *end = liveness.accesses + liveness.first[step->parts[i].gradient + 1];
    uint32_t added = end[-3].op; /* by the embedding; then come norm and update */
    assert_true(last_touch(&liveness, step->parts[i + 1].gradient) < added);
  }
  mr_liveness_fini(&liveness);
  step_destroy(step);
}

static void vocabularies_are_cut_by_shape(void **state) {
  (void)state;
  const uint64_t page_bytes = 2ull << 20;
  assert_int_equal(vocabulary_slice_words(50257, 768), 4096);
  assert_int_equal(vocabulary_slice_words(2048, 512), 2048); /* 4 MiB stay whole */
  for (uint64_t words = 1; words <= 1u << 24; words = 3 * words + 1) {
    for (uint64_t width = 1; width <= 65536; width *= 4) {
      uint64_t slice = vocabulary_slice_words(words, width);
      assert_true(slice >= 1 && slice <= words);
      assert_true(words <= slice * VOCABULARY_MOST_SLICES);
      uint64_t left = page_bytes - 1 - (slice * width * sizeof(float) - 1) % page_bytes;
      assert_true(slice == words || left < 16 * width * sizeof(float)); /* whole pages are full */
    }
    for (uint64_t rows = 1; rows <= 1u << 24; rows = 5 * rows + 3) {
      uint64_t block = vocabulary_block_rows(words, rows, sizeof(float));
      assert_true(block >= 1 && block <= rows);
      assert_true(block <= 32 || block * words * sizeof(float) <= 256ull << 20);
    }
  }
  assert_int_equal(vocabulary_block_rows(50257, 1024, sizeof(float)), 1024);
  assert_int_equal(vocabulary_block_rows(50257, 2048, sizeof(float)), 1024);
  assert_int_equal(vocabulary_block_rows(50257, 2048, sizeof(uint16_t)), 2048);
}

/* Parts are the parameters in order, without gap or overlap, whatever the cut. */
static void parts_make_up_the_parameters(void **state) {
  (void)state;
  struct step *step =
      make_step(&(struct variant){.reference = true, .micro_steps = 1, .cut = true});
  const struct model_config *config = &step->options.config;
  uint32_t part = 0;
  for (uint32_t i = 0; i < model_parameter_count(config); i++) {
    uint64_t count = model_parameter_at(config, i).count;
    for (uint64_t at = 0; at < count; part++) {
      struct model_part description = model_part_at(config, part);
      assert_int_equal(description.parameter, i);
      assert_int_equal(description.first, at);
      assert_int_equal(model_part_of(config, i, at), part);
      at += description.count;
      assert_true(at <= count);
      assert_int_equal(model_part_of(config, i, at - 1), part);
    }
  }
  assert_int_equal(part, model_part_count(config));
  step_destroy(step);
}

/* Forward ops of a layer share a block, each micro-step has its own, and so has each op that makes
 * logits: of 4 slices for 2 blocks of rows in each micro-step. */
static void blocks_are_layers_and_logits(void **state) {
  (void)state;
  struct step *step =
      make_step(&(struct variant){.reference = true, .micro_steps = 2, .clip = 1, .cut = true});
  uint32_t in_block[4 + 2 * 2 * 4] = {0};
  for (uint32_t i = 0; i < step->graph->op_count; i++) {
    const struct mr_op *op = &step->graph->ops[i];
    if (op->block == MR_NO_BLOCK) {
      continue;
    }
    assert_true(op->block < sizeof in_block / sizeof in_block[0]);
    assert_true((op->flags & MR_OP_REPEATABLE) != 0 && (op->flags & MR_OP_TRAIN_ONLY) == 0);
    in_block[op->block]++;
  }
  for (uint32_t i = 0; i < sizeof in_block / sizeof in_block[0]; i++) {
    assert_int_equal(in_block[i], i < 4 ? 8 : 1);
  }
  step_destroy(step);
}

static void schedule_rises_and_falls(void **state) {
  (void)state;
  struct optimizer_options options = {.lr = 1, .min_lr = 0.1, .warmup = 4, .decay_steps = 8};
  static const double wanted[] = {
      0.25, 0.5, 0.75, 1, 1, 0.86819805153394642, 0.55, 0.23180194846605, 0.1, 0.1};
  for (uint32_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
    assert_near(optimizer_rate(&options, i + 1), wanted[i]);
  }
  options.decay_steps = 0;
  assert_near(optimizer_rate(&options, 1000), 1);
}

static void models_are_described(void **state) {
  (void)state;
  static const struct {
    const char *preset;
    uint64_t parameters; /* as Hugging Face counts them */
  } known[] = {{"gpt2", 124439808},
               {"gpt2-medium", 354823168},
               {"gpt2-large", 774030080},
               {"gpt2-xl", 1557611200}};
  for (uint32_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    struct trainer_options options;
    memset(&options, 0, sizeof options);
    options.preset = known[i].preset;
    struct model_config config;
    uint32_t batch = 0;
    uint32_t seq = 0;
    assert_int_equal(model_resolve(&options, &config, &batch, &seq), MR_OK);
    uint64_t count = 0;
    for (uint32_t j = 0; j < model_parameter_count(&config); j++) {
      count += model_parameter_at(&config, j).count;
    }
    assert_int_equal(count, known[i].parameters);
    assert_int_equal(config.width, 64 * config.heads);
  }
}

static void silent(void *context, mr_log_level level, const char *line) {
  (void)level;
  (void)line;
  ++*(int *)context;
}

static void bad_models_are_refused(void **state) {
  (void)state;
  static const struct trainer_options bad[] = {
      {.preset = "gpt3"},
      {.width = 100, .heads = 3},
      {.seq = 300, .positions = 200},
      {.layers = 1u << 30},
      {.preset = "gpt2", .seq = 2048},
      {.batch = 1u << 31},
      {.batch = 65536, .seq = 65536},
  };
  int lines = 0;
  mr_log_configure(silent, &lines, MR_LOG_ERROR);
  for (uint32_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    struct model_config config;
    uint32_t batch = 0;
    uint32_t seq = 0;
    assert_int_equal(model_resolve(&bad[i], &config, &batch, &seq), MR_INVALID);
    assert_int_equal(lines, i + 1);
  }
  mr_log_configure(NULL, NULL, MR_LOG_INFO);
}

static void draws_do_not_depend_on_pieces(void **state) {
  (void)state;
  struct model_config config = {
      .layers = 2, .heads = 3, .width = 24, .vocab = VOCAB, .positions = 16};
  float whole[VOCAB * 24];
  float pieces[VOCAB * 24];
  model_draw(&config, 7, 0, 0, VOCAB * 24, whole);
  model_draw(&config, 7, 0, 0, 100, pieces);
  model_draw(&config, 7, 0, 100, VOCAB * 24 - 100, pieces + 100);
  assert_memory_equal(whole, pieces, sizeof whole);
  double sum = 0;
  double squares = 0;
  for (uint32_t i = 0; i < VOCAB * 24; i++) {
    sum += whole[i];
    squares += (double)whole[i] * whole[i];
  }
  assert_true(fabs(sum / (VOCAB * 24)) < 0.002);
  assert_true(fabs(sqrt(squares / (VOCAB * 24)) - 0.02) < 0.002);
}

static int open_gemm(void **state) {
  (void)state;
  return kernel_gemm_open("auto", 2) == MR_OK ? 0 : -1;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reference_matches_pytorch),
      cmocka_unit_test(fast_matches_pytorch),
      cmocka_unit_test(accumulated_gradients_match_pytorch),
      cmocka_unit_test(cut_vocabulary_matches_pytorch),
      cmocka_unit_test(bf16_layers_stay_near_pytorch),
      cmocka_unit_test(layers_read_bf16_alone),
      cmocka_unit_test(unclipped_step_has_the_same_gradients),
      cmocka_unit_test(unclipped_gradients_do_not_live_together),
      cmocka_unit_test(slices_are_used_one_by_one),
      cmocka_unit_test(vocabularies_are_cut_by_shape),
      cmocka_unit_test(parts_make_up_the_parameters),
      cmocka_unit_test(blocks_are_layers_and_logits),
      cmocka_unit_test(schedule_rises_and_falls),
      cmocka_unit_test(models_are_described),
      cmocka_unit_test(bad_models_are_refused),
      cmocka_unit_test(draws_do_not_depend_on_pieces),
  };
  return cmocka_run_group_tests(tests, open_gemm, NULL);
}

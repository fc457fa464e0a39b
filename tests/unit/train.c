/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A full training step against PyTorch's values (tests/data/gpt2_step/make.py), with both kernel
 * tables, with and without gradient accumulation; the shape of the graph; the schedule.
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
#include "train/kernels/kernels.h"
#include "train/safetensors.h"
#include "train/step.h"
#include "unit/train_naive.h"

#define STEPS    3u
#define SEQ      16u
#define BATCH    2u
#define MOST     4096u /* elements of the largest tensor */
#define RELATIVE 1e-5  /* of the largest value of a tensor */

#define DATA     MEMRUN_TEST_DATA "/gpt2_step/"

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

/* micro_steps 2: the same batch, one row at a time. */
static struct step *make_step(bool reference, uint32_t micro_steps, double clip) {
  struct step_options options = {
      .config = {.layers = 2, .heads = 3, .width = 24, .vocab = 61, .positions = SEQ},
      .optimizer =
          {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-5, .weight_decay = 0.1, .clip = clip},
      .batch = BATCH / micro_steps,
      .seq = SEQ,
      .grad_accum = micro_steps,
      .threads = 2,
      .reference = reference,
  };
  struct step *step = NULL;
  assert_int_equal(step_create(&options, &step), MR_OK);
  return step;
}

static void load_weights(const struct naive *naive, const char *path) {
  struct safetensors_file file;
  assert_int_equal(safetensors_open(path, &file), MR_OK);
  for (uint32_t i = 0; i < file.header.entry_count; i++) {
    const struct safetensors_entry *entry = &file.header.entries[i];
    float *to = naive_find(naive, entry->name);
    assert_int_equal(safetensors_read(&file, entry, 0, entry->count, to), MR_OK);
  }
  safetensors_close(&file);
}

/* Compares tensors "<prefix><name>" with a file: no difference above RELATIVE times the largest
 * value, plus `absolute`. */
static void compare(const struct naive *naive, const char *path, const char *prefix,
                    double absolute) {
  struct safetensors_file file;
  assert_int_equal(safetensors_open(path, &file), MR_OK);
  assert_int_equal(file.header.entry_count, 28);
  for (uint32_t i = 0; i < file.header.entry_count; i++) {
    const struct safetensors_entry *entry = &file.header.entries[i];
    char name[256];
    float wanted[MOST];
    snprintf(name, sizeof name, "%s%s", prefix, entry->name);
    const float *found = naive_find(naive, name);
    assert_true(entry->count <= MOST);
    assert_int_equal(safetensors_read(&file, entry, 0, entry->count, wanted), MR_OK);
    double largest = 0;
    double difference = 0;
    for (uint64_t j = 0; j < entry->count; j++) {
      largest = fmax(largest, fabs((double)wanted[j]));
      double apart = fabs((double)found[j] - wanted[j]);
      difference = apart > difference || isnan(apart) ? apart : difference;
    }
    if (!(difference <= RELATIVE * largest + absolute)) {
      fail_msg("%s differs by %g; its largest value is %g", name, difference, largest);
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

static void assert_near(double found, double wanted) {
  if (!(fabs(found - wanted) <= RELATIVE * fabs(wanted))) {
    fail_msg("%.17g is not near %.17g", found, wanted);
  }
}

static void check_steps(bool reference, uint32_t micro_steps) {
  struct expected expected;
  read_expected(&expected);
  struct step *step = make_step(reference, micro_steps, 0.5);
  struct naive naive;
  naive_init(&naive, step->graph, step->options.threads);
  load_weights(&naive, DATA "init.safetensors");
  for (uint32_t i = 0; i < STEPS; i++) {
    feed(&naive, step, &expected, i);
    naive_step(&naive, MR_STEP_EVALUATE);
    assert_near(*(double *)naive.data[step->loss], expected.loss[i]);
    naive_step(&naive, MR_STEP_TRAIN);
    assert_near(*(double *)naive.data[step->loss], expected.loss[i]);
    assert_near(*(double *)naive.data[step->optimizer.norm], expected.norm[i]);
    if (i == 0) {
      compare(&naive, DATA "grad.safetensors", "gradient.", 1e-8);
      compare(&naive, DATA "step1.safetensors", "", 1e-6);
    }
  }
  compare(&naive, DATA "step3.safetensors", "", 1e-6);
  naive_fini(&naive);
  step_destroy(step);
}

static void reference_matches_pytorch(void **state) {
  (void)state;
  check_steps(true, 1);
}

static void fast_matches_pytorch(void **state) {
  (void)state;
  check_steps(false, 1);
}

static void accumulated_gradients_match_pytorch(void **state) {
  (void)state;
  check_steps(true, 2);
  check_steps(false, 2);
}

/* Without clipping gradients and norm are the same, and updates follow at once. */
static void unclipped_step_has_the_same_gradients(void **state) {
  (void)state;
  struct expected expected;
  read_expected(&expected);
  for (uint32_t micro_steps = 1; micro_steps <= 2; micro_steps++) {
    struct step *step = make_step(true, micro_steps, 0);
    struct naive naive;
    naive_init(&naive, step->graph, step->options.threads);
    load_weights(&naive, DATA "init.safetensors");
    feed(&naive, step, &expected, 0);
    naive_step(&naive, MR_STEP_TRAIN);
    assert_near(*(double *)naive.data[step->optimizer.norm], expected.norm[0]);
    compare(&naive, DATA "grad.safetensors", "gradient.", 1e-8);
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
  struct step *step = make_step(true, 1, 0);
  struct mr_liveness liveness;
  assert_int_equal(mr_liveness_init(&liveness, step->graph), MR_OK);
  uint32_t last_layer = 2 + MODEL_PARAMETERS_PER_LAYER;
  for (uint32_t i = 0; i < MODEL_PARAMETERS_PER_LAYER; i++) {
    uint32_t upper = last_touch(&liveness, step->parameters[last_layer + i].gradient);
    for (uint32_t j = 0; j < MODEL_PARAMETERS_PER_LAYER; j++) {
      assert_true(upper < first_touch(&liveness, step->parameters[2 + j].gradient));
    }
  }
  mr_liveness_fini(&liveness);
  step_destroy(step);
}

/* Forward ops of a layer share a block, each micro-step has its own, and no other op has one. */
static void blocks_are_layers(void **state) {
  (void)state;
  struct step *step = make_step(true, 2, 1);
  uint32_t in_block[4] = {0};
  for (uint32_t i = 0; i < step->graph->op_count; i++) {
    const struct mr_op *op = &step->graph->ops[i];
    if (op->block == MR_NO_BLOCK) {
      continue;
    }
    assert_true(op->block < 4);
    assert_true((op->flags & MR_OP_REPEATABLE) != 0 && (op->flags & MR_OP_TRAIN_ONLY) == 0);
    in_block[op->block]++;
  }
  for (uint32_t i = 0; i < 4; i++) {
    assert_int_equal(in_block[i], 8);
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
  struct model_config config = {.layers = 2, .heads = 3, .width = 24, .vocab = 61, .positions = 16};
  float whole[61 * 24];
  float pieces[61 * 24];
  model_draw(&config, 7, 0, 0, 61 * 24, whole);
  model_draw(&config, 7, 0, 0, 100, pieces);
  model_draw(&config, 7, 0, 100, 61 * 24 - 100, pieces + 100);
  assert_memory_equal(whole, pieces, sizeof whole);
  double sum = 0;
  double squares = 0;
  for (uint32_t i = 0; i < 61 * 24; i++) {
    sum += whole[i];
    squares += (double)whole[i] * whole[i];
  }
  assert_true(fabs(sum / (61 * 24)) < 0.002);
  assert_true(fabs(sqrt(squares / (61 * 24)) - 0.02) < 0.002);
}

static int open_gemm(void **state) {
  (void)state;
  return kernel_gemm_open("auto") == MR_OK ? 0 : -1;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reference_matches_pytorch),
      cmocka_unit_test(fast_matches_pytorch),
      cmocka_unit_test(accumulated_gradients_match_pytorch),
      cmocka_unit_test(unclipped_step_has_the_same_gradients),
      cmocka_unit_test(unclipped_gradients_do_not_live_together),
      cmocka_unit_test(blocks_are_layers),
      cmocka_unit_test(schedule_rises_and_falls),
      cmocka_unit_test(models_are_described),
      cmocka_unit_test(bad_models_are_refused),
      cmocka_unit_test(draws_do_not_depend_on_pieces),
  };
  return cmocka_run_group_tests(tests, open_gemm, NULL);
}

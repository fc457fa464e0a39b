/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer's life: made, stepped, evaluated, saved, destroyed. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/common.h"
#include "train/cuda/open.h"
#include "train/job.h"
#include "train/kernels/kernels.h"
#include "train/vocabulary.h"

static void fill_info(struct trainer *trainer) {
  const struct step_options *options = &trainer->step->options;
  struct trainer_info *info = &trainer->info;
  for (uint32_t i = 0; i < model_parameter_count(&options->config); i++) {
    info->parameter_count += model_parameter_at(&options->config, i).count;
  }
  info->parameter_bytes = info->parameter_count * sizeof(float);
  info->layers = options->config.layers;
  info->heads = options->config.heads;
  info->width = options->config.width;
  info->vocab = options->config.vocab;
  info->positions = options->config.positions;
  info->batch = options->batch;
  info->seq = options->seq;
  info->tokens_per_step = (uint64_t)options->batch * options->seq * options->grad_accum;
  info->first_step = 1;
  info->dtype = options->dtype;
  if (trainer->options.elsewhere) {
    info->gemm = NULL;
  } else if (options->backend == MR_BACKEND_CUDA) {
    info->gemm = "cuBLASLt";
  } else {
    info->gemm = options->reference ? "reference" : kernel_gemm_name();
  }
}

/* Finds what the ops compute with, before their graph is built. */
static mr_status open_kernels(struct trainer *trainer) {
  const struct trainer_options *options = &trainer->options;
  if (options->elsewhere) {
    return MR_OK;
  }
  if (options->run.device == MR_BACKEND_CUDA) {
    mr_status status = cuda_kernels_open();
    trainer->cuda_kernels = status == MR_OK;
    return status;
  }
  if (options->reference) {
    return MR_OK;
  }
  mr_status status =
      kernel_gemm_open(options->gemm == NULL ? "auto" : options->gemm, options->run.threads);
  return status == MR_OK ? kernel_gemm_check(options->dtype) : status;
}

static mr_status build_step(struct trainer *trainer) {
  const struct trainer_options *options = &trainer->options;
  struct step_options step = {
      .optimizer = {.lr = options->lr,
                    .min_lr = options->min_lr,
                    .beta1 = options->beta1,
                    .beta2 = options->beta2,
                    .eps = options->eps,
                    .weight_decay = options->weight_decay,
                    .clip = options->clip,
                    .warmup = options->warmup,
                    .decay_steps = options->decay_steps},
      .grad_accum = options->grad_accum,
      .backend = options->run.device,
      .dtype = options->dtype,
      .threads = options->run.threads,
      .reference = options->reference,
  };
  mr_status status = model_resolve(options, &step.config, &step.batch, &step.seq);
  if (status == MR_OK) {
    step.block_rows = vocabulary_block_rows(step.config.vocab, (uint64_t)step.batch * step.seq,
                                            mr_dtype_bytes(step.dtype));
  }
  if (status == MR_OK) {
    status = open_kernels(trainer);
  }
  if (status == MR_OK) {
    status = step_create(&step, &trainer->step);
  }
  if (status == MR_OK) {
    fill_info(trainer);
  }
  return status;
}

/* Evaluations are whole steps, and go round a file that has fewer windows. */
static void tell_evaluations(const struct trainer *trainer) {
  const struct trainer_options *options = &trainer->options;
  const struct trainer_info *info = &trainer->info;
  uint32_t each = options->grad_accum;
  uint64_t batches = ((uint64_t)options->eval_batches + each - 1) / each * each;
  struct data_source *source = trainer->eval_data != NULL ? trainer->eval_data : trainer->data;
  uint64_t tokens = data_token_count(source);
  uint64_t windows = tokens == 0 ? UINT64_MAX : (tokens - 1) / ((uint64_t)info->batch * info->seq);
  if (batches != options->eval_batches) {
    mr_log(MR_LOG_WARN, "evaluations are of %llu batches, not %u: whole steps of --grad-accum %u",
           (unsigned long long)batches, options->eval_batches, each);
  }
  if (batches > windows) {
    mr_log(MR_LOG_WARN, "evaluations are of %llu batches of a file of %llu: some count again",
           (unsigned long long)batches, (unsigned long long)windows);
  }
}

/* Numbers of bytes and of words mean nothing to the same model. */
static mr_status describe_evaluations(struct trainer *trainer) {
  const struct trainer_options *options = &trainer->options;
  struct trainer_info *info = &trainer->info;
  if (options->eval_data_path != NULL) {
    info->eval_data_path = options->eval_data_path;
    info->eval_data_tokens = data_token_count(trainer->eval_data);
    info->eval_data_is_bytes = data_is_bytes(trainer->eval_data);
    if (options->data_path != NULL && info->eval_data_is_bytes != info->data_is_bytes) {
      mr_log(MR_LOG_ERROR, "--eval-data %s is of %s, --data %s of %s", options->eval_data_path,
             info->eval_data_is_bytes ? "bytes" : "GPT-2 tokens", options->data_path,
             info->data_is_bytes ? "bytes" : "GPT-2 tokens");
      return MR_INVALID;
    }
  }
  if (options->eval_every != 0) {
    tell_evaluations(trainer);
  }
  return MR_OK;
}

static mr_status open_data(struct trainer *trainer) {
  const struct trainer_options *options = &trainer->options;
  trainer->info.loss_floor = -1;
  if (options->elsewhere && options->data_path == NULL && options->eval_data_path == NULL) {
    return MR_OK;
  }
  bool evaluates = options->eval_every != 0 && options->eval_data_path == NULL;
  uint64_t evaluation_windows = options->eval_batches + (uint64_t)options->grad_accum;
  /* Windows are shuffled for training alone: evaluations are of the file's first ones. */
  bool apart = evaluates && options->data_path != NULL && options->shuffle;
  struct data_options data = {.path = options->data_path,
                              .vocab = trainer->info.vocab,
                              .batch = trainer->info.batch,
                              .seq = trainer->info.seq,
                              .seed = options->seed,
                              .shuffle = options->shuffle,
                              .windows = options->steps * options->grad_accum};
  if (evaluates && !apart) {
    data.windows = data.windows > evaluation_windows ? data.windows : evaluation_windows;
  }
  mr_status status = data_open(&data, &trainer->data);
  if (status == MR_OK && (apart || options->eval_data_path != NULL)) {
    data.path = apart ? options->data_path : options->eval_data_path;
    data.shuffle = false;
    data.windows = evaluation_windows;
    status = data_open(&data, &trainer->eval_data);
  }
  if (status == MR_OK) {
    trainer->info.loss_floor = data_loss_floor(trainer->data);
    trainer->info.data_path = options->data_path;
    trainer->info.data_tokens = data_token_count(trainer->data);
    trainer->info.data_is_bytes = data_is_bytes(trainer->data);
    status = describe_evaluations(trainer);
  }
  return status;
}

static mr_status allocate_buffers(struct trainer *trainer) {
  uint64_t window = (uint64_t)trainer->info.batch * trainer->info.seq;
  trainer->tokens = train_allocate(window, sizeof *trainer->tokens);
  trainer->targets = train_allocate(window, sizeof *trainer->targets);
  trainer->piece = aligned_alloc(4096, TRAIN_PIECE_BYTES);
  if (trainer->piece == NULL) {
    mr_log(MR_LOG_ERROR, "out of host memory: asked for %llu bytes",
           (unsigned long long)TRAIN_PIECE_BYTES);
  }
  bool whole = trainer->tokens != NULL && trainer->targets != NULL && trainer->piece != NULL;
  return whole ? MR_OK : MR_NO_MEMORY;
}

mr_status trainer_prepare(const struct trainer_options *options, struct trainer **trainer_out) {
  mr_status status = options_check(options);
  if (status != MR_OK) {
    return status;
  }
  struct trainer *trainer = train_allocate(1, sizeof *trainer);
  if (trainer == NULL) {
    return MR_NO_MEMORY;
  }
  trainer->options = *options;
  trainer->options.run.threads = options_threads(options);
  status = build_step(trainer);
  if (status == MR_OK) {
    status = open_data(trainer);
  }
  if (status == MR_OK) {
    status = allocate_buffers(trainer);
  }
  if (status != MR_OK) {
    return trainer_destroy(trainer, status);
  }
  *trainer_out = trainer;
  return MR_OK;
}

/* A piece of a parameter, drawn by several threads: each number follows from its place alone. */
struct drawing {
  const struct trainer *trainer;
  uint32_t parameter;
  uint64_t first, count;
};

#define DRAW_ELEMENTS (64u << 10) /* of a task; even, because numbers are drawn in pairs */

static void draw_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  const struct drawing *drawing = context;
  const struct trainer *trainer = drawing->trainer;
  uint64_t at = (uint64_t)task * DRAW_ELEMENTS;
  model_draw(&trainer->step->options.config, trainer->options.seed, drawing->parameter,
             drawing->first + at, train_min_u64(DRAW_ELEMENTS, drawing->count - at),
             trainer->piece + at);
}

static mr_status draw_part(struct trainer *trainer, struct mr_team *team, uint32_t index) {
  struct model_part part = model_part_at(&trainer->step->options.config, index);
  mr_status status = MR_OK;
  for (uint64_t at = 0; status == MR_OK && at < part.count; at += TRAIN_PIECE_ELEMENTS) {
    struct drawing drawing = {.trainer = trainer,
                              .parameter = part.parameter,
                              .first = part.first + at,
                              .count = train_min_u64(TRAIN_PIECE_ELEMENTS, part.count - at)};
    uint64_t tasks = (drawing.count + DRAW_ELEMENTS - 1) / DRAW_ELEMENTS;
    mr_team_run(team, (uint32_t)tasks, draw_task, &drawing);
    status = mr_run_write(trainer->run, trainer->step->parts[index].tensor, at * sizeof(float),
                          trainer->piece, drawing.count * sizeof(float));
  }
  return status;
}

static mr_status draw_weights(struct trainer *trainer) {
  struct mr_team *team = NULL;
  mr_status status = mr_team_create(trainer->options.run.threads, &team);
  for (uint32_t i = 0; status == MR_OK && i < trainer->step->part_count; i++) {
    status = draw_part(trainer, team, i);
  }
  mr_team_destroy(team);
  return status;
}

/* Whether the checkpoint lies in the directory. */
static bool lies_in(const struct checkpoint *checkpoint, const char *directory) {
  char parent[TRAIN_PATH_BYTES];
  struct stat there;
  struct stat here;
  snprintf(parent, sizeof parent, "%s", checkpoint->path);
  char *slash = strrchr(parent, '/');
  if (slash != NULL) {
    *slash = '\0';
  }
  return slash != NULL && stat(parent, &there) == 0 && stat(directory, &here) == 0 &&
         there.st_dev == here.st_dev && there.st_ino == here.st_ino;
}

/* Checkpoints of another run are not mixed with this one's: only where it goes on from one of them
 * are there any. */
static mr_status check_fresh(const struct trainer_options *options,
                             const struct checkpoint *checkpoint) {
  if (options->checkpoint_dir == NULL ||
      (checkpoint->state != NULL && lies_in(checkpoint, options->checkpoint_dir))) {
    return MR_OK;
  }
  uint64_t *steps = NULL;
  uint32_t count = 0;
  mr_status status = checkpoint_list(options->checkpoint_dir, &steps, &count);
  if (status == MR_OK && count > 0) {
    mr_log(MR_LOG_ERROR,
           "%s holds a checkpoint of step %llu already: go on from it with --resume %s, or give "
           "another directory",
           options->checkpoint_dir, (unsigned long long)steps[count - 1], options->checkpoint_dir);
    status = MR_INVALID;
  }
  free(steps);
  return status;
}

/* What can be refused before a byte is allocated or written. */
static mr_status check_files(struct trainer *trainer, struct checkpoint *checkpoint) {
  const struct trainer_options *options = &trainer->options;
  mr_status status = MR_OK;
  if (options->resume_dir != NULL) {
    status = checkpoint_find(trainer, options->resume_dir, checkpoint);
  }
  if (status == MR_OK) {
    status = check_fresh(options, checkpoint);
  }
  if (status == MR_OK && options->resume_dir == NULL && options->init_path != NULL) {
    status = weights_check(trainer->step, options->init_path);
  }
  if (status == MR_OK) {
    status = weights_spared(options->init_path, options->save_dir);
  }
  return status;
}

static mr_status start(struct trainer *trainer, const struct checkpoint *checkpoint) {
  const struct trainer_options *options = &trainer->options;
  mr_status status = mr_run_create(trainer->step->graph, &options->run, &trainer->run);
  if (status == MR_OK && options->checkpoint_dir != NULL) {
    status = directory_prepare(options->checkpoint_dir);
  }
  if (status == MR_OK && options->save_dir != NULL) {
    status = directory_prepare(options->save_dir);
  }
  if (status != MR_OK) {
    return status;
  }
  if (checkpoint->state != NULL) {
    status = checkpoint_load(trainer, checkpoint);
  } else if (options->init_path != NULL) {
    status = weights_load(trainer, options->init_path);
  } else {
    status = draw_weights(trainer);
  }
  trainer->info.first_step = trainer->steps_done + 1;
  return status;
}

mr_status trainer_create(const struct trainer_options *options, struct trainer **trainer_out) {
  struct trainer *trainer = NULL;
  mr_status status = trainer_prepare(options, &trainer);
  if (status != MR_OK) {
    return status;
  }
  struct checkpoint checkpoint = {.state = NULL};
  status = check_files(trainer, &checkpoint);
  if (status == MR_OK) {
    status = start(trainer, &checkpoint);
  }
  checkpoint_fini(&checkpoint);
  if (status != MR_OK) {
    return trainer_destroy(trainer, status);
  }
  *trainer_out = trainer;
  return MR_OK;
}

mr_status trainer_destroy(struct trainer *trainer, mr_status status) {
  if (trainer == NULL) {
    return status;
  }
  bool hangs = status == MR_TIMEOUT && trainer->options.run.device == MR_BACKEND_CUDA;
  if (mr_run_destroy(trainer->run) != MR_OK || hangs) {
    return MR_TIMEOUT; /* what still runs on the device may use all of it */
  }
  step_destroy(trainer->step);
  data_close(trainer->data);
  data_close(trainer->eval_data);
  free(trainer->tokens);
  free(trainer->targets);
  free(trainer->piece);
  if (trainer->cuda_kernels) {
    cuda_kernels_close();
  }
  free(trainer);
  return status;
}

const struct trainer_info *trainer_get_info(const struct trainer *trainer) {
  return &trainer->info;
}

const struct mr_graph *trainer_get_graph(const struct trainer *trainer) {
  return trainer->step->graph;
}

struct mr_run *trainer_get_run(struct trainer *trainer) {
  return trainer->run;
}

/* Reads window `window` of `source` and writes it into the inputs of a micro-step. */
static mr_status feed(struct trainer *trainer, struct data_source *source, uint64_t window,
                      uint32_t micro_step) {
  uint64_t bytes = (uint64_t)trainer->info.batch * trainer->info.seq * sizeof(int32_t);
  mr_status status = data_read(source, window, trainer->tokens, trainer->targets);
  if (status == MR_OK) {
    status =
        mr_run_write(trainer->run, trainer->step->tokens[micro_step], 0, trainer->tokens, bytes);
  }
  if (status == MR_OK) {
    status =
        mr_run_write(trainer->run, trainer->step->targets[micro_step], 0, trainer->targets, bytes);
  }
  return status;
}

static mr_status read_double(struct trainer *trainer, mr_tensor_id tensor, double *value_out) {
  return mr_run_read(trainer->run, tensor, 0, value_out, sizeof *value_out);
}

static mr_status feed_step(struct trainer *trainer) {
  const struct step *step = trainer->step;
  mr_status status = MR_OK;
  for (uint32_t i = 0; status == MR_OK && i < step->options.grad_accum; i++) {
    status = feed(trainer, trainer->data, trainer->next_window + i, i);
  }
  if (status == MR_OK) {
    float scalars[OP_SCALAR_COUNT];
    optimizer_scalars(&step->options.optimizer, trainer->steps_done + 1, scalars);
    status = mr_run_write(trainer->run, step->optimizer.scalars, 0, scalars, sizeof scalars);
  }
  return status;
}

mr_status trainer_step(struct trainer *trainer, struct trainer_step *step_out) {
  const struct step *step = trainer->step;
  struct trainer_step result = {.step = trainer->steps_done + 1,
                                .report = {.size_bytes = sizeof result.report}};
  result.lr = optimizer_rate(&step->options.optimizer, result.step);
  mr_status status = feed_step(trainer);
  if (status == MR_OK) {
    status = mr_run_step(trainer->run, MR_STEP_TRAIN, &result.report);
  }
  if (status == MR_OK) {
    status = read_double(trainer, step->loss, &result.loss);
  }
  if (status == MR_OK) {
    status = read_double(trainer, step->optimizer.norm, &result.grad_norm);
  }
  if (status != MR_OK) {
    return status;
  }
  trainer->steps_done++;
  trainer->next_window += step->options.grad_accum;
  double seconds = result.report.seconds + result.report.flush_seconds;
  result.tokens_per_second = seconds > 0 ? (double)trainer->info.tokens_per_step / seconds : 0;
  if (isfinite(result.loss) && isfinite(result.grad_norm)) {
    trainer->lost_step = 0;
  } else {
    trainer->lost_step = trainer->lost_step == 0 ? result.step : trainer->lost_step;
    /* the sign of what is no number says nothing */
    mr_log(MR_LOG_WARN, "step %llu: the loss is %g, the norm of its gradients %g",
           (unsigned long long)result.step, fabs(result.loss), fabs(result.grad_norm));
  }
  *step_out = result;
  return MR_OK;
}

mr_status trainer_evaluate(struct trainer *trainer, double *loss_out) {
  struct data_source *source = trainer->eval_data != NULL ? trainer->eval_data : trainer->data;
  uint32_t each = trainer->step->options.grad_accum;
  uint32_t steps = (trainer->options.eval_batches + each - 1) / each;
  double sum = 0;
  for (uint32_t i = 0; i < steps; i++) {
    if (trainer->stop != NULL && *trainer->stop != 0) {
      return MR_INTERRUPTED;
    }
    mr_status status = MR_OK;
    for (uint32_t j = 0; status == MR_OK && j < each; j++) {
      uint64_t window = data_evaluation_window(source, (uint64_t)i * each + j);
      status = feed(trainer, source, window, j);
    }
    double loss = 0;
    if (status == MR_OK) {
      status = mr_run_step(trainer->run, MR_STEP_EVALUATE, NULL);
    }
    if (status == MR_OK) {
      status = read_double(trainer, trainer->step->loss, &loss);
    }
    if (status != MR_OK) {
      return status;
    }
    sum += loss;
  }
  *loss_out = steps == 0 ? 0 : sum / steps;
  return MR_OK;
}

mr_status trainer_checkpoint(struct trainer *trainer) {
  char path[TRAIN_PATH_BYTES];
  if (trainer->options.checkpoint_dir == NULL) {
    mr_log(MR_LOG_ERROR, "a checkpoint needs a directory: --ckpt DIR");
    return MR_INVALID;
  }
  return checkpoint_write(trainer, trainer->options.checkpoint_dir, path);
}

static mr_status replace_file(const char *temporary, const char *path) {
  if (rename(temporary, path) != 0) {
    int error = errno;
    mr_log(MR_LOG_ERROR, "cannot rename %s to %s: %s", temporary, path, strerror(error));
    return train_write_status(error);
  }
  return MR_OK;
}

/* The finished model replaces what was there only when both files are on the disk. */
static mr_status save_files(struct trainer *trainer, const char *model, const char *config) {
  struct file_sum sum;
  char path[TRAIN_PATH_BYTES];
  char *text = model_config_json(&trainer->step->options.config);
  if (text == NULL) {
    return MR_NO_MEMORY;
  }
  mr_status status = bundle_save(trainer, BUNDLE_MODEL, model, NULL, &sum);
  if (status == MR_OK) {
    status = file_create(config, text, strlen(text), &sum);
  }
  free(text);
  if (status == MR_OK) {
    status = train_path(path, trainer->options.save_dir, CHECKPOINT_MODEL);
  }
  if (status == MR_OK) {
    status = replace_file(model, path);
  }
  if (status == MR_OK) {
    status = train_path(path, trainer->options.save_dir, CHECKPOINT_CONFIG);
  }
  if (status == MR_OK) {
    status = replace_file(config, path);
  }
  return status == MR_OK ? directory_sync(trainer->options.save_dir) : status;
}

/* Removes what processes left that died while they saved a model here. */
static void remove_unfinished(const char *directory) {
  static const char *const names[] = {CHECKPOINT_MODEL, CHECKPOINT_CONFIG};
  DIR *stream = opendir(directory);
  for (struct dirent *entry = stream == NULL ? NULL : readdir(stream); entry != NULL;
       entry = readdir(stream)) {
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
      size_t length = strlen(names[i]);
      if (strncmp(entry->d_name, names[i], length) == 0 &&
          train_is_left_behind(entry->d_name + length)) {
        unlinkat(dirfd(stream), entry->d_name, 0);
      }
    }
  }
  if (stream != NULL) {
    closedir(stream);
  }
}

mr_status trainer_save(struct trainer *trainer) {
  char model[TRAIN_PATH_BYTES];
  char config[TRAIN_PATH_BYTES];
  char name[64];
  if (trainer->options.save_dir == NULL) {
    mr_log(MR_LOG_ERROR, "saving needs a directory: --save DIR");
    return MR_INVALID;
  }
  snprintf(name, sizeof name, "%s" TRAIN_UNFINISHED "%ld", CHECKPOINT_MODEL, (long)getpid());
  mr_status status = train_path(model, trainer->options.save_dir, name);
  if (status == MR_OK) {
    snprintf(name, sizeof name, "%s" TRAIN_UNFINISHED "%ld", CHECKPOINT_CONFIG, (long)getpid());
    status = train_path(config, trainer->options.save_dir, name);
  }
  if (status != MR_OK) {
    return status;
  }
  remove_unfinished(trainer->options.save_dir);
  status = save_files(trainer, model, config);
  if (status != MR_OK) {
    unlink(model);
    unlink(config);
  }
  return status;
}

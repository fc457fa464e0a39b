/* SPDX-License-Identifier: Apache-2.0 */
/* The whole job: steps, evaluations and checkpoints when they are due, an end in order. */
#include "train/common.h"
#include "train/job.h"

static bool due(uint64_t step, uint32_t every) {
  return every != 0 && step % every == 0;
}

static mr_status evaluate(struct trainer *trainer, const struct trainer_events *events) {
  double loss = 0;
  mr_status status = trainer_evaluate(trainer, &loss);
  if (status == MR_OK && events->evaluated != NULL) {
    events->evaluated(events->context, trainer->steps_done, loss);
  }
  return status;
}

static mr_status checkpoint(struct trainer *trainer, const struct trainer_events *events) {
  char path[TRAIN_PATH_BYTES];
  mr_status status = checkpoint_write(trainer, trainer->options.checkpoint_dir, path);
  if (status == MR_OK && events->checkpointed != NULL) {
    events->checkpointed(events->context, trainer->steps_done, path);
  }
  return status;
}

/* Whether a step ends with a checkpoint: the last one does, and those that are due. */
static bool keeps(const struct trainer *trainer) {
  const struct trainer_options *options = &trainer->options;
  return options->checkpoint_dir != NULL && (trainer->steps_done >= options->steps ||
                                             due(trainer->steps_done, options->checkpoint_every));
}

static mr_status one_step(struct trainer *trainer, const struct trainer_events *events) {
  const struct trainer_options *options = &trainer->options;
  struct trainer_step step;
  mr_status status = trainer_step(trainer, &step);
  if (status != MR_OK) {
    return status;
  }
  if (events->stepped != NULL) {
    events->stepped(events->context, trainer, &step);
  }
  /* First what must not be lost: an evaluation may be long, and fail. */
  if (keeps(trainer)) {
    status = checkpoint(trainer, events);
  }
  if (status == MR_OK && due(trainer->steps_done, options->eval_every)) {
    status = evaluate(trainer, events);
  }
  return status;
}

/* Ends an interrupted job so that it can be resumed from where it stands. Who set the stop word
 * knows why and says so. */
static mr_status interrupted(struct trainer *trainer, const struct trainer_events *events) {
  bool moved = trainer->steps_done + 1 > trainer->info.first_step;
  if (trainer->options.checkpoint_dir != NULL && moved && !keeps(trainer)) {
    mr_status status = checkpoint(trainer, events);
    if (status != MR_OK) {
      return status;
    }
  }
  return MR_INTERRUPTED;
}

mr_status trainer_train(const struct trainer_options *options, const struct trainer_events *events,
                        const volatile int *stop, struct trainer **trainer_out) {
  static const struct trainer_events no_events = {.context = NULL};
  events = events == NULL ? &no_events : events;
  *trainer_out = NULL;
  struct trainer *trainer = NULL;
  mr_status status = trainer_create(options, &trainer);
  if (status != MR_OK) {
    return status;
  }
  *trainer_out = trainer;
  trainer->stop = stop;
  if (events->started != NULL) {
    events->started(events->context, trainer);
  }
  if (trainer->steps_done >= options->steps) {
    mr_log(MR_LOG_WARN, "the checkpoint has done %llu steps of --steps %llu: nothing is left",
           (unsigned long long)trainer->steps_done, (unsigned long long)options->steps);
  }
  while (status == MR_OK && trainer->steps_done < options->steps) {
    if (stop != NULL && *stop != 0) {
      return interrupted(trainer, events);
    }
    status = one_step(trainer, events);
  }
  if (status == MR_INTERRUPTED && stop != NULL && *stop != 0) {
    return interrupted(trainer, events); /* in an evaluation */
  }
  if (status == MR_OK && options->save_dir != NULL) {
    status = trainer_save(trainer);
  }
  /* A write behind the last step may still fail; a job that was told to be done has lost nothing.
   */
  return status == MR_OK ? mr_run_sync(trainer->run) : status;
}

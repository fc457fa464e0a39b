/* SPDX-License-Identifier: Apache-2.0 */
/* What a trainer is made of, for the files that implement train.h. */
#ifndef MEMRUN_TRAIN_JOB_H
#define MEMRUN_TRAIN_JOB_H

#include "train/common.h"
#include "train/data.h"
#include "train/safetensors.h"
#include "train/step.h"
#include "train/train.h"

struct trainer {
  struct trainer_options options; /* its strings are the caller's; threads are resolved */
  struct trainer_info info;
  struct step *step;
  struct data_source *data;
  struct data_source *eval_data; /* NULL: evaluation reads from data */
  struct mr_run *run;
  bool cuda_kernels;         /* open */
  int32_t *tokens, *targets; /* one window */
  float *piece;              /* TRAIN_PIECE_BYTES, for streaming tensors */
  uint64_t steps_done;
  uint64_t lost_step;   /* the first of the last steps without a finite loss; 0: the last has one */
  uint64_t next_window; /* of the data */
  const volatile int *stop; /* not 0: evaluations end; NULL: nobody can say so */
};

#define TRAIN_PIECE_ELEMENTS (TRAIN_PIECE_BYTES / sizeof(float))

/* options.c: refuses options that make no sense, with one line. */
MR_CHECK_RESULT mr_status options_check(const struct trainer_options *options);
/* The processors that this process may use. */
uint32_t options_threads(const struct trainer_options *options);

/*
 * save.c: a bundle is a safetensors file of float tensors that live in the run: the model, under
 * Hugging Face's names, or the optimizer's moments, as "m.<parameter>" and "v.<parameter>" in the
 * order of the parameters.
 */
enum bundle_kind { BUNDLE_MODEL = 0, BUNDLE_OPTIMIZER = 1, BUNDLE_KINDS = 2 };

struct bundle_tensor {
  char name[TRAIN_NAME_BYTES];
  uint32_t rank;
  uint64_t shape[2];
  uint64_t count;
};
uint32_t bundle_count(const struct step *step, enum bundle_kind kind);
struct bundle_tensor bundle_tensor_at(const struct step *step, enum bundle_kind kind,
                                      uint32_t index);

struct file_sum {
  uint64_t bytes;
  uint32_t crc; /* CRC32C */
};

/* Streams the bundle into a new file, synced. `tensor_crcs` (may be NULL) gets the CRC32C of each
 * tensor. */
MR_CHECK_RESULT mr_status bundle_save(struct trainer *trainer, enum bundle_kind kind,
                                      const char *path, uint32_t *tensor_crcs,
                                      struct file_sum *sum_out);

/* Streams a file that bundle_save wrote into the run; a tensor whose CRC32C differs from
 * tensor_crcs[i] (NULL: not compared) gives MR_CORRUPT. */
MR_CHECK_RESULT mr_status bundle_load(struct trainer *trainer, enum bundle_kind kind,
                                      const char *path, const uint32_t *tensor_crcs);

/* The tensor in a file, by its name or that without "transformer.", with its shape and a dtype that
 * can be read. MR_INVALID, MR_UNSUPPORTED. */
MR_CHECK_RESULT mr_status bundle_find_tensor(const struct safetensors_file *file,
                                             const struct bundle_tensor *tensor,
                                             const struct safetensors_entry **entry_out);

/* init.c: checks that a file holds every parameter of the model in its shape, under Hugging Face's
 * names with or without "transformer." before them, and nothing that the model would leave out.
 * MR_INVALID, MR_UNSUPPORTED; MR_IO, MR_CORRUPT, MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status weights_check(const struct step *step, const char *path);
/* MR_INVALID where a model that is saved in `save_dir` would replace that file; either may be NULL.
 */
MR_CHECK_RESULT mr_status weights_spared(const char *path, const char *save_dir);
/* Streams such a file into the run. */
MR_CHECK_RESULT mr_status weights_load(struct trainer *trainer, const char *path);

/* Writes a small new file, synced. */
MR_CHECK_RESULT mr_status file_create(const char *path, const void *data, uint64_t bytes,
                                      struct file_sum *sum_out);
MR_CHECK_RESULT mr_status directory_sync(const char *path);
/* Makes the directory where it is missing and sees that it can be written to. */
MR_CHECK_RESULT mr_status directory_prepare(const char *path);

/*
 * checkpoint.c, checkpoint_load.c: DIR/step-00000100 holds model.safetensors, config.json,
 * optimizer.safetensors and state.json with the sums of all. It is written as
 * step-00000100.tmp-<pid> and renamed when every byte is on the disk.
 */
#define CHECKPOINT_MODEL     "model.safetensors"
#define CHECKPOINT_OPTIMIZER "optimizer.safetensors"
#define CHECKPOINT_CONFIG    "config.json"
#define CHECKPOINT_STATE     "state.json"

/* Writes the checkpoint of now; its path goes to path_out[TRAIN_PATH_BYTES]. */
MR_CHECK_RESULT mr_status checkpoint_write(struct trainer *trainer, const char *directory,
                                           char *path_out);

/* Numbers of the checkpoints in `directory`, ascending; the caller frees them. A missing directory
 * has none. */
MR_CHECK_RESULT mr_status checkpoint_list(const char *directory, uint64_t **steps_out,
                                          uint32_t *count_out);
/* "<directory>/step-<step>". */
MR_CHECK_RESULT mr_status checkpoint_path(char *path, const char *directory, uint64_t step);
/* Removes a checkpoint's directory and files. */
void checkpoint_remove(const char *path);

/* A whole checkpoint that was found and checked against its sums. */
struct checkpoint {
  char path[TRAIN_PATH_BYTES];
  struct checkpoint_state *state;
};

/*
 * Finds what --resume names: the newest checkpoint in `directory`, or `directory` itself where it
 * is a checkpoint; checks every byte of it, and that it belongs to this job. MR_CORRUPT: one line
 * names the file, what is wrong with it, and the checkpoint before it that is whole.
 */
MR_CHECK_RESULT mr_status checkpoint_find(const struct trainer *trainer, const char *directory,
                                          struct checkpoint *checkpoint_out);
void checkpoint_fini(struct checkpoint *checkpoint);
uint64_t checkpoint_step(const struct checkpoint *checkpoint);
/* Loads it into the run and sets where the trainer goes on. */
MR_CHECK_RESULT mr_status checkpoint_load(struct trainer *trainer,
                                          const struct checkpoint *checkpoint);

#endif

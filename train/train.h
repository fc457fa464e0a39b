/* SPDX-License-Identifier: Apache-2.0 */
/*
 * train/ is memrun's built-in trainer and its first client: it sees the public headers alone, and
 * so proves that they are enough for a real trainer.
 *
 * Nouns. A *model* (GPT-2) is written once, as a forward pass of *layers*; each layer kind adds its
 * forward op to a graph and knows how to add its backward ops, so the backward pass follows from
 * the record of the forward one. *Kernels* do the arithmetic (train/kernels/). The *optimizer* is
 * AdamW: its moments are pieces of bounded size, so that they stream through the device one after
 * another, and it updates the parameters in the order in which their gradients were made last, so
 * the next forward pass finds its first layers at hand. *Data* are windows of tokens from a file or
 * from a Markov source whose entropy rate is known. A *checkpoint* is a directory that Hugging
 * Face's transformers can load, with the optimizer's states beside it.
 *
 * The trainer ties them together: it builds the graph of a step, gives it to memrun, and runs step
 * after step. Results depend on the options, the data and the number of threads alone.
 *
 * Threads: one thread uses a trainer. Errors are logged by whoever sees them first; statuses go up.
 */
#ifndef MEMRUN_TRAIN_TRAIN_H
#define MEMRUN_TRAIN_TRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include <memrun/memrun.h>

/* Strings are borrowed until the trainer is destroyed. */
struct trainer_options {
  /* Model: a preset ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", or NULL for the small default
   * model) and single dimensions over it (0: the preset's). heads 0: width / 64 where that is
   * whole, else the preset's. positions is the model's longest sequence; 0: 1024 for presets, else
   * seq. */
  const char *preset;
  uint32_t layers, heads, width, vocab, positions;
  uint32_t batch, seq;   /* 0: the default */
  const char *init_path; /* a safetensors file with Hugging Face's names; NULL: random weights from
                            the seed */

  /* Data */
  const char *data_path; /* NULL: the Markov source */
  const char *eval_data_path;
  uint32_t eval_every; /* steps; 0: never */
  uint32_t eval_batches;
  bool shuffle;

  /* Optimizer */
  uint64_t steps; /* in all, resumed ones counted in */
  double lr, min_lr, beta1, beta2, eps, weight_decay, clip;
  uint64_t warmup, decay_steps; /* 0: constant */
  uint32_t grad_accum;
  uint64_t seed;

  /* Results */
  const char *save_dir;       /* the finished model; NULL: not kept */
  const char *checkpoint_dir; /* NULL: none */
  uint32_t checkpoint_every;  /* steps; 0: at the end alone */
  const char *resume_dir;     /* a checkpoint directory; the newest whole checkpoint in it */

  mr_dtype dtype;   /* MR_F32, or MR_BF16: activations and weights as layers read them are bf16,
                       while the weights that are updated, their gradients, the optimizer's states,
                       statistics and all sums stay fp32 */
  const char *gemm; /* "auto", "dnnl", "openblas" */
  bool reference;   /* the readable kernels instead of the fast ones */
  bool elsewhere;   /* plans are made for a machine that is not here: nothing is run on this one,
                       and no Markov source is drawn, which takes longer than a quick plan */
  struct mr_options run;
};

/* Fills in every default; run is filled by mr_options_init. */
void trainer_options_init(struct trainer_options *options);

/*
 * Called when all options are known: where the job is the default model with no dimension changed,
 * the offload is nvme, host or auto, and run.device_bytes and run.host_bytes are both
 * MR_BUDGET_AUTO, sets budgets that the job does not fit at once: for nvme (or auto with an NVMe
 * path) device and host together are below a quarter of the job's footprint, for host the device
 * alone. Changes nothing otherwise.
 */
void trainer_default_budgets(struct trainer_options *options);

struct trainer;

/* What the job is, once the model is known. */
struct trainer_info {
  uint64_t parameter_count;
  uint64_t parameter_bytes;
  uint32_t layers, heads, width, vocab, positions, batch, seq;
  uint64_t tokens_per_step;   /* batch * seq * grad_accum */
  uint64_t first_step;        /* 1, or one after the checkpoint's */
  double loss_floor;          /* nats for each token; negative: not known */
  const char *data_path;      /* of the options; NULL: the Markov source */
  uint64_t data_tokens;       /* of the file */
  bool data_is_bytes;         /* each is a byte of it, not a word that llm.c wrote */
  const char *eval_data_path; /* as above, of the data of evaluations; NULL: those of training */
  uint64_t eval_data_tokens;
  bool eval_data_is_bytes;
  mr_dtype dtype;
  const char *gemm; /* the GEMM library and version; NULL: nothing runs on this machine */
};

/*
 * Everything of a job that needs neither tiers nor a plan, for planning without running: the graph
 * and its kernels, which are loaded, so that what they take of a device is seen by who plans; none
 * where plans are for elsewhere. Bad options are refused here.
 */
MR_CHECK_RESULT mr_status trainer_prepare(const struct trainer_options *options,
                                          struct trainer **trainer_out);

/*
 * Builds, plans, allocates, loads or draws the weights. Bad options, files that are not what they
 * say or a job that does not fit are refused here, before anything is written.
 */
MR_CHECK_RESULT mr_status trainer_create(const struct trainer_options *options,
                                         struct trainer **trainer_out);
/* `status` is what the trainer's work has come to; returns it, or MR_TIMEOUT where a CUDA device
 * did not answer in time, also where that shows here: what the device may still use stays until the
 * process ends then (see mr_run_destroy). */
MR_CHECK_RESULT mr_status trainer_destroy(struct trainer *trainer, mr_status status);

const struct trainer_info *trainer_get_info(const struct trainer *trainer);
/* The trainer's; plans of it are destroyed before the trainer. */
const struct mr_graph *trainer_get_graph(const struct trainer *trainer);
/* NULL where the trainer was only prepared. */
struct mr_run *trainer_get_run(struct trainer *trainer);

struct trainer_step {
  uint64_t step;
  double loss;      /* mean nats for each token */
  double grad_norm; /* before clipping */
  double lr;
  double tokens_per_second;
  struct mr_step_report report;
};

/* One optimizer step. Blocks. */
MR_CHECK_RESULT mr_status trainer_step(struct trainer *trainer, struct trainer_step *step_out);

/* Mean loss over eval_batches windows, rounded up to whole steps of grad_accum windows, of the
 * evaluation data; where there is none, of the training file's first windows or of rows of the
 * Markov source that no training step reads. Changes nothing but the loss that is shown. */
MR_CHECK_RESULT mr_status trainer_evaluate(struct trainer *trainer, double *loss_out);

/*
 * Writes a checkpoint beside the older ones in options.checkpoint_dir, synced and renamed; keeps
 * the newest two up to this step. One of the same step is replaced; those of later steps, left by a
 * run that went further, stay until this run gets there. trainer_create refuses a directory that
 * holds checkpoints where the run does not resume.
 */
MR_CHECK_RESULT mr_status trainer_checkpoint(struct trainer *trainer);

/* Writes config.json and model.safetensors into options.save_dir. */
MR_CHECK_RESULT mr_status trainer_save(struct trainer *trainer);

/* What a training command does with each thing that happens; `context` is the caller's. */
struct trainer_events {
  void *context;
  void (*started)(void *context, struct trainer *trainer);
  void (*stepped)(void *context, struct trainer *trainer, const struct trainer_step *step);
  void (*evaluated)(void *context, uint64_t step, double loss);
  void (*checkpointed)(void *context, uint64_t step, const char *path);
};

/*
 * The whole job: create, the steps, evaluations and checkpoints when they are due, save. *stop (may
 * be NULL) set by a signal handler ends it after the step in progress, with a checkpoint where a
 * directory was given, and gives MR_INTERRUPTED. The trainer is handed out alive, so that the
 * caller can read final figures; it is NULL where it was never made. The caller destroys it.
 */
MR_CHECK_RESULT mr_status trainer_train(const struct trainer_options *options,
                                        const struct trainer_events *events,
                                        const volatile int *stop, struct trainer **trainer_out);

struct trainer_verification {
  uint64_t steps;
  uint64_t tensors;
  uint64_t bytes; /* compared */
  uint64_t footprint_bytes;
  uint64_t budget_bytes[MR_TIER_COUNT];
  uint64_t moved_bytes;    /* in a step under the budgets, over all links */
  uint32_t recomputed_ops; /* and ops that run again in one */
  uint32_t deferred_ops;   /* and updates that run in the next */
  uint64_t different_losses, different_tensors;
  const char *first_difference; /* a tensor's name or "loss", kept in name; NULL: none */
  uint64_t first_difference_step;
  char name[192];
};

/*
 * Runs the job without budgets and then under the options' budgets, and compares every loss, every
 * gradient norm and, at the end, every parameter and state bit for bit. The first run's results are
 * kept in an unlinked file in `scratch_dir`. MR_OK: equal; MR_MISMATCH: not. What is known is
 * written to *verification_out in any case, which is not to be copied.
 */
MR_CHECK_RESULT mr_status trainer_verify(const struct trainer_options *options,
                                         const char *scratch_dir, const volatile int *stop,
                                         struct trainer_verification *verification_out);

#endif

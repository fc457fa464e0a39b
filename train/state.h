/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state.json of a checkpoint: where the run stood, the options that a run that goes on must
 * share, and the size and CRC32C of every other file and tensor. Its first line holds the CRC32C of
 * all that follows it. All random numbers of a run are drawn by counter from the seed, so the seed,
 * the step and the window are the whole random state.
 */
#ifndef MEMRUN_TRAIN_STATE_H
#define MEMRUN_TRAIN_STATE_H

#include "train/job.h"

/* X(name in the file and on the command line, field) */
#define STATE_IDENTITY(X)                                                                          \
  X("layers", layers)                                                                              \
  X("heads", heads)                                                                                \
  X("width", width)                                                                                \
  X("vocab", vocab)                                                                                \
  X("positions", positions)                                                                        \
  X("batch", batch)                                                                                \
  X("seq", seq)                                                                                    \
  X("grad-accum", grad_accum)                                                                      \
  X("seed", seed)                                                                                  \
  X("shuffle", shuffle)                                                                            \
  X("data-tokens", data_tokens)

/* Options that may change between runs; a change is told. */
#define STATE_SETTINGS(X)                                                                          \
  X("lr", lr)                                                                                      \
  X("min-lr", min_lr)                                                                              \
  X("beta1", beta1)                                                                                \
  X("beta2", beta2)                                                                                \
  X("eps", eps)                                                                                    \
  X("weight-decay", weight_decay)                                                                  \
  X("clip", clip)                                                                                  \
  X("warmup", warmup)                                                                              \
  X("decay-steps", decay_steps)                                                                    \
  X("threads", threads)

struct state_identity {
#define STATE_FIELD(name, field) uint64_t field;
  STATE_IDENTITY(STATE_FIELD)
#undef STATE_FIELD
};

struct state_settings {
#define STATE_FIELD(name, field) double field;
  STATE_SETTINGS(STATE_FIELD)
#undef STATE_FIELD
};

#define STATE_NAME_BYTES 64u

enum state_file { STATE_MODEL = 0, STATE_OPTIMIZER = 1, STATE_CONFIG = 2, STATE_FILES = 3 };

struct checkpoint_state {
  uint64_t step;   /* steps done */
  uint64_t window; /* the next of the data */
  struct state_identity identity;
  struct state_settings settings;
  mr_dtype dtype; /* of the layers; a change is told, as the files hold fp32 in any case */
  char gemm[STATE_NAME_BYTES]; /* what made matrix products; "": not known; a change is told */
  bool data_known;             /* files from before it was written do not say */
  uint32_t data_crc;           /* data_crc; another one is refused */
  struct file_sum files[STATE_FILES];
  uint32_t *tensor_crcs[BUNDLE_KINDS];
  uint32_t tensor_counts[BUNDLE_KINDS];
};

/* The file names of enum state_file. */
extern const char *const state_file_names[STATE_FILES];

struct state_identity state_identity_of(const struct trainer *trainer);
struct state_settings state_settings_of(const struct trainer *trainer);

/* The text of the file; the caller frees it. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status state_format(const struct checkpoint_state *state, char **text_out);

/* Reads a text of any bytes. MR_CORRUPT logs nothing and points *fault_out at a static string. */
MR_CHECK_RESULT mr_status state_parse(const char *text, uint64_t bytes,
                                      struct checkpoint_state **state_out, const char **fault_out);
void state_destroy(struct checkpoint_state *state);

/* MR_INVALID with one line where a run with `wanted` cannot go on from `found`. */
MR_CHECK_RESULT mr_status state_match(const char *path, const struct state_identity *found,
                                      const struct state_identity *wanted);
mr_status state_match_data(const char *path, const struct checkpoint_state *found,
                           const struct trainer *trainer);
/* One line for each setting that changed. */
void state_compare_settings(const char *path, const struct state_settings *found,
                            const struct state_settings *wanted);
void state_compare_dtype(const char *path, mr_dtype found, mr_dtype wanted);
void state_compare_gemm(const char *path, const char *found, const char *wanted);

#endif

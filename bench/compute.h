/* SPDX-License-Identifier: Apache-2.0 */
/* The ops of a training step as benchmark cases at the shapes of a model. */
#ifndef MEMRUN_BENCH_COMPUTE_H
#define MEMRUN_BENCH_COMPUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "train/kernels/kernels.h"

/* A library called as a whole, with threads of its own. */
struct whole {
  int (*dnnl)(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *,
              int64_t, float, float *, int64_t);
  void (*cblas)(int, int, int, int, int, int, float, const float *, int, const float *, int, float,
                float *, int);
  void (*set_threads)(int);
};

struct bench {
  const struct kernel_table *kernels;
  struct mr_team *team;
  struct whole whole;
  uint32_t rounds, threads;
  bool cpu_clock;
  float *a, *b, *c; /* of the large product */
};

struct model {
  const char *name;
  uint64_t batch, seq, width, heads, vocab, layers;
};

#define COMPUTE_BUFFERS 20

/* The buffers that the ops of a model share: what matters is their size, not what they hold. */
struct data {
  struct model model;
  uint64_t rows;
  float *weights, *weight_gradients, *wte, *dwte, *wide, *wide2, *wide3, *rows1, *rows2, *rows3;
  float *small, *lse, *scratch;
  float *logits, *sums, *softmax; /* of the head, for one block of rows */
  uint64_t block_rows;
  float *p, *g, *m, *v; /* of AdamW */
  uint64_t adamw_count;
  int32_t *tokens;
  float *buffers[COMPUTE_BUFFERS]; /* all of them, to be freed */
  uint64_t counts[COMPUTE_BUFFERS];
};

struct op_case {
  const char *name;
  void (*run)(const struct bench *bench, const struct data *d);
  double (*flops)(const struct data *d); /* of products; NULL where none */
  double per_step;                       /* how often a step runs it, per layer where layered */
  bool layered;
  bool linear; /* a product of weights; what is not counts as outside products */
};

extern const struct op_case compute_cases[];
extern const uint32_t compute_case_count;

/* Allocates the buffers of a model, in huge pages or not. */
struct data compute_data(const struct model *model, uint32_t threads, bool huge);
void compute_data_free(struct data *data);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The embeddings. The backward pass is cut into strips of columns, each of which takes the rows in
 * order, so that equal tokens are added in one order whoever does it.
 */
#include "train/kernels/fast.h"

#include <string.h>

#include "train/kernels/bf16.h"

#define FORWARD_ROWS  32u
#define STRIP_COLUMNS 64u

struct forward {
  const struct kernel_embed *op;
  const struct vector_table *vector;
};

static void forward_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  const struct forward *f = context;
  const struct kernel_embed *op = f->op;
  uint64_t first = (uint64_t)task * FORWARD_ROWS;
  uint64_t end = fast_min(op->batch * op->seq, first + FORWARD_ROWS);
  for (uint64_t n = first; n < end; n++) {
    /* Below 0 becomes larger than any slice. */
    uint64_t word = (uint64_t)op->tokens[n] - op->first_word;
    if (word >= op->vocab) continue;
    f->vector->add(element_place(op->x, op->dtype, n * op->width),
                   element_at(op->wte, op->dtype, word * op->width),
                   element_at(op->wpe, op->dtype, n % op->seq * op->width), op->width);
  }
}

mr_status fast_embed(struct mr_team *team, const struct kernel_embed *op) {
  struct forward f = {.op = op, .vector = vector_best(op->dtype)};
  uint32_t tasks = (uint32_t)fast_divide_up(op->batch * op->seq, FORWARD_ROWS);
  mr_team_run(team, tasks, forward_task, &f);
  return MR_OK;
}

struct backward {
  const struct kernel_embed_backward *op;
  const struct vector_table *vector;
};

static void backward_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  const struct backward *b = context;
  const struct kernel_embed_backward *op = b->op;
  uint64_t width = op->width, column = (uint64_t)task * STRIP_COLUMNS;
  uint64_t columns = fast_min(STRIP_COLUMNS, width - column);
  for (uint64_t n = 0; n < op->batch * op->seq; n++) {
    uint64_t word = (uint64_t)op->tokens[n] - op->first_word;
    if (word >= op->vocab) continue;
    b->vector->accumulate(op->dwte + word * width + column,
                          element_at(op->dx, op->dtype, n * width + column), columns);
  }
  if (op->dwpe == NULL) return;
  for (uint64_t t = 0; t < op->seq; t++) {
    b->vector->column_sums(op->dwpe + t * width + column,
                           element_at(op->dx, op->dtype, t * width + column), op->seq * width,
                           op->batch, columns, op->accumulate);
  }
  if (op->accumulate) return;
  for (uint64_t t = op->seq; t < op->positions; t++) {
    memset(op->dwpe + t * width + column, 0, columns * sizeof(float));
  }
}

mr_status fast_embed_backward(struct mr_team *team, const struct kernel_embed_backward *op,
                              void *scratch) {
  (void)scratch;
  struct backward b = {.op = op, .vector = vector_best(op->dtype)};
  mr_team_run(team, (uint32_t)fast_divide_up(op->width, STRIP_COLUMNS), backward_task, &b);
  return MR_OK;
}

/* Strips write where they belong. */
uint64_t kernel_embed_backward_scratch_bytes(uint64_t rows, uint64_t width, uint32_t threads) {
  (void)rows;
  (void)width;
  (void)threads;
  return 0;
}

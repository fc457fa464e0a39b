/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_vectors [rounds] [elements]: every vector leaf over a row that stays in the nearest cache,
 * by every instruction set that this processor has and for elements of both types, in turns, in
 * nanoseconds of processor time per 1000 elements. AdamW, which memory bounds, is bench_adamw's.
 */
#include <math.h>
#include <stdio.h>

#include "base/base.h"
#include "bench/bench.h"
#include "train/kernels/bf16.h"
#include "train/kernels/vector.h"

enum { MOST_ELEMENTS = 65536, MOST_SETS = 4, COLUMN_ROWS = 4, ROW_STEP_BYTES = 576 };
enum { TYPE_ROWS = 5, ROWS = 2 * TYPE_ROWS + 2 };

/* The same numbers in both types. */
struct rows {
  float *floats[TYPE_ROWS];
  uint16_t *halves[TYPE_ROWS];
};

struct call {
  const struct vector_table *vector;
  void *x, *y, *gamma, *beta, *result; /* elements, of which x is never written */
  float *sums, *more;
  size_t count;
};

static float kept; /* so that no compiler leaves out a call */

static void call_add(const struct call *c) {
  c->vector->add(c->result, c->x, c->gamma, c->count);
}

static void call_accumulate(const struct call *c) {
  c->vector->accumulate(c->sums, c->x, c->count);
}

static void call_widen(const struct call *c) {
  c->vector->widen(c->sums, c->x, c->count);
}

static void call_round(const struct call *c) {
  c->vector->round(c->result, c->more, c->count);
}

static void call_scale(const struct call *c) {
  c->vector->scale(c->more, 1, c->count);
}

static void call_dot(const struct call *c) {
  kept += c->vector->dot(c->x, c->gamma, c->count);
}

/* Rows over each other: a matrix would be another cache's. */
static void call_column_sums(const struct call *c) {
  c->vector->column_sums(c->sums, c->x, 0, COLUMN_ROWS, c->count, true);
}

static void call_sum_squares(const struct call *c) {
  kept += (float)c->vector->sum_squares(c->more, c->count);
}

static void call_layernorm(const struct call *c) {
  float mean = 0, rstd = 0;
  c->vector->layernorm(&(struct vector_layernorm){.x = c->x,
                                                  .gamma = c->gamma,
                                                  .beta = c->beta,
                                                  .y = c->result,
                                                  .mean = &mean,
                                                  .rstd = &rstd},
                       c->count);
  kept += mean;
}

static void call_layernorm_backward(const struct call *c) {
  c->vector->layernorm_backward(&(struct vector_layernorm_backward){.dy = c->beta,
                                                                    .x = c->x,
                                                                    .gamma = c->gamma,
                                                                    .rstd = 1,
                                                                    .dx = c->result,
                                                                    .dgamma = c->sums,
                                                                    .dbeta = c->more},
                                c->count);
}

static void call_gelu(const struct call *c) {
  c->vector->gelu(c->result, c->x, c->count);
}

static void call_gelu_backward(const struct call *c) {
  c->vector->gelu_backward(c->more, c->x, c->count);
}

static void call_attention_row(const struct call *c) {
  struct vector_attention_row row = {.valid = c->count, .count = c->count, .scale = 0.5f};
  float lse = 0;
  kept += c->vector->attention_row(c->sums, &row, &lse);
}

/* Scores near to 0.46 and dp to 0.3. */
static void call_attention_backward_row(const struct call *c) {
  struct vector_attention_row row = {.valid = c->count, .count = c->count, .scale = 0.5f};
  c->vector->attention_backward_row(c->sums, c->more, &row, 1, -1);
}

static void call_sum_of_exponentials(const struct call *c) {
  float largest = 0;
  kept += c->vector->sum_of_exponentials(c->x, c->count, &largest);
}

static void call_softmax_scaled(const struct call *c) { /* near to 1 */
  c->vector->softmax_scaled(c->y, c->count, 1, 1);
}

/* What is worked on in place stays in a range in which its time does not depend on it. */
static const struct leaf {
  const char *name;
  void (*call)(const struct call *call);
  bool floats_alone; /* as other leaves' elements */
} leaves[] = {
    {"add", call_add, false},
    {"accumulate", call_accumulate, false},
    {"widen", call_widen, false},
    {"round", call_round, false},
    {"scale", call_scale, true},
    {"dot", call_dot, false},
    {"column_sums, 4 rows", call_column_sums, false},
    {"sum_squares", call_sum_squares, true},
    {"layernorm", call_layernorm, false},
    {"layernorm_backward", call_layernorm_backward, false},
    {"gelu", call_gelu, false},
    {"gelu_backward", call_gelu_backward, false},
    {"attention_row", call_attention_row, true},
    {"attention_backward_row", call_attention_backward_row, true},
    {"sum_of_exponentials", call_sum_of_exponentials, false},
    {"softmax_scaled", call_softmax_scaled, false},
};

struct work {
  const struct leaf *leaf;
  struct call call;
  uint32_t calls;
};

/* In a team, whose threads take denormal numbers as 0, as the kernels run. */
static void work_task(void *context, uint32_t task, uint32_t thread) {
  (void)task;
  (void)thread;
  const struct work *work = context;
  for (uint32_t i = 0; i < work->calls; i++) {
    work->leaf->call(&work->call);
  }
}

static double nanoseconds(struct mr_team *team, struct work *work, const struct rows *rows) {
  for (size_t i = 0; i < work->call.count; i++) {
    work->call.sums[i] = rows->floats[0][i];
    work->call.more[i] = rows->floats[1][i];
  }
  double start = bench_seconds(true);
  mr_team_run(team, 1, work_task, work);
  double seconds = bench_seconds(true) - start;
  return seconds * 1e12 / ((double)work->calls * (double)work->call.count);
}

static void time_leaf(struct mr_team *team, const struct leaf *leaf, mr_dtype dtype,
                      uint32_t rounds, size_t count, const struct rows *rows, float *sums[2]) {
  static double times[MOST_SETS][BENCH_MAX_ROUNDS];
  void *row[TYPE_ROWS];
  for (unsigned i = 0; i < TYPE_ROWS; i++) {
    row[i] = dtype == MR_BF16 ? (void *)rows->halves[i] : (void *)rows->floats[i];
  }
  for (uint32_t i = 0; i <= rounds; i++) { /* the first is not kept */
    for (unsigned set = 0; set < MOST_SETS && vector_at(dtype, set) != NULL; set++) {
      struct work work = {
          leaf,
          {vector_at(dtype, set), row[0], row[1], row[2], row[3], row[4], sums[0], sums[1], count},
          (uint32_t)(1000000 / count) + 1};
      double time = nanoseconds(team, &work, rows);
      if (i > 0) times[set][i - 1] = time;
    }
  }
  printf("%-22s %-5s", leaf->name, dtype == MR_BF16 ? "bf16" : "fp32");
  for (unsigned set = 0; set < MOST_SETS && vector_at(dtype, set) != NULL; set++) {
    printf(" %8.1f", bench_median(times[set], rounds));
  }
  printf("\n");
}

/* Rows begin at different places of a page, since a processor takes a load for one of what was just
 * stored at the same place of another. */
static float *row_of(float *memory, unsigned row) {
  return memory + row * (ROW_STEP_BYTES / sizeof(float));
}

int main(int argc, char **argv) {
  uint32_t rounds = bench_argument(argc, argv, 1, 21, BENCH_MAX_ROUNDS);
  uint32_t count = bench_argument(argc, argv, 2, 1024, MOST_ELEMENTS);
  struct mr_team *team = NULL;
  if (mr_team_create(1, &team) != MR_OK) return 2;
  const uint64_t room = count + ROW_STEP_BYTES / sizeof(float) * ROWS;
  float *memory[ROWS];
  for (unsigned i = 0; i < ROWS; i++) {
    memory[i] = bench_floats(room, 0.5, true);
  }
  struct rows rows;
  for (unsigned i = 0; i < TYPE_ROWS; i++) {
    rows.floats[i] = row_of(memory[i], i);
    rows.halves[i] = (uint16_t *)(void *)row_of(memory[TYPE_ROWS + i], i);
    for (uint32_t j = 0; j < count; j++) {
      rows.halves[i][j] = bf16_round(rows.floats[i][j]);
    }
  }
  float *sums[2] = {row_of(memory[ROWS - 2], TYPE_ROWS), row_of(memory[ROWS - 1], TYPE_ROWS + 1)};
  bench_print_head(argc, argv);
  printf("%u rounds in turns, %u elements, ns of processor time per 1000 elements\n%-28s", rounds,
         count, "");
  for (unsigned set = 0; set < MOST_SETS && vector_at(MR_F32, set) != NULL; set++) {
    printf(" %8s", vector_at(MR_F32, set)->name);
  }
  printf("\n");
  for (unsigned i = 0; i < 2 * MR_COUNT_OF(leaves); i++) {
    mr_dtype dtype = i % 2 == 0 ? MR_F32 : MR_BF16;
    if (dtype == MR_BF16 && leaves[i / 2].floats_alone) continue;
    time_leaf(team, &leaves[i / 2], dtype, rounds, count, &rows, sums);
  }
  for (unsigned i = 0; i < ROWS; i++) {
    bench_free(memory[i], room);
  }
  mr_team_destroy(team);
  return isnan(kept) ? 1 : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vector leaves by every instruction set that this processor has, not the widest alone: against
 * sums in double precision, for elements of both types, over lengths around those of vectors; and
 * the bits of conversions and of updates, which are the same on every processor. It takes no matrix
 * library, and is built for arm64 too (tests/arm64/). MEMRUN_SEED repeats a failure.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "train/kernels/bf16.h"
#include "train/kernels/vector.h"

static uint64_t first_seed(void) {
  const char *text = getenv("MEMRUN_SEED");
  return text != NULL ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);
}

static float float_of(uint32_t bits) {
  float value = 0;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void every_instruction_set_converts_alike(void **state) {
  (void)state;
  enum { COUNT = 4099 };
  static float wide[COUNT], back[COUNT];
  static uint16_t rounded[COUNT];
  struct mr_random random;
  mr_random_init(&random, first_seed());
  for (unsigned index = 0; vector_at(MR_BF16, index) != NULL; index++) {
    const struct vector_table *vector = vector_at(MR_BF16, index);
    for (uint32_t i = 0; i < COUNT; i++) { /* any bits: denormal, infinite, not a number */
      wide[i] = float_of((uint32_t)mr_random_below(&random, 1ull << 32));
    }
    vector->round(rounded, wide, COUNT);
    vector->widen(back, rounded, COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
      float expected = bf16_widen(bf16_round(wide[i]));
      assert_int_equal(rounded[i], bf16_round(wide[i]));
      assert_memory_equal(&back[i], &expected, sizeof expected);
    }
    /* Where the wide row lies, as attention rounds its scores. */
    vector->round(wide, wide, COUNT);
    assert_memory_equal(wide, rounded, sizeof rounded);
  }
}

/* Every instruction set that this processor has, over the range of GELU and exp. */
static void vectors_are_accurate(void **state) {
  (void)state;
  enum { COUNT = 4001 };
  static float x[COUNT], y[COUNT], d[COUNT];
  for (unsigned index = 0; vector_at(MR_F32, index) != NULL; index++) {
    const struct vector_table *vector = vector_at(MR_F32, index);
    for (unsigned i = 0; i < COUNT; i++) {
      x[i] = ((float)i - 2000) / 50; /* -40 to 40 */
      d[i] = 1;
      y[i] = x[i];
    }
    vector->gelu_backward(d, x, COUNT);
    vector->softmax_scaled(y, COUNT, 1.0f, 1.0f);
    double exp_error = 0;
    for (unsigned i = 0; i < COUNT; i++) {
      double wanted = exp((double)x[i] - 1.0);
      double rounding = 1.2e-7 * fabs((double)x[i]); /* of x - 1 itself */
      exp_error = fmax(exp_error, fabs((double)y[i] / wanted - 1) - rounding);
    }
    vector->gelu(y, x, COUNT);
    double gelu_error = 0, slope_error = 0;
    for (unsigned i = 0; i < COUNT; i++) {
      double v = (double)x[i], u = sqrt(2 / 3.14159265358979324) * (v + 0.044715 * v * v * v);
      double slope = sqrt(2 / 3.14159265358979324) * (1 + 3 * 0.044715 * v * v), t = tanh(u);
      gelu_error = fmax(gelu_error, fabs((double)y[i] - 0.5 * v * (1 + t)) / (1 + fabs(v)));
      double wanted = 0.5 * (1 + t) + 0.5 * v * (1 - t * t) * slope;
      slope_error = fmax(slope_error, fabs((double)d[i] - wanted));
    }
    print_message("%s: exp %.2g relative, gelu %.2g, derivative %.2g\n", vector->name, exp_error,
                  gelu_error, slope_error);
    assert_true(exp_error < 2.4e-7 && gelu_error < 3e-7 && slope_error < 1e-6);
  }
}

struct updates {
  float drawn[4][1003], done[4][1003]; /* p, m, v, g; with a tail */
};

/* Draws numbers of every size, and nothing for some. */
static void draw_updates(struct updates *updates, uint64_t seed) {
  enum { COUNT = MR_COUNT_OF(updates->drawn[0]) };
  struct mr_random random;
  mr_random_init(&random, seed);
  for (unsigned i = 0; i < 4 * COUNT; i++) {
    float value = (float)mr_random_below(&random, 1u << 24) * 0x1p-24f;
    value = ldexpf(i / COUNT == 2 ? value : value - 0.5f, -(int)mr_random_below(&random, 160));
    updates->drawn[i / COUNT][i % COUNT] = value;
  }
}

struct update_task {
  const struct vector_table *vector;
  struct updates *updates;
};

static void update_task(void *context, uint32_t task, uint32_t thread) {
  (void)task;
  (void)thread;
  const struct update_task *a = context;
  float(*data)[MR_COUNT_OF(a->updates->done[0])] = a->updates->done;
  memcpy(data, a->updates->drawn, sizeof a->updates->drawn);
  a->vector->adamw(&(struct vector_adamw){.p = data[0],
                                          .m = data[1],
                                          .v = data[2],
                                          .g = data[3],
                                          .count = MR_COUNT_OF(a->updates->done[0]),
                                          .grad_scale = 0.37f,
                                          .beta1 = 0.9f,
                                          .beta2 = 0.999f,
                                          .eps = 1e-8f,
                                          .step_size = 1e-2f,
                                          .decay = 1e-3f,
                                          .inverse1 = 1.7f,
                                          .inverse2 = 1.3f});
}

/* An update has the same bits whatever the processor is, and with denormal numbers (on this thread)
 * or without them (in a team). */
static void updates_are_the_same_on_every_set(void **state) {
  (void)state;
  static struct updates updates, first;
  struct mr_team *team = NULL;
  assert_int_equal(mr_team_create(1, &team), MR_OK);
  draw_updates(&updates, first_seed());
  for (unsigned index = 0; vector_at(MR_F32, index) != NULL; index++) {
    struct update_task task = {vector_at(MR_F32, index), &updates};
    update_task(&task, 0, 0);
    if (index == 0) {
      first = updates;
    }
    assert_memory_equal(updates.done, first.done, sizeof first.done);
    mr_team_run(team, 1, update_task, &task);
    assert_memory_equal(updates.done, first.done, sizeof first.done);
  }
  assert_memory_not_equal(updates.done, updates.drawn, sizeof updates.drawn);
  mr_team_destroy(team);
}

/* FNV-1a over the bytes of what updates of seed 1 leave. Who changes their arithmetic on purpose
 * sets it anew; no processor may have another. */
#define UPDATE_BITS 0x1ef5672508c7d4d5ull

static void updates_are_the_same_on_every_processor(void **state) {
  (void)state;
  static struct updates updates;
  draw_updates(&updates, 1);
  for (unsigned index = 0; vector_at(MR_F32, index) != NULL; index++) {
    struct update_task task = {vector_at(MR_F32, index), &updates};
    update_task(&task, 0, 0);
    unsigned char bytes[sizeof updates.done];
    memcpy(bytes, updates.done, sizeof bytes);
    uint64_t hash = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < sizeof bytes; i++) {
      hash = (hash ^ bytes[i]) * 0x100000001b3ull;
    }
    if (hash != UPDATE_BITS) {
      fail_msg("updates by %s have other bits: 0x%016llxull", vector_at(MR_F32, index)->name,
               (unsigned long long)hash);
    }
  }
}

enum { MOST = 400, LENGTH = 150, PAST = 16 };

/* Numbers that bf16 holds, in each type. */
struct row {
  double exact[MOST + PAST];
  float wide[MOST + PAST];
  uint16_t narrow[MOST + PAST];
};

struct trial {
  const struct vector_table *vector;
  const char *leaf;
  mr_dtype dtype;
  uint64_t seed;
  struct mr_random random;
  size_t count;
  struct row x, y, z, result;
  double wanted[MOST];
  double size[MOST]; /* of the terms of which a result is made */
};

static double between(struct trial *t, double low, double high) {
  return low + (high - low) * mr_random_unit(&t->random);
}

static void draw(struct trial *t, struct row *row) {
  for (size_t i = 0; i < MOST + PAST; i++) {
    row->narrow[i] = bf16_round((float)between(t, -3, 3));
    row->wide[i] = bf16_widen(row->narrow[i]);
    row->exact[i] = (double)row->wide[i];
  }
}

static void *elements(const struct trial *t, struct row *row) {
  return t->dtype == MR_BF16 ? (void *)row->narrow : (void *)row->wide;
}

static void check_value(const struct trial *t, double got, double wanted, double allowed) {
  if (fabs(got - wanted) <= allowed) return;
  fail_msg("%s of seed %llu by %s, %zu elements: %.9g, not %.9g; off by more than %.3g", t->leaf,
           (unsigned long long)t->seed, t->vector->name, t->count, got, wanted, allowed);
}

/* Some roundings of the terms. */
static void check(const struct trial *t, double got, double wanted, double size) {
  check_value(t, got, wanted, 1e-6 * size);
}

/* The first `count` are as wanted, and those past the end as they were. */
static void check_row(const struct trial *t, const struct row *row, mr_dtype dtype, size_t count) {
  for (size_t i = 0; i < count + PAST; i++) {
    double got = (double)(dtype == MR_BF16 ? bf16_widen(row->narrow[i]) : row->wide[i]);
    double rounding = dtype == MR_BF16 ? 0x1p-8 : 0;
    if (i < count) {
      check_value(t, got, t->wanted[i], 1e-6 * t->size[i] + rounding * fabs(t->wanted[i]));
    } else {
      check_value(t, got, row->exact[i], 0);
    }
  }
}

static void run_add(struct trial *t) {
  t->vector->add(elements(t, &t->result), elements(t, &t->x), elements(t, &t->y), t->count);
  for (size_t i = 0; i < t->count; i++) {
    t->wanted[i] = t->x.exact[i] + t->y.exact[i];
    t->size[i] = 6;
  }
  check_row(t, &t->result, t->dtype, t->count);
}

static void run_accumulate(struct trial *t) {
  t->vector->accumulate(t->result.wide, elements(t, &t->x), t->count);
  for (size_t i = 0; i < t->count; i++) {
    t->wanted[i] = t->result.exact[i] + t->x.exact[i];
    t->size[i] = 6;
  }
  check_row(t, &t->result, MR_F32, t->count);
}

static void run_scale(struct trial *t) {
  t->vector->scale(t->result.wide, 0.375f, t->count);
  for (size_t i = 0; i < t->count; i++) {
    t->wanted[i] = t->result.exact[i] * 0.375;
    t->size[i] = 0;
  }
  check_row(t, &t->result, MR_F32, t->count);
}

static void run_dot(struct trial *t) {
  double sum = 0, size = 0;
  for (size_t i = 0; i < t->count; i++) {
    double term = t->x.exact[i] * t->y.exact[i];
    sum += term;
    size += fabs(term);
  }
  check(t, (double)t->vector->dot(elements(t, &t->x), elements(t, &t->y), t->count), sum, size);
}

static void run_column_sums(struct trial *t) {
  size_t rows = 1 + mr_random_below(&t->random, 9), columns = 1 + mr_random_below(&t->random, 40);
  size_t stride = columns + mr_random_below(&t->random, 4);
  bool accumulate = mr_random_below(&t->random, 2) == 1;
  t->vector->column_sums(t->result.wide, elements(t, &t->x), stride, rows, columns, accumulate);
  for (size_t c = 0; c < columns; c++) {
    t->wanted[c] = accumulate ? t->result.exact[c] : 0;
    t->size[c] = 3;
    for (size_t r = 0; r < rows; r++) {
      t->wanted[c] += t->x.exact[r * stride + c];
      t->size[c] += 3;
    }
  }
  check_row(t, &t->result, MR_F32, columns);
}

/* Also of numbers whose squares no float holds. */
static void run_sum_squares(struct trial *t) {
  float factor = mr_random_below(&t->random, 2) == 1 ? 1 : 0x1p-80f;
  double sum = 0;
  for (size_t i = 0; i < t->count; i++) {
    t->x.wide[i] *= factor;
    sum += t->x.exact[i] * (double)factor * (t->x.exact[i] * (double)factor);
  }
  check_value(t, t->vector->sum_squares(t->x.wide, t->count), sum, 1e-14 * sum);
}

static void run_layernorm(struct trial *t) {
  double sum = 0, squares = 0, n = (double)t->count;
  float mean = 0, rstd = 0;
  t->vector->layernorm(&(struct vector_layernorm){.x = elements(t, &t->x),
                                                  .gamma = elements(t, &t->y),
                                                  .beta = elements(t, &t->z),
                                                  .y = elements(t, &t->result),
                                                  .mean = &mean,
                                                  .rstd = &rstd},
                       t->count);
  for (size_t i = 0; i < t->count; i++) {
    sum += t->x.exact[i];
  }
  for (size_t i = 0; i < t->count; i++) {
    squares += (t->x.exact[i] - sum / n) * (t->x.exact[i] - sum / n);
  }
  double wanted = 1 / sqrt(squares / n + 1e-5), spread = 1 + 3 * wanted;
  check(t, (double)mean, sum / n, 3);
  check(t, (double)rstd, wanted, wanted * spread);
  for (size_t i = 0; i < t->count; i++) {
    t->wanted[i] = (t->x.exact[i] - sum / n) * wanted * t->y.exact[i] + t->z.exact[i];
    t->size[i] = 3 * spread * spread;
  }
  check_row(t, &t->result, t->dtype, t->count);
}

/* x is at most 3 and normal at most 5. */
static void run_layernorm_backward(struct trial *t) {
  float mean = 0.25f, rstd = 1.5f;
  double n = (double)t->count, average = 0, average_normal = 0;
  bool accumulate = mr_random_below(&t->random, 2) == 1;
  static struct row dgamma, dbeta;
  draw(t, &dgamma);
  draw(t, &dbeta);
  t->vector->layernorm_backward(&(struct vector_layernorm_backward){.dy = elements(t, &t->x),
                                                                    .x = elements(t, &t->y),
                                                                    .gamma = elements(t, &t->z),
                                                                    .mean = mean,
                                                                    .rstd = rstd,
                                                                    .dx = elements(t, &t->result),
                                                                    .dgamma = dgamma.wide,
                                                                    .dbeta = dbeta.wide,
                                                                    .accumulate_dx = accumulate},
                                t->count);
  for (size_t i = 0; i < t->count; i++) {
    double scaled = t->x.exact[i] * t->z.exact[i], normal = (t->y.exact[i] - 0.25) * 1.5;
    average += scaled / n;
    average_normal += scaled * normal / n;
    t->wanted[i] = dgamma.exact[i] + t->x.exact[i] * normal;
    t->size[i] = 18;
  }
  check_row(t, &dgamma, MR_F32, t->count);
  for (size_t i = 0; i < t->count; i++) {
    t->wanted[i] = dbeta.exact[i] + t->x.exact[i];
  }
  check_row(t, &dbeta, MR_F32, t->count);
  for (size_t i = 0; i < t->count; i++) {
    double scaled = t->x.exact[i] * t->z.exact[i], normal = (t->y.exact[i] - 0.25) * 1.5;
    t->wanted[i] = (scaled - average - normal * average_normal) * 1.5;
    t->wanted[i] += accumulate ? t->result.exact[i] : 0;
    t->size[i] = 100;
  }
  check_row(t, &t->result, t->dtype, t->count);
}

static double gelu_of(double x) {
  return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979324) * (x + 0.044715 * x * x * x)));
}

static void run_gelu(struct trial *t) {
  t->vector->gelu(elements(t, &t->result), elements(t, &t->x), t->count);
  for (size_t i = 0; i < t->count; i++) {
    t->wanted[i] = gelu_of(t->x.exact[i]);
    t->size[i] = 4;
  }
  check_row(t, &t->result, t->dtype, t->count);
}

static void run_gelu_backward(struct trial *t) {
  t->vector->gelu_backward(t->result.wide, elements(t, &t->x), t->count);
  for (size_t i = 0; i < t->count; i++) {
    double x = t->x.exact[i], slope = (gelu_of(x + 1e-4) - gelu_of(x - 1e-4)) / 2e-4;
    t->wanted[i] = t->result.exact[i] * slope;
    t->size[i] = 6;
  }
  check_row(t, &t->result, MR_F32, t->count);
}

static double largest_of(const struct row *row, size_t count) {
  double largest = row->exact[0];
  for (size_t i = 0; i < count; i++) {
    largest = fmax(largest, row->exact[i]);
  }
  return largest;
}

/* Keys of the future are 0. */
static void run_attention_row(struct trial *t) {
  size_t valid = 1 + mr_random_below(&t->random, t->count);
  double largest = largest_of(&t->x, valid), sum = 0;
  float lse = 0;
  float total = t->vector->attention_row(
      t->x.wide, &(struct vector_attention_row){.valid = valid, .count = t->count, .scale = 0.75f},
      &lse);
  for (size_t i = 0; i < t->count; i++) {
    t->wanted[i] = i < valid ? exp((t->x.exact[i] - largest) * 0.75) : 0;
    t->size[i] = t->wanted[i] * 7;
    sum += t->wanted[i];
  }
  check(t, (double)total, sum, sum);
  check(t, (double)lse, largest * 0.75 + log(sum), 6);
  check_row(t, &t->x, MR_F32, t->count);
}

static void run_attention_backward_row(struct trial *t) {
  size_t valid = 1 + mr_random_below(&t->random, t->count);
  t->vector->attention_backward_row(
      t->x.wide, t->y.wide,
      &(struct vector_attention_row){.valid = valid, .count = t->count, .scale = 0.75f}, 1.5f,
      0.25f);
  for (size_t i = 0; i < t->count; i++) {
    t->wanted[i] = i < valid ? exp(fmin(0, t->x.exact[i] * 0.75 - 1.5)) : 0;
    t->size[i] = t->wanted[i] * 4;
  }
  check_row(t, &t->x, MR_F32, t->count);
  for (size_t i = 0; i < t->count; i++) {
    t->size[i] = t->wanted[i] * 16;
    t->wanted[i] *= (t->y.exact[i] - 0.25) * 0.75;
  }
  check_row(t, &t->y, MR_F32, t->count);
}

static void run_sum_of_exponentials(struct trial *t) {
  double wanted = largest_of(&t->x, t->count), sum = 0;
  float largest = 0;
  float total = t->vector->sum_of_exponentials(elements(t, &t->x), t->count, &largest);
  for (size_t i = 0; i < t->count; i++) {
    sum += exp(t->x.exact[i] - wanted);
  }
  check(t, (double)largest, wanted, 0);
  check(t, (double)total, sum, sum);
}

static void run_softmax_scaled(struct trial *t) {
  t->vector->softmax_scaled(elements(t, &t->result), t->count, 1.25f, 0.5f);
  for (size_t i = 0; i < t->count; i++) {
    t->wanted[i] = exp(t->result.exact[i] - 1.25) * 0.5;
    t->size[i] = t->wanted[i] * 4;
  }
  check_row(t, &t->result, t->dtype, t->count);
}

static const struct leaf {
  const char *name;
  void (*run)(struct trial *trial);
} leaves[] = {
    {"add", run_add},
    {"accumulate", run_accumulate},
    {"scale", run_scale},
    {"dot", run_dot},
    {"column_sums", run_column_sums},
    {"sum_squares", run_sum_squares},
    {"layernorm", run_layernorm},
    {"layernorm_backward", run_layernorm_backward},
    {"gelu", run_gelu},
    {"gelu_backward", run_gelu_backward},
    {"attention_row", run_attention_row},
    {"attention_backward_row", run_attention_backward_row},
    {"sum_of_exponentials", run_sum_of_exponentials},
    {"softmax_scaled", run_softmax_scaled},
};

static void run_leaf(const struct leaf *leaf, mr_dtype dtype, unsigned index, uint64_t seed) {
  static struct trial t;
  t.vector = vector_at(dtype, index);
  t.leaf = leaf->name;
  t.dtype = dtype;
  t.seed = seed;
  mr_random_init(&t.random, seed);
  t.count = 1 + mr_random_below(&t.random, LENGTH);
  draw(&t, &t.x);
  draw(&t, &t.y);
  draw(&t, &t.z);
  draw(&t, &t.result);
  leaf->run(&t);
}

static void leaves_equal_sums_in_double_precision(void **state) {
  (void)state;
  static const mr_dtype dtypes[] = {MR_F32, MR_BF16};
  uint64_t seed = first_seed();
  for (unsigned i = 0; i < 2 * MR_COUNT_OF(leaves); i++) {
    mr_dtype dtype = dtypes[i % 2];
    for (unsigned index = 0; vector_at(dtype, index) != NULL; index++) {
      for (uint64_t draw = 0; draw < 60; draw++) {
        run_leaf(&leaves[i / 2], dtype, index, seed + draw);
      }
    }
  }
}

/* A leaf that works element by element, over `count` of them from the first on; false past the last
 * such leaf. */
static bool run_from(struct trial *t, unsigned leaf, size_t first, size_t count) {
  const struct vector_table *vector = t->vector;
  size_t offset = first * (t->dtype == MR_BF16 ? sizeof(uint16_t) : sizeof(float));
  const void *x = (char *)elements(t, &t->x) + offset, *y = (char *)elements(t, &t->y) + offset;
  void *result = (char *)elements(t, &t->result) + offset;
  float *wide = t->result.wide + first;
  struct vector_attention_row row = {.valid = count, .count = count, .scale = 0.75f};
  switch (leaf) {
  case 0:
    vector->add(result, x, y, count);
    return true;
  case 1:
    vector->accumulate(wide, x, count);
    return true;
  case 2:
    vector->scale(wide, 0.3f, count);
    return true;
  case 3:
    vector->gelu(result, x, count);
    return true;
  case 4:
    vector->gelu_backward(wide, x, count);
    return true;
  case 5:
    vector->attention_backward_row(t->z.wide + first, wide, &row, 1.5f, 0.3f);
    return true;
  case 6:
    vector->softmax_scaled(result, count, 1.25f, 0.3f);
    return true;
  default:
    return false;
  }
}

/* In a full vector as in a tail, which compilers translate apart. */
static void elements_are_the_same_wherever_they_stand(void **state) {
  (void)state;
  enum { COUNT = 35 };
  static struct trial whole, single;
  for (unsigned i = 0; i < 8; i++) {
    whole.dtype = i % 2 == 0 ? MR_F32 : MR_BF16;
    whole.vector = vector_at(whole.dtype, i / 2);
    for (unsigned leaf = 0; whole.vector != NULL; leaf++) {
      mr_random_init(&whole.random, first_seed());
      draw(&whole, &whole.x);
      draw(&whole, &whole.y);
      draw(&whole, &whole.z);
      draw(&whole, &whole.result);
      single = whole;
      if (!run_from(&whole, leaf, 0, COUNT)) break;
      for (size_t j = 0; j < COUNT; j++) {
        run_from(&single, leaf, j, 1);
      }
      assert_memory_equal(&single, &whole, sizeof whole);
    }
  }
}

/* A score that is no number, or beyond all numbers, shows in what a softmax gives. */
static void sums_hide_nothing_that_is_no_number(void **state) {
  (void)state;
  enum { COUNT = 35 };
  const float bad[] = {NAN, -NAN, INFINITY};
  const struct vector_attention_row row = {.valid = COUNT, .count = COUNT, .scale = 1};
  const struct vector_table *vector = NULL;
  for (unsigned set = 0; (vector = vector_at(MR_F32, set)) != NULL; set++) {
    for (size_t i = 0; i < COUNT * MR_COUNT_OF(bad); i++) {
      float scores[COUNT] = {0}, largest = 0, lse = 0, slope = 1;
      scores[i % COUNT] = bad[i / COUNT];
      assert_true(isnan(vector->sum_of_exponentials(scores, COUNT, &largest)));
      assert_true(isnan(vector->attention_row(scores, &row, &lse)) && isnan(lse));
      assert_true(isnan(scores[i % COUNT]));
      vector->gelu_backward(&slope, &bad[i % 2], 1);
      assert_true(isnan(slope));
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_instruction_set_converts_alike),
      cmocka_unit_test(vectors_are_accurate),
      cmocka_unit_test(leaves_equal_sums_in_double_precision),
      cmocka_unit_test(elements_are_the_same_wherever_they_stand),
      cmocka_unit_test(sums_hide_nothing_that_is_no_number),
      cmocka_unit_test(updates_are_the_same_on_every_set),
      cmocka_unit_test(updates_are_the_same_on_every_processor),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradients of every op against central finite differences. The reference is compiled here with
 * double (KERNEL_REAL), so the differences are exact to about 1e-9; the fast kernels are compared
 * with the same reference in kernels.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "train/kernels/kernels.h"

#define MAX_VALUES 4096u
#define POOL_SIZE  32u

/* Arrays of one test, from a pool that the next one takes again. */
static double pool[POOL_SIZE][MAX_VALUES];
static uint32_t pool_used;
static struct mr_random source;

static double *values(uint64_t count, double deviation) {
  assert_true(count <= MAX_VALUES && pool_used < POOL_SIZE);
  double *data = pool[pool_used++];
  for (uint64_t i = 0; i < count; i++) {
    data[i] = (mr_random_unit(&source) - 0.5) * 3.4641 * deviation;
  }
  return data;
}

static int32_t *tokens(int32_t *data, uint64_t count, uint64_t vocab) {
  for (uint64_t i = 0; i < count; i++) {
    data[i] = (int32_t)mr_random_below(&source, vocab);
  }
  return data;
}

static double weighted(const double *out, const double *weights, uint64_t count) {
  double sum = 0;
  for (uint64_t i = 0; i < count; i++) {
    sum += out[i] * weights[i];
  }
  return sum;
}

/* A scalar function of the arrays that `context` names. */
typedef double objective(const void *context);

/* Compares up to 60 elements of `gradient` with differences of the objective in x. */
static void check(const char *name, objective *f, const void *context, double *x,
                  const double *gradient, uint64_t count) {
  double squares = 0;
  for (uint64_t i = 0; i < count; i++) {
    squares += gradient[i] * gradient[i];
  }
  double scale = sqrt(squares / (double)count) + 1e-3;
  for (uint64_t draw = 0; draw < mr_min_u64(60, count); draw++) {
    uint64_t i = count <= 60 ? draw : mr_random_below(&source, count);
    const double h = 1e-5, before = x[i];
    x[i] = before + h;
    double above = f(context);
    x[i] = before - h;
    double below = f(context);
    x[i] = before;
    double slope = (above - below) / (2 * h);
    if (!(fabs(slope - gradient[i]) <= 2e-7 * scale)) {
      fail_msg("%s[%llu]: the gradient is %.12g, the difference %.12g", name, (unsigned long long)i,
               gradient[i], slope);
    }
  }
}

struct embed {
  struct kernel_embed op;
  const double *weights;
};

static double embed_objective(const void *context) {
  const struct embed *e = context;
  assert_int_equal(kernel_reference()->embed(NULL, &e->op), MR_OK);
  return weighted(e->op.x, e->weights, e->op.batch * e->op.seq * e->op.width);
}

static void embed_gradients(void **state) {
  (void)state;
  enum { BATCH = 3, SEQ = 5, WIDTH = 7, VOCAB = 6, POSITIONS = 8, ROWS = BATCH * SEQ };
  int32_t words[ROWS];
  double *wte = values(VOCAB * WIDTH, 1), *wpe = values(POSITIONS * WIDTH, 1);
  double *dwte = values(VOCAB * WIDTH, 0), *dwpe = values(POSITIONS * WIDTH, 1);
  struct embed e = {.op = {.tokens = tokens(words, ROWS, VOCAB),
                           .wte = wte,
                           .wpe = wpe,
                           .x = values(ROWS * WIDTH, 0),
                           .batch = BATCH,
                           .seq = SEQ,
                           .width = WIDTH,
                           .vocab = VOCAB},
                    .weights = values(ROWS * WIDTH, 1)};
  struct kernel_embed_backward backward = {.tokens = words,
                                           .dx = e.weights,
                                           .dwte = dwte,
                                           .dwpe = dwpe,
                                           .batch = BATCH,
                                           .seq = SEQ,
                                           .width = WIDTH,
                                           .vocab = VOCAB,
                                           .positions = POSITIONS};
  assert_int_equal(kernel_reference()->embed_backward(NULL, &backward, NULL), MR_OK);
  check("dwte", embed_objective, &e, wte, dwte, VOCAB * WIDTH);
  check("dwpe", embed_objective, &e, wpe, dwpe, POSITIONS * WIDTH);
}

struct layernorm {
  struct kernel_layernorm op;
  const double *weights;
};

static double layernorm_objective(const void *context) {
  const struct layernorm *l = context;
  assert_int_equal(kernel_reference()->layernorm(NULL, &l->op), MR_OK);
  return weighted(l->op.y, l->weights, l->op.rows * l->op.width);
}

static void layernorm_gradients(void **state) {
  (void)state;
  enum { ROWS = 4, WIDTH = 13 };
  double *x = values(ROWS * WIDTH, 2), *gamma = values(WIDTH, 1), *beta = values(WIDTH, 1);
  double *dx = values(ROWS * WIDTH, 1), *dgamma = values(WIDTH, 1), *dbeta = values(WIDTH, 1);
  struct layernorm l = {.op = {.x = x,
                               .gamma = gamma,
                               .beta = beta,
                               .y = values(ROWS * WIDTH, 0),
                               .mean = values(ROWS, 0),
                               .rstd = values(ROWS, 0),
                               .rows = ROWS,
                               .width = WIDTH},
                        .weights = values(ROWS * WIDTH, 1)};
  layernorm_objective(&l);
  struct kernel_layernorm_backward backward = {.dy = l.weights,
                                               .x = x,
                                               .gamma = gamma,
                                               .mean = l.op.mean,
                                               .rstd = l.op.rstd,
                                               .dx = dx,
                                               .dgamma = dgamma,
                                               .dbeta = dbeta,
                                               .rows = ROWS,
                                               .width = WIDTH};
  assert_int_equal(kernel_reference()->layernorm_backward(NULL, &backward, NULL), MR_OK);
  check("dx", layernorm_objective, &l, x, dx, ROWS * WIDTH);
  check("dgamma", layernorm_objective, &l, gamma, dgamma, WIDTH);
  check("dbeta", layernorm_objective, &l, beta, dbeta, WIDTH);
}

/* pre -> GELU -> linear: the gradient of pre is the one that the fused derivative gives. */
struct linear {
  struct kernel_gelu gelu;
  struct kernel_linear op;
  const double *weights;
};

static double linear_objective(const void *context) {
  const struct linear *l = context;
  assert_int_equal(kernel_reference()->gelu(NULL, &l->gelu), MR_OK);
  assert_int_equal(kernel_reference()->linear(NULL, &l->op, NULL), MR_OK);
  return weighted(l->op.y, l->weights, l->op.rows * l->op.out);
}

static void linear_gradients(void **state) {
  (void)state;
  enum { ROWS = 6, IN = 9, OUT = 5 };
  double *pre = values(ROWS * IN, 2), *x = values(ROWS * IN, 0), *w = values(IN * OUT, 1);
  double *bias = values(OUT, 1), *dx = values(ROWS * IN, 1), *dw = values(IN * OUT, 1);
  double *dbias = values(OUT, 1);
  struct linear l = {.gelu = {.x = pre, .activated = x, .count = ROWS * IN},
                     .op = {.x = x,
                            .w = w,
                            .bias = bias,
                            .residual = values(ROWS * OUT, 1),
                            .y = values(ROWS * OUT, 0),
                            .rows = ROWS,
                            .in = IN,
                            .out = OUT},
                     .weights = values(ROWS * OUT, 1)};
  linear_objective(&l);
  struct kernel_linear_backward backward = {.dy = l.weights,
                                            .x = x,
                                            .w = w,
                                            .preactivation = pre,
                                            .dx = dx,
                                            .dw = dw,
                                            .dbias = dbias,
                                            .rows = ROWS,
                                            .in = IN,
                                            .out = OUT};
  assert_int_equal(kernel_reference()->linear_backward(NULL, &backward, NULL), MR_OK);
  check("dx", linear_objective, &l, pre, dx, ROWS * IN);
  check("dw", linear_objective, &l, w, dw, IN * OUT);
  check("dbias", linear_objective, &l, bias, dbias, OUT);
}

struct attention {
  struct kernel_attention op;
  const double *weights;
};

static double attention_objective(const void *context) {
  const struct attention *a = context;
  assert_int_equal(kernel_reference()->attention(NULL, &a->op, NULL), MR_OK);
  return weighted(a->op.out, a->weights, a->op.batch * a->op.seq * a->op.width);
}

static void attention_gradients(void **state) {
  (void)state;
  enum { BATCH = 2, SEQ = 7, HEADS = 3, WIDTH = 15, ROWS = BATCH * SEQ };
  double *qkv = values(ROWS * 3 * WIDTH, 1), *dqkv = values(ROWS * 3 * WIDTH, 1);
  struct attention a = {.op = {.qkv = qkv,
                               .out = values(ROWS * WIDTH, 0),
                               .lse = values(ROWS * HEADS, 0),
                               .batch = BATCH,
                               .seq = SEQ,
                               .width = WIDTH,
                               .heads = HEADS},
                        .weights = values(ROWS * WIDTH, 1)};
  attention_objective(&a);
  struct kernel_attention_backward backward = {.dout = a.weights,
                                               .qkv = qkv,
                                               .out = a.op.out,
                                               .lse = a.op.lse,
                                               .dqkv = dqkv,
                                               .batch = BATCH,
                                               .seq = SEQ,
                                               .width = WIDTH,
                                               .heads = HEADS};
  assert_int_equal(kernel_reference()->attention_backward(NULL, &backward, NULL), MR_OK);
  for (int part = 0; part < 4; part++) {
    check("dqkv", attention_objective, &a, qkv, dqkv, ROWS * 3 * WIDTH);
  }
}

/* The head of two slices. */
enum { HEAD_ROWS = 8, HEAD_WIDTH = 6, HEAD_VOCAB = 11, HEAD_FIRST_WORDS = 5, HEAD_STRIDE = 16 };

struct head {
  const double *x, *wte;
  const int32_t *targets;
  double *logits[2], *sums[2], *softmax;
};

static uint64_t head_words(int slice) {
  return slice == 0 ? HEAD_FIRST_WORDS : HEAD_VOCAB - HEAD_FIRST_WORDS;
}

static double head_objective(const void *context) {
  const struct head *h = context;
  for (int i = 0; i < 2; i++) {
    uint64_t first_word = i == 0 ? 0 : HEAD_FIRST_WORDS;
    struct kernel_head_logits op = {.x = h->x,
                                    .wte = h->wte + first_word * HEAD_WIDTH,
                                    .targets = h->targets,
                                    .logits = h->logits[i],
                                    .sums = h->sums[i],
                                    .rows = HEAD_ROWS,
                                    .width = HEAD_WIDTH,
                                    .first_word = first_word,
                                    .vocab = head_words(i),
                                    .stride = HEAD_STRIDE};
    assert_int_equal(kernel_reference()->head_logits(NULL, &op, NULL), MR_OK);
  }
  const double *sums[2] = {h->sums[0], h->sums[1]};
  double loss = 0;
  struct kernel_head_loss op = {.sums = sums,
                                .loss = &loss,
                                .softmax = h->softmax,
                                .rows = HEAD_ROWS,
                                .slices = 2,
                                .scale = 1.0 / HEAD_ROWS};
  assert_int_equal(kernel_reference()->head_loss(NULL, &op, NULL), MR_OK);
  return loss;
}

static void head_gradients(void **state) {
  (void)state;
  int32_t words[HEAD_ROWS];
  double *x = values(HEAD_ROWS * HEAD_WIDTH, 1), *wte = values(HEAD_VOCAB * HEAD_WIDTH, 1);
  struct head h = {.x = x, .wte = wte, .targets = tokens(words, HEAD_ROWS, HEAD_VOCAB)};
  for (int i = 0; i < 2; i++) {
    h.logits[i] = values(HEAD_ROWS * HEAD_STRIDE, 1);
    h.sums[i] = values(HEAD_ROWS * KERNEL_HEAD_SUMS, 1);
  }
  h.softmax = values(HEAD_ROWS * KERNEL_HEAD_SOFTMAX, 1);
  double *dx = values(HEAD_ROWS * HEAD_WIDTH, 1), *dwte = values(HEAD_VOCAB * HEAD_WIDTH, 1);
  head_objective(&h);
  for (int i = 2; i-- > 0;) {
    uint64_t first_word = i == 0 ? 0 : HEAD_FIRST_WORDS;
    struct kernel_head_gradient op = {.x = x,
                                      .wte = wte + first_word * HEAD_WIDTH,
                                      .targets = words,
                                      .softmax = h.softmax,
                                      .logits = h.logits[i],
                                      .dx = dx,
                                      .dwte = dwte + first_word * HEAD_WIDTH,
                                      .rows = HEAD_ROWS,
                                      .width = HEAD_WIDTH,
                                      .first_word = first_word,
                                      .vocab = head_words(i),
                                      .stride = HEAD_STRIDE,
                                      .scale = 1.0 / HEAD_ROWS,
                                      .accumulate_dx = i == 0};
    assert_int_equal(kernel_reference()->head_gradient(NULL, &op, NULL), MR_OK);
  }
  check("dx", head_objective, &h, x, dx, HEAD_ROWS * HEAD_WIDTH);
  check("dwte", head_objective, &h, wte, dwte, HEAD_VOCAB * HEAD_WIDTH);
}

static int start(void **state) {
  (void)state;
  const char *text = getenv("MEMRUN_SEED");
  uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);
  print_message("seed %llu\n", (unsigned long long)seed);
  mr_random_init(&source, seed);
  pool_used = 0;
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(embed_gradients, start),
      cmocka_unit_test_setup(layernorm_gradients, start),
      cmocka_unit_test_setup(linear_gradients, start),
      cmocka_unit_test_setup(attention_gradients, start),
      cmocka_unit_test_setup(head_gradients, start),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

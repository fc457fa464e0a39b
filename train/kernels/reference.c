/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The readable kernels: the specification of every op, one loop for each sum of the formulas in
 * kernels.h, on the calling thread. Sums and functions are computed in double and stored as the
 * type of the result. Compiled with KERNEL_REAL=double it is the function whose finite differences
 * check the gradients.
 */
#include "train/kernels/kernels.h"

#include <math.h>

#include "train/kernels/bf16.h"

typedef kernel_real real;

/* Element `at` of a matrix of the op's type. */
static double get(const void *matrix, mr_dtype dtype, uint64_t at) {
  return dtype == MR_BF16 ? (double)bf16_widen(((const uint16_t *)matrix)[at])
                          : (double)((const real *)matrix)[at];
}

static void put(void *matrix, mr_dtype dtype, uint64_t at, double value) {
  if (dtype == MR_BF16) {
    ((uint16_t *)matrix)[at] = bf16_round((float)value);
  } else {
    ((real *)matrix)[at] = (real)value;
  }
}

static bool in_slice(int32_t word, uint64_t first, uint64_t count) {
  return (uint64_t)word >= first && (uint64_t)word < first + count;
}

static mr_status embed(struct mr_team *team, const struct kernel_embed *op) {
  (void)team;
  for (uint64_t n = 0; n < op->batch * op->seq; n++) {
    if (!in_slice(op->tokens[n], op->first_word, op->vocab)) continue;
    uint64_t token = ((uint64_t)op->tokens[n] - op->first_word) * op->width;
    uint64_t position = n % op->seq * op->width;
    for (uint64_t c = 0; c < op->width; c++) {
      double x = get(op->wte, op->dtype, token + c) + get(op->wpe, op->dtype, position + c);
      put(op->x, op->dtype, n * op->width + c, x);
    }
  }
  return MR_OK;
}

static mr_status embed_backward(struct mr_team *team, const struct kernel_embed_backward *op,
                                void *scratch) {
  (void)team;
  (void)scratch;
  uint64_t width = op->width;
  for (uint64_t n = 0; n < op->batch * op->seq; n++) {
    if (!in_slice(op->tokens[n], op->first_word, op->vocab)) continue;
    real *row = op->dwte + ((uint64_t)op->tokens[n] - op->first_word) * width;
    for (uint64_t c = 0; c < width; c++) {
      row[c] += (real)get(op->dx, op->dtype, n * width + c);
    }
  }
  if (op->dwpe == NULL) return MR_OK;
  for (uint64_t i = 0; !op->accumulate && i < op->positions * width; i++) {
    op->dwpe[i] = 0;
  }
  for (uint64_t n = 0; n < op->batch * op->seq; n++) {
    for (uint64_t c = 0; c < width; c++) {
      op->dwpe[n % op->seq * width + c] += (real)get(op->dx, op->dtype, n * width + c);
    }
  }
  return MR_OK;
}

static mr_status layernorm(struct mr_team *team, const struct kernel_layernorm *op) {
  (void)team;
  uint64_t width = op->width;
  mr_dtype dtype = op->dtype;
  for (uint64_t n = 0; n < op->rows; n++) {
    double mean = 0, variance = 0;
    for (uint64_t c = 0; c < width; c++) {
      mean += get(op->x, dtype, n * width + c) / (double)width;
    }
    for (uint64_t c = 0; c < width; c++) {
      double distance = get(op->x, dtype, n * width + c) - mean;
      variance += distance * distance / (double)width;
    }
    double rstd = 1.0 / sqrt(variance + 1e-5);
    for (uint64_t c = 0; c < width; c++) {
      double normal = (get(op->x, dtype, n * width + c) - mean) * rstd;
      double y = normal * get(op->gamma, dtype, c) + get(op->beta, dtype, c);
      put(op->y, dtype, n * width + c, y);
    }
    op->mean[n] = (real)mean;
    op->rstd[n] = (real)rstd;
  }
  return MR_OK;
}

/* With normal = (x - mean) rstd and scaled = dy gamma: dx = rstd (scaled - average(scaled) - normal
 * average(scaled normal)). */
static void layernorm_backward_row(const struct kernel_layernorm_backward *op, uint64_t n) {
  uint64_t width = op->width;
  mr_dtype dtype = op->dtype;
  double mean = (double)op->mean[n], rstd = (double)op->rstd[n];
  double average = 0, average_normal = 0;
  for (uint64_t c = 0; c < width; c++) {
    double scaled = get(op->dy, dtype, n * width + c) * get(op->gamma, dtype, c);
    average += scaled / (double)width;
    average_normal += scaled * (get(op->x, dtype, n * width + c) - mean) * rstd / (double)width;
  }
  for (uint64_t c = 0; c < width; c++) {
    double scaled = get(op->dy, dtype, n * width + c) * get(op->gamma, dtype, c);
    double normal = (get(op->x, dtype, n * width + c) - mean) * rstd;
    double before = op->accumulate_dx ? get(op->dx, dtype, n * width + c) : 0;
    double dx = before + rstd * (scaled - average - normal * average_normal);
    put(op->dx, dtype, n * width + c, dx);
  }
}

static mr_status layernorm_backward(struct mr_team *team,
                                    const struct kernel_layernorm_backward *op, void *scratch) {
  (void)team;
  (void)scratch;
  for (uint64_t c = 0; c < op->width; c++) {
    double dgamma = op->accumulate ? (double)op->dgamma[c] : 0;
    double dbeta = op->accumulate ? (double)op->dbeta[c] : 0;
    for (uint64_t n = 0; n < op->rows; n++) {
      double dy = get(op->dy, op->dtype, n * op->width + c);
      double x = get(op->x, op->dtype, n * op->width + c);
      dgamma += dy * (x - (double)op->mean[n]) * (double)op->rstd[n];
      dbeta += dy;
    }
    op->dgamma[c] = (real)dgamma;
    op->dbeta[c] = (real)dbeta;
  }
  for (uint64_t n = 0; n < op->rows; n++) {
    layernorm_backward_row(op, n);
  }
  return MR_OK;
}

#define SQRT_2_OVER_PI 0.79788456080286535588

static double gelu_tanh(double x) {
  return 0.5 * x * (1 + tanh(SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)));
}

static double gelu_tanh_derivative(double x) {
  double t = tanh(SQRT_2_OVER_PI * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * SQRT_2_OVER_PI * (1 + 3 * 0.044715 * x * x);
}

static mr_status gelu(struct mr_team *team, const struct kernel_gelu *op) {
  (void)team;
  for (uint64_t i = 0; i < op->count; i++) {
    put(op->activated, op->dtype, i, gelu_tanh(get(op->x, op->dtype, i)));
  }
  return MR_OK;
}

static mr_status linear(struct mr_team *team, const struct kernel_linear *op, void *scratch) {
  (void)team;
  (void)scratch;
  mr_dtype dtype = op->dtype;
  for (uint64_t n = 0; n < op->rows; n++) {
    for (uint64_t m = 0; m < op->out; m++) {
      uint64_t at = n * op->out + m;
      double y = op->residual == NULL ? 0 : get(op->residual, dtype, at);
      y += op->bias == NULL ? 0 : get(op->bias, dtype, m);
      for (uint64_t k = 0; k < op->in; k++) {
        y += get(op->x, dtype, n * op->in + k) * get(op->w, dtype, k * op->out + m);
      }
      put(op->y, dtype, at, y);
      if (op->activated != NULL) put(op->activated, dtype, at, gelu_tanh(y));
    }
  }
  return MR_OK;
}

static void linear_backward_weights(const struct kernel_linear_backward *op) {
  mr_dtype dtype = op->dtype;
  for (uint64_t m = 0; m < op->out; m++) {
    for (uint64_t k = 0; k < op->in; k++) {
      double dw = op->accumulate ? (double)op->dw[k * op->out + m] : 0;
      for (uint64_t n = 0; n < op->rows; n++) {
        dw += get(op->x, dtype, n * op->in + k) * get(op->dy, dtype, n * op->out + m);
      }
      op->dw[k * op->out + m] = (real)dw;
    }
    if (op->dbias == NULL) continue;
    double dbias = op->accumulate ? (double)op->dbias[m] : 0;
    for (uint64_t n = 0; n < op->rows; n++) {
      dbias += get(op->dy, dtype, n * op->out + m);
    }
    op->dbias[m] = (real)dbias;
  }
}

static mr_status linear_backward(struct mr_team *team, const struct kernel_linear_backward *op,
                                 void *scratch) {
  (void)team;
  (void)scratch;
  mr_dtype dtype = op->dtype;
  for (uint64_t n = 0; n < op->rows; n++) {
    for (uint64_t k = 0; k < op->in; k++) {
      uint64_t at = n * op->in + k;
      double dx = op->accumulate_dx ? get(op->dx, dtype, at) : 0;
      for (uint64_t m = 0; m < op->out; m++) {
        dx += get(op->dy, dtype, n * op->out + m) * get(op->w, dtype, k * op->out + m);
      }
      if (op->preactivation != NULL) {
        dx *= gelu_tanh_derivative(get(op->preactivation, dtype, at));
      }
      put(op->dx, dtype, at, dx);
    }
  }
  linear_backward_weights(op);
  return MR_OK;
}

/* One query of one head, as places in qkv, whose rows are 3C apart. */
struct query {
  const void *qkv;
  mr_dtype dtype;
  uint64_t q, k, v; /* the query; key and value 0 of its sequence */
  uint64_t keys;    /* t + 1 */
  uint64_t width, head_width;
};

static struct query query_at(const struct kernel_attention *op, uint64_t n, uint64_t h) {
  uint64_t width = op->width, head_width = width / op->heads;
  uint64_t first = n / op->seq * op->seq * 3 * width + h * head_width;
  return (struct query){.qkv = op->qkv,
                        .dtype = op->dtype,
                        .q = n * 3 * width + h * head_width,
                        .k = first + width,
                        .v = first + 2 * width,
                        .keys = n % op->seq + 1,
                        .width = width,
                        .head_width = head_width};
}

static double score(const struct query *a, uint64_t key) {
  double sum = 0;
  for (uint64_t i = 0; i < a->head_width; i++) {
    sum += get(a->qkv, a->dtype, a->q + i) * get(a->qkv, a->dtype, a->k + key * 3 * a->width + i);
  }
  return sum / sqrt((double)a->head_width);
}

static double query_lse(const struct query *a) {
  double largest = score(a, 0), sum = 0;
  for (uint64_t key = 1; key < a->keys; key++) {
    largest = fmax(largest, score(a, key));
  }
  for (uint64_t key = 0; key < a->keys; key++) {
    sum += exp(score(a, key) - largest);
  }
  return largest + log(sum);
}

static mr_status attention(struct mr_team *team, const struct kernel_attention *op, void *scratch) {
  (void)team;
  (void)scratch;
  uint64_t width = op->width, head_width = width / op->heads;
  for (uint64_t n = 0; n < op->batch * op->seq; n++) {
    for (uint64_t h = 0; h < op->heads; h++) {
      struct query a = query_at(op, n, h);
      double lse = query_lse(&a);
      op->lse[(n / op->seq * op->heads + h) * op->seq + n % op->seq] = (real)lse;
      for (uint64_t i = 0; i < head_width; i++) {
        double out = 0;
        for (uint64_t key = 0; key < a.keys; key++) {
          out += exp(score(&a, key) - lse) * get(op->qkv, op->dtype, a.v + key * 3 * width + i);
        }
        put(op->out, op->dtype, n * width + h * head_width + i, out);
      }
    }
  }
  return MR_OK;
}

/* Where the gradients of one head of one sequence are summed: where they belong, or, to be rounded
 * once, in scratch. */
struct head_sums {
  real *q, *k, *v; /* of row 0 */
  uint64_t stride;
};

static struct head_sums head_sums_at(const struct kernel_attention_backward *op, uint64_t place,
                                     void *scratch) {
  uint64_t head_width = op->width / op->heads;
  if (op->dtype == MR_BF16) {
    real *sums = scratch;
    return (struct head_sums){sums, sums + head_width, sums + 2 * head_width, 3 * head_width};
  }
  real *dqkv = (real *)op->dqkv + place;
  return (struct head_sums){dqkv, dqkv + op->width, dqkv + 2 * op->width, 3 * op->width};
}

/* With p = softmax(scores), dp = dout . v and delta = dout . out: dscore = p (dp - delta). */
static void attention_backward_query(const struct kernel_attention_backward *op,
                                     const struct query *a, uint64_t n, uint64_t h,
                                     const struct head_sums *sums) {
  mr_dtype dtype = op->dtype;
  uint64_t head_width = a->head_width, row = n * op->width + h * head_width, t = n % op->seq;
  double lse = (double)op->lse[(n / op->seq * op->heads + h) * op->seq + t], delta = 0;
  for (uint64_t i = 0; i < head_width; i++) {
    delta += get(op->dout, dtype, row + i) * get(op->out, dtype, row + i);
  }
  for (uint64_t key = 0; key < a->keys; key++) {
    double x = score(a, key) - lse; /* above 0 by no more than lse was rounded by */
    double p = exp(x > 0 ? 0 : x), dp = 0;
    uint64_t at = key * 3 * op->width;
    for (uint64_t i = 0; i < head_width; i++) {
      dp += get(op->dout, dtype, row + i) * get(op->qkv, dtype, a->v + at + i);
      sums->v[key * sums->stride + i] += (real)(p * get(op->dout, dtype, row + i));
    }
    double dscore = p * (dp - delta) / sqrt((double)head_width);
    for (uint64_t i = 0; i < head_width; i++) {
      sums->q[t * sums->stride + i] += (real)(dscore * get(op->qkv, dtype, a->k + at + i));
      sums->k[key * sums->stride + i] += (real)(dscore * get(op->qkv, dtype, a->q + i));
    }
  }
}

static void clear_head(const struct head_sums *sums, uint64_t seq, uint64_t head_width) {
  for (uint64_t t = 0; t < seq; t++) {
    for (uint64_t i = 0; i < head_width; i++) {
      sums->q[t * sums->stride + i] = 0;
      sums->k[t * sums->stride + i] = 0;
      sums->v[t * sums->stride + i] = 0;
    }
  }
}

/* Rounds the sums to where they belong. */
static void put_head(const struct kernel_attention_backward *op, const struct head_sums *sums,
                     uint64_t place) {
  uint64_t head_width = op->width / op->heads;
  for (uint64_t t = 0; t < op->seq; t++) {
    uint64_t q = place + t * 3 * op->width, k = q + op->width, v = k + op->width;
    for (uint64_t i = 0; i < head_width; i++) {
      put(op->dqkv, op->dtype, q + i, (double)sums->q[t * sums->stride + i]);
      put(op->dqkv, op->dtype, k + i, (double)sums->k[t * sums->stride + i]);
      put(op->dqkv, op->dtype, v + i, (double)sums->v[t * sums->stride + i]);
    }
  }
}

static mr_status attention_backward(struct mr_team *team,
                                    const struct kernel_attention_backward *op, void *scratch) {
  (void)team;
  uint64_t head_width = op->width / op->heads;
  struct kernel_attention forward = {
      .qkv = op->qkv, .seq = op->seq, .width = op->width, .heads = op->heads, .dtype = op->dtype};
  for (uint64_t head = 0; head < op->batch * op->heads; head++) {
    uint64_t first = head / op->heads * op->seq, h = head % op->heads;
    uint64_t place = first * 3 * op->width + h * head_width;
    struct head_sums sums = head_sums_at(op, place, scratch);
    clear_head(&sums, op->seq, head_width);
    for (uint64_t n = first; n < first + op->seq; n++) {
      struct query a = query_at(&forward, n, h);
      attention_backward_query(op, &a, n, h, &sums);
    }
    if (op->dtype == MR_BF16) put_head(op, &sums, place);
  }
  return MR_OK;
}

static mr_status head_logits(struct mr_team *team, const struct kernel_head_logits *op,
                             void *scratch) {
  (void)team;
  (void)scratch;
  for (uint64_t n = 0; n < op->rows; n++) {
    real *sums = op->sums + n * KERNEL_HEAD_SUMS;
    uint64_t row = n * op->stride, target = (uint64_t)op->targets[n] - op->first_word;
    double largest = -INFINITY, sum = 0;
    for (uint64_t v = 0; v < op->vocab; v++) {
      double logit = 0;
      for (uint64_t c = 0; c < op->width; c++) {
        logit +=
            get(op->x, op->dtype, n * op->width + c) * get(op->wte, op->dtype, v * op->width + c);
      }
      put(op->logits, op->dtype, row + v, logit);
      /* What follows knows the logits as they are kept alone. */
      largest = fmax(largest, get(op->logits, op->dtype, row + v));
    }
    for (uint64_t v = 0; v < op->vocab; v++) {
      sum += exp(get(op->logits, op->dtype, row + v) - largest);
    }
    bool here = in_slice(op->targets[n], op->first_word, op->vocab);
    sums[0] = (real)largest;
    sums[1] = (real)sum;
    sums[2] = here ? (real)get(op->logits, op->dtype, row + target) : 0;
  }
  return MR_OK;
}

static mr_status head_loss(struct mr_team *team, const struct kernel_head_loss *op, void *scratch) {
  (void)team;
  (void)scratch;
  double loss = 0;
  for (uint64_t n = 0; n < op->rows; n++) {
    double largest = -INFINITY, sum = 0, target = 0;
    for (uint64_t k = 0; k < op->slices; k++) {
      largest = fmax(largest, (double)op->sums[k][n * KERNEL_HEAD_SUMS]);
    }
    for (uint64_t k = 0; k < op->slices; k++) {
      const real *sums = op->sums[k] + n * KERNEL_HEAD_SUMS;
      sum += (double)sums[1] * exp((double)sums[0] - largest);
      target += (double)sums[2];
    }
    loss += largest + log(sum) - target;
    op->softmax[n * KERNEL_HEAD_SOFTMAX] = (real)largest;
    op->softmax[n * KERNEL_HEAD_SOFTMAX + 1] = (real)(op->scale / sum);
  }
  *op->loss = (op->accumulate ? *op->loss : 0) + op->scale * loss;
  return MR_OK;
}

/* The gradients of a row's logits, and dx from them. */
static void head_gradient_row(const struct kernel_head_gradient *op, uint64_t n) {
  mr_dtype dtype = op->dtype;
  uint64_t row = n * op->stride;
  const real *softmax = op->softmax + n * KERNEL_HEAD_SOFTMAX;
  for (uint64_t v = 0; v < op->vocab; v++) {
    bool target = op->first_word + v == (uint64_t)op->targets[n];
    double p = exp(get(op->logits, dtype, row + v) - (double)softmax[0]) * (double)softmax[1];
    put(op->logits, dtype, row + v, p - (target ? op->scale : 0));
  }
  for (uint64_t c = 0; c < op->width; c++) {
    double sum = op->accumulate_dx ? get(op->dx, dtype, n * op->width + c) : 0;
    for (uint64_t v = 0; v < op->vocab; v++) {
      sum += get(op->logits, dtype, row + v) * get(op->wte, dtype, v * op->width + c);
    }
    put(op->dx, dtype, n * op->width + c, sum);
  }
}

static mr_status head_gradient(struct mr_team *team, const struct kernel_head_gradient *op,
                               void *scratch) {
  (void)team;
  (void)scratch;
  for (uint64_t n = 0; n < op->rows; n++) {
    head_gradient_row(op, n);
  }
  for (uint64_t v = 0; v < op->vocab; v++) {
    for (uint64_t c = 0; c < op->width; c++) {
      double sum = op->accumulate ? (double)op->dwte[v * op->width + c] : 0;
      for (uint64_t n = 0; n < op->rows; n++) {
        sum += get(op->logits, op->dtype, n * op->stride + v) *
               get(op->x, op->dtype, n * op->width + c);
      }
      op->dwte[v * op->width + c] = (real)sum;
    }
  }
  return MR_OK;
}

static mr_status sum_squares(struct mr_team *team, const struct kernel_sum_squares *op,
                             void *scratch) {
  (void)team;
  (void)scratch;
  double sum = 0;
  for (uint64_t i = 0; i < op->count; i++) {
    sum += (double)op->g[i] * (double)op->g[i];
  }
  *op->out = sum;
  return MR_OK;
}

static mr_status adamw(struct mr_team *team, const struct kernel_adamw *op) {
  (void)team;
  double grad_scale = op->grad_scale == NULL ? 1 : (double)*op->grad_scale;
  double beta1 = (double)op->beta1, beta2 = (double)op->beta2;
  for (uint64_t i = 0; i < op->count; i++) {
    double g = (double)op->g[i] * grad_scale, p = (double)op->p[i];
    double m = beta1 * (double)op->m[i] + (1 - beta1) * g;
    double v = beta2 * (double)op->v[i] + (1 - beta2) * g * g;
    double step =
        m / (double)op->correction1 / (sqrt(v / (double)op->correction2) + (double)op->eps);
    op->p[i] = (real)(p - (double)op->lr * step - (double)op->lr * (double)op->weight_decay * p);
    op->m[i] = (real)m;
    op->v[i] = (real)v;
    if (op->working != NULL) op->working[i] = bf16_round((float)op->p[i]);
  }
  return MR_OK;
}

static const struct kernel_table table = {
    .name = "reference",
    .embed = embed,
    .embed_backward = embed_backward,
    .layernorm = layernorm,
    .layernorm_backward = layernorm_backward,
    .linear = linear,
    .linear_backward = linear_backward,
    .gelu = gelu,
    .attention = attention,
    .attention_backward = attention_backward,
    .head_logits = head_logits,
    .head_loss = head_loss,
    .head_gradient = head_gradient,
    .sum_squares = sum_squares,
    .adamw = adamw,
};

const struct kernel_table *kernel_reference(void) {
  return &table;
}

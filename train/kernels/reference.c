/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The readable kernels: the specification of every op, one loop for each sum of the formulas in
 * kernels.h, on the calling thread. Sums and functions are computed in double and stored as
 * kernel_real. Compiled with KERNEL_REAL=double it is the function whose finite differences check
 * the gradients.
 */
#include "train/kernels/kernels.h"

#include <math.h>

typedef kernel_real real;

static bool in_slice(int32_t word, uint64_t first, uint64_t count) {
  return (uint64_t)word >= first && (uint64_t)word < first + count;
}

static mr_status embed(struct mr_team *team, const struct kernel_embed *op) {
  (void)team;
  for (uint64_t n = 0; n < op->batch * op->seq; n++) {
    if (!in_slice(op->tokens[n], op->first_word, op->vocab)) continue;
    const real *token = op->wte + ((uint64_t)op->tokens[n] - op->first_word) * op->width;
    const real *position = op->wpe + n % op->seq * op->width;
    for (uint64_t c = 0; c < op->width; c++) {
      op->x[n * op->width + c] = token[c] + position[c];
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
      row[c] += op->dx[n * width + c];
    }
  }
  if (op->dwpe == NULL) return MR_OK;
  for (uint64_t i = 0; !op->accumulate && i < op->positions * width; i++) {
    op->dwpe[i] = 0;
  }
  for (uint64_t n = 0; n < op->batch * op->seq; n++) {
    for (uint64_t c = 0; c < width; c++) {
      op->dwpe[n % op->seq * width + c] += op->dx[n * width + c];
    }
  }
  return MR_OK;
}

static mr_status layernorm(struct mr_team *team, const struct kernel_layernorm *op) {
  (void)team;
  uint64_t width = op->width;
  for (uint64_t n = 0; n < op->rows; n++) {
    const real *x = op->x + n * width;
    double mean = 0, variance = 0;
    for (uint64_t c = 0; c < width; c++) {
      mean += (double)x[c] / (double)width;
    }
    for (uint64_t c = 0; c < width; c++) {
      variance += ((double)x[c] - mean) * ((double)x[c] - mean) / (double)width;
    }
    double rstd = 1.0 / sqrt(variance + 1e-5);
    for (uint64_t c = 0; c < width; c++) {
      double normal = ((double)x[c] - mean) * rstd;
      op->y[n * width + c] = (real)(normal * (double)op->gamma[c] + (double)op->beta[c]);
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
  const real *dy = op->dy + n * width, *x = op->x + n * width;
  double mean = (double)op->mean[n], rstd = (double)op->rstd[n];
  double average = 0, average_normal = 0;
  for (uint64_t c = 0; c < width; c++) {
    double scaled = (double)dy[c] * (double)op->gamma[c];
    average += scaled / (double)width;
    average_normal += scaled * ((double)x[c] - mean) * rstd / (double)width;
  }
  for (uint64_t c = 0; c < width; c++) {
    double scaled = (double)dy[c] * (double)op->gamma[c], normal = ((double)x[c] - mean) * rstd;
    double before = op->accumulate_dx ? (double)op->dx[n * width + c] : 0;
    op->dx[n * width + c] = (real)(before + rstd * (scaled - average - normal * average_normal));
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
      double dy = (double)op->dy[n * op->width + c], x = (double)op->x[n * op->width + c];
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
    op->activated[i] = (real)gelu_tanh((double)op->x[i]);
  }
  return MR_OK;
}

static mr_status linear(struct mr_team *team, const struct kernel_linear *op, void *scratch) {
  (void)team;
  (void)scratch;
  for (uint64_t n = 0; n < op->rows; n++) {
    for (uint64_t m = 0; m < op->out; m++) {
      double y = op->residual == NULL ? 0 : (double)op->residual[n * op->out + m];
      y += op->bias == NULL ? 0 : (double)op->bias[m];
      for (uint64_t k = 0; k < op->in; k++) {
        y += (double)op->x[n * op->in + k] * (double)op->w[k * op->out + m];
      }
      op->y[n * op->out + m] = (real)y;
      if (op->activated != NULL) op->activated[n * op->out + m] = (real)gelu_tanh(y);
    }
  }
  return MR_OK;
}

static void linear_backward_weights(const struct kernel_linear_backward *op) {
  for (uint64_t m = 0; m < op->out; m++) {
    for (uint64_t k = 0; k < op->in; k++) {
      double dw = op->accumulate ? (double)op->dw[k * op->out + m] : 0;
      for (uint64_t n = 0; n < op->rows; n++) {
        dw += (double)op->x[n * op->in + k] * (double)op->dy[n * op->out + m];
      }
      op->dw[k * op->out + m] = (real)dw;
    }
    if (op->dbias == NULL) continue;
    double dbias = op->accumulate ? (double)op->dbias[m] : 0;
    for (uint64_t n = 0; n < op->rows; n++) {
      dbias += (double)op->dy[n * op->out + m];
    }
    op->dbias[m] = (real)dbias;
  }
}

static mr_status linear_backward(struct mr_team *team, const struct kernel_linear_backward *op,
                                 void *scratch) {
  (void)team;
  (void)scratch;
  for (uint64_t n = 0; n < op->rows; n++) {
    for (uint64_t k = 0; k < op->in; k++) {
      double dx = op->accumulate_dx ? (double)op->dx[n * op->in + k] : 0;
      for (uint64_t m = 0; m < op->out; m++) {
        dx += (double)op->dy[n * op->out + m] * (double)op->w[k * op->out + m];
      }
      if (op->preactivation != NULL) {
        dx *= gelu_tanh_derivative((double)op->preactivation[n * op->in + k]);
      }
      op->dx[n * op->in + k] = (real)dx;
    }
  }
  linear_backward_weights(op);
  return MR_OK;
}

/* One query of one head: rows of q, k, v and their gradients are 3C apart. */
struct query {
  const real *q, *k, *v; /* the query; key and value 0 of its sequence */
  uint64_t keys;         /* t + 1 */
  uint64_t width, head_width;
};

static struct query query_at(const real *qkv, uint64_t n, uint64_t seq, uint64_t width,
                             uint64_t column, uint64_t head_width) {
  const real *first = qkv + n / seq * seq * 3 * width + column;
  return (struct query){.q = qkv + n * 3 * width + column,
                        .k = first + width,
                        .v = first + 2 * width,
                        .keys = n % seq + 1,
                        .width = width,
                        .head_width = head_width};
}

static double score(const struct query *a, uint64_t key) {
  double sum = 0;
  for (uint64_t i = 0; i < a->head_width; i++) {
    sum += (double)a->q[i] * (double)a->k[key * 3 * a->width + i];
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
      struct query a = query_at(op->qkv, n, op->seq, width, h * head_width, head_width);
      double lse = query_lse(&a);
      op->lse[(n / op->seq * op->heads + h) * op->seq + n % op->seq] = (real)lse;
      for (uint64_t i = 0; i < head_width; i++) {
        double out = 0;
        for (uint64_t key = 0; key < a.keys; key++) {
          out += exp(score(&a, key) - lse) * (double)a.v[key * 3 * width + i];
        }
        op->out[n * width + h * head_width + i] = (real)out;
      }
    }
  }
  return MR_OK;
}

/* With p = softmax(scores), dp = dout . v and delta = dout . out: dscore = p (dp - delta). */
static void attention_backward_query(const struct kernel_attention_backward *op, uint64_t n,
                                     uint64_t h) {
  uint64_t width = op->width, head_width = width / op->heads, column = h * head_width;
  struct query a = query_at(op->qkv, n, op->seq, width, column, head_width);
  const real *dout = op->dout + n * width + column, *out = op->out + n * width + column;
  real *dq = op->dqkv + n * 3 * width + column;
  real *dk = op->dqkv + n / op->seq * op->seq * 3 * width + column + width, *dv = dk + width;
  double lse = (double)op->lse[(n / op->seq * op->heads + h) * op->seq + n % op->seq], delta = 0;
  for (uint64_t i = 0; i < head_width; i++) {
    delta += (double)dout[i] * (double)out[i];
  }
  for (uint64_t key = 0; key < a.keys; key++) {
    double p = exp(score(&a, key) - lse), dp = 0;
    uint64_t at = key * 3 * width;
    for (uint64_t i = 0; i < head_width; i++) {
      dp += (double)dout[i] * (double)a.v[at + i];
      dv[at + i] += (real)(p * (double)dout[i]);
    }
    double dscore = p * (dp - delta) / sqrt((double)head_width);
    for (uint64_t i = 0; i < head_width; i++) {
      dq[i] += (real)(dscore * (double)a.k[at + i]);
      dk[at + i] += (real)(dscore * (double)a.q[i]);
    }
  }
}

static mr_status attention_backward(struct mr_team *team,
                                    const struct kernel_attention_backward *op, void *scratch) {
  (void)team;
  (void)scratch;
  uint64_t rows = op->batch * op->seq;
  for (uint64_t i = 0; i < rows * 3 * op->width; i++) {
    op->dqkv[i] = 0;
  }
  for (uint64_t n = 0; n < rows; n++) {
    for (uint64_t h = 0; h < op->heads; h++) {
      attention_backward_query(op, n, h);
    }
  }
  return MR_OK;
}

static mr_status head_logits(struct mr_team *team, const struct kernel_head_logits *op,
                             void *scratch) {
  (void)team;
  (void)scratch;
  for (uint64_t n = 0; n < op->rows; n++) {
    real *logits = op->logits + n * op->stride, *sums = op->sums + n * KERNEL_HEAD_SUMS;
    double largest = -INFINITY, sum = 0;
    for (uint64_t v = 0; v < op->vocab; v++) {
      double logit = 0;
      for (uint64_t c = 0; c < op->width; c++) {
        logit += (double)op->x[n * op->width + c] * (double)op->wte[v * op->width + c];
      }
      logits[v] = (real)logit;
      largest = fmax(largest, logit);
    }
    for (uint64_t v = 0; v < op->vocab; v++) {
      sum += exp((double)logits[v] - largest);
    }
    bool here = in_slice(op->targets[n], op->first_word, op->vocab);
    sums[0] = (real)largest;
    sums[1] = (real)sum;
    sums[2] = here ? logits[(uint64_t)op->targets[n] - op->first_word] : 0;
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
  real *logits = op->logits + n * op->stride, *dx = op->dx + n * op->width;
  const real *softmax = op->softmax + n * KERNEL_HEAD_SOFTMAX;
  for (uint64_t v = 0; v < op->vocab; v++) {
    bool target = op->first_word + v == (uint64_t)op->targets[n];
    double p = exp((double)logits[v] - (double)softmax[0]) * (double)softmax[1];
    logits[v] = (real)(p - (target ? op->scale : 0));
  }
  for (uint64_t c = 0; c < op->width; c++) {
    double sum = op->accumulate_dx ? (double)dx[c] : 0;
    for (uint64_t v = 0; v < op->vocab; v++) {
      sum += (double)logits[v] * (double)op->wte[v * op->width + c];
    }
    dx[c] = (real)sum;
  }
}

static mr_status head_gradient(struct mr_team *team, const struct kernel_head_gradient *op) {
  (void)team;
  for (uint64_t n = 0; n < op->rows; n++) {
    head_gradient_row(op, n);
  }
  for (uint64_t v = 0; v < op->vocab; v++) {
    for (uint64_t c = 0; c < op->width; c++) {
      double sum = op->accumulate ? (double)op->dwte[v * op->width + c] : 0;
      for (uint64_t n = 0; n < op->rows; n++) {
        sum += (double)op->logits[n * op->stride + v] * (double)op->x[n * op->width + c];
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

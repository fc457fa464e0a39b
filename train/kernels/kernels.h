/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of the trainer on the cpu: each op has a readable reference (kernel_reference())
 * and a fast version (kernel_fast()) behind one table, compared in tests. The reference is the
 * specification.
 *
 * Matrices are row major, 64-byte aligned, contiguous. `void *` points to elements of the op's
 * `dtype`, MR_F32 or MR_BF16: what passes between layers, and parameters as layers see them.
 * Gradients of parameters, statistics and the optimizer's states are fp32, and so are arithmetic
 * and sums: bf16 is widened where it is read and rounded to nearest, once, where it is written. N =
 * batch * seq rows, C = width, H = heads, T = seq, V = vocab. `accumulate` adds to the output
 * gradient instead of setting it. Outputs never overlap inputs unless a comment says so. Results
 * depend on the arguments and the team's thread count alone: work is cut into tiles by shape, tiles
 * are claimed dynamically, and every reduction has a fixed order. Scratch is given by the caller
 * (kernel_*_scratch_bytes), so that a step allocates nothing.
 *
 * GEMM comes from a library found at run time (gemm.h), used for tiles or as a whole, whichever was
 * measured faster.
 */
#ifndef MEMRUN_TRAIN_KERNELS_KERNELS_H
#define MEMRUN_TRAIN_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include <memrun/memrun.h>

/* What MR_F32 stands for: float. The readable reference is also compiled with double, whose finite
 * differences check the gradients. */
#ifndef KERNEL_REAL
#define KERNEL_REAL float
#endif
typedef KERNEL_REAL kernel_real;

/*
 * The token embedding wte and its gradient come in slices of rows (train/vocabulary.h): an op sees
 * the `vocab` rows from word `first_word` on, as a matrix of its own, and every id of a token or
 * target counts from word 0 of the whole.
 */

/* x[n,c] = wte[tokens[n],c] + wpe[n % T,c] for the tokens of the slice; other rows stay. */
struct kernel_embed {
  const int32_t *tokens; /* (N), checked by the data loader */
  const void *wte;       /* (V, C) */
  const void *wpe;       /* (>= T, C) */
  void *x;               /* (N, C) */
  uint64_t batch, seq, width, first_word, vocab;
  mr_dtype dtype;
};
/* dwte[tokens[n]] += dx[n] for the tokens of the slice (always adds: the head has written it),
 * dwpe[t] (+)= sum over batch of dx; rows of wpe from T to `positions` get 0 unless accumulate. */
struct kernel_embed_backward {
  const int32_t *tokens;
  const void *dx;    /* (N, C) */
  kernel_real *dwte; /* (V, C) in place */
  kernel_real *dwpe; /* (positions, C), or NULL */
  uint64_t batch, seq, width, first_word, vocab, positions;
  mr_dtype dtype;
  bool accumulate; /* of dwpe */
};

/* y = (x - mean) * rstd * gamma + beta over each row; eps 1e-5; the variance is biased. */
struct kernel_layernorm {
  const void *x, *gamma, *beta; /* (N, C), (C), (C) */
  void *y;                      /* (N, C) */
  kernel_real *mean, *rstd;     /* (N) */
  uint64_t rows, width;
  mr_dtype dtype;
};
struct kernel_layernorm_backward {
  const void *dy, *x, *gamma;
  const kernel_real *mean, *rstd;
  void *dx;                    /* (N, C) */
  kernel_real *dgamma, *dbeta; /* (C) */
  uint64_t rows, width;
  mr_dtype dtype;
  bool accumulate_dx, accumulate; /* accumulate: of dgamma and dbeta */
};

/*
 * y[n,m] = x[n,:] . w[:,m] + bias[m] (+ residual[n,m]); where `activated` is not NULL also
 * activated = gelu_tanh(y). Weights are (in, out), as Hugging Face's Conv1D keeps them.
 */
struct kernel_linear {
  const void *x, *w, *bias; /* (N, K), (K, M), (M) or NULL */
  const void *residual;     /* (N, M) or NULL; may be y itself */
  void *y;                  /* (N, M) */
  void *activated;          /* (N, M) or NULL */
  uint64_t rows, in, out;
  mr_dtype dtype;
};
/*
 * dx (+)= dy . w^T, and where `preactivation` is not NULL dx is then multiplied by
 * gelu_tanh'(preactivation), which fuses the backward pass of the GELU that made x; dw (+)= x^T .
 * dy; dbias (+)= column sums of dy.
 */
struct kernel_linear_backward {
  const void *dy, *x, *w;    /* (N, M), (N, K), (K, M) */
  const void *preactivation; /* (N, K) or NULL; excludes accumulate_dx */
  void *dx;                  /* (N, K) */
  kernel_real *dw, *dbias;   /* (K, M), (M) or NULL */
  uint64_t rows, in, out;
  mr_dtype dtype;
  bool accumulate_dx, accumulate; /* accumulate: of dw and dbias */
};

/* activated = gelu_tanh(x): the op that recompute clones. */
struct kernel_gelu {
  const void *x;
  void *activated;
  uint64_t count;
  mr_dtype dtype;
};

/*
 * Causal self-attention over qkv (N, 3C) = q | k | v, head h in columns h*C/H...; scale
 * 1/sqrt(C/H). The T x T matrix is never stored: blocks of rows, with lse[b,h,t] = log of the sum
 * of exponentials of the scaled scores. The gradient makes the weights again as exp(score - lse), 1
 * at most: each is off by as much, relative, as lse was rounded by, so that of scores of 400 it has
 * 4 digits, and of such from 1e7 on it is the largest alone that counts, if any.
 */
struct kernel_attention {
  const void *qkv;  /* (N, 3C) */
  void *out;        /* (N, C) */
  kernel_real *lse; /* (batch, H, T) */
  uint64_t batch, seq, width, heads;
  mr_dtype dtype;
};
struct kernel_attention_backward {
  const void *dout, *qkv, *out;
  const kernel_real *lse;
  void *dqkv; /* (N, 3C) */
  uint64_t batch, seq, width, heads;
  mr_dtype dtype;
};

/*
 * The language-model head with its loss, for the slices of the vocabulary one by one: first the
 * logits of all, then the loss, then the gradients of all. Rows of logits are `stride` apart
 * (kernel_head_stride), so that they begin at cache lines and spread over the sets of caches.
 *
 * logits = x . wte^T; of each row, sums = the largest logit, the sum of exp(logit - largest), and
 * the target's logit, or 0 where the target lies in another slice.
 */
struct kernel_head_logits {
  const void *x, *wte;    /* (N, C), (V, C) */
  const int32_t *targets; /* (N) */
  void *logits;           /* (N, stride) */
  kernel_real *sums;      /* (N, 3) */
  uint64_t rows, width, first_word, vocab, stride;
  mr_dtype dtype;
};
#define KERNEL_HEAD_SUMS 3u

/*
 * loss (+)= scale * sum over rows of (logsumexp(logits) - logits[target]), kept in double; softmax
 * = the largest logit of a row, and scale over the sum of exp(logit - largest).
 */
struct kernel_head_loss {
  const kernel_real *const *sums; /* of each slice, (N, 3) */
  double *loss;                   /* (1) */
  kernel_real *softmax;           /* (N, 2) */
  uint64_t rows, slices;
  double scale;
  bool accumulate; /* of loss */
};
#define KERNEL_HEAD_SOFTMAX 2u

/* logits become their gradients scale * (softmax - onehot), in place; dx (+)= logits . wte; dwte
 * (+)= logits^T . x. */
struct kernel_head_gradient {
  const void *x, *wte;        /* (N, C), (V, C) */
  const int32_t *targets;     /* (N) */
  const kernel_real *softmax; /* (N, 2) */
  void *logits;               /* (N, stride) */
  void *dx;                   /* (N, C) */
  kernel_real *dwte;          /* (V, C) */
  uint64_t rows, width, first_word, vocab, stride;
  mr_dtype dtype;
  double scale;
  bool accumulate_dx, accumulate; /* accumulate: of dwte */
};

/* *out = sum of g^2 in double, in a fixed order. */
struct kernel_sum_squares {
  const kernel_real *g;
  double *out;
  uint64_t count;
};

/*
 * AdamW, decoupled weight decay (Loshchilov and Hutter 2019; as torch.optim.AdamW), one fused pass
 * over a range: g' = g * *grad_scale; m = b1 m + (1-b1) g'; v = b2 v + (1-b2) g'^2; p -= lr * (m /
 * correction1) / (sqrt(v / correction2) + eps) + lr * weight_decay * p (of the old p).
 */
struct kernel_adamw {
  kernel_real *p;       /* range of the parameter, in place */
  const kernel_real *g; /* the same range of the gradient */
  kernel_real *m, *v;   /* in place */
  uint16_t *working;    /* range of the copy in bf16 that layers read, set to p; or NULL */
  uint64_t count;
  const kernel_real *grad_scale; /* (1), or NULL for 1 */
  float lr, beta1, beta2, eps, weight_decay;
  float correction1, correction2; /* 1 - beta^step */
};

/*
 * The ops as a table. Every function runs on `team` and returns MR_OK or what it logged. scratch is
 * 64-byte aligned and at least as large as the matching *_scratch_bytes says for the team's thread
 * count.
 */
struct kernel_table {
  const char *name; /* "reference" or "fast" */
  mr_status (*embed)(struct mr_team *, const struct kernel_embed *);
  mr_status (*embed_backward)(struct mr_team *, const struct kernel_embed_backward *,
                              void *scratch);
  mr_status (*layernorm)(struct mr_team *, const struct kernel_layernorm *);
  mr_status (*layernorm_backward)(struct mr_team *, const struct kernel_layernorm_backward *,
                                  void *scratch);
  mr_status (*linear)(struct mr_team *, const struct kernel_linear *, void *scratch);
  mr_status (*linear_backward)(struct mr_team *, const struct kernel_linear_backward *,
                               void *scratch);
  mr_status (*gelu)(struct mr_team *, const struct kernel_gelu *);
  mr_status (*attention)(struct mr_team *, const struct kernel_attention *, void *scratch);
  mr_status (*attention_backward)(struct mr_team *, const struct kernel_attention_backward *,
                                  void *scratch);
  mr_status (*head_logits)(struct mr_team *, const struct kernel_head_logits *, void *scratch);
  mr_status (*head_loss)(struct mr_team *, const struct kernel_head_loss *, void *scratch);
  mr_status (*head_gradient)(struct mr_team *, const struct kernel_head_gradient *, void *scratch);
  mr_status (*sum_squares)(struct mr_team *, const struct kernel_sum_squares *, void *scratch);
  mr_status (*adamw)(struct mr_team *, const struct kernel_adamw *);
};

const struct kernel_table *kernel_reference(void);
const struct kernel_table *kernel_fast(void);

/* Scratch for both tables, by shape, type of the elements and thread count. */
uint64_t kernel_embed_backward_scratch_bytes(uint64_t rows, uint64_t width, uint32_t threads);
uint64_t kernel_layernorm_backward_scratch_bytes(uint64_t rows, uint64_t width, uint32_t threads);
uint64_t kernel_linear_scratch_bytes(uint64_t rows, uint64_t out, mr_dtype dtype, uint32_t threads);
uint64_t kernel_linear_backward_scratch_bytes(uint64_t rows, uint64_t in, mr_dtype dtype,
                                              uint32_t threads);
uint64_t kernel_attention_scratch_bytes(uint64_t seq, uint64_t head_width, mr_dtype dtype,
                                        uint32_t threads);
uint64_t kernel_attention_backward_scratch_bytes(uint64_t seq, uint64_t head_width, mr_dtype dtype,
                                                 uint32_t threads);
uint64_t kernel_head_logits_scratch_bytes(uint64_t rows, uint64_t vocab, mr_dtype dtype,
                                          uint32_t threads);
uint64_t kernel_head_loss_scratch_bytes(uint64_t rows);
uint64_t kernel_head_gradient_scratch_bytes(uint64_t rows, uint64_t width, mr_dtype dtype,
                                            uint32_t threads);
uint64_t kernel_sum_squares_scratch_bytes(uint64_t count, uint32_t threads);

/* Elements from row to row of a slice's logits. */
uint64_t kernel_head_stride(uint64_t vocab);

/*
 * Finds the GEMM library before the first fast kernel runs and fixes it for the process: `choice`
 * is "auto", "dnnl" or "openblas". "auto" takes the first that loads in the order that the
 * committed benchmark justifies, so that results do not depend on timing. OpenBLAS is told the
 * processor's true core type where it would guess wrong, and takes what products of so many threads
 * at a time need. MR_UNSUPPORTED names what was tried and the Debian package that provides it;
 * MR_NO_MEMORY: OpenBLAS has no addresses for that.
 */
MR_CHECK_RESULT mr_status kernel_gemm_open(const char *choice, uint32_t threads);

/*
 * Whether the library that kernel_gemm_open took multiplies matrices of `dtype` on this processor.
 * MR_UNSUPPORTED, in one line, where it cannot; a warning where it can, but not fast.
 */
MR_CHECK_RESULT mr_status kernel_gemm_check(mr_dtype dtype);

/* "dnnl 2.6.3", "openblas 0.3.21 SkylakeX"; NULL before kernel_gemm_open. */
const char *kernel_gemm_name(void);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vector leaves, written once with the compiler's vector types of sixteen floats and compiled
 * for each instruction set and type of elements, with VECTOR_TABLE naming the table and VECTOR_BF16
 * saying whether elements are bf16 (see CMakeLists.txt). A loop takes full vectors and a
 * zero-padded tail through the same statements, so an element's bits do not depend on its place.
 */
#include "train/kernels/vector.h"

#include <math.h>
#include <string.h>

#include "train/kernels/adamw.h"
#include "train/kernels/lanes.h"

typedef double double_piece __attribute__((vector_size(sizeof(piece) < 16 ? 16 : sizeof(piece))));
#define DOUBLE_LANES  (sizeof(double_piece) / sizeof(double))
#define DOUBLE_PIECES (LANES / DOUBLE_LANES)
typedef float half_piece
    __attribute__((vector_size(sizeof(double_piece) / 2), aligned(4), may_alias));
typedef uint16_t bf16_vec __attribute__((vector_size(32)));
typedef uint16_t bf16_memory __attribute__((vector_size(32), aligned(2), may_alias));

extern const struct vector_table VECTOR_TABLE;

/*
 * Runs `statement` for each vector of `count` elements: the one from element i on, which has
 * `lanes`. It is compiled twice, for full vectors and for a tail: gcc 12 moves all vectors that are
 * wider than a register through memory where a loop can reach the functions for tails. For the same
 * reason no vector lives from one round to the next, but in a struct total.
 */
#define EACH_VECTOR(count, statement)                                                              \
  do {                                                                                             \
    size_t i = 0;                                                                                  \
    for (; i + LANES <= (count); i += LANES) {                                                     \
      const size_t lanes = LANES;                                                                  \
      statement;                                                                                   \
    }                                                                                              \
    if ((count) % LANES > 0) {                                                                     \
      const size_t lanes = (count) % LANES;                                                        \
      statement;                                                                                   \
    }                                                                                              \
  } while (0)

static __attribute__((noinline)) vec load_tail(const float *p, size_t lanes) {
  float padded[LANES] = {0};
  memcpy(padded, p, lanes * sizeof(float));
  return load_full(padded);
}

static __attribute__((noinline)) void store_tail(float *p, vec x, size_t lanes) {
  float padded[LANES];
  store_full(padded, x);
  memcpy(p, padded, lanes * sizeof(float));
}

LEAF vec load(const float *p, size_t lanes) {
  return lanes == LANES ? load_full(p) : load_tail(p, lanes);
}

LEAF void store(float *p, vec x, size_t lanes) {
  if (lanes == LANES) {
    store_full(p, x);
  } else {
    store_tail(p, x, lanes);
  }
}

/* As bf16_round; in whole numbers, so that every instruction set gives the same bits. */
LEAF bf16_vec bf16_of(vec x) {
  uvec bits = (uvec)x, rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  uvec quiet = bits >> 16 | 0x40u;
  ivec no_number = ~below((ivec)(bits & 0x7fffffffu), 0x7f800001);
  return __builtin_convertvector((uvec)pick(no_number, (vec)quiet, (vec)rounded), bf16_vec);
}

static __attribute__((noinline)) void store_bf16_tail(uint16_t *p, bf16_vec x, size_t lanes) {
  uint16_t padded[LANES];
  *(bf16_memory *)padded = x;
  memcpy(p, padded, lanes * sizeof *p);
}

LEAF void store_bf16(uint16_t *p, vec x, size_t lanes) {
  if (lanes == LANES) {
    *(bf16_memory *)p = bf16_of(x);
  } else {
    store_bf16_tail(p, bf16_of(x), lanes);
  }
}

#if VECTOR_BF16
typedef uint16_t element;

static __attribute__((noinline)) bf16_vec load_bf16_tail(const uint16_t *p, size_t lanes) {
  uint16_t padded[LANES] = {0};
  memcpy(padded, p, lanes * sizeof *p);
  return *(const bf16_memory *)padded;
}

LEAF vec get(const element *p, size_t lanes) {
  bf16_vec x = lanes == LANES ? (bf16_vec) * (const bf16_memory *)p : load_bf16_tail(p, lanes);
  return (vec)(__builtin_convertvector(x, uvec) << 16);
}

LEAF void put(element *p, vec x, size_t lanes) {
  store_bf16(p, x, lanes);
}
#else
typedef float element;

LEAF vec get(const element *p, size_t lanes) {
  return load(p, lanes);
}

LEAF void put(element *p, vec x, size_t lanes) {
  store(p, x, lanes);
}
#endif

LEAF float sum_lanes(const struct total *total) {
  float lane[LANES];
  memcpy(lane, total, sizeof lane);
#pragma GCC unroll 4
  for (unsigned half = LANES / 2; half > 0; half /= 2) {
    for (unsigned i = 0; i < half; i++) {
      lane[i] += lane[i + half];
    }
  }
  return lane[0];
}

LEAF float largest_lane(const struct total *total) {
  float lane[LANES];
  memcpy(lane, total, sizeof lane);
  float largest = lane[0];
  for (unsigned i = 1; i < LANES; i++) {
    largest = lane[i] > largest ? lane[i] : largest;
  }
  return largest;
}

/*
 * exp by Cephes' expf (S. Moshier, netlib cephes/single/expf.c): x = n ln 2 + r, a polynomial in r,
 * then 2^n added to the exponent's bits; within 2 ulp from -86.6 to 88. Below it stays at
 * exp(-86.6), 2.5e-38, which no sum of ours can see; none of ours goes above. Of what is no number,
 * or infinite, it is no number, so that no sum hides one.
 */
LEAF vec vec_exp(vec x) {
  const float round_magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to the nearest integer */
  x = larger(splat(-86.6f), x);          /* x where it is no number */
  vec shifted = x * 1.44269504088896341f + round_magic; /* its low bits hold n */
  vec n = shifted - round_magic;
  vec r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  vec y = r * 1.9875691500e-4f + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * (r * r) + (r + 1.0f);
  return (vec)((ivec)y + ((ivec)shifted << 23)) + (x - x);
}

static void add(void *sums, const void *left, const void *right, size_t count) {
  element *y = sums;
  const element *a = left, *b = right;
  EACH_VECTOR(count, put(y + i, get(a + i, lanes) + get(b + i, lanes), lanes));
}

static void accumulate(float *y, const void *addends, size_t count) {
  const element *x = addends;
  EACH_VECTOR(count, store(y + i, load(y + i, lanes) + get(x + i, lanes), lanes));
}

static void widen(float *y, const void *elements, size_t count) {
  const element *x = elements;
  EACH_VECTOR(count, store(y + i, get(x + i, lanes), lanes));
}

static void round_row(void *elements, const float *x, size_t count) {
  element *y = elements;
  EACH_VECTOR(count, put(y + i, load(x + i, lanes), lanes));
}

static void scale(float *y, float factor, size_t count) {
  EACH_VECTOR(count, store(y + i, load(y + i, lanes) * factor, lanes));
}

static float dot(const void *left, const void *right, size_t count) {
  const element *a = left, *b = right;
  struct total sum = {0};
  EACH_VECTOR(count, total_add(&sum, get(a + i, lanes) * get(b + i, lanes)));
  return sum_lanes(&sum);
}

LEAF void add_four_rows(float *sums, const element *row, size_t stride, size_t lanes) {
  vec pair0 = get(row, lanes) + get(row + stride, lanes);
  vec pair1 = get(row + 2 * stride, lanes) + get(row + 3 * stride, lanes);
  store(sums, load(sums, lanes) + (pair0 + pair1), lanes);
}

static void column_sums(float *sums, const void *matrix, size_t stride, size_t rows, size_t columns,
                        bool add_to) {
  const element *x = matrix;
  if (!add_to) memset(sums, 0, columns * sizeof(float));
  size_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    EACH_VECTOR(columns, add_four_rows(sums + i, x + r * stride + i, stride, lanes));
  }
  for (; r < rows; r++) {
    accumulate(sums, x + r * stride, columns);
  }
}

/* Doubles keep the squares of gradients below 1e-19, which floats would flush to zero. */
static double sum_squares(const float *x, size_t count) {
  double_piece part[DOUBLE_PIECES] = {{0}};
  size_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    for (size_t j = 0; j < DOUBLE_PIECES; j++) {
      const float *from = x + i + j * DOUBLE_LANES;
      double_piece a = __builtin_convertvector(*(const half_piece *)from, double_piece);
      part[j] += a * a;
    }
  }
  double lane[LANES], sum = 0;
  memcpy(lane, part, sizeof lane);
  for (unsigned j = 0; j < LANES / 2; j++) {
    sum += lane[j] + lane[j + LANES / 2];
  }
  for (; i < count; i++) {
    sum += (double)x[i] * (double)x[i];
  }
  return sum;
}

LEAF vec deviation(vec x, float mean, size_t lanes) {
  return (vec)((ivec)(x - mean) & first_lanes(lanes));
}

LEAF void total_add_square(struct total *total, vec x) {
  total_add(total, x * x);
}

static void layernorm(const struct vector_layernorm *row, size_t width) {
  const element *x = row->x, *gamma = row->gamma, *beta = row->beta;
  element *y = row->y;
  struct total sum = {0}, squares = {0};
  EACH_VECTOR(width, total_add(&sum, get(x + i, lanes)));
  const float mean = sum_lanes(&sum) / (float)width;
  EACH_VECTOR(width, total_add_square(&squares, deviation(get(x + i, lanes), mean, lanes)));
  const float rstd = 1.0f / sqrtf(sum_lanes(&squares) / (float)width + 1e-5f);
  EACH_VECTOR(width,
              put(y + i,
                  (get(x + i, lanes) - mean) * rstd * get(gamma + i, lanes) + get(beta + i, lanes),
                  lanes));
  *row->mean = mean;
  *row->rstd = rstd;
}

struct layernorm_sums {
  struct total scaled, normal;
};

/* Numbers of a row, apart from it, since what a loop stores might be those. */
struct layernorm_row {
  float mean, rstd, average, average_normal;
};

LEAF void layernorm_add(const struct vector_layernorm_backward *row, const struct layernorm_row *r,
                        struct layernorm_sums *sums, size_t i, size_t lanes) {
  const element *x = row->x, *gamma = row->gamma, *gradient = row->dy;
  vec dy = get(gradient + i, lanes), normal = (get(x + i, lanes) - r->mean) * r->rstd;
  vec scaled = dy * get(gamma + i, lanes);
  total_add(&sums->scaled, scaled);
  total_add(&sums->normal, scaled * normal); /* padded lanes: dy is 0 */
  store(row->dgamma + i, load(row->dgamma + i, lanes) + dy * normal, lanes);
  store(row->dbeta + i, load(row->dbeta + i, lanes) + dy, lanes);
}

LEAF vec layernorm_dx(const struct vector_layernorm_backward *row, const struct layernorm_row *r,
                      size_t i, size_t lanes) {
  const element *x = row->x, *gamma = row->gamma, *gradient = row->dy;
  vec normal = (get(x + i, lanes) - r->mean) * r->rstd;
  /* Rounded as a single term's average is: in a narrow row the two may be all but the same. */
  vec scaled = unfused(get(gradient + i, lanes) * get(gamma + i, lanes));
  return unfused((scaled - r->average - normal * r->average_normal) * r->rstd);
}

static void layernorm_backward(const struct vector_layernorm_backward *row, size_t width) {
  element *dx = row->dx;
  struct layernorm_row r = {row->mean, row->rstd, 0, 0};
  struct layernorm_sums sums = {0};
  EACH_VECTOR(width, layernorm_add(row, &r, &sums, i, lanes));
  r.average = sum_lanes(&sums.scaled) / (float)width;
  r.average_normal = sum_lanes(&sums.normal) / (float)width;
  if (row->accumulate_dx) {
    EACH_VECTOR(width, put(dx + i, layernorm_dx(row, &r, i, lanes) + get(dx + i, lanes), lanes));
  } else {
    EACH_VECTOR(width, put(dx + i, layernorm_dx(row, &r, i, lanes), lanes));
  }
}

/* gelu_tanh(x) = x / 2 (1 + tanh u) = x sigmoid(2u), 2u = x (TWO_U_1 + TWO_U_3 x^2), where
 * u = sqrt(2 / pi) (x + 0.044715 x^3). */
#define TWO_U_1 1.5957691216057308f
#define TWO_U_3 0.07135481282052304f

/* Beyond it sigmoid(2u) is 0 or 1 to fp32, and exp(2u) still is a normal number. */
#define GELU_END 9.6f

/* exp(-2u), with x kept in the range in which that is finite, unless it is no number. */
LEAF vec gelu_exponential(vec inside) {
  return vec_exp(-inside * (TWO_U_1 + TWO_U_3 * (inside * inside)));
}

LEAF vec gelu_inside(vec x) {
  return smaller(splat(GELU_END), larger(splat(-GELU_END), x));
}

LEAF vec gelu_of(vec x) {
  return x / (1.0f + gelu_exponential(gelu_inside(x)));
}

static void gelu(void *activated, const void *preactivation, size_t count) {
  element *y = activated;
  const element *x = preactivation;
  EACH_VECTOR(count, put(y + i, gelu_of(get(x + i, lanes)), lanes));
}

LEAF vec gelu_derivative(vec x) {
  vec inside = gelu_inside(x);
  vec e = gelu_exponential(inside);
  vec sigmoid = 1.0f / (1.0f + e);
  vec slope = TWO_U_1 + 3.0f * TWO_U_3 * (inside * inside);
  return sigmoid + inside * slope * (sigmoid * (e * sigmoid));
}

static void gelu_backward(float *dx, const void *preactivation, size_t count) {
  const element *x = preactivation;
  EACH_VECTOR(count,
              store(dx + i, load(dx + i, lanes) * gelu_derivative(get(x + i, lanes)), lanes));
}

LEAF void total_larger(struct total *top, vec x, size_t lanes) {
  vec now = total_now(top);
  total_set(top, larger(now, pick(first_lanes(lanes), x, now)));
}

LEAF vec total_exp(struct total *sum, vec x, size_t lanes) {
  vec p = (vec)((ivec)vec_exp(x) & first_lanes(lanes));
  total_add(sum, p);
  return p;
}

static float attention_row(float *scores, const struct vector_attention_row *row, float *lse_out) {
  const size_t valid = row->valid;
  const float by = row->scale;
  struct total top, sum = {0};
  total_set(&top, splat(scores[0]));
  EACH_VECTOR(valid, total_larger(&top, load(scores + i, lanes), lanes));
  const float largest = largest_lane(&top);
  EACH_VECTOR(
      valid,
      store(scores + i, total_exp(&sum, (load(scores + i, lanes) - largest) * by, lanes), lanes));
  memset(scores + valid, 0, (row->count - valid) * sizeof(float));
  float total = sum_lanes(&sum);
  *lse_out = largest * by + logf(total);
  return total;
}

/* As struct layernorm_row. */
struct attention_numbers {
  float scale, lse, delta;
};

LEAF void attention_gradient(const struct attention_numbers *a, float *score, float *dp,
                             size_t lanes) {
  /* Above 0 by no more than lse was rounded by, which for large scores is far. */
  vec p = vec_exp(smaller(splat(0), load(score, lanes) * a->scale - a->lse));
  store(score, p, lanes);
  store(dp, p * (load(dp, lanes) - a->delta) * a->scale, lanes);
}

static void attention_backward_row(float *scores, float *dp, const struct vector_attention_row *row,
                                   float lse, float delta) {
  const size_t valid = row->valid;
  const struct attention_numbers numbers = {row->scale, lse, delta};
  EACH_VECTOR(valid, attention_gradient(&numbers, scores + i, dp + i, lanes));
  memset(scores + valid, 0, (row->count - valid) * sizeof(float));
  memset(dp + valid, 0, (row->count - valid) * sizeof(float));
}

static float sum_of_exponentials(const void *row, size_t count, float *largest_out) {
  const element *x = row;
  struct total top, sum = {0};
  total_set(&top, splat(get(x, 1)[0]));
  EACH_VECTOR(count, total_larger(&top, get(x + i, lanes), lanes));
  const float largest = largest_lane(&top);
  EACH_VECTOR(count, total_exp(&sum, get(x + i, lanes) - largest, lanes));
  *largest_out = largest;
  return sum_lanes(&sum);
}

static void softmax_scaled(void *row, size_t count, float lse, float factor) {
  element *x = row;
  EACH_VECTOR(count, put(x + i, vec_exp(get(x + i, lanes) - lse) * factor, lanes));
}

/* Six lines ahead: 2 to 3 % over none, while 256 floats already lose a tenth (bench/adamw). */
#define ADAMW_PREFETCH_FLOATS 96

/* 0 where x is smaller than `least`. */
LEAF vec settle(vec x, float least) {
  return (vec)((ivec)x & ~below((ivec)x & INT32_MAX, bits_of(least)));
}

/* Operation by operation as the device's (train/cuda/update.cu), since a plan may choose between
 * the two: what is added to a product is added by fused(), whatever else a compiler would do. */
LEAF void adamw_lanes(const struct vector_adamw *a, size_t i, size_t lanes) {
  if (i + ADAMW_PREFETCH_FLOATS < a->count) {
    __builtin_prefetch(a->g + i + ADAMW_PREFETCH_FLOATS, 0);
    __builtin_prefetch(a->m + i + ADAMW_PREFETCH_FLOATS, 1);
    __builtin_prefetch(a->v + i + ADAMW_PREFETCH_FLOATS, 1);
    __builtin_prefetch(a->p + i + ADAMW_PREFETCH_FLOATS, 1);
  }
  const vec step_size = splat(-a->step_size), decay = splat(-a->decay);
  const vec left1 = splat(1.0f - a->beta1), left2 = splat(1.0f - a->beta2);
  vec p = settle(load(a->p + i, lanes), ADAMW_LEAST);
  vec m = settle(load(a->m + i, lanes), ADAMW_LEAST);
  vec v = settle(load(a->v + i, lanes), ADAMW_LEAST_SQUARE);
  vec g = settle(load(a->g + i, lanes) * a->grad_scale, ADAMW_LEAST);
  m = settle(fused(left1, g, m * a->beta1), ADAMW_LEAST);
  v = settle(fused(left2, g * g, v * a->beta2), ADAMW_LEAST_SQUARE);
  vec root = v * a->inverse2;
  for (unsigned lane = 0; lane < LANES; lane++) {
    root[lane] = sqrtf(root[lane]);
  }
  vec change = m * a->inverse1 / (root + a->eps);
  p = settle(fused(step_size, change, fused(decay, p, p)), ADAMW_LEAST);
  store(a->m + i, m, lanes);
  store(a->v + i, v, lanes);
  store(a->p + i, p, lanes);
  if (a->working != NULL) store_bf16(a->working + i, p, lanes);
}

static void adamw(const struct vector_adamw *a) {
  EACH_VECTOR(a->count, adamw_lanes(a, i, lanes));
}

const struct vector_table VECTOR_TABLE = {
    .name = VECTOR_NAME,
    .add = add,
    .accumulate = accumulate,
    .widen = widen,
    .round = round_row,
    .scale = scale,
    .dot = dot,
    .column_sums = column_sums,
    .sum_squares = sum_squares,
    .layernorm = layernorm,
    .layernorm_backward = layernorm_backward,
    .gelu = gelu,
    .gelu_backward = gelu_backward,
    .attention_row = attention_row,
    .attention_backward_row = attention_backward_row,
    .sum_of_exponentials = sum_of_exponentials,
    .softmax_scaled = softmax_scaled,
    .adamw = adamw,
};

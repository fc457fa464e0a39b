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

typedef float vec_memory __attribute__((vector_size(64), aligned(4), may_alias));
typedef float half_vec __attribute__((vector_size(32), aligned(4), may_alias));
typedef double dvec __attribute__((vector_size(64)));
typedef uint16_t bf16_vec __attribute__((vector_size(32)));
typedef uint16_t bf16_memory __attribute__((vector_size(32), aligned(2), may_alias));

extern const struct vector_table VECTOR_TABLE;

LEAF size_t part(size_t count, size_t i) {
  return count - i < LANES ? count - i : LANES;
}

/* Tails stay out of line, so that the loops keep full vectors in registers. */
static __attribute__((noinline)) vec load_tail(const float *p, size_t lanes) {
  float padded[LANES] = {0};
  memcpy(padded, p, lanes * sizeof(float));
  return *(const vec_memory *)padded;
}

static __attribute__((noinline)) void store_tail(float *p, vec x, size_t lanes) {
  float padded[LANES];
  *(vec_memory *)padded = x;
  memcpy(p, padded, lanes * sizeof(float));
}

LEAF vec load(const float *p, size_t lanes) {
  if (lanes == LANES) return *(const vec_memory *)p;
  return load_tail(p, lanes);
}

LEAF void store(float *p, vec x, size_t lanes) {
  if (lanes == LANES) {
    *(vec_memory *)p = x;
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

LEAF float sum_lanes(vec x) {
  float lane[LANES];
  *(vec_memory *)lane = x;
  for (unsigned half = LANES / 2; half > 0; half /= 2) {
    for (unsigned i = 0; i < half; i++) {
      lane[i] += lane[i + half];
    }
  }
  return lane[0];
}

LEAF float largest_lane(vec x) {
  float lane[LANES];
  *(vec_memory *)lane = x;
  float largest = lane[0];
  for (unsigned i = 1; i < LANES; i++) {
    largest = lane[i] > largest ? lane[i] : largest;
  }
  return largest;
}

/*
 * exp by Cephes' expf (S. Moshier, netlib cephes/single/expf.c): x = n ln 2 + r, a polynomial in r,
 * then 2^n added to the exponent's bits; within 2 ulp from -86.6 to 88. Below it stays at
 * exp(-86.6), 2.5e-38, which no sum of ours can see; none of ours goes above.
 */
LEAF vec vec_exp(vec x) {
  const float round_magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to the nearest integer */
  x = larger(x, splat(-86.6f));
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
  return (vec)((ivec)y + ((ivec)shifted << 23));
}

static void add(void *sums, const void *left, const void *right, size_t count) {
  element *y = sums;
  const element *a = left, *b = right;
  for (size_t i = 0; i < count; i += LANES) {
    size_t lanes = part(count, i);
    put(y + i, get(a + i, lanes) + get(b + i, lanes), lanes);
  }
}

static void accumulate(float *y, const void *addends, size_t count) {
  const element *x = addends;
  for (size_t i = 0; i < count; i += LANES) {
    size_t lanes = part(count, i);
    store(y + i, load(y + i, lanes) + get(x + i, lanes), lanes);
  }
}

static void widen(float *y, const void *elements, size_t count) {
  const element *x = elements;
  for (size_t i = 0; i < count; i += LANES) {
    size_t lanes = part(count, i);
    store(y + i, get(x + i, lanes), lanes);
  }
}

static void round_row(void *elements, const float *x, size_t count) {
  element *y = elements;
  for (size_t i = 0; i < count; i += LANES) {
    size_t lanes = part(count, i);
    put(y + i, load(x + i, lanes), lanes);
  }
}

static void scale(float *y, float factor, size_t count) {
  for (size_t i = 0; i < count; i += LANES) {
    size_t lanes = part(count, i);
    store(y + i, load(y + i, lanes) * factor, lanes);
  }
}

static float dot(const void *left, const void *right, size_t count) {
  const element *a = left, *b = right;
  vec sum = {0};
  for (size_t i = 0; i < count; i += LANES) {
    size_t lanes = part(count, i);
    sum += get(a + i, lanes) * get(b + i, lanes);
  }
  return sum_lanes(sum);
}

static void column_sums(float *sums, const void *matrix, size_t stride, size_t rows, size_t columns,
                        bool add_to) {
  const element *x = matrix;
  if (!add_to) memset(sums, 0, columns * sizeof(float));
  size_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const element *row = x + r * stride;
    for (size_t i = 0; i < columns; i += LANES) {
      size_t lanes = part(columns, i);
      vec pair0 = get(row + i, lanes) + get(row + stride + i, lanes);
      vec pair1 = get(row + 2 * stride + i, lanes) + get(row + 3 * stride + i, lanes);
      store(sums + i, load(sums + i, lanes) + (pair0 + pair1), lanes);
    }
  }
  for (; r < rows; r++) {
    accumulate(sums, x + r * stride, columns);
  }
}

/* Doubles keep the squares of gradients below 1e-19, which floats would flush to zero. */
static double sum_squares(const float *x, size_t count) {
  dvec low = {0}, high = {0};
  size_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    dvec a = __builtin_convertvector(*(const half_vec *)(x + i), dvec);
    dvec b = __builtin_convertvector(*(const half_vec *)(x + i + LANES / 2), dvec);
    low += a * a;
    high += b * b;
  }
  double lane[LANES / 2], sum = 0;
  low += high;
  memcpy(lane, &low, sizeof lane);
  for (unsigned j = 0; j < LANES / 2; j++) {
    sum += lane[j];
  }
  for (; i < count; i++) {
    sum += (double)x[i] * (double)x[i];
  }
  return sum;
}

static void layernorm(const struct vector_layernorm *row, size_t width) {
  const element *x = row->x, *gamma = row->gamma, *beta = row->beta;
  element *y = row->y;
  vec sum = {0}, squares = {0};
  for (size_t i = 0; i < width; i += LANES) {
    sum += get(x + i, part(width, i));
  }
  float mean = sum_lanes(sum) / (float)width;
  for (size_t i = 0; i < width; i += LANES) {
    size_t lanes = part(width, i);
    vec d = get(x + i, lanes) - mean;
    d = (vec)((ivec)d & first_lanes(lanes));
    squares += d * d;
  }
  float rstd = 1.0f / sqrtf(sum_lanes(squares) / (float)width + 1e-5f);
  for (size_t i = 0; i < width; i += LANES) {
    size_t lanes = part(width, i);
    vec normal = (get(x + i, lanes) - mean) * rstd;
    put(y + i, normal * get(gamma + i, lanes) + get(beta + i, lanes), lanes);
  }
  *row->mean = mean;
  *row->rstd = rstd;
}

static void layernorm_backward(const struct vector_layernorm_backward *row, size_t width) {
  const element *x = row->x, *gamma = row->gamma, *gradient = row->dy;
  element *result = row->dx;
  vec sum = {0}, sum_normal = {0};
  float mean = row->mean, rstd = row->rstd;
  for (size_t i = 0; i < width; i += LANES) {
    size_t lanes = part(width, i);
    vec dy = get(gradient + i, lanes), normal = (get(x + i, lanes) - mean) * rstd;
    vec scaled = dy * get(gamma + i, lanes);
    sum += scaled;
    sum_normal += scaled * normal; /* padded lanes: dy is 0 */
    store(row->dgamma + i, load(row->dgamma + i, lanes) + dy * normal, lanes);
    store(row->dbeta + i, load(row->dbeta + i, lanes) + dy, lanes);
  }
  float average = sum_lanes(sum) / (float)width,
        average_normal = sum_lanes(sum_normal) / (float)width;
  for (size_t i = 0; i < width; i += LANES) {
    size_t lanes = part(width, i);
    vec normal = (get(x + i, lanes) - mean) * rstd;
    vec scaled = get(gradient + i, lanes) * get(gamma + i, lanes);
    vec dx = (scaled - average - normal * average_normal) * rstd;
    if (row->accumulate_dx) dx += get(result + i, lanes);
    put(result + i, dx, lanes);
  }
}

/* gelu_tanh(x) = x / 2 (1 + tanh u) = x sigmoid(2u), 2u = x (TWO_U_1 + TWO_U_3 x^2), where
 * u = sqrt(2 / pi) (x + 0.044715 x^3). */
#define TWO_U_1 1.5957691216057308f
#define TWO_U_3 0.07135481282052304f

/* Beyond it sigmoid(2u) is 0 or 1 to fp32, and exp(2u) still is a normal number. */
#define GELU_END 9.6f

/* exp(-2u), with x kept in the range in which that is finite. */
LEAF vec gelu_exponential(vec inside) {
  return vec_exp(-inside * (TWO_U_1 + TWO_U_3 * (inside * inside)));
}

LEAF vec gelu_inside(vec x) {
  return smaller(larger(x, splat(-GELU_END)), splat(GELU_END));
}

static void gelu(void *activated, const void *preactivation, size_t count) {
  element *y = activated;
  const element *x = preactivation;
  for (size_t i = 0; i < count; i += LANES) {
    size_t lanes = part(count, i);
    vec value = get(x + i, lanes);
    put(y + i, value / (1.0f + gelu_exponential(gelu_inside(value))), lanes);
  }
}

static void gelu_backward(float *dx, const void *preactivation, size_t count) {
  const element *x = preactivation;
  for (size_t i = 0; i < count; i += LANES) {
    size_t lanes = part(count, i);
    vec inside = gelu_inside(get(x + i, lanes));
    vec e = gelu_exponential(inside);
    vec sigmoid = 1.0f / (1.0f + e);
    vec slope = TWO_U_1 + 3.0f * TWO_U_3 * (inside * inside);
    vec derivative = sigmoid + inside * slope * (sigmoid * (e * sigmoid));
    store(dx + i, load(dx + i, lanes) * derivative, lanes);
  }
}

static float attention_row(float *scores, const struct vector_attention_row *row, float *lse_out) {
  vec top = splat(scores[0]);
  for (size_t i = 0; i < row->valid; i += LANES) {
    size_t lanes = part(row->valid, i);
    top = larger(top, pick(first_lanes(lanes), load(scores + i, lanes), top));
  }
  float largest = largest_lane(top);
  vec sum = {0};
  for (size_t i = 0; i < row->valid; i += LANES) {
    size_t lanes = part(row->valid, i);
    vec p = vec_exp((load(scores + i, lanes) - largest) * row->scale);
    p = (vec)((ivec)p & first_lanes(lanes));
    sum += p;
    store(scores + i, p, lanes);
  }
  memset(scores + row->valid, 0, (row->count - row->valid) * sizeof(float));
  float total = sum_lanes(sum);
  *lse_out = largest * row->scale + logf(total);
  return total;
}

static void attention_backward_row(float *scores, float *dp, const struct vector_attention_row *row,
                                   float lse, float delta) {
  for (size_t i = 0; i < row->valid; i += LANES) {
    size_t lanes = part(row->valid, i);
    vec p = vec_exp(load(scores + i, lanes) * row->scale - lse);
    store(scores + i, p, lanes);
    store(dp + i, p * (load(dp + i, lanes) - delta) * row->scale, lanes);
  }
  memset(scores + row->valid, 0, (row->count - row->valid) * sizeof(float));
  memset(dp + row->valid, 0, (row->count - row->valid) * sizeof(float));
}

static float sum_of_exponentials(const void *row, size_t count, float *largest_out) {
  const element *x = row;
  vec top = splat(get(x, part(count, 0))[0]);
  for (size_t i = 0; i < count; i += LANES) {
    size_t lanes = part(count, i);
    top = larger(top, pick(first_lanes(lanes), get(x + i, lanes), top));
  }
  float largest = largest_lane(top);
  vec sum = {0};
  for (size_t i = 0; i < count; i += LANES) {
    size_t lanes = part(count, i);
    sum += (vec)((ivec)vec_exp(get(x + i, lanes) - largest) & first_lanes(lanes));
  }
  *largest_out = largest;
  return sum_lanes(sum);
}

static void softmax_scaled(void *row, size_t count, float lse, float factor) {
  element *x = row;
  for (size_t i = 0; i < count; i += LANES) {
    size_t lanes = part(count, i);
    put(x + i, vec_exp(get(x + i, lanes) - lse) * factor, lanes);
  }
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
  size_t i = 0;
  for (; i + LANES <= a->count; i += LANES) {
    if (i + ADAMW_PREFETCH_FLOATS < a->count) {
      __builtin_prefetch(a->g + i + ADAMW_PREFETCH_FLOATS, 0);
      __builtin_prefetch(a->m + i + ADAMW_PREFETCH_FLOATS, 1);
      __builtin_prefetch(a->v + i + ADAMW_PREFETCH_FLOATS, 1);
      __builtin_prefetch(a->p + i + ADAMW_PREFETCH_FLOATS, 1);
    }
    adamw_lanes(a, i, LANES);
  }
  if (i < a->count) adamw_lanes(a, i, a->count - i);
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

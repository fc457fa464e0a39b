/* SPDX-License-Identifier: Apache-2.0 */
/* How far the outputs of a kernel may be from those of the reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "tests/unit/kernels_trial.h"

/* How far apart bf16 numbers may be that were nearly the same before they were rounded, relative to
 * them: a unit of the last place. */
#define NEIGHBOUR 0x1p-7

/*
 * Outputs of bf16 ops that are made of terms rounded on the way: y before GELU; weights, the out
 * that delta is made of, dscores; logits; gradients of logits. Kernels round such a term to
 * neighbours, or one of them does not round it, so any term may be NEIGHBOUR of itself off; a
 * single value may be off by far more of itself, as terms cancel. Roundings know nothing of each
 * other, so the root mean square of such errors is less than NEIGHBOUR of the output's, whatever
 * their number: none, as a rule, or all of them. ROOM is for small outputs, whose terms may have
 * cancelled in each value.
 */
static const struct rounded_output {
  const char *op, *output;
} rounded_outputs[] = {
    {"linear", "activated"}, {"attention", "out"},    {"attention_backward", "dqkv"},
    {"head_logits", "sums"}, {"head_gradient", "dx"}, {"head_gradient", "dwte"},
};
#define ROOM 8

static bool rounded_on_the_way(const char *op, const char *output) {
  for (size_t i = 0; i < MR_COUNT_OF(rounded_outputs); i++) {
    const struct rounded_output *known = &rounded_outputs[i];
    if (strcmp(op, known->op) == 0 && strcmp(output, known->output) == 0) return true;
  }
  return false;
}

struct errors {
  double largest; /* beyond what is forgiven */
  double mean;    /* root mean square */
};

/* Relative to the root mean square of what an output should be. */
static struct errors errors_of(const struct trial_buffer *got, const struct trial_buffer *wanted,
                               double slack) {
  uint64_t count = trial_value_count(got);
  double squares = 0, errors = 0, largest = 0, rounding = got->dtype == MR_BF16 ? NEIGHBOUR : 0;
  assert_int_equal(trial_value_count(wanted), count);
  for (uint64_t i = 0; i < count; i++) {
    double a = trial_value_at(got, i), b = trial_value_at(wanted, i);
    double error = isfinite(a) && isfinite(b) ? fabs(a - b) : INFINITY;
    squares += b * b;
    errors += error * error;
    largest = fmax(largest, error - rounding * fabs(b) - slack);
  }
  double scale = sqrt(squares / (double)count);
  return (struct errors){.largest = largest == 0 ? 0 : largest / scale,
                         .mean = errors == 0 ? 0 : sqrt(errors / (double)count) / scale};
}

double trial_check_errors(const struct trial *got, const struct trial *wanted,
                          const struct trial_op *op, uint64_t seed) {
  double worst = 0;
  uint32_t count = (uint32_t)mr_min_u64(got->buffer_count, wanted->buffer_count);
  for (uint32_t i = 0; i < count; i++) {
    const char *name = got->buffers[i].output;
    if (name == NULL) continue;
    bool rounded = got->dtype == MR_BF16 && rounded_on_the_way(op->name, name);
    const struct trial_buffer *buffer = &wanted->buffers[i];
    double slack = buffer->slack + (got->by_cublaslt ? buffer->product_slack : 0);
    struct errors errors = errors_of(&got->buffers[i], buffer, slack);
    double error = rounded ? errors.mean : errors.largest;
    double allowed = rounded ? ROOM * NEIGHBOUR : op->tolerance;
    if (!(error <= allowed)) {
      fail_msg("%s of seed %llu by %s: %s is off by %.3g, more than %.3g", op->name,
               (unsigned long long)seed, got->table->name, name, error, allowed);
    }
    worst = fmax(worst, error / allowed);
  }
  return worst;
}

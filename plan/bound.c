/* SPDX-License-Identifier: Apache-2.0 */
/* What lives across the cuts of a step, whatever the budgets. plan/windows.c makes the bound of it.
 */
#include "plan/bound.h"

#include <stdlib.h>

#include "base/base.h"
#include "plan/host.h"
#include "plan/spans.h"

static void add_up(double *differences, uint32_t count) {
  for (uint32_t k = 0; k + 1 < count; k++) {
    differences[k + 1] += differences[k];
  }
}

/* What must be somewhere at each op: what it has on the device, and what is in the midst of a span.
 */
static void measure_lives(struct mr_bound *bound, const struct mr_spans *spans,
                          const double *held_bytes) {
  uint32_t n = bound->problem->program->op_count;
  for (uint32_t i = 0; i < spans->count; i++) {
    const struct mr_span *span = &spans->items[i];
    if (span->maker != MR_NO_OP) continue;
    mr_span_spread(span, n, span->bytes, bound->live_bytes);
    if (!span->written) {
      mr_span_spread(span, n, span->bytes, bound->constant_bytes);
    }
  }
  add_up(bound->live_bytes, n);
  add_up(bound->constant_bytes, n);
  for (uint32_t k = 0; k < n; k++) {
    bound->live_bytes[k] += held_bytes[k];
  }
}

/* The op of a cut, counted on over turns of the step. */
static int64_t cut_op(const struct mr_bound *bound, int64_t cut) {
  int64_t count = bound->cut_count;
  return bound->cuts[cut % count] + cut / count * bound->problem->program->op_count;
}

/* The first cut behind op k, which is not before the first step. */
static int64_t cut_behind(const struct mr_bound *bound, int64_t k) {
  int64_t n = bound->problem->program->op_count;
  uint32_t low = 0;
  uint32_t high = bound->cut_count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (bound->cuts[middle] <= k % n) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return k / n * bound->cut_count + low;
}

/* Adds a span to every cut that it crosses. */
static void add_span(struct mr_bound *bound, const struct mr_span *span) {
  uint32_t count = bound->cut_count;
  uint32_t n = bound->problem->program->op_count;
  int64_t touched = cut_behind(bound, span->touched_op);
  int64_t written = cut_behind(bound, span->last_write + n) - 1 - count;
  for (int64_t cut = cut_behind(bound, span->after_op); cut_op(bound, cut) < span->before_op;
       cut++) {
    size_t row = (size_t)(cut % count) * (count + 1);
    if (touched - cut <= count) {
      bound->in_bytes[row + (size_t)(touched - cut)] += span->bytes;
    }
    if (span->written && cut - written <= count) {
      bound->out_bytes[row + (size_t)(cut - written)] += span->bytes;
    }
  }
}

/* Adds a span that a clone of the op which opens it could end to every cut that it crosses. */
static mr_status add_ransom(struct mr_bound *bound, const struct mr_span *span) {
  uint32_t count = bound->cut_count;
  uint32_t touched = (uint32_t)cut_behind(bound, span->before_op);
  uint32_t behind = (uint32_t)cut_behind(bound, span->last_write);
  mr_status status = MR_OK;
  for (uint32_t cut = (uint32_t)cut_behind(bound, span->after_op);
       status == MR_OK && cut < count && bound->cuts[cut] < span->before_op; cut++) {
    struct mr_ransom ransom = {.cut = cut,
                               .op = span->maker,
                               .since = cut + 1 - behind,
                               .till = touched - cut,
                               .bytes = span->bytes};
    ransom.seconds = mr_host_least_seconds(bound->problem, ransom.op);
    status = mr_ransoms_add(&bound->ransoms, &ransom);
  }
  return status;
}

/* The op of a part of the program at which most is alive: there windows see least room. */
static uint32_t fullest_op(const struct mr_bound *bound, uint32_t first, uint32_t end) {
  uint32_t fullest = first;
  for (uint32_t k = first + 1; k < end; k++) {
    fullest = bound->live_bytes[k] > bound->live_bytes[fullest] ? k : fullest;
  }
  return fullest;
}

/* A cut in each part of the program: at its first op, or its fullest. Of the two, first ops give
 * higher bounds where the processor computes, by up to 0.8 %, and lower ones beside a host apart,
 * by up to 8 %. */
static void place_cuts(struct mr_bound *bound, const double *held_bytes, bool fullest) {
  const struct mr_plan_problem *problem = bound->problem;
  uint32_t n = problem->program->op_count;
  for (uint32_t i = 0; i < bound->cut_count; i++) {
    uint32_t first = (uint32_t)((uint64_t)i * n / bound->cut_count);
    uint32_t end = (uint32_t)((i + 1ull) * n / bound->cut_count);
    bound->cuts[i] = fullest ? fullest_op(bound, first, end) : first;
  }
  double clock = 0;
  uint32_t cut = 0;
  for (uint32_t k = 0; k < n; k++) {
    if (cut < bound->cut_count && k == bound->cuts[cut]) {
      bound->clock[cut] = clock;
      bound->held_bytes[cut++] = held_bytes[k];
    }
    clock += mr_host_least_seconds(problem, k);
  }
  bound->clock[cut] = clock;
  for (cut = 0; cut < bound->cut_count; cut++) {
    bound->first_seconds[cut] = mr_host_least_seconds(problem, bound->cuts[cut]);
    bound->last_seconds[cut] = mr_host_least_seconds(problem, (bound->cuts[cut] + n - 1) % n);
  }
}

static mr_status allocate(struct mr_bound *bound) {
  uint64_t ops = bound->problem->program->op_count + 1ull;
  uint64_t pairs = bound->cut_count * (bound->cut_count + 1ull);
  bound->cuts = mr_allocate(bound->cut_count, sizeof *bound->cuts);
  bound->clock = mr_allocate(bound->cut_count + 1ull, sizeof *bound->clock);
  bound->held_bytes = mr_allocate(bound->cut_count, sizeof *bound->held_bytes);
  bound->first_seconds = mr_allocate(bound->cut_count, sizeof *bound->first_seconds);
  bound->last_seconds = mr_allocate(bound->cut_count, sizeof *bound->last_seconds);
  bound->in_bytes = mr_allocate(pairs, sizeof *bound->in_bytes);
  bound->out_bytes = mr_allocate(pairs, sizeof *bound->out_bytes);
  bound->live_bytes = mr_allocate(ops, sizeof *bound->live_bytes);
  bound->constant_bytes = mr_allocate(ops, sizeof *bound->constant_bytes);
  bool failed = bound->cuts == NULL || bound->clock == NULL || bound->held_bytes == NULL ||
                bound->first_seconds == NULL || bound->last_seconds == NULL ||
                bound->in_bytes == NULL || bound->out_bytes == NULL || bound->live_bytes == NULL ||
                bound->constant_bytes == NULL;
  return failed ? MR_NO_MEMORY : MR_OK;
}

/* Sums what the cuts see, where there are any. */
static mr_status fill(struct mr_bound *bound, const struct mr_spans *spans,
                      const double *held_bytes, bool fullest) {
  mr_status status = MR_OK;
  measure_lives(bound, spans, held_bytes);
  place_cuts(bound, held_bytes, fullest);
  for (uint32_t i = 0; bound->cut_count > 0 && i < spans->count && status == MR_OK; i++) {
    const struct mr_span *span = &spans->items[i];
    if (span->maker == MR_NO_OP) {
      add_span(bound, span);
    } else {
      status = add_ransom(bound, span);
    }
  }
  for (uint32_t cut = 0; cut < bound->cut_count; cut++) {
    size_t row = (size_t)cut * (bound->cut_count + 1);
    for (uint32_t d = 1; d <= bound->cut_count; d++) {
      bound->in_bytes[row + d] += bound->in_bytes[row + d - 1];
      bound->out_bytes[row + d] += bound->out_bytes[row + d - 1];
    }
  }
  return status == MR_OK ? mr_ransoms_index(&bound->ransoms, bound->cut_count) : status;
}

static mr_status init(struct mr_bound *bound, const struct mr_plan_problem *problem,
                      const struct mr_liveness *liveness, bool pooled, uint32_t cut_count) {
  const struct mr_graph *graph = problem->program;
  struct mr_spans spans = {0};
  *bound = (struct mr_bound){.problem = problem, .cut_count = cut_count};
  double *held_bytes = mr_allocate(graph->op_count, sizeof *held_bytes);
  mr_status status = held_bytes == NULL ? MR_NO_MEMORY : allocate(bound);
  if (status == MR_OK) {
    status = mr_spans_find(&spans, problem, liveness);
  }
  if (status == MR_OK && pooled) {
    status = mr_spans_add_hosted(&spans, problem);
  }
  if (status == MR_OK) {
    mr_spans_measure_held(graph, liveness, held_bytes);
    status = fill(bound, &spans, held_bytes, pooled && problem->host_apart);
  }
  if (status != MR_OK) {
    mr_bound_fini(bound);
  }
  mr_spans_fini(&spans);
  free(held_bytes);
  return status;
}

mr_status mr_bound_init(struct mr_bound *bound, const struct mr_plan_problem *problem,
                        const struct mr_liveness *liveness, bool pooled) {
  uint32_t op_count = problem->program->op_count;
  uint32_t cut_count = op_count < MR_BOUND_CUTS ? op_count : MR_BOUND_CUTS;
  return init(bound, problem, liveness, pooled, cut_count);
}

void mr_bound_fini(struct mr_bound *bound) {
  free(bound->cuts);
  free(bound->clock);
  free(bound->held_bytes);
  free(bound->first_seconds);
  free(bound->last_seconds);
  free(bound->in_bytes);
  free(bound->out_bytes);
  free(bound->live_bytes);
  free(bound->constant_bytes);
  mr_ransoms_fini(&bound->ransoms);
  *bound = (struct mr_bound){0};
}

double mr_bound_least_bytes(const struct mr_bound *bound) {
  return bound->live_bytes[fullest_op(bound, 0, bound->problem->program->op_count)];
}

mr_status mr_program_plan_least_bytes(const struct mr_plan_problem *problem, double *bytes_out) {
  struct mr_liveness liveness = {0};
  struct mr_bound bound;
  mr_status status = mr_liveness_init(&liveness, problem->program);
  if (status == MR_OK) {
    status = init(&bound, problem, &liveness, false, 0);
  }
  if (status == MR_OK) {
    *bytes_out = mr_bound_least_bytes(&bound);
    mr_bound_fini(&bound);
  }
  mr_liveness_fini(&liveness);
  return status;
}

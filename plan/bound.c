/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A time that no plan can beat, from two arguments; the larger counts.
 *
 * Totals. The bytes that live at an op and exceed the device are below it at that moment, so in
 * each step they come in once; those that are written in a step also go out once. At best all links
 * work all the time.
 *
 * Windows. At the start of op k the device holds that op's operands and at most the rest of its
 * budget of what else lives. Of the tensors whose next access comes before op m, what exceeds that
 * rest has to come in between the starts of k and m, however fast the ops are; of those whose last
 * write came after op m, what exceeds it has gone out between the end of m and the start of k.
 * Where a window needs more time for moves than for ops, the step is longer by the difference; a
 * window before k and one after it do not overlap, so both differences count.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/draft.h"

/* More ops than this are sampled: any choice of ops gives a bound that holds. */
#define MOST_CUTS 256u

/* Recompute can keep any tensor but a persistent one from living between its ops. The bound holds
 * for its programs too, although they have more ops: those make a window and the step longer alike.
 */
static bool counts(const struct mr_plan_problem *problem, mr_tensor_id t) {
  return !problem->bound_any_recompute || mr_role_is_persistent(problem->program->tensors[t].role);
}

/* What lives at each op were everything kept: bytes that must be on the device or below it. Inner
 * is the part of tensors that no op writes. */
struct crowd {
  double *bytes; /* op_count + 1: differences, then sums */
  double *constant;
};

static void add_life(double *bytes, uint32_t first, uint32_t last, uint64_t amount) {
  bytes[first] += (double)amount;
  bytes[last + 1] -= (double)amount;
}

static void measure_crowd(const struct mr_plan_problem *problem, const struct mr_liveness *liveness,
                          struct crowd *crowd) {
  const struct mr_graph *graph = problem->program;
  uint32_t n = graph->op_count;
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    uint32_t first = liveness->first[t];
    uint32_t last = liveness->first[t + 1];
    if (first == last || !counts(problem, t)) continue;
    const struct mr_access *accesses = liveness->accesses;
    mr_role role = graph->tensors[t].role;
    bool whole = role == MR_INPUT || mr_role_is_persistent(role);
    bool written = false;
    for (uint32_t i = first; i < last; i++) {
      written = written || accesses[i].writes;
    }
    uint32_t from = whole ? 0 : accesses[first].op;
    uint32_t to = whole ? n - 1 : accesses[last - 1].op;
    add_life(crowd->bytes, from, to, graph->tensors[t].bytes);
    if (!written) {
      add_life(crowd->constant, from, to, graph->tensors[t].bytes);
    }
  }
  for (uint32_t k = 0; k < n; k++) {
    add_life(crowd->bytes, k, k, graph->ops[k].scratch_bytes);
  }
  for (uint32_t k = 0; k < n; k++) {
    crowd->bytes[k + 1] += crowd->bytes[k];
    crowd->constant[k + 1] += crowd->constant[k];
  }
}

static double link_rate(const struct mr_plan_problem *problem, mr_link link) {
  bool nvme = link == MR_LINK_NVME_READ || link == MR_LINK_NVME_WRITE;
  bool there = problem->budget_bytes[nvme ? MR_TIER_NVME : MR_TIER_HOST] > 0;
  return there ? problem->link[link].bytes_per_second : 0;
}

static double total_bound(const struct mr_plan_problem *problem, double bytes, double constant) {
  double in = bytes - (double)problem->budget_bytes[MR_TIER_DEVICE];
  double out = in - constant;
  double deep = in - (double)problem->budget_bytes[MR_TIER_HOST];
  double read = link_rate(problem, MR_LINK_NVME_READ);
  double write = link_rate(problem, MR_LINK_NVME_WRITE);
  double to_device = link_rate(problem, MR_LINK_HOST_TO_DEVICE);
  double to_host = link_rate(problem, MR_LINK_DEVICE_TO_HOST);
  double mixed = problem->nvme_mixed_bytes_per_second;
  double bound = 0;
  if (in > 0 && read + to_device > 0) {
    bound = in / (read + to_device);
  }
  if (out > 0 && write + to_host > 0) {
    bound = fmax(bound, out / (write + to_host));
  }
  if (deep > 0 && read > 0) {
    bound = fmax(bound, deep / read);
  }
  double shared = mixed > 0 ? fmax(fmin(mixed, read + write), fmax(read, write)) : read + write;
  if (in > 0 && out > 0 && shared + to_device + to_host > 0) {
    bound = fmax(bound, (in + out) / (shared + to_device + to_host));
  }
  return bound;
}

/* The time between two accesses of a tensor, on the unrolled line. */
struct span {
  double bytes;
  int64_t last_write; /* the last op that wrote it, at or before the span; below 0: a step ago */
  uint32_t after_op;
  uint32_t before_op;
  bool written; /* some op of the step writes it */
};

struct cutter {
  const struct mr_plan_problem *problem;
  uint32_t op_count;
  double *clock; /* op_count + 1 */
  struct span *spans;
  uint32_t span_count;
  double *in;  /* op_count + 1: bytes by how many ops after k they are wanted */
  double *out; /* op_count + 1: bytes by how many ops before k they were written */
};

static void add_spans(struct cutter *cutter, const struct mr_liveness *liveness, mr_tensor_id t) {
  const struct mr_tensor *tensor = &cutter->problem->program->tensors[t];
  const struct mr_access *accesses = &liveness->accesses[liveness->first[t]];
  uint32_t count = liveness->first[t + 1] - liveness->first[t];
  bool circle = mr_role_is_persistent(tensor->role);
  int64_t last_write = 0;
  bool written = false;
  for (uint32_t i = 0; i < count; i++) {
    if (accesses[i].writes) {
      last_write = (int64_t)accesses[i].op - cutter->op_count;
      written = true;
    }
  }
  for (uint32_t i = 0; i < count; i++) {
    if (accesses[i].writes) {
      last_write = accesses[i].op;
    }
    bool last = i + 1 == count;
    if (tensor->role == MR_INPUT || (last && !circle)) continue;
    cutter->spans[cutter->span_count++] = (struct span){
        .bytes = (double)tensor->bytes,
        .last_write = last_write,
        .after_op = accesses[i].op,
        .before_op = last ? accesses[0].op + cutter->op_count : accesses[i + 1].op,
        .written = written,
    };
  }
}

/* Sorts what lives over the start of op k by distance. */
static void cut_at(struct cutter *cutter, uint32_t k) {
  uint32_t n = cutter->op_count;
  memset(cutter->in, 0, (n + 1ull) * sizeof *cutter->in);
  memset(cutter->out, 0, (n + 1ull) * sizeof *cutter->out);
  for (uint32_t i = 0; i < cutter->span_count; i++) {
    const struct span *span = &cutter->spans[i];
    uint32_t turn = k > span->after_op ? 0 : n;
    if (k + turn <= span->after_op || k + turn >= span->before_op) continue;
    cutter->in[span->before_op - k - turn] += span->bytes;
    int64_t since = (int64_t)k + turn - span->last_write;
    if (span->written && since <= n) {
      cutter->out[since] += span->bytes;
    }
  }
}

/* Compute seconds of the ops [from, to), unrolled from -op_count on. */
static double ops_seconds(const struct cutter *cutter, int64_t from, int64_t to) {
  int64_t n = cutter->op_count;
  double turn = cutter->clock[n];
  double begin = cutter->clock[(from + n) % n] + (double)((from + n) / n) * turn;
  double end = cutter->clock[(to + n) % n] + (double)((to + n) / n) * turn;
  return end - begin;
}

/* Seconds to move `bytes` past the edge of the device, `deep` of them from or to NVMe. */
static double edge_seconds(double bytes, double deep, double near_rate, double nvme_rate) {
  double seconds = 0;
  if (bytes > 0 && near_rate + nvme_rate > 0) {
    seconds = bytes / (near_rate + nvme_rate);
  }
  return deep > 0 && nvme_rate > 0 ? fmax(seconds, deep / nvme_rate) : seconds;
}

/* By how much the windows round op k make the step longer. */
static double cut_delay(struct cutter *cutter, uint32_t k) {
  const struct mr_plan_problem *problem = cutter->problem;
  uint32_t n = cutter->op_count;
  double host = (double)problem->budget_bytes[MR_TIER_HOST];
  double room = (double)problem->budget_bytes[MR_TIER_DEVICE] -
                (double)mr_op_working_bytes(problem->program, k, 1);
  double after = 0;
  double before = 0;
  uint32_t reach = 0;
  double bytes = -room;
  for (uint32_t d = 1; d <= n; d++) {
    bytes += cutter->in[d];
    double seconds = edge_seconds(bytes, bytes - host, link_rate(problem, MR_LINK_HOST_TO_DEVICE),
                                  link_rate(problem, MR_LINK_NVME_READ));
    double delay = seconds - ops_seconds(cutter, k, (int64_t)k + d);
    if (delay > after) {
      after = delay;
      reach = d;
    }
  }
  bytes = -room;
  for (uint32_t d = 1; d + reach <= n; d++) {
    bytes += cutter->out[d];
    double seconds = edge_seconds(bytes, bytes - host, link_rate(problem, MR_LINK_DEVICE_TO_HOST),
                                  link_rate(problem, MR_LINK_NVME_WRITE));
    before = fmax(before, seconds - ops_seconds(cutter, (int64_t)k - d + 1, k));
  }
  return after + before;
}

static mr_status window_bound(const struct mr_plan_problem *problem,
                              const struct mr_liveness *liveness, double *seconds_out) {
  const struct mr_graph *graph = problem->program;
  uint32_t n = graph->op_count;
  struct cutter cutter = {.problem = problem, .op_count = n};
  cutter.clock = mr_allocate(n + 1ull, sizeof *cutter.clock);
  cutter.spans = mr_allocate(liveness->first[graph->tensor_count], sizeof *cutter.spans);
  cutter.in = mr_allocate(n + 1ull, sizeof *cutter.in);
  cutter.out = mr_allocate(n + 1ull, sizeof *cutter.out);
  mr_status status = MR_NO_MEMORY;
  if (cutter.clock != NULL && cutter.spans != NULL && cutter.in != NULL && cutter.out != NULL) {
    for (uint32_t k = 0; k < n; k++) {
      cutter.clock[k + 1] = cutter.clock[k] + problem->op_seconds[k];
    }
    for (uint32_t t = 0; t < graph->tensor_count; t++) {
      if (counts(problem, t)) {
        add_spans(&cutter, liveness, t);
      }
    }
    double delay = 0;
    for (uint32_t k = 0; k < n; k += n / MOST_CUTS + 1) {
      cut_at(&cutter, k);
      delay = fmax(delay, cut_delay(&cutter, k));
    }
    *seconds_out = cutter.clock[n] + delay;
    status = MR_OK;
  }
  free(cutter.clock);
  free(cutter.spans);
  free(cutter.in);
  free(cutter.out);
  return status;
}

mr_status mr_plan_bound(const struct mr_plan_problem *problem, const struct mr_liveness *liveness,
                        double *seconds_out) {
  const struct mr_graph *graph = problem->program;
  struct crowd crowd = {mr_allocate(graph->op_count + 1ull, sizeof *crowd.bytes),
                        mr_allocate(graph->op_count + 1ull, sizeof *crowd.constant)};
  if (crowd.bytes == NULL || crowd.constant == NULL) {
    free(crowd.bytes);
    free(crowd.constant);
    return MR_NO_MEMORY;
  }
  measure_crowd(problem, liveness, &crowd);
  double bound = 0;
  mr_status status = window_bound(problem, liveness, &bound);
  for (uint32_t k = 0; k < graph->op_count; k++) {
    bound = fmax(bound, total_bound(problem, crowd.bytes[k], crowd.constant[k]));
  }
  free(crowd.bytes);
  free(crowd.constant);
  *seconds_out = bound;
  return status;
}

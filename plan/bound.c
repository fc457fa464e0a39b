/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes over rates, summed over the windows of the best cut of a step. */
#include "plan/bound.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/draft.h"

/* A program with more ops than this is cut at a sample of them. */
#define MOST_CUTS 96u

/* Whether a clone could make what the op writes: recompute/ clones no others. */
static bool is_clonable(const struct mr_op *op) {
  return (op->flags & MR_OP_REPEATABLE) != 0 && (op->flags & MR_OP_TRAIN_ONLY) == 0 &&
         op->block != MR_NO_BLOCK;
}

/* Marks the tensors that live between their ops in every program the bound is for. */
static void mark_lasting(const struct mr_plan_problem *problem, bool *lasting) {
  const struct mr_graph *graph = problem->program;
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    lasting[t] = true;
  }
  for (uint32_t k = 0; k < graph->op_count && problem->bound_any_recompute; k++) {
    const struct mr_op *op = &graph->ops[k];
    for (uint32_t i = 0; i < op->output_count && is_clonable(op); i++) {
      lasting[op->outputs[i]] = mr_tensor_goes_round(&graph->tensors[op->outputs[i]]);
    }
  }
}

static void add_life(double *bytes, uint32_t first, uint32_t last, uint64_t amount) {
  bytes[first] += (double)amount;
  bytes[last + 1] -= (double)amount;
}

/* Adds the tensor's life to its bytes at each op. What lasts lives all the time; a carried tensor
 * not between the last op of the next step that reads it and the one that makes it anew. */
static void add_lives(const struct mr_tensor *tensor, const struct mr_access *accesses,
                      uint32_t count, uint32_t op_count, double *bytes) {
  if (tensor->carried) {
    uint32_t birth = 0;
    while (birth < count && accesses[birth].reads) {
      birth++;
    }
    if (birth > 0) {
      add_life(bytes, 0, accesses[birth - 1].op, tensor->bytes);
    }
    add_life(bytes, birth < count ? accesses[birth].op : op_count, op_count - 1, tensor->bytes);
  } else if (tensor->role == MR_INPUT || mr_role_is_persistent(tensor->role)) {
    add_life(bytes, 0, op_count - 1, tensor->bytes);
  } else {
    add_life(bytes, accesses[0].op, accesses[count - 1].op, tensor->bytes);
  }
}

/* What lives at each op were everything kept. */
static void measure_lives(struct mr_bound *bound, const struct mr_liveness *liveness,
                          const bool *lasting) {
  const struct mr_graph *graph = bound->problem->program;
  uint32_t n = graph->op_count;
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    uint32_t first = liveness->first[t];
    uint32_t last = liveness->first[t + 1];
    if (first == last || !lasting[t]) continue;
    const struct mr_access *accesses = &liveness->accesses[first];
    const struct mr_tensor *tensor = &graph->tensors[t];
    bool written = false;
    for (uint32_t i = 0; i < last - first; i++) {
      written = written || accesses[i].writes;
    }
    add_lives(tensor, accesses, last - first, n, bound->live_bytes);
    if (!written) {
      add_lives(tensor, accesses, last - first, n, bound->constant_bytes);
    }
  }
  for (uint32_t k = 0; k < n; k++) {
    add_life(bound->live_bytes, k, k, graph->ops[k].scratch_bytes);
  }
  for (uint32_t k = 0; k < n; k++) {
    bound->live_bytes[k + 1] += bound->live_bytes[k];
    bound->constant_bytes[k + 1] += bound->constant_bytes[k];
  }
}

/* The time between two accesses of a tensor, on the unrolled line. */
struct span {
  double bytes;
  int64_t last_write; /* the last op that wrote it, at or before the span; below 0: a step ago */
  uint32_t after_op;
  uint32_t before_op;
  bool written; /* some op of the step writes it */
};

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
static void add_span(struct mr_bound *bound, const struct span *span) {
  uint32_t count = bound->cut_count;
  uint32_t n = bound->problem->program->op_count;
  int64_t touched = cut_behind(bound, span->before_op);
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

static void add_spans(struct mr_bound *bound, const struct mr_liveness *liveness, mr_tensor_id t) {
  const struct mr_graph *graph = bound->problem->program;
  const struct mr_tensor *tensor = &graph->tensors[t];
  const struct mr_access *accesses = &liveness->accesses[liveness->first[t]];
  uint32_t count = liveness->first[t + 1] - liveness->first[t];
  bool circle = mr_tensor_goes_round(tensor);
  int64_t last_write = 0;
  bool written = false;
  for (uint32_t i = 0; i < count; i++) {
    if (accesses[i].writes) {
      last_write = (int64_t)accesses[i].op - graph->op_count;
      written = true;
    }
  }
  for (uint32_t i = 0; i < count; i++) {
    if (accesses[i].writes) {
      last_write = accesses[i].op;
    }
    bool last = i + 1 == count;
    /* What is written whole next need not be kept till then. */
    bool ends = last ? !circle : !accesses[i + 1].reads;
    if (tensor->role == MR_INPUT || ends || (last && !accesses[0].reads)) continue;
    struct span span = {.bytes = (double)tensor->bytes,
                        .last_write = last_write,
                        .after_op = accesses[i].op,
                        .before_op = last ? accesses[0].op + graph->op_count : accesses[i + 1].op,
                        .written = written};
    add_span(bound, &span);
  }
}

static void place_cuts(struct mr_bound *bound, const uint64_t *held_bytes) {
  const struct mr_plan_problem *problem = bound->problem;
  uint32_t n = problem->program->op_count;
  double clock = 0;
  uint32_t cut = 0;
  for (uint32_t k = 0; k < n; k++) {
    if (cut < bound->cut_count && k == (uint64_t)cut * n / bound->cut_count) {
      bound->cuts[cut] = k;
      bound->clock[cut] = clock;
      bound->held_bytes[cut++] = held_bytes[k];
    }
    clock += mr_host_least_seconds(problem, k);
  }
  bound->clock[cut] = clock;
}

/* What each op has on the device while it runs. */
static void measure_held(const struct mr_graph *graph, const struct mr_liveness *liveness,
                         uint64_t *held_bytes) {
  for (uint32_t k = 0; k < graph->op_count; k++) {
    held_bytes[k] = graph->ops[k].scratch_bytes;
  }
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    for (uint32_t i = liveness->first[t]; i < liveness->first[t + 1]; i++) {
      held_bytes[liveness->accesses[i].op] += graph->tensors[t].bytes;
    }
  }
}

static mr_status allocate(struct mr_bound *bound) {
  uint64_t ops = bound->problem->program->op_count + 1ull;
  uint64_t pairs = bound->cut_count * (bound->cut_count + 1ull);
  bound->cuts = mr_allocate(bound->cut_count, sizeof *bound->cuts);
  bound->clock = mr_allocate(bound->cut_count + 1ull, sizeof *bound->clock);
  bound->held_bytes = mr_allocate(bound->cut_count, sizeof *bound->held_bytes);
  bound->in_bytes = mr_allocate(pairs, sizeof *bound->in_bytes);
  bound->out_bytes = mr_allocate(pairs, sizeof *bound->out_bytes);
  bound->live_bytes = mr_allocate(ops, sizeof *bound->live_bytes);
  bound->constant_bytes = mr_allocate(ops, sizeof *bound->constant_bytes);
  bool failed = bound->cuts == NULL || bound->clock == NULL || bound->held_bytes == NULL ||
                bound->in_bytes == NULL || bound->out_bytes == NULL || bound->live_bytes == NULL ||
                bound->constant_bytes == NULL;
  return failed ? MR_NO_MEMORY : MR_OK;
}

/* Sums what the cuts see; scratch holds a flag for each tensor and bytes for each op. */
static void fill(struct mr_bound *bound, const struct mr_liveness *liveness, bool *lasting,
                 uint64_t *held_bytes) {
  const struct mr_graph *graph = bound->problem->program;
  mark_lasting(bound->problem, lasting);
  measure_lives(bound, liveness, lasting);
  measure_held(graph, liveness, held_bytes);
  place_cuts(bound, held_bytes);
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    if (lasting[t]) {
      add_spans(bound, liveness, t);
    }
  }
  for (uint32_t cut = 0; cut < bound->cut_count; cut++) {
    size_t row = (size_t)cut * (bound->cut_count + 1);
    for (uint32_t d = 1; d <= bound->cut_count; d++) {
      bound->in_bytes[row + d] += bound->in_bytes[row + d - 1];
      bound->out_bytes[row + d] += bound->out_bytes[row + d - 1];
    }
  }
}

mr_status mr_bound_init(struct mr_bound *bound, const struct mr_plan_problem *problem,
                        const struct mr_liveness *liveness) {
  const struct mr_graph *graph = problem->program;
  *bound = (struct mr_bound){.problem = problem};
  bound->cut_count = graph->op_count < MOST_CUTS ? graph->op_count : MOST_CUTS;
  bool *lasting = mr_allocate(graph->tensor_count, sizeof *lasting);
  uint64_t *held_bytes = mr_allocate(graph->op_count, sizeof *held_bytes);
  mr_status status = lasting == NULL || held_bytes == NULL ? MR_NO_MEMORY : allocate(bound);
  if (status == MR_OK) {
    fill(bound, liveness, lasting, held_bytes);
  } else {
    mr_bound_fini(bound);
  }
  free(lasting);
  free(held_bytes);
  return status;
}

void mr_bound_fini(struct mr_bound *bound) {
  free(bound->cuts);
  free(bound->clock);
  free(bound->held_bytes);
  free(bound->in_bytes);
  free(bound->out_bytes);
  free(bound->live_bytes);
  free(bound->constant_bytes);
  *bound = (struct mr_bound){0};
}

/* Rates of the links that the budgets allow, 0 for others, and the faces of the drive's hull: the
 * seconds that a byte read and a byte written add to each; what ops lose to each of the two. */
struct rates {
  double read, write, to_device, to_host;
  double face[2][2];
  double host_bytes;
  double loss;
};

static struct rates rates_under(const struct mr_plan_problem *problem, const uint64_t *budget) {
  struct rates rates = {.host_bytes = (double)budget[MR_TIER_HOST]};
  if (budget[MR_TIER_HOST] > 0) {
    rates.to_device = problem->link[MR_LINK_HOST_TO_DEVICE].bytes_per_second;
    rates.to_host = problem->link[MR_LINK_DEVICE_TO_HOST].bytes_per_second;
  }
  if (budget[MR_TIER_NVME] == 0) {
    return rates;
  }
  rates.read = problem->link[MR_LINK_NVME_READ].bytes_per_second;
  rates.write = problem->link[MR_LINK_NVME_WRITE].bytes_per_second;
  double mixed = problem->nvme_mixed_bytes_per_second;
  double both = rates.read + rates.write;
  double pace = mixed > 0 && mixed < both ? mixed / both : 1.0;
  /* Slowed down to less than half, the two had better go one after the other. */
  double other = pace > 0.5 ? (1 - pace) / pace : 1.0;
  rates.face[0][0] = 1 / rates.read;
  rates.face[0][1] = other / rates.write;
  rates.face[1][0] = other / rates.read;
  rates.face[1][1] = 1 / rates.write;
  rates.loss = mr_plan_loss_beside_nvme(problem);
  return rates;
}

static double over(double bytes, double rate) {
  return bytes > 0 && rate > 0 ? bytes / rate : 0;
}

/* Seconds for so many bytes to come in and go out in one window. */
static double passing_seconds(const struct rates *rates, double in, double out) {
  double seconds = 0;
  in = mr_max_double(in, 0);
  out = mr_max_double(out, 0);
  if (rates->read == 0) {
    return mr_max_double(over(in, rates->to_device), over(out, rates->to_host));
  }
  double deep_in = mr_max_double(in - rates->host_bytes, 0);
  double deep_out = mr_max_double(out - rates->host_bytes, 0);
  for (uint32_t i = 0; i < 2; i++) {
    const double *face = rates->face[i];
    /* In t seconds at most t times the host's rates pass beside the drive. */
    double beside =
        1 + face[0] * (in > 0 ? rates->to_device : 0) + face[1] * (out > 0 ? rates->to_host : 0);
    seconds = mr_max_double(seconds, (face[0] * in + face[1] * out) / beside);
    seconds = mr_max_double(seconds, face[0] * deep_in + face[1] * deep_out);
  }
  return seconds;
}

/* Seconds for ops that take so long alone, while so many bytes come in and go out. */
static double working_seconds(const struct rates *rates, double ops, double in, double out) {
  double deep =
      mr_max_double(in - rates->host_bytes, 0) + mr_max_double(out - rates->host_bytes, 0);
  return ops + rates->loss * deep;
}

static double total_seconds(const struct mr_bound *bound, const struct rates *rates,
                            double device) {
  double ops = bound->clock[bound->cut_count];
  double seconds = 0;
  for (uint32_t k = 0; k < bound->problem->program->op_count; k++) {
    double in = bound->live_bytes[k] - device;
    double out = in - bound->constant_bytes[k];
    if (in > 0) {
      seconds = mr_max_double(seconds, passing_seconds(rates, in, out));
      seconds = mr_max_double(seconds, passing_seconds(rates, in, 0));
      seconds = mr_max_double(seconds, working_seconds(rates, ops, in, out));
    }
  }
  return seconds;
}

/* The least time of the window from a cut to the d-th after it. */
static double window_seconds(const struct mr_bound *bound, const struct rates *rates, double device,
                             uint32_t cut, uint32_t d) {
  uint32_t n = bound->problem->program->op_count;
  uint32_t count = bound->cut_count;
  uint32_t end = (cut + d) % count;
  double ops = bound->clock[end] - bound->clock[cut] + (cut + d >= count ? bound->clock[count] : 0);
  double in =
      bound->in_bytes[(size_t)cut * (count + 1) + d] - (device - (double)bound->held_bytes[cut]);
  double out =
      bound->out_bytes[(size_t)end * (count + 1) + d] - (device - (double)bound->held_bytes[end]);
  double seconds =
      mr_max_double(working_seconds(rates, ops, in, out), passing_seconds(rates, in, out));
  if (in > 0) {
    double last = mr_host_least_seconds(bound->problem, (bound->cuts[end] + n - 1) % n);
    seconds = mr_max_double(seconds, passing_seconds(rates, in, 0) + last);
  }
  if (out > 0) {
    seconds = mr_max_double(seconds, passing_seconds(rates, 0, out) +
                                         mr_host_least_seconds(bound->problem, bound->cuts[cut]));
  }
  return seconds;
}

/* The longest sum of windows from the cut `start` round to itself. reached[d] is the longest to the
 * d-th cut after it. */
static double longest_round(const double *windows, uint32_t count, uint32_t start,
                            double *reached) {
  memset(reached, 0, (count + 1ull) * sizeof *reached);
  for (uint32_t from = 0; from < count; from++) {
    const double *row = &windows[(size_t)((start + from) % count) * (count + 1)];
    double before = reached[from];
    double *after = &reached[from];
    for (uint32_t d = 1; d <= count - from; d++) {
      after[d] = mr_max_double(after[d], before + row[d]);
    }
  }
  return reached[count];
}

mr_status mr_bound_seconds(const struct mr_bound *bound, const uint64_t budget_bytes[MR_TIER_COUNT],
                           double *seconds_out) {
  uint32_t count = bound->cut_count;
  double device = (double)budget_bytes[MR_TIER_DEVICE];
  struct rates rates = rates_under(bound->problem, budget_bytes);
  double *windows = mr_allocate(count * (count + 1ull), sizeof *windows);
  double *reached = mr_allocate(count + 1ull, sizeof *reached);
  mr_status status = MR_NO_MEMORY;
  if (windows != NULL && reached != NULL) {
    double seconds = total_seconds(bound, &rates, device);
    for (uint32_t cut = 0; cut < count; cut++) {
      for (uint32_t d = 1; d <= count; d++) {
        windows[(size_t)cut * (count + 1) + d] = window_seconds(bound, &rates, device, cut, d);
      }
    }
    for (uint32_t start = 0; start < count; start++) {
      seconds = mr_max_double(seconds, longest_round(windows, count, start, reached));
    }
    *seconds_out = seconds;
    status = MR_OK;
  }
  free(windows);
  free(reached);
  return status;
}

static mr_status bound_under(const struct mr_plan_problem *problem,
                             const struct mr_liveness *liveness, const uint64_t *budget_bytes,
                             double *seconds_out) {
  struct mr_bound bound;
  mr_status status = mr_bound_init(&bound, problem, liveness);
  if (status == MR_OK) {
    status = mr_bound_seconds(&bound, budget_bytes, seconds_out);
    mr_bound_fini(&bound);
  }
  return status;
}

mr_status mr_program_plan_bound(const struct mr_plan_problem *problem, double *seconds_out) {
  const uint64_t *budget = problem->budget_bytes;
  struct mr_liveness liveness = {0};
  double needed = 0;
  double all = 0;
  mr_status status = mr_host_liveness_needed(problem, &liveness);
  if (status == MR_OK) {
    status = bound_under(problem, &liveness, budget, &needed);
  }
  mr_liveness_fini(&liveness);
  bool both = budget[MR_TIER_HOST] > 0 && budget[MR_TIER_NVME] > 0;
  if (status == MR_OK && both && budget[MR_TIER_HOST] < UINT64_MAX - budget[MR_TIER_DEVICE]) {
    uint64_t beside_nvme[MR_TIER_COUNT] = {[MR_TIER_DEVICE] =
                                               budget[MR_TIER_DEVICE] + budget[MR_TIER_HOST],
                                           [MR_TIER_NVME] = budget[MR_TIER_NVME]};
    /* Ops of a host that is apart need not run when the device comes to their place. */
    status = problem->host_apart ? mr_host_liveness_needed(problem, &liveness)
                                 : mr_liveness_init(&liveness, problem->program);
    if (status == MR_OK) {
      status = bound_under(problem, &liveness, beside_nvme, &all);
      mr_liveness_fini(&liveness);
    }
  }
  if (status == MR_OK) {
    *seconds_out = mr_max_double(needed, all);
  }
  return status;
}

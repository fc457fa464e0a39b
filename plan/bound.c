/* SPDX-License-Identifier: Apache-2.0 */
/* What lives across the cuts of a step, whatever the budgets. plan/windows.c makes the bound of it.
 */
#include "plan/bound.h"

#include <stdlib.h>

#include "base/base.h"
#include "plan/draft.h"

/* Whether a clone could make what the op writes: recompute/ clones no others. */
static bool is_clonable(const struct mr_op *op) {
  return (op->flags & MR_OP_REPEATABLE) != 0 && (op->flags & MR_OP_TRAIN_ONLY) == 0 &&
         op->block != MR_NO_BLOCK;
}

/* What is known of a tensor, whatever recompute makes of the program. */
struct fate {
  bool lasting;    /* it lives between its ops */
  bool alone;      /* one op alone writes it: */
  mr_op_id writer; /* the last that does */
};

static void find_writers(const struct mr_graph *graph, struct fate *fates) {
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    fates[t] = (struct fate){.lasting = true, .alone = true, .writer = MR_NO_OP};
  }
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    const struct mr_op *op = &graph->ops[k];
    for (uint32_t i = 0; i < op->output_count; i++) {
      struct fate *fate = &fates[op->outputs[i]];
      fate->alone = fate->writer == MR_NO_OP;
      fate->writer = k;
    }
  }
}

/* What a forward op of another block touches is never made again. */
static void keep_border(const struct mr_graph *graph, const struct mr_op *op, mr_tensor_id tensor,
                        struct fate *fates) {
  struct fate *fate = &fates[tensor];
  bool forward = (op->flags & MR_OP_TRAIN_ONLY) == 0;
  bool made = fate->alone && fate->writer != MR_NO_OP;
  fate->lasting = fate->lasting || (forward && made && graph->ops[fate->writer].block != op->block);
}

/* Finds the tensors that live between their ops in every program the bound is for. */
static void find_fates(const struct mr_plan_problem *problem, struct fate *fates) {
  const struct mr_graph *graph = problem->program;
  find_writers(graph, fates);
  if (!problem->bound_any_recompute) {
    return;
  }
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    const struct mr_op *op = &graph->ops[k];
    for (uint32_t i = 0; i < op->output_count && is_clonable(op); i++) {
      fates[op->outputs[i]].lasting = mr_tensor_goes_round(&graph->tensors[op->outputs[i]]);
    }
  }
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    const struct mr_op *op = &graph->ops[k];
    for (uint32_t i = 0; i < op->input_count; i++) {
      keep_border(graph, op, op->inputs[i], fates);
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
                          const struct fate *fates) {
  const struct mr_graph *graph = bound->problem->program;
  uint32_t n = graph->op_count;
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    uint32_t first = liveness->first[t];
    uint32_t last = liveness->first[t + 1];
    if (first == last || !fates[t].lasting) continue;
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

/* Adds a span that a clone of the op which opens it could end to every cut that it crosses. */
static mr_status add_ransom(struct mr_bound *bound, const struct span *span) {
  uint32_t count = bound->cut_count;
  uint32_t touched = (uint32_t)cut_behind(bound, span->before_op);
  uint32_t behind = (uint32_t)cut_behind(bound, span->last_write);
  mr_status status = MR_OK;
  for (uint32_t cut = (uint32_t)cut_behind(bound, span->after_op);
       status == MR_OK && cut < count && bound->cuts[cut] < span->before_op; cut++) {
    struct mr_ransom ransom = {.cut = cut,
                               .op = (mr_op_id)span->last_write,
                               .since = cut + 1 - behind,
                               .till = touched - cut,
                               .bytes = span->bytes};
    ransom.seconds = mr_host_least_seconds(bound->problem, ransom.op);
    status = mr_ransoms_add(&bound->ransoms, &ransom);
  }
  return status;
}

static mr_status add_spans(struct mr_bound *bound, const struct mr_liveness *liveness,
                           mr_tensor_id t, const struct fate *fate) {
  const struct mr_graph *graph = bound->problem->program;
  const struct mr_tensor *tensor = &graph->tensors[t];
  const struct mr_access *accesses = &liveness->accesses[liveness->first[t]];
  uint32_t count = liveness->first[t + 1] - liveness->first[t];
  bool circle = mr_tensor_goes_round(tensor);
  int64_t last_write = 0;
  bool written = false;
  mr_status status = MR_OK;
  for (uint32_t i = 0; i < count; i++) {
    if (accesses[i].writes) {
      last_write = (int64_t)accesses[i].op - graph->op_count;
      written = true;
    }
  }
  for (uint32_t i = 0; i < count && status == MR_OK; i++) {
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
    if (fate->lasting) {
      add_span(bound, &span);
    } else if (written && last_write >= 0 && is_clonable(&graph->ops[last_write])) {
      status = add_ransom(bound, &span);
    }
  }
  return status;
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

/* Sums what the cuts see; scratch holds the fate of each tensor and bytes for each op. */
static mr_status fill(struct mr_bound *bound, const struct mr_liveness *liveness,
                      struct fate *fates, uint64_t *held_bytes) {
  const struct mr_graph *graph = bound->problem->program;
  mr_status status = MR_OK;
  find_fates(bound->problem, fates);
  measure_lives(bound, liveness, fates);
  measure_held(graph, liveness, held_bytes);
  place_cuts(bound, held_bytes);
  for (uint32_t t = 0; t < graph->tensor_count && status == MR_OK; t++) {
    status = add_spans(bound, liveness, t, &fates[t]);
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

mr_status mr_bound_init(struct mr_bound *bound, const struct mr_plan_problem *problem,
                        const struct mr_liveness *liveness) {
  const struct mr_graph *graph = problem->program;
  *bound = (struct mr_bound){.problem = problem};
  bound->cut_count = graph->op_count < MR_BOUND_CUTS ? graph->op_count : MR_BOUND_CUTS;
  struct fate *fates = mr_allocate(graph->tensor_count, sizeof *fates);
  uint64_t *held_bytes = mr_allocate(graph->op_count, sizeof *held_bytes);
  mr_status status = fates == NULL || held_bytes == NULL ? MR_NO_MEMORY : allocate(bound);
  if (status == MR_OK) {
    status = fill(bound, liveness, fates, held_bytes);
  }
  if (status != MR_OK) {
    mr_bound_fini(bound);
  }
  free(fates);
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
  mr_ransoms_fini(&bound->ransoms);
  *bound = (struct mr_bound){0};
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Spans by tensor, from the accesses that need the device; which of them recompute may end. */
#include "plan/spans.h"

#include <stdlib.h>

#include "base/base.h"

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

mr_status mr_spans_add(struct mr_spans *spans, const struct mr_span *span) {
  mr_status status = mr_array_reserve((void **)&spans->items, &spans->capacity, spans->count + 1ull,
                                      sizeof *spans->items);
  if (status == MR_OK) {
    spans->items[spans->count++] = *span;
  }
  return status;
}

/* The op that could make what lives in the span anew; false where nobody can say what becomes of
 * it. */
static bool find_maker(const struct mr_graph *graph, const struct fate *fate,
                       struct mr_span *span) {
  span->maker = MR_NO_OP;
  if (fate->lasting) {
    return true;
  }
  bool made = span->written && span->last_write >= 0;
  if (!made || !is_clonable(&graph->ops[span->last_write])) {
    return false;
  }
  span->maker = (mr_op_id)span->last_write;
  return true;
}

static mr_status add_spans_of(struct mr_spans *spans, const struct mr_graph *graph,
                              const struct mr_liveness *liveness, mr_tensor_id t,
                              const struct fate *fate) {
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
    struct mr_span span = {.tensor = t,
                           .bytes = (double)tensor->bytes,
                           .last_write = last_write,
                           .after_op = accesses[i].op,
                           .before_op =
                               last ? accesses[0].op + graph->op_count : accesses[i + 1].op,
                           .written = written};
    span.touched_op = span.before_op;
    if (find_maker(graph, fate, &span)) {
      status = mr_spans_add(spans, &span);
    }
  }
  return status;
}

mr_status mr_spans_find(struct mr_spans *spans, const struct mr_plan_problem *problem,
                        const struct mr_liveness *liveness) {
  const struct mr_graph *graph = problem->program;
  struct fate *fates = mr_allocate(graph->tensor_count, sizeof *fates);
  mr_status status = MR_OK;
  *spans = (struct mr_spans){0};
  if (fates == NULL) {
    return MR_NO_MEMORY;
  }
  find_fates(problem, fates);
  for (uint32_t t = 0; t < graph->tensor_count && status == MR_OK; t++) {
    status = add_spans_of(spans, graph, liveness, t, &fates[t]);
  }
  if (status != MR_OK) {
    mr_spans_fini(spans);
  }
  free(fates);
  return status;
}

void mr_spans_fini(struct mr_spans *spans) {
  free(spans->items);
  *spans = (struct mr_spans){0};
}

void mr_span_spread(const struct mr_span *span, uint32_t op_count, double amount,
                    double *differences) {
  uint32_t turn = span->after_op + 1 == op_count ? op_count : 0;
  uint32_t first = span->after_op + 1 - turn;
  uint32_t end = span->before_op - turn;
  if (first >= end) {
    return;
  }
  differences[first] += amount;
  if (end > op_count) {
    differences[0] += amount;
  }
  if (end != op_count) {
    differences[end % op_count] -= amount;
  }
}

void mr_spans_measure_held(const struct mr_graph *graph, const struct mr_liveness *liveness,
                           double *held_bytes) {
  for (uint32_t k = 0; k < graph->op_count; k++) {
    const struct mr_op *op = &graph->ops[k];
    bool on_device = !mr_op_is_host_capable(graph, k);
    held_bytes[k] = on_device ? (double)op->scratch_bytes : 0;
  }
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    for (uint32_t i = liveness->first[t]; i < liveness->first[t + 1]; i++) {
      held_bytes[liveness->accesses[i].op] += (double)graph->tensors[t].bytes;
    }
  }
}

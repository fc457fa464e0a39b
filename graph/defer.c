/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pass that moves updates into the next step. What an op may pass on its way is decided by the
 * first and the last op of the step, those that are moved aside, that touch or write each tensor.
 * Every op that stays narrows the way of those before it, so this is repeated until nothing
 * changes.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "graph/graph.h"

/* Ops that are not deferred, by what they do with a tensor; MR_NO_OP: none. */
struct touch {
  mr_op_id first_access, last_access;
  mr_op_id first_write, last_write;
};

/* How far deferred ops may go for later ones' sake. */
struct limit {
  mr_op_id access, write; /* the first place of a later one that touches, writes the tensor */
};

struct deferral {
  const struct mr_graph *graph;
  struct touch *touches; /* of each tensor */
  struct limit *limits;  /* of each tensor */
  mr_op_id *places;      /* of each op: the op that it goes before; MR_NO_OP: it stays */
  mr_op_id *order;       /* the new program */
  uint32_t deferred_count;
};

static void note(mr_op_id *first, mr_op_id *last, mr_op_id op) {
  *first = *first == MR_NO_OP ? op : *first;
  *last = op;
}

/* What the ops that stay do with each tensor. */
static void note_touches(struct deferral *d) {
  memset(d->touches, 0xff, d->graph->tensor_count * sizeof *d->touches);
  for (mr_op_id k = 0; k < d->graph->op_count; k++) {
    const struct mr_op *op = &d->graph->ops[k];
    if (d->places[k] != MR_NO_OP) continue;
    for (uint32_t i = 0; i < op->input_count; i++) {
      struct touch *touch = &d->touches[op->inputs[i]];
      note(&touch->first_access, &touch->last_access, k);
    }
    for (uint32_t i = 0; i < op->output_count; i++) {
      struct touch *touch = &d->touches[op->outputs[i]];
      note(&touch->first_access, &touch->last_access, k);
      note(&touch->first_write, &touch->last_write, k);
    }
  }
}

static bool is_behind(mr_op_id last, mr_op_id k) {
  return last != MR_NO_OP && last > k;
}

/*
 * The op of the next step that op k may go before at the latest; MR_NO_OP: it stays. MR_NO_OP is
 * also the largest number, so that minima need no care.
 */
static mr_op_id find_place(const struct deferral *d, mr_op_id k) {
  const struct mr_op *op = &d->graph->ops[k];
  mr_op_id place = MR_NO_OP;
  for (uint32_t i = 0; i < op->input_count; i++) {
    const struct touch *touch = &d->touches[op->inputs[i]];
    if (is_behind(touch->last_write, k) || d->graph->tensors[op->inputs[i]].role == MR_INPUT) {
      return MR_NO_OP;
    }
    place = touch->first_write < place ? touch->first_write : place;
  }
  for (uint32_t i = 0; i < op->output_count; i++) {
    const struct touch *touch = &d->touches[op->outputs[i]];
    if (is_behind(touch->last_access, k)) {
      return MR_NO_OP;
    }
    place = touch->first_access < place ? touch->first_access : place;
  }
  return place;
}

static void lower(mr_op_id *limit, mr_op_id place) {
  *limit = place < *limit ? place : *limit;
}

/* Deferred ops of which one writes what the other touches keep their order: the earlier does not go
 * behind the later. Called for the later one first. */
static mr_op_id limit_place(struct deferral *d, mr_op_id k, mr_op_id place) {
  const struct mr_op *op = &d->graph->ops[k];
  for (uint32_t i = 0; i < op->input_count; i++) {
    lower(&place, d->limits[op->inputs[i]].write);
  }
  for (uint32_t i = 0; i < op->output_count; i++) {
    lower(&place, d->limits[op->outputs[i]].access);
  }
  for (uint32_t i = 0; i < op->input_count; i++) {
    lower(&d->limits[op->inputs[i]].access, place);
  }
  for (uint32_t i = 0; i < op->output_count; i++) {
    lower(&d->limits[op->outputs[i]].access, place);
    lower(&d->limits[op->outputs[i]].write, place);
  }
  return place;
}

/* True where an op that was to be moved stays after all. */
static bool narrow(struct deferral *d) {
  bool changed = false;
  note_touches(d);
  memset(d->limits, 0xff, d->graph->tensor_count * sizeof *d->limits);
  for (mr_op_id k = d->graph->op_count; k-- > 0;) {
    if (d->places[k] == MR_NO_OP) continue;
    mr_op_id place = find_place(d, k);
    changed = changed || place == MR_NO_OP;
    d->places[k] = place == MR_NO_OP ? place : limit_place(d, k, place);
  }
  return changed;
}

static void find_places(struct deferral *d, uint32_t staying) {
  const uint32_t wanted = MR_OP_DEFERRABLE | MR_OP_TRAIN_ONLY;
  uint32_t flagged = 0;
  for (mr_op_id k = d->graph->op_count; k-- > 0;) {
    bool may = (d->graph->ops[k].flags & wanted) == wanted;
    flagged += may;
    d->places[k] = may && flagged > staying ? 0 : MR_NO_OP;
  }
  while (narrow(d)) {
  }
  for (mr_op_id k = 0; k < d->graph->op_count; k++) {
    d->deferred_count += d->places[k] != MR_NO_OP;
  }
}

/* A counting sort: before each op that stays come those that go there, in their own order. They
 * come from behind it, so its place is known before theirs is filled. `next` is zeros, one more
 * than there are ops. */
static void find_order(struct deferral *d, uint32_t *next) {
  uint32_t n = d->graph->op_count;
  for (mr_op_id k = 0; k < n; k++) {
    mr_op_id place = d->places[k] == MR_NO_OP ? k : d->places[k];
    next[place + 1]++;
  }
  for (mr_op_id k = 0; k < n; k++) {
    next[k + 1] += next[k];
  }
  for (mr_op_id k = 0; k < n; k++) {
    if (d->places[k] == MR_NO_OP) {
      d->order[next[k + 1] - 1] = k;
    } else {
      d->order[next[d->places[k]]++] = k;
    }
  }
}

/* What a deferred op derives before any other op touches it is there from then on alone. */
static void make_anew(struct mr_graph *program, mr_op_id id, bool *touched) {
  const struct mr_op *op = &program->ops[id];
  for (uint32_t i = 0; i < op->input_count; i++) {
    touched[op->inputs[i]] = true;
  }
  for (uint32_t i = 0; i < op->output_count; i++) {
    struct mr_tensor *tensor = &program->tensors[op->outputs[i]];
    tensor->made_anew = tensor->made_anew ||
                        (op->deferred && tensor->role == MR_DERIVED && !touched[op->outputs[i]]);
    touched[op->outputs[i]] = true;
  }
}

/* What a deferred op reads before the program has written it comes from the step before. */
static void carry_inputs(struct mr_graph *program, const struct mr_op *op) {
  for (uint32_t i = 0; i < op->input_count; i++) {
    struct mr_tensor *tensor = &program->tensors[op->inputs[i]];
    tensor->carried = tensor->carried || !tensor->written;
    tensor->written = true;
  }
}

static void mark_used(struct mr_graph *program, const struct mr_op *op) {
  for (uint32_t i = 0; i < op->input_count; i++) {
    program->tensors[op->inputs[i]].used_late = true;
  }
  for (uint32_t i = 0; i < op->output_count; i++) {
    program->tensors[op->outputs[i]].used_late = true;
  }
}

static mr_status write_program(const struct deferral *d, struct mr_graph **program_out) {
  const struct mr_graph *graph = d->graph;
  struct mr_graph *program = NULL;
  mr_tensor_id *same = mr_allocate(graph->tensor_count, sizeof *same);
  bool *touched = mr_allocate(graph->tensor_count, sizeof *touched);
  mr_status status = MR_NO_MEMORY;
  if (same != NULL && touched != NULL) {
    status = mr_graph_copy_tensors(graph, &program);
  }
  for (mr_tensor_id t = 0; status == MR_OK && t < graph->tensor_count; t++) {
    same[t] = t;
  }
  for (uint32_t i = 0; status == MR_OK && i < graph->op_count; i++) {
    const struct mr_op *op = &graph->ops[d->order[i]];
    carry_inputs(program, op);
    status = mr_graph_append_op(program, op, same, "", op->clone_of);
    if (status == MR_OK) {
      program->ops[i].deferred = d->places[d->order[i]] != MR_NO_OP;
      make_anew(program, i, touched);
      if (program->ops[i].deferred) {
        mark_used(program, op);
      }
    }
  }
  free(same);
  free(touched);
  if (status != MR_OK) {
    mr_graph_destroy(program);
    return status;
  }
  *program_out = program;
  return MR_OK;
}

mr_status mr_graph_defer(const struct mr_graph *graph, uint32_t staying,
                         struct mr_graph **program_out) {
  struct deferral d = {
      .graph = graph,
      .touches = mr_allocate(graph->tensor_count, sizeof *d.touches),
      .limits = mr_allocate(graph->tensor_count, sizeof *d.limits),
      .places = mr_allocate(graph->op_count, sizeof *d.places),
      .order = mr_allocate(graph->op_count, sizeof *d.order),
  };
  uint32_t *next = mr_allocate(graph->op_count + 1ull, sizeof *next);
  mr_status status = MR_NO_MEMORY;
  if (d.touches != NULL && d.limits != NULL && d.places != NULL && d.order != NULL &&
      next != NULL) {
    find_places(&d, staying);
    status = MR_OK;
    *program_out = NULL;
  }
  if (status == MR_OK && d.deferred_count > 0) {
    find_order(&d, next);
    status = write_program(&d, program_out);
  }
  if (status == MR_OK && *program_out != NULL) {
    (*program_out)->staying_count = staying;
  }
  free(d.touches);
  free(d.limits);
  free(d.places);
  free(d.order);
  free(next);
  return status;
}

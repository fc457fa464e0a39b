/* SPDX-License-Identifier: Apache-2.0 */
/* The costliest decisions of a plan: moves and clones summed over tensors that are alike. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/drive.h"
#include "plan/explain.h"

/* Compares names as if every number in them were the same. */
static int compare_patterns(const char *a, const char *b) {
  while (*a != '\0' && *b != '\0') {
    bool number = isdigit((unsigned char)*a) && isdigit((unsigned char)*b);
    if (!number && *a != *b) {
      break;
    }
    a += number ? strspn(a, "0123456789") : 1;
    b += number ? strspn(b, "0123456789") : 1;
  }
  return (unsigned char)*a - (unsigned char)*b;
}

static int compare_tensors(const struct mr_tensor *a, const struct mr_tensor *b) {
  if (a->role != b->role) {
    return a->role < b->role ? -1 : 1;
  }
  if (a->bytes != b->bytes) {
    return a->bytes < b->bytes ? -1 : 1;
  }
  return compare_patterns(a->name, b->name);
}

bool mr_explain_alike(const struct mr_tensor *a, const struct mr_tensor *b) {
  return compare_tensors(a, b) == 0;
}

/* One decision for one tensor; those alike are merged. */
struct entry {
  const struct mr_tensor *of;
  struct mr_decision decision;
};

static int by_class(const void *left, const void *right) {
  const struct entry *a = left;
  const struct entry *b = right;
  if (a->decision.decision != b->decision.decision) {
    return a->decision.decision < b->decision.decision ? -1 : 1;
  }
  int order = compare_tensors(a->of, b->of);
  if (order != 0) {
    return order;
  }
  return (a->decision.tensor > b->decision.tensor) - (a->decision.tensor < b->decision.tensor);
}

static int by_cost(const void *left, const void *right) {
  const struct entry *a = left;
  const struct entry *b = right;
  if (a->decision.seconds < b->decision.seconds || a->decision.seconds > b->decision.seconds) {
    return a->decision.seconds > b->decision.seconds ? -1 : 1;
  }
  return by_class(left, right);
}

/* Entries for the moves of each tensor to a tier: [tensor] the host, [tensor_count + tensor] NVMe.
 */
static void add_moves(const struct mr_plan_problem *problem, const struct mr_program_plan *plan,
                      struct entry *entries) {
  uint32_t tensors = plan->program->tensor_count;
  for (mr_link link = 0; link < MR_LINK_COUNT; link++) {
    uint32_t queue = MR_QUEUE_OF(link);
    bool nvme = mr_link_is_nvme(link);
    for (uint32_t i = 0; i < plan->instruction_count[queue]; i++) {
      const struct mr_instance *stay = &plan->instances[plan->instructions[queue][i].instance];
      struct entry *entry = &entries[(nvme ? tensors : 0) + stay->tensor];
      entry->of = &plan->program->tensors[stay->tensor];
      entry->decision.decision = nvme ? MR_DECISION_NVME : MR_DECISION_HOST;
      entry->decision.tensor = stay->tensor;
      entry->decision.tensor_count = 1;
      entry->decision.bytes += stay->bytes;
      entry->decision.seconds += mr_plan_move_seconds(problem, link, stay->bytes);
    }
  }
}

static void add_clones(const struct mr_plan_problem *problem, const struct mr_program_plan *plan,
                       struct entry *entries) {
  const struct mr_graph *program = plan->program;
  uint32_t count = 0;
  for (uint32_t k = 0; k < program->op_count; k++) {
    const struct mr_op *op = &program->ops[k];
    if (op->clone_of == MR_NO_OP) continue;
    struct entry *entry = &entries[count++];
    *entry = (struct entry){.of = &program->tensors[op->remade],
                            .decision = {.decision = MR_DECISION_AGAIN,
                                         .tensor = op->remade,
                                         .tensor_count = 1,
                                         .seconds = problem->op_seconds[k]}};
    for (uint32_t i = 0; i < op->output_count; i++) {
      entry->decision.bytes += program->tensors[op->outputs[i]].bytes;
    }
  }
}

/* Sums entries of one class; returns how many classes there are. */
static uint32_t merge_classes(struct entry *entries, uint64_t count) {
  qsort(entries, count, sizeof *entries, by_class);
  uint32_t merged = 0;
  for (uint64_t i = 0; i < count; i++) {
    struct entry *last = merged == 0 ? NULL : &entries[merged - 1];
    const struct mr_decision *added = &entries[i].decision;
    if (last != NULL && last->decision.decision == added->decision &&
        compare_tensors(last->of, entries[i].of) == 0) {
      last->decision.tensor_count += added->tensor_count;
      last->decision.bytes += added->bytes;
      last->decision.seconds += added->seconds;
    } else {
      entries[merged++] = entries[i];
    }
  }
  return merged;
}

/* Moves the entries that say something to the front. */
static uint64_t drop_empty(struct entry *entries, uint64_t count) {
  uint64_t kept = 0;
  for (uint64_t i = 0; i < count; i++) {
    if (entries[i].decision.tensor_count > 0) {
      entries[kept++] = entries[i];
    }
  }
  return kept;
}

mr_status mr_explain_decisions(const struct mr_plan_problem *problem,
                               const struct mr_program_plan *plan, uint32_t limit,
                               struct mr_decision *decisions_out, uint32_t *count_out) {
  uint64_t moves = 2ull * plan->program->tensor_count;
  struct entry *entries = mr_allocate(moves + plan->program->op_count, sizeof *entries);
  if (entries == NULL) {
    return MR_NO_MEMORY;
  }
  add_moves(problem, plan, entries);
  add_clones(problem, plan, entries + moves);
  uint64_t count = drop_empty(entries, moves + plan->program->op_count);
  uint32_t classes = merge_classes(entries, count);
  qsort(entries, classes, sizeof *entries, by_cost);
  *count_out = classes < limit ? classes : limit;
  for (uint32_t i = 0; i < *count_out; i++) {
    decisions_out[i] = entries[i].decision;
  }
  free(entries);
  return MR_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Classes of gaps, by what room they would give for their moves. */
#include "plan/alike.h"

#include <stdlib.h>
#include <string.h>

/* A move costs something even where the copy below is there. */
#define LEAST_COST 1e-9

/* What tells gaps apart. */
struct likeness {
  const char *from, *to; /* kinds of the ops on both sides */
  uint64_t bytes;
  uint32_t gap;
};

/* When ops begin, by the last sweep: the parts of a step before each. */
struct timetable {
  const struct mr_draft *draft;
  double start[MR_STEP_PARTS + 1];
};

static int compare_likeness(const struct likeness *a, const struct likeness *b) {
  int from = strcmp(a->from, b->from);
  int to = from != 0 ? from : strcmp(a->to, b->to);
  return to != 0 ? to : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int compare_gaps(const void *left, const void *right) {
  const struct likeness *a = left;
  const struct likeness *b = right;
  int unlike = compare_likeness(a, b);
  return unlike != 0 ? unlike : (a->gap > b->gap) - (a->gap < b->gap);
}

static int compare_worth(const void *left, const void *right) {
  const struct mr_alike_class *a = left;
  const struct mr_alike_class *b = right;
  if (a->worth != b->worth) {
    return a->worth < b->worth ? 1 : -1;
  }
  return (a->first > b->first) - (a->first < b->first);
}

static void set_timetable(struct timetable *timetable, const struct mr_draft *draft) {
  *timetable = (struct timetable){.draft = draft};
  for (uint32_t part = 0; part < MR_STEP_PARTS; part++) {
    timetable->start[part + 1] = timetable->start[part] + draft->times.part[part];
  }
}

/* Of an op, unrolled below two steps. */
static double start_of(const struct timetable *timetable, uint32_t op) {
  const struct mr_draft *draft = timetable->draft;
  bool round = op >= draft->op_count;
  uint32_t part = mr_draft_part(draft, op);
  uint32_t first = mr_draft_part_start(draft, part);
  double ops = (double)(mr_draft_part_start(draft, part + 1) - first);
  double passed = (op - (round ? draft->op_count : 0) - first) / ops;
  return (round ? timetable->start[MR_STEP_PARTS] : 0) + timetable->start[part] +
         passed * draft->times.part[part];
}

static bool could_leave(const struct mr_draft *draft, const struct mr_draft_gap *gap) {
  return gap->decision == MR_DECISION_KEEP && !gap->fixed && !gap->resting && !gap->dead &&
         mr_draft_can_evict(draft, gap);
}

/* Where room is short and the links have time to spare, the most byte seconds for a second of moves
 * are the best bargain: of what has to be written in any case, moves are reads alone. */
static double worth_of(const struct timetable *timetable, const struct mr_alike *alike,
                       const struct mr_alike_class *class) {
  static const double prices[MR_LINK_COUNT] = {1, 1, 1, 1};
  const struct mr_draft *draft = timetable->draft;
  bool host = draft->problem->budget_bytes[MR_TIER_HOST] > 0;
  uint8_t decision = host ? MR_DECISION_HOST : MR_DECISION_NVME;
  double room = 0;
  double cost = LEAST_COST;
  for (uint32_t i = class->first; i < class->first + class->count; i++) {
    uint32_t index = alike->gaps[i];
    const struct mr_draft_gap *gap = &draft->gaps[index];
    if (!could_leave(draft, gap)) continue;
    double seconds = start_of(timetable, gap->before_op) - start_of(timetable, gap->after_op + 1);
    room += (double)(draft->pages[gap->tensor] * draft->page_bytes) * seconds;
    cost += mr_draft_tensor_price(draft, index, decision, prices) -
            mr_draft_tensor_price(draft, index, MR_DECISION_KEEP, prices);
  }
  return room / mr_max_double(cost, LEAST_COST);
}

static void list_classes(struct mr_alike *alike, const struct mr_draft *draft,
                         const struct likeness *likeness) {
  struct timetable timetable;
  set_timetable(&timetable, draft);
  for (uint32_t i = 0; i < draft->gap_count;) {
    struct mr_alike_class class = {.first = i};
    for (; i < draft->gap_count && compare_likeness(&likeness[i], &likeness[class.first]) == 0;
         i++) {
      alike->gaps[i] = likeness[i].gap;
      class.count++;
    }
    class.worth = worth_of(&timetable, alike, &class);
    if (class.worth > 0) {
      alike->classes[alike->class_count++] = class;
    }
  }
  qsort(alike->classes, alike->class_count, sizeof *alike->classes, compare_worth);
}

mr_status mr_alike_init(struct mr_alike *alike, const struct mr_draft *draft) {
  const struct mr_graph *program = draft->program;
  struct likeness *likeness = mr_allocate(draft->gap_count, sizeof *likeness);
  *alike = (struct mr_alike){.gaps = mr_allocate(draft->gap_count, sizeof *alike->gaps),
                             .classes = mr_allocate(draft->gap_count, sizeof *alike->classes)};
  if (likeness == NULL || alike->gaps == NULL || alike->classes == NULL) {
    free(likeness);
    mr_alike_fini(alike);
    return MR_NO_MEMORY;
  }
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    const struct mr_draft_gap *gap = &draft->gaps[i];
    likeness[i] = (struct likeness){
        .from = program->ops[gap->after_op].kind,
        .to = program->ops[gap->before_op % draft->op_count].kind,
        .bytes = program->tensors[gap->tensor].bytes,
        .gap = i,
    };
  }
  if (draft->gap_count > 0) {
    qsort(likeness, draft->gap_count, sizeof *likeness, compare_gaps);
  }
  list_classes(alike, draft, likeness);
  free(likeness);
  return MR_OK;
}

void mr_alike_fini(struct mr_alike *alike) {
  free(alike->gaps);
  free(alike->classes);
  *alike = (struct mr_alike){0};
}

bool mr_alike_evict(const struct mr_alike *alike, uint32_t class, struct mr_draft *draft) {
  const struct mr_alike_class *evicted = &alike->classes[class];
  const uint64_t *budget_bytes = draft->problem->budget_bytes;
  bool any = false;
  mr_draft_widen(draft);
  for (uint32_t i = evicted->first; i < evicted->first + evicted->count; i++) {
    uint32_t index = alike->gaps[i];
    if (!could_leave(draft, &draft->gaps[index])) continue;
    bool left = budget_bytes[MR_TIER_HOST] > 0 && mr_draft_evict(draft, index, MR_DECISION_HOST);
    left =
        left || (budget_bytes[MR_TIER_NVME] > 0 && mr_draft_evict(draft, index, MR_DECISION_NVME));
    any = any || left;
  }
  return any;
}

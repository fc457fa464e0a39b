/* SPDX-License-Identifier: Apache-2.0 */
/* Where a step's time goes, and what the tiers hold. */
#include "plan/explain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* ---- Phases ---- */

enum mr_phase mr_phase_of(const struct mr_graph *program, const struct mr_op *op) {
  if ((op->flags & MR_OP_TRAIN_ONLY) == 0) {
    return MR_PHASE_FORWARD;
  }
  bool lasting = false;
  bool passing = false;
  for (uint32_t i = 0; i < op->output_count; i++) {
    mr_role role = program->tensors[op->outputs[i]].role;
    if (role == MR_PARAMETER) {
      return MR_PHASE_UPDATE;
    }
    lasting = lasting || mr_role_is_persistent(role);
    passing = passing || role == MR_GRADIENT || role == MR_ACTIVATION;
  }
  return lasting && !passing ? MR_PHASE_UPDATE : MR_PHASE_BACKWARD;
}

struct span {
  double start, end;
};

static int by_start(const void *left, const void *right) {
  const struct span *a = left;
  const struct span *b = right;
  return (a->start > b->start) - (a->start < b->start);
}

/* When a queue is at work, as spans of one step in order that do not overlap. The step begins with
 * `origin`; what reaches over its end goes on at its start. */
static uint32_t list_busy(const struct mr_program_plan *plan, uint32_t queue, double origin,
                          struct span *spans) {
  double step = plan->step_seconds;
  uint32_t count = 0;
  for (uint32_t i = 0; i < plan->instruction_count[queue]; i++) {
    const struct mr_instruction *work = &plan->instructions[queue][i];
    double start = fmod(work->start_seconds - origin, step);
    start = start < 0 ? start + step : start;
    double length = fmin(work->end_seconds - work->start_seconds, step);
    spans[count++] = (struct span){start, fmin(start + length, step)};
    if (start + length > step) {
      spans[count++] = (struct span){0, start + length - step};
    }
  }
  qsort(spans, count, sizeof *spans, by_start);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (kept > 0 && spans[i].start <= spans[kept - 1].end) {
      spans[kept - 1].end = fmax(spans[kept - 1].end, spans[i].end);
    } else {
      spans[kept++] = spans[i];
    }
  }
  return kept;
}

/* Where in a step its ops end, from where its first begins; and what is at work in it. */
struct times {
  const struct mr_program_plan *plan;
  double origin;
  double *boundaries; /* of each op */
  struct span *spans;
};

/* How long of each phase a queue is at work. */
static void share_busy(const struct times *times, uint32_t queue, double seconds[MR_PHASE_COUNT]) {
  const struct mr_graph *program = times->plan->program;
  const struct span *spans = times->spans;
  uint32_t count = list_busy(times->plan, queue, times->origin, times->spans);
  uint32_t at = 0;
  memset(seconds, 0, MR_PHASE_COUNT * sizeof *seconds);
  for (uint32_t k = 0; k < program->op_count; k++) {
    double from = k == 0 ? 0 : times->boundaries[k - 1];
    double to = times->boundaries[k];
    double *phase = &seconds[mr_phase_of(program, &program->ops[k])];
    while (at < count && spans[at].end <= from) {
      at++;
    }
    for (uint32_t i = at; i < count && spans[i].start < to; i++) {
      *phase += fmax(fmin(spans[i].end, to) - fmax(spans[i].start, from), 0);
    }
  }
}

static void share_queues(const struct times *times, struct mr_phase_time phases[MR_PHASE_COUNT]) {
  double seconds[MR_PHASE_COUNT];
  share_busy(times, MR_QUEUE_COMPUTE, seconds);
  for (uint32_t p = 0; p < MR_PHASE_COUNT; p++) {
    phases[p].compute_seconds = seconds[p];
  }
  share_busy(times, MR_QUEUE_HOST, seconds);
  for (uint32_t p = 0; p < MR_PHASE_COUNT; p++) {
    phases[p].host_seconds = seconds[p];
  }
  for (mr_link link = 0; link < MR_LINK_COUNT; link++) {
    share_busy(times, MR_QUEUE_OF(link), seconds);
    for (uint32_t p = 0; p < MR_PHASE_COUNT; p++) {
      phases[p].link_seconds[link] = seconds[p];
    }
  }
}

mr_status mr_explain_phases(const struct mr_program_plan *plan,
                            struct mr_phase_time phases_out[MR_PHASE_COUNT]) {
  const struct mr_graph *program = plan->program;
  const struct mr_instruction *ops = plan->instructions[MR_QUEUE_COMPUTE];
  struct mr_phase_time phases[MR_PHASE_COUNT] = {{0}};
  uint32_t longest = 0;
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    uint32_t count = plan->instruction_count[q];
    longest = count > longest ? count : longest;
  }
  /* The time of the first op begins where the last op of the step before has ended. */
  struct times times = {.plan = plan,
                        .origin = ops[program->op_count - 1].end_seconds - plan->step_seconds,
                        .boundaries = mr_allocate(program->op_count, sizeof *times.boundaries),
                        .spans = mr_allocate(2ull * longest, sizeof *times.spans)};
  bool failed = times.boundaries == NULL || times.spans == NULL;
  double before = 0;
  for (uint32_t k = 0; !failed && k < program->op_count; k++) {
    struct mr_phase_time *phase = &phases[mr_phase_of(program, &program->ops[k])];
    times.boundaries[k] = fmax(ops[k].end_seconds - times.origin, before);
    phase->op_count++;
    phase->seconds += times.boundaries[k] - before;
    before = times.boundaries[k];
  }
  if (!failed) {
    share_queues(&times, phases);
    memcpy(phases_out, phases, sizeof phases);
  }
  free(times.boundaries);
  free(times.spans);
  return failed ? MR_NO_MEMORY : MR_OK;
}

/* ---- Holdings ---- */

static bool covers(bool always, uint32_t first, uint32_t last, uint32_t op) {
  if (always) {
    return true;
  }
  return first <= last ? first <= op && op <= last : op >= first || op <= last;
}

/* Adds the pages of a stay at the ops that it covers, as differences. */
static void add_stay(int64_t *changes, bool always, uint32_t first, uint32_t last, uint32_t pages) {
  if (always || first > last) {
    changes[0] += pages;
  }
  if (!always) {
    changes[first] += pages;
    changes[last + 1] -= pages;
  }
}

static uint32_t find_peak(const int64_t *changes, uint32_t op_count) {
  uint32_t peak = 0;
  int64_t most = 0;
  int64_t pages = 0;
  for (uint32_t k = 0; k < op_count; k++) {
    pages += changes[k];
    if (pages > most) {
      most = pages;
      peak = k;
    }
  }
  return peak;
}

static uint32_t peak_of_device(const struct mr_program_plan *plan, int64_t *changes) {
  uint32_t op_count = plan->program->op_count;
  for (uint32_t i = 0; i < plan->instance_count; i++) {
    const struct mr_instance *stay = &plan->instances[i];
    add_stay(changes, stay->always, stay->first_op, stay->last_op, stay->page_count);
  }
  return find_peak(changes, op_count);
}

static uint32_t peak_of_host(const struct mr_program_plan *plan, int64_t *changes) {
  uint32_t op_count = plan->program->op_count;
  for (uint32_t i = 0; i < plan->slot_count; i++) {
    const struct mr_slot *slot = &plan->slots[i];
    add_stay(changes, slot->always, slot->first_op, slot->last_op, slot->page_count);
  }
  return find_peak(changes, op_count);
}

/* A derived tensor counts as a parameter: it is a copy of one. */
static mr_role held_role(const struct mr_graph *program, mr_tensor_id tensor) {
  mr_role role = tensor == MR_NO_TENSOR ? MR_SCRATCH : program->tensors[tensor].role;
  return role == MR_DERIVED ? MR_PARAMETER : role;
}

static void hold_on_device(const struct mr_program_plan *plan, struct mr_holding *holding) {
  uint64_t held = 0;
  for (uint32_t i = 0; i < plan->instance_count; i++) {
    const struct mr_instance *stay = &plan->instances[i];
    if (stay->small || stay->on_host ||
        !covers(stay->always, stay->first_op, stay->last_op, holding->op))
      continue;
    uint64_t room = stay->page_count * plan->page_bytes;
    holding->role_bytes[held_role(plan->program, stay->tensor)] += stay->bytes;
    holding->rounding_bytes += room - stay->bytes;
    held += room;
  }
  holding->small_bytes = plan->small_bytes;
  holding->idle_bytes = plan->device_page_count * plan->page_bytes - held;
}

static void hold_on_host(const struct mr_program_plan *plan, struct mr_holding *holding) {
  uint64_t page_bytes = mr_plan_host_page_bytes(plan->page_bytes);
  uint64_t held = 0;
  for (uint32_t i = 0; i < plan->slot_count; i++) {
    const struct mr_slot *slot = &plan->slots[i];
    if (!covers(slot->always, slot->first_op, slot->last_op, holding->op)) continue;
    uint64_t room = slot->page_count * page_bytes;
    holding->role_bytes[held_role(plan->program, slot->tensor)] += slot->bytes;
    holding->rounding_bytes += room - slot->bytes;
    held += room;
  }
  holding->small_bytes = mr_program_plan_handover_bytes(plan);
  holding->idle_bytes = plan->host_page_count * page_bytes - held;
}

static void hold_on_nvme(const struct mr_plan_problem *problem, const struct mr_program_plan *plan,
                         struct mr_holding *holding) {
  for (uint32_t i = 0; i < plan->extent_count; i++) {
    const struct mr_extent *extent = &plan->extents[i];
    holding->role_bytes[held_role(plan->program, extent->tensor)] += extent->bytes;
    holding->rounding_bytes +=
        mr_round_up(extent->bytes, problem->extent_unit_bytes) - extent->bytes;
  }
}

mr_status mr_explain_holdings(const struct mr_plan_problem *problem,
                              const struct mr_program_plan *plan,
                              struct mr_holding holdings_out[MR_TIER_COUNT]) {
  uint32_t op_count = plan->program->op_count;
  struct mr_holding holdings[MR_TIER_COUNT] = {{0}};
  int64_t *changes = mr_allocate(2 * (op_count + 1ull), sizeof *changes);
  if (changes == NULL) {
    return MR_NO_MEMORY;
  }
  holdings[MR_TIER_DEVICE].op = peak_of_device(plan, changes);
  holdings[MR_TIER_HOST].op = peak_of_host(plan, changes + op_count + 1);
  free(changes);
  hold_on_device(plan, &holdings[MR_TIER_DEVICE]);
  hold_on_host(plan, &holdings[MR_TIER_HOST]);
  hold_on_nvme(problem, plan, &holdings[MR_TIER_NVME]);
  memcpy(holdings_out, holdings, sizeof holdings);
  return MR_OK;
}

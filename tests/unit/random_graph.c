/* SPDX-License-Identifier: Apache-2.0 */
/* Random training graphs, and the ops that they consist of. */
#include "unit/random_graph.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "unit/plan_programs.h"

#define MOST_INPUTS  8u
#define MOST_OUTPUTS 4u
#define NO_INPUT     UINT32_MAX

/* Most graphs are not as large as they may be, for the sake of time. Programs of more than 256 ops
 * are planned in another way. */
#define LARGE_PERCENT 4u
#define USUAL_TENSORS 52u
#define USUAL_OPS     80u

/* ---- What ops do ---- */

struct written {
  uint64_t bytes;
  uint32_t input; /* the input that it is, where it is changed in place; NO_INPUT: made whole */
  bool gradient;  /* left out in evaluation */
};

struct attributes {
  struct random_record *record;
  uint32_t number; /* of the op */
  uint32_t flags;
  uint32_t input_count, output_count;
  uint64_t input_bytes[MOST_INPUTS];
  struct written outputs[MOST_OUTPUTS];
  uint64_t scratch_bytes;
  bool derives; /* output 1 from output 0, both of this range of bytes */
  uint64_t first_byte, end_byte;
};

static uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

static uint64_t load_word(const uint8_t *bytes, uint64_t count) {
  uint64_t word = 0;
  memcpy(&word, bytes, mr_min_u64(count, sizeof word));
  return word;
}

static uint64_t sum_bytes(uint64_t sum, const uint8_t *bytes, uint64_t count) {
  for (uint64_t at = 0; at < count; at += sizeof sum) {
    sum = sum * 0x9e3779b97f4a7c15ull + load_word(bytes + at, count - at) + 1;
  }
  return mix(sum);
}

/* What is made whole depends on nothing that was there. */
static void fill(uint8_t *bytes, uint64_t count, uint64_t sum, bool in_place) {
  for (uint64_t at = 0; at < count; at += sizeof sum) {
    uint64_t old = in_place ? load_word(bytes + at, count - at) * 31 : 0;
    uint64_t word = (sum + old + at * 0x2545f491ull) * 0x9e3779b97f4a7c15ull;
    word ^= word >> 29;
    memcpy(bytes + at, &word, mr_min_u64(count - at, sizeof word));
  }
}

static uint8_t scratch_byte(const struct attributes *a, uint64_t at) {
  return (uint8_t)(a->number * 37 + at * 11 + 5);
}

static mr_status fault(const struct mr_op_call *call, const char *what) {
  mr_log(MR_LOG_ERROR, "op %s: %s", call->name == NULL ? "?" : call->name, what);
  return MR_CORRUPT;
}

static mr_status check_call(const struct attributes *a, const struct mr_op_call *call) {
  if (call->mode == MR_STEP_RESTORE && !a->derives) {
    return fault(call, "restores nothing, and was told to");
  }
  if (call->mode == MR_STEP_EVALUATE && (a->flags & MR_OP_TRAIN_ONLY) != 0) {
    return fault(call, "only trains, and was run in an evaluation");
  }
  if (call->mode != MR_STEP_RESTORE && (a->flags & MR_OP_TRAIN_ONLY) == 0 && a->record->counting &&
      call->mode != a->record->mode) {
    return fault(call, "was told the mode of another step");
  }
  uint32_t defined = call->mode == MR_STEP_RESTORE ? a->input_count : 0; /* from there on */
  for (uint32_t i = defined; i < a->input_count + a->output_count; i++) {
    const void *operand = i < a->input_count ? call->inputs[i] : call->outputs[i - a->input_count];
    if (a->record->counting && (uintptr_t)operand % 64 != 0) {
      return fault(call, "an operand is not aligned to 64 bytes");
    }
  }
  for (uint32_t o = 0; o < a->output_count; o++) {
    uint32_t input = a->outputs[o].input;
    if (input != NO_INPUT && call->inputs[input] != call->outputs[o]) {
      return fault(call, "what is changed in place has two addresses");
    }
  }
  return MR_OK;
}

static void sleep_now_and_then(uint32_t limit_us) {
  uint64_t draw = limit_us == 0 ? 0 : mix(mr_clock_ns());
  if (limit_us > 0 && draw % 8 == 0) {
    struct timespec pause = {0, (long)(draw / 8 % limit_us) * 1000};
    (void)nanosleep(&pause, NULL);
  }
}

/* Output 0 is a state, output 1 what is derived from it byte by byte. */
static void derive(const struct attributes *a, const struct mr_op_call *call, uint64_t sum) {
  uint8_t *source = call->outputs[0], *derived = call->outputs[1];
  for (uint64_t at = a->first_byte; at < a->end_byte; at++) {
    if (call->mode != MR_STEP_RESTORE) {
      source[at] = (uint8_t)(source[at] * 9 + (sum >> at % 56) + at);
    }
    derived[at] = (uint8_t)(source[at] * 29 + 71);
  }
}

static void write_outputs(const struct attributes *a, const struct mr_op_call *call, uint64_t sum) {
  for (uint32_t o = 0; o < a->output_count; o++) {
    const struct written *output = &a->outputs[o];
    if (output->gradient && call->mode == MR_STEP_EVALUATE) {
      continue;
    }
    fill(call->outputs[o], output->bytes, mix(sum + o), output->input != NO_INPUT);
  }
}

static mr_status run_op(const struct mr_op_call *call) {
  const struct attributes *a = call->attributes;
  uint64_t sum = a->number;
  mr_status status = check_call(a, call);
  if (status != MR_OK) {
    return status;
  }
  a->record->calls[a->number] += a->record->counting && call->mode != MR_STEP_RESTORE;
  for (uint64_t at = 0; at < a->scratch_bytes; at++) {
    ((uint8_t *)call->scratch)[at] = scratch_byte(a, at);
  }
  sleep_now_and_then(a->record->sleep_us);
  for (uint32_t i = 0; call->mode != MR_STEP_RESTORE && i < a->input_count; i++) {
    bool half_made = a->derives && i == a->outputs[1].input;
    sum = half_made ? sum : sum_bytes(sum, call->inputs[i], a->input_bytes[i]);
  }
  if (a->derives) {
    derive(a, call, sum);
  } else {
    write_outputs(a, call, sum);
  }
  sleep_now_and_then(a->record->sleep_us);
  for (uint64_t at = 0; at < a->scratch_bytes; at++) {
    if (((const uint8_t *)call->scratch)[at] != scratch_byte(a, at)) {
      return fault(call, "somebody wrote its scratch while it ran");
    }
  }
  return MR_OK;
}

/* ---- Which ops there are ---- */

struct maker {
  struct random_graph *into;
  struct mr_random random;
  struct random_record *record;
  bool written[RANDOM_GRAPH_TENSORS];            /* by what comes before, in a training step */
  bool written_evaluating[RANDOM_GRAPH_TENSORS]; /* in an evaluation step as well */
  bool reserved[RANDOM_GRAPH_TENSORS]; /* a source of something derived, or that: see add_derived */
  uint32_t small_percent;
  uint32_t block_ops;
};

struct draft {
  const char *kind;
  mr_tensor_id inputs[MOST_INPUTS];
  mr_tensor_id outputs[MOST_OUTPUTS];
  uint32_t input_count, output_count;
  uint32_t flags;
  uint64_t first_byte, end_byte; /* of an op that derives */
};

static uint64_t below(struct maker *m, uint64_t bound) {
  return mr_random_below(&m->random, bound);
}

static bool chance(struct maker *m, uint32_t percent) {
  return below(m, 100) < percent;
}

static mr_role role_of(const struct maker *m, mr_tensor_id tensor) {
  return mr_graph_tensor_role(m->into->graph, tensor);
}

static mr_tensor_id add_tensor(struct maker *m, mr_role role, uint64_t bytes) {
  struct random_graph *into = m->into;
  MR_ASSERT(into->tensor_count < RANDOM_GRAPH_TENSORS);
  mr_tensor_id tensor = plan_add_tensor(into->graph, role, bytes);
  m->written[tensor] = role <= MR_PARAMETER || role == MR_STATE || role == MR_DERIVED;
  m->written_evaluating[tensor] = m->written[tensor];
  into->tensor_count++;
  return tensor;
}

/* From a byte, which is below half a page of any size, to many pages. */
static uint64_t draw_bytes(struct maker *m) {
  static const uint64_t small_bytes[] = {8, 2000};
  static const uint64_t large_bytes[] = {16 * MR_KIB, 64 * MR_KIB, 64 * MR_KIB, 256 * MR_KIB};
  bool small = chance(m, m->small_percent);
  uint64_t most = small ? small_bytes[below(m, MR_COUNT_OF(small_bytes))]
                        : large_bytes[below(m, MR_COUNT_OF(large_bytes))];
  return 1 + below(m, chance(m, 3) ? 2 * MR_MIB : most);
}

static bool reads(const struct draft *op, mr_tensor_id tensor, uint32_t *place_out) {
  for (uint32_t i = 0; i < op->input_count; i++) {
    if (op->inputs[i] == tensor) {
      *place_out = i;
      return true;
    }
  }
  return false;
}

static bool writes(const struct draft *op, mr_tensor_id tensor) {
  for (uint32_t i = 0; i < op->output_count; i++) {
    if (op->outputs[i] == tensor) {
      return true;
    }
  }
  return false;
}

/* An op that runs in evaluations as well reads what is there in both, and no gradient. */
static bool is_readable(const struct maker *m, const struct draft *op, mr_tensor_id tensor) {
  return (op->flags & MR_OP_TRAIN_ONLY) != 0 ? m->written[tensor] : m->written_evaluating[tensor];
}

static void add_input(struct maker *m, struct draft *op, mr_tensor_id tensor) {
  uint32_t place = 0;
  if (op->input_count < MOST_INPUTS && is_readable(m, op, tensor) && !reads(op, tensor, &place)) {
    op->inputs[op->input_count++] = tensor;
  }
}

/* In place as often as not, where there is something to change. */
static void add_output(struct maker *m, struct draft *op, mr_tensor_id tensor) {
  if (role_of(m, tensor) == MR_INPUT || m->reserved[tensor] || writes(op, tensor) ||
      op->output_count == MOST_OUTPUTS) {
    return;
  }
  if (chance(m, 50)) {
    add_input(m, op, tensor);
  }
  op->outputs[op->output_count++] = tensor;
}

static void note_written(struct maker *m, const struct draft *op) {
  for (uint32_t i = 0; i < op->output_count; i++) {
    mr_tensor_id tensor = op->outputs[i];
    m->written[tensor] = true;
    if ((op->flags & MR_OP_TRAIN_ONLY) == 0 && role_of(m, tensor) != MR_GRADIENT) {
      m->written_evaluating[tensor] = true;
    }
  }
}

static struct attributes attributes_of(struct maker *m, const struct draft *op) {
  struct attributes a = {.record = m->record,
                         .number = m->into->op_count,
                         .flags = op->flags,
                         .input_count = op->input_count,
                         .output_count = op->output_count,
                         .scratch_bytes =
                             chance(m, 25) ? 1 + below(m, chance(m, 10) ? MR_MIB : 40 * MR_KIB) : 0,
                         .derives = op->end_byte > 0,
                         .first_byte = op->first_byte,
                         .end_byte = op->end_byte};
  for (uint32_t i = 0; i < op->input_count; i++) {
    a.input_bytes[i] = mr_graph_tensor_bytes(m->into->graph, op->inputs[i]);
  }
  for (uint32_t o = 0; o < op->output_count; o++) {
    uint32_t place = NO_INPUT;
    a.outputs[o] = (struct written){.bytes = mr_graph_tensor_bytes(m->into->graph, op->outputs[o]),
                                    .input = reads(op, op->outputs[o], &place) ? place : NO_INPUT,
                                    .gradient = role_of(m, op->outputs[o]) == MR_GRADIENT};
  }
  return a;
}

static void add_op(struct maker *m, const struct draft *op) {
  struct random_graph *into = m->into;
  uint32_t number = into->op_count;
  struct attributes a = attributes_of(m, op);
  double flops = (double)below(m, 1000000); /* one draw after the other, with every compiler */
  uint64_t memory_bytes = chance(m, 20) ? 1 + below(m, MR_MIB) : 0;
  uint32_t block = chance(m, 80) ? number / m->block_ops : MR_NO_BLOCK;
  char name[16];
  MR_ASSERT(number < RANDOM_GRAPH_OPS);
  (void)snprintf(name, sizeof name, "%s.%u", op->kind, number);
  struct mr_op_desc desc = {.size_bytes = sizeof desc,
                            .name = name,
                            .kind = op->kind,
                            .run = {run_op},
                            .attributes = &a,
                            .attributes_bytes = sizeof a,
                            .inputs = op->inputs,
                            .input_count = op->input_count,
                            .outputs = op->outputs,
                            .output_count = op->output_count,
                            .scratch_bytes = a.scratch_bytes,
                            .flops = flops,
                            .memory_bytes = memory_bytes,
                            .flags = op->flags,
                            .block = block};
  mr_op_id id = 0;
  MR_ASSERT(mr_graph_add_op(into->graph, &desc, &id) == MR_OK);
  into->flags[number] = op->flags;
  into->op_count++;
  note_written(m, op);
}

static mr_tensor_id any_tensor(struct maker *m) {
  return (mr_tensor_id)below(m, m->into->tensor_count);
}

/* One of those roles, if a few draws find any. */
static mr_tensor_id any_of(struct maker *m, uint32_t roles) {
  mr_tensor_id tensor = any_tensor(m);
  for (uint32_t i = 0; i < 8 && (roles >> role_of(m, tensor) & 1) == 0; i++) {
    tensor = any_tensor(m);
  }
  return tensor;
}

enum phase { FORWARD, BACKWARD, UPDATE, PHASES };

#define ROLE(name) (1u << MR_##name)
static const struct {
  const char *kind;
  uint32_t flags;
  uint32_t repeatable, host_capable, deferrable; /* in a hundred */
  uint32_t read, written;                        /* roles that are looked for; others occur */
} phases[PHASES] = {
    {"forward", 0, 80, 15, 0, ROLE(INPUT) | ROLE(PARAMETER) | ROLE(ACTIVATION) | ROLE(DERIVED),
     ROLE(ACTIVATION) | ROLE(SCRATCH)},
    {"backward", MR_OP_TRAIN_ONLY, 60, 15, 10,
     ROLE(PARAMETER) | ROLE(ACTIVATION) | ROLE(GRADIENT) | ROLE(DERIVED),
     ROLE(GRADIENT) | ROLE(ACTIVATION)},
    {"update", MR_OP_TRAIN_ONLY, 20, 60, 90, ROLE(GRADIENT) | ROLE(STATE) | ROLE(PARAMETER),
     ROLE(PARAMETER) | ROLE(STATE)},
};

/* The flags that an op of the phase has by its nature, and those that it draws. */
static uint32_t draw_flags(struct maker *m, enum phase phase) {
  uint32_t flags = phases[phase].flags;
  flags |= chance(m, phases[phase].repeatable) ? MR_OP_REPEATABLE : 0u;
  flags |= chance(m, phases[phase].host_capable) ? MR_OP_HOST_CAPABLE : 0u;
  flags |= chance(m, phases[phase].deferrable) ? MR_OP_DEFERRABLE : 0u;
  return flags;
}

static void add_random_op(struct maker *m, enum phase phase) {
  struct draft op = {.kind = phases[phase].kind, .flags = draw_flags(m, phase)};
  uint64_t input_count = below(m, 5);
  uint64_t output_count = chance(m, 3) ? 0 : 1 + below(m, 3);
  for (uint64_t i = 0; i < input_count; i++) {
    add_input(m, &op, chance(m, 85) ? any_of(m, phases[phase].read) : any_tensor(m));
  }
  for (uint64_t i = 0; i < output_count; i++) {
    add_output(m, &op, chance(m, 85) ? any_of(m, phases[phase].written) : any_tensor(m));
  }
  if (op.input_count + op.output_count > 0) {
    add_op(m, &op);
  }
}

/* A state and what its update derives from it, at once or in two halves, which nobody else writes.
 * What is derived must stay as the last update left it while the state does. */
static void add_derived(struct maker *m, mr_tensor_id source, mr_tensor_id derived) {
  uint64_t bytes = mr_graph_tensor_bytes(m->into->graph, source);
  uint64_t middle = bytes > 1 && chance(m, 50) ? 1 + below(m, bytes - 1) : bytes;
  enum phase phase = chance(m, 80) ? UPDATE : FORWARD;
  for (uint32_t half = 0; half < (middle < bytes ? 2u : 1u); half++) {
    struct draft op = {.kind = "derive",
                       .flags = draw_flags(m, phase),
                       .inputs = {source, derived},
                       .input_count = 1 + half,
                       .outputs = {source, derived},
                       .output_count = 2,
                       .first_byte = half == 0 ? 0 : middle,
                       .end_byte = half == 0 ? middle : bytes};
    for (uint64_t i = below(m, 4); i > 0; i--) {
      mr_tensor_id read = any_of(m, phases[phase].read);
      if (read != derived) {
        add_input(m, &op, read);
      }
    }
    add_op(m, &op);
  }
}

static void add_tensors(struct maker *m, uint32_t count) {
  static const mr_role roles[] = {MR_INPUT,      MR_PARAMETER,  MR_PARAMETER,  MR_STATE,
                                  MR_GRADIENT,   MR_GRADIENT,   MR_STATE,      MR_ACTIVATION,
                                  MR_ACTIVATION, MR_ACTIVATION, MR_ACTIVATION, MR_SCRATCH};
  for (uint32_t i = 0; i < count; i++) {
    mr_role role = i < 2 ? (mr_role)i : roles[below(m, MR_COUNT_OF(roles))];
    (void)add_tensor(m, role, draw_bytes(m));
  }
}

/* Phases in their order, now and then one out of it. */
static enum phase draw_phase(struct maker *m, uint32_t place, uint32_t count) {
  if (chance(m, 10)) {
    return (enum phase)below(m, PHASES);
  }
  return place < count / 2 ? FORWARD : place < count * 3 / 4 ? BACKWARD : UPDATE;
}

void random_graph_init(struct random_graph *random_graph, uint64_t seed,
                       struct random_record *record) {
  struct maker m = {.into = random_graph, .record = record};
  mr_tensor_id sources[4];
  *random_graph = (struct random_graph){0};
  mr_random_init(&m.random, seed);
  MR_ASSERT(mr_graph_create(&random_graph->graph) == MR_OK);
  bool large = chance(&m, LARGE_PERCENT);
  m.small_percent = 10 + (uint32_t)below(&m, 50);
  add_tensors(&m, 4 + (uint32_t)below(&m, large ? RANDOM_GRAPH_TENSORS - 12 : USUAL_TENSORS));
  uint32_t derived_count = chance(&m, 50) ? (uint32_t)below(&m, 1 + MR_COUNT_OF(sources)) : 0;
  for (uint32_t i = 0; i < derived_count; i++) { /* each beside its source */
    uint64_t bytes = draw_bytes(&m);
    sources[i] = add_tensor(&m, MR_STATE, bytes);
    m.reserved[sources[i]] = true;
    m.reserved[add_tensor(&m, MR_DERIVED, bytes)] = true;
  }
  uint32_t op_count = 1 + (uint32_t)below(&m, large ? RANDOM_GRAPH_OPS - 16 : USUAL_OPS);
  m.block_ops = 1 + (uint32_t)below(&m, 12);
  for (uint32_t i = 0; i < op_count; i++) {
    add_random_op(&m, draw_phase(&m, i, op_count));
    for (uint32_t s = 0; s < derived_count; s++) {
      if (i == op_count * (2 * s + 1) / (2 * derived_count)) {
        add_derived(&m, sources[s], sources[s] + 1);
      }
    }
  }
  if (random_graph->op_count == 0) { /* no draw found an operand */
    add_op(&m, &(struct draft){.kind = "forward", .outputs = {1}, .output_count = 1});
  }
}

void random_graph_fini(struct random_graph *random_graph) {
  mr_graph_destroy(random_graph->graph);
}

bool random_graph_lasts(const struct random_graph *random_graph, mr_tensor_id tensor) {
  mr_role role = mr_graph_tensor_role(random_graph->graph, tensor);
  return role == MR_PARAMETER || role == MR_STATE;
}

bool random_graph_is_open(const struct random_graph *random_graph, mr_tensor_id tensor) {
  return random_graph_lasts(random_graph, tensor) ||
         mr_graph_tensor_role(random_graph->graph, tensor) == MR_INPUT;
}

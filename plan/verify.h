/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the verifier share: verify_shape.c checks everything that can be said of a plan
 * without replaying it, verify_order.c and verify_memory.c keep the books, verify.c replays it.
 * Nothing here is used by the planner.
 */
#ifndef MEMRUN_PLAN_VERIFY_H
#define MEMRUN_PLAN_VERIFY_H

#include "base/base.h"
#include "plan/plan.h"

/* Steps of the proof of order: conflicts reach no further than from one to the next. */
#define MR_VERIFY_STEPS     2u
#define MR_VERIFY_DEVICE_OP UINT32_MAX
#define MR_VERIFY_UNDEFINED 0u /* the version of bytes that nobody may read */

struct mr_verify_location {
  mr_tensor_id tensor;
  uint32_t version; /* MR_VERIFY_UNDEFINED: tensor and index mean nothing */
  uint32_t index;   /* which part of the tensor: page number, or byte in the small arena */
  uint32_t owner;   /* device pages: the instance that was bound last; MR_NO_INSTANCE */
  uint32_t write_queue;
  uint32_t write_count; /* of write_queue once the last writer has finished; 0: never written */
  uint32_t read_count[MR_QUEUE_COUNT]; /* the last reader of each queue; 0: none */
  uint32_t stamp_op;       /* the last op that had it among its operands, over all steps */
  uint32_t stamp_instance; /* of which operand */
};

/* Where an instance, a slot or an extent lies: its locations in order. */
struct mr_verify_place {
  uint32_t base;
  const uint32_t *numbers;    /* location = base + numbers[k]; NULL: base + k */
  const uint64_t *boundaries; /* small arena: where the pieces start; else NULL */
  uint32_t count;
};

/* What a step runs of the program. */
enum mr_verify_mode {
  MR_VERIFY_TRAIN,    /* every op */
  MR_VERIFY_FRESH,    /* the step before left nothing to do: no deferred op */
  MR_VERIFY_FLUSH,    /* deferred ops alone */
  MR_VERIFY_EVALUATE, /* no op with MR_OP_TRAIN_ONLY */
  MR_VERIFY_RESTORE,  /* none: derived tensors are restored, which have no value before */
};

/* One instruction while it is replayed. */
struct mr_verify_actor {
  uint32_t step, queue, index;
  uint32_t count; /* of its queue once it has finished, over all steps */
  const struct mr_instruction *instruction;
  const uint32_t *clock; /* how much of each queue has surely finished when it starts */
};

struct mr_verify_turn {
  uint32_t queue, index;
};

struct mr_verifier {
  const struct mr_plan_problem *problem;
  const struct mr_program_plan *plan;
  const struct mr_graph *graph;
  /* Device pages, small pieces, host pages, extents, what ops on the host are handed. */
  struct mr_verify_location *locations;
  uint32_t small_base, host_base, extent_base, handover_base, location_count;
  uint64_t *boundaries; /* of small instances, ascending, each once */
  uint32_t boundary_count;
  uint32_t *stamps;             /* for each location: who named it last while lists are checked */
  uint32_t *versions;           /* of each tensor at the end of the step, by the program;
                                   MR_VERIFY_UNDEFINED: not written */
  uint32_t *newest;             /* the last version number given to each tensor */
  uint32_t *operand_versions;   /* that ops read and write in this step, by the program */
  uint32_t *host_index;         /* for each op: its instruction of the queue of the host, or
                                   MR_VERIFY_DEVICE_OP */
  struct mr_verify_turn *order; /* one order of a step that the waits allow */
  uint32_t order_count;
  uint32_t queue_base[MR_QUEUE_COUNT]; /* number of instructions on the queues before */
  uint32_t (*clocks)[MR_QUEUE_COUNT];  /* [step * order_count + queue_base + index] */
  enum mr_verify_mode mode;
  bool ordered; /* check the order of accesses in this replay */
};

const char *mr_verify_queue_name(uint32_t queue);
bool mr_verify_is_nvme(uint32_t queue);
const char *mr_verify_tensor_name(const struct mr_verifier *v, mr_tensor_id tensor);

/* True where op k lies in the instance's stay. */
bool mr_verify_covers(const struct mr_instance *instance, uint32_t k);

/* Inputs, parameters and states rest somewhere between steps, and so do carried tensors, and
 * derived ones that are not made anew. */
bool mr_verify_has_home(const struct mr_verifier *v, mr_tensor_id tensor);

/* Log a fault of the plan as a whole, or of one instruction; MR_CORRUPT. */
mr_status mr_verify_plan_fault(const char *format, ...) MR_PRINTF(1, 2);
mr_status mr_verify_actor_fault(const struct mr_verifier *v, const struct mr_verify_actor *actor,
                                const char *format, ...) MR_PRINTF(3, 4);

/* Page size, budgets. Reads nothing but numbers; comes first. */
MR_CHECK_RESULT mr_status mr_verify_frame(const struct mr_verifier *v);

/* Instances, slots, extents and homes: in range, of the right size, none naming a page twice. */
MR_CHECK_RESULT mr_status mr_verify_stays(struct mr_verifier *v);

/* Operands, moves, waits and births: what they name exists and is of the right tensor. */
MR_CHECK_RESULT mr_status mr_verify_instructions(const struct mr_verifier *v);

/* The queue of the host: ops in order that may run there, where that is. Fills in host_index. */
MR_CHECK_RESULT mr_status mr_verify_host_queue(struct mr_verifier *v);

/* The locations and versions of a plan whose lists are checked; undone by fini, also after a
 * failure. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_verify_memory_init(struct mr_verifier *v);
void mr_verify_memory_fini(struct mr_verifier *v);

/* Whether a step of the present mode runs the op. */
bool mr_verify_runs_op(const struct mr_verifier *v, mr_op_id op);
/* What an op reads of its inputs and writes of its outputs: all, or where a step leaves it out and
 * it restores what it derives, that alone, from what it changes in place. */
bool mr_verify_takes(const struct mr_verifier *v, mr_op_id op, mr_tensor_id input);
bool mr_verify_gives(const struct mr_verifier *v, mr_op_id op, mr_tensor_id output);
/* Gives the step's writes their numbers and notes who reads which, in program order. */
void mr_verify_number_versions(struct mr_verifier *v);

struct mr_verify_actor mr_verify_actor_make(const struct mr_verifier *v, uint32_t step,
                                            struct mr_verify_turn turn);

/* Finds one order of a step and every instruction's clock. A plan that hangs is a fault. */
MR_CHECK_RESULT mr_status mr_verify_order(struct mr_verifier *v);

#endif

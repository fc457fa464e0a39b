/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph/ holds what a training step is: pure values, no threads, no devices, no files.
 *
 * Nouns. A *tensor* is named storage with a role that decides its lifetime. An *op* is a callback
 * with operands, a cost and flags. A *graph* is ops in program order over tensors. An *access* is
 * one op touching one tensor: it reads, writes or does both (an in-place change). The *liveness* of
 * a graph lists the accesses of each tensor in program order; everything that places, moves or
 * recomputes works on those lists.
 *
 * Lifetimes. Inputs live on the device from before the step to its end. Parameters and states are
 * persistent: the step is a circle for them, and the way from the last access of one step to the
 * first of the next is a gap like any other. Derived tensors are persistent, too, but dead from
 * their last access to the next op that makes them; in a program with deferred ops, where that op
 * is the first in a step to touch them, they live inside one step. Gradients, activations and
 * scratch live from their first write to their last access; in a program with deferred ops some of
 * them, carried, live on into the next step.
 *
 * Invariants, kept by mr_graph_add_op: operands exist, nothing is read before it is written, an op
 * names a tensor at most once among its inputs and once among its outputs, and no op writes an
 * input tensor. Passes (recompute, later parallelism) make a new graph with mr_graph_copy_tensors
 * and mr_graph_append_op; they never change one.
 */
#ifndef MEMRUN_GRAPH_INTERNAL_H
#define MEMRUN_GRAPH_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include <memrun/graph.h>

#define MR_NO_TENSOR UINT32_MAX
#define MR_NO_OP     UINT32_MAX

struct mr_tensor {
  char *name;
  mr_role role;
  mr_dtype dtype;
  uint32_t rank;
  uint64_t shape[MR_MAX_RANK];
  uint64_t bytes;
  bool carried;   /* written in one step, read for the last time in the next: see mr_graph_defer */
  bool used_late; /* by deferred ops */
  bool made_anew; /* derived, and a deferred op makes it before any other touches it */
  bool written; /* by the client before the step, or by an op so far: building alone looks at it */
};

struct mr_op {
  char *name;
  char *kind;
  char *signature; /* NULL: none */
  mr_op_run run[MR_BACKEND_COUNT];
  void *attributes; /* NULL: none */
  size_t attributes_bytes;
  mr_tensor_id *inputs;
  mr_tensor_id *outputs;
  uint32_t input_count;
  uint32_t output_count;
  uint64_t scratch_bytes;
  double flops;
  uint64_t memory_bytes; /* never 0 unless there are no operands */
  uint32_t flags;
  uint32_t block;
  bool deferred;     /* it does what the step before left to do: see mr_graph_defer */
  mr_op_id clone_of; /* the op of the client's graph that this one repeats; MR_NO_OP: an original */
  mr_tensor_id remade; /* of a clone: the client's tensor that it makes again, the first of them */
};

struct mr_graph {
  struct mr_tensor *tensors;
  uint32_t tensor_count;
  uint32_t tensor_capacity;
  struct mr_op *ops;
  uint32_t op_count;
  uint32_t op_capacity;
  uint32_t *name_slots; /* open-addressing hash of tensor names: tensor id + 1, 0 is free */
  uint32_t name_slot_count;
  uint32_t staying_count; /* ops that stayed because mr_graph_defer was told so */
};

/* True for parameters, states and derived tensors: their bytes last from step to step. */
bool mr_role_is_persistent(mr_role role);

/* Whether a tensor of the role holds something before any op writes it. */
bool mr_tensor_begins_written(mr_role role);

/* True where the tensor's bytes go round the end of the step: it is persistent or carried, and not
 * made anew in every step. */
bool mr_tensor_goes_round(const struct mr_tensor *tensor);

/* Whether the tensor is among the op's inputs, or its outputs. */
bool mr_op_reads(const struct mr_op *op, mr_tensor_id tensor);
bool mr_op_writes(const struct mr_op *op, mr_tensor_id tensor);

/* Whether the op writes a derived tensor, which it restores where a round leaves it out. */
bool mr_op_restores(const struct mr_graph *graph, mr_op_id op);

/* Whether the host may run the op: MR_OP_HOST_CAPABLE. */
bool mr_op_is_host_capable(const struct mr_graph *graph, mr_op_id op);

/* A graph with the same tensors, in the same order, and no ops. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_graph_copy_tensors(const struct mr_graph *graph,
                                                struct mr_graph **copy_out);

/*
 * Appends a copy of `op` of another graph with its operands replaced by map[tensor]; `suffix` is
 * added to its name, and clone_of and remade are set. Same checks as mr_graph_add_op.
 */
MR_CHECK_RESULT mr_status mr_graph_append_op(struct mr_graph *graph, const struct mr_op *op,
                                             const mr_tensor_id *map, const char *suffix,
                                             mr_op_id clone_of);

/*
 * The program in which ops with MR_OP_DEFERRABLE run at the start of the next step. Each goes right
 * before the first op that touches what it writes, or writes what it reads; those that go to one
 * place keep their order. So every op finds the bytes that it would find in the graph, two steps in
 * a row provided. An op stays where it is if an op behind it in the step touches what it writes or
 * writes what it reads, if it reads an input, which the client overwrites between the steps, or if
 * nothing touches what it writes.
 *
 * Tensors and their ids are the graph's. Deferred ops are marked, and so are the tensors that they
 * find written by the step before without being persistent: *carried* tensors. A carried tensor's
 * life begins at the first op that writes it without reading it, goes round the end of the step,
 * and ends with the last deferred op that touches it. All that deferred ops use is marked too.
 *
 * The last `staying` ops with the flag stay in any case: ops of a queue beside the device, which
 * runs on into the next step whatever the device does, and would start later were they deferred.
 *
 * *program_out is NULL where no op can be deferred. The caller destroys it. MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_graph_defer(const struct mr_graph *graph, uint32_t staying,
                                         struct mr_graph **program_out);

struct mr_access {
  mr_op_id op;
  bool reads;
  bool writes;
};

/* accesses[first[t] .. first[t + 1]) are tensor t's, in program order, one for each op that touches
 * it. */
struct mr_liveness {
  struct mr_access *accesses;
  uint32_t *first; /* tensor_count + 1 */
  uint32_t tensor_count;
};

MR_CHECK_RESULT mr_status mr_liveness_init(struct mr_liveness *liveness,
                                           const struct mr_graph *graph);
void mr_liveness_fini(struct mr_liveness *liveness);

/* The bytes of an op's distinct operands and scratch, each rounded up to `unit` (1: none). */
uint64_t mr_op_working_bytes(const struct mr_graph *graph, mr_op_id op, uint64_t unit);

/* What tells one graph from another of the same library: names, roles, sizes, operands, costs and
 * flags; not what callbacks and attributes hold. */
struct mr_digest {
  uint32_t op_count;
  uint32_t tensor_count;
  uint64_t bytes; /* of all tensors */
  double flops;   /* of all ops */
  uint64_t hash;
};
void mr_graph_digest(const struct mr_graph *graph, struct mr_digest *digest_out);

#endif

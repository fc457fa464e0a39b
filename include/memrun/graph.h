/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A graph is one training step: tensors, and ops in program order over them. The client builds it
 * once; memrun decides where every tensor is at every moment and runs it step after step.
 *
 * A tensor is named storage. An op reads its inputs and writes its outputs; an op that names one
 * tensor among both changes it in place. Program order gives the meaning: an op sees what the last
 * op before it wrote. Parameters and states keep their bytes from step to step; inputs are written
 * by the client before a step; gradients, activations and scratch live inside one step, from the op
 * that first writes them to the op that last touches them.
 *
 * Large tensors move as a whole, so an optimizer state that is wanted in pieces is built as several
 * tensors.
 *
 * Threads: building is single threaded. A finished graph is immutable and may be read by any
 * thread.
 */
#ifndef MEMRUN_GRAPH_H
#define MEMRUN_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#include <memrun/status.h>
#include <memrun/team.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MR_MAX_RANK     8u  /* dimensions of a tensor */
#define MR_MAX_OPERANDS 64u /* inputs, and outputs, of one op */
#define MR_NO_BLOCK     UINT32_MAX

typedef uint32_t mr_tensor_id; /* index into the graph's tensors, in the order they were added */
typedef uint32_t mr_op_id;     /* index into the graph's ops: program order */

typedef enum mr_dtype {
  MR_F32 = 0,
  MR_BF16 = 1,
  MR_F64 = 2,
  MR_I32 = 3,
  MR_I64 = 4,
  MR_U8 = 5,
} mr_dtype;

typedef enum mr_role {
  MR_INPUT = 0,     /* written by the client before a step; stays on the device */
  MR_PARAMETER = 1, /* persistent */
  MR_GRADIENT = 2,  /* inside one step */
  MR_STATE = 3,     /* persistent: optimizer states, losses, norms */
  MR_ACTIVATION = 4,
  MR_SCRATCH = 5,
  /* Persistent, and the client neither reads nor writes it: each op that writes it makes it from
   * what the op changes in place, such as a parameter's copy in bf16 by the update. So memrun may
   * drop it between its last use and the next op that writes it without reading it, and has those
   * ops restore it where a step leaves them out (MR_STEP_RESTORE). */
  MR_DERIVED = 6,
} mr_role;

typedef enum mr_backend {
  MR_BACKEND_CPU = 0,
  MR_BACKEND_CUDA = 1,
  MR_BACKEND_COUNT = 2,
} mr_backend;

enum {
  /* Running the op again on the same inputs gives the same bits, so it may be recomputed. */
  MR_OP_REPEATABLE = 1u << 0,
  /* Skipped in an evaluation step: backward passes and updates. */
  MR_OP_TRAIN_ONLY = 1u << 1,
  /* The callback of MR_BACKEND_CPU may get operands that lie in the host tier, so that tensors
   * which it alone uses need not come to the device: for ops that move more bytes than they
   * compute, such as an optimizer's updates or an embedding. Beside a device whose memory the
   * processor cannot read, it gets all operands on the host and runs while the device computes,
   * where the plan finds that faster; so it must give the same bits as the device's callback, and
   * an op with scratch, with an output below half a page, with more than 256 KiB of inputs below
   * half a page, or with a larger MR_INPUT stays on the device. */
  MR_OP_HOST_CAPABLE = 1u << 2,
  /* An update whose effect is wanted in the next step at the earliest: memrun may run it there,
   * right before the first op that needs it, so that its traffic overlaps the forward pass. It
   * counts as done when its step is over: evaluation steps, mr_run_read, mr_run_write and
   * mr_run_sync see its effect. Where an op of the same step uses what it writes, or it reads an
   * input, it is never moved: copy what it wants of an input in an op of its step. Nor is
   * one without MR_OP_TRAIN_ONLY. */
  MR_OP_DEFERRABLE = 1u << 3,
};

typedef enum mr_step_mode {
  MR_STEP_TRAIN = 0,
  MR_STEP_EVALUATE = 1, /* ops with MR_OP_TRAIN_ONLY are skipped; an op that runs in both leaves out
                           its gradients */
  /* Not a step: the op is left out, and makes what it writes of MR_DERIVED tensors again, as it was
   * after it last ran. It may read the inputs that it also writes, and changes nothing else; its
   * other operands are undefined. Ops that write no such tensor never see it. */
  MR_STEP_RESTORE = 2,
} mr_step_mode;

/*
 * What an op's callback gets. `inputs` and `outputs` are in the order of the description, on the
 * device (or on the host: MR_OP_HOST_CAPABLE), 64-byte aligned and valid during the call alone; an
 * in-place tensor has the same address in both. `scratch` has scratch_bytes bytes of undefined
 * content, 64-byte aligned, NULL where none was asked for.
 *
 * A callback for MR_BACKEND_CUDA gets device addresses, which the processor cannot read, and no
 * team: it enqueues its work on `stream` (a CUstream, in the context that is the thread's) and
 * returns without waiting. `stream` is NULL for MR_BACKEND_CPU.
 *
 * When a plan is made, ops are run on zeros: on the processor those of a kind and size that the
 * profile does not know, a few times each, so that the first forecast goes by what they take; on a
 * CUDA device one of each kind and size once, so that what libraries take of the device is known.
 * An op must bear that.
 */
struct mr_op_call {
  const void *attributes;
  void *const *inputs;
  void *const *outputs;
  void *scratch;
  struct mr_team *team;
  mr_step_mode mode;
  void *stream;
  const char *name; /* the op's, for messages */
};

/* Runs the op. A status other than MR_OK ends the run with that status; the callback logs the
 * reason. */
typedef mr_status (*mr_op_run)(const struct mr_op_call *call);

struct mr_tensor_desc {
  size_t size_bytes; /* sizeof(struct mr_tensor_desc) */
  const char *name;  /* copied; unique, not empty */
  mr_role role;
  mr_dtype dtype;
  uint32_t rank;               /* 0 (a scalar) to MR_MAX_RANK */
  uint64_t shape[MR_MAX_RANK]; /* elements, row major, outermost first; none may be 0 */
};

struct mr_op_desc {
  size_t size_bytes; /* sizeof(struct mr_op_desc) */
  const char *name;  /* copied; for people: "h.3.attn.forward" */
  const char *kind;  /* copied; ops of one kind share a measured rate: "linear.forward" */
  const char
      *signature; /* copied; index signature such as "bsh,ho->bso"; NULL where there is none */
  mr_op_run run[MR_BACKEND_COUNT];
  const void *attributes; /* copied (attributes_bytes); passed to run */
  size_t attributes_bytes;
  const mr_tensor_id *inputs; /* copied */
  uint32_t input_count;
  const mr_tensor_id *outputs; /* copied; a tensor that is also an input is changed in place */
  uint32_t output_count;
  uint64_t scratch_bytes;
  double flops;          /* floating-point operations; 0 where bytes alone matter */
  uint64_t memory_bytes; /* bytes moved to and from memory; 0: the sum of all operands */
  uint32_t flags;        /* MR_OP_* */
  uint32_t block;        /* ops of one block (a layer) are recomputed together; MR_NO_BLOCK: none */
};

struct mr_graph;

/* Creates an empty graph; the caller destroys it after every plan and run made from it.
 * MR_NO_MEMORY. */
MR_API MR_CHECK_RESULT mr_status mr_graph_create(struct mr_graph **graph_out);
MR_API void mr_graph_destroy(struct mr_graph *graph);

/*
 * Adds a tensor. MR_INVALID: a name that is empty or taken, a shape with a 0, more than 2^48 bytes,
 * size_bytes below that of this header's description; MR_NO_MEMORY.
 */
MR_API MR_CHECK_RESULT mr_status mr_graph_add_tensor(struct mr_graph *graph,
                                                     const struct mr_tensor_desc *desc,
                                                     mr_tensor_id *tensor_out);

/*
 * Adds an op at the end of the program. MR_INVALID: an unknown tensor, a tensor that is read before
 * anything wrote it (inputs, parameters and states are written before the step), an input tensor
 * among the outputs, one tensor twice among the inputs or among the outputs, no callback at all,
 * more than 2^48 bytes of scratch, operations that are no number from 0 to 1e30, flags that are
 * none of MR_OP_*, bytes of attributes that are NULL, size_bytes below that of this header's
 * description; MR_NO_MEMORY.
 */
MR_API MR_CHECK_RESULT mr_status mr_graph_add_op(struct mr_graph *graph,
                                                 const struct mr_op_desc *desc, mr_op_id *op_out);

MR_API uint32_t mr_graph_tensor_count(const struct mr_graph *graph);
MR_API uint32_t mr_graph_op_count(const struct mr_graph *graph);

/* The bytes of an element; 0 for a value that is no dtype. */
MR_API uint64_t mr_dtype_bytes(mr_dtype dtype);

/* The tensor of that name; MR_INVALID where there is none (nothing is logged). */
MR_API MR_CHECK_RESULT mr_status mr_graph_find(const struct mr_graph *graph, const char *name,
                                               mr_tensor_id *tensor_out);

/* A tensor's name (the graph's storage), role and bytes. The id must be one of the graph's. */
MR_API const char *mr_graph_tensor_name(const struct mr_graph *graph, mr_tensor_id tensor);
MR_API mr_role mr_graph_tensor_role(const struct mr_graph *graph, mr_tensor_id tensor);
MR_API uint64_t mr_graph_tensor_bytes(const struct mr_graph *graph, mr_tensor_id tensor);

#ifdef __cplusplus
}
#endif
#endif

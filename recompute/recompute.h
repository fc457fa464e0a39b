/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recompute/ says what making activations again would gain and cost, and rewrites a program so that
 * it does.
 *
 * Nouns. A *block* is the ops that the client gave one block number (a layer). In a block some
 * activations are read again after its last forward op: each is *saved* or *remade*. A *choice* is
 * a set of remade tensors in which everything that a remade tensor needs is saved, remade too, or
 * lives anyway. The *menu* of a block lists choices from "save all" to "remake all that can be" in
 * the order of bytes freed; each is a minimum cut: the labelling "remake these, save those" with
 * least (seconds of ops run again + price * bytes saved) for a price of a byte, which is swept. An
 * op is remade at most once for each block, its outputs counted once, whole; ops without
 * MR_OP_REPEATABLE, ops that change a tensor in place and ops whose inputs were changed since are
 * never remade.
 *
 * The pass appends clones of the chosen ops right before the first later op of the program that
 * needs what they make, writing to fresh tensors; later readers read those, so the original tensors
 * die after their forward readers.
 *
 * Not here: which choice is best for a budget; runtime/ plans with several and keeps the fastest.
 */
#ifndef MEMRUN_RECOMPUTE_RECOMPUTE_H
#define MEMRUN_RECOMPUTE_RECOMPUTE_H

#include <stdint.h>

#include "graph/graph.h"

struct mr_recompute_choice {
  uint64_t freed_bytes; /* activations that need not live from forward to backward */
  double seconds;       /* of ops run again */
  mr_op_id *ops;        /* run again, in program order */
  uint32_t op_count;
};

struct mr_recompute_block {
  uint32_t block;
  struct mr_recompute_choice
      *choices; /* choices[0] remakes nothing; freed_bytes and seconds ascend */
  uint32_t choice_count;
};

struct mr_recompute_menu {
  struct mr_recompute_block *blocks; /* in the order of their first op */
  uint32_t block_count;
};

/* op_seconds: for each op. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_recompute_menu_init(struct mr_recompute_menu *menu,
                                                 const struct mr_graph *graph,
                                                 const double *op_seconds);
void mr_recompute_menu_fini(struct mr_recompute_menu *menu);

/*
 * The program with selected[b] applied to block b. Its tensors begin with all of the graph's, in
 * order, so tensor ids stay valid; its ops name their originals in clone_of. The caller destroys
 * it. MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_recompute_apply(const struct mr_recompute_menu *menu,
                                             const struct mr_graph *graph, const uint32_t *selected,
                                             struct mr_graph **program_out);

#endif

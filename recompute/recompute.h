/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recompute/ says what making activations again would gain and cost, and rewrites a program so that
 * it does.
 *
 * Nouns. A *block* is the ops that the client gave one block number (a layer); its *forward ops*
 * are those without MR_OP_TRAIN_ONLY. Some activations that they make are read again by ops with
 * that flag (the backward pass): each is *saved* or *remade*. A *choice* is a set of ops that run
 * again; everything that they need is saved, remade too, or lives anyway. The *menu* of a block
 * lists choices from "save all" to the one that saves least, in the order of bytes freed; each is a
 * minimum cut: the labelling "remake these, save those" with least cost, seconds of ops run again
 * plus bytes saved times the price of a byte; the price is swept. The last choice is
 * MR_RECOMPUTE_FULL's: what crosses the block's border is saved, everything else that can be remade
 * is, unless remaking it would keep more bytes alive than it frees. It does not depend on what the
 * ops take: what two choices that save least have in common saves as little.
 *
 * What can be remade. A value that no forward op of another block touches and no forward op changes
 * in place; backward ops may carry any block number, or none. Its producer has MR_OP_REPEATABLE,
 * changes nothing in place, writes nothing that lasts, and finds its inputs unchanged wherever the
 * clone may go: a parameter that is updated in place at the end of the step is, one that is updated
 * before the clone's last possible place is not.
 *
 * The pass puts clones of the chosen ops right before the first later op of the program that needs
 * what they make, each at most once, writing to fresh tensors; later readers read those, so the
 * original tensors die after their forward readers. Clones serve the backward pass alone and carry
 * MR_OP_TRAIN_ONLY.
 *
 * Gradient accumulation: micro-steps that are unrolled into one program need block numbers of their
 * own; they may share tensors.
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
 * The program with choice selected[b] applied to block b. Its tensors begin with all of the
 * graph's, in order, so tensor ids stay valid. A clone names the op that it repeats in clone_of;
 * the ops without one are the graph's, all of them, in order. The caller destroys it. MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_recompute_apply(const struct mr_recompute_menu *menu,
                                             const struct mr_graph *graph, const uint32_t *selected,
                                             struct mr_graph **program_out);

/*
 * The same program from the ops that run again (the clone_of of its clones), in any order.
 * MR_INVALID (nothing is logged): an op that does not exist or may not be repeated; MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_recompute_repeat(const struct mr_graph *graph, const mr_op_id *ops,
                                              uint32_t op_count, struct mr_graph **program_out);

#endif

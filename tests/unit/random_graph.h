/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random training graphs without the shape of a model: any op may touch any tensor that the public
 * interface lets it touch. Tensors have one byte to 2 MiB; ops read none to four of them and write
 * none to three, whole or in place, some with scratch; updates read what other updates wrote; what
 * one op makes may be made again by another. Each op mixes all bytes of its inputs into every byte
 * that it writes, and looks at how it is called. A graph is a function of its seed.
 */
#ifndef MEMRUN_TESTS_UNIT_RANDOM_GRAPH_H
#define MEMRUN_TESTS_UNIT_RANDOM_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include <memrun/graph.h>

#define RANDOM_GRAPH_TENSORS 160u
#define RANDOM_GRAPH_OPS     336u

/* What the ops of a graph share with the test. */
struct random_record {
  bool counting;     /* how often each op runs; their operands are in a run's memory */
  mr_step_mode mode; /* of the step, while that is so */
  uint32_t sleep_us; /* an op sleeps up to so long now and then; 0: never */
  uint32_t calls[RANDOM_GRAPH_OPS];
};

struct random_graph {
  struct mr_graph *graph;
  uint32_t tensor_count;
  uint32_t op_count;
  uint32_t flags[RANDOM_GRAPH_OPS]; /* MR_OP_* of each op */
};

/* The record must outlive the graph and stay where it is. */
void random_graph_init(struct random_graph *random_graph, uint64_t seed,
                       struct random_record *record);
void random_graph_fini(struct random_graph *random_graph);

/* Whether the client may read and write the tensor, and whether it keeps what steps make of it. */
bool random_graph_is_open(const struct random_graph *random_graph, mr_tensor_id tensor);
bool random_graph_lasts(const struct random_graph *random_graph, mr_tensor_id tensor);

#endif

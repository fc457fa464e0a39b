/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Minimum cuts of small directed graphs with integer capacities, by Dinic's algorithm (E. A.
 * Dinic, "Algorithm for solution of a problem of maximum flow in networks with power estimation",
 * 1970), without recursion. Capacities are 128 bits wide, so that products of bytes and picoseconds
 * are exact. One thread at a time.
 */
#ifndef MEMRUN_RECOMPUTE_CUT_H
#define MEMRUN_RECOMPUTE_CUT_H

#include <stdbool.h>
#include <stdint.h>

#include <memrun/status.h>

typedef unsigned __int128 mr_cut_capacity;

#define MR_CUT_SOURCE   0u
#define MR_CUT_SINK     1u
#define MR_CUT_INFINITE ((mr_cut_capacity)1 << 126)

struct mr_cut_edge {
  uint32_t to;
  uint32_t next;             /* of the same tail; UINT32_MAX: none */
  mr_cut_capacity capacity;  /* as given */
  mr_cut_capacity remaining; /* in the residual graph */
};

/* Edge 2i goes forward, edge 2i + 1 is its reverse. */
struct mr_cut {
  struct mr_cut_edge *edges;
  uint32_t edge_count;
  uint32_t edge_capacity;
  uint32_t *first; /* of each node */
  uint32_t *level; /* after solving: UINT32_MAX for nodes on the sink's side */
  uint32_t *at;    /* the edge at which the search goes on */
  uint32_t *queue; /* nodes to visit, and the edges of the path */
  uint32_t node_count;
};

/* Nodes 0 (source) and 1 (sink) are among the node_count (>= 2). MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_cut_init(struct mr_cut *cut, uint32_t node_count);
void mr_cut_fini(struct mr_cut *cut);

/* Adds an edge with no capacity yet; edges are numbered from 0. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_cut_add(struct mr_cut *cut, uint32_t from, uint32_t to);
void mr_cut_set(struct mr_cut *cut, uint32_t edge, mr_cut_capacity capacity);

/* Finds the minimum cut with the fewest nodes on the source's side. The sum of the finite
 * capacities stays below MR_CUT_INFINITE. */
void mr_cut_solve(struct mr_cut *cut);
bool mr_cut_on_source_side(const struct mr_cut *cut, uint32_t node);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Dinic's algorithm: layers by breadth-first search, then a blocking flow with explicit paths. */
#include "recompute/cut.h"

#include <stdlib.h>

#include "base/base.h"

#define NONE UINT32_MAX

mr_status mr_cut_init(struct mr_cut *cut, uint32_t node_count) {
  *cut = (struct mr_cut){.node_count = node_count};
  cut->first = mr_allocate(node_count, sizeof *cut->first);
  cut->level = mr_allocate(node_count, sizeof *cut->level);
  cut->at = mr_allocate(node_count, sizeof *cut->at);
  cut->queue = mr_allocate(node_count, sizeof *cut->queue);
  if (cut->first == NULL || cut->level == NULL || cut->at == NULL || cut->queue == NULL) {
    mr_cut_fini(cut);
    return MR_NO_MEMORY;
  }
  for (uint32_t i = 0; i < node_count; i++) {
    cut->first[i] = NONE;
  }
  return MR_OK;
}

void mr_cut_fini(struct mr_cut *cut) {
  free(cut->edges);
  free(cut->first);
  free(cut->level);
  free(cut->at);
  free(cut->queue);
  *cut = (struct mr_cut){0};
}

static void edge_append(struct mr_cut *cut, uint32_t from, uint32_t to) {
  cut->edges[cut->edge_count] = (struct mr_cut_edge){.to = to, .next = cut->first[from]};
  cut->first[from] = cut->edge_count++;
}

mr_status mr_cut_add(struct mr_cut *cut, uint32_t from, uint32_t to) {
  MR_ASSERT(from < cut->node_count && to < cut->node_count);
  mr_status status = mr_array_reserve((void **)&cut->edges, &cut->edge_capacity,
                                      cut->edge_count + 2ull, sizeof *cut->edges);
  if (status == MR_OK) {
    edge_append(cut, from, to);
    edge_append(cut, to, from);
  }
  return status;
}

void mr_cut_set(struct mr_cut *cut, uint32_t edge, mr_cut_capacity capacity) {
  MR_ASSERT(edge < cut->edge_count / 2 && capacity <= MR_CUT_INFINITE);
  cut->edges[2ull * edge].capacity = capacity;
}

/* Distances from the source in the residual graph; true where the sink is reached. */
static bool layers_find(struct mr_cut *cut) {
  for (uint32_t i = 0; i < cut->node_count; i++) {
    cut->level[i] = NONE;
    cut->at[i] = cut->first[i];
  }
  uint32_t count = 0;
  cut->queue[count++] = MR_CUT_SOURCE;
  cut->level[MR_CUT_SOURCE] = 0;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t node = cut->queue[i];
    for (uint32_t e = cut->first[node]; e != NONE; e = cut->edges[e].next) {
      uint32_t to = cut->edges[e].to;
      if (cut->edges[e].remaining > 0 && cut->level[to] == NONE) {
        cut->level[to] = cut->level[node] + 1;
        cut->queue[count++] = to;
      }
    }
  }
  return cut->level[MR_CUT_SINK] != NONE;
}

/* Sends what the path allows and returns how many of its edges come before the first full one. */
static uint32_t path_send(struct mr_cut *cut, uint32_t length) {
  mr_cut_capacity amount = cut->edges[cut->queue[0]].remaining;
  for (uint32_t i = 1; i < length; i++) {
    mr_cut_capacity remaining = cut->edges[cut->queue[i]].remaining;
    amount = remaining < amount ? remaining : amount;
  }
  uint32_t kept = length;
  for (uint32_t i = length; i-- > 0;) {
    uint32_t e = cut->queue[i];
    cut->edges[e].remaining -= amount;
    cut->edges[e ^ 1u].remaining += amount;
    kept = cut->edges[e].remaining == 0 ? i : kept;
  }
  return kept;
}

static void flow_block(struct mr_cut *cut) {
  uint32_t length = 0; /* of the path in queue[] */
  for (;;) {
    uint32_t node = length == 0 ? MR_CUT_SOURCE : cut->edges[cut->queue[length - 1]].to;
    if (node == MR_CUT_SINK) {
      length = path_send(cut, length);
      continue;
    }
    uint32_t e = cut->at[node];
    while (e != NONE &&
           (cut->edges[e].remaining == 0 || cut->level[cut->edges[e].to] != cut->level[node] + 1)) {
      e = cut->edges[e].next;
    }
    cut->at[node] = e;
    if (e != NONE) {
      cut->queue[length++] = e;
    } else if (length > 0) {
      uint32_t dead = cut->queue[--length];
      cut->at[cut->edges[dead ^ 1u].to] = cut->edges[dead].next;
    } else {
      return;
    }
  }
}

void mr_cut_solve(struct mr_cut *cut) {
  for (uint32_t e = 0; e < cut->edge_count; e++) {
    cut->edges[e].remaining = cut->edges[e].capacity;
  }
  while (layers_find(cut)) {
    flow_block(cut);
  }
}

bool mr_cut_on_source_side(const struct mr_cut *cut, uint32_t node) {
  return cut->level[node] != NONE;
}

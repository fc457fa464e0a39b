/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The menu of a block, by minimum cuts.
 *
 * In the graph that is cut, an op on the source's side runs again and pays its seconds through an
 * edge to the sink. Each value that somebody needs has a node that everyone who needs it reaches
 * through an infinite edge: the source for a value that the backward pass reads, an op that runs
 * again for its inputs. From that node an edge of price * bytes leads to the op that makes the
 * value (or to the sink, where that op may not run again): it is cut, and the bytes are paid,
 * exactly when somebody needs the value and its producer does not run again. Values that live
 * anyway have no node.
 *
 * Prices are swept from both ends: the line through two neighbouring choices in the plane of
 * seconds and bytes gives the one price at which a choice between them could be better than both.
 * What the sweep finds is the lower convex hull, each corner once. Costs are picoseconds and bytes,
 * so the arithmetic is exact.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "recompute/cut.h"
#include "recompute/recompute.h"
#include "recompute/values.h"

#define NONE               UINT32_MAX
#define PICOSECONDS        1e12
#define LONGEST_OP_SECONDS 1e3 /* keeps products with bytes far below MR_CUT_INFINITE */

/* A corner of the hull. */
struct corner {
  uint64_t picoseconds;
  uint64_t saved_bytes;
  mr_op_id *ops;
  uint32_t op_count;
};

struct node_cost {
  uint32_t edge;
  uint32_t head; /* the node that the edge leads to */
  uint64_t cost; /* picoseconds of an op, bytes of a value */
};

/* The graph of one block, and the hull found so far. */
struct block_cut {
  const struct mr_values *values;
  const double *op_seconds;
  const mr_op_id *ops; /* of the block, in program order */
  uint32_t op_count;
  struct mr_cut cut;
  uint32_t edge_count;
  uint32_t *op_node;       /* of each op of the program; NONE: may not run again */
  uint32_t *value_node;    /* of each value; NONE: no node yet */
  struct node_cost *costs; /* of each node */
  uint32_t first_value_node;
  uint32_t node_count;
  uint64_t needed_bytes; /* of remakable values that the backward pass reads */
  uint64_t total_picoseconds;
  struct corner *corners;
  uint32_t corner_count;
  uint32_t corner_capacity;
};

static uint64_t op_picoseconds(double seconds) {
  double bounded = seconds > 0 ? seconds : 0;
  bounded = bounded < LONGEST_OP_SECONDS ? bounded : LONGEST_OP_SECONDS;
  return (uint64_t)(bounded * PICOSECONDS + 0.5);
}

static uint64_t value_bytes(const struct block_cut *b, uint32_t value) {
  return b->values->graph->tensors[b->values->values[value].tensor].bytes;
}

static mr_status edge_add(struct block_cut *b, uint32_t from, uint32_t to) {
  mr_status status = mr_cut_add(&b->cut, from, to);
  if (status == MR_OK) {
    mr_cut_set(&b->cut, b->edge_count++, MR_CUT_INFINITE);
  }
  return status;
}

/* The node of a value that `reader` needs, with the edge of its price. */
static mr_status value_needed(struct block_cut *b, uint32_t value, uint32_t reader) {
  if (b->value_node[value] == NONE) {
    uint32_t node = b->node_count++;
    bool remakable = b->values->values[value].remakable;
    uint32_t head = remakable ? b->op_node[b->values->values[value].producer] : MR_CUT_SINK;
    b->value_node[value] = node;
    b->costs[node] = (struct node_cost){b->edge_count, head, value_bytes(b, value)};
    mr_status status = edge_add(b, node, head);
    if (status != MR_OK) {
      return status;
    }
  }
  return edge_add(b, reader, b->value_node[value]);
}

static mr_status op_connect(struct block_cut *b, mr_op_id k) {
  const struct mr_op *op = &b->values->graph->ops[k];
  const uint32_t *operands = &b->values->operands[b->values->first_operand[k]];
  uint32_t node = b->op_node[k];
  b->costs[node] = (struct node_cost){b->edge_count, MR_CUT_SINK, op_picoseconds(b->op_seconds[k])};
  b->total_picoseconds += b->costs[node].cost;
  mr_status status = edge_add(b, node, MR_CUT_SINK);
  for (uint32_t i = 0; status == MR_OK && i < op->input_count; i++) {
    const struct mr_value *value = &b->values->values[operands[i]];
    if (value->remakable || !mr_value_lives_anyway(b->values, operands[i])) {
      status = value_needed(b, operands[i], node);
    }
  }
  for (uint32_t i = op->input_count; status == MR_OK && i < op->input_count + op->output_count;
       i++) {
    const struct mr_value *value = &b->values->values[operands[i]];
    if (value->remakable && value->first_train != MR_NO_OP) {
      b->needed_bytes += value_bytes(b, operands[i]);
      status = value_needed(b, operands[i], MR_CUT_SOURCE);
    }
  }
  return status;
}

/* Nodes of ops come first, so that values find their producers. */
static mr_status block_connect(struct block_cut *b) {
  const struct mr_values *values = b->values;
  uint64_t limit = 2;
  b->node_count = 2;
  for (uint32_t i = 0; i < b->op_count; i++) {
    mr_op_id k = b->ops[i];
    if (values->repeatable[k]) {
      b->op_node[k] = b->node_count++;
      limit += 1ull + values->graph->ops[k].input_count + values->graph->ops[k].output_count;
    }
  }
  b->first_value_node = b->node_count;
  b->costs = mr_allocate(limit, sizeof *b->costs);
  if (b->costs == NULL || mr_cut_init(&b->cut, (uint32_t)limit) != MR_OK) {
    return MR_NO_MEMORY;
  }
  mr_status status = MR_OK;
  for (uint32_t i = 0; status == MR_OK && i < b->op_count; i++) {
    status = values->repeatable[b->ops[i]] ? op_connect(b, b->ops[i]) : MR_OK;
  }
  return status;
}

/* Solves for costs of second_weight * picoseconds + byte_weight * bytes and adds the choice. */
static mr_status corner_find(struct block_cut *b, mr_cut_capacity second_weight,
                             mr_cut_capacity byte_weight) {
  struct corner corner = {.ops = mr_allocate(b->op_count, sizeof *corner.ops)};
  if (corner.ops == NULL || mr_array_reserve((void **)&b->corners, &b->corner_capacity,
                                             b->corner_count + 1ull, sizeof *b->corners) != MR_OK) {
    free(corner.ops);
    return MR_NO_MEMORY;
  }
  for (uint32_t node = 2; node < b->node_count; node++) {
    mr_cut_capacity weight = node < b->first_value_node ? second_weight : byte_weight;
    mr_cut_set(&b->cut, b->costs[node].edge, weight * b->costs[node].cost);
  }
  mr_cut_solve(&b->cut);
  for (uint32_t node = b->first_value_node; node < b->node_count; node++) {
    if (mr_cut_on_source_side(&b->cut, node) &&
        !mr_cut_on_source_side(&b->cut, b->costs[node].head)) {
      corner.saved_bytes += b->costs[node].cost;
    }
  }
  for (uint32_t i = 0; i < b->op_count; i++) {
    uint32_t node = b->op_node[b->ops[i]];
    if (node != NONE && mr_cut_on_source_side(&b->cut, node)) {
      corner.ops[corner.op_count++] = b->ops[i];
      corner.picoseconds += b->costs[node].cost;
    }
  }
  b->corners[b->corner_count++] = corner;
  return MR_OK;
}

static mr_cut_capacity corner_cost(const struct corner *corner, mr_cut_capacity second_weight,
                                   mr_cut_capacity byte_weight) {
  return second_weight * corner->picoseconds + byte_weight * corner->saved_bytes;
}

static void corner_drop(struct block_cut *b) {
  free(b->corners[--b->corner_count].ops);
}

/* One pair of neighbours: adds the corner between them if there is one. */
static mr_status corner_between(struct block_cut *b, uint32_t left, uint32_t right,
                                bool *found_out) {
  uint64_t seconds = b->corners[right].picoseconds - b->corners[left].picoseconds;
  uint64_t bytes = b->corners[left].saved_bytes - b->corners[right].saved_bytes;
  mr_status status = corner_find(b, bytes, seconds);
  if (status != MR_OK) {
    return status;
  }
  const struct corner *middle = &b->corners[b->corner_count - 1];
  *found_out = corner_cost(middle, bytes, seconds) < corner_cost(&b->corners[left], bytes, seconds);
  if (!*found_out) {
    corner_drop(b);
  }
  return MR_OK;
}

struct pair {
  uint32_t left, right;
};

static mr_status hull_sweep(struct block_cut *b) {
  /* Every pair in the list either finds a corner and becomes two, or goes: never more pairs than
   * corners, and a corner remakes more ops than the one before. */
  struct pair *pairs = mr_allocate(b->op_count + 2ull, sizeof *pairs);
  mr_status status = pairs == NULL ? MR_NO_MEMORY : corner_find(b, 1, 0);
  if (status == MR_OK) {
    status = corner_find(b, 1, (mr_cut_capacity)b->total_picoseconds + 1);
  }
  uint32_t count = 0;
  if (status == MR_OK && b->corners[1].saved_bytes < b->corners[0].saved_bytes) {
    pairs[count++] = (struct pair){0, 1};
  } else if (status == MR_OK) {
    corner_drop(b);
  }
  while (status == MR_OK && count > 0) {
    struct pair pair = pairs[--count];
    bool found = false;
    status = corner_between(b, pair.left, pair.right, &found);
    if (status == MR_OK && found) {
      MR_ASSERT(count + 2 <= b->op_count + 2);
      pairs[count++] = (struct pair){pair.left, b->corner_count - 1};
      pairs[count++] = (struct pair){b->corner_count - 1, pair.right};
    }
  }
  free(pairs);
  return status;
}

static int corner_compare(const void *left, const void *right) {
  const struct corner *a = left;
  const struct corner *b = right;
  return (a->saved_bytes < b->saved_bytes) - (a->saved_bytes > b->saved_bytes);
}

/* Hands the hull over to the menu. */
static mr_status choices_make(struct block_cut *b, struct mr_recompute_block *block) {
  block->choices = mr_allocate(b->corner_count, sizeof *block->choices);
  if (block->choices == NULL) {
    return MR_NO_MEMORY;
  }
  qsort(b->corners, b->corner_count, sizeof *b->corners, corner_compare);
  for (uint32_t i = 0; i < b->corner_count; i++) {
    struct corner *corner = &b->corners[i];
    MR_ASSERT(corner->saved_bytes <= b->needed_bytes);
    struct mr_recompute_choice *choice = &block->choices[i];
    choice->freed_bytes = b->needed_bytes - corner->saved_bytes;
    for (uint32_t j = 0; j < corner->op_count; j++) {
      choice->seconds += b->op_seconds[corner->ops[j]];
    }
    choice->ops = corner->ops;
    choice->op_count = corner->op_count;
    corner->ops = NULL;
  }
  block->choice_count = b->corner_count;
  return MR_OK;
}

/* Forgets this block, so that the next one finds the tables of nodes empty. */
static void block_clear(struct block_cut *b) {
  for (uint32_t i = 0; i < b->op_count; i++) {
    mr_op_id k = b->ops[i];
    b->op_node[k] = NONE;
    for (uint32_t j = b->values->first_operand[k]; j < b->values->first_operand[k + 1]; j++) {
      b->value_node[b->values->operands[j]] = NONE;
    }
  }
  while (b->corner_count > 0) {
    corner_drop(b);
  }
  free(b->corners);
  free(b->costs);
  mr_cut_fini(&b->cut);
  b->corners = NULL;
  b->costs = NULL;
  b->corner_capacity = 0;
  b->edge_count = 0;
  b->needed_bytes = 0;
  b->total_picoseconds = 0;
}

static mr_status block_make(struct block_cut *b, struct mr_recompute_block *block) {
  mr_status status = block_connect(b);
  if (status == MR_OK) {
    status = hull_sweep(b);
  }
  if (status == MR_OK) {
    status = choices_make(b, block);
  }
  block_clear(b);
  return status;
}

/* An op and its block, to group ops by block. */
struct member {
  uint32_t block;
  mr_op_id op;
};

static int member_compare(const void *left, const void *right) {
  const struct member *a = left;
  const struct member *b = right;
  if (a->block != b->block) {
    return a->block < b->block ? -1 : 1;
  }
  return (a->op > b->op) - (a->op < b->op);
}

/* Blocks that run forward ops, each as a range of ops[]. */
struct group {
  uint32_t block;
  uint32_t first;
  uint32_t count;
  mr_op_id first_op;
};

static int group_compare(const void *left, const void *right) {
  const struct group *a = left;
  const struct group *b = right;
  return (a->first_op > b->first_op) - (a->first_op < b->first_op);
}

/* Sorts the forward ops that have a block into ops[], block by block; returns the groups' number.
 */
static mr_status groups_make(const struct mr_graph *graph, mr_op_id *ops, struct group *groups,
                             uint32_t *group_count_out) {
  struct member *members = mr_allocate(graph->op_count, sizeof *members);
  if (members == NULL) {
    return MR_NO_MEMORY;
  }
  uint32_t count = 0;
  uint32_t group_count = 0;
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    const struct mr_op *op = &graph->ops[k];
    if (op->block != MR_NO_BLOCK && (op->flags & MR_OP_TRAIN_ONLY) == 0) {
      members[count++] = (struct member){op->block, k};
    }
  }
  qsort(members, count, sizeof *members, member_compare);
  for (uint32_t i = 0; i < count; i++) {
    ops[i] = members[i].op;
    if (i == 0 || members[i].block != members[i - 1].block) {
      groups[group_count++] = (struct group){members[i].block, i, 0, members[i].op};
    }
    groups[group_count - 1].count++;
  }
  qsort(groups, group_count, sizeof *groups, group_compare);
  free(members);
  *group_count_out = group_count;
  return MR_OK;
}

static void fill_none(uint32_t *numbers, uint32_t count) {
  memset(numbers, 0xff, count * sizeof *numbers);
}

static mr_status menu_make(struct mr_recompute_menu *menu, struct block_cut *b,
                           const struct group *groups, const mr_op_id *ops) {
  mr_status status = MR_OK;
  fill_none(b->op_node, b->values->graph->op_count);
  fill_none(b->value_node, b->values->value_count);
  for (uint32_t i = 0; status == MR_OK && i < menu->block_count; i++) {
    menu->blocks[i].block = groups[i].block;
    b->ops = &ops[groups[i].first];
    b->op_count = groups[i].count;
    status = block_make(b, &menu->blocks[i]);
  }
  return status;
}

mr_status mr_recompute_menu_init(struct mr_recompute_menu *menu, const struct mr_graph *graph,
                                 const double *op_seconds) {
  struct mr_values values = {0};
  struct mr_recompute_menu made = {0};
  struct group *groups = mr_allocate(graph->op_count, sizeof *groups);
  mr_op_id *ops = mr_allocate(graph->op_count, sizeof *ops);
  struct block_cut b = {.values = &values, .op_seconds = op_seconds};
  mr_status status = MR_NO_MEMORY;
  if (groups == NULL || ops == NULL || mr_values_init(&values, graph) != MR_OK) {
    goto done;
  }
  b.op_node = mr_allocate(graph->op_count, sizeof *b.op_node);
  b.value_node = mr_allocate(values.value_count, sizeof *b.value_node);
  if (b.op_node == NULL || b.value_node == NULL ||
      groups_make(graph, ops, groups, &made.block_count) != MR_OK) {
    goto done;
  }
  made.blocks = mr_allocate(made.block_count, sizeof *made.blocks);
  if (made.blocks == NULL) {
    made.block_count = 0;
    goto done;
  }
  status = menu_make(&made, &b, groups, ops);

done:
  free(groups);
  free(ops);
  free(b.op_node);
  free(b.value_node);
  mr_values_fini(&values);
  if (status == MR_OK) {
    *menu = made;
  } else {
    mr_recompute_menu_fini(&made);
  }
  return status;
}

void mr_recompute_menu_fini(struct mr_recompute_menu *menu) {
  for (uint32_t i = 0; i < menu->block_count; i++) {
    for (uint32_t j = 0; j < menu->blocks[i].choice_count; j++) {
      free(menu->blocks[i].choices[j].ops);
    }
    free(menu->blocks[i].choices);
  }
  free(menu->blocks);
  *menu = (struct mr_recompute_menu){0};
}

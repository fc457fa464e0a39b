/* SPDX-License-Identifier: Apache-2.0 */
/* The layers that hold the vocabulary, slice by slice: the embeddings and the head. */
#include <stdio.h>

#include "train/common.h"
#include "train/tape_record.h"

static struct op_slice slice_at(const struct tape *tape, const struct tape_slices *slices,
                                uint32_t index) {
  uint64_t first = index * slices->slice_words;
  return (struct op_slice){
      .first_word = first,
      .words = train_min_u64(slices->slice_words, tape->shape.vocab - first),
  };
}

/* "<name>", and ".<index>" behind it where there are several. */
static const char *numbered(const char *name, uint32_t index, bool several,
                            char buffer[static TRAIN_NAME_BYTES]) {
  if (several) {
    snprintf(buffer, TRAIN_NAME_BYTES, "%.160s.%u", name, index);
  } else {
    snprintf(buffer, TRAIN_NAME_BYTES, "%.160s", name);
  }
  return buffer;
}

static void embed_slice(struct tape *tape, const struct tape_record *record, tape_parameter_id wpe,
                        bool accumulate) {
  struct op_embed op = {.tokens = record->extra[0],
                        .wte = tape->parameters[record->first].working,
                        .wpe = tape->parameters[wpe].working,
                        .x = tape->values[record->y].tensor,
                        .slice = record->slice,
                        .accumulate = accumulate};
  char buffer[TRAIN_NAME_BYTES];
  if (tape->status == MR_OK) {
    tape->status = op_add_embed(&tape->builder, tape_op_name(record, "forward", buffer),
                                tape->block, &tape->shape, &op);
  }
}

/* A record for each slice: walked backwards, the gradient of each slice is complete before the next
 * one's is touched. The positions' gradient goes with the first slice. */
tape_value_id tape_embed(struct tape *tape, const char *name, mr_tensor_id tokens,
                         const struct tape_slices *wte, tape_parameter_id wpe) {
  mr_tensor_id x = tape_tensor_add(tape, tape->prefix, name, MR_ACTIVATION, tape->shape.width);
  tape_value_id y = tape_value_add(tape, x, OP_NONE);
  for (uint32_t i = 0; i < wte->count; i++) {
    char buffer[TRAIN_NAME_BYTES];
    struct tape_record *record =
        tape_record_add(tape, RECORD_EMBED, numbered(name, i, wte->count > 1, buffer));
    record->y = y;
    record->extra[0] = tokens;
    record->slice = slice_at(tape, wte, i);
    record->first = wte->first + i;
    record->second = i == 0 ? wpe : TAPE_NO_PARAMETER;
    tape_parameters_use(tape, record);
    embed_slice(tape, record, wpe, i > 0);
  }
  return y;
}

mr_status tape_embed_rule(struct tape *tape, const struct tape_record *record, const char *name) {
  TRAIN_ASSERT(tape->parameters[record->first].gradient_written);
  struct op_embed_backward op = {.tokens = record->extra[0],
                                 .dx = tape->values[record->y].gradient,
                                 .dwte = tape->parameters[record->first].gradient,
                                 .dwpe = OP_NONE,
                                 .slice = record->slice};
  if (record->second != TAPE_NO_PARAMETER) {
    op.dwpe = tape_parameter_gradient(tape, record->second, &op.accumulate);
  }
  return op_add_embed_backward(&tape->builder, name, &tape->shape, &op);
}

/* A block of the head while it is built. */
struct head_block {
  const struct tape_head *head;
  const char *layer;           /* the head's name with the tape's prefix */
  char name[TRAIN_NAME_BYTES]; /* the same, numbered where there are several blocks */
  struct op_rows rows;
  uint32_t first_block;                                          /* of the logits of slice 0 */
  mr_tensor_id logits[TAPE_MOST_SLICES], sums[TAPE_MOST_SLICES]; /* of each slice */
  mr_tensor_id softmax;
};

/* Adds "<block>.<what>" of the shape (rows, columns). */
static mr_tensor_id add_tensor(struct tape *tape, const struct head_block *block, const char *what,
                               uint64_t columns, mr_dtype dtype) {
  char name[TRAIN_NAME_BYTES];
  snprintf(name, sizeof name, "%.140s.%.40s", block->name, what);
  struct mr_tensor_desc desc = {.size_bytes = sizeof desc,
                                .name = name,
                                .role = MR_ACTIVATION,
                                .dtype = dtype,
                                .rank = 2,
                                .shape = {block->rows.count, columns}};
  mr_tensor_id id = 0;
  if (tape->status == MR_OK) {
    tape->status = mr_graph_add_tensor(tape->builder.graph, &desc, &id);
  }
  return id;
}

static void add_logits(struct tape *tape, struct head_block *block, uint32_t index) {
  const struct tape_head *head = block->head;
  bool several = head->wte.count > 1;
  struct op_slice slice = slice_at(tape, &head->wte, index);
  char what[TRAIN_NAME_BYTES];
  block->logits[index] = add_tensor(tape, block, numbered("logits", index, several, what),
                                    op_head_stride(slice.words), tape->builder.dtype);
  block->sums[index] =
      add_tensor(tape, block, numbered("sums", index, several, what), OP_HEAD_SUMS, MR_F32);
  struct op_head_logits op = {.x = tape->values[head->x].tensor,
                              .wte = tape->parameters[head->wte.first + index].working,
                              .targets = head->targets,
                              .logits = block->logits[index],
                              .sums = block->sums[index],
                              .rows = block->rows,
                              .slice = slice};
  char base[TRAIN_NAME_BYTES];
  char name[TRAIN_NAME_BYTES];
  snprintf(base, sizeof base, "%.150s.forward", block->name);
  if (tape->status == MR_OK) {
    tape->status = op_add_head_logits(&tape->builder, numbered(base, index, several, name),
                                      block->first_block + index, &tape->shape, &op);
  }
}

static void add_loss(struct tape *tape, struct head_block *block) {
  const struct tape_head *head = block->head;
  block->softmax = add_tensor(tape, block, "softmax", OP_HEAD_SOFTMAX, MR_F32);
  struct op_head_loss op = {.sums = block->sums,
                            .slices = head->wte.count,
                            .loss = head->loss,
                            .softmax = block->softmax,
                            .rows = block->rows,
                            .scale = head->scale,
                            .accumulate = tape->micro_step > 0 || block->rows.first > 0};
  char name[TRAIN_NAME_BYTES];
  snprintf(name, sizeof name, "%.150s.loss", block->name);
  if (tape->status == MR_OK) {
    tape->status = op_add_head_loss(&tape->builder, name, &op);
  }
}

static void add_gradient(struct tape *tape, const struct head_block *block, uint32_t index) {
  const struct tape_head *head = block->head;
  struct op_head_gradient op = {.x = tape->values[head->x].tensor,
                                .wte = tape->parameters[head->wte.first + index].working,
                                .targets = head->targets,
                                .softmax = block->softmax,
                                .logits = block->logits[index],
                                .rows = block->rows,
                                .slice = slice_at(tape, &head->wte, index),
                                .scale = head->scale,
                                .first_of_block = index + 1 == head->wte.count};
  char base[TRAIN_NAME_BYTES];
  char name[TRAIN_NAME_BYTES];
  op.dx = tape_value_gradient(tape, head->x, block->layer, tape->shape.width, &op.accumulate_dx);
  op.dwte = tape_parameter_gradient(tape, head->wte.first + index, &op.accumulate);
  snprintf(base, sizeof base, "%.150s.backward", block->name);
  if (tape->status == MR_OK) {
    tape->status = op_add_head_gradient(
        &tape->builder, numbered(base, index, head->wte.count > 1, name), &tape->shape, &op);
  }
}

void tape_head(struct tape *tape, const char *name, const struct tape_head *head) {
  TRAIN_ASSERT(head->wte.count <= TAPE_MOST_SLICES);
  TRAIN_ASSERT(tape->values[head->x].gradient == OP_NONE);
  char layer[TRAIN_NAME_BYTES];
  snprintf(layer, sizeof layer, "%s%.100s", tape->prefix, name);
  uint64_t rows = tape->shape.batch * tape->shape.seq;
  uint32_t blocks = (uint32_t)((rows + head->block_rows - 1) / head->block_rows);
  for (uint32_t b = 0; b < blocks; b++) {
    uint64_t first = b * head->block_rows;
    uint32_t before = tape->micro_step * blocks + b;
    struct head_block block = {.head = head,
                               .layer = layer,
                               .rows = {first, train_min_u64(head->block_rows, rows - first)},
                               .first_block = head->first_block + before * head->wte.count};
    numbered(layer, b, blocks > 1, block.name);
    for (uint32_t i = 0; i < head->wte.count; i++) {
      add_logits(tape, &block, i);
    }
    add_loss(tape, &block);
    for (uint32_t i = head->wte.count; i-- > 0;) {
      add_gradient(tape, &block, i);
    }
  }
}

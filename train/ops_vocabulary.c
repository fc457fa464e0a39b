/* SPDX-License-Identifier: Apache-2.0 */
/* The ops of the vocabulary: the token embedding, and the head with its loss, slice by slice. */
#include "train/common.h"
#include "train/cuda/cuda.h"
#include "train/cuda/run.h"
#include "train/kernels/bf16.h"
#include "train/kernels/kernels.h"
#include "train/ops_attributes.h"

_Static_assert(OP_HEAD_SUMS == KERNEL_HEAD_SUMS && OP_HEAD_SOFTMAX == KERNEL_HEAD_SOFTMAX,
               "tensors have the kernels' shapes");

uint64_t op_head_stride(uint64_t words) {
  return kernel_head_stride(words);
}

static bool on_cuda(const struct op_builder *builder) {
  return builder->backend == MR_BACKEND_CUDA;
}

static uint64_t rows_of(const struct op_shape *shape) {
  return shape->batch * shape->seq;
}

static mr_status embed_run(const struct mr_op_call *call) {
  const struct embed_attributes *a = call->attributes;
  struct kernel_embed kernel = {
      .tokens = call->inputs[0],
      .wte = call->inputs[1],
      .wpe = call->inputs[2],
      .x = call->outputs[0],
      .batch = a->shape.batch,
      .seq = a->shape.seq,
      .width = a->shape.width,
      .first_word = a->slice.first_word,
      .vocab = a->slice.words,
      .dtype = a->dtype,
  };
  return op_kernels(a->reference)->embed(call->team, &kernel);
}

/* Tokens of a slice where all words are as frequent. */
static uint64_t tokens_in(const struct op_shape *shape, const struct op_slice *slice) {
  return rows_of(shape) * slice->words / shape->vocab;
}

mr_status op_add_embed(const struct op_builder *builder, const char *name, uint32_t block,
                       const struct op_shape *shape, const struct op_embed *op) {
  struct embed_attributes attributes = {.shape = *shape,
                                        .slice = op->slice,
                                        .dtype = builder->dtype,
                                        .reference = builder->reference};
  struct op_operands operands = {.input_count = 0};
  op_read(&operands, op->tokens);
  op_read(&operands, op->wte);
  op_read(&operands, op->wpe);
  op_accumulate(&operands, op->x, op->accumulate);
  struct mr_op_desc desc = {
      .name = name,
      .run = {embed_run, cuda_embed_run},
      .kind = "embed.forward",
      .signature = "bs,vc,tc->bsc",
      .attributes = &attributes,
      .attributes_bytes = sizeof attributes,
      /* one row of each table read and one row written for each token */
      .memory_bytes = rows_of(shape) * sizeof(int32_t) + tokens_in(shape, &op->slice) * 3 *
                                                             shape->width *
                                                             element_bytes(builder->dtype),
      .flags = MR_OP_REPEATABLE | MR_OP_HOST_CAPABLE,
      .block = block,
  };
  if (op->accumulate) {
    desc.signature = "bs,vc,tc,bsc->bsc";
    desc.flags = MR_OP_HOST_CAPABLE;
  }
  return op_finish(builder, &desc, &operands);
}

static mr_status embed_backward_run(const struct mr_op_call *call) {
  const struct embed_attributes *a = call->attributes;
  struct kernel_embed_backward kernel = {
      .tokens = call->inputs[0],
      .dx = call->inputs[1],
      .dwte = call->outputs[0],
      .dwpe = a->positions ? call->outputs[1] : NULL,
      .batch = a->shape.batch,
      .seq = a->shape.seq,
      .width = a->shape.width,
      .first_word = a->slice.first_word,
      .vocab = a->slice.words,
      .positions = a->shape.positions,
      .dtype = a->dtype,
      .accumulate = a->accumulate,
  };
  return op_kernels(a->reference)->embed_backward(call->team, &kernel, call->scratch);
}

mr_status op_add_embed_backward(const struct op_builder *builder, const char *name,
                                const struct op_shape *shape, const struct op_embed_backward *op) {
  struct embed_attributes attributes = {.shape = *shape,
                                        .slice = op->slice,
                                        .dtype = builder->dtype,
                                        .reference = builder->reference,
                                        .positions = op->dwpe != OP_NONE,
                                        .accumulate = op->accumulate};
  struct op_operands operands = {.input_count = 0};
  op_read(&operands, op->tokens);
  op_read(&operands, op->dx);
  op_accumulate(&operands, op->dwte, true);
  /* a row of dx and of dwte read and one of dwte written for each token */
  uint64_t rows = rows_of(shape), size = element_bytes(builder->dtype);
  uint64_t row_bytes = shape->width * (size + 2 * sizeof(float));
  uint64_t bytes = rows * sizeof(int32_t) + tokens_in(shape, &op->slice) * row_bytes;
  if (op->dwpe != OP_NONE) {
    op_accumulate(&operands, op->dwpe, op->accumulate);
    bytes += (rows * size + shape->positions * sizeof(float)) * shape->width;
  }
  struct mr_op_desc desc = {
      .name = name,
      .run = {embed_backward_run, cuda_embed_backward_run},
      .kind = "embed.backward",
      .attributes = &attributes,
      .attributes_bytes = sizeof attributes,
      .scratch_bytes = on_cuda(builder) ? 0
                                        : kernel_embed_backward_scratch_bytes(rows, shape->width,
                                                                              builder->threads),
      .memory_bytes = bytes,
      .flags = MR_OP_TRAIN_ONLY,
      .block = MR_NO_BLOCK,
  };
  return op_finish(builder, &desc, &operands);
}

static mr_status head_logits_run(const struct mr_op_call *call) {
  const struct head_attributes *a = call->attributes;
  const int32_t *targets = call->inputs[2];
  struct kernel_head_logits kernel = {
      .x = element_at(call->inputs[0], a->dtype, a->rows.first * a->width),
      .wte = call->inputs[1],
      .targets = targets + a->rows.first,
      .logits = call->outputs[0],
      .sums = call->outputs[1],
      .rows = a->rows.count,
      .width = a->width,
      .first_word = a->slice.first_word,
      .vocab = a->slice.words,
      .stride = op_head_stride(a->slice.words),
      .dtype = a->dtype,
  };
  return op_kernels(a->reference)->head_logits(call->team, &kernel, call->scratch);
}

/* Multiplications and additions of one product of a block's rows with a slice. */
static double product_flops(const struct op_rows *rows, const struct op_slice *slice,
                            uint64_t width) {
  return 2.0 * (double)rows->count * (double)slice->words * (double)width;
}

mr_status op_add_head_logits(const struct op_builder *builder, const char *name, uint32_t block,
                             const struct op_shape *shape, const struct op_head_logits *op) {
  struct head_attributes attributes = {.rows = op->rows,
                                       .slice = op->slice,
                                       .width = shape->width,
                                       .dtype = builder->dtype,
                                       .reference = builder->reference};
  struct op_operands operands = {.input_count = 0};
  op_read(&operands, op->x);
  op_read(&operands, op->wte);
  op_read(&operands, op->targets);
  op_write(&operands, op->logits);
  op_write(&operands, op->sums);
  struct mr_op_desc desc = {
      .name = name,
      .run = {head_logits_run, cuda_head_logits_run},
      .kind = OP_KIND(builder, "head.logits"),
      .attributes = &attributes,
      .attributes_bytes = sizeof attributes,
      .scratch_bytes = on_cuda(builder)
                           ? cuda_head_logits_scratch_bytes(op->rows.count, op->slice.words)
                           : kernel_head_logits_scratch_bytes(op->rows.count, op->slice.words,
                                                              builder->dtype, builder->threads),
      .flops = product_flops(&op->rows, &op->slice, shape->width),
      .flags = MR_OP_REPEATABLE,
      .block = block,
  };
  return op_finish(builder, &desc, &operands);
}

static mr_status head_loss_run(const struct mr_op_call *call) {
  const struct head_attributes *a = call->attributes;
  const float *sums[MR_MAX_OPERANDS];
  for (uint32_t i = 0; i < a->slices; i++) {
    sums[i] = call->inputs[i];
  }
  struct kernel_head_loss kernel = {
      .sums = sums,
      .loss = call->outputs[1],
      .softmax = call->outputs[0],
      .rows = a->rows.count,
      .slices = a->slices,
      .scale = a->scale,
      .accumulate = a->accumulate,
  };
  return op_kernels(a->reference)->head_loss(call->team, &kernel, call->scratch);
}

mr_status op_add_head_loss(const struct op_builder *builder, const char *name,
                           const struct op_head_loss *op) {
  struct head_attributes attributes = {.rows = op->rows,
                                       .slices = op->slices,
                                       .scale = op->scale,
                                       .reference = builder->reference,
                                       .accumulate = op->accumulate};
  struct op_operands operands = {.input_count = 0};
  for (uint32_t i = 0; i < op->slices; i++) {
    op_read(&operands, op->sums[i]);
  }
  op_write(&operands, op->softmax);
  op_accumulate(&operands, op->loss, op->accumulate);
  struct mr_op_desc desc = {
      .name = name,
      .run = {head_loss_run, cuda_head_loss_run},
      .kind = "head.loss",
      .attributes = &attributes,
      .attributes_bytes = sizeof attributes,
      .scratch_bytes = on_cuda(builder) ? cuda_head_loss_scratch_bytes(op->rows.count)
                                        : kernel_head_loss_scratch_bytes(op->rows.count),
      .block = MR_NO_BLOCK,
  };
  return op_finish(builder, &desc, &operands);
}

static mr_status head_gradient_run(const struct mr_op_call *call) {
  const struct head_attributes *a = call->attributes;
  const int32_t *targets = call->inputs[2];
  struct kernel_head_gradient kernel = {
      .x = element_at(call->inputs[0], a->dtype, a->rows.first * a->width),
      .wte = call->inputs[1],
      .targets = targets + a->rows.first,
      .softmax = call->inputs[3],
      .logits = call->outputs[0],
      .dx = element_place(call->outputs[1], a->dtype, a->rows.first * a->width),
      .dwte = call->outputs[2],
      .rows = a->rows.count,
      .width = a->width,
      .first_word = a->slice.first_word,
      .vocab = a->slice.words,
      .stride = op_head_stride(a->slice.words),
      .dtype = a->dtype,
      .scale = a->scale,
      .accumulate_dx = a->accumulate_dx,
      .accumulate = a->accumulate,
  };
  return op_kernels(a->reference)->head_gradient(call->team, &kernel, call->scratch);
}

mr_status op_add_head_gradient(const struct op_builder *builder, const char *name,
                               const struct op_shape *shape, const struct op_head_gradient *op) {
  struct head_attributes attributes = {.rows = op->rows,
                                       .slice = op->slice,
                                       .width = shape->width,
                                       .scale = op->scale,
                                       .dtype = builder->dtype,
                                       .reference = builder->reference,
                                       .accumulate_dx = !op->first_of_block,
                                       .accumulate = op->accumulate};
  struct op_operands operands = {.input_count = 0};
  op_read(&operands, op->x);
  op_read(&operands, op->wte);
  op_read(&operands, op->targets);
  op_read(&operands, op->softmax);
  op_accumulate(&operands, op->logits, true);
  op_accumulate(&operands, op->dx, op->accumulate_dx);
  op_accumulate(&operands, op->dwte, op->accumulate);
  struct mr_op_desc desc = {
      .name = name,
      .run = {head_gradient_run, cuda_head_gradient_run},
      .kind = OP_KIND(builder, "head.gradient"),
      .attributes = &attributes,
      .attributes_bytes = sizeof attributes,
      .scratch_bytes =
          on_cuda(builder)
              ? cuda_head_gradient_scratch_bytes(op->rows.count, op->slice.words, shape->width)
              : kernel_head_gradient_scratch_bytes(op->rows.count, shape->width, builder->dtype,
                                                   builder->threads),
      .flops = 2 * product_flops(&op->rows, &op->slice, shape->width),
      .flags = MR_OP_TRAIN_ONLY,
      .block = MR_NO_BLOCK,
  };
  return op_finish(builder, &desc, &operands);
}

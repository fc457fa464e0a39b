/* SPDX-License-Identifier: Apache-2.0 */
/* The callbacks for MR_BACKEND_CUDA: from a call's operands and attributes to the op. */
#include "train/cuda/run.h"

#include "train/cuda/open.h"
#include "train/kernels/bf16.h"
#include "train/ops_attributes.h"

/* Sizes fit: model.c bounds widths and rows far below 2^32. */
static uint32_t rows_of(const struct op_shape *shape) {
  return (uint32_t)(shape->batch * shape->seq);
}

mr_status cuda_embed_run(const struct mr_op_call *call) {
  const struct embed_attributes *a = call->attributes;
  const struct cuda_queue queue = cuda_call_queue(call);
  const struct cuda_embed op = {
      .tokens = call->inputs[0],
      .wte = call->inputs[1],
      .wpe = call->inputs[2],
      .x = call->outputs[0],
      .rows = rows_of(&a->shape),
      .seq = (uint32_t)a->shape.seq,
      .width = (uint32_t)a->shape.width,
      .first_word = (uint32_t)a->slice.first_word,
      .words = (uint32_t)a->slice.words,
  };
  return cuda_op_embed(&queue, cuda_type_of(a->dtype), &op);
}

mr_status cuda_embed_backward_run(const struct mr_op_call *call) {
  const struct embed_attributes *a = call->attributes;
  const struct cuda_queue queue = cuda_call_queue(call);
  const struct cuda_op_embed_backward op = {
      .tokens = call->inputs[0],
      .dx = call->inputs[1],
      .dwte = call->outputs[0],
      .dwpe = a->positions ? call->outputs[1] : NULL,
      .batch = (uint32_t)a->shape.batch,
      .seq = (uint32_t)a->shape.seq,
      .positions = (uint32_t)a->shape.positions,
      .width = (uint32_t)a->shape.width,
      .first_word = (uint32_t)a->slice.first_word,
      .words = (uint32_t)a->slice.words,
      .accumulate = a->accumulate,
  };
  return cuda_op_embed_backward(&queue, cuda_type_of(a->dtype), &op);
}

mr_status cuda_layernorm_run(const struct mr_op_call *call) {
  const struct layer_attributes *a = call->attributes;
  const struct cuda_queue queue = cuda_call_queue(call);
  const struct cuda_layernorm op = {
      .x = call->inputs[0],
      .gamma = call->inputs[1],
      .beta = call->inputs[2],
      .y = call->outputs[0],
      .mean = call->outputs[1],
      .rstd = call->outputs[2],
      .rows = rows_of(&a->shape),
      .width = (uint32_t)a->shape.width,
  };
  return cuda_op_layernorm(&queue, cuda_type_of(a->dtype), &op);
}

mr_status cuda_layernorm_backward_run(const struct mr_op_call *call) {
  const struct layer_attributes *a = call->attributes;
  const struct cuda_queue queue = cuda_call_queue(call);
  const struct cuda_op_layernorm_backward op = {
      .dy = call->inputs[0],
      .x = call->inputs[1],
      .gamma = call->inputs[2],
      .mean = call->inputs[3],
      .rstd = call->inputs[4],
      .dx = call->outputs[0],
      .dgamma = call->outputs[1],
      .dbeta = call->outputs[2],
      .scratch = call->scratch,
      .rows = rows_of(&a->shape),
      .width = (uint32_t)a->shape.width,
      .accumulate_dx = a->accumulate_dx,
      .accumulate = a->accumulate,
  };
  return cuda_op_layernorm_backward(&queue, cuda_type_of(a->dtype), &op);
}

mr_status cuda_linear_run(const struct mr_op_call *call) {
  const struct layer_attributes *a = call->attributes;
  const struct cuda_queue queue = cuda_call_queue(call);
  const struct cuda_op_linear op = {
      .x = call->inputs[0],
      .w = call->inputs[1],
      .bias = call->inputs[2],
      .residual = a->residual ? call->inputs[3] : NULL,
      .y = call->outputs[0],
      .scratch = call->scratch,
      .rows = rows_of(&a->shape),
      .in = a->in,
      .out = a->out,
  };
  return cuda_op_linear(&queue, cuda_type_of(a->dtype), &op);
}

mr_status cuda_linear_backward_run(const struct mr_op_call *call) {
  const struct layer_attributes *a = call->attributes;
  const struct cuda_queue queue = cuda_call_queue(call);
  const struct cuda_op_linear_backward op = {
      .dy = call->inputs[0],
      .x = call->inputs[1],
      .w = call->inputs[2],
      .preactivation = a->preactivation ? call->inputs[3] : NULL,
      .dx = call->outputs[0],
      .dw = call->outputs[1],
      .dbias = call->outputs[2],
      .scratch = call->scratch,
      .rows = rows_of(&a->shape),
      .in = a->in,
      .out = a->out,
      .accumulate = a->accumulate,
  };
  return cuda_op_linear_backward(&queue, cuda_type_of(a->dtype), &op);
}

mr_status cuda_gelu_run(const struct mr_op_call *call) {
  const struct layer_attributes *a = call->attributes;
  const struct cuda_queue queue = cuda_call_queue(call);
  const struct cuda_gelu op = {
      .x = call->inputs[0],
      .activated = call->outputs[0],
      .count = rows_of(&a->shape) * a->out,
  };
  return cuda_op_gelu(&queue, cuda_type_of(a->dtype), &op);
}

mr_status cuda_attention_run(const struct mr_op_call *call) {
  const struct layer_attributes *a = call->attributes;
  const struct cuda_queue queue = cuda_call_queue(call);
  const struct cuda_op_attention op = {
      .qkv = call->inputs[0],
      .out = call->outputs[0],
      .lse = call->outputs[1],
      .batch = (uint32_t)a->shape.batch,
      .seq = (uint32_t)a->shape.seq,
      .width = (uint32_t)a->shape.width,
      .heads = (uint32_t)a->shape.heads,
  };
  return cuda_op_attention(&queue, cuda_type_of(a->dtype), &op);
}

mr_status cuda_attention_backward_run(const struct mr_op_call *call) {
  const struct layer_attributes *a = call->attributes;
  const struct cuda_queue queue = cuda_call_queue(call);
  const struct cuda_op_attention_backward op = {
      .dout = call->inputs[0],
      .qkv = call->inputs[1],
      .out = call->inputs[2],
      .lse = call->inputs[3],
      .dqkv = call->outputs[0],
      .scratch = call->scratch,
      .batch = (uint32_t)a->shape.batch,
      .seq = (uint32_t)a->shape.seq,
      .width = (uint32_t)a->shape.width,
      .heads = (uint32_t)a->shape.heads,
  };
  return cuda_op_attention_backward(&queue, cuda_type_of(a->dtype), &op);
}

mr_status cuda_head_logits_run(const struct mr_op_call *call) {
  const struct head_attributes *a = call->attributes;
  const struct cuda_queue queue = cuda_call_queue(call);
  const int32_t *targets = call->inputs[2];
  const struct cuda_op_head_logits op = {
      .x = element_at(call->inputs[0], a->dtype, a->rows.first * a->width),
      .wte = call->inputs[1],
      .targets = targets + a->rows.first,
      .logits = call->outputs[0],
      .sums = call->outputs[1],
      .scratch = call->scratch,
      .rows = a->rows.count,
      .width = a->width,
      .first_word = a->slice.first_word,
      .words = a->slice.words,
      .stride = op_head_stride(a->slice.words),
  };
  return cuda_op_head_logits(&queue, cuda_type_of(a->dtype), &op);
}

mr_status cuda_head_loss_run(const struct mr_op_call *call) {
  const struct head_attributes *a = call->attributes;
  const struct cuda_queue queue = cuda_call_queue(call);
  const float *sums[MR_MAX_OPERANDS];
  for (uint32_t i = 0; i < a->slices; i++) {
    sums[i] = call->inputs[i];
  }
  const struct cuda_op_head_loss op = {
      .sums = sums,
      .loss = call->outputs[1],
      .softmax = call->outputs[0],
      .scratch = call->scratch,
      .rows = a->rows.count,
      .slices = a->slices,
      .scale = a->scale,
      .accumulate = a->accumulate,
  };
  return cuda_op_head_loss(&queue, &op);
}

mr_status cuda_head_gradient_run(const struct mr_op_call *call) {
  const struct head_attributes *a = call->attributes;
  const struct cuda_queue queue = cuda_call_queue(call);
  const int32_t *targets = call->inputs[2];
  const struct cuda_op_head_gradient op = {
      .x = element_at(call->inputs[0], a->dtype, a->rows.first * a->width),
      .wte = call->inputs[1],
      .targets = targets + a->rows.first,
      .softmax = call->inputs[3],
      .logits = call->outputs[0],
      .dx = element_place(call->outputs[1], a->dtype, a->rows.first * a->width),
      .dwte = call->outputs[2],
      .scratch = call->scratch,
      .rows = a->rows.count,
      .width = a->width,
      .first_word = a->slice.first_word,
      .words = a->slice.words,
      .stride = op_head_stride(a->slice.words),
      .scale = a->scale,
      .accumulate_dx = a->accumulate_dx,
      .accumulate = a->accumulate,
  };
  return cuda_op_head_gradient(&queue, cuda_type_of(a->dtype), &op);
}

mr_status cuda_sum_squares_run(const struct mr_op_call *call) {
  const struct sum_squares_attributes *a = call->attributes;
  const struct cuda_queue queue = cuda_call_queue(call);
  double *squares = call->outputs[0];
  const struct cuda_op_sum_squares op = {
      .g = call->inputs[0],
      .out = squares + a->index,
      .scratch = call->scratch,
      .count = a->count,
  };
  return cuda_op_sum_squares(&queue, &op);
}

mr_status cuda_norm_run(const struct mr_op_call *call) {
  const struct norm_attributes *a = call->attributes;
  const struct cuda_queue queue = cuda_call_queue(call);
  const struct cuda_norm op = {
      .squares = call->inputs[0],
      .norm = call->outputs[0],
      .scale = a->scaled ? call->outputs[1] : NULL,
      .clip = a->clip,
      .count = (uint32_t)a->count,
  };
  return cuda_op_norm(&queue, &op);
}

mr_status cuda_rates_run(const struct mr_op_call *call) {
  const struct cuda_queue queue = cuda_call_queue(call);
  const struct cuda_rates op = {
      .scalars = call->inputs[0], .rates = call->outputs[0], .count = OP_SCALAR_COUNT};
  return cuda_op_rates(&queue, &op);
}

mr_status cuda_adamw_run(const struct mr_op_call *call) {
  const struct adamw_attributes *a = call->attributes;
  const struct cuda_queue queue = cuda_call_queue(call);
  const bool restores = call->mode == MR_STEP_RESTORE;
  const float *g = call->inputs[0];
  float *p = call->outputs[0];
  const struct cuda_adamw op = {
      .p = p + a->first,
      .m = call->outputs[1],
      .v = call->outputs[2],
      .copy = a->working ? (uint16_t *)call->outputs[3] + a->first : NULL,
      .g = restores ? NULL : g + a->first,
      .scalars = call->inputs[1],
      .scale = a->scaled ? call->inputs[2] : NULL,
      .count = a->count,
      .beta1 = a->beta1,
      .beta2 = a->beta2,
      .eps = a->eps,
      .weight_decay = a->weight_decay,
  };
  return cuda_op_adamw(&queue, a->working ? CUDA_BF16 : CUDA_F32, &op);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The ops of the layers: forward and backward. */
#include "train/ops.h"

#include <string.h>

#include "train/common.h"
#include "train/cuda/cuda.h"
#include "train/cuda/run.h"
#include "train/kernels/kernels.h"
#include "train/ops_attributes.h"

const struct kernel_table *op_kernels(bool reference) {
  return reference ? kernel_reference() : kernel_fast();
}

void op_read(struct op_operands *operands, mr_tensor_id tensor) {
  TRAIN_ASSERT(operands->input_count < MR_MAX_OPERANDS);
  operands->inputs[operands->input_count++] = tensor;
}

void op_write(struct op_operands *operands, mr_tensor_id tensor) {
  TRAIN_ASSERT(operands->output_count < MR_MAX_OPERANDS);
  operands->outputs[operands->output_count++] = tensor;
}

void op_accumulate(struct op_operands *operands, mr_tensor_id tensor, bool accumulate) {
  if (accumulate) {
    op_read(operands, tensor);
  }
  op_write(operands, tensor);
}

mr_status op_finish(const struct op_builder *builder, struct mr_op_desc *desc,
                    const struct op_operands *operands) {
  desc->size_bytes = sizeof *desc;
  desc->inputs = operands->inputs;
  desc->input_count = operands->input_count;
  desc->outputs = operands->outputs;
  desc->output_count = operands->output_count;
  mr_op_id id = 0;
  return mr_graph_add_op(builder->graph, desc, &id);
}

static bool on_cuda(const struct op_builder *builder) {
  return builder->backend == MR_BACKEND_CUDA;
}

static uint64_t rows_of(const struct op_shape *shape) {
  return shape->batch * shape->seq;
}

static struct layer_attributes layer_attributes_of(const struct op_builder *builder,
                                                   const struct op_shape *shape) {
  return (struct layer_attributes){
      .shape = *shape, .dtype = builder->dtype, .reference = builder->reference};
}

static mr_status layernorm_run(const struct mr_op_call *call) {
  const struct layer_attributes *a = call->attributes;
  struct kernel_layernorm kernel = {
      .x = call->inputs[0],
      .gamma = call->inputs[1],
      .beta = call->inputs[2],
      .y = call->outputs[0],
      .mean = call->outputs[1],
      .rstd = call->outputs[2],
      .rows = rows_of(&a->shape),
      .width = a->shape.width,
      .dtype = a->dtype,
  };
  return op_kernels(a->reference)->layernorm(call->team, &kernel);
}

mr_status op_add_layernorm(const struct op_builder *builder, const char *name, uint32_t block,
                           const struct op_shape *shape, const struct op_layernorm *op) {
  struct layer_attributes attributes = layer_attributes_of(builder, shape);
  struct op_operands operands = {.input_count = 0};
  op_read(&operands, op->x);
  op_read(&operands, op->gamma);
  op_read(&operands, op->beta);
  op_write(&operands, op->y);
  op_write(&operands, op->mean);
  op_write(&operands, op->rstd);
  struct mr_op_desc desc = {
      .name = name,
      .run = {layernorm_run, cuda_layernorm_run},
      .kind = "layernorm.forward",
      .signature = "bsc,c,c->bsc,bs,bs",
      .attributes = &attributes,
      .attributes_bytes = sizeof attributes,
      .flags = MR_OP_REPEATABLE,
      .block = block,
  };
  return op_finish(builder, &desc, &operands);
}

static mr_status layernorm_backward_run(const struct mr_op_call *call) {
  const struct layer_attributes *a = call->attributes;
  struct kernel_layernorm_backward kernel = {
      .dy = call->inputs[0],
      .x = call->inputs[1],
      .gamma = call->inputs[2],
      .mean = call->inputs[3],
      .rstd = call->inputs[4],
      .dx = call->outputs[0],
      .dgamma = call->outputs[1],
      .dbeta = call->outputs[2],
      .rows = rows_of(&a->shape),
      .width = a->shape.width,
      .dtype = a->dtype,
      .accumulate_dx = a->accumulate_dx,
      .accumulate = a->accumulate,
  };
  return op_kernels(a->reference)->layernorm_backward(call->team, &kernel, call->scratch);
}

mr_status op_add_layernorm_backward(const struct op_builder *builder, const char *name,
                                    const struct op_shape *shape,
                                    const struct op_layernorm_backward *op) {
  struct layer_attributes attributes = layer_attributes_of(builder, shape);
  attributes.accumulate_dx = op->accumulate_dx;
  attributes.accumulate = op->accumulate;
  struct op_operands operands = {.input_count = 0};
  op_read(&operands, op->dy);
  op_read(&operands, op->x);
  op_read(&operands, op->gamma);
  op_read(&operands, op->mean);
  op_read(&operands, op->rstd);
  op_accumulate(&operands, op->dx, op->accumulate_dx);
  op_accumulate(&operands, op->dgamma, op->accumulate);
  op_accumulate(&operands, op->dbeta, op->accumulate);
  struct mr_op_desc desc = {
      .name = name,
      .run = {layernorm_backward_run, cuda_layernorm_backward_run},
      .kind = "layernorm.backward",
      .attributes = &attributes,
      .attributes_bytes = sizeof attributes,
      .scratch_bytes = on_cuda(builder)
                           ? cuda_layernorm_backward_scratch_bytes(rows_of(shape), shape->width)
                           : kernel_layernorm_backward_scratch_bytes(rows_of(shape), shape->width,
                                                                     builder->threads),
      .flags = MR_OP_TRAIN_ONLY,
      .block = MR_NO_BLOCK,
  };
  return op_finish(builder, &desc, &operands);
}

static mr_status linear_run(const struct mr_op_call *call) {
  const struct layer_attributes *a = call->attributes;
  struct kernel_linear kernel = {
      .x = call->inputs[0],
      .w = call->inputs[1],
      .bias = call->inputs[2],
      .residual = a->residual ? call->inputs[3] : NULL,
      .y = call->outputs[0],
      .rows = rows_of(&a->shape),
      .in = a->in,
      .out = a->out,
      .dtype = a->dtype,
  };
  return op_kernels(a->reference)->linear(call->team, &kernel, call->scratch);
}

mr_status op_add_linear(const struct op_builder *builder, const char *name, uint32_t block,
                        const struct op_shape *shape, const struct op_linear *op) {
  struct layer_attributes attributes = layer_attributes_of(builder, shape);
  attributes.in = op->in;
  attributes.out = op->out;
  attributes.residual = op->residual != OP_NONE;
  struct op_operands operands = {.input_count = 0};
  op_read(&operands, op->x);
  op_read(&operands, op->w);
  op_read(&operands, op->bias);
  if (op->residual != OP_NONE) {
    op_read(&operands, op->residual);
  }
  op_write(&operands, op->y);
  uint64_t rows = rows_of(shape);
  struct mr_op_desc desc = {
      .name = name,
      .run = {linear_run, cuda_linear_run},
      .kind = OP_KIND(builder, "linear.forward"),
      .signature = op->residual != OP_NONE ? "bsi,io,o,bso->bso" : "bsi,io,o->bso",
      .attributes = &attributes,
      .attributes_bytes = sizeof attributes,
      .scratch_bytes = on_cuda(builder) ? cuda_linear_scratch_bytes(rows, op->in, op->out)
                                        : kernel_linear_scratch_bytes(rows, op->out, builder->dtype,
                                                                      builder->threads),
      .flops = 2.0 * (double)rows * (double)op->in * (double)op->out,
      .flags = MR_OP_REPEATABLE,
      .block = block,
  };
  return op_finish(builder, &desc, &operands);
}

static mr_status gelu_run(const struct mr_op_call *call) {
  const struct layer_attributes *a = call->attributes;
  struct kernel_gelu kernel = {
      .x = call->inputs[0],
      .activated = call->outputs[0],
      .count = rows_of(&a->shape) * a->out,
      .dtype = a->dtype,
  };
  return op_kernels(a->reference)->gelu(call->team, &kernel);
}

mr_status op_add_gelu(const struct op_builder *builder, const char *name, uint32_t block,
                      const struct op_shape *shape, const struct op_gelu *op) {
  struct layer_attributes attributes = layer_attributes_of(builder, shape);
  attributes.out = op->width;
  struct op_operands operands = {.input_count = 0};
  op_read(&operands, op->x);
  op_write(&operands, op->activated);
  struct mr_op_desc desc = {
      .name = name,
      .run = {gelu_run, cuda_gelu_run},
      .kind = "gelu.forward",
      .signature = "bso->bso",
      .attributes = &attributes,
      .attributes_bytes = sizeof attributes,
      .flags = MR_OP_REPEATABLE,
      .block = block,
  };
  return op_finish(builder, &desc, &operands);
}

static mr_status linear_backward_run(const struct mr_op_call *call) {
  const struct layer_attributes *a = call->attributes;
  struct kernel_linear_backward kernel = {
      .dy = call->inputs[0],
      .x = call->inputs[1],
      .w = call->inputs[2],
      .preactivation = a->preactivation ? call->inputs[3] : NULL,
      .dx = call->outputs[0],
      .dw = call->outputs[1],
      .dbias = call->outputs[2],
      .rows = rows_of(&a->shape),
      .in = a->in,
      .out = a->out,
      .dtype = a->dtype,
      .accumulate = a->accumulate,
  };
  return op_kernels(a->reference)->linear_backward(call->team, &kernel, call->scratch);
}

mr_status op_add_linear_backward(const struct op_builder *builder, const char *name,
                                 const struct op_shape *shape,
                                 const struct op_linear_backward *op) {
  struct layer_attributes attributes = layer_attributes_of(builder, shape);
  attributes.in = op->in;
  attributes.out = op->out;
  attributes.preactivation = op->preactivation != OP_NONE;
  attributes.accumulate = op->accumulate;
  struct op_operands operands = {.input_count = 0};
  op_read(&operands, op->dy);
  op_read(&operands, op->x);
  op_read(&operands, op->w);
  if (op->preactivation != OP_NONE) {
    op_read(&operands, op->preactivation);
  }
  op_write(&operands, op->dx);
  op_accumulate(&operands, op->dw, op->accumulate);
  op_accumulate(&operands, op->dbias, op->accumulate);
  uint64_t rows = rows_of(shape);
  struct mr_op_desc desc = {
      .name = name,
      .run = {linear_backward_run, cuda_linear_backward_run},
      .kind = OP_KIND(builder, "linear.backward"),
      .attributes = &attributes,
      .attributes_bytes = sizeof attributes,
      .scratch_bytes = on_cuda(builder) ? cuda_linear_backward_scratch_bytes(
                                              cuda_type_of(builder->dtype), rows, op->in, op->out)
                                        : kernel_linear_backward_scratch_bytes(
                                              rows, op->in, builder->dtype, builder->threads),
      .flops = 4.0 * (double)rows * (double)op->in * (double)op->out,
      .flags = MR_OP_TRAIN_ONLY,
      .block = MR_NO_BLOCK,
  };
  return op_finish(builder, &desc, &operands);
}

static mr_status attention_run(const struct mr_op_call *call) {
  const struct layer_attributes *a = call->attributes;
  struct kernel_attention kernel = {
      .qkv = call->inputs[0],
      .out = call->outputs[0],
      .lse = call->outputs[1],
      .batch = a->shape.batch,
      .seq = a->shape.seq,
      .width = a->shape.width,
      .heads = a->shape.heads,
      .dtype = a->dtype,
  };
  return op_kernels(a->reference)->attention(call->team, &kernel, call->scratch);
}

/* Multiplications and additions of one GEMM over the causal half of batch x heads score matrices;
 * the diagonal counts. */
static double causal_flops(const struct op_shape *shape) {
  double seq = (double)shape->seq;
  return (double)shape->batch * seq * (seq + 1) * (double)shape->width;
}

mr_status op_add_attention(const struct op_builder *builder, const char *name, uint32_t block,
                           const struct op_shape *shape, const struct op_attention *op) {
  if (on_cuda(builder) && shape->width / shape->heads > CUDA_MOST_HEAD_WIDTH) {
    mr_log(MR_LOG_ERROR, "%s: heads of %llu columns; the cuda device takes at most %u", name,
           (unsigned long long)(shape->width / shape->heads), CUDA_MOST_HEAD_WIDTH);
    return MR_UNSUPPORTED;
  }
  struct layer_attributes attributes = layer_attributes_of(builder, shape);
  struct op_operands operands = {.input_count = 0};
  op_read(&operands, op->qkv);
  op_write(&operands, op->out);
  op_write(&operands, op->lse);
  struct mr_op_desc desc = {
      .name = name,
      .run = {attention_run, cuda_attention_run},
      .kind = OP_KIND(builder, "attention.forward"),
      .attributes = &attributes,
      .attributes_bytes = sizeof attributes,
      .scratch_bytes = on_cuda(builder)
                           ? 0
                           : kernel_attention_scratch_bytes(shape->seq, shape->width / shape->heads,
                                                            builder->dtype, builder->threads),
      .flops = 2 * causal_flops(shape),
      .flags = MR_OP_REPEATABLE,
      .block = block,
  };
  return op_finish(builder, &desc, &operands);
}

static mr_status attention_backward_run(const struct mr_op_call *call) {
  const struct layer_attributes *a = call->attributes;
  struct kernel_attention_backward kernel = {
      .dout = call->inputs[0],
      .qkv = call->inputs[1],
      .out = call->inputs[2],
      .lse = call->inputs[3],
      .dqkv = call->outputs[0],
      .batch = a->shape.batch,
      .seq = a->shape.seq,
      .width = a->shape.width,
      .heads = a->shape.heads,
      .dtype = a->dtype,
  };
  return op_kernels(a->reference)->attention_backward(call->team, &kernel, call->scratch);
}

mr_status op_add_attention_backward(const struct op_builder *builder, const char *name,
                                    const struct op_shape *shape,
                                    const struct op_attention_backward *op) {
  struct layer_attributes attributes = layer_attributes_of(builder, shape);
  struct op_operands operands = {.input_count = 0};
  op_read(&operands, op->dout);
  op_read(&operands, op->qkv);
  op_read(&operands, op->out);
  op_read(&operands, op->lse);
  op_write(&operands, op->dqkv);
  struct mr_op_desc desc = {
      .name = name,
      .run = {attention_backward_run, cuda_attention_backward_run},
      .kind = OP_KIND(builder, "attention.backward"),
      .attributes = &attributes,
      .attributes_bytes = sizeof attributes,
      .scratch_bytes =
          on_cuda(builder)
              ? cuda_attention_backward_scratch_bytes(shape->batch, shape->seq, shape->heads)
              : kernel_attention_backward_scratch_bytes(shape->seq, shape->width / shape->heads,
                                                        builder->dtype, builder->threads),
      .flops = 5 * causal_flops(shape), /* scores again, dv, dp, dq, dk */
      .flags = MR_OP_TRAIN_ONLY,
      .block = MR_NO_BLOCK,
  };
  return op_finish(builder, &desc, &operands);
}

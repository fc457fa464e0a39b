/* SPDX-License-Identifier: Apache-2.0 */
/* The ops that turn gradients into an update: partial norms, the norm, AdamW. */
#include <math.h>
#include <string.h>

#include "train/common.h"
#include "train/cuda/cuda.h"
#include "train/cuda/run.h"
#include "train/kernels/bf16.h"
#include "train/kernels/kernels.h"
#include "train/ops_attributes.h"

#define CLIP_EPSILON 1e-6 /* torch.nn.utils.clip_grad_norm_ */

static mr_status sum_squares_run(const struct mr_op_call *call) {
  const struct sum_squares_attributes *a = call->attributes;
  double *squares = call->outputs[0];
  struct kernel_sum_squares kernel = {
      .g = call->inputs[0], .out = squares + a->index, .count = a->count};
  return op_kernels(a->reference)->sum_squares(call->team, &kernel, call->scratch);
}

mr_status op_add_sum_squares(const struct op_builder *builder, const char *name,
                             const struct op_sum_squares *op) {
  struct sum_squares_attributes attributes = {
      .count = op->count, .index = op->index, .reference = builder->reference};
  struct op_operands operands = {.input_count = 0};
  op_read(&operands, op->g);
  op_accumulate(&operands, op->squares, true);
  struct mr_op_desc desc = {
      .name = name,
      .run = {sum_squares_run, cuda_sum_squares_run},
      .kind = "sum_squares",
      .attributes = &attributes,
      .attributes_bytes = sizeof attributes,
      .scratch_bytes = builder->backend == MR_BACKEND_CUDA
                           ? cuda_sum_squares_scratch_bytes(op->count)
                           : kernel_sum_squares_scratch_bytes(op->count, builder->threads),
      .memory_bytes = op->count * sizeof(float),
      .flags = MR_OP_TRAIN_ONLY,
      .block = MR_NO_BLOCK,
  };
  return op_finish(builder, &desc, &operands);
}

static mr_status norm_run(const struct mr_op_call *call) {
  const struct norm_attributes *a = call->attributes;
  const double *squares = call->inputs[0];
  double sum = 0;
  for (uint64_t i = 0; i < a->count; i++) {
    sum += squares[i];
  }
  double *norm = call->outputs[0];
  *norm = sqrt(sum);
  if (a->scaled) {
    float *scale = call->outputs[1];
    double wanted = a->clip / (*norm + CLIP_EPSILON);
    *scale = wanted < 1 || isnan(wanted) ? (float)wanted : 1.0f;
  }
  return MR_OK;
}

mr_status op_add_norm(const struct op_builder *builder, const char *name,
                      const struct op_norm *op) {
  struct norm_attributes attributes = {
      .count = op->count, .clip = op->clip, .scaled = op->scale != OP_NONE};
  struct op_operands operands = {.input_count = 0};
  op_read(&operands, op->squares);
  op_write(&operands, op->norm);
  if (op->scale != OP_NONE) {
    op_write(&operands, op->scale);
  }
  struct mr_op_desc desc = {
      .name = name,
      .run = {norm_run, cuda_norm_run},
      .kind = "norm",
      .attributes = &attributes,
      .attributes_bytes = sizeof attributes,
      .flags = MR_OP_TRAIN_ONLY,
      .block = MR_NO_BLOCK,
  };
  return op_finish(builder, &desc, &operands);
}

static mr_status rates_run(const struct mr_op_call *call) {
  memcpy(call->outputs[0], call->inputs[0], OP_SCALAR_COUNT * sizeof(float));
  return MR_OK;
}

mr_status op_add_rates(const struct op_builder *builder, const char *name,
                       const struct op_rates *op) {
  struct op_operands operands = {.input_count = 0};
  op_read(&operands, op->scalars);
  op_write(&operands, op->rates);
  struct mr_op_desc desc = {
      .name = name,
      .run = {rates_run, cuda_rates_run},
      .kind = "rates",
      .flags = MR_OP_TRAIN_ONLY,
      .block = MR_NO_BLOCK,
  };
  return op_finish(builder, &desc, &operands);
}

/* Elements that a thread rounds at a time. */
#define ROUND_ELEMENTS 65536u

struct rounding {
  const float *p;
  uint16_t *working;
  uint64_t count;
};

static void round_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  const struct rounding *rounding = context;
  uint64_t first = (uint64_t)task * ROUND_ELEMENTS;
  uint64_t end = train_min_u64(first + ROUND_ELEMENTS, rounding->count);
  for (uint64_t i = first; i < end; i++) {
    rounding->working[i] = bf16_round(rounding->p[i]);
  }
}

/* The copy alone, as the update that is left out made it. */
static mr_status round_again(struct mr_team *team, struct rounding rounding) {
  uint64_t tasks = (rounding.count + ROUND_ELEMENTS - 1) / ROUND_ELEMENTS;
  mr_team_run(team, (uint32_t)tasks, round_task, &rounding);
  return MR_OK;
}

static mr_status adamw_run(const struct mr_op_call *call) {
  const struct adamw_attributes *a = call->attributes;
  if (call->mode == MR_STEP_RESTORE) {
    return round_again(call->team,
                       (struct rounding){.p = (const float *)call->outputs[0] + a->first,
                                         .working = (uint16_t *)call->outputs[3] + a->first,
                                         .count = a->count});
  }
  const float *g = call->inputs[0];
  const float *scalars = call->inputs[1];
  float *p = call->outputs[0];
  struct kernel_adamw kernel = {
      .p = p + a->first,
      .g = g + a->first,
      .m = call->outputs[1],
      .v = call->outputs[2],
      .working = a->working ? (uint16_t *)call->outputs[3] + a->first : NULL,
      .count = a->count,
      .grad_scale = a->scaled ? call->inputs[2] : NULL,
      .lr = scalars[OP_SCALAR_LR],
      .beta1 = a->beta1,
      .beta2 = a->beta2,
      .eps = a->eps,
      .weight_decay = a->weight_decay,
      .correction1 = scalars[OP_SCALAR_CORRECTION1],
      .correction2 = scalars[OP_SCALAR_CORRECTION2],
  };
  return op_kernels(a->reference)->adamw(call->team, &kernel);
}

mr_status op_add_adamw(const struct op_builder *builder, const char *name,
                       const struct op_adamw *op) {
  struct adamw_attributes attributes = {
      .first = op->first,
      .count = op->count,
      .beta1 = op->beta1,
      .beta2 = op->beta2,
      .eps = op->eps,
      .weight_decay = op->weight_decay,
      .scaled = op->scale != OP_NONE,
      .working = op->working != OP_NONE,
      .reference = builder->reference,
  };
  struct op_operands operands = {.input_count = 0};
  op_read(&operands, op->g);
  op_read(&operands, op->scalars);
  if (op->scale != OP_NONE) {
    op_read(&operands, op->scale);
  }
  op_accumulate(&operands, op->p, true);
  op_accumulate(&operands, op->m, true);
  op_accumulate(&operands, op->v, true);
  /* p, m, v both ways, g read */
  uint64_t bytes = 7 * op->count * sizeof(float);
  if (op->working != OP_NONE) {
    op_accumulate(&operands, op->working, op->first > 0);
    bytes += op->count * element_bytes(MR_BF16);
  }
  struct mr_op_desc desc = {
      .name = name,
      .run = {adamw_run, cuda_adamw_run},
      .kind = "adamw",
      .attributes = &attributes,
      .attributes_bytes = sizeof attributes,
      .memory_bytes = bytes,
      .flags = MR_OP_TRAIN_ONLY | MR_OP_HOST_CAPABLE | (op->deferrable ? MR_OP_DEFERRABLE : 0u),
      .block = MR_NO_BLOCK,
  };
  return op_finish(builder, &desc, &operands);
}

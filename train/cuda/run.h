/* SPDX-License-Identifier: Apache-2.0 */
/* The callbacks of the ops for MR_BACKEND_CUDA: each enqueues its op on the stream of the call.
 * Operands and attributes are those of the callbacks for the cpu (train/ops_attributes.h). */
#ifndef MEMRUN_TRAIN_CUDA_RUN_H
#define MEMRUN_TRAIN_CUDA_RUN_H

#include <memrun/memrun.h>

mr_status cuda_embed_run(const struct mr_op_call *call);
mr_status cuda_embed_backward_run(const struct mr_op_call *call);
mr_status cuda_layernorm_run(const struct mr_op_call *call);
mr_status cuda_layernorm_backward_run(const struct mr_op_call *call);
mr_status cuda_linear_run(const struct mr_op_call *call);
mr_status cuda_linear_backward_run(const struct mr_op_call *call);
mr_status cuda_gelu_run(const struct mr_op_call *call);
mr_status cuda_attention_run(const struct mr_op_call *call);
mr_status cuda_attention_backward_run(const struct mr_op_call *call);
mr_status cuda_head_logits_run(const struct mr_op_call *call);
mr_status cuda_head_loss_run(const struct mr_op_call *call);
mr_status cuda_head_gradient_run(const struct mr_op_call *call);
mr_status cuda_sum_squares_run(const struct mr_op_call *call);
mr_status cuda_norm_run(const struct mr_op_call *call);
mr_status cuda_rates_run(const struct mr_op_call *call);
mr_status cuda_adamw_run(const struct mr_op_call *call);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels, as the one image that the program carries. */
#include "train/cuda/attention.cu"
#include "train/cuda/attention_backward.cu"
#include "train/cuda/attention_tensor.cu"
#include "train/cuda/attention_tensor_backward.cu"
#include "train/cuda/embed.cu"
#include "train/cuda/gelu.cu"
#include "train/cuda/head.cu"
#include "train/cuda/layernorm.cu"
#include "train/cuda/update.cu"

/* SPDX-License-Identifier: Apache-2.0 */
/* Defaults of a training job, and which options make sense. */
#include <math.h>
#include <sched.h>
#include <string.h>

#include "train/common.h"
#include "train/job.h"

#define MOST_GRAD_ACCUM 4096u
#define MOST_THREADS    1024u
/* Second moments below 2^-120 are zero for the fast kernels; beside less, updates would explode. */
#define LEAST_EPS         1e-15
#define DEFAULT_DEVICE    (96ull << 20)
#define DEFAULT_HOST      (24ull << 20)
#define DEFAULT_STEPS     30u
#define DEFAULT_SEED      42u
#define DEFAULT_EVAL_SIZE 8u

void trainer_options_init(struct trainer_options *options) {
  *options = (struct trainer_options){
      .eval_batches = DEFAULT_EVAL_SIZE,
      .steps = DEFAULT_STEPS,
      .lr = 3e-4,
      .min_lr = 0,
      .beta1 = 0.9,
      .beta2 = 0.95,
      .eps = 1e-8,
      .weight_decay = 0.1,
      .clip = 1.0,
      .grad_accum = 1,
      .seed = DEFAULT_SEED,
      .gemm = "auto",
  };
  mr_options_init(&options->run);
}

/*
 * The default model takes about 530 MiB at once, 590 where nothing is recomputed; 96 + 24 MiB are
 * below a quarter of that, and enough for its largest op with room for transfers.
 */
void trainer_default_budgets(struct trainer_options *options) {
  struct mr_options *run = &options->run;
  bool free_budgets = run->device_bytes == MR_BUDGET_AUTO && run->host_bytes == MR_BUDGET_AUTO;
  if (!free_budgets || !model_is_default(options) || options->grad_accum != 1) {
    return;
  }
  bool nvme =
      run->offload == MR_OFFLOAD_NVME || (run->offload == MR_OFFLOAD_AUTO && run->nvme_count > 0);
  if (nvme) {
    run->device_bytes = DEFAULT_DEVICE;
    run->host_bytes = DEFAULT_HOST;
  } else if (run->offload == MR_OFFLOAD_HOST || run->offload == MR_OFFLOAD_AUTO) {
    run->device_bytes = DEFAULT_DEVICE;
  }
}

uint32_t options_threads(const struct trainer_options *options) {
  if (options->run.threads != 0) {
    return options->run.threads;
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return count < 1 ? 1 : (uint32_t)count;
}

static mr_status check_numbers(const struct trainer_options *options) {
  const struct {
    const char *what;
    double value, least, most;
  } ranges[] = {
      {"lr", options->lr, 0, 1e6},
      {"min-lr", options->min_lr, 0, 1e6},
      {"betas (the first)", options->beta1, 0, 0.9999999},
      {"betas (the second)", options->beta2, 0, 0.9999999},
      {"eps", options->eps, LEAST_EPS, 1e6},
      {"weight-decay", options->weight_decay, 0, 1e6},
      {"clip", options->clip, 0, 1e30},
      {"grad-accum", options->grad_accum, 1, MOST_GRAD_ACCUM},
      {"threads", options->run.threads, 0, MOST_THREADS},
      {"steps", (double)options->steps, 1, 0x1p53},
  };
  for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
    /* a value that is no number fails both comparisons */
    if (!(ranges[i].value >= ranges[i].least && ranges[i].value <= ranges[i].most)) {
      mr_log(MR_LOG_ERROR, "--%s %g is outside %g to %g", ranges[i].what, ranges[i].value,
             ranges[i].least, ranges[i].most);
      return MR_INVALID;
    }
  }
  return MR_OK;
}

/* Choices among the kernels of the processor, which would mean nothing elsewhere. */
static mr_status check_kernels(const struct trainer_options *options) {
  if (options->run.device != MR_BACKEND_CUDA) {
    return MR_OK;
  }
  if (options->reference) {
    mr_log(MR_LOG_ERROR,
           "--reference chooses among the kernels of --device cpu; --device cuda has one set");
    return MR_INVALID;
  }
  if (options->gemm != NULL && strcmp(options->gemm, "auto") != 0) {
    mr_log(MR_LOG_ERROR, "--gemm %s multiplies on --device cpu; --device cuda uses cuBLASLt",
           options->gemm);
    return MR_INVALID;
  }
  return MR_OK;
}

mr_status options_check(const struct trainer_options *options) {
  mr_status status = check_numbers(options);
  if (status == MR_OK) {
    status = check_kernels(options);
  }
  if (status != MR_OK) {
    return status;
  }
  if (options->decay_steps != 0 && options->decay_steps <= options->warmup) {
    mr_log(MR_LOG_ERROR, "--decay-steps %llu must be more than --warmup %llu",
           (unsigned long long)options->decay_steps, (unsigned long long)options->warmup);
    return MR_INVALID;
  }
  if (options->min_lr > options->lr) {
    mr_log(MR_LOG_ERROR, "--min-lr %g is more than --lr %g, from which the rate is to fall",
           options->min_lr, options->lr);
    return MR_INVALID;
  }
  if (options->eval_every != 0 && options->eval_batches == 0) {
    mr_log(MR_LOG_ERROR, "--eval-every %u needs --eval-batches of 1 or more", options->eval_every);
    return MR_INVALID;
  }
  if (options->init_path != NULL && options->resume_dir != NULL) {
    mr_log(MR_LOG_ERROR, "--init %s and --resume %s both say where the weights come from; give one",
           options->init_path, options->resume_dir);
    return MR_INVALID;
  }
  return MR_OK;
}

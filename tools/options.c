/* SPDX-License-Identifier: Apache-2.0 */
/* The table of options and their defaults. */
#include <string.h>

#include "tools/options.h"

/* A device or host budget below this cannot hold a kernel's operands. */
#define MIN_BUDGET 65536.0
/* Room on NVMe is taken in chunks of this size. */
#define MIN_NVME  524288.0
#define MAX_BYTES 0x1.0p62
#define MAX_COUNT 1e9

static const char *const device_words[] = {"cpu", "cuda", NULL};
static const char *const offload_words[] = {"none", "host", "nvme", "auto", NULL};
static const char *const recompute_words[] = {"auto", "none", "full", NULL};
static const char *const replan_words[] = {"auto", "never", "always", NULL};
static const char *const defer_words[] = {"auto", "never", "always", NULL};
static const char *const policy_words[] = {"searched", "first", "lru", NULL};
static const char *const engine_words[] = {"auto", "uring", "pread", NULL};
static const char *const gemm_words[] = {"auto", "dnnl", "openblas", NULL};
static const char *const dtype_words[] = {"f32", "bf16", NULL};
static const char *const bound_words[] = {"cut", "lp", NULL};
static const char *const preset_words[] = {"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", NULL};

#define FIELD(name) offsetof(struct cli, name)

/* clang-format off: one option in a row or two. */
const struct option options_table[] = {
    {"device", 0, "NAME", "where ops run", OPTION_GROUP_PLACE, CLI_ALL, OPTION_CHOICE,
     FIELD(train.run.device), 0, 0, device_words},
    {"device-mem", 0, "SIZE", "budget of device memory (free memory decides)", OPTION_GROUP_PLACE,
     CLI_ALL, OPTION_SIZE, FIELD(train.run.device_bytes), MIN_BUDGET, MAX_BYTES, NULL},
    {"host-mem", 0, "SIZE", "budget of host memory (free memory decides)", OPTION_GROUP_PLACE,
     CLI_ALL, OPTION_SIZE, FIELD(train.run.host_bytes), 0, MAX_BYTES, NULL},
    {"nvme", 0, "PATH[:SIZE]", "a folder on NVMe and its budget; several are striped",
     OPTION_GROUP_PLACE, CLI_ALL, OPTION_NVME, 0, MIN_NVME, MAX_BYTES, NULL},
    {"offload", 0, "TIER", "the farthest tier that tensors go to", OPTION_GROUP_PLACE, CLI_JOBS,
     OPTION_CHOICE, FIELD(train.run.offload), 0, 0, offload_words},
    {"recompute", 0, "MODE", "run forward ops again instead of keeping results", OPTION_GROUP_PLACE,
     CLI_JOBS, OPTION_CHOICE, FIELD(train.run.recompute), 0, 0, recompute_words},
    {"defer", 0, "MODE", "run updates in the next step, beside its forward pass",
     OPTION_GROUP_PLACE, CLI_JOBS, OPTION_CHOICE, FIELD(train.run.defer), 0, 0, defer_words},
    {"replan", 0, "MODE", "take a better plan between steps where the forecast was wrong",
     OPTION_GROUP_PLACE, CLI_JOBS, OPTION_CHOICE, FIELD(train.run.replan), 0, 0, replan_words},
    {"policy", 0, "NAME", "how a plan is found; first and lru are for comparison",
     OPTION_GROUP_PLACE, CLI_JOBS, OPTION_CHOICE, FIELD(train.run.policy), 0, 0, policy_words},
    {"io-engine", 0, "NAME", "how NVMe is read and written", OPTION_GROUP_PLACE, CLI_ALL,
     OPTION_CHOICE, FIELD(train.run.io_engine), 0, 0, engine_words},
    {"io-timeout", 0, "SECONDS", "an input or output older than this ends the run",
     OPTION_GROUP_PLACE, CLI_ALL, OPTION_REAL, FIELD(train.run.io_timeout_seconds), 0.01, 86400,
     NULL},
    {"threads", 0, "N", "threads that compute (all processors)", OPTION_GROUP_PLACE, CLI_ALL,
     OPTION_U32, FIELD(train.run.threads), 1, 1024, NULL},
    {"profile", 0, "FILE", "where measured speeds are kept; plan: or a machine's description",
     OPTION_GROUP_PLACE, CLI_ALL, OPTION_FILE, FIELD(train.run.profile_path), 0, 0, NULL},
    {"reprofile", 0, NULL, "measure the machine again", OPTION_GROUP_PLACE, CLI_ALL, OPTION_FLAG,
     FIELD(train.run.reprofile), 0, 0, NULL},
    {"check", 0, NULL, "say that the independent verifier found no fault", OPTION_GROUP_PLACE,
     CLI_PLAN, OPTION_FLAG, FIELD(check), 0, 0, NULL},
    {"plan", 0, "FILE", "follow the plan that 'plan --out' kept there", OPTION_GROUP_PLACE,
     CLI_TRAIN | CLI_PLAN, OPTION_FILE, FIELD(train.run.plan_path), 0, 0, NULL},

    {"preset", 0, "NAME", "a published model", OPTION_GROUP_MODEL, CLI_JOBS, OPTION_WORD,
     FIELD(train.preset), 0, 0, preset_words},
    {"layers", 0, "N", "transformer blocks [8 without a preset]", OPTION_GROUP_MODEL, CLI_JOBS,
     OPTION_U32, FIELD(train.layers), 1, 1024, NULL},
    {"heads", 0, "N", "attention heads; they divide the width [8]", OPTION_GROUP_MODEL, CLI_JOBS,
     OPTION_U32, FIELD(train.heads), 1, 1024, NULL},
    {"width", 0, "N", "numbers for each token [512]", OPTION_GROUP_MODEL, CLI_JOBS, OPTION_U32,
     FIELD(train.width), 1, 1 << 16, NULL},
    {"vocab", 0, "N", "different tokens [2048]", OPTION_GROUP_MODEL, CLI_JOBS, OPTION_U32,
     FIELD(train.vocab), 2, 1 << 24, NULL},
    {"positions", 0, "N", "longest sequence that the model knows", OPTION_GROUP_MODEL, CLI_JOBS,
     OPTION_U32, FIELD(train.positions), 1, 1 << 20, NULL},
    {"batch", 0, "N", "sequences in a batch [4]", OPTION_GROUP_MODEL, CLI_JOBS, OPTION_U32,
     FIELD(train.batch), 1, UINT16_MAX, NULL},
    {"seq", 0, "N", "tokens in a sequence [256]", OPTION_GROUP_MODEL, CLI_JOBS, OPTION_U32,
     FIELD(train.seq), 1, 1 << 20, NULL},
    {"init", 0, "FILE", "begin with the weights of a safetensors file", OPTION_GROUP_MODEL,
     CLI_JOBS, OPTION_FILE, FIELD(train.init_path), 0, 0, NULL},
    {"dtype", 0, "TYPE", "of activations and of weights as layers read them", OPTION_GROUP_MODEL,
     CLI_JOBS, OPTION_CHOICE, FIELD(train.dtype), 0, 0, dtype_words},
    {"gemm", 0, "LIBRARY", "the library that multiplies matrices", OPTION_GROUP_MODEL, CLI_JOBS,
     OPTION_WORD, FIELD(train.gemm), 0, 0, gemm_words},
    {"reference", 0, NULL, "the readable kernels instead of the fast ones", OPTION_GROUP_MODEL,
     CLI_JOBS, OPTION_FLAG, FIELD(train.reference), 0, 0, NULL},

    {"data", 0, "FILE", "text, or GPT-2 tokens as llm.c writes them (.bin)", OPTION_GROUP_DATA,
     CLI_JOBS, OPTION_FILE, FIELD(train.data_path), 0, 0, NULL},
    {"shuffle", 0, NULL, "draw windows at random instead of one after another", OPTION_GROUP_DATA,
     CLI_JOBS, OPTION_FLAG, FIELD(train.shuffle), 0, 0, NULL},
    {"eval-data", 0, "FILE", "evaluate on this file", OPTION_GROUP_DATA, CLI_JOBS, OPTION_FILE,
     FIELD(train.eval_data_path), 0, 0, NULL},
    {"eval-every", 0, "N", "evaluate after every N steps", OPTION_GROUP_DATA, CLI_JOBS, OPTION_U32,
     FIELD(train.eval_every), 1, MAX_COUNT, NULL},
    {"eval-batches", 0, "N", "batches of an evaluation", OPTION_GROUP_DATA, CLI_JOBS, OPTION_U32,
     FIELD(train.eval_batches), 1, 1e6, NULL},

    {"steps", 0, "N", "steps in all, those before a resume counted in", OPTION_GROUP_OPTIMIZER,
     CLI_JOBS, OPTION_U64, FIELD(train.steps), 1, MAX_COUNT, NULL},
    {"lr", 0, "X", "learning rate", OPTION_GROUP_OPTIMIZER, CLI_JOBS, OPTION_REAL, FIELD(train.lr),
     0, 10, NULL},
    {"min-lr", 0, "X", "learning rate at the end of the decay", OPTION_GROUP_OPTIMIZER, CLI_JOBS,
     OPTION_REAL, FIELD(train.min_lr), 0, 10, NULL},
    {"warmup", 0, "STEPS", "steps over which the learning rate rises", OPTION_GROUP_OPTIMIZER,
     CLI_JOBS, OPTION_U64, FIELD(train.warmup), 0, MAX_COUNT, NULL},
    {"decay-steps", 0, "STEPS", "step at which the cosine decay ends; 0: constant",
     OPTION_GROUP_OPTIMIZER, CLI_JOBS, OPTION_U64, FIELD(train.decay_steps), 0, MAX_COUNT, NULL},
    {"betas", 0, "B1,B2", "decay of AdamW's two moments", OPTION_GROUP_OPTIMIZER, CLI_JOBS,
     OPTION_BETAS, FIELD(train.beta1), 0, 1, NULL},
    {"eps", 0, "X", "AdamW's epsilon", OPTION_GROUP_OPTIMIZER, CLI_JOBS, OPTION_REAL,
     FIELD(train.eps), 1e-15, 1, NULL},
    {"weight-decay", 0, "X", "decoupled decay of matrices", OPTION_GROUP_OPTIMIZER, CLI_JOBS,
     OPTION_REAL, FIELD(train.weight_decay), 0, 10, NULL},
    {"clip", 0, "NORM", "clip gradients to this global norm; 0: off", OPTION_GROUP_OPTIMIZER,
     CLI_JOBS, OPTION_REAL, FIELD(train.clip), 0, 1e30, NULL},
    {"grad-accum", 0, "N", "batches for each step", OPTION_GROUP_OPTIMIZER, CLI_JOBS, OPTION_U32,
     FIELD(train.grad_accum), 1, 4096, NULL},
    {"seed", 0, "N", "of weights, the Markov source and --shuffle", OPTION_GROUP_OPTIMIZER,
     CLI_JOBS, OPTION_U64, FIELD(train.seed), 0, 0x1.0p64, NULL},

    {"save", 0, "DIR", "where train writes the finished model", OPTION_GROUP_KEEP, CLI_JOBS,
     OPTION_FOLDER, FIELD(train.save_dir), 0, 0, NULL},
    {"ckpt", 0, "DIR", "where train writes checkpoints", OPTION_GROUP_KEEP, CLI_JOBS, OPTION_FOLDER,
     FIELD(train.checkpoint_dir), 0, 0, NULL},
    {"ckpt-every", 0, "N", "checkpoint after every N steps, not at the end alone",
     OPTION_GROUP_KEEP, CLI_JOBS, OPTION_U32, FIELD(train.checkpoint_every), 1, MAX_COUNT, NULL},
    {"resume", 0, "DIR", "train goes on from the newest checkpoint there", OPTION_GROUP_KEEP,
     CLI_JOBS, OPTION_FOLDER, FIELD(train.resume_dir), 0, 0, NULL},
    {"scratch", 0, "DIR", "where verify keeps the first run's results", OPTION_GROUP_KEEP,
     CLI_VERIFY, OPTION_FOLDER, FIELD(scratch_dir), 0, 0, NULL},

    {"json", 0, NULL, "one JSON object a line", OPTION_GROUP_OUTPUT, CLI_EVERY, OPTION_FLAG,
     FIELD(json), 0, 0, NULL},
    {"explain", 0, NULL, "show on one screen why the plan is as it is", OPTION_GROUP_OUTPUT,
     CLI_PLAN, OPTION_FLAG, FIELD(explain), 0, 0, NULL},
    {"out", 0, "FILE", "keep the plan there, for --plan, or the offsets", OPTION_GROUP_OUTPUT,
     CLI_PLAN | CLI_LAYOUT, OPTION_FILE, FIELD(out_path), 0, 0, NULL},
    {"capacity", 0, "SIZE", "the memory that the buffers shall fit", OPTION_GROUP_PLACE, CLI_LAYOUT,
     OPTION_SIZE, FIELD(capacity_bytes), 1, MAX_BYTES, NULL},
    {"deadline", 0, "SECONDS", "how long the exact search may take", OPTION_GROUP_PLACE, CLI_LAYOUT,
     OPTION_REAL, FIELD(deadline_seconds), 0, 1e6, NULL},
    {"trace", 0, "FILE", "write a timeline of the run, for Perfetto", OPTION_GROUP_OUTPUT, CLI_JOBS,
     OPTION_FILE, FIELD(train.run.trace_path), 0, 0, NULL},
    {"problem", 0, "FILE", "plan an abstract problem instead of a job", OPTION_GROUP_OUTPUT,
     CLI_PLAN, OPTION_FILE, FIELD(problem_path), 0, 0, NULL},
    {"schedule", 0, "FILE", "where the schedule of the problem goes", OPTION_GROUP_OUTPUT, CLI_PLAN,
     OPTION_FILE, FIELD(schedule_path), 0, 0, NULL},
    {"bound", 0, "NAME", "how a problem's bound is found; lp needs a library", OPTION_GROUP_OUTPUT,
     CLI_PLAN, OPTION_CHOICE, FIELD(bound), 0, 0, bound_words},
    {"rounds", 0, "N", "rounds of a benchmark", OPTION_GROUP_OUTPUT, CLI_BENCH, OPTION_U32,
     FIELD(rounds), 1, CLI_MAX_ROUNDS, NULL},
    {"budgets", 0, "LIST", "device budgets of bench pressure: 50%, 512MiB, min, ...",
     OPTION_GROUP_OUTPUT, CLI_BENCH, OPTION_TEXT, FIELD(budgets), 0, 0, NULL},
    {"ablations", 0, NULL, "also run the job with parts of the planner left out",
     OPTION_GROUP_OUTPUT, CLI_BENCH, OPTION_FLAG, FIELD(ablations), 0, 0, NULL},
    {"results", 0, "NAME", "bench pressure writes NAME.json and NAME.svg", OPTION_GROUP_OUTPUT,
     CLI_BENCH, OPTION_FILE, FIELD(results), 0, 0, NULL},
    {"verbose", 'v', NULL, "say more; twice: still more", OPTION_GROUP_OUTPUT, CLI_EVERY,
     OPTION_COUNT, FIELD(verbose), 0, 0, NULL},
    {"help", 'h', NULL, "show this", OPTION_GROUP_OUTPUT, CLI_EVERY, OPTION_FLAG, FIELD(help), 0, 0,
     NULL},
    {"version", 0, NULL, "show the version", OPTION_GROUP_OUTPUT, CLI_EVERY, OPTION_FLAG,
     FIELD(version), 0, 0, NULL},
    {NULL, 0, NULL, NULL, OPTION_GROUP_COUNT, 0, OPTION_FLAG, 0, 0, 0, NULL},
};
/* clang-format on */

_Static_assert(sizeof options_table / sizeof options_table[0] <= CLI_MAX_OPTIONS,
               "struct cli remembers which options were given");
_Static_assert(sizeof(mr_offload) == sizeof(int) && sizeof(mr_recompute) == sizeof(int) &&
                   sizeof(mr_io_engine) == sizeof(int) && sizeof(mr_policy) == sizeof(int) &&
                   sizeof(mr_replan) == sizeof(int) && sizeof(mr_backend) == sizeof(int) &&
                   sizeof(mr_defer) == sizeof(int) && sizeof(mr_dtype) == sizeof(int),
               "a choice is stored as an int");
_Static_assert(MR_OFFLOAD_AUTO == 3 && MR_RECOMPUTE_FULL == 2 && MR_IO_PREAD == 2 &&
                   MR_POLICY_LRU == 2 && MR_BACKEND_CUDA == 1 && MR_BF16 == 1,
               "choices stand in the order of their enum");

void options_defaults(struct cli *cli) {
  memset(cli, 0, sizeof *cli);
  trainer_options_init(&cli->train);
  cli->rounds = 5;
  cli->deadline_seconds = 60;
}

bool options_given(const struct cli *cli, const char *name) {
  for (uint32_t i = 0; options_table[i].name != NULL; i++) {
    if (strcmp(options_table[i].name, name) == 0) {
      return cli->given[i];
    }
  }
  return false;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools/ is the `memrun` command: it reads a command line into a `struct cli`, hands it to the file
 * of the command (train.c, plan.c, verify.c, info.c, bench.c, layout.c), and shows what comes back.
 * What is trained, planned and measured is decided below, in train/ and runtime/.
 *
 * One table (options.c) says everything about an option; parsing, help, completion and suggestions
 * come from it. Standard output carries results alone: text for people, or with --json one object a
 * line. Everything else goes to standard error through the log.
 */
#ifndef MEMRUN_TOOLS_CLI_H
#define MEMRUN_TOOLS_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include <memrun/memrun.h>

#include "train/train.h"

struct output;

enum cli_command_bit {
  CLI_TRAIN = 1u << 0,
  CLI_PLAN = 1u << 1,
  CLI_VERIFY = 1u << 2,
  CLI_INFO = 1u << 3,
  CLI_BENCH = 1u << 4,
  CLI_LAYOUT = 1u << 5,
  CLI_JOBS = CLI_TRAIN | CLI_PLAN | CLI_VERIFY | CLI_BENCH,
  CLI_ALL = CLI_JOBS | CLI_INFO, /* that look at the machine */
  CLI_EVERY = CLI_ALL | CLI_LAYOUT,
};

#define CLI_MAX_WORDS   3u   /* the command and what it takes: "help train", "bench offload" */
#define CLI_MAX_OPTIONS 80u  /* rows of the option table */
#define CLI_MAX_ROUNDS  1000 /* of a benchmark */

enum cli_bound { CLI_BOUND_CUT, CLI_BOUND_LP };

/* An option as it stood on the command line. */
struct cli_option {
  uint32_t row;      /* of the option table */
  const char *value; /* "" for a flag */
};

/* A command line, read. Strings are the command line's own but for those of NVMe paths. */
struct cli {
  struct trainer_options train;
  struct mr_nvme_path nvme[MR_MAX_NVME_PATHS];
  char *nvme_text[MR_MAX_NVME_PATHS]; /* the paths, cut out of PATH:SIZE */
  uint32_t nvme_count;
  bool json, help, version;
  uint32_t verbose;
  uint32_t rounds;
  const char *scratch_dir;
  const char *budgets; /* of bench pressure; NULL: a sweep of its own */
  bool ablations;
  const char *results;
  const char *problem_path; /* of plan; NULL: a job is planned */
  const char *schedule_path;
  int bound; /* enum cli_bound, of a problem */
  bool explain;
  bool check;
  const char *out_path;    /* where plan keeps its plan and layout its offsets; NULL: nowhere */
  uint64_t capacity_bytes; /* of layout */
  double deadline_seconds;
  const char *words[CLI_MAX_WORDS];
  uint32_t word_count;
  bool given[CLI_MAX_OPTIONS]; /* by row of the option table */
  struct cli_option *taken;    /* the options in their order, for another command line */
  uint32_t taken_count;
  uint32_t taken_capacity;
};

struct cli_command {
  const char *name;
  const char *help;
  const char *operand; /* what follows the command; NULL: nothing */
  unsigned bit;        /* enum cli_command_bit; 0 for commands about memrun itself */
  mr_status (*run)(struct cli *cli, struct output *output);
};

/* The commands, ending with a NULL name. */
extern const struct cli_command cli_commands[];

/* The command of that name; NULL where there is none. */
const struct cli_command *cli_command_find(const char *name);

mr_status command_train(struct cli *cli, struct output *output);
mr_status command_plan(struct cli *cli, struct output *output);
mr_status command_verify(struct cli *cli, struct output *output);
mr_status command_info(struct cli *cli, struct output *output);
mr_status command_bench(struct cli *cli, struct output *output);
mr_status command_layout(struct cli *cli, struct output *output);
mr_status command_help(struct cli *cli, struct output *output);
mr_status command_complete(struct cli *cli, struct output *output);

/* Where temporary files go that are too large for memory: $TMPDIR, else /var/tmp. */
const char *cli_scratch_dir(void);

#endif

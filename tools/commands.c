/* SPDX-License-Identifier: Apache-2.0 */
/* The commands. */
#include <stdlib.h>
#include <string.h>

#include "tools/cli.h"

const struct cli_command cli_commands[] = {
    {"train", "train a GPT-2, placing its tensors on the tiers", NULL, CLI_TRAIN, command_train},
    {"plan", "say whether a job fits, what it needs and how fast it will be", NULL, CLI_PLAN,
     command_plan},
    {"verify", "prove that a job's results do not depend on its budgets", NULL, CLI_VERIFY,
     command_verify},
    {"info", "show devices, tiers and measured speeds", NULL, CLI_INFO, command_info},
    {"bench", "measure this machine, or a job with less and less memory",
     "machine|offload|pressure", CLI_BENCH, command_bench},
    {"layout", "pack buffers of a file into one range of memory", "FILE", CLI_LAYOUT,
     command_layout},
    {"help", "show help, also for a command", "COMMAND", 0, command_help},
    {"complete", "list the words that may follow, for shells", "COMMAND|OPTION", 0,
     command_complete},
    {NULL, NULL, NULL, 0, NULL},
};

const struct cli_command *cli_command_find(const char *name) {
  for (const struct cli_command *command = cli_commands; command->name != NULL; command++) {
    if (strcmp(command->name, name) == 0) {
      return command;
    }
  }
  return NULL;
}

const char *cli_scratch_dir(void) {
  const char *dir = getenv("TMPDIR");
  return dir == NULL || *dir == '\0' ? "/var/tmp" : dir;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options of the command line: one row each, from which parsing, help, completion words and
 * suggestions follow.
 */
#ifndef MEMRUN_TOOLS_OPTIONS_H
#define MEMRUN_TOOLS_OPTIONS_H

#include <stddef.h>

#include "tools/cli.h"

enum option_group {
  OPTION_GROUP_PLACE,
  OPTION_GROUP_MODEL,
  OPTION_GROUP_DATA,
  OPTION_GROUP_OPTIMIZER,
  OPTION_GROUP_KEEP,
  OPTION_GROUP_OUTPUT,
  OPTION_GROUP_COUNT,
};

enum option_kind {
  OPTION_FLAG,   /* bool */
  OPTION_COUNT,  /* uint32_t, one more each time */
  OPTION_TEXT,   /* const char *, anything but nothing */
  OPTION_FILE,   /* the same; completes file names */
  OPTION_FOLDER, /* the same; completes folders */
  OPTION_WORD,   /* const char *, one of `choices` */
  OPTION_CHOICE, /* an enum: the index among `choices` */
  OPTION_SIZE,   /* uint64_t bytes */
  OPTION_U32,
  OPTION_U64,
  OPTION_REAL,  /* double */
  OPTION_BETAS, /* two doubles, one after the other in memory: B1,B2 */
  OPTION_NVME,  /* PATH[:SIZE], added to the list */
};

struct option {
  const char *name;
  char letter;          /* 0: none */
  const char *argument; /* NULL: none */
  const char *help;
  enum option_group group;
  unsigned commands; /* enum cli_command_bit: who takes it */
  enum option_kind kind;
  size_t offset; /* in struct cli */
  double minimum, maximum;
  const char *const *choices; /* ends with NULL */
};

/* The rows; the array ends with a NULL name. */
extern const struct option options_table[];

/* Fills in the defaults of every option. */
void options_defaults(struct cli *cli);

/*
 * Reads the command line into `cli`, which options_defaults has filled. MR_INVALID: one log line
 * names the option, the value and what is wanted; MR_NO_MEMORY. options_free afterwards in any
 * case.
 */
MR_CHECK_RESULT mr_status options_parse(struct cli *cli, int argc, char **argv);
void options_free(struct cli *cli);

/* MR_INVALID: one line says that `word` is no command and names the nearest one. */
MR_CHECK_RESULT mr_status options_refuse_command(const char *word);

/* Whether the option of that name was on the command line. */
bool options_given(const struct cli *cli, const char *name);

/* Reads one value of `option` into `cli`. MR_INVALID logs; MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status option_read(struct cli *cli, const struct option *option,
                                      const char *value);

/* Help for a command, or for memrun itself where `command` is NULL. */
void options_help(struct output *output, const struct cli_command *command);

#endif

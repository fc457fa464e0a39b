/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a command line over the table of options. Options stand before and after the command, as
 * "--name value" or "--name=value"; "--" ends them. The first fault is told in one line.
 */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/options.h"
#include "tools/suggest.h"

struct parser {
  struct cli *cli;
  char **arguments;
  int count;
  int next;
};

static mr_status refuse(const struct option *option, const char *value, const char *wanted) {
  mr_log(MR_LOG_ERROR, "--%s '%s': %s", option->name, value, wanted);
  return MR_INVALID;
}

static void store(struct cli *cli, const struct option *option, const void *value, size_t bytes) {
  memcpy((char *)cli + option->offset, value, bytes);
}

static mr_status read_whole(struct cli *cli, const struct option *option, const char *value) {
  char *end = NULL;
  errno = 0;
  unsigned long long number = isdigit((unsigned char)*value) ? strtoull(value, &end, 10) : 0;
  if (end == NULL || *end != '\0' || errno != 0 || (double)number < option->minimum ||
      (double)number > option->maximum) {
    bool any = option->maximum >= 0x1.0p64;
    mr_log(MR_LOG_ERROR, "--%s '%s': a whole number from %.0f to %llu is wanted", option->name,
           value, option->minimum, any ? ULLONG_MAX : (unsigned long long)option->maximum);
    return MR_INVALID;
  }
  if (option->kind == OPTION_U32) {
    store(cli, option, &(uint32_t){(uint32_t)number}, sizeof(uint32_t));
  } else {
    store(cli, option, &(uint64_t){number}, sizeof(uint64_t));
  }
  return MR_OK;
}

/* A finite number at the front of `text`; no white space, no hexadecimal, no words. */
static bool scan_real(const char *text, double *number_out, const char **end_out) {
  char *end = NULL;
  if (!isdigit((unsigned char)text[0]) && text[0] != '.') {
    return false;
  }
  if (strcspn(text, "xX") < strspn(text, "0123456789.eE+-xX")) {
    return false;
  }
  *number_out = strtod(text, &end);
  *end_out = end;
  return end != text && isfinite(*number_out);
}

static mr_status read_real(struct cli *cli, const struct option *option, const char *value) {
  double number = 0;
  const char *end = NULL;
  if (!scan_real(value, &number, &end) || *end != '\0' || number < option->minimum ||
      number > option->maximum) {
    mr_log(MR_LOG_ERROR, "--%s '%s': a number from %g to %g is wanted", option->name, value,
           option->minimum, option->maximum);
    return MR_INVALID;
  }
  store(cli, option, &number, sizeof number);
  return MR_OK;
}

static mr_status read_betas(struct cli *cli, const struct option *option, const char *value) {
  double betas[2];
  const char *end = NULL;
  if (!scan_real(value, &betas[0], &end) || *end != ',' || !scan_real(end + 1, &betas[1], &end) ||
      *end != '\0' || betas[0] >= option->maximum || betas[1] >= option->maximum) {
    return refuse(option, value, "two numbers B1,B2 from 0 to below 1 are wanted");
  }
  cli->train.beta1 = betas[0];
  cli->train.beta2 = betas[1];
  return MR_OK;
}

static mr_status read_size(const struct option *option, const char *value, const char *text,
                           uint64_t *bytes_out) {
  uint64_t bytes = 0;
  if (mr_size_parse(text, &bytes) != MR_OK) {
    return refuse(option, value, "a size such as 512M, 1.5GiB or 4096 is wanted, below 2^62 bytes");
  }
  if ((double)bytes < option->minimum) {
    struct mr_size_text limit;
    mr_log(MR_LOG_ERROR, "--%s '%s': at least %s is wanted", option->name, value,
           mr_size_format((uint64_t)option->minimum, &limit));
    return MR_INVALID;
  }
  *bytes_out = bytes;
  return MR_OK;
}

/* What follows the last colon is a size where it looks like one; otherwise the colon is part of
 * the path. */
static mr_status read_nvme(struct cli *cli, const struct option *option, const char *value) {
  if (cli->nvme_count == MR_MAX_NVME_PATHS) {
    mr_log(MR_LOG_ERROR, "--nvme '%s': at most %u paths", value, MR_MAX_NVME_PATHS);
    return MR_INVALID;
  }
  uint64_t limit = MR_BUDGET_AUTO;
  const char *colon = strrchr(value, ':');
  size_t length = strlen(value);
  if (colon != NULL && isdigit((unsigned char)colon[1]) && strchr(colon, '/') == NULL) {
    mr_status status = read_size(option, value, colon + 1, &limit);
    if (status != MR_OK) {
      return status;
    }
    length = (size_t)(colon - value);
  }
  if (length == 0) {
    return refuse(option, value, "a folder is wanted, as in /mnt/nvme or /mnt/nvme:100G");
  }
  char *path = mr_string_copy(value);
  if (path == NULL) {
    return MR_NO_MEMORY;
  }
  path[length] = '\0';
  cli->nvme_text[cli->nvme_count] = path;
  cli->nvme[cli->nvme_count].path = path;
  cli->nvme[cli->nvme_count].limit_bytes = limit;
  cli->nvme_count++;
  return MR_OK;
}

static mr_status refuse_word(const struct option *option, const char *value) {
  struct suggestion near = {.word = value};
  char list[200];
  size_t length = 0;
  for (uint32_t i = 0; option->choices[i] != NULL; i++) {
    suggestion_offer(&near, option->choices[i]);
    const char *word = option->choices[i];
    const char *separator = i == 0 ? "" : option->choices[i + 1] == NULL ? " or " : ", ";
    MR_ASSERT(length + strlen(separator) + strlen(word) < sizeof list);
    length = (size_t)(stpcpy(stpcpy(list + length, separator), word) - list);
  }
  mr_log(MR_LOG_ERROR, "--%s '%s': %s is wanted%s%s%s", option->name, value, list,
         near.nearest == NULL ? "" : "; did you mean ", near.nearest == NULL ? "" : near.nearest,
         near.nearest == NULL ? "" : "?");
  return MR_INVALID;
}

static mr_status read_word(struct cli *cli, const struct option *option, const char *value) {
  for (int i = 0; option->choices[i] != NULL; i++) {
    if (strcmp(option->choices[i], value) == 0) {
      if (option->kind == OPTION_CHOICE) {
        store(cli, option, &i, sizeof i);
      } else {
        store(cli, option, &option->choices[i], sizeof option->choices[i]);
      }
      return MR_OK;
    }
  }
  return refuse_word(option, value);
}

mr_status option_read(struct cli *cli, const struct option *option, const char *value) {
  switch (option->kind) {
  case OPTION_FLAG:
    store(cli, option, &(bool){true}, sizeof(bool));
    return MR_OK;
  case OPTION_COUNT:
    cli->verbose++;
    return MR_OK;
  case OPTION_TEXT:
  case OPTION_FILE:
  case OPTION_FOLDER:
    if (*value == '\0') {
      return refuse(option, value, "a name is wanted");
    }
    store(cli, option, &value, sizeof value);
    return MR_OK;
  case OPTION_WORD:
  case OPTION_CHOICE:
    return read_word(cli, option, value);
  case OPTION_SIZE: {
    uint64_t bytes = 0;
    mr_status status = read_size(option, value, value, &bytes);
    if (status == MR_OK) {
      store(cli, option, &bytes, sizeof bytes);
    }
    return status;
  }
  case OPTION_U32:
  case OPTION_U64:
    return read_whole(cli, option, value);
  case OPTION_REAL:
    return read_real(cli, option, value);
  case OPTION_BETAS:
    return read_betas(cli, option, value);
  case OPTION_NVME:
    return read_nvme(cli, option, value);
  }
  MR_ASSERT(false);
  return MR_INVALID;
}

/* `name` is what the argument has between its dashes and "=". */
static mr_status refuse_unknown(const char *argument, const char *name, size_t name_length) {
  char word[SUGGEST_MAX_LENGTH + 1] = "";
  if (name_length <= SUGGEST_MAX_LENGTH) {
    memcpy(word, name, name_length);
  }
  struct suggestion near = {.word = word};
  for (const struct option *option = options_table; option->name != NULL; option++) {
    suggestion_offer(&near, option->name);
  }
  size_t length = (size_t)(name - argument) + name_length;
  int shown = length < 200 ? (int)length : 200;
  if (near.nearest != NULL) {
    mr_log(MR_LOG_ERROR, "unknown option %.*s; did you mean --%s?", shown, argument, near.nearest);
  } else {
    mr_log(MR_LOG_ERROR, "unknown option %.*s; memrun COMMAND --help lists those of a command",
           shown, argument);
  }
  return MR_INVALID;
}

/* Notes the option and reads its value: what follows "=", or the next argument. */
static mr_status take(struct parser *parser, const struct option *option, const char *value) {
  uint32_t row = (uint32_t)(option - options_table);
  if (option->argument == NULL && value != NULL) {
    mr_log(MR_LOG_ERROR, "--%s takes no value, not '%s'", option->name, value);
    return MR_INVALID;
  }
  if (option->argument != NULL && value == NULL) {
    if (parser->next == parser->count) {
      mr_log(MR_LOG_ERROR, "--%s needs a value: --%s %s", option->name, option->name,
             option->argument);
      return MR_INVALID;
    }
    value = parser->arguments[parser->next++];
  }
  struct cli *cli = parser->cli;
  value = value == NULL ? "" : value;
  mr_status status = mr_array_reserve((void **)&cli->taken, &cli->taken_capacity,
                                      cli->taken_count + 1ull, sizeof *cli->taken);
  if (status != MR_OK) {
    return status;
  }
  cli->taken[cli->taken_count++] = (struct cli_option){row, value};
  cli->given[row] = true;
  return option_read(cli, option, value);
}

static mr_status take_long(struct parser *parser, const char *argument) {
  size_t length = strcspn(argument + 2, "=");
  const char *value = argument[2 + length] == '=' ? argument + 3 + length : NULL;
  for (const struct option *option = options_table; option->name != NULL; option++) {
    if (strlen(option->name) == length && strncmp(option->name, argument + 2, length) == 0) {
      return take(parser, option, value);
    }
  }
  return refuse_unknown(argument, argument + 2, length);
}

/* Letters take no values, so several may stand together: "-vv". */
static mr_status take_letters(struct parser *parser, const char *argument) {
  for (const char *letter = argument + 1; *letter != '\0'; letter++) {
    const struct option *option = options_table;
    while (option->name != NULL && option->letter != *letter) {
      option++;
    }
    if (option->name == NULL) {
      bool takes_none = *letter == '='; /* "-v=2": all of it is what is not known */
      size_t length = takes_none ? strlen(argument + 1) : strcspn(argument + 1, "=");
      return refuse_unknown(argument, argument + 1, length);
    }
    mr_status status = take(parser, option, NULL);
    if (status != MR_OK) {
      return status;
    }
  }
  return MR_OK;
}

static mr_status take_word(struct parser *parser, const char *word) {
  struct cli *cli = parser->cli;
  if (cli->word_count == CLI_MAX_WORDS) {
    mr_log(MR_LOG_ERROR, "unexpected argument '%s'", word);
    return MR_INVALID;
  }
  cli->words[cli->word_count++] = word;
  return MR_OK;
}

mr_status options_refuse_command(const char *word) {
  struct suggestion near = {.word = word};
  for (const struct cli_command *command = cli_commands; command->name != NULL; command++) {
    suggestion_offer(&near, command->name);
  }
  mr_log(MR_LOG_ERROR, "unknown command '%s'; %s%s%s", word,
         near.nearest == NULL ? "memrun --help lists all" : "did you mean ",
         near.nearest == NULL ? "" : near.nearest, near.nearest == NULL ? "" : "?");
  return MR_INVALID;
}

/* Options that say how often or how much of what another one asks for mean nothing alone. */
static mr_status check_pairs(const struct cli *cli) {
  static const struct {
    const char *name, *needs, *why;
  } pairs[] = {{"ckpt-every", "ckpt", "which says where to"},
               {"eval-data", "eval-every", "which says how often"},
               {"eval-batches", "eval-every", "which says how often"},
               {"min-lr", "decay-steps", "which says by when"}};
  for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
    if (options_given(cli, pairs[i].name) && !options_given(cli, pairs[i].needs)) {
      mr_log(MR_LOG_ERROR, "--%s means nothing without --%s, %s", pairs[i].name, pairs[i].needs,
             pairs[i].why);
      return MR_INVALID;
    }
  }
  return MR_OK;
}

/* The command exists and takes what was given. */
static mr_status check_command(const struct cli *cli) {
  if (cli->word_count == 0) {
    return MR_OK;
  }
  const struct cli_command *command = cli_command_find(cli->words[0]);
  if (command == NULL) {
    return options_refuse_command(cli->words[0]);
  }
  if (cli->word_count > 1 && command->operand == NULL) {
    mr_log(MR_LOG_ERROR, "%s takes no argument, not '%s'", command->name, cli->words[1]);
    return MR_INVALID;
  }
  if (cli->word_count > 2) {
    mr_log(MR_LOG_ERROR, "%s takes one argument, not '%s' too", command->name, cli->words[2]);
    return MR_INVALID;
  }
  for (uint32_t i = 0; options_table[i].name != NULL && command->bit != 0; i++) {
    if (cli->given[i] && (options_table[i].commands & command->bit) == 0) {
      mr_log(MR_LOG_ERROR, "--%s is no option of %s; memrun %s --help lists them",
             options_table[i].name, command->name, command->name);
      return MR_INVALID;
    }
  }
  return check_pairs(cli);
}

mr_status options_parse(struct cli *cli, int argc, char **argv) {
  struct parser parser = {.cli = cli, .arguments = argv, .count = argc, .next = 1};
  bool only_words = false;
  mr_status status = MR_OK;
  while (parser.next < argc && status == MR_OK) {
    const char *argument = argv[parser.next++];
    if (only_words || argument[0] != '-' || argument[1] == '\0') {
      status = take_word(&parser, argument);
    } else if (strcmp(argument, "--") == 0) {
      only_words = true;
    } else if (argument[1] == '-') {
      status = take_long(&parser, argument);
    } else {
      status = take_letters(&parser, argument);
    }
  }
  if (status != MR_OK) {
    return status;
  }
  cli->train.run.nvme = cli->nvme_count == 0 ? NULL : cli->nvme;
  cli->train.run.nvme_count = cli->nvme_count;
  return check_command(cli);
}

void options_free(struct cli *cli) {
  for (uint32_t i = 0; i < cli->nvme_count; i++) {
    free(cli->nvme_text[i]);
  }
  free(cli->taken);
  cli->nvme_count = 0;
  cli->taken = NULL;
  cli->taken_count = 0;
}

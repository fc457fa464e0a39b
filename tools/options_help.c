/* SPDX-License-Identifier: Apache-2.0 */
/* Help and completion words, from the table of options and the list of commands. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "tools/options.h"
#include "tools/output.h"

#define HELP_COLUMN 30

static const char *const group_titles[OPTION_GROUP_COUNT] = {
    [OPTION_GROUP_PLACE] = "Where tensors live and ops run",
    [OPTION_GROUP_MODEL] = "The model",
    [OPTION_GROUP_DATA] = "Data",
    [OPTION_GROUP_OPTIMIZER] = "Training",
    [OPTION_GROUP_KEEP] = "What is kept",
    [OPTION_GROUP_OUTPUT] = "Output",
};

struct default_text {
  char text[64];
};

static const void *field(const struct cli *cli, const struct option *option) {
  return (const char *)cli + option->offset;
}

/* " [value]" where the option has a default that says something, else "". */
static const char *default_text(const struct cli *defaults, const struct option *option,
                                struct default_text *buffer) {
  char *text = buffer->text;
  size_t size = sizeof buffer->text;
  text[0] = '\0';
  if (option->kind == OPTION_U32) {
    uint32_t number = 0;
    memcpy(&number, field(defaults, option), sizeof number);
    if (number != 0) {
      snprintf(text, size, " [%u]", number);
    }
  } else if (option->kind == OPTION_U64) {
    uint64_t number = 0;
    memcpy(&number, field(defaults, option), sizeof number);
    if (number != 0) {
      snprintf(text, size, " [%llu]", (unsigned long long)number);
    }
  } else if (option->kind == OPTION_REAL || option->kind == OPTION_BETAS) {
    double numbers[2];
    memcpy(numbers, field(defaults, option),
           option->kind == OPTION_BETAS ? sizeof numbers : sizeof numbers[0]);
    if (option->kind == OPTION_BETAS) {
      snprintf(text, size, " [%g,%g]", numbers[0], numbers[1]);
    } else {
      snprintf(text, size, " [%g]", numbers[0]);
    }
  } else if (option->kind == OPTION_CHOICE) {
    int index = 0;
    memcpy(&index, field(defaults, option), sizeof index);
    snprintf(text, size, " [%s]", option->choices[index]);
  } else if (option->kind == OPTION_WORD) {
    const char *word = NULL;
    memcpy(&word, field(defaults, option), sizeof word);
    if (word != NULL) {
      snprintf(text, size, " [%s]", word);
    }
  }
  return text;
}

static void help_row(struct output *output, const struct cli *defaults,
                     const struct option *option) {
  char left[80];
  char letter[8] = "    ";
  if (option->letter != 0) {
    snprintf(letter, sizeof letter, "-%c, ", option->letter);
  }
  snprintf(left, sizeof left, "  %s--%s%s%s", letter, option->name,
           option->argument == NULL ? "" : " ", option->argument == NULL ? "" : option->argument);
  struct default_text buffer;
  output_text(output, "%-*s %s%s\n", HELP_COLUMN, left, option->help,
              default_text(defaults, option, &buffer));
  if (option->choices != NULL && option->choices[1] != NULL) {
    char words[80] = "";
    char *end = words;
    for (uint32_t i = 0; option->choices[i] != NULL; i++) {
      size_t room = sizeof words - (size_t)(end - words);
      end += snprintf(end, room, "%s%s", i == 0 ? "" : ", ", option->choices[i]);
      MR_ASSERT(end < words + sizeof words);
    }
    output_text(output, "%-*s %s\n", HELP_COLUMN, "", words);
  }
}

static void help_groups(struct output *output, unsigned commands) {
  struct cli defaults;
  options_defaults(&defaults);
  for (int group = 0; group < OPTION_GROUP_COUNT; group++) {
    bool titled = false;
    for (const struct option *option = options_table; option->name != NULL; option++) {
      if ((int)option->group != group || (option->commands & commands) != commands) {
        continue;
      }
      if (!titled) {
        output_text(output, "\n%s:\n", group_titles[group]);
        titled = true;
      }
      help_row(output, &defaults, option);
    }
  }
}

void options_help(struct output *output, const struct cli_command *command) {
  if (command != NULL) {
    output_text(
        output, "usage: memrun [OPTIONS] %s%s%s%s%s\n\n%s\n", command->name,
        command->operand == NULL ? "" : " [", command->operand == NULL ? "" : command->operand,
        command->operand == NULL ? "" : "]", command->bit == 0 ? "" : " [OPTIONS]", command->help);
    if (command->bit != 0) {
      help_groups(output, command->bit);
      output_text(output, "\nSizes take K, M, G, T and KiB, MiB, GiB, TiB. More in memrun-%s(1).\n",
                  command->name);
    }
    return;
  }
  output_text(output, "usage: memrun [OPTIONS] COMMAND [OPTIONS]\n\n"
                      "Trains models larger than the device.\n\nCommands:\n");
  for (const struct cli_command *each = cli_commands; each->name != NULL; each++) {
    output_text(output, "  %-10s %s\n", each->name, each->help);
  }
  output_text(output, "\nFirst steps:\n"
                      "  memrun --offload nvme train     train a model that does not fit\n"
                      "  memrun --offload nvme verify    prove that the results are the same\n"
                      "\nOptions of every command; layout has the last four alone:\n");
  help_groups(output, CLI_ALL);
  output_text(output, "\nmemrun COMMAND --help shows the others. Exit status: 0 done, 1 results "
                      "differ, 2 usage,\n3 does not fit, 4 input or output, 5 corrupt data, 130 "
                      "interrupted.\n");
}

mr_status command_help(struct cli *cli, struct output *output) {
  if (cli->word_count < 2) {
    options_help(output, NULL);
    return MR_OK;
  }
  const struct cli_command *command = cli_command_find(cli->words[1]);
  if (command == NULL) {
    return options_refuse_command(cli->words[1]);
  }
  options_help(output, command);
  return MR_OK;
}

/* What may follow an option: its choices, or "<file>" or "<folder>" for the shell to find. */
static void complete_value(struct output *output, const struct option *option) {
  for (uint32_t i = 0; option->choices != NULL && option->choices[i] != NULL; i++) {
    output_text(output, "%s\n", option->choices[i]);
  }
  if (option->kind == OPTION_FILE) {
    output_text(output, "<file>\n");
  } else if (option->kind == OPTION_FOLDER || option->kind == OPTION_NVME) {
    output_text(output, "<folder>\n");
  } else if (option->choices == NULL && option->argument != NULL) {
    output_text(output, "<%s>\n", option->argument);
  }
}

static void complete_options(struct output *output, unsigned commands) {
  for (const struct option *option = options_table; option->name != NULL; option++) {
    if (commands == 0 || (option->commands & commands) != 0) {
      output_text(output, "--%s\n", option->name);
    }
  }
}

mr_status command_complete(struct cli *cli, struct output *output) {
  const char *word = cli->word_count > 1 ? cli->words[1] : NULL;
  if (word == NULL) {
    for (const struct cli_command *each = cli_commands; each->name != NULL; each++) {
      output_text(output, "%s\n", each->name);
    }
    complete_options(output, 0);
    return MR_OK;
  }
  const struct cli_command *command = cli_command_find(word);
  if (command != NULL && command->bit != 0) {
    complete_options(output, command->bit);
    return MR_OK;
  }
  for (const struct option *option = options_table; option->name != NULL; option++) {
    if (strncmp(word, "--", 2) == 0 && strcmp(option->name, word + 2) == 0) {
      complete_value(output, option);
    }
  }
  return MR_OK;
}

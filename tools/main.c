/* SPDX-License-Identifier: Apache-2.0 */
/* memrun: reads the command line, runs the command, turns its status into an exit status. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/options.h"
#include "tools/output.h"
#include "tools/signals.h"

static mr_log_level log_level(const struct cli *cli) {
  uint32_t level = (uint32_t)MR_LOG_WARN + cli->verbose;
  return level > (uint32_t)MR_LOG_TRACE ? MR_LOG_TRACE : (mr_log_level)level;
}

static mr_status run(struct cli *cli, struct output *output) {
  output_take_log(output, log_level(cli));
  output->json = cli->json;
  const struct cli_command *command = cli->word_count == 0 ? NULL : cli_command_find(cli->words[0]);
  if (cli->version) {
    output_text(output, "memrun %s\n", MEMRUN_VERSION);
    return MR_OK;
  }
  if (cli->help) {
    options_help(output, command);
    return MR_OK;
  }
  if (command == NULL) {
    mr_log(MR_LOG_ERROR, "a command is missing: train, plan, verify, info, bench or layout; memrun "
                         "--help says more");
    return MR_INVALID;
  }
  return command->run(cli, output);
}

/* Standard streams that are closed stay so: else the next file that is opened would be one, and
 * what is printed would go into that. Writing to them fails, as it does to a closed one. */
static void hold_streams(void) {
  int held = 0;
  while (held >= 0 && held <= STDERR_FILENO) {
    held = open("/dev/null", O_RDONLY); /* the lowest number that is free */
  }
  if (held > STDERR_FILENO) {
    close(held);
  }
}

int main(int argc, char **argv) {
  struct output output;
  struct cli cli;
  hold_streams();
  signals_catch();
  output_init(&output, signals_stop_word());
  output_take_log(&output, MR_LOG_WARN);
  options_defaults(&cli);
  mr_status status = options_parse(&cli, argc, argv);
  if (status == MR_OK) {
    status = run(&cli, &output);
  }
  options_free(&cli);
  if (status == MR_OK) {
    status = output_failed(&output);
  }
  mr_log_configure(NULL, NULL, MR_LOG_WARN);
  if (status == MR_TIMEOUT) {
    /* What did not end in time may never; libraries that end in order would wait for it. */
    (void)fflush(NULL);
    _exit(mr_status_exit(status));
  }
  return mr_status_exit(status);
}

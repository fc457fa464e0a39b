/* SPDX-License-Identifier: Apache-2.0 */
/* The words are global because a signal handler has no context. */
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

#include <memrun/status.h>

#include "base/base.h"
#include "tools/signals.h"

static volatile int stop_word;
static volatile sig_atomic_t signal_count;
static volatile sig_atomic_t in_order;

static void on_signal(int number) {
  (void)number;
  signal_count = signal_count + 1;
  if (!in_order || signal_count > 1) {
    _exit(130);
  }
  stop_word = 1;
}

void signals_catch(void) {
  static const int caught[] = {SIGINT, SIGTERM, SIGHUP};
  for (size_t i = 0; i < MR_COUNT_OF(caught); i++) {
    struct sigaction action;
    if (sigaction(caught[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN) {
      action = (struct sigaction){.sa_handler = on_signal, .sa_flags = SA_RESTART};
      sigaction(caught[i], &action, NULL);
    }
  }
  struct sigaction ignore = {.sa_handler = SIG_IGN};
  sigaction(SIGPIPE, &ignore, NULL);
}

volatile int *signals_stop_word(void) {
  return &stop_word;
}

void signals_end_in_order(void) {
  in_order = 1;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The words are global because signals belong to the process. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/signals.h"

#define INTERRUPTED_STATUS 130
#define STACK_BYTES        65536u

static volatile int stop_word;
static _Atomic bool in_order;
static sigset_t caught;

static void *wait_for_signals(void *context) {
  (void)context;
  for (int count = 1;; count++) {
    int number = 0;
    while (sigwait(&caught, &number) != 0) {
    }
    if (!atomic_load(&in_order) || count > 1) {
      _exit(INTERRUPTED_STATUS);
    }
    stop_word = 1;
  }
  return NULL;
}

static bool is_ignored(int number) {
  struct sigaction action;
  return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

void signals_catch(void) {
  static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
  sigset_t before;
  sigemptyset(&caught);
  for (size_t i = 0; i < MR_COUNT_OF(numbers); i++) {
    if (!is_ignored(numbers[i])) {
      sigaddset(&caught, numbers[i]);
    }
  }
  struct sigaction ignore = {.sa_handler = SIG_IGN};
  sigaction(SIGPIPE, &ignore, NULL);
  sigaction(SIGXFSZ, &ignore, NULL); /* a limit of file sizes is told as an error */
  pthread_sigmask(SIG_BLOCK, &caught, &before);
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  if (pthread_create(&thread, &attributes, wait_for_signals, NULL) != 0) {
    pthread_sigmask(SIG_SETMASK, &before, NULL);
  }
  pthread_attr_destroy(&attributes);
}

volatile int *signals_stop_word(void) {
  return &stop_word;
}

void signals_end_in_order(void) {
  atomic_store(&in_order, true);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's own books: /proc/stat for all, the process's clock for us, and what the scheduler
 * says of the calling thread's wait. */
#include "runtime/load.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

/* Waiting less than this part of the time is what a machine of one's own does too. */
#define LEAST_DELAY 0.01

/* The beginning of a small file of the kernel's, without a byte of heap; empty where there is none.
 */
static void read_text(const char *path, char *text, size_t capacity) {
  ssize_t length = -1;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file >= 0) {
    length = read(file, text, capacity - 1);
    close(file);
  }
  text[length < 0 ? 0 : length] = '\0';
}

/* "cpu  user nice system idle iowait irq softirq steal ...", in ticks; time of guests is in user
 * already. */
static double read_busy_seconds(void) {
  enum { IDLE = 3, IOWAIT = 4, FIELDS = 8 };
  char text[256];
  read_text("/proc/stat", text, sizeof text);
  if (strncmp(text, "cpu ", 4) != 0) {
    return 0;
  }
  unsigned long long ticks = 0;
  char *next = text + 4;
  for (uint32_t i = 0; i < FIELDS; i++) {
    unsigned long long field = strtoull(next, &next, 10);
    ticks += i == IDLE || i == IOWAIT ? 0 : field;
  }
  return (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

/* "running delay slices", in nanoseconds. */
static double read_delay_seconds(void) {
  char text[128];
  read_text("/proc/thread-self/schedstat", text, sizeof text);
  char *next = text;
  (void)strtoull(next, &next, 10);
  return (double)strtoull(next, NULL, 10) * 1e-9;
}

void mr_load_take(struct mr_load_mark *mark_out) {
  struct timespec own = {0};
  struct mr_load_mark mark = {
      .wall_seconds = mr_clock_seconds(),
      .busy_seconds = read_busy_seconds(),
      .delay_seconds = read_delay_seconds(),
      .processors = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN),
  };
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own) == 0) {
    mark.own_seconds = (double)own.tv_sec + (double)own.tv_nsec * 1e-9;
  }
  *mark_out = mark;
}

double mr_load_others_share(const struct mr_load_mark *from, const struct mr_load_mark *to) {
  double wall = to->wall_seconds - from->wall_seconds;
  if (!(from->busy_seconds > 0) || !(wall > 0) ||
      to->delay_seconds - from->delay_seconds < LEAST_DELAY * wall) {
    return 0;
  }
  double busy = to->busy_seconds - from->busy_seconds;
  double own = to->own_seconds - from->own_seconds;
  return fmin(fmax(busy - own, 0) / (wall * to->processors), 1);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Writes whole lines to standard output and standard error around a status line. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/json.h"
#include "tools/output.h"

#define WIPE "\r\033[K"

void output_init(struct output *output, volatile int *stop) {
  memset(output, 0, sizeof *output);
  pthread_mutex_init(&output->mutex, NULL);
  output->stop = stop;
  output->terminal = isatty(STDOUT_FILENO) == 1;
}

/* Writes it all; false with errno where that is not possible. */
static bool write_whole(int file, const char *text, size_t length) {
  while (length > 0) {
    ssize_t written = write(file, text, length);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      return false;
    }
    text += written;
    length -= (size_t)written;
  }
  return true;
}

static void write_error(const char *text, size_t length) {
  /* Nobody can be told that standard error is gone. */
  (void)!write_whole(STDERR_FILENO, text, length);
}

/* The mutex is held. */
static void write_result(struct output *output, const char *text, size_t length) {
  if (output->failed != MR_OK || write_whole(STDOUT_FILENO, text, length)) {
    return;
  }
  if (errno == EPIPE) {
    output->failed = MR_INTERRUPTED;
  } else {
    char line[160];
    int bytes = snprintf(line, sizeof line, "memrun: standard output cannot be written: %s\n",
                         strerrordesc_np(errno));
    write_error(line, (size_t)bytes);
    output->failed = MR_IO;
  }
  *output->stop = 1;
}

/* The mutex is held. */
static void wipe_status(struct output *output) {
  if (output->status_shown) {
    write_result(output, WIPE, sizeof WIPE - 1);
    output->status_shown = false;
  }
}

/* The mutex is held. */
static void draw_status(struct output *output) {
  if (output->status[0] != '\0') {
    char text[sizeof WIPE + OUTPUT_STATUS_BYTES];
    char *end = stpcpy(stpcpy(text, WIPE), output->status);
    write_result(output, text, (size_t)(end - text));
    output->status_shown = true;
  }
}

static void log_line(void *context, mr_log_level level, const char *line) {
  (void)level;
  struct output *output = context;
  char text[1200];
  int bytes = snprintf(text, sizeof text, "memrun: %.1100s\n", line);
  pthread_mutex_lock(&output->mutex);
  wipe_status(output);
  write_error(text, (size_t)bytes);
  draw_status(output);
  pthread_mutex_unlock(&output->mutex);
}

void output_take_log(struct output *output, mr_log_level level) {
  mr_log_configure(log_line, output, level);
}

mr_status output_failed(struct output *output) {
  pthread_mutex_lock(&output->mutex);
  mr_status status = output->failed;
  pthread_mutex_unlock(&output->mutex);
  return status;
}

void output_text(struct output *output, const char *format, ...) {
  char text[4096];
  va_list arguments;
  va_start(arguments, format);
  /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is one line above */
  int bytes = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  MR_ASSERT(bytes >= 0);
  pthread_mutex_lock(&output->mutex);
  wipe_status(output);
  write_result(output, text, (size_t)bytes < sizeof text ? (size_t)bytes : sizeof text - 1);
  draw_status(output);
  pthread_mutex_unlock(&output->mutex);
}

mr_status output_json(struct output *output, json_t *object) {
  char *text = NULL;
  mr_status status = mr_json_print(object, JSON_COMPACT | MR_JSON_DIGITS, "a result", &text);
  if (status != MR_OK) {
    return status;
  }
  size_t length = strlen(text);
  text[length] = '\n'; /* the newline takes the place of the end mark: one write for each line */
  pthread_mutex_lock(&output->mutex);
  write_result(output, text, length + 1);
  status = output->failed;
  pthread_mutex_unlock(&output->mutex);
  free(text);
  return status;
}

void output_status(struct output *output, const char *line) {
  uint32_t columns = output_columns();
  size_t length = strlen(line);
  size_t room = columns > 1 ? columns - 1 : 1;
  room = room < OUTPUT_STATUS_BYTES ? room : OUTPUT_STATUS_BYTES - 1;
  length = length < room ? length : room;
  pthread_mutex_lock(&output->mutex);
  memcpy(output->status, line, length);
  output->status[length] = '\0';
  if (length == 0) {
    wipe_status(output);
  }
  draw_status(output);
  pthread_mutex_unlock(&output->mutex);
}

void output_cut_middle(char *text, size_t columns) {
  size_t length = strlen(text);
  if (length > columns) {
    size_t kept = columns / 2;
    memmove(text + kept, text + length - (columns - kept), columns - kept + 1);
    text[kept - 1] = '~';
  }
}

uint32_t output_columns(void) {
  struct winsize size;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return size.ws_col;
  }
  return 80;
}

mr_status output_spares(const char *option, const char *out_path, const char *in_path) {
  struct stat out;
  struct stat in;
  if (out_path == NULL || in_path == NULL || stat(out_path, &out) != 0 || stat(in_path, &in) != 0 ||
      out.st_dev != in.st_dev || out.st_ino != in.st_ino || !S_ISREG(out.st_mode)) {
    return MR_OK;
  }
  mr_log(MR_LOG_ERROR, "%s %s is the file that is read, %s; name another", option, out_path,
         in_path);
  return MR_INVALID;
}

json_t *json_number(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

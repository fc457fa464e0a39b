/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run or plan of bench pressure in a process of its own. Its results come through a pipe and
 * are read line by line as they are written: the time between two steps is the time between their
 * lines. Its standard error goes into a file without a name, of which the last line says what went
 * wrong.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/json.h"
#include "tools/job.h"
#include "tools/pressure.h"
#include "tools/signals.h"

#define PROGRAM    "/proc/self/exe"
#define POLL_MS    200
#define READ_BYTES 4096u

struct child {
  pid_t process;
  int results; /* the reading end of its standard output */
  int errors;  /* what it says on standard error */
  bool told;   /* to end */
  char *line;  /* what is there of a line */
  uint32_t length;
  uint32_t capacity;
};

struct reader {
  struct pressure_turn turn;
  struct pressure_plan plan;
  uint32_t steps;
  double seconds; /* of the steps after those that warm up */
  bool done;
};

static mr_status refuse(const char *what, int error) {
  mr_log(MR_LOG_ERROR, "bench pressure: %s: %s", what, strerrordesc_np(error));
  return MR_IO;
}

/* Starts the child with its own ends of the pipes and no signal blocked. */
static int spawn(struct child *child, int results, char *const *words) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  sigset_t none;
  sigemptyset(&none);
  int error = posix_spawn_file_actions_init(&files);
  if (error != 0) {
    return error;
  }
  error = posix_spawnattr_init(&attributes);
  if (error != 0) {
    posix_spawn_file_actions_destroy(&files);
    return error;
  }
  error = posix_spawn_file_actions_adddup2(&files, results, STDOUT_FILENO);
  error =
      error != 0 ? error : posix_spawn_file_actions_adddup2(&files, child->errors, STDERR_FILENO);
  error = error != 0 ? error : posix_spawnattr_setsigmask(&attributes, &none);
  error = error != 0 ? error : posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  error = error != 0 ? error
                     : posix_spawn(&child->process, PROGRAM, &files, &attributes, words, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

static mr_status child_start(struct child *child, char *const *words) {
  int ends[2];
  *child = (struct child){.results = -1};
  child->errors = memfd_create("memrun-errors", MFD_CLOEXEC);
  if (child->errors < 0) {
    return refuse("no file for a child's errors", errno);
  }
  if (pipe2(ends, O_CLOEXEC) != 0) {
    int error = errno;
    close(child->errors);
    return refuse("no pipe for a child", error);
  }
  child->results = ends[0];
  int error = spawn(child, ends[1], words);
  close(ends[1]);
  if (error != 0) {
    close(child->results);
    close(child->errors);
    return refuse("memrun cannot be started again", error);
  }
  return MR_OK;
}

/* The last line on standard error, without the name in front; lines before it are for -v. */
static void take_errors(struct child *child, char *line_out, size_t size) {
  static const char name[] = "memrun: ";
  char text[READ_BYTES];
  off_t end = lseek(child->errors, 0, SEEK_END);
  off_t from = end > (off_t)sizeof text - 1 ? end - ((off_t)sizeof text - 1) : 0;
  ssize_t length = pread(child->errors, text, sizeof text - 1, from);
  text[length > 0 ? length : 0] = '\0';
  line_out[0] = '\0';
  char *rest = NULL;
  for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
    if (strncmp(line, name, sizeof name - 1) == 0) {
      line += sizeof name - 1;
    }
    snprintf(line_out, size, "%s", line);
    mr_log(MR_LOG_INFO, "child: %s", line);
  }
}

static void child_end(struct child *child, struct pressure_end *end) {
  int status = 0;
  close(child->results);
  while (waitpid(child->process, &status, 0) < 0 && errno == EINTR) {
  }
  *end = (struct pressure_end){.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                               .signal_number = WIFSIGNALED(status) ? WTERMSIG(status) : 0};
  take_errors(child, end->line, sizeof end->line);
  close(child->errors);
  free(child->line);
}

static uint64_t bytes_at(const json_t *object, const char *key) {
  return (uint64_t)json_integer_value(json_object_get(object, key));
}

static double seconds_at(const json_t *object, const char *key) {
  return json_number_value(json_object_get(object, key));
}

static void read_step(struct reader *reader, const json_t *step) {
  struct pressure_turn *turn = &reader->turn;
  reader->steps++;
  if (reader->steps > PRESSURE_WARM_STEPS) {
    reader->seconds += seconds_at(step, "seconds");
  }
  turn->predicted_seconds = seconds_at(step, "predicted_seconds");
  turn->last_loss = seconds_at(step, "loss");
  const char *bound_by = json_string_value(json_object_get(step, "bound_by"));
  snprintf(turn->bound_by, sizeof turn->bound_by, "%s", bound_by == NULL ? "" : bound_by);
}

static void read_done(struct reader *reader, const json_t *done) {
  struct pressure_turn *turn = &reader->turn;
  const json_t *plan = json_object_get(done, "plan");
  const json_t *gaps = json_object_get(plan, "gap_bytes");
  const json_t *moved = json_object_get(plan, "moved_bytes");
  const json_t *peaks = json_object_get(done, "peak_bytes");
  const json_t *budgets = json_object_get(done, "budget_bytes");
  turn->others_share = seconds_at(json_object_get(done, "forecast"), "others_share");
  turn->kept_bytes = bytes_at(gaps, "kept");
  turn->host_bytes = bytes_at(gaps, "host");
  turn->nvme_bytes = bytes_at(gaps, "nvme");
  turn->recomputed_bytes = bytes_at(gaps, "recomputed");
  for (int link = 0; link < MR_LINK_COUNT; link++) {
    turn->moved_bytes[link] = bytes_at(moved, job_link_names[link]);
  }
  turn->resident_bytes = bytes_at(peaks, "resident");
  for (int tier = 0; tier < MR_TIER_COUNT; tier++) {
    turn->peak_bytes[tier] = bytes_at(peaks, job_tier_names[tier]);
    turn->budget_bytes[tier] = bytes_at(budgets, job_tier_names[tier]);
  }
  reader->done = true;
}

static void read_plan(struct reader *reader, const json_t *plan) {
  reader->plan = (struct pressure_plan){
      .made = true,
      .fits = json_is_true(json_object_get(plan, "fits")),
      .footprint_bytes = bytes_at(plan, "footprint_bytes"),
      .smallest_bytes = bytes_at(plan, "smallest_device_bytes"),
      .outside_bytes = bytes_at(plan, "outside_bytes"),
      .predicted_seconds = seconds_at(plan, "predicted_seconds"),
      .bound_seconds = seconds_at(plan, "bound_seconds"),
  };
}

static mr_status read_line(struct reader *reader, const char *line, size_t length) {
  json_t *object = NULL;
  json_error_t error;
  mr_status status = mr_json_read("an event", line, length, &object, &error);
  if (status == MR_NO_MEMORY) {
    return status;
  }
  status = MR_OK;
  const char *event = json_string_value(json_object_get(object, "event"));
  if (event != NULL && strcmp(event, "step") == 0) {
    read_step(reader, object);
  } else if (event != NULL && strcmp(event, "done") == 0) {
    read_done(reader, object);
  } else if (event != NULL && strcmp(event, "plan") == 0) {
    read_plan(reader, object);
  } else if (event == NULL) {
    mr_log(MR_LOG_ERROR, "bench pressure: a child wrote what is no event: %.*s",
           length < 100 ? (int)length : 100, line);
    status = MR_IO;
  }
  json_decref(object);
  return status;
}

/* Reads every whole line that has come and keeps the rest. */
static mr_status read_lines(struct child *child, struct reader *reader) {
  char *line = child->line;
  char *end = line + child->length;
  mr_status status = MR_OK;
  for (char *stop = memchr(line, '\n', (size_t)(end - line)); stop != NULL && status == MR_OK;
       stop = memchr(line, '\n', (size_t)(end - line))) {
    status = read_line(reader, line, (size_t)(stop - line));
    line = stop + 1;
  }
  child->length = (uint32_t)(end - line);
  memmove(child->line, line, child->length);
  return status;
}

/* Waits for more from the child; *more_out false at its end. */
static mr_status receive(struct child *child, struct reader *reader, const volatile int *stop,
                         bool *more_out) {
  if (*stop != 0 && !child->told) {
    kill(child->process, SIGTERM);
    child->told = true;
  }
  struct pollfd ready = {.fd = child->results, .events = POLLIN};
  *more_out = true;
  if (poll(&ready, 1, POLL_MS) <= 0) {
    return MR_OK;
  }
  mr_status status = mr_array_reserve((void **)&child->line, &child->capacity,
                                      (uint64_t)child->length + READ_BYTES, 1);
  if (status != MR_OK) {
    return status;
  }
  ssize_t bytes = read(child->results, child->line + child->length, READ_BYTES);
  if (bytes < 0) {
    return errno == EINTR ? MR_OK : refuse("a child's results cannot be read", errno);
  }
  *more_out = bytes > 0;
  child->length += (uint32_t)bytes;
  return read_lines(child, reader);
}

/* From the child's start to its end. */
static mr_status run_child(char *const *words, const volatile int *stop, struct reader *reader,
                           struct pressure_end *end_out) {
  struct child child;
  mr_status status = child_start(&child, words);
  if (status != MR_OK) {
    return status;
  }
  for (bool more = true; more && status == MR_OK;) {
    status = receive(&child, reader, stop, &more);
  }
  if (status != MR_OK) {
    kill(child.process, SIGKILL);
  }
  child_end(&child, end_out);
  return status;
}

mr_status pressure_plan_run(char *const *words, struct pressure_plan *plan_out,
                            struct pressure_end *end_out) {
  static const volatile int never = 0;
  struct reader reader = {.done = false};
  mr_status status = run_child(words, &never, &reader, end_out);
  if (status == MR_OK && !reader.plan.made && *signals_stop_word() != 0) {
    /* A terminal tells all its processes to end; this child comes after that. */
    status = run_child(words, &never, &reader, end_out);
  }
  if (status == MR_OK) {
    *plan_out = reader.plan;
  }
  return status;
}

mr_status pressure_turn_run(char *const *words, const volatile int *stop,
                            struct pressure_turn *turn_out, struct pressure_end *end_out) {
  struct reader reader = {.done = false};
  mr_status status = run_child(words, stop, &reader, end_out);
  if (status != MR_OK) {
    return status;
  }
  if (*stop != 0) {
    return MR_INTERRUPTED;
  }
  if (end_out->exit_status != 0 || end_out->signal_number != 0) {
    return MR_OK;
  }
  if (!reader.done || reader.steps <= PRESSURE_WARM_STEPS) {
    mr_log(MR_LOG_ERROR, "bench pressure: a child ended after %u steps without its last line",
           reader.steps);
    return MR_IO;
  }
  reader.turn.seconds = reader.seconds / (reader.steps - PRESSURE_WARM_STEPS);
  *turn_out = reader.turn;
  return MR_OK;
}

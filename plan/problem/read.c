/* SPDX-License-Identifier: Apache-2.0 */
/* Problems from text: numbers separated by white space, each checked where it stands. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/problem/draft.h"

/* Far above what is planned in seconds, and low enough for every array to be addressed. */
#define MAX_SEGMENTS 1000000
#define MAX_TENSORS  10000000
/* Bounds of every number and of every rate, so that no sum or quotient leaves what a double holds.
 */
#define MAX_NUMBER 1e18
#define MIN_RATE   1e-6
/* Longer words are no number that anybody writes. */
#define MAX_WORD 64

struct reader {
  const char *text;
  uint64_t length;
  const char *name;
  uint64_t at;
  uint32_t line;
  uint32_t word; /* of its line, from 1 */
  char present[MAX_WORD + 1];
};

__attribute__((format(printf, 2, 3))) static mr_status refuse(const struct reader *reader,
                                                              const char *format, ...) {
  char cause[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(cause, sizeof cause, format, arguments);
  va_end(arguments);
  mr_log(MR_LOG_ERROR, "%s: line %u, word %u: %s", reader->name, reader->line, reader->word, cause);
  return MR_INVALID;
}

static void skip_space(struct reader *reader) {
  while (reader->at < reader->length && isspace((unsigned char)reader->text[reader->at])) {
    if (reader->text[reader->at] == '\n') {
      reader->line++;
      reader->word = 0;
    }
    reader->at++;
  }
}

/* The next word into reader->present, bytes that cannot be printed as '?'. */
static mr_status next_word(struct reader *reader, const char *what) {
  skip_space(reader);
  reader->word++;
  if (reader->at == reader->length) {
    return refuse(reader, "the file ends where %s should be", what);
  }
  size_t count = 0;
  while (reader->at < reader->length && !isspace((unsigned char)reader->text[reader->at])) {
    unsigned char byte = (unsigned char)reader->text[reader->at++];
    if (count == MAX_WORD) {
      return refuse(reader, "%s is longer than %d characters", what, MAX_WORD);
    }
    reader->present[count++] = isprint(byte) ? (char)byte : '?';
  }
  reader->present[count] = '\0';
  return MR_OK;
}

/* A decimal number from `least` on. */
static mr_status read_number(struct reader *reader, const char *what, double least,
                             double *value_out) {
  mr_status status = next_word(reader, what);
  if (status != MR_OK) {
    return status;
  }
  char *end = NULL;
  double value = strtod(reader->present, &end);
  bool decimal = strspn(reader->present, "0123456789.eE+-") == strlen(reader->present);
  if (end == reader->present || *end != '\0' || !decimal || !isfinite(value)) {
    return refuse(reader, "%s is '%s', which is no decimal number", what, reader->present);
  }
  if (value < least || value > MAX_NUMBER) {
    return refuse(reader, "%s is %s; it must be from %g to %g", what, reader->present, least,
                  MAX_NUMBER);
  }
  *value_out = value;
  return MR_OK;
}

/* A whole number from `least` to `most`. */
static mr_status read_integer(struct reader *reader, const char *what, long least, long most,
                              int32_t *value_out) {
  mr_status status = next_word(reader, what);
  if (status != MR_OK) {
    return status;
  }
  char *end = NULL;
  errno = 0;
  long value = strtol(reader->present, &end, 10);
  if (end == reader->present || *end != '\0') {
    return refuse(reader, "%s is '%s', which is no whole number", what, reader->present);
  }
  if (errno != 0 || value < least || value > most) {
    return refuse(reader, "%s is %s; it must be from %ld to %ld", what, reader->present, least,
                  most);
  }
  *value_out = (int32_t)value;
  return MR_OK;
}

static mr_status read_flag(struct reader *reader, const char *what, bool *flag_out) {
  int32_t value = 0;
  mr_status status = read_integer(reader, what, 0, 1, &value);
  if (status == MR_OK) {
    *flag_out = value == 1;
  }
  return status;
}

static mr_status read_header(struct reader *reader, struct mr_problem *problem) {
  static const char *const rate_names[MR_PROBLEM_LINK_COUNT] = {
      "the device-to-host rate", "the host-to-device rate", "the NVMe write rate",
      "the NVMe read rate"};
  mr_status status =
      read_integer(reader, "the number of segments", 1, MAX_SEGMENTS, &problem->segment_count);
  if (status == MR_OK) {
    status = read_integer(reader, "the number of tensors", 0, MAX_TENSORS, &problem->tensor_count);
  }
  if (status == MR_OK) {
    status = read_number(reader, "the device budget", 0, &problem->device_bytes);
  }
  if (status == MR_OK) {
    status = read_number(reader, "the host budget", 0, &problem->host_bytes);
  }
  for (int link = 0; link < MR_PROBLEM_LINK_COUNT && status == MR_OK; link++) {
    status = read_number(reader, rate_names[link], MIN_RATE, &problem->link_bytes_per_second[link]);
  }
  return status;
}

static mr_status read_tensor(struct reader *reader, const struct mr_problem *problem,
                             struct mr_problem_tensor *tensor) {
  int32_t count = problem->segment_count;
  mr_status status = read_number(reader, "a tensor's size", 0, &tensor->bytes);
  if (status == MR_OK) {
    status = read_integer(reader, "a tensor's p", -1, count - 1, &tensor->p);
  }
  if (status == MR_OK) {
    status = read_integer(reader, "a tensor's g", -1, count, &tensor->g);
  }
  if (status == MR_OK) {
    status = read_number(reader, "a tensor's recompute time", 0, &tensor->recompute_seconds);
  }
  if (status == MR_OK) {
    status = read_flag(reader, "a tensor's start", &tensor->start);
  }
  if (status == MR_OK) {
    status = read_flag(reader, "a tensor's end", &tensor->end);
  }
  if (status == MR_OK) {
    status = read_flag(reader, "a tensor's clean", &tensor->clean);
  }
  if (tensor->start && !tensor->end) { /* it is on the host from the start, whatever p says */
    tensor->p = -1;
  }
  if (tensor->g < 0 || tensor->g == count) { /* no segment needs it: it lies there to the end */
    tensor->g = count;
    tensor->recompute_seconds = fmax(tensor->recompute_seconds, MR_PROBLEM_NO_RECOMPUTE);
  }
  return status;
}

static mr_status read_body(struct reader *reader, struct mr_problem *problem) {
  mr_status status = MR_OK;
  for (int32_t k = 0; k < problem->segment_count && status == MR_OK; k++) {
    status = read_number(reader, "a compute time", 0, &problem->compute_seconds[k]);
  }
  for (int32_t k = 0; k < problem->segment_count && status == MR_OK; k++) {
    status = read_number(reader, "a working set", 0, &problem->workset_bytes[k]);
  }
  for (int32_t v = 0; v < problem->tensor_count && status == MR_OK; v++) {
    status = read_tensor(reader, problem, &problem->tensors[v]);
  }
  skip_space(reader);
  if (status == MR_OK && reader->at < reader->length) {
    reader->word++;
    status = refuse(reader, "more numbers than %d segments and %d tensors need",
                    problem->segment_count, problem->tensor_count);
  }
  return status;
}

void mr_problem_destroy(struct mr_problem *problem) {
  if (problem == NULL) {
    return;
  }
  free(problem->compute_seconds);
  free(problem->workset_bytes);
  free(problem->tensors);
  free(problem);
}

mr_status mr_problem_parse(const char *text, uint64_t length, const char *name,
                           struct mr_problem **problem_out) {
  struct reader reader = {.text = text, .length = length, .name = name, .line = 1};
  struct mr_problem *problem = mr_allocate(1, sizeof *problem);
  if (problem == NULL) {
    return MR_NO_MEMORY;
  }
  mr_status status = read_header(&reader, problem);
  if (status != MR_OK) {
    goto fail;
  }
  /* Each number takes two characters at least, so a short file asks for little memory. */
  uint64_t numbers = 2 * (uint64_t)problem->segment_count + 7 * (uint64_t)problem->tensor_count;
  if (numbers > length / 2 + 1) {
    status = refuse(
        &reader, "%d segments and %d tensors need %llu numbers more than the file can have",
        problem->segment_count, problem->tensor_count, (unsigned long long)(numbers - length / 2));
    goto fail;
  }
  problem->compute_seconds =
      mr_allocate((uint64_t)problem->segment_count, sizeof *problem->compute_seconds);
  problem->workset_bytes =
      mr_allocate((uint64_t)problem->segment_count, sizeof *problem->workset_bytes);
  problem->tensors = mr_allocate((uint64_t)problem->tensor_count, sizeof *problem->tensors);
  status = MR_NO_MEMORY;
  if (problem->compute_seconds != NULL && problem->workset_bytes != NULL &&
      problem->tensors != NULL) {
    status = read_body(&reader, problem);
  }
fail:
  if (status != MR_OK) {
    mr_problem_destroy(problem);
    return status;
  }
  *problem_out = problem;
  return MR_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* base/trace: the file is valid JSON whatever the names, times are exact, a full track says what it
 * dropped, and a file that cannot be written is an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/trace.h"

#define TRACK_COUNT 2u

static const char *const tracks[TRACK_COUNT] = {"compute", "nvme \"read\"\\\n\x80"};

struct log_lines {
  unsigned count;
  char last[256];
};

static void keep_line(void *context, mr_log_level level, const char *line) {
  (void)level;
  struct log_lines *lines = context;
  lines->count++;
  snprintf(lines->last, sizeof lines->last, "%s", line);
}

static int set_up(void **state) {
  char *path = strdup("trace-XXXXXX");
  if (path == NULL) {
    return -1;
  }
  int file = mkstemp(path);
  if (file < 0) {
    free(path);
    return -1;
  }
  close(file);
  *state = path;
  return 0;
}

static int tear_down(void **state) {
  mr_log_configure(NULL, NULL, MR_LOG_WARN);
  unlink(*state);
  free(*state);
  return 0;
}

/* The events of the file; the caller drops the reference. */
static json_t *load_events(const char *path, json_t **root_out) {
  json_error_t error;
  json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
  if (root == NULL) {
    fail_msg("%s:%d: %s", path, error.line, error.text);
  }
  *root_out = root;
  json_t *events = json_object_get(root, "traceEvents");
  assert_true(json_is_array(events));
  return events;
}

static const char *name_of(const json_t *event) {
  return json_string_value(json_object_get(event, "name"));
}

static void head_names_the_tracks(void **state) {
  struct mr_trace *trace = NULL;
  assert_int_equal(mr_trace_create(*state, tracks, TRACK_COUNT, &trace), MR_OK);
  assert_int_equal(mr_trace_destroy(trace), MR_OK);
  json_t *root = NULL;
  json_t *events = load_events(*state, &root);
  assert_int_equal(json_array_size(events), 1 + TRACK_COUNT);
  json_t *second = json_array_get(events, 2);
  assert_string_equal(json_string_value(json_object_get(second, "ph")), "M");
  assert_int_equal(json_integer_value(json_object_get(second, "tid")), 2);
  assert_string_equal(name_of(json_object_get(second, "args")), "nvme \"read\"\\??");
  json_decref(root);
}

static void events_are_exact(void **state) {
  struct mr_trace *trace = NULL;
  assert_int_equal(mr_trace_create(*state, tracks, TRACK_COUNT, &trace), MR_OK);
  uint64_t first_ns = mr_clock_ns() + 1000;
  mr_trace_add(trace, 0, "first", 1ull << 40, first_ns, first_ns + 1234567);
  assert_int_equal(mr_trace_flush(trace), MR_OK);
  mr_trace_add(trace, 1, "second \"\t\\", 0, first_ns + 2000001, first_ns + 2000001);
  mr_trace_add(NULL, 9, "no trace, nothing happens", 0, 2, 1);
  assert_int_equal(mr_trace_destroy(trace), MR_OK);
  assert_int_equal(mr_trace_destroy(NULL), MR_OK);
  json_t *root = NULL;
  json_t *events = load_events(*state, &root);
  assert_int_equal(json_array_size(events), 1 + TRACK_COUNT + 2);
  json_t *first = json_array_get(events, 3);
  json_t *second = json_array_get(events, 4);
  assert_string_equal(name_of(first), "first");
  assert_string_equal(name_of(second), "second \"?\\");
  assert_int_equal(json_integer_value(json_object_get(first, "tid")), 1);
  assert_int_equal(json_integer_value(json_object_get(second, "tid")), 2);
  double dur_us = json_real_value(json_object_get(first, "dur"));
  assert_true(dur_us > 1234.5669 && dur_us < 1234.5671);
  double apart_us = json_real_value(json_object_get(second, "ts")) -
                    json_real_value(json_object_get(first, "ts"));
  assert_true(apart_us > 2000.0009 && apart_us < 2000.0011);
  json_t *bytes = json_object_get(json_object_get(first, "args"), "bytes");
  assert_int_equal(json_integer_value(bytes), 1ll << 40);
  json_decref(root);
}

static void full_track_drops_and_says_so(void **state) {
  struct log_lines lines = {0};
  mr_log_configure(keep_line, &lines, MR_LOG_WARN);
  struct mr_trace *trace = NULL;
  assert_int_equal(mr_trace_create(*state, tracks, TRACK_COUNT, &trace), MR_OK);
  uint64_t now_ns = mr_clock_ns();
  const uint32_t added = 40000;
  for (uint32_t i = 0; i < added; i++) {
    mr_trace_add(trace, 0, "op", i, now_ns + i, now_ns + i + 1);
  }
  mr_trace_add(trace, 1, "read", 0, now_ns, now_ns + 1);
  assert_int_equal(mr_trace_flush(trace), MR_OK);
  assert_int_equal(lines.count, 1);
  /* What was dropped is told once, and the room is free again. */
  mr_trace_add(trace, 0, "after", 0, now_ns, now_ns + 1);
  assert_int_equal(mr_trace_destroy(trace), MR_OK);
  assert_int_equal(lines.count, 1);
  json_t *root = NULL;
  json_t *events = load_events(*state, &root);
  size_t kept = json_array_size(events) - 1 - TRACK_COUNT - 2;
  char expected[64];
  snprintf(expected, sizeof expected, ": %u events did not fit", (unsigned)(added - kept));
  assert_non_null(strstr(lines.last, expected));
  assert_string_equal(name_of(json_array_get(events, json_array_size(events) - 1)), "after");
  json_decref(root);
}

static void unwritable_files_are_errors(void **state) {
  (void)state;
  struct log_lines lines = {0};
  mr_log_configure(keep_line, &lines, MR_LOG_WARN);
  struct mr_trace *trace = NULL;
  assert_int_equal(mr_trace_create("no/such/folder/trace.json", tracks, TRACK_COUNT, &trace),
                   MR_IO);
  assert_null(trace);
  assert_int_equal(lines.count, 1);
  assert_non_null(strstr(lines.last, "no/such/folder/trace.json"));
  /* A device that is always full: the first write that leaves the buffer fails. */
  assert_int_equal(mr_trace_create("/dev/full", tracks, TRACK_COUNT, &trace), MR_OK);
  assert_int_equal(mr_trace_flush(trace), MR_IO);
  assert_int_equal(mr_trace_destroy(trace), MR_IO); /* told once */
  assert_int_equal(lines.count, 2);
  assert_non_null(strstr(lines.last, "/dev/full"));
  assert_non_null(strstr(lines.last, "No space left"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(head_names_the_tracks, set_up, tear_down),
      cmocka_unit_test_setup_teardown(events_are_exact, set_up, tear_down),
      cmocka_unit_test_setup_teardown(full_track_drops_and_says_so, set_up, tear_down),
      cmocka_unit_test_setup_teardown(unwritable_files_are_errors, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

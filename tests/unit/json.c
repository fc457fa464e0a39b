/* SPDX-License-Identifier: Apache-2.0 */
/* base/json.c: whatever allocation of jansson's fails, a text is read as it is or not at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/json.h"

static void count_lines(void *context, mr_log_level level, const char *line) {
  assert_int_equal(level, MR_LOG_ERROR);
  assert_non_null(strstr(line, "out of host memory: the JSON of the test"));
  ++*(unsigned *)context;
}

static long until_failure; /* allocations that are still given; below 0: all */

static void *allocate(size_t bytes) {
  return until_failure-- == 0 ? NULL : malloc(bytes);
}

static mr_status read_text(const char *text, json_t **root_out) {
  json_error_t error;
  *root_out = NULL;
  return mr_json_read("the test", text, strlen(text), root_out, &error);
}

/* Names and values whose ends lie at, before and behind every size that a buffer has. */
static char *text_of_tokens(unsigned most) {
  json_t *root = json_array();
  for (unsigned length = 0; length <= most; length++) {
    char token[200];
    assert_true(length < sizeof token);
    memset(token, 'a' + (int)(length % 26), length);
    token[length] = '\0';
    json_t *pair = json_object();
    assert_int_equal(json_object_set_new(pair, token, json_string(token)), 0);
    assert_int_equal(json_object_set_new(pair, "n", json_integer((json_int_t)length << 40)), 0);
    assert_int_equal(json_array_append_new(root, pair), 0);
  }
  char *text = NULL;
  assert_int_equal(mr_json_print(root, JSON_COMPACT, "the test", &text), MR_OK);
  return text;
}

static void no_failure_changes_a_text(void **state) {
  (void)state;
  for (unsigned most = 0; most < 200; most += most < 40 ? 1 : 23) {
    char *text = text_of_tokens(most);
    json_t *whole = NULL;
    until_failure = -1;
    assert_int_equal(read_text(text, &whole), MR_OK);
    unsigned failures = 0;
    unsigned lines = 0;
    mr_log_configure(count_lines, &lines, MR_LOG_ERROR);
    for (long number = 0;; number++) {
      until_failure = number;
      json_t *root = NULL;
      mr_status status = read_text(text, &root);
      bool failed = until_failure < 0;
      until_failure = -1;
      if (status == MR_OK) {
        assert_true(json_equal(root, whole));
        json_decref(root);
      } else {
        assert_int_equal(status, MR_NO_MEMORY);
        failures++;
      }
      if (!failed) {
        assert_true(failures > most && lines == failures);
        break;
      }
    }
    mr_log_configure(NULL, NULL, MR_LOG_INFO);
    json_decref(whole);
    free(text);
  }
}

static void what_is_no_text_is_refused(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int line;
    const char *why;
  } bad[] = {{"", 1, "ends in the middle"},
             {"{", 1, "ends in the middle"},
             {"{\"a\":1,\n\"b\":\n", 3, "ends in the middle"},
             {"{\"a\":\n\"\\\"}", 2, "ends in the middle"},
             {"{\"a\":1,\n\"a\":2}", 2, "duplicate object key"},
             {"{\"a\":1,\n\"\n", 2, "unexpected newline"},
             {"{\"a\":\n\xff}", 2, "unable to decode byte 0xff"},
             {"{}\n{}", 2, "expected near '{'"},
             {"{},\n{}", 1, "one object or array"},
             {"1", 1, "one object or array"}};
  for (size_t i = 0; i < MR_COUNT_OF(bad); i++) {
    json_t *root = NULL;
    json_error_t error;
    assert_int_equal(mr_json_read("the test", bad[i].text, strlen(bad[i].text), &root, &error),
                     MR_CORRUPT);
    assert_null(root);
    assert_int_equal(error.line, bad[i].line);
    assert_non_null(strstr(error.text, bad[i].why));
  }
}

/* Of a text that is not UTF-8 the bytes that are not ASCII are told as question marks. */
static void any_bytes_are_a_text(void **state) {
  (void)state;
  static const struct {
    const char *text;
    const char *told;
  } texts[] = {{"", ""},
               {"h.0.attn", "h.0.attn"},
               {"\xc3\xa9t\xc3\xa9", "\xc3\xa9t\xc3\xa9"},
               {"a\xff\x62", "a?b"},
               {"\xc3\xa9t\xc3", "??t?"},
               {"\xed\xa0\x80", "???"}};
  until_failure = -1;
  for (size_t i = 0; i < MR_COUNT_OF(texts); i++) {
    bool held = strcmp(texts[i].text, texts[i].told) == 0;
    json_t *given = mr_json_text(texts[i].text);
    assert_int_equal(mr_json_can_hold(texts[i].text), held);
    assert_string_equal(json_string_value(given), texts[i].told);
    json_decref(given);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(no_failure_changes_a_text),
                                     cmocka_unit_test(what_is_no_text_is_refused),
                                     cmocka_unit_test(any_bytes_are_a_text)};
  json_set_alloc_funcs(allocate, free);
  until_failure = -1;
  return cmocka_run_group_tests(tests, NULL, NULL);
}

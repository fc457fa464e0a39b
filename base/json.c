/* SPDX-License-Identifier: Apache-2.0 */
/* Text of a known size, and text behind a guard. */
#include "base/json.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

bool mr_json_can_hold(const char *text) {
  json_t *string = json_string(text);
  bool held = string != NULL;
  json_decref(string);
  return held;
}

json_t *mr_json_text(const char *text) {
  json_t *string = json_string(text);
  if (string != NULL) {
    return string;
  }
  char *plain = mr_string_copy(text);
  for (char *letter = plain; letter != NULL && *letter != '\0'; letter++) {
    *letter = (char)((unsigned char)*letter < 0x80 ? *letter : '?');
  }
  string = plain == NULL ? NULL : json_string(plain);
  free(plain);
  return string;
}

mr_status mr_json_print(json_t *root, size_t flags, const char *what, char **text_out) {
  size_t length = root == NULL ? 0 : json_dumpb(root, NULL, 0, flags);
  char *text = length == 0 ? NULL : malloc(length + 1);
  bool whole = text != NULL && json_dumpb(root, text, length, flags) == length;
  json_decref(root);
  if (!whole) {
    free(text);
    mr_log(MR_LOG_ERROR, "out of host memory: the JSON of %s", what);
    return MR_NO_MEMORY;
  }
  text[length] = '\0';
  *text_out = text;
  return MR_OK;
}

/* No token is longer: a string lies between two quotes, and so does what is none. */
static size_t longest_token(const char *text, size_t bytes) {
  size_t longest = 0;
  size_t length = 0;
  bool escaped = false;
  for (size_t i = 0; i < bytes; i++) {
    length = text[i] == '"' && !escaped ? 0 : length + 1;
    longest = length > longest ? length : longest;
    escaped = text[i] == '\\' && !escaped;
  }
  return longest;
}

/*
 * jansson keeps a token in a buffer of 16 bytes that doubles and stays for the next tokens. So the
 * text stands in an array behind a string of more bytes than any token of it has. A byte that is
 * lost where the buffer cannot grow is one of that string, and of its middle: with its quotes it
 * has 24, 48, 96, ... bytes.
 */
static mr_status read_guarded(const char *text, size_t bytes, json_t **root_out,
                              json_error_t *error_out) {
  size_t guard = 24;
  for (size_t longest = longest_token(text, bytes); guard < longest + 4;) {
    guard *= 2;
  }
  size_t size = 1 + guard + 2 + bytes + 1;
  *error_out = (json_error_t){.line = 1};
  char *guarded = malloc(size);
  if (guarded == NULL) {
    return MR_NO_MEMORY;
  }
  char *at = mempcpy(guarded, "[\"", 2);
  memset(at, 'x', guard - 2);
  at = mempcpy(at + guard - 2, "\",\n", 3);
  at = mempcpy(at, text, bytes);
  *at = ']';
  json_t *both = json_loadb(guarded, size, JSON_REJECT_DUPLICATES, error_out);
  free(guarded);
  error_out->line--;
  if (both == NULL) {
    bool memory =
        error_out->text[0] == '\0' || json_error_code(error_out) == json_error_out_of_memory;
    if (!memory && error_out->position == (int)size) {
      snprintf(error_out->text, sizeof error_out->text, "the text ends in the middle");
    }
    return memory ? MR_NO_MEMORY : MR_CORRUPT;
  }
  bool intact = json_string_length(json_array_get(both, 0)) == guard - 2;
  json_t *root = json_array_get(both, 1);
  bool alone = json_array_size(both) == 2 && (json_is_object(root) || json_is_array(root));
  if (intact && alone) {
    *root_out = json_incref(root);
  } else {
    error_out->line = 1;
    snprintf(error_out->text, sizeof error_out->text, "one object or array is wanted");
  }
  json_decref(both);
  return !intact ? MR_NO_MEMORY : alone ? MR_OK : MR_CORRUPT;
}

/*
 * jansson tells of a failed allocation by an error without words, or by words about the text that
 * it could not copy. What is wrong with the text itself is still wrong when it is read again.
 */
mr_status mr_json_read(const char *what, const char *text, size_t bytes, json_t **root_out,
                       json_error_t *error_out) {
  mr_status status = read_guarded(text, bytes, root_out, error_out);
  if (status == MR_CORRUPT) {
    status = read_guarded(text, bytes, root_out, error_out);
  }
  if (status == MR_NO_MEMORY) {
    mr_log(MR_LOG_ERROR, "out of host memory: the JSON of %s", what);
  }
  return status;
}

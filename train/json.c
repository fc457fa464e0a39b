/* SPDX-License-Identifier: Apache-2.0 */
/* As base/json.c, which a client of the public headers does not see. */
#include "train/json.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

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
static mr_status read_guarded(const char *text, uint64_t bytes, json_t **root_out) {
  uint64_t guard = 24;
  for (uint64_t longest = longest_token(text, bytes); guard < longest + 4;) {
    guard *= 2;
  }
  uint64_t size = 1 + guard + 2 + bytes + 1;
  char *guarded = malloc(size);
  if (guarded == NULL) {
    return MR_NO_MEMORY;
  }
  char *at = mempcpy(guarded, "[\"", 2);
  memset(at, 'x', guard - 2);
  at = mempcpy(at + guard - 2, "\",\n", 3);
  at = mempcpy(at, text, bytes);
  *at = ']';
  json_error_t error;
  json_t *both = json_loadb(guarded, size, JSON_REJECT_DUPLICATES, &error);
  free(guarded);
  if (both == NULL) {
    bool memory = error.text[0] == '\0' || json_error_code(&error) == json_error_out_of_memory;
    return memory ? MR_NO_MEMORY : MR_CORRUPT;
  }
  bool intact = json_string_length(json_array_get(both, 0)) == guard - 2;
  json_t *root = json_array_get(both, 1);
  bool alone = json_array_size(both) == 2 && json_is_object(root);
  if (intact && alone) {
    *root_out = json_incref(root);
  }
  json_decref(both);
  return !intact ? MR_NO_MEMORY : alone ? MR_OK : MR_CORRUPT;
}

/*
 * jansson tells of a failed allocation by an error without words, or by words about the text that
 * it could not copy. What is wrong with the text itself is still wrong when it is read again.
 */
mr_status json_read(const char *what, const void *data, uint64_t bytes, json_t **root_out) {
  mr_status status = read_guarded(data, bytes, root_out);
  if (status == MR_CORRUPT) {
    status = read_guarded(data, bytes, root_out);
  }
  if (status == MR_NO_MEMORY) {
    mr_log(MR_LOG_ERROR, "out of host memory: the JSON of %s", what);
  }
  return status;
}

char *json_write(json_t *root, size_t flags) {
  size_t length = root == NULL ? 0 : json_dumpb(root, NULL, 0, flags);
  char *text = length == 0 ? NULL : malloc(length + 1);
  bool whole = text != NULL && json_dumpb(root, text, length, flags) == length;
  json_decref(root);
  if (!whole) {
    free(text);
    return NULL;
  }
  text[length] = '\0';
  return text;
}

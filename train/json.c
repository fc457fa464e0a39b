/* SPDX-License-Identifier: Apache-2.0 */
/* The one place that reads jansson's errors. */
#include "train/json.h"

#include <stdbool.h>
#include <stdlib.h>

/*
 * jansson 2.14 tells of a failed allocation by an error without words, or by words about the text
 * that it could not copy. What is wrong with the text itself is still wrong when it is read again.
 */
mr_status json_read(const char *what, const void *data, uint64_t bytes, json_t **root_out) {
  json_error_t error;
  json_t *root = json_loadb(data, bytes, JSON_REJECT_DUPLICATES, &error);
  if (root == NULL && error.text[0] != '\0') {
    root = json_loadb(data, bytes, JSON_REJECT_DUPLICATES, &error);
  }
  if (root != NULL) {
    *root_out = root;
    return MR_OK;
  }
  if (error.text[0] == '\0' || json_error_code(&error) == json_error_out_of_memory) {
    mr_log(MR_LOG_ERROR, "out of host memory: the JSON of %s", what);
    return MR_NO_MEMORY;
  }
  return MR_CORRUPT;
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

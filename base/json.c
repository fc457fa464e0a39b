/* SPDX-License-Identifier: Apache-2.0 */
/* Text of a known size. */
#include "base/json.h"

#include <stdbool.h>
#include <stdlib.h>

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

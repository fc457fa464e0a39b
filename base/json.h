/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON as text, without what jansson 2.14 leaves to chance where memory runs out in the middle:
 * json_dumps gives a text with holes, so here the size is known before anything is written; and
 * json_loadb loses a byte of a token whose buffer could not grow, and takes it for another token or
 * reads beyond its end, so here that buffer has grown before the text comes.
 */
#ifndef MEMRUN_BASE_JSON_H
#define MEMRUN_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>

#include <memrun/status.h>

/* Digits that bring every double back to the same bits. */
#define MR_JSON_DIGITS JSON_REAL_PRECISION(17)

/* Whether JSON can hold the text: it is UTF-8, and memory did not run out. */
bool mr_json_can_hold(const char *text);

/* A string; of a text that JSON cannot hold, with a question mark for every byte that is not ASCII.
 * NULL: memory ran out. */
json_t *mr_json_text(const char *text);

/*
 * The text of `root`, which is released; NULL counts as memory that ran out while it was built.
 * `what` names it in the message. The caller frees the text with free(). MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_json_print(json_t *root, size_t flags, const char *what,
                                        char **text_out);

/*
 * The object or array that `text` is; names in it may not repeat. `what` is for the message about
 * memory, the only one that is logged. The caller releases the root. MR_CORRUPT: `error_out` has
 * the line and what is wrong there; MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_json_read(const char *what, const char *text, size_t bytes,
                                       json_t **root_out, json_error_t *error_out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON as text, without what jansson 2.14 leaves to chance: json_dumps gives a text with holes
 * where memory runs out in the middle; here the size is known before anything is written.
 */
#ifndef MEMRUN_BASE_JSON_H
#define MEMRUN_BASE_JSON_H

#include <jansson.h>

#include <memrun/status.h>

/* Digits that bring every double back to the same bits. */
#define MR_JSON_DIGITS JSON_REAL_PRECISION(17)

/*
 * The text of `root`, which is released; NULL counts as memory that ran out while it was built.
 * `what` names it in the message. The caller frees the text with free(). MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_json_print(json_t *root, size_t flags, const char *what,
                                        char **text_out);

#endif

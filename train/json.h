/* SPDX-License-Identifier: Apache-2.0 */
/* Loading JSON so that a full memory is not taken for a damaged file. */
#ifndef MEMRUN_TRAIN_JSON_H
#define MEMRUN_TRAIN_JSON_H

#include <jansson.h>
#include <stdint.h>

#include <memrun/status.h>

/* The object that `data` is; names in it may not repeat. `what` is for the message about memory.
 * MR_CORRUPT: no JSON object, not logged; MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status json_read(const char *what, const void *data, uint64_t bytes,
                                    json_t **root_out);

/* The text of `root`, which is released; NULL where memory ran out, before or here (nothing is
 * logged). json_dumps would give a text with holes then. The caller frees it with free(). */
char *json_write(json_t *root, size_t flags);

#endif

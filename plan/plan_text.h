/* SPDX-License-Identifier: Apache-2.0 */
/* What the two halves of reading a plan file share: the header (plan_open.c) and the tables
 * (plan_tables.c). */
#ifndef MEMRUN_PLAN_PLAN_TEXT_H
#define MEMRUN_PLAN_PLAN_TEXT_H

#include <jansson.h>

#include "plan/plan_file.h"

struct mr_plan_file {
  const char *name;
  json_t *root;
  struct mr_plan_header header;
  uint64_t page_bytes;
  bool even_drive;
};

/* Logs "plan NAME: ..."; MR_CORRUPT. */
mr_status mr_plan_text_refuse(const struct mr_plan_file *file, const char *format, ...)
    MR_PRINTF(2, 3);

/* A whole number from 0 to `limit`; one below UINT32_MAX; one that may also be -1, which stands for
 * none (UINT32_MAX); 0 or 1. False: it is something else. */
bool mr_plan_text_u64(const json_t *value, uint64_t limit, uint64_t *number_out);
bool mr_plan_text_u32(const json_t *value, uint32_t *number_out);
bool mr_plan_text_index(const json_t *value, uint32_t *index_out);
bool mr_plan_text_bool(const json_t *value, bool *flag_out);

extern const char *const mr_plan_text_queues[MR_QUEUE_COUNT];

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a plan file: the text as a tree, the header checked. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/json.h"
#include "plan/plan_text.h"

const char *const mr_plan_text_queues[MR_QUEUE_COUNT] = {
    "compute", "device_to_host", "host_to_device", "nvme_read", "nvme_write", "host_ops"};
static const char *const tier_keys[MR_TIER_COUNT] = {"device", "host", "nvme"};

mr_status mr_plan_text_refuse(const struct mr_plan_file *file, const char *format, ...) {
  char text[384];
  va_list arguments;
  va_start(arguments, format);
  /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is one line above */
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  mr_log(MR_LOG_ERROR, "plan %s: %s", file->name, text);
  return MR_CORRUPT;
}

bool mr_plan_text_u64(const json_t *value, uint64_t limit, uint64_t *number_out) {
  if (!json_is_integer(value) || json_integer_value(value) < 0 ||
      (uint64_t)json_integer_value(value) > limit) {
    return false;
  }
  *number_out = (uint64_t)json_integer_value(value);
  return true;
}

bool mr_plan_text_u32(const json_t *value, uint32_t *number_out) {
  uint64_t number = 0;
  if (!mr_plan_text_u64(value, UINT32_MAX - 1, &number)) {
    return false;
  }
  *number_out = (uint32_t)number;
  return true;
}

bool mr_plan_text_index(const json_t *value, uint32_t *index_out) {
  if (json_is_integer(value) && json_integer_value(value) == -1) {
    *index_out = UINT32_MAX;
    return true;
  }
  return mr_plan_text_u32(value, index_out);
}

bool mr_plan_text_bool(const json_t *value, bool *flag_out) {
  uint64_t number = 0;
  if (!mr_plan_text_u64(value, 1, &number)) {
    return false;
  }
  *flag_out = number == 1;
  return true;
}

/* ---- The header ---- */

static mr_status read_job(struct mr_plan_file *file) {
  const json_t *job = json_object_get(file->root, "job");
  struct mr_digest *digest = &file->header.job;
  const char *hash = json_string_value(json_object_get(job, "hash"));
  const json_t *flops = json_object_get(job, "flops");
  int end = 0;
  if (!mr_plan_text_u32(json_object_get(job, "ops"), &digest->op_count) ||
      !mr_plan_text_u32(json_object_get(job, "tensors"), &digest->tensor_count) ||
      !mr_plan_text_u64(json_object_get(job, "bytes"), INT64_MAX, &digest->bytes) ||
      !json_is_real(flops) || hash == NULL || strlen(hash) != 16 ||
      sscanf(hash, "%16" SCNx64 "%n", &digest->hash, &end) != 1 || end != 16) {
    return mr_plan_text_refuse(
        file, "the job is not whole: ops, tensors, bytes, flops and hash are wanted");
  }
  digest->flops = json_real_value(flops);
  return MR_OK;
}

static mr_status read_again(struct mr_plan_file *file) {
  const json_t *again = json_object_get(file->root, "again");
  size_t count = json_array_size(again);
  if (!json_is_array(again) || count > file->header.job.op_count) {
    return mr_plan_text_refuse(file,
                               "again: at most one number for each of the job's %u ops is wanted",
                               file->header.job.op_count);
  }
  file->header.again = mr_allocate(count, sizeof *file->header.again);
  if (file->header.again == NULL) {
    return MR_NO_MEMORY;
  }
  for (size_t i = 0; i < count; i++) {
    if (!mr_plan_text_u32(json_array_get(again, i), &file->header.again[i])) {
      return mr_plan_text_refuse(file, "again: entry %zu is not the number of an op", i);
    }
  }
  file->header.again_count = (uint32_t)count;
  return MR_OK;
}

static mr_status read_header(struct mr_plan_file *file) {
  struct mr_plan_header *header = &file->header;
  uint32_t version = 0;
  if (!mr_plan_text_u32(json_object_get(file->root, "memrun_plan"), &version)) {
    return mr_plan_text_refuse(file, "no plan file: \"memrun_plan\", its version, is missing");
  }
  if (version != MR_PLAN_FILE_VERSION) {
    return mr_plan_text_refuse(file, "version %u; this memrun reads version %u", version,
                               MR_PLAN_FILE_VERSION);
  }
  const char *machine = json_string_value(json_object_get(file->root, "machine"));
  if (machine == NULL || strlen(machine) >= sizeof header->machine) {
    return mr_plan_text_refuse(file, "machine: a name of at most %u bytes is wanted",
                               MR_PLAN_MACHINE_BYTES - 1);
  }
  memcpy(header->machine, machine, strlen(machine) + 1);
  header->described = json_is_true(json_object_get(file->root, "described"));
  const json_t *budget = json_object_get(file->root, "budget_bytes");
  for (uint32_t tier = 0; tier < MR_TIER_COUNT; tier++) {
    if (!mr_plan_text_u64(json_object_get(budget, tier_keys[tier]), INT64_MAX,
                          &header->budget_bytes[tier])) {
      return mr_plan_text_refuse(file, "budget_bytes: %s is missing or no number of bytes",
                                 tier_keys[tier]);
    }
    if (header->budget_bytes[tier] == INT64_MAX) {
      header->budget_bytes[tier] = UINT64_MAX; /* no limit */
    }
  }
  if (!mr_plan_text_u64(json_object_get(file->root, "footprint_bytes"), INT64_MAX,
                        &header->footprint_bytes) ||
      !mr_plan_text_u64(json_object_get(file->root, "page_bytes"), 2 * MR_MIB, &file->page_bytes) ||
      file->page_bytes == 0) {
    return mr_plan_text_refuse(file, "footprint_bytes or page_bytes is missing or out of range");
  }
  const json_t *even_drive = json_object_get(file->root, "even_drive");
  if (!json_is_boolean(even_drive)) {
    return mr_plan_text_refuse(file, "even_drive: true or false is wanted");
  }
  file->even_drive = json_is_true(even_drive);
  const json_t *deferred = json_object_get(file->root, "deferred");
  if (!json_is_boolean(deferred)) {
    return mr_plan_text_refuse(file, "deferred: true or false is wanted");
  }
  header->deferred = json_is_true(deferred);
  uint64_t staying = 0;
  if (!mr_plan_text_u64(json_object_get(file->root, "staying"), UINT32_MAX, &staying)) {
    return mr_plan_text_refuse(file, "staying: a number of ops is wanted");
  }
  header->staying = (uint32_t)staying;
  mr_status status = read_job(file);
  return status == MR_OK ? read_again(file) : status;
}

mr_status mr_plan_file_open(const char *name, const char *text, size_t bytes,
                            struct mr_plan_file **file_out) {
  struct mr_plan_file *file = mr_allocate(1, sizeof *file);
  if (file == NULL) {
    return MR_NO_MEMORY;
  }
  file->name = name;
  json_error_t error;
  mr_status status = mr_json_read("the plan", text, bytes, &file->root, &error);
  if (status == MR_CORRUPT) {
    status = mr_plan_text_refuse(file, "line %d: %s", error.line, error.text);
  } else if (status == MR_OK && !json_is_object(file->root)) {
    status = mr_plan_text_refuse(file, "no plan file: an object is wanted");
  } else if (status == MR_OK) {
    status = read_header(file);
  }
  if (status != MR_OK) {
    mr_plan_file_close(file);
    return status;
  }
  *file_out = file;
  return MR_OK;
}

void mr_plan_file_close(struct mr_plan_file *file) {
  if (file != NULL) {
    json_decref(file->root);
    free(file->header.again);
    free(file);
  }
}

const struct mr_plan_header *mr_plan_file_header(const struct mr_plan_file *file) {
  return &file->header;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a plan file: the header as one line, then each table with a row to a line. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/json.h"
#include "plan/plan_text.h"

/* JSON's whole numbers end at 2^63; a budget without a limit is told as the last of them. */
static json_int_t budget_number(uint64_t bytes) {
  return (json_int_t)mr_min_u64(bytes, INT64_MAX);
}

static json_t *budgets(const uint64_t *bytes) {
  return json_pack("{s:I, s:I, s:I}", "device", budget_number(bytes[MR_TIER_DEVICE]), "host",
                   budget_number(bytes[MR_TIER_HOST]), "nvme", budget_number(bytes[MR_TIER_NVME]));
}

/* The object without its tables and without its last brace. */
static mr_status print_header(FILE *out, const struct mr_plan_header *header,
                              const struct mr_program_plan *plan) {
  char hash[24];
  snprintf(hash, sizeof hash, "%016" PRIx64, header->job.hash);
  json_t *again = json_array();
  for (uint32_t i = 0; again != NULL && i < header->again_count; i++) {
    if (json_array_append_new(again, json_integer(header->again[i])) != 0) {
      json_decref(again);
      again = NULL;
    }
  }
  json_t *root = json_pack(
      "{s:i, s:s, s:b, s:{s:I, s:I, s:I, s:f, s:s}, s:o, s:I, s:I, s:b, s:b, s:I, s:o}",
      "memrun_plan", MR_PLAN_FILE_VERSION, "machine", header->machine, "described",
      header->described, "job", "ops", (json_int_t)header->job.op_count, "tensors",
      (json_int_t)header->job.tensor_count, "bytes", (json_int_t)header->job.bytes, "flops",
      header->job.flops, "hash", hash, "budget_bytes", budgets(header->budget_bytes),
      "footprint_bytes", (json_int_t)header->footprint_bytes, "page_bytes",
      (json_int_t)plan->page_bytes, "even_drive", plan->even_drive, "deferred", header->deferred,
      "staying", (json_int_t)header->staying, "again", again);
  char *text = NULL;
  mr_status status = mr_json_print(root, JSON_COMPACT | MR_JSON_DIGITS, "the plan", &text);
  if (status == MR_OK) {
    fprintf(out, "%.*s", (int)strlen(text) - 1, text);
  }
  free(text);
  return status;
}

static void begin_table(FILE *out, const char *key) {
  fprintf(out, ",\n\"%s\":[", key);
}

/* What stands before a row: the first has no comma before it. */
static const char *before_row(uint32_t row) {
  return row == 0 ? "\n" : ",\n";
}

/* A number, or -1 for none. */
static void print_index(FILE *out, uint32_t index) {
  if (index == UINT32_MAX) {
    fprintf(out, "-1");
  } else {
    fprintf(out, "%u", index);
  }
}

static void print_list(FILE *out, const uint32_t *list, uint32_t count) {
  fprintf(out, "[");
  for (uint32_t i = 0; i < count; i++) {
    fprintf(out, i == 0 ? "" : ",");
    print_index(out, list[i]);
  }
  fprintf(out, "]");
}

static void print_stays(FILE *out, const struct mr_program_plan *plan) {
  begin_table(out, "instances");
  for (uint32_t i = 0; i < plan->instance_count; i++) {
    const struct mr_instance *stay = &plan->instances[i];
    fprintf(out, "%s[", before_row(i));
    print_index(out, stay->tensor);
    fprintf(out, ",%u,%u,%d,%d,%" PRIu64 ",", stay->first_op, stay->last_op, stay->always,
            stay->small, stay->small_offset);
    print_list(out, plan->pages + stay->first_page, stay->page_count);
    fprintf(out, ",");
    print_index(out, stay->on_host ? stay->slot : MR_NO_SLOT);
    fprintf(out, "]");
  }
  fprintf(out, "]");
  begin_table(out, "slots");
  for (uint32_t i = 0; i < plan->slot_count; i++) {
    const struct mr_slot *slot = &plan->slots[i];
    fprintf(out, "%s[%u,%u,%u,%d,", before_row(i), slot->tensor, slot->first_op, slot->last_op,
            slot->always);
    print_list(out, plan->host_pages + slot->first_page, slot->page_count);
    fprintf(out, "]");
  }
  fprintf(out, "]");
}

static void print_places(FILE *out, const struct mr_program_plan *plan) {
  begin_table(out, "extents");
  for (uint32_t i = 0; i < plan->extent_count; i++) {
    fprintf(out, "%s[%u]", before_row(i), plan->extents[i].tensor);
  }
  fprintf(out, "]");
  begin_table(out, "homes");
  for (uint32_t t = 0; t < plan->program->tensor_count; t++) {
    const struct mr_home *home = &plan->homes[t];
    fprintf(out, "%s[%d,", before_row(t), (int)home->tier);
    print_index(out, home->instance);
    fprintf(out, ",");
    print_index(out, home->slot);
    fprintf(out, ",%d]", (int)home->copy);
  }
  fprintf(out, "]");
}

/* [[queue, count, of the step before], ...] */
static void print_waits(FILE *out, const struct mr_program_plan *plan,
                        const struct mr_instruction *instruction) {
  fprintf(out, "[");
  for (uint32_t i = 0; i < instruction->wait_count; i++) {
    const struct mr_wait *wait = &plan->waits[instruction->first_wait + i];
    fprintf(out, "%s[%u,%u,%d]", i == 0 ? "" : ",", wait->queue, wait->count, wait->previous_step);
  }
  fprintf(out, "]");
}

static void print_queue(FILE *out, const struct mr_program_plan *plan, uint32_t queue) {
  begin_table(out, mr_plan_text_queues[queue]);
  for (uint32_t i = 0; i < plan->instruction_count[queue]; i++) {
    const struct mr_instruction *instruction = &plan->instructions[queue][i];
    fprintf(out, "%s[", before_row(i));
    if (queue == MR_QUEUE_COMPUTE) {
      uint32_t first = plan->first_operand[i];
      print_list(out, plan->operands + first, plan->first_operand[i + 1] - first);
    } else if (queue == MR_QUEUE_HOST) {
      fprintf(out, "%u", instruction->op);
    } else {
      fprintf(out, "%u,%u,%u,%u", instruction->op, instruction->needed_by, instruction->instance,
              instruction->slot);
    }
    fprintf(out, ",");
    print_waits(out, plan, instruction);
    if (queue != MR_QUEUE_HOST) {
      fprintf(out, ",");
      print_list(out, plan->births + instruction->first_birth, instruction->birth_count);
    }
    fprintf(out, "]");
  }
  fprintf(out, "]");
}

mr_status mr_plan_file_print(const struct mr_plan_header *header,
                             const struct mr_program_plan *plan, char **text_out) {
  MR_ASSERT(plan->fits);
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  mr_status status = out == NULL ? MR_NO_MEMORY : print_header(out, header, plan);
  if (status == MR_OK) {
    print_stays(out, plan);
    print_places(out, plan);
    for (uint32_t queue = 0; queue < MR_QUEUE_COUNT; queue++) {
      print_queue(out, plan, queue);
    }
    fprintf(out, "}\n");
  }
  bool whole = out != NULL && ferror(out) == 0;
  whole = (out == NULL || fclose(out) == 0) && whole;
  if (status == MR_OK && !whole) {
    mr_log(MR_LOG_ERROR, "out of host memory: the text of the plan");
    status = MR_NO_MEMORY;
  }
  if (status != MR_OK) {
    free(text);
    return status;
  }
  *text_out = text;
  return MR_OK;
}

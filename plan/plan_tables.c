/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the tables of a plan file. Each number is checked for its type and range where it is read;
 * what the numbers mean together is the verifier's to say.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/host.h"
#include "plan/plan_text.h"
#include "plan/stages.h"

struct loader {
  const struct mr_plan_file *file;
  const struct mr_plan_problem *problem;
  const struct mr_graph *program;
  struct mr_program_plan *plan;
  const char *table; /* that is being read */
  uint32_t row;
};

static mr_status refuse_row(const struct loader *l, const char *wanted) {
  return mr_plan_text_refuse(l->file, "%s, row %u: %s", l->table, l->row, wanted);
}

/* Begins a table of at most UINT32_MAX - 1 rows. */
static mr_status begin_table(struct loader *l, const char *key, const json_t **table_out,
                             uint32_t *count_out) {
  const json_t *table = json_object_get(l->file->root, key);
  if (!json_is_array(table) || json_array_size(table) >= UINT32_MAX) {
    return mr_plan_text_refuse(l->file, "%s: an array is wanted", key);
  }
  l->table = key;
  *table_out = table;
  *count_out = (uint32_t)json_array_size(table);
  return MR_OK;
}

/* The row as an array of `columns` values; NULL where it is none. */
static const json_t *next_row(struct loader *l, const json_t *table, uint32_t row, size_t columns) {
  const json_t *array = json_array_get(table, row);
  l->row = row;
  return json_is_array(array) && json_array_size(array) == columns ? array : NULL;
}

/* How many values the lists in column `column` of a table hold together. */
static uint64_t count_nested(const json_t *table, size_t column) {
  uint64_t sum = 0;
  for (size_t i = 0; i < json_array_size(table); i++) {
    sum += json_array_size(json_array_get(json_array_get(table, i), column));
  }
  return sum;
}

/* Allocates an array that every list of the column fits. */
static mr_status allocate_nested(const struct loader *l, const json_t *table, size_t column,
                                 uint32_t **list_out) {
  uint64_t count = count_nested(table, column);
  if (count >= UINT32_MAX) {
    return mr_plan_text_refuse(l->file, "%s: more than %u entries", l->table, UINT32_MAX - 1);
  }
  *list_out = mr_allocate(count, sizeof **list_out);
  return *list_out == NULL ? MR_NO_MEMORY : MR_OK;
}

/* Appends the list's numbers; false where it holds something else. */
static bool append_list(const json_t *list, uint32_t *numbers, uint32_t *count) {
  if (!json_is_array(list)) {
    return false;
  }
  for (size_t i = 0; i < json_array_size(list); i++) {
    if (!mr_plan_text_index(json_array_get(list, i), &numbers[*count])) {
      return false;
    }
    ++*count;
  }
  return true;
}

/* One more than the largest page, with all parts of what is mapped at once. A plan names a part at
 * least of everything in its arena, so that no page can be further up than there are names for;
 * false where one is. */
static bool count_pages(const uint32_t *pages, uint32_t entry_count, uint32_t parts,
                        uint32_t *page_count_out) {
  uint64_t count = 0;
  for (uint32_t i = 0; i < entry_count; i++) {
    count = mr_max_u64(count, mr_round_up(pages[i] + 1ull, parts));
  }
  *page_count_out = (uint32_t)count;
  return count <= (uint64_t)parts * entry_count && count <= UINT32_MAX;
}

static bool read_instance(struct loader *l, const json_t *row, struct mr_instance *stay) {
  struct mr_program_plan *plan = l->plan;
  const struct mr_graph *program = l->program;
  stay->first_page = plan->page_entry_count;
  if (!mr_plan_text_index(json_array_get(row, 0), &stay->tensor) ||
      !mr_plan_text_u32(json_array_get(row, 1), &stay->first_op) ||
      !mr_plan_text_u32(json_array_get(row, 2), &stay->last_op) ||
      !mr_plan_text_bool(json_array_get(row, 3), &stay->always) ||
      !mr_plan_text_bool(json_array_get(row, 4), &stay->small) ||
      !mr_plan_text_u64(json_array_get(row, 5), INT64_MAX, &stay->small_offset) ||
      !append_list(json_array_get(row, 6), plan->pages, &plan->page_entry_count) ||
      !mr_plan_text_index(json_array_get(row, 7), &stay->slot)) {
    return false;
  }
  stay->on_host = stay->slot != MR_NO_SLOT;
  bool scratch = stay->tensor == MR_NO_TENSOR;
  if (scratch ? stay->first_op >= program->op_count : stay->tensor >= program->tensor_count) {
    return false;
  }
  stay->page_count = plan->page_entry_count - stay->first_page;
  stay->bytes =
      scratch ? program->ops[stay->first_op].scratch_bytes : program->tensors[stay->tensor].bytes;
  return true;
}

static mr_status read_instances(struct loader *l) {
  struct mr_program_plan *plan = l->plan;
  const json_t *table = NULL;
  uint32_t count = 0;
  mr_status status = begin_table(l, "instances", &table, &count);
  if (status == MR_OK) {
    status = allocate_nested(l, table, 6, &plan->pages);
  }
  plan->instances = status == MR_OK ? mr_allocate(count, sizeof *plan->instances) : NULL;
  if (status != MR_OK || plan->instances == NULL) {
    return status == MR_OK ? MR_NO_MEMORY : status;
  }
  for (uint32_t i = 0; i < count; i++) {
    struct mr_instance *stay = &plan->instances[i];
    const json_t *row = next_row(l, table, i, 8);
    uint64_t end = 0;
    if (row == NULL || !read_instance(l, row, stay) ||
        !mr_add_u64(stay->small_offset, stay->bytes, &end)) {
      return refuse_row(l, "no tensor, ops, two flags, offset, pages and slot");
    }
    plan->small_bytes = stay->small ? mr_max_u64(plan->small_bytes, end) : plan->small_bytes;
    plan->instance_count++;
  }
  uint32_t parts = mr_plan_pages_mapped(l->problem);
  plan->small_bytes = mr_round_up(plan->small_bytes, parts * plan->page_bytes);
  if (!count_pages(plan->pages, plan->page_entry_count, parts, &plan->device_page_count)) {
    return mr_plan_text_refuse(l->file, "instances: a page beyond the %u that are named",
                               plan->page_entry_count);
  }
  return MR_OK;
}

static bool read_slot(struct loader *l, const json_t *row, struct mr_slot *slot) {
  struct mr_program_plan *plan = l->plan;
  slot->first_page = plan->host_page_entry_count;
  if (!mr_plan_text_u32(json_array_get(row, 0), &slot->tensor) ||
      slot->tensor >= l->program->tensor_count ||
      !mr_plan_text_u32(json_array_get(row, 1), &slot->first_op) ||
      !mr_plan_text_u32(json_array_get(row, 2), &slot->last_op) ||
      !mr_plan_text_bool(json_array_get(row, 3), &slot->always) ||
      !append_list(json_array_get(row, 4), plan->host_pages, &plan->host_page_entry_count)) {
    return false;
  }
  slot->page_count = plan->host_page_entry_count - slot->first_page;
  slot->bytes = l->program->tensors[slot->tensor].bytes;
  return true;
}

static mr_status read_slots(struct loader *l) {
  struct mr_program_plan *plan = l->plan;
  const json_t *table = NULL;
  uint32_t count = 0;
  mr_status status = begin_table(l, "slots", &table, &count);
  if (status == MR_OK) {
    status = allocate_nested(l, table, 4, &plan->host_pages);
  }
  plan->slots = status == MR_OK ? mr_allocate(count, sizeof *plan->slots) : NULL;
  if (status != MR_OK || plan->slots == NULL) {
    return status == MR_OK ? MR_NO_MEMORY : status;
  }
  for (uint32_t i = 0; i < count; i++) {
    const json_t *row = next_row(l, table, i, 5);
    if (row == NULL || !read_slot(l, row, &plan->slots[i])) {
      return refuse_row(l, "no tensor, ops, flag and pages");
    }
    plan->slot_count++;
  }
  if (!count_pages(plan->host_pages, plan->host_page_entry_count, 1, &plan->host_page_count)) {
    return mr_plan_text_refuse(l->file, "slots: a page beyond the %u that are named",
                               plan->host_page_entry_count);
  }
  return MR_OK;
}

static mr_status read_extents(struct loader *l) {
  struct mr_program_plan *plan = l->plan;
  const json_t *table = NULL;
  uint32_t count = 0;
  mr_status status = begin_table(l, "extents", &table, &count);
  if (status != MR_OK) {
    return status;
  }
  plan->extents = mr_allocate(count, sizeof *plan->extents);
  if (plan->extents == NULL) {
    return MR_NO_MEMORY;
  }
  for (uint32_t i = 0; i < count; i++) {
    struct mr_extent *extent = &plan->extents[i];
    const json_t *row = next_row(l, table, i, 1);
    if (row == NULL || !mr_plan_text_u32(json_array_get(row, 0), &extent->tensor) ||
        extent->tensor >= l->program->tensor_count) {
      return refuse_row(l, "no tensor of the job");
    }
    extent->bytes = l->program->tensors[extent->tensor].bytes;
    uint64_t room = mr_round_up(extent->bytes, l->problem->extent_unit_bytes);
    if (!mr_add_u64(plan->nvme_bytes, room, &plan->nvme_bytes)) {
      return refuse_row(l, "more bytes than can be counted");
    }
    plan->extent_count++;
  }
  return MR_OK;
}

static mr_status read_homes(struct loader *l) {
  struct mr_program_plan *plan = l->plan;
  const json_t *table = NULL;
  uint32_t count = 0;
  mr_status status = begin_table(l, "homes", &table, &count);
  if (status == MR_OK && count != l->program->tensor_count) {
    status =
        mr_plan_text_refuse(l->file, "homes: %u of %u tensors", count, l->program->tensor_count);
  }
  if (status != MR_OK) {
    return status;
  }
  plan->homes = mr_allocate(count, sizeof *plan->homes);
  if (plan->homes == NULL) {
    return MR_NO_MEMORY;
  }
  for (uint32_t i = 0; i < count; i++) {
    struct mr_home *home = &plan->homes[i];
    const json_t *row = next_row(l, table, i, 4);
    uint64_t tier = 0;
    uint64_t copy = 0;
    if (row == NULL || !mr_plan_text_u64(json_array_get(row, 0), MR_TIER_COUNT - 1, &tier) ||
        !mr_plan_text_index(json_array_get(row, 1), &home->instance) ||
        !mr_plan_text_index(json_array_get(row, 2), &home->slot) ||
        !mr_plan_text_u64(json_array_get(row, 3), MR_TIER_COUNT - 1, &copy)) {
      return refuse_row(l, "no tier, instance, slot and tier of the copy");
    }
    home->tier = (mr_tier)tier;
    home->copy = (mr_tier)copy;
  }
  return MR_OK;
}

/* ---- Queues ---- */

static bool append_waits(struct mr_program_plan *plan, const json_t *list,
                         struct mr_instruction *instruction) {
  instruction->first_wait = plan->wait_count;
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *triple = json_array_get(list, i);
    struct mr_wait *wait = &plan->waits[plan->wait_count];
    if (!mr_plan_text_u32(json_array_get(triple, 0), &wait->queue) ||
        !mr_plan_text_u32(json_array_get(triple, 1), &wait->count) ||
        !mr_plan_text_bool(json_array_get(triple, 2), &wait->previous_step)) {
      return false;
    }
    plan->wait_count++;
  }
  instruction->wait_count = plan->wait_count - instruction->first_wait;
  return json_is_array(list);
}

static bool append_births(struct mr_program_plan *plan, const json_t *list,
                          struct mr_instruction *instruction) {
  instruction->first_birth = plan->birth_count;
  bool good = append_list(list, plan->births, &plan->birth_count);
  instruction->birth_count = plan->birth_count - instruction->first_birth;
  return good;
}

/* [op, needed_by, instance, slot, waits, births] */
static bool read_move(struct loader *l, const json_t *row, struct mr_instruction *move) {
  return mr_plan_text_u32(json_array_get(row, 0), &move->op) &&
         mr_plan_text_u32(json_array_get(row, 1), &move->needed_by) &&
         mr_plan_text_u32(json_array_get(row, 2), &move->instance) &&
         mr_plan_text_u32(json_array_get(row, 3), &move->slot) &&
         append_waits(l->plan, json_array_get(row, 4), move) &&
         append_births(l->plan, json_array_get(row, 5), move);
}

/* [operands, waits, births]: as many operands as the op has, and its scratch. */
static bool read_op(struct loader *l, const json_t *row, uint32_t k, struct mr_instruction *run) {
  struct mr_program_plan *plan = l->plan;
  const struct mr_op *op = &l->program->ops[k];
  uint32_t count = plan->first_operand[k];
  *run = (struct mr_instruction){
      .op = k, .needed_by = k, .instance = MR_NO_INSTANCE, .slot = MR_NO_SLOT};
  const json_t *operands = json_array_get(row, 0);
  plan->first_operand[k + 1] = count + op->input_count + op->output_count + 1;
  return json_array_size(operands) == op->input_count + op->output_count + 1 &&
         append_list(operands, plan->operands, &count) &&
         append_waits(plan, json_array_get(row, 1), run) &&
         append_births(plan, json_array_get(row, 2), run);
}

/* [op, waits] of the queue of the host. */
static bool read_host_op(struct loader *l, const json_t *row, struct mr_instruction *run) {
  *run = (struct mr_instruction){
      .instance = MR_NO_INSTANCE, .slot = MR_NO_SLOT, .first_birth = l->plan->birth_count};
  if (!mr_plan_text_u32(json_array_get(row, 0), &run->op) || run->op >= l->program->op_count) {
    return false;
  }
  run->needed_by = run->op;
  l->plan->instructions[MR_QUEUE_COMPUTE][run->op].handed_over = true;
  return append_waits(l->plan, json_array_get(row, 1), run);
}

static bool read_instruction(struct loader *l, uint32_t queue, const json_t *row, uint32_t index) {
  struct mr_instruction *instruction = &l->plan->instructions[queue][index];
  if (queue == MR_QUEUE_COMPUTE) {
    return read_op(l, row, index, instruction);
  }
  return queue == MR_QUEUE_HOST ? read_host_op(l, row, instruction)
                                : read_move(l, row, instruction);
}

/* What a row of the queue holds, and where its waits are. */
struct row_shape {
  size_t columns;
  size_t waits;
  const char *missing;
};

static struct row_shape shape_of(uint32_t queue) {
  if (queue == MR_QUEUE_COMPUTE) {
    return (struct row_shape){3, 1, "no operands of its op, waits and births"};
  }
  if (queue == MR_QUEUE_HOST) {
    return (struct row_shape){2, 1, "no op and waits"};
  }
  return (struct row_shape){6, 4, "no op, reader, instance, slot, waits and births"};
}

static mr_status read_queue(struct loader *l, uint32_t queue) {
  struct mr_program_plan *plan = l->plan;
  bool compute = queue == MR_QUEUE_COMPUTE;
  struct row_shape shape = shape_of(queue);
  const json_t *table = NULL;
  uint32_t count = 0;
  mr_status status = begin_table(l, mr_plan_text_queues[queue], &table, &count);
  if (status == MR_OK && compute && count != l->program->op_count) {
    status =
        mr_plan_text_refuse(l->file, "compute: %u rows for %u ops", count, l->program->op_count);
  }
  if (status != MR_OK) {
    return status;
  }
  plan->instructions[queue] = mr_allocate(count, sizeof *plan->instructions[queue]);
  if (plan->instructions[queue] == NULL) {
    return MR_NO_MEMORY;
  }
  for (uint32_t i = 0; i < count; i++) {
    const json_t *row = next_row(l, table, i, shape.columns);
    if (row == NULL || !read_instruction(l, queue, row, i)) {
      return refuse_row(l, shape.missing);
    }
    plan->instruction_count[queue]++;
  }
  return MR_OK;
}

/* Room for the waits, births and operands of all queues. */
static mr_status allocate_queues(const struct loader *l) {
  struct mr_program_plan *plan = l->plan;
  uint64_t waits = 0;
  uint64_t births = 0;
  uint64_t operands = 0;
  for (uint32_t queue = 0; queue < MR_QUEUE_COUNT; queue++) {
    const json_t *table = json_object_get(l->file->root, mr_plan_text_queues[queue]);
    struct row_shape shape = shape_of(queue);
    waits += count_nested(table, shape.waits);
    births += queue == MR_QUEUE_HOST ? 0 : count_nested(table, shape.waits + 1);
  }
  for (uint32_t k = 0; k < l->program->op_count; k++) {
    operands += l->program->ops[k].input_count + l->program->ops[k].output_count + 1;
  }
  if (waits >= UINT32_MAX || births >= UINT32_MAX) {
    return mr_plan_text_refuse(l->file, "more than %u waits or births", UINT32_MAX - 1);
  }
  plan->waits = mr_allocate(waits, sizeof *plan->waits);
  plan->births = mr_allocate(births, sizeof *plan->births);
  plan->operands = mr_allocate(operands, sizeof *plan->operands);
  plan->first_operand = mr_allocate(l->program->op_count + 1ull, sizeof *plan->first_operand);
  bool failed = plan->waits == NULL || plan->births == NULL || plan->operands == NULL ||
                plan->first_operand == NULL;
  return failed ? MR_NO_MEMORY : MR_OK;
}

static mr_status read_tables(struct loader *l) {
  mr_status status = read_instances(l);
  status = status == MR_OK ? read_slots(l) : status;
  status = status == MR_OK ? read_extents(l) : status;
  status = status == MR_OK ? read_homes(l) : status;
  status = status == MR_OK ? allocate_queues(l) : status;
  for (uint32_t queue = 0; status == MR_OK && queue < MR_QUEUE_COUNT; queue++) {
    status = read_queue(l, queue);
  }
  return status;
}

/* ---- What follows ---- */

static mr_status check_needs(const struct loader *l) {
  static const char *const tiers[MR_TIER_COUNT] = {"device memory", "host memory", "NVMe"};
  const struct mr_program_plan *plan = l->plan;
  const uint64_t need[MR_TIER_COUNT] = {plan->small_bytes +
                                            (uint64_t)plan->device_page_count * plan->page_bytes,
                                        mr_program_plan_host_bytes(plan), plan->nvme_bytes};
  for (uint32_t tier = 0; tier < MR_TIER_COUNT; tier++) {
    struct mr_size_text texts[2];
    uint64_t budget = l->problem->budget_bytes[tier];
    if (need[tier] > budget) {
      mr_log(MR_LOG_ERROR, "plan %s: it needs %s of %s (%llu bytes); the budget is %s%s",
             l->file->name, mr_size_format(need[tier], &texts[0]), tiers[tier],
             (unsigned long long)need[tier], mr_size_format(budget, &texts[1]),
             budget == 0 ? ": --offload leaves that tier out, or its budget is 0" : "");
      return MR_DOES_NOT_FIT;
    }
  }
  return MR_OK;
}

static void sum_queues(const struct mr_plan_problem *problem, struct mr_program_plan *plan) {
  plan->host_op_count = mr_plan_count_host_ops(plan);
  mr_plan_name_largest_op(plan);
  for (uint32_t k = 0; k < plan->program->op_count; k++) {
    bool handed_over = plan->instructions[MR_QUEUE_COMPUTE][k].handed_over;
    plan->compute_seconds += handed_over ? 0 : problem->op_seconds[k];
    plan->host_seconds += handed_over ? mr_host_op_seconds(problem, k) : 0;
  }
  for (mr_link link = 0; link < MR_LINK_COUNT; link++) {
    uint32_t queue = MR_QUEUE_OF(link);
    for (uint32_t i = 0; i < plan->instruction_count[queue]; i++) {
      plan->moved_bytes[link] += plan->instances[plan->instructions[queue][i].instance].bytes;
    }
  }
}

mr_status mr_plan_file_read(const struct mr_plan_file *file, const struct mr_plan_problem *problem,
                            struct mr_program_plan **plan_out) {
  struct mr_program_plan *plan = mr_allocate(1, sizeof *plan);
  if (plan == NULL) {
    return MR_NO_MEMORY;
  }
  plan->program = problem->program;
  plan->fits = true;
  plan->page_bytes = file->page_bytes;
  plan->even_drive = file->even_drive;
  struct loader l = {.file = file, .problem = problem, .program = problem->program, .plan = plan};
  mr_status status = read_tables(&l);
  if (status == MR_OK) {
    status = check_needs(&l);
  }
  if (status == MR_OK) {
    status = mr_program_plan_verify(problem, plan);
  }
  if (status == MR_OK) {
    sum_queues(problem, plan);
    status = mr_plan_derive_gaps(plan);
  }
  if (status == MR_OK) {
    status = mr_program_plan_simulate(problem, plan);
  }
  if (status != MR_OK) {
    mr_program_plan_destroy(plan);
    return status;
  }
  *plan_out = plan;
  return MR_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The verifier's first half: numbers in range, sizes, budgets, operands; nothing is replayed. */
#include <stdarg.h>
#include <stdio.h>

#include "plan/verify.h"

#define OPERAND_ALIGNMENT 64u /* what <memrun/graph.h> promises to callbacks */

static const char *const queue_names[MR_QUEUE_COUNT] = {
    "compute", "device to host", "host to device", "nvme read", "nvme write", "host"};

const char *mr_verify_queue_name(uint32_t queue) {
  return queue_names[queue];
}

bool mr_verify_is_nvme(uint32_t queue) {
  return queue == MR_QUEUE_OF(MR_LINK_NVME_READ) || queue == MR_QUEUE_OF(MR_LINK_NVME_WRITE);
}

const char *mr_verify_tensor_name(const struct mr_verifier *v, mr_tensor_id tensor) {
  return tensor < v->graph->tensor_count ? v->graph->tensors[tensor].name : "scratch";
}

/* A fault of the plan as a whole. */
mr_status mr_verify_plan_fault(const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  mr_log(MR_LOG_ERROR, "the plan is wrong: %s", text);
  return MR_CORRUPT;
}

/* A fault of one instruction, named by queue, position, op and tensor. */
mr_status mr_verify_actor_fault(const struct mr_verifier *v, const struct mr_verify_actor *actor,
                                const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const struct mr_instruction *instruction = actor->instruction;
  const char *op =
      instruction->op < v->graph->op_count ? v->graph->ops[instruction->op].name : "(no such op)";
  const char *tensor = "";
  if (actor->queue != MR_QUEUE_COMPUTE && actor->queue != MR_QUEUE_HOST &&
      instruction->instance < v->plan->instance_count) {
    tensor = mr_verify_tensor_name(v, v->plan->instances[instruction->instance].tensor);
  }
  return mr_verify_plan_fault("%s queue, instruction %u, step %u, op %s%s%s: %s",
                              queue_names[actor->queue], actor->index, actor->step + 1, op,
                              tensor[0] == '\0' ? "" : ", tensor ", tensor, text);
}

/* True where op k lies in the instance's stay. */
static bool stay_covers(bool always, uint32_t first, uint32_t last, uint32_t k) {
  if (always) {
    return true;
  }
  return first <= last ? first <= k && k <= last : k >= first || k <= last;
}

bool mr_verify_covers(const struct mr_instance *instance, uint32_t k) {
  return stay_covers(instance->always, instance->first_op, instance->last_op, k);
}

mr_status mr_verify_frame(const struct mr_verifier *v) {
  const struct mr_program_plan *plan = v->plan;
  const uint64_t *budget = v->problem->budget_bytes;
  uint64_t page_bytes = plan->page_bytes;
  if (plan->program != v->graph) {
    return mr_verify_plan_fault("it was made for another program");
  }
  if (page_bytes < 4 * MR_KIB || page_bytes > 2 * MR_MIB || (page_bytes & (page_bytes - 1)) != 0 ||
      (v->problem->page_bytes != 0 && v->problem->page_bytes != page_bytes)) {
    return mr_verify_plan_fault(
        "pages of %llu bytes; asked for %llu (0: a power of two, 4 KiB to 2 MiB)",
        (unsigned long long)page_bytes, (unsigned long long)v->problem->page_bytes);
  }
  uint64_t device = (uint64_t)plan->device_page_count * page_bytes;
  uint32_t parts = mr_plan_pages_mapped(v->problem);
  if (plan->small_bytes % (parts * page_bytes) != 0 ||
      !mr_add_u64(device, plan->small_bytes, &device)) {
    return mr_verify_plan_fault(
        "a small arena of %llu bytes is no multiple of %u pages of %llu bytes",
        (unsigned long long)plan->small_bytes, parts, (unsigned long long)page_bytes);
  }
  if (plan->device_page_count % parts != 0) {
    return mr_verify_plan_fault("%u pages that are halves; an even number is wanted",
                                plan->device_page_count);
  }
  const uint64_t need[MR_TIER_COUNT] = {
      device, plan->host_page_count * mr_plan_host_page_bytes(page_bytes), plan->nvme_bytes};
  static const char *const names[MR_TIER_COUNT] = {"device", "host", "nvme"};
  for (uint32_t tier = 0; tier < MR_TIER_COUNT; tier++) {
    if (need[tier] > budget[tier]) {
      return mr_verify_plan_fault("it needs %llu bytes of %s, the budget is %llu",
                                  (unsigned long long)need[tier], names[tier],
                                  (unsigned long long)budget[tier]);
    }
  }
  return MR_OK;
}

/* A page list: inside its array, every page inside the arena, none twice. */
struct page_list {
  const char *what; /* "instance", "slot" */
  uint32_t number;
  const uint32_t *pages;
  uint32_t entry_count; /* of the array */
  uint32_t first, count;
  uint32_t limit; /* pages of the arena */
  uint64_t page_bytes;
  uint32_t base; /* of its stamps */
  uint64_t bytes;
};

static mr_status check_page_list(struct mr_verifier *v, const struct page_list *list) {
  if (list->first > list->entry_count || list->count > list->entry_count - list->first) {
    return mr_verify_plan_fault("%s %u: pages %u to %llu of a list of %u", list->what, list->number,
                                list->first, (unsigned long long)list->first + list->count,
                                list->entry_count);
  }
  if (list->bytes > list->count * list->page_bytes) {
    return mr_verify_plan_fault("%s %u: %llu bytes do not fit %u pages", list->what, list->number,
                                (unsigned long long)list->bytes, list->count);
  }
  for (uint32_t k = 0; k < list->count; k++) {
    uint32_t page = list->pages[list->first + k];
    if (page >= list->limit) {
      return mr_verify_plan_fault("%s %u: page %u of %u", list->what, list->number, page,
                                  list->limit);
    }
    if (v->stamps[list->base + page] == list->number + 1) {
      return mr_verify_plan_fault("%s %u: page %u twice", list->what, list->number, page);
    }
    v->stamps[list->base + page] = list->number + 1;
  }
  return MR_OK;
}

/* Pages that are one piece of memory: each is beside the one before. */
static mr_status check_neighbours(const struct mr_verifier *v, const char *what, uint32_t number,
                                  mr_tensor_id tensor, const uint32_t *pages, uint32_t count) {
  for (uint32_t k = 1; k < count; k++) {
    if (pages[k] != pages[0] + k) {
      return mr_verify_plan_fault("%s %u of %s is in one piece, but page %u is not beside %u", what,
                                  number, mr_verify_tensor_name(v, tensor), pages[k], pages[k - 1]);
    }
  }
  return MR_OK;
}

/* A place on the host for ops: a slot of the tensor at addresses side by side, of what lasts always
 * its own; that nobody else has the others when they are used the proof of order and content finds.
 * Slots are checked before. */
static mr_status check_host_instance(const struct mr_verifier *v, uint32_t number) {
  const struct mr_program_plan *plan = v->plan;
  const struct mr_instance *instance = &plan->instances[number];
  bool good = instance->tensor != MR_NO_TENSOR && instance->always && !instance->small &&
              instance->page_count == 0 && instance->slot < plan->slot_count &&
              plan->slots[instance->slot].tensor == instance->tensor &&
              (plan->slots[instance->slot].always ||
               !mr_tensor_goes_round(&v->graph->tensors[instance->tensor]));
  if (!good) {
    return mr_verify_plan_fault("instance %u of %s is on the host, but not a slot of it for good",
                                number, mr_verify_tensor_name(v, instance->tensor));
  }
  const struct mr_slot *slot = &plan->slots[instance->slot];
  return check_neighbours(v, "slot", instance->slot, slot->tensor,
                          &plan->host_pages[slot->first_page], slot->page_count);
}

/* Halves of pages: the other half of one is the neighbour on the side where it lies, unless the
 * first is an upper half or the last a lower one. */
static mr_status check_halves(const struct mr_verifier *v, uint32_t number) {
  const struct mr_instance *instance = &v->plan->instances[number];
  const uint32_t *pages = &v->plan->pages[instance->first_page];
  uint32_t count = instance->page_count;
  for (uint32_t k = 0; k < count; k++) {
    bool upper = pages[k] % 2 != 0;
    bool alone = upper ? k == 0 : k + 1 == count;
    bool beside = upper ? k > 0 && pages[k - 1] == pages[k] - 1
                        : k + 1 < count && pages[k + 1] == pages[k] + 1;
    if (!alone && !beside) {
      return mr_verify_plan_fault(
          "instance %u of %s: half %u of a page, the %uth of %u, without the other", number,
          mr_verify_tensor_name(v, instance->tensor), pages[k], k + 1, count);
    }
  }
  return MR_OK;
}

static mr_status check_instance(struct mr_verifier *v, uint32_t number) {
  const struct mr_program_plan *plan = v->plan;
  const struct mr_instance *instance = &plan->instances[number];
  bool scratch = instance->tensor == MR_NO_TENSOR;
  uint32_t op_count = v->graph->op_count;
  if (!scratch && instance->tensor >= v->graph->tensor_count) {
    return mr_verify_plan_fault("instance %u is of tensor %u of %u", number, instance->tensor,
                                v->graph->tensor_count);
  }
  if ((!instance->always || scratch) &&
      (instance->first_op >= op_count || instance->last_op >= op_count)) {
    return mr_verify_plan_fault("instance %u stays from op %u to op %u of %u", number,
                                instance->first_op, instance->last_op, op_count);
  }
  uint64_t bytes = scratch ? v->graph->ops[instance->first_op].scratch_bytes
                           : v->graph->tensors[instance->tensor].bytes;
  if (instance->bytes != bytes) {
    return mr_verify_plan_fault(
        "instance %u has %llu bytes, %s has %llu", number, (unsigned long long)instance->bytes,
        mr_verify_tensor_name(v, instance->tensor), (unsigned long long)bytes);
  }
  if (instance->on_host) {
    return check_host_instance(v, number);
  }
  if (!instance->small) {
    mr_status status = check_page_list(v, &(struct page_list){
                                              .what = "instance",
                                              .number = number,
                                              .pages = plan->pages,
                                              .entry_count = plan->page_entry_count,
                                              .first = instance->first_page,
                                              .count = instance->page_count,
                                              .limit = plan->device_page_count,
                                              .page_bytes = plan->page_bytes,
                                              .bytes = bytes,
                                          });
    if (status == MR_OK && v->problem->contiguous) {
      status = check_neighbours(v, "instance", number, instance->tensor,
                                &plan->pages[instance->first_page], instance->page_count);
    }
    return status == MR_OK && v->problem->half_pages ? check_halves(v, number) : status;
  }
  if (bytes >= plan->page_bytes / 2) {
    return mr_verify_plan_fault("instance %u of %s: %llu bytes are small, and half a page is %llu",
                                number, mr_verify_tensor_name(v, instance->tensor),
                                (unsigned long long)bytes,
                                (unsigned long long)(plan->page_bytes / 2));
  }
  if (instance->page_count != 0 || instance->small_offset % OPERAND_ALIGNMENT != 0 ||
      instance->small_offset > plan->small_bytes ||
      bytes > plan->small_bytes - instance->small_offset) {
    return mr_verify_plan_fault(
        "instance %u of %s: %u pages, bytes %llu to %llu of a small arena of %llu", number,
        mr_verify_tensor_name(v, instance->tensor), instance->page_count,
        (unsigned long long)instance->small_offset,
        (unsigned long long)(instance->small_offset + bytes),
        (unsigned long long)plan->small_bytes);
  }
  return MR_OK;
}

static mr_status check_slot(struct mr_verifier *v, uint32_t number) {
  const struct mr_slot *slot = &v->plan->slots[number];
  if (slot->tensor >= v->graph->tensor_count ||
      slot->bytes != v->graph->tensors[slot->tensor].bytes) {
    return mr_verify_plan_fault("slot %u of tensor %u (%s) has %llu bytes", number, slot->tensor,
                                mr_verify_tensor_name(v, slot->tensor),
                                (unsigned long long)slot->bytes);
  }
  return check_page_list(v, &(struct page_list){
                                .what = "slot",
                                .number = number,
                                .pages = v->plan->host_pages,
                                .entry_count = v->plan->host_page_entry_count,
                                .first = slot->first_page,
                                .count = slot->page_count,
                                .limit = v->plan->host_page_count,
                                .page_bytes = mr_plan_host_page_bytes(v->plan->page_bytes),
                                .base = v->plan->device_page_count,
                                .bytes = slot->bytes,
                            });
}

static mr_status check_extents(const struct mr_verifier *v) {
  uint64_t unit = v->problem->extent_unit_bytes == 0 ? 1 : v->problem->extent_unit_bytes;
  uint64_t sum = 0;
  for (uint32_t i = 0; i < v->plan->extent_count; i++) {
    const struct mr_extent *extent = &v->plan->extents[i];
    if (extent->tensor >= v->graph->tensor_count ||
        extent->bytes != v->graph->tensors[extent->tensor].bytes) {
      return mr_verify_plan_fault("extent %u of tensor %u (%s) has %llu bytes", i, extent->tensor,
                                  mr_verify_tensor_name(v, extent->tensor),
                                  (unsigned long long)extent->bytes);
    }
    sum += mr_round_up(extent->bytes, unit);
  }
  if (sum > v->plan->nvme_bytes) {
    return mr_verify_plan_fault("extents take %llu bytes of nvme, the plan says %llu",
                                (unsigned long long)sum, (unsigned long long)v->plan->nvme_bytes);
  }
  return MR_OK;
}

bool mr_verify_has_home(const struct mr_verifier *v, mr_tensor_id tensor) {
  const struct mr_tensor *told = &v->graph->tensors[tensor];
  return told->role == MR_INPUT || told->role == MR_PARAMETER || told->role == MR_STATE ||
         (told->role == MR_DERIVED && !told->made_anew) || told->carried;
}

/* Whether a place below exists, is of the tensor and reaches round the end of the step. */
static bool lasts_below(const struct mr_program_plan *plan, mr_tier tier, uint32_t number,
                        mr_tensor_id tensor) {
  if (tier == MR_TIER_NVME) {
    return number < plan->extent_count && plan->extents[number].tensor == tensor;
  }
  const struct mr_slot *slot = number < plan->slot_count ? &plan->slots[number] : NULL;
  return slot != NULL && slot->tensor == tensor && (slot->always || slot->last_op < slot->first_op);
}

/* A home exists, is of its tensor and reaches round the end of the step, and so does its copy. */
static mr_status check_home(const struct mr_verifier *v, mr_tensor_id tensor) {
  const struct mr_program_plan *plan = v->plan;
  const struct mr_home *home = &plan->homes[tensor];
  bool lasts = false;
  if ((uint32_t)home->tier >= MR_TIER_COUNT || (uint32_t)home->copy >= MR_TIER_COUNT) {
    return mr_verify_plan_fault("the home of %s is in tier %u, its copy in %u",
                                mr_verify_tensor_name(v, tensor), (uint32_t)home->tier,
                                (uint32_t)home->copy);
  }
  if (home->tier != MR_TIER_DEVICE) {
    lasts = home->copy == MR_TIER_DEVICE && lasts_below(plan, home->tier, home->slot, tensor);
  } else if (home->instance < plan->instance_count) {
    const struct mr_instance *instance = &plan->instances[home->instance];
    lasts = !instance->on_host && instance->tensor == tensor &&
            (instance->always || instance->last_op < instance->first_op) &&
            (home->copy == MR_TIER_DEVICE || lasts_below(plan, home->copy, home->slot, tensor));
  }
  if (!lasts) {
    return mr_verify_plan_fault(
        "the home of %s (tier %d) is not its own or does not last between steps",
        mr_verify_tensor_name(v, tensor), (int)home->tier);
  }
  if (v->graph->tensors[tensor].role == MR_INPUT &&
      (home->tier != MR_TIER_DEVICE || !plan->instances[home->instance].always)) {
    return mr_verify_plan_fault("the input %s does not stay on the device",
                                mr_verify_tensor_name(v, tensor));
  }
  return MR_OK;
}

mr_status mr_verify_stays(struct mr_verifier *v) {
  mr_status status = MR_OK;
  for (uint32_t i = 0; status == MR_OK && i < v->plan->slot_count; i++) {
    status = check_slot(v, i);
  }
  for (uint32_t i = 0; status == MR_OK && i < v->plan->instance_count; i++) {
    status = check_instance(v, i);
  }
  if (status == MR_OK) {
    status = check_extents(v);
  }
  for (uint32_t i = 0; status == MR_OK && i < v->graph->tensor_count; i++) {
    status = mr_verify_has_home(v, i) ? check_home(v, i) : MR_OK;
  }
  return status;
}

static mr_status check_waits(const struct mr_verifier *v, const struct mr_verify_actor *actor) {
  const struct mr_program_plan *plan = v->plan;
  const struct mr_instruction *instruction = actor->instruction;
  bool seen[MR_QUEUE_COUNT][2] = {{false}};
  if (instruction->first_wait > plan->wait_count ||
      instruction->wait_count > plan->wait_count - instruction->first_wait) {
    return mr_verify_actor_fault(v, actor, "waits outside the list of %u", plan->wait_count);
  }
  for (uint32_t i = 0; i < instruction->wait_count; i++) {
    const struct mr_wait *wait = &plan->waits[instruction->first_wait + i];
    if (wait->queue >= MR_QUEUE_COUNT || wait->queue == actor->queue ||
        wait->count > plan->instruction_count[wait->queue] ||
        seen[wait->queue][wait->previous_step]) {
      return mr_verify_actor_fault(v, actor,
                                   "wait %u names count %u of queue %u, or that queue again", i,
                                   wait->count, wait->queue);
    }
    seen[wait->queue][wait->previous_step] = true;
  }
  if (instruction->first_birth > plan->birth_count ||
      instruction->birth_count > plan->birth_count - instruction->first_birth) {
    return mr_verify_actor_fault(v, actor, "births outside the list of %u", plan->birth_count);
  }
  for (uint32_t i = 0; i < instruction->birth_count; i++) {
    uint32_t born = plan->births[instruction->first_birth + i];
    if (born >= plan->instance_count || plan->instances[born].on_host) {
      return mr_verify_actor_fault(v, actor, "birth of instance %u of %u, or it is on the host",
                                   born, plan->instance_count);
    }
  }
  return MR_OK;
}

/* A move is of a paged tensor that may move, between its own instance and its own slot or extent.
 */
static mr_status check_move(const struct mr_verifier *v, const struct mr_verify_actor *actor) {
  const struct mr_program_plan *plan = v->plan;
  const struct mr_instruction *instruction = actor->instruction;
  bool nvme = mr_verify_is_nvme(actor->queue);
  if (instruction->op >= v->graph->op_count || instruction->needed_by >= v->graph->op_count ||
      instruction->instance >= plan->instance_count ||
      instruction->slot >= (nvme ? plan->extent_count : plan->slot_count)) {
    return mr_verify_actor_fault(
        v, actor, "op %u, needed by %u, instance %u or slot %u does not exist", instruction->op,
        instruction->needed_by, instruction->instance, instruction->slot);
  }
  const struct mr_instance *instance = &plan->instances[instruction->instance];
  if (instance->tensor == MR_NO_TENSOR || instance->small || instance->on_host ||
      v->graph->tensors[instance->tensor].role == MR_INPUT) {
    return mr_verify_actor_fault(v, actor,
                                 "instance %u is scratch, small, an input or on the host and must "
                                 "not move",
                                 instruction->instance);
  }
  mr_tensor_id below =
      nvme ? plan->extents[instruction->slot].tensor : plan->slots[instruction->slot].tensor;
  if (below != instance->tensor) {
    return mr_verify_actor_fault(v, actor, "%s %u belongs to %s", nvme ? "extent" : "slot",
                                 instruction->slot, mr_verify_tensor_name(v, below));
  }
  if (!mr_verify_covers(instance, instruction->op)) {
    return mr_verify_actor_fault(v, actor, "instance %u stays from op %u to op %u",
                                 instruction->instance, instance->first_op, instance->last_op);
  }
  return MR_OK;
}

/* The instance that op's operand number `position` must be of. */
static mr_tensor_id operand_tensor(const struct mr_op *op, uint32_t position) {
  if (position < op->input_count) {
    return op->inputs[position];
  }
  position -= op->input_count;
  return position < op->output_count ? op->outputs[position] : MR_NO_TENSOR;
}

/* In place means: one instance in both roles. */
static bool output_is_in_place(const struct mr_op *op, const uint32_t *operands, uint32_t output) {
  for (uint32_t i = 0; i < op->input_count; i++) {
    if (op->inputs[i] == op->outputs[output]) {
      return operands[i] == operands[op->input_count + output];
    }
  }
  return true;
}

/* On the device, or on the host where the op may use it there; beside a device that the processor
 * cannot read, what the queue of the host runs has everything there but small inputs. */
static bool is_reachable(const struct mr_verifier *v, mr_op_id id, uint32_t position,
                         const struct mr_instance *instance) {
  const struct mr_op *op = &v->graph->ops[id];
  if (!v->problem->host_apart) {
    return !instance->on_host || (op->flags & MR_OP_HOST_CAPABLE) != 0;
  }
  if (v->host_index[id] == MR_VERIFY_DEVICE_OP) {
    return !instance->on_host;
  }
  return instance->on_host || (instance->small && position < op->input_count);
}

/* Whether the instance is there while op k runs: on the host its slot is what comes and goes. */
static bool is_there(const struct mr_verifier *v, const struct mr_instance *instance, uint32_t k) {
  const struct mr_slot *slot = instance->on_host ? &v->plan->slots[instance->slot] : NULL;
  return mr_verify_covers(instance, k) &&
         (slot == NULL || stay_covers(slot->always, slot->first_op, slot->last_op, k));
}

static mr_status check_operands(const struct mr_verifier *v, const struct mr_verify_actor *actor) {
  const struct mr_program_plan *plan = v->plan;
  const struct mr_op *op = &v->graph->ops[actor->index];
  uint32_t count = op->input_count + op->output_count + 1;
  uint32_t first = plan->first_operand[actor->index];
  if (plan->first_operand[actor->index + 1] != first + count) {
    return mr_verify_actor_fault(v, actor, "operands %u to %u, not %u of them", first,
                                 plan->first_operand[actor->index + 1], count);
  }
  const uint32_t *operands = &plan->operands[first];
  for (uint32_t i = 0; i < count; i++) {
    mr_tensor_id wanted = operand_tensor(op, i);
    if (i + 1 == count && op->scratch_bytes == 0 && operands[i] == MR_NO_INSTANCE) {
      continue;
    }
    const struct mr_instance *instance =
        operands[i] < plan->instance_count ? &plan->instances[operands[i]] : NULL;
    bool barred = instance != NULL && !is_reachable(v, actor->index, i, instance);
    if (instance == NULL || instance->tensor != wanted || barred ||
        (wanted == MR_NO_TENSOR && instance->first_op != actor->index) ||
        !is_there(v, instance, actor->index)) {
      return mr_verify_actor_fault(v, actor,
                                   "operand %u (%s) is instance %u, which is not it or not there",
                                   i, mr_verify_tensor_name(v, wanted), operands[i]);
    }
  }
  for (uint32_t i = 0; i < op->output_count; i++) {
    if (!output_is_in_place(op, operands, i)) {
      return mr_verify_actor_fault(v, actor, "%s is changed in place at two addresses",
                                   mr_verify_tensor_name(v, op->outputs[i]));
    }
  }
  return MR_OK;
}

/* What is small among the inputs of an op, as it is handed over. */
static uint64_t handover_bytes(const struct mr_verifier *v, mr_op_id id) {
  const struct mr_op *op = &v->graph->ops[id];
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < op->input_count; i++) {
    uint64_t size = v->graph->tensors[op->inputs[i]].bytes;
    bytes += size < v->plan->page_bytes / 2 ? mr_round_up(size, MR_HANDOVER_ALIGNMENT) : 0;
  }
  return bytes;
}

/* Beside its pages the host has room for what ops are handed. */
static mr_status check_host_need(const struct mr_verifier *v, uint64_t handed_bytes) {
  uint64_t need =
      v->plan->host_page_count * mr_plan_host_page_bytes(v->plan->page_bytes) + handed_bytes;
  uint64_t budget = v->problem->budget_bytes[MR_TIER_HOST];
  if (need > budget) {
    return mr_verify_plan_fault(
        "it needs %llu bytes of host, %llu of them handed to ops there, the budget is %llu",
        (unsigned long long)need, (unsigned long long)handed_bytes, (unsigned long long)budget);
  }
  return MR_OK;
}

mr_status mr_verify_host_queue(struct mr_verifier *v) {
  const struct mr_instruction *queue = v->plan->instructions[MR_QUEUE_HOST];
  uint32_t count = v->plan->instruction_count[MR_QUEUE_HOST];
  v->host_index = mr_allocate(v->graph->op_count, sizeof *v->host_index);
  if (v->host_index == NULL) {
    return MR_NO_MEMORY;
  }
  for (mr_op_id k = 0; k < v->graph->op_count; k++) {
    v->host_index[k] = MR_VERIFY_DEVICE_OP;
  }
  if (count > 0 && (!v->problem->host_apart || !(v->problem->host_bytes_per_second > 0))) {
    return mr_verify_plan_fault("%u ops run on the host beside the device, where %s", count,
                                v->problem->host_apart ? "nobody knows how fast"
                                                       : "the processor is the device");
  }
  uint64_t handed_bytes = 0;
  for (uint32_t i = 0; i < count; i++) {
    mr_op_id id = queue[i].op;
    bool ordered = id < v->graph->op_count && (i == 0 || queue[i - 1].op < id);
    const struct mr_op *op = ordered ? &v->graph->ops[id] : NULL;
    if (op == NULL || (op->flags & MR_OP_HOST_CAPABLE) == 0 || op->scratch_bytes > 0 ||
        queue[i].birth_count > 0 || handover_bytes(v, id) > MR_HANDOVER_BYTES) {
      return mr_verify_plan_fault("host queue, instruction %u: op %u cannot run there", i, id);
    }
    v->host_index[id] = i;
    handed_bytes += handover_bytes(v, id);
  }
  return check_host_need(v, mr_round_up(handed_bytes, MR_HANDOVER_UNIT));
}

static mr_status check_instruction(const struct mr_verifier *v,
                                   const struct mr_verify_actor *actor) {
  mr_status status = MR_OK;
  if (actor->queue == MR_QUEUE_HOST) {
    return check_waits(v, actor);
  }
  if (actor->queue != MR_QUEUE_COMPUTE) {
    status = check_move(v, actor);
  } else if (actor->instruction->op != actor->index ||
             actor->instruction->handed_over !=
                 (v->host_index[actor->index] != MR_VERIFY_DEVICE_OP)) {
    status =
        mr_verify_actor_fault(v, actor, "it is not op %u, or not where that runs", actor->index);
  } else {
    status = check_operands(v, actor);
  }
  return status == MR_OK ? check_waits(v, actor) : status;
}

mr_status mr_verify_instructions(const struct mr_verifier *v) {
  if (v->plan->instruction_count[MR_QUEUE_COMPUTE] != v->graph->op_count) {
    return mr_verify_plan_fault("%u instructions on the compute queue for %u ops",
                                v->plan->instruction_count[MR_QUEUE_COMPUTE], v->graph->op_count);
  }
  for (uint32_t queue = 0; queue < MR_QUEUE_COUNT; queue++) {
    for (uint32_t i = 0; i < v->plan->instruction_count[queue]; i++) {
      struct mr_verify_actor actor = {
          .queue = queue, .index = i, .instruction = &v->plan->instructions[queue][i]};
      mr_status status = check_instruction(v, &actor);
      if (status != MR_OK) {
        return status;
      }
    }
  }
  return MR_OK;
}

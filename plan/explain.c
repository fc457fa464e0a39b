/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as JSON, for people and programs. */
#include <jansson.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/json.h"
#include "plan/plan.h"

static const char *const tier_names[MR_TIER_COUNT] = {"device", "host", "nvme"};
static const char *const queue_names[MR_QUEUE_COUNT] = {
    "compute", "device_to_host", "host_to_device", "nvme_read", "nvme_write"};
static const char *const decision_names[] = {"keep", "host", "nvme"};

/* Adds `value`, which is handed over, to an object or an array (key NULL); false where memory ran
 * out. */
static bool put(json_t *parent, const char *key, json_t *value) {
  if (value == NULL) {
    return false;
  }
  return (key == NULL ? json_array_append_new(parent, value)
                      : json_object_set_new(parent, key, value)) == 0;
}

static bool put_bytes(json_t *object, const char *key, uint64_t bytes) {
  return put(object, key, json_integer((json_int_t)bytes));
}

/* Adds an empty object or array and returns it, borrowed; NULL where memory ran out. */
static json_t *put_container(json_t *parent, const char *key, json_t *container) {
  return put(parent, key, container) ? container : NULL;
}

static const char *tensor_name(const struct mr_program_plan *plan, mr_tensor_id tensor) {
  return tensor == MR_NO_TENSOR ? "scratch" : plan->program->tensors[tensor].name;
}

static bool put_tiers(const struct mr_program_plan *plan, json_t *root) {
  json_t *tiers = put_container(root, "tiers", json_object());
  uint64_t need[MR_TIER_COUNT] = {plan->small_bytes + plan->device_page_count * plan->page_bytes,
                                  plan->host_page_count * plan->page_bytes, plan->nvme_bytes};
  bool good = tiers != NULL;
  for (uint32_t t = 0; good && t < MR_TIER_COUNT; t++) {
    json_t *tier = put_container(tiers, tier_names[t], json_object());
    good = tier != NULL && put_bytes(tier, "peak_bytes", need[t]);
  }
  return good;
}

static bool put_verdict(const struct mr_program_plan *plan, json_t *root) {
  bool good = put(root, "fits", json_boolean(plan->fits)) &&
              put(root, "largest_op", json_string(plan->program->ops[plan->largest_op].name)) &&
              put_bytes(root, "largest_op_bytes", plan->largest_op_bytes) &&
              put_bytes(root, "page_bytes", plan->page_bytes) &&
              put_bytes(root, "small_bytes", plan->small_bytes) &&
              put_bytes(root, "footprint_bytes", plan->footprint_bytes) &&
              put(root, "bound_seconds", json_real(plan->bound_seconds));
  if (good && !plan->fits) {
    good = put_bytes(root, "smallest_device_bytes", plan->smallest_device_bytes) &&
           put(root, "failed_tier", json_string(tier_names[plan->failed_tier]));
  }
  return good;
}

static bool put_links(const struct mr_program_plan *plan, json_t *root) {
  json_t *links = put_container(root, "links", json_object());
  bool good = links != NULL && put(root, "step_seconds", json_real(plan->step_seconds)) &&
              put(root, "compute_seconds", json_real(plan->compute_seconds));
  for (uint32_t l = 0; good && l < MR_LINK_COUNT; l++) {
    json_t *link = put_container(links, queue_names[MR_QUEUE_OF(l)], json_object());
    good = link != NULL && put_bytes(link, "moved_bytes", plan->moved_bytes[l]) &&
           put(link, "seconds", json_real(plan->link_seconds[l]));
  }
  return good;
}

static bool put_gaps(const struct mr_program_plan *plan, json_t *root) {
  json_t *gaps = put_container(root, "gaps", json_array());
  bool good = gaps != NULL;
  for (uint32_t i = 0; good && i < plan->gap_count; i++) {
    const struct mr_gap *gap = &plan->gaps[i];
    json_t *entry = put_container(gaps, NULL, json_object());
    good = entry != NULL && put(entry, "tensor", json_string(tensor_name(plan, gap->tensor))) &&
           put_bytes(entry, "bytes", plan->program->tensors[gap->tensor].bytes) &&
           put_bytes(entry, "after_op", gap->after_op) &&
           put_bytes(entry, "before_op", gap->before_op) &&
           put(entry, "decision", json_string(decision_names[gap->decision]));
    if (good && gap->decision != MR_DECISION_KEEP) {
      good = put_bytes(entry, "release_op", gap->release_op) &&
             put_bytes(entry, "fetch_op", gap->fetch_op) &&
             put(entry, "written", json_boolean(gap->written));
    }
  }
  return good;
}

static bool put_instruction(const struct mr_program_plan *plan, json_t *queue,
                            const struct mr_instruction *instruction) {
  json_t *entry = put_container(queue, NULL, json_object());
  bool moves = instruction->instance != MR_NO_INSTANCE;
  bool good = entry != NULL && put_bytes(entry, "op", instruction->op) &&
              put_bytes(entry, "needed_by", instruction->needed_by) &&
              put(entry, "start_seconds", json_real(instruction->start_seconds)) &&
              put(entry, "end_seconds", json_real(instruction->end_seconds));
  if (good && moves) {
    mr_tensor_id tensor = plan->instances[instruction->instance].tensor;
    good = put(entry, "tensor", json_string(tensor_name(plan, tensor))) &&
           put_bytes(entry, "instance", instruction->instance) &&
           put_bytes(entry, "slot", instruction->slot);
  } else if (good) {
    good = put(entry, "name", json_string(plan->program->ops[instruction->op].name));
  }
  json_t *waits = good ? put_container(entry, "waits", json_array()) : NULL;
  good = waits != NULL;
  for (uint32_t i = 0; good && i < instruction->wait_count; i++) {
    const struct mr_wait *wait = &plan->waits[instruction->first_wait + i];
    json_t *one = put_container(waits, NULL, json_object());
    good = one != NULL && put(one, "queue", json_string(queue_names[wait->queue])) &&
           put_bytes(one, "count", wait->count) &&
           put(one, "previous_step", json_boolean(wait->previous_step));
  }
  return good;
}

static bool put_queues(const struct mr_program_plan *plan, json_t *root) {
  json_t *queues = put_container(root, "queues", json_object());
  bool good = queues != NULL;
  for (uint32_t q = 0; good && q < MR_QUEUE_COUNT; q++) {
    json_t *queue = put_container(queues, queue_names[q], json_array());
    good = queue != NULL;
    for (uint32_t i = 0; good && i < plan->instruction_count[q]; i++) {
      good = put_instruction(plan, queue, &plan->instructions[q][i]);
    }
  }
  return good;
}

mr_status mr_program_plan_json(const struct mr_program_plan *plan, char **json_out) {
  json_t *root = json_object();
  bool good = root != NULL && put_verdict(plan, root);
  if (good && plan->fits) {
    good = put_tiers(plan, root) && put_links(plan, root) && put_gaps(plan, root) &&
           put_queues(plan, root);
  }
  if (!good) {
    json_decref(root);
    root = NULL;
  }
  return mr_json_print(root, JSON_COMPACT | MR_JSON_DIGITS, "the plan's layout", json_out);
}

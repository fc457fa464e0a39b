/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan says: the summary, the JSON text, the line of a refusal. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "runtime/runtime.h"

#define LARGEST_TENSORS 10u

const char *const mr_link_names[MR_LINK_COUNT] = {"device_to_host", "host_to_device", "nvme_read",
                                                  "nvme_write"};
const char *const mr_role_names[MR_DERIVED + 1] = {
    [MR_INPUT] = "input",    [MR_PARAMETER] = "parameter",   [MR_GRADIENT] = "gradient",
    [MR_STATE] = "state",    [MR_ACTIVATION] = "activation", [MR_SCRATCH] = "scratch",
    [MR_DERIVED] = "derived"};
static const char *const tier_names[MR_TIER_COUNT] = {"device", "host", "nvme"};

const char *mr_bound_name(double compute_seconds, double host_seconds, const double *link_seconds) {
  const char *name = host_seconds > compute_seconds ? "host" : "compute";
  double most = fmax(compute_seconds, host_seconds);
  for (uint32_t link = 0; link < MR_LINK_COUNT; link++) {
    if (link_seconds[link] > most) {
      most = link_seconds[link];
      name = mr_link_names[link];
    }
  }
  return name;
}

const char *mr_plan_machine(const struct mr_plan *plan) {
  const struct mr_settings *settings = &plan->settings;
  return settings->machine != NULL ? settings->machine->name : plan->profile->machine;
}

static void sum_gaps(const struct mr_plan *plan, struct mr_plan_summary *summary) {
  const struct mr_program_plan *layout = plan->layout;
  for (uint32_t i = 0; i < layout->gap_count; i++) {
    const struct mr_gap *gap = &layout->gaps[i];
    uint64_t bytes = layout->program->tensors[gap->tensor].bytes;
    if (gap->decision == MR_DECISION_KEEP) {
      summary->kept_bytes += bytes;
    } else if (gap->decision == MR_DECISION_HOST) {
      summary->host_bytes += bytes;
    } else {
      summary->nvme_bytes += bytes;
    }
  }
}

uint64_t mr_plan_need_bytes(const struct mr_program_plan *layout, mr_tier tier) {
  const uint64_t need_bytes[MR_TIER_COUNT] = {
      layout->small_bytes + layout->device_page_count * layout->page_bytes,
      mr_program_plan_host_bytes(layout),
      layout->nvme_bytes,
  };
  return need_bytes[tier];
}

uint64_t mr_plan_outside_bytes(const struct mr_plan *plan) {
  const struct mr_program_plan *layout = plan->layout;
  uint64_t pinned_bytes = mr_plan_need_bytes(layout, MR_TIER_HOST);
  for (uint32_t link = MR_LINK_NVME_READ; link <= MR_LINK_NVME_WRITE; link++) {
    pinned_bytes += layout->instruction_count[MR_QUEUE_OF(link)] > 0 ? MR_RING_BYTES : 0;
  }
  return plan->settings.outside_bytes + mr_budget_table_bytes(&plan->settings, pinned_bytes);
}

/* What any plan may find there. */
static uint64_t most_outside_bytes(const struct mr_settings *settings) {
  return settings->outside_bytes + settings->most_table_bytes;
}

uint64_t mr_plan_smallest_bytes(const struct mr_plan *plan, uint64_t own_bytes) {
  return own_bytes == UINT64_MAX ? own_bytes : own_bytes + most_outside_bytes(&plan->settings);
}

uint64_t mr_plan_smallest_device_bytes(const struct mr_plan *plan) {
  return mr_plan_smallest_bytes(plan, plan->layout->smallest_device_bytes);
}

void mr_hand_out(const void *whole, size_t bytes, void *out) {
  size_t wanted = 0;
  memcpy(&wanted, out, sizeof wanted);
  if (wanted == 0 || wanted > bytes) {
    wanted = bytes;
  }
  if (wanted >= sizeof wanted) {
    memcpy(out, whole, wanted);
    memcpy(out, &wanted, sizeof wanted);
  }
}

void mr_plan_summarize(const struct mr_plan *plan, struct mr_plan_summary *summary_out) {
  const struct mr_program_plan *layout = plan->layout;
  struct mr_plan_summary summary = {
      .size_bytes = sizeof summary,
      .fits = layout->fits,
      .footprint_bytes = plan->footprint_bytes,
      .smallest_device_bytes = layout->fits ? 0 : mr_plan_smallest_device_bytes(plan),
      .largest_op_bytes = layout->largest_op_bytes,
      .predicted_seconds = layout->step_seconds,
      .compute_seconds = layout->compute_seconds,
      .recomputed_bytes = plan->recomputed_bytes,
      .recomputed_op_count = plan->recomputed_op_count,
      .deferred_op_count = plan->deferred_op_count,
      .bound_seconds = plan->bound_seconds,
      .host_op_count = plan->layout->host_op_count,
      .host_seconds = layout->host_seconds,
      .host_bytes_per_second = plan->problem.host_bytes_per_second,
      .outside_bytes =
          layout->fits ? mr_plan_outside_bytes(plan) : most_outside_bytes(&plan->settings),
      .machine = mr_plan_machine(plan),
      .described = plan->settings.machine != NULL,
      .profile_path = plan->settings.profile_path,
  };
  MR_ASSERT(layout->largest_op < layout->program->op_count);
  summary.largest_op = layout->program->ops[layout->largest_op].name;
  mr_settings_tell_budgets(&plan->settings, summary.budget_bytes);
  memcpy(summary.link_seconds, layout->link_seconds, sizeof summary.link_seconds);
  memcpy(summary.moved_bytes, layout->moved_bytes, sizeof summary.moved_bytes);
  if (layout->fits) {
    for (uint32_t tier = 0; tier < MR_TIER_COUNT; tier++) {
      summary.need_bytes[tier] = mr_plan_need_bytes(layout, tier);
    }
    summary.need_bytes[MR_TIER_DEVICE] += summary.outside_bytes;
    sum_gaps(plan, &summary);
  } else {
    summary.need_bytes[MR_TIER_DEVICE] = summary.smallest_device_bytes;
    summary.need_bytes[MR_TIER_HOST] = layout->smallest_host_bytes;
    summary.need_bytes[MR_TIER_NVME] = layout->smallest_nvme_bytes;
  }
  summary.bound_by =
      mr_bound_name(layout->compute_seconds, layout->host_seconds, layout->link_seconds);
  mr_hand_out(&summary, sizeof summary, summary_out);
}

#define LISTED_OPERANDS 3u

/* The largest distinct operands of an op, largest first; returns how many. */
static uint32_t largest_operands(const struct mr_graph *program, const struct mr_op *op,
                                 const struct mr_tensor **largest) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < op->input_count + op->output_count; i++) {
    mr_tensor_id id = i < op->input_count ? op->inputs[i] : op->outputs[i - op->input_count];
    const struct mr_tensor *tensor = &program->tensors[id];
    uint32_t at = 0;
    while (at < count && largest[at] != tensor && largest[at]->bytes >= tensor->bytes) {
      at++;
    }
    if (at == LISTED_OPERANDS || (at < count && largest[at] == tensor)) {
      continue;
    }
    count += count < LISTED_OPERANDS;
    memmove(&largest[at + 1], &largest[at], (count - 1 - at) * sizeof(void *));
    largest[at] = tensor;
  }
  return count;
}

/* "name size, name size, ..." */
static void list_operands(const struct mr_graph *program, const struct mr_op *op, char *text,
                          size_t capacity) {
  const struct mr_tensor *largest[LISTED_OPERANDS];
  uint32_t count = largest_operands(program, op, largest);
  size_t length = 0;
  text[0] = '\0';
  for (uint32_t i = 0; i < count && length < capacity; i++) {
    struct mr_size_text size;
    int written = snprintf(text + length, capacity - length, "%s%s %s", i == 0 ? "" : ", ",
                           largest[i]->name, mr_size_format(largest[i]->bytes, &size));
    length += written < 0 ? capacity : (size_t)written;
  }
}

void mr_plan_log_refusal(const struct mr_plan *plan) {
  const struct mr_program_plan *layout = plan->layout;
  uint64_t budget[MR_TIER_COUNT];
  uint64_t smallest = mr_plan_smallest_device_bytes(plan);
  uint64_t outside = most_outside_bytes(&plan->settings);
  const struct mr_op *op = &layout->program->ops[layout->largest_op];
  struct mr_size_text text[6];
  char operands[512];
  char others[96] = "";
  list_operands(layout->program, op, operands, sizeof operands);
  const char *needs = mr_size_format(layout->largest_op_bytes, &text[0]);
  const char *least = mr_size_format_enough(smallest, &text[1]);
  mr_settings_tell_budgets(&plan->settings, budget);
  if (outside > 0) {
    snprintf(others, sizeof others, " with the %s that its context, libraries and others have",
             mr_size_format(outside, &text[5]));
  }
  mr_log(MR_LOG_ERROR,
         "does not fit: op %s needs %s on the device at once (%s); the smallest device budget that "
         "would do is %s (--device-mem %llu)%s; given are %s device, %s host, %s nvme%s%s",
         op->name, needs, operands, least, (unsigned long long)smallest, others,
         mr_size_format(budget[MR_TIER_DEVICE], &text[2]),
         mr_size_format(budget[MR_TIER_HOST], &text[3]),
         mr_size_format(budget[MR_TIER_NVME], &text[4]),
         layout->failed_tier == MR_TIER_DEVICE ? "" : "; what must leave the device exceeds ",
         layout->failed_tier == MR_TIER_DEVICE ? "" : tier_names[layout->failed_tier]);
}

static json_t *bytes_by_tier(const uint64_t *bytes) {
  return json_pack("{s:I, s:I, s:I}", tier_names[0], (json_int_t)bytes[0], tier_names[1],
                   (json_int_t)bytes[1], tier_names[2], (json_int_t)bytes[2]);
}

/* The largest first; of equals the one that was added first. */
static int compare_tensors(const void *a, const void *b) {
  const struct mr_tensor *const *first = a;
  const struct mr_tensor *const *second = b;
  if ((*first)->bytes != (*second)->bytes) {
    return (*first)->bytes > (*second)->bytes ? -1 : 1;
  }
  return *first < *second ? -1 : 1;
}

static json_t *largest_tensors(const struct mr_graph *graph) {
  const struct mr_tensor **sorted = mr_allocate(graph->tensor_count, sizeof(void *));
  json_t *list = json_array();
  if (sorted == NULL || list == NULL) {
    free(sorted);
    json_decref(list);
    return NULL;
  }
  for (uint32_t i = 0; i < graph->tensor_count; i++) {
    sorted[i] = &graph->tensors[i];
  }
  qsort(sorted, graph->tensor_count, sizeof(void *), compare_tensors);
  for (uint32_t i = 0; i < graph->tensor_count && i < LARGEST_TENSORS; i++) {
    (void)json_array_append_new(
        list, json_pack("{s:o, s:s, s:I}", "name", mr_json_text(sorted[i]->name), "role",
                        mr_role_names[sorted[i]->role], "bytes", (json_int_t)sorted[i]->bytes));
  }
  free(sorted);
  return list;
}

static json_t *links_of(const struct mr_plan_summary *summary) {
  json_t *links = json_object();
  for (uint32_t link = 0; link < MR_LINK_COUNT; link++) {
    (void)json_object_set_new(links, mr_link_names[link],
                              json_pack("{s:f, s:I}", "seconds", summary->link_seconds[link],
                                        "bytes", (json_int_t)summary->moved_bytes[link]));
  }
  return links;
}

/* What a plan promises, which one that does not fit cannot. */
static json_t *promise(const struct mr_plan_summary *summary, double seconds) {
  return summary->fits ? json_real(seconds) : json_null();
}

static json_t *smallest_of(const struct mr_plan_summary *summary) {
  uint64_t bytes = summary->smallest_device_bytes;
  return summary->fits || bytes == UINT64_MAX ? json_null() : json_integer((json_int_t)bytes);
}

mr_status mr_plan_json(const struct mr_plan *plan, char **json_out) {
  const struct mr_program_plan *layout = plan->layout;
  struct mr_plan_summary summary;
  mr_plan_summarize(plan, &summary);
  json_t *root = json_pack(
      "{s:b, s:I, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:f, s:f, s:s?}", "fits", summary.fits,
      "footprint_bytes", (json_int_t)summary.footprint_bytes, "budget_bytes",
      bytes_by_tier(summary.budget_bytes), "need_bytes", bytes_by_tier(summary.need_bytes),
      "smallest_device_bytes", smallest_of(&summary), "largest_op",
      mr_json_text(summary.largest_op), "largest_op_bytes", (json_int_t)summary.largest_op_bytes,
      "predicted_seconds", promise(&summary, summary.predicted_seconds), "bound_seconds",
      promise(&summary, summary.bound_seconds), "compute_seconds", summary.compute_seconds,
      "host_seconds", summary.host_seconds, "bound_by", summary.fits ? summary.bound_by : NULL);
  json_t *more = json_pack(
      "{s:o, s:o, s:o, s:I, s:I, s:I, s:b, s:I, s:I, s:I, s:I}", "links", links_of(&summary),
      "gaps_bytes",
      json_pack("{s:I, s:I, s:I, s:I}", "kept", (json_int_t)summary.kept_bytes, "host",
                (json_int_t)summary.host_bytes, "nvme", (json_int_t)summary.nvme_bytes,
                "recomputed", (json_int_t)summary.recomputed_bytes),
      "largest_tensors", largest_tensors(plan->graph), "recomputed_ops",
      (json_int_t)summary.recomputed_op_count, "deferred_ops",
      (json_int_t)summary.deferred_op_count, "host_ops", (json_int_t)summary.host_op_count,
      "even_drive", layout->even_drive, "page_bytes", (json_int_t)layout->page_bytes, "ops",
      (json_int_t)layout->program->op_count, "tensors", (json_int_t)layout->program->tensor_count,
      "outside_bytes", (json_int_t)summary.outside_bytes);
  if (root == NULL || more == NULL || json_object_update(root, more) != 0) {
    json_decref(root);
    root = NULL;
  }
  json_decref(more);
  return mr_json_print(root, JSON_COMPACT | MR_JSON_DIGITS, "the plan", json_out);
}

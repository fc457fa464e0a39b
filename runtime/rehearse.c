/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libraries take of an accelerator's memory when ops first run. They load code and take
 * workspaces at their first use, long after a budget was cut up, and a plan must have left them
 * room. So before it is, one op of each kind and size of the graph is run by itself, on zeros, in
 * memory for the largest of them that is given back at once. What stays taken is found in use when
 * the device is looked at afterwards.
 *
 * Ops are alike where callback, kind, flags, costs and sizes of operands are: then they ask
 * libraries for the same work. No plan has less memory than the largest op, so a job that fits its
 * budget does so while it is rehearsed; where the device has not even that free, nothing is.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/runtime.h"

#define OPERAND_ALIGNMENT 256u

struct rehearsal {
  const struct mr_graph *graph;
  const struct mr_device_ops *device_ops;
  struct mr_device *device;
  struct mr_stream *stream;
  mr_op_id *ops; /* one of each */
  uint32_t op_count;
  uint64_t bytes; /* of the largest */
};

static bool same_sizes(const struct mr_graph *graph, const mr_tensor_id *a, const mr_tensor_id *b,
                       uint32_t count) {
  bool same = true;
  for (uint32_t i = 0; i < count && same; i++) {
    same = graph->tensors[a[i]].bytes == graph->tensors[b[i]].bytes;
  }
  return same;
}

static bool alike(const struct mr_graph *graph, const struct mr_op *a, const struct mr_op *b) {
  return a->run[MR_BACKEND_CUDA] == b->run[MR_BACKEND_CUDA] && a->flags == b->flags &&
         a->scratch_bytes == b->scratch_bytes && a->memory_bytes == b->memory_bytes &&
         a->input_count == b->input_count && a->output_count == b->output_count &&
         !(a->flops < b->flops) && !(a->flops > b->flops) && strcmp(a->kind, b->kind) == 0 &&
         same_sizes(graph, a->inputs, b->inputs, a->input_count) &&
         same_sizes(graph, a->outputs, b->outputs, a->output_count);
}

static mr_status choose_ops(struct rehearsal *rehearsal) {
  const struct mr_graph *graph = rehearsal->graph;
  rehearsal->ops = mr_allocate(graph->op_count, sizeof *rehearsal->ops);
  if (rehearsal->ops == NULL) {
    return MR_NO_MEMORY;
  }
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    bool known = graph->ops[k].run[MR_BACKEND_CUDA] == NULL;
    for (uint32_t i = 0; i < rehearsal->op_count && !known; i++) {
      known = alike(graph, &graph->ops[rehearsal->ops[i]], &graph->ops[k]);
    }
    if (!known) {
      rehearsal->ops[rehearsal->op_count++] = k;
      rehearsal->bytes =
          mr_max_u64(rehearsal->bytes, mr_op_working_bytes(graph, k, OPERAND_ALIGNMENT));
    }
  }
  return MR_OK;
}

/* One range on pages of its own. */
static mr_status take_device(struct rehearsal *rehearsal, uint64_t page_bytes,
                             double timeout_seconds) {
  uint32_t page_count = (uint32_t)mr_div_up(rehearsal->bytes, page_bytes);
  uint32_t *pages = mr_allocate(page_count, sizeof *pages);
  if (pages == NULL) {
    return MR_NO_MEMORY;
  }
  for (uint32_t i = 0; i < page_count; i++) {
    pages[i] = i;
  }
  const uint32_t *range_pages[] = {pages};
  const uint64_t range_bytes[] = {page_count * page_bytes};
  const struct mr_device_config config = {.page_bytes = page_bytes,
                                          .page_count = page_count,
                                          .range_bytes = range_bytes,
                                          .range_count = 1,
                                          .range_pages = range_pages,
                                          .timeout_seconds = timeout_seconds};
  mr_status status = rehearsal->device_ops->create(&config, &rehearsal->device);
  free(pages);
  return status == MR_OK
             ? rehearsal->device_ops->streams->create(rehearsal->device, 1, &rehearsal->stream)
             : status;
}

/* Where a tensor of the op lies; one that is an input and an output has one place. */
static char *place(const struct mr_graph *graph, const struct mr_op *op, char *base,
                   mr_tensor_id tensor) {
  for (uint32_t i = 0; i < op->input_count + op->output_count; i++) {
    bool output = i >= op->input_count;
    mr_tensor_id other = output ? op->outputs[i - op->input_count] : op->inputs[i];
    bool again = false;
    for (uint32_t k = 0; k < op->input_count && output && !again; k++) {
      again = op->inputs[k] == other;
    }
    if (other == tensor) {
      return base;
    }
    base += again ? 0 : mr_round_up(graph->tensors[other].bytes, OPERAND_ALIGNMENT);
  }
  return base;
}

static mr_status run_op(const struct rehearsal *rehearsal, const struct mr_op *op,
                        uint64_t op_bytes) {
  const struct mr_stream_ops *streams = rehearsal->device_ops->streams;
  void *inputs[MR_MAX_OPERANDS];
  void *outputs[MR_MAX_OPERANDS];
  char *base = rehearsal->device_ops->range_address(rehearsal->device, 0);
  for (uint32_t i = 0; i < op->input_count; i++) {
    inputs[i] = place(rehearsal->graph, op, base, op->inputs[i]);
  }
  for (uint32_t i = 0; i < op->output_count; i++) {
    outputs[i] = place(rehearsal->graph, op, base, op->outputs[i]);
  }
  uint64_t scratch_bytes = mr_round_up(op->scratch_bytes, OPERAND_ALIGNMENT);
  struct mr_op_call call = {.attributes = op->attributes,
                            .inputs = inputs,
                            .outputs = outputs,
                            .scratch = scratch_bytes == 0 ? NULL : base + op_bytes - scratch_bytes,
                            .mode = MR_STEP_TRAIN,
                            .stream = streams->handle(rehearsal->stream)};
  double seconds = 0;
  mr_status status = streams->begin(rehearsal->stream, 0, op->name);
  if (status == MR_OK) {
    status = streams->clear(rehearsal->stream, base, op_bytes, op->name);
  }
  if (status == MR_OK) {
    status = op->run[MR_BACKEND_CUDA](&call);
  }
  if (status == MR_OK) {
    status = streams->end(rehearsal->stream, 0, op->name);
  }
  return status == MR_OK ? streams->wait_in_time(rehearsal->stream, 0, op->name, &seconds) : status;
}

static mr_status rehearse(struct rehearsal *rehearsal, uint64_t page_bytes,
                          double timeout_seconds) {
  mr_status status = take_device(rehearsal, page_bytes, timeout_seconds);
  for (uint32_t i = 0; i < rehearsal->op_count && status == MR_OK; i++) {
    mr_op_id id = rehearsal->ops[i];
    status = run_op(rehearsal, &rehearsal->graph->ops[id],
                    mr_op_working_bytes(rehearsal->graph, id, OPERAND_ALIGNMENT));
  }
  if (rehearsal->device != NULL) {
    rehearsal->device_ops->streams->destroy(rehearsal->stream);
    rehearsal->device_ops->destroy(rehearsal->device);
  }
  return status;
}

mr_status mr_rehearse(const struct mr_graph *graph, const struct mr_settings *settings) {
  struct rehearsal rehearsal = {.graph = graph, .device_ops = settings->device};
  struct mr_device_caps caps;
  struct mr_size_text text[2];
  settings->device->query(&caps);
  mr_status status = choose_ops(&rehearsal);
  uint64_t free_bytes = settings->accelerator.free_bytes;
  if (status == MR_OK && mr_round_up(rehearsal.bytes, caps.page_bytes) > free_bytes) {
    mr_log(MR_LOG_WARN,
           "device %s: %s are free, and the largest op needs %s: what libraries will take is not "
           "known and not counted",
           settings->device->name, mr_size_format(free_bytes, &text[0]),
           mr_size_format(rehearsal.bytes, &text[1]));
  } else if (status == MR_OK && rehearsal.op_count > 0) {
    status = rehearse(&rehearsal, caps.page_bytes, mr_settings_watch_seconds(settings));
    mr_log(MR_LOG_DEBUG, "device %s: %u of %u ops were rehearsed, in %s", settings->device->name,
           rehearsal.op_count, graph->op_count, mr_size_format(rehearsal.bytes, &text[0]));
  }
  free(rehearsal.ops);
  return status;
}

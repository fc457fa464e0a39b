/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops that are run by themselves before a plan is made, on zeros, in memory for the largest of them
 * that is given back at once.
 *
 * On an accelerator because libraries load code and take workspaces when ops first run, long after
 * a budget was cut up, and a plan must have left them room: one op of each kind and size is run,
 * and what stays taken is found in use when the device is looked at afterwards. No plan has less
 * memory than the largest op, so a job that fits its budget does so while it is rehearsed; where
 * the device has not even that free, nothing is.
 *
 * On either because the first forecast is to be right: what drills of arithmetic and memory say of
 * an op that was never run was half as long again as the step on a processor, and an eighth of it
 * on an H200. Ops of whose kind and size the profile knows nothing are timed, as far as they fit
 * the budget and a limit of time.
 *
 * On the host beside an accelerator because updates get through memory at no rate that a drill of
 * memory shows: of ops that plans may have there one of the largest is timed, each time on memory
 * that was not touched lately. And once more beside copies both ways, which go through the same
 * memory: on an H200's host an update had 90 GB/s alone and 25 beside 95 of copies.
 *
 * Ops are alike where callback, kind, flags, costs and sizes of operands are: then they ask
 * libraries for the same work.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/runtime.h"

#define OPERAND_ALIGNMENT 256u
/* What timing ops may take in all, by what is reckoned of each before. */
#define TIMING_SECONDS 2.0
/* An op runs once to warm up, and then so often, or until it has taken so long; the middle of these
 * runs counts. */
#define TIMED_RUNS 5u
#define OP_SECONDS 0.1
/* On the processor larger ops go by smaller ones of their kind: zeros for them take longer than the
 * ops. */
#define MOST_TIMED_BYTES (512ull << 20)
/* For how long an op is run again and again beside copies. */
#define BESIDE_SECONDS 0.05
/* More that differ are not looked for: there is no time to run them. */
#define MOST_TIMED_OPS 256u

struct rehearsal {
  const struct mr_graph *graph;
  const struct mr_device_ops *device_ops;
  struct mr_device *device;
  struct mr_stream *stream; /* NULL: ops run on the team */
  struct mr_team *team;
  mr_op_id *ops; /* one of each */
  uint32_t op_count;
  uint64_t bytes;  /* of the largest */
  uint64_t offset; /* of what ops work on, in the range */
};

static bool same_sizes(const struct mr_graph *graph, const mr_tensor_id *a, const mr_tensor_id *b,
                       uint32_t count) {
  bool same = true;
  for (uint32_t i = 0; i < count && same; i++) {
    same = graph->tensors[a[i]].bytes == graph->tensors[b[i]].bytes;
  }
  return same;
}

static bool alike(const struct rehearsal *rehearsal, mr_op_id first, mr_op_id second) {
  const struct mr_graph *graph = rehearsal->graph;
  const struct mr_op *a = &graph->ops[first], *b = &graph->ops[second];
  mr_backend backend = rehearsal->device_ops->backend;
  return a->run[backend] == b->run[backend] && a->flags == b->flags &&
         a->scratch_bytes == b->scratch_bytes && a->memory_bytes == b->memory_bytes &&
         a->input_count == b->input_count && a->output_count == b->output_count &&
         !(a->flops < b->flops) && !(a->flops > b->flops) && strcmp(a->kind, b->kind) == 0 &&
         same_sizes(graph, a->inputs, b->inputs, a->input_count) &&
         same_sizes(graph, a->outputs, b->outputs, a->output_count);
}

static uint64_t op_bytes(const struct rehearsal *rehearsal, mr_op_id op) {
  return mr_op_working_bytes(rehearsal->graph, op, OPERAND_ALIGNMENT);
}

/* The place of an op like this one; op_count where there is none. */
static uint32_t find_like(const struct rehearsal *rehearsal, mr_op_id op) {
  uint32_t at = 0;
  while (at < rehearsal->op_count && !alike(rehearsal, rehearsal->ops[at], op)) {
    at++;
  }
  return at;
}

/* Takes the op, unless there is one like it. */
static void choose(struct rehearsal *rehearsal, mr_op_id op) {
  if (find_like(rehearsal, op) == rehearsal->op_count) {
    rehearsal->ops[rehearsal->op_count++] = op;
    rehearsal->bytes = mr_max_u64(rehearsal->bytes, op_bytes(rehearsal, op));
  }
}

static mr_status init(struct rehearsal *rehearsal, const struct mr_graph *graph,
                      const struct mr_device_ops *device_ops) {
  *rehearsal = (struct rehearsal){.graph = graph, .device_ops = device_ops};
  rehearsal->ops = mr_allocate(graph->op_count, sizeof *rehearsal->ops);
  return rehearsal->ops == NULL ? MR_NO_MEMORY : MR_OK;
}

static void fini(struct rehearsal *rehearsal) {
  if (rehearsal->stream != NULL) {
    rehearsal->device_ops->streams->destroy(rehearsal->stream);
  }
  if (rehearsal->device != NULL) {
    rehearsal->device_ops->destroy(rehearsal->device);
  }
  mr_team_destroy(rehearsal->team);
  free(rehearsal->ops);
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
  const struct mr_device_ops *device_ops = rehearsal->device_ops;
  mr_status status = device_ops->create(&config, &rehearsal->device);
  if (status == MR_OK && device_ops->streams == NULL) {
    status = device_ops->bind(rehearsal->device, 0, pages, page_count);
  } else if (status == MR_OK) {
    status = device_ops->streams->create(rehearsal->device, 1, &rehearsal->stream);
  }
  free(pages);
  return status;
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

/* The callback, and no more. */
static mr_status call_op(const struct rehearsal *rehearsal, mr_op_id id) {
  const struct mr_op *op = &rehearsal->graph->ops[id];
  const struct mr_device_ops *device_ops = rehearsal->device_ops;
  void *inputs[MR_MAX_OPERANDS];
  void *outputs[MR_MAX_OPERANDS];
  char *base = (char *)device_ops->range_address(rehearsal->device, 0) + rehearsal->offset;
  for (uint32_t i = 0; i < op->input_count; i++) {
    inputs[i] = place(rehearsal->graph, op, base, op->inputs[i]);
  }
  for (uint32_t i = 0; i < op->output_count; i++) {
    outputs[i] = place(rehearsal->graph, op, base, op->outputs[i]);
  }
  char *end = base + op_bytes(rehearsal, id);
  uint64_t scratch_bytes = mr_round_up(op->scratch_bytes, OPERAND_ALIGNMENT);
  struct mr_op_call call = {
      .attributes = op->attributes,
      .inputs = inputs,
      .outputs = outputs,
      .scratch = scratch_bytes == 0 ? NULL : end - scratch_bytes,
      .team = rehearsal->team,
      .mode = MR_STEP_TRAIN,
      .stream = rehearsal->stream == NULL ? NULL : device_ops->streams->handle(rehearsal->stream),
      .name = op->name};
  return op->run[device_ops->backend](&call);
}

/* The op on the stream, what it works on filled with zeros before where asked; `seconds_out` counts
 * that too. */
static mr_status run_on_stream(const struct rehearsal *rehearsal, mr_op_id id, bool clear,
                               double *seconds_out) {
  const struct mr_stream_ops *streams = rehearsal->device_ops->streams;
  const struct mr_work work = {"op", rehearsal->graph->ops[id].name, op_bytes(rehearsal, id)};
  void *base = rehearsal->device_ops->range_address(rehearsal->device, 0);
  mr_status status = streams->begin(rehearsal->stream, 0, &work, true);
  if (status == MR_OK && clear) {
    status = streams->clear(rehearsal->stream, base, work.bytes);
  }
  if (status == MR_OK) {
    status = call_op(rehearsal, id);
  }
  if (status == MR_OK) {
    status = streams->end(rehearsal->stream);
  }
  return status == MR_OK ? streams->wait_in_time(rehearsal->stream, 0, seconds_out) : status;
}

static mr_status rehearse(struct rehearsal *rehearsal, uint64_t page_bytes,
                          double timeout_seconds) {
  mr_status status = take_device(rehearsal, page_bytes, timeout_seconds);
  for (uint32_t i = 0; i < rehearsal->op_count && status == MR_OK; i++) {
    double seconds = 0;
    status = run_on_stream(rehearsal, rehearsal->ops[i], true, &seconds);
  }
  return status;
}

mr_status mr_rehearse(const struct mr_graph *graph, const struct mr_settings *settings) {
  struct rehearsal rehearsal;
  struct mr_device_caps caps;
  struct mr_size_text text[2];
  settings->device->query(&caps);
  mr_status status = init(&rehearsal, graph, settings->device);
  for (mr_op_id k = 0; status == MR_OK && k < graph->op_count; k++) {
    if (graph->ops[k].run[settings->device->backend] != NULL) {
      choose(&rehearsal, k);
    }
  }
  uint64_t free_bytes = settings->accelerator.free_bytes;
  if (status == MR_OK && mr_round_up(rehearsal.bytes, caps.map_bytes) > free_bytes) {
    mr_log(MR_LOG_WARN,
           "device %s: %s are free, and the largest op needs %s: what libraries will take is not "
           "known and not counted",
           settings->device->name, mr_size_format(free_bytes, &text[0]),
           mr_size_format(rehearsal.bytes, &text[1]));
  } else if (status == MR_OK && rehearsal.op_count > 0) {
    status = rehearse(&rehearsal, caps.map_bytes, mr_settings_watch_seconds(settings));
    mr_log(MR_LOG_DEBUG, "device %s: %u of %u ops were rehearsed, in %s", settings->device->name,
           rehearsal.op_count, graph->op_count, mr_size_format(rehearsal.bytes, &text[0]));
  }
  fini(&rehearsal);
  return status;
}

static void insert(double *sorted, uint32_t count, double value) {
  for (; count > 0 && sorted[count - 1] > value; count--) {
    sorted[count] = sorted[count - 1];
  }
  sorted[count] = value;
}

/* Runs the op on zeros, to warm up. */
static mr_status warm_up(const struct rehearsal *rehearsal, mr_op_id id) {
  double seconds = 0;
  if (rehearsal->stream != NULL) {
    return run_on_stream(rehearsal, id, true, &seconds);
  }
  memset(rehearsal->device_ops->range_address(rehearsal->device, 0), 0, op_bytes(rehearsal, id));
  return call_op(rehearsal, id);
}

static mr_status run_once(const struct rehearsal *rehearsal, mr_op_id id, double *seconds_out) {
  if (rehearsal->stream != NULL) {
    return run_on_stream(rehearsal, id, false, seconds_out);
  }
  double start = mr_clock_seconds();
  mr_status status = call_op(rehearsal, id);
  *seconds_out = mr_clock_seconds() - start;
  return status;
}

static mr_status time_op(const struct rehearsal *rehearsal, mr_op_id id, double *seconds_out) {
  double seconds[TIMED_RUNS] = {0};
  uint32_t count = 0;
  mr_status status = warm_up(rehearsal, id);
  double start = mr_clock_seconds();
  while (status == MR_OK && count < TIMED_RUNS && mr_clock_seconds() - start < OP_SECONDS) {
    double now = 0;
    status = run_once(rehearsal, id, &now);
    insert(seconds, count++, now);
  }
  if (status == MR_OK && count > 0) {
    *seconds_out = seconds[(count - 1) / 2];
  }
  return status;
}

/* Of the op, its run to warm up included. */
static double expected_seconds(const struct rehearsal *rehearsal, const struct mr_profile *profile,
                               mr_op_id op) {
  return 2 * mr_profile_op_seconds(profile, &rehearsal->graph->ops[op]);
}

/* Fills in the seconds of each op that is chosen while there is time; 0: of the others. */
static mr_status time_ops(struct rehearsal *rehearsal, const struct mr_settings *settings,
                          const struct mr_profile *profile, double *seconds) {
  struct mr_device_caps caps;
  settings->device->query(&caps);
  bool apart = settings->device->streams != NULL;
  mr_status status = take_device(rehearsal, apart ? caps.map_bytes : MR_DEVICE_HUGE_PAGE_BYTES,
                                 apart ? mr_settings_watch_seconds(settings) : 0);
  double start = mr_clock_seconds();
  for (uint32_t i = 0; i < rehearsal->op_count && status == MR_OK; i++) {
    mr_op_id id = rehearsal->ops[i];
    double expected = expected_seconds(rehearsal, profile, id);
    if (mr_clock_seconds() - start + expected < TIMING_SECONDS) {
      status = time_op(rehearsal, id, &seconds[id]);
    }
  }
  return status;
}

/* True where the profile knows nothing of the op, can learn it, and there is room and time. */
static bool wants_timing(const struct rehearsal *rehearsal, const struct mr_settings *settings,
                         const struct mr_profile *profile, mr_op_id id) {
  const struct mr_op *op = &rehearsal->graph->ops[id];
  bool apart = settings->device->streams != NULL;
  uint64_t bytes = op_bytes(rehearsal, id);
  uint64_t most_bytes = apart ? settings->accelerator.free_bytes : MOST_TIMED_BYTES;
  return op->run[settings->device->backend] != NULL && !mr_profile_knows(profile, op) &&
         bytes > 0 && bytes <= most_bytes && bytes <= settings->budget_bytes[MR_TIER_DEVICE] &&
         expected_seconds(rehearsal, profile, id) < TIMING_SECONDS;
}

mr_status mr_rehearse_unknown(const struct mr_graph *graph, const struct mr_settings *settings,
                              struct mr_profile *profile, bool *learned_out) {
  struct rehearsal rehearsal;
  mr_status status = init(&rehearsal, graph, settings->device);
  *learned_out = false;
  for (mr_op_id k = 0; status == MR_OK && k < graph->op_count; k++) {
    if (rehearsal.op_count < MOST_TIMED_OPS && wants_timing(&rehearsal, settings, profile, k)) {
      choose(&rehearsal, k);
    }
  }
  double *seconds = NULL;
  if (status == MR_OK && rehearsal.op_count > 0) {
    seconds = mr_allocate(graph->op_count, sizeof *seconds);
    status = seconds == NULL ? MR_NO_MEMORY : MR_OK;
  }
  if (status == MR_OK && rehearsal.op_count > 0 && settings->device->streams == NULL) {
    status = mr_team_create(settings->threads, &rehearsal.team);
  }
  if (status == MR_OK && rehearsal.op_count > 0) {
    status = time_ops(&rehearsal, settings, profile, seconds);
  }
  if (status == MR_OK && rehearsal.op_count > 0) {
    for (mr_op_id k = 0; k < graph->op_count; k++) {
      uint32_t like = find_like(&rehearsal, k);
      seconds[k] = like < rehearsal.op_count ? seconds[rehearsal.ops[like]] : 0;
    }
    mr_profile_learn(profile, graph, seconds, 1);
    *learned_out = true;
    mr_log(MR_LOG_DEBUG, "device %s: %u of %u ops were timed", settings->device->name,
           rehearsal.op_count, graph->op_count);
  }
  free(seconds);
  fini(&rehearsal);
  return status;
}

static bool runs_on_host(const struct mr_op *op) {
  return (op->flags & MR_OP_HOST_CAPABLE) != 0 && op->run[MR_BACKEND_CPU] != NULL &&
         op->memory_bytes > 0;
}

/* An op that runs on one part of memory after the other. */
struct host_timing {
  struct rehearsal *rehearsal;
  mr_op_id op;
  uint32_t parts;
  uint32_t runs;
  double seconds; /* of these runs */
};

static mr_status run_on_next_part(struct host_timing *timing, double *seconds_out) {
  struct rehearsal *rehearsal = timing->rehearsal;
  timing->runs++;
  rehearsal->offset = timing->runs % timing->parts * (rehearsal->bytes / timing->parts);
  mr_status status = run_once(rehearsal, timing->op, seconds_out);
  timing->seconds += *seconds_out;
  return status;
}

/* The median counts. */
static mr_status time_alone(struct host_timing *timing, double *bytes_per_second_out) {
  struct rehearsal *rehearsal = timing->rehearsal;
  double seconds[TIMED_RUNS] = {0};
  uint32_t count = 0;
  memset(rehearsal->device_ops->range_address(rehearsal->device, 0), 0, rehearsal->bytes);
  mr_status status = call_op(rehearsal, timing->op);
  while (status == MR_OK && count < TIMED_RUNS) {
    double now = 0;
    status = run_on_next_part(timing, &now);
    insert(seconds, count++, now);
  }
  uint64_t bytes = rehearsal->graph->ops[timing->op].memory_bytes;
  *bytes_per_second_out = (double)bytes / fmax(seconds[TIMED_RUNS / 2], 1e-9);
  return status;
}

static mr_status run_for_a_while(void *context) {
  struct host_timing *timing = context;
  mr_status status = MR_OK;
  timing->runs = 0;
  timing->seconds = 0;
  while (status == MR_OK && timing->seconds < BESIDE_SECONDS) {
    double now = 0;
    status = run_on_next_part(timing, &now);
  }
  return status;
}

/* What the op and copies beside it get through together. */
static mr_status time_beside(struct host_timing *timing, double *bytes_per_second_out) {
  double copied = 0;
  mr_status status = mr_cuda_measure_beside(run_for_a_while, timing, &copied);
  uint64_t bytes = timing->runs * timing->rehearsal->graph->ops[timing->op].memory_bytes;
  *bytes_per_second_out = copied + (double)bytes / fmax(timing->seconds, 1e-9);
  return status;
}

/* The largest that plans may have on the host; op_count: none. */
static mr_op_id largest_on_host(const struct mr_graph *graph) {
  mr_op_id largest = graph->op_count;
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    const struct mr_op *op = &graph->ops[k];
    if (runs_on_host(op) &&
        (largest == graph->op_count || op->memory_bytes > graph->ops[largest].memory_bytes)) {
      largest = k;
    }
  }
  return largest;
}

static mr_status time_on_host(struct host_timing *timing, const struct mr_settings *settings,
                              struct mr_profile *profile) {
  struct rehearsal *rehearsal = timing->rehearsal;
  mr_status status = mr_team_create(mr_settings_team_threads(settings), &rehearsal->team);
  if (status == MR_OK) {
    status = take_device(rehearsal, MR_DEVICE_HUGE_PAGE_BYTES, 0);
  }
  if (status == MR_OK) {
    status = time_alone(timing, &profile->host_bytes_per_second);
  }
  return status == MR_OK ? time_beside(timing, &profile->host_memory_bytes_per_second) : status;
}

mr_status mr_rehearse_host(const struct mr_graph *graph, const struct mr_settings *settings,
                           struct mr_profile *profile) {
  mr_op_id op = largest_on_host(graph);
  if (op == graph->op_count) {
    return MR_OK;
  }
  struct rehearsal rehearsal;
  mr_status status = init(&rehearsal, graph, &mr_device_cpu);
  uint64_t bytes = mr_round_up(op_bytes(&rehearsal, op), OPERAND_ALIGNMENT);
  uint64_t room = mr_min_u64(settings->budget_bytes[MR_TIER_HOST], MOST_TIMED_BYTES);
  uint32_t parts = (uint32_t)mr_min_u64(room / bytes, TIMED_RUNS + 1);
  rehearsal.bytes = parts * bytes;
  if (status == MR_OK && parts > 0) {
    struct host_timing timing = {.rehearsal = &rehearsal, .op = op, .parts = parts};
    status = time_on_host(&timing, settings, profile);
  }
  fini(&rehearsal);
  return status;
}

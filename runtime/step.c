/* SPDX-License-Identifier: Apache-2.0 */
/* A step: the compute queue on the caller's thread, and the report of what happened. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/runtime.h"

uint64_t mr_resident_peak_bytes(void) {
  char text[4096];
  int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return 0;
  }
  ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  text[length < 0 ? 0 : length] = '\0';
  const char *line = strstr(text, "VmHWM:");
  return line == NULL ? 0 : strtoull(line + 6, NULL, 10) * MR_KIB;
}

/* What compute did in a step. */
struct account {
  uint64_t busy_ns;
  uint64_t stall_ns;
  uint64_t bind_ns;
};

static bool leaves_out(enum mr_round round, const struct mr_op *op) {
  switch (round) {
  case MR_ROUND_FRESH:
    return op->deferred;
  case MR_ROUND_FLUSH:
    return !op->deferred;
  case MR_ROUND_EVALUATE:
    return (op->flags & MR_OP_TRAIN_ONLY) != 0;
  case MR_ROUND_RESTORE:
    return true;
  case MR_ROUND_TRAIN:
    break;
  }
  return false;
}

static mr_step_mode mode_of(enum mr_round round, const struct mr_op *op) {
  if (leaves_out(round, op)) {
    return MR_STEP_RESTORE;
  }
  return round == MR_ROUND_EVALUATE ? MR_STEP_EVALUATE : MR_STEP_TRAIN;
}

bool mr_run_skips(const struct mr_run *run, mr_op_id id) {
  const struct mr_graph *program = run->layout->program;
  return leaves_out((enum mr_round)atomic_load(&run->round), &program->ops[id]) &&
         !mr_op_restores(program, id);
}

struct mr_op_call mr_run_call(struct mr_run *run, mr_op_id id) {
  const struct mr_op *op = &run->layout->program->ops[id];
  void **operands = &run->operands[run->layout->first_operand[id]];
  return (struct mr_op_call){
      .attributes = op->attributes,
      .inputs = operands,
      .outputs = operands + op->input_count,
      .scratch = operands[op->input_count + op->output_count],
      .team = run->team,
      .mode = mode_of((enum mr_round)atomic_load(&run->round), op),
      .name = op->name,
  };
}

/* A plan's first step warms libraries and caches up; it teaches nothing. */
void mr_run_record_op(struct mr_run *run, mr_op_id id, const struct mr_op_sample *sample) {
  if (atomic_load(&run->round) == MR_ROUND_TRAIN && run->step_index > run->plan_base + 1) {
    mr_outlook_record_op(run, id, sample);
  }
}

static mr_status run_op(struct mr_run *run, mr_op_id id, struct account *account) {
  const struct mr_op *op = &run->layout->program->ops[id];
  if (mr_run_skips(run, id)) {
    return MR_OK;
  }
  struct mr_op_call call = mr_run_call(run, id);
  struct mr_queue *queue = &run->queues[MR_QUEUE_COMPUTE];
  mr_taken_count_op(run, id);
  bool crowded = mr_queues_busy(run);
  uint64_t nvme_bytes = mr_store_moved_bytes(run->store);
  uint64_t start_ns = mr_clock_ns();
  atomic_store(&queue->op_started_ns, start_ns);
  mr_status status = op->run[run->device_ops->backend](&call);
  uint64_t end_ns = mr_clock_ns();
  atomic_store(&queue->op_started_ns, 0);
  account->busy_ns += end_ns - start_ns;
  mr_trace_add(run->trace, MR_QUEUE_COMPUTE, op->name, op->memory_bytes, start_ns, end_ns);
  struct mr_op_sample sample = {.seconds = (double)(end_ns - start_ns) * 1e-9,
                                .crowded = crowded || mr_queues_busy(run),
                                .nvme_bytes = mr_store_moved_bytes(run->store) - nvme_bytes};
  mr_run_record_op(run, id, &sample);
  return status;
}

static mr_status run_compute(struct mr_run *run, struct account *account) {
  struct mr_queue *queue = &run->queues[MR_QUEUE_COMPUTE];
  uint64_t step = run->round_count - 1;
  for (uint32_t k = 0; k < queue->count; k++) {
    const struct mr_instruction *instruction = &queue->instructions[k];
    uint64_t start_ns = mr_clock_ns();
    if (!mr_queue_wait(queue, instruction, step)) {
      return mr_run_status(run);
    }
    uint64_t ready_ns = mr_clock_ns();
    account->stall_ns += ready_ns - start_ns;
    mr_status status = mr_queue_bind(queue, instruction);
    account->bind_ns += mr_clock_ns() - ready_ns;
    if (status == MR_OK) {
      status = queue->stream != NULL ? mr_stream_run_op(run, instruction->op)
                                     : run_op(run, instruction->op, account);
    }
    if (status != MR_OK) {
      return status;
    }
    mr_counter_add(queue->stream != NULL ? &queue->enqueued : &queue->done, 1);
  }
  return MR_OK;
}

/* Compute with a stream: the thread enters the device, runs ahead and waits for the end; then what
 * the stream did not work was spent waiting. Ops that were not timed may have been quicker than
 * when they were. */
static mr_status run_stream(struct mr_run *run, struct account *account) {
  struct mr_queue *queue = &run->queues[MR_QUEUE_COMPUTE];
  uint64_t start_ns = mr_clock_ns();
  uint64_t busy_ns = atomic_load(&queue->busy_ns);
  mr_status status = run->device_ops->enter(run->device);
  if (status == MR_OK) {
    status = run_compute(run, account);
  }
  if (status == MR_OK) {
    status = mr_stream_drain(run);
  }
  uint64_t wall_ns = mr_clock_ns() - start_ns;
  account->busy_ns = mr_min_u64(atomic_load(&queue->busy_ns) - busy_ns, wall_ns);
  account->stall_ns = wall_ns - account->busy_ns;
  return status;
}

static void fill_tiers(const struct mr_run *run, struct mr_step_report *report) {
  for (uint32_t tier = 0; tier < MR_TIER_COUNT; tier++) {
    report->peak_bytes[tier] = atomic_load(&run->peak_bytes[tier]);
    report->planned_peak_bytes[tier] = atomic_load(&run->planned_peak_bytes[tier]);
    report->budget_bytes[tier] = atomic_load(&run->told_budget_bytes[tier]);
  }
  report->resident_peak_bytes = mr_resident_peak_bytes();
}

static void hand_out(const struct mr_step_report *report, struct mr_step_report *report_out) {
  mr_hand_out(report, sizeof *report, report_out);
}

/* What the links and the ops on the host did since this was asked last. */
static void take_traffic(struct mr_run *run, struct mr_step_report *report) {
  struct mr_queue *host = &run->queues[MR_QUEUE_HOST];
  uint64_t host_bytes = atomic_load(&host->moved_bytes);
  uint64_t host_ns = atomic_load(&host->busy_ns);
  report->host_op_bytes = host_bytes - run->before_host_bytes;
  report->host_busy_seconds = (double)(host_ns - run->before_host_ns) * 1e-9;
  run->before_host_bytes = host_bytes;
  run->before_host_ns = host_ns;
  for (uint32_t link = 0; link < MR_LINK_COUNT; link++) {
    struct mr_queue *queue = &run->queues[MR_QUEUE_OF(link)];
    uint64_t moved_bytes = atomic_load(&queue->moved_bytes);
    uint64_t busy_ns = atomic_load(&queue->busy_ns);
    report->moved_bytes[link] = moved_bytes - run->before_moved_bytes[link];
    report->link_busy_seconds[link] = (double)(busy_ns - run->before_busy_ns[link]) * 1e-9;
    run->before_moved_bytes[link] = moved_bytes;
    run->before_busy_ns[link] = busy_ns;
  }
}

static void report_step(struct mr_run *run, const struct account *account, double seconds,
                        struct mr_step_report *report_out) {
  struct mr_step_report report = {
      .size_bytes = sizeof report,
      .step = run->step_index,
      .seconds = seconds,
      .predicted_seconds = run->layout->step_seconds,
      .replan_count = run->replan_count,
      .replan_step = run->replan_step,
      .replan_before_seconds = run->replan_before_seconds,
      .replan_after_seconds = run->replan_after_seconds,
      .compute_busy_seconds = (double)account->busy_ns * 1e-9,
      .stall_seconds = (double)account->stall_ns * 1e-9,
      .bind_seconds = (double)account->bind_ns * 1e-9,
      .flush_seconds = run->flush_seconds,
  };
  take_traffic(run, &report);
  report.bound_by = mr_bound_name(report.compute_busy_seconds, report.host_busy_seconds,
                                  report.link_busy_seconds);
  mr_outlook_record(run, &report);
  struct mr_judged_forecast judged = mr_outlook_judge(&run->outlook, run->layout->step_seconds);
  report.judged_seconds = judged.predicted_seconds;
  report.median_seconds = judged.median_seconds;
  report.median_step_count = judged.step_count;
  report.others_share = run->outlook.others_share;
  mr_taken_tell(run);
  fill_tiers(run, &report);
  if (report_out != NULL) {
    hand_out(&report, report_out);
  }
}

/* Write-backs may still be going on, and they add to their rows: the locks keep them out. */
mr_status mr_run_flush_trace(struct mr_run *run) {
  if (run->trace == NULL) {
    return MR_OK;
  }
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    pthread_mutex_lock(&run->queues[q].lock);
  }
  mr_status status = mr_trace_flush(run->trace);
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    pthread_mutex_unlock(&run->queues[q].lock);
  }
  return status;
}

/* One round of the queues; compute's part of it on this thread. */
static mr_status run_round(struct mr_run *run, enum mr_round round, struct account *account) {
  bool streams = run->queues[MR_QUEUE_COMPUTE].stream != NULL;
  atomic_store(&run->round, (int)round);
  /* The first step of a plan teaches nothing; what a trace shows is timed always. */
  atomic_store(&run->times_all, run->trace != NULL || run->step_index <= run->plan_base + 2);
  run->round_count++;
  atomic_store(&run->in_round, true);
  mr_counter_add(&run->steps, 1);
  mr_status status = streams ? run_stream(run, account) : run_compute(run, account);
  atomic_store(&run->in_round, false);
  if (status == MR_OK) {
    bool trains = round == MR_ROUND_TRAIN || round == MR_ROUND_FRESH;
    run->pending = trains && run->plan->deferred_op_count > 0;
  }
  return status;
}

mr_status mr_run_check_outside(const struct mr_run *run, const char *call) {
  if (!atomic_load(&run->in_round)) {
    return MR_OK;
  }
  mr_log(
      MR_LOG_ERROR,
      "%s while ops run: an op and other threads may call mr_run_observe and mr_run_status alone",
      call);
  return MR_INVALID;
}

bool mr_run_is_pending(const struct mr_run *run, mr_tensor_id tensor, bool any) {
  const struct mr_graph *program = run->layout->program;
  bool found = false;
  for (mr_op_id k = 0; run->pending && k < program->op_count && !found; k++) {
    const struct mr_op *op = &program->ops[k];
    for (uint32_t i = 0; op->deferred && i < op->output_count; i++) {
      found = found || op->outputs[i] == tensor;
    }
    for (uint32_t i = 0; any && op->deferred && i < op->input_count; i++) {
      found = found || op->inputs[i] == tensor;
    }
  }
  return found;
}

/* A round between two steps. */
static mr_status run_between(struct mr_run *run, enum mr_round round) {
  struct account account = {0};
  struct mr_step_report traffic;
  uint64_t start_ns = mr_clock_ns();
  /* No queue may take a move of the step before, or of the next, for one of this round. */
  mr_status status = mr_run_drain(run);
  if (status == MR_OK) {
    status = run_round(run, round, &account);
  }
  if (status == MR_OK) {
    status = mr_run_drain(run);
  }
  if (status != MR_OK) {
    mr_run_fail(run, status);
    return mr_run_status(run);
  }
  take_traffic(run, &traffic);
  run->flush_seconds += (double)(mr_clock_ns() - start_ns) * 1e-9;
  return MR_OK;
}

mr_status mr_run_flush(struct mr_run *run) {
  mr_status status = mr_run_status(run);
  return status == MR_OK && run->pending ? run_between(run, MR_ROUND_FLUSH) : status;
}

void mr_run_note_written(struct mr_run *run, mr_tensor_id tensor) {
  const struct mr_graph *graph = run->graph;
  bool may_change = graph->tensors[tensor].role != MR_INPUT;
  for (mr_op_id k = 0; may_change && k < graph->op_count && !run->stale; k++) {
    run->stale = mr_op_reads(&graph->ops[k], tensor) && mr_op_writes(&graph->ops[k], tensor) &&
                 mr_op_restores(graph, k);
  }
}

/* Derived tensors that go round the end of a step must be there before the first one. */
static mr_status restore(struct mr_run *run) {
  const struct mr_graph *program = run->layout->program;
  bool any = false;
  for (mr_tensor_id t = 0; t < program->tensor_count && run->stale; t++) {
    const struct mr_tensor *tensor = &program->tensors[t];
    any = any || (tensor->role == MR_DERIVED && mr_tensor_goes_round(tensor));
  }
  run->stale = false;
  mr_status status = any ? mr_run_flush(run) : MR_OK;
  return any && status == MR_OK ? run_between(run, MR_ROUND_RESTORE) : status;
}

mr_status mr_run_sync(struct mr_run *run) {
  mr_status status = mr_run_check_outside(run, "mr_run_sync");
  if (status == MR_OK) {
    status = mr_run_flush(run);
  }
  return status == MR_OK ? mr_run_drain(run) : status;
}

mr_status mr_run_step(struct mr_run *run, mr_step_mode mode, struct mr_step_report *report_out) {
  mr_status status = mr_run_check_outside(run, "mr_run_step");
  if (status == MR_OK) {
    status = mr_run_status(run);
  }
  if (status != MR_OK) {
    return status;
  }
  if (mode != MR_STEP_TRAIN && mode != MR_STEP_EVALUATE) {
    mr_log(MR_LOG_ERROR, "step mode %d is unknown", (int)mode);
    return MR_INVALID;
  }
  status = mr_run_make_room(run);
  if (status == MR_OK) {
    status = mode == MR_STEP_TRAIN ? mr_run_review(run) : mr_run_flush(run);
  }
  if (status == MR_OK) {
    status = restore(run);
  }
  if (status != MR_OK) {
    mr_run_fail(run, status);
    return mr_run_status(run);
  }
  atomic_store(&run->forecast_seconds, run->layout->step_seconds);
  uint64_t start_ns = mr_clock_ns();
  struct account account = {0};
  run->step_index++;
  atomic_store(&run->step_started_ns, start_ns);
  atomic_store(&run->observed_step, run->step_index);
  atomic_store(&run->in_step, true);
  bool whole = run->pending || run->plan->deferred_op_count == 0;
  enum mr_round train = whole ? MR_ROUND_TRAIN : MR_ROUND_FRESH;
  status = run_round(run, mode == MR_STEP_TRAIN ? train : MR_ROUND_EVALUATE, &account);
  atomic_store(&run->in_step, false);
  if (status == MR_OK) {
    status = mr_taken_look(run);
  }
  if (status != MR_OK) {
    mr_run_fail(run, status);
    return mr_run_status(run);
  }
  double seconds = (double)(mr_clock_ns() - start_ns) * 1e-9;
  report_step(run, &account, seconds, report_out);
  run->flush_seconds = mode == MR_STEP_TRAIN ? 0 : run->flush_seconds;
  status = mr_run_flush_trace(run);
  if (status != MR_OK) {
    mr_run_fail(run, status);
  }
  return status;
}

void mr_run_observe(const struct mr_run *run, struct mr_step_report *report_out) {
  struct mr_step_report report = {
      .size_bytes = sizeof report,
      .step = atomic_load(&run->observed_step),
      .predicted_seconds = atomic_load(&run->forecast_seconds),
      .bound_by = "",
  };
  if (atomic_load(&run->in_step)) {
    report.seconds = (double)(mr_clock_ns() - atomic_load(&run->step_started_ns)) * 1e-9;
  }
  for (uint32_t link = 0; link < MR_LINK_COUNT; link++) {
    const struct mr_queue *queue = &run->queues[MR_QUEUE_OF(link)];
    report.moved_bytes[link] = atomic_load(&queue->moved_bytes);
    report.link_busy_seconds[link] = (double)atomic_load(&queue->busy_ns) * 1e-9;
  }
  report.host_op_bytes = atomic_load(&run->queues[MR_QUEUE_HOST].moved_bytes);
  report.host_busy_seconds = (double)atomic_load(&run->queues[MR_QUEUE_HOST].busy_ns) * 1e-9;
  fill_tiers(run, &report);
  hand_out(&report, report_out);
}
